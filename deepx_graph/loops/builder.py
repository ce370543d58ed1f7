"""`LoopBuilder`: writes the statements of a loop program, in order, and decides at once what numbers and ranges decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from deepx_graph.ir.scalar_expr import Apply, Expr, Immediate, Variable
from deepx_graph.literal import Array
from deepx_graph.loops import primitives, storage
from deepx_graph.loops.arithmetic import RULES
from deepx_graph.loops.complex import Complex, joined, parts, whole
from deepx_graph.loops.complex import apply as complex_rules
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
    Role,
    Set,
    Statement,
    Store,
    While,
    needed_index,
)
from deepx_graph.loops.scalar import (
    TRUE,
    Affine,
    Index,
    Induction,
    NotExpressible,
    Scalar,
    ScalarConst,
    ScalarVar,
    affine,
    compared,
    reduced_quotient,
    split_quotient,
)
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.types import BOOL, F16, F32, F64, I32, I64, U8, U64, DType, TensorType

Shared = TypeVar("Shared")

LEAST_SHARE = 64
"""Outer axes are taken together until the parallel loop has so many iterations."""


class _Known:
    """What has been made in the blocks that are open, by keys: one table, whatever the depth, and what each block has put there."""

    def __init__(self) -> None:
        self._found: dict[Any, Any] = {}
        self._made: list[list[Any]] = []

    def open(self) -> None:
        """Begins a block."""
        self._made.append([])

    def close(self) -> None:
        """Ends the innermost block: what it has made is not known behind it."""
        for key in self._made.pop():
            self._found.pop(key, None)

    def shared(self, key: Any, make: Callable[[], Shared]) -> Shared:
        """What is known by a key, made here if nothing is; outside of blocks what `make` gives."""
        if not self._made:
            self.open()
            try:
                return make()
            finally:
                self.close()
        found = self._found.get(key, self)
        if found is self:  # nothing is known by this key
            here = self._made[-1]
            found = self._found[key] = make()
            here.append(key)
        return found  # type: ignore[no-any-return]


class LoopBuilder:
    """The statements so far, and the block that is being written; `emit` raises NotExpressible after `most` of them."""

    def __init__(self, most: float = math.inf, outer: int | None = None) -> None:
        self._left, self.outer = most, outer
        """How many more statements there may be; over how many axes the outermost loop of a nest is, where that was asked for."""
        self.body: list[Statement] = []
        self.constants: list[Buffer] = []
        self.scratch: list[Buffer] = []
        self.arguments: list[Buffer] = []
        self.results = 0
        self.role: Role = "scratch"
        """What memory is of which nothing else is said."""
        self.undecided: list[Affine] = []
        """The subscripts of which the program asks whether they are negative."""
        self._blocks: list[list[Statement]] = [self.body]
        self._known = _Known()
        self._tables: dict[tuple[Any, DType], Buffer] = {}
        self._induction = Induction()
        self._count = 0

    # --- blocks

    @property
    def here(self) -> list[Statement]:
        """The block that is being written."""
        return self._blocks[-1]

    def emit(self, statement: Statement) -> None:
        """Adds a statement to the block."""
        self._left -= 1
        if self._left < 0:
            raise NotExpressible("too many statements")
        self._blocks[-1].append(statement)

    @contextmanager
    def block(self, statements: list[Statement]) -> Iterator[None]:
        """Statements go into this block."""
        self._blocks.append(statements)
        self._known.open()
        yield
        self._blocks.pop()
        self._known.close()

    def shared(self, key: Any, make: Callable[[], Shared]) -> Shared:
        """What `make` gives, made once for this block and those within; at the top level, whose statements may become functions of
        their own, for the element that is read."""
        return self._known.shared(key, make)

    @contextmanager
    def loop(self, high: Affine | int, low: Affine | int = 0, *, parallel: bool = False) -> Iterator[Affine]:
        """A loop over `low`, ..., `high - 1`; gives the axis."""
        first, last = affine(low).bounds, affine(high).bounds
        axis = self.var(I64, None if first is None else first[0], None if last is None else last[1] - 1)
        statement = For(axis, affine(low), affine(high), parallel=parallel)
        self.emit(statement)
        with self.block(statement.body):
            yield Affine(((axis, 1),))

    def loops(self, shape: Sequence[int], *, parallel: bool = False) -> AbstractContextManager[tuple[Affine, ...]]:
        """Loops over a shape, the last axis innermost; gives the axes."""
        return self.boxes([(Affine(), Affine((), n)) for n in shape], parallel=parallel)

    @contextmanager
    def boxes(self, ranges: Sequence[tuple[Affine, Affine]], *, parallel: bool = False) -> Iterator[tuple[Affine, ...]]:
        """Loops, each from one subscript up to below another, the last innermost; gives the axes."""
        if not ranges:
            yield ()
            return
        (low, high), *inner = ranges
        with self.loop(high, low, parallel=parallel) as axis, self.boxes(inner, parallel=parallel) as rest:
            yield (axis, *rest)

    @contextmanager
    def nest(self, shape: Sequence[int]) -> Iterator[tuple[Affine, ...]]:
        """Parallel loops over a shape; outer axes are one loop where there are few iterations of each."""
        outer = 1 if self.outer is None else min(self.outer, len(shape))
        while self.outer is None and outer < len(shape) - 1 and math.prod(shape[:outer]) < LEAST_SHARE:
            outer += 1
        with self.loop(math.prod(shape[:outer]), parallel=True) as flat:
            at = self.unflattened(flat, shape[:outer])
            with self.loops(shape[outer:], parallel=True) as rest:
                yield (*at, *rest)

    def unflattened(self, flat: Affine, shape: Sequence[int]) -> tuple[Affine, ...]:
        """The subscripts of an element, of which the number in the order of C is given."""
        found: list[Affine] = []
        for size in reversed(shape[1:]):
            rest = self.quotient(flat, size)
            found.append(flat - rest * size if size > 1 else Affine())
            flat = rest
        return (flat, *reversed(found)) if shape else ()

    def when(self, condition: Scalar, then: Callable[[], None], otherwise: Callable[[], None] = lambda: None, *,
             usual: bool = False) -> None:
        """One of two blocks; the one alone where it is known which. As a rule it is the first one, where that is `usual`."""
        if isinstance(condition, ScalarConst):
            (then if condition.value else otherwise)()
            return
        statement = Conditional(condition, [], [], usual)
        self.emit(statement)
        for block, write in ((statement.then, then), (statement.otherwise, otherwise)):
            with self.block(block):
                write()

    def choose(self, condition: Scalar, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """The value of one of two blocks, of which only that one runs; both give values of one dtype."""
        if isinstance(condition, ScalarConst):
            return (then if condition.value else otherwise)()
        cells: list[Cell] = []

        def keep(make: Callable[[], Any]) -> None:
            reals = parts(make())
            cells.extend(self.cell(x.dtype) for x in reals[len(cells) :])
            for cell, x in zip(cells, reals, strict=True):
                self.set(cell, x)

        self.when(condition, lambda: keep(then), lambda: keep(otherwise))
        return joined([self.get(cell) for cell in cells])

    def repeat(self, test: Callable[[], Scalar], body: Callable[[], None]) -> None:
        """The body as long as the test gives true."""
        statement = While([], TRUE, [])
        self.emit(statement)
        with self.block(statement.test):
            statement.condition = test()
        with self.block(statement.body):
            body()

    # --- memory

    def var(self, dtype: DType, low: int | None = None, high: int | None = None) -> ScalarVar:
        """A new variable."""
        self._count += 1
        return ScalarVar(self._count, dtype, low, high)

    def cell(self, dtype: DType, start: Scalar | None = None) -> Cell:
        """A new cell, which holds `start`."""
        self._count += 1
        cell = Cell(self._count, dtype)
        if start is not None:
            self.set(cell, start)
        return cell

    def set(self, cell: Cell, value: Scalar) -> None:
        """Assigns a cell."""
        self.emit(Set(cell, value))

    def get(self, cell: Cell) -> ScalarVar:
        """What a cell holds now."""
        target = self.var(cell.dtype)
        self.emit(Get(target, cell))
        return target

    def combine(self, cell: Cell, primitive: str, value: Scalar) -> None:
        """Combines a value into a cell, in any order."""
        self.emit(Combine(cell, primitive, value))

    def buffer(self, dtype: DType, shape: Sequence[int], role: Role | None = None) -> Buffer:
        """New memory for a tensor; `local` memory is small, and each thread's own. The reals of a complex tensor lie side by side,
        in local memory apart, as registers hold them."""
        self._count += 1
        found = memory(f"t{self._count}", dtype, shape, role or self.role)
        if found.role == "local" and dtype.kind == "complex":
            found = replace(found, parts=tuple(self.buffer(part_of(dtype), shape, role) for _ in range(2)))
        if found.role == "scratch":
            self.scratch.append(found)
        return found

    def table(self, make: Callable[[DType], Array], key: DType, dtype: DType) -> Buffer:
        """A constant that `make` gives for a dtype; one for the program."""
        if (make, key) not in self._tables:
            array = make(key)
            self._tables[make, key] = memory(f"c{len(self.constants)}", dtype, array.shape, "constant", array)
            self.constants.append(self._tables[make, key])
        return self._tables[make, key]

    def load(self, buffer: Buffer, index: Index) -> ScalarVar:
        """An element, as it is stored."""
        target = self.var(buffer.dtype)
        self.emit(Load(target, buffer, needed_index(buffer, index)))
        return target

    def store(self, buffer: Buffer, index: Index, value: Scalar) -> None:
        """Stores an element."""
        self.emit(Store(buffer, tuple(index), value))

    def load_element(self, buffer: Buffer, dtype: DType, index: Index) -> Any:
        """An element of a tensor, as it is computed with: complex ones in two parts, narrow floats widened."""
        if buffer.parts:
            return joined([self.load(part, index) for part in buffer.parts])
        if dtype.kind == "complex":
            return Complex(self.load(buffer, (*index, Affine())), self.load(buffer, (*index, Affine((), 1))))
        return storage.widened(self, self.load(buffer, index), dtype)

    def store_element(self, buffer: Buffer, dtype: DType, index: Index, value: Any) -> None:
        """Stores what `load_element` would give."""
        if buffer.parts:
            for part, x in zip(buffer.parts, parts(value), strict=True):
                self.store(part, index, x)
        elif dtype.kind == "complex":
            self.store(buffer, (*index, Affine()), value.real)
            self.store(buffer, (*index, Affine((), 1)), value.imag)
        else:
            self.store(buffer, index, self.rounded(value, dtype))

    def fetch(self, x: LazyTensor, index: Index) -> Any:
        """The element of a tensor in memory as it is now."""
        assert x.buffer is not None
        return self.load_element(x.buffer, x.dtype, [affine(i) for i in index])

    def put(self, x: LazyTensor, index: Index, value: Any) -> None:
        """Assigns the element of a tensor in memory."""
        assert x.buffer is not None
        self.store_element(x.buffer, x.dtype, [affine(i) for i in index], value)

    def copy(self, target: LazyTensor, source: LazyTensor) -> None:
        """All elements of a tensor into memory; nothing where they are there already."""
        assert target.buffer is not None
        if source.buffer is not None and source.dtype is target.dtype and len(self._blocks) == 1:
            self.emit(Copy(target.buffer, source.buffer))
        elif source.buffer is not target.buffer:
            with self.nest(source.shape) as at:
                self.put(target, at, source.at(self, at))

    def rounded(self, x: Scalar, dtype: DType) -> Any:
        """A computed element as it is stored."""
        return storage.rounded(self, x, dtype)

    # --- scalars

    def const(self, value: Any, dtype: DType) -> Any:
        """A number, in the dtype in which elements of `dtype` are computed."""
        if dtype.kind == "complex":
            part = part_of(dtype)
            return Complex(ScalarConst(part.np.type(value.real), part), ScalarConst(part.np.type(value.imag), part))  # type: ignore[union-attr]
        computed = computed_dtype(dtype)
        return ScalarConst(primitives.cast(primitives.cast(value, dtype), computed), computed)

    def apply(self, primitive: str, *args: Any, dtype: DType | None = None) -> Any:
        """The primitive of scalars of one dtype; of integers `div` gives -1 where the divisor is 0, and wraps."""
        if any(isinstance(a, Complex) for a in args):
            return complex_rules(self, primitive, args)
        if (rule := RULES.get((primitive, args[0].dtype.is_float))) is not None and args[0].dtype is not BOOL:
            return rule(self, *args)
        result = dtype or primitives.result_dtype(primitive, tuple(a.dtype for a in args))
        if (known := decided(primitive, args, result)) is not None:
            return known
        known = self._induction.applied(primitive, args, result, lambda at: self._shared_let("cast", (at,), result))
        return self._shared_let(primitive, args, result) if known is None else known

    def _shared_let(self, primitive: str, args: tuple[Scalar, ...], result: DType) -> ScalarVar:
        return self.shared((primitive, args, result), lambda: self._let(primitive, args, result))

    def _let(self, primitive: str, args: tuple[Scalar, ...], dtype: DType) -> ScalarVar:
        target = self.var(dtype)
        self.emit(Let(target, primitive, args))
        return target

    def converted(self, x: Any, dtype: DType) -> Any:
        """An element of any dtype as one of another, in the dtypes in which they are computed."""
        if dtype.kind == "complex":
            pair = whole(x)
            return Complex(self.cast(pair.real, part_of(dtype)), self.cast(pair.imag, part_of(dtype)))
        if isinstance(x, Complex) and dtype is BOOL:
            return self.apply("ne", x, whole(ScalarConst(primitives.cast(0, x.dtype), x.dtype)))
        x = x.real if isinstance(x, Complex) else x
        return storage.to_odd(self, x) if dtype is F16 and x.dtype is F64 else self.cast(x, computed_dtype(dtype))

    def cast(self, x: Scalar, dtype: DType) -> Any:
        """A C cast; of a float to an integer the nearest that there is, and 0 for NaN."""
        return x if x.dtype is dtype else self.apply("cast", x, dtype=dtype)

    def expression(self, tree: Expr, args: Sequence[Any], dtype: DType) -> Any:
        """A kernel expression over operands; `dtype` is that to which it casts."""
        match tree:
            case Variable(index):
                return args[index]
            case Immediate(value):
                return ScalarConst(primitives.cast(value, args[0].dtype), args[0].dtype)
            case Apply(primitive, inner):
                values = [self.expression(e, args, dtype) for e in inner]
                if primitive == "cast":
                    return self.converted(values[0], dtype)
                return self.apply(primitive, *values)
        raise AssertionError(tree)

    def number(self, x: Affine, dtype: DType) -> Any:
        """A subscript as an element of a dtype."""
        if dtype.kind == "complex":
            return Complex(self.cast(x, part_of(dtype)), ScalarConst(primitives.cast(0, part_of(dtype)), part_of(dtype)))
        return self.cast(x, computed_dtype(dtype))

    def less(self, x: Affine | int, y: Affine | int) -> Any:
        """Whether one subscript is less than another."""
        x, y = affine(x), affine(y)
        if (known := compared(x, y)) is not None:
            return known
        self.undecided.append(x - y)
        return self.apply("lt", x, y)

    def within(self, x: Affine, low: int, high: int) -> Scalar:
        """Whether `low <= x < high`."""
        return self.both(self.less(low - 1, x), self.less(x, high))

    def both(self, *conditions: Scalar) -> Scalar:
        """Whether all hold."""
        found: Scalar = TRUE
        for c in conditions:
            found = c if isinstance(found, ScalarConst) and found.value else self.apply("and", found, c)
        return found

    def index(self, x: Scalar, low: int | None = None, high: int | None = None) -> Affine:
        """An integer as a subscript; where bounds are given, it is known to lie within them."""
        if isinstance(x, (Affine, ScalarConst)) and x.dtype is I64:
            return affine(x)
        if low is None and high is None:
            return affine(self.cast(x, I64))
        target = self.var(I64, low, high)
        self.emit(Let(target, "cast", (x,)))
        return Affine(((target, 1),))

    def position(self, x: Scalar) -> Affine:
        """An integer as a subscript of which nothing is known; what is beyond i64 stays out of every range."""
        if x.dtype is U64:
            x = self.apply("min", x, ScalarConst(primitives.cast((1 << 63) - 1, U64), U64))
        return self.index(x)

    def total_order(self, x: Scalar) -> Any:
        """An integer in the order of a number: of floats the total order of IEEE 754."""
        if not x.dtype.is_float:
            return self.cast(x, U8) if x.dtype is BOOL else x
        bits = self.apply("bitcast", x, dtype=I32 if x.dtype is F32 else I64)
        size = 8 * x.dtype.itemsize
        sign = self.apply("ashr", bits, ScalarConst(primitives.cast(size - 1, bits.dtype), bits.dtype))
        flipped = self.apply("and", sign, ScalarConst(primitives.cast((1 << (size - 1)) - 1, bits.dtype), bits.dtype))
        return self.apply("xor", bits, flipped)

    def clamped(self, x: Scalar, low: int, high: int) -> Affine:
        """An integer, as the nearest number from `low` to `high`; in i32 where it is one, of which a vector holds twice as many."""
        counts = self._induction.subscript(x)
        if counts is None and isinstance(x, ScalarVar) and x.dtype is I32 and -(1 << 31) <= low <= high < 1 << 31:
            return self.shared(("clamped", x, low, high), lambda: self.index(_nearest(self, x, low, high), low, high))
        at = counts or self.position(x)
        if (ends := at.bounds) is not None and (not at.terms or (low <= ends[0] and ends[1] <= high)):
            return at if at.terms else Affine((), max(low, min(high, at.constant)))
        return self.index(self._let("min", (self.apply("max", at, _i64(low)), _i64(high)), I64), low, high)

    def least(self, x: Affine, most: int) -> Affine:
        """The lesser of a subscript of known range and a number."""
        return self.lesser(x, Affine((), most))

    def greatest(self, x: Affine, least: int) -> Affine:
        """The greater of a subscript of known range and a number."""
        return -self.least(-x, -least)

    def lesser(self, x: Affine, y: Affine) -> Affine:
        """The lesser of two subscripts of known range."""
        (low, high), (other_low, other_high) = _ends(x), _ends(y)
        if high <= other_low or other_high <= low:
            return x if high <= other_low else y
        return self.index(self._let("min", (x, y), I64), min(low, other_low), min(high, other_high))

    def known(self, x: Affine, low: int, high: int) -> Affine:
        """A subscript which is known to lie within bounds, where its terms do not say so."""
        ends = x.bounds
        return x if ends is not None and low <= ends[0] and ends[1] <= high else self.index(self._let("copy", (x,), I64), low, high)

    def quotient(self, x: Affine, divisor: int) -> Affine:
        """A subscript that is not negative, divided by a positive number and rounded down."""
        known, rest = split_quotient(x, divisor)
        low, high = (None, None) if rest.bounds is None else (end // max(divisor, 1) for end in rest.bounds)  # 0: no elements
        if low is not None and low == high:
            return known + low
        few, by = reduced_quotient(rest, divisor)

        def make() -> Affine:
            target = self.var(I64, low, high)
            self.emit(Let(target, "quotient", (few, _i64(by))))
            return Affine(((target, 1),))

        return known + self.shared(("quotient", few, by), make)


def _nearest(b: LoopBuilder, x: Scalar, low: int, high: int) -> Any:
    return b.apply("min", b.apply("max", x, b.const(low, x.dtype)), b.const(high, x.dtype))


def _ends(x: Affine) -> tuple[int, int]:
    ends = x.bounds
    assert ends is not None
    return ends


def _i64(value: int) -> ScalarConst:
    return ScalarConst(primitives.cast(value, I64), I64)


def decided(primitive: str, args: tuple[Scalar, ...], dtype: DType) -> Scalar | None:
    """The value of a primitive that needs no computing."""
    if all(isinstance(a, ScalarConst) for a in args):
        return ScalarConst(primitives.evaluate(primitive, tuple(a.value for a in args), dtype), dtype)  # type: ignore[union-attr]
    if primitive == "where" and isinstance(args[0], ScalarConst):
        return args[1] if args[0].value else args[2]
    if primitive in ("and", "or") and dtype is BOOL:
        for a, other in ((args[0], args[1]), (args[1], args[0])):
            if isinstance(a, ScalarConst):
                return other if bool(a.value) == (primitive == "and") else a
    return _whole_quotient(*map(affine, args)) if primitive == "quotient" and dtype is I64 else None


def _whole_quotient(x: Affine, divisor: Affine) -> Affine | None:
    """A subscript by a number, where no rest is left to be divided: what is put in the place of an axis may have such terms."""
    if divisor.terms or divisor.constant < 1 or x.bounds is None or x.bounds[0] < 0:
        return None
    known, rest = split_quotient(x, divisor.constant)
    return known if rest == Affine() else None


def part_of(dtype: DType) -> DType:
    """The dtype of the real and the imaginary part."""
    return F32 if dtype.name == "c64" else F64


def computed_dtype(dtype: DType) -> DType:
    """The dtype in which elements of a dtype are computed. Raises NotExpressible for one that loop programs do not have."""
    if storage.is_narrow(dtype):
        return storage.wide(dtype)
    if dtype.kind == "complex":
        return part_of(dtype)
    if dtype in (F32, F64, BOOL) or (dtype.is_integer and dtype.bits >= 8):
        return dtype
    raise NotExpressible(f"elements of type {dtype}")


def memory(name: str, dtype: DType, shape: Sequence[int], role: Any, array: Any = None) -> Buffer:
    """A buffer for a tensor: the reals of a complex one lie side by side."""
    computed_dtype(dtype)
    whole = (*shape, 2) if dtype.kind == "complex" else tuple(shape)
    return Buffer(name, part_of(dtype) if dtype.kind == "complex" else dtype, whole, role, array)


def new_argument(b: LoopBuilder, type: TensorType) -> LazyTensor:
    """A tensor that is given to the program."""
    b.arguments.append(memory(f"a{len(b.arguments)}", type.dtype, type.shape, "argument"))
    return in_memory(b.arguments[-1], type.dtype)


def new_result(b: LoopBuilder, dtype: DType, shape: Sequence[int]) -> Buffer:
    """Memory for a tensor that the program gives."""
    b.results += 1
    return memory(f"r{b.results}", dtype, shape, "result")


def whole_program(b: LoopBuilder, results: Sequence[Buffer]) -> LoopProgram:
    """What has been written, as a program."""
    return LoopProgram(tuple(b.arguments), tuple(results), tuple(b.constants), tuple(b.scratch), b.body)
