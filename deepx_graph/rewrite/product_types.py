"""Matrix products and convolutions in the type in which kernels do them best: narrow ones in a wide type, and operands as narrow as
their values are where a product converts them while it packs them."""

from __future__ import annotations

import math
from collections.abc import Callable

from deepx_graph.analysis.batched_gemm import batched_gemm_of
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
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
from deepx_graph.ops.data.fusion import fused_body, fusion
from deepx_graph.rewrite.exact_values import exact_source, integer_range, narrowest, range_of_type
from deepx_graph.types import BF16, F16, F32, F64, DType, TensorType, as_tensor


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
