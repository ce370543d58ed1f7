"""The parts of a matrix product in machine code: the tile in registers, and packers that lay operands out for it.

The left operand is packed in panels of rows, the right one in panels of `width` columns: element after element along the sum, so
that the tile reads both in order. Packers read operands at any distance between elements, as long as one of their two axes is
dense, and nothing outside of them but cache lines fetched ahead.
"""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand, accumulate, transposed
from deepx_graph.runtime.native.llvm.builder import DType, IRBuilder, VectorValue, scalar_type

VECTORS = 2
"""Registers across a tile."""

AHEAD = 4
"""How many rows of the right operand are fetched before they are packed."""


class TileEmitter:
    """Writes the functions for one element type and panels of at most `rows` rows, on vectors of `register_bytes`."""

    def __init__(self, dtype: DType, rows: int, register_bytes: int) -> None:
        self.dtype, self.rows, self.size = dtype, rows, dtype.itemsize
        self.lanes = register_bytes // dtype.itemsize
        self.width = VECTORS * self.lanes
        self.heights = sorted({rows, max(1, rows - 1)})
        self.scalar = scalar_type(dtype)
        self.declarations: dict[str, None] = {"declare void @llvm.prefetch.p0(ptr, i32, i32, i32)": None}

    def texts(self) -> list[str]:
        """The functions, and what they call."""
        made = [*map(self._tile, self.heights), self._transposed(), self._left(), self._right(), self._edge()]
        return [*self.declarations, *made]

    def function(self, head: str, t: IRBuilder) -> str:
        """A function of its own from its first line and its body."""
        self.declarations |= t.declarations
        return "\n".join([f"define internal void {head} noinline nounwind {{", "entry:", *t.lines, "  ret void", "}"])

    def at(self, t: IRBuilder, pointer: str, row: str, distance: str | int, column: str | int = 0) -> str:
        """The address of an element, from its row and column."""
        offset = t.let(f"mul i64 {row}, {distance}")
        return t.address(pointer, t.let(f"add i64 {offset}, {column}"), self.dtype)

    # --- the tile in registers

    def _tile(self, height: int) -> str:
        """`tile(k, a, b, c, distance, add)`: height x width elements of the result, from packed panels; put, or added to it."""
        t = IRBuilder(self.lanes)
        addresses = [[self.at(t, "%c", str(r), "%distance", c * self.lanes) for c in range(VECTORS)] for r in range(height)]
        for address in (p for row in addresses for p in row):  # needed at the end
            t.line(f"call void @llvm.prefetch.p0(ptr {address}, i32 1, i32 3, i32 1)")
        left, right = TileOperand(tuple(range(height)), 0, spread=True), TileOperand((0,) * height, self.lanes, spread=False)
        loop = PointerLoop("%k", (str(self.rows), str(self.width)))
        sums = accumulate(t, self.dtype, Tile(height, VECTORS), (left, right), ("%a", "%b"), [loop], [(0, 0)])

        def each(write: Callable[[VectorValue, str], None]) -> None:
            for row, ps in zip(sums, addresses, strict=True):
                for value, address in zip(row, ps, strict=True):
                    write(value, address)

        either(t, "%add", lambda: each(lambda x, p: t.store(t.binary("fadd", t.load(p, self.dtype, None), x), p, None)),
               lambda: each(lambda x, p: t.store(x, p, None)))
        return self.function(f"@tile{height}(i64 %k, ptr %a, ptr %b, ptr %c, i64 %distance, i1 %add)", t)

    def _edge(self) -> str:
        """`edge(tile, target, distance, rows, columns, add)`: part of a tile, put in the result or added to it."""
        t = IRBuilder(self.lanes)
        masks = [below(t, t.let(f"sub i64 %columns, {c * self.lanes}")) for c in range(VECTORS)]

        def row(i: str) -> None:
            for c, mask in enumerate(masks):
                new = t.load(self.at(t, "%s", i, self.width, c * self.lanes), self.dtype, None)
                target = self.at(t, "%t", i, "%distance", c * self.lanes)
                either(t, "%add", lambda: t.store(t.binary("fadd", new, t.load(target, self.dtype, mask)), target, mask),  # noqa: B023
                       lambda: t.store(new, target, mask))  # noqa: B023

        t.rows("0", "%rows", row)
        return self.function("@edge(ptr %s, ptr %t, i64 %distance, i64 %rows, i64 %columns, i1 %add)", t)

    # --- packers

    def _transposed(self) -> str:
        """`transposed(source, distance, target, step, count, put, k)`: `target[i * step + r] = source[r * distance + i]`
        for r < count.

        From count to `put` zeros are written; neither is more than the lanes.
        """
        t = IRBuilder(self.lanes)
        inside = [t.let(f"icmp sgt i64 %count, {r}") for r in range(self.lanes)]
        rows = [t.address("%s", t.let(f"mul i64 {t.let(f'select i1 {i}, i64 {r}, i64 0')}, %distance"), self.dtype)
                for r, i in enumerate(inside)]
        mask, whole, zero = below(t, "%put"), t.let(f"and i64 %k, {-self.lanes}"), t.splat(0, self.dtype)

        def square(n: str) -> None:
            read = [t.load(t.address(p, n, self.dtype), self.dtype, None) for p in rows]
            kept = [t.value(f"select i1 {i}, {t.vector(self.dtype)} {x.text}, {t.vector(self.dtype)} {zero.text}", self.dtype)
                    for i, x in zip(inside, read, strict=True)]
            for j, x in enumerate(transposed(t, kept)):
                t.store(x, self.at(t, "%t", t.let(f"add i64 {n}, {j}"), "%step"), mask)

        def single(n: str) -> None:
            last = zero.text
            for r, (p, i) in enumerate(zip(rows, inside, strict=True)):
                x = t.let(f"load {self.scalar}, ptr {t.address(p, n, self.dtype)}, align {self.size}")
                kept = t.let(f"select i1 {i}, {self.scalar} {x}, {self.scalar} 0.0")
                last = t.let(f"insertelement {t.vector(self.dtype)} {last}, {self.scalar} {kept}, i64 {r}")
            t.store(VectorValue(last, self.dtype), self.at(t, "%t", n, "%step"), mask)

        stepped(t, "0", whole, self.lanes, square)
        stepped(t, whole, "%k", 1, single)
        return self.function("@transposed(ptr %s, i64 %distance, ptr %t, i64 %step, i64 %count, i64 %put, i64 %k)", t)

    def _left(self) -> str:
        """`left(source, row distance, depth distance, target, rows, k)`: one panel of the left operand."""
        t = IRBuilder(self.lanes)

        def strip(r: str) -> None:
            count = least(t, t.let(f"sub i64 %rows, {r}"), str(self.lanes))
            source, target = self.at(t, "%s", r, "%row"), t.address("%t", r, self.dtype)
            args = f"(ptr {source}, i64 %row, ptr {target}, i64 {self.rows}, i64 {count}, i64 {count}, i64 %k)"
            either(t, dense, lambda: t.line(f"call void @transposed{args}"), lambda: copied(source, target, below(t, count)))

        def copied(source: str, target: str, mask: str) -> None:
            t.rows("0", "%k", lambda i: t.store(t.load(self.at(t, source, i, "%deep"), self.dtype, mask),
                                                self.at(t, target, i, self.rows), mask))

        dense = t.let("icmp eq i64 %deep, 1")
        stepped(t, "0", "%rows", self.lanes, strip)
        return self.function("@left(ptr %s, i64 %row, i64 %deep, ptr %t, i64 %rows, i64 %k)", t)

    def _right(self) -> str:
        """`right(source, depth distance, column distance, target, panel distance, columns, k)`: panels of the right operand.

        What the last vector of columns lacks is filled with zeros.
        """
        t = IRBuilder(self.lanes)

        def spot(i: str, j: str) -> str:
            panel, within = t.let(f"udiv i64 {j}, {self.width}"), t.let(f"urem i64 {j}, {self.width}")
            return self.at(t, self.at(t, "%t", panel, "%panel", within), i, self.width)

        def copied(i: str) -> None:
            def vector(j: str) -> None:
                ahead = self.at(t, "%s", t.let(f"add i64 {i}, {AHEAD}"), "%deep", j)
                t.line(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
                t.store(t.load(self.at(t, "%s", i, "%deep", j), self.dtype, None), spot(i, j), None)

            stepped(t, "0", whole, self.lanes, vector)
            either(t, some, lambda: t.store(t.load(self.at(t, "%s", i, "%deep", whole), self.dtype, mask), spot(i, whole), None))

        def transposed(j: str) -> None:
            count = least(t, t.let(f"sub i64 %columns, {j}"), str(self.lanes))
            t.line(f"call void @transposed(ptr {self.at(t, '%s', j, '%column')}, i64 %column, ptr {spot('0', j)}, i64 {self.width},"
                   f" i64 {count}, i64 {self.lanes}, i64 %k)")

        whole = t.let(f"and i64 %columns, {-self.lanes}")
        rest = t.let(f"sub i64 %columns, {whole}")
        some, mask = t.let(f"icmp sgt i64 {rest}, 0"), below(t, rest)
        either(t, t.let("icmp eq i64 %column, 1"), lambda: t.rows("0", "%k", copied),
               lambda: stepped(t, "0", "%columns", self.lanes, transposed))
        return self.function("@right(ptr %s, i64 %deep, i64 %column, ptr %t, i64 %panel, i64 %columns, i64 %k)", t)


# --- control flow


def stepped(t: IRBuilder, low: str, high: str, step: str | int, body: Callable[[str], object]) -> None:
    """`for i in range(low, high, step): body(i)`."""
    before, head, inside, after = t.block, t.name("from"), t.name("in"), t.name("to")
    i, next_index = "%" + t.name("i"), "%" + t.name("n")
    t.line(f"br label %{head}")
    t.start(head)
    position = len(t.lines)
    more = t.let(f"icmp slt i64 {i}, {high}")
    t.line(f"br i1 {more}, label %{inside}, label %{after}")
    t.start(inside)
    body(i)
    t.line(f"{next_index} = add i64 {i}, {step}")
    t.lines.insert(position, f"  {i} = phi i64 [ {low}, %{before} ], [ {next_index}, %{t.block} ]")
    t.line(f"br label %{head}")
    t.start(after)


def either(t: IRBuilder, condition: str, then: Callable[[], object] | None, other: Callable[[], object] | None = None) -> None:
    """`if condition: then() else: other()`."""
    yes, no, after = t.name("yes"), t.name("no"), t.name("end")
    t.line(f"br i1 {condition}, label %{yes}, label %{no}")
    for label, body in ((yes, then), (no, other)):
        t.start(label)
        if body is not None:
            body()
        t.line(f"br label %{after}")
    t.start(after)


def least(t: IRBuilder, x: str, y: str) -> str:
    """The smaller of two integers."""
    return t.let(f"select i1 {t.let(f'icmp slt i64 {x}, {y}')}, i64 {x}, i64 {y}")


def below(t: IRBuilder, count: str) -> str:
    """The mask of the lanes below a count."""
    kind = f"<{t.lanes} x i64>"
    first = t.let(f"insertelement {kind} poison, i64 {count}, i64 0")
    spread = t.let(f"shufflevector {kind} {first}, {kind} poison, <{t.lanes} x i32> zeroinitializer")
    return t.let(f"icmp slt {kind} <{', '.join(f'i64 {k}' for k in range(t.lanes))}>, {spread}")
