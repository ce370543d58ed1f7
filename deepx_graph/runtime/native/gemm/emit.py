"""Matrix products (GEMM) in machine code: packers, the tile in registers, and the loops around them.

The left operand is read as it lies or packed in panels of rows, the right one is packed in panels of `width` columns: element after
element along the sum, so that the tile reads both in order. Packers read operands at any distance between elements, as long as one
of their two axes is dense, and nothing outside of them but prefetched cache lines.

`product(table, counter, scratch)` takes item after item from the counter, and may run in several threads at once: panels of the
left operand are packed, then chunks of the result are computed. The table counts the panels that have been packed: nobody begins a
chunk before all are. Everything about a product is in a table of `Fields`; the text depends on the element type and
the height of a panel alone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand, accumulate, block_lanes, transposed_strip
from deepx_graph.runtime.native.llvm.builder import DType, IRBuilder, VectorValue, below, branch, each_share, least, scalar_type
from deepx_graph.runtime.native.threads import wait_until

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
        return t.function(f"internal void {head} noinline nounwind")

    def at(self, t: IRBuilder, pointer: str, row: str, distance: str | int, column: str | int = 0) -> str:
        """The address of an element, from its row and column."""
        offset = t.let(f"mul i64 {row}, {distance}")
        return t.address(pointer, t.let(f"add i64 {offset}, {column}"), self.dtype)

    # --- the tile in registers

    def _tile(self, height: int) -> str:
        """`tile(k, a, row, deep, b, c, distance, add)`: height x width elements of the result, from a packed panel of columns and
        from rows so far apart, whose elements along the sum are so far apart; put, or added to it."""
        t = IRBuilder(self.lanes)
        addresses = [[self.at(t, "%c", str(r), "%distance", c * self.lanes) for c in range(VECTORS)] for r in range(height)]
        for address in (p for row in addresses for p in row):  # needed at the end
            t.line(f"call void @llvm.prefetch.p0(ptr {address}, i32 1, i32 3, i32 1)")
        rows = tuple(t.let(f"mul i64 %row, {r}") if r else 0 for r in range(height))
        left, right = TileOperand(rows, 0, spread=True), TileOperand((0,) * height, self.lanes, spread=False)
        loop = PointerLoop("%k", ("%deep", str(self.width)))
        sums = accumulate(t, self.dtype, Tile(height, VECTORS), (left, right), ("%a", "%b"), [loop], [(0, 0)])

        def each(write: Callable[[VectorValue, str], None]) -> None:
            for row, ps in zip(sums, addresses, strict=True):
                for value, address in zip(row, ps, strict=True):
                    write(value, address)

        branch(t, "%add", lambda: each(lambda x, p: t.store(t.binary("fadd", t.load(p, self.dtype, None), x), p, None)),
               lambda: each(lambda x, p: t.store(x, p, None)))
        params = "i64 %k, ptr %a, i64 %row, i64 %deep, ptr %b, ptr %c, i64 %distance, i1 %add"
        return self.function(f"@tile{height}({params})", t)

    def _edge(self) -> str:
        """`edge(tile, target, distance, rows, columns, add)`: part of a tile, put in the result or added to it."""
        t = IRBuilder(self.lanes)
        masks = [below(t, t.let(f"sub i64 %columns, {c * self.lanes}")) for c in range(VECTORS)]

        def row(i: str) -> None:
            for c, mask in enumerate(masks):
                new = t.load(self.at(t, "%s", i, self.width, c * self.lanes), self.dtype, None)
                target = self.at(t, "%t", i, "%distance", c * self.lanes)
                branch(t, "%add", lambda: t.store(t.binary("fadd", new, t.load(target, self.dtype, mask)), target, mask),  # noqa: B023
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
        block = block_lanes(self.lanes, self.dtype)
        mask, whole, zero = below(t, "%put"), t.let(f"and i64 %k, {-block}"), t.splat(0, self.dtype)

        def strip(n: str) -> None:
            for j, x in enumerate(transposed_strip(t, [t.address(p, n, self.dtype) for p in rows], self.dtype, inside)):
                t.store(x, self.at(t, "%t", t.let(f"add i64 {n}, {j}"), "%step"), mask)

        def single(n: str) -> None:
            last = zero.text
            for r, (p, i) in enumerate(zip(rows, inside, strict=True)):
                x = t.let(f"load {self.scalar}, ptr {t.address(p, n, self.dtype)}, align {self.size}")
                kept = t.let(f"select i1 {i}, {self.scalar} {x}, {self.scalar} 0.0")
                last = t.let(f"insertelement {t.vector(self.dtype)} {last}, {self.scalar} {kept}, i64 {r}")
            t.store(VectorValue(last, self.dtype), self.at(t, "%t", n, "%step"), mask)

        t.rows("0", whole, strip, block)
        t.rows(whole, "%k", single)
        return self.function("@transposed(ptr %s, i64 %distance, ptr %t, i64 %step, i64 %count, i64 %put, i64 %k)", t)

    def _left(self) -> str:
        """`left(source, row distance, depth distance, target, rows, k)`: one panel of the left operand."""
        t = IRBuilder(self.lanes)

        def strip(r: str) -> None:
            count = least(t, t.let(f"sub i64 %rows, {r}"), str(self.lanes))
            source, target = self.at(t, "%s", r, "%row"), t.address("%t", r, self.dtype)
            args = f"(ptr {source}, i64 %row, ptr {target}, i64 {self.rows}, i64 {count}, i64 {count}, i64 %k)"
            branch(t, dense, lambda: t.line(f"call void @transposed{args}"), lambda: copied(source, target, below(t, count)))

        def copied(source: str, target: str, mask: str) -> None:
            t.rows("0", "%k", lambda i: t.store(t.load(self.at(t, source, i, "%deep"), self.dtype, mask),
                                                self.at(t, target, i, self.rows), mask))

        dense = t.let("icmp eq i64 %deep, 1")
        t.rows("0", "%rows", strip, self.lanes)
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

            t.rows("0", whole, vector, self.lanes)
            branch(t, some, lambda: t.store(t.load(self.at(t, "%s", i, "%deep", whole), self.dtype, mask), spot(i, whole), None))

        def transposed(j: str) -> None:
            count = least(t, t.let(f"sub i64 %columns, {j}"), str(self.lanes))
            t.line(f"call void @transposed(ptr {self.at(t, '%s', j, '%column')}, i64 %column, ptr {spot('0', j)}, i64 {self.width},"
                   f" i64 {count}, i64 {self.lanes}, i64 %k)")

        whole = t.let(f"and i64 %columns, {-self.lanes}")
        rest = t.let(f"sub i64 %columns, {whole}")
        some, mask = t.let(f"icmp sgt i64 {rest}, 0"), below(t, rest)
        branch(t, t.let("icmp eq i64 %column, 1"), lambda: t.rows("0", "%k", copied),
               lambda: t.rows("0", "%columns", transposed, self.lanes))
        return self.function("@right(ptr %s, i64 %deep, i64 %column, ptr %t, i64 %panel, i64 %columns, i64 %k)", t)


STRIP = 4
"""Panels of the right operand that are packed at a time, on the stack: some 130 KB of an AVX2 machine. Fewer read rows in pieces
that are too short."""

PANEL_GAP = 32
"""Elements between packed panels of columns, so that they do not fall on the same lines of the cache."""


class Fields(IntEnum):
    """Slots of the table of a product, 8 bytes each. Distances are in elements."""

    POINTERS = 0
    """Where three addresses stand for each matrix: left, right, result."""
    ROWS = 1
    COLUMNS = 2
    DEPTH = 3
    LEFT_ROW = 4
    LEFT_DEPTH = 5
    RIGHT_DEPTH = 6
    RIGHT_COLUMN = 7
    RESULT_ROW = 8
    SHORT = 9
    """Rows of a panel, at least; the first `LONG` panels of a matrix have one more."""
    LONG = 10
    MATRIX = 11
    """What is done now: so many `MATRICES` from this one on, and of each so many `PANELS` from panel `FIRST` on."""
    MATRICES = 12
    FIRST = 13
    PANELS = 14
    PACKED = 15
    """Where the packed left operand is; 0 where it is read as it lies."""
    BLOCK = 16
    """Terms of the sum that are packed at a time."""
    CHUNK_PANELS = 17
    CHUNK_COLUMNS = 18
    DOWN = 19
    """Chunks down and `ACROSS` a matrix."""
    ACROSS = 20
    EPILOGUE = 21
    """What is done with a finished chunk (`EpilogueKernel`), or 0; and its table."""
    EPILOGUE_TABLE = 22
    READY = 23
    """How many panels of the left operand have been packed."""


ADDRESSES = (Fields.POINTERS, Fields.PACKED, Fields.EPILOGUE, Fields.EPILOGUE_TABLE)


def module_text(dtype: DType, rows: int, register_bytes: int) -> str:
    """The text of `product` for panels of at most so many rows."""
    parts = TileEmitter(dtype, rows, register_bytes)
    return "\n".join(["declare void @llvm.x86.sse2.pause()", "declare i64 @syscall(i64, ...)", *parts.texts(), _product(parts)])


class _Table:
    """The fields as values of a function, loaded where it begins, by their names in lower case."""

    def __init__(self, t: IRBuilder) -> None:
        self._values: dict[str, str] = {}
        for field in Fields:
            self._values[field.name.lower()] = t.word("%table", int(field), "ptr" if field in ADDRESSES else "i64")

    def __getattr__(self, name: str) -> str:
        return self._values[name]

    def pointer(self, t: IRBuilder, matrix: str, which: int) -> str:
        """The address of an operand or the result of a matrix."""
        slot = t.let(f"add i64 {t.let(f'mul i64 {matrix}, 3')}, {which}")
        return t.word(self.pointers, slot, "ptr")

    def panel(self, t: IRBuilder, panel: str) -> tuple[str, str]:
        """The first row of a panel and how many it has."""
        start = t.let(f"add i64 {t.let(f'mul i64 {panel}, {self.short}')}, {least(t, panel, self.long)}")
        tall = t.let(f"icmp slt i64 {panel}, {self.long}")
        return start, t.let(f"add i64 {self.short}, {t.let(f'zext i1 {tall} to i64')}")

    def packed_panel(self, t: IRBuilder, parts: TileEmitter, number: str) -> str:
        """Where the panel of that number is among the packed ones."""
        return parts.at(t, self.packed, t.let(f"mul i64 {number}, {self.depth}"), parts.rows)


def _packed(parts: TileEmitter, t: IRBuilder, f: _Table, k: str) -> None:
    """Packs a panel of the left operand."""
    matrix = t.let(f"add i64 {t.let(f'udiv i64 {k}, {f.panels}')}, {f.matrix}")
    panel = t.let(f"add i64 {t.let(f'urem i64 {k}, {f.panels}')}, {f.first}")
    start, rows = f.panel(t, panel)
    source, target = parts.at(t, f.pointer(t, matrix, 0), start, f.left_row), f.packed_panel(t, parts, k)
    t.line(f"call void @left(ptr {source}, i64 {f.left_row}, i64 {f.left_depth}, ptr {target}, i64 {rows}, i64 {f.depth})")


class _Multiplying:
    """Writes the body of `multiply`; one method a loop, outermost first."""

    def __init__(self, parts: TileEmitter, t: IRBuilder, f: _Table) -> None:
        self.parts, self.t, self.f = parts, t, f
        self.chunks = t.let(f"mul i64 {f.down}, {f.across}")
        self.tile = t.let(f"alloca [{parts.rows * parts.width} x {parts.scalar}], align 64")
        packed = t.let(f"mul i64 {f.block}, {parts.width}")
        self.panel = t.let(f"add i64 {packed}, {PANEL_GAP}")
        self.panels = t.let(f"alloca {parts.scalar}, i64 {t.let(f'mul i64 {self.panel}, {STRIP}')}, align 64")
        self.is_packed = t.let(f"icmp ne ptr {f.packed}, null")
        self.row = t.let(f"select i1 {self.is_packed}, i64 1, i64 {f.left_row}")
        self.deep = t.let(f"select i1 {self.is_packed}, i64 {parts.rows}, i64 {f.left_depth}")

    def chunk(self, k: str) -> None:
        """Some panels of a matrix by some columns."""
        t, f, parts = self.t, self.f, self.parts
        self.number, rest = t.let(f"udiv i64 {k}, {self.chunks}"), t.let(f"urem i64 {k}, {self.chunks}")
        matrix = t.let(f"add i64 {self.number}, {f.matrix}")
        down, across = t.let(f"udiv i64 {rest}, {f.across}"), t.let(f"urem i64 {rest}, {f.across}")
        self.low = t.let(f"add i64 {t.let(f'mul i64 {down}, {f.chunk_panels}')}, {f.first}")
        self.high = least(t, t.let(f"add i64 {self.low}, {f.chunk_panels}"), t.let(f"add i64 {f.first}, {f.panels}"))
        self.left = t.let(f"mul i64 {across}, {f.chunk_columns}")
        right = least(t, t.let(f"add i64 {self.left}, {f.chunk_columns}"), f.columns)
        self.columns = t.let(f"sub i64 {right}, {self.left}")
        self.rows = f.pointer(t, matrix, 0)
        self.source = parts.at(t, f.pointer(t, matrix, 1), self.left, f.right_column)
        self.result = t.address(f.pointer(t, matrix, 2), self.left, parts.dtype)
        t.rows("0", f.depth, self.block, f.block)
        branch(t, t.let(f"icmp ne ptr {f.epilogue}, null"), lambda: self.epilogue(matrix, right))

    def epilogue(self, matrix: str, right: str) -> None:
        """The epilogue, on the chunk."""
        t, f = self.t, self.f
        above = t.let(f"mul i64 {matrix}, {f.rows}")
        low, high = (t.let(f"add i64 {above}, {f.panel(t, p)[0]}") for p in (self.low, self.high))
        ranges = f"i64 {low}, i64 {high}, i64 {self.left}, i64 {right}"
        t.line(f"call void {f.epilogue}(ptr {f.epilogue_table}, {ranges})")

    def block(self, term: str) -> None:
        """Some terms of the sums."""
        t, f = self.t, self.f
        self.term, self.terms = term, least(t, t.let(f"sub i64 {f.depth}, {term}"), f.block)
        self.add = t.let(f"icmp ne i64 {term}, 0")
        self.block_source = self.parts.at(t, self.source, term, f.right_depth)
        t.rows("0", self.columns, self.strip, STRIP * self.parts.width)

    def strip(self, j: str) -> None:
        """Some columns: packed, and then each panel of them multiplied."""
        t, f = self.t, self.f
        end = least(t, t.let(f"add i64 {j}, {STRIP * self.parts.width}"), self.columns)
        source = self.parts.at(t, self.block_source, j, f.right_column)
        t.line(f"call void @right(ptr {source}, i64 {f.right_depth}, i64 {f.right_column}, ptr {self.panels}, i64 {self.panel},"
               f" i64 {t.let(f'sub i64 {end}, {j}')}, i64 {self.terms})")
        t.rows(j, end, lambda k: self.column(k, t.let(f"sub i64 {k}, {j}")), self.parts.width)

    def column(self, j: str, within: str) -> None:
        """The tiles of one packed panel of columns."""
        t = self.t
        self.packed = self.parts.at(t, self.panels, t.let(f"udiv i64 {within}, {self.parts.width}"), self.panel)
        self.wide = t.let(f"sub i64 {self.columns}, {j}")
        self.fits = t.let(f"icmp sge i64 {self.wide}, {self.parts.width}")
        t.rows(self.low, self.high, lambda p: self.one(p, j))

    def one(self, p: str, j: str) -> None:
        """One tile: straight into the result where all of it is inside, else through the stack."""
        t, f, parts = self.t, self.f, self.parts
        row, rows = f.panel(t, p)
        number = t.let(f"add i64 {t.let(f'mul i64 {self.number}, {f.panels}')}, {t.let(f'sub i64 {p}, {f.first}')}")
        packed = parts.at(t, f.packed_panel(t, parts, number), self.term, parts.rows)
        lying = parts.at(t, parts.at(t, self.rows, row, f.left_row), self.term, f.left_depth)
        a = t.let(f"select i1 {self.is_packed}, ptr {packed}, ptr {lying}")
        c = parts.at(t, self.result, row, f.result_row, j)
        to = t.let(f"select i1 {self.fits}, ptr {c}, ptr {self.tile}")
        distance = t.let(f"select i1 {self.fits}, i64 {f.result_row}, i64 {parts.width}")
        add = t.let(f"and i1 {self.add}, {self.fits}")
        left = f"ptr {a}, i64 {self.row}, i64 {self.deep}"
        args = f"(i64 {self.terms}, {left}, ptr {self.packed}, ptr {to}, i64 {distance}, i1 {add})"
        branch(t, t.let(f"icmp eq i64 {rows}, {parts.rows}"), lambda: t.line(f"call void @tile{parts.heights[-1]}{args}"),
               lambda: t.line(f"call void @tile{parts.heights[0]}{args}"))
        branch(t, self.fits, None, lambda: t.line(
            f"call void @edge(ptr {self.tile}, ptr {c}, i64 {f.result_row}, i64 {rows}, i64 {self.wide}, i1 {self.add})"))


def _product(parts: TileEmitter) -> str:
    """Takes items from the counter until there are none: first panels to pack, then, once all are packed, chunks."""
    t = IRBuilder(parts.lanes)
    f = _Table(t)
    m = _Multiplying(parts, t, f)
    packs = t.let(f"select i1 {m.is_packed}, i64 {t.let(f'mul i64 {f.matrices}, {f.panels}')}, i64 0")
    items = t.let(f"add i64 {packs}, {t.let(f'mul i64 {f.matrices}, {m.chunks}')}")
    ready = t.behind("%table", 8 * int(Fields.READY))

    def item(k: str) -> None:
        branch(t, t.let(f"icmp slt i64 {k}, {packs}"), lambda: pack(k), lambda: multiply(k))

    def pack(k: str) -> None:
        _packed(parts, t, f, k)
        t.let(f"atomicrmw add ptr {ready}, i64 1 seq_cst")

    def multiply(k: str) -> None:
        wait_until(t, lambda: t.let(f"icmp sge i64 {t.let(f'load atomic i64, ptr {ready} acquire, align 8')}, {packs}"))
        m.chunk(t.let(f"sub i64 {k}, {packs}"))

    each_share(t, items, item)
    return t.function("void @product(ptr %table, ptr %counter, ptr %scratch) nounwind \"stackrealign\"")
