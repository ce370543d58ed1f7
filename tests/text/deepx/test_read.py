"""How deepx programs are read: every dialect, the life of names, effects in order."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import Source, VerifyError
from deepx_graph.ir import Function
from deepx_graph.ops.host.host import Host
from deepx_graph.text import detect
from deepx_graph.text.deepx.reader.instr import Problems
from deepx_graph.text.deepx.reader.lines import parse_lines
from deepx_graph.types import ANY, F32, I64, STATE, tensor
from tests.support.deepx_texts import SAME_PROGRAM, X, Y, load_text, run, tensors
from tests.support.reference import evaluate


@pytest.mark.parametrize("dialect", SAME_PROGRAM)
def test_a_program_means_the_same_in_every_dialect(dialect: str) -> None:
    text = SAME_PROGRAM[dialect]
    assert detect(text) == "deepx"
    got = run(text, Host(out=io.StringIO()))
    t = 10 + 0.5 * np.arange(6, dtype=np.float32).reshape(2, 3)
    assert list(got) == ["t", "u"]
    np.testing.assert_array_equal(got["t"], t)
    np.testing.assert_array_equal(got["u"], t + 0.5)
    assert got["t"].dtype == np.float32


def test_instructions_keep_locations_and_metadata() -> None:
    text = "\n  mul@float32 a(a_g) b()<-c(c_g) // id=3 created_at=1.5\n"
    (instr,) = parse_lines(Problems(Source("x", text)))
    assert instr.backward and instr.dtype is F32
    assert [text[a.start : a.end] for a in (instr.op, *instr.inputs, *instr.outputs)] == ["mul", "a", "b", "c"]
    assert [a.grad and (a.grad.text, text[a.grad.start : a.grad.end]) for a in instr.inputs] == [("a_g", "a_g"), ("", "")]
    assert text[instr.start : instr.end] == "mul@float32 a(a_g) b()<-c(c_g)"
    assert instr.facts() == {"id": "3", "created_at": "1.5"}


def test_nodes_know_their_name_and_line() -> None:
    module = load_text(tensors("t", "u") + "exp@float32 t -> u\n").module
    result = module.entry.results[1]
    assert result.name == "u"
    assert result.span is not None
    assert (result.span.line, result.span.text) == (3, "exp@float32 t -> u")


def test_lone_arrow_head_is_an_arrow_with_a_warning() -> None:
    result = load_text("newtensor@int32 4 -> t\narange@int32 3 2>t\n")
    assert [(w.severity, w.span.line, w.span.column) for w in result.warnings if w.span] == [("warning", 2, 17)]
    np.testing.assert_array_equal(evaluate(result.module, [])[0], [3, 5, 7, 9])


def _deep(count: int) -> Function:
    return load_text(tensors("t") + "addscalar@float32 t 1 -> t\n" * count).module.entry


def test_long_programs_are_read_without_recursion() -> None:
    assert len(_deep(20_000).nodes) == 40_001


# --- names -----------------------------------------------------------------------------------------------------------


def test_newtensor_takes_its_vector_as_shape_and_starts_as_zeros() -> None:
    got = run("argset@int32 2 3->vec\nnewtensor@int32 vec->t\nargset@int32 4->v1\nnewtensor@float64 v1->u\n")
    np.testing.assert_array_equal(got["t"], np.zeros((2, 3), np.int32))
    assert (got["u"].shape, got["u"].dtype) == ((4,), np.float64)


def test_one_value_under_a_vector_name_is_still_a_scalar_where_one_is_asked_for() -> None:
    got = run("argset@float32 0.5->var_1\n" + tensors("t") + "constant@float32 var_1->t\n")
    np.testing.assert_array_equal(got["t"], np.full((2, 3), 0.5, np.float32))


def test_unknown_names_are_inputs_refined_by_what_stands_beside_them() -> None:
    text = tensors("o") + "mul@float32 x y -> o\nadd_scalar@float32 o alpha -> o\nadd@float32 z z -> z\n"
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
    result = load_text(tensors("total") + "exp@float32 total -> totall\n")
    (warning,) = result.warnings
    assert warning.message == "'totall' was never created"
    assert warning.hint == "did you mean 'total'?"
    assert result.module.entry.result_names == ("total", "totall")


def test_delete_rename_copy_clone() -> None:
    text = tensors("a", "b", "c") + (
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
    got = run(tensors("a", "b") + "constant@float32 3 -> a\nadd@float32 a a -> b\nmul@float32 a b -> a\nadd@float32 a b -> b\n")
    assert (got["a"].flat[0], got["b"].flat[0]) == (18, 24)


# --- effects ---------------------------------------------------------------------------------------------------------


def test_print_in_order_with_and_without_format() -> None:
    out = io.StringIO()
    run("newtensor@int32 2 -> t\nprint t ->\nconstant@int32 7 -> t\nprint (t, ) -> ()\n"
        "print (tensor<int32>:t, var<string>:) -> ()\n"
        "print (tensor<int32>:t, var<string>:%3d) -> ()\n", Host(out=out))
    assert [line for line in out.getvalue().splitlines() if "shape" not in line] == ["[0 0]", "[7 7]", "[7 7]", "[  7   7]"]


def test_save_then_load_keeps_type_and_order(tmp_path: Path) -> None:
    text = ("newtensor@float32 2 -> t\nconstant@float32 1.5 -> t\nsave (tensor<float32>:t, var<string>:a/w.v1) -> ()\n"
            "constant@float32 2 -> t\nload (var<string>:a/w.v1) -> ()\n")
    entry = load_text(text).module.entry
    assert entry.result_names == ("t", "w", "state")
    assert entry.results[1].type == tensor(F32, (2,))
    np.testing.assert_array_equal(run(text, Host(tmp_path))["w"], [1.5, 1.5])


def test_a_loaded_tensor_takes_the_type_that_later_lines_state() -> None:
    entry = load_text("load (var<string>:m/ids.shape) -> ()\nprint (tensor<int64>:ids) -> ()\n").module.entry
    load = next(n for n in entry.nodes if n.op.name == "load")
    assert load.attr("type") == tensor(I64, None)
    assert entry.result_names == ("ids", "state")
    assert load_text("load m/x\n").module.entry.results[0].type == tensor(ANY, None)


@pytest.mark.parametrize(("line", "shape", "want"), [
    ("sum (tensor<float32>:w, vector<int32>:[0 1], var<bool>:False)", "[1]", [15]),
    ("sum (tensor<float32>:w, vector<int32>:[-2], var<bool>:False)", "[3]", [3, 5, 7]),
    ("sum (tensor<float32>:w, vector<int32>:[0], var<bool>:True)", "[1 3]", [[3, 5, 7]]),
    ("reshape (tensor<float32>:w, vector<int32>:[3 2])", "[3 2]", [[0, 1], [2, 3], [4, 5]]),
    ("broadcastTo (tensor<float32>:w, vector<int32>:[2 2 3])", "[2 2 3]", [[[0, 1, 2], [3, 4, 5]]] * 2),
])  # fmt: skip
def test_what_is_loaded_has_the_type_that_its_file_states(line: str, shape: str, want: list[object], tmp_path: Path) -> None:
    Host(tmp_path).save(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    text = f"load (w) -> ()\nnewtensor (vector<int32>:{shape}) -> (tensor<float32>:s)\n{line} -> (tensor<float32>:s)\n"
    module = dx.loads(text, "deepx", data_root=tmp_path)
    for engine in ("numpy", "auto"):
        compiled = dx.compile(module, engine=engine, data_root=tmp_path, optimize=False)
        found = dict(zip((o.name for o in compiled.outputs), compiled(), strict=True))
        assert found["s"].tolist() == want
    again = dx.loads(dx.dumps(module, "deepx"), "deepx", data_root=tmp_path)
    assert [o.type for o in dx.compile(again, data_root=tmp_path, optimize=False).outputs] == [o.type for o in compiled.outputs]


def test_a_file_outside_the_data_root_states_nothing(tmp_path: Path) -> None:
    Host(tmp_path).save(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    (tmp_path / "root").mkdir()
    text = "load (PATH) -> ()\nsum (tensor<float32>:w, vector<int32>:[-2], var<bool>:False) -> (tensor<float32>:s)\n"
    for path, root in (("../w", tmp_path / "root"), (f"{tmp_path}/w", tmp_path), ("nosuch/w", tmp_path), ("w", None)):
        with pytest.raises(VerifyError, match="the rank of 'w' is not known"):
            dx.loads(text.replace("PATH", path), "deepx", data_root=root)
