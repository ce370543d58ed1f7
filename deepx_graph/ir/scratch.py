"""What `eval` has in memory at once beside operands and results: what a plan counts, and `--max-bytes` bounds.

An operation says so in its declaration (`Op.scratch`). For the others the rule of their family holds: a view has nothing of its
own, an elementwise operation goes by blocks, and any other may make all it reads and writes anew in the widest type.
Blocks (`ir/blocks.py`) are bounded whatever the program, and not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.ir.node import Node
from deepx_graph.ir.op import Op
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.types import TensorType, Type, leaves

WORD = 8
"""Bytes of the widest real numbers, and of an index."""


def scratch_of(node: Node) -> int:
    """The most bytes that the eval of a node whose sizes are known takes beside its operands and results."""
    return scratch(node.op, [i.type for i in node.inputs], node.type, node.attrs)


def scratch(op: Op, types: Sequence[Type], result: Type, attrs: Sequence[Any]) -> int:
    """That of an operation on operands of those types."""
    if op.eval is None or op in STRUCTURAL:
        return 0
    if op.scratch is not None:
        return op.scratch(types, result, *attrs)
    return 0 if op.view or op.elementwise else sum(map(wide, types)) + wide(result)


def size(type: Type) -> int:
    """The elements of all tensors in a type."""
    return sum(t.size for t in leaves(type) if isinstance(t, TensorType))


def wide(type: Type) -> int:
    """The bytes of all tensors in a type, were their elements words, or pairs of them."""
    return sum(t.size * max(WORD, t.dtype.itemsize) for t in leaves(type) if isinstance(t, TensorType))


def at_least(type: Type, itemsize: int) -> int:
    """The bytes of all tensors in a type, were no element narrower than so many bytes."""
    return sum(t.size * max(itemsize, t.dtype.itemsize) for t in leaves(type) if isinstance(t, TensorType))


def nothing(types: Sequence[Type], result: Type, *attrs: Any) -> int:
    """The scratch of an op that makes its result and nothing else."""
    return 0
