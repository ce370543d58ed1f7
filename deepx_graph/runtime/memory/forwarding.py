"""Operands whose memory becomes a result of the caller's: a product that a last step only adds to needs no memory beside it.

The operand is then made in memory of its own, and the kernel that reads it last, which says that it may write over it, gives it on
as its result. Worth it for large results alone, as such a kernel runs by itself. Plain data; nothing is run here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.runtime.bytecode.code import Code, Run
from deepx_graph.runtime.engines.base import KernelFn
from deepx_graph.runtime.memory.alias import AliasAnalysis
from deepx_graph.types import TensorType

LEAST_BYTES = 1 << 20
"""Smaller results are not worth a call of their own."""

Overwrites = Callable[[Node], tuple[frozenset[int], ...]]
"""For each result of a node, the operands over whose memory its kernel may write it."""


def nothing(node: Node) -> tuple[frozenset[int], ...]:
    """No kernel writes over an operand."""
    return ()


def forwarded_buffers(code: Code, flow: AliasAnalysis, pieces: Sequence[tuple[Any, bool]], overwrites: Overwrites) -> dict[int,
                                                                                                                           int]:
    """The positions of kernels whose one result takes the memory of an operand, with the operand's number.

    `pieces` are those of the plan, each with whether it may be in a shared buffer. Takes time linear in the code.
    """
    makers = {run.target: piece for piece, shared in pieces if shared and isinstance(run := code.instructions[piece.at], Run)
              and isinstance(run.node.type, TensorType)}  # fmt: skip
    found: dict[int, int] = {}
    for piece, shared in pieces:
        run = code.instructions[piece.at]
        if shared or not piece.escapes or piece.copies > 1 or piece.bytes < LEAST_BYTES or not isinstance(run, Run):
            continue
        if not isinstance(run.node.type, TensorType) or run.node.op.view or flow.borrowed[run.target]:
            continue
        may = overwrites(run.node)
        for k in sorted(may[0]) if may else ():
            s = run.sources[k]
            fits = s in makers and makers[s].bytes == piece.bytes and code.slots[s].type == run.node.type
            if fits and flow.last[s] == piece.at and not flow.to[s] and run.sources.count(s) == 1:
                found[piece.at] = k
                makers.pop(s)
                break
    return found


def with_forwarding(code: Code, pieces: Sequence[tuple[Any, bool]], given: dict[int, int]) -> list[tuple[Any, bool]]:
    """The pieces when operands are forwarded: such an operand has memory of its own, for as long as the result lives."""
    until = {code.instructions[p.at].sources[given[p.at]]: p for p, _ in pieces if p.at in given}
    made: list[tuple[Any, bool]] = []
    for piece, shared in pieces:
        run = code.instructions[piece.at]
        result = until.get(run.target) if isinstance(run, Run) else None
        if piece.at in given:
            made.append((replace(piece, in_place=True), False))
        elif result is not None:
            made.append((replace(piece, last=max(piece.last, result.last)), False))
        else:
            made.append((piece, shared))
    return made


def over_operand(kernel: KernelFn, k: int) -> KernelFn:
    """The kernel, its result in the memory of operand `k` where no other place is given."""

    def run(values: Sequence[Any], out: Sequence[Array] | None) -> Any:
        return kernel(values, (values[k],) if out is None else out)

    return run
