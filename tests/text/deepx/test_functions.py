"""The function form of deepx: calls, symbols, functions made anew for the numbers they are given."""

from __future__ import annotations

import io

import numpy as np

from deepx_graph.ir.structure import CALL
from deepx_graph.ops.host.host import Host
from deepx_graph.types import BF16, F32, F64, I32, STATE, tensor
from tests.support.deepx_texts import NORM, X, load_text
from tests.support.reference import evaluate


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
    world = Host(out=out)
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
