"""What the rule of a primitive sees of a call: inputs as nodes or plain values, attributes as plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Literal
from deepx_graph.text.relay.reader.context import Context
from deepx_graph.text.relay.rules.table import RULES as OPERATORS
from deepx_graph.types import F32, I64

Rule = Callable[["Args"], Node]


class Args:
    """One call of a primitive: its inputs, and the primitive's own attributes as plain values."""

    def __init__(self, b: Builder, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
        self.b, self.name, self.inputs, self.attrs = b, name, inputs, attrs

    def node(self, k: int, like: Node | None = None) -> Node:
        """An input as a node; a plain number in the element type of `like`, else as MindSpore has it: int64 or float32."""
        if k >= len(self.inputs):
            raise InferError(f"{self.name} has {len(self.inputs)} inputs", expected=f"at least {k + 1}")
        return self.made(self.inputs[k], like)

    def made(self, value: Any, like: Node | None = None) -> Node:
        """A plain value as a node."""
        if isinstance(value, Node):
            return value
        if isinstance(value, Literal):
            return self.b.literal(value)
        if isinstance(value, tuple):
            return self.b.pack(*(self.made(v, like) for v in value))
        if isinstance(value, (bool, int, float)):
            if like is not None:
                return self.b.like(value, like)
            return self.b.constant(value, None if isinstance(value, bool) else F32 if isinstance(value, float) else I64)
        raise InferError(f"{self.name}: an input is {value!r}", expected="a tensor or a number")

    def plain(self, k: int, name: str, default: Any = None) -> Any:
        """Input k, or the attribute of that name, as a plain value. Raises InferError for what is computed."""
        value = self.inputs[k] if 0 <= k < len(self.inputs) else self.attrs.get(name)
        if isinstance(value, Literal):
            value = value.bounded().tolist()
        if isinstance(value, Node):
            value = self._known(value, name)
        if isinstance(value, list):
            value = tuple(value)
        return default if value is None else value

    def _known(self, node: Node, name: str) -> Any:
        if node.op is CONSTANT:
            return value_of(node).bounded().tolist()
        raise InferError(f"{self.name}: '{name}' is computed", expected="a constant")

    def ints(self, k: int, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self.plain(k, name, default)
        value = (value,) if isinstance(value, int) else value
        if not isinstance(value, (tuple, list)) or not all(isinstance(v, int) for v in value):
            raise InferError(f"{self.name}: '{name}' is {value!r}", expected="integers")
        return tuple(value)

    def relay(self, operator: str, *inputs: Node, **attrs: Any) -> Node:
        """What Relay's operator of that name builds."""
        return OPERATORS[operator].build(Context(self.b, operator, inputs, attrs))

    def pair(self) -> tuple[Node, Node]:
        """Two inputs, a plain number in the type of the other."""
        if len(self.inputs) < 2:
            raise InferError(f"{self.name} has {len(self.inputs)} inputs", expected="2")
        first, second = self.inputs[:2]
        if not isinstance(first, (Node, Literal)):
            y = self.node(1)
            return self.made(first, y), y
        x = self.node(0)
        return x, self.made(second, x)
