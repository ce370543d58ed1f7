"""Which operands of a collective it may put its results in: arrays that nothing else holds, and nobody reads any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from deepx_graph.analysis.schedule import schedule
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.lowering.bytecode import Run
from deepx_graph.ops import add, reshape, sine, spmd_all_reduce, tanh
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.runtime.memory.assignment import plan
from deepx_graph.types import F32, tensor

TYPE = tensor(F32, (4, 8))


def total(b: Builder, *values: Node) -> Node:
    return b(spmd_all_reduce, *values, replica_groups=((0, 1),), channel_id=1, use_global_device_ids=True,
             computation=monoid_body(add, F32))


def two_results(b: Builder, x: Node) -> Node:
    p = b.param(0, TYPE)
    return b(fusion, x, body=Function("fusion", (p,), (b(sine, p), b(tanh, p))))


def in_a_loop(b: Builder, x: Node) -> Sequence[Node]:
    """The sum of a value that the loop carries, and of one that it has made."""
    def body(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        return b.constant(True), (total(b, b(sine, total(b, v[0]))),)

    return b.loop((x,), body)


CASES: dict[str, tuple[Callable[[Builder, Node], Sequence[Node]], list[set[int]]]] = {
    "made for it": (lambda b, x: [total(b, b(sine, x))], [{0}]),
    "an input": (lambda b, x: [total(b, x)], [set()]),
    "a view of an input": (lambda b, x: [total(b, b(reshape, x, shape=(8, 4)))], [set()]),
    "a view of what was made": (lambda b, x: [total(b, b(reshape, b(sine, x), shape=(8, 4)))], [set()]),
    "a constant": (lambda b, x: [total(b, b.constant(np.zeros(TYPE.shape, np.float32)))], [set()]),
    "read afterwards": (lambda b, x: [b(add, total(b, y := b(sine, x)), y)], [set()]),
    "a result, too": (lambda b, x: [total(b, y := b(sine, x)), y], [set()]),
    "one of two results": (lambda b, x: [b(add, total(b, b.proj(two_results(b, x), 0)), x)], [{0}]),
    "both results": (lambda b, x: [total(b, b.proj(y := two_results(b, x), 0)), total(b, b.proj(y, 1))], [{0}, {0}]),
    "a sum of sums": (lambda b, x: [total(b, total(b, b(sine, x)))], [{0}, {0}]),
    "of a loop": (in_a_loop, [set(), {0}]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_collective_may_write_over(case: str) -> None:
    make, wanted = CASES[case]
    b = Builder()
    x = b.param(0, TYPE, name="x")
    found = plan(schedule(Function("main", (x,), tuple(make(b, x)))))
    assert [set(operands) for _, operands in sorted(found.donated.items())] == wanted
    for at, operands in found.donated.items():
        run = found.code.instructions[at]
        assert isinstance(run, Run)
        makers = {run.node.inputs[k] for k in operands}
        makers |= {m.inputs[0] for m in makers if m.op.name == "proj"}
        assert not [p for p in found.pieces if p.node in makers and p.offset is not None], "shared memory is no result's"
