"""Kernels that write a result over an operand, as engines tell of theirs."""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph.ir import Node

Overwrites = Callable[[Node], tuple[frozenset[int], ...]]
"""For each result of a node, the operands over whose memory its kernel may write it."""


def nothing(node: Node) -> tuple[frozenset[int], ...]:
    """No kernel writes over an operand."""
    return ()
