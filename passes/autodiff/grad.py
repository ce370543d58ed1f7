"""`grad`: a module that computes the gradients of a module's outputs with respect to its inputs, as a graph like any other.

The new entry takes the inputs of the old one and a cotangent `ct_<output>` for each floating or complex output; it gives
`grad_<input>` for each floating or complex input. Here the ways to treat loops are tried and the program is put together;
docs/gradients.md says how the backward part comes about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.passes.autodiff.calls import Derivatives
from deepx_graph.passes.autodiff.function import gradients_of, variants
from deepx_graph.passes.autodiff.prepare import (
    closed,
    input_name,
    is_differentiable,
    straightened,
    unused_name,
    wanted_inputs,
    with_entry,
)
from deepx_graph.passes.scalar.dead_columns import prune
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.types import TupleType, is_state

LOOPS = ("keep", "recompute", "sqrt")
"""What to do about the values of a loop that its backward part needs: keep those of every iteration; keep the loop's variables of
every iteration and compute the rest again; do that for runs of about as many iterations as there are runs."""

BUDGET = 1 << 30
"""Bytes that loops may keep before `auto` computes values again."""


@dataclass(frozen=True)
class Grad(Pass):
    """Replaces the program by the one that computes its gradients.

    `wrt` names the inputs whose gradients are wanted, in order; all floating and complex ones when it is empty. `loop` is one of
    LOOPS or `auto`: the first of them under which loops keep no more than `budget` bytes, else the one that keeps least.
    """

    name: ClassVar[str] = "grad"
    wrt: tuple[str, ...] = ()
    loop: str = "auto"
    budget: int = BUDGET

    def run(self, module: Module) -> Module:
        """The gradient module; raises as `grad` does."""
        return grad(module, self.wrt or None, loop=self.loop, budget=self.budget)


@dataclass(frozen=True)
class Gradient:
    """A gradient program, and what its loops keep: bytes of all rows, and bytes that an iteration of each loop of unknown length
    adds."""

    module: Module
    loop: str
    row_bytes: int
    iteration_bytes: int


def grad(module: Module, wrt: Sequence[str] | None = None, *, loop: str = "auto", budget: int = BUDGET) -> Module:
    """The module whose entry maps inputs and cotangents of outputs to gradients of inputs.

    Raises UsageError for a name in `wrt` that is no input or an unknown `loop`, and VerifyError for an operation on the way that
    has no gradient.
    """
    if loop not in (*LOOPS, "auto"):
        known = (*LOOPS, "auto")
        raise UsageError(Diagnostic(f"no way '{loop}' to treat loops", expected=", ".join(known), hint=suggest(loop, known)))
    if loop != "auto":
        return _thrifty(module, wrt, loop).module
    found: list[Gradient] = []
    for kind in LOOPS:
        found.append(_gradient(module, wrt, kind))
        if found[-1].row_bytes <= budget:
            return found[-1].module
    return min(found, key=lambda g: g.row_bytes).module


def choices(module: Module, wrt: Sequence[str] | None = None) -> list[Gradient]:
    """The gradient program under each of LOOPS. Raises as `grad` does."""
    return [_thrifty(module, wrt, kind) for kind in LOOPS]


def _thrifty(module: Module, wrt: Sequence[str] | None, loop: str) -> Gradient:
    """The gradient program under one of LOOPS; where runs keep more than every iteration does, as in loops over a large state of
    which little is needed, `sqrt` is `keep`."""
    found = _gradient(module, wrt, loop)
    if loop != "sqrt" or not found.row_bytes:
        return found
    usual = _gradient(module, wrt, "keep")
    return replace(usual, loop=loop) if usual.row_bytes < found.row_bytes and not usual.iteration_bytes else found


def _gradient(module: Module, wrt: Sequence[str] | None, loop: str) -> Gradient:
    module = straightened(module)
    derivatives = Derivatives(module, loop)
    entry = derivatives.prepared(module.entry)
    inputs = wanted_inputs(entry, wrt)
    b = Builder(peephole=True)
    roots = [leaf for k, r in enumerate(entry.results) for leaf in _leaves(b, r, entry.result_name(k))]
    roots = [(n, name) for n, name in roots if is_differentiable(n.type)]
    taken = {p.name for p in entry.params}
    given = [p for p in entry.params if not is_state(p.type)]
    names = [unused_name(f"ct_{name}", taken) for _, name in roots]
    cotangents = [b.param(len(given) + k, n.type, names[k]) for k, (n, _) in enumerate(roots)]
    gradients = gradients_of(derivatives, b, entry, [n for n, _ in roots], cotangents, inputs)
    result_names = tuple(f"grad_{input_name(entry, x)}" for x in inputs)
    function = closed(entry, [*given, *cotangents], gradients, result_names)
    module = replace(module, functions=(*module.functions, *variants(derivatives)))
    module = with_entry(module, entry, prune(function, RewriteControl(), invariants=True), "grad")
    there = {id(n.origin) for f in module.functions for n in f.nodes}
    kept = [k for k in derivatives.kept if id(k.origin) in there]
    return Gradient(module, loop, sum(k.row_bytes for k in kept), sum(k.iteration_bytes for k in kept))


def _leaves(b: Builder, node: Node, name: str) -> list[tuple[Node, str]]:
    """The tensors of a result, with names."""
    if not isinstance(node.type, TupleType):
        return [(node, name)]
    return [leaf for k, item in enumerate(b.items(node)) for leaf in _leaves(b, item, f"{name}_{k}")]
