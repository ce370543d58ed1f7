"""Kernels as machine code against the reference: every op, every dtype, special values, reductions over any axes."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.loops.program import Let, Store, walk
from deepx_graph.ops import (
    OPS,
    add,
    broadcast_in_dim,
    compare,
    convert,
    divide,
    exponential,
    maximum,
    minimum,
    multiply,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    subtract,
    transpose,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.interpret import evaluate
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.llvm import store
from deepx_graph.runtime.native.llvm.builder import F4, F8, IRBuilder, VectorValue
from deepx_graph.runtime.native.llvm.compilers import Compilation
from deepx_graph.runtime.native.llvm.machine_code import functions
from deepx_graph.runtime.native.llvm.math import Maths
from deepx_graph.runtime.native.llvm.target import Target, this_machine
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel, build
from deepx_graph.types import F16, F32, F64, I32, DType, dtype_named, tensor
from tests.support import laws
from tests.support.functions import Array, function_of
from tests.support.kernel_store import kernel_store

ELEMENTWISE = [op for op in OPS.values() if op.elementwise and op.kernel]
ULPS = 4.0


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with kernel_store(monkeypatch, tmp_path_factory.mktemp("kernels")), np.errstate(all="ignore"):
        yield


def near(got: Array, want: Array, ulps: float) -> bool:
    """The same type, specials in the same places, and no further apart than so many units in the last place."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype.kind in "biu":
        return bool((got == want).all())
    if got.dtype.kind == "c":
        return near(got.real, want.real, ulps) and near(got.imag, want.imag, ulps)
    info = ml_dtypes.finfo(want.dtype)
    spacing = np.maximum(np.abs(want.astype("f8")), float(info.tiny)) * float(info.eps)
    if want.dtype.kind == "V":  # narrow floats: computed in single precision and rounded once
        got, want = got.astype("f4"), want.astype("f4")
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    close = np.abs(got.astype("f8") - want.astype("f8")) <= ulps * spacing
    return bool((same | (close & np.isfinite(want) & np.isfinite(got))).all())


def check(function: Function, args: Sequence[Array], ulps: float = ULPS, threads: int = 2,
          required: bool = True) -> LoopKernel | None:
    if not required and any(a.dtype.kind == "c" for a in args):
        return None  # the laws of loop programs have bounds of their own for complex functions
    try:
        kernel = build(function, threads)
    except Declined:
        assert not required
        return None
    want = [np.asarray(w) for w in evaluate(function, args)]
    for got in (kernel(args), kernel(args, [np.empty_like(w) for w in want])):
        for g, w in zip(got, want, strict=True):
            assert near(g, w, ulps), f"{g} is not {w}"
    return kernel


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_every_elementwise_op_agrees_with_eval(op: Op) -> None:
    for arrays, attrs in laws.samples(op):
        if all(a.size for a in arrays):
            check(laws.one_op(op, arrays, attrs), arrays, required=False)


@pytest.mark.parametrize("dtype", laws.SAMPLED_DTYPES, ids=str)
@pytest.mark.parametrize("op", [o for o in ELEMENTWISE if len(o.operands) < 3 and not o.attrs], ids=lambda op: op.name)
def test_special_values_in_every_pairing(op: Op, dtype: DType) -> None:
    values = laws.special_values(dtype)
    arrays = [values] if len(op.operands) == 1 else [np.repeat(values, len(values)), np.tile(values, len(values))]
    if all(o.type.holds(tensor(dtype, (3,))) for o in op.operands):
        check(laws.one_op(op, arrays, {}), arrays, required=False)


REAL = [d for d in laws.SAMPLED_DTYPES if d.kind != "complex"]


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_comparisons_and_conversions_of_special_values(dtype: DType) -> None:
    """Every direction, of NaN too; every type from every other, of what it cannot hold too."""
    values = laws.special_values(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    directions = ("EQ", "NE", "LT", "LE", "GT", "GE")
    check(function_of(lambda b, x, y: [b(compare, x, y, direction=d) for d in directions], x, y), [x, y], required=False)
    for to in REAL:
        check(function_of(lambda b, x: b(convert, x, dtype=to), values), [values], ulps=0, required=False)  # noqa: B023


def test_every_operation_between_conversions_is_linked() -> None:
    """Of values narrowed from f64 to f16 on the way: LLVM may then call functions that the IR does not name."""
    values = np.linspace(-2, 2, 9)
    unary = [op for op in ELEMENTWISE if len(op.operands) == 1 and not op.attrs and op.operands[0].type.holds(tensor(F16, (9,)))]

    def made(b: Builder, x: Node) -> list[Node]:
        narrow = b(convert, x, dtype=F16)
        return [b(op, narrow) for op in unary]

    assert check(function_of(made, values), [values], ulps=8) is not None


def test_doubles_are_narrowed_to_halves_in_one_rounding() -> None:
    address = functions(NARROWING_LOOP, ["all"])["all"].address
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    halves = np.sort(halves[np.isfinite(halves)])
    between = (halves[1:] + halves[:-1]) / 2
    x = np.concatenate([halves, between, np.nextafter(between, np.inf), np.nextafter(between, -np.inf), laws.special_values(F64)])
    y = np.empty(x.size, np.float16)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)(x.ctypes.data, y.ctypes.data, x.size)
    assert np.array_equal(y, x.astype(np.float16), equal_nan=True) and np.array_equal(np.signbit(y), np.signbit(x))


NARROWING_LOOP = """define void @all(ptr %p, ptr %q, i64 %n) {
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%j, %next]
  %a = getelementptr double, ptr %p, i64 %i
  %x = load double, ptr %a
  %y = fptrunc double %x to half
  %b = getelementptr half, ptr %q, i64 %i
  store half %y, ptr %b
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %next, label %end
end:
  ret void
}"""


@pytest.mark.parametrize("dtype", [d for d in laws.SAMPLED_DTYPES if d.is_integer], ids=str)
def test_shifts_by_the_width_and_about_it(dtype: DType) -> None:
    """By numbers of the program, and by those of an array, of many elements and of one."""
    amounts = np.array([0, 1, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100], dtype.np)
    x = np.repeat(laws.special_values(dtype), len(amounts))
    y = np.tile(amounts, x.size // len(amounts))
    shifts = (shift_left, shift_right_arithmetic, shift_right_logical)
    check(function_of(lambda b, x, y: [b(op, x, y) for op in shifts], x, y), [x, y], required=False)
    check(function_of(lambda b, x, y: [b(op, x, b.constant(a)) for op in shifts for a in amounts], x, y), [x, y], required=False)
    for one in amounts:
        lone = [x[-1:], np.array([one])]
        check(function_of(lambda b, x, y: [b(op, x, y) for op in shifts], *lone), lone, required=False)


# --- the functions, over the whole range ----------------------------------------------------------------------------


def _apply(name: str, x: Array) -> Array:
    """One function of `maths` on an array, compiled on its own."""
    import ctypes

    dtype, machine = x.dtype, this_machine()
    t = IRBuilder(machine.register_bytes // dtype.itemsize)

    def body(i: Sequence[str], mask: str | None, _: Any) -> Sequence[Sequence[VectorValue]]:
        y = getattr(Maths(t, dtype), name)(t.load(t.address("%x", i[0], dtype), dtype, mask))
        t.store(y, t.address("%y", i[0], dtype), mask)
        return ()

    t.vector_loop("0", "%n", 1, True, (), body, ())
    head = f"define void @f{name}{dtype.itemsize}(ptr %x, ptr %y, i64 %n) {{\nentry:"
    ir = "\n".join([head, *t.lines, "  ret void", "}", *t.declarations])
    at = functions(ir, [f"f{name}{dtype.itemsize}"])[f"f{name}{dtype.itemsize}"].address
    y = np.empty_like(x)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(at)(x.ctypes.data, y.ctypes.data, x.size)
    return y


def _sweep(dtype: np.dtype[Any]) -> Array:
    """Numbers of every exponent and sign, subnormals, zeros, infinities and NaN among them."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2 ** (8 * dtype.itemsize), 400_000, dtype=f"u{dtype.itemsize}").view(dtype)
    usual = rng.uniform(-100, 100, 200_000).astype(dtype)
    small, bent = (rng.uniform(-end, end, 200_000).astype(dtype) for end in (1.5, 10))
    return np.concatenate([bits, usual, small, bent, np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1], dtype)])


_BOUNDS = {"exp": 2, "expm1": 3, "log": 2, "log1p": 3, "tanh": 5}


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("name", list(_BOUNDS))
def test_functions_stay_within_their_bounds(name: str, dtype: np.dtype[Any]) -> None:
    x = _sweep(dtype)
    exact = getattr(np, name)(x.astype(np.longdouble))  # in a wider type, rounded once
    want = exact.astype(dtype)
    got = _apply(name, x)
    special = ~np.isfinite(want) | (want == 0)
    assert np.array_equal(got[special], want[special], equal_nan=True)
    assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
    unit = np.spacing(np.maximum(np.abs(want), np.finfo(dtype).tiny))[~special].astype(np.longdouble)
    error = np.abs(got[~special].astype(np.longdouble) - exact[~special]) / np.abs(unit)
    assert error.max() <= _BOUNDS[name], f"{error.max()} units at {x[~special][error.argmax()]!r}"


@pytest.mark.parametrize(("lanes", "calls"), [(4, ["wide8"]), (8, ["wide8"]), (16, ["wide16"]), (32, ["wide16"] * 2)])
def test_a_function_is_called_in_the_widest_form_that_the_lanes_fill(lanes: int, calls: list[str]) -> None:
    """And in that of fewer lanes, twice, where there is none so wide."""
    for forms in ({"wide8": 8, "wide16": 16}, {"wide8": 8}):
        t = IRBuilder(lanes)
        Target.call(t, forms, [t.splat(0.5, np.dtype("f4"))])
        want = calls if "wide16" in forms else ["wide8"] * max(1, lanes // 8)
        assert re.findall(r"call .*@(wide\d+)\(", "\n".join(t.lines)) == want


# --- reductions, broadcasts, stages ---------------------------------------------------------------------------------

SHAPES = [(1,), (13,), (4096,), (10_001,), (5, 9), (3, 1003), (40, 33, 17), (300, 1024)]


def _whole_numbers(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    """Numbers whose sums are exact, so that order does not matter."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype.np)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [F32, F64, I32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_over_every_set_of_axes(shape: tuple[int, ...], dtype: DType) -> None:
    x = _whole_numbers(shape, dtype)
    for n in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), n):
            for op in (add, maximum, minimum):
                def make(b: Builder, p: Node) -> list[Node]:
                    return [reduction(b, op, b(add, p, p), axes), b(multiply, p, p)]  # noqa: B023

                check(function_of(make, x), [x], ulps=0, required=x.size > 1)


@pytest.mark.parametrize("shape", [(7, 1003), (300, 1024), (4, 6, 50)], ids=str)
def test_softmax_and_normalisation(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    last, kept = len(shape) - 1, tuple(range(len(shape) - 1))

    def softmax(b: Builder, p: Node) -> Node:
        def over(v: Node) -> Node:
            return b(broadcast_in_dim, v, shape=shape, broadcast_dimensions=kept)

        e = b(exponential, b(subtract, p, over(reduction(b, maximum, p, (last,)))))
        return b(divide, e, over(reduction(b, add, e, (last,))))

    kernel = check(function_of(softmax, x), [x], ulps=64)
    assert kernel is not None and (len(kernel.shares) == 1 or len(shape) > 2)
    (got,) = kernel([x])
    exact = np.exp(x.astype("f8") - x.max(-1, keepdims=True))
    np.testing.assert_allclose(got, exact / exact.sum(-1, keepdims=True), rtol=1e-6)


def test_a_sum_of_a_million_singles_is_right() -> None:
    x = np.random.default_rng(2).random(1_000_003, dtype=np.float32)
    kernel = build(function_of(lambda b, p: reduction(b, add, b(multiply, p, p), (0,)), x), 2)
    assert kernel is not None
    want = float((x.astype("f8") ** 2).sum())
    assert abs(float(kernel([x])[0]) - want) <= 2e-7 * want


def test_sums_do_not_depend_on_threads() -> None:
    x = np.random.default_rng(3).standard_normal((700, 1000)).astype("f4")

    def make(b: Builder, p: Node) -> list[Node]:
        return [reduction(b, add, b(multiply, p, p), axes) for axes in ((0,), (0, 1))]

    function = function_of(make, x)
    one, two = build(function, 1), build(function, 2)
    assert one is not None and two is not None
    for a, b in zip(one([x]), two([x]), strict=True):
        assert a.tobytes() == b.tobytes()


def test_broadcast_and_transposed_operands() -> None:
    x, row, column = (_whole_numbers(s, F32, k) for k, s in enumerate([(40, 70), (70,), (40,)]))

    def make(b: Builder, p: Node, r: Node, c: Node) -> Node:
        wide = [b(broadcast_in_dim, v, shape=(40, 70), broadcast_dimensions=(k,)) for k, v in ((1, r), (0, c))]
        return b(add, b(multiply, p, wide[0]), wide[1])

    check(function_of(make, x, row, column), [x, row, column], ulps=0)
    check(function_of(lambda b, p, q: b(add, b(transpose, p, permutation=(1, 0)), q), x, x.T.copy()), [x, x.T.copy()], ulps=0)
    check(function_of(make, x, row, column), [np.asfortranarray(x), row[::-1], column], ulps=0)


def test_results_may_overwrite_an_operand_only_where_that_is_right() -> None:
    x = _whole_numbers((50, 60), F32)
    kernel = build(function_of(lambda b, p: b(add, b(multiply, p, p), p), x), 1)

    def make(b: Builder, p: Node) -> Node:
        return b(add, p, b(broadcast_in_dim, reduction(b, add, p, (0,)), shape=(50, 60), broadcast_dimensions=(1,)))

    crossed = build(function_of(make, x), 1)
    assert kernel is not None and crossed is not None
    y = x.copy()
    assert kernel([y], [y])[0] is y and np.array_equal(y, x * x + x)
    y = x.copy()
    assert np.array_equal(crossed([y], [y])[0], x + x.sum(0))


def test_a_row_of_dear_values_is_kept_in_local_memory() -> None:
    x = _whole_numbers((64, 128), F32)

    def make(b: Builder, p: Node) -> Node:
        dear = b(exponential, p)
        total = reduction(b, add, dear, (1,))
        return b(divide, dear, b(broadcast_in_dim, total, shape=(64, 128), broadcast_dimensions=(0,)))

    program = build(function_of(make, x), 1).program
    functions = [s for s in walk(program.body) if isinstance(s, Let) and s.primitive == "exp"]
    local = {s.buffer for s in walk(program.body) if isinstance(s, Store) and s.buffer.role == "local"}
    assert len(functions) == 1 and [b.size for b in local] == [128] and not program.scratch


# --- the disk cache -------------------------------------------------------------------------------------------------


def test_object_code_comes_from_the_cache_and_torn_entries_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _whole_numbers((100,), F32)
    function = function_of(lambda b, p: b(multiply, b(add, p, p), p), x)
    compiled: list[str] = []
    compilation = Target.compilation

    def counted(self: Target, ir: str, **options: bool) -> Compilation:
        compiled.append(ir)
        return compilation(self, ir, **options)

    monkeypatch.setattr(Target, "compilation", counted)
    check(function, [x], ulps=0)
    check(function, [x], ulps=0)
    assert len(compiled) == 1
    (entry,) = Path(os.environ["DEEPX_GRAPH_CACHE"]).glob("*.o")
    entry.write_bytes(entry.read_bytes()[:-5] + b"wrong")
    check(function, [x], ulps=0)
    assert len(compiled) == 2


def test_a_folder_that_others_can_write_to_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("DEEPX_GRAPH_CACHE", str(tmp_path))
    store._folder.cache_clear()
    store.save("a" * 64, b"code")
    assert store.load("a" * 64) is None and not list(tmp_path.iterdir())


def test_an_unknown_function_is_found_before_anything_is_linked() -> None:
    with pytest.raises(RuntimeError, match="no function 'not_there'"):
        this_machine().compile("declare void @not_there()\ndefine void @f() {\n  call void @not_there()\n  ret void\n}")


# --- the workers ----------------------------------------------------------------------------------------------------


def test_many_calls_from_many_threads_and_after_a_fork() -> None:
    x = np.random.default_rng(5).random(300_000, dtype=np.float32)
    kernel = build(function_of(lambda b, p: b(add, b(exponential, p), p), x), 2)
    assert kernel.shares[0].chunks > 1
    want = np.exp(x) + x
    wrong: list[int] = []

    def run() -> None:
        wrong.extend(k for k in range(100) if not np.allclose(kernel([x])[0], want, rtol=1e-6))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    if hasattr(os, "fork"):
        child = os.fork()
        if not child:
            os._exit(0 if np.allclose(kernel([x])[0], want, rtol=1e-6) else 1)
        assert os.waitpid(child, 0)[1] == 0


# --- what numpy has no single call for ----------------------------------------------------------------------------------

_WIDE = np.concatenate([np.random.default_rng(5).normal(size=300) * s for s in (1e-3, 1, 3)] + [
    np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, -2.5, 1e30, -1e30])])
_NEEDS = {"erf": 1, "erfc": 1, "cbrt": 1}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["sign", "round_nearest_even", "square", "is_finite", "erf", "erfc", "cbrt"])
def test_these_are_machine_code(name: str, dtype: str) -> None:
    x = _WIDE.astype(dtype)
    if name in _NEEDS and not this_machine().vector_functions(name, x.dtype, _NEEDS[name]):
        pytest.skip("this machine's C library has no vector form of it")
    check(laws.one_op(OPS[name], [x], {}), [x])


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("name", ["shift_left", "shift_right_logical", "shift_right_arithmetic"])
def test_shifts_by_any_amount_are_machine_code(name: str, dtype: str) -> None:
    rng = np.random.default_rng(6)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 400, dtype, endpoint=True)
    for amount in (rng.integers(0, info.bits, 400).astype(dtype), rng.integers(info.min, info.max, 400, dtype, endpoint=True)):
        check(laws.one_op(OPS[name], [x, amount], {}), [x, amount])


@pytest.mark.parametrize("to", ["i8", "u8", "i32", "u32", "i64", "u64", "bool"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_floats_become_integers_within_bounds(dtype: str, to: str) -> None:
    x = np.concatenate([_WIDE, [127.5, 128.5, -128.9, 2.0**31, 2.0**32, -(2.0**63), 2.0**64]]).astype(dtype)
    check(laws.one_op(OPS["convert"], [x], {"dtype": dtype_named(to)}), [x])
