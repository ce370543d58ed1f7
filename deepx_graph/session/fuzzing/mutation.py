"""Mutants of given programs: other operands, operations, constants and attributes, operations in branches and loops.

A mutant is well-formed and computes something else than the program; what it computes is what the reference says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import rebuild, replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, PROJ, REGION, TUPLE, value_of
from deepx_graph.ops import OPS, add, compare
from deepx_graph.types import BOOL, I32, TensorType, scalar
from deepx_graph.validation.samples import drawn_array, ordinary, positions, special, ties
from deepx_graph.verify import verify

MOST_CHANGES, TRIES = 4, 40
FIXED = (PARAM, LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, TUPLE)
"""Nodes whose meaning is their place: they are not changed."""

Change = Callable[[random.Random, Function, Node, tuple[Node, ...]], Node | None]
"""What a node becomes, over what its operands have become; None where it cannot be changed so."""


def mutated(module: Module, seed: int) -> Module:
    """A mutant with a few changes in the entry; the module itself where none is found that keeps it well-formed."""
    rng, found = random.Random(seed), module
    wanted = rng.randint(1, MOST_CHANGES)
    for _ in range(TRIES):
        entry = found.entry
        nodes = [n for n in entry.nodes if n.op not in FIXED]
        if not nodes or not wanted:
            break
        after = _changed(rng, entry, rng.choice(nodes), rng.choice(CHANGES))
        if after is None:
            continue
        candidate = found.with_functions(after if f is entry else f for f in found.functions)
        try:
            verify(candidate)
        except DeepxGraphError:  # a value of a loop outside of it, or the like
            continue
        found, wanted = candidate, wanted - 1
    return found


def _changed(rng: random.Random, entry: Function, chosen: Node, change: Change) -> Function | None:
    declined = False

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        nonlocal declined
        if node is not chosen:
            return with_inputs(node, inputs)
        made = change(rng, entry, node, inputs)
        declined = made is None or made.type != node.type
        return with_inputs(node, inputs) if made is None or declined else made

    try:
        after = replaced(entry, rebuild(entry.nodes, {}, step))
    except DeepxGraphError:
        return None
    return None if declined else after


def _other_operand(rng: random.Random, entry: Function, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """An operand of the same type from somewhere before."""
    if not inputs:
        return None
    k = rng.randrange(len(inputs))
    alike = [n for n in (*entry.params, *inputs) if n.type == inputs[k].type and n is not inputs[k]]
    if not alike:
        return None
    return with_inputs(node, (*inputs[:k], rng.choice(alike), *inputs[k + 1 :]))


def _other_operation(rng: random.Random, entry: Function, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """An elementwise operation of the same type."""
    if not node.op.elementwise or node.attrs:
        return None
    fitting = [op for op in OPS.values() if op.elementwise and not op.attrs and len(op.operands) == len(inputs)
               and all(o.type.holds(i.type) for o, i in zip(op.operands, inputs, strict=True))]  # fmt: skip
    return Builder()(rng.choice(fitting), *inputs) if fitting else None


def _other_constant(rng: random.Random, entry: Function, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Other numbers, infinities and NaN among them, but no extremes, of which sums overflow in one order and not in another."""
    if node.op is not CONSTANT or not isinstance(node.type, TensorType) or node.type.dtype.np is None:
        return None
    draws = np.random.default_rng(rng.randrange(1 << 30))
    type = scalar(node.type.dtype) if value_of(node).is_splat else node.type
    array = drawn_array(type, rng.choice((ordinary, positions, ties, special)), draws)
    return Builder().splat(array[()], node.type) if value_of(node).is_splat else Builder().constant(array)


def _other_attribute(rng: random.Random, entry: Function, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """An integer of an attribute one more or less, or two of them exchanged, where the type stays."""
    places = [k for k, v in enumerate(node.attrs) if isinstance(v, tuple) and v and all(type(i) is int for i in v)]
    if not places:
        return None
    k = rng.choice(places)
    numbers = list(node.attrs[k])
    at = rng.randrange(len(numbers))
    if rng.random() < 0.4:
        rng.shuffle(numbers)
    else:
        numbers[at] += rng.choice((-1, 1))
    attrs = {a.name: value for a, value in zip(node.op.attrs, node.attrs, strict=True)} | {node.op.attrs[k].name: tuple(numbers)}
    return Builder()(node.op, *inputs, **attrs)


def _in_a_branch(rng: random.Random, entry: Function, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The value, or an operand of its type, by a comparison of an input."""
    others: Sequence[Node] = [i for i in inputs if i.type == node.type]
    tests = [p for p in entry.params if p.type in (scalar(BOOL), scalar(I32))]
    if not others or node.op is CONSTANT:
        return None
    b = Builder()
    made = with_inputs(node, inputs)
    test = rng.choice(tests) if tests else b.constant(rng.random() < 0.5)
    if test.type != scalar(BOOL):
        test = b(compare, test, b.like(rng.randint(-1, 2), test), direction="LT")
    sides = [(made,), (rng.choice(others),)]
    rng.shuffle(sides)
    return b.branch(test, *sides)[0]


def _in_a_loop(rng: random.Random, entry: Function, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The operation again and again on what it gave, as its own operand."""
    places = [k for k, i in enumerate(inputs) if i.type == node.type]
    if not places or node.op is CONSTANT:
        return None
    b, k, times = Builder(), rng.choice(places), rng.randint(0, 3)

    def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        count, value = variables
        made = Node(node.op, (*inputs[:k], value, *inputs[k + 1 :]), node.attrs, node.type, node.origin)
        return b(compare, count, b.constant(times, I32), direction="LT"), [b(add, count, b.constant(1, I32)), made]

    return b.loop([b.constant(0, I32), inputs[k]], body)[1]


CHANGES: tuple[Change, ...] = (
    _other_operand, _other_operation, _other_constant, _other_attribute, _in_a_branch, _in_a_loop,
)  # fmt: skip
