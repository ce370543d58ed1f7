"""Evaluation of one operation by numpy: in blocks where it may be large, and the memory that it takes.

Elementwise operations go by blocks, so that the temporaries of a formula stay in a cache and never have the size of a tensor.
Scratch is what `eval` has in memory at once beside operands and results: what a plan counts, and `--max-bytes` bounds. An operation
says so in its declaration (`Op.scratch`). For the others the rule of their family holds: a view has nothing of its own, an
elementwise operation goes by blocks, and any other may make all it reads and writes anew in the widest type. Blocks are bounded
whatever the program, and not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir.node import Node
from deepx_graph.ir.op import Op
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.literal import Array
from deepx_graph.types import TensorType, Type, leaves

# --- blocks -------------------------------------------------------------------------------------------------------

BLOCK = 1 << 15
"""Elements of a block."""

_MOST_ARRAYS = 32
"""Iterators of numpy take no more at once."""

_ELEMENTWISE = "overlap_assume_elementwise"
"""Memory that a result shares with an operand, element by element, need not be copied."""

Compute = Callable[[Sequence[Array]], Sequence[Any]]


def in_blocks(compute: Compute, xs: Sequence[Array], dtypes: Sequence[Any], into: Sequence[Array] | None = None) -> list[Array]:
    """`compute(xs)`, for a function whose result elements depend on the operands' elements at the same position alone.

    Operands of rank 0 stand for all elements. The results are C-contiguous arrays of the given dtypes, or `into`, arrays of these
    dtypes that may share memory with operands; or whatever `compute` gives where all fits in one block.
    """
    whole = [k for k, x in enumerate(xs) if np.ndim(x)]
    shape = np.shape(xs[whole[0]]) if whole else ()
    large = bool(whole) and np.asarray(xs[whole[0]]).size > BLOCK and len(whole) + len(dtypes) <= _MOST_ARRAYS
    if not large or any(d is None for d in dtypes) or any(np.shape(xs[k]) != shape for k in whole):
        return list(compute(xs))
    if any(np.dtype(d).hasobject for d in (*dtypes, *(np.asarray(xs[k]).dtype for k in whole))):
        return list(compute(xs))
    results = [np.empty(shape, d) for d in dtypes] if into is None else list(into)
    block = list(xs)
    arrays = [*(xs[k] for k in whole), *results]
    flags: Any = [["readonly", _ELEMENTWISE]] * len(whole) + [["writeonly", _ELEMENTWISE]] * len(results)
    with np.nditer(arrays, ["external_loop", "buffered", "copy_if_overlap"], flags, order="C", buffersize=BLOCK) as cut:
        for parts in cut:
            for k, part in zip(whole, parts, strict=False):
                block[k] = part
            for made, part in zip(compute(block), parts[len(whole) :], strict=True):
                part[...] = made
    return results


def evaluation(op: Op, attrs: Sequence[Any], type: Type) -> Callable[[Sequence[Any]], Any]:
    """The eval of an op with those attributes and a result of that type; of an elementwise op, in blocks where it may be large.

    Raises InferError for an op without eval.
    """
    eval = op.eval
    if eval is None:
        raise InferError(f"{op.name} is not computed by a kernel", hint="the schedule runs control flow")
    if not op.elementwise or not isinstance(type, TensorType) or (type.is_static and type.size <= BLOCK):
        return lambda xs: eval(xs, *attrs)
    dtype = type.dtype.np
    return lambda xs: in_blocks(lambda parts: [eval(parts, *attrs)], xs, [dtype])[0]


def staged(node: Node) -> Callable[..., Any] | None:
    """The eval of a node whose sizes are known, with all that types and attributes decide worked out before; None where the
    declaration has none (`Op.staged`)."""
    return None if node.op.staged is None else node.op.staged([i.type for i in node.inputs], node.type, *node.attrs)


# --- scratch ------------------------------------------------------------------------------------------------------

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


def wide(type: Type, itemsize: int = WORD) -> int:
    """The bytes of all tensors in a type, were no element narrower than so many bytes."""
    return sum(t.size * max(itemsize, t.dtype.itemsize) for t in leaves(type) if isinstance(t, TensorType))


def nothing(types: Sequence[Type], result: Type, *attrs: Any) -> int:
    """The scratch of an op that makes its result and nothing else."""
    return 0
