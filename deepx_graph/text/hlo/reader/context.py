"""What a lowering rule sees of one instruction: its operands, its stated type, and its attributes as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.text.hlo.reader.attributes import AttributeFault, Window, parse_ints, parse_names, parse_window
from deepx_graph.text.hlo.reader.shapes import layout_of
from deepx_graph.text.hlo.reader.syntax import Instruction, Raw
from deepx_graph.types import TensorType, Type

if TYPE_CHECKING:
    from deepx_graph.text.hlo.reader.lower import Lowering

T = TypeVar("T")


class Context:
    """One instruction being lowered."""

    __slots__ = ("instruction", "lowering", "operands")

    def __init__(self, lowering: Lowering, instruction: Instruction, operands: list[Node]) -> None:
        self.lowering, self.instruction, self.operands = lowering, instruction, operands

    @property
    def b(self) -> Builder:
        return self.lowering.b

    @property
    def type(self) -> Type:
        """The type that the text states."""
        return self.instruction.type

    @property
    def tensor(self) -> TensorType:
        """The stated type, which must be an array. Raises ParseError."""
        if not isinstance(self.type, TensorType):
            raise self.fail(f"{self.instruction.opcode} gives an array and the text says {self.type}")
        return self.type

    def __call__(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        return self.b(op, *inputs, **attrs)

    def fail(self, message: str, at: Raw | None = None, expected: str | None = None) -> Exception:
        return self.lowering.program.error(message, at or self.instruction, expected)

    def has(self, name: str) -> bool:
        return name in self.instruction.attributes

    def raw(self, name: str) -> Raw:
        """An attribute as it stands. Raises ParseError when it is missing."""
        found = self.instruction.attributes.get(name)
        if found is None:
            raise self.fail(f"{self.instruction.opcode} needs the attribute '{name}'", expected=f"{name}=...")
        return found

    def parsed(self, name: str, parse: Callable[[str], T]) -> T:
        raw = self.raw(name)
        try:
            return parse(raw.text)
        except AttributeFault as e:
            raise self.fail(e.message, raw, e.expected) from None

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return default if default is not None and not self.has(name) else self.parsed(name, parse_ints)

    def number(self, name: str, default: int | None = None) -> int:
        """An attribute that is one integer."""
        values = self.ints(name, None if default is None else (default,))
        if len(values) != 1:
            raise self.fail(f"{name} has {len(values)} values", self.raw(name), "one number")
        return values[0]

    def word(self, name: str, default: str | None = None) -> str:
        return default if default is not None and not self.has(name) else self.raw(name).text

    def flag(self, name: str, default: bool = False) -> bool:
        text = self.word(name, "true" if default else "false")
        if text not in ("true", "false"):
            raise self.fail(f"{name}={text}", self.raw(name), "true or false")
        return text == "true"

    def window(self) -> Window:
        return self.parsed("window", parse_window) if self.has("window") else Window()

    def operand_layout(self, k: int) -> tuple[int, ...]:
        """The layout of an operand, minor to major; empty for the row-major one."""
        shape = self.lowering.shapes.get(self.instruction.operands[k].text, "")
        return layout_of(shape)

    def names(self, name: str) -> tuple[str, ...]:
        return self.parsed(name, parse_names)

    def body(self, name: str) -> Function:
        """The computation an attribute names, as a closed function."""
        return self.lowering.body(self.names(name)[0], self.raw(name))

    def inline(self, computation: str, at: Raw, args: Sequence[Node]) -> Node:
        return self.lowering.inline(self.lowering.computation(computation, at), args)
