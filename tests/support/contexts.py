"""The places in which a program may use an op: in a line, a loop, a branch, a called function, between neighbours that fuse.

A context makes the op's results from two sets of operands, which are equal; choices among them that only the run decides keep
a pass from folding, merging or moving the op. Whatever the place, the results are what `eval` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ops import add, and_, compare, select
from deepx_graph.types import BOOL, I32, TensorType, scalar
from tests.support.laws import Sample, one_op

Array = np.ndarray[Any, Any]
TURNS = 3


@dataclass(frozen=True)
class Use:
    """An op with its attributes, and a function of it alone. At run time `yes` is true and `iterations` is 3."""

    op: Op
    attrs: dict[str, Any]
    alone: Function
    b: Builder
    yes: Node
    iterations: Node

    def __call__(self, *operands: Node) -> list[Node]:
        """The results of the op, one by one."""
        node = self.b(self.op, *operands, **self.attrs)
        return [node] if isinstance(node.type, TensorType) else list(self.b.items(node))

    def chosen(self, test: Node, xs: Sequence[Node], others: Sequence[Node]) -> list[Node]:
        """`xs` where the test holds, else the others."""
        return [self.b(select, test, x, y) for x, y in zip(xs, others, strict=True)]

    def nothing(self) -> list[Node]:
        """Zeros in place of the results."""
        return [self.b.splat(0, t) for t in self.alone.type.results if isinstance(t, TensorType)]

    def loop(self, iteration: Callable[[Node, Sequence[Node]], Sequence[Node]]) -> Sequence[Node]:
        """The results of the last iteration, each iteration's made from its number and the results of the one before."""
        b = self.b

        def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            k, *before = variables
            more = b(and_, b(compare, k, self.iterations, direction="LT"), self.yes)
            return more, [b(add, k, b.constant(1, I32)), *iteration(k, before)]

        return b.loop([b.constant(0, I32), *self.nothing()], body)[1:]


Context = Callable[[Use, Sequence[Node], Sequence[Node]], Sequence[Node]]


def in_a_line(use: Use, operands: Sequence[Node], equal: Sequence[Node]) -> Sequence[Node]:
    return use(*operands)


def in_a_loop(use: Use, operands: Sequence[Node], equal: Sequence[Node]) -> Sequence[Node]:
    """Of operands that each iteration chooses."""
    one = use.b.constant(1, I32)
    return use.loop(lambda k, before: use(*use.chosen(use.b(compare, k, one, direction="LT"), operands, equal)))


def fixed_in_a_loop(use: Use, operands: Sequence[Node], equal: Sequence[Node]) -> Sequence[Node]:
    """Of operands that no iteration changes, for a result that an iteration chooses."""
    one = use.b.constant(1, I32)
    return use.loop(lambda k, before: use.chosen(use.b(compare, k, one, direction="GE"), use(*operands), before))


def in_a_branch(use: Use, operands: Sequence[Node], equal: Sequence[Node]) -> Sequence[Node]:
    return use.b.branch(use.yes, use(*operands), use.nothing())


def between_neighbours(use: Use, operands: Sequence[Node], equal: Sequence[Node]) -> Sequence[Node]:
    """After and before elementwise work, with which it fuses if it can be fused."""
    return use.chosen(use.yes, use(*use.chosen(use.yes, operands, equal)), use.nothing())


def called(use: Use, operands: Sequence[Node], equal: Sequence[Node]) -> Sequence[Node]:
    return use.b.call(use.alone, *operands)


def through_a_closure(use: Use, operands: Sequence[Node], equal: Sequence[Node]) -> Sequence[Node]:
    half = len(operands) // 2
    return use.b.call_value(use.b.partial(use.alone, *operands[:half]), *operands[half:])


CONTEXTS: tuple[Context, ...] = (
    in_a_line, in_a_loop, fixed_in_a_loop, in_a_branch, between_neighbours, called, through_a_closure)


def program(op: Op, sample: Sample, contexts: Sequence[Context]) -> tuple[Module, list[Any]]:
    """The op in each context, with operands of its own, the results of one after those of another; and its arguments."""
    arrays, attrs = sample
    alone = _results_apart(one_op(op, arrays, attrs))
    types = [("yes", scalar(BOOL)), ("iterations", scalar(I32))]
    types += [(f"x{k}", t) for k, t in enumerate(alone.type.params * 2 * len(contexts))]
    n = len(arrays)

    def body(yes: Node, iterations: Node, *nodes: Node) -> list[Node]:
        use = Use(op, attrs, alone, Builder(), yes, iterations)
        sets = [nodes[n * k : n * (k + 1)] for k in range(2 * len(contexts))]
        return [r for c, x, y in zip(contexts, sets[::2], sets[1::2], strict=True) for r in c(use, x, y)]

    main = Builder().function("main", types, body)
    return Module((main, alone), "main"), [np.bool_(True), np.int32(TURNS), *list(arrays) * (2 * len(contexts))]


def _results_apart(function: Function) -> Function:
    """The function with each item of its one result as a result."""
    (result,) = function.results
    if isinstance(result.type, TensorType):
        return function
    return Function(function.name, function.params, tuple(Builder().items(result)))
