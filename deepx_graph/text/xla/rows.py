"""`OperationRow`: an operation of the dialect with its fields, and how it is read and written by them in either syntax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from deepx_graph.ir import Function, Node, Op
from deepx_graph.text.xla.fields import AttributeField, Attrs
from deepx_graph.text.xla.hlo_text import present
from deepx_graph.text.xla.lowering import DialectContext, several
from deepx_graph.types import Type

if TYPE_CHECKING:
    from deepx_graph.text.hlo.printer.body import ComputationWriter

Build = Callable[[DialectContext, Op, Attrs], Node]
Derived = Mapping[str, Callable[[DialectContext, Attrs], Any]]
"""Attributes that follow from types and other attributes."""


class GenericForm(NamedTuple):
    """`"name"(...) <{attributes}> ({bodies})` of MLIR."""

    name: str
    attributes: str = ""
    bodies: tuple[Function, ...] = ()
    notes: str = ""
    """Attributes that are none of the operation's own."""


def _applied(c: DialectContext, op: Op, attrs: Attrs) -> Node:
    return c(op, *c.inputs, **attrs)


@dataclass(frozen=True)
class OperationRow:
    """An operation; `fields` are in HLO's order. A name that is empty is of a syntax that does not have it."""

    op: Op
    fields: tuple[AttributeField, ...]
    hlo: str
    mlir: str
    build: Build = _applied
    """How it is built, where it is not just `op` on the operands."""
    derived: Derived = field(default_factory=dict)

    @cached_property
    def acts(self) -> bool:
        """Whether it is an operation on the state."""
        return bool(self.op.operands) and self.op.operands[0].name == "state"

    @property
    def hlo_attributes(self) -> tuple[str, ...]:
        """HLO's attributes."""
        return tuple(dict.fromkeys(name for f in self.fields for name in f.hlo))

    @property
    def arity(self) -> tuple[int, ...] | None:
        """How many operands it may have; None for any number."""
        return (len(self.op.operands),) if all(o.single for o in self.op.operands) else None

    def node(self, c: DialectContext, **given: Any) -> Node:
        """The operation built; `given` are attributes that the text does not tell."""
        return self.build(c, self.op, self._read(c, given))

    def results(self, c: DialectContext, **given: Any) -> list[Node]:
        """Its results, one by one, the state being as it leaves it."""
        if not self.acts:
            return several(c, self.node(c, **given))
        return c.act(self.op, *(c.tensors if len(self.op.operands) > 1 else ()), **self._read(c, given))

    def _read(self, c: DialectContext, given: Attrs) -> dict[str, Any]:
        attrs = dict(given)
        for name, of_type in self._typed:
            attrs[name] = of_type(c.tensor)
        for f in self.fields:
            if f.mlir not in given:
                attrs |= c.field(f)
        for name, derive in self.derived.items():
            attrs[name] = derive(c, attrs)
        return attrs

    @cached_property
    def _typed(self) -> tuple[tuple[str, Callable[[Type], Any]], ...]:
        """The attributes that the stated type tells."""
        return tuple((a.name, a.from_type) for a in self.op.attrs if a.from_type is not None and a.name not in self.derived)

    def hlo_text(self, w: ComputationWriter, node: Node) -> str:
        """The attributes in HLO."""
        return present(*(f.write_hlo(w, node) for f in self.fields))

    def form(self, node: Node) -> GenericForm:
        """What MLIR writes."""
        if not self.fields:
            return self._bare
        bodies = tuple([body for f in self.fields for body in f.bodies(node)])
        return GenericForm(self.mlir, present(*[f.write_mlir(node) for f in self._sorted]), bodies)

    @cached_property
    def _bare(self) -> GenericForm:
        return GenericForm(self.mlir)

    @cached_property
    def _sorted(self) -> list[AttributeField]:
        """The fields in MLIR's order."""
        return sorted(self.fields, key=lambda f: (f.rank, f.mlir))


def row(op: Op, *fields: AttributeField, hlo: str | None = None, dialect: str = "stablehlo", **how: Any) -> OperationRow:
    """An operation that both syntaxes call as we do, each in its spelling, or that HLO calls `hlo`; '' for one that it has not."""
    return OperationRow(op, fields, op.name.replace("_", "-") if hlo is None else hlo, f"{dialect}.{op.name}", **how)
