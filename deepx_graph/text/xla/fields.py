"""Operations of the dialect as rows of fields: names and attributes, which read and write themselves in HLO and in MLIR.

A field may stand for one attribute of ours or for several that a text says together, and says nothing where it has no word. A row
is an op with its fields; from them it is read and written in either syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from deepx_graph.ir import Function, Node, Op
from deepx_graph.text.xla import hlo_text, mlir_text
from deepx_graph.text.xla.hlo_text import present
from deepx_graph.text.xla.lowering import DialectContext, several
from deepx_graph.types import Type

if TYPE_CHECKING:
    from deepx_graph.text.hlo.printer.body import ComputationWriter
    from deepx_graph.text.hlo.reader.context import InstructionContext
    from deepx_graph.text.stablehlo.reader.context import OperationContext


Attrs = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AttributeField:
    """One field; what a syntax has no word for is read as nothing and written as nothing."""

    hlo: tuple[str, ...] = ()
    """HLO's attributes."""
    mlir: str = ""
    """MLIR's attribute, the first where it has several; fields of one rank are in its order."""
    rank: int = 1

    def read(self, c: DialectContext) -> Attrs:
        """Our attributes, where both syntaxes are read alike. Raises ParseError."""
        return {}

    def read_hlo(self, c: InstructionContext) -> Attrs:
        """Our attributes. Raises ParseError."""
        return self.read(c)

    def read_mlir(self, c: OperationContext) -> Attrs:
        """Our attributes. Raises ParseError."""
        return self.read(c)

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        """`name=value`, or several with commas between."""
        return ""

    def write_mlir(self, node: Node) -> str:
        """`name = value`, or several with commas between."""
        return ""

    def bodies(self, node: Node) -> tuple[Function, ...]:
        """What stands in regions of MLIR."""
        return ()


@dataclass(frozen=True)
class ValueField(AttributeField):
    """One attribute of ours that is one of the text. `get(c, names)` reads it; the last names are those of pretty forms."""

    name: str
    names: tuple[str, ...]
    get: Callable[..., Any]
    hlo_value: Callable[[Any], str]
    """The value in HLO, empty where it is left out."""
    mlir_value: Callable[[Any], str]

    def read_hlo(self, c: InstructionContext) -> Attrs:
        return {self.name: self.get(c, self.hlo)}

    def read_mlir(self, c: OperationContext) -> Attrs:
        return {self.name: self.get(c, self.names)}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        shown = self.hlo_value(node.attr(self.name))
        return f"{self.hlo[0]}={shown}" if shown else ""

    def write_mlir(self, node: Node) -> str:
        shown = self.mlir_value(node.attr(self.name))
        return f"{self.mlir} = {shown}" if shown else ""


def value(name: str, short: tuple[str, ...], hlo: str, get: Callable[..., Any], hlo_value: Callable[[Any], str],
          mlir_value: Callable[[Any], str]) -> ValueField:
    """An attribute that MLIR calls as we do, `short` in pretty forms, and HLO too unless `hlo` says otherwise."""
    return ValueField(name, (name, *short), get, hlo_value, mlir_value, hlo=(hlo or name,), mlir=name)


def ints(name: str, *short: str, hlo: str = "") -> ValueField:
    """A list of integers; `short` are its names in pretty forms."""
    return value(name, short, hlo, lambda c, keys: c.ints(*keys), hlo_text.ints_text, mlir_text.ints_text)


def number(name: str, *short: str, hlo: str = "", default: int | None = None, hidden: bool = False,
           width: int = 64) -> ValueField:
    """An integer, which HLO has in braces where it is one of `dimensions`, and leaves out where it is a `hidden` default."""
    def in_hlo(v: int) -> str:
        return "" if hidden and v == default else f"{{{v}}}" if hlo == "dimensions" else str(v)

    return value(name, short, hlo, lambda c, keys: c.number(*keys, default=default), in_hlo, lambda v: f"{v} : i{width}")


def flag(name: str) -> ValueField:
    """A flag, which HLO writes where it is set."""
    return value(name, (), "", lambda c, keys: c.flag(*keys), lambda v: "true" if v else "", lambda v: "true" if v else "false")


def real(name: str, width: int) -> ValueField:
    """A floating-point number."""
    return value(name, (), "", lambda c, keys: c.real(*keys), str, lambda v: f"{mlir_text.float_text(v)} : f{width}")


def word(name: str, *short: str, kind: str = "", hlo: str = "", default: str | None = None) -> ValueField:
    """A word of a kind that MLIR names; `short` are names of the attribute in pretty forms."""
    return value(name, short, hlo, lambda c, keys: c.word(*keys, default=default), str,
                 lambda v: mlir_text.word_text(kind or name, v) if v else "")


def string(name: str) -> ValueField:
    """A string, which HLO leaves out where it is empty."""
    return value(name, (), "", lambda c, keys: c.string(*keys), lambda v: hlo_text.string_text(v) if v else "",
                 mlir_text.string_text)


@dataclass(frozen=True)
class StatedField(AttributeField):
    """An attribute of the text that says nothing of ours: read over, and written with the values that the node implies."""

    hlo_value: Callable[[Node], str]
    mlir_value: Callable[[Node], str]

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        shown = self.hlo_value(node)
        return f"{self.hlo[0]}={shown}" if shown else ""

    def write_mlir(self, node: Node) -> str:
        shown = self.mlir_value(node)
        return f"{self.mlir} = {shown}" if shown else ""


def stated(name: str, hlo: str = "", mlir: str = "") -> StatedField:
    """An attribute that has one value, or that is not written."""
    return StatedField(lambda node: hlo, lambda node: mlir, hlo=(name,), mlir=name)


@dataclass(frozen=True)
class BodyField(AttributeField):
    """A computation: HLO names it, MLIR has it as region `number`."""

    name: str
    number: int

    def read(self, c: DialectContext) -> Attrs:
        return {self.name: c.body(self.hlo[0], self.number)}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        return f"{self.hlo[0]}={w.body(node.attr(self.name), node)}"

    def bodies(self, node: Node) -> tuple[Function, ...]:
        return (node.attr(self.name),)


def body(name: str, hlo: str = "to_apply", number: int = 0) -> BodyField:
    """A computation."""
    return BodyField(name, number, hlo=(hlo,))


@dataclass(frozen=True)
class StructField(AttributeField):
    """Lists that are attributes of HLO and fields of a struct of MLIR, in whose order `lists` are."""

    kind: str
    lists: tuple[str, ...]
    hlo_order: tuple[int, ...]
    optional: frozenset[str]
    """Those that HLO leaves out where they are empty."""

    def read_hlo(self, c: InstructionContext) -> Attrs:
        return {k: c.ints(name, default=()) for k, name in zip(self.lists, self.hlo, strict=False)}

    def read_mlir(self, c: OperationContext) -> Attrs:
        given = c.need(self.mlir)
        return {k: tuple(given.get(k, ())) for k in self.lists}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        rows = [(self.lists[k], self.hlo[k]) for k in self.hlo_order]
        return hlo_text.present(*(f"{name}={hlo_text.ints_text(node.attr(k))}" for k, name in rows
                                  if node.attr(k) or k not in self.optional))

    def write_mlir(self, node: Node) -> str:
        return f"{self.mlir} = {mlir_text.struct_text(self.kind, {k: node.attr(k) for k in self.lists})}"


class IndexedField(StructField):
    """Such lists, and the dimension of the indices that has their vectors, which is HLO's last attribute."""

    def read_hlo(self, c: InstructionContext) -> Attrs:
        return {**super().read_hlo(c), "index_vector_dim": c.number("index_vector_dim")}

    def read_mlir(self, c: OperationContext) -> Attrs:
        return {**super().read_mlir(c), "index_vector_dim": c.need(self.mlir).get("index_vector_dim", 0)}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        return f"{super().write_hlo(w, node)}, index_vector_dim={node.attr('index_vector_dim')}"

    def write_mlir(self, node: Node) -> str:
        given = {k: node.attr(k) for k in (*self.lists, "index_vector_dim")}
        return f"{self.mlir} = {mlir_text.struct_text(self.kind, given)}"


class DotField(StructField):
    """The dimensions of a product, which pretty forms of MLIR give by pairs."""

    def read_mlir(self, c: OperationContext) -> Attrs:
        given = c.raw(self.mlir) or {}
        batch, contract = c.raw("batching_dims") or ((), ()), c.raw("contracting_dims") or ((), ())
        return {k: tuple(given.get(k, v)) for k, v in zip(self.lists, (*batch, *contract), strict=True)}


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
        return self.build(c, self.op, self.read(c, given))

    def results(self, c: DialectContext, **given: Any) -> list[Node]:
        """Its results, one by one, the state being as it leaves it."""
        if not self.acts:
            return several(c, self.node(c, **given))
        return c.act(self.op, *(c.tensors if len(self.op.operands) > 1 else ()), **self.read(c, given))

    def read(self, c: DialectContext, given: Attrs) -> dict[str, Any]:
        """The attributes of the op: those `given`, and what the text tells of the others."""
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
        return present(*[f.write_hlo(w, node) for f in self.fields]) if self.fields else ""

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
