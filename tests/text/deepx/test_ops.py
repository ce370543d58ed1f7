"""What every deepx op means, and its gradient: expected values are written out, or computed here with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepx_graph.text.deepx.reader.rules import known_names
from deepx_graph.types import F32, tensor
from tests.support.deepx_texts import X, Y, load_text, run, tensors
from tests.support.reference import evaluate

FLOAT_BINARY = {
    "add": X + Y, "sub": X - Y, "mul": X * Y, "div": X / Y, "max": np.maximum(X, Y), "min": np.minimum(X, Y),
    "mod": X - np.floor(X / Y) * Y, "pow": np.power(np.abs(X), Y),
}  # fmt: skip


@pytest.mark.parametrize("op", FLOAT_BINARY)
def test_elementwise(op: str) -> None:
    x = np.abs(X) if op == "pow" else X
    got = run(tensors("o") + f"{op}@float32 x y -> o", x=x, y=Y)
    np.testing.assert_allclose(got["o"], FLOAT_BINARY[op], rtol=1e-6)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("add_scalar@float32 x 2 -> o", X + 2), ("addscalar@float32 x 2 -> o", X + 2), ("subscalar@float32 x 2 -> o", X - 2),
        ("mul_scalar@float32 x -2 -> o", X * -2), ("divscalar@float32 x 4 -> o", X / 4), ("rsubscalar@float32 10 x -> o", 10 - X),
        ("rdiv_scalar@float32 1 x -> o", 1 / X), ("max_scalar@float32 x 1 -> o", np.maximum(X, 1)),
        ("minscalar@float32 x 1 -> o", np.minimum(X, 1)), ("powscalar@float32 x 2 -> o", X * X),
        ("rpowscalar (var<int32>:2, tensor<float32>:x) -> (tensor<float32>:o)", np.float32(2) ** X),
        ("mod_scalar@float32 x 0.75 -> o", X - np.floor(X / 0.75) * 0.75), ("exp@float32 x -> o", np.exp(X)),
        ("sin@float32 x -> o", np.sin(X)), ("cos@float32 x -> o", np.cos(X)), ("tan@float32 x -> o", np.tan(X)),
    ],
)  # fmt: skip
def test_with_scalars(line: str, expected: Any) -> None:
    np.testing.assert_allclose(run(tensors("o") + line, x=X)["o"], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("less (x, y) -> (m)", X < Y), ("greater (x, y) -> (m)", X > Y), ("lessscalar (x, 0.5) -> (m)", X < 0.5),
        ("greaterscalar (x, 0.5) -> (m)", X > 0.5), ("equal (x, y, 0) -> (m)", X == Y), ("notequal (x, y, 0) -> (m)", X != Y),
        ("equal (x, y, 1.0) -> (m)", np.abs(X - Y) <= 1), ("notequalscalar (x, 0.5, 1.0) -> (m)", np.abs(X - 0.5) > 1),
        ("equalscalar (x, 0.5, 1e-6) -> (m)", X == 0.5),
    ],
)  # fmt: skip
def test_comparisons_are_strict_and_give_bools(line: str, expected: Any) -> None:
    text = "newtensor ([2 3]) -> (tensor<bool>:m)\n" + line.replace("(x", "(tensor<float32>:x")
    got = run(text, x=X, y=Y)["m"]
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, expected)


def test_less_states_the_element_type_of_its_inputs_only() -> None:
    got = run("newtensor@bool 2 3 -> m\nless@float32 x y -> m\n", x=X, y=Y)
    np.testing.assert_array_equal(got["m"], X < Y)


def test_switch_takes_by_bool_and_by_number() -> None:
    text = "newtensor ([2 3]) -> (tensor<float32>:o)\n"
    text += "switch (listtensor<float32>:[x y{more}], tensor<{kind}>:c) -> (tensor<float32>:o)\n"
    pick = np.array([[True, False, True], [False, False, True]])
    np.testing.assert_array_equal(run(text.format(more="", kind="bool"), x=X, y=Y, c=pick)["o"], np.where(pick, Y, X))
    cases = np.array([[0, 1, 2], [2, 1, 0]], np.int32)
    got = run(text.format(more=" z", kind="int32"), x=X, y=Y, z=X * 10, c=cases)["o"]
    np.testing.assert_array_equal(got, np.choose(cases, [X, Y, X * 10]))
    beyond = run(text.format(more=" z", kind="int32"), x=X, y=Y, z=X * 10, c=np.array([[-1, 3, -7], [0, 1, 9]], np.int32))["o"]
    np.testing.assert_array_equal(beyond, np.choose([[2, 2, 2], [0, 1, 2]], [X, Y, X * 10]))


def test_scalars_go_straight_to_the_tensors_type() -> None:
    got = run("newtensor (vector<int32>:[1]) -> (tensor<float64>:a)\nconstant (var<float32>:0.1) -> (tensor<float64>:a)\n"
              "newtensor (vector<int32>:[1]) -> (tensor<int64>:b)\nconstant (var<int32>:9007199254740993) -> (tensor<int64>:b)\n"
              "newtensor (vector<int32>:[1]) -> (tensor<int8>:c)\nconstant (var<int32>:200) -> (tensor<int8>:c)\n"
              "newtensor (vector<int32>:[1]) -> (tensor<int32>:d)\nconstant (var<float32>:-1.9) -> (tensor<int32>:d)\n")
    assert [got[n].item() for n in "abcd"] == [0.1, 9007199254740993, -56, -1]


def test_uniform_is_the_documented_generator() -> None:
    got = run("newtensor (vector<int32>:[2 2]) -> (tensor<float64>:t)\n"
              "uniform (var<int32>:0, var<int32>:1, var<int32>:42) -> (tensor<float64>:t)")
    np.testing.assert_allclose(got["t"], [[0.524587, 0.263306], [0.196286, 0.512318]], atol=1e-6)


def test_draws_without_seed_differ_and_depend_on_the_run() -> None:
    module = load_text(tensors("a", "b") + "uniform@float32 -1 1 -> a\nnormal@float32 0 1 0 -> b\n").module
    seeds = [n.attrs for n in module.entry.nodes if n.op.name == "module_seed"]
    assert sorted(seeds) == [(0,), (1,)]


def test_dropout_zeroes_in_place_without_scaling() -> None:
    uniform = np.array([0.524587, 0.263306, 0.196286, 0.512318])
    got = run("newtensor@float32 4 -> t\nconstant@float32 3 -> t\n"
              "dropout (var<float32>:0.4, var<int32>:42) -> (tensor<float32>:t)\n")
    np.testing.assert_array_equal(got["t"], np.where(uniform < 0.4, 0, 3))


@pytest.mark.parametrize(
    ("line", "shape", "expected"),
    [
        ("sum (tensor<float32>:x, vector<int32>:[0 -1 0], var<bool>:False) -> (o)", "1", [X.sum()]),
        ("sum (tensor<float32>:x, vector<int32>:[1], var<bool>:True) -> (o)", "2 1", X.sum(1, keepdims=True)),
        ("sum (tensor<float32>:x, vector<int32>:[], var<bool>:False) -> (o)", "1", [X.sum()]),
        ("sum@float32 x 0 -> o", "3", X.sum(0)), ("prod@float32 x 1 -> o", "2", X.prod(1)),
        ("reducemax (tensor<float32>:x, [0], true) -> (o)", "1 3", X.max(0, keepdims=True)),
        ("reducemin (tensor<float32>:x, [-1], false) -> (o)", "2", X.min(1)),
        ("transpose@float32 x 1 0 -> o", "3 2", X.T), ("reshape@float32 x 3 2 -> o", "3 2", X.reshape(3, 2)),
        ("concat (listtensor<float32>:[x y], var<int32>:-1) -> (o)", "2 6", np.concatenate([X, Y], 1)),
        ("concat@float32 x y 0 -> o", "4 3", np.concatenate([X, Y])),
        ("repeat (tensor<float32>:x, vector<int32>:[2 3]) -> (o)", "4 9", X.repeat(2, 0).repeat(3, 1)),
        ("broadcastTo (tensor<float32>:x, vector<int32>:[4 -1 3]) -> (o)", "4 2 3", np.broadcast_to(X, (4, 2, 3))),
        ("expand@float32 x 2 2 3 -> o", "2 2 3", np.broadcast_to(X, (2, 2, 3))),
    ],
)  # fmt: skip
def test_shapes(line: str, shape: str, expected: Any) -> None:
    text = tensors("x", "y") + f"{tensors('o', shape=shape)}add@float32 x u -> x\nadd@float32 y v -> y\n{line}\n"
    np.testing.assert_allclose(run(text, u=X, v=Y)["o"], expected, rtol=1e-6)


def test_matmul_with_batches_and_unknown_ranks() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 3, 4)).astype("f4"), rng.random((2, 4, 5)).astype("f4")
    text = "newtensor@float32 2 3 5 -> o\nmatmul@float32 x y -> o // benchmark.repeat=3\n"
    np.testing.assert_allclose(run(text, x=x, y=y)["o"], x @ y, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_indexselect_is_take(axis: int) -> None:
    index = np.array([[1, 0], [0, 1]])
    expected = np.take(X, index, axis)
    text = f"newtensor ([{' '.join(map(str, expected.shape))}]) -> (tensor<float32>:o)\n" + tensors("x") + (
        f"add@float32 x u -> x\nindexselect (tensor<float32>:x, tensor<int64>:i, var<int32>:{axis}) -> (tensor<float32>:o)\n")
    np.testing.assert_array_equal(run(text, u=X, i=index)["o"], expected)


def test_todtype_and_invert() -> None:
    got = run("newtensor ([2 3]) -> (tensor<int32>:i)\ntodtype (tensor<float32>:x) -> (tensor<int32>:i)\n"
              "newtensor ([2 3]) -> (tensor<int32>:n)\ninvert (i) -> (n)\n", x=X)
    np.testing.assert_array_equal(got["i"], X.astype(np.int32))
    np.testing.assert_array_equal(got["n"], ~X.astype(np.int32))


def test_integer_division_truncates() -> None:
    got = run("newtensor@int32 2 -> o\ndiv@int32 x y -> o\n", x=np.int32([-7, 7]), y=np.int32([2, -2]))
    np.testing.assert_array_equal(got["o"], [-3, -3])


def test_reshape_changes_the_shape_of_what_it_writes() -> None:
    entry = load_text("newtensor@float32 6 -> t\nreshape t 2 3 -> t\n").module.entry
    assert entry.results[0].type == tensor(F32, (2, 3))


def test_broadcast_only_when_asked_for() -> None:
    text = tensors("o") + "newtensor@float32 3 -> r\nconstant@float32 2 -> r\nadd@float32 o r -> o\n"
    module = load_text(text, broadcast=True).module
    np.testing.assert_array_equal(evaluate(module, [])[0], np.full((2, 3), 2))
    assert any(n.op.name == "broadcast_in_dim" for n in module.entry.nodes)


def test_every_documented_op_is_known() -> None:
    documented = """
        newtensor copytensor deltensor renametensor argset vecset constant arange uniform normal dropout add sub mul div
        addscalar subscalar mulscalar divscalar rsubscalar rdivscalar pow powscalar rpowscalar sqrt exp log sin cos tan max min
        maxscalar minscalar invert equal notequal equalscalar notequalscalar less greater lessscalar greaterscalar switch
        todtype matmul reshape transpose concat broadcastTo indexselect repeat sum prod reducemax reducemin print save load
        loadtensordata argdel mod modscalar clonetensor expand
    """
    assert set(documented.split()) <= set(known_names())


# --- gradients -------------------------------------------------------------------------------------------------------


def _gradients(line: str, x: Any = X, y: Any = Y, g: Any = None, start: float = 0.0) -> dict[str, Any]:
    """The gradients that a backward line leaves in gx and gy, which start as `start`."""
    g = np.array([[1.0, 2.0, -1.0], [0.5, 3.0, 1.0]], np.float32) if g is None else g
    names = "x y z gx gy"
    text = tensors(*names.split()) + tensors("gz", shape=" ".join(map(str, g.shape)))
    text += f"add@float32 x px -> x\nadd@float32 y py -> y\nadd@float32 gz pg -> gz\nconstant@float32 {start} -> gx\n{line}\n"
    if g.shape != (2, 3):
        text = text.replace("newtensor@float32 2 3 -> z\n", tensors("z", shape=" ".join(map(str, g.shape))))
    return run(text, px=x, py=y, pg=g)


G = np.array([[1.0, 2.0, -1.0], [0.5, 3.0, 1.0]], np.float32)
TIE_MAX = np.where(X > Y, G, np.where(X == Y, G / 2, 0))


@pytest.mark.parametrize(
    ("line", "by_x", "by_y"),
    [
        ("add@float32 x(gx) y(gy)<-z(gz)", G, G), ("sub@float32 x(gx) y(gy)<-z(gz)", G, -G),
        ("mul@float32 x(gx) y(gy)<-z(gz)", G * Y, G * X), ("div@float32 x(gx) y(gy)<-z(gz)", G / Y, -G * X / Y**2),
        ("mod@float32 x(gx) y(gy)<-z(gz)", G, -np.floor(X / Y) * G), ("max@float32 x(gx) y(gy)<-z(gz)", TIE_MAX, G - TIE_MAX),
        ("add_scalar@float32 x(gx) 3<-z(gz)", G, 0 * G), ("mul_scalar@float32 x(gx) 3<-z(gz)", G * 3, 0 * G),
        ("div_scalar@float32 x(gx) 4<-z(gz)", G / 4, 0 * G), ("mod_scalar@float32 x(gx) 4<-z(gz)", G, 0 * G),
        ("exp@float32 x(gx)<-z(gz)", G * np.exp(X), 0 * G), ("max_scalar@float32 x(gx) 0.5<-z(gz)",
         np.where(X > 0.5, G, np.where(X == 0.5, G / 2, 0)), 0 * G),
        ("mul@float32 x(gx) y()<-z(gz)", G * Y, 0 * G),
    ],
)  # fmt: skip
def test_backward_rules(line: str, by_x: Any, by_y: Any) -> None:
    got = _gradients(line)
    np.testing.assert_allclose(got["gx"], by_x, rtol=1e-6)
    np.testing.assert_allclose(got["gy"], by_y, rtol=1e-6)


def test_backward_of_sqrt_and_log() -> None:
    x = np.abs(X)
    np.testing.assert_allclose(_gradients("sqrt@float32 x(gx)<-z(gz)", x)["gx"], G / (2 * np.sqrt(x)), rtol=1e-6)
    np.testing.assert_allclose(_gradients("log@float32 x(gx)<-z(gz)", x)["gx"], G / x, rtol=1e-6)


def test_backward_of_sum_spreads_and_accumulates() -> None:
    g = np.array([10.0, 20.0], np.float32)
    got = _gradients("argset@int32 1->v1\nsum@float32 x(gx) v1<-z(gz)", g=g, start=1)
    np.testing.assert_array_equal(got["gx"], 1 + np.repeat(g[:, None], 3, 1))


def test_both_terms_of_one_tensor_are_added() -> None:
    np.testing.assert_allclose(_gradients("mul@float32 x(gx) x(gx)<-z(gz)")["gx"], 2 * G * X, rtol=1e-6)
    got = _gradients("mul@float32 x(gx) x(gy)<-z(gz)")
    np.testing.assert_allclose(got["gx"], G * X, rtol=1e-6)
    np.testing.assert_allclose(got["gy"], G * X, rtol=1e-6)


def test_gradient_names_left_out_are_the_dotted_ones() -> None:
    text = tensors("x", "z", "x.grad", "z.grad") + "constant@float32 2 -> z.grad\nmul_scalar@float32 x 3<-z\n"
    np.testing.assert_array_equal(run(text)["x.grad"], np.full((2, 3), 6))
