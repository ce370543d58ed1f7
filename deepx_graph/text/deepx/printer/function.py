"""One function as deepx instructions: names for values, tensors made before they are written, constants where they are used.

The value of a node is a tensor by name, a literal that becomes a tensor only where no number can stand, a scalar parameter, or
several of these. What cannot be written is reported for every node, and writing goes on after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from deepx_graph.errors import Diagnostic, InferError, VerifyError
from deepx_graph.ir import Function, Node, problem
from deepx_graph.literal import Array, Literal
from deepx_graph.ops import module_seed
from deepx_graph.text.deepx.printer.forms import (
    Argument,
    Form,
    Instruction,
    Number,
    Operand,
    Tensor,
    Tensors,
    Text,
    Vector,
    number_text,
)
from deepx_graph.text.deepx.printer.ops import EMITTERS, STRUCTURE
from deepx_graph.types import ANY, BF16, F16, F32, I32, I64, Dim, Dims, DType, TensorType, as_tensor, is_state, tensor

PIECES = 16
"""A dense constant of no more elements than this is put together from them."""

MAX_BURNT = 1000
"""How many draws are made only to come to the number that a seed of the run has."""

BROKEN = "?"
"""The name of what could not be written; no tensor has it."""

_PLAIN_SYMBOL = re.compile(r"[^+*()]+")
_AS_RESULT: Any = object()


class Pool:
    """Names that are given once."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._count: dict[str, int] = {}

    def claim(self, wanted: str, prefix: str) -> str:
        """`wanted` if nothing has it, else a new name that begins with `prefix`."""
        if not wanted or wanted in self.taken:
            return next(self.series(prefix))
        self.taken.add(wanted)
        return wanted

    def series(self, prefix: str) -> Iterator[str]:
        """Free names `prefix1`, `prefix2`, ... without end."""
        while True:
            number = self._count[prefix] = self._count.get(prefix, 0) + 1
            if f"{prefix}{number}" not in self.taken:
                self.taken.add(f"{prefix}{number}")
                yield f"{prefix}{number}"


class FunctionWriter:
    """Writes nodes as instructions, to `made`.

    `names` are the functions' names in the text. `targets` says which nodes are to be written to tensors that exist already, and
    `item_targets` the same of the items of nodes with several results.
    """

    def __init__(self, function: Function, form: Form, pool: Pool, names: Mapping[str, str]) -> None:
        self.function, self.form, self.pool, self.names = function, form, pool, names
        self.values: dict[Node, Any] = {}
        self.targets: dict[Node, Tensor] = {}
        self.item_targets: dict[tuple[Node, int], Tensor] = {}
        self.made: list[Instruction] = []
        self.problems: list[Diagnostic] = []
        self.draws = 0
        self._constants: dict[tuple[Literal | Argument, Dims | None], Tensor] = {}
        self._symbols: dict[str, str] = {}

    # --- nodes

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Writes those that have no value yet; what cannot be written goes to `problems`."""
        for node in nodes:
            if node in self.values:
                continue
            self.values[node] = None
            with self.collecting():
                try:
                    self.values[node] = self._value(node)
                except InferError as e:
                    self.fail(node, e.message, e.expected, e.hint)
            if self.problems and self.values[node] is None and not is_state(node.type):
                self.values[node] = self.broken(node)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keeps what is found wrong inside, and goes on after it."""
        try:
            yield
        except VerifyError as e:
            self.problems += [d for d in e.diagnostics if d not in self.problems]

    def _value(self, node: Node) -> Any:
        if node.op in STRUCTURE:
            return STRUCTURE[node.op](self, node)
        emit = EMITTERS.get(node.op)
        if emit is None:
            if any(getattr(self.values[i], "name", "") == BROKEN for i in node.inputs):
                return self.broken(node)
            self.fail(node, "has no form in deepx", expected="one of deepx's operations, or what can be made of them")
        out = self.target(node)
        emit(self, node, out)
        return out

    def broken(self, node: Node) -> Tensor:
        """A stand-in for what could not be written."""
        return Tensor(BROKEN, node.type if isinstance(node.type, TensorType) else tensor(ANY, None))

    def fail(self, node: Node, message: str, expected: str | None = None, hint: str | None = None) -> NoReturn:
        raise VerifyError(problem(node, message, expected, hint))

    # --- tensors

    def word(self, dtype: DType, node: Node) -> str:
        """The name of an element type in the form. Raises VerifyError when it has none."""
        if dtype not in self.form.dtypes:
            self.fail(node, f"deepx has no element type {dtype}", expected=", ".join(d.name for d in self.form.dtypes))
        return self.form.dtypes[dtype]

    def name_for(self, wanted: str, prefix: str = "t") -> str:
        """A name that is free and legal, `wanted` if that is."""
        return self.pool.claim(wanted if self.form.accepts_name(wanted) else "", prefix)

    def target(self, node: Node) -> Tensor:
        """The tensor that the node is written to, made now unless it was made before."""
        out = self.targets.get(node)
        if out is None:
            type = node.type
            if not isinstance(type, TensorType):
                self.fail(node, f"deepx has no values of type {type}")
            out = Tensor(self.name_for(node.name), type)
            self.create(out, node)
        return out

    def create(self, out: Tensor, node: Node) -> None:
        """Makes a tensor; one whose shape is not known is made by the instruction that writes it."""
        if out.type.dtype is not ANY:
            self.word(out.type.dtype, node)
        dims = self.written_dims(out.type.dims)
        if dims is not None and out.type.dtype is not ANY:
            element = (Text(self.form.dtypes[out.type.dtype]),) if self.form.has_functions else ()
            self.made.append(Instruction("newtensor", (Vector(dims), *element), (out,), out.type.dtype))

    def emit(self, op: str, *operands: Operand, into: Tensor, dtype: DType | None = _AS_RESULT) -> None:
        """One instruction; `dtype` is what dialect A writes after `@`, that of the result when left out."""
        self.made.append(Instruction(op, operands, (into,), into.type.dtype if dtype is _AS_RESULT else dtype))

    def apply(self, op: str, type: TensorType, *operands: Operand, into: Tensor | None = None,
              dtype: DType | None = _AS_RESULT) -> Tensor:
        """One instruction whose result is a new tensor, or `into`."""
        if into is None:
            into = Tensor(self.name_for(""), type)
            self.create(into, self.function.results[0])
        self.emit(op, *operands, into=into, dtype=dtype)
        return into

    def tensor(self, node: Node, dims: Dims | None = None) -> Tensor:
        """The node's value as a tensor; one of rank 0, or a number, in the shape `dims` where that is given."""
        value = self.values[node]
        if isinstance(value, Tensor):
            if value.type.dims == () and dims:
                return self.apply("broadcastTo", value.type.with_dims(dims), value, Vector(self._known_dims(dims, node)))
            return value
        if not isinstance(value, (Literal, Argument)):
            self.fail(node, f"deepx has no values of type {node.type}")
        type = value.type if dims is None or value.type.dims else value.type.with_dims(dims)
        key = (value, type.dims)
        if key not in self._constants:
            self._constants[key] = self.materialise(node, value, type, None)
        return self._constants[key]

    def declare(self, value: Tensor | Argument, node: Node) -> None:
        """Reads a value, in a line of its own, in a way that states its type; what that computes is not used."""
        probe = Tensor(self.name_for("", "p"), value.type.with_dims((1,)) if isinstance(value, Argument) else value.type)
        if isinstance(value, Argument):
            self.create(probe, node)
            self.emit("constant", value, into=probe)
        elif value.type.is_static:
            self.create(probe, node)
            self.emit("max", value, value, into=probe)
        else:
            self.emit("clonetensor", value, into=probe)

    # --- numbers and shapes

    def splat(self, node: Node) -> np.generic | None:
        """The one value of a constant's elements."""
        value = self.values[node]
        return value.splat_value if isinstance(value, Literal) else None

    def scalar(self, node: Node) -> Number | Argument | None:
        """The value as a number or scalar parameter, where it is one everywhere."""
        value = self.values[node]
        if isinstance(value, Argument):
            return value
        one = self.splat(node)
        if one is None:
            return None
        self.real(node, value.dtype)
        return self.number(one, value.dtype)

    def real(self, node: Node, dtype: DType) -> None:
        """Raises VerifyError for an element type whose values have no literal."""
        if dtype.kind == "complex":
            self.word(dtype, node)

    def number(self, value: Any, dtype: DType) -> Number:
        return Number(number_text(value, dtype, self.form.infinity), dtype)

    def dims(self, node: Node) -> Dims:
        """The shape of a node as the form writes it. Raises VerifyError when it is not known."""
        return self._known_dims(as_tensor(node.type).dims, node)

    def shape(self, node: Node) -> tuple[int, ...]:
        """The shape as ints. Raises VerifyError when it is not known."""
        if not isinstance(node.type, TensorType) or node.type.dims is None or any(isinstance(d, str) for d in node.type.dims):
            self.fail(node, "the shape is not known", hint="give the inputs' shapes first")
        return node.type.shape

    def _known_dims(self, dims: Dims | None, node: Node) -> Dims:
        found = self.written_dims(dims)
        if found is None:
            self.fail(node, "the shape is not known", hint="give the inputs' shapes first")
        return found

    def written_dims(self, dims: Dims | None) -> Dims | None:
        """A shape as the form writes it; None where it cannot."""
        found = None if dims is None else tuple(map(self.symbol, dims))
        return None if found is None or "?" in found else found

    def symbol(self, dim: Dim) -> Dim:
        """A size, or a symbol as the form writes it; `?` where it cannot."""
        if isinstance(dim, int):
            return dim
        if not self.form.has_functions or not _PLAIN_SYMBOL.fullmatch(dim):
            return "?"
        return self._symbols.setdefault(dim, f"?{len(self._symbols) + 1}")

    def seed(self, node: Node, seed: Node) -> Number | Argument:
        """The seed operand of a draw. The k-th draw without a seed has the run's k-th seed; others are drawn and dropped."""
        if seed.op is not module_seed:
            known = self.scalar(seed)
            if known is None:
                self.fail(node, "deepx takes a number as seed", expected="a constant or a scalar parameter")
            if isinstance(known, Argument):
                return known
            # 0 would mean "no seed"; the generator takes seeds modulo 2^31 - 1
            return Number(str(2**31 - 1) if known.text == "0" else known.text, I64)
        index = seed.attr("index")
        if not 0 <= index - self.draws <= MAX_BURNT:
            self.fail(node, f"draws from the run's seed number {index} after number {self.draws - 1}",
                      expected="each draw with a seed of its own, in order")
        for _ in range(index - self.draws):
            self.apply("uniform", tensor(F32, (1,)), self.number(0, F32), self.number(1, F32), Number("0", I64))
        self.draws = index + 1
        return Number("0", I64)

    # --- constants

    def materialise(self, node: Node, value: Literal | Argument, type: TensorType, into: Tensor | None) -> Tensor:
        """A tensor with the value; it goes `into` one that exists, or into a new one."""
        if isinstance(value, Literal):
            self.real(node, value.dtype)
        if into is None:
            into = Tensor(self.name_for(node.name if isinstance(value, Literal) else ""), type)
            self.create(into, node)
        one = value.splat_value if isinstance(value, Literal) else None
        if isinstance(value, Argument):
            self.emit("constant", value, into=into)
        elif one is not None:
            self.emit("constant", self.number(one, value.dtype), into=into)
        elif not value.array.size:
            self.emit("constant", self.number(0, value.dtype), into=into)
        else:
            self._dense(node, value, into)
        return into

    def _dense(self, node: Node, value: Literal, into: Tensor) -> None:
        flat = value.array.reshape(-1)
        run = _arithmetic(flat, value.dtype)
        if run is not None:
            self.emit("arange", *(self.number(n, value.dtype) for n in run), into=into)
            return
        if flat.size > PIECES:
            self.fail(node, f"deepx has no literal of {flat.size} elements", expected="equal elements, or steps of one size",
                      hint="make it an input")
        one = value.type.with_dims((1,))
        parts = [self.apply("constant", one, self.number(x, value.dtype)) for x in flat]
        whole = value.type.with_dims((flat.size,))
        joined = self.apply("concat", whole, Tensors(tuple(parts)), self.number(0, I32),
                            into=into if into.type == whole else None)
        if joined is not into:
            self.emit("reshape", joined, Vector(value.type.shape), into=into)


def _arithmetic(flat: Array, dtype: DType) -> Sequence[Any] | None:
    """Start and step, where the elements are exactly what `arange` makes of them."""
    if dtype.kind not in ("int", "uint", "float"):
        return None
    wide = F32 if dtype in (F16, BF16) else dtype
    with np.errstate(all="ignore"):
        items = flat.astype(wide.np)
        step = items[1] - items[0]
        again = (items[0] + np.arange(flat.size).astype(wide.np) * step).astype(dtype.np)
    return (flat[0], np.asarray(step, dtype.np)[()]) if again.tobytes() == flat.tobytes() else None
