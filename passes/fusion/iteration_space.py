"""Which ops a kernel can hold, and how values lie in its space of elements.

A kernel goes through one `Space`: full shape, and the axes it reduces, if any. A member has the full shape, or that of a row (the
reduced axes dropped, or kept with size 1). Operands are seen through broadcasts and reshapes that only add axes of size 1 (`Link`);
these are copied into whatever reads them. Declarations decide: `elementwise`, `kernel`, and a monoid as reducer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from deepx_graph.errors import an
from deepx_graph.ir import Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.scalar_expr import Apply, Expr, price
from deepx_graph.ir.structure import CONSTANT, PARAM, STRUCTURAL
from deepx_graph.ops.contract.reduce import reduced_axes
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.passes.fusion.reason import Kind, Reason
from deepx_graph.types import ANY, Dims, TensorType, is_state

MAX_ROW = 1 << 18
"""The most elements of a row that a kernel goes through more than once: it has to stay in a cache."""

_READING = 1
"""The price of reading an operand again, in additions."""


def is_known(node: Node) -> bool:
    """A tensor whose dtype and rank are known."""
    return isinstance(node.type, TensorType) and node.type.dims is not None and node.type.dtype is not ANY


def dims(node: Node) -> Dims:
    """The dimensions of a known tensor."""
    assert isinstance(node.type, TensorType) and node.type.dims is not None
    return node.type.dims


class Vocabulary:
    """Tells what a kernel can hold; remembers the kernel expressions of declarations."""

    def __init__(self, reductions: bool) -> None:
        self.reductions = reductions
        self._expressions: dict[tuple[Op, tuple[Any, ...]], Expr | None] = {}

    def expression(self, node: Node) -> Expr | None:
        """The scalar expression of an elementwise node, None when it has none."""
        key = node.op, node.attrs
        if key not in self._expressions:
            self._expressions[key] = node.op.kernel(*node.attrs) if node.op.kernel else None
        return self._expressions[key]

    def unfit(self, node: Node) -> Kind | None:
        """Why no kernel holds the node; None when one may."""
        op = node.op
        if op.elementwise:
            if self.expression(node) is None:
                return Kind.NO_KERNEL
        elif reduced_axes(node) is not None:
            if reduction_fault(node):
                return Kind.REDUCTION_FORM
            if not self.reductions:
                return Kind.REDUCTIONS_OFF
        else:
            return self._other(node)
        return None if is_known(node) and all(map(is_known, node.inputs)) else Kind.UNKNOWN_TYPE

    def _other(self, node: Node) -> Kind:
        if node.op is CONSTANT:
            return Kind.CONSTANT
        if node.op is PARAM:
            return Kind.PARAMETER
        if is_state(node.type) or any(is_state(i.type) for i in node.inputs):
            return Kind.EFFECT
        if is_adapter(node):
            return Kind.VIEW
        if kernel_body(node) is not None:
            return Kind.KERNEL
        return Kind.STRUCTURE if node.op in STRUCTURAL else Kind.NOT_ELEMENTWISE

    def complaint(self, node: Node, kind: Kind) -> Reason:
        """The reason for `unfit(node)`."""
        detail = {Kind.UNKNOWN_TYPE: str(node.type), Kind.STRUCTURE: node.op.name}.get(kind, an(node.op.name))
        return Reason(kind, (node,), reduction_fault(node) if kind is Kind.REDUCTION_FORM else detail)

    def is_cheap(self, node: Node) -> bool:
        """Computing the node again costs no more than reading it again."""
        found = self.expression(node) if node.op.elementwise else None
        return isinstance(found, Apply) and price(found.primitive) <= _READING and not any(isinstance(a, Apply) for a in found.args)


def reduction_fault(node: Node) -> str:
    """What is unusual in a reduction; empty when it is a monoid over some axes from a constant."""
    if len(node.inputs) != 2:
        return f"it reduces {len(node.inputs) // 2} inputs at once"
    if node.attr("body").reducer is None:
        return f"its body '{node.attr('body').name}' is not one associative operation"
    if splat_of(node.inputs[1]) is None:
        return "its initial value is not a constant"
    return "" if node.attr("dimensions") else "it reduces no axis"


# --- operands seen through broadcasts -----------------------------------------------------------------------------


def adapter_axes(node: Node) -> tuple[int, ...] | None:
    """Along which axis of the result each axis of the operand lies, for a broadcast or a reshape that only adds axes of size 1;
    None for what is no such adapter."""
    if node.op.axes is None or not is_known(node) or not is_known(node.inputs[0]):
        return None
    found = node.op.axes(dims(node.inputs[0]), *node.attrs)
    return None if found is None or None in found else found  # type: ignore[return-value]


def is_adapter(node: Node) -> bool:
    """Whether kernels see through the node."""
    return adapter_axes(node) is not None


@dataclass(slots=True, eq=False)
class Link:
    """An operand as it is read: `operand` is `root` with its axis k at `axes[k]`; None where they are the same node.

    `repeats`: elements are repeated or reordered on the way, so that reading the root itself is worth while.
    """

    operand: Node
    root: Node
    axes: tuple[int, ...] | None
    repeats: bool

    @property
    def key(self) -> Node:
        """What a kernel would be given for it."""
        return self.root if self.repeats else self.operand

    @property
    def is_identity(self) -> bool:
        """Element i of the operand is element i of the root."""
        return self.axes is None or (self.axes == tuple(range(len(self.axes))) and dims(self.root) == dims(self.operand))


class Links:
    """The links of nodes, each computed once; chains of any length end at one root."""

    def __init__(self) -> None:
        self._known: dict[Node, Link] = {}
        self._of: dict[Node, tuple[Link, ...]] = {}

    def link(self, operand: Node) -> Link:
        """How `operand` is read."""
        known = self._known.get(operand)
        if known is not None:
            return known
        chain: list[Node] = []
        node = operand
        while node not in self._known and is_adapter(node):
            chain.append(node)
            node = node.inputs[0]
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = Link(node, node, None, False)
        for node in reversed(chain):
            found = self._known[node] = _extended(found, node)
        return found

    def of(self, node: Node) -> tuple[Link, ...]:
        """The links of a member's operands; a reduction's initial value, a constant, is left out."""
        found = self._of.get(node)
        if found is None:
            known, operands = self._known, node.inputs if reduced_axes(node) is None else node.inputs[:1]
            found = self._of[node] = tuple([known.get(i) or self.link(i) for i in operands])
        return found


def _extended(link: Link, node: Node) -> Link:
    step = adapter_axes(node) or ()
    axes = step if link.axes is None else tuple(step[a] for a in link.axes)
    same = [d for d in dims(link.root) if d != 1] == [d for d in dims(node) if d != 1] and list(axes) == sorted(axes)
    return Link(node, link.root, axes, not same)


# --- the space of a kernel ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """The full shape that a kernel goes through, and the axes that its reductions drop; None while it has none.

    `ends` are the axes of further reductions, which nothing in the kernel reads.
    """

    full: Dims
    axes: tuple[int, ...] | None = None
    ends: frozenset[tuple[int, ...]] = frozenset()

    @cached_property
    def kept_axes(self) -> tuple[int, ...]:
        return tuple(k for k in range(len(self.full)) if k not in (self.axes or ()))

    @cached_property
    def rows(self) -> Dims:
        """The shape with the reduced axes dropped."""
        return tuple(self.full[k] for k in self.kept_axes)

    @cached_property
    def kept(self) -> Dims:
        """The shape with the reduced axes at size 1."""
        return tuple(1 if k in (self.axes or ()) else d for k, d in enumerate(self.full))

    def holds(self, shape: Dims) -> bool:
        """Whether a member may have this shape."""
        return shape == self.full or (self.axes is not None and shape in (self.rows, self.kept))

    def __str__(self) -> str:
        over = "" if self.axes is None else f" reduced over {list(self.axes)}"
        also = "".join(f", and over {list(axes)}" for axes in sorted(self.ends))
        return f"[{','.join(map(str, self.full))}]{over}{also}"


def full_shape(node: Node) -> Dims:
    """The shape that a member goes through: its own, or that of what it reduces."""
    return dims(node) if reduced_axes(node) is None else dims(node.inputs[0])


def space_of(node: Node) -> Space:
    """The space of a kernel with this member alone."""
    return _space(full_shape(node), reduced_axes(node))


_space = lru_cache(maxsize=4096)(Space)
"""Programs have few shapes; spaces that are one object are equal at a glance."""


def joined(a: Space, b: Space) -> Space | Kind:
    """The space of a kernel that does the work of both."""
    if a is b or a == b:
        return a
    if a.full == b.full and (a.axes == b.axes or a.axes is None or b.axes is None):
        return _space(a.full, b.axes if a.axes is None else a.axes, a.ends | b.ends)
    if a.axes is not None and b.axes is not None:
        return Kind.AXES if a.full == b.full or b.full in (a.rows, a.kept) or a.full in (b.rows, b.kept) else Kind.SHAPE
    small, large = (a, b) if a.axes is None else (b, a)
    return large if large.holds(small.full) else Kind.SHAPE


def misfit(link: Link, user: Node, space: Space) -> Kind | None:
    """Why a member cannot read another one through this link within the kernel; None when it can."""
    if (axes := reduced_axes(link.root)) is not None and axes != space.axes:
        return Kind.AXES
    source, target = dims(link.root), dims(user) if reduced_axes(user) is None else space.full
    if source == space.full:
        return None if target == space.full and link.is_identity else Kind.BROADCAST
    if target == space.full:
        return _spread_misfit(link, source, space)
    if source == target or link.axes is None:
        return None if link.is_identity else Kind.BROADCAST
    return None if source == space.rows and link.axes == space.kept_axes else Kind.BROADCAST


def _spread_misfit(link: Link, source: Dims, space: Space) -> Kind | None:
    """Of a row value read by every element of its row."""
    assert space.axes is not None
    expected = space.kept_axes if source == space.rows else tuple(range(len(space.full)))
    if (link.axes is not None or source) and link.axes != expected:
        return Kind.BROADCAST
    if space.axes[0] != len(space.full) - len(space.axes):
        return Kind.BROADCAST
    row = [space.full[k] for k in space.axes]
    return Kind.ROW if math.prod(d for d in row if isinstance(d, int)) > MAX_ROW else None
