"""What the flow of references costs to find."""

from __future__ import annotations

import sys
from types import FrameType

import deepx_graph as dx
from deepx_graph.analysis.schedule import schedule
from deepx_graph.ir import Node
from deepx_graph.lowering.bytecode import Code, lower
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.runtime.memory.alias import alias_analysis


def _one_kernel(results: int) -> Code:
    def many(x: Node) -> tuple[Node, ...]:
        return tuple(x * (k + 2.0) for k in range(results))

    function = dx.optimize(dx.trace(many, "f32[1000]")).entry
    (kernel,) = (n for n in function.nodes if n.op is fusion)
    assert len(kernel.attr("body").results) == results
    return lower(schedule(function))


def _calls(code: Code) -> int:
    """Functions of Python that are called."""
    count = 0

    def called(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        alias_analysis(code)
    finally:
        sys.setprofile(None)
    return count


def test_a_kernel_of_many_results_takes_time_linear_in_them() -> None:
    few, many = (_calls(_one_kernel(n)) for n in (25, 100))
    assert many < 4.5 * few
