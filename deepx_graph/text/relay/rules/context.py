"""What the rule of an operator sees of a call: operands as nodes, attributes as plain values.

A rule raises InferError (or the builder VerifyError) where operands and attributes do not fit; the caller adds the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import CONSTANT, TUPLE, value_of
from deepx_graph.literal import Array
from deepx_graph.text.common.steps import Steps, axis_of, ranked
from deepx_graph.text.relay.words import dtype_of_name
from deepx_graph.types import DType, TensorType, TupleType, as_tensor

MAX_COUNT = 1 << 14
"""How many parts or axes one operator makes."""


class Context(Steps):
    """One call being lowered. `self(op, ...)` builds a node."""

    def __init__(self, b: Builder, name: str, args: Sequence[Node], attrs: dict[str, Any]) -> None:
        super().__init__(b)
        self.name, self.args, self.attrs = name, list(args), attrs

    # --- operands

    def type(self, k: int = 0) -> TensorType:
        return as_tensor(self.args[k].type, k)

    def known(self, k: int = 0) -> TensorType:
        """The type of an operand whose rank is known. Raises InferError."""
        return ranked(self.args[k])

    def items(self, k: int = 0) -> list[Node]:
        """The items of a tuple operand."""
        type = self.args[k].type
        if not isinstance(type, TupleType):
            raise InferError(f"operand {k} is {an(type)}", operand=k, expected="a tuple of tensors")
        if self.args[k].op is TUPLE:
            return list(self.args[k].inputs)
        return [self.b.proj(self.args[k], j) for j in range(len(type.items))]

    def static(self, k: int) -> Array:
        """The value of an operand that must be a constant, an option as it were. Raises InferError."""
        node = self.args[k]
        if node.op is not CONSTANT:
            raise InferError(f"operand {k} is not a constant", operand=k, expected="a constant")
        return value_of(node).bounded()

    # --- attributes

    def attr(self, name: str, default: Any = None) -> Any:
        value = self.attrs.get(name, default)
        return default if value is None else value

    def _typed(self, name: str, default: Any, kinds: tuple[Any, ...], expected: str) -> Any:
        """An attribute of one of these kinds; a bool is no number. Raises InferError."""
        value = self.attr(name, default)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.wrong(name, expected)
        return value

    def number(self, name: str, default: int | None = None) -> int:
        return int(self._typed(name, default, (int,), "an integer"))

    def real(self, name: str, default: float | None = None) -> float:
        return float(self._typed(name, default, (int, float), "a number"))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._typed(name, default, (bool, int), "True or False"))

    def text(self, name: str, default: str = "") -> str:
        return str(self._typed(name, default, (str,), "a string"))

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self.attr(name, default)
        value = (value,) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(value, (tuple, list)) or not all(isinstance(v, int) for v in value):
            raise self.wrong(name, "a list of integers")
        return tuple(value)

    def sizes(self, name: str, operand: int) -> tuple[int, ...]:
        """A shape: the attribute, or where the operand of that number is given, its constant value. Raises InferError."""
        given = len(self.args) > operand
        found = tuple(int(v) for v in np.ravel(self.static(operand))) if given else self.ints(name)
        if min(found, default=0) < 0:
            raise InferError(f"{name} {list(found)}", expected="sizes from 0")
        return found

    def dtype(self, name: str = "dtype", default: DType | None = None) -> DType:
        value = self.attr(name)
        if (value is None or value == "") and default is not None:
            return default
        found = dtype_of_name(value) if isinstance(value, str) else None
        if found is None:
            raise self.wrong(name, "an element type, like \"float32\"")
        return found

    def wrong(self, name: str, expected: str) -> InferError:
        if self.attr(name) is None:
            return InferError(f"{self.name} needs the attribute '{name}'", expected=f"{name} = {expected}")
        return InferError(f"{self.name}: '{name}' is {self.attrs[name]!r}", expected=expected)

    def count(self, name: str, default: int | None = None) -> int:
        """A number of things that are made. Raises InferError where they are too many."""
        found = self.number(name, default)
        if found > MAX_COUNT:
            raise self.wrong(name, f"at most {MAX_COUNT}")
        return found

    def axis(self, rank: int, name: str = "axis", default: int | None = None) -> int:
        return axis_of(self.number(name, default), rank)


@dataclass(frozen=True)
class Operator:
    """How an operator is built. `arity` is how many operands it takes where it is used as a value."""

    build: Callable[[Context], Node]
    arity: int = 1
    takes_tuple: bool = False
    """Whether an operand may be a tuple."""
