"""What deepx programs mean: each dialect's forms, every op by its documented meaning, gradients, names, functions.

Expected values are written out, or computed here with numpy, never by the code under test.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source
from deepx_graph.ir import Function
from deepx_graph.ir.structure import CALL
from deepx_graph.ops import World
from deepx_graph.text import ReadOptions, ReadResult, detect, read
from deepx_graph.text.deepx.instr import Problems
from deepx_graph.text.deepx.lines import parse_lines
from deepx_graph.text.deepx.rules import known_names
from deepx_graph.types import ANY, BF16, F32, F64, I32, I64, STATE, tensor
from tests.reference import evaluate

X = np.array([[1.5, -2.0, 0.5], [3.0, 0.25, -1.0]], np.float32)
Y = np.array([[0.5, 4.0, 0.5], [-2.0, 2.0, 3.0]], np.float32)


def load_text(text: str, **options: Any) -> ReadResult:
    return read(Source("test.dx", text), "deepx", ReadOptions(**options))


def run(text: str, world: World | None = None, **inputs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs by name; inputs by name."""
    module = load_text(text).module
    args = [world if p.type == STATE else np.asarray(inputs[p.name]) for p in module.entry.params]
    results = evaluate(module, args)
    return {module.entry.result_name(k): r for k, r in enumerate(results) if not isinstance(r, World)}


def _tensors(*names: str, dtype: str = "float32", shape: str = "2 3") -> str:
    return "".join(f"newtensor@{dtype} {shape} -> {n}\n" for n in names)


# --- dialects -----------------------------------------------------------------------------------------------------

SAME_PROGRAM = {
    "A": "argset@int32 2 3->v1\nargset@float32 10->a1\nargset@float32 0.5->a2\nnewtensor@float32 v1->t\nnewtensor@float32 v1->u\n"
         "arange@float32 a1 a2->t\nadd_scalar@float32 t a2->u\n",
    "B": "newtensor@float32 2 3 -> t // id=1 created_at=1.5\nnewtensor@float32 2 3 -> u\narange@float32 10 0.5 -> t\n"
         "addscalar@float32 t 0.5 -> u // id=9\n",
    "C": "newtensor@float32 [2 3] -> t\nnewtensor@float32 2 3 -> u\narange@float32 10,0.5 -> t\naddscalar t,0.5 -> u\n",
    "D": "newtensor ([2 3]) -> (tensor<float32> t) // id=1\nnewtensor ([2 3]) -> (tensor<float32> u)\n"
         "arange (tensor<float32> t, 10, 0.5) -> ()\naddscalar (t, 0.5) -> (u) // author=miaobyte\nprint (u, ) -> ()\n",
    "E": "newtensor (vector<int32>:[2 3]) -> (tensor<float32>:t) //  created_at=1\n"
         "newtensor (vector<int32>:[2 3]) -> (tensor<float32>:u)\n"
         "arange (var<int32>:10, var<float32>:0.5) -> (tensor<float32>:t) // author=miaobyte  created_at=1\n"
         "addscalar (tensor<float32>:t, var<float32>:0.5) -> (tensor<float32>:u)\n",
    "F": "func main() -> (t: tensor<2x3xf32>, u: tensor<?1x?2xf32>) {\n  arange(10, 0.5)-> t\n  addscalar(t, 0.5) -> (u)\n}\n",
}  # fmt: skip


@pytest.mark.parametrize("dialect", SAME_PROGRAM)
def test_a_program_means_the_same_in_every_dialect(dialect: str) -> None:
    text = SAME_PROGRAM[dialect]
    assert detect(text) == "deepx"
    got = run(text, World(out=io.StringIO()))
    t = 10 + 0.5 * np.arange(6, dtype=np.float32).reshape(2, 3)
    assert list(got) == ["t", "u"]
    np.testing.assert_array_equal(got["t"], t)
    np.testing.assert_array_equal(got["u"], t + 0.5)
    assert got["t"].dtype == np.float32


def test_instructions_keep_places_and_metadata() -> None:
    text = "\n  mul@float32 a(a_g) b()<-c(c_g) // id=3 created_at=1.5\n"
    (instr,) = parse_lines(Problems(Source("x", text)))
    assert instr.backward and instr.dtype is F32
    assert [text[a.start : a.end] for a in (instr.op, *instr.inputs, *instr.outputs)] == ["mul", "a", "b", "c"]
    assert [a.grad and (a.grad.text, text[a.grad.start : a.grad.end]) for a in instr.inputs] == [("a_g", "a_g"), ("", "")]
    assert text[instr.start : instr.end] == "mul@float32 a(a_g) b()<-c(c_g)"
    assert instr.facts() == {"id": "3", "created_at": "1.5"}


def test_nodes_know_their_name_and_line() -> None:
    module = load_text(_tensors("t", "u") + "exp@float32 t -> u\n").module
    result = module.entry.results[1]
    assert result.name == "u"
    assert result.span is not None
    assert (result.span.line, result.span.text) == (3, "exp@float32 t -> u")


def test_lone_arrow_head_is_an_arrow_with_a_warning() -> None:
    result = load_text("newtensor@int32 4 -> t\narange@int32 3 2>t\n")
    assert [(w.severity, w.span.line, w.span.column) for w in result.warnings if w.span] == [("warning", 2, 17)]
    np.testing.assert_array_equal(evaluate(result.module, [])[0], [3, 5, 7, 9])


# --- names --------------------------------------------------------------------------------------------------------


def test_newtensor_takes_its_vector_as_shape_and_starts_as_zeros() -> None:
    got = run("argset@int32 2 3->vec\nnewtensor@int32 vec->t\nargset@int32 4->v1\nnewtensor@float64 v1->u\n")
    np.testing.assert_array_equal(got["t"], np.zeros((2, 3), np.int32))
    assert (got["u"].shape, got["u"].dtype) == ((4,), np.float64)


def test_one_value_under_a_vector_name_is_still_a_scalar_where_one_is_asked_for() -> None:
    got = run("argset@float32 0.5->var_1\n" + _tensors("t") + "constant@float32 var_1->t\n")
    np.testing.assert_array_equal(got["t"], np.full((2, 3), 0.5, np.float32))


def test_unknown_names_are_inputs_refined_by_what_stands_beside_them() -> None:
    text = _tensors("o") + "mul@float32 x y -> o\nadd_scalar@float32 o alpha -> o\nadd@float32 z z -> z\n"
    entry = load_text(text).module.entry
    assert [(p.name, p.type) for p in entry.params] == [
        ("x", tensor(F32, (2, 3))), ("y", tensor(F32, (2, 3))), ("alpha", tensor(F32, ())), ("z", tensor(F32, None)),
    ]  # fmt: skip
    got = run(text, x=X, y=Y, alpha=np.float32(2), z=np.float32([1, 2]))
    assert list(got) == ["o", "z"]
    np.testing.assert_allclose(got["o"], X * Y + 2)
    np.testing.assert_array_equal(got["z"], [2, 4])


def test_parameters_come_before_the_state() -> None:
    module = load_text("print (tensor<float32>:x) -> ()\nprint (tensor<int64>:y) -> ()\n").module
    assert [p.type for p in module.entry.params] == [tensor(F32, None), tensor(I64, None), STATE]
    assert [p.attrs[0] for p in module.entry.params] == [0, 1, 2]
    assert module.entry.result_names == ("state",)


def test_writing_to_a_name_nobody_created_creates_it_with_a_warning() -> None:
    result = load_text(_tensors("total") + "exp@float32 total -> totall\n")
    (warning,) = result.warnings
    assert warning.message == "'totall' was never created"
    assert warning.hint == "did you mean 'total'?"
    assert result.module.entry.result_names == ("total", "totall")


def test_delete_rename_copy_clone() -> None:
    text = _tensors("a", "b", "c") + (
        "constant@float32 1 -> a\ncopytensor a -> b\nconstant@float32 2 -> a\n"
        "renametensor (var<string>:new) -> (tensor<float32>:b)\n"
        "clonetensor@float32 new -> d\ndeltensor c\ndeltensor ghost\nnewtensor@int32 1 -> c\n"
    )
    got = run(text)
    assert list(got) == ["a", "new", "d", "c"]
    assert [float(got[n].flat[0]) for n in got] == [2, 1, 1, 0]
    assert [w.message for w in load_text(text).warnings] == ["'ghost' was never created"]


def test_arguments_live_apart_from_tensors_and_can_be_set_again() -> None:
    got = run("newtensor@float32 2 -> x\nargset@float32 1 -> s\nconstant@float32 s -> x\nargset@float32 3 -> s\n"
              "vecset (vector<int32>:[1 2]) -> (vector<int32>:v)\naddscalar@float32 x s -> x\nreshape x v -> x\nargdel s\n")
    np.testing.assert_array_equal(got["x"], [[4, 4]])


def test_in_place_writes_do_not_touch_what_was_read_before() -> None:
    got = run(_tensors("a", "b") + "constant@float32 3 -> a\nadd@float32 a a -> b\nmul@float32 a b -> a\nadd@float32 a b -> b\n")
    assert (got["a"].flat[0], got["b"].flat[0]) == (18, 24)


# --- operations ---------------------------------------------------------------------------------------------------

FLOAT_BINARY = {
    "add": X + Y, "sub": X - Y, "mul": X * Y, "div": X / Y, "max": np.maximum(X, Y), "min": np.minimum(X, Y),
    "mod": X - np.floor(X / Y) * Y, "pow": np.power(np.abs(X), Y),
}  # fmt: skip


@pytest.mark.parametrize("op", FLOAT_BINARY)
def test_elementwise(op: str) -> None:
    x = np.abs(X) if op == "pow" else X
    got = run(_tensors("o") + f"{op}@float32 x y -> o", x=x, y=Y)
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
    np.testing.assert_allclose(run(_tensors("o") + line, x=X)["o"], expected, rtol=1e-6, atol=1e-6)


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
    module = load_text(_tensors("a", "b") + "uniform@float32 -1 1 -> a\nnormal@float32 0 1 0 -> b\n").module
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
    text = _tensors("x", "y") + f"{_tensors('o', shape=shape)}add@float32 x u -> x\nadd@float32 y v -> y\n{line}\n"
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
    text = f"newtensor ([{' '.join(map(str, expected.shape))}]) -> (tensor<float32>:o)\n" + _tensors("x") + (
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
    text = _tensors("o") + "newtensor@float32 3 -> r\nconstant@float32 2 -> r\nadd@float32 o r -> o\n"
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


# --- effects ------------------------------------------------------------------------------------------------------


def test_print_in_order_with_and_without_format() -> None:
    out = io.StringIO()
    run("newtensor@int32 2 -> t\nprint t ->\nconstant@int32 7 -> t\nprint (t, ) -> ()\n"
        "print (tensor<int32>:t, var<string>:) -> ()\n"
        "print (tensor<int32>:t, var<string>:%3d) -> ()\n", World(out=out))
    assert [line for line in out.getvalue().splitlines() if "shape" not in line] == ["[0 0]", "[7 7]", "[7 7]", "[  7   7]"]


def test_save_then_load_keeps_type_and_order(tmp_path: Path) -> None:
    text = ("newtensor@float32 2 -> t\nconstant@float32 1.5 -> t\nsave (tensor<float32>:t, var<string>:a/w.v1) -> ()\n"
            "constant@float32 2 -> t\nload (var<string>:a/w.v1) -> ()\n")
    entry = load_text(text).module.entry
    assert entry.result_names == ("t", "w", "state")
    assert entry.results[1].type == tensor(F32, (2,))
    np.testing.assert_array_equal(run(text, World(tmp_path))["w"], [1.5, 1.5])


def test_a_loaded_tensor_takes_the_type_that_later_lines_state() -> None:
    entry = load_text("load (var<string>:m/ids.shape) -> ()\nprint (tensor<int64>:ids) -> ()\n").module.entry
    load = next(n for n in entry.nodes if n.op.name == "load")
    assert load.attr("type") == tensor(I64, None)
    assert entry.result_names == ("ids", "state")
    assert load_text("load m/x\n").module.entry.results[0].type == tensor(ANY, None)


# --- gradients ----------------------------------------------------------------------------------------------------


def _gradients(line: str, x: Any = X, y: Any = Y, g: Any = None, start: float = 0.0) -> dict[str, Any]:
    """The gradients that a backward line leaves in gx and gy, which start as `start`."""
    g = np.array([[1.0, 2.0, -1.0], [0.5, 3.0, 1.0]], np.float32) if g is None else g
    names = "x y z gx gy"
    text = _tensors(*names.split()) + _tensors("gz", shape=" ".join(map(str, g.shape)))
    text += f"add@float32 x px -> x\nadd@float32 y py -> y\nadd@float32 gz pg -> gz\nconstant@float32 {start} -> gx\n{line}\n"
    if g.shape != (2, 3):
        text = text.replace("newtensor@float32 2 3 -> z\n", _tensors("z", shape=" ".join(map(str, g.shape))))
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
    text = _tensors("x", "z", "x.grad", "z.grad") + "constant@float32 2 -> z.grad\nmul_scalar@float32 x 3<-z\n"
    np.testing.assert_array_equal(run(text)["x.grad"], np.full((2, 3), 6))


# --- functions ----------------------------------------------------------------------------------------------------

NORM = """
// a template: axis, keepdims and the factor are known at each call
deepxir total(A: tensor<?1x?2xf32>, axis: list<i32>, keepdims: bool, factor: f32) -> (out: tensor<?1xf32>) {
    newtensor(?1, f32)-> s
    sum(A, axis, keepdims)-> s
    mulscalar(s, factor)-> out
    deltensor(s)-> s
}
function entry(A: tensor<2x3xf32>, k: f32) -> (p: tensor<2xf32>, q: tensor<2xf32>) {
    total(A, [1], false, 2.5) -> p
    total(A, [1], false, k) -> q
}
"""


def test_functions_call_by_name_and_are_made_anew_for_each_set_of_numbers() -> None:
    module = load_text(NORM).module
    assert (module.entry.name, sorted(f.name for f in module.functions)) == ("entry", ["entry", "total", "total.1"])
    assert [p.type for p in module.entry.params] == [tensor(F32, (2, 3)), tensor(F32, ())]
    called = [n for n in module.entry.nodes if n.op is CALL]
    assert [len(n.inputs) for n in called] == [1, 2]
    assert [r.type for r in module.entry.results] == [tensor(F32, (2,))] * 2
    got = evaluate(module, [X, np.float32(10)])
    np.testing.assert_allclose(got[0], X.sum(1) * 2.5, rtol=1e-6)
    np.testing.assert_allclose(got[1], X.sum(1) * 10, rtol=1e-6)


def test_symbols_stay_in_the_types_of_a_function() -> None:
    module = load_text("func f(A: tensor<?1x?xf64>, B: tensor<?1x?xbf16>) -> (o: tensor<?1x?xf64>) {\n  add(A, A)-> o\n}\n").module
    a, b = (p.type for p in module.entry.params)
    assert (a.dtype, b.dtype, a.dims[0], b.dims[0]) == (F64, BF16, "?1", "?1")  # type: ignore[attr-defined]
    assert a.dims[1] != b.dims[1]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(evaluate(module, [np.ones((2, 3)), np.ones((2, 3))])[0], np.full((2, 3), 2.0))


def test_main_is_the_entry_wherever_it_stands_and_effects_reach_callers() -> None:
    text = ("func main(x: tensor<2xf32>) -> (y: tensor<2xf32>) {\n shout(x)-> y\n}\n"
            "func shout(x: tensor<?1xf32>) -> (y: tensor<?1xf32>) {\n print(x)\n add(x, x)-> y\n}\n")
    module = load_text(text).module
    assert [f.params[-1].type for f in module.functions] == [STATE, STATE]
    out = io.StringIO()
    world = World(out=out)
    got = evaluate(module, [np.float32([1, 2]), world])
    np.testing.assert_array_equal(got[0], [2, 4])
    assert out.getvalue() == "shape:[2]\n[1.0000 2.0000]\n"


def test_a_function_may_call_itself() -> None:
    module = load_text("func f(x: tensor<2xi32>) -> (y: tensor<2xi32>) {\n f(x)-> y\n}\n").module
    assert [n.attr("callee") for f in module.functions for n in f.nodes if n.op is CALL] == ["f"]
    assert module.entry.results[0].type == tensor(I32, (2,))


def test_a_number_written_to_a_name_nobody_created_is_an_argument() -> None:
    result = load_text("func f(x: tensor<?1xf32>) -> (y: tensor<?1xf32>) {\n"
                       " constant(1e-5)-> eps\n add(x, eps)-> y\n deltensor(eps)-> eps\n}\n")
    assert [w.span.line for w in result.warnings if w.span] == [2]
    np.testing.assert_allclose(evaluate(result.module, [np.float32([1])])[0], [1.00001], rtol=1e-7)


def _deep(count: int) -> Function:
    return load_text(_tensors("t") + "addscalar@float32 t 1 -> t\n" * count).module.entry


def test_long_programs_are_read_without_recursion() -> None:
    assert len(_deep(20_000).nodes) == 40_001
