"""Machine code of matrix products: a register tile, packers that lay operands out for it, and the loops around them.

`pack` lays rows of the left operand out in panels of `rows` rows, element after element along the sum; `multiply` takes chunks of the
result, packs the columns it needs of the right operand and goes over tiles of `rows` x `width` elements held in registers.
Both are work for the pool: they take item after item from a counter and may run in several threads at once.
Operands are read at any distance between elements as long as one of their two axes is dense. Everything about a product
is in a `Fields` table; the text depends on the element type and the height of a panel alone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from deepx_graph.runtime.native.text import DType, Text, scalar_type
from deepx_graph.runtime.native.turning import _swaps

VECTORS = 2
"""Registers across a tile."""

AHEAD = 4
"""How many rows of the right operand are fetched before they are packed."""

PANEL_GAP = 32
"""Elements between packed panels, so that they do not fall on the same lines of the cache."""


class Fields(IntEnum):
    """Slots of the table of a product, 8 bytes each. Distances are in elements."""

    POINTERS = 0
    """Address of three addresses for each matrix of the batch: left, right, result."""
    DEPTH = 1
    COLUMNS = 2
    LEFT_ROW = 3
    LEFT_DEPTH = 4
    RIGHT_DEPTH = 5
    RIGHT_COLUMN = 6
    RESULT_ROW = 7
    PACKED = 8
    """Address of the packed left operand."""
    SHORT = 9
    """Rows of a panel, at least; the first `LONG` panels have one more."""
    LONG = 10
    PANELS = 11
    """Of one matrix; those done now begin at `FIRST` and are `COUNT` for each of `MATRICES` from `MATRIX` on."""
    FIRST = 12
    COUNT = 13
    MATRIX = 14
    MATRICES = 15
    CHUNK_PANELS = 16
    ROW_CHUNKS = 17
    CHUNK_COLUMNS = 18
    COLUMN_CHUNKS = 19
    BLOCK = 20
    """Terms of the sum that are packed at a time."""
    EPILOGUE = 21
    """Address of what is done with a finished chunk, or 0: `epilogue(table, row, end row, column, end column, chunk, distance)`."""
    EPILOGUE_TABLE = 22
    ROWS = 23
    PART = 24
    """Bytes in a thread's scratch memory before its chunk of the result; packed columns are first."""
    PART_ROW = 25
    """Distance between rows of a chunk of the result that has an epilogue."""


ADDRESSES = (Fields.POINTERS, Fields.PACKED, Fields.EPILOGUE_TABLE)


class ProductText:
    """Writes the functions for one element type and panels of at most `rows` rows, on vectors of `register_bytes`."""

    def __init__(self, dtype: DType, rows: int, register_bytes: int) -> None:
        self.rows, self.size = rows, dtype.itemsize
        self.lanes = register_bytes // dtype.itemsize
        self.width = VECTORS * self.lanes
        self.scalar = scalar_type(dtype)
        self.vector, self.mask = f"<{self.lanes} x {self.scalar}>", f"<{self.lanes} x i1>"
        self.suffix = f"v{self.lanes}f{8 * dtype.itemsize}"

    def module(self) -> str:
        """The text of `pack` and `multiply`, and what they call."""
        heights = sorted({self.rows, max(1, self.rows - 1)})
        return "\n".join([self._declarations(), *map(self._tile, heights), self._turned(), self._left(), self._right(),
                          self._edge(), self._pack(), self._multiply()])

    def _declarations(self) -> str:
        v, m, s = self.vector, self.mask, self.suffix
        return f"""declare {v} @llvm.fma.{s}({v}, {v}, {v})
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare {v} @llvm.masked.load.{s}.p0(ptr, i32, {m}, {v})
declare void @llvm.masked.store.{s}.p0({v}, ptr, i32, {m})"""

    # --- the tile in registers

    def _tile(self, height: int) -> str:
        """`tile(k, a, b, c, distance, add)`: height x width elements of the result, from packed panels."""
        accumulators = [f"{r}_{c}" for r in range(height) for c in range(VECTORS)]
        lines = [f"define internal void @tile{height}(i64 %k, ptr %a, ptr %b, ptr %c, i64 %distance, i1 %add) noinline nounwind {{",
                 "entry:"]
        lines += self._tile_addresses(height)
        lines += ["  br label %loop", "loop:", "  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]",
                  "  %x = phi ptr [ %a, %entry ], [ %x1, %loop ]", "  %y = phi ptr [ %b, %entry ], [ %y1, %loop ]"]
        lines += [f"  %s{n} = phi {self.vector} [ zeroinitializer, %entry ], [ %t{n}, %loop ]" for n in accumulators]
        for c in range(VECTORS):
            lines += [f"  %q{c} = getelementptr {self.scalar}, ptr %y, i64 {c * self.lanes}",
                      f"  %b{c} = load {self.vector}, ptr %q{c}, align {self.size * self.lanes}"]
        for r in range(height):
            lines += [f"  %p{r} = getelementptr {self.scalar}, ptr %x, i64 {r}",
                      f"  %e{r} = load {self.scalar}, ptr %p{r}, align {self.size}",
                      f"  %f{r} = insertelement {self.vector} poison, {self.scalar} %e{r}, i64 0",
                      f"  %g{r} = shufflevector {self.vector} %f{r}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer"]
            lines += [f"  %t{r}_{c} = call {self.vector} @llvm.fma.{self.suffix}({self.vector} %g{r}, {self.vector} %b{c},"
                      f" {self.vector} %s{r}_{c})" for c in range(VECTORS)]
        lines += [f"  %x1 = getelementptr {self.scalar}, ptr %x, i64 {self.rows}",
                  f"  %y1 = getelementptr {self.scalar}, ptr %y, i64 {self.width}",
                  "  %i1 = add nuw i64 %i, 1", "  %more = icmp ult i64 %i1, %k", "  br i1 %more, label %loop, label %end", "end:",
                  "  br i1 %add, label %sum, label %put", "put:"]
        lines += [f"  store {self.vector} %t{n}, ptr %c{n}, align {self.size}" for n in accumulators]
        lines += ["  ret void", "sum:"]
        for n in accumulators:
            lines += [f"  %o{n} = load {self.vector}, ptr %c{n}, align {self.size}",
                      f"  %u{n} = fadd {self.vector} %o{n}, %t{n}", f"  store {self.vector} %u{n}, ptr %c{n}, align {self.size}"]
        return "\n".join([*lines, "  ret void", "}"])

    def _tile_addresses(self, height: int) -> list[str]:
        """The places of the tile in the result, fetched now because they are needed at the end."""
        lines = []
        for r in range(height):
            lines.append(f"  %d{r} = mul i64 %distance, {r}")
            for c in range(VECTORS):
                lines += [f"  %m{r}_{c} = add i64 %d{r}, {c * self.lanes}",
                          f"  %c{r}_{c} = getelementptr {self.scalar}, ptr %c, i64 %m{r}_{c}",
                          f"  call void @llvm.prefetch.p0(ptr %c{r}_{c}, i32 1, i32 3, i32 1)"]
        return lines

    # --- packers

    def _turned(self) -> str:
        """`turned(source, distance, target, step, count, put, k)`: `target[i * step + r] = source[r * distance + i]` for r < count.

        From count to `put` zeros are written; neither is more than the lanes.
        """
        lanes, s = self.lanes, self.scalar
        integer = f"i{8 * self.size}"
        lines = [f"define internal void @turned(ptr %s, i64 %distance, ptr %t, i64 %step, i64 %count, i64 %put, i64 %k) noinline nounwind {{",
                 "entry:", *self._below("wide", "%put"),
                 f"  %whole = and i64 %k, {-lanes}", "  %some = icmp sgt i64 %whole, 0", "  br i1 %some, label %tile, label %middle",
                 "tile:", "  %i = phi i64 [ 0, %entry ], [ %i1, %tile ]"]
        vector = f"<{lanes} x {integer}>"
        for r in range(lanes):
            lines += [f"  %in{r} = icmp sgt i64 %count, {r}", f"  %r{r} = select i1 %in{r}, i64 {r}, i64 0",
                      f"  %o{r} = mul i64 %r{r}, %distance", f"  %a{r} = add i64 %o{r}, %i",
                      f"  %p{r} = getelementptr {s}, ptr %s, i64 %a{r}",
                      f"  %l{r} = load {vector}, ptr %p{r}, align {self.size}",
                      f"  %v0_{r} = select i1 %in{r}, {vector} %l{r}, {vector} zeroinitializer"]
        stage, distance = 0, lanes // 2
        while distance:
            lines += _swaps(stage, distance, lanes, vector)
            stage, distance = stage + 1, distance // 2
        for r in range(lanes):
            lines += [f"  %j{r} = add i64 %i, {r}", f"  %b{r} = mul i64 %j{r}, %step",
                      f"  %q{r} = getelementptr {s}, ptr %t, i64 %b{r}",
                      f"  %w{r} = bitcast {vector} %v{stage}_{r} to {self.vector}",
                      f"  call void @llvm.masked.store.{self.suffix}.p0({self.vector} %w{r}, ptr %q{r}, i32 {self.size},"
                      f" {self.mask} %wide)"]
        lines += [f"  %i1 = add i64 %i, {lanes}", "  %more = icmp slt i64 %i1, %whole", "  br i1 %more, label %tile, label %middle",
                  "middle:", "  %left = icmp slt i64 %whole, %k", "  br i1 %left, label %rest, label %out",
                  "rest:", "  %n = phi i64 [ %whole, %middle ], [ %n1, %rest ]"]
        lines += self._gathered()
        return "\n".join([*lines, "  %n1 = add i64 %n, 1", "  %again = icmp slt i64 %n1, %k",
                          "  br i1 %again, label %rest, label %out", "out:", "  ret void", "}"])

    def _gathered(self) -> list[str]:
        """One element of each row, side by side: what is left of the rows."""
        lines, last = [], "zeroinitializer"
        for r in range(self.lanes):
            lines += [f"  %hin{r} = icmp sgt i64 %count, {r}", f"  %hr{r} = select i1 %hin{r}, i64 {r}, i64 0",
                      f"  %ho{r} = mul i64 %hr{r}, %distance", f"  %ha{r} = add i64 %ho{r}, %n",
                      f"  %hp{r} = getelementptr {self.scalar}, ptr %s, i64 %ha{r}",
                      f"  %he{r} = load {self.scalar}, ptr %hp{r}, align {self.size}",
                      f"  %hz{r} = select i1 %hin{r}, {self.scalar} %he{r}, {self.scalar} 0.0",
                      f"  %hv{r} = insertelement {self.vector} {last}, {self.scalar} %hz{r}, i64 {r}"]
            last = f"%hv{r}"
        return [*lines, "  %hb = mul i64 %n, %step", f"  %hq = getelementptr {self.scalar}, ptr %t, i64 %hb",
                f"  call void @llvm.masked.store.{self.suffix}.p0({self.vector} {last}, ptr %hq, i32 {self.size},"
                f" {self.mask} %wide)"]

    def _below(self, name: str, count: str) -> list[str]:
        """The mask of the lanes below a count."""
        kind = f"<{self.lanes} x i64>"
        return [f"  %{name}0 = insertelement {kind} poison, i64 {count}, i64 0",
                f"  %{name}1 = shufflevector {kind} %{name}0, {kind} poison, <{self.lanes} x i32> zeroinitializer",
                f"  %{name} = icmp slt {kind} <{', '.join(f'i64 {k}' for k in range(self.lanes))}>, %{name}1"]

    def _left(self) -> str:
        """`left(source, row distance, depth distance, target, rows, k)`: one panel of the left operand."""
        t = Text(self.lanes)
        v, s = self.vector, self.scalar

        def strip(r: str) -> None:
            count = least(t, t.let(f"sub i64 %rows, {r}"), str(self.lanes))
            source = t.let(f"getelementptr {s}, ptr %s, i64 {t.let(f'mul i64 {r}, %row')}")
            target = t.let(f"getelementptr {s}, ptr %t, i64 {r}")
            args = f"(ptr {source}, i64 %row, ptr {target}, i64 {self.rows}, i64 {count}, i64 {count}, i64 %k)"
            either(t, dense, lambda: t.line(f"call void @turned{args}"), lambda: copies(source, target, count))

        def copies(source: str, target: str, count: str) -> None:
            mask = self._lanes_below(t, count)

            def one(i: str) -> None:
                p = t.let(f"getelementptr {s}, ptr {source}, i64 {t.let(f'mul i64 {i}, %deep')}")
                q = t.let(f"getelementptr {s}, ptr {target}, i64 {t.let(f'mul i64 {i}, {self.rows}')}")
                t.line(f"call void @llvm.masked.store.{self.suffix}.p0({v} {self._read(t, p, mask)}, ptr {q}, i32 {self.size},"
                       f" {self.mask} {mask})")

            t.rows("0", "%k", one)

        dense = t.let("icmp eq i64 %deep, 1")
        stepped(t, "0", "%rows", self.lanes, strip)
        head = "define internal void @left(ptr %s, i64 %row, i64 %deep, ptr %t, i64 %rows, i64 %k) noinline nounwind {"
        return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])

    def _read(self, t: Text, at: str, mask: str) -> str:
        """The elements under a mask, zeros elsewhere."""
        return t.let(f"call {self.vector} @llvm.masked.load.{self.suffix}.p0(ptr {at}, i32 {self.size}, {self.mask} {mask},"
                     f" {self.vector} zeroinitializer)")

    def _lanes_below(self, t: Text, count: str) -> str:
        """The mask of the lanes below a count."""
        kind = f"<{self.lanes} x i64>"
        first = t.let(f"insertelement {kind} poison, i64 {count}, i64 0")
        spread = t.let(f"shufflevector {kind} {first}, {kind} poison, <{self.lanes} x i32> zeroinitializer")
        return t.let(f"icmp slt {kind} <{', '.join(f'i64 {k}' for k in range(self.lanes))}>, {spread}")

    def _right(self) -> str:
        """`right(source, depth distance, column distance, target, panel distance, columns, k)`: panels of the right operand."""
        t = Text(self.lanes)
        v, s, w = self.vector, self.scalar, self.width

        def vectors(i: str) -> None:
            def one(j: str) -> None:
                from_ = t.let(f"mul i64 {i}, %deep")
                at = t.let(f"getelementptr {s}, ptr %s, i64 {t.let(f'add i64 {from_}, {j}')}")
                far = t.let(f"mul i64 %deep, {AHEAD}")
                ahead = t.let(f"getelementptr {s}, ptr {at}, i64 {far}")
                t.line(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
                t.line(f"store {v} {t.let(f'load {v}, ptr {at}, align {self.size}')}, ptr {self._spot(t, i, j)}, align {self.size}")

            stepped(t, "0", whole, self.lanes, one)

        def last(i: str) -> None:
            from_ = t.let(f"mul i64 {i}, %deep")
            at = t.let(f"getelementptr {s}, ptr %s, i64 {t.let(f'add i64 {from_}, {whole}')}")
            t.line(f"store {v} {self._read(t, at, mask)}, ptr {self._spot(t, i, whole)}, align {self.size}")

        def turn(j: str) -> None:
            rest = t.let(f"sub i64 %columns, {j}")
            less = t.let(f"icmp slt i64 {rest}, {self.lanes}")
            count = t.let(f"select i1 {less}, i64 {rest}, i64 {self.lanes}")
            at = t.let(f"getelementptr {s}, ptr %s, i64 {t.let(f'mul i64 {j}, %column')}")
            t.line(f"call void @turned(ptr {at}, i64 %column, ptr {self._spot(t, '0', j)}, i64 {w}, i64 {count}, i64 {self.lanes}, i64 %k)")

        whole = t.let(f"and i64 %columns, {-self.lanes}")
        rest = t.let(f"sub i64 %columns, {whole}")
        some, mask = t.let(f"icmp sgt i64 {rest}, 0"), self._lanes_below(t, rest)
        dense = t.let("icmp eq i64 %column, 1")
        either(t, dense, lambda: (t.rows("0", "%k", vectors), either(t, some, lambda: t.rows("0", "%k", last))),
               lambda: stepped(t, "0", "%columns", self.lanes, turn))
        head = (f"define internal void @right(ptr %s, i64 %deep, i64 %column, ptr %t, i64 %panel, i64 %columns, i64 %k) noinline"
                " nounwind {")
        return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])

    def _spot(self, t: Text, i: str, j: str) -> str:
        """Where term i of column j (a multiple of the lanes) goes in the packed panels."""
        panel = t.let(f"udiv i64 {j}, {self.width}")
        within = t.let(f"urem i64 {j}, {self.width}")
        start = t.let(f"mul i64 {panel}, %panel")
        row = t.let(f"mul i64 {i}, {self.width}")
        at = t.let(f"add i64 {t.let(f'add i64 {start}, {row}')}, {within}")
        return t.let(f"getelementptr {self.scalar}, ptr %t, i64 {at}")

    def _edge(self) -> str:
        """`edge(tile, target, distance, rows, columns, add)`: part of a tile, put in the result or added to it."""
        t, v = Text(self.lanes), self.vector

        def row(i: str) -> None:
            source = t.let(f"getelementptr {self.scalar}, ptr %s, i64 {t.let(f'mul i64 {i}, {self.width}')}")
            target = t.let(f"getelementptr {self.scalar}, ptr %t, i64 {t.let(f'mul i64 {i}, %distance')}")
            for c in range(VECTORS):
                p = t.let(f"getelementptr {self.scalar}, ptr {source}, i64 {c * self.lanes}")
                q = t.let(f"getelementptr {self.scalar}, ptr {target}, i64 {c * self.lanes}")
                new = t.let(f"load {v}, ptr {p}, align {self.size}")
                old = self._read(t, q, olds[c])
                total = t.let(f"fadd {v} {new}, {old}")
                kept = t.let(f"select i1 %add, {v} {total}, {v} {new}")
                t.line(f"call void @llvm.masked.store.{self.suffix}.p0({v} {kept}, ptr {q}, i32 {self.size}, {self.mask} {masks[c]})")

        masks = [self._lanes_below(t, t.let(f"sub i64 %columns, {c * self.lanes}")) for c in range(VECTORS)]
        olds = [t.let(f"select i1 %add, {self.mask} {m}, {self.mask} zeroinitializer") for m in masks]
        t.rows("0", "%rows", row)
        head = "define internal void @edge(ptr %s, ptr %t, i64 %distance, i64 %rows, i64 %columns, i1 %add) noinline nounwind {"
        return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])

    # --- work for the pool

    def _pack(self) -> str:
        """`pack(table, counter, scratch)`: panels of the left operand, one after the other."""
        t = Text(self.lanes)
        f = Table(t)

        def item(k: str) -> None:
            matrix = t.let(f"add i64 {t.let(f'udiv i64 {k}, {f.count}')}, {f.matrix}")
            panel = t.let(f"add i64 {t.let(f'urem i64 {k}, {f.count}')}, {f.first}")
            start, rows = self._panel(t, f, panel)
            source = self._pointer(t, f, matrix, 0)
            at = t.let(f"getelementptr {self.scalar}, ptr {source}, i64 {t.let(f'mul i64 {start}, {f.left_row}')}")
            target = t.let(f"getelementptr {self.scalar}, ptr {f.at_packed}, i64 {self._packed(t, f, k)}")
            t.line(f"call void @left(ptr {at}, i64 {f.left_row}, i64 {f.left_depth}, ptr {target}, i64 {rows}, i64 {f.depth})")

        return work(t, "pack", t.let(f"mul i64 {f.matrices}, {f.count}"), item)

    def _multiply(self) -> str:
        """`multiply(table, counter, scratch)`: chunks of the result, one after the other."""
        t = Text(self.lanes)
        f = Table(t)
        each = t.let(f"mul i64 {f.row_chunks}, {f.column_chunks}")
        finish = t.let(f"icmp ne i64 {f.epilogue}, 0")
        part = t.let(f"getelementptr i8, ptr %scratch, i64 {f.part}")
        tile = t.let(f"alloca [{self.rows * self.width} x {self.scalar}], align 64")
        panel = t.let(f"add i64 {t.let(f'mul i64 {f.block}, {self.width}')}, {PANEL_GAP}")
        after = t.let(f"add i64 {f.first}, {f.count}")

        def item(k: str) -> None:
            number, rest = t.let(f"udiv i64 {k}, {each}"), t.let(f"urem i64 {k}, {each}")
            matrix = t.let(f"add i64 {number}, {f.matrix}")
            chunk, across = t.let(f"udiv i64 {rest}, {f.column_chunks}"), t.let(f"urem i64 {rest}, {f.column_chunks}")
            low = t.let(f"add i64 {t.let(f'mul i64 {chunk}, {f.chunk_panels}')}, {f.first}")
            high = least(t, t.let(f"add i64 {low}, {f.chunk_panels}"), after)
            left = t.let(f"mul i64 {across}, {f.chunk_columns}")
            right = least(t, t.let(f"add i64 {left}, {f.chunk_columns}"), f.columns)
            width = t.let(f"sub i64 {right}, {left}")
            row, _ = self._panel(t, f, low)
            end, _ = self._panel(t, f, high)
            source, result = self._pointer(t, f, matrix, 1), self._pointer(t, f, matrix, 2)
            corner = t.let(f"add i64 {t.let(f'mul i64 {row}, {f.result_row}')}, {left}")
            direct = t.let(f"getelementptr {self.scalar}, ptr {result}, i64 {corner}")
            target = t.let(f"select i1 {finish}, ptr {part}, ptr {direct}")
            distance = t.let(f"select i1 {finish}, i64 {f.part_row}, i64 {f.result_row}")
            base = t.let(f"sub i64 {t.let(f'mul i64 {number}, {f.count}')}, {f.first}")

            def block(from_: str) -> None:
                terms = least(t, t.let(f"sub i64 {f.depth}, {from_}"), f.block)
                add = t.let(f"icmp ne i64 {from_}, 0")
                deep, over = t.let(f"mul i64 {from_}, {f.right_depth}"), t.let(f"mul i64 {left}, {f.right_column}")
                at = t.let(f"getelementptr {self.scalar}, ptr {source}, i64 {t.let(f'add i64 {deep}, {over}')}")
                t.line(f"call void @right(ptr {at}, i64 {f.right_depth}, i64 {f.right_column}, ptr %scratch, i64 {panel},"
                       f" i64 {width}, i64 {terms})")

                def column(j: str) -> None:
                    here = t.let(f"mul i64 {t.let(f'udiv i64 {j}, {self.width}')}, {panel}")
                    packed = t.let(f"getelementptr {self.scalar}, ptr %scratch, i64 {here}")
                    wide = t.let(f"sub i64 {width}, {j}")
                    fits = t.let(f"icmp sge i64 {wide}, {self.width}")
                    whole = t.let(f"or i1 {fits}, {finish}")

                    def one(p: str) -> None:
                        start, rows = self._panel(t, f, p)
                        mine = self._packed(t, f, t.let(f"add i64 {base}, {p}"))
                        offset = t.let(f"mul i64 {from_}, {self.rows}")
                        a = t.let(f"getelementptr {self.scalar}, ptr {f.at_packed}, i64 {t.let(f'add i64 {mine}, {offset}')}")
                        down = t.let(f"mul i64 {t.let(f'sub i64 {start}, {row}')}, {distance}")
                        c = t.let(f"getelementptr {self.scalar}, ptr {target}, i64 {t.let(f'add i64 {down}, {j}')}")
                        to = t.let(f"select i1 {whole}, ptr {c}, ptr {tile}")
                        by = t.let(f"select i1 {whole}, i64 {distance}, i64 {self.width}")
                        also = t.let(f"and i1 {add}, {whole}")
                        args = f"(i64 {terms}, ptr {a}, ptr {packed}, ptr {to}, i64 {by}, i1 {also})"
                        tall = t.let(f"icmp eq i64 {rows}, {self.rows}")
                        either(t, tall, lambda: t.line(f"call void @tile{self.rows}{args}"),
                               lambda: t.line(f"call void @tile{max(1, self.rows - 1)}{args}"))
                        either(t, whole, None, lambda: t.line(
                            f"call void @edge(ptr {tile}, ptr {c}, i64 {distance}, i64 {rows}, i64 {wide}, i1 {add})"))

                    t.rows(low, high, one)

                stepped(t, "0", width, self.width, column)

            stepped(t, "0", f.depth, f.block, block)

            def finished() -> None:
                above = t.let(f"mul i64 {matrix}, {f.rows}")
                top, bottom = t.let(f"add i64 {above}, {row}"), t.let(f"add i64 {above}, {end}")
                function = t.let(f"inttoptr i64 {f.epilogue} to ptr")
                t.line(f"call void {function}(ptr {f.at_epilogue_table}, i64 {top}, i64 {bottom}, i64 {left}, i64 {right},"
                       f" ptr {part}, i64 {f.part_row})")

            either(t, finish, finished)

        return work(t, "multiply", t.let(f"mul i64 {f.matrices}, {each}"), item)

    def _panel(self, t: Text, f: Table, panel: str) -> tuple[str, str]:
        """The first row of a panel and how many it has."""
        more = least(t, panel, f.long)
        start = t.let(f"add i64 {t.let(f'mul i64 {panel}, {f.short}')}, {more}")
        tall = t.let(f"icmp slt i64 {panel}, {f.long}")
        return start, t.let(f"add i64 {f.short}, {t.let(f'zext i1 {tall} to i64')}")

    def _packed(self, t: Text, f: Table, number: str) -> str:
        """Where the panel of that number begins among the packed ones."""
        return t.let(f"mul i64 {t.let(f'mul i64 {number}, {f.depth}')}, {self.rows}")

    def _pointer(self, t: Text, f: Table, matrix: str, which: int) -> str:
        slot = t.let(f"add i64 {t.let(f'mul i64 {matrix}, 3')}, {which}")
        return t.let(f"load ptr, ptr {t.let(f'getelementptr ptr, ptr {f.at_pointers}, i64 {slot}')}")


class Table:
    """The fields of the table as values, loaded at the start of a function."""

    def __init__(self, t: Text) -> None:
        self._values: dict[str, str] = {}
        for field in Fields:
            at = t.let(f"getelementptr i64, ptr %table, i64 {int(field)}")
            self._values[field.name.lower()] = t.let(f"load i64, ptr {at}")
            if field in ADDRESSES:
                self._values[f"at_{field.name.lower()}"] = t.let(f"load ptr, ptr {at}")

    def __getattr__(self, name: str) -> str:
        return self._values[name]


def work(t: Text, name: str, count: str, item: Callable[[str], None]) -> str:
    """The text of a function that takes items below `count` from the counter until there are none."""
    t.line("br label %next")
    t.start("next")
    k = t.let("atomicrmw add ptr %counter, i64 1 monotonic")
    some = t.let(f"icmp slt i64 {k}, {count}")
    t.line(f"br i1 {some}, label %take, label %done")
    t.start("take")
    item(k)
    t.line("br label %next")
    t.start("done")
    head = f"define void @{name}(ptr %table, ptr %counter, ptr %scratch) nounwind \"stackrealign\" {{"
    return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])


def stepped(t: Text, low: str, high: str, step: str | int, body: Callable[[str], None]) -> None:
    """`for i in range(low, high, step): body(i)`."""
    before, head, inside, after = t.block, t.name("from"), t.name("in"), t.name("to")
    i, following = "%" + t.name("i"), "%" + t.name("n")
    t.line(f"br label %{head}")
    t.start(head)
    place = len(t.lines)
    more = t.let(f"icmp slt i64 {i}, {high}")
    t.line(f"br i1 {more}, label %{inside}, label %{after}")
    t.start(inside)
    body(i)
    t.line(f"{following} = add i64 {i}, {step}")
    t.lines.insert(place, f"  {i} = phi i64 [ {low}, %{before} ], [ {following}, %{t.block} ]")
    t.line(f"br label %{head}")
    t.start(after)


def either(t: Text, condition: str, then: Callable[[], object] | None, other: Callable[[], object] | None = None) -> None:
    """`if condition: then() else: other()`."""
    yes, no, after = t.name("yes"), t.name("no"), t.name("end")
    t.line(f"br i1 {condition}, label %{yes}, label %{no}")
    for label, body in ((yes, then), (no, other)):
        t.start(label)
        if body is not None:
            body()
        t.line(f"br label %{after}")
    t.start(after)


def least(t: Text, x: str, y: str) -> str:
    """The smaller of two integers."""
    return t.let(f"select i1 {t.let(f'icmp slt i64 {x}, {y}')}, i64 {x}, i64 {y}")
