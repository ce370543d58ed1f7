"""The constants of two programs, and what their rounding may make of results.

Whoever folds `0.1 * 0.2` gives a constant that the other program has not, or one more use of a number that both have: attention
is scaled by 0.5, or both of its operands by the root of 0.5, which GELU has as well. The numbers that only one of two programs
has, and scalars that one of them uses more often, are moved by their last place, in their own type, and the programs run again in
double precision: the spread of each output is what so small a change can make of it. A coefficient that is wrong by more shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Array, Literal

MARGIN = 4
"""Folding a formula of a few operations rounds a few times; in units in the last place, of which 1e-6 is eight or more in f32."""


def float_constants(module: Module) -> Array:
    """The different floats in the constants of a module, bodies included, sorted."""
    found = [np.unique(_parts(literal)) for literal in _literals(module)]
    return np.unique(np.concatenate(found)) if found else np.zeros(0)


def shared_constants(a: Module, b: Module) -> Array:
    """The floats that the constants of both modules have, but for scalars of which one makes more use."""
    uses, others = _scalar_uses(a), _scalar_uses(b)
    otherwise = [v for v in uses | others if uses[v] != others[v]]
    return np.setdiff1d(np.intersect1d(float_constants(a), float_constants(b)), otherwise)


def _scalar_uses(module: Module) -> Counter[float]:
    """How often operations read each number of which a whole constant consists."""
    found = Counter[float]()
    for f in every_function(module):
        for node, users in f.users.items():
            if node.op is CONSTANT and value_of(node).dtype.is_differentiable and value_of(node).splat_value is not None:
                found.update(dict.fromkeys(_parts(value_of(node)).tolist(), len(users)))
    return found


def moved_constants(module: Module, known: Array, rng: np.random.Generator) -> Module:
    """The module with every float of its constants that is none of the known ones one unit in the last place up or down."""
    return map_literals(module, lambda literal: _moved(literal, known, rng))


def map_literals(module: Module, change: Callable[[Literal], Literal]) -> Module:
    """The module with its floating constants changed, those in bodies, too."""

    def value(x: object) -> object:
        if isinstance(x, Literal) and x.dtype.is_differentiable:
            return change(x)
        return rebuilt(x, step) if isinstance(x, Function) else x

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        attrs = tuple(map(value, node.attrs))
        same = inputs == node.inputs and all(a is b for a, b in zip(attrs, node.attrs, strict=True))
        return node if same else Node(node.op, inputs, attrs, node.type, node.origin)

    return module.with_functions(rebuilt(f, step) for f in module.functions)


def _literals(module: Module) -> Iterator[Literal]:
    for node in every_node(module):
        if node.op is CONSTANT and value_of(node).dtype.is_differentiable:
            yield value_of(node)


def every_node(module: Module) -> Iterator[Node]:
    """The nodes of all functions, and of the bodies that are attributes."""
    return (node for f in every_function(module) for node in f.nodes)


def every_function(module: Module) -> Iterator[Function]:
    """All functions, and the bodies that are attributes."""
    waiting = list(module.functions)
    while waiting:
        function = waiting.pop()
        yield function
        waiting += [a for node in function.nodes for a in node.attrs if isinstance(a, Function)]


def _numbers(literal: Literal) -> Array:
    splat = literal.splat_value
    return np.asarray(literal.array if splat is None else splat)


def _parts(literal: Literal) -> Array:
    numbers = _numbers(literal)
    parts = [numbers.real, numbers.imag] if numbers.dtype.kind == "c" else [numbers]
    return np.concatenate([p.astype(np.float64).reshape(-1) for p in parts])


def _moved(literal: Literal, known: Array, rng: np.random.Generator) -> Literal:
    numbers = _numbers(literal)
    if numbers.dtype.kind == "c":
        moved = _stepped(numbers.real, known, rng) + 1j * _stepped(numbers.imag, known, rng)
    else:
        moved = _stepped(numbers, known, rng)
    moved = np.asarray(moved).astype(numbers.dtype)
    return Literal(moved) if literal.splat_value is None else Literal.splat(moved[()], literal.type)


def _stepped(numbers: Array, known: Array, rng: np.random.Generator) -> Array:
    infinity = np.asarray(np.inf, numbers.dtype)
    with np.errstate(all="ignore"):
        stepped = np.where(rng.random(numbers.shape) < 0.5, np.nextafter(numbers, infinity), np.nextafter(numbers, -infinity))
        free = np.isfinite(numbers.astype(np.float64)) & ~np.isin(numbers.astype(np.float64), known) & (numbers != 0)
    return np.asarray(np.where(free, stepped, numbers))
