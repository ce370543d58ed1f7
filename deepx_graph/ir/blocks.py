"""Elementwise computation in blocks: the temporaries of a formula stay in a cache, and never have the size of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir.op import Op
from deepx_graph.literal import Array
from deepx_graph.types import TensorType, Type

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
