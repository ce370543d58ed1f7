"""Faults sown into programs: one node of the entry is wrong in one of the ways in which rewrites go wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import rebuild, replaced
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, value_of
from deepx_graph.literal import Literal
from deepx_graph.ops import concatenate, negate, slice_
from deepx_graph.types import TensorType

Fault = Callable[[Builder, Node, tuple[Node, ...]], Node | None]


def sign(b: Builder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The negative."""
    numbers = isinstance(node.type, TensorType) and node.type.dtype.kind in ("int", "float", "complex")
    return b(negate, _made(node, inputs)) if numbers and node.inputs else None


def swapped(b: Builder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The first two operands the other way round."""
    if node.op.commutative or len(inputs) != 2 or inputs[0].type != inputs[1].type or inputs[0] is inputs[1]:
        return None
    return _made(node, inputs[::-1])


def dropped(b: Builder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """An operand of the result's type instead of the result."""
    return next((i for i in inputs if i.type == node.type and len(inputs) > 1), None)


def rolled(b: Builder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The elements one further along an axis."""
    if not isinstance(node.type, TensorType) or not node.inputs or not any(d > 1 for d in node.type.shape):
        return None
    x, shape = _made(node, inputs), node.type.shape
    axis = next(k for k, d in enumerate(shape) if d > 1)
    ones = (1,) * len(shape)

    def part(low: int, high: int) -> Node:
        start = tuple(low if k == axis else 0 for k in range(len(shape)))
        return b(slice_, x, start_indices=start, limit_indices=tuple(high if k == axis else d for k, d in enumerate(shape)),
                 strides=ones)

    return b(concatenate, part(1, shape[axis]), part(0, 1), dimension=axis)


def constant(b: Builder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """A constant of double or single precision that is wrong by one part in a million."""
    if node.op is not CONSTANT or not value_of(node).dtype.is_float or value_of(node).dtype.bits < 32:
        return None
    literal = value_of(node)
    array = literal.array
    wrong = (array.astype(np.float64) * (1 + 1e-6)).astype(array.dtype)
    if not array.size or not np.isfinite(array.astype(np.float64)).all() or (wrong == array).all():
        return None
    return b.literal(Literal(wrong))


FAULTS: tuple[Fault, ...] = (sign, swapped, dropped, rolled, constant, constant)


def mutant(module: Module, rng: random.Random) -> Module | None:
    """The module with one fault of a kind chosen by chance; None where the entry has no place for it."""
    entry, fault = module.entry, rng.choice(FAULTS)
    places = [n for n in entry.nodes if n.op not in (PARAM, LOOP_BEGIN, LOOP_END)]
    rng.shuffle(places)
    for victim in places:
        found = _with_fault(entry, victim, fault)
        if found is not None:
            return module.with_functions(found if f is entry else f for f in module.functions)
    return None


def _with_fault(entry: Function, victim: Node, fault: Fault) -> Function | None:
    done = False

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        nonlocal done
        if node is victim:
            wrong = fault(Builder(), node, inputs)
            if wrong is not None:
                done = True
                return wrong
        return _made(node, inputs)

    after = replaced(entry, rebuild(entry.nodes, {p: p for p in entry.params}, step))
    return after if done else None


def _made(node: Node, inputs: tuple[Node, ...]) -> Node:
    return node if inputs == node.inputs else Node(node.op, inputs, node.attrs, node.type, node.origin)


def mutants(modules: Iterator[Module], rng: random.Random) -> Iterator[tuple[Module, Module]]:
    """Programs with a mutant of each that has one."""
    for module in modules:
        found = mutant(module, rng)
        if found is not None:
            yield module, found
