"""Copies of statements with other scalars in them, decided again where that decides them: what passes are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deepx_graph.loops.builder import decided
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
    assigns,
    blocks_of,
    reads,
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar, affine, compared
from deepx_graph.types import DType


class Fresh:
    """Variables, cells and local buffers that a program does not have yet."""

    def __init__(self, program: LoopProgram) -> None:
        self._program = program
        if program.last is None:
            statements = list(walk(program.body))
            numbers = [x.number for s in statements for x in assigns(s)]
            local = {s.buffer for s in statements if isinstance(s, Store) and s.buffer.role == "local"}
            program.last = max([*numbers, *(int(b.name[1:]) for b in (*program.scratch, *local))], default=0)

    def _next(self) -> int:
        assert self._program.last is not None
        self._program.last += 1
        return self._program.last

    def var(self, dtype: DType, low: int | None = None, high: int | None = None) -> ScalarVar:
        """A new variable."""
        return ScalarVar(self._next(), dtype, low, high)

    def like(self, x: ScalarVar) -> ScalarVar:
        """A new variable of the dtype and range of another."""
        return self.var(x.dtype, x.low, x.high)

    def cell(self, dtype: DType) -> Cell:
        """A new cell."""
        return Cell(self._next(), dtype)

    def local(self, dtype: DType, size: int) -> Buffer:
        """New memory of each thread's own."""
        return self.buffer(dtype, (size,), "local")

    def buffer(self, dtype: DType, shape: Sequence[int], role: Role) -> Buffer:
        """New memory."""
        return Buffer(f"t{self._next()}", dtype, tuple(shape), role)


@dataclass(eq=False)
class Copier:
    """Copies statements. `scalars` are what stands for variables; what is assigned in a copy gets a name of its own."""

    fresh: Fresh
    scalars: dict[ScalarVar, Scalar]
    cells: dict[Cell, Cell] = field(default_factory=dict)

    def scalar(self, x: Scalar) -> Scalar:
        """A scalar of the copy."""
        return substituted(x, self.scalars)

    def index(self, index: Sequence[Affine]) -> tuple[Affine, ...]:
        """Subscripts of the copy."""
        return tuple(affine(self.scalar(i)) for i in index)

    def block(self, body: Sequence[Statement]) -> list[Statement]:
        """The copies of statements in order; of a conditional that is decided those of one block."""
        return [c for s in body for c in self.statement(s)]

    def _target(self, x: ScalarVar) -> ScalarVar:
        found = self.scalars[x] = self.fresh.like(x)
        return found

    def _cell(self, cell: Cell) -> Cell:
        return self.cells.get(cell, cell)

    def let(self, s: Let, args: tuple[Scalar, ...]) -> Sequence[Statement]:
        """The copy of a primitive, of these operands; nothing where that decides it."""
        if s.target in self.scalars:
            return ()
        known = (compared(*args) if s.primitive == "lt" else None) or decided(s.primitive, args, s.target.dtype)
        if known is not None:
            self.scalars[s.target] = known
            return ()
        return (Let(self._target(s.target), s.primitive, args),)

    def statement(self, s: Statement) -> Iterator[Statement]:
        """The copy of a statement, which may be none or several."""
        match s:
            case Let():
                yield from self.let(s, tuple(map(self.scalar, s.args)))
            case Load(target, buffer, index):
                at = self.index(index)
                yield Load(self._target(target), buffer, at)
            case Store(buffer, index, value):
                yield Store(buffer, self.index(index), self.scalar(value))
            case Copy():
                yield s
            case Get(target, cell):
                yield Get(self._target(target), self._cell(cell))
            case Set(cell, value):
                yield Set(self._cell(cell), self.scalar(value))
            case Combine(cell, primitive, value):
                yield Combine(self._cell(cell), primitive, self.scalar(value))
            case For(axis, low, high, body, parallel):
                first, last = self.index((low, high))
                yield For(self._target(axis), first, last, self.block(body), parallel)
            case While(test, condition, body):
                tested = self.block(test)
                yield While(tested, self.scalar(condition), self.block(body))
            case Conditional(condition, then, otherwise, usual):
                decision = self.scalar(condition)
                if isinstance(decision, ScalarConst):
                    yield from self.block(then if decision.value else otherwise)
                else:
                    yield Conditional(decision, self.block(then), self.block(otherwise), usual)


def copied(body: Sequence[Statement], fresh: Fresh, scalars: Mapping[ScalarVar, Scalar]) -> list[Statement]:
    """A copy with variables and cells of its own; `scalars` stand for variables, also for those that the statements assign."""
    made = [x for s in body for each in walk([s]) for x in assigns(each)]
    cells = {c: fresh.cell(c.dtype) for c in made if isinstance(c, Cell)}
    return Copier(fresh, dict(scalars), cells).block(body)


def substituted(x: Scalar, scalars: Mapping[ScalarVar, Scalar]) -> Scalar:
    """A scalar, with others for its variables."""
    if isinstance(x, ScalarVar):
        return scalars.get(x, x)
    if isinstance(x, ScalarConst) or scalars.keys().isdisjoint([v for v, _ in x.terms]):
        return x
    terms = [(scalars.get(var, var), factor) for var, factor in x.terms]
    names = {v for v, _ in terms if isinstance(v, ScalarVar)}
    if len(names) == len(terms):  # other names alone: most of what passes copy
        return Affine(tuple(terms), x.constant)  # type: ignore[arg-type]
    total = Affine((), x.constant)
    for scalar, factor in terms:
        total = total + affine(scalar) * factor
    return total


def dependent(body: Sequence[Statement], start: ScalarVar, cells: bool = True) -> set[ScalarVar]:
    """The variables that depend on one: by operands, by subscripts, and, where `cells` are counted, by any cell."""
    found = {start}
    written = {s.buffer for s in walk(list(body)) if isinstance(s, Store)}
    for s in walk(list(body)):
        changes = (isinstance(s, Load) and s.buffer in written) or (isinstance(s, Get) and cells)
        if isinstance(s, (Let, Load, Get)) and (changes or not found.isdisjoint(reads(s))):
            found.add(s.target)
    return found


def replaced(body: Sequence[Statement], replace: Mapping[int, Sequence[Statement]]) -> list[Statement]:
    """A block with other statements for some, which are named by their id; blocks within likewise, in place."""
    found: list[Statement] = []
    for s in body:
        if id(s) in replace:
            found += replace[id(s)]
            continue
        for block in blocks_of(s):
            block[:] = replaced(block, replace)
        found.append(s)
    return found
