"""The text syntax of ONNX: the same messages as a binary file, written and read, and errors with their places."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import Source
from deepx_graph.text import ReadOptions, formats
from deepx_graph.text.onnx.messages import model_in
from deepx_graph.text.onnx.printer.values import field_numbers
from deepx_graph.text.onnx.schema import TensorProto
from deepx_graph.text.onnx.syntax.printer import OnnxTextPrinter
from tests.support.onnx_suite import cases

MODEL = """# a comment
<
  ir_version: 10,
  opset_import: ["" : 21, "my.own" : 1],
  producer_name: "by \\"hand\\"",
  metadata_props: ["k": "v"]
>
"a graph" (float[N,3] x, float[3] w = {1, -2.5e0, .5}, bool go) => (float[N,3] y, int64 n)
  <int64[2] two = {3, -1}, float16[2] half = {15360, 49152}, string[2] words = {"a", "b\\"c"}, float[N,3] t>
{
  t = my.own.twice<alpha: float = 2>(x, w)
  [label] y = If (go) <then_branch = yes () => (float[N,3] a) { a = Neg(t) }, else_branch: graph = no () => (b) { b = Identity(t) }>
  s = Shape <start: int = 1> (x)
  n = Squeeze(s)
}
<domain: "my.own", opset_import: ["" : 21]>
twice <alpha, beta: float = 0.5> (a, b) => (c)
{
  p = Mul(a, b)
  q = LeakyRelu<alpha: float = @alpha>(p)
  k = Constant<value = float {1}>()
  c = Add(q, k)
}
"""


def read(text: str) -> dx.Module:
    return dx.loads(text)


def test_a_text_is_recognised_and_run() -> None:
    x, w = np.array([[1, 2, -4]], np.float32), np.array([1, -2.5, 0.5], np.float32)
    p = x * w
    t = np.where(p < 0, 2 * p, p) + 1
    module = read(MODEL)
    assert module.format == "onnxtxt" and str(module.entry.params[0].type) == "f32[N,3]"
    for go in (True, False):
        y, n = dx.compile(module)(x, np.array(go))
        np.testing.assert_allclose(y, -t if go else t)
        assert n == 3


def plain(value: Any, source: Source) -> Any:
    """What a message says, however its elements stand."""
    if isinstance(value, list):
        return [plain(v, source) for v in value]
    if isinstance(value, TensorProto):
        numbers = [bytes(s) for s in value.strings] if value.dtype == 8 else repr(field_numbers(value, source))
        return value.name, value.dtype, list(value.dims), numbers
    if dataclasses.is_dataclass(value):
        left = ("at", "doc_string", "metadata")
        return {f.name: plain(getattr(value, f.name), source) for f in dataclasses.fields(value) if f.name not in left}
    if isinstance(value, (bytes, memoryview)):
        return bytes(value)
    return np.float32(value).tobytes() if isinstance(value, float) else value


def written(model: Any, source: Source) -> str:
    return OnnxTextPrinter(lambda data: field_numbers(data, source)).model(model)


def test_what_is_written_says_the_same() -> None:
    source = Source("m.onnxtxt", MODEL)
    model = model_in(source, ReadOptions())
    text = written(model, source)
    again = Source("again", text)
    assert plain(model_in(again, ReadOptions()), again) == plain(model, source)
    assert written(model_in(again, ReadOptions()), again) == text


def test_programs_of_any_language_are_written(tmp_path: Path) -> None:
    module = dx.optimize(read(MODEL), "clean")
    text = dx.dumps(module, "onnxtxt")
    path = tmp_path / "out.onnxtxt"
    path.write_text(text)
    x = np.ones((1, 3), np.float32)
    for k in range(2):
        np.testing.assert_array_equal(dx.compile(dx.load(path))(x, np.array(True))[k], dx.compile(module)(x, np.array(True))[k])
    binary = formats.encode(read(text), "onnx")
    assert formats.read(formats.decode_source(binary, "m", 1 << 20)).module.format == "onnx"


def test_weights_beside_a_text_are_read(tmp_path: Path) -> None:
    np.array([1, 2], np.float32).tofile(tmp_path / "w.bin")
    path = tmp_path / "m.onnxtxt"
    path.write_text('<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) '
                    '<float[2] w = ["location": "w.bin", "offset": "0", "length": "8"]> { y = Add(x, w) }')
    assert dx.compile(dx.load(path))(np.ones(2, np.float32))[0].tolist() == [2, 3]


HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'


@pytest.mark.parametrize(("text", "place", "message"), [
    (HEAD + "g (float x) => (float y) { y = Neg(x }", "2:38", "expected: ','"),
    (HEAD + "g (float x) => (float y) { y = Neg<a: nothing = 1>(x) }", "2:39", "no type 'nothing' of attributes"),
    (HEAD + "g (float[2] x = {1}) => (float y) { y = Neg(x) }", "2:4", "'x' has 1 elements"),
    (HEAD + "g (float x) => (float y) { y = Neg(z) }", "2:28", "'z' is read before anything gives it"),
    (HEAD + "g (float x) => (float y) { y = Neg<a = [1, \"b\"]>(x) }", "2:36", "of several kinds"),
    (HEAD + "g (int8[1] x = {99999999999999999999999}) => (int8[1] y) { y = Neg(x) }", "2:17", "more than 64 bits"),
    (HEAD + "g (float[N] w = {}) => (float y) { y = Neg(w) }", "2:4", "the shape of 'w' is not known"),
    ("<ir_version: 8, colour: 3>", "1:17", "no field 'colour'"),
    (HEAD + "g (float x) => (float y) { y = Neg(x) } trailing", "2:41", "the header of a function"),
])
def test_what_is_wrong_is_told_with_its_place(text: str, place: str, message: str) -> None:
    with pytest.raises(dx.DeepxGraphError) as caught:
        read(text)
    assert f":{place}: " in str(caught.value) and message in str(caught.value)


def test_depth_and_nodes_are_bounded() -> None:
    deep = HEAD + "g (" + "seq(" * 200 + "float" + ")" * 200 + " x) => (float y) { }"
    with pytest.raises(dx.LimitError, match="nested deeper"):
        read(deep)
    with pytest.raises(dx.LimitError, match="too many nodes"):
        dx.loads(HEAD + "g (float x) => (float y) { " + "y = Neg(x) " * 20 + "}", max_nodes=10)


@pytest.mark.conformance
def test_onnx_reads_what_is_written(tmp_path: Path) -> None:
    """Texts of the official cases, by its parser; and its own texts of them by ours."""
    python = os.environ.get("DEEPX_GRAPH_ONNX_PYTHON", "")
    if not cases() or not python:
        pytest.skip("DEEPX_GRAPH_ONNX_CASES and DEEPX_GRAPH_ONNX_PYTHON name no cases or no Python with onnx")
    rows = []
    for k, case in enumerate(c for c in cases() if c.kind in ("node", "simple")):
        binary = Source("m", data=memoryview((case.folder / "model.onnx").read_bytes()))
        (tmp_path / f"{k}.onnxtxt").write_text(written(model_in(binary, ReadOptions()), binary))
        rows.append([str(case.folder / "model.onnx"), str(tmp_path / f"{k}.onnxtxt"), str(tmp_path / f"{k}.theirs")])
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    done = subprocess.run([python, "-c", ORACLE, str(tmp_path / "rows.json")], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    for model, _, theirs in rows:
        binary, text = Source("m", data=memoryview(Path(model).read_bytes())), Source("t", Path(theirs).read_text())
        assert plain(model_in(text, ReadOptions()), text) == plain(model_in(binary, ReadOptions()), binary), theirs


ORACLE = """
import json, sys, onnx
from onnx import parser, printer
for model, ours, theirs in json.load(open(sys.argv[1])):
    text = printer.to_text(onnx.load(model))
    open(theirs, "w").write(text)
    if printer.to_text(parser.parse_model(open(ours).read())) != text:
        print(ours)
"""


def test_a_single_element_that_is_a_factor_is_no_weight() -> None:
    """Exporters write the scale of attention as a vector of one element; the bias of a layer of one output is one, too."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,1] x) => (float[N,1] y) <float[1] half = {0.5}, float[1] bias = {2.0}, float[1] both = {3.0}>
{ a = Mul(x, half)  b = Add(a, bias)  c = Div(b, both)  y = Sub(c, both) }"""
    module = dx.loads(text, weights="inputs")
    assert [p.name for p in module.entry.params] == ["x", "bias", "both"]
