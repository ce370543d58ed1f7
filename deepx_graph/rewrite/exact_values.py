"""Which values elements may have: conversions that round nothing, and the ranges of integers by interval arithmetic."""

from __future__ import annotations

from deepx_graph.ir import Function, Node
from deepx_graph.ir.peephole import primitive_of
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops import broadcast_in_dim, convert, reshape, transpose
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.types import BF16, F16, F32, F64, I8, I16, U8, DType, TensorType, as_tensor

_DIGITS = {BF16: 8, F16: 11, F32: 24, F64: 53}
"""The binary digits of floats."""


def range_of_type(dtype: DType) -> range:
    """The values of an integer type."""
    return range(1 << dtype.bits) if dtype.kind == "uint" else range(-1 << dtype.bits - 1, 1 << dtype.bits - 1)


def exact_source(node: Node) -> Node:
    """What a node is a conversion of that rounds nothing and wraps nothing around; itself where it is none."""
    while node.op is convert and _has_all(as_tensor(node.type).dtype, as_tensor(node.inputs[0].type).dtype):
        node = node.inputs[0]
    return node


def _has_all(wide: DType, narrow: DType) -> bool:
    """Whether a type has every value of another one."""
    if wide.is_integer and narrow.is_integer:
        return _within(range_of_type(narrow), range_of_type(wide))
    if narrow.is_integer:
        return narrow.bits - (narrow.kind == "int") <= _DIGITS.get(wide, 0)
    return wide in (F32, F64) and narrow in _DIGITS and _DIGITS[narrow] < _DIGITS[wide]


def _within(inner: range, outer: range) -> bool:
    return inner[0] in outer and inner[-1] in outer


def integer_range(node: Node) -> range:
    """The integers that the elements of a node may be, also of what a fusion makes."""
    body = fused_body(node)
    if body is not None and len(body.results) == 1:
        return _ranges(body)[body.results[0]]
    return range_of_type(as_tensor(exact_source(node).type).dtype)


def narrowest(node: Node) -> DType | None:
    """The narrowest type of up to 16 bits that has all integers of a node, where its own is wider."""
    dtype = as_tensor(node.type).dtype
    if not dtype.is_integer:
        return None
    found = integer_range(node)
    return next((t for t in (I8, U8, I16) if t.bits < dtype.bits and _within(found, range_of_type(t))), None)


def _ranges(body: Function) -> dict[Node, range]:
    """The ranges of the integers in a function: of what may wrap around, or is not known, that of its type."""
    found: dict[Node, range] = {}
    for node in body.nodes:
        if isinstance(node.type, TensorType) and node.type.dtype.is_integer:
            whole = range_of_type(node.type.dtype)
            low, high = _ends(node, [found.get(i) for i in node.inputs]) or (whole[0], whole[-1])
            found[node] = range(low, high + 1) if low in whole and high in whole else whole
    return found


def _ends(node: Node, inputs: list[range | None]) -> tuple[int, int] | None:
    """The least and the greatest integer that a node makes of integers in those ranges, with no type; None if that is not known."""
    if node.op is CONSTANT:
        array = value_of(node).array
        return (int(array.min()), int(array.max())) if array.size else None
    ends = [(r[0], r[-1]) for r in inputs if r is not None]
    if len(ends) < max(1, len(inputs)):
        return None
    if node.op in (convert, broadcast_in_dim, reshape, transpose):
        return ends[0]
    (a, b), (c, d) = ends[0], ends[-1]
    products = a * c, a * d, b * c, b * d
    made = {"add": (a + c, b + d), "sub": (a - d, b - c), "mul": (min(products), max(products)), "neg": (-b, -a),
            "min": (min(a, c), min(b, d)), "max": (max(a, c), max(b, d))}
    return made.get(primitive_of(node.op, node.attrs))
