"""What a lowering rule sees of one StableHLO operation: operands, stated types, regions, and attributes as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.text.stablehlo.reader.literals import DenseFault, parse_dense
from deepx_graph.text.stablehlo.syntax import Dense, Operation, Typed, Word
from deepx_graph.types import TensorType, Type

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.reader.lower import Lowering, Scope


class Context:
    """One operation being lowered."""

    __slots__ = ("inputs", "lowering", "op", "scope")

    def __init__(self, lowering: Lowering, op: Operation, inputs: list[Node], scope: Scope) -> None:
        self.lowering, self.op, self.inputs, self.scope = lowering, op, inputs, scope

    @property
    def b(self) -> Builder:
        return self.lowering.b

    def __call__(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        return self.b(op, *inputs, **attrs)

    @property
    def tensor(self) -> TensorType:
        """The type of the one result, which must be a tensor. Raises ParseError."""
        types = self.op.result_types
        if len(types) != 1 or not isinstance(types[0], TensorType):
            raise self.fail(f"{self.op.name} gives one tensor")
        return types[0]

    def fail(self, message: str, expected: str | None = None) -> Exception:
        return self.lowering.error(message, self.op, expected)

    def raw(self, *names: str) -> Any:
        """The attribute under the first of these names that is there, plain; None when none is."""
        for name in names:
            if name in self.op.attributes:
                return plain(self.op.attributes[name])
        return None

    def need(self, *names: str) -> Any:
        value = self.raw(*names)
        if value is None:
            raise self.fail(f"{self.op.name} needs the attribute '{names[0]}'")
        return value

    def ints(self, *names: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self.raw(*names)
        if value is None:
            if default is None:
                raise self.fail(f"{self.op.name} needs the attribute '{names[0]}'")
            return tuple(default)
        if isinstance(value, Dense):
            value = self.dense(value).array.reshape(-1).tolist()
        if isinstance(value, int):
            value = [value]
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
            raise self.fail(f"'{names[0]}' is not a list of integers")
        return tuple(int(v) for v in value)

    def number(self, *names: str, default: int | None = None) -> int:
        values = self.ints(*names, default=None if default is None else (default,))
        if len(values) != 1:
            raise self.fail(f"'{names[0]}' has {len(values)} values", "one integer")
        return values[0]

    def word(self, *names: str, default: str | None = None) -> str:
        value = self.raw(*names)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.fail(f"{self.op.name} needs the word '{names[0]}'")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        return default if value is None else bool(value)

    def dense(self, value: Dense, type: Type | None = None) -> Any:
        """A constant of the text. Raises ParseError."""
        stated = value.type or type
        if not isinstance(stated, TensorType):
            raise self.fail("a constant without a tensor type")
        try:
            return parse_dense(value.text, stated)
        except DenseFault as e:
            raise self.fail(str(e)) from None

    def body(self, k: int = 0) -> Function:
        return self.lowering.body(self.op, k, self.scope)

    def region(self, k: int, args: Sequence[Node]) -> list[Node]:
        return self.lowering.region(self.op, k, args, self.scope)


def plain(value: Any) -> Any:
    """Words and typed numbers without their wrapping."""
    if isinstance(value, Typed):
        return plain(value.value)
    if isinstance(value, Word):
        return value.text
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value
