"""`Node`: one frozen operation of the sea. Inputs are the only edges; data, control and effects alike.

Invariant: a node is newer than its inputs (`serial` counts up), so sorting by `serial` is a topological order, and the order in
which a text was read is kept. Nodes never change; equality is identity. There are no cycles: a loop's back edge is implied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from deepx_graph.errors import Diagnostic, Span, printable, slot_setters
from deepx_graph.ir.op import Op
from deepx_graph.ir.provided import provided
from deepx_graph.types import TensorType, Type

_serials = itertools.count()


MAX_SPANS = 16
"""How many spans of the source a node remembers when it stands for several; thousands may be merged into one."""


Notes = tuple[tuple[str, str], ...]
"""What a text says of something beside what it computes (sharding, layout, ...), name and value in the words of that text."""


@dataclass(frozen=True, slots=True, init=False)
class Origin:
    """The name and spans of a node in the source, the rewrites that made it, and the text's notes on it.

    Notes are about the operation as it was read: what a rewrite makes has none.
    """

    name: str = ""
    spans: tuple[Span, ...] = ()
    rewrites: tuple[str, ...] = ()
    notes: Notes = ()

    def __init__(self, name: str = "", spans: tuple[Span, ...] = (), rewrites: tuple[str, ...] = (), notes: Notes = ()) -> None:
        set_name, set_spans, set_rewrites, set_notes = _ORIGIN
        set_name(self, name)
        set_spans(self, spans)
        set_rewrites(self, rewrites)
        set_notes(self, notes)

    @property
    def reference(self) -> str:
        """The name as `reference` writes it."""
        return reference(self.name)

    @property
    def span(self) -> Span | None:
        return self.spans[0] if self.spans else None

    def rewritten(self, rule: str) -> Origin:
        """This origin after `rule` made a new node from it; a rule is recorded once in a row."""
        if self.rewrites and self.rewrites[-1] == rule:
            return self
        return Origin(self.name, self.spans, self.rewrites + (rule,))

    def merged(self, other: Origin) -> Origin:
        """The origin of a node that now stands for both; at most `MAX_SPANS` spans are kept."""
        if other is self or (not other.spans and not other.rewrites) or len(self.spans) >= MAX_SPANS:
            return self
        new = tuple(s for s in other.spans if s not in self.spans)
        return Origin(self.name or other.name, (self.spans + new)[:MAX_SPANS], self.rewrites, self.notes)


_ORIGIN = slot_setters(Origin)

NOWHERE = Origin()


def reference(name: str) -> str:
    """A name as the texts write it whose names are numbers, `%0` in MLIR and Relay; any other as it stands."""
    return f"%{name}" if name.isdigit() else name


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, init=False)
class Node:
    """An operation applied to inputs. `attrs` are the values in the order the op declares them; `attr(name)` is one of them.

    `type` has `.shape` and `.dtype` where it is a tensor, `origin` the name and the places in the source. Nodes are never changed;
    operators on nodes (`a * b + 1`, `a @ b`) make new ones, and raise VerifyError where types do not fit.

    >>> (n,) = dx.trace(lambda x: x * x, "f32[3]").entry.results
    >>> n.op.name, str(n.type), [i.name for i in n.inputs]
    ('multiply', 'f32[3]', ['x', 'x'])
    """

    op: Op
    inputs: tuple[Node, ...]
    attrs: tuple[Any, ...]
    type: Type
    origin: Origin
    serial: int
    sound: bool = field(init=False, repr=False)
    """Set once `verify` has found that the node keeps the rules of its op, as it never changes; what is made of it is not, but for
    the same over other tensors of the same types (`over`)."""

    def __init__(self, op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], type: Type, origin: Origin = NOWHERE,
                 serial: int | None = None) -> None:
        set_op, set_inputs, set_attrs, set_type, set_origin, set_serial, set_sound = _NODE
        set_op(self, op)
        set_inputs(self, inputs)
        set_attrs(self, attrs)
        set_type(self, type)
        set_origin(self, origin)
        set_serial(self, next(_serials) if serial is None else serial)
        set_sound(self, False)

    def over(self, inputs: tuple[Node, ...], origin: Origin | None = None) -> Node:
        """A new node of this op, with these attributes and this type, over other inputs of the same types."""
        made = Node(self.op, inputs, self.attrs, self.type, origin or self.origin)
        if self.sound and len(inputs) == len(self.inputs):
            for a, b in zip(inputs, self.inputs, strict=False):
                if a is not b and (a.type is not b.type or not isinstance(a.type, TensorType)):
                    break  # what is no tensor may be a construct, and then more than its type counts
            else:
                _NODE[-1](made, True)
        return made

    def attr(self, name: str) -> Any:
        """The value of an attribute. Raises KeyError for a name the op does not declare."""
        return self.attrs[self.op.attr_index[name]]

    @property
    def named_attrs(self) -> dict[str, Any]:
        """The values of the attributes by name."""
        return dict(zip(self.op.attr_index, self.attrs, strict=True))

    def operand(self, name: str) -> Any:
        """The input of that operand name; a tuple of inputs for a variadic one. Raises KeyError for no such name."""
        return self.op.named(self.inputs, self.attrs)[name]

    @property
    def operands(self) -> SimpleNamespace:
        """The inputs by operand name: `node.operands.lhs`."""
        return SimpleNamespace(**self.op.named(self.inputs, self.attrs))

    @property
    def name(self) -> str:
        """The name in the source; empty where there was none."""
        return self.origin.name

    @property
    def reference(self) -> str:
        """The name as `reference` writes it."""
        return reference(self.name)

    @property
    def span(self) -> Span | None:
        """The first place in the source; None where there is none."""
        return self.origin.span

    # --- operators, which make nodes as `dx.xp` does

    def __add__(self, other: object) -> Node:
        return _operated("add", self, other)

    def __radd__(self, other: object) -> Node:
        return _operated("add", other, self)

    def __sub__(self, other: object) -> Node:
        return _operated("subtract", self, other)

    def __rsub__(self, other: object) -> Node:
        return _operated("subtract", other, self)

    def __mul__(self, other: object) -> Node:
        return _operated("multiply", self, other)

    def __rmul__(self, other: object) -> Node:
        return _operated("multiply", other, self)

    def __truediv__(self, other: object) -> Node:
        return _operated("divide", self, other)

    def __rtruediv__(self, other: object) -> Node:
        return _operated("divide", other, self)

    def __pow__(self, other: object) -> Node:
        return _operated("pow", self, other)

    def __matmul__(self, other: object) -> Node:
        return _operated("matmul", self, other)

    def __neg__(self) -> Node:
        return _operated("negative", self)

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.name or '#' + str(self.serial)}: {self.type}>"


_NODE = slot_setters(Node)


def _operated(name: str, *operands: object) -> Node:
    operate = provided("operate")
    if operate is None:
        raise TypeError("operators on nodes need the library: import deepx_graph")
    made: Node = operate(name, *operands)
    return made


def describe(node: Node) -> str:
    """The node on one line, escaped: `t3 = add(x, y) : f32[2,3]`, with attributes that are short. It may be malformed."""
    attrs = [f"{a.name}={v if isinstance(v, Type) else repr(v)}" for a, v in zip(node.op.attrs, node.attrs, strict=False)]
    shown = [i.reference or f"#{i.serial}" for i in node.inputs[:8]] + (["..."] if len(node.inputs) > 8 else [])
    text = ", ".join(shown + [a for a in attrs if len(a) < 80])
    return printable(f"{node.reference or f'#{node.serial}'} = {node.op.name}({text}) : {node.type}")


def problem(node: Node, message: str, expected: str | None = None, hint: str | None = None) -> Diagnostic:
    """A diagnostic at the node, with its printed form and its op's summary as notes."""
    return Diagnostic(f"{node.op.name}: {message}", node.span, expected=expected, hint=hint,
                      notes=(describe(node), f"{node.op.name}: {node.op.summary}"))


def reachable(roots: Iterable[Node]) -> list[Node]:
    """Every node that the roots depend on, themselves included, in topological order (oldest first)."""
    stack = list(roots)
    seen = set(stack)
    while stack:
        for node in stack.pop().inputs:
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return sorted(seen, key=attrgetter("serial"))
