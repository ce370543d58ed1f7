"""Matrix products: written where they are wanted, by BLAS unless the engine has something better for the shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.runtime.kernels.recycle import RESULTS
from deepx_graph.runtime.stacks import Stacks, stacks_of
from deepx_graph.types import TensorType

BLAS = frozenset(map(np.dtype, ("f4", "f8", "c8", "c16")))
"""The dtypes that BLAS knows."""

Multiply = Callable[[Array, Array, Array], None]
"""`multiply(left, right, result)`: stacks of matrices, the last one C-contiguous and sharing no memory with an operand."""


class ProductKernel:
    """The kernel of a `dot_general`. `way` tells who multiplies."""

    def __init__(self, shape: tuple[int, ...], stacks: Stacks, better: Multiply | None) -> None:
        self._shape, self._stacks = shape, stacks
        self._multiply = better or _by_blas
        self.way = "BLAS" if better is None else "machine code"

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None) -> Any:
        """The product; in the array of `out`, where one is given."""
        stacks = self._stacks
        x, y = stacks.operands(*values)
        into = RESULTS.empty(self._shape, stacks.dtype) if out is None else out[0]
        if out is not None and (np.may_share_memory(into, x) or np.may_share_memory(into, y)):
            np.copyto(into, self(values, None))
        else:
            self._multiply(x, y, into.reshape(stacks.form))
        return into


def product(node: Node, better: Callable[[Stacks], Multiply | None]) -> ProductKernel | None:
    """The kernel of a product, by `better` where that has something; None for types that BLAS does not know."""
    stacks = stacks_of(node)
    if stacks is None or stacks.dtype not in BLAS:
        return None
    assert isinstance(node.type, TensorType)
    return ProductKernel(node.type.shape, stacks, better(stacks))


def _by_blas(left: Array, right: Array, result: Array) -> None:
    blas.matmul(left, right, result)
