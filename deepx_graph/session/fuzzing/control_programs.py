"""Random programs of branches and loops within each other, with what they print and keep in references.

Few operations on few types, so that values of outer scopes, of both sides and of loop variables meet: what is tested is
where things are placed, how often they run, and in which order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.literal import Array
from deepx_graph.ops import (
    add,
    and_,
    broadcast_in_dim,
    compare,
    convert,
    iota,
    maximum,
    minimum,
    multiply,
    negate,
    not_,
    print_,
    ref_create,
    ref_read,
    ref_write,
    reverse,
    select,
    sine,
    subtract,
    xor,
)
from deepx_graph.types import BOOL, F32, I32, STATE, TensorType, scalar, tensor
from deepx_graph.validation.programs import RandomProgram

DEEPEST = 3
"""Levels of control flow."""

TYPES = (scalar(I32), scalar(F32), tensor(F32, (3,)), scalar(BOOL))
DIRECTIONS = ("LT", "GE", "EQ", "NE")


def control_program(seed: int, steps: int = 8) -> RandomProgram:
    """The program of a seed; the same one each time. One in three has effects."""
    return _Control(random.Random(seed)).program(steps)


@dataclass
class _Scope:
    """What may be read at a place: values, and the state and the reference where there are effects."""

    values: list[Node]
    state: Node | None = None
    reference: Node | None = None


class _Control:
    def __init__(self, rng: random.Random) -> None:
        self.rng, self.b = rng, Builder()
        self.params: list[Node] = []
        self.inputs: dict[str, Array] = {}

    def program(self, steps: int) -> RandomProgram:
        """A program whose results are a value of each type, and the last state."""
        draws = np.random.default_rng(self.rng.randrange(1 << 30))
        for type in TYPES:
            array = np.asarray(draws.standard_normal(type.shape)).astype(np.float32) if type.dtype is F32 else \
                np.asarray(draws.integers(0, 2 if type.dtype is BOOL else 5)).astype(type.dtype.np)  # fmt: skip
            self.params.append(self.b.param(len(self.params), type, name := f"x{len(self.params)}"))
            self.inputs[name] = array
        scope, params = _Scope(list(self.params)), list(self.params)
        if self.rng.random() < 1 / 3:
            scope.state = self.b.param(len(params), STATE, "state")
            params.append(scope.state)
            scope.reference, scope.state = self.b.items(self.b(ref_create, scope.state, self.params[1]))
        self.steps(scope, steps, DEEPEST)
        results = [self.pick(scope, type) for type in TYPES] + ([] if scope.state is None else [scope.state])
        names = [f"y{k}" for k in range(len(TYPES))] + ([] if scope.state is None else ["after"])
        return RandomProgram(Module((Function("main", tuple(params), tuple(results), tuple(names)),)), self.inputs)

    def steps(self, scope: _Scope, count: int, depth: int) -> None:
        """Adds so many values, or as much control flow."""
        for _ in range(count):
            kind = self.rng.random()
            if kind < 0.2 and depth:
                self.choice(scope, depth - 1)
            elif kind < 0.4 and depth:
                self.repetition(scope, depth - 1)
            elif kind < 0.6 and scope.state is not None:
                self.effect(scope)
            else:
                scope.values.append(self.operation(scope))

    def pick(self, scope: _Scope, type: TensorType) -> Node:
        """A value of a type, newer ones more often."""
        found = [v for v in scope.values if v.type == type]
        return found[int(len(found) * self.rng.random() ** 0.5)]

    def operation(self, scope: _Scope) -> Node:
        whole, real, vector, truth = TYPES
        b, rng = self.b, self.rng
        kind = rng.randrange(8)
        if kind == 0:
            return b(rng.choice((add, subtract, multiply, minimum, xor)), self.pick(scope, whole), self.pick(scope, whole))
        if kind == 1:
            return b(rng.choice((add, subtract, multiply, maximum)), self.pick(scope, vector), self.pick(scope, vector))
        if kind == 2:
            other = self.pick(scope, rng.choice((real, vector)))
            return b(sine, b(add, self.pick(scope, vector), other) if rng.random() < 0.5 else self.pick(scope, vector))
        if kind == 3:
            type = rng.choice((whole, real))
            return b(compare, self.pick(scope, type), self.pick(scope, type), direction=rng.choice(DIRECTIONS))
        if kind == 4:
            return b(and_, self.pick(scope, truth), b(not_, self.pick(scope, truth)))
        if kind == 5:
            type = rng.choice(TYPES)
            return b(select, self.pick(scope, truth), self.pick(scope, type), self.pick(scope, type))
        if kind == 6:
            number = b(convert, self.pick(scope, whole), dtype=F32)
            return b(broadcast_in_dim, number, shape=(3,), broadcast_dimensions=()) if rng.random() < 0.5 else b(negate, number)
        return rng.choice((b.constant(rng.randint(-2, 3), I32), b(iota, dtype=F32, shape=(3,), iota_dimension=0),
                           b(reverse, self.pick(scope, vector), dimensions=(0,))))  # fmt: skip

    def effect(self, scope: _Scope) -> None:
        """Prints a value, or writes or reads the reference."""
        assert scope.state is not None and scope.reference is not None
        kind = self.rng.randrange(3)
        if kind == 0:
            scope.state = self.b(print_, scope.state, self.pick(scope, self.rng.choice(TYPES[:2])), format="%g;")
        elif kind == 1:
            scope.state = self.b(ref_write, scope.state, scope.reference, self.pick(scope, TYPES[1]))
        else:
            value, scope.state = self.b.items(self.b(ref_read, scope.state, scope.reference))
            scope.values.append(value)

    def choice(self, scope: _Scope, depth: int) -> None:
        """Two or three sides, each with steps of its own."""
        types = [self.rng.choice(TYPES) for _ in range(self.rng.randint(1, 3))]
        selector = self.pick(scope, TYPES[3]) if self.rng.random() < 0.6 else self.pick(scope, TYPES[0])
        sides: list[Sequence[Node]] = []
        for _ in range(2 if selector.type == TYPES[3] else self.rng.randint(2, 3)):
            side = _Scope(list(scope.values), scope.state, scope.reference)
            self.steps(side, self.rng.randint(1, 3), depth)
            sides.append([*(self.pick(side, t) for t in types), *([] if side.state is None else [side.state])])
        made = self.b.branch(selector, *sides)
        self.take(scope, made)

    def repetition(self, scope: _Scope, depth: int) -> None:
        """A loop of a few iterations, which a value of its body may end earlier."""
        types = [self.rng.choice(TYPES) for _ in range(self.rng.randint(1, 3))]
        inits = [self.pick(scope, t) for t in types]
        times, early = self.rng.randint(0, 4), self.rng.random() < 0.3
        start = self.b.constant(0, I32)

        def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            count, values = variables[0], list(variables[1:])
            state = values.pop() if scope.state is not None else None
            inner = _Scope([*scope.values, count, *values], state, scope.reference)
            go = self.b(compare, count, self.b.constant(times, I32), direction="LT")
            if early:
                go = self.b(and_, go, self.pick(inner, TYPES[3]))
            self.steps(inner, self.rng.randint(1, 3), depth)
            nexts = [self.pick(inner, t) for t in types]
            return go, [self.b(add, count, self.b.constant(1, I32)), *nexts, *([] if inner.state is None else [inner.state])]

        made = self.b.loop([start, *inits, *([] if scope.state is None else [scope.state])], body)
        self.take(scope, made)

    def take(self, scope: _Scope, made: Sequence[Node]) -> None:
        """What control flow gives: values, and the state last."""
        values = list(made)
        if scope.state is not None:
            scope.state = values.pop()
        scope.values += values
