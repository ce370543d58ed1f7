"""A loop as a loop over strips of its iterations, each a body that an engine may run as one kernel (strip-mining).

    while test(v): v = step(v)   becomes   while all of a strip were done: v = up to so many iterations of v
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import copied, rebuild, with_results
from deepx_graph.ir.structure import PARAM, PHI, index_of
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.ops.math.elementwise import add, and_, compare
from deepx_graph.rewrite.control.flat_loop import flat_loop, varying_with


def in_strips(function: Function, length: int, accepts: Callable[[Function, bool], bool]) -> Function | None:
    """A function that is one loop, or can be made one, as a loop over fusions that do up to `length` iterations each; None for any
    other, or where the body of such a fusion is not accepted. `accepts` is also told whether the loop was made one."""
    flat = flat_loop(function)
    if flat is None:
        return None
    is_flattened, function, end = flat is not function, flat, flat.results[0].inputs[0]
    begin = end.inputs[0]
    varying = varying_with(function.nodes, begin)
    iteration = [n for n in Function("iteration", (), end.inputs[1:]).nodes if n in varying - {begin} or _is_source(n)]
    read = {i for n in (*iteration, end) for i in n.inputs} - varying
    outside = [n for n in function.nodes if n in read and not _is_source(n)]
    b = Builder()

    def some(*params: Node) -> Sequence[Node]:
        """The variables after up to so many iterations, and how many these were: others may follow where they are all."""
        def whole(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            phis = {n: v[index_of(n)] for n in iteration if n.op is PHI and n.inputs[0] is begin}
            new = rebuild(iteration, {**dict(zip(outside, params, strict=False)), **phis}, copied)
            test, *nexts = (new[i] for i in end.inputs[1:])
            is_within = b(compare, v[-1], b.like(length, v[-1]), direction="LT")
            return b(and_, test, is_within), [*nexts, b(add, v[-1], b.like(1, v[-1]))]

        return b.loop((*params[len(outside) :], b.constant(np.int32(0))), whole)

    strip = b.function("strip", [(f"x{k}", n.type) for k, n in enumerate((*outside, *begin.inputs))], some)
    if not accepts(strip, is_flattened):
        return None

    def all_strips(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        found = b(fusion, *outside, *v[:-1], body=strip)
        return b(compare, v[-1], b.like(length, v[-1]), direction="EQ"), [b.proj(found, k) for k in range(len(v))]

    last = b.loop((*begin.inputs, b.constant(np.int32(length))), all_strips)
    return with_results(function, tuple(last[index_of(r)] for r in function.results))


def _is_source(node: Node) -> bool:
    """Whether the node is made of nothing: a constant, or positions along an axis."""
    return not node.inputs and node.op is not PARAM
