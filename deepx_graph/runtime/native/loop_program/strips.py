"""Loops as kernels; one that may run long as a loop over kernels that do some of its iterations each (strip-mining), so that it can
be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.analysis.liveness import liveness
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import copied, with_results
from deepx_graph.ir.structure import CONSTANT, LOOP_END, PHI, PROJ, index_of
from deepx_graph.ops.data.fusion import fused_body, fusion
from deepx_graph.ops.math.elementwise import add, and_, compare
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.outline import opened, outlined

KernelOfLoop = Callable[[Function, int | None], object]
"""Gives the kernel of a function of one loop, which does so many iterations at most; None where there is none. Without a number the
loop is known not to run long."""


def with_loops(function: Function, made: KernelOfLoop, length: Callable[[Function], int]) -> Function:
    """The function with each loop for which `made` has a kernel as that, or as a loop over kernels of so many iterations; outer
    loops first. `length` may raise Declined."""
    strips: dict[Function, Function] = {}

    def accepts(body: Function) -> bool:
        if made(body, None) is not None:
            return True
        try:
            strips[body] = in_strips(body, made, length(body))
        except Declined:
            return False
        return True

    return opened(outlined(function, accepts), lambda n: strips.get(body) if (body := fused_body(n)) else None)


def in_strips(function: Function, made: KernelOfLoop, length: int) -> Function:
    """A function that is one loop as a loop over kernels that do up to `length` iterations each. Raises Declined."""
    ends = [n for n in function.nodes if n.op is LOOP_END]
    if len(ends) != 1 or not all(r.op is PROJ and r.inputs[0] is ends[0] for r in function.results):
        raise Declined("not one loop")
    loop = _Loop.of(function, ends[0])
    b = Builder()
    types = [(f"x{k}", n.type) for k, n in enumerate((*loop.outside, *loop.inits))]
    strip = b.function("strip", types, lambda *params: loop.strip(b, params, length))
    if made(strip, length) is None:
        raise Declined("iterations that are not short")

    def whole(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        found = b(fusion, *loop.outside, *v[:-1], body=strip)
        return b(compare, v[-1], b.like(length, v[-1]), direction="EQ"), [b.proj(found, k) for k in range(len(v))]

    last = b.loop((*loop.inits, b.constant(np.int32(length))), whole)
    return with_results(function, tuple(last[loop.columns.index(index_of(r))] for r in function.results))


@dataclass(frozen=True)
class _Loop:
    """What a loop is made of: values from outside, and what is computed anew in each iteration, in order."""

    end: Node
    columns: tuple[int, ...]
    inits: tuple[Node, ...]
    outside: tuple[Node, ...]
    inside: tuple[Node, ...]

    @staticmethod
    def of(function: Function, end: Node) -> _Loop:
        begin, columns = end.inputs[0], liveness(function).columns[end]
        wanted, varying, stack = set[Node](), {begin}, [end.inputs[1], *(end.inputs[2 + k] for k in columns)]
        while stack:
            node = stack.pop()
            if node not in wanted:
                wanted.add(node)
                stack += node.inputs if node is not begin else ()
        for node in function.nodes:
            if not varying.isdisjoint(node.inputs):
                varying.add(node)
        inside = tuple(n for n in function.nodes if n in wanted and n in varying and n is not begin)
        read = {i for n in (*inside, end) for i in n.inputs} - set(inside) - {begin}
        outside = tuple(n for n in function.nodes if n in read and n in wanted and n.op is not CONSTANT)
        return _Loop(end, columns, tuple(begin.inputs[k] for k in columns), outside, inside)

    def _copy(self, outside: Sequence[Node], variables: Sequence[Node]) -> dict[Node, Node]:
        """What the nodes are in an iteration of these variables."""
        new = dict(zip(self.outside, outside, strict=True))

        for node in self.inside:
            if node.op is PHI and node.inputs[0] is self.end.inputs[0]:
                new[node] = variables[self.columns.index(index_of(node))]
            else:
                new[node] = copied(node, tuple(new.get(i, i) for i in node.inputs))
        return new

    def strip(self, b: Builder, params: Sequence[Node], length: int) -> Sequence[Node]:
        """The variables after up to so many iterations, and how many these were: others may follow where they are all."""
        outside, inits = params[: len(self.outside)], params[len(self.outside) :]

        def whole(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            new, count = self._copy(outside, v[:-1]), v[-1]
            nexts = [new.get(self.end.inputs[2 + k], self.end.inputs[2 + k]) for k in self.columns]
            some = b(compare, count, b.like(length, count), direction="LT")
            condition = new.get(self.end.inputs[1], self.end.inputs[1])
            return b(and_, condition, some), [*nexts, b(add, count, b.like(1, count))]

        return b.loop((*inits, b.constant(np.int32(0))), whole)
