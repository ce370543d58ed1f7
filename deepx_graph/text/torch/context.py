"""What the rule of an operator sees of a call: arguments by name, declared results, known values, graphs within it.

A rule raises InferError (or the builder VerifyError) where arguments do not fit, NotKnown where it depends on what the inputs of a
run will tell, Unsupported for a form that it does not know; the caller adds the place, or defers the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.known_steps import KnownSteps
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.torch.promotion import result_type
from deepx_graph.text.torch.schema import ExportedNode, Name, NestedGraph
from deepx_graph.text.torch.tensors import TensorMeta
from deepx_graph.types import BOOL, F64, I64, Dim, DType

if TYPE_CHECKING:
    from deepx_graph.text.torch.calls import CallLowering

Value = Any
"""None, a number, text, an element type, a Node, a SymbolicNumber, a NestedGraph, or a tuple of such."""


@dataclass(frozen=True)
class SymbolicNumber:
    """A number that is only known when the program runs, as a node without axes; `size` is the expression that it is, if any."""

    node: Node
    size: Dim | None = None


Rule = Callable[["CallContext"], Any]
"""Gives the node of the only result, or a list of values for all of them."""

Rules = Mapping[str, Rule]
"""Rules by operator, `aten.add` for all overloads or `aten.add.Tensor` for one."""

Key = int | str


class CallContext(KnownSteps):
    """One call being lowered. `self(op, ...)` builds a node."""

    def __init__(self, lowering: CallLowering, call: ExportedNode, arguments: Mapping[str, Value], positional: Sequence[Value],
                 declared: Sequence[TensorMeta | None]) -> None:
        super().__init__(lowering.b, lowering.known)
        self.lowering, self.call, self.arguments, self.positional = lowering, call, arguments, positional
        self.declared = declared
        """What the program says of each result."""

    # --- arguments

    def get(self, key: Key, default: Value = None) -> Value:
        """An argument by name, or by number among those that are not given by name; the default where it is left out."""
        by_number = isinstance(key, int) and key < len(self.positional)
        found = self.positional[key] if by_number else self.arguments.get(key)  # type: ignore[index, arg-type]
        return default if found is None else found

    def has(self, key: Key) -> bool:
        """Whether an argument is given and is not None."""
        return self.get(key) is not None

    def node(self, key: Key = 0) -> Node:
        """An argument that is a tensor. Raises InferError."""
        found = self.get(key)
        if isinstance(found, SymbolicNumber):
            return found.node
        if isinstance(found, (bool, int, float, complex)):
            return self.scalar(found, result_type([found]))
        if not isinstance(found, Node):
            raise InferError(f"argument {self._label(key)} is {'missing' if found is None else 'no tensor'}", expected="a tensor")
        return found

    def optional(self, key: Key) -> Node | None:
        return self.node(key) if self.has(key) else None

    def nodes(self, key: Key = 0) -> list[Node]:
        """An argument that is a list of tensors, at least one."""
        found = self.get(key)
        if not isinstance(found, tuple) or not found or not all(isinstance(n, Node) for n in found):
            raise InferError(f"argument {self._label(key)} is no list of tensors", expected="one or more tensors")
        return list(found)

    def _label(self, key: Key) -> str:
        return f"'{key}'" if isinstance(key, str) else f"number {key}"

    def number(self, key: Key, default: int | None = None) -> int:
        """A whole number, which may follow from sizes. Raises NotKnown."""
        return self.whole(self.get(key, default), self._label(key))

    def whole(self, value: Value, what: str = "an argument") -> int:
        """A value as a whole number. Raises NotKnown for one that is not known yet."""
        if isinstance(value, SymbolicNumber):
            value = self.known(value.node).reshape(-1)[0].item()
        if isinstance(value, Node):
            found = self.known(value)
            value = found.reshape(-1)[0].item() if found.size == 1 else None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, (bool, int)):
            raise InferError(f"{what} is {_shown(value)}", expected="a whole number")
        return int(value)

    def size(self, value: Value) -> Dim:
        """A value as a size: a number, or else the symbol that it is. Raises NotKnown."""
        if isinstance(value, SymbolicNumber) and value.size is not None:
            found = self.values(value.node)
            return value.size if found is None else int(np.asarray(found).reshape(-1)[0])
        return self.whole(value, "a size")

    def sizes(self, key: Key, default: Sequence[Dim] | None = None) -> tuple[Dim, ...]:
        """A list of sizes; one alone counts as a list."""
        found = self.get(key, default)
        return tuple(map(self.size, found if isinstance(found, (tuple, list)) else (found,)))

    def ints(self, key: Key, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of whole numbers; one alone counts as a list."""
        found = self.get(key, default)
        return tuple(self.whole(v, self._label(key)) for v in (found if isinstance(found, (tuple, list)) else (found,)))

    def real(self, key: Key, default: float | None = None) -> float:
        value = self.get(key, default)
        if isinstance(value, SymbolicNumber):
            value = self.known(value.node).reshape(-1)[0].item()
        if not isinstance(value, (bool, int, float)):
            raise InferError(f"argument {self._label(key)} is {_shown(value)}", expected="a number")
        return float(value)

    def flag(self, key: Key, default: bool = False) -> bool:
        return bool(self.number(key, int(default)))

    def text(self, key: Key, default: str = "") -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise InferError(f"argument {self._label(key)} is {_shown(value)}", expected="text")
        return value

    def one_of(self, key: Key, default: str, *choices: str) -> str:
        """Text that is one of a few words."""
        value = self.text(key, default)
        if value not in choices:
            raise InferError(f"argument {self._label(key)} is '{value:.40}'", expected=" | ".join(choices))
        return value

    def element_type(self, key: Key, default: DType) -> DType:
        value = self.get(key, default)
        if not isinstance(value, DType):
            raise InferError(f"argument {self._label(key)} is {_shown(value)}", expected="an element type")
        return value

    def graph(self, key: Key) -> NestedGraph:
        value = self.get(key)
        if not isinstance(value, NestedGraph):
            raise InferError(f"argument {self._label(key)} is {_shown(value)}", expected="a graph")
        return value

    def axis(self, key: Key = "dim", default: int | None = None, x: Node | None = None) -> int:
        """An axis of a tensor, counted from the end where it is negative; of one without axes, 0."""
        rank = len(self.dims_of(self.node() if x is None else x))
        return axis_of(self.number(key, default), max(rank, 1))

    def axes(self, key: Key = "dim", x: Node | None = None) -> tuple[int, ...]:
        """Axes of a tensor in order; all where none are given."""
        rank = len(self.dims_of(self.node() if x is None else x))
        given = self.ints(key, ()) or tuple(range(rank))
        return tuple(sorted({axis_of(a, max(rank, 1)) for a in given if rank}))

    # --- results

    def result(self, k: int = 0) -> TensorMeta:
        """What the program says of a result. Raises InferError where it says nothing."""
        meta = self.declared[k] if k < len(self.declared) else None
        if meta is None:
            raise InferError(f"the program does not say of which type result {k} is")
        return meta

    def result_type(self, k: int = 0) -> DType:
        return self.result(k).dtype

    def result_shape(self, k: int = 0) -> tuple[int, ...]:
        """The declared sizes of a result, all known. Raises NotKnown."""
        return self.static(self.result(k).sizes, "the result")

    # --- elementwise

    def as_node(self, value: Value, dtype: DType) -> Node:
        """A tensor or number as a tensor of that element type."""
        if isinstance(value, (bool, int, float, complex)):
            return self.scalar(value, dtype)
        if not isinstance(value, (Node, SymbolicNumber)):
            raise InferError(f"an operand is {_shown(value)}", expected="a tensor or a number")
        return self.to(value.node if isinstance(value, SymbolicNumber) else value, dtype)

    def to(self, x: Node, dtype: DType) -> Node:
        """Elements in another type as torch converts them: all but zero is true."""
        if self.dtype_of(x) is dtype:
            return x
        if dtype is BOOL:
            return self(ops.compare, x, self.like(0, x), direction="NE")
        if self.dtype_of(x).kind == "complex" and dtype.kind != "complex":
            x = self(ops.real, x)
        return self.cast(x, dtype)

    def pair(self, first: Key = 0, second: Key = 1, least: DType | None = None) -> tuple[Node, Node]:
        """Two operands in the element type that torch brings them to, broadcast. `least` is what integers become."""
        dtype = result_type([self.get(first), self.get(second)])
        if least is not None and not (dtype.is_float or dtype.kind == "complex"):
            dtype = least
        x, y = self.broadcast(self.as_node(self.get(first), dtype), self.as_node(self.get(second), dtype))
        return x, y

    def write(self, key: str, value: Node) -> None:
        """A new value for an argument that the operator writes to."""
        name = next((v for n, _, v in self.call.arguments if n == key), None)
        if isinstance(name, Name):
            self.lowering.write(name.text, value)

    # --- graphs within

    def body(self, graph: NestedGraph, args: Sequence[Value]) -> list[Value]:
        """What a graph within the call gives for its inputs."""
        return self.lowering.body(graph, args)

    def number_of(self, node: Node) -> SymbolicNumber:
        """A node without axes as a number of the program."""
        return SymbolicNumber(self.cast(node, I64 if not self.dtype_of(node).is_float else F64))


def _shown(value: Value) -> str:
    if isinstance(value, (Node, SymbolicNumber)):
        return "a tensor"
    return "missing" if value is None else f"{value!r:.40}"
