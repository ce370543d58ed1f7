"""Instructions with operands as written, and the functions that hold them: every dialect of deepx is parsed into these.

Nothing is interpreted here: an operand is its text, its position and its type tag; whether it is a tensor, a number or a list is
decided by the operation that takes it (`line`). Records are immutable tuples, because a file may hold very many of them.
A number keeps its full precision until the dtype of the tensor beside it is known: integers are exact, floats are doubles.
Conversion to an integer type truncates toward zero and wraps, as C casts do.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from deepx_graph.errors import Diagnostic, InferError, ParseError, Source, Span, VerifyError, suggest
from deepx_graph.ops.host.host import DEEPX_DTYPES
from deepx_graph.types import ANY, BF16, BOOL, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, DType, TensorType

MAX_PROBLEMS = 100
"""How many errors of one file are collected before reading stops."""

MAX_LINE = 1 << 20
"""Characters of one line; deepx's own server takes 1024 bytes."""

DTYPE_WORDS: dict[str, DType] = {
    **DEEPX_DTYPES, "any": ANY, "int": ANY, "float": ANY, "float8": ANY, "string": ANY,
}  # fmt: skip
"""Element types as dialects A to E write them; the classes of types and `string` say nothing about a tensor's elements."""

SHORT_DTYPES: dict[str, DType] = {
    "f16": F16, "f32": F32, "f64": F64, "bf16": BF16, "bf8": F8E5M2, "i8": I8, "i16": I16, "i32": I32, "i64": I64, "u8": U8,
    "bool": BOOL,
}  # fmt: skip
"""Element types as dialect F writes them."""

CATEGORIES = ("tensor", "vector", "var", "listtensor")
"""What a type tag of dialects D and E can say an operand is."""

Number = int | float
"""A literal; bools are the ints 0 and 1 in Python too."""

_INTEGER = re.compile(r"[+-]?\d{1,400}")
_FLOAT = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,6})?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_WORDS: dict[str, bool] = {"true": True, "false": False}


class Arg(NamedTuple):
    """One operand as written: its text and offsets, its type tag if it has one, the items of a `[...]`, its gradient's name."""

    text: str
    start: int
    end: int
    category: str = ""
    dtype: DType | None = None
    items: tuple[Arg, ...] | None = None
    grad: Arg | None = None


class Instr(NamedTuple):
    """One instruction; `backward` is the direction of its arrow, `metadata` the text after `//`."""

    op: Arg
    dtype: DType | None
    inputs: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    start: int
    end: int
    backward: bool = False
    has_arrow: bool = True
    metadata: str = ""

    def facts(self) -> dict[str, str]:
        """The `key=value` pairs of the metadata."""
        pairs = (word.partition("=") for word in self.metadata.split())
        return {key: value for key, equals, value in pairs if equals}


class Formal(NamedTuple):
    """A parameter or result of a function: its kind is `tensor`, `scalar` or `list`, `type` what is known of a tensor."""

    name: Arg
    kind: str
    type: TensorType


class FunctionText(NamedTuple):
    """A function of dialect F."""

    name: Arg
    params: tuple[Formal, ...]
    results: tuple[Formal, ...]
    body: tuple[Instr, ...]


class Problems:
    """Errors and warnings of one file, in the order in which they are met."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []

    @property
    def is_full(self) -> bool:
        return len(self.errors) >= MAX_PROBLEMS

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    def warn(self, message: str, start: int, end: int, *, expected: str | None = None, hint: str | None = None) -> None:
        if len(self.warnings) < MAX_PROBLEMS:
            self.warnings.append(Diagnostic(message, self.span(start, end), expected, hint, "warning"))

    def note(self, message: str, start: int, end: int, *, expected: str | None = None, hint: str | None = None) -> None:
        """Records an error, after which reading goes on."""
        self.errors.append(Diagnostic(message, self.span(start, end), expected, hint))

    def verify_error(self, message: str, arg: Arg, *, expected: str | None = None, hint: str | None = None,
                     notes: tuple[str, ...] = ()) -> VerifyError:
        """An error at an operand, to be raised."""
        return VerifyError(Diagnostic(message, self.span(arg.start, max(arg.end, arg.start + 1)), expected, hint, notes=notes))

    def parse_error(self, message: str, start: int, end: int, *, expected: str | None = None,
                    hint: str | None = None) -> ParseError:
        """An error at those offsets, to be raised."""
        return ParseError(Diagnostic(message, self.span(start, end), expected, hint))

    def check_length(self, start: int, end: int) -> None:
        """Raises ParseError for a line longer than `MAX_LINE`, before time and memory are spent on it."""
        if end - start > MAX_LINE:
            raise self.parse_error(f"a line of {end - start} characters", start, start + 1, expected=f"at most {MAX_LINE}")

    def dtype(self, word: str, start: int, table: dict[str, DType]) -> DType:
        """The element type of that name. Raises ParseError, with the nearest name, when there is none."""
        found = table.get(word)
        if found is None:
            raise self.parse_error(f"unknown element type '{word}'", start, start + max(1, len(word)),
                                   expected=", ".join(table), hint=suggest(word, table))
        return found


# --- numbers and bools --------------------------------------------------------------------------------------------


def parse_number(text: str) -> Number | None:
    """The number that the whole text is, or None."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else None


def parse_bool(text: str) -> bool | None:
    """True or False in any case of letters, or None."""
    return _WORDS.get(text.lower())


def parse_literal(text: str) -> Number | None:
    """The number or bool that the whole text is, or None."""
    number = parse_number(text)
    return parse_bool(text) if number is None else number


def cast(value: Number, dtype: DType) -> Number:
    """The number as an element of `dtype`, as a C cast gives it. Raises InferError for an infinity or NaN as an integer."""
    if dtype.kind == "bool":
        return bool(value)
    if not dtype.is_integer:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if not math.isfinite(value):
        raise InferError(f"{value} as an element of type {dtype}", expected="a finite number")
    whole = int(value)
    half = 1 << (dtype.bits - 1) if dtype.kind == "int" else 0
    return (whole + half) % (1 << dtype.bits) - half
