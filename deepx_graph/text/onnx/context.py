"""What the rule of an operator sees of a node: operands, attributes as plain values, known values, graphs within it.

A rule raises InferError (or the builder VerifyError) where operands and attributes do not fit, NotKnown where it depends on what
the inputs of a run will tell; the caller adds the place, or defers the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node
from deepx_graph.ir.structure import TUPLE
from deepx_graph.literal import Array, Literal
from deepx_graph.ops.known import NotKnown
from deepx_graph.ops.known_sizes import known_array, known_sizes
from deepx_graph.text.common.known_steps import KnownSteps
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.schema import GraphProto, NodeProto
from deepx_graph.text.onnx.values import dtype_numbered
from deepx_graph.types import ANY, Dims, DType, TensorType, TupleType, as_tensor

if TYPE_CHECKING:
    from deepx_graph.text.onnx.lower import OnnxGraphLowering

Value = Any
"""A node; a tuple of values, which is a sequence; None for an operand that is left out and for an optional value without one."""

Rule = Callable[["NodeContext"], Any]
"""Gives the node of the first result, or a list of values for all of them."""

Rules = Mapping[str, Rule | Mapping[int, Rule]]
"""Rules by operator; those of an operator that changed by the version since which they hold."""


def rule_since(entry: Rule | Mapping[int, Rule], version: int) -> Rule | None:
    """The rule that holds in a version of the operator set."""
    if callable(entry):
        return entry
    since = max((v for v in entry if v <= version), default=None)
    return None if since is None else entry[since]


class NodeContext(KnownSteps):
    """One node being lowered. `self(op, ...)` builds a node."""

    def __init__(self, lowering: OnnxGraphLowering, message: NodeProto, inputs: Sequence[Value], attrs: dict[str, Any],
                 version: int) -> None:
        super().__init__(lowering.b, lowering.known)
        self.lowering, self.message, self.inputs, self.attrs, self.version = lowering, message, list(inputs), attrs, version
        self.name = message.op_type
        self.wanted = sum(1 for o in message.outputs if o)

    # --- operands

    def has(self, k: int) -> bool:
        """Whether operand k is given."""
        return k < len(self.inputs) and self.inputs[k] is not None

    def node(self, k: int = 0) -> Node:
        """Operand k, a tensor. Raises InferError where it is missing or a sequence."""
        if not self.has(k):
            raise InferError(f"operand {k} is missing", expected=f"at least {k + 1} operands")
        if not isinstance(self.inputs[k], Node) or isinstance(self.inputs[k].type, TupleType):
            raise InferError(f"operand {k} is a sequence", operand=k, expected="a tensor")
        found: Node = self.inputs[k]
        return found

    def nodes(self) -> list[Node]:
        """All operands, at least one."""
        if not self.inputs:
            raise InferError("there are no operands", expected="one or more")
        return [self.node(k) for k in range(len(self.inputs))]

    def sequence(self, k: int = 0) -> tuple[Value, ...]:
        """The items of operand k, a sequence."""
        value = self.inputs[k] if self.has(k) else None
        if isinstance(value, Node) and isinstance(value.type, TupleType):
            return value.inputs if value.op is TUPLE else self.b.items(value)
        if isinstance(value, Node) and as_tensor(value.type).dtype is ANY:
            raise NotKnown(f"the length of operand {k} is not known")
        if not isinstance(value, tuple):
            raise InferError(f"operand {k} is no sequence", operand=k, expected="a sequence")
        return value

    def type(self, k: int = 0) -> TensorType:
        return as_tensor(self.node(k).type, k)

    def dtype(self, k: int = 0) -> DType:
        """The element type of an operand. Raises NotKnown."""
        found = self.type(k).dtype
        if found is ANY:
            raise NotKnown(f"the element type of operand {k} is not known")
        return found

    def dims(self, k: int = 0) -> Dims:
        """The sizes of an operand, symbols among them. Raises NotKnown for an unknown rank."""
        found = self.type(k).dims
        if found is None:
            raise NotKnown(f"the rank of operand {k} is not known")
        return found

    def rank(self, k: int = 0) -> int:
        return len(self.dims(k))

    def shape(self, k: int = 0) -> tuple[int, ...]:
        """The sizes of an operand, all known. Raises NotKnown."""
        return self.static(self.dims(k), f"operand {k}")

    # --- values

    def known(self, x: Node) -> Array:
        """The value of a node; of a vector of sizes also where only other sizes are symbols. Raises NotKnown."""
        found = known_array(x, self.values)
        return super().known(x) if found is None else found

    def value(self, k: int) -> Array:
        """The value of operand k, which is an option as it were. Raises NotKnown."""
        return self.known(self.node(k))

    def ints_at(self, k: int) -> tuple[int, ...]:
        """Operand k as integers. Raises NotKnown."""
        found = self.value(k)
        if found.dtype.kind not in "iu" or found.size > 1 << 20:
            raise InferError(f"operand {k} is {an(self.type(k))}", operand=k, expected="a few integers")
        return tuple(int(v) for v in found.reshape(-1))

    def sizes_at(self, k: int) -> Dims:
        """Operand k as sizes, symbols of types among them. Raises NotKnown."""
        found = known_sizes(self.node(k), self.values)
        if found is None or None in found:
            return self.ints_at(k)
        return found  # type: ignore[return-value]

    def number_at(self, k: int) -> Any:
        """Operand k, one number. Raises NotKnown."""
        found = self.value(k).reshape(-1)
        if found.size != 1:
            raise InferError(f"operand {k} is {an(self.type(k))}", operand=k, expected="one number")
        return found[0].item()

    # --- attributes

    def given(self, name: str) -> bool:
        return name in self.attrs

    def _attr(self, name: str, default: Any, kinds: tuple[Any, ...], expected: str) -> Any:
        if name not in self.attrs:
            if default is None:
                raise InferError(f"the attribute '{name}' is missing", expected=f"{name} = {expected}")
            return default
        value = self.attrs[name]
        if not isinstance(value, kinds):
            raise InferError(f"'{name}' is {value!r:.60}", expected=expected)
        return value

    def number(self, name: str, default: int | None = None) -> int:
        return int(self._attr(name, default, (int,), "an integer"))

    def real(self, name: str, default: float | None = None) -> float:
        return float(self._attr(name, default, (int, float), "a number"))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._attr(name, default, (int,), "0 or 1"))

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._attr(name, default, (str,), "text"))

    def one_of(self, name: str, default: str, *choices: str) -> str:
        """Text that is one of a few words."""
        value = self.text(name, default)
        if value not in choices:
            raise InferError(f"{name} = '{value:.40}'", expected=" | ".join(choices))
        return value

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self._attr(name, None if default is None else tuple(default), (tuple,), "integers")
        if not all(isinstance(v, int) for v in value):
            raise InferError(f"'{name}' is {value!r:.60}", expected="integers")
        return tuple(value)

    def reals(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        value = self._attr(name, None if default is None else tuple(default), (tuple,), "numbers")
        return tuple(float(v) for v in value)

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        value = self._attr(name, None if default is None else tuple(default), (tuple,), "texts")
        return tuple(str(v) for v in value)

    def literal(self, name: str) -> Literal:
        found: Literal = self._attr(name, None, (Literal,), "a tensor")
        return found

    def graph(self, name: str) -> GraphProto:
        found: GraphProto = self._attr(name, None, (GraphProto,), "a graph")
        return found

    def element_type(self, name: str, default: DType | None = None) -> DType:
        """An attribute that is the number of an element type."""
        if default is not None and name not in self.attrs:
            return default
        return dtype_numbered(self.number(name))

    def axis(self, name: str = "axis", default: int | None = None, k: int = 0) -> int:
        """An attribute that is an axis of operand k, counted from the end where it is negative."""
        return axis_of(self.number(name, default), self.rank(k))

    def axes_at(self, k: int, name: str = "axes") -> tuple[int, ...] | None:
        """Axes that are operand k, or in older versions an attribute; None where they are left out."""
        return self.ints_at(k) if self.has(k) else self.ints(name) if self.given(name) else None

    # --- graphs within

    def body(self, graph: GraphProto, args: Sequence[Value]) -> list[Value]:
        """The values that a graph within the node gives for its inputs."""
        return self.lowering.body(graph, args)
