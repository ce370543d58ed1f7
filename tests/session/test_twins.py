"""One model as torch exports it and as JAX lowers it: `diff` tells that they compute the same, and which modules do; and that a
twin with another weight does not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir import Module
from deepx_graph.session.equivalence import equivalent
from deepx_graph.session.report.diff import diff, pairs
from deepx_graph.session.report.landmarks import landmarks
from deepx_graph.session.report.meaning import Meaning, Sameness, compare_meaning
from tests.support.cli_runner import Run

TWINS = zipfile.ZipFile(Path(__file__).parent / "twins.zip")
SAME = (Sameness.EXACT, Sameness.CLOSE, Sameness.VALUES)


def twin(name: str, weights: str = "constants") -> Module:
    return dx.loads(TWINS.read(name), weights=weights)


def compared(a: str, b: str, weights: str = "constants") -> Meaning:
    return compare_meaning(twin(a, weights), twin(b, weights))


@pytest.mark.parametrize("model", ["mlp", "conv", "attention"])
@pytest.mark.parametrize("pair", [
    ("{}.onnx", "{}_const.mlir"), ("{}.pt2", "{}_const.mlir"), ("{}_script.onnx", "{}_const.mlir"), ("{}.onnx", "{}.pt2"),
], ids=["onnx-jax", "pt2-jax", "script-jax", "onnx-pt2"])  # fmt: skip
def test_twins_are_the_same_whatever_the_framework(model: str, pair: tuple[str, str]) -> None:
    found = compared(*(name.format(model) for name in pair))
    assert found.verdict in SAME, found
    assert str(found).startswith("same mathematics")


@pytest.mark.parametrize("model", ["mlp", "conv", "attention"])
def test_weights_that_are_inputs_are_matched(model: str) -> None:
    found = compared(f"{model}.pt2", f"{model}_args.mlir", "inputs")
    assert found.verdict in SAME, found


@pytest.mark.parametrize("model", ["mlp", "conv", "attention"])
def test_another_weight_is_another_program(model: str) -> None:
    text = TWINS.read(f"{model}_const.mlir").decode()
    line = next(line for line in text.splitlines() if "stablehlo.constant dense<[" in line)
    first = line.split("dense<[", 1)[1].lstrip("[").split(",")[0]
    changed = dx.loads(text.replace(line, line.replace(first, "0.03125", 1)))
    found = compare_meaning(twin(f"{model}.pt2"), changed)
    assert found.verdict is Sameness.UNKNOWN
    assert found.landmarks is not None and not found.landmarks.outputs
    assert any("outputs differ" in line for line in found.lines())


def test_modules_that_compute_the_same_are_named() -> None:
    found = landmarks(twin("attention.onnx"), twin("attention_const.mlir"))
    assert found is not None and found.outputs
    same = {m.scope for m in found.first if m.same}
    assert {"ln1", "q", "k", "v", "ln2", "up", "down"} <= same


def test_what_values_tell_is_evidence_and_no_proof(tmp_path: Path, run: Run) -> None:
    for name in ("attention.onnx", "attention_const.mlir"):
        (tmp_path / name).write_bytes(TWINS.read(name))
    done = run("diff", str(tmp_path / "attention.onnx"), str(tmp_path / "attention_const.mlir"), "--json")
    assert done.json["verdict"] == "values" and done.code == 1, "only a proof, or --values, is success"
    assert [done.json["landmarks"]["outputs"], len(done.json["landmarks"]["first"])] == [True, 8]


def test_operations_of_twins_are_paired_in_their_order() -> None:
    a, b = twin("mlp.onnx"), twin("mlp_const.mlir")
    found = pairs(a, b)
    mine, theirs = ([n for n in m.entry.nodes if n.op.name in ("dot_general", "tanh", "exponential", "divide")] for m in (a, b))
    assert [found.get(n) for n in mine] == theirs


@pytest.mark.parametrize("model", ["mlp", "attention"])
def test_what_stands_beside_another_is_not_called_removed(model: str) -> None:
    a, b = twin(f"{model}.onnx"), twin(f"{model}_const.mlir")
    found, changes = pairs(a, b), diff(a, b, in_order=True).changes
    assert {c.before for c in changes if c.kind == "removed"} == {n for f in a.functions for n in f.nodes} - set(found)
    assert all(found[c.before] is c.after for c in changes if c.kind == "changed" and c.before is not None)


def layers(weight: str, axis: int, *names: str) -> Module:
    """Two products and a tanh between them; weights lie `(out, in)` or `(in, out)`, and the second is square."""
    first, second, x = ("6x4", "6x6", "3x4") if axis else ("4x6", "6x6", "3x4")
    contracting = f"contracting_dims = [1] x [{axis}]"
    return dx.loads(f"""
    func.func @main(%x: tensor<{x}xf32>, %a: tensor<{first}xf32> loc("{names[0]}.{weight}"),
                    %b: tensor<{second}xf32> loc("{names[1]}.{weight}")) -> tensor<3x6xf32> {{
      %0 = stablehlo.dot_general %x, %a, {contracting} : (tensor<{x}xf32>, tensor<{first}xf32>) -> tensor<3x6xf32>
      %1 = stablehlo.tanh %0 : tensor<3x6xf32>
      %2 = stablehlo.dot_general %1, %b, {contracting} : (tensor<3x6xf32>, tensor<{second}xf32>) -> tensor<3x6xf32>
      return %2 : tensor<3x6xf32>
    }}""", "stablehlo")


@pytest.mark.parametrize("names", [("fc1", "fc2"), ("Dense_0", "Dense_1")])
def test_square_weights_are_turned_as_the_others_are(names: tuple[str, str]) -> None:
    torch, flax = layers("weight", 1, "fc1", "fc2"), layers("kernel", 0, *names)
    assert compare_meaning(torch, flax).verdict in SAME
    assert compare_meaning(torch, layers("weight", 1, *names)).verdict is Sameness.EXACT


@pytest.mark.parametrize("model", ["mlp", "conv", "attention"])
@pytest.mark.parametrize("other", ["{}_const.mlir", "{}.pt2", "{}_args.mlir"])
def test_constants_stand_for_the_inputs_of_the_other(model: str, other: str) -> None:
    """Weights that are inputs of one program and constants of the other: the same for any weights, which the report says."""
    name = other.format(model)
    found = compare_meaning(twin(f"{model}.pt2", "constants" if "args" in name else "inputs"), twin(name))
    assert found.verdict in SAME, found
    assert (found.given or found.prepared) and "any values" in next(iter(found.lines()))


FOLDED = [("conv_script.onnx", "conv_args.mlir"), ("conv_args.mlir", "conv.onnx"), ("conv_script.onnx", "conv.pt2")]


@pytest.mark.parametrize(("folded", "other"), FOLDED)
@pytest.mark.parametrize("weights", ["constants", "inputs"])
def test_a_normalisation_that_is_part_of_a_convolution_is_the_same_network(folded: str, other: str, weights: str) -> None:
    """Exporters fold BatchNorm into the weights before it, which the other program takes as they are."""
    found = compare_meaning(twin(folded, weights), twin(other, "inputs"))
    assert found.verdict in SAME, found
    assert found.prepared and "is not compared" in next(iter(found.lines()))


@pytest.mark.parametrize(("old", "new"), [("stablehlo.maximum", "stablehlo.minimum"), ("dense<9.99999974E-6>", "dense<1.0E-1>"),
                                          ("stablehlo.subtract", "stablehlo.add")])
def test_weights_as_inputs_excuse_no_other_operation(old: str, new: str) -> None:
    text = TWINS.read("conv_args.mlir").decode()
    assert old in text
    changed = dx.loads(text.replace(old, new))
    same = old != "stablehlo.maximum"  # the statistics are weights, and how weights are prepared is not compared
    assert (compare_meaning(twin("conv_script.onnx"), changed).verdict in SAME) is same
    assert compare_meaning(twin("conv.pt2", "inputs"), changed).verdict is Sameness.UNKNOWN or same


def test_numbers_that_are_none_tell_nothing() -> None:
    """The root of a negative variance is NaN in both programs, whatever they do with it."""
    text = "func.func @main(%x: tensor<3xf32>, %v: tensor<3xf32>) -> tensor<3xf32> {{\n" \
           "  %0 = stablehlo.rsqrt %v : tensor<3xf32>\n  %1 = stablehlo.{} %0, %x : tensor<3xf32>\n  return %1 : tensor<3xf32>\n}}"
    first, second = (dx.loads(text.format(op), "stablehlo") for op in ("multiply", "divide"))
    assert compare_meaning(first, second).verdict is Sameness.UNKNOWN
    found = landmarks(first, second)
    assert found is not None and not found.outputs
    never = text.replace("rsqrt %v", "log %n").replace("  %0", "  %n = stablehlo.constant dense<-1.0> : tensor<3xf32>\n  %0")
    assert landmarks(*(dx.loads(never.format(op), "stablehlo") for op in ("multiply", "divide"))) is None


SQUARE = """
func.func @main(%x: tensor<1x4x5x6xf32>, %a: tensor<{a}xf32> loc("c1.{k}"), %b: tensor<{b}xf32> loc("c2.{k}"))
    -> tensor<1x4x5x6xf32> {{
  %0 = stablehlo.convolution(%x, %a) dim_numbers = [b, f, 0, 1]x[{l}]->[b, f, 0, 1], window = {{}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<1x4x5x6xf32>, tensor<{a}xf32>) -> tensor<1x3x5x6xf32>
  %1 = stablehlo.convolution(%0, %b) dim_numbers = [b, f, 0, 1]x[{l}]->[b, f, 0, 1], window = {{pad = [[1, 1], [1, 1]]}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<1x3x5x6xf32>, tensor<{b}xf32>) -> tensor<1x3x5x6xf32>
  %2 = stablehlo.concatenate %1, %1, dim = 1 : (tensor<1x3x5x6xf32>, tensor<1x3x5x6xf32>) -> tensor<1x6x5x6xf32>
  %3 = stablehlo.slice %2 [0:1, 0:4, 0:5, 0:6] : (tensor<1x6x5x6xf32>) -> tensor<1x4x5x6xf32>
  return %3 : tensor<1x4x5x6xf32>
}}"""


def test_kernels_of_equal_sizes_are_turned_as_the_others_are() -> None:
    """3x3x3x3 says nothing of its layout; the kernel before it does."""
    torch = dx.loads(SQUARE.format(a="3x4x1x1", b="3x3x3x3", k="weight", l="o, i, 0, 1"), "stablehlo")
    flax = dx.loads(SQUARE.format(a="1x1x4x3", b="3x3x3x3", k="kernel", l="0, 1, i, o"), "stablehlo")
    assert compare_meaning(torch, flax).verdict in SAME


IMAGE = """
func.func @main(%x: tensor<{x}xf32>) -> tensor<{y}xf32> {{
  %w = stablehlo.constant dense<[[[[0.5]], [[-1.0]], [[2.0]]], [[[0.25]], [[1.5]], [[-0.75]]]]> : tensor<2x3x1x1xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [{layout}]x[o, i, 0, 1]->[{layout}], window = {{}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<{x}xf32>, tensor<2x3x1x1xf32>) -> tensor<{y}xf32>
  %1 = stablehlo.tanh %0 : tensor<{y}xf32>
  return %1 : tensor<{y}xf32>
}}
"""


def test_images_and_results_in_another_layout_are_turned() -> None:
    first = dx.loads(IMAGE.format(x="2x3x5x7", y="2x2x5x7", layout="b, f, 0, 1"))
    second = dx.loads(IMAGE.format(x="2x5x7x3", y="2x5x7x2", layout="b, 0, 1, f"))
    assert compare_meaning(first, second).verdict in SAME
    other = dx.loads(IMAGE.format(x="2x5x7x3", y="2x5x7x2", layout="b, 0, 1, f").replace("0.25", "0.26"))
    assert compare_meaning(first, other).verdict is Sameness.UNKNOWN


def test_values_of_programs_whose_weights_are_constants_in_one_are_compared_for_any_weights() -> None:
    for a, b in (("mlp_const.mlir", "mlp_args.mlir"), ("mlp_args.mlir", "mlp_const.mlir")):
        found = equivalent(twin(a), twin(b))
        assert found and "any values" in found.evidence
    text = TWINS.read("mlp_args.mlir").decode()
    assert not equivalent(twin("mlp_const.mlir"), dx.loads(text.replace("stablehlo.tanh", "stablehlo.sine")))
    with pytest.raises(UsageError, match="not comparable"):
        equivalent(twin("mlp_args.mlir"), twin("conv_const.mlir"))


@pytest.mark.parametrize("shape", ["4,4", "3,3,3", "3,3,3,3"])
def test_inputs_of_equal_sizes_are_not_turned_without_a_reason(shape: str) -> None:
    """An input transposed is another program, though the type is the same, unless a weight of another spelling tells otherwise."""
    axes, type = tuple(reversed(range(shape.count(",") + 1))), f"f32[{shape}]"
    plain = [dx.trace(lambda x: dx.xp.tanh(x), type), dx.trace(lambda weight: dx.xp.tanh(weight), type)]
    turned = [dx.trace(lambda x: dx.xp.tanh(dx.xp.permute_dims(x, axes)), type),
              dx.trace(lambda weight: dx.xp.tanh(dx.xp.permute_dims(weight, axes)), type)]
    assert not any(equivalent(a, b) for a, b in zip(plain, turned, strict=True))
    assert not equivalent(plain[0], dx.trace(lambda other: dx.xp.tanh(dx.xp.permute_dims(other, axes)), type))


def block(body: str) -> Module:
    """A product, with what a line of text makes of it, `%0`, and its bias, `%c`; the result is `%r`."""
    return dx.loads(f"""
    func.func @main(%x: tensor<3x4xf32>, %w: tensor<4x6xf32> loc("fc.kernel"), %b: tensor<6xf32> loc("fc.bias"))
        -> tensor<3x6xf32> {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<3x4xf32>, tensor<4x6xf32>) -> tensor<3x6xf32>
      %c = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<6xf32>) -> tensor<3x6xf32>
      {body}
      return %r : tensor<3x6xf32>
    }}""", "stablehlo")


ONCE = "%r = stablehlo.add %0, %c : tensor<3x6xf32>"
TWICE = "%1 = stablehlo.add %0, %c : tensor<3x6xf32>\n%r = stablehlo.add %1, %c : tensor<3x6xf32>"
NARROW = "%1 = stablehlo.add %0, %c : tensor<3x6xf32>\n%2 = stablehlo.convert %1 : (tensor<3x6xf32>) -> tensor<3x6xbf16>\n" \
         "%r = stablehlo.convert %2 : (tensor<3x6xbf16>) -> tensor<3x6xf32>"


@pytest.mark.parametrize("other", [TWICE, NARROW], ids=["a bias added twice", "narrower numbers"])
def test_what_is_in_no_weight_is_not_the_same(other: str) -> None:
    assert compare_meaning(block(ONCE), block(ONCE)).verdict is Sameness.EXACT
    assert compare_meaning(block(ONCE), block(other)).verdict is Sameness.UNKNOWN


def test_integers_of_another_width_are_matched() -> None:
    """JAX counts tokens in 32 bits, PyTorch in 64; programs of other operations are as different as before."""
    first = dx.trace(lambda table, at: dx.xp.tanh(dx.xp.take(table, at, axis=0)), "f32[7,3]", "i64[5]")
    second = dx.trace(lambda table, at: dx.xp.tanh(dx.xp.take(table, at, axis=0)), "f32[7,3]", "i32[5]")
    other = dx.trace(lambda table, at: dx.xp.sin(dx.xp.take(table, at, axis=0)), "f32[7,3]", "i32[5]")
    assert compare_meaning(first, second).verdict in SAME
    assert compare_meaning(first, other).verdict is Sameness.UNKNOWN
