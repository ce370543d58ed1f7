"""A `dot_general` of any batching and contracting axes as one batched matrix product (GEMM) on views, where strides allow it.

The engine computes it, or BLAS does. A transposed product is the product of its operands in the other order: BLAS reads
either order at one speed, while a kernel that reads a transposed result, or a copy of it, costs several times a pass over it.
Passes may not change that, as they keep every bit (`canonicalized`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.analysis.kinds import ByKind
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.literal import Array
from deepx_graph.ops import (
    complex_,
    concatenate,
    convert,
    convolution,
    dot_general,
    imag,
    negate,
    real,
    reshape,
    slice_,
    transpose,
)
from deepx_graph.ops.contract.linear import is_copied, transposed
from deepx_graph.ops.data.fusion import fused_body, fusion
from deepx_graph.ops.helpers import wider
from deepx_graph.rewrite.exact_values import exact_source, integer_range, narrowest, range_of_type
from deepx_graph.runtime.cost.counts import parts_alone
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.memory.pool import RESULTS, Allowance
from deepx_graph.types import BF16, F16, F32, F64, DType, TensorType, as_tensor, is_static

MatrixView = tuple[tuple[int, ...], tuple[int, ...]]
"""The axis order and the shape by which an operand becomes a batch of matrices: batch, rows, columns."""


@dataclass(frozen=True)
class BatchedGemm:
    """The operands and the result of a `dot_general` as batches of matrices."""

    dtype: np.dtype[Any]
    left: MatrixView
    right: MatrixView
    batch: tuple[int, ...]
    reorders: tuple[bool, bool]
    """Whether an operand in the order of C becomes a batch of matrices by a copy."""

    @property
    def matrices(self) -> int:
        return math.prod(self.batch)

    @property
    def rows(self) -> int:
        return self.left[1][-2]

    @property
    def columns(self) -> int:
        return self.right[1][-1]

    @property
    def depth(self) -> int:
        return self.left[1][-1]

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of the result as a batch of matrices."""
        return *self.batch, self.rows, self.columns

    def operands(self, x: Any, y: Any) -> tuple[Array, Array]:
        """The operands as batches of matrices: views, or copies where strides allow none."""
        left, right = (np.asarray(v).transpose(order).reshape(shape) for v, (order, shape) in ((x, self.left), (y, self.right)))
        return left, right

    def copied(self, loose: Collection[int]) -> int:
        """The bytes of operands that become matrices by copies, where those numbered `loose` may not lie in the order of C."""
        views = zip(self.reorders, (self.left, self.right), strict=True)
        return sum(math.prod(shape) * self.dtype.itemsize for reorders, (_, shape) in views if reorders or loose)


def batched_gemm_of(node: Node) -> BatchedGemm | None:
    """The matrix product of a `dot_general`; None where a type is not static, or numpy has no such type."""
    for each in (node, *node.inputs):
        if not isinstance(each.type, TensorType) or not is_static(each.type):
            return None
    assert isinstance(node.type, TensorType)
    if node.type.dtype.np is None:
        return None
    (left, copies_left), (right, copies_right) = _view(node, 0), _view(node, 1)
    batch = left[1][: len(node.attr("lhs_batching_dimensions"))]
    return BatchedGemm(node.type.dtype.np, left, right, batch, (copies_left, copies_right))


def _view(node: Node, side: int) -> tuple[MatrixView, bool]:
    """The view of an operand, and whether it is a copy."""
    batch, contract = (node.attr(f"{('lhs', 'rhs')[side]}_{kind}_dimensions") for kind in ("batching", "contracting"))
    type = node.inputs[side].type
    assert isinstance(type, TensorType)
    shape = type.shape
    free = tuple(k for k in range(len(shape)) if k not in batch and k not in contract)
    depth, width = (math.prod(shape[k] for k in axes) for axes in (contract, free))
    order = batch + free + contract if side == 0 else batch + contract + free
    matrix = (width, depth) if side == 0 else (depth, width)
    return (order, tuple(shape[k] for k in batch) + matrix), is_copied(shape, free, contract)


BLAS = frozenset(map(np.dtype, ("f4", "f8", "c8", "c16")))
"""The dtypes that BLAS knows."""


class GemmNodeKernel:
    """The kernel of a `dot_general` by BLAS. Raises Declined for types that it does not know."""

    in_place: tuple[frozenset[int], ...] = (frozenset(),)
    lowering = "BLAS"

    def __init__(self, node: Node, threads: int) -> None:
        gemm = batched_gemm_of(node)
        if gemm is None or gemm.dtype not in BLAS:
            raise Declined("no product of matrices of floats")
        self._node, self._gemm, self._threads = node, gemm, threads
        self._shape: tuple[int, ...] = node.type.shape  # type: ignore[attr-defined]

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        return parts_alone(self._node, self._threads)

    def keep(self, allowance: Allowance) -> None:
        """Nothing is kept."""

    def scratch(self, loose: Collection[int]) -> int:
        """Copies of operands that do not lie as matrices, those numbered `loose` perhaps not in order."""
        return self._gemm.copied(loose)

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The product, as the results of other kernels."""
        return [self.product(args, out)]

    def product(self, values: Sequence[Any], out: Sequence[Any] | None) -> Array:
        """The product; in the array of `out`, where one is given."""
        gemm = self._gemm
        x, y = gemm.operands(*values)
        into: Array = RESULTS.empty(self._shape, gemm.dtype) if out is None else out[0]
        if out is not None and (np.may_share_memory(into, x) or np.may_share_memory(into, y)):
            np.copyto(into, self.product(values, None))
        else:
            _by_blas(x, y, into.reshape(gemm.result_shape))
        return into


FEW_TERMS = 1 << 10
"""Sums of so many terms lose little precision in whatever order they are added."""


def small_product(node: Node) -> Callable[[Any, Any], Any] | None:
    """A `dot_general` as a function of the operands alone; None for one that needs more than a call of BLAS."""
    gemm = batched_gemm_of(node)
    if gemm is None:
        return None
    shape, *given = (t.type.shape for t in (node, *node.inputs) if isinstance(t.type, TensorType))
    if gemm.dtype not in BLAS or gemm.depth > FEW_TERMS or gemm.matrices * gemm.rows * gemm.columns * gemm.depth > blas.SMALL:
        return None
    left, right = (_shown(view, old) for view, old in zip((gemm.left, gemm.right), given, strict=True))
    multiply = np.matmul if gemm.batch else np.dot
    if left is None and right is None and gemm.result_shape == shape:
        return multiply
    left, right = left or np.asarray, right or np.asarray
    return lambda x, y: multiply(left(x), right(y)).reshape(shape)


def _shown(view: MatrixView, given: tuple[int, ...]) -> Callable[[Any], Array] | None:
    """What shows an operand of that shape as a batch of matrices; None where it is one."""
    order, shape = view
    if order == tuple(range(len(order))):
        return None if given == shape else methodcaller("reshape", shape)
    if tuple(given[k] for k in order) == shape:
        return methodcaller("transpose", order)
    return lambda x: x.transpose(order).reshape(shape)


LONG, PIECE = 1 << 18, 1 << 16
"""Sums of more terms than that are made in pieces of so many, whose totals are added in double precision."""

COPIED = 1 << 20
"""Elements of an operand that are copied at a time."""


def _by_blas(left: Array, right: Array, result: Array) -> None:
    """By BLAS whatever the strides are: those that it does not take, of a broadcast say, numpy multiplies with one sum in a row."""
    depth = left.shape[-1]
    step = PIECE if depth > LONG else max(1, depth)
    if not (_suits(left) and _suits(right)):
        step = min(step, max(1, COPIED * depth // max(1, left.size, right.size)))
    if step >= depth:
        blas.matmul(_suited(left), _suited(right), result)
        return
    total = np.zeros(result.shape, wider(result.dtype))
    for k in range(0, depth, step):
        total += blas.matmul(_suited(left[..., k : k + step]), _suited(right[..., k : k + step, :]))
    np.copyto(result, total, casting="same_kind")


def _suited(x: Array) -> Array:
    return x if _suits(x) else np.ascontiguousarray(x)


def _suits(x: Array) -> bool:
    """Whether BLAS takes the matrices as they lie: rows or columns apart by a fixed distance, and no longer than that."""
    (rows, columns), (down, across), size = x.shape[-2:], x.strides[-2:], x.itemsize
    if rows == 1 or columns == 1:
        along = across if rows == 1 else down
        return rows == columns or (along > 0 and along % size == 0)
    outer, inner, length = (down, across, columns) if across == size else (across, down, rows)
    return inner == size and outer >= length * size and outer % size == 0


def canonicalized(function: Function) -> Function:
    """The function with a transpose of a product as the product of the transposed operands, where nobody else reads the product;
    itself where there is none. Takes time linear in its nodes."""
    found = {n for n in function.nodes if n.op is transpose and _is_transposable(function, n)}
    if not found:
        return function
    b = Builder()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        other = transposed(b, inputs[0], node.attr("permutation")) if node in found else None
        if other is None:
            return with_inputs(node, inputs)
        return Node(other.op, other.inputs, other.attrs, node.type, node.inputs[0].origin)

    return rebuilt(function, step)


def in_order(function: Function, chosen: Callable[[Node], Sequence[bool]]) -> Function:
    """The function with operands that are `chosen` as they are no matrices transposed before their product: a transpose is a kernel
    like others. Itself where there is none."""

    def to_transpose(node: Node) -> tuple[BatchedGemm, Sequence[bool]] | None:
        return (gemm, which) if any(which := chosen(node)) and (gemm := batched_gemm_of(node)) is not None else None

    of_kind = ByKind(to_transpose)  # layers of a network have the same products
    found = {n: how for n in function.nodes if n.op is dot_general and (how := of_kind(n)) is not None}
    if not found:
        return function
    b = Builder()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node not in found:
            return with_inputs(node, inputs)
        gemm, which = found[node]
        operands, batches, terms = list(inputs), list(node.attrs[:2]), list(node.attrs[2:])
        for k, (order, _) in enumerate((gemm.left, gemm.right)):
            if which[k]:
                first, count = len(batches[k]), len(terms[k])
                operands[k] = b(transpose, inputs[k], permutation=order)
                start = first if k else len(order) - count
                batches[k], terms[k] = tuple(range(first)), tuple(range(start, start + count))
        return Node(node.op, tuple(operands), (*batches, *terms), node.type, node.origin)

    return rebuilt(function, step)


def widened(function: Function, pays: Callable[[Node], bool]) -> Function:
    """The function with products and convolutions of narrow floats as those of f32, rounded once, with those of integers as those
    of floats which hold every sum exactly, and with products of complex numbers as those of reals, where that pays; itself where
    there is none."""
    found = {n: wide for n in function.nodes if (wide := _wide(n)) is not None and pays(n)}
    of_reals = {n for n in function.nodes if _has_real_form(n) and pays(n)}
    if not found and not of_reals:
        return function
    b = Builder()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node in of_reals:
            return _of_reals(b, node, *inputs)
        wide = found.get(node)
        if wide is None:
            return with_inputs(node, inputs)
        assert isinstance(node.type, TensorType)
        operands = tuple(b(convert, exact_source(i), dtype=wide) for i in inputs)
        product = Node(node.op, operands, node.attrs, node.type.with_dtype(wide), node.origin)
        return b(convert, product, dtype=node.type.dtype)

    return rebuilt(function, step)


def with_narrow_operands(function: Function, pays: Callable[[Node], bool]) -> Function:
    """The function with kernels whose result a narrower type holds, as it is converted or as its integers are few, in that type,
    where products alone read them and it pays for each that they are conversions; itself where there are none."""
    found = {n: made for n in function.nodes if n not in function.results and (made := _narrowed(n)) is not None and all(
        u.op is dot_general and pays(with_inputs(u, tuple(made if i is n else i for i in u.inputs))) for u in function.users[n])}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node not in found:
            return with_inputs(node, inputs)
        wide = found[node]
        return with_inputs(wide, (with_inputs(wide.inputs[0], inputs),))

    return rebuilt(function, step) if found else function


def _narrowed(node: Node) -> Node | None:
    """A fusion as a conversion of one with a narrower result; None where there is none."""
    body = fused_body(node)
    if body is None or len(body.results) != 1:
        return None
    result, dtype = body.results[0], as_tensor(node.type).dtype
    narrow = exact_source(result)
    if narrow is result:
        least = narrowest(node)
        if least is None:
            return None
        narrow = Node(convert, (result,), (least,), as_tensor(node.type).with_dtype(least))
    made = Node(fusion, node.inputs, (body.with_(results=(narrow,)),), narrow.type, node.origin)
    return Node(convert, (made,), (dtype,), node.type, node.origin)


def _has_real_form(node: Node) -> bool:
    if node.op is not dot_general or not isinstance(node.type, TensorType):
        return False
    return node.type.dtype.kind == "complex" and bool(node.attr("lhs_contracting_dimensions"))


def _of_reals(b: Builder, node: Node, x: Node, y: Node) -> Node:
    """A product of complex numbers as one of reals: [re x, im x] by [[re y, im y], [-im y, re y]], whose columns lie along a last
    axis. It takes the same four real products of each two numbers, without a matrix more than these in memory: y is one before."""
    gemm = batched_gemm_of(node)
    assert gemm is not None
    batches, terms = list(node.attrs[:2]), list(node.attrs[2:])
    left, right = terms[0][0], len(batches[1])
    y = b(transpose, y, permutation=gemm.right[0])
    batches[1], terms[1] = tuple(range(right)), tuple(range(right, right + len(terms[1])))
    parts = b(real, y), b(imag, y)

    def columns(*reals: Node) -> Node:
        shape = as_tensor(reals[0].type).shape
        return b(concatenate, *(b(reshape, part, shape=(*shape, 1)) for part in reals), dimension=len(shape))

    rhs = b(concatenate, columns(*parts), columns(b(negate, parts[1]), parts[0]), dimension=right)
    operands = b(concatenate, b(real, x), b(imag, x), dimension=left), rhs
    shape = as_tensor(node.type).shape
    product = Node(node.op, operands, (*batches, *terms), as_tensor(operands[0].type).with_dims((*shape, 2)), node.origin)

    def column(k: int) -> Node:
        start = *(0,) * len(shape), k
        part = b(slice_, product, start_indices=start, limit_indices=(*shape, k + 1), strides=(1,) * len(start))
        return b(reshape, part, shape=shape)

    return b(complex_, column(0), column(1))


def _wide(node: Node) -> DType | None:
    """The floats that compute a product or a convolution as well or better; None where it is best as it is."""
    if node.op not in (dot_general, convolution) or not isinstance(node.type, TensorType):
        return None
    if node.type.dtype in (BF16, F16):
        return F32
    if not node.type.dtype.is_integer or not node.type.size:
        return None
    assert node.op.flops is not None
    terms = node.op.flops([i.type for i in node.inputs], node.type, *node.attrs) // (2 * node.type.size) + 1
    largest = terms * math.prod(max(-r[0], r[-1]) for r in map(integer_range, node.inputs))
    if largest not in range_of_type(node.type.dtype):
        return None  # it may wrap around
    return next((dtype for dtype, digits in ((F32, 24), (F64, 53)) if largest <= 1 << digits), None)


def _is_transposable(function: Function, node: Node) -> bool:
    product = node.inputs[0]
    return product.op is dot_general and len(function.users[product]) == 1 and product not in function.results
