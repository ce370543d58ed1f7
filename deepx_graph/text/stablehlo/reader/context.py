"""What a lowering rule sees of one StableHLO operation: operands, stated types, regions, and attributes as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepx_graph import ops
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.text.stablehlo.literals import dense_value
from deepx_graph.text.stablehlo.reader.effects import numbers, without_tokens
from deepx_graph.text.stablehlo.syntax import Dense, Operation, plain
from deepx_graph.text.xla.fields import AttributeField
from deepx_graph.text.xla.hlo_text import AttributeFault, Groups
from deepx_graph.text.xla.lowering import DialectContext, several
from deepx_graph.types import STATE, TensorType, TupleType, Type, as_tensor

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.reader.lower import MlirLowering, Scope

APPLIED: dict[str, Op] = {f"stablehlo.{op.name}": op for op in
                          (ops.add, ops.multiply, ops.maximum, ops.minimum, ops.and_, ops.or_, ops.xor)}
"""What the pretty form of a reduction may name instead of a body."""

MOST_KEPT = 2000
"""Characters of an operation that is kept as it stands."""


class OperationContext(DialectContext):
    """One operation being lowered."""

    __slots__ = ("op", "scope")
    lowering: MlirLowering

    def __init__(self, lowering: MlirLowering, op: Operation, inputs: list[Node], scope: Scope) -> None:
        super().__init__(inputs)
        self.lowering, self.op, self.scope = lowering, op, scope

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def tensor(self) -> TensorType:
        types = self.op.result_types
        if len(types) != 1 or not isinstance(types[0], TensorType):
            raise self.fail(f"{self.name} gives one tensor")
        return types[0]

    @property
    def results(self) -> list[Type]:
        return without_tokens(self.op.result_types)

    @property
    def tensors(self) -> list[Node]:
        return self.inputs

    @property
    def state(self) -> Node | None:
        return self.lowering.state if self.lowering.effects.acts(self.op) else None

    def fail(self, message: str, expected: str | None = None) -> Exception:
        return self.lowering.error(message, self.op, expected)

    # --- attributes

    def field(self, field: AttributeField) -> Mapping[str, Any]:
        return field.read_mlir(self)

    def raw(self, *names: str) -> Any:
        """The attribute under the first of these names that is there, plain; None when none is."""
        for name in names:
            if name in self.op.attributes:
                return plain(self.op.attributes[name])
        return None

    def need(self, *names: str) -> Any:
        """The same. Raises ParseError when none is there."""
        value = self.raw(*names)
        if value is None:
            raise self.fail(f"{self.name} needs the attribute '{names[0]}'")
        return value

    def array(self, *names: str) -> Any:
        """The same, the elements of a constant as an array."""
        value = self.raw(*names)
        return self.dense(value).bounded() if isinstance(value, Dense) else value

    def rows(self, name: str) -> Groups:
        """A matrix of numbers by rows; none where it is missing."""
        return numbers(self.op.attributes.get(name))

    def ints(self, *names: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self.raw(*names)
        if value is None:
            if default is None:
                raise self.fail(f"{self.name} needs the attribute '{names[0]}'")
            return tuple(default)
        if isinstance(value, Dense):
            value = self.dense(value).bounded().reshape(-1).tolist()
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

    def real(self, *names: str) -> float:
        return float(self.need(*names))

    def word(self, *names: str, default: str | None = None) -> str:
        value = self.raw(*names)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.fail(f"{self.name} needs the word '{names[0]}'")
        return value

    def string(self, name: str) -> str:
        value = self.raw(name)
        return value if isinstance(value, str) else ""

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        return default if value is None else bool(value)

    def dense(self, value: Dense, type: Type | None = None) -> Any:
        """A constant of the text. Raises ParseError."""
        stated = value.type or type
        if not isinstance(stated, TensorType):
            raise self.fail("a constant without a tensor type")
        try:
            return dense_value(value, stated)
        except AttributeFault as e:
            raise self.fail(e.message, e.expected) from None

    # --- results

    def opaque(self) -> list[Node]:
        """Those of the operation kept as it stands."""
        self.lowering.keeps(self.op)
        if not self.results:
            return []
        text = self.lowering.text(self.op)[:MOST_KEPT]
        name = " ".join(filter(None, (self.name, self.op.extra.get("symbol", ""))))
        type = self.results[0] if len(self.results) == 1 else TupleType(tuple(self.results))
        node = self(ops.opaque, *self.inputs, name=name, attributes=text, type=type, language="stablehlo")
        return [node] if len(self.results) == 1 else several(self, node)

    # --- regions

    def body(self, name: str = "", k: int = 0) -> Function:
        if "applies" in self.op.extra:
            return self._applied(self.op.extra["applies"])
        return self.lowering.body(self.op, k, self.scope)

    def _applied(self, name: str) -> Function:
        op = APPLIED.get(name)
        if op is None or len(self.inputs) != 2:
            raise self.fail(f"cannot apply '{name}'", ", ".join(APPLIED))
        return monoid_body(op, as_tensor(self.inputs[0].type).dtype)

    def passes_on(self, k: int, argument: int) -> bool:
        """Whether region k returns one of its arguments, counted without tokens, in the place that it has."""
        block = self.op.regions[k][0]
        names = [arg.name for arg in block.args if arg.type != STATE]
        last = block.operations[-1]
        return len(last.operands) == len(block.args) == len(names) and last.operands[argument][0] == names[argument]

    def region(self, k: int, args: Sequence[Node]) -> list[Node]:
        """What region k gives for these arguments."""
        return self.lowering.region(self.op, k, args, self.scope)
