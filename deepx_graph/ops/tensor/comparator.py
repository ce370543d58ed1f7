"""What a comparator orders by, and whole arrays in that order.

A comparator that compares one value computed from each side, or such values one after the other, has keys: each is a function of
one side's elements. Keys become unsigned integers of the same order, which numpy sorts fast. All orders here are stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.node import reachable
from deepx_graph.ir.rebuild import rebuild
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import is_int
from deepx_graph.ops.interpret import combine
from deepx_graph.ops.math.elementwise import and_, compare, or_, select


@dataclass(frozen=True)
class Key:
    """`value` of the operands so numbered; `total` orders all floats, -0 below 0 and -NaN first, else 0 and -0 are equal."""

    value: Function
    operands: tuple[int, ...]
    descending: bool
    total: bool

    def of(self, xs: Sequence[Array]) -> Array:
        """The key of every element."""
        return np.asarray(combine(self.value, [xs[k] for k in self.operands], [])[0])

    @property
    def plain(self) -> int | None:
        """The operand that is the key itself; None where the key is computed."""
        return self.operands[0] if self.value.results[0].op is PARAM else None


# --- comparators --------------------------------------------------------------------------------------------------


def keys_of(comparator: Function) -> list[Key] | None:
    """The keys, the most important first; None for a comparator of another form."""
    found: list[Key] = []
    node = comparator.results[0]
    while node.op is or_ or node.op is select:
        step = _first_of_several(comparator, node)
        if step is None:
            return None
        found.append(step[0])
        node = step[1]
    last = _key(comparator, node)
    return None if last is None else [*found, last]


def _first_of_several(comparator: Function, node: Node) -> tuple[Key, Node] | None:
    """The key and the rest of `before or (equal and rest)`, or of `select(equal, rest, before)`."""
    if node.op is select:
        choices = [(node.inputs[2], node.inputs[0], node.inputs[1])]
    else:
        pairs = [node.inputs, node.inputs[::-1]]
        both = [(a, *pair) for a, b in pairs if b.op is and_ for pair in (b.inputs, b.inputs[::-1])]
        choices = [(a, equal, rest) for a, equal, rest in both]
    for before, equal, rest in choices:
        key = _key(comparator, before)
        if key is not None and equal.op is compare and equal.attr("direction") == "EQ":
            same = _key(comparator, equal, ("EQ",))
            if same is not None and same.value == key.value and same.operands == key.operands:
                return key, rest
    return None


def _key(comparator: Function, node: Node, directions: tuple[str, ...] = ("LT", "GT")) -> Key | None:
    """The key of `compare f(x), f(y)`, either side first."""
    if node.op is not compare or node.attr("direction") not in directions:
        return None
    (left, x), (right, y) = (_side(comparator, i) for i in node.inputs)
    flipped = bool(left) and left[0] % 2 == 1
    if flipped:
        left, right = right, left
    if not left or any(k % 2 for k in left) or right != tuple(k + 1 for k in left) or x != y:
        return None
    descending = (node.attr("direction") == "GT") != flipped
    return Key(x, tuple(k // 2 for k in left), descending, node.attr("compare_type") == "TOTALORDER")


def _side(comparator: Function, node: Node) -> tuple[tuple[int, ...], Function]:
    """The parameters that a value depends on, and the value as a function of them."""
    cone = reachable([node])
    used = set(cone)
    positions = tuple(k for k, p in enumerate(comparator.params) if p in used)
    b = Builder()
    new = {comparator.params[k]: b.param(n, comparator.params[k].type) for n, k in enumerate(positions)}
    params = tuple(new.values())
    rebuild(cone, new)
    return positions, Function("key", params, (new[node],), public=False)


# --- arrays -------------------------------------------------------------------------------------------------------


def ordered(keys: Array, descending: bool = False, total: bool = False) -> Array:
    """The positions of the elements along the last axis in stable order; NaN comes last, or first when descending."""
    bits = _unsigned(keys, total)
    return np.argsort(~bits if descending else bits, axis=-1, kind="stable")


def order_by(keys: Sequence[Key], xs: Sequence[Array]) -> Array:
    """The positions along the last axis by several keys, the most important first."""
    order: Array | None = None
    for key in reversed(keys):
        values = key.of(xs)
        if order is None:
            order = ordered(values, key.descending, key.total)
        else:
            moved = np.take_along_axis(values, order, axis=-1)
            order = np.take_along_axis(order, ordered(moved, key.descending, key.total), axis=-1)
    assert order is not None
    return order


def sorted_alone(keys: Array, descending: bool, total: bool) -> Array | None:
    """The elements themselves in order, by a sort that need not be stable; None where equal keys may have different bits."""
    is_number = keys.dtype.kind in "iub"
    if not is_number and (keys.dtype.kind != "f" or (not total and bool(((keys == 0) | (keys != keys)).any()))):
        return None
    bits = np.sort(_unsigned(keys, total=True), axis=-1)
    if descending:
        bits = bits[..., ::-1]
    return _from_unsigned(bits, keys.dtype)


def _unsigned(keys: Array, total: bool) -> Array:
    """Unsigned integers in the order of the keys."""
    if keys.dtype.kind == "b":
        return keys.astype(np.uint8)
    if is_int(keys):
        wide = keys if keys.dtype.kind in "iu" else keys.astype(np.int8)
        bits = _raw(wide)
        return bits ^ _top(bits) if wide.dtype.kind == "i" else bits
    if keys.dtype.itemsize == 1:
        keys = keys.astype(np.float32)
    if not total:
        keys = np.where(keys == 0, np.zeros((), keys.dtype), np.where(keys != keys, np.asarray(np.nan, keys.dtype), keys))
    bits = _raw(keys)
    return np.where(bits >= _top(bits), ~bits, bits | _top(bits))


def _from_unsigned(bits: Array, dtype: np.dtype[np.generic]) -> Array:
    """The keys of a numpy number type that `_unsigned` made these of."""
    if dtype.kind == "b":
        return bits.astype(np.bool_)
    if dtype.kind == "f":
        raw = np.where(bits >= _top(bits), bits ^ _top(bits), ~bits)
    else:
        raw = bits ^ _top(bits) if dtype.kind == "i" else bits
    return np.ascontiguousarray(raw).view(dtype)


def _raw(x: Array) -> Array:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)


def _top(bits: Array) -> Array:
    """The highest bit."""
    return np.asarray(1 << (8 * bits.dtype.itemsize - 1), bits.dtype)
