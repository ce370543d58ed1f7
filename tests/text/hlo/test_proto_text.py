"""The text form of HLO's protocol buffers: the same program as the bytes, snapshots that are run again, damaged texts."""

from __future__ import annotations

import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.cli.main import main as cli
from deepx_graph.errors import DeepxGraphError, ParseError, Source
from deepx_graph.session import programs
from deepx_graph.session.replay import snapshot
from deepx_graph.session.report.diff import diff
from deepx_graph.text import decode_source, read
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.common.protobuf import Decoder, Elements, Messages, raw_bytes
from deepx_graph.text.hlo.proto.schema import (
    ELEMENT_FIELDS,
    NAMES,
    SCHEMA,
    ModuleMessage,
    Snapshot,
)
from deepx_graph.text.hlo.proto.xla_data import (
    ELEMENT_TYPES,
    LiteralMessage,
)
from deepx_graph.types import as_tensor

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpus" / "jax"
LIMIT = 1 << 28

PROGRAM = """HloModule m

ENTRY main {
  x = f32[2,3]{1,0} parameter(0)
  n = s8[4]{0} parameter(1)
  c = f32[2,3]{1,0} constant({ { 1, nan, -inf }, { 0.5, 2, 3 } })
  p = pred[3]{0} constant({ 1, 0, 1 })
  z = c64[1]{0} constant({ (1, -2) })
  s = s32[2]{0} constant({ -7, 9 })
  y = f32[2,3]{1,0} multiply(x, c), metadata={op_name="jit(f)/mul\\"\\303\\244" source_file="a.py" source_line=3}
  d = f32[2,2]{1,0} dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}, operand_precision={highest,default}
  ROOT t = (f32[2,2], s8[4], pred[3], c64[1], s32[2]) tuple(d, n, p, z, s)
}
"""


def shown(message: Any) -> str:
    """A message as text, by its numbers and the names of the definition."""
    names = {f.number: (name, f) for name, f in NAMES[type(message)].items()}
    lines: list[str] = []
    if isinstance(message, LiteralMessage) and message.elements and message.shape is not None:
        return _literal(message)
    for number, (attribute, values) in SCHEMA[type(message)].items():
        name, field = names[number]
        held = getattr(message, attribute)
        default = next((f.default for f in fields(message) if f.name == attribute), None)
        if held is None or held == [] or (not isinstance(held, list) and held == default):
            continue
        for item in held if isinstance(held, list) else [held]:
            if isinstance(values, Messages):
                lines.append(f"{name} {{\n{shown(item)}\n}}")
            elif isinstance(item, str):
                lines.append(f"{name}: {_quoted(item.encode())}")
            else:
                lines.append(f"{name}: {field.words[item] if field.words else item}")
    return "\n".join(lines)


def _literal(message: LiteralMessage) -> str:
    assert message.shape is not None
    number = message.shape.element_type
    word = ELEMENT_TYPES[number]
    name, data = f"{word}s", b"".join(message.elements)
    read = SCHEMA[LiteralMessage][ELEMENT_FIELDS[word]][1]
    head = f"shape {{\n{shown(message.shape)}\n}}\n"
    if read is raw_bytes:
        return head + f"{name}: {_quoted(data)}"
    code = NAMES[LiteralMessage][name].code or (read.code if isinstance(read, Elements) else "")
    return head + "\n".join(f"{name}: {v}" for v in np.frombuffer(data, code).tolist())


def _quoted(data: bytes) -> str:
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in data) + '"'


def text_of(data: bytes, kind: type) -> str:
    return shown(Decoder(decode_source(data, "made", LIMIT), SCHEMA, ReadOptions()).whole(kind))


def same_as_bytes(module: Any) -> None:
    data = programs.encoded(module, "hlo-proto")
    there, here = read(decode_source(data, "x.hlo.pb", LIMIT)).module, read(Source("x.txt", text_of(data, ModuleMessage))).module
    assert not list(diff(there, here).lines())


def test_the_text_of_a_message_is_the_same_program() -> None:
    same_as_bytes(read(Source("x.hlo", PROGRAM)).module)


def test_texts_of_the_corpus_are_the_same_programs() -> None:
    if not CORPUS.is_dir():
        pytest.skip("the corpus is not on this machine")
    for path in random.Random(3).sample(sorted(CORPUS.glob("*.hlo")), 6):
        same_as_bytes(programs.load(path).module)


def test_a_run_is_recorded_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Written by `run -o`, read as bytes and as text; results that are changed are told."""
    source, kept = tmp_path / "m.hlo", tmp_path / "m.hlo_snapshot.pb"
    source.write_text(PROGRAM.replace("nan", "0").replace("-inf", "4"))
    assert cli(["run", str(source), "--random-inputs", "-o", str(kept), "--quiet"]) == 0
    assert cli(["run", str(kept), "--quiet"]) == 0
    text = tmp_path / "m.txt"
    text.write_text(text_of(kept.read_bytes(), Snapshot))
    assert cli(["run", str(text)]) == 0
    assert capsys.readouterr().err.count("as recorded") == 10
    module = read(Source("m.hlo", source.read_text())).module
    x, n = np.ones((2, 3), np.float32), np.ones(4, np.int8)
    wrong = [np.zeros(t.shape, t.dtype.np) for t in (as_tensor(r.type) for r in module.entry.results)]
    kept.write_bytes(snapshot(module, [x, n], wrong))
    assert cli(["run", str(kept)]) == 1
    assert "not as recorded" in capsys.readouterr().err


def test_what_xla_writes_in_other_ways_is_read() -> None:
    """Comments, lists in brackets, separators, texts in parts, other quotes and bases, fields that nobody knows."""
    text = """# a dump
hlo_module: < name: 'm', entry_computation_name: "ma" 'in' computations { name: "main"
  instructions { name: "x" opcode: "parameter" shape { element_type: F32 dimensions: [2, 0x3];
    layout { minor_to_major: [1, 0] } } id: 1 unknown { a: [1, { b: "}" }] c: -inf } other: "a" 'b'
    [type.googleapis.com/some.Thing] { v: 1 } }
  instructions { name: "r" opcode: "negate" shape { element_type: F32 dimensions: 2 dimensions: 3 } operand_ids: 01 id: 2 }
  id: 5 root_id: 2 } entry_computation_id: 5 >
"""
    found = read(Source("x.txt", text)).module
    assert [n.op.name for n in found.entry.nodes] == ["param", "negate"]


@pytest.mark.parametrize(("text", "message", "expected"), [
    ('hlo_module { name: "m" computations { name: 3 } }', "found '3'", "a text in quotes"),
    ('hlo_module { computations { id: many } }', "found 'many'", "an integer"),
    ('hlo_module { computations { instructions { shape { element_type: F31 } } } }', "found 'F31'", "F32"),
    ('hlo_module { computations: 3 }', "found '3'", "a message in braces"),
    ('hlo_module { name: "m"', "the text ends here", "the name of a field"),
    ('hlo_module { id: 99999999999999999999 }', "", ""),
    ('hlo_module { entry_computation_id: 99999999999999999999 }', "more than 64 bits", ""),
    ('hlo { hlo_module { name: "m" } } ?', "no part of a message", "a name"),
])
def test_what_is_wrong_is_told_at_its_place(text: str, message: str, expected: str) -> None:
    with pytest.raises(ParseError) as e:
        read(Source("x.txt", text))
    (d, *_) = e.value.diagnostics
    assert message in d.message
    assert expected in (d.expected or "")


def test_damaged_texts_are_refused_with_a_diagnostic() -> None:
    rng = random.Random(5)
    whole = text_of(programs.encoded(read(Source("x.hlo", PROGRAM)).module, "hlo-proto"), ModuleMessage)
    for _ in range(150):
        k, n = rng.randrange(len(whole)), rng.randrange(6)
        text = whole[:k] + "".join(rng.choice('{}<>[]:,"\\0a-#\n') for _ in range(n)) + whole[k + rng.randrange(6):]
        try:
            programs.loads(text, "hlo")
        except DeepxGraphError:
            continue
