"""What a lowering rule sees of one instruction: its operands, its stated type, and its attributes as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from deepx_graph.ir import Function, Node
from deepx_graph.text.hlo.shapes import layout_of
from deepx_graph.text.hlo.syntax import HloInstruction, Raw, plain_leaves
from deepx_graph.text.xla.fields import AttributeField
from deepx_graph.text.xla.hlo_text import AttributeFault, parse_ints, parse_names, parse_string
from deepx_graph.text.xla.lowering import DialectContext
from deepx_graph.types import TensorType, TupleType, Type

if TYPE_CHECKING:
    from deepx_graph.text.hlo.reader.lower import HloLowering

T = TypeVar("T")


class InstructionContext(DialectContext):
    """One instruction being lowered."""

    __slots__ = ("instruction",)
    lowering: HloLowering

    def __init__(self, lowering: HloLowering, instruction: HloInstruction, inputs: list[Node]) -> None:
        super().__init__(inputs)
        self.lowering, self.instruction = lowering, instruction

    @property
    def name(self) -> str:
        return self.instruction.opcode

    @property
    def type(self) -> Type:
        """The type that the text states."""
        return self.instruction.type

    @property
    def tensor(self) -> TensorType:
        if not isinstance(self.type, TensorType):
            raise self.fail(f"{self.name} gives an array and the text says {self.type}")
        return self.type

    @property
    def given(self) -> Type:
        """The type of what a collective gives; where it is started, of that part of what it gives."""
        type = self.type
        if self.name in ("all-gather-start", "collective-permute-start") and isinstance(type, TupleType):
            return type.items[1]
        return type

    @property
    def results(self) -> Sequence[Type]:
        return plain_leaves(self.given)

    @property
    def tensors(self) -> list[Node]:
        return [leaf for x in self.inputs for leaf in self.lowering.flatten(x)]

    @property
    def state(self) -> Node | None:
        return self.lowering.state if self.lowering.acts(self.instruction) else None

    def packed(self, results: Sequence[Node]) -> Node:
        """The value of the stated type with these leaves."""
        return self.lowering.pack(self.type, results)

    def fail(self, message: str, expected: str | None = None, at: Raw | None = None) -> Exception:
        return self.lowering.program.error(message, at or self.instruction, expected)

    # --- attributes

    def field(self, field: AttributeField) -> Mapping[str, Any]:
        return field.read_hlo(self)

    def has(self, name: str) -> bool:
        return name in self.instruction.attributes

    def raw(self, name: str) -> Raw:
        """An attribute as it stands. Raises ParseError when it is missing."""
        found = self.instruction.attributes.get(name)
        if found is None:
            raise self.fail(f"{self.name} needs the attribute '{name}'", f"{name}=...")
        return found

    def parsed(self, name: str, parse: Callable[[str], T]) -> T:
        raw = self.raw(name)
        try:
            return parse(raw.text)
        except AttributeFault as e:
            raise self.fail(e.message, e.expected, raw) from None

    def ints(self, *names: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        return tuple(default) if default is not None and not self.has(names[0]) else self.parsed(names[0], parse_ints)

    def number(self, *names: str, default: int | None = None) -> int:
        values = self.ints(*names, default=None if default is None else (default,))
        if len(values) != 1:
            raise self.fail(f"{names[0]} has {len(values)} values", "one number", self.raw(names[0]))
        return values[0]

    def real(self, *names: str) -> float:
        return float(self.word(*names))

    def word(self, *names: str, default: str | None = None) -> str:
        return default if default is not None and not self.has(names[0]) else self.raw(names[0]).text

    def string(self, name: str) -> str:
        return parse_string(self.raw(name).text) if self.has(name) else ""

    def flag(self, name: str, default: bool = False) -> bool:
        text = self.word(name, default="true" if default else "false")
        if text not in ("true", "false"):
            raise self.fail(f"{name}={text}", "true or false", self.raw(name))
        return text == "true"

    def operand_layout(self, k: int) -> tuple[int, ...]:
        """The layout of an operand, minor to major; empty for the row-major one."""
        return layout_of(self.lowering.shapes.get(self.instruction.operands[k], ""))

    # --- computations

    def names(self, name: str) -> tuple[str, ...]:
        """The computations that an attribute names."""
        return self.parsed(name, parse_names)

    def body(self, name: str, k: int = 0) -> Function:
        return self.lowering.body(self.names(name)[0], self.raw(name))

    def inline(self, attribute: str, args: Sequence[Node], k: int = 0) -> Node:
        """What a computation that an attribute names gives for these arguments."""
        return self.lowering.inline(self.lowering.computation(self.names(attribute)[k], self.raw(attribute)), args)
