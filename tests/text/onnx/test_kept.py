"""Models read with their operators kept: what is left out, what is taken together, and how they are written back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.errors import Source
from deepx_graph.session import programs
from deepx_graph.session.shrink import shrink
from deepx_graph.text import ReadOptions
from deepx_graph.text.onnx.merge import merged
from deepx_graph.text.onnx.nested import nodes_within
from deepx_graph.text.onnx.printer.model import original
from deepx_graph.text.onnx.schema import ModelProto
from tests.support.mindir_messages import field, many
from tests.support.onnx_messages import BOOL, INT64, graph, info, model, node, run, tensor

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
W = np.arange(16, dtype=np.float32).reshape(4, 2, 2, 1) / 8


def kept(data: bytes, merge: bool = True) -> bytes:
    """The model read with its operators kept and written again."""
    module = programs.loads(data, "onnx", ReadOptions(operators="kept")).module
    return programs.encoded(merged(module) if merge else module, "onnx")


def messages(data: bytes) -> ModelProto:
    found = original(Source("m", data=memoryview(data)))
    assert found is not None
    return found


def operators(data: bytes) -> list[str]:
    graph = messages(data).graph
    assert graph is not None
    return [n.op_type for n in graph.nodes]


def test_how_a_model_is_trained_survives_where_what_it_names_does() -> None:
    step = graph([node("Sub", ["w", "rate"], ["w2"])], [], [info("w2", (3,))], [tensor(np.float32(0.1), "rate")])
    training = field(20, field(2, step) + field(4, field(1, "w") + field(2, "w2")))
    weights = [tensor(X[0, 0, 0, :3], "w"), tensor(np.float32([1, 2, 3]), "v")]
    ends = [info("x", (3,))], [info("y", (3,))]
    data = model(graph([node("Mul", ["x", "w"], ["y"])], *ends, weights)) + training
    (warning,) = programs.loads(data, "onnx", ReadOptions()).warnings
    assert warning.message == "how the model is trained is kept, where what it names is still there, and not run"
    (found,) = messages(kept(data)).training
    assert found.algorithm is not None and [n.op_type for n in found.algorithm.nodes] == ["Sub"]
    assert [(e.key, e.value) for e in found.updated] == [("w", "w2")]
    folded = [node("Mul", ["w", "v"], ["u"]), node("Mul", ["x", "u"], ["y"])]
    data = model(graph(folded, *ends, weights)) + training
    assert messages(kept(data)).training == []
    shrunk = shrink(programs.loads(data, "onnx", ReadOptions(operators="kept")).module, ReadOptions())
    assert "how the model is trained is left out: what it names is no more" in shrunk.lines()


def test_names_and_what_is_said_beside_them_survive() -> None:
    said = field(6, "why it is there") + field(9, field(1, "scope") + field(2, "layer.1"))
    nodes = [node("Relu", ["x"], ["a"]) + said, node("Softmax", ["a"], ["y"], axis=1)]
    data = model(graph(nodes, [info("x", ("batch", 3))], [info("y", ("batch", 3))])) + field(6, "the model") + field(
        14, field(1, "author") + field(2, "me"))
    found = messages(kept(data))
    assert found.graph is not None
    assert (found.producer, found.doc_string) == ("tests", "the model")
    assert [(e.key, e.value) for e in found.metadata] == [("author", "me")]
    first = found.graph.nodes[0]
    assert (first.name, first.outputs) == ("the Relu", ["a"])
    assert (first.doc_string, first.metadata[0].value) == ("why it is there", "layer.1")
    assert found.graph.inputs[0].type is not None and found.graph.inputs[0].type.tensor is not None
    assert found.graph.inputs[0].type.tensor.shape is not None
    assert [d.name for d in found.graph.inputs[0].type.tensor.shape.dims] == ["batch", ""]


LEFT_OUT: list[tuple[str, list[Any], dict[str, Any], list[str]]] = [
    ("what changes nothing", [node("Identity", ["x"], ["a"]), node("Dropout", ["a"], ["b"]), node("Relu", ["b"], ["y"])], {},
     ["Relu"]),
    ("what is computed again", [node("Relu", ["x"], ["a"]), node("Relu", ["x"], ["b"]), node("Add", ["a", "b"], ["y"])], {},
     ["Relu", "Add"]),
    ("what nothing reads", [node("Neg", ["x"], ["a"]), node("Relu", ["x"], ["y"])], {}, ["Relu"]),
    ("what is known", [node("Shape", ["x"], ["s"]), node("Gather", ["s", "k"], ["n"]), node("Cast", ["n"], ["f"], to=1),
                       node("Mul", ["x", "f"], ["y"])], {"k": np.array(2)}, ["Mul"]),
    ("two turns", [node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]), node("Transpose", ["a"], ["b"], perm=[0, 3, 1, 2]),
                   node("Relu", ["b"], ["y"])], {}, ["Relu"]),
    ("two reshapings", [node("Reshape", ["x", "s"], ["a"]), node("Flatten", ["a"], ["y"], axis=0)], {"s": np.array([4, 6])},
     ["Reshape"]),
]  # fmt: skip


def test_reshapings_of_unknown_shapes_are_not_taken_for_the_same() -> None:
    """As torch writes packed projections: [n, 3c] as [1, n, 3, c]; neither type is known."""
    nodes = [node("Concat", ["s", "t"], ["shape"], axis=0), node("Reshape", ["x", "shape"], ["a"]),
             node("Unsqueeze", ["a", "zero"], ["b"]), node("Relu", ["b"], ["y"])]
    outputs, inputs = [info("y", ("a", "b", "c", "d"))], [info("x", X.shape), info("s", (2,), INT64)]
    data = model(graph(nodes, inputs, outputs, [tensor([4], "t"), tensor([0], "zero")]))
    found = kept(data)
    assert operators(found) == ["Concat", "Reshape", "Unsqueeze", "Relu"]
    assert run(found, X, np.array([2, 3]))[0].shape == run(data, X, np.array([2, 3]))[0].shape == (1, 2, 3, 4)


@pytest.mark.parametrize(("nodes", "weights", "left"), [case[1:] for case in LEFT_OUT], ids=[case[0] for case in LEFT_OUT])
def test_operators_are_left_out(nodes: list[Any], weights: dict[str, Any], left: list[str]) -> None:
    data = model(graph(nodes, [info("x", X.shape)], [info("y", X.shape)], [tensor(v, n) for n, v in weights.items()]))
    assert operators(kept(data)) == left
    np.testing.assert_array_equal(run(kept(data), X)[0], run(data, X)[0])


C = np.array([0.5, 1, 2, 4], np.float32)
INTO_CONVOLUTIONS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "normalisation": ([node("Conv", ["x", "w"], ["a"]), node("BatchNormalization", ["a", "c", "b", "m", "v"], ["y"])],
                      {"w": W, "c": C, "b": C + 1, "m": C - 1, "v": C * 2}),
    "a sum for each channel": ([node("Conv", ["x", "w", "c"], ["a"]), node("Add", ["b", "a"], ["y"])],
                               {"w": W, "c": C, "b": (C + 1).reshape(4, 1, 1)}),
    "a difference, a product and a quotient": (
        [node("Conv", ["x", "w"], ["a"]), node("Sub", ["a", "b"], ["d"]), node("Mul", ["d", "h"], ["e"]),
         node("Div", ["e", "b"], ["y"])],
        {"w": W, "b": C.reshape(1, 4, 1, 1), "h": np.float32(3)}),
    "padding": ([node("Pad", ["x", "p"], ["a"]), node("Conv", ["a", "w"], ["y"], pads=[1, 0, 0, 1])],
                {"w": W, "p": np.array([0, 0, 1, 2, 0, 0, 3, 1])}),
}


@pytest.mark.parametrize("case", INTO_CONVOLUTIONS)
def test_what_stands_beside_a_convolution_goes_into_it(case: str) -> None:
    nodes, weights = INTO_CONVOLUTIONS[case]
    data = model(graph(nodes, [info("x", X.shape)], [info("y", ("a", "b", "c", "d"))], [tensor(v, n) for n, v in weights.items()]))
    made = kept(data)
    assert operators(made) == ["Conv"] and len(made) < len(data)
    np.testing.assert_allclose(run(made, X)[0], run(data, X)[0], rtol=1e-5)


def test_a_value_that_is_read_twice_is_not_merged_away() -> None:
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Mul", ["a", "c"], ["b"]), node("Add", ["a", "b"], ["y"])]
    data = model(graph(nodes, [info("x", X.shape)], [info("y", (1, 4, 2, 4))], [tensor(W, "w"), tensor(C.reshape(4, 1, 1), "c")]))
    assert operators(kept(data)) == ["Conv", "Mul", "Add"]


def test_a_product_and_a_sum_are_one_for_matrices_alone() -> None:
    weights = [tensor(np.ones((3, 4), np.float32), "w"), tensor(C, "c")]
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "c"], ["y"])]
    for dims, wanted in (((2, 3), ["Gemm"]), ((5, 2, 3), ["MatMul", "Add"])):
        data = model(graph(nodes, [info("x", dims)], [info("y", (*dims[:-1], 4))], weights))
        assert operators(kept(data)) == wanted
        x = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
        np.testing.assert_array_equal(run(kept(data), x)[0], run(data, x)[0])


def test_a_branch_that_is_known_is_taken_and_others_keep_their_graphs() -> None:
    then = graph([node("Add", ["x", "a"], ["t"])], [], [info("t", X.shape)])
    other = graph([node("Neg", ["x"], ["e"])], [], [info("e", X.shape)])
    choice = [node("Relu", ["x"], ["a"]), node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    true = field(1, 1) + field(2, 9) + field(8, "c") + field(9, b"\1")
    known = model(graph(choice, [info("x", X.shape)], [info("y", X.shape)], [true]))
    assert operators(kept(known)) == ["Relu", "Add"]
    asked = model(graph(choice, [info("x", X.shape), info("c", (), BOOL)], [info("y", X.shape)]))
    assert operators(kept(asked)) == ["Relu", "If"]
    for c in (True, False):
        np.testing.assert_array_equal(run(kept(asked), -X, np.array(c))[0], run(asked, -X, np.array(c))[0])


def test_a_graph_within_reads_the_names_of_now() -> None:
    """The value that it captures is computed by another operator than before."""
    body = graph([node("Add", ["s", "again"], ["out"])], [info("i", (), INT64), info("go", (), BOOL), info("s", X.shape)],
                 [info("keep", (), BOOL), info("out", X.shape)])
    body = graph([node("Identity", ["go"], ["keep"]), node("Add", ["s", "again"], ["out"])],
                 [info("i", (), INT64), info("go", (), BOOL), info("s", X.shape)], [info("keep", (), BOOL), info("out", X.shape)])
    nodes = [node("Relu", ["x"], ["a"]), node("Relu", ["x"], ["again"]), node("Loop", ["n", "", "a"], ["y"], body=body)]
    data = model(graph(nodes, [info("x", X.shape), info("n", (), INT64)], [info("y", X.shape)]))
    made = kept(data)
    assert operators(made) == ["Relu", "Loop"]
    np.testing.assert_array_equal(run(made, X, np.array(3))[0], 4 * X)


def test_a_graph_within_is_made_lean() -> None:
    """Constants are the model's, copies go, and nothing is computed twice: nor again what a graph around it computes."""
    then = graph([node("Mul", ["s", "k"], ["inner"]), node("Neg", ["inner"], ["t"])], [], [info("t", X.shape)])
    other = graph([node("Constant", [], ["k2"], value=np.full(4, 2.0, np.float32)), node("Add", ["s", "k2"], ["e"])], [],
                  [info("e", X.shape)])
    body = graph([node("Constant", [], ["k"], value=np.full(4, 2.0, np.float32)), node("Identity", ["go"], ["keep"]),
                  node("Identity", ["s"], ["t0"]), node("Mul", ["t0", "k"], ["a"]), node("Mul", ["s", "k"], ["b"]),
                  node("Equal", ["i", "n"], ["c"]), node("If", ["c"], ["d"], then_branch=then, else_branch=other),
                  node("Add", ["a", "b"], ["ab"]), node("Add", ["ab", "d"], ["out"])],
                 [info("i", (), INT64), info("go", (), BOOL), info("s", X.shape)], [info("keep", (), BOOL), info("out", X.shape)])
    nodes = [node("Loop", ["n", "", "x"], ["y"], body=body)]
    data = model(graph(nodes, [info("x", X.shape), info("n", (), INT64)], [info("y", X.shape)]))
    found = messages(kept(data)).graph
    assert found is not None
    assert Counter(n.op_type for n in nodes_within(found.nodes)) == {
        "Loop": 1, "Identity": 1, "Mul": 1, "Equal": 1, "If": 1, "Neg": 1, "Add": 3}
    for n in (1, 3):
        np.testing.assert_array_equal(run(kept(data), X, np.array(n))[0], run(data, X, np.array(n))[0])


def test_a_loop_is_not_unrolled() -> None:
    body = graph([node("Identity", ["go"], ["keep"]), node("SequenceInsert", ["s", "x"], ["out"])],
                 [info("i", (), INT64), info("go", (), BOOL), info("s", X.shape)], [info("keep", (), BOOL), info("out", X.shape)])
    nodes = [node("SequenceEmpty", [], ["s0"]), node("Loop", ["n", "", "s0"], ["q"], body=body),
             node("ConcatFromSequence", ["q"], ["y"], axis=0)]
    for n, left in ((1, []), (2, ["Loop", "ConcatFromSequence"])):
        steps = tensor(np.array(n, np.int64), "n")
        data = model(graph(nodes, [info("x", X.shape)], [info("y", (2 * n, *X.shape[1:]))], [steps]))
        assert [o for o in operators(kept(data)) if o not in ("SequenceEmpty", "Identity")] == left
        np.testing.assert_array_equal(run(kept(data), X)[0], np.concatenate([X] * n))


def test_an_operator_that_nobody_knows_is_kept() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Mystery", ["a"], ["b"], domain="own", depth=3), node("Identity", ["b"], ["y"])]
    assert operators(kept(model(graph(nodes, [info("x", X.shape)], [info("y", X.shape)])))) == ["Relu", "Mystery"]


def test_shapes_that_symbols_make_are_written_as_constants() -> None:
    """As exporters write a view over heads: sizes taken from a normalised value, put together, the last one divided."""
    nodes = [node("LayerNormalization", ["x", "w"], ["h"]), node("Shape", ["h"], ["s"]),
             node("Gather", ["s", "zero"], ["b"], axis=0), node("Unsqueeze", ["b", "axis"], ["b1"]),
             node("Gather", ["s", "one"], ["t"], axis=0), node("Unsqueeze", ["t", "axis"], ["t1"]),
             node("Gather", ["s", "two"], ["c"], axis=0), node("Div", ["c", "heads"], ["d"]),
             node("Unsqueeze", ["d", "axis"], ["d1"]),
             node("Concat", ["b1", "t1", "heads1", "d1"], ["shape"], axis=0), node("Reshape", ["h", "shape"], ["v"]),
             node("Transpose", ["v"], ["y"], perm=[0, 2, 1, 3])]
    numbers = {"zero": 0, "one": 1, "two": 2, "heads": 4, "axis": [0], "heads1": [4]}
    weights = [tensor(np.array(v, np.int64), n) for n, v in numbers.items()] + [tensor(np.ones(8, np.float32), "w")]
    data = model(graph(nodes, [info("x", ("batch", "time", 8))], [info("y", ("batch", 4, "time", 2))], weights))
    small = kept(data)
    assert operators(small) == ["LayerNormalization", "Reshape", "Transpose"]
    for batch, time in ((2, 3), (1, 5)):
        x = np.random.default_rng(0).standard_normal((batch, time, 8)).astype(np.float32)
        np.testing.assert_array_equal(run(small, x)[0], run(data, x)[0])


def test_sizes_that_data_decide_are_not_written_as_constants() -> None:
    nodes = [node("NonZero", ["x"], ["n"]), node("Shape", ["n"], ["s"]), node("Reshape", ["n", "s"], ["y"])]
    data = model(graph(nodes, [info("x", ("a", "b"))], [info("y", (2, "n"), INT64)]))
    x = np.array([[0, 1.0], [2, 0]], np.float32)
    np.testing.assert_array_equal(run(kept(data), x)[0], run(data, x)[0])


def test_a_constant_never_takes_more_room_than_its_operator() -> None:
    nodes = [node("ConstantOfShape", ["s"], ["z"]), node("Add", ["x", "z"], ["y"])]
    data = model(graph(nodes, [info("x", (300, 400))], [info("y", (300, 400))], [tensor(np.array([300, 400]), "s")]))
    assert operators(kept(data)) == ["ConstantOfShape", "Add"] and len(kept(data)) <= len(data)


def test_a_kept_program_runs_and_its_results_are_the_same() -> None:
    nodes, weights = INTO_CONVOLUTIONS["normalisation"]
    data = model(graph(nodes, [info("x", X.shape)], [info("y", (1, 4, 2, 4))], [tensor(v, n) for n, v in weights.items()]))
    module = programs.loads(data, "onnx", ReadOptions(operators="kept")).module
    np.testing.assert_allclose(dx.compile(module, engine="numpy", optimize=False)(X)[0], run(data, X)[0], rtol=1e-6)


def test_opt_writes_a_smaller_model_and_says_what_has_changed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    nodes, weights = INTO_CONVOLUTIONS["normalisation"]
    data = model(graph(nodes, [info("x", X.shape)], [info("y", (1, 4, 2, 4))], [tensor(v, n) for n, v in weights.items()]))
    (tmp_path / "m.onnx").write_bytes(data)
    assert main(["opt", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "small.onnx")]) == 0
    said = capfd.readouterr().err
    assert "nodes  2 -> 1" in said and "BatchNormalization  1 -> 0" in said and "results on random inputs differ by at most" in said
    assert operators((tmp_path / "small.onnx").read_bytes()) == ["Conv"]


@pytest.mark.parametrize(("sizes", "view"), [(("batch", "time"), (-1, 1)), (("n", "m"), (4, -1)), (("n", "n"), (0, 0, 1))])
def test_models_of_open_sizes_are_compared_too(sizes: tuple[str, str], view: tuple[int, ...]) -> None:
    """With numbers that fit for the sizes: all different, or all the same where they must be."""
    nodes = [node("MatMul", ["x", "x"], ["p"])] if len(set(sizes)) == 1 else [node("Relu", ["x"], ["p"])]
    nodes += [node("Identity", ["p"], ["q"]), node("Reshape", ["q", "shape"], ["y"])]
    data = model(graph(nodes, [info("x", sizes)], [info("y", tuple("uvw"[: len(view)]))], [tensor(np.array(view), "shape")]))
    options = ReadOptions(operators="kept")
    found = shrink(programs.loads(data, "onnx", options).module, options)
    assert [c.agrees for c in found.results] == [True] and not found.unchecked and found.after.nodes == 2


def test_a_model_that_would_grow_is_written_as_it_was(tmp_path: Path) -> None:
    data = model(graph([node("Relu", ["x"], ["y"])], [info("x", X.shape)], [info("y", X.shape)]))
    plain = data.replace(many(5, []), b"")
    (tmp_path / "m.onnx").write_bytes(plain)
    assert main(["opt", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "s.onnx")]) == 0
    assert (tmp_path / "s.onnx").stat().st_size <= len(plain)


def test_weights_stay_quantised_where_floats_would_be_smaller() -> None:
    """Runtimes run an operator among DequantizeLinear and QuantizeLinear in integers, and round otherwise where one is gone."""
    nodes = [node("DequantizeLinear", ["q", "scale"], ["w"]), node("Mul", ["x", "w"], ["y"])]
    weights = [tensor(np.int8([3, -5]), "q"), tensor(np.float32(0.5), "scale")]
    data = model(graph(nodes, [info("x", (2,))], [info("y", (2,))], weights))
    assert operators(kept(data)) == ["DequantizeLinear", "Mul"]
