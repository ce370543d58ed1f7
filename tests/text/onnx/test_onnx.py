"""Reading ONNX: graphs, scopes, functions, weights, what waits for inputs, and what is wrong with a file."""

from __future__ import annotations

import os
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.text.onnx import looks_like_model
from tests.support.mindir_messages import field, many
from tests.support.onnx_messages import BOOL, INT64, graph, info, load, model, node, run, tensor

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_weights_and_inputs() -> None:
    w = np.array([1, 2, 3], np.float32)
    data = model(graph([node("Add", ["x", "w"], ["y"])], [info("x", (2, 3))], [info("y", (2, 3))], [tensor(w, "w")]))
    assert looks_like_model(data)
    np.testing.assert_array_equal(run(data, X)[0], X + w)
    assert load(data).format == "onnx"


def test_names_of_sizes_are_symbols_and_a_shape_that_is_computed_is_folded_when_it_is_known() -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "first"], ["n"], axis=0),
             node("Concat", ["n", "rest"], ["t"], axis=0), node("Reshape", ["x", "t"], ["y"])]
    data = model(graph(nodes, [info("x", ("batch", 3))], [info("y", ("batch", 3))],
                       [tensor(np.array([0]), "first"), tensor(np.array([-1]), "rest")]))
    module = load(data)
    assert str(module.entry.params[0].type) == "f32[batch,3]"
    compiled = dx.compile(module, engine="numpy", optimize=False)
    np.testing.assert_array_equal(compiled(X)[0], X)
    np.testing.assert_array_equal(compiled(X[:1])[0], X[:1])


def test_a_shape_that_is_an_input_is_part_of_what_is_compiled() -> None:
    data = model(graph([node("Reshape", ["x", "s"], ["y"])], [info("x", (2, 3)), info("s", (2,), INT64)], [info("y", ("a", "b"))]))
    compiled = dx.compile(load(data), engine="numpy", optimize=False)
    for shape in ((3, 2), (6, 1), (3, 2), (1, 6)):
        np.testing.assert_array_equal(compiled(X, np.array(shape))[0], X.reshape(shape))
    with pytest.raises(DeepxGraphError, match="Reshape"):
        compiled(X, np.array([4, 4]))


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_sees_the_names_around_it(taken: bool) -> None:
    then = graph([node("Add", ["x", "x"], ["t"])], [], [info("t", (2, 3))])
    other = graph([node("Neg", ["x"], ["e"])], [], [info("e", (2, 3))])
    data = model(graph([node("If", ["c"], ["y"], then_branch=then, else_branch=other)], [info("c", (), BOOL), info("x", (2, 3))],
                       [info("y", (2, 3))]))
    np.testing.assert_array_equal(run(data, np.array(taken), X)[0], X + X if taken else -X)


def test_a_function_of_the_model_is_put_where_it_is_called() -> None:
    body = [node("LeakyRelu", ["a"], ["b"]), node("Mul", ["b", "b"], ["c"])]
    function = field(1, "f") + many(4, ["a"]) + many(5, ["c"]) + many(7, body) + field(9, field(2, 21)) + field(10, "own")
    data = model(graph([node("f", ["x"], ["y"], "own")], [info("x", (2, 3))], [info("y", (2, 3))]), functions=[function])
    x = X - 3
    np.testing.assert_allclose(run(data, x)[0], np.where(x < 0, np.float32(0.01) * x, x) ** 2, rtol=1e-6)


def test_what_is_not_known_is_shown_and_not_run() -> None:
    data = model(graph([node("Wonder", ["x"], ["y"], "vendor", k=3)], [info("x", (2, 3))], [info("y", (2, 3))]))
    module = load(data)
    assert "vendor.Wonder" in dx.dumps(module, "sea")
    with pytest.raises(DeepxGraphError):
        dx.compile(module, optimize=False)(X)


WRONG: list[tuple[list[bytes], str]] = [
    ([node("Add", ["x", "nothing"], ["y"])], "'the Add': 'nothing' is read before anything gives it"),
    ([node("MatMul", ["x", "w"], ["y"])], "'the MatMul': dot_general: "),
    ([node("Add", ["y", "x"], ["z"]), node("Add", ["z", "x"], ["y"])], "'y' is read before"),
    ([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])], "'y' is given twice"),
    ([node("Concat", ["x", "w"], ["y"], axis=0)], "made from: the Concat"),
    ([node("Transpose", ["x"], ["y"], perm=[0, 0])], "Transpose"),
    ([node("Reshape", ["x", "s"], ["y"])], "Reshape"),
    ([node("Concat", ["x", "x"], ["y"], axis=7)], "axis 7"),
]


@pytest.mark.parametrize(("nodes", "says"), WRONG)
def test_what_is_wrong_is_told_with_the_node(nodes: list[bytes], says: str) -> None:
    weights = [tensor(np.ones((5, 4), np.float32), "w"), tensor(np.array([4, 4]), "s")]
    data = model(graph(nodes, [info("x", (2, 3))], [info("y", (2, 3))], weights))
    with pytest.raises(DeepxGraphError, match=says):
        load(data)


def test_of_initialisers_of_one_name_the_last_is_taken_and_it_is_said() -> None:
    weights = [tensor(np.full((2, 3), k, np.float32), "w") for k in (1, 2)]
    data = model(graph([node("Add", ["x", "w"], ["y"])], [info("x", (2, 3))], [info("y", (2, 3))], weights))
    with pytest.warns(UserWarning, match="'w' is given twice"):
        module = dx.loads(data)
    np.testing.assert_array_equal(dx.run(module, X)[0], X + 2)


def test_a_result_of_another_element_type_than_is_declared_is_told() -> None:
    data = model(graph([node("Greater", ["x", "x"], ["y"])], [info("x", (2, 3))], [info("y", (2, 3))]))
    with pytest.warns(UserWarning, match="'y' is declared as f32, and its elements are bool"):
        module = dx.loads(data)
    assert not np.any(dx.run(module, X)[0])


def external(place: str, **more: str) -> bytes:
    entries = {"location": place, **more}
    data = many(1, (2, 3)) + field(2, 1) + field(8, "w")
    return data + many(13, (field(1, k) + field(2, v) for k, v in entries.items())) + field(14, 1)


def model_beside(folder: Path, weight: bytes) -> Any:
    path = folder / "m.onnx"
    path.write_bytes(model(graph([node("Add", ["x", "w"], ["y"])], [info("x", (2, 3))], [info("y", (2, 3))], [weight])))
    return dx.load(path)


def test_weights_in_a_file_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"....." + X.tobytes())
    module = model_beside(tmp_path, external("w.bin", offset="5", length="24"))
    np.testing.assert_array_equal(dx.compile(module, engine="numpy", optimize=False)(X)[0], X + X)
    module = model_beside(tmp_path, external("w.bin", offset="5"))
    np.testing.assert_array_equal(dx.compile(module, optimize=False)(X)[0], X + X)


@pytest.mark.parametrize(("place", "more"), [
    ("/etc/passwd", {}), ("../w.bin", {}), ("a/../../w.bin", {}), ("link", {}), ("nowhere", {}), ("", {}),
    ("w.bin", {"offset": "9999999"}),
    ("w.bin", {"length": "9999999"}), ("w.bin", {"offset": "-1"}), ("w.bin", {"offset": "1", "length": "24"}), ("w\0.bin", {}),
    ("\\\\host\\w.bin", {}), (".", {}), ("pipe", {}), ("zero", {}), ("away/w.bin", {}), ("loop", {}), ("w.bin/x", {}),
    ("w" * 5000, {}),
    ("w.bin", {"offset": "1" * 18, "length": "1" * 18}), ("w.bin", {"length": "٣"}),
])  # fmt: skip
def test_a_model_reads_nothing_but_its_own_data(tmp_path: Path, place: str, more: dict[str, str]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(X.tobytes())
    (folder / "w.bin").write_bytes(X.tobytes())
    (folder / "link").symlink_to(tmp_path / "w.bin")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "away").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    with pytest.raises(DeepxGraphError, match=r"the values of 'w'|bytes of data"):
        model_beside(folder, external(place, **more))


def _example() -> bytes:
    then = graph([node("Add", ["x", "h"], ["t"])], [], [info("t", ("n", 3))])
    other = graph([node("Identity", ["h"], ["e"])], [], [info("e", ("n", 3))])
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Softmax", ["h"], ["p"], axis=-1),
             node("If", ["c"], ["i"], then_branch=then, else_branch=other), node("Reshape", ["i", "s"], ["y"])]
    weights = [tensor(np.ones((3, 3), np.float32), "w"), tensor(np.array([-1]), "s")]
    return model(graph(nodes, [info("x", ("n", 3)), info("c", (), BOOL)], [info("y", ("k",)), info("p", ("n", 3))], weights))


def test_every_cut_and_many_flips_are_diagnostics() -> None:
    data = _example()
    load(data)
    rng = random.Random(0)
    damaged = [data[:k] for k in range(9, len(data))]
    for _ in range(3000):
        made = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            made[rng.randrange(9, len(made))] = rng.randrange(256)
        damaged.append(bytes(made))
    for found in damaged:
        try:
            module = load(found)
            dx.compile(module, engine="numpy", optimize=False)(X, np.array(True))
        except DeepxGraphError:
            continue


def test_sizes_without_data_take_no_memory() -> None:
    huge = many(1, (1 << 20, 1 << 20)) + field(2, 1) + field(8, "w")
    data = model(graph([node("Add", ["x", "w"], ["y"])], [info("x", (2, 3))], [info("y", (2, 3))], [huge]))
    with pytest.raises(DeepxGraphError, match="has 0 elements"):
        load(data)


def test_what_waits_for_inputs_is_written_as_it_stands() -> None:
    data = model(graph([node("Reshape", ["x", "s"], ["y"])], [info("x", (2, 3)), info("s", (2,), INT64)], [info("y", ("a", "b"))]))
    text = dx.dumps(load(data), "sea")
    assert 'name = "onnx.Reshape"' in text
    with pytest.raises(DeepxGraphError, match=r"onnx\.Reshape|any"):
        dx.compile(dx.loads(text, "sea"), engine="numpy", optimize=False)(X, np.array([3, 2]))


def test_a_sequence_has_as_many_items_as_is_said() -> None:
    sequence = field(1, "s") + field(2, field(4, field(1, many(1, [field(1, 1) + field(2, b"".join(
        field(1, field(2, name)) for name in ("n", "m")))]))))
    data = model(graph([node("ConcatFromSequence", ["s"], ["y"], axis=0)], [sequence], [info("y", ("k", 3))]))
    compiled = dx.compile(dx.loads(data, lengths={"s": 2}), engine="numpy", optimize=False)
    np.testing.assert_array_equal(compiled(X, X[:1])[0], np.concatenate([X, X[:1]]))
    with pytest.raises(DeepxGraphError, match="how many items"):
        dx.loads(data)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_loop_whose_values_grow_is_unrolled(steps: int) -> None:
    body = graph([node("Concat", ["v", "v"], ["w"], axis=0), node("Identity", ["go"], ["on"])],
                 [info("i", (), INT64), info("go", (), BOOL), info("v", ("k", 3))], [info("on", (), BOOL), info("w", ("j", 3))])
    data = model(graph([node("Loop", ["m", "", "x"], ["y"], body=body)], [info("m", (), INT64), info("x", (2, 3))],
                       [info("y", ("j", 3))]))
    np.testing.assert_array_equal(run(data, np.array(steps), X)[0], np.concatenate([X] * 2**steps))


def test_what_a_loop_gives_in_each_iteration_is_stacked() -> None:
    body = graph([node("Add", ["v", "x"], ["w"]), node("Identity", ["go"], ["on"]), node("Neg", ["w"], ["z"])],
                 [info("i", (), INT64), info("go", (), BOOL), info("v", (2, 3))],
                 [info("on", (), BOOL), info("w", (2, 3)), info("z", (2, 3))])
    data = model(graph([node("Loop", ["m", "", "x"], ["y", "zs"], body=body)], [info("x", (2, 3))],
                       [info("y", (2, 3)), info("zs", ("m", 2, 3))], [tensor(np.array(3), "m")]))
    last, stacked = run(data, X)
    np.testing.assert_array_equal(last, 4 * X)
    np.testing.assert_array_equal(stacked, np.stack([-2 * X, -3 * X, -4 * X]))


def test_what_passes_have_fused_is_known_all_the_same() -> None:
    """The shape is computed by several elementwise operations, which optimising makes one kernel of, from an input."""
    nodes = [node("Add", ["s", "one"], ["t"]), node("Sub", ["t", "one"], ["u"]), node("Mul", ["u", "one"], ["v"]),
             node("Reshape", ["x", "v"], ["y"])]
    data = model(graph(nodes, [info("x", (2, 3)), info("s", (2,), INT64)], [info("y", ("a", "b"))],
                       [tensor(np.array([1, 1]), "one")]))
    compiled = dx.compile(load(data), engine="numpy")
    for shape in ((3, 2), (1, 6)):
        np.testing.assert_array_equal(compiled(X, np.array(shape))[0], X.reshape(shape))


def test_what_waits_for_inputs_survives_a_pickle() -> None:
    """In a function of the model too, whose attributes it needs."""
    body = [node("Reshape", ["a", "s"], ["b"]), node("LeakyRelu", ["b"], ["c"], alpha=0.5)]
    made = field(1, "F") + many(4, ["a", "s"]) + many(5, ["c"]) + many(7, body) + field(9, field(2, 21)) + field(10, "own")
    data = model(graph([node("F", ["x", "s"], ["y"], "own")], [info("x", (2, 3)), info("s", (2,), INT64)], [info("y", ("a", "b"))]),
                 functions=[made])
    module = dx.loads(data)
    again = pickle.loads(pickle.dumps(module))
    assert Counter(n.op for n in again.entry.nodes) == Counter(n.op for n in module.entry.nodes)
    for shape in ((3, 2), (1, 6)):
        np.testing.assert_array_equal(dx.compile(again)(-X, np.array(shape))[0], -X.reshape(shape) / 2)


def test_binary_formats_are_written_as_bytes() -> None:
    module = dx.loads(model(graph([node("Neg", ["x"], ["y"])], [info("x", (2, 3))], [info("y", (2, 3))])))
    for form in ("onnx", "mlirbc"):
        np.testing.assert_array_equal(dx.compile(dx.loads(dx.dumps(module, form)))(X)[0], -X)


def test_the_size_of_a_scaled_picture_is_computed_in_single_precision() -> None:
    """As tf2onnx writes a picture of 6 rows made into one of 10: the scale is a little less than 10 / 6."""
    scales = tensor(np.array([1, 1, 10 / 6, 14 / 8], np.float32), "scales")
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="linear")]
    x = np.arange(48, dtype=np.float32).reshape(1, 1, 6, 8)
    (found,) = run(model(graph(nodes, [info("x", x.shape)], [info("y", (1, 1, 10, 14))], [scales]), opset=13), x)
    rows = np.clip((np.arange(10) + 0.5) * 0.6 - 0.5, 0, 5)
    np.testing.assert_allclose(found[0, 0, :, 0], 8 * rows, rtol=1e-5)
