"""Matrix products (GEMM) in machine code on the pool's workers: no thread of BLAS is woken, and none spins afterwards.

A left operand whose lines of the cache do not meet in it is read as it lies; any other is packed once, shared by all workers. Each
takes chunks of the result, and packs the columns of the right operand that it needs. Sums are taken in blocks of terms, in an
order that depends on shapes alone.
Where this machine has no wide registers or no pool, and for products too small or too thin to pack, there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from deepx_graph.runtime.engines.gemm import BatchedGemm
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.gemm.emit import VECTORS, Fields, module_text
from deepx_graph.runtime.native.gemm.small_plan import share_sets
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import F4, F8
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program.epilogue import EpilogueKernel
from deepx_graph.runtime.native.threads import pool

TALLEST = {64: 14, 32: 6}
"""Rows of a tile, by the bytes of a register: as many as fit beside the operands (32 and 16 registers)."""

LEAST_READ = 32
"""Bytes of a line of the cache that a tile should take of a left operand whose columns lie along memory: half of it."""

LEAST_WORK = 1 << 18
"""Multiplications of a product worth packing for; smaller ones BLAS does on one thread, too."""

LEAST_SIDE = 4
"""Products with fewer rows, columns or terms are bound by memory: packing doubles their traffic."""

SHARED_WORK = 1 << 20
"""Multiplications from which on a product is shared out."""

PACKED_BYTES, BLOCK_TERMS, CHUNK_BYTES, CHUNK_ROWS = 1 << 20, 512, 512, 1024
"""Bounds: of the packed left operand, of terms packed at a time, of a chunk's rows in bytes and in number."""

EPILOGUE_BYTES, LEAST_ROWS = 512 << 10, 56
"""The epilogue is done with at most so much of the result at a time, but not with fewer rows."""

CHUNKS_EACH = 4
"""How many chunks a worker should have, so that all end nearly together."""

MOST_TERMS = 1 << 16


def fits(gemm: BatchedGemm) -> bool:
    """Whether a product is worth doing here, and can be; BLAS does the others."""
    if gemm.dtype not in (F4, F8) or is_thin(gemm) or gemm.depth > MOST_TERMS:
        return False
    work = gemm.matrices * gemm.rows * gemm.columns * gemm.depth
    return work >= LEAST_WORK and this_machine().register_bytes in TALLEST and pool() is not None


def is_thin(gemm: BatchedGemm) -> bool:
    """Whether a product is bound by memory, whatever its size."""
    return min(gemm.rows, gemm.columns, gemm.depth) < LEAST_SIDE


StridedMatrices = tuple[Array, int, int]
"""A batch of matrices in memory: where they begin, in bytes, and the distances between rows and between columns, in elements."""


def strided(batch: Array) -> StridedMatrices | None:
    """How the matrices of a batch lie from its first element on; None where neither axis is dense, or a distance is not a whole
    number of elements forward."""
    *dims, rows, columns = batch.shape
    *outer, row, column = batch.strides
    size = batch.itemsize
    row = columns * size if rows == 1 else row
    column = (size if row != size else rows * size) if columns == 1 else column
    if (row != size and column != size) or row < size or column < size or row % size or column % size:
        return None
    offsets = np.zeros(1, np.int64)
    for count, stride in zip(dims, outer, strict=True):
        offsets = (offsets[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    return offsets, row // size, column // size


class GemmKernel:
    """The machine function for products of one element type and shape, and the tables of its calls."""

    def __init__(self, gemm: BatchedGemm, threads: int, epilogue: EpilogueKernel | None, left: tuple[int, int]) -> None:
        """`left`: the distances between rows and between terms of the left operand, in elements."""
        bytes_ = this_machine().register_bytes
        dtype, matrices, rows, columns, depth = gemm.dtype, gemm.matrices, gemm.rows, gemm.columns, gemm.depth
        self.dtype, self.count, self.rows, self.columns, self.depth = dtype, matrices, rows, columns, depth
        self.threads = threads if matrices * rows * columns * depth >= SHARED_WORK else 1
        tallest = TALLEST[bytes_]
        self.panels = -(-rows // tallest)
        self.short, self.long = divmod(rows, self.panels)
        self.height = self.short + (self.long > 0)
        self.width = VECTORS * bytes_ // dtype.itemsize
        self.block = _even(depth, BLOCK_TERMS, 16)
        across = -(-columns // self.width) * self.width
        self.epilogue = epilogue
        self.chunk_columns = across if epilogue is not None and epilogue.needs_rows else min(across, CHUNK_BYTES // dtype.itemsize)
        rows = EPILOGUE_BYTES // (self.chunk_columns * dtype.itemsize)
        self.chunk_rows = CHUNK_ROWS if epilogue is None else max(LEAST_ROWS, rows)
        row, deep = (distance * dtype.itemsize for distance in left)
        self.packs_left = share_sets(self.height, row) if left[1] == 1 else (
            share_sets(self.block, deep) or self.height * dtype.itemsize < LEAST_READ)
        self.groups = tuple(self._groups()) if self.packs_left else ((0, matrices, 0, self.panels),)
        together = max(n * panels for _, n, _, panels in self.groups) if self.packs_left else 0
        self.packed_bytes = together * self.height * depth * dtype.itemsize
        self.function = machine_code.functions(_text(dtype, self.height, bytes_), ["product"], self)["product"]
        self.tables = [self._table(*group, *self._chunks(group[1], group[3])) for group in self.groups]

    def _table(self, matrix: int, matrices: int, first: int, panels: int, chunk_panels: int, down: int) -> list[int]:
        """The fields of a group, apart from addresses and distances of operands."""
        known = {
            Fields.ROWS: self.rows, Fields.COLUMNS: self.columns, Fields.DEPTH: self.depth, Fields.SHORT: self.short,
            Fields.LONG: self.long, Fields.MATRIX: matrix, Fields.MATRICES: matrices, Fields.FIRST: first, Fields.PANELS: panels,
            Fields.BLOCK: self.block, Fields.CHUNK_PANELS: chunk_panels, Fields.CHUNK_COLUMNS: self.chunk_columns,
            Fields.DOWN: down, Fields.ACROSS: -(-self.columns // self.chunk_columns),
        }  # fmt: skip
        return [known.get(f, 0) for f in Fields]

    def _groups(self) -> Iterator[tuple[int, int, int, int]]:
        """First matrix, matrices, first panel, panels: what is packed and then multiplied at a time."""
        each = self.height * self.depth * self.dtype.itemsize
        panels = max(1, min(self.panels, PACKED_BYTES // each))
        together = max(1, PACKED_BYTES // (each * self.panels)) if panels == self.panels else 1
        for matrix in range(0, self.count, together):
            for panel in range(0, self.panels, panels):
                yield matrix, min(together, self.count - matrix), panel, min(panels, self.panels - panel)

    def _chunks(self, matrices: int, panels: int) -> tuple[int, int]:
        """Panels of a chunk, and chunks down the result."""
        across = matrices * -(-self.columns // self.chunk_columns)
        wanted = -(-CHUNKS_EACH * self.threads // across) if self.threads > 1 else 1
        most = max(1, self.chunk_rows // self.height)
        each = max(1, min(most, max(-(-panels // wanted), min(4, panels))))
        down = -(-panels // each)
        each = -(-panels // down)
        return each, -(-panels // each)


def _even(total: int, most: int, grain: int) -> int:
    """The size of equal parts of a total that are at most so large, in whole grains."""
    each = math.ceil(total / math.ceil(total / most))
    return math.ceil(each / grain) * grain


_text = cache(module_text)
