"""Long loops in two levels, so that reverse mode can keep the state before each run of iterations instead of every iteration.

A loop of T iterations becomes one of about sqrt(T) runs of as many, and a loop over the rest. Where T is not known, a run ends with
the loop or after `RUN` iterations. The same iterations happen in the same order: not a bit changes. Loops inside others stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Builder, Function, Node, fresh_loop
from deepx_graph.ir.rebuild import copied, on_demand, rebuild, replaced, with_inputs
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, index_of
from deepx_graph.ops import add, and_, compare
from deepx_graph.passes.autodiff.activity import ReverseScopes
from deepx_graph.types import I32

RUN = 32
"""Turns in a run where the number of iterations is not known."""

FEW = 4
"""Loops of fewer iterations are left alone."""

Iteration = Callable[[Sequence[Node]], list[Node]]


def sqrt_checkpointed(function: Function) -> tuple[Function, set[int]]:
    """The function with its outermost loops in two levels, and the identities of the loops over runs."""
    scopes = ReverseScopes(function)
    outermost = {end: trip_count(end) for end in scopes.bodies if not _in_loop(scopes, end)}
    chosen = {end: count for end, count in outermost.items() if count is None or count >= FEW}
    made: dict[Node, Node] = {}
    runs: set[int] = set()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        return _Chunks(scopes, node, made, runs).loop(chosen[node]) if node in chosen else with_inputs(node, inputs)

    return replaced(function, rebuild(function.nodes, made, step)), runs


def _in_loop(scopes: ReverseScopes, end: Node) -> bool:
    return scopes.home[end].loop is not None


class _Chunks:
    """One loop, built anew."""

    def __init__(self, scopes: ReverseScopes, end: Node, made: dict[Node, Node], runs: set[int]) -> None:
        self.scopes, self.end, self.made, self.runs = scopes, end, made, runs
        self.b = Builder(intern=False, origin=end.origin)

    def loop(self, count: int | None) -> Node:
        """What gives the variables at the end, as a tuple."""
        inits = [self.made[i] for i in self.end.inputs[0].inputs]
        if count is None:
            return self.b.pack(*self._unknown(inits))
        run = math.isqrt(count)
        after = self._counted(count // run, inits, lambda v: self._counted(run, v, self._iteration), outer=True)
        rest = count - run * (count // run)
        return self.b.pack(*(self._counted(rest, after, self._iteration) if rest else after))

    def _counted(self, count: int, inits: Sequence[Node], body: Iteration, outer: bool = False) -> list[Node]:
        b = self.b
        loop = fresh_loop()
        if outer:
            self.runs.add(loop)
        begin = b(LOOP_BEGIN, b.constant(0, I32), *inits, loop=loop)
        at, *variables = (b(PHI, begin, index=k) for k in range(len(inits) + 1))
        more = b(compare, at, b.constant(count, I32), direction="LT")
        end = b(LOOP_END, begin, more, b(add, at, b.constant(1, I32)), *body(variables))
        return [b.proj(end, 1 + k) for k in range(len(inits))]

    def _unknown(self, inits: Sequence[Node]) -> list[Node]:
        b, loop = self.b, fresh_loop()
        self.runs.add(loop)
        begin = b(LOOP_BEGIN, *inits, loop=loop)
        variables = [b(PHI, begin, index=k) for k in range(len(inits))]
        end = b(LOOP_END, begin, self._copy(variables, self.end.inputs[1:2])[0], *self._run(variables))
        return [b.proj(end, k) for k in range(len(inits))]

    def _run(self, inits: Sequence[Node]) -> list[Node]:
        """At most RUN iterations, while the loop goes on."""
        b = self.b
        begin = b(LOOP_BEGIN, b.constant(0, I32), *inits, loop=fresh_loop())
        at, *variables = (b(PHI, begin, index=k) for k in range(len(inits) + 1))
        more = b(and_, b(compare, at, b.constant(RUN, I32), direction="LT"), self._copy(variables, self.end.inputs[1:2])[0])
        end = b(LOOP_END, begin, more, b(add, at, b.constant(1, I32)), *self._iteration(variables))
        return [b.proj(end, 1 + k) for k in range(len(inits))]

    def _iteration(self, variables: Sequence[Node]) -> list[Node]:
        """The next values after these."""
        return self._copy(variables, self.end.inputs[2:])

    def _copy(self, variables: Sequence[Node], wanted: Sequence[Node]) -> list[Node]:
        """Values of the body, for other variables; what the body does not change is not copied."""
        begin, body = self.end.inputs[0], self.scopes.bodies[self.end]

        def is_given(node: Node) -> bool:
            return not self.scopes.home[node].within(body) or (node.op is PHI and node.inputs[0] is begin)

        def make(node: Node, inputs: tuple[Node, ...]) -> Node:
            if not is_given(node):
                return copied(node, inputs)
            return variables[index_of(node)] if self.scopes.home[node].within(body) else self.made[node]

        return on_demand(wanted, {}, lambda node: () if is_given(node) else node.inputs, make)
