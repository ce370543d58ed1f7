"""HLO written as protocol buffers: the same graph when read again, here and by XLA, which computes the recorded results from it."""

from __future__ import annotations

import os
import re
import subprocess
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from deepx_graph.cli.main import main as cli
from deepx_graph.errors import Source, UsageError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Op
from deepx_graph.session.report.diff import diff
from deepx_graph.text import decode_source, encode, open_source, read, write
from deepx_graph.text.hlo.proto.attributes import sharding_text
from deepx_graph.text.hlo.proto.fields import sharding_message
from deepx_graph.text.hlo.proto.literals import shape_message, shape_text
from deepx_graph.text.hlo.shapes import HLO_DTYPES
from deepx_graph.types import DTYPES, DType
from tests.support import laws
from tests.support.jax_corpus import JAX, arguments, files, mismatches, needs_corpus
from tests.support.jax_oracle import VARIABLE, ask
from tests.support.reference import evaluate
from tests.support.xla_texts import CONVOLUTION, LOOP

FORM = "hlo-proto"
USUAL = re.compile(r", type=(?:FLOAT|SIGNED|UNSIGNED)\b")


def text(module: Module) -> Module:
    """The program as text says it, without what messages always say and text only where it is not usual: how numbers compare."""
    return read(Source("t", USUAL.sub("", write(module, "hlo"))), "hlo").module


def back(module: Module) -> Module:
    return read(decode_source(encode(module, FORM), "bytes", 1 << 28)).module


def same(a: Module, b: Module) -> bool:
    return not list(diff(a, b).lines())


ONE = "HloModule m\nadd {{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }}\nENTRY main {{\n{} }}\n"
X = "x = f32[4,4] parameter(0)\n"
LINES = [
    X + "ROOT r = f32[4,4] triangular-solve(x, x), left_side=true, lower=true, transpose_a=TRANSPOSE",
    X + "ROOT r = f32[4,4] cholesky(x), lower=true",
    X + "z = f32[] constant(0)\n ROOT r = f32[7,4] pad(x, z), padding=1_2x-1_1_0",
    X + "z = f32[] constant(0)\n ROOT r = f32[2,4] reduce-window(x, z), window={size=2x1 stride=2x1}, to_apply=add",
    X + "c = c64[4,3] fft(x), fft_type=RFFT, fft_length={4}\n ROOT r = f32[4,4] fft(c), fft_type=IRFFT, fft_length={4}",
    X + "ROOT r = f32[4,4] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add",
    X + "ROOT r = f32[4,4] collective-permute(x), source_target_pairs={{0,1},{1,0}}",
    X + "ROOT r = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,default}",
    X + 'ROOT r = f32[4,4] custom-call(x), custom_call_target="f", custom_call_has_side_effect=true, '
        'api_version=API_VERSION_STATUS_RETURNING, backend_config="a\\"b"',
    X + "ROOT r = (f32[4,2], s32[4,2]) topk(x), k=2, largest=true",
    X + "ROOT r = f32[4,4] reduce-precision(x), exponent_bits=5, mantissa_bits=10",
    X + 'ROOT r = f32[4,4]{0,1:T(8,128)(2,1)S(1)} negate(x), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}, '
        'metadata={op_type="neg" op_name="f/neg" source_file="a b.py" source_line=7}, frontend_attributes={a="1,2",b="x"}',
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_every_kind_of_attribute_comes_back(line: str) -> None:
    module = read(Source("t", ONE.format(line)), "hlo").module
    again = back(module)
    assert same(text(module), again)
    notes = [
        [(n.origin.notes, n.span.place and n.span.place.chain(9)) for n in m.entry.nodes if n.inputs and n.span]
        for m in (text(module), again)
    ]
    assert notes[0] == notes[1]


@pytest.mark.parametrize("source", [LOOP, CONVOLUTION], ids=["loop", "convolution"])
def test_loops_and_convolutions_come_back(source: str) -> None:
    module = read(Source("t", source), "hlo").module
    assert same(text(module), back(module))


@pytest.mark.parametrize("op", laws.LAWFUL, ids=lambda op: op.name)
def test_every_operation_that_text_can_say_is_the_same_as_a_message(op: Op) -> None:
    """But for types of six bits, which XLA's messages do not have."""
    for arrays, attrs in islice(laws.samples(op), 4):
        module = Module((laws.one_op(op, arrays, attrs),), "law")
        try:
            said = text(module)
        except VerifyError:  # HLO has nothing for it
            continue
        if "f6e" in write(module, "hlo"):
            continue
        assert same(said, back(module))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d in HLO_DTYPES.values() and d.np is not None], ids=str)
def test_constants_of_every_element_type_come_back_bit_by_bit(dtype: DType) -> None:
    b = Builder()
    with np.errstate(all="ignore"):
        made = b.constant(np.array([0, 1, -1, 1, 0.5]).astype(dtype.np))
    module = Module((Function("f", (), (made,), public=True),), "f")
    if dtype.bits == 6:
        with pytest.raises(VerifyError, match="no elements of type f6"):
            encode(module, FORM)
        return
    want = evaluate(text(module), [])[0]
    got = evaluate(back(module), [])[0]
    assert (got.dtype, got.tobytes()) == (want.dtype, want.tobytes())


@pytest.mark.parametrize("shape", ["f32[]", "f32[2,3]{0,1:T(8,128)(2,1)E(4)S(1)}", "(s32[], (pred[<=3]{0}, token[]), c64[2]{0})",
                                   "f32[?,2]{1,0}"])  # fmt: skip
def test_shapes_come_back(shape: str) -> None:
    assert shape_text(shape_message(shape)) == shape


@pytest.mark.parametrize("sharding", ["{replicated}", "{maximal device=3}", "{manual}", "{{replicated}, {devices=[2,1]0,1}}",
                                      "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dims={manual}}"])  # fmt: skip
def test_shardings_come_back(sharding: str) -> None:
    assert sharding_text(sharding_message(sharding)) == sharding


def test_what_no_field_holds_is_refused() -> None:
    line = X + 'ROOT r = f32[4,4] custom-call(x), custom_call_target="f", schedule=SCHEDULE_LATEST'
    module = read(Source("t", ONE.format(line)), "hlo").module
    with pytest.raises(VerifyError, match="'schedule' of custom-call is not written"):
        encode(module, FORM)


def test_a_message_is_no_text_and_goes_into_a_file(tmp_path: Path) -> None:
    source, target = tmp_path / "a.hlo", tmp_path / "b.hlo.pb"
    source.write_text(LOOP)
    assert cli(["opt", str(source), "-o", str(target)]) == 0
    module = read(open_source(source)).module
    assert same(text(module), read(open_source(target)).module)
    with pytest.raises(UsageError, match="hlo-proto is no text"):
        write(module, FORM)


# --- the corpus ---------------------------------------------------------------------------------------------------------


def differing(names: list[str]) -> list[str]:
    """The programs that are another graph once they were written as a message and read, than as text says them."""
    modules = {name: read(open_source(JAX / name)).module for name in names}
    return [name for name, module in modules.items() if not same(text(module), back(module))]


@needs_corpus
def test_messages_are_the_graph_of_the_text_sampled() -> None:
    assert differing(files("hlo", "stablehlo")[::16]) == []


@needs_corpus
@pytest.mark.conformance
def test_messages_are_the_graph_of_the_text() -> None:
    assert differing(files("hlo", "stablehlo")) == []


READER = """
import sys
from pathlib import Path
from jax._src.interpreters import mlir
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir
for path in Path(sys.argv[1]).glob("*.pb"):
    computation = _hlo.XlaComputation(path.read_bytes())
    path.with_suffix("").write_text(computation.as_hlo_text(print_large_constants=True))
    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.xla_computation_to_mlir_module(computation))
        path.with_suffix(".mlir").write_text(module.operation.get_asm())
"""


@needs_corpus
@pytest.mark.conformance
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with jaxlib")
def test_xla_reads_messages_as_the_same_graphs_and_computes_the_recorded_results(tmp_path: Path) -> None:
    modules = {name: read(open_source(JAX / name)).module for name in files("hlo")}
    for name, module in modules.items():
        (tmp_path / f"{name}.pb").write_bytes(encode(module, FORM))
    subprocess.run([os.environ[VARIABLE], "-c", READER, str(tmp_path)], check=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    other = [name for name, module in modules.items() if not same(text(module), read(open_source(tmp_path / name)).module)]
    assert other == []
    asked = {
        name: ((tmp_path / name).with_suffix(".hlo.mlir").read_text(), arguments(name, module)) for name, module in modules.items()
    }
    for name, answer in ask(asked).items():
        assert not isinstance(answer, str), f"{name}: {answer}"
        assert mismatches(name, answer) == [], name
