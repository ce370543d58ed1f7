"""Signatures of operations: operands, attributes and results, each with a constraint in words.

Also how the inputs of a node fall to the operands. Nothing here knows a particular operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.ir.constraint import TENSOR, VALUE, Constraint
from deepx_graph.types import Type

REQUIRED: Any = type("Required", (), {"__repr__": lambda _: "required"})()
"""Marks an attribute without a default."""


@dataclass(frozen=True)
class Operand:
    """One operand; one that may be left out (`optional`); or a run of any number of them (`variadic`).

    An op has at most one optional operand or run, or several runs that are equally long, or an attribute SEGMENTS that says
    how many inputs each operand takes.
    """

    name: str
    summary: str = ""
    variadic: bool = False
    optional: bool = False
    type: Constraint = VALUE

    @property
    def single(self) -> bool:
        """Always exactly one input."""
        return not (self.variadic or self.optional)

    @property
    def shown(self) -> str:
        """`x`, `x...` for any number, `x?` for one or none."""
        return self.name + ("..." if self.variadic else "?" if self.optional else "")


@dataclass(frozen=True)
class Result:
    """One result of an op; an op with several gives a tuple of them, taken apart by `proj`."""

    name: str = "result"
    summary: str = ""
    variadic: bool = False
    type: Constraint = TENSOR


MANY = (Result("results", "one for each input", variadic=True),)
"""The results of an op that has as many as inputs: a tuple of them, or one that is none."""


@dataclass(frozen=True)
class Attr:
    """An attribute: `kind` names the form of its value, `check` confines it, a default of None makes it optional.

    Values are hashable and frozen: int, float, bool, str, DType, Type, Literal, Function, and tuples of these. Where the
    type of the result tells the value, `from_type` takes it from there, and text need not repeat it. A list of numbers that
    are all `neutral` changes nothing, as strides of 1 and paddings of 0 do.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    summary: str = ""
    check: Constraint | None = None
    from_type: Callable[[Type], Any] | None = None
    neutral: int | None = None

    def is_plain(self, value: Any) -> bool:
        """Whether the value is the default or neutral, so that one who reads of a node need not be told it."""
        return bool(value == self.default or (self.neutral is not None and all(v == self.neutral for v in value)))


KINDS: dict[str, Callable[[Any], bool]] = {
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "float": lambda v: isinstance(v, float),
    "bool": lambda v: isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "ints": lambda v: isinstance(v, tuple) and all(isinstance(i, int) and not isinstance(i, bool) for i in v),
    "dims": lambda v: isinstance(v, tuple) and all(isinstance(i, (int, str)) and not isinstance(i, bool) for i in v),
    "dtype": lambda v: type(v).__name__ == "DType",
    "type": lambda v: isinstance(v, Type),
    "literal": lambda v: type(v).__name__ == "Literal",
    "function": lambda v: type(v).__name__ == "Function",
    "any": lambda v: hash(v) is not None,
    "transient": lambda v: hash(v) is not None,
}
"""The forms an attribute value can have. A `transient` one is an object of this process, which no text has."""

SEGMENTS = "operand_segment_sizes"
"""The attribute that says how many inputs each operand takes, where their number alone does not."""


def portions(operands: Sequence[Operand], count: int, segments: Sequence[int] | None = None) -> tuple[int, ...]:
    """The number of inputs, of `count`, that each operand takes. Raises InferError when they do not come out even."""
    runs = sum(not o.single for o in operands)
    rest = count - (len(operands) - runs)
    if segments is not None:
        sizes = tuple(segments)
        fits = len(sizes) == len(operands) and sum(sizes) == count
    else:
        sizes = tuple(1 if o.single else rest // runs for o in operands)
        fits = rest >= 0 and rest % (runs or rest + 1) == 0
    if not fits or not all(s >= 0 if o.variadic else 0 <= s <= 1 if o.optional else s == 1
                           for o, s in zip(operands, sizes, strict=True)):
        least = sum(o.single for o in operands)
        raise InferError(f"takes {'at least ' if runs else ''}{least} operands and got {count}",
                         expected=f"({', '.join(o.shown for o in operands)})")
    return sizes
