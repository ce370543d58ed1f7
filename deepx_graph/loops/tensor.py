"""Tensors while a loop program is built: what one element is, computed where it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepx_graph.loops.program import Buffer
from deepx_graph.loops.scalar import Affine, Index, affine
from deepx_graph.types import DType

if TYPE_CHECKING:
    from deepx_graph.loops.builder import LoopBuilder

Read = Callable[["LoopBuilder", tuple[Affine, ...]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class LazyTensor:
    """An immutable array. `read(b, index)` writes what computes an element; a `buffer` is where all elements lie, if they do."""

    dtype: DType
    shape: tuple[int, ...]
    read: Read
    buffer: Buffer | None = None

    def at(self, b: LoopBuilder, index: Index) -> Any:
        """The element at a subscript for each axis: a scalar, or a pair for a complex one. Blocks that share it, share it."""
        at = tuple(map(affine, index))
        return b.shared((self, at), lambda: self.read(b, at))


def in_memory(buffer: Buffer, dtype: DType) -> LazyTensor:
    """The tensor whose elements lie in a buffer."""
    shape = buffer.shape[:-1] if dtype.kind == "complex" else buffer.shape
    return LazyTensor(dtype, shape, lambda b, at: b.load_element(buffer, dtype, at), buffer)
