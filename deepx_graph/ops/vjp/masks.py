"""Zeros that a `select` puts into a cotangent stay zeros, whatever the side that was not taken would make of them.

Where a select took its other side the cotangent is zero, but the operations on that side may have an infinite slope or none there,
and 0 times infinity is NaN. So it is known of each cotangent where selects have masked it. Rules are applied as they stand; where
one has multiplied the zeros by something that need not be finite, they are put back before the cotangent is summed or leaves
elementwise code. What no select masks has no mask and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops.math.elementwise import add, and_, compare, convert, divide, multiply, negate, not_, or_, select
from deepx_graph.types import TensorType

Literal = tuple[Node, bool]
"""A predicate, and whether it holds."""

Term = frozenset[Literal]
"""Literals that hold together."""

MAX_LITERALS = 12
"""A mask of more literals than this becomes one predicate."""


@dataclass(frozen=True)
class Mask:
    """Where a cotangent may be other than zero: where a term holds. `tainted` when what should be zero elsewhere may be NaN."""

    terms: frozenset[Term]
    tainted: bool = False


class Masks:
    """The masks of the cotangents of one reverse pass."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.of: dict[Node, Mask] = {}

    def pulled(self, node: Node, g: Any) -> Sequence[Any]:
        """The cotangents of a node's operands by the `vjp` of its op."""
        assert node.op.vjp is not None
        mask = self.of.get(g) if isinstance(g, Node) else None
        if node.op is select:
            return self._selected(node, g, mask)
        if mask is None:
            return node.op.vjp(self.b, node, self.clean(g))
        if node.op.elementwise:
            found = node.op.vjp(self.b, node, g)
            for x in {x for x in found if x is not None and _dims(x) == _dims(g)}:
                self._put(x, replace(mask, tainted=mask.tainted or not _keeps_zeros(x, g)))
            return found
        return self._moved(node, self.clean(g), mask) if node.op.view else node.op.vjp(self.b, node, self.clean(g))

    def fitting(self, g: Any, node: Node) -> Any:
        """The cotangent of a node, clean where it has to be brought to the node's shape."""
        return g if isinstance(g, Node) and _dims(g) == _dims(node) else self.clean(g)

    def clean(self, g: Any) -> Any:
        """The cotangent with zeros where it is masked."""
        if isinstance(g, tuple):
            return tuple(map(self.clean, g))
        mask = self.of.get(g)
        if mask is None or not mask.tainted:
            return g
        (term, *others), zero = mask.terms, self.b.like(0, g)
        if not others and len(term) == 1:
            ((by, holds),) = term
            done = self.b(select, by, g, zero) if holds else self.b(select, by, zero, g)
        else:
            done = self.b(select, self._predicate(mask.terms), g, zero)
        self._put(done, replace(mask, tainted=False))
        return done

    def sum(self, x: Node, y: Node) -> Node:
        """The sum of two cotangents of one value."""
        mine, other = self.of.get(x), self.of.get(y)
        if mine is not None and other is not None and mine.terms == other.terms:
            both = self.b(add, x, y)
            self._put(both, replace(mine, tainted=mine.tainted or other.tainted))
            return both
        both = self.b(add, self.clean(x), self.clean(y))
        if mine is not None and other is not None:
            self._put(both, Mask(_simplified(mine.terms | other.terms)))
        return both

    def _put(self, g: Node, mask: Mask) -> None:
        if frozenset() in mask.terms or not mask.terms:
            self.of.pop(g, None)
            return
        if sum(map(len, mask.terms)) > MAX_LITERALS:
            mask = replace(mask, terms=frozenset([frozenset([(self._predicate(mask.terms), True)])]))
        self.of[g] = mask

    def _selected(self, node: Node, g: Node, mask: Mask | None) -> Sequence[Node | None]:
        """Both sides of a select, each masked by the predicate beside what masked them together."""
        assert node.op.vjp is not None
        found = node.op.vjp(self.b, node, g)
        old = mask or Mask(frozenset([frozenset()]))
        for x, holds in zip(found[1:], (True, False), strict=True):
            if x is not None and _dims(x) == _dims(g):
                literal = (node.inputs[0], holds)
                terms = _simplified(t | {literal} for t in old.terms if (literal[0], not holds) not in t)
                self._put(x, Mask(terms, old.tainted and terms != {frozenset([literal])}))
        return found

    def _moved(self, node: Node, g: Node, mask: Mask) -> Sequence[Any]:
        """Through an operation that only moves elements: the mask moves as the cotangent does."""
        assert node.op.vjp is not None
        found = node.op.vjp(self.b, node, g)
        if not any(isinstance(x, Node) for x in found):
            return found
        by = self._predicate(mask.terms)
        if _dims(by) == ():  # all or nothing, wherever the elements go
            for moved in filter(None, found):
                self._put(moved, replace(mask, tainted=False))
            return found
        ones = self.b(select, by, self.b.like(1, g), self.b.like(0, g))
        for x, reached in zip(found, node.op.vjp(self.b, node, ones), strict=True):
            if x is not None and reached is not None:
                there = self.b(compare, reached, self.b.like(0, reached), direction="NE")
                self._put(x, Mask(frozenset([frozenset([(there, True)])])))
        return found

    def _predicate(self, terms: Iterable[Term]) -> Node:
        """The mask as one predicate."""
        whole = None
        for term in sorted(terms, key=_order):
            held = None
            for by, holds in sorted(term, key=lambda literal: literal[0].serial):
                literal = by if holds else self.b(not_, by)
                held = literal if held is None else self.b(and_, held, literal)
            assert held is not None
            whole = held if whole is None else self.b(or_, whole, held)
        assert whole is not None
        return whole


def _order(term: Term) -> list[tuple[int, bool]]:
    return sorted((by.serial, holds) for by, holds in term)


def _dims(node: Node) -> object:
    return node.type.dims if isinstance(node.type, TensorType) else node.type


def _simplified(terms: Iterable[Term]) -> frozenset[Term]:
    """The terms without those that another one covers, and with x or not x left out."""
    found = set(terms)
    while True:
        joined = {t - {(by, holds)} for t in found for by, holds in t if t - {(by, holds)} | {(by, not holds)} in found}
        if joined <= found:
            return frozenset(t for t in found if not any(other < t for other in found))
        found |= joined


def _keeps_zeros(x: Node, g: Node) -> bool:
    """Whether `x`, made of the cotangent `g`, is zero where that is: no factor comes in that may be infinite or NaN."""
    stack = [x]
    while stack:
        x = stack.pop()
        if x is g or splat_of(x) == 0:
            continue
        if x.op in (negate, convert):
            stack.append(x.inputs[0])
        elif x.op is select:
            stack += x.inputs[1:]
        elif x.op is multiply and any(map(_is_finite, x.inputs)):
            stack.append(x.inputs[_is_finite(x.inputs[0])])
        elif x.op is divide and _is_finite(x.inputs[1], but=0):
            stack.append(x.inputs[0])
        else:
            return False
    return True


def _is_finite(x: Node, but: object = None) -> bool:
    """Whether it is a constant of finite numbers, none of them `but`."""
    while x.op.view and len(x.inputs) == 1:
        x = x.inputs[0]
    if x.op is not CONSTANT:
        return False
    array = value_of(x).array
    return bool(np.all(np.isfinite(array) & (array != but)))
