"""`max_bytes` holds what is resident: measured growth against the plan, of every operation and of programs that hide size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import LimitError
from deepx_graph.ir import Builder, Module, Node, Op
from deepx_graph.ir.evaluation import BLOCK, in_blocks, scratch
from deepx_graph.ir.peephole import fold
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.literal import Literal
from deepx_graph.ops import OPS, add, broadcast_in_dim, compare, dot_general, exponential, multiply, sort
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.passes.pipeline import run_pipeline
from deepx_graph.passes.rules.fold import Fold
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import DTYPES, F32, I8, DType, TensorType, is_static, nbytes, scalar, tensor, type_of_array
from tests.support import resident
from tests.support.laws import LAWFUL, same, samples

ENGINES = ["numpy", "numexpr",
           pytest.param("native", marks=pytest.mark.skipif(not has_native(), reason="llvmlite is not installed"))]
FACTOR = 1.5
MEGABYTE = 1 << 20

told = pytest.mark.skipif(not resident.is_told(), reason=resident.REASON)


def test_every_operation_has_a_large_sample() -> None:
    computed = [op.name for op in LAWFUL if not op.elementwise and not op.view]
    assert [n for n in computed if n not in resident.LARGE] == ["module_seed"]


def _beyond(rows: list[tuple[str, int, int]]) -> list[str]:
    beyond = [row for row in rows if row[1] > FACTOR * row[2] + resident.SPARE]
    return [f"{name} took {took:,}, planned {planned:,}" for name, took, planned in beyond]


@told
@pytest.mark.parametrize("selection", ["few", *(pytest.param(s, marks=pytest.mark.conformance) for s in ("some", "whole"))])
@pytest.mark.parametrize("engine", ENGINES)
def test_operations_take_what_is_planned(engine: str, selection: str) -> None:
    rows = resident.measured_apart(engine, selection)
    assert len(rows) > {"few": 3, "some": 90, "whole": 300}[selection] and not _beyond(rows)


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.elementwise and op.eval], ids=lambda op: op.name)
def test_blocks_of_an_elementwise_operation_are_the_whole(op: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepx_graph.ir.evaluation.BLOCK", 7)
    for arrays, attrs in samples(op):  # type: ignore[arg-type]
        values = op.bind(attrs)  # type: ignore[attr-defined]
        xs = [np.concatenate([a] * 5) if a.ndim else a for a in arrays]
        for given in (xs, [np.asarray(x).T for x in xs])[: 1 + (xs[0].dtype.itemsize == 4)]:
            type = op.infer([type_of_array(a) for a in given], *values)  # type: ignore[attr-defined]
            assert isinstance(type, TensorType)
            with np.errstate(all="ignore"):
                want = op.eval(given, *values)  # type: ignore[attr-defined]
                (got,) = in_blocks(lambda parts, v=values: [op.eval(parts, *v)], given, [type.dtype.np])  # type: ignore
            assert same(got, want)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.np is not None], ids=str)
def test_large_operands_of_every_element_type_go_by_blocks(dtype: DType) -> None:
    """float64, too, which numpy takes for equal to None."""
    x, sizes = np.zeros(BLOCK + 1, dtype.np), []

    def copied(parts: Sequence[Any]) -> list[Any]:
        sizes.append(parts[0].size)
        return [parts[0]]

    in_blocks(copied, [x], [dtype.np])
    assert sizes == [BLOCK, 1]


@pytest.mark.parametrize(("operand", "result"), [("f8", "f4"), ("f4", "f8"), ("f4", "f4"), ("f4", "i4")])
def test_blocks_are_written_over_an_operand_that_lies_in_the_same_memory(operand: str, result: str) -> None:
    """Whatever the widths: no block writes over what a later one reads."""
    count = 3 * BLOCK + 5
    memory = np.zeros(8 * count, np.uint8)
    x, into = (memory[: np.dtype(d).itemsize * count].view(d) for d in (operand, result))
    x[:] = np.arange(count)
    (got,) = in_blocks(lambda parts: [parts[0] + 1], [x], [into.dtype], [into])
    assert got is into and np.array_equal(into, np.arange(1, count + 1))


@pytest.mark.parametrize("op", [op for op in LAWFUL if op.foldable and op.eval], ids=lambda op: op.name)
def test_an_operation_on_constants_is_folded_where_result_and_scratch_are_within_the_limit(op: Op) -> None:
    """As soon as they are, and not before; operands that are larger than the limit raise it to their size."""
    for arrays, attrs in samples(op):
        values, operands = op.bind(attrs), [Node(CONSTANT, (), (Literal(a),), type_of_array(a)) for a in arrays]
        types = [x.type for x in operands]
        type = op.infer(types, *values)
        if not operands or not is_static(type):
            continue
        needed = max(nbytes(type) + scratch(op, types, type, values), sum(map(nbytes, types)))
        assert fold(op, operands, values, type, needed) is not None
        if needed > sum(a.nbytes for a in arrays):
            assert fold(op, operands, values, type, needed - 1) is None


@told
def test_folding_takes_no_more_than_its_limit() -> None:
    """A sort of bytes makes indices of eight bytes for each."""
    b, t = Builder(), scalar(I8)
    constant = b.constant(np.random.default_rng(0).integers(0, 100, 1 << 23).astype("i1"))
    less = Builder().function("less", [("x", t), ("y", t)], lambda x, y: [Builder()(compare, x, y, direction="LT")], public=False)
    result = b(sort, constant, dimension=0, is_stable=True, comparator=less)
    module = Module((b.function("main", (), lambda: [result]),))
    for limit in (1 << 20, 1 << 24):
        assert resident.growth(lambda n=limit: run_pipeline(module, (Fold(max_bytes=n),))) < FACTOR * limit + resident.SPARE


# --- programs whose text is short and whose tensors are not -----------------------------------------------------------

SCATTER = """func.func @main(%x: tensor<10xi8>, %i: tensor<i32>, %u: tensor<i8>) -> tensor<10xi8> {
 %ii = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<NUMBERx1xi32>
 %uu = stablehlo.broadcast_in_dim %u, dims = [] : (tensor<i8>) -> tensor<NUMBERxi8>
 %r = "stablehlo.scatter"(%x, %ii, %uu) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
   scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
 ^bb0(%a: tensor<i8>, %b: tensor<i8>):
 %c = stablehlo.add %a, %b : tensor<i8>
 stablehlo.return %c : tensor<i8>
 }) : (tensor<10xi8>, tensor<NUMBERx1xi32>, tensor<NUMBERxi8>) -> tensor<10xi8>
 return %r : tensor<10xi8> }"""
SORT = """func.func @main(%x: tensor<i8>) -> tensor<1xi8> {
 %a = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<i8>) -> tensor<NUMBERxi8>
 %r = "stablehlo.sort"(%a) <{dimension = 0 : i64, is_stable = true}> ({
 ^bb0(%p: tensor<i8>, %b: tensor<i8>):
 %c = stablehlo.compare LT, %p, %b, SIGNED : (tensor<i8>, tensor<i8>) -> tensor<i1>
 stablehlo.return %c : tensor<i1>
 }) : (tensor<NUMBERxi8>) -> tensor<NUMBERxi8>
 %s = stablehlo.slice %r [7:8] : (tensor<NUMBERxi8>) -> tensor<1xi8>
 return %s : tensor<1xi8> }"""
DOT = """func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<1x1xf32> {
 %a = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<1xNUMBERxf32>
 %b = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<f32>) -> tensor<NUMBERx1xf32>
 %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<1xNUMBERxf32>, tensor<NUMBERx1xf32>) -> tensor<1x1xf32>
 return %p : tensor<1x1xf32> }"""
GREATEST = """func.func @main(%x: tensor<i32>) -> tensor<i32> {
 %a = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<i32>) -> tensor<NUMBERxi32>
 %z = stablehlo.constant dense<0> : tensor<i32>
 %io = stablehlo.iota dim = 0 : tensor<NUMBERxi32>
 %r:2 = stablehlo.reduce(%a init: %z), (%io init: %z) across dimensions = [0] :
   (tensor<NUMBERxi32>, tensor<NUMBERxi32>, tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
   reducer(%p: tensor<i32>, %b: tensor<i32>) (%c: tensor<i32>, %d: tensor<i32>) {
 %g = stablehlo.compare GT, %p, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
 %h = stablehlo.select %g, %p, %b : tensor<i1>, tensor<i32>
 %j = stablehlo.select %g, %c, %d : tensor<i1>, tensor<i32>
 stablehlo.return %h, %j : tensor<i32>, tensor<i32>
 }
 return %r#1 : tensor<i32> }"""
SUM = """func.func @main(%x: tensor<NUMBERx1000000xf32>) -> tensor<NUMBERx1000000xf32> {
 %e = stablehlo.exponential %x : tensor<NUMBERx1000000xf32>
 %t = stablehlo.add %e, %x : tensor<NUMBERx1000000xf32>
 return %t : tensor<NUMBERx1000000xf32> }"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("text", [SORT, GREATEST, SUM], ids=["sort", "greatest", "sum"])
def test_what_a_kernel_would_make_whole_is_refused_before_memory_is_taken(text: str, engine: str) -> None:
    module = dx.loads(text.replace("NUMBER", "100000"), "stablehlo")
    huge = dx.loads(text.replace("NUMBER", "1000000000"), "stablehlo")
    if engine == "native" and text is GREATEST:  # a loop program makes nothing whole
        for each in (module, dx.optimize(module)):
            f = dx.compile(each, engine=engine, max_bytes=1000, optimize=False)
            assert f.plan.peak_bytes <= 1000 and f(np.int32(7))[0] == 99_999
        assert dx.compile(huge, engine=engine, max_bytes=1000, optimize=False).plan.peak_bytes <= 1000
        return
    for each in (module, dx.optimize(module)):
        with pytest.raises(LimitError, match=r"bytes at its peak, more than the limit of 100000"):
            dx.compile(each, engine=engine, max_bytes=100_000, optimize=False)
    for each in (huge, dx.optimize(huge)):
        with pytest.raises(LimitError, match="more than the limit of"):
            dx.compile(each, engine=engine, max_bytes=MEGABYTE, optimize=False)


@told
@pytest.mark.parametrize("engine", ENGINES)
def test_a_product_of_broadcasts_is_refused_or_makes_neither(engine: str) -> None:
    module = dx.loads(DOT.replace("NUMBER", "4000000"), "stablehlo")
    try:
        f = dx.compile(module, engine=engine, max_bytes=MEGABYTE, optimize=False)
    except LimitError:
        return
    assert resident.growth(lambda: f(np.float32(1), np.float32(1))) < FACTOR * MEGABYTE + resident.SPARE


@told
@pytest.mark.parametrize("engine", ENGINES)
def test_updates_that_are_one_value_repeated_take_no_more_memory_than_a_block(engine: str) -> None:
    module = dx.loads(SCATTER.replace("NUMBER", "2000000"), "stablehlo")
    f = dx.compile(module, engine=engine, max_bytes=MEGABYTE, optimize=False)
    args = np.zeros(10, "i1"), np.int32(3), np.int8(1)
    found: list[np.ndarray] = []
    assert resident.growth(lambda: found.extend(f(*args))) < FACTOR * MEGABYTE + resident.SPARE
    assert found[0].tolist() == [0, 0, 0, np.array(2_000_000).astype("i1"), 0, 0, 0, 0, 0, 0]


def test_an_error_names_scratch_memory() -> None:
    with pytest.raises(LimitError) as caught:
        dx.compile(dx.loads(SORT.replace("NUMBER", "100000"), "stablehlo"), engine="numpy", max_bytes=1000, optimize=False)
    assert "bytes of scratch memory while it runs" in str(caught.value) and "raise --max-bytes" in str(caught.value)


def test_a_plan_counts_the_scratch_of_the_kernel_at_the_peak() -> None:
    f = dx.compile(dx.loads(SORT.replace("NUMBER", "100000"), "stablehlo"), engine="numpy", optimize=False)
    assert f.plan.peak_bytes == f.plan.scratch_bytes + 100_000 and "of scratch" in str(f.plan)


# --- programs: loops, branches, calls, fusions ------------------------------------------------------------------------

LOOP = """HloModule m
cond { p = (s32[], f32[1000,1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2)
  ROOT l = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[1000,1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[1000,1000] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  t = f32[1000,1000] transpose(x), dimensions={1,0}
  y = f32[1000,1000] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[1000,1000] tanh(y)
  ROOT r = (s32[], f32[1000,1000]) tuple(j, z) }
ENTRY e { x = f32[1000,1000] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[1000,1000]) tuple(z, x)
  w = (s32[], f32[1000,1000]) while(t), condition=cond, body=body
  ROOT o = f32[1000,1000] get-tuple-element(w), index=1 }"""


ROWS = """HloModule m
turned { x = f32[3000,1000] parameter(0)
  e = f32[3000,1000] exponential(x)
  s = f32[1000,3000] transpose(e), dimensions={1,0}
  r = f32[3000,1000] reshape(s)
  ROOT z = f32[3000,1000] add(r, x) }
doubled { x = f32[3000,1000] parameter(0)
  ROOT y = f32[3000,1000] add(x, x) }
ENTRY e { x = f32[3000,1000] parameter(0)
  one = f32[1,1] slice(x), slice={[0:1],[0:1]}
  s = f32[] reshape(one)
  zero = f32[] constant(0)
  p = pred[] compare(s, zero), direction=GT
  ROOT o = f32[3000,1000] BODY }"""
BRANCH = ROWS.replace("BODY", "conditional(p, x, x), true_computation=turned, false_computation=doubled")
CALL = ROWS.replace("ROOT o", "y = f32[3000,1000] call(x), to_apply=turned\n  ROOT o").replace("BODY", "call(y), to_apply=turned")
TEXTS = {"loop": LOOP, "branch": BRANCH, "call": CALL}


def _chain() -> Module:
    """Fusions with reductions over either axis, and products between them."""
    def body(x, w):  # type: ignore[no-untyped-def]
        b = Builder()
        for axis in (0, 1):
            total = reduction(b, add, b(exponential, x), (axis,))
            wide = b(broadcast_in_dim, total, shape=(1000, 1000), broadcast_dimensions=(1 - axis,))
            y = b(multiply, x, wide)
            x = b(dot_general, y, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(axis,))
        return [x]

    t = tensor(F32, (1000, 1000))
    return Module((Builder().function("main", [("x", t), ("w", t)], body),), "main")


@told
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*TEXTS, "chain"])
@pytest.mark.parametrize("optimised", [False, True])
def test_programs_take_what_is_planned(name: str, optimised: bool, engine: str) -> None:
    module = dx.loads(TEXTS[name]) if name in TEXTS else _chain()
    module = dx.optimize(module) if optimised else module
    args = [np.full(p.type.shape, 1e-3, "f4") for p in module.entry.params]  # type: ignore[union-attr]
    took, planned = resident.grown(module, engine, args)
    assert took <= FACTOR * planned + resident.SPARE + (24 << 20)  # and what a compiler takes, once
    assert planned > BLOCK
