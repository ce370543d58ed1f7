"""What a loop program means: it is run statement by statement. Slow, and independent of every back end; the oracle of passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    written = [s.buffer for s in walk(program.body) if isinstance(s, Store)]
    for buffer in (*program.results, *program.scratch, *written):
        run.memory.setdefault(buffer, np.zeros(buffer.shape, buffer.dtype.np))
    with np.errstate(all="ignore"):
        run.block(program.body)
    return [run.memory[r] for r in program.results]


def reals(array: Array) -> Array:
    """An array in the order of C; a complex one as its parts, along a last axis."""
    array = np.asarray(array, order="C")
    return array.reshape(*array.shape, 1).view(array.real.dtype) if array.dtype.kind == "c" else array


class _Run:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.memory: dict[Buffer, Array] = {}
        self.vars: dict[ScalarVar, Any] = {}
        self.cells: dict[Cell, Any] = {}

    def scalar(self, x: Scalar) -> Any:
        if isinstance(x, ScalarVar):
            return self.vars[x]
        if isinstance(x, ScalarConst):
            return x.value
        return np.int64(x.constant + sum(int(self.vars[v]) * f for v, f in x.terms))

    def at(self, buffer: Buffer, index: Sequence[Affine]) -> tuple[int, ...]:
        found = tuple(int(self.scalar(i)) for i in index)
        if len(found) == 1 != len(buffer.shape) and 0 <= found[0] < buffer.size:
            return tuple(int(k) for k in np.unravel_index(found[0], buffer.shape))
        if any(not 0 <= i < n for i, n in zip(found, buffer.shape, strict=True)):
            raise IndexError(f"{buffer.name}{list(found)} of {list(buffer.shape)}")
        return found

    def block(self, body: list[Statement]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Statement) -> None:
        match s:
            case Let(target, primitive, args):
                self.vars[target] = primitives.evaluate(primitive, tuple(map(self.scalar, args)), target.dtype)
            case Load(target, buffer, index):
                self.vars[target] = self.memory[buffer][self.at(buffer, index)]
            case Store(buffer, index, value):
                self.memory[buffer][self.at(buffer, index)] = self.scalar(value)
            case Copy(target, source):
                self.memory[target][...] = self.memory[source]
            case Get(target, cell):
                self.vars[target] = self.cells[cell]
            case Set(cell, value):
                self.cells[cell] = self.scalar(value)
            case Combine(cell, primitive, value):
                self.cells[cell] = primitives.evaluate(primitive, (self.cells[cell], self.scalar(value)), cell.dtype)
            case Conditional(condition, then, otherwise):
                self.block(then if self.scalar(condition) else otherwise)
            case For(axis, low, high, body, parallel):
                iterations = range(int(self.scalar(low)), int(self.scalar(high)))
                for k in self.order(iterations) if parallel else iterations:
                    self.vars[axis] = np.int64(k)
                    self.block(body)
            case While(test, condition, body):
                self.block(test)
                while self.scalar(condition):
                    self.block(body)
                    self.block(test)
                    condition = s.condition
