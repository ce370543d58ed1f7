"""Which values elements may have: conversions that round nothing, and the ranges of integers by interval arithmetic.

R. E. Moore, Interval Analysis, 1966. What wraps around wraps as a whole, or else the range is that of the type; a selection by a
comparison knows on each side what the comparison says (M. Wegman, F. K. Zadeck, Constant propagation with conditional branches,
1991).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, MutableMapping, Sequence
from weakref import WeakKeyDictionary

from deepx_graph.ir import Node
from deepx_graph.ir.peephole import primitive_of
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    clamp,
    compare,
    concatenate,
    convert,
    count_leading_zeros,
    dynamic_slice,
    dynamic_update_slice,
    floor_mod,
    iota,
    pad,
    popcnt,
    remainder,
    reshape,
    reverse,
    select,
    slice_,
    transpose,
)
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.types import BF16, BOOL, F16, F32, F64, I8, I16, U8, DType, TensorType, as_tensor

_DIGITS = {BF16: 8, F16: 11, F32: 24, F64: 53}
"""The binary digits of floats."""


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


def narrowest(node: Node) -> DType | None:
    """The narrowest type of up to 16 bits that has all integers of a node, where its own is wider."""
    dtype = as_tensor(node.type).dtype
    if not dtype.is_integer:
        return None
    found = integer_range(node)
    return next((t for t in (I8, U8, I16) if t.bits < dtype.bits and _within(found, range_of_type(t))), None)


# --- ranges of integers -------------------------------------------------------------------------------------------------

MOST_READ = 1 << 20
"""The elements of a constant up to which the least and the greatest are looked for."""

Ranges = MutableMapping[Node, range]

_PICK = {broadcast_in_dim: 1, reshape: 1, transpose: 1, reverse: 1, slice_: 1, dynamic_slice: 1, dynamic_update_slice: 2, pad: 2}
"""What gives elements of its first operands, of so many of them; a concatenation gives those of all."""


def range_of_type(dtype: DType) -> range:
    """The values of a type of integers, or of bools."""
    if dtype is BOOL:
        return range(2)
    return range(1 << dtype.bits) if dtype.kind == "uint" else range(-1 << dtype.bits - 1, 1 << dtype.bits - 1)


def integer_range(node: Node) -> range:
    """The integers that the elements of a node may be, also of what a fusion makes; bools are 0 and 1. Found once for each node,
    as nodes never change."""
    body = fused_body(node)
    if body is not None and len(body.results) == 1:
        node = body.results[0]
    stack = [node]
    while stack:
        missing = [i for i in stack[-1].inputs if _is_whole(i) and i not in _FOUND]
        if missing:
            stack += missing
        elif (n := stack.pop()) not in _FOUND:
            dtype = as_tensor(n.type).dtype
            _FOUND[n] = range_of_type(dtype) if dtype is BOOL else _wrapped(_made(n, _FOUND), range_of_type(dtype))
    return _FOUND[node]


_FOUND: WeakKeyDictionary[Node, range] = WeakKeyDictionary()


def _is_whole(node: Node) -> bool:
    return isinstance(node.type, TensorType) and (node.type.dtype.is_integer or node.type.dtype is BOOL)


def _wrapped(made: range | None, whole: range) -> range:
    """The range in a type, of integers which wrap around there."""
    if not made:
        return whole
    numbers = whole[-1] - whole[0] + 1
    off = (made[0] - whole[0]) // numbers * numbers
    moved = range(made[0] - off, made[-1] - off + 1)
    return moved if moved[-1] in whole else whole


def _made(node: Node, found: Ranges) -> range | None:
    """The integers that a node makes, with no type; None if that is not known."""
    op = node.op
    if op is CONSTANT:
        array = value_of(node).array
        return range(int(array.min()), int(array.max()) + 1) if 0 < array.size <= MOST_READ else None
    if op is iota:
        size = node.attr("shape")[node.attr("iota_dimension")]
        return range(size) if isinstance(size, int) else None
    if op in (popcnt, count_leading_zeros):
        return range(as_tensor(node.type).dtype.bits + 1)
    if op is select:
        return _selected(node, found)
    inputs = [found.get(i) for i in node.inputs]
    if op is concatenate or op in _PICK:
        return _union(inputs[: _PICK.get(op)])
    known = [r for r in inputs if r]
    if len(known) < max(1, len(inputs)):
        return None
    if op is convert:
        return known[0]
    if op is clamp:
        low, x, high = known
        return range(min(max(x[0], low[0]), high[0]), min(max(x[-1], low[-1]), high[-1]) + 1)
    rule = _DIVISIONS.get(op) or _ARITHMETIC.get(primitive_of(op, node.attrs))
    return None if rule is None else rule(*known)


def _union(parts: Sequence[range | None]) -> range | None:
    """The numbers of all parts, of which some may have none; None where one is not known."""
    known = [p for p in parts if p]
    return range(min(p[0] for p in known), max(p[-1] for p in known) + 1) if known and None not in parts else None


# --- selections -------------------------------------------------------------------------------------------------------


def _selected(node: Node, found: Ranges) -> range | None:
    """The numbers of both sides, of which the test tells more where it compares them, or what is added to a number."""
    test, yes, no = node.inputs
    sides: list[range | None] = []
    for side, holds in ((yes, True), (no, False)):
        known = _compared(test, holds, found) if test in found else {}
        if side in known:
            sides.append(known[side])
        elif side.op is add and any(i in known for i in side.inputs) and all(i in found for i in side.inputs):
            sides.append(_hull([known.get(i, found[i]) for i in side.inputs], operator.add))
        else:
            sides.append(found.get(side))
    whole = range_of_type(as_tensor(node.type).dtype)
    return _union([_wrapped(s, whole) if s else s for s in sides])


def _compared(test: Node, holds: bool, found: Ranges) -> dict[Node, range]:
    """What is known of the two operands of a comparison where it holds, or where it does not, and of what these are sums of."""
    if test.op is not compare or not all(i in found for i in test.inputs):
        return {}
    x, y = test.inputs
    a, b = found[x], found[y]
    direction = test.attr("direction")
    if not holds:
        direction = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}.get(direction)
    off = direction in ("LT", "GT")
    if direction in ("LT", "LE"):
        known = {x: range(a[0], min(a[-1], b[-1] - off) + 1), y: range(max(b[0], a[0] + off), b[-1] + 1)}
    elif direction in ("GT", "GE"):
        known = {x: range(max(a[0], b[0] + off), a[-1] + 1), y: range(b[0], min(b[-1], a[-1] - off) + 1)}
    else:
        return {}
    return {**_terms(x, known[x], found), **_terms(y, known[y], found), **known}


def _terms(x: Node, known: range, found: Ranges) -> dict[Node, range]:
    """What the terms of a sum are where the sum is in a range: the sum less the other one, unless it may wrap around."""
    if x.op is not add or not known or not all(i in found for i in x.inputs):
        return {}
    ends = _hull([found[i] for i in x.inputs], operator.add)
    if (ends[0], ends[-1]) != (found[x][0], found[x][-1]):
        return {}
    left, right = x.inputs
    return {i: _common(found[i], _hull((known, found[other]), operator.sub)) for i, other in ((left, right), (right, left))}


def _common(x: range, y: range) -> range:
    return range(max(x[0], y[0]), min(x[-1], y[-1]) + 1)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _hull(operands: Sequence[range], of_ends: Callable[..., int]) -> range:
    """The range of a function of two numbers which is greatest and least at ends of theirs."""
    x, y = operands
    if not x or not y:
        return range(0)
    ends = [of_ends(a, b) for a in (x[0], x[-1]) for b in (y[0], y[-1])]
    return range(min(ends), max(ends) + 1)


def _and(x: range, y: range) -> range | None:
    highs = [r[-1] for r in (x, y) if r[0] >= 0]
    return range(min(highs) + 1) if highs else None


def _or(x: range, y: range) -> range | None:
    return range(1 << max(x[-1], y[-1]).bit_length()) if x[0] >= 0 and y[0] >= 0 else None


def _moved_down(x: range, bits: range) -> range | None:
    return range(x[0] >> bits[-1], (x[-1] >> bits[0]) + 1) if x[0] >= 0 and bits[0] >= 0 else None


def _quotient(x: range, y: range) -> range | None:
    return _hull((x, y), lambda a, b: abs(a) // b * (1 if a >= 0 else -1)) if y[0] > 0 else None


def _remainder(x: range, y: range) -> range | None:
    """With the sign of x; the quotient is rounded towards zero."""
    if 0 in y:
        return None
    most = max(abs(y[0]), abs(y[-1])) - 1
    return range(max(x[0], -most) if x[0] < 0 else 0, (min(x[-1], most) if x[-1] > 0 else 0) + 1)


def _floor_mod(x: range, y: range) -> range | None:
    """With the sign of y."""
    if y[0] <= 0:
        return None
    return range(min(x[-1], y[-1] - 1) + 1 if x[0] >= 0 else y[-1])


_DIVISIONS: dict[object, Callable[[range, range], range | None]] = {remainder: _remainder, floor_mod: _floor_mod}

_ARITHMETIC: dict[str, Callable[..., range | None]] = {
    "neg": lambda x: range(-x[-1], -x[0] + 1),
    "abs": lambda x: range(max(0, x[0], -x[-1]), max(-x[0], x[-1]) + 1),
    "and": _and, "or": _or, "xor": _or, "lshr": _moved_down, "ashr": _moved_down, "div": _quotient,
    **{name: lambda x, y, of_ends=of_ends: _hull((x, y), of_ends) for name, of_ends in {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max}.items()},
}
"""By primitive."""
