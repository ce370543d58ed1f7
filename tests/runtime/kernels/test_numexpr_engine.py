"""The numexpr engine: whatever way it takes, the values are those of `op.eval`; blocks, threads and reuse do not show."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numexpr
import numpy as np
import pytest
from numexpr import interpreter

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.literal import Literal
from deepx_graph.ops import (
    OPS,
    abs_,
    add,
    and_,
    broadcast_in_dim,
    clamp,
    compare,
    convert,
    divide,
    dot_general,
    exponential,
    fusion,
    logistic,
    maximum,
    minimum,
    multiply,
    negate,
    not_,
    reshape,
    rsqrt,
    select,
    slice_,
    sqrt,
    subtract,
    tanh,
    transpose,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.interpret import evaluate
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.numexpr_engine import NumexprEngine
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.execute import Kernel, build
from deepx_graph.runtime.kernels.machine import MACHINE
from deepx_graph.runtime.kernels.staged import staged_function
from deepx_graph.runtime.kernels.threads import ThreadTeam
from deepx_graph.runtime.memory.pool import BufferPool
from deepx_graph.types import BF16, BOOL, F16, F32, F64, I32, I64, DType, TensorType, tensor, type_of_array
from tests.support import laws

Array = np.ndarray[Any, Any]
ELEMENTWISE = [op for op in OPS.values() if op.elementwise]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(autouse=True)
def _no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may make numexpr read a text."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a text reached numexpr")

    for name in ("evaluate", "re_evaluate", "validate", "NumExpr"):
        monkeypatch.setattr(numexpr, name, refuse)
    monkeypatch.setattr("numexpr.necompiler.stringToExpression", refuse)


def reference(function: Function, args: Sequence[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        return evaluate(function, args)


def built(function: Function, threads: int = 1, block: int = costs.BLOCK_ELEMENTS) -> Kernel:
    kernel = build(function, threads, block)
    assert kernel is not None, f"no kernel for {function.name}"
    return kernel


def check_same(function: Function, args: Sequence[Any], **options: int) -> None:
    """The kernel gives the reference's very bits, in fresh arrays and in arrays given."""
    kernel = built(function, **options)
    want = reference(function, args)
    out = [np.full(np.shape(w), 1, np.asarray(w).dtype) for w in want]
    for got in (kernel(args), kernel(args, out)):
        for g, w in zip(got, want, strict=True):
            assert laws.same(g, w), f"{function.name}: {g} is not {w}"
    assert all(g is o for g, o in zip(kernel(args, out), out, strict=True))


def close(got: Any, want: Any, tolerance: float) -> bool:
    """Equal types, and equal values within a share of the largest."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype.kind in "biu":
        return bool((got == want).all())
    got, want = got.astype(np.complex128), want.astype(np.complex128)
    return bool(np.abs(got - want).max(initial=0) <= tolerance * max(1.0, float(np.abs(want).max(initial=0))))


def normal(seed: int, *shape: int, dtype: DType = F32) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype.np))


# --- the law: every elementwise op ----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_kernel_of_every_elementwise_op_agrees_with_eval(op: Op) -> None:
    checked = 0
    for arrays, attrs in laws.samples(op):
        if all(a.size for a in arrays):
            function = laws.one_op(op, arrays, attrs)
            check_same(function, arrays)
            check_same(function, arrays, threads=2, block=2)
            checked += 1
    assert checked


@pytest.mark.parametrize("dtype", laws.SAMPLED_DTYPES, ids=str)
@pytest.mark.parametrize("op", [o for o in ELEMENTWISE if len(o.operands) < 3 and not o.attrs], ids=lambda op: op.name)
def test_special_values_in_every_pairing(op: Op, dtype: DType) -> None:
    values = laws.special_values(dtype)
    arrays = [values] if len(op.operands) == 1 else [np.repeat(values, len(values)), np.tile(values, len(values))]
    if not _takes(op, dtype):
        return
    check_same(laws.one_op(op, arrays, {}), arrays)
    big = [np.resize(a, 2000) for a in arrays]
    check_same(laws.one_op(op, big, {}), big)


@pytest.mark.parametrize("dtype", [F32, F64, I32, I64, BOOL, BF16, F16], ids=str)
@pytest.mark.parametrize("size", [7, 3000])
def test_select_and_compare_with_scalars_strides_and_special_values(dtype: DType, size: int) -> None:
    values = np.resize(laws.special_values(dtype), 2 * size)
    x, y = values[::2], np.roll(values, 3)[::-2]
    scalar = values[1]

    def body(p: Node, x: Node, y: Node, s: Node) -> Sequence[Node]:
        b = Builder()
        direction = "EQ" if dtype is BOOL else "LT"
        less = b(compare, x, y, direction=direction)
        return [b(select, less, x, y), b(select, p, s, x), b(select, b(not_, less), y, s), less]

    mask = np.arange(size) % 3 == 0
    args = [mask, x, y, np.asarray(scalar)]
    function = Builder().function("f", [(f"p{k}", type_of_array(a)) for k, a in enumerate(args)], body)
    check_same(function, args)
    check_same(function, args, threads=2, block=100)


@pytest.mark.parametrize("source", [F32, F64, I32, I64, BOOL, BF16], ids=str)
@pytest.mark.parametrize("target", [F32, F64, I32, I64, BOOL, BF16], ids=str)
def test_conversions_inside_a_fused_body(source: DType, target: DType) -> None:
    def body(x: Node) -> Sequence[Node]:
        b = Builder()
        c = b(convert, x, dtype=target)
        return [b(select, b(compare, c, c, direction="NE"), c, c), c]

    for x in (laws.special_values(source), np.resize(laws.special_values(source), 5000)):
        check_same(Builder().function("f", [("x", type_of_array(x))], body), [x])


# --- fused bodies ---------------------------------------------------------------------------------------------------


def rows(b: Builder, v: Node, like: Node, axes: tuple[int, ...]) -> Node:
    """`v`, reduced over `axes`, repeated along them."""
    assert isinstance(like.type, TensorType)
    kept = tuple(k for k in range(len(like.type.shape)) if k not in axes)
    return b(broadcast_in_dim, v, shape=like.type.shape, broadcast_dimensions=kept)


def softmax(x: Node) -> Sequence[Node]:
    b, last = Builder(), (len(x.type.shape) - 1,)  # type: ignore[attr-defined]
    e = b(exponential, b(subtract, x, rows(b, reduction(b, maximum, x, last), x, last)))
    return [b(divide, e, rows(b, reduction(b, add, e, last), x, last))]


def layernorm(x: Node, w: Node, bias: Node) -> Sequence[Node]:
    b = Builder()
    shape = x.type.shape  # type: ignore[attr-defined]
    last, count = (len(shape) - 1,), b.like(shape[-1], x)
    d = b(subtract, x, rows(b, b(divide, reduction(b, add, x, last), count), x, last))
    variance = b(divide, reduction(b, add, b(multiply, d, d), last), count)
    scale = b(rsqrt, b(add, variance, b.like(1e-5, x)))
    scaled = b(multiply, b(multiply, d, rows(b, scale, x, last)), _columns(b, w, x))
    return [b(add, scaled, _columns(b, bias, x))]


def _columns(b: Builder, v: Node, like: Node) -> Node:
    shape = like.type.shape  # type: ignore[attr-defined]
    return b(broadcast_in_dim, v, shape=shape, broadcast_dimensions=(len(shape) - 1,))


def sums(x: Node, y: Node) -> Sequence[Node]:
    b = Builder()
    axes = tuple(range(len(x.type.shape)))  # type: ignore[attr-defined]
    d = b(subtract, x, y)
    square = b(multiply, d, d)
    total = reduction(b, add, square, axes)
    return [total, b(sqrt, total), reduction(b, maximum, square, axes[:1]), reduction(b, add, square, axes[-1:]), d]


def function_of(body: Callable[..., Sequence[Node]], *args: Any) -> Function:
    return Builder().function(body.__name__, [(f"p{k}", type_of_array(a)) for k, a in enumerate(args)], body)


SHAPES = [(1, 1), (3, 4), (1, 7), (5, 1), (40, 33), (7, 300), (2, 3, 5), (4, 1, 6)]


@pytest.mark.parametrize("block", [1, 50, 1000, costs.BLOCK_ELEMENTS])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax_against_its_formula(shape: tuple[int, ...], block: int) -> None:
    x = normal(1, *shape, dtype=F64)
    e = np.exp(x - x.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True)
    assert close(built(function_of(softmax, x), 2, block)([x])[0], want, 1e-14)
    single = x.astype(np.float32)
    assert close(built(function_of(softmax, single), 2, block)([single])[0], want.astype(np.float32), 1e-6)


@pytest.mark.parametrize("block", [1, 50, costs.BLOCK_ELEMENTS])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layernorm_against_its_formula(shape: tuple[int, ...], block: int) -> None:
    x, w, bias = normal(1, *shape, dtype=F64), normal(2, shape[-1], dtype=F64), normal(3, shape[-1], dtype=F64)
    d = x - x.mean(-1, keepdims=True)
    want = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w + bias
    assert close(built(function_of(layernorm, x, w, bias), 2, block)([x, w, bias])[0], want, 1e-12)


@pytest.mark.parametrize("block", [1, 50, 1000, costs.BLOCK_ELEMENTS])
@pytest.mark.parametrize("shape", [(1,), (5,), (1000,), *SHAPES], ids=str)
def test_sums_across_blocks_against_their_formulas(shape: tuple[int, ...], block: int) -> None:
    x, y = normal(1, *shape), normal(2, *shape)
    d = (x - y).astype(np.float64)
    square = d * d
    want = [square.sum(), np.sqrt(square.sum()), square.max(0), square.sum(-1), d]
    got = built(function_of(sums, x, y), 2, block)([x, y])
    for g, w in zip(got, want, strict=True):
        assert close(g, np.asarray(w).astype(np.float32), 1e-6)


def test_a_long_single_precision_sum_is_not_added_in_sequence() -> None:
    x = np.full(3_000_000, 0.1, np.float32)
    (got,) = built(function_of(lambda x: [reduction(Builder(), add, x, (0,))], x), 2)([x])
    assert abs(float(got) - float(np.float32(0.1)) * x.size) < 0.2  # in sequence it would be off by thousands


@pytest.mark.parametrize("dtype", [I32, BOOL, F16, BF16], ids=str)
@pytest.mark.parametrize("op", [add, maximum, minimum, multiply], ids=lambda op: op.name)
def test_reductions_of_other_dtypes(op: Op, dtype: DType) -> None:
    x = laws.random_array(np.random.default_rng(0), dtype, (6, 50), (-1, 1))
    for axes in ((0,), (1,), (0, 1), ()):
        function = function_of(lambda x, axes=axes: [reduction(Builder(), op, x, axes)], x)
        for block in (7, 100, 10_000):
            (got,), (want,) = built(function, 2, block)([x]), reference(function, [x])
            assert close(got, want, 0.02)


def test_an_initial_value_counts_once() -> None:
    x = np.arange(1000, dtype=np.int32)
    b = Builder()

    def body(x: Node) -> Sequence[Node]:
        total = reduction(b, add, x, (0,))
        started = b.make(total.op, (x, b.constant(7, I32)), total.attrs, total.type)
        return [started]

    assert built(function_of(body, x), 2, 10)([x])[0] == 999 * 500 + 7


@pytest.mark.parametrize("block", [1, 7, costs.BLOCK_ELEMENTS])
def test_a_value_that_is_seen_along_two_axes(block: int) -> None:
    """An outer product of one value with itself, and a sum with its own transpose, cannot be cut along one axis."""
    x, y = normal(0, 5), normal(1, 5, 5)

    def outer(x: Node) -> Sequence[Node]:
        b = Builder()
        return [b(multiply, *(b(broadcast_in_dim, x, shape=(5, 5), broadcast_dimensions=(k,)) for k in (0, 1)))]

    def outer_of_squares(x: Node) -> Sequence[Node]:
        return outer(Builder()(multiply, x, x))

    def symmetric(y: Node) -> Sequence[Node]:
        b = Builder()
        square = b(multiply, y, y)
        return [b(add, square, b(transpose, square, permutation=(1, 0))), b(reshape, square, shape=(25,))]

    assert laws.same(built(function_of(outer, x), 2, block)([x])[0], np.multiply.outer(x, x))
    assert laws.same(built(function_of(outer_of_squares, x), 2, block)([x])[0], np.multiply.outer(x * x, x * x))
    found = built(function_of(symmetric, y), 2, block)([y])
    assert laws.same(found[0], y * y + (y * y).T)
    assert laws.same(found[1], (y * y).reshape(25))


def test_views_of_parameters_and_constants() -> None:
    x, y = normal(0, 6, 4), normal(1, 4, 6)
    table = normal(2, 4)

    def body(x: Node, y: Node) -> Sequence[Node]:
        b = Builder()
        turned = b(add, x, b(transpose, y, permutation=(1, 0)))
        flat = b(reshape, b(negate, turned), shape=(6, 1, 4))
        constant = b(broadcast_in_dim, b.literal(Literal(table)), shape=(6, 1, 4), broadcast_dimensions=(2,))
        return [b(multiply, flat, constant), turned, x]

    check_same(function_of(body, x, y), [x, y])
    check_same(function_of(body, x, y), [np.asfortranarray(x), y[::-1][::-1]], threads=2, block=3)


def test_empty_arrays_and_missing_results_have_no_kernel_but_a_value() -> None:
    x = np.zeros((0, 3), np.float32)
    function = function_of(softmax, x)
    with pytest.raises(Declined):
        build(function, 1)
    assert NumexprEngine().kernel(_fusion_node(function))([x], None).shape == (0, 3)


def test_results_that_repeat_or_are_inputs_or_constants() -> None:
    x = np.round(4 * normal(0, 3, 4))  # sums of whole numbers are the same in every order

    def body(x: Node) -> Sequence[Node]:
        b = Builder()
        y, c = b(negate, x), b.constant(2.0, F32)
        s = reduction(b, add, x, (1,))
        return [y, y, x, c, s, rows(b, s, x, (1,)), s]

    for block in (1, 5, 100):
        check_same(function_of(body, x), [x], threads=2, block=block)


# --- random bodies --------------------------------------------------------------------------------------------------


def random_body(seed: int, shape: tuple[int, ...]) -> Callable[..., Sequence[Node]]:
    """A random fused body of about 40 nodes: arithmetic, comparisons, selections, row statistics."""
    rng = random.Random(seed)

    def body(*params: Node) -> Sequence[Node]:
        b = Builder()
        floats, masks = list(params), [b(compare, params[0], params[1], direction="GE")]
        for _ in range(40):
            x, y = rng.choice(floats[-8:]), rng.choice(floats)
            kind = rng.randrange(9)
            if kind < 3:
                floats.append(b(rng.choice((add, subtract, multiply, maximum, minimum)), x, y))
            elif kind == 3:
                floats.append(b(rng.choice((negate, abs_, tanh, logistic)), x))
            elif kind == 4:
                masks.append(b(compare, x, y, direction=rng.choice(("EQ", "NE", "LT", "LE", "GT", "GE"))))
            elif kind == 5:
                masks.append(b(and_, rng.choice(masks), b(not_, rng.choice(masks))))
            elif kind == 6:
                floats.append(b(select, rng.choice(masks), x, b.constant(rng.uniform(-1, 1), F32)))
            elif kind == 7:
                floats.append(b(clamp, b.constant(-1.0, F32), x, y))
            else:
                axes = (len(shape) - 1,)
                floats.append(rows(b, reduction(b, maximum, x, axes), x, axes))
        return [floats[-1], rng.choice(floats), rng.choice(masks)]

    return body


@pytest.mark.parametrize("seed", range(30))
def test_random_bodies_equal_eval_to_the_bit_for_every_block_size(seed: int) -> None:
    shape = random.Random(seed).choice([(11,), (3, 17), (30, 40), (2, 3, 4)])
    args = [normal(seed + k, *shape) for k in range(3)]
    function = function_of(random_body(seed, shape), *args)
    for block in (1, 13, 200, costs.BLOCK_ELEMENTS):
        check_same(function, args, threads=2, block=block)


def random_layouts(seed: int) -> Callable[..., Sequence[Node]]:
    """A random body of about 25 nodes that reduce, repeat, turn, cut and reshape what others have computed, along any axes."""
    rng = random.Random(seed)

    def body(*params: Node) -> Sequence[Node]:
        b, made = Builder(), list(params)
        for _ in range(25):
            x = rng.choice(made[-6:])
            shape = x.type.shape  # type: ignore[attr-defined]
            alike = [n for n in made if n.type == x.type]
            axes = tuple(sorted(rng.sample(range(len(shape)), rng.randint(0, len(shape)))))
            kind = rng.randrange(7)
            if kind < 2 or not shape:
                made.append(b(rng.choice((add, subtract, maximum)), x, rng.choice(alike)))
            elif kind == 2:
                made.append(reduction(b, rng.choice((add, maximum)), x, axes))
            elif kind == 3:
                made.append(rows(b, reduction(b, minimum, x, axes), x, axes))
            elif kind == 4:
                made.append(b(transpose, x, permutation=tuple(rng.sample(range(len(shape)), len(shape)))))
            elif kind == 5:
                ends = tuple(max(1, d - 1) for d in shape)
                made.append(b(slice_, x, start_indices=(0,) * len(shape), limit_indices=ends, strides=(1,) * len(shape)))
            else:
                made.append(b(reshape, x, shape=(shape[0], 1, *shape[1:]) if len(shape) < 4 else (math.prod(shape),)))
        return [*made[-2:], rng.choice(made), rng.choice(made)]

    return body


@pytest.mark.parametrize("seed", range(60))
def test_random_layouts_equal_eval_for_every_block_size(seed: int) -> None:
    """Of whole numbers, whose sums are exact in every order."""
    shape = random.Random(seed).choice([(12,), (3, 8), (4, 4), (2, 3, 4), (1, 6)])
    args = [np.round(4 * normal(seed + k, *shape)) for k in range(2)]
    function = function_of(random_layouts(seed), *args)
    for block in (1, 5, 16, costs.BLOCK_ELEMENTS):
        check_same(function, args, threads=2, block=block)
    found = staged_function(function)(*args)
    assert all(laws.same(np.asarray(g), w) for g, w in zip(found, reference(function, args), strict=True))


# --- numexpr's machine ----------------------------------------------------------------------------------------------


def chain(length: int) -> Callable[..., Sequence[Node]]:
    def body(x: Node, y: Node) -> Sequence[Node]:
        b, last = Builder(), x
        for k in range(length):
            op = (add, subtract, multiply)[k % 3]
            last = b(multiply, b(op, last, y), b.constant(0.5, F32))
        return [last]

    return body


def _is_in_machine(kernel: Kernel) -> bool:
    return any(s.primitive == MACHINE for s in kernel.program.steps)


@pytest.mark.parametrize("size", [1, 64, 1023, 1024, 1025])
@pytest.mark.parametrize("length", [40, 300])
def test_small_chains_run_in_the_machine_and_give_the_same_bits(length: int, size: int) -> None:
    """Until numpy's loops are faster; not of one element, of which Python's operators are, nor longer than its compiler takes."""
    x, y = normal(0, size), normal(1, size)
    assert _is_in_machine(built(function_of(chain(length), x, y))) == (1 < size <= 1024 and length == 40)
    check_same(function_of(chain(length), x, y), [x, y])


@pytest.mark.parametrize("dtype", [F32, F64, I32, I64], ids=str)
def test_the_machine_on_special_values(dtype: DType) -> None:
    values = laws.special_values(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))

    def body(x: Node, y: Node) -> Sequence[Node]:
        b = Builder()
        less, equal = (b(compare, x, y, direction=d) for d in ("LT", "EQ"))
        v = b(select, b(and_, less, b(not_, equal)), b(subtract, x, y), b(multiply, x, y))
        for direction in ("LE", "GT", "GE"):
            other = b(compare, x, y, direction=direction)
            v = b(select, other, b(add, b(negate, v), x), b(multiply, y, b(subtract, x, y)))
        if dtype.kind == "float":
            v = b(sqrt, b(abs_, v))
        return [v]

    assert _is_in_machine(built(function_of(body, x, y)))
    check_same(function_of(body, x, y), [x, y])


@pytest.mark.parametrize("op", [maximum, minimum])
def test_extremes_of_which_the_machine_gives_either_zero_are_left_to_numpy(op: Op) -> None:
    x, y = np.array([0.0, -0.0] * 32, np.float32), np.array([-0.0, 0.0] * 32, np.float32)

    def body(x: Node, y: Node) -> Sequence[Node]:
        return [Builder()(op, *chain(40)(x, y), y)]

    assert not _is_in_machine(built(function_of(body, x, y)))
    check_same(function_of(body, x, y), [x, y])


@pytest.mark.parametrize("count", [costs.VM_INPUTS, costs.VM_INPUTS + 1])
def test_many_inputs_stay_within_the_machine_s_bounds(count: int) -> None:
    args = [normal(k, 8) for k in range(count)]

    def body(*xs: Node) -> Sequence[Node]:
        b, total = Builder(), xs[0]
        for x in xs[1:]:
            total = b(add, b(multiply, total, b.constant(0.25, F32)), x)
        return [total]

    assert _is_in_machine(built(function_of(body, *args))) == (count <= costs.VM_INPUTS)
    check_same(function_of(body, *args), args)


def test_what_is_read_again_and_again_is_not_written_out_for_the_machine() -> None:
    x = normal(0, 8)

    def body(x: Node) -> Sequence[Node]:
        b = Builder()
        for _ in range(60):
            x = b(multiply, b(add, x, x), b.constant(0.5, F32))
        return [x]

    assert not _is_in_machine(built(function_of(body, x)))
    check_same(function_of(body, x), [x])


# --- sizes, memory, threads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 131_073, 199_999, 200_000, 262_143, 262_144, 262_145, 524_289])
def test_sizes_around_the_block(size: int) -> None:
    x, y = normal(0, size), normal(1, size)

    def body(x: Node, y: Node) -> Sequence[Node]:
        b = Builder()
        return [b(select, b(compare, x, y, direction="GT"), b(tanh, x), b(multiply, y, b.constant(2.0, F32)))]

    check_same(function_of(body, x, y), [x, y], threads=2)


@pytest.mark.parametrize("block", [10, 1000])
def test_the_result_may_take_an_operand_s_memory(block: int) -> None:
    def body(x: Node, y: Node) -> Sequence[Node]:
        b = Builder()
        return [b(subtract, b(multiply, x, y), b(exponential, x))]

    def chosen(x: Node, y: Node) -> Sequence[Node]:
        return [Builder()(select, Builder()(compare, x, y, direction="LT"), y, x)]

    for f in (body, chosen, lambda x, y: [Builder()(add, x, Builder()(broadcast_in_dim, reduction(
            Builder(), add, x, (0,)), shape=(100,), broadcast_dimensions=()))]):
        for k in (0, 1):
            args = [normal(0, 100), normal(1, 100)]
            function = function_of(f, *args)
            (want,) = reference(function, [a.copy() for a in args])
            got = built(function, 2, block)(args, [args[k]])
            assert got[0] is args[k]
            assert close(got[0], want, 1e-6)


def test_two_results_one_over_an_operand() -> None:
    x = normal(0, 100)

    def body(x: Node) -> Sequence[Node]:
        b = Builder()
        return [b(negate, x), b(multiply, x, x)]

    want = [-x, x * x]
    got = built(function_of(body, x), 2, 10)([x], [x, np.empty_like(x)])
    assert all(laws.same(g, w) for g, w in zip(got, want, strict=True))


def test_overlapping_and_reversed_views_of_the_result() -> None:
    memory = normal(0, 101)
    function = function_of(lambda x: [Builder()(add, x, x)], memory[:100])
    want = memory[:100] * 2
    assert laws.same(built(function, 2, 10)([memory[:100]], [memory[1:]])[0], want)


@pytest.mark.parametrize(("size", "block"), [(200, costs.BLOCK_ELEMENTS), (200_000, 10_000)])
def test_one_kernel_called_from_many_threads(size: int, block: int) -> None:
    function = function_of(chain(6), normal(0, size), normal(0, size))
    kernel, wrong = built(function, 2, block), []

    def work(seed: int) -> None:
        args = [normal(seed, size), normal(seed + 1, size)]
        want = reference(function, args)
        for _ in range(20):
            with np.errstate(all="ignore"):
                got = kernel(args)
            if not all(laws.same(g, w) for g, w in zip(got, want, strict=True)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_fault_in_a_worker_reaches_the_caller_and_the_team_goes_on() -> None:
    team, caller = ThreadTeam(), threading.current_thread()

    def fail() -> None:
        if threading.current_thread() is not caller:
            raise ValueError("from the worker")

    with pytest.raises(ValueError, match="from the worker"):
        team.run(fail, 2)
    ran = []
    team.run(lambda: ran.append(threading.get_ident()), 2)
    assert len(set(ran)) == 2


def test_no_argument_is_kept_alive() -> None:
    import weakref

    for size in (10, 200_000):
        x = normal(0, size)
        kernel, watch = built(function_of(lambda x: [Builder()(tanh, x)], x), 2), weakref.ref(x)
        kernel([x])
        del x
        assert watch() is None


def test_result_memory_is_used_again_only_when_nobody_holds_any_of_it() -> None:
    recycler = BufferPool(limit=3 << 20)
    first = recycler.empty((300, 1000), np.dtype(np.float32))
    second = recycler.empty((300, 1000), np.dtype(np.float32))
    assert not np.may_share_memory(first, second)
    where, view = first.ctypes.data, first[5:7, ::2].T
    del first
    assert recycler.empty((300, 1000), np.dtype(np.float32)).ctypes.data != where, "a view of it is alive"
    del view
    again = [recycler.empty((300_000,), np.dtype(np.float32)) for _ in range(2)]
    assert where in [a.ctypes.data for a in again]
    assert not any(np.may_share_memory(a, b) for a in again for b in (second,))


def test_recycled_memory_is_bounded_and_can_be_given_back() -> None:
    recycler = BufferPool(limit=2 << 20)
    held = [recycler.empty((1 << 20,), np.dtype(np.uint8)) for _ in range(5)]
    assert len({a.ctypes.data for a in held}) == 5
    del held
    different = recycler.empty((3 << 19,), np.dtype(np.uint8))  # does not fit beside two of the others
    assert recycler._total <= 2 << 20
    recycler.clear()
    assert recycler._total == 0
    assert different.flags.writeable


def test_results_of_successive_calls_are_the_caller_s_own() -> None:
    x = normal(0, 200_000)
    kernel = built(function_of(lambda x: [Builder()(add, x, Builder().constant(1.0, F32))], x), 2)
    (first,) = kernel([x])
    kept = first.copy()
    for k in range(5):
        kernel([x * k])
    assert laws.same(first, kept)


# --- the engine -----------------------------------------------------------------------------------------------------


def _fusion_node(function: Function) -> Node:
    b = Builder()
    return b(fusion, *(b.param(k, p.type) for k, p in enumerate(function.params)), body=function)


def _check_node(engine: NumexprEngine, op: Op, arrays: Sequence[Array], attrs: dict[str, Any]) -> None:
    node = laws.one_op(op, arrays, attrs).results[0]
    assert op.eval is not None
    with np.errstate(all="ignore"):
        want = op.eval(list(arrays), *node.attrs)
        got = engine.kernel(node)(arrays, None)
        tensors = isinstance(node.type, TensorType)
        out = [np.empty_like(w) for w in ((want,) if tensors else want)]
        filled = engine.kernel(node)(arrays, out if engine.writes(node) else None)
    if engine.writes(node) and tensors:
        assert filled is out[0]
    for g in (got, filled):
        for a, w in zip((g,) if tensors else g, (want,) if tensors else want, strict=True):
            assert close(a, w, 1e-6) if np.isfinite(np.asarray(w).astype(complex)).all() else laws.same(a, w)


@pytest.mark.parametrize("op", [o for o in laws.LAWFUL if o.eval is not None], ids=lambda op: op.name)
def test_every_op_through_the_engine(op: Op) -> None:
    engine = NumexprEngine(2)
    for arrays, attrs in laws.samples(op):
        _check_node(engine, op, arrays, attrs)


@pytest.mark.parametrize("op", [o for o in ELEMENTWISE if o.samples is None], ids=lambda op: op.name)
def test_large_elementwise_nodes_through_the_engine(op: Op) -> None:
    engine, rng = NumexprEngine(2), np.random.default_rng(0)
    dtype = next(d for d in (F32, BOOL, I32) if _takes(op, d))
    arrays = [laws.random_array(rng, dtype, (300, 500), op.domain) for _ in op.operands]
    _check_node(engine, op, arrays, {})
    assert engine.writes(laws.one_op(op, arrays, {}).results[0])


def _takes(op: Op, dtype: DType) -> bool:
    try:
        op.infer([tensor(dtype, (2,))] * len(op.operands))
    except InferError:
        return False
    return True


def test_a_fusion_with_several_results_fills_every_array() -> None:
    x, y = normal(0, 300, 400), normal(1, 300, 400)
    node = _fusion_node(function_of(sums, x, y))
    engine = NumexprEngine(2)
    want = reference(function_of(sums, x, y), [x, y])
    out = [np.empty_like(w) for w in want]
    got = engine.kernel(node)([x, y], out)
    assert engine.writes(node)
    assert isinstance(got, tuple)
    assert all(g is o and close(g, w, 1e-6) for g, o, w in zip(got, out, want, strict=True))


@pytest.mark.parametrize("axes", [((), (), (2, 1), (0, 1)), ((0,), (2,), (1,), (0,)), ((1,), (1,), (), ())], ids=str)
def test_matmuls_are_written_in_place(axes: tuple[tuple[int, ...], ...]) -> None:
    names = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
    x, y = normal(0, 4, 4, 4, dtype=F64), normal(1, 4, 4, 4, dtype=F64)
    node = laws.one_op(dot_general, [x, y], dict(zip(names, axes, strict=True))).results[0]
    want = dot_general.eval([x, y], *node.attrs)  # type: ignore[misc]
    out = [np.empty_like(want)]
    assert NumexprEngine(1).kernel(node)([x, y], out) is out[0]
    assert close(out[0], want, 1e-13)


def test_numexpr_s_own_settings_are_left_alone() -> None:
    before = interpreter._get_num_threads()
    x = normal(0, 64)
    built(function_of(chain(20), x, x))([x, x])
    assert interpreter._get_num_threads() == before
