"""Updates of a part of an array, done in the array itself where nobody else can see it.

A loop that writes a row an iteration would otherwise copy the whole array every iteration. Whether an array is held by this call
alone is told by reference counts: of the array, and of the memory behind it where that is of the buffer pool. Whoever else holds
the array, or a view of it, raises one of them; then the array is copied.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.ops.tensor.index import clamped_starts
from deepx_graph.runtime.engines.base import CONSUMES_FIRST, KernelFn
from deepx_graph.runtime.memory.pool import RESULTS


def updated(node: Node) -> KernelFn:
    """The kernel of a `dynamic_update_slice`. It wants its first operand out of the frame before it is called, if it dies there."""

    def run(values: Sequence[Any], out: Sequence[Any] | None) -> Any:
        update = np.asarray(values[1])
        if out is not None:
            result = out[0]
            if result is not values[0]:
                np.copyto(result, values[0])
        elif is_held_here_alone(values):
            result = values[0]
        else:
            result = RESULTS.empty(np.shape(values[0]), np.asarray(values[0]).dtype)
            np.copyto(result, values[0])
        result[clamped_starts(values[2:], result.shape, update.shape)] = update
        return result

    setattr(run, CONSUMES_FIRST, True)
    return run


def is_held_here_alone(values: Sequence[Any]) -> bool:
    """Whether nothing but this sequence, which its caller made for this call, refers to the memory of its first array."""
    array = values[0]
    if type(array) is not np.ndarray or sys.getrefcount(array) > _ALONE or not array.flags.writeable:
        return False
    if array.base is None:
        return bool(array.flags.owndata)
    return RESULTS.is_in_use_once(array)


def _references(values: Sequence[Array]) -> int:
    """The count, by the same steps as above, of an array that only a sequence holds."""
    array = values[0]
    return sys.getrefcount(array)


_ALONE = _references([np.empty(0)])
