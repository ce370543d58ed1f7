"""The loops of a matrix product in machine code: panels of the left operand are packed, then chunks of the result are computed.

This is work for the pool: `product(table, counter, scratch)` takes item after item from the counter, and may run in several threads
at once. Behind the counter is another, of the panels that have been packed: nobody begins a chunk before all are. Everything
about a product is in a table of `Fields`; the text depends on the element type and the height of a panel alone.
"""

from __future__ import annotations

from enum import IntEnum

from deepx_graph.runtime.native.gemm.tile import TileEmitter, either, least, stepped
from deepx_graph.runtime.native.llvm.builder import DType, IRBuilder

PANEL_GAP = 32
"""Elements between packed panels of columns, so that they do not fall on the same lines of the cache."""

PATIENCE, SCHED_YIELD = 20_000, 24
"""How often a thread looks before it lets others run, and the number of that system call."""


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
    """Where the packed left operand is."""
    BLOCK = 16
    """Terms of the sum that are packed at a time."""
    CHUNK_PANELS = 17
    CHUNK_COLUMNS = 18
    DOWN = 19
    """Chunks down and `ACROSS` a matrix."""
    ACROSS = 20
    EPILOGUE = 21
    """What is done with a finished chunk (see `product_following`), or 0; its table, and where its scratch memory begins."""
    EPILOGUE_TABLE = 22
    EPILOGUE_SCRATCH = 23


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
            at = t.let(f"getelementptr i64, ptr %table, i64 {int(field)}")
            self._values[field.name.lower()] = t.let(f"load {'ptr' if field in ADDRESSES else 'i64'}, ptr {at}")

    def __getattr__(self, name: str) -> str:
        return self._values[name]

    def pointer(self, t: IRBuilder, matrix: str, which: int) -> str:
        """The address of an operand or the result of a matrix."""
        slot = t.let(f"add i64 {t.let(f'mul i64 {matrix}, 3')}, {which}")
        return t.let(f"load ptr, ptr {t.let(f'getelementptr ptr, ptr {self.pointers}, i64 {slot}')}")

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
        self.source = parts.at(t, f.pointer(t, matrix, 1), self.left, f.right_column)
        self.result = t.address(f.pointer(t, matrix, 2), self.left, parts.dtype)
        stepped(t, "0", f.depth, f.block, self.block)
        either(t, t.let(f"icmp ne ptr {f.epilogue}, null"), lambda: self.epilogue(matrix, right))

    def epilogue(self, matrix: str, right: str) -> None:
        """The epilogue, on the chunk."""
        t, f = self.t, self.f
        above = t.let(f"mul i64 {matrix}, {f.rows}")
        low, high = (t.let(f"add i64 {above}, {f.panel(t, p)[0]}") for p in (self.low, self.high))
        scratch = t.let(f"getelementptr i8, ptr %scratch, i64 {f.epilogue_scratch}")
        ranges = f"i64 {low}, i64 {high}, i64 {self.left}, i64 {right}"
        t.line(f"call void {f.epilogue}(ptr {f.epilogue_table}, {ranges}, ptr {scratch})")

    def block(self, term: str) -> None:
        """Some terms of the sums."""
        t, f = self.t, self.f
        self.term, self.terms = term, least(t, t.let(f"sub i64 {f.depth}, {term}"), f.block)
        self.add = t.let(f"icmp ne i64 {term}, 0")
        source = self.parts.at(t, self.source, term, f.right_depth)
        t.line(f"call void @right(ptr {source}, i64 {f.right_depth}, i64 {f.right_column}, ptr %scratch, i64 {self.panel},"
               f" i64 {self.columns}, i64 {self.terms})")
        stepped(t, "0", self.columns, self.parts.width, self.column)

    def column(self, j: str) -> None:
        """The tiles of one packed panel of columns."""
        t = self.t
        self.packed = self.parts.at(t, "%scratch", t.let(f"udiv i64 {j}, {self.parts.width}"), self.panel)
        self.wide = t.let(f"sub i64 {self.columns}, {j}")
        self.fits = t.let(f"icmp sge i64 {self.wide}, {self.parts.width}")
        t.rows(self.low, self.high, lambda p: self.one(p, j))

    def one(self, p: str, j: str) -> None:
        """One tile: straight into the result where all of it is inside, else by way of the stack."""
        t, f, parts = self.t, self.f, self.parts
        row, rows = f.panel(t, p)
        number = t.let(f"add i64 {t.let(f'mul i64 {self.number}, {f.panels}')}, {t.let(f'sub i64 {p}, {f.first}')}")
        a = parts.at(t, f.packed_panel(t, parts, number), self.term, parts.rows)
        c = parts.at(t, self.result, row, f.result_row, j)
        to = t.let(f"select i1 {self.fits}, ptr {c}, ptr {self.tile}")
        distance = t.let(f"select i1 {self.fits}, i64 {f.result_row}, i64 {parts.width}")
        add = t.let(f"and i1 {self.add}, {self.fits}")
        args = f"(i64 {self.terms}, ptr {a}, ptr {self.packed}, ptr {to}, i64 {distance}, i1 {add})"
        either(t, t.let(f"icmp eq i64 {rows}, {parts.rows}"), lambda: t.line(f"call void @tile{parts.heights[-1]}{args}"),
               lambda: t.line(f"call void @tile{parts.heights[0]}{args}"))
        either(t, self.fits, None, lambda: t.line(
            f"call void @edge(ptr {self.tile}, ptr {c}, i64 {f.result_row}, i64 {rows}, i64 {self.wide}, i1 {self.add})"))


def _product(parts: TileEmitter) -> str:
    """Takes items from the counter until there are none: first panels to pack, then, once all are packed, chunks."""
    t = IRBuilder(parts.lanes)
    f = _Table(t)
    m = _Multiplying(parts, t, f)
    packs = t.let(f"mul i64 {f.matrices}, {f.panels}")
    items = t.let(f"add i64 {packs}, {t.let(f'mul i64 {f.matrices}, {m.chunks}')}")
    ready = t.let("getelementptr i64, ptr %counter, i64 1")
    t.line("br label %next")
    t.start("next")
    k = t.let("atomicrmw add ptr %counter, i64 1 monotonic")
    t.line(f"br i1 {t.let(f'icmp slt i64 {k}, {items}')}, label %take, label %done")
    t.start("take")

    def pack() -> None:
        _packed(parts, t, f, k)
        t.line(f"{'%' + t.name('packed')} = atomicrmw add ptr {ready}, i64 1 seq_cst")

    def multiply() -> None:
        _wait(t, ready, packs)
        m.chunk(t.let(f"sub i64 {k}, {packs}"))

    either(t, t.let(f"icmp slt i64 {k}, {packs}"), pack, multiply)
    t.line("br label %next")
    t.start("done")
    head = "define void @product(ptr %table, ptr %counter, ptr %scratch) nounwind \"stackrealign\" {"
    return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])


def _wait(t: IRBuilder, counter: str, wanted: str) -> None:
    """Until a counter has got so far; others are at work on it."""
    before = t.block
    t.line("br label %look")
    t.start("look")
    looks, more = "%" + t.name("i"), "%" + t.name("n")
    t.line(f"{looks} = phi i64 [ 0, %{before} ], [ {more}, %again ]")
    now = t.let(f"load atomic i64, ptr {counter} acquire, align 8")
    t.line(f"br i1 {t.let(f'icmp slt i64 {now}, {wanted}')}, label %hold, label %go")
    t.start("hold")
    t.line("call void @llvm.x86.sse2.pause()")
    t.line(f"br i1 {t.let(f'icmp ugt i64 {looks}, {PATIENCE}')}, label %yield, label %again")
    t.start("yield")
    t.let(f"call i64 (i64, ...) @syscall(i64 {SCHED_YIELD})")
    t.line("br label %again")
    t.start("again")
    t.line(f"{more} = add i64 {looks}, 1")
    t.line("br label %look")
    t.start("go")
