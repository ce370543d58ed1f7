"""What a loop program means: it is run statement by statement. Slow, and independent of every back end; the oracle of passes.

Each statement becomes a function of Python once, however often it runs (closure generation: Feeley, Lapalme, Using Closures for
Code Generation, 1987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
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
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar
from deepx_graph.types import BOOL, DType

Order = Callable[[range], Iterable[int]]
"""In which order the iterations of a parallel loop run."""


def interpret(program: LoopProgram, arguments: Sequence[Array], over: Mapping[Buffer, int] | None = None,
              order: Order = iter) -> list[Array]:
    """The results for these arguments; `over` has the numbers of arguments in whose memory results lie. Raises IndexError for a
    subscript out of range."""
    run = _Run(order)
    for buffer, array in zip(program.arguments, arguments, strict=True):
        run.memory[buffer] = reals(array).reshape(buffer.shape)
    for buffer in program.constants:
        assert buffer.array is not None
        run.memory[buffer] = reals(buffer.array).reshape(buffer.shape)
    for result, k in (over or {}).items():
        run.memory[program.arguments[k]] = run.memory[result] = run.memory[program.arguments[k]].copy()
    touched = {s.buffer for s in walk(program.body) if isinstance(s, (Load, Store))}
    for buffer in touched.union(program.results, program.scratch).difference(run.memory):
        run.memory[buffer] = np.zeros(buffer.shape, buffer.dtype.np)
    with np.errstate(all="ignore"):
        run.block(program.body)()
    return [run.memory[r] for r in program.results]


def reals(array: Array) -> Array:
    """An array in the order of C; a complex one as its parts, along a last axis."""
    array = np.asarray(array, order="C")
    return array.reshape(*array.shape, 1).view(array.real.dtype) if array.dtype.kind == "c" else array


_integer: Callable[[int], Any] = cache(np.int64)
"""A subscript as a scalar: making one takes longer than an iteration of most loops."""


class _Run:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.memory: dict[Buffer, Array] = {}
        self.vars: dict[ScalarVar, Any] = {}
        self.cells: dict[Cell, Any] = {}

    def scalar(self, x: Scalar) -> Callable[[], Any]:
        if isinstance(x, ScalarVar):
            return partial(self.vars.__getitem__, x)
        if isinstance(x, ScalarConst):
            return lambda: x.value
        number = self.subscript(x)
        return lambda: _integer(number())

    def subscript(self, x: Affine) -> Callable[[], int]:
        terms, constant, now = x.terms, x.constant, self.vars
        if not terms:
            return lambda: constant
        if len(terms) == 1:
            ((var, factor),) = terms
            return lambda: int(now[var]) * factor + constant
        return lambda: constant + sum([int(now[v]) * f for v, f in terms])

    def at(self, buffer: Buffer, index: Sequence[Affine]) -> Callable[[], int]:
        """The position of an element in the order of C."""
        shape = buffer.shape if len(index) == len(buffer.shape) else (buffer.size,)
        axes = list(zip([self.subscript(i) for i in index], shape, strict=True))

        def outside() -> IndexError:
            return IndexError(f"{buffer.name}{[s() for s, _ in axes]} of {list(buffer.shape)}")

        def position() -> int:
            found = 0
            for subscript, size in axes:
                i = subscript()
                if not 0 <= i < size:
                    raise outside()
                found = found * size + i
            return found

        def alone() -> int:
            if 0 <= (i := only()) < length:
                return i
            raise outside()

        if len(axes) != 1:
            return position
        ((only, length),) = axes
        return alone

    def block(self, body: Sequence[Statement]) -> Callable[[], None]:
        steps = self.steps(body)
        if len(steps) == 1:
            return steps[0]

        def run() -> None:
            for step in steps:
                step()

        return run

    def steps(self, body: Sequence[Statement]) -> list[Callable[[], None]]:
        return [self.statement(s) for s in body]

    def statement(self, s: Statement) -> Callable[[], None]:
        now, cells = self.vars, self.cells
        match s:
            case Let(target, primitive, args):
                return self._assigned(now, target, primitive, list(map(self.scalar, args)), args[0].dtype)
            case Load(target, buffer, index):
                flat, at = self.memory[buffer].reshape(-1), self.at(buffer, index)
                return lambda: now.__setitem__(target, flat[at()])
            case Store(buffer, index, value):
                flat, at, given = self.memory[buffer].reshape(-1), self.at(buffer, index), self.scalar(value)
                return lambda: flat.__setitem__(at(), given())
            case Copy():
                return partial(np.copyto, self.memory[s.target], self.memory[s.source])
            case Get(target, cell):
                return lambda: now.__setitem__(target, cells[cell])
            case Set(cell, value):
                given = self.scalar(value)
                return lambda: cells.__setitem__(cell, given())
            case Combine(cell, primitive, value):
                return self._assigned(cells, cell, primitive, [partial(cells.__getitem__, cell), self.scalar(value)], cell.dtype)
            case Conditional(condition, then, otherwise):
                holds, one, other = self.scalar(condition), self.block(then), self.block(otherwise)
                return lambda: one() if holds() else other()
            case For():
                return self._for(s)
            case While(test, condition, body):
                return partial(self._while, self.block(test), self.scalar(condition), self.block(body))

    def _assigned(self, into: dict[Any, Any], target: Any, primitive: str, given: Sequence[Callable[[], Any]],
                  first: DType) -> Callable[[], None]:
        function = primitives.function_of(primitive, target.dtype, of_bools=first is BOOL)
        if len(given) == 1:
            (x,) = given
            return lambda: into.__setitem__(target, function(x()))
        if len(given) == 2:
            x, y = given
            return lambda: into.__setitem__(target, function(x(), y()))
        return lambda: into.__setitem__(target, function(*[x() for x in given]))

    def _for(self, loop: For) -> Callable[[], None]:
        low, high, steps = self.subscript(loop.low), self.subscript(loop.high), self.steps(loop.body)
        axis, now, order = loop.axis, self.vars, self.order if loop.parallel else iter

        def run() -> None:
            for k in order(range(low(), high())):
                now[axis] = _integer(k)
                for step in steps:
                    step()

        return run

    def _while(self, test: Callable[[], None], condition: Callable[[], Any], body: Callable[[], None]) -> None:
        test()
        while condition():
            body()
            test()
