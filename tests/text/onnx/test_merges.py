"""Operators of a model taken together: each merge alone, by what is left and by values before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source
from deepx_graph.session import programs
from deepx_graph.text import ReadOptions
from deepx_graph.text.onnx.merge import merged
from deepx_graph.text.onnx.printer.model import original
from tests.support.mindir_messages import field
from tests.support.onnx_messages import INT64, graph, info, model, node, run, tensor

R = np.random.default_rng(5)
X = R.standard_normal((2, 3, 4)).astype(np.float32)
W = R.standard_normal((4, 5)).astype(np.float32)
GATES = [tensor(R.standard_normal((1, 12, 4)).astype(np.float32), "gates"),
         tensor(R.standard_normal((1, 12, 3)).astype(np.float32), "again")]


def ints(**values: Any) -> list[bytes]:
    return [tensor(np.array(v, np.int64), n) for n, v in values.items()]


def floats(**values: Any) -> list[bytes]:
    return [tensor(np.array(v, np.float32), n) for n, v in values.items()]


def normal(**shapes: Any) -> list[bytes]:
    return [tensor(R.standard_normal(shape).astype(np.float32), n) for n, shape in shapes.items()]


def last(x: str, kernel: str, y: str) -> list[bytes]:
    """A convolution of what has its channels last, as tf2onnx writes it."""
    return [node("Transpose", [x], [f"{y}0"], perm=[0, 2, 1]), node("Conv", [f"{y}0", kernel], [f"{y}1"]),
            node("Transpose", [f"{y}1"], [y], perm=[0, 2, 1])]


SIZES = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "two"], ["c"])]
"""`c` is the last size of x."""

CASES: dict[str, tuple[list[bytes], list[bytes], list[str], tuple[Any, ...]]] = {
    "products with one and sums with zero": (
        [node("Mul", ["x", "one"], ["a"]), node("Add", ["none", "a"], ["b"]), node("Div", ["b", "one"], ["d"]),
         node("Pow", ["d", "unit"], ["e"]), node("Sub", ["e", "none"], ["f"]), node("Relu", ["f"], ["y"])],
        floats(one=np.ones(4), none=np.zeros((3, 1)), unit=1.0), ["Relu"], X.shape),
    "a product that widens": ([node("Mul", ["x", "one"], ["y"])], floats(one=np.ones((5, 1, 1, 1))), ["Mul"], (5, *X.shape)),
    "one less zero": ([node("Sub", ["none", "x"], ["y"])], floats(none=0.0), ["Sub"], X.shape),
    "what data decide, twice": (
        [node("NonZero", ["x"], ["a"]), node("NonZero", ["x"], ["b"]), node("Transpose", ["b"], ["t"], perm=[1, 0]),
         node("GatherND", ["x", "t"], ["g"]), node("Shape", ["a"], ["s"]), node("Cast", ["s"], ["f"], to=1),
         node("ReduceSum", ["f"], ["r"], keepdims=0), node("Add", ["g", "r"], ["y"])],
        [], ["Add", "Cast", "GatherND", "NonZero", "ReduceSum", "Shape", "Transpose"], ("n",)),
    "random numbers, twice": (
        [node("RandomUniformLike", ["x"], ["a"]), node("RandomUniformLike", ["x"], ["b"]), node("Sub", ["a", "b"], ["d"]),
         node("Mul", ["d", "x"], ["y"])],
        [], ["Mul", "RandomUniformLike", "RandomUniformLike", "Sub"], X.shape),
    "concatenations within one another": (
        [node("Concat", ["x", "x"], ["a"], axis=-1), node("Concat", ["a", "x"], ["y"], axis=2)], [], ["Concat"], (2, 3, 12)),
    "concatenations along other axes": (
        [node("Concat", ["x", "x"], ["a"], axis=0), node("Concat", ["a", "a"], ["y"], axis=1)], [],
        ["Concat", "Concat"], (4, 6, 4)),
    "a turn of an axis of size one": (
        [node("Unsqueeze", ["x", "at"], ["a"]), node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
         node("Reshape", ["b", "flat"], ["y"])], ints(at=[1], flat=[0, -1]), ["Reshape"], (2, 12)),
    "a turn that moves more": (
        [node("Transpose", ["x"], ["b"], perm=[0, 2, 1]), node("Reshape", ["b", "flat"], ["y"])],
        ints(flat=[0, -1]), ["Reshape", "Transpose"], (2, 12)),
    "its own shape": ([node("Reshape", ["x", "own"], ["a"]), node("Neg", ["a"], ["y"])], ints(own=[0, 3, -1]), ["Neg"], X.shape),
    "a sum of a row and a product": (
        [node("Reshape", ["x", "rows"], ["r"]), node("MatMul", ["r", "w"], ["p"]), node("Add", ["b", "p"], ["y"])],
        [*ints(rows=[-1, 4]), tensor(W, "w"), *floats(b=np.arange(5)[None])], ["Gemm", "Reshape"], (6, 5)),
    "a product of a turned matrix": (
        [node("Reshape", ["x", "rows"], ["r"]), node("Transpose", ["v"], ["w"]), node("MatMul", ["r", "w"], ["p"]),
         node("Relu", ["r"], ["h"]), node("MatMul", ["h", "w2"], ["q"]), node("Add", ["p", "b"], ["g"]),
         node("Add", ["g", "q"], ["y"])],
        [*ints(rows=[-1, 4]), tensor(np.ascontiguousarray(W.T), "v"), tensor(W, "w2"), *floats(b=np.arange(5))],
        ["Gemm", "Gemm", "Relu", "Reshape"], (6, 5)),
    "states that are zero": (
        [node("Expand", ["z", "wide"], ["h"]), node("GRU", ["x", "gates", "again", "", "", "h"], ["", "y"], hidden_size=3)],
        [*[tensor(R.standard_normal((1, 9, k)).astype(np.float32), n) for k, n in ((4, "gates"), (3, "again"))],
         *floats(z=0.0), *ints(wide=[1, 3, 3])], ["GRU"], (1, 3, 3)),
    "states that are not": (
        [node("LSTM", ["x", "gates", "again", "", "", "h", "z"], ["", "y"], hidden_size=3)],
        [*GATES, *floats(h=np.full((1, 3, 3), 0.5), z=np.zeros((1, 3, 3)))], ["LSTM"], (1, 3, 3)),
    "numbers made of sizes": (
        [*SIZES, node("Cast", ["c"], ["f"], to=1), node("Sqrt", ["f"], ["r"]), node("Div", ["x", "r"], ["y"])],
        ints(two=2), ["Div"], X.shape),
    "channels that are last around convolutions, unfolded normalisation": (
        [*last("x", "k", "c"), node("Add", ["c", "offset"], ["d"]), node("Relu", ["d"], ["e"]), *last("e", "k2", "h"),
         node("Mul", ["h", "scale"], ["i"]), node("Sub", ["i", "mean"], ["j"]), node("Clip", ["j", "", "six"], ["y"])],
        [*normal(k=(5, 4, 2), k2=(6, 5, 1), offset=5, mean=6), *floats(scale=[1, 2, 3, 4, 5, 6], six=6.0)],
        ["Clip", "Conv", "Conv", "Relu", "Transpose", "Transpose"], (2, 2, 6)),
    "a sum that goes around both": (
        [*last("x", "k", "c"), *last("c", "k", "f"), node("Add", ["c", "f"], ["g"]), node("Sigmoid", ["g"], ["y"])],
        normal(k=(4, 4, 1)), ["Add", "Conv", "Conv", "Sigmoid", "Transpose", "Transpose"], X.shape),
    "turned and turned back, a constant between": (
        [node("Transpose", ["x"], ["a"], perm=[2, 0, 1]), node("Greater", ["a", "least"], ["b"]), node("Cast", ["b"], ["c"], to=1),
         node("Max", ["row", "c", "one"], ["d"]), node("Transpose", ["d"], ["y"], perm=[1, 2, 0])],
        floats(least=R.standard_normal((4, 1, 3)), row=[0.0, 0.5, 2.0], one=0.25), ["Cast", "Greater", "Max"], X.shape),
    "a turn that others read": (
        [node("Transpose", ["x"], ["a"], perm=[0, 2, 1]), node("Relu", ["a"], ["b"]), node("Add", ["a", "b"], ["c"]),
         node("Where", ["odd", "c", "a"], ["y"])],
        [tensor(np.arange(12).reshape(4, 3) % 2 == 1, "odd")], ["Add", "Relu", "Transpose", "Where"], (2, 4, 3)),
    "a sequence put together item by item": (
        [node("SequenceEmpty", [], ["s0"]), node("Relu", ["x"], ["r"]), node("SequenceInsert", ["s0", "x"], ["s1"]),
         node("SequenceInsert", ["s1", "r", "first"], ["s2"]), node("SequenceAt", ["s2", "back"], ["a"]),
         node("ConcatFromSequence", ["s2"], ["b"], axis=1), node("Concat", ["a", "b"], ["y"], axis=1)],
        [tensor(np.array(v, np.int64), n) for n, v in (("first", -1), ("back", -2))], ["Concat", "Relu"], (2, 9, 4)),
    "slices taken out of a sequence": (
        [node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0), node("SequenceAt", ["s", "one"], ["a"]),
         node("SequenceAt", ["s", "back"], ["b"]), node("Sub", ["a", "b"], ["y"])],
        [tensor(np.array(v, np.int64), n) for n, v in (("one", 1), ("back", -1))], ["Gather", "Gather", "Sub"], (2, 4)),
    "a step from a state of zeros": (
        [node("Reshape", ["x", "rows"], ["r"]), node("Gemm", ["h", "w", "b"], ["a"]), node("Gemm", ["r", "w", "b"], ["g"]),
         node("Sub", ["a", "g"], ["s"]), node("Max", ["s", "h"], ["y"])],
        [*floats(h=np.zeros((6, 4)), w=np.diag([1, 2, 3, 4]), b=[1, 2, 3, 4]), *ints(rows=[6, 4])],
        ["Gemm", "Max", "Reshape", "Sub"], (6, 4)),
    "what spreads by itself": (
        [node("Relu", ["x"], ["r"]), node("Shape", ["r"], ["wide"]), node("Expand", ["row", "wide"], ["a"]),
         node("Sub", ["a", "x"], ["b"]), node("Mul", ["b", "r"], ["y"])],
        floats(row=[[1, 2, 3, 4]]), ["Mul", "Relu", "Sub"], X.shape),
    "what nothing else spreads": (
        [node("Expand", ["row", "wide"], ["a"]), node("ReduceMax", ["x"], ["most"]), node("Sub", ["a", "most"], ["y"])],
        [*floats(row=np.arange(40)[None]), *ints(wide=[3, 40])], ["Expand", "ReduceMax", "Sub"], (3, 40)),
    "padding that says that it is constant": (
        [node("Pad", ["x", "p", ""], ["a"], mode="constant"), node("Conv", ["a", "k"], ["y"])],
        [*ints(p=[0, 0, 2, 0, 0, 0]), tensor(R.standard_normal((2, 3, 3)).astype(np.float32), "k")], ["Conv"], (2, 2, 4)),
}  # fmt: skip


def kept(data: bytes) -> bytes:
    return programs.encoded(merged(programs.loads(data, "onnx", ReadOptions(operators="kept")).module), "onnx")


@pytest.mark.parametrize("sizes", [X.shape, ("batch", 3, 4)], ids=["sizes", "symbols"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_left_gives_the_same(case: str, sizes: tuple[Any, ...]) -> None:
    nodes, weights, left, dims = CASES[case]
    declared = dims if sizes == X.shape else tuple(f"d{k}" for k in range(len(dims)))
    data = model(graph(nodes, [info("x", sizes)], [info("y", declared)], weights))
    small = kept(data)
    found = original(Source("m", data=memoryview(small)))
    assert found is not None and found.graph is not None
    assert sorted(n.op_type for n in found.graph.nodes) == left
    if "RandomUniformLike" not in left:
        np.testing.assert_allclose(run(small, X)[0], run(data, X)[0], rtol=1e-5, atol=1e-6)


def test_a_constant_of_equal_ones_stands_once_by_its_shortest_name() -> None:
    nodes = [node("Sqrt", ["squares"], ["the_first"]), node("Add", ["x", "the_first"], ["a"]), node("Mul", ["a", "two"], ["y"])]
    data = model(graph(nodes, [info("x", X.shape)], [info("y", X.shape)], floats(squares=[1, 4, 9, 16], two=[1, 2, 3, 4])))
    found = original(Source("m", data=memoryview(kept(data))))
    assert found is not None and found.graph is not None
    assert [w.name for w in found.graph.initializers] == ["two"]
    assert [n.inputs[1] for n in found.graph.nodes] == ["two", "two"]


def test_a_constant_takes_the_place_of_all_that_only_it_needs() -> None:
    """No operator alone is as large as its result; together they are."""
    nodes = [node("Range", ["zero", "n", "one"], ["r"]), node("Cast", ["r"], ["f"], to=1), node("Sin", ["f"], ["a"]),
             node("Cos", ["a"], ["b"]), node("Reshape", ["b", "s"], ["c"]), node("Add", ["x", "c"], ["y"])]
    data = model(graph(nodes, [info("x", (2, 40))], [info("y", (2, 40))], ints(zero=0, n=40, one=1, s=[1, 40])))
    found = original(Source("m", data=memoryview(kept(data))))
    assert found is not None and found.graph is not None and len(kept(data)) <= len(data)
    assert [n.op_type for n in found.graph.nodes] == ["Add"]


def test_a_result_that_is_constant_is_an_initialiser_of_its_name() -> None:
    given = graph([node("Neg", ["w"], ["z"]), node("Relu", ["x"], ["y"])], [info("x", X.shape)],
                  [info("y", X.shape), info("z", (4,))], floats(w=[1, 2, 3, 4]))
    found = original(Source("m", data=memoryview(kept(model(given)))))
    assert found is not None and found.graph is not None
    assert [n.op_type for n in found.graph.nodes] == ["Relu"] and [w.name for w in found.graph.initializers] == ["z"]
    np.testing.assert_array_equal(run(kept(model(given)), X)[1], [-1, -2, -3, -4])


def test_no_two_nodes_have_one_name() -> None:
    """As those of a function have that is called twice."""
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]).replace(b"the Neg", b"the Rel"),
             node("Abs", ["b"], ["y"]).replace(b"the Abs", b"the Rel")]
    found = original(Source("m", data=memoryview(kept(model(graph(nodes, [info("x", X.shape)], [info("y", X.shape)]))))))
    assert found is not None and found.graph is not None
    assert [n.name for n in found.graph.nodes] == ["the Relu", "the Rel", ""]


def test_a_type_of_maps_and_notes_on_quantisation_survive() -> None:
    """As sklearn-onnx declares probabilities: a sequence of maps from labels to floats."""
    maps = field(4, field(1, field(5, field(1, 7) + field(2, field(1, field(1, 1))))))
    said = field(14, field(1, "w") + field(2, field(1, "SCALE_TENSOR") + field(2, "scale")))
    nodes = [node("Mul", ["x", "w"], ["a"]), node("Mul", ["a", "scale"], ["b"]), node("ZipMap", ["b"], ["y"], domain="ai.onnx.ml")]
    given = graph(nodes, [info("x", (2, 3))], [field(1, "y") + field(2, maps)], floats(w=[1, 2, 3], scale=3.0)) + said
    found = original(Source("m", data=memoryview(kept(model(given)))))
    assert found is not None and found.graph is not None
    (output,) = found.graph.outputs
    assert output.type is not None and output.type.sequence is not None and output.type.sequence.item is not None
    held = output.type.sequence.item.map
    assert held is not None and held.key == INT64 and held.value is not None and held.value.tensor is not None
    assert [(q.name, [e.value for e in q.tensors]) for q in found.graph.quantizations] == [("w", ["scale"])]
