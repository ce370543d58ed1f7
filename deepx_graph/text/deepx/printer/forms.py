"""Instructions as text of the dialects that are written: A (seed), E (wire) and F (function form).

The printer makes the same instructions for all three, out of the operands defined here; a form turns one into lines and says which
names, element types and texts it can hold. Forms know no graph.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from deepx_graph.ops.host.host import DEEPX_DTYPES
from deepx_graph.text.deepx.reader.functions import KEYWORDS
from deepx_graph.text.deepx.reader.instr import SHORT_DTYPES, parse_bool, parse_number
from deepx_graph.types import ANY, Dim, DType, TensorType


class Tensor(NamedTuple):
    """A tensor by its name."""

    name: str
    type: TensorType


class Number(NamedTuple):
    """A literal number, of the element type that it is used as."""

    text: str
    dtype: DType


class Argument(NamedTuple):
    """A scalar parameter by its name."""

    name: str
    type: TensorType


class Vector(NamedTuple):
    """Integers: a shape, axes, an order."""

    items: tuple[Dim, ...]


class Flag(NamedTuple):
    """A bool."""

    value: bool


class Tensors(NamedTuple):
    """A list of tensors."""

    items: tuple[Tensor, ...]


class Text(NamedTuple):
    """A path, a format, a new name."""

    text: str


Operand = Tensor | Number | Argument | Vector | Flag | Tensors | Text


class Instruction(NamedTuple):
    """One instruction; `dtype` is what `@` says in dialect A. With `gradients`, pairs of a tensor's name and that of its gradient
    or nothing, it goes backwards, which only dialect A can say."""

    op: str
    operands: tuple[Operand, ...]
    results: tuple[Tensor, ...] = ()
    dtype: DType | None = None
    gradients: tuple[tuple[str, str], ...] = ()

    @property
    def reads(self) -> list[Tensor | Argument]:
        """The tensors and scalar parameters among the operands."""
        each = (t for o in self.operands for t in (o.items if isinstance(o, Tensors) else (o,)))
        return [t for t in each if isinstance(t, (Tensor, Argument))]


class Form:
    """Base of the dialects; `dtypes` are the element types by their words there."""

    name: ClassVar[str]
    dtypes: ClassVar[dict[DType, str]] = {d: word for word, d in DEEPX_DTYPES.items()}
    has_functions: ClassVar[bool] = False
    states_types: ClassVar[bool] = False
    """Whether an instruction states the element types of its results."""
    infinity: ClassVar[str] = "inf"
    legal_name: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
    legal_text: ClassVar[re.Pattern[str]]

    def lines(self, instruction: Instruction) -> Iterator[str]:
        """The instruction as one line or several."""
        raise NotImplementedError

    def accepts_name(self, name: str) -> bool:
        """Whether a tensor can have this name here."""
        return bool(self.legal_name.fullmatch(name)) and not _is_literal(name)

    def accepts_argument(self, name: str) -> bool:
        """Whether a scalar parameter can have this name here: where it stands, a literal might."""
        return self.accepts_name(name) and not _is_literal(name)


@dataclass
class Seed(Form):
    """Dialect A: numbers and vectors are set as named arguments first. `fresh` gives names that nothing else has."""

    name = "seed"
    legal_text = re.compile(r"(?!.*(?://|->|<-))[^\s()\[\],<>\x00-\x1f\x7f-\x9f]+")
    fresh: Iterator[str]
    fresh_vectors: Iterator[str]
    known: dict[tuple[DType | None, str], str] = field(default_factory=dict)

    def lines(self, instruction: Instruction) -> Iterator[str]:
        if not instruction.operands:
            yield f"{instruction.op} {' '.join(t.name for t in instruction.results)}"
            return
        words: list[str] = []
        grads = dict(instruction.gradients)

        def called(t: Tensor | Argument) -> str:
            return f"{t.name}({grads[t.name]})" if t.name in grads else t.name

        for operand in instruction.operands:
            match operand:
                case Number(text, dtype):
                    words.append((yield from self._argument(dtype, text, self.fresh)))
                case Vector(items):
                    text = " ".join(map(str, items)) or "[]"
                    words.append((yield from self._argument(None, text, self.fresh_vectors)))
                case Tensors(items=tensors):
                    words += map(called, tensors)
                case Tensor() | Argument():
                    words.append(called(operand))
                case Text(text):
                    words.append(text)
        op = instruction.op.removesuffix("scalar") + "_scalar" if instruction.op.endswith("scalar") else instruction.op
        head = op if instruction.dtype in (None, ANY) else f"{op}@{self.dtypes[instruction.dtype]}"
        arrow = "<-" if grads else "->"
        outputs = f"{arrow}{' '.join(map(called, instruction.results))}" if instruction.results else ""
        yield f"{' '.join([head, *words])}{outputs}"

    def _argument(self, dtype: DType | None, text: str, fresh: Iterator[str]) -> Generator[str, None, str]:
        key = (dtype, text)
        if key not in self.known:
            self.known[key] = next(fresh)
            yield f"argset@{'int32' if dtype is None or dtype.kind == 'bool' else self.dtypes[dtype]} {text}->{self.known[key]}"
        return self.known[key]


class Wire(Form):
    """Dialect E: every operand with its type."""

    name = "wire"
    states_types = True
    legal_name = re.compile(r"[A-Za-z0-9_][\w.]*", re.ASCII)
    legal_text = re.compile(r"(?!.*(?://|->|<-))(?! )[^,\[\]\x00-\x1f\x7f-\x9f]+(?<! )")

    def lines(self, instruction: Instruction) -> Iterator[str]:
        left, right = (", ".join(map(self._operand, part)) for part in (instruction.operands, instruction.results))
        yield f"{instruction.op} ({left}) -> ({right})"

    def accepts_name(self, name: str) -> bool:
        return bool(self.legal_name.fullmatch(name))

    def _operand(self, operand: Operand) -> str:
        match operand:
            case Tensor(name, type):
                return f"tensor<{self._word(type.dtype)}>:{name}"
            case Number(text, dtype):
                return f"var<{'float32' if dtype.is_float else 'int32'}>:{text}"
            case Argument(name, type):
                return f"var<{self._word(type.dtype)}>:{name}"
            case Vector(items):
                return f"vector<int32>:[{' '.join(map(str, items))}]"
            case Flag(value):
                return f"var<bool>:{value}"
            case Tensors(items=tensors):
                return f"listtensor<{self._word(tensors[0].type.dtype)}>:[{' '.join(t.name for t in tensors)}]"
            case Text(text):
                return f"var<string>:{text}"

    def _word(self, dtype: DType) -> str:
        return "any" if dtype is ANY else self.dtypes[dtype]


class Functional(Form):
    """Dialect F: calls inside functions."""

    name = "function"
    dtypes = {d: word for word, d in SHORT_DTYPES.items()}  # noqa: RUF012
    has_functions = True
    infinity = "1e999"
    legal_text = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)

    def lines(self, instruction: Instruction) -> Iterator[str]:
        left = ", ".join(map(self._operand, instruction.operands))
        right = ", ".join(t.name for t in instruction.results)
        yield f"  {instruction.op}({left})-> {right if len(instruction.results) == 1 else f'({right})'}"

    def accepts_name(self, name: str) -> bool:
        return super().accepts_name(name) and name not in KEYWORDS and name not in SHORT_DTYPES

    def _operand(self, operand: Operand) -> str:
        match operand:
            case Tensor() | Argument():
                return operand.name
            case Number(text) | Text(text):
                return text
            case Vector(items):
                return f"[{','.join(map(str, items))}]"
            case Flag(value):
                return "true" if value else "false"
            case Tensors(items=tensors):
                return f"[{','.join(t.name for t in tensors)}]"


def _is_literal(name: str) -> bool:
    return parse_number(name) is not None or parse_bool(name) is not None


def number_text(value: object, dtype: DType, infinity: str) -> str:
    """An element as a literal: the shortest text that gives the same element again."""
    if dtype.kind in ("bool", "int", "uint") or isinstance(value, int):
        return str(int(value))  # type: ignore[call-overload]
    exact = float(value)  # type: ignore[arg-type]
    if exact in (float("inf"), float("-inf")):
        return infinity if exact > 0 else f"-{infinity}"
    assert dtype.np is not None
    short = str(value)
    if short == "-0":  # which reads as a whole number, of which there is one zero
        return "-0.0"
    same = dtype.np.type(float(short)) == value or exact != exact
    return short if same else repr(exact)
