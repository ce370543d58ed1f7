"""The law of loop programs as machine code: what a declaration says of elements, compiled, is what its `eval` gives."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import VerifyError
from deepx_graph.ir import Builder, Function, Op
from deepx_graph.ir.rebuild import rebuild
from deepx_graph.loops import NotExpressible
from deepx_graph.loops.interpret import reals
from deepx_graph.loops.lower import lower
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.ops import add, convert, divide, exponential, maximum, multiply, negate, remainder
from deepx_graph.types import BF16, C64, DTYPES, F32, F64, I16, I64, U16, U64, DType, TensorType, leaves, tensor, type_of_array
from tests.support.laws import EXPRESSIBLE, SAMPLED_DTYPES, Sample, alone, constants, random_array, samples

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

Array = np.ndarray[Any, Any]
POINTS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.0, 1e-30, -1e30)
"""Where functions have limits, and operations ends."""


@pytest.fixture(autouse=True)
def _a_machine_that_has_it_all() -> None:
    """Others have no machine code for f16, or none for functions of complex numbers."""
    from deepx_graph.runtime.native.llvm.target import this_machine

    machine = this_machine()
    if machine.register_bytes == 16 or machine.complex_function("log") is None:
        pytest.skip("not x86-64 with AVX2 and glibc")


def check(op: Op, arrays: list[Array], attrs: dict[str, Any], bits: bool = False) -> bool:
    """Compares machine code with `eval`, to the bit or in value; False where there is none."""
    from deepx_graph.runtime.native.loop_program.kernel import LoopKernel

    b = Builder()
    node = b(op, *constants(b, arrays), **attrs)
    if not all(isinstance(i.type, TensorType) for i in node.inputs):
        return False
    function = alone(node)
    try:
        kernel = LoopKernel(function, optimised(lower(function)), 1)
    except NotExpressible:
        return False
    assert op.eval is not None
    with np.errstate(all="ignore"):
        wanted = op.eval(arrays, *node.attrs)
    for got, want in zip(kernel(arrays), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        if bits:
            number = ~np.isnan(want.astype("c16"))
            assert got[number].tobytes() == want[number].tobytes() and np.isnan(got[~number].astype("c16")).all()
            continue
        got, want = reals(got), reals(want)
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
        else:
            within = 1e-12 if want.dtype.itemsize == 8 else 4e-6 if want.dtype.itemsize == 4 else 1e-2
            np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=within, atol=within)
    return True


@pytest.mark.parametrize("op", EXPRESSIBLE, ids=lambda op: op.name)
def test_machine_code_is_what_eval_gives(op: Op) -> None:
    """Over the samples of the declaration, or arrays of each dtype that it takes."""
    tried = [check(op, [np.asarray(a) for a in arrays], attrs) for arrays, attrs in samples(op)]
    if not any(tried):
        pytest.skip("no sample has machine code")


ELEMENTWISE = [op for op in EXPRESSIBLE if op.elementwise and op.samples is None]


def of_dtype(op: Op, sample: Sample, dtype: DType) -> Sample | None:
    """The sample with elements of a dtype where it has those of f64, in the functions among its attributes, too; they are other
    numbers each, as far as the dtype has as many. None where the op does not take them."""
    def retyped(value: Any) -> Any:
        if not isinstance(value, Function):
            return value
        params = [p.type.with_dtype(dtype) if p.type.dtype is F64 else p.type for p in value.params]
        b = Builder()
        new = dict(zip(value.params, map(b.param, range(len(params)), params), strict=True))
        rebuild(value.nodes, new, lambda node, inputs: b(node.op, *inputs, **node.named_attrs))
        return Function(value.name, tuple(new[p] for p in value.params), tuple(new[r] for r in value.results))

    arrays, attrs = sample
    numbers = itertools.count(1)
    try:
        operands = [np.array([next(numbers) for _ in range(a.size)]).reshape(a.shape).astype(dtype.np) if a.dtype == F64.np else a
                    for a in arrays]
        attributes = {k: retyped(v) for k, v in attrs.items()}
        Builder()(op, *constants(Builder(), operands), **attributes)
    except VerifyError:
        return None
    return operands, attributes


def moves_data(op: Op, sample: Sample) -> bool:
    """Whether the results consist of elements of the operands, whatever these are."""
    arrays, attrs = sample
    node = Builder()(op, *constants(Builder(), arrays), **attrs)
    assert op.eval is not None
    result = op.eval(arrays, *node.attrs)
    numbers = {n for a in arrays if a.dtype == F64.np for n in a.flat}
    return bool(numbers) and set(np.ravel(result[0] if isinstance(result, tuple) else result)) <= numbers


MOVING: dict[Op, list[Sample]] = {op: found for op in EXPRESSIBLE if op.samples is not None and (
    found := [s for s in samples(op) if (numbers := of_dtype(op, s, F64)) and moves_data(op, numbers)])}
"""Operations that move data, with the samples of theirs that do."""


def takes(op: Op, dtype: DType) -> bool:
    """Whether operands may have that dtype."""
    return all(o.type.holds(tensor(dtype, (1,))) for o in op.operands)


@pytest.mark.parametrize("op", MOVING, ids=lambda op: op.name)
def test_operations_that_move_data_do_so_with_every_dtype(op: Op) -> None:
    """To the bit. Integers of less than a byte have no loop programs."""
    done = []
    for dtype in DTYPES[:-1]:
        found = [s for each in MOVING[op] if (s := of_dtype(op, each, dtype))]
        for arrays, attrs in found:
            node = Builder()(op, *constants(Builder(), arrays), **attrs)
            kinds = [t.dtype for each in (*node.inputs, node) for t in leaves(each.type)]
            assert check(op, list(arrays), attrs, bits=True) == (not any(d.is_integer and d.bits < 8 for d in kinds)), dtype
        done += [dtype] if found else []
    assert F64 in done and BF16 in done and I16 in done


@pytest.mark.conformance
@pytest.mark.parametrize("size", [1, 7, 8, 9, 67])
@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_machine_code_around_the_width_of_vectors(op: Op, size: int) -> None:
    """Of every dtype."""
    rng = np.random.default_rng(size)
    for dtype in filter(partial(takes, op), (*SAMPLED_DTYPES, I16, U16, U64)):
        arrays = [random_array(rng, dtype, (size,), op.domain) for _ in op.operands]
        assert check(op, arrays, {}) or (op.name == "polygamma" and dtype is F64)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if len(op.operands) == 1 and takes(op, C64)], ids=lambda op: op.name)
def test_functions_of_complex_numbers_at_their_limits(op: Op, dtype: str) -> None:
    """All pairs of points; parts that are no numbers are so in both."""
    kind = {"c64": np.complex64, "c128": np.complex128}[dtype]
    whole = np.array([complex(re, im) for re in POINTS for im in POINTS]).astype(kind)
    assert check(op, [whole], {})


@pytest.mark.parametrize(("name", "kind"), [
    *((name, kind) for name in ("divide", "maximum", "minimum", "multiply", "atan2") for kind in (np.complex64, np.complex128)),
    ("power", np.complex128),
])
def test_pairs_of_complex_numbers_at_their_limits(name: str, kind: Any) -> None:
    """Not of powers in single precision, in which numpy loses places."""
    (op,) = (op for op in ELEMENTWISE if op.name == name)
    points = POINTS[:8] if name in ("divide", "maximum", "minimum", "multiply") else (0.0, 1.0, -1.0, 0.5, -2.5, 3.0)
    whole = np.array([complex(re, im) for re in points for im in points]).astype(kind)
    x, y = (np.ascontiguousarray(a.reshape(-1)) for a in np.meshgrid(whole, whole))
    assert check(op, [x, y], {})


@pytest.mark.parametrize("tag", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("name", ["divide", "remainder", "floor_mod", "power", "mulhi", "shift_left", "shift_right_logical",
                                  "shift_right_arithmetic"])
def test_integers_at_their_ends(name: str, tag: str) -> None:
    (op,) = (op for op in ELEMENTWISE if op.name == name)
    info = np.iinfo(tag)
    ends = (info.min, info.min + 1, info.max - 1, info.max, *(v for v in (-7, -2, -1, 0, 1, 2, 3, 8) if v >= info.min))
    points = np.array(sorted(set(ends)), tag)
    x, y = (np.ascontiguousarray(a.reshape(-1)) for a in np.meshgrid(points, points))
    assert check(op, [x, y], {})


@pytest.mark.parametrize("op", [divide, remainder], ids=lambda op: op.name)
@pytest.mark.parametrize("tag", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_quotients_next_to_integers_are_rounded_towards_zero(op: Op, tag: str) -> None:
    """Multiples of divisors, and what is one below and above, of every size: where a quotient of floats would be rounded up."""
    ends, rng = np.iinfo(tag), np.random.default_rng(3)
    bits = rng.integers(0, ends.bits + 1, 3000)
    y = rng.integers(ends.min, ends.max, 3000, dtype=tag, endpoint=True) >> (ends.bits - bits).clip(0, ends.bits - 1).astype(tag)
    k = rng.integers(ends.min, ends.max, 3000, dtype=tag, endpoint=True)
    with np.errstate(all="ignore"):
        x = (k // np.where(y == 0, 1, y)) * y + rng.integers(-1, 2, 3000).astype(tag)
    assert check(op, [x, y], {})


@pytest.mark.parametrize("tag", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", ["remainder", "floor_mod", "power", "atan2", "next_after", "maximum", "minimum"])
def test_floats_at_their_ends(name: str, tag: str) -> None:
    (op,) = (op for op in ELEMENTWISE if op.name == name)
    with np.errstate(over="ignore"):
        x, y = (np.ascontiguousarray(a.reshape(-1)).astype(tag) for a in np.meshgrid(POINTS, POINTS))
    assert check(op, [x, y], {})


def test_the_loop_of_a_library_function_is_one_of_vectors() -> None:
    """LLVM calls the vector function in the place of the scalar one."""
    from deepx_graph.ops import cosine
    from deepx_graph.runtime.native.llvm.target import this_machine
    from deepx_graph.runtime.native.loop_program.emit import CodePart, module_text, parts

    machine = this_machine()
    (symbol,) = [name for name, lanes in machine.vector_functions("cos", np.dtype("f8"), 1).items() if lanes == 2] or [""]
    if not symbol:
        pytest.skip("no vector functions here")
    b = Builder()
    x = np.zeros(1000)
    node = b(cosine, b.param(0, type_of_array(x)))
    program = lower(alone(node))
    text = module_text(program, [CodePart(tuple(p)) for p in parts(program)], machine)
    code = machine.compile(text, optimise=True)
    assert b"_cos" in code and any(name.encode() in code for name in machine.vector_functions("cos", np.dtype("f8"), 1))


TABLED = [d for d in DTYPES if d.is_float and d.bits <= 8]


@pytest.mark.parametrize("dtype", TABLED, ids=str)
def test_floats_of_a_byte_are_rounded_as_they_are_stored(dtype: DType) -> None:
    """Every value of f16, its neighbours in f32, and what overflows; and back."""
    assert dtype.np is not None
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        points = np.concatenate([halves, np.nextafter(halves, np.float32(np.inf)), np.nextafter(halves, np.float32(-np.inf)),
                                 np.float32([1e30, -1e30, 1e-30, -1e-30])])
        stored = points.astype(dtype.np)
    assert check(convert, [points], {"dtype": dtype}, bits=True)
    assert check(convert, [stored], {"dtype": F32}, bits=True)


@pytest.mark.parametrize("dtype", TABLED, ids=str)
@pytest.mark.parametrize("op", [add, multiply, maximum, negate, exponential], ids=lambda op: op.name)
def test_arithmetic_of_floats_of_a_byte(op: Op, dtype: DType) -> None:
    assert dtype.np is not None
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.uniform(0.25, 3, 50)).astype(dtype.np) for _ in op.operands]
    assert check(op, arrays, {})


@pytest.mark.parametrize("source", [F32, F64, C64, I64, U64, BF16], ids=str)
@pytest.mark.parametrize("target", [d for d in DTYPES if d.is_float and d.np is not None and d.bits <= 32], ids=str)
def test_conversions_round_once_on_both_sides_of_a_tie(source: DType, target: DType) -> None:
    """Halfway between neighbours, and what is nearest to that: rounded in two steps, some of these end on the other side."""
    assert source.np is not None and target.np is not None
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 4096, dtype=np.uint32) if target.bits == 32 else np.arange(1 << 8 * target.itemsize)
    with np.errstate(all="ignore"):
        values = bits.astype(f"u{target.itemsize}").view(target.np).astype(np.float64)
        values = np.sort(values[np.isfinite(values)])
        ties = (values[1:] + values[:-1]) / 2
        sides = np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)
        near = np.concatenate([ties, *sides, values, [np.inf, -np.inf, np.nan, 1e300]])
        given = near[np.isfinite(near) & (np.abs(near) < 2.0**62)] if source.is_integer else near
        given = np.abs(given) if source.name.startswith("u") else given
        assert check(convert, [given.astype(source.np)], {"dtype": target}, bits=True)
