"""Rows and columns exchanged within registers, by interleaving blocks of two vectors."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.runtime.native.llvm.builder import DType, IRBuilder, VectorValue, concatenated, memory_type, of_parts

BLOCK_BYTES = 16
"""The part of a register within which elements are interleaved by one instruction."""


def block_lanes(lanes: int, dtype: DType) -> int:
    """How many elements of a vector are in a block: what one instruction interleaves with another block."""
    return min(lanes, BLOCK_BYTES // dtype.itemsize)


def transposed_blocks(t: IRBuilder, vectors: Sequence[VectorValue]) -> list[VectorValue]:
    """As many vectors as elements of a block: element k of block q of vector j becomes element j of block q of vector k. Undoes
    itself. There are a power of two of them."""
    block, found, distance = len(vectors), list(vectors), 1
    type, dtype = t.vector(vectors[0].dtype), vectors[0].dtype
    while distance < block:
        orders = [_interleaved(t.lanes, block, distance, half) for half in (0, 1)]
        for k in range(block):
            if not k & distance:
                one, other = found[k].text, found[k + distance].text
                found[k], found[k + distance] = (VectorValue(t.shuffle(type, one, order, other), dtype) for order in orders)
        distance *= 2
    bits = block.bit_length() - 1
    return [found[sum((k >> bit & 1) << (bits - 1 - bit) for bit in range(bits))] for k in range(block)]


def _interleaved(lanes: int, block: int, group: int, half: int) -> list[int]:
    """Of each block of two vectors the first halves, or the last ones, groups of elements in turn."""
    return [side * lanes + start + half * block // 2 + at + k for start in range(0, lanes, block)
            for at in range(0, block // 2, group) for side in (0, 1) for k in range(group)]


def load_columns(t: IRBuilder, rows: Sequence[str], count: int, dtype: DType) -> VectorValue:
    """A vector for each of so many columns, from the addresses of the rows, of which there are as many as lanes."""
    found = [""] * count
    for start, width in _pieces(count, block_lanes(t.lanes, dtype)):
        kind, ats = f"<{width} x {memory_type(dtype)}>", [t.address(at, str(start), dtype) for at in rows]
        read = [t.let(f"load {kind}, ptr {at}, align {dtype.itemsize}") for at in ats]
        columns = transposed_blocks(t, [concatenated(t, read[k::width], width, dtype) for k in range(width)])
        found[start : start + width] = [x.text for x in columns]
    return of_parts(found, dtype)


def store_columns(t: IRBuilder, columns: VectorValue, rows: Sequence[str]) -> None:
    """Stores vectors, one for each column, to the addresses of the rows."""
    dtype = columns.dtype
    for start, width in _pieces(len(columns.parts), block_lanes(t.lanes, dtype)):
        blocks = transposed_blocks(t, [VectorValue(x, dtype) for x in columns.parts[start : start + width]])
        for lane, row in enumerate(rows):
            first, at = lane // width * width, t.address(row, str(start), dtype)
            piece = t.shuffle(t.vector(dtype), blocks[lane % width].text, range(first, first + width))
            t.line(f"store <{width} x {memory_type(dtype)}> {piece}, ptr {at}, align {dtype.itemsize}")


def _pieces(count: int, most: int) -> list[tuple[int, int]]:
    """So many elements of a row as pieces of one size, a power of two up to a bound: where each begins, and the size. The last may
    lie over the one before."""
    size = min(most, 1 << (count.bit_length() - 1))
    starts = [*range(0, count - size + 1, size)]
    return [(k, size) for k in (starts if count % size == 0 else [*starts, count - size])]
