"""No text, however damaged, brings about anything but a diagnostic, or takes memory or time that it has no right to."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, LimitError, ParseError, RunError, UsageError, VerifyError
from deepx_graph.session import programs
from deepx_graph.session.inputs import read_npy, read_npz
from deepx_graph.session.query.language import parse_query
from deepx_graph.text.formats import decode_source, open_source
from deepx_graph.text.mindir import dump
from deepx_graph.text.mindir.lower import place_of
from deepx_graph.text.mindir.schema import Attribute
from tests.support.flatbuffers import exported
from tests.support.memory_bound import memory_of
from tests.support.mindir_messages import field
from tests.support.mutant_trials import WRITERS, run, written
from tests.support.stablehlo_suite import ADD
from tests.support.torch_archives import archive, call, meta, program, t
from tests.support.xla_texts import LOOP, REDUCE

SAMPLED = 1000
WHOLE = int(os.environ.get("DEEPX_GRAPH_MUTANTS", "20000"))


def test_damaged_programs_sampled() -> None:
    report = run(range(SAMPLED), "own")
    assert not report.failures, str(report)
    assert min(report.counts[k] for k in ("refused", "loaded")) > SAMPLED // 20


@pytest.mark.conformance
def test_damaged_programs() -> None:
    """Of the whole corpus; DEEPX_GRAPH_MUTANTS says how many."""
    report = run(range(WHOLE), "corpus")
    assert not report.failures, str(report)


def test_hostile_numbers_sampled() -> None:
    """Any number in a program of any operation, in any language: negative, past a machine word, past what Python reads."""
    report = run(range(SAMPLED // 4), "numbers")
    assert not report.failures, str(report)


@pytest.mark.conformance
def test_hostile_numbers() -> None:
    report = run(range(4 * WHOLE), "numbers")
    assert not report.failures, str(report)


# --- what damaged programs have found -----------------------------------------------------------------------------

CALL = """HloModule m
f {{ {callee} }}
ENTRY e {{ x = f32[2] parameter(0) y = f32[2] parameter(1) ROOT r = {call}, to_apply=f }}
"""
ONE = "p = f32[2] parameter(0) ROOT q = f32[2] negate(p)"


@pytest.mark.parametrize(("callee", "call"), [
    ("ROOT q = f32[2] constant({1, 2})", "f32[2] call(x)"),
    (ONE, "f32[2] call(x, y)"),
    (ONE, "(f32[2], f32[2]) call(x)"),
    ("p = f32[2] parameter(0) ROOT q = (f32[2], f32[2]) tuple(p, p)", "f32[2] call(x)"),
    ("p = f32[3] parameter(0) ROOT q = f32[3] negate(p)", "f32[2] call(x)"),
])  # fmt: skip
def test_a_call_has_the_operands_and_results_of_what_it_calls(callee: str, call: str) -> None:
    programs.loads(CALL.format(callee=ONE, call="f32[2] call(x)"), "hlo")
    with pytest.raises((ParseError, VerifyError)):
        programs.loads(CALL.format(callee=callee, call=call), "hlo")


@pytest.mark.parametrize("layout", ["{1(0}", "{),1}", "{1,1}", "{0}", "{2,1}", "{1,,0}"])
def test_a_layout_names_every_dimension_once(layout: str) -> None:
    texts = ("HloModule m\nENTRY e {{ x = f32[2,3]{} parameter(0) ROOT r = f32[2,3] negate(x) }}\n",
             "HloModule m\nENTRY e {{ x = f32[2,3] parameter(0) ROOT r = f32[2,3]{} negate(x) }}\n")
    for text in texts:
        for right in ("", "{1,0}", "{0,1:T(8,128)(2,1)S(1)}", "{}"):
            programs.loads(text.format(right), "hlo")
        with pytest.raises(DeepxGraphError):
            programs.loads(text.format(layout), "hlo")


@pytest.mark.parametrize("dialect", ["seed", "wire", "function"])
def test_deepx_has_no_complex_numbers(dialect: str) -> None:
    module = dx.loads("HloModule m\nENTRY e {\n  ROOT f = c64[2]{0} constant({(1, -2), (0.5, 3)})\n}\n", "hlo")
    with pytest.raises(VerifyError, match="deepx has no element type c64") as e:
        dx.dumps(module, "deepx", dialect=dialect)
    assert len(e.value.diagnostics) == 1


def npy(length: int, written: int) -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", length) + b" " * written


class Counting(io.BytesIO):
    """A stream that counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


@pytest.mark.parametrize("length", [20_000, 1 << 20, (1 << 32) - 1])
def test_the_header_of_an_array_is_bounded_before_it_is_read(length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = npy(length, 1 << 20)
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(RunError, match="header of"):
        read_npy(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", data)
    stream = Counting()
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: stream)
    stream.write(data)
    stream.seek(0)
    with pytest.raises(RunError, match="header of"):
        read_npz(tmp_path / "x.npz")
    assert stream.taken < 100


HOSTILE = b"\0\n\r\\'\"#()[]{},:*-0@\xff"


@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")
def test_an_array_with_a_damaged_header_is_read_or_refused(tmp_path: Path) -> None:
    """Any character of it another one, left out, or the last."""
    path, stream = tmp_path / "x.npy", io.BytesIO()
    np.save(stream, np.arange(6, dtype=np.float32).reshape(2, 3))
    data = stream.getvalue()
    length = data.index(b"}") + 3
    for k in range(length):
        for damaged in (data[:k], data[:k] + data[k + 1 :], *(data[:k] + bytes([c]) + data[k + 1 :] for c in HOSTILE)):
            path.write_bytes(damaged)
            with contextlib.suppress(RunError, LimitError):
                assert read_npy(path).nbytes <= len(data)


def test_arrays_of_both_versions_are_read(tmp_path: Path) -> None:
    for version in ((1, 0), (2, 0)):
        with (tmp_path / "x.npy").open("wb") as stream:
            np.lib.format.write_array(stream, np.arange(3), version=version)
        assert read_npy(tmp_path / "x.npy").tolist() == [0, 1, 2]


@pytest.mark.parametrize(("head", "name"), [
    (b"PK\x03\x04" + b"\0" * 26 + b"archive/data.pkl", "torch, TorchScript or weights"),
    (b"PK\x03\x04" + b"\0" * 26 + b"metadata.json", "Keras"), (b"PK\x03\x04" + b"\0" * 26 + b"readme", "zip archive"),
    (b"\x08\x01\x12\xaf\x10\x0a\x40\x12\x10", "SavedModel"), (b"\x08\x04\x12\x40\x0a\x10\x0a\x01x", "Core ML"),
    (b"\x08\x01\x12\x20\x0a\x0e\x0a\x01x\x1a\x09", "Core ML"), (b"PK\x03\x04" + b"\0" * 26 + b"ts/data/0FB", "TorchScript"),
    (b"\x0a\x1c\x0a\x01x\x12\x0bPlaceholder\x2a", "TensorFlow graph"), (b"\x1c\0\0\0ET12", "ExecuTorch"), (b"ptrt", "TensorRT"),
    (b"\x40\0\0\0\0\0\0\0{\"w\":", "safetensors"), (b"GGUF\x03", "GGUF"), (b"\x7fELF\x02", "machine code"),
    (b"PK\x03\x04" + b"\0" * 26 + b"in0.npy", "numpy arrays"),
    (b"\x93NUMPY\x01\x00v\0", "numpy array"),
    (b"\x1f\x8b\x08\0", "gzip"), (b"\x28\xb5\x2f\xfd\0", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh91AY&SY", "bzip2"),
    (b"\x1c\0\0\0TFL3", "TensorFlow Lite"), (b"BC\xc0\xde\x35", "LLVM bitcode"), (b"\x89HDF\r\n", "HDF5"),
    (b"\x80\x04\x95", "pickle"),
])  # fmt: skip
def test_binary_files_are_called_by_their_name(head: bytes, name: str) -> None:
    with pytest.raises(ParseError, match=name) as e:
        decode_source(head + b"\0" * 40, "x", 1 << 20)
    assert e.value.diagnostics[0].hint


@pytest.mark.parametrize(("file", "name"), [("saved_model.pb", "SavedModel"), ("Manifest.json", "Core ML"), ("x", "is a folder")])
def test_folders_are_called_by_their_name(tmp_path: Path, file: str, name: str) -> None:
    (tmp_path / file).touch()
    with pytest.raises(UsageError, match=name) as e:
        open_source(tmp_path)
    assert e.value.diagnostics[0].hint


@pytest.mark.parametrize("text", ["\nHloModule m\n", "BZh is a name", "PK", "MLIR", "\x08"])
def test_texts_are_no_binary_files(text: str) -> None:
    assert decode_source(text.encode(), "x", 1 << 20).text == text


PROGRAM = """sea 1
entry @{entry}
func public @{entry}({params}) -> (%out: {type}) {{
  %t = {line} : {type}
  %out = sine %t : {type}
  return %out
}}
"""


@pytest.mark.parametrize("entry", ["f", "main"])
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(("params", "line", "type"), [
    ("%x: f32[2,3]", "broadcast_in_dim %x, dims = [0, 1]", "f32[n,3]"),
    ("%x: f32[n,3]", "broadcast_in_dim %x, dims = [1, 2]", "f32[4,2,3]"),
    ("%x: f32[n,3]", "broadcast_in_dim %x, dims = [0, 2]", "f32[2,4,3]"),
    ('%x: f32["n)","]"]', "negate %x", 'f32["n)","]"]'),
    ("%x: any[*]", "convert %x", "f32[*]"),
    ("%x: i32[*]", "convert %x", "f32[*]"),
    ('%"65536": f32[], %x: f32[]', 'add %"65536", %x', "f32[]"),
    ('%"true": f32[], %x: f32[]', 'add %"true", %x', "f32[]"),
], ids=str)  # fmt: skip
def test_what_writers_write_reads_back_as_the_same_program(params: str, line: str, type: str, name: str, entry: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written(name)(programs.loads(PROGRAM.format(entry=entry, params=params, line=line, type=type), "sea").module)


@pytest.mark.parametrize("dim", ["0x7f", "*096", "n*", "+n", "1e999", "n**2", "()", "n)", "(n", ")n("])
def test_a_dimension_is_a_size_a_symbol_or_arithmetic_on_them(dim: str) -> None:
    for right in ("n", "?1", "n+1", "2*(n+1)", "(a.b*3)"):
        programs.loads(PROGRAM.format(entry="f", params=f"%x: f32[{right}]", line="negate %x", type=f"f32[{right}]"), "sea")
    with pytest.raises(ParseError, match="is no dimension"):
        programs.loads(PROGRAM.format(entry="f", params=f"%x: f32[{dim}]", line="negate %x", type=f"f32[{dim}]"), "sea")


LONG = "9" * 5000
SUMMED = """HloModule m
{tables}s {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{size}]{{{order}}} parameter({number})
  ROOT r = f32[2] all-reduce(x), replica_groups={groups}, to_apply=s
}}
"""
PLAIN = {"tables": "", "size": "2", "order": "0", "number": "0", "groups": "[1,1]<=[1]"}


@pytest.mark.parametrize("wrong", [
    {"size": LONG}, {"order": LONG}, {"number": LONG}, {"number": "\u00b2"}, {"number": "-1"},
    {"tables": f'\nFileNames\n{LONG} "a"\n\n'},
    {"groups": "[4611686018427387904,4]<=[4611686018427387904,4]"}, {"groups": f"[1,{LONG}]<=[1]"}, {"groups": "[1,,1]<=[1]"},
    {"groups": "[2,1]<=[2,1]T(1,7)"}, {"groups": "[1000000000,1]<=[1000000000]"},
], ids=str)  # fmt: skip
def test_numbers_of_hlo_are_bounded(wrong: dict[str, str]) -> None:
    programs.loads(SUMMED.format(**PLAIN), "hlo")
    with pytest.raises(DeepxGraphError):
        programs.loads(SUMMED.format(**PLAIN | wrong), "hlo")


@pytest.mark.parametrize("axes", [f'["a"={LONG}]', '["a"=4000000000], device_ids=[1,0]', '["a"=2, "b"=4000000], device_ids=[0,1]'])
def test_a_mesh_is_not_laid_out_to_be_looked_at(axes: str) -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    with memory_of(1 << 24):
        programs.loads(f"sdy.mesh @mesh = <{axes}>\n{text}", "stablehlo")


@pytest.mark.parametrize("text", [
    f"Int64({LONG})", "F32(1e999)", f"Int64({'9' * 400})", "Tensor(shape=[1], dtype=Float16, value=[1e10])",
    f"Tensor(shape=[{LONG}], dtype=Float32, value=[1])", "Tensor(shape=[\u00b2], dtype=Float32, value=[1])",
])  # fmt: skip
def test_constants_of_dumps_are_read_or_left_out(text: str) -> None:
    dump.value_of(text)


def test_what_a_dump_repeats_is_made_as_it_is_asked_for() -> None:
    kinds = ", ".join(["Tensor[Float32]*999999999"] * 100)
    with memory_of(1 << 20):
        found = dump.type_of(f"<Tuple[{kinds}], TupleShape((2), (3))>")
    assert isinstance(found, Attribute)


def test_locations_in_dumps_have_lines_of_some_length() -> None:
    assert place_of(f"model.py:{LONG}").line == 0  # type: ignore[union-attr]
    assert place_of("model.py:\u00b2").line == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("word", ["#" + LONG, "#\u00b2", f"at:#{LONG}"])
def test_queries_take_numbers_of_some_length(word: str) -> None:
    with contextlib.suppress(DeepxGraphError):
        parse_query(word)


# --- binary files -----------------------------------------------------------------------------------------------------


Wrap = Callable[[bytes], bytes]


def binaries() -> list[tuple[str, bytes, Wrap]]:
    """Programs as the bytes of files, small enough that most bytes mean something, and what is put around them once damaged."""
    texts = {name: dx.loads(text) for name, text in (("loop", LOOP), ("add", ADD), ("reduce", REDUCE))}
    found = {f"{name} {form}": programs.encoded(module, form)
             for name, module in texts.items() for form in ("mlirbc", "onnx", "hlo-proto")}
    block = dx.trace(lambda x, w: dx.xp.exp(x @ w) / dx.xp.sum(dx.xp.abs(x), axis=1, keepdims=True), "f32[2,3]", "f32[3,2]")
    found["block onnx"] = programs.encoded(block, "onnx")
    message = programs.encoded(block, "hlo-proto")
    values = field(1, field(2, 11) + field(3, 6)) + field(8, np.arange(6, dtype=np.float32).tobytes())
    found["snapshot hlo-proto"] = field(1, field(1, message)) + field(2, values) + field(3, values) + field(4, "cpu")
    found["exported by jax"] = exported(found["add mlirbc"])
    nodes = [call("aten.relu.default", "y", ("self", t("x")))]
    tensors = {name: meta("float32", [2, 4]) for name in "xyw"}
    told = json.dumps(program(nodes, tensors, ["x"], ["y"], {"w": "lin.w"})).encode()
    weights = {"lin.w": np.zeros((2, 4), np.float32)}
    found["archive pt2"] = archive(told, weights)
    plain: list[tuple[str, bytes, Wrap]] = [(name, data, bytes) for name, data in found.items()]
    return [*plain, ("program of pt2", told, lambda data: archive(data, weights))]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut off, with bits turned, bytes replaced, or a piece of itself put in."""
    made, at = bytearray(data), rng.randrange(len(data))
    match rng.randrange(4):
        case 0:
            return data[:at]
        case 1:
            for _ in range(rng.randint(1, 3)):
                made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
        case 2:
            for _ in range(rng.randint(1, 4)):
                made[rng.randrange(len(made))] = rng.choice((0, 1, 127, 128, 255))
        case _:
            start = rng.randrange(len(data))
            made[at : at + rng.randint(0, 8)] = data[start : start + rng.randint(1, 8)]
    return bytes(made)


def read_damaged(count: int) -> None:
    """Reads so many damaged files of each binary; whatever is wrong with them is a diagnostic."""
    for name, data, wrap in binaries():
        dx.loads(wrap(data))
        rng, read = random.Random(name), 0
        for k in range(count):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    dx.loads(wrap(damaged(data, rng)))
                read += 1
            except DeepxGraphError:
                pass
            except Exception as e:
                raise AssertionError(f"{name}, mutant {k}") from e
        assert read < count


def test_damaged_binaries_sampled() -> None:
    read_damaged(40)


@pytest.mark.conformance
def test_damaged_binaries() -> None:
    read_damaged(WHOLE // 10)


def test_damaged_binaries_take_no_memory() -> None:
    """A length that a file does not have is refused before anything of it is made."""
    with memory_of(64 << 20):
        read_damaged(10)
