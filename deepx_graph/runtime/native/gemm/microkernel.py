"""Micro-kernels: sums of products of two operands for a small tile of results, all of which stay in vector registers.

Sums of floats are of products of elements; those of integers are of pairs of terms: an element has two integers of 16 bits.

A tile has rows of vectors. Each operand has an element, or a vector of neighbouring elements, for every position in the tile; it is
read at a pointer that moves on by a constant step with each iteration of each loop. That is enough for matrix products over packed
panels and for convolutions of any layout. Nothing is masked: all that the loops reach must be readable memory.

A matrix product of panels packed as `a[k][rows]` and `b[k][vectors * lanes]`, `depth` deep:

    lanes, tile = machine.register_bytes // dtype.itemsize, Tile(14, 2)
    a = TileOperand(tuple(range(tile.rows)), 0, spread=True)
    b = TileOperand((0,) * tile.rows, lanes, spread=False)
    steps = [(k * tile.rows, k * tile.vectors * lanes) for k in range(4)]
    loop = PointerLoop("%depth_by_4", (str(4 * tile.rows), str(4 * tile.vectors * lanes)))
    sums = accumulate(t, dtype, tile, (a, b), ("%a", "%b"), [loop], steps)      # sums[row][vector]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from deepx_graph.runtime.native.gemm.elements import PanelElements
from deepx_graph.runtime.native.llvm.builder import DType, IRBuilder, VectorValue, concatenated, scalar_type
from deepx_graph.runtime.native.llvm.transpose import block_lanes, transposed_blocks

Tiles = list[list[VectorValue]]
"""A vector for each row and position in the row."""


@dataclass(frozen=True)
class Tile:
    """So many rows of so many vectors, the last of which has so many elements, if it is not full."""

    rows: int
    vectors: int
    last: int = 0

    def lanes(self, vector: int, most: int) -> int:
        """How wide a vector is."""
        return min(most, max(2, 1 << (self.last - 1).bit_length())) if self.last and vector == self.vectors - 1 else most


@dataclass(frozen=True)
class TileOperand:
    """Where an operand's elements for a tile lie: `rows[r] + v * vector` elements behind its pointer. Rows are numbers, or values
    of the code.

    `spread`: one element there stands for all lanes; else there is a vector of neighbours.
    """

    rows: tuple[int | str, ...]
    vector: int
    spread: bool

    def at(self, row: int, vector: int) -> tuple[str, int]:
        """The offset, in elements: a value of the code and a number."""
        base = self.rows[row]
        return (base, vector * self.vector) if isinstance(base, str) else ("0", base + vector * self.vector)


@dataclass(frozen=True)
class PointerLoop:
    """A loop that runs `count` times, at least once; the pointers move on by `steps` elements an iteration. All are IR operands."""

    count: str
    steps: tuple[str, ...]


def registers(register_bytes: int, triple: str) -> int:
    """How many vector registers the machine has."""
    return 32 if register_bytes == 64 or triple.startswith(("aarch64", "arm64")) else 16


def accumulate(t: IRBuilder, dtype: DType, tile: Tile, operands: tuple[TileOperand, TileOperand], pointers: tuple[str, ...],
               loops: Sequence[PointerLoop], steps: Sequence[tuple[int, int]]) -> Tiles:
    """The sums over all loops, outermost first, of the products at `steps`: offsets in elements that are written out one by one.

    No element may be read by two steps: LLVM keeps it in a register from one to the other, and spills sums for that. A loop around
    one step is as fast: it is the sums that take the time.
    """
    return _Accumulation(t, dtype, tile, operands, steps).nested(pointers, loops)


class _Accumulation:
    """Writes the loops of a tile's sums."""

    def __init__(self, t: IRBuilder, dtype: DType, tile: Tile, operands: tuple[TileOperand, TileOperand],
                 steps: Sequence[tuple[int, int]]) -> None:
        self.t, self.dtype, self.tile, self.operands, self.steps = t, dtype, tile, operands, steps
        self.widths = [tile.lanes(v, t.lanes) for v in range(tile.vectors)]

    def nested(self, pointers: tuple[str, ...], loops: Sequence[PointerLoop], sums: Tiles | None = None) -> Tiles:
        """The sums after the loops."""
        if sums is None:
            sums = [[self._zero(width) for width in self.widths] for _ in range(self.tile.rows)]
        if not loops:
            for step in self.steps:
                sums = self._products(pointers, step, sums)
            return sums
        loop, *inner = loops
        return self.nested(pointers, inner, sums) if loop.count == "1" else self._repeated(loop, pointers, inner, sums)

    def _zero(self, width: int) -> VectorValue:
        with self.t.narrowed(width):
            return self.t.splat(0, self.dtype)

    def _repeated(self, loop: PointerLoop, pointers: tuple[str, ...], inner: Sequence[PointerLoop], sums: Tiles) -> Tiles:
        t, dtype = self.t, self.dtype
        before, head, after = t.block, t.name("sum"), t.name("summed")
        t.line(f"br label %{head}")
        t.start(head)
        index, next_index = "%" + t.name("i"), "%" + t.name("n")
        inside = tuple("%" + t.name("p") for _ in pointers)
        carried = [[VectorValue("%" + t.name("a"), dtype) for _ in row] for row in sums]
        position = len(t.lines)
        made = self.nested(inside, inner, carried)
        moved = [t.address(p, step, dtype) for p, step in zip(inside, loop.steps, strict=True)]
        phis = [f"  {index} = phi i64 [ 0, %{before} ], [ {next_index}, %{t.block} ]"]
        phis += [f"  {new} = phi ptr [ {old}, %{before} ], [ {m}, %{t.block} ]"
                 for new, old, m in zip(inside, pointers, moved, strict=True)]
        phis += [f"  {c.text} = phi {IRBuilder(width).vector(dtype)} [ {s.text}, %{before} ], [ {m.text}, %{t.block} ]"
                 for cs, ss, ms in zip(carried, sums, made, strict=True)
                 for width, c, s, m in zip(self.widths, cs, ss, ms, strict=True)]
        t.lines[position:position] = phis
        t.line(f"{next_index} = add nuw i64 {index}, 1")
        more = t.let(f"icmp slt i64 {next_index}, {loop.count}")
        t.line(f"br i1 {more}, label %{head}, label %{after}")
        t.start(after)
        return made

    def _products(self, pointers: tuple[str, ...], step: tuple[int, int], sums: Tiles) -> Tiles:
        """One product added to each sum; what several positions share is loaded once.

        The elements of the operand that has fewer stay in registers, from one element of the other to the next.
        """
        t, loaded = self.t, dict[tuple[int, tuple[str, int], int], VectorValue]()

        def read(side: int, row: int, vector: int) -> VectorValue:
            operand = self.operands[side]
            base, offset = operand.at(row, vector)
            key = side, (base, offset), t.lanes
            if key not in loaded:
                begin = pointers[side] if base == "0" else t.address(pointers[side], base, self.dtype)
                at = t.address(begin, str(offset + step[side]), self.dtype)
                last = self.tile.last if vector == self.tile.vectors - 1 else 0
                loaded[key] = t.load_one(at, self.dtype) if operand.spread else t.load_first(at, self.dtype, last or t.lanes)
            return loaded[key]

        made = [list(row) for row in sums]
        positions = list(itertools.product(range(self.tile.rows), range(self.tile.vectors)))
        outer = max(self.operands, key=lambda operand: len({operand.at(r, v) for r, v in positions}))
        order = {address: k for k, address in enumerate(dict.fromkeys(outer.at(r, v) for r, v in positions))}
        for r, v in sorted(positions, key=lambda position: order[outer.at(*position)]):
            with t.narrowed(self.widths[v]):
                if self.dtype.kind == "f":
                    product = t.binary("fmul contract", read(0, r, v), read(1, r, v))
                    made[r][v] = t.binary("fadd contract", product, sums[r][v])
                else:
                    made[r][v] = t.binary("add", products_of_pairs(t, read(0, r, v), read(1, r, v)), sums[r][v])
        return made


PAIRED = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
"""The instructions of x86-64 that add the products of two pairs of integers of 16 bits, by the pairs in a vector."""


def products_of_pairs(t: IRBuilder, x: VectorValue, y: VectorValue) -> VectorValue:
    """The sum of two products in each lane, whose two halves are integers."""
    halves, kind, symbol = f"<{2 * t.lanes} x i16>", t.vector(x.dtype), f"llvm.x86.{PAIRED[t.lanes]}"
    t.declare(f"declare {kind} @{symbol}({halves}, {halves}) nounwind willreturn memory(none)")
    given = ", ".join(f"{halves} {t.let(f'bitcast {kind} {v.text} to {halves}')}" for v in (x, y))
    return t.value(f"call {kind} @{symbol}({given})", x.dtype)


def transposed_strip(t: IRBuilder, columns: Sequence[str], elements: PanelElements) -> list[VectorValue]:
    """The vectors of a strip that is a block high, from the addresses of its columns, of which there are as many as lanes.

    A square would be as fast, and takes LLVM three times as long: it tries to make one of shuffles that depend on one another.
    """
    block = block_lanes(t.lanes, elements.dtype)
    each = block * elements.each
    kind = f"<{each} x {scalar_type(elements.source)}>"
    read = [t.let(f"load {kind}, ptr {column}, align {elements.source.itemsize}") for column in columns]
    return transposed_blocks(t, [elements.made(t, concatenated(t, read[k::block], each, elements.source)) for k in range(block)])
