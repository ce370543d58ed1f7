"""What statements are expected to take: the same work in other words takes as long."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deepx_graph.loops.program import Buffer, Conditional, For, Let, Load, Statement, Store
from deepx_graph.loops.scalar import Affine, ScalarConst, ScalarVar
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import BOOL, F32, I64

if not has_native():
    pytest.skip("no llvmlite", allow_module_level=True)

from deepx_graph.runtime.native.loop_program.timing import nanoseconds

ROWS, COLUMNS = 50, 640
ROW, COLUMN, ONCE = ScalarVar(1, I64), ScalarVar(2, I64), ScalarVar(3, I64)
X, Y, SUMS = (Buffer(name, F32, (ROWS, COLUMNS), "argument") for name in "xys")
OUT = Buffer("out", F32, (ROWS, COLUMNS), "result")


def at(var: ScalarVar, step: int = 1, plus: int = 0) -> Affine:
    return Affine(((var, step),), plus)


def loop(axis: ScalarVar, count: int, *body: Statement) -> For:
    return For(axis, Affine(), Affine((), count), list(body))


def over_rows(*body: Statement, before: Sequence[Statement] = (), columns: int = COLUMNS) -> float:
    return nanoseconds([loop(ROW, ROWS, *before, loop(COLUMN, columns, *body))])


def number(k: int) -> ScalarVar:
    return ScalarVar(10 + k, F32)


def scaled(column: Affine, *, source: Buffer = X, k: int = 0, target: Buffer = OUT) -> list[Statement]:
    """`target[row, column] = tanh(source[row, column])`."""
    return [Load(number(k), source, (at(ROW), column)), Let(number(k + 1), "tanh", (number(k),)),
            Store(target, (at(ROW), column), number(k + 1))]


PLAIN = over_rows(*scaled(at(COLUMN)))


def test_a_loop_of_one_iteration_is_its_body() -> None:
    assert over_rows(loop(ONCE, 1, *scaled(at(COLUMN)))) == PLAIN
    assert over_rows(*scaled(at(COLUMN)), before=[loop(ONCE, 1)]) == PLAIN


def test_what_is_the_same_for_all_iterations_is_done_once() -> None:
    same = [Load(number(4), Y, (at(ROW), Affine())), Let(number(5), "exp", (number(4),))]
    assert over_rows(*same, *scaled(at(COLUMN))) == pytest.approx(over_rows(*scaled(at(COLUMN)), before=same))


def test_a_condition_that_is_the_same_for_all_iterations_makes_a_loop_of_each_case() -> None:
    holds = ScalarVar(30, BOOL)
    decided = Let(holds, "lt", (at(ROW), Affine((), ROWS // 2)))
    inside = over_rows(decided, Conditional(holds, scaled(at(COLUMN)), scaled(at(COLUMN), source=Y, k=2)))
    assert inside < 1.5 * PLAIN


def test_rows_of_one_buffer_that_lie_apart_are_vectors() -> None:
    row = Affine((), 0)
    sums = [s for k in range(2) for s in (Load(number(3 * k), X, (at(ROW), at(COLUMN))), Load(number(3 * k + 1), SUMS,
            (row + Affine((), k), at(COLUMN))), Let(number(3 * k + 2), "add", (number(3 * k), number(3 * k + 1))),
            Store(SUMS, (row + Affine((), k), at(COLUMN)), number(3 * k + 2)))]  # fmt: skip
    one = over_rows(*sums[:4])
    assert over_rows(*sums) < 3 * one
    near = [Load(number(0), SUMS, (row, at(COLUMN))), Let(number(1), "add", (number(0), number(0))),
            Store(SUMS, (row, at(COLUMN, plus=1)), number(1))]
    assert over_rows(*near, columns=COLUMNS - 1) > 3 * one, "each iteration waits for the one before"


def test_elements_apart_are_loaded_one_by_one_and_the_rest_is_vectors() -> None:
    neighbours = over_rows(*scaled(at(COLUMN)), columns=COLUMNS // 8)
    apart = [Load(number(0), X, (at(ROW), at(COLUMN, 8))), Let(number(1), "tanh", (number(0),)),
             Store(OUT, (at(ROW), at(COLUMN)), number(1))]
    assert neighbours <= over_rows(*apart, columns=COLUMNS // 8) < 2 * neighbours


def test_a_condition_on_each_element_is_left_element_by_element() -> None:
    holds = ScalarVar(30, BOOL)
    decided = [Load(number(4), Y, (at(ROW), at(COLUMN))), Let(holds, "lt", (number(4), ScalarConst(0.0, F32)))]
    assert over_rows(*decided, Conditional(holds, scaled(at(COLUMN)), [])) > PLAIN
