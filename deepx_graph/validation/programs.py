"""Random programs that use every operation, in a line, in branches and in loops, from what declarations say of them alone.

An operation is drawn with one of its sample operands; each operand is a value that the program has already, of the type that the
sample has, or a new input with the sample as its value. So attributes are ones that fit, and values are whatever comes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.literal import Array
from deepx_graph.ops import OPS, add, compare
from deepx_graph.types import (
    BF16,
    BOOL,
    C64,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    U32,
    DType,
    TensorType,
    TupleType,
    Type,
    scalar,
    tensor,
    type_of_array,
)
from deepx_graph.validation.samples import sample_array

LARGEST = 4096
"""Elements of a sample above which it is not used."""

MOST_ITERATIONS = 4

SAMPLED = (BOOL, I8, I32, I64, U8, U32, F16, BF16, F32, F64, C64)
"""Element types that ops without samples are tried with."""

OPERATION, CHOICE, REPETITION = "operation", "branch", "loop"
STEPS = (OPERATION,) * 8 + (CHOICE, REPETITION)
"""What a step adds, as often as it stands there."""


@dataclass(frozen=True)
class Use:
    """An operation with attributes and operands that it takes."""

    op: Op
    arrays: tuple[Array, ...]
    attrs: dict[str, Any]

    @property
    def types(self) -> list[TensorType]:
        """The types of the operands."""
        return [type_of_array(a) for a in self.arrays]


@dataclass(frozen=True)
class RandomProgram:
    """A program, and inputs by name."""

    module: Module
    inputs: dict[str, Array]


def random_program(seed: int, steps: int = 12) -> RandomProgram:
    """The program of a seed, of about so many operations; the same one each time."""
    return _Generator(random.Random(seed)).program(steps)


def _can_stand_anywhere(op: Op) -> bool:
    """Whether an op computes arrays from arrays, always, and nothing else."""
    return op.eval is not None and op.total and op.exchange is None and op.ready is None and not op.conceals and bool(op.operands)


@cache
def uses_of(op: Op) -> tuple[Use, ...]:
    """The samples of an op: those that it declares, else alike tensors of each element type."""
    rng = np.random.default_rng(0)
    if op.samples is not None:
        drawn = [(tuple(map(np.asarray, arrays)), dict(attrs)) for arrays, attrs in op.samples(rng)]
    else:
        drawn = [(tuple(_alike(op, dtype, shape, rng)), {}) for dtype in SAMPLED for shape in ((2, 3), ())]
    return tuple(Use(op, arrays, attrs) for arrays, attrs in drawn if _fits(op, arrays, attrs))


def _alike(op: Op, dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Iterator[Array]:
    for _ in op.operands:
        yield rng.uniform(*op.domain, shape).astype(dtype.np) if dtype.is_float else sample_array(tensor(dtype, shape), 0, rng)


def _fits(op: Op, arrays: Sequence[Array], attrs: dict[str, Any]) -> bool:
    if any(a.dtype.kind in "OSU" or a.size > LARGEST for a in arrays):
        return False
    try:
        type = op.infer([type_of_array(a) for a in arrays], *op.bind(attrs))
    except (InferError, KeyError):
        return False
    return all(isinstance(t, TensorType) and t.is_static and math.prod(t.shape) <= LARGEST for t in _leaf_types(type))


def _leaf_types(type: Type) -> tuple[Type, ...]:
    return type.items if isinstance(type, TupleType) else (type,)


@cache
def drawable() -> tuple[Op, ...]:
    """The ops that have samples."""
    return tuple(op for op in OPS.values() if _can_stand_anywhere(op) and uses_of(op))


class _Generator:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.b = Builder()
        self.params: list[Node] = []
        self.inputs: dict[str, Array] = {}

    def program(self, steps: int) -> RandomProgram:
        """A program whose results are what nothing else uses, and a few values more."""
        pool: list[Node] = []
        for _ in range(steps):
            pool += self.step(self.rng.choice(STEPS), pool)
        used = {i for n in pool for i in n.inputs}
        results = [n for n in pool if n not in used] + self.rng.sample(pool, min(2, len(pool)))
        entry = Function("main", tuple(self.params), tuple(results), tuple(f"y{k}" for k in range(len(results))))
        return RandomProgram(Module((entry,)), self.inputs)

    def step(self, kind: str, pool: Sequence[Node]) -> list[Node]:
        """New values made of those in the pool."""
        try:
            if kind == OPERATION or not pool:
                return self.use(self.connected_use(pool), pool)
            return self.choice(pool) if kind == CHOICE else self.repetition(pool)
        except VerifyError:  # what a type or a value of the pool does not allow
            return []

    def random_use(self) -> Use:
        return self.rng.choice(uses_of(self.rng.choice(drawable())))

    def connected_use(self, pool: Sequence[Node]) -> Use:
        """Of a few, the one that takes most of its operands from the pool."""
        types = {n.type for n in pool}
        return max((self.random_use() for _ in range(4)), key=lambda u: sum(t in types for t in u.types))

    def use(self, use: Use, pool: Sequence[Node]) -> list[Node]:
        """The results of an op on values of the pool where there are some, else on inputs."""
        node = self.b(use.op, *(self.operand(a, pool) for a in use.arrays), **use.attrs)
        return list(self.b.items(node)) if isinstance(node.type, TupleType) else [node]

    def operand(self, array: Array, pool: Sequence[Node]) -> Node:
        alike = [n for n in pool if n.type == type_of_array(array)]
        return self.rng.choice(alike) if alike and self.rng.random() < 0.8 else self.input(array)

    def input(self, array: Array) -> Node:
        name = f"x{len(self.params)}"
        node = self.b.param(len(self.params), type_of_array(array), name)
        self.params.append(node)
        self.inputs[name] = array
        return node

    def test(self, pool: Sequence[Node]) -> Node:
        """A truth value."""
        found = [n for n in pool if n.type == scalar(BOOL)]
        return self.rng.choice(found) if found else self.input(np.asarray(self.rng.random() < 0.5))

    def choice(self, pool: Sequence[Node]) -> list[Node]:
        """One of two values of a type, each computed in its branch alone."""
        use = self.connected_use(pool)
        first, second = self.use(use, pool), self.use(use, pool)
        return list(self.b.branch(self.test(pool), first, second))

    def repetition(self, pool: Sequence[Node]) -> list[Node]:
        """A value that an op makes anew in every iteration, of itself and of values from outside the loop."""
        fitting = [(use, k) for use in (self.random_use() for _ in range(40)) for k, t in enumerate(use.types)
                   if use.op.infer(use.types, *use.op.bind(use.attrs)) == t]
        if not fitting:
            return []
        use, k = self.rng.choice(fitting)
        operands = [self.operand(a, pool) for a in use.arrays]
        times = self.b.constant(self.rng.randrange(MOST_ITERATIONS), I32)

        def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            count, value = variables
            made = self.b(use.op, *operands[:k], value, *operands[k + 1 :], **use.attrs)
            return self.b(compare, count, times, direction="LT"), [self.b(add, count, self.b.constant(1, I32)), made]

        return [self.b.loop([self.b.constant(0, I32), operands[k]], body)[1]]
