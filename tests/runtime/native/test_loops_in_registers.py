"""Functions with loops and branches as one loop program: it means what the function means, before and after the passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import opened
from deepx_graph.ir.structure import LOOP_END
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import For, Load, LoopProgram, Store, While, walk
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.lowering.control import MOST_CARRIED, lower_control
from deepx_graph.ops import (
    add,
    and_,
    compare,
    concatenate,
    convert,
    dynamic_slice,
    dynamic_update_slice,
    minimum,
    multiply,
    reshape,
    reverse,
    select,
    shift_right_arithmetic,
    slice_,
    subtract,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.native.loop_program import loop_kernels
from deepx_graph.types import I32, type_of_array
from tests.support.loop_programs import same_in_python

Array = np.ndarray[Any, Any]
Make = Callable[..., Sequence[Node]]


def check(make: Make, *arrays: Array, rtol: float = 0.0) -> LoopProgram:
    """The loop program, which gives the results of the reference."""
    b = Builder()
    params = tuple(b.param(k, type_of_array(np.asarray(a))) for k, a in enumerate(arrays))
    function = Function("main", params, tuple(make(b, *params)))
    wanted = compile(Module((function,), "main"), engine="numpy")(*arrays)
    for program in (lower_control(function), optimised(lower_control(function))):
        for x, y in zip(interpret(program, arrays), wanted, strict=True):
            y = np.asarray(y)
            x = x.reshape(-1).view(y.dtype).reshape(y.shape)
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)
        same_in_python(program, arrays)
    return lower_control(function)


def counted(b: Builder, iterations: int, inits: Sequence[Node], body: Callable[..., Sequence[Node]], dtype: Any = np.int32,
            start: int = 0, step: int = 1) -> tuple[Node, ...]:
    def whole(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        end, direction = b.like(start + step * iterations, v[0]), "LT" if step > 0 else "GT"
        return b(compare, v[0], end, direction=direction), (b(add, v[0], b.like(step, v[0])), *body(*v))

    return b.loop((b.constant(dtype(start)), *inits), whole)


def row(b: Builder, x: Node, at: Node) -> Node:
    return b(dynamic_slice, x, at, slice_sizes=(1,))


def scalar(b: Builder, x: Node) -> Node:
    return b(reshape, x, shape=())


def put(b: Builder, x: Node, value: Node, at: Node) -> Node:
    return b(dynamic_update_slice, x, value, at)


FLOATS = np.linspace(-2, 3, 12).astype(np.float32)


@pytest.mark.parametrize(("start", "step"), [(0, 1), (11, -1), (-4, 3), (5, 2)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8])
def test_a_recurrence_over_rows_that_are_read_and_written_at_a_counter(start: int, step: int, dtype: Any) -> None:
    """Subscripts beyond the ends are moved inside."""
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, m: Node, y: Node) -> Sequence[Node]:
            new = b(add, b(multiply, m, b.like(0.5, m)), row(b, x, k))
            return new, put(b, y, new, k)

        return counted(b, 9, (b.splat(0, type_of_array(np.zeros(1, np.float32))), b.splat(7, x.type)), body, dtype, start, step)

    program = check(make, FLOATS)
    assert not any(isinstance(s, While) for s in walk(program.body))
    if 0 <= start + 8 * step < FLOATS.size and step == 1:
        assert not program.scratch, "the rows are written where the result is"


def test_an_array_is_updated_in_place_after_it_was_read() -> None:
    """A running total within one array: the row before is read from what is written."""
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, y: Node) -> Sequence[Node]:
            before = row(b, y, b(subtract, k, b.like(1, k)))
            return [put(b, y, b(add, before, row(b, y, k)), k)]

        return counted(b, 11, (b(add, x, x),), body, start=1)

    assert len(check(make, FLOATS).scratch) == 1, "that of the initial value"


def test_what_is_read_after_an_update_has_its_old_elements() -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, y: Node, total: Node) -> Sequence[Node]:
            new = put(b, y, b.splat(1, row(b, y, k).type), k)
            return new, b(add, total, b(reverse, b(subtract, y, new), dimensions=(0,)))

        return counted(b, 5, (x, x), body)

    check(make, FLOATS)


def test_variables_that_exchange_arrays_and_scalars() -> None:
    def make(b: Builder, x: Node, y: Node) -> Sequence[Node]:
        def body(k: Node, p: Node, q: Node, s: Node, t: Node) -> Sequence[Node]:
            return b(reverse, q, dimensions=(0,)), p, t, b(add, s, row(b, p, k))

        one = type_of_array(np.zeros(1, np.float32))
        return counted(b, 5, (x, y, b.splat(1, one), b.splat(2, one)), body)

    check(make, FLOATS, FLOATS[::-1] * 2)


@pytest.mark.parametrize("size", [3, 12])
def test_branches_that_give_scalars_or_arrays(size: int) -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, y: Node, n: Node) -> Sequence[Node]:
            large = b(compare, scalar(b, row(b, y, k)), b.like(0, y), direction="GT")
            return b.branch(large, [put(b, y, b.splat(-1, row(b, y, k).type), k), b(add, n, k)], [y, b(subtract, n, k)])

        return counted(b, size, (b(add, x, x), b.constant(np.int32(0))), body)

    check(make, FLOATS[:size])


def test_a_loop_in_a_loop_that_ends_when_a_value_is_reached() -> None:
    """Newton's method for each element."""
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, y: Node) -> Sequence[Node]:
            here = scalar(b, row(b, x, k))

            def step(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
                return b(compare, v[0], b.like(100, v[0]), direction="LT"), (b(add, b(multiply, v[0], v[0]), here),)

            return [put(b, y, b(reshape, b.loop((b.like(2, here),), step)[0], shape=(1,)), k)]

        return counted(b, 12, (b.splat(0, x.type),), body)

    check(make, np.abs(FLOATS))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.complex64, np.uint8])
def test_every_kind_of_number(dtype: Any) -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, m: Node, y: Node) -> Sequence[Node]:
            new = b(add, b(multiply, m, b.splat(3, m.type)), row(b, x, k))
            return new, put(b, y, new, k)

        return counted(b, 6, (b.splat(1, type_of_array(np.zeros(1, dtype))), x), body)

    check(make, np.arange(12).astype(dtype))


def test_a_cell_of_a_table_depends_on_its_neighbours() -> None:
    """Edit distance: a loop over cells in a loop over rows."""
    def make(b: Builder, s: Node, t: Node) -> Sequence[Node]:
        def line(i: Node, above: Node) -> Sequence[Node]:
            def cell(j: Node, left: Node, now: Node) -> Sequence[Node]:
                other = b(convert, b(compare, row(b, s, i), row(b, t, j), direction="NE"), dtype=I32)
                after = b(add, j, b.like(1, j))
                least = b(add, b(minimum, left, row(b, above, after)), b.like(1, left))
                best = b(minimum, least, b(add, row(b, above, j), other))
                return best, put(b, now, best, after)

            first = b(add, row(b, above, b.like(0, i)), b.like(1, above))
            return [counted(b, 7, (first, put(b, above, first, b.like(0, i))), cell)[2]]

        return counted(b, 5, (b.constant(np.arange(8, dtype=np.int32)),), line)

    check(make, np.array([1, 2, 3, 1, 2], np.int32), np.array([2, 3, 1, 1, 2, 2, 3], np.int32))


def test_operations_with_loops_of_their_own() -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, y: Node) -> Sequence[Node]:
            ordered = b(reverse, y, dimensions=(0,))
            total = reduction(b, add, y, (0,))
            return [b(select, b(compare, total, b.like(0, total), direction="GT"), b(subtract, y, b.like(1, y)), ordered)]

        return counted(b, 4, (x,), body)

    check(make, FLOATS)


def test_slices_of_a_variable_are_read_before_it_changes() -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, y: Node) -> Sequence[Node]:
            head = b(slice_, y, start_indices=(0,), limit_indices=(11,), strides=(1,))
            return [b(dynamic_update_slice, y, head, b.like(1, k))]

        return counted(b, 3, (x,), body)

    check(make, FLOATS)


@pytest.mark.parametrize("is_last_in", [True, False])
@pytest.mark.parametrize(("size", "moved", "in_registers"), [(12, 1, True), (16, 3, True), (20, 1, False)])
def test_a_queue_of_few_elements_stays_in_registers(size: int, moved: int, in_registers: bool, is_last_in: bool) -> None:
    """What comes in is made of what goes out."""
    def make(b: Builder, x: Node, queue: Node) -> Sequence[Node]:
        def part(v: Node, start: int, stop: int) -> Node:
            return b(slice_, v, start_indices=(start,), limit_indices=(stop,), strides=(1,))

        def body(k: Node, q: Node, out: Node) -> Sequence[Node]:
            cut = moved if is_last_in else size - moved
            going, staying = (part(q, 0, cut), part(q, cut, size))[:: 1 if is_last_in else -1]
            coming = b(add, b(multiply, going, b.like(0.5, going)), b(dynamic_slice, x, k, slice_sizes=(moved,)))
            after = b(concatenate, *((staying, coming) if is_last_in else (coming, staying)), dimension=0)
            return after, b(dynamic_update_slice, out, coming, k)

        return counted(b, 40, (queue, x), body)[1:]

    rng = np.random.default_rng(0)
    program = check(make, rng.random(43).astype("f4"), rng.random(size).astype("f4"))
    stored = {s.buffer.role for s in walk(program.body) if isinstance(s, Store)}
    assert (stored == {"result"}) is in_registers


def test_large_arrays_that_are_not_changed_in_place_are_declined() -> None:
    b = Builder()
    x = b.param(0, type_of_array(np.zeros(MOST_CARRIED + 1, np.float32)))
    function = Function("main", (x,), counted(b, 3, (x,), lambda k, y: [b(reverse, y, dimensions=(0,))]))
    with pytest.raises(NotExpressible, match="not changed in place"):
        lower_control(function)


def test_clamps_that_the_range_of_a_counter_decides_are_left_out() -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        return counted(b, 12, (b.splat(0, x.type),), lambda k, y: [put(b, y, row(b, x, k), k)])

    program = check(make, FLOATS)
    accesses = [s for s in walk(program.body) if isinstance(s, (Load, Store))]
    assert all(v.low is not None for s in accesses for i in s.index for v, _ in i.terms)


@pytest.mark.parametrize("guarded", [False, True])
def test_what_does_not_change_in_a_loop_is_computed_before_it(guarded: bool) -> None:
    """Also where that is a loop itself, and where a branch alone needs it."""
    def make(b: Builder, x: Node) -> Sequence[Node]:
        totals = counted(b, 12, (b.splat(0, x.type),), lambda k, y: [put(b, y, b(add, row(b, x, k), row(b, y, k)), k)])[1]

        def body(k: Node, y: Node) -> Sequence[Node]:
            new = put(b, y, b(multiply, row(b, totals, k), row(b, y, k)), k)
            if not guarded:
                return [new]
            return [b.branch(b(compare, k, b.like(3, k), direction="GT"), [new], [b(add, y, y)])[0]]

        return counted(b, 7, (x,), body)[1:]

    program = check(make, FLOATS)
    (whole,) = (s for s in program.body if isinstance(s, For))
    assert sum(isinstance(s, For) and not s.parallel for s in whole.body) == 2, "no loop lies in the other"


def test_a_loop_reads_what_one_before_it_gave_beside_its_first_values() -> None:
    """One variable of the first loop is where the second begins, the other is read inside of the second alone."""
    def make(b: Builder, x: Node) -> Sequence[Node]:
        zeros = b.splat(0, x.type)
        _, sums, last = counted(b, 12, (zeros, x), lambda k, y, z: [put(b, y, b(add, row(b, x, k), row(b, z, k)), k),
                                                                  put(b, z, b(multiply, row(b, z, k), row(b, x, k)), k)])
        return counted(b, 7, (last,), lambda k, y: [put(b, y, b(add, row(b, sums, k), row(b, y, k)), k)])[1:]

    check(make, FLOATS)


@pytest.mark.parametrize("start", [1, 6, 27, 97])
@pytest.mark.parametrize("strip", [1, 3, 20_000])
def test_a_loop_of_unknown_length_is_done_in_strips(start: int, strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collatz: a branch decides the next value, and a value from outside how far it goes."""
    monkeypatch.setattr(loop_kernels, "STRIP", strip)
    made, cut = list[Function | None](), loop_kernels.in_strips
    monkeypatch.setattr(loop_kernels, "in_strips", lambda *args: made.append(cut(*args)) or made[-1])
    b = Builder()
    x, least = b.param(0, type_of_array(np.int32(0))), b.param(1, type_of_array(np.int32(0)))

    def body(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        n, steps = v
        odd = b(compare, b(and_, n, b.like(1, n)), b.like(1, n), direction="EQ")
        half = b(shift_right_arithmetic, n, b.like(1, n))
        (after,) = b.branch(odd, [b(add, b(multiply, n, b.like(3, n)), b.like(1, n))], [half])
        return b(compare, n, least, direction="GT"), (after, b(add, steps, b.like(1, steps)))

    module = Module((Function("main", (x, least), b.loop((x, b.constant(np.int32(0))), body)),), "main")
    arrays = np.int32(start), np.int32(1)
    wanted = compile(module, engine="numpy")(*arrays)
    f = compile(module, engine="native")
    for _ in range(2):
        assert [int(r) for r in f(*arrays)] == [int(r) for r in wanted]
    assert any(f is not None for f in made), "the loop is cut"


def test_a_loop_that_is_opened_twice_is_two_loops() -> None:
    """Equal loops are of one function, whose nodes could stay as they are where no parameter says with what they begin."""
    b = Builder()
    n = b.param(0, type_of_array(np.int32(0)))
    body = b.function("doubled", [("n", n.type)], lambda k: b.loop((b.constant(np.int32(1)),), lambda v: (
        b(compare, v[0], k, direction="LT"), [b(add, v[0], v[0])])))
    first = b(fusion, n, body=body)
    function = Function("main", (n,), (first, b(fusion, n, body=body), b(add, first, n)))
    found = opened(function, lambda node: node.attr("body") if node.op is fusion else None)
    ends = [node for node in found.nodes if node.op is LOOP_END]
    assert len({end.inputs[0] for end in ends}) == len(ends) == 2
    doubled, again, _ = compile(Module((found,), "main"), engine="native")(np.int32(9))
    assert doubled == again == 16


@pytest.mark.parametrize("size", [8, 13, 24, 31, 64, 79])
def test_what_is_added_up_and_then_overwritten_is_read_first(size: int) -> None:
    """One loop does both: its last iterations, under a mask, must not write before they read."""
    b = Builder()
    x = b.param(0, type_of_array(np.zeros(size)))

    def body(k: Node, y: Node, total: Node) -> Sequence[Node]:
        return b.splat(0, y.type), b(add, total, reduction(b, add, y, (0,)))

    _, zeros, total = counted(b, 3, (x, b.constant(np.float64(0))), body)
    f = compile(Module((Function("main", (x,), (zeros, total)),), "main"), engine="native")
    found = f(np.arange(1.0, size + 1))
    assert float(found[1]) == size * (size + 1) / 2
    assert not np.asarray(found[0]).any()
