"""A loop program as a function of Python over scalars.

Floats are numpy's scalars, which round as arrays do, integers are Python's, wrapped to their width where they may leave it, and
memory is lists of them. What has no operator here is computed as the interpreter of loop programs does (`primitives.function_of`),
so that all results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from struct import Struct
from typing import Any

import numpy as np

from deepx_graph.literal import Array
from deepx_graph.loops import primitives
from deepx_graph.loops.program import (
    Buffer,
    Cell,
    Combine,
    Conditional,
    Copy,
    For,
    Get,
    Let,
    Load,
    LoopProgram,
    Set,
    Statement,
    Store,
    While,
    position_in,
    variables,
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar, affine
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.python_code import PythonFunction
from deepx_graph.types import BOOL, F32, F64, I64, DType

PYTHON = frozenset("?bhilqBHILQ")
"""The dtypes whose elements are integers or bools of Python."""


def written(program: LoopProgram) -> Callable[..., Any]:
    """The function: of lists of the elements of the arguments, which it may change, the lists of those of the results. Raises
    Declined for more than Python compiles in no time."""
    statements = list(walk(program.body))
    buffers = [*program.arguments, *program.results]
    for s in statements:
        buffers += (s.buffer,) if isinstance(s, (Load, Store)) else (s.target, s.source) if isinstance(s, Copy) else ()
    if len(statements) > costs.MOST_STATEMENTS:
        raise Declined("too many statements")
    try:
        return _Writer(program, buffers).function()
    except SyntaxError:  # Python compiles only so many blocks in one another
        raise Declined("loops too deep for Python") from None


def elements(array: Array, dtype: DType) -> list[Any]:
    """The elements of an array as scalars."""
    flat = array.reshape(-1)
    return flat.tolist() if _is_python(dtype) else list(flat)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Of a dtype that numpy has."""
    assert dtype.np is not None
    return dtype.np


def is_called(s: Let | Combine) -> bool:
    """Whether a primitive is a call, and no expression of Python."""
    x, target = (s.args[0], s.target) if isinstance(s, Let) else (s.cell, s.cell)
    return _expression(s.primitive, x, target.dtype) is None


SHORT = 9
"""The most iterations that are written out."""


def _decides(s: For) -> bool:
    """Whether conditions of a loop's own body, which has no loops, are on its axis."""
    return not any(isinstance(x, (For, While)) for x in walk(s.body)) and any(
        isinstance(x, Let) and x.primitive in primitives.COMPARISONS and all(isinstance(a, (Affine, ScalarConst)) for a in x.args)
        and s.axis in variables(x.args) for x in walk(s.body))


def is_sliced(s: For) -> bool:
    """Whether a loop copies or fills neighbouring elements, which is an assignment of slices."""
    match s.body:
        case [Load(x, source, index), Store(target, at, y)]:
            return x is y and source is not target and _stride(s, source, index) == _stride(s, target, at) == 1
        case [Store(target, at, x)]:
            return _stride(s, target, at) == 1 and s.axis not in variables((x,))
    return False


class _Writer:
    """Writes the function of a program that touches those buffers."""

    def __init__(self, program: LoopProgram, buffers: Iterable[Buffer]) -> None:
        self.program, self.memory = program, {b: f"m{k}" for k, b in enumerate(dict.fromkeys(buffers))}
        self.out = PythonFunction([self.memory[a] for a in program.arguments])
        self.known: dict[Any, int] = {}
        """The variables whose value is known here: axes of loops that are written out, and conditions on these."""
        self.same: dict[Any, str] = {}
        """The variables that are others, which then are their names."""

    def function(self) -> Callable[..., Any]:
        """All of it."""
        for buffer, name in self.memory.items():
            if buffer.array is not None:
                self.out.add(f"{name} = {self.out.bind(elements(buffer.array, buffer.dtype))}")
            elif buffer not in self.program.arguments:
                self.out.add(f"{name} = [0] * {buffer.size}")
        self._block(self.program.body)
        self.out.give([self.memory[r] for r in self.program.results])
        return self.out.finished()

    def _block(self, body: Sequence[Statement]) -> None:
        for s in body:
            self._statement(s)

    def _within(self, header: str, body: Sequence[Statement]) -> None:
        with self.out.block(header):
            self._block(body)

    def _statement(self, s: Statement) -> None:
        match s:
            case Let(target, primitive, args):
                self._let(target, primitive, args, target.dtype)
            case Combine(cell, primitive, value):
                self._let(cell, primitive, (cell, value), cell.dtype)
            case Load(target, buffer, index):
                self.out.add(f"{_name(target)} = {self._at(buffer, index)}")
            case Store(buffer, index, value):
                self.out.add(f"{self._at(buffer, index)} = {self._scalar(value)}")
            case Copy(target, source):
                self.out.add(f"{self.memory[target]}[:] = {self.memory[source]}")
            case Get(target, cell):
                self.out.add(f"{_name(target)} = {_name(cell)}")
            case Set(cell, value):
                self.out.add(f"{_name(cell)} = {self._scalar(value)}")
            case Conditional(condition, then, otherwise) if (taken := self._constant(condition)) is not None:
                self._block(then if taken else otherwise)
            case Conditional(condition, then, otherwise):
                self._within(f"if {self._scalar(condition)}", then)
                if otherwise:
                    self._within("else", otherwise)
            case For():
                self._for(s)
            case While(test, condition, body):
                with self.out.block("while True"):
                    self._block(test)
                    self.out.add(f"if not {self._scalar(condition)}: break")
                    self._block(body)

    def _for(self, s: For) -> None:
        """A loop; one of copies is an assignment of slices, and a short one is written out where its axis decides something."""
        low, high = self._scalar(s.low), self._scalar(s.high)
        first, end = self._constant(s.low), self._constant(s.high)
        match s.body:
            case _ if _only(s.axis) is not None:
                self._block(s.body)
            case _ if first is not None and end is not None and end - first <= SHORT and _decides(s):
                for k in range(first, end):
                    self.known[s.axis] = k
                    self._block(s.body)
            case [Load(_, source, index), Store(target, at, _)] if is_sliced(s):
                self.out.add(f"{self._slice(s, target, at)} = {self._slice(s, source, index)}")
            case [Store(target, at, x)] if is_sliced(s):
                self.out.add(f"{self._slice(s, target, at)} = [{self._scalar(x)}] * ({high} - {low})")
            case _:
                self._within(f"for {_name(s.axis)} in range({low}, {high})", s.body)

    def _slice(self, s: For, buffer: Buffer, index: Sequence[Affine]) -> str:
        """What a loop touches, element after element."""
        rest = position_in(buffer, index) - Affine(((s.axis, 1),))
        return f"{self.memory[buffer]}[{self._scalar(rest + s.low)}:{self._scalar(rest + s.high)}]"

    def _at(self, buffer: Buffer, index: Sequence[Affine]) -> str:
        return f"{self.memory[buffer]}[{self._scalar(position_in(buffer, index))}]"

    def _scalar(self, x: Scalar | Cell) -> str:
        """A scalar as an operand."""
        if (known := self._constant(x)) is not None:
            return f"({bool(known) if x.dtype is BOOL else known})"
        if isinstance(x, ScalarConst):
            return self.out.bind(numpy_dtype(x.dtype).type(x.value))
        if isinstance(x, Affine):
            rest = sum([at * f for v, f in x.terms if (at := self._constant(v)) is not None], x.constant)
            terms = [f"{_name(v)} * {f}" if f != 1 else _name(v) for v, f in x.terms if self._constant(v) is None]
            return "(" + " + ".join([*terms, *([str(rest)] if rest else [])]) + ")"
        return self.same.get(x) or _name(x)

    def _constant(self, x: Scalar | Cell) -> int | None:
        """The value of an integer or bool, where it is known here."""
        if isinstance(x, ScalarConst):
            return int(x.value) if _is_python(x.dtype) else None
        if isinstance(x, Affine):
            parts = [at * f for v, f in x.terms if (at := self._constant(v)) is not None]
            return sum(parts, x.constant) if len(parts) == len(x.terms) else None
        return self.known.get(x) if isinstance(x, Cell) or (only := _only(x)) is None else only

    def _let(self, target: ScalarVar | Cell, primitive: str, args: Sequence[Scalar | Cell], dtype: DType) -> None:
        """Writes `target = primitive(args)`."""
        name = _name(target)
        texts, known = list(map(self._scalar, args)), list(map(self._constant, args))
        whole = [np.int64(k) for k in known if k is not None]
        if primitive in primitives.COMPARISONS and len(whole) == len(known):
            self.known[target] = int(primitives.evaluate(primitive, tuple(whole), BOOL))
            return
        if primitive == "where" and known[0] is not None:
            self.same[target] = texts[1 if known[0] else 2]
            return
        general = _general(primitive, tuple(a.dtype for a in args), dtype)
        form = _expression(primitive, args[0], dtype, known[-1])
        if form is None:
            self.out.call(name, general, *texts)
            return
        called = {"general": general, "kind": numpy_dtype(dtype).type, "unpack": Struct(numpy_dtype(dtype).char).unpack_from,
                  "pack": Struct(numpy_dtype(args[0].dtype).char).pack, "read": np.frombuffer, "dtype": numpy_dtype(dtype)}
        words = {name: self.out.bind(function) for name, function in called.items() if f"{{{name}}}" in form}
        text = form.format(*texts, **words, bits=dtype.bits, last=dtype.bits - (dtype.kind == "int"), mask=(1 << dtype.bits) - 1)
        if not _may_leave(primitive, args[0], dtype, known[-1]):
            self.out.add(f"{name} = {text}")
        elif dtype.kind == "uint":
            self.out.add(f"{name} = ({text}) & {_range(dtype)[1]}")
        else:
            low, high = _range(dtype)
            self.out.add(f"{name} = {text}")
            self.out.add(f"if {name} > {high} or {name} < {low}: {name} = (({name} - {low}) & {high - low}) + {low}")


ANY = {"copy": "{0}", "where": "{1} if {0} else {2}", "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}",
       "gt": "{0} > {1}", "ge": "{0} >= {1}"}  # fmt: skip
NUMBERS = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "neg": "-{0}", "abs": "abs({0})"}
FLOATS = {"div": "{0} / {1}", "max": "{0} if {0} > {1} else {1} if {1} > {0} else {general}({0}, {1})",
          "min": "{0} if {0} < {1} else {1} if {1} < {0} else {general}({0}, {1})"}  # fmt: skip
INTEGERS = {"max": "{0} if {0} > {1} else {1}", "min": "{0} if {0} < {1} else {1}", "and": "{0} & {1}", "or": "{0} | {1}",
            "xor": "{0} ^ {1}", "not": "~{0}", "floor_mod": "{0} % {1} if {1} else 0", "sign": "({0} > 0) - ({0} < 0)",
            "shl": "{0} << {1} if 0 <= {1} < {bits} else 0", "lshr": "({0} & {mask}) >> {1} if 0 <= {1} < {bits} else 0",
            "ashr": "{0} >> ({1} if 0 <= {1} < {last} else {last})",
            "quotient": "0 if not {1} else {0} // {1} if ({0} < 0) == ({1} < 0) else -(-{0} // {1})",
            "modulo": "0 if not {1} else {0} % abs({1}) if {0} >= 0 else -(-{0} % abs({1}))"}  # fmt: skip
BOOLS = {"add": "{0} | {1}", "max": "{0} | {1}", "or": "{0} | {1}", "mul": "{0} & {1}", "min": "{0} & {1}", "and": "{0} & {1}",
         "xor": "{0} ^ {1}", "not": "not {0}"}  # fmt: skip
"""The expressions of primitives, by the dtype of the first operand."""
BY_CONSTANT = {"shl": "{0} << {1}", "lshr": "({0} & {mask}) >> {1}", "ashr": "{0} >> {1}"}
"""Those of shifts by a constant that is less than the width."""

WRAPPED = frozenset(("add", "sub", "mul", "neg", "abs", "not", "shl", "lshr", "quotient", "cast"))
"""What may leave the range of its dtype."""


def _expression(primitive: str, x: Scalar | Cell, dtype: DType, last: int | None = None) -> str | None:
    """The expression of a primitive of x, and of a last operand that may be known; None where only numpy has it."""
    if primitive == "cast":
        return _cast(x, dtype)
    if primitive == "bitcast":
        if _is_python(dtype):
            return "{unpack}({0})[0]" if x.dtype in (F32, F64) else None
        return "{read}({pack}({0}), {dtype})[0]" if _is_python(x.dtype) and dtype in (F32, F64) else None
    if primitive in BY_CONSTANT and _is_python(x.dtype) and last is not None and 0 <= last < x.dtype.bits:
        return BY_CONSTANT["ashr" if x.dtype.kind == "uint" and primitive == "lshr" else primitive]
    return _form(primitive, x.dtype)


def _form(primitive: str, first: DType) -> str | None:
    """The expression of a primitive of operands of a dtype."""
    if primitive in ANY:
        return ANY[primitive]
    if first is BOOL:
        return BOOLS.get(primitive)
    own = FLOATS if first in (F32, F64) else INTEGERS if _is_python(first) else {}
    return own.get(primitive) or (NUMBERS.get(primitive) if own else None)


def _cast(x: Scalar | Cell, dtype: DType) -> str | None:
    """The expression of a conversion; integers are wrapped after it."""
    if not (_is_python(x.dtype) or x.dtype in (F32, F64)):
        return None
    if dtype is BOOL:
        return "{0} != 0"
    if dtype in (F32, F64):
        return "{kind}({0})" if x.dtype.bits <= 32 or not x.dtype.is_integer else None
    if not _is_python(dtype):
        return None
    if _is_python(x.dtype):
        return "1 if {0} else 0" if x.dtype is BOOL else "{0}"
    low, high = _range(dtype)
    return f"int({{0}}) if {low - 1}.0 < {{0}} < {high + 1}.0 else {{general}}({{0}})" if dtype.bits <= 32 else None


def _may_leave(primitive: str, x: Scalar | Cell, dtype: DType, last: int | None) -> bool:
    """Whether what an expression of x and of a last operand that may be known gives has to be wrapped to an integer dtype."""
    if not (dtype.is_integer and _is_python(dtype)) or primitive not in WRAPPED or (primitive == "cast" and _fits(x, dtype)):
        return False
    return primitive != "lshr" or not (dtype.kind == "uint" or last)


def _fits(x: Scalar | Cell, dtype: DType) -> bool:
    """Whether a scalar is in the range of an integer dtype for sure."""
    if not x.dtype.is_integer:
        return True
    ends = affine(x).bounds if isinstance(x, Affine) or (isinstance(x, ScalarVar) and x.dtype is I64) else None
    (least, most), (low, high) = ends or _range(x.dtype), _range(dtype)
    return low <= least and most <= high


def _only(x: ScalarVar) -> int | None:
    """The one value that a variable has, where that is known."""
    return x.low if x.low == x.high else None


def _stride(s: For, buffer: Buffer, index: Sequence[Affine]) -> int:
    return position_in(buffer, index).stride(s.axis)


def _range(dtype: DType) -> tuple[int, int]:
    ends = np.iinfo(numpy_dtype(dtype))
    return int(ends.min), int(ends.max)


def _is_python(dtype: DType) -> bool:
    return numpy_dtype(dtype).char in PYTHON


@cache
def _general(primitive: str, dtypes: tuple[DType, ...], dtype: DType) -> Callable[..., Any]:
    """What computes any primitive of such scalars, by numpy."""
    function = primitives.function_of(primitive, dtype, of_bools=dtypes[0] is BOOL)
    if not any(map(_is_python, (*dtypes, dtype))):
        return function
    kinds = [numpy_dtype(d).type for d in dtypes]

    def run(*args: Any) -> Any:
        found = function(*[kind(x) for kind, x in zip(kinds, args, strict=True)])
        return found.item() if _is_python(dtype) else found

    return run


def _name(x: ScalarVar | Cell) -> str:
    return f"c{x.number}" if isinstance(x, Cell) else f"v{x.number}"
