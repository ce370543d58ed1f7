"""Which values are put in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.loops import lower as lower_module
from deepx_graph.loops.builder import LoopBuilder, decided
from deepx_graph.loops.in_place import Accesses
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.lower import element_cost, lower, stored_values
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import Let, LoopProgram, walk
from deepx_graph.loops.scalar import Affine, NotExpressible, ScalarConst, ScalarVar, affine, reduced_quotient, split_quotient
from deepx_graph.loops.weight import weighted
from deepx_graph.ops import (
    OPS,
    add,
    bessel_i0e,
    broadcast_in_dim,
    compare,
    concatenate,
    convert,
    exponential,
    floor,
    iota,
    maximum,
    minimum,
    multiply,
    negate,
    pad,
    reduce,
    reshape,
    reverse,
    select,
    slice_,
    subtract,
    torch_index_select,
    transpose,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.types import C64, F32, F64, I32, I64, DType, Type, tensor, type_of_array
from tests.support.laws import samples


def made(body: Callable[..., Sequence[Node]], *types: Type) -> LoopProgram:
    return lower(Builder().function("f", [(f"x{k}", t) for k, t in enumerate(types)], body))


def test_what_one_nest_reads_at_one_place_is_computed_there_once() -> None:
    b = Builder()

    def chosen(x: Node) -> Sequence[Node]:
        e = b(exponential, x)
        return b(select, b(compare, e, x, direction="LT"), e, b(multiply, e, e)), b(add, e, x)

    program = made(chosen, tensor(F32, (9,)))
    assert not program.scratch
    assert sum(isinstance(s, Let) and s.primitive == "exp" for s in walk(program.body)) == 1


def test_computed_indices_of_several_gathers_are_computed_where_they_are_read() -> None:
    """Each is read at one subscript, though by operations that are not elementwise."""
    b = Builder()

    def looked_up(table: Node, x: Node) -> Sequence[Node]:
        near = b(convert, b(floor, b(exponential, x)), dtype=I32)
        far = b(add, near, b.splat(1, near.type))  # type: ignore[arg-type]
        taken = [b(torch_index_select, table, i, dim=0) for i in (near, far)]
        return [b(add, b(multiply, taken[0], taken[1]), b(exponential, b(negate, b(convert, near, dtype=F32))))]

    program = made(looked_up, tensor(F32, (50,)), tensor(F32, (9,)))
    assert not program.scratch
    assert sum(isinstance(s, Let) and s.primitive == "floor" for s in walk(program.body)) == 1


def test_a_complex_element_is_read_once() -> None:
    b = Builder()
    whole = tensor(C64, (9,))
    assert not made(lambda x, y: [b(add, b(multiply, x, x), y)], whole, whole).scratch


def test_what_is_read_at_two_places_is_put_in_memory() -> None:
    b = Builder()

    def mirrored(x: Node) -> Sequence[Node]:
        e = b(exponential, x)
        return [b(add, e, b(reverse, e, dimensions=(0,)))]

    assert len(made(mirrored, tensor(F32, (9,))).scratch) == 1


def test_what_is_a_result_and_is_summed_is_computed_once() -> None:
    """It is in memory anyway: the sum reads it there, or both are made by one loop."""
    b = Builder()

    def made_of(x: Node) -> Sequence[Node]:
        e = b(exponential, b(reverse, x, dimensions=(0,)))
        return e, reduction(b, add, b(subtract, e, x), (0, 1))

    program = made(made_of, tensor(F32, (30, 20)))
    computed = sum(times for s, times in weighted(program.body) if isinstance(s, Let) and s.primitive == "exp")
    assert not program.scratch and computed == 600
    x = np.random.default_rng(0).standard_normal((30, 20)).astype("f4")
    for got, want in zip(interpret(program, [x]), (np.exp(x[::-1]), (np.exp(x[::-1]) - x).sum()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_what_is_made_of_one_value_in_memory_is_made_again_of_that() -> None:
    """Two sweeps read it: each loads the value that it is made of in its place."""
    b = Builder()

    def summed(x: Node) -> Sequence[Node]:
        e = b(exponential, x)
        one = b.splat(1.0, e.type)
        slope = b(multiply, b(multiply, e, b(subtract, one, e)), b(add, one, e))
        both = b(multiply, e, slope), b(add, slope, e)
        return [reduction(b, add, both[0], (0,)), reduction(b, add, both[1], (1,))]

    program = made(summed, tensor(F32, (30, 20)))
    large = [t for t in program.scratch if t.shape == (30, 20)]
    assert len(large) == 1 and any(isinstance(s, Let) and s.primitive == "exp" for s in walk(program.body))
    e = np.exp(x := np.random.default_rng(0).standard_normal((30, 20)).astype("f4"))
    slope = e * (1 - e) * (1 + e)
    for got, want in zip(interpret(program, [x]), ((e * slope).sum(0), (slope + e).sum(1)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3)


def test_a_sum_that_is_a_result_is_read_there() -> None:
    """Its operands are read once, so that it may be written over one of them."""
    b = Builder()

    def made_of(x: Node, y: Node) -> Sequence[Node]:
        both = b(add, x, y)
        return both, reduction(b, add, both, (0,)), reduction(b, maximum, both, (1,))

    program = optimised(made(made_of, tensor(F32, (30, 20)), tensor(F32, (30, 20))))
    assert not [t for t in program.scratch if t.size >= 600] and 0 in Accesses(program).written_over(program.results[0])
    x, y = np.random.default_rng(0).standard_normal((2, 30, 20)).astype("f4")
    for got, want in zip(interpret(program, [x, y]), (x + y, (x + y).sum(0), (x + y).max(1)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("dtype", [F32, I32], ids=str)
def test_a_fold_that_all_elements_read_is_done_once(dtype: DType) -> None:
    """Positions move out of loops by themselves; a loop of 256 steps does not, of integers neither."""
    b = Builder()

    def apart(x: Node, y: Node) -> Sequence[Node]:
        return (b(subtract, y, b(broadcast_in_dim, reduction(b, maximum, x, (0,)), shape=(64, 64), broadcast_dimensions=())),)

    program = optimised(made(apart, tensor(dtype, (256,)), tensor(dtype, (64, 64))))
    assert sum(times for _, times in weighted(program.body)) < 20 * 64 * 64


def test_what_is_broadcast_is_put_in_memory() -> None:
    b = Builder()
    program = made(lambda x: [b(broadcast_in_dim, b(exponential, x), shape=(9, 50), broadcast_dimensions=(0,))], tensor(F32, (9,)))
    assert len(program.scratch) == 1


@pytest.mark.parametrize("shape", [(9,), (9, 4)])
def test_an_operation_of_several_results_is_a_function_of_its_own(shape: tuple[int, ...]) -> None:
    """Also where nothing reads its results one by one, and where they are scalars."""
    b = Builder()

    def greater(x: Node, i: Node, y: Node, j: Node) -> Sequence[Node]:
        keep = b(compare, x, y, direction="GT")
        return b(select, keep, x, y), b(select, keep, i, j)

    scalars = [("x", tensor(F32, ())), ("i", tensor(I32, ()))] * 2
    body = b.function("greater", scalars, greater)

    def both(x: Node, i: Node) -> Sequence[Node]:
        return [b(reduce, x, i, b.constant(np.float32(-9)), b.constant(np.int32(-1)), body=body, dimensions=(0,))]

    values = np.random.default_rng(0).permutation(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)
    places = np.broadcast_to(np.arange(9, dtype=np.int32).reshape(9, *(1 for _ in shape[1:])), shape)
    found = interpret(made(both, tensor(F32, shape), tensor(I32, shape)), [values, places])
    np.testing.assert_array_equal(found[0], values.max(0))
    np.testing.assert_array_equal(found[1], values.argmax(0))


@pytest.mark.parametrize("dtype", ["f4", "c8"])
@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 2)])
def test_of_a_constant_that_is_broadcast_each_element_is_stored_once(axes: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(len(axes))
    small = rng.integers(-9, 9, [1 if k in axes else n for k, n in enumerate((4, 5, 6))]).astype(dtype)
    wide = np.broadcast_to(small, (4, 5, 6))
    b = Builder()
    x = b.param(0, type_of_array(wide))
    program = lower(Function("main", (x,), (b(add, x, b.constant(wide)),)))
    assert [c.array.size for c in program.constants if c.array is not None] == [small.size]
    values = rng.integers(-9, 9, wide.shape).astype(dtype)
    (got,) = interpret(optimised(program), [values])
    np.testing.assert_array_equal(got.view(dtype).reshape(wide.shape), values + wide)  # complex ones are pairs


def test_a_long_chain_of_operations_is_one_loop_without_memory() -> None:
    """Elements are not asked for through more operations than Python can call one from another."""
    b = Builder()

    def chain(x: Node) -> Sequence[Node]:
        y = b(reverse, x, dimensions=(0,))
        for _ in range(190):
            y = b(add, b(multiply, y, x), x)
        return (y,)

    program = optimised(made(chain, tensor(F64, (20,))))
    assert len(program.body) == 1 and not program.scratch
    array = np.linspace(0.1, 0.9, 20)
    want: Any = array[::-1]
    for _ in range(190):
        want = want * array + array
    np.testing.assert_array_equal(interpret(program, [array])[0], want)


@pytest.mark.parametrize("seed", range(200))
def test_a_quotient_is_what_is_known_of_it_and_the_rest(seed: int) -> None:
    """Of random subscripts, wherever they are not negative."""
    rng = np.random.default_rng(seed)
    low = [int(rng.integers(-3, 3)) for _ in range(2)]
    axes = [ScalarVar(k, I64, n, n + 6) if rng.random() < 0.8 else ScalarVar(k, I64) for k, n in enumerate(low)]
    divisor = int(rng.integers(1, 9))
    x = Affine((), int(rng.integers(-9, 30)))
    for axis in axes:
        x = x + Affine(((axis, 1),)) * int(rng.choice([-divisor, divisor, 2 * divisor, 1, 3, -1]))
    known, rest = split_quotient(x, divisor)
    for values in itertools.product(*(range(n, n + 7) for n in low)):
        at = dict(zip(axes, values, strict=True))
        whole, first, last = (a.constant + sum(f * at[v] for v, f in a.terms) for a in (x, known, rest))
        assert whole < 0 or (last >= 0 and first + last // divisor == whole // divisor)


@pytest.mark.parametrize("seed", range(200))
def test_a_reduced_quotient_is_the_same(seed: int) -> None:
    """Of random subscripts; of fewer axes where the last is less than what the others have in common."""
    rng = np.random.default_rng(seed)
    factor, times = (int(n) for n in rng.integers(1, 6, 2))
    axes = [ScalarVar(k, I64, 0, n) for k, n in enumerate((4, 3, factor - 1 if rng.random() < 0.7 else factor))]
    factors = [int(rng.integers(1, 4)) * factor, int(rng.choice([factor, 1, 2])), 1]
    x, divisor = Affine(tuple(zip(axes, factors, strict=True)), int(rng.integers(0, 3)) * factor), factor * times
    few, by = reduced_quotient(x, divisor)
    for values in itertools.product(*(range(v.high + 1) for v in axes)):  # type: ignore[operator]
        at = dict(zip(axes, values, strict=True))
        whole, less = (a.constant + sum(f * at[v] for v, f in a.terms) for a in (x, few))
        assert whole // divisor == less // by
    if factor > 1 and axes[2].high == factor - 1 and factors[1] % factor == 0:
        assert axes[2] not in [v for v, _ in few.terms]


def test_the_row_of_an_element_is_known_once_its_axis_is_two() -> None:
    """Where a pass puts a row and a place in it for an element, what was divided by the row's length is the row: loops that compare
    subscripts then find them equal."""
    row, k, unknown = ScalarVar(1, I64, 0, 7), ScalarVar(2, I64, 0, 127), ScalarVar(3, I64)
    divided = partial(decided, "quotient", dtype=I64)
    length = ScalarConst(np.int64(128), I64)
    assert divided((affine(row) * 128 + affine(k), length)) == affine(row)
    for kept in (affine(row) * 128 + affine(k) + 1, affine(row) * 128 - affine(k), affine(unknown), affine(row) * 64 + affine(k)):
        assert divided((kept, length)) is None


def test_blocks_of_an_image_are_found_without_divisions() -> None:
    b = Builder()

    def blocks(x: Node) -> Sequence[Node]:
        cut = b(reshape, x, shape=(5, 8, 6, 8, 3))
        return [b(transpose, cut, permutation=(0, 2, 1, 3, 4))]

    program = optimised(made(blocks, tensor(F32, (40, 48, 3))))
    assert sum(isinstance(s, Let) and s.primitive == "quotient" for s in walk(program.body)) <= 3  # none for columns and channels
    x = np.random.default_rng(0).random((40, 48, 3), np.float32)
    np.testing.assert_array_equal(interpret(program, [x])[0], x.reshape(5, 8, 6, 8, 3).transpose(0, 2, 1, 3, 4))


def test_no_operation_asks_twice_for_what_its_operands_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operands are a series of Chebyshev polynomials, each term of which needs the two before it: 60 statements, or 2^18."""
    monkeypatch.setattr(lower_module, "LoopBuilder", partial(LoopBuilder, 20_000))
    reasons = []
    for op in (op for op in OPS.values() if op.loops is not None or op.element is not None):
        arrays, attrs = next(samples(op))
        b = Builder()
        params = [b.param(k, type_of_array(a)) for k, a in enumerate(arrays)]
        operands = [b(bessel_i0e, p) if a.dtype.kind == "f" else p for p, a in zip(params, arrays, strict=True)]
        try:
            lower(Function("f", tuple(params), (b(op, *operands, **attrs),), ("y",)))
        except NotExpressible as e:
            reasons.append(f"{op.name}: {e}")
    assert len(reasons) < 30 and not [r for r in reasons if "too many statements" in r]


def flipped(b: Builder, x: Node, level: int) -> Node:
    """Every second block of a cube reversed."""
    cube = b(reshape, x, shape=(2**level, 2, 2 ** (11 - level)))
    first, second = (b(slice_, cube, start_indices=(0, k, 0), limit_indices=(2**level, k + 1, 2 ** (11 - level)),
                       strides=(1, 1, 1)) for k in range(2))
    return b(reshape, b(concatenate, first, b(reverse, second, dimensions=(2,)), dimension=1), shape=(4096,))


def exchanged(b: Builder, x: Node, level: int) -> Node:
    """The lesser of each two elements that are so far apart."""
    at = b.constant((np.arange(4096) ^ (1 << level)).astype("i4"))
    return b(minimum, x, b(torch_index_select, x, at, dim=0))


def rolled(b: Builder, x: Node, level: int) -> Node:
    cut = 1 << level
    first, second = (b(slice_, x, start_indices=(k,), limit_indices=(n,), strides=(1,)) for k, n in ((cut, 4096), (0, cut)))
    return b(select, b(compare, b(iota, shape=(4096,), dtype=F32), b.like(7 << level, x), direction="LT"), x,
             b(concatenate, first, second, dimension=0))


@pytest.mark.parametrize("step", [flipped, exchanged, rolled])
def test_what_is_written_grows_in_proportion_to_the_operations(step: Callable[[Builder, Node, int], Node]) -> None:
    """Each step asks for elements at two places, so all in one would write 2^n of them."""
    written = []
    for levels in (5, 10):
        b = Builder()
        x = last = b.param(0, tensor(F32, (4096,)))
        for level in range(levels):
            last = step(b, last, level)
        program = lower(Function("f", (x,), (last,)))
        written.append(sum(1 for _ in walk(program.body)))
        values = np.random.default_rng(0).random(4096).astype("f4")
        reference = dx.compile(Module((Function("main", (x,), (last,)),), "main"), engine="numpy", optimize=False)
        np.testing.assert_array_equal(interpret(program, [values])[0], reference(values)[0])
    assert written[1] <= 3 * written[0]


def test_lowering_conditions_below_conditions_takes_no_more_than_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix sum as a tree asks for one of two elements at each of its levels, each of which asks again."""
    b = Builder()

    def part(x: Node, start: int, stop: int, stride: int) -> Node:
        return b(slice_, x, start_indices=(start,), limit_indices=(stop,), strides=(stride,))

    def spread(x: Node, low: int, high: int) -> Node:
        return b(pad, x, b.splat(0, tensor(F32, ())), edge_padding_low=(low,), edge_padding_high=(high,), interior_padding=(1,))

    def prefix_sums(x: Node, n: int) -> Node:
        if n == 1:
            return x
        odd = prefix_sums(b(add, part(x, 0, n, 2), part(x, 1, n, 2)), n // 2)
        if n == 2:
            return b(concatenate, part(x, 0, 1, 1), odd, dimension=0)
        even = b(concatenate, part(x, 0, 1, 1), b(add, part(x, 2, n, 2), part(odd, 0, n // 2 - 1, 1)), dimension=0)
        return b(add, spread(even, 0, 1), spread(odd, 1, 0))

    written = 0
    emit = LoopBuilder.emit

    def counted(builder: LoopBuilder, statement: Any) -> None:
        nonlocal written
        written += 1
        emit(builder, statement)

    monkeypatch.setattr(LoopBuilder, "emit", counted)
    counts = []
    for levels in (5, 10):
        written = 0
        n = 1 << levels
        program = made(lambda x, n=n: [prefix_sums(x, n)], tensor(F32, (n,)))  # type: ignore[misc]
        counts.append(written)
        x = np.arange(n, dtype=np.float32)
        assert np.array_equal(interpret(program, [x])[0], np.cumsum(x))
    assert counts[1] < 8 * counts[0]


def test_an_operation_of_very_many_operands_is_no_loop_program() -> None:
    """An element would be found among them by a test for each."""
    b = Builder()
    x = b.param(0, tensor(F32, (2,)), "x")
    joined = b(concatenate, *[x] * (lower_module.MOST_OPERANDS + 1), dimension=0)
    for refusing in (lambda: element_cost(joined), lambda: lower(Function("f", (x,), (joined,), ("y",)))):
        with pytest.raises(NotExpressible, match="operands"):
            refusing()
    few = b(concatenate, *[x] * 3, dimension=0)
    assert element_cost(few).work > 0


def test_what_an_element_costs_is_worked_out_once_for_nodes_that_are_alike() -> None:
    """And does not depend on what the operands are made of."""
    b = Builder()
    x = b.param(0, tensor(F32, (37, 3)))
    layers = [x]
    for _ in range(12):
        layers.append(b(exponential, b(add, layers[-1], x)))
    lower_module._cost_over.cache_clear()
    costs = {element_cost(n) for n in layers[1:]}
    assert len(costs) == 1 and lower_module._cost_over.cache_info().misses == 1
    assert costs == {element_cost(b(exponential, x))}


def test_what_a_trial_has_shown_of_a_function_is_known_when_it_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is read at two places of a row, and whose elements cost something, takes a trial of all that reads it."""
    b, tried = Builder(), []
    x = b.param(0, tensor(F32, (64, 64)))
    value = b(exponential, x)
    function = Function("f", (x,), (b(add, value, b(transpose, value, permutation=(1, 0))),))
    trial = lower_module._Lowering._trial

    def counted(self: lower_module._Lowering, node: Node, *given: Any) -> Any:
        tried.append(node)
        return trial(self, node, *given)

    monkeypatch.setattr(lower_module._Lowering, "_trial", counted)
    assert stored_values(function) == [value] == tried
    program = lower(function)
    assert len(program.scratch) == 1 and tried == [value]



def test_blocks_within_rows_are_found_without_divisions() -> None:
    """Of rows cut into blocks the positions alone count: which row a block is of is not computed."""
    b = Builder()

    def extremes(x: Node) -> Sequence[Node]:
        cut = b(reshape, x, shape=(24, 8))
        return [reduction(b, maximum, b(negate, cut), (1,))]

    program = optimised(made(extremes, tensor(F32, (6, 32))))
    assert not any(isinstance(s, Let) and s.primitive == "quotient" for s in walk(program.body))
    x = np.random.default_rng(0).standard_normal((6, 32), np.float32)
    np.testing.assert_array_equal(interpret(program, [x])[0], (-x).reshape(24, 8).max(1))
