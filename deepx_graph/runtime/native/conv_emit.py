"""Direct convolution as LLVM IR: copying a share's input into scratch memory, tiles of sums, and storing them.

`work(table, counter, scratch)` takes shares from the counter until there are none; before it, `pack` does so with shares of packing
the weights, unless windows are in the lanes: then the weights are used as they are. The table of `work` holds the addresses of
input, weights and output, and of what is done with a finished share. Of the three arrays nothing outside is read or written; of
the scratch memory only what the share has filled counts, the rest is arbitrary and ends in lanes that are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepx_graph.runtime.native import micro
from deepx_graph.runtime.native.conv_pack import Packing
from deepx_graph.runtime.native.conv_plan import FEATURES, IMAGES, Lanes, Plan, phase_columns, scratch_steps
from deepx_graph.runtime.native.conv_weights import WeightPacking, pack_shares, weights_of
from deepx_graph.runtime.native.micro import Loop, Operand
from deepx_graph.runtime.native.text import Text

X, W, Y, NEST, NEST_TABLE, SLOTS = range(6)
"""The slots of the table: three arrays, the function of what follows and its own table; and how many there are."""


@dataclass(frozen=True)
class Walk:
    """An axis of the results gone through in tiles of `tile` elements, the last one overlapping the one before.

    `steps`: elements in scratch memory, packed weights and output from one to the next.
    """

    count: str
    tile: int
    steps: tuple[int, int, int]


def module_text(plan: Plan, rows: int = 0) -> str:
    """The IR of a whole convolution. `rows`: how many rows of what follows there are; 0 where nothing does."""
    emitter = _Emitter(plan, rows)
    functions = [emitter.tile("tile", plan.span), emitter.tile("edge", plan.in_lanes % plan.span or plan.span), emitter.share(),
                 _work("work", "share", plan.shares)]
    if plan.method.lanes is not Lanes.WINDOWS:
        functions += [WeightPacking(plan).share(), _work("pack", "packed", pack_shares(plan))]
    return "\n".join([*functions, *emitter.declarations, ""])


def _work(name: str, share: str, shares: int) -> str:
    """What each thread runs. `%block`: the number of the block of input that is in its scratch memory."""
    return f"""define void @{name}(ptr %table, ptr %counter, ptr %scratch) nounwind {{
entry:
  %block = alloca i64
  store i64 -1, ptr %block
  br label %next
next:
  %share = atomicrmw add ptr %counter, i64 1 monotonic
  %some = icmp slt i64 %share, {shares}
  br i1 %some, label %take, label %done
take:
  call void @{share}(ptr %table, i64 %share, ptr %scratch, ptr %block)
  br label %next
done:
  ret void
}}"""


class _Emitter:
    """Writes the functions of one plan."""

    def __init__(self, plan: Plan, rows: int) -> None:
        self.rows = rows
        self.plan, self.problem, self.method = plan, plan.problem, plan.method
        self.dtype = plan.problem.dtype
        self.scratch, self.weights = scratch_steps(plan), weights_of(plan)
        self.declarations: dict[str, None] = {}

    def _text(self) -> Text:
        t = Text(self.plan.width)
        t.declarations = self.declarations
        return t

    # --- a tile

    def tile(self, name: str, lanes: int) -> str:
        """The function of one tile, of which so many lanes are stored: `(scratch, weights, output)`, each at its first element."""
        t, tile = self._text(), self.method.tile
        rows = self._rows()
        spread = self.method.lanes
        vector = self.plan.width
        x = Operand(tuple(r[X] for r in rows), 0 if spread is Lanes.OUTPUTS else vector, spread is Lanes.OUTPUTS)
        w = Operand(tuple(r[W] for r in rows), 0 if spread is Lanes.WINDOWS else vector, spread is Lanes.WINDOWS)
        loops, steps, start = self._sums()
        first = t.address("%x", str(start), self.dtype)
        sums = micro.accumulate(t, self.dtype, tile, (x, w), (first, "%w"), loops, steps)
        if self.method.lanes is Lanes.OUTPUTS and self.problem.y[2] != 1:
            (self._store_turned if self.method.is_contiguous else self._store_scattered)(t, sums, rows, lanes)
        else:
            self._store(t, sums, rows, lanes)
        head = f"define internal void @{name}(ptr noalias %x, ptr noalias %w, ptr noalias %y) nounwind \"stackrealign\" {{"
        return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])

    def _rows(self) -> list[tuple[int, int, int]]:
        """The offset of each row of a tile in scratch memory, weights and output."""
        rows = [(0, 0, 0)]
        for walk in self._row_walks([str(a.count) for a in self.problem.axes]):
            rows = [tuple(a + k * s for a, s in zip(row, walk.steps, strict=True))  # type: ignore[misc]
                    for row in rows for k in range(walk.tile)]
        return rows

    def _row_walks(self, counts: Sequence[str]) -> list[Walk]:
        """The axes along the rows of tiles, outermost first; `counts` are the windows of the block along each axis."""
        p, m, walks = self.problem, self.method, []
        if m.lanes is Lanes.WINDOWS:
            walks.append(Walk(str(p.outputs), m.outputs, (0, self.weights.output, p.y[2])))
        for k, a in enumerate(p.axes):
            if m.lanes is not Lanes.WINDOWS or k < len(p.axes) - 1:
                walks.append(Walk(counts[k], m.box[k], (a.stride * self.scratch[k], 0, a.y)))
        return walks

    def _sums(self) -> tuple[list[Loop], list[tuple[int, int]], int]:
        """The loops over what is summed up, what is written out within them, and where in the scratch memory they start."""
        p, w = self.problem, self.weights
        loops, steps, start = [], [(0, 0)], 0
        for k in w.order:
            if k < 0:
                loops.append(Loop(str(p.inputs), (str(self.scratch[-1]), str(w.steps[-1]))))
                continue
            a = p.axes[k]
            if self._has_phases(k):
                steps = [(self._phase(t * a.dilation), (a.window - 1 - t if a.is_reversed else t) * w.steps[k])
                         for t in range(a.window)]
                continue
            step = a.dilation * self.scratch[k]
            start += (a.window - 1) * step if a.is_reversed else 0
            loops.append(Loop(str(a.window), (str(-step if a.is_reversed else step), str(w.steps[k]))))
        return loops, steps, start

    def _has_phases(self, axis: int) -> bool:
        """Whether the axis is kept by remainders."""
        last = len(self.problem.axes) - 1
        return self.method.lanes is Lanes.WINDOWS and axis == last and self.problem.axes[axis].stride > 1

    def _phase(self, offset: int) -> int:
        """Where an element of the last axis is kept."""
        stride = self.problem.axes[-1].stride
        return offset % stride * phase_columns(self.plan) + offset // stride

    # --- storing a tile

    def _mask(self, lanes: int) -> str | None:
        """The first so many lanes, as a constant; None for all."""
        width = self.plan.width
        return None if lanes >= width else f"<{', '.join('i1 ' + ('true' if k < lanes else 'false') for k in range(width))}>"

    def _store(self, t: Text, sums: micro.Tiles, rows: Sequence[tuple[int, int, int]], lanes: int) -> None:
        for row, vectors in zip(rows, sums, strict=True):
            for v, value in enumerate(vectors):
                left = lanes - v * t.lanes
                if left > 0:
                    t.store(value, t.address("%y", str(row[Y] + v * t.lanes), self.dtype), self._mask(left))

    def _store_turned(self, t: Text, sums: micro.Tiles, rows: Sequence[tuple[int, int, int]], lanes: int) -> None:
        """Rows are neighbours in memory: as many as there are lanes at a time change places with them."""
        zero = t.splat(0, self.dtype)
        for v in range(self.method.tile.vectors):
            for start in range(0, len(rows), t.lanes):
                group = [row[v] for row in sums[start : start + t.lanes]]
                turned = micro.transposed(t, group + [zero] * (t.lanes - len(group)))
                for k in range(min(t.lanes, lanes - v * t.lanes)):
                    at = rows[start][Y] + (v * t.lanes + k) * self.problem.y[2]
                    t.store(turned[k], t.address("%y", str(at), self.dtype), self._mask(len(group)))

    def _store_scattered(self, t: Text, sums: micro.Tiles, rows: Sequence[tuple[int, int, int]], lanes: int) -> None:
        type = t.vector(self.dtype)
        for row, vectors in zip(rows, sums, strict=True):
            for k in range(lanes):
                one = t.let(f"extractelement {type} {vectors[k // t.lanes].text}, i64 {k % t.lanes}")
                at = t.address("%y", str(row[Y] + k * self.problem.y[2]), self.dtype)
                t.line(f"store {type.split(' x ')[1][:-1]} {one}, ptr {at}, align {self.dtype.itemsize}")

    # --- a share

    def share(self) -> str:
        """The function `share(table, number, scratch, block)`."""
        t, plan, p = self._text(), self.plan, self.problem
        rest = "%number"
        part, rest = _digit(t, rest, plan.parts)
        number = rest
        blocks: list[str] = []
        for count in reversed(plan.blocks):
            block, rest = _digit(t, rest, count)
            blocks.insert(0, block)
        group, image = _digit(t, rest, 1 if self.method.lanes is Lanes.GROUPS else p.groups)
        starts, counts = zip(*(_range(t, b, n, a.count) for b, n, a in zip(blocks, plan.blocks, p.axes, strict=True)), strict=True)
        x, w, y = (self._slot(t, k) for k in (X, W, Y))
        x = _moved(t, x, self.dtype.itemsize, ((image, p.x[0]), (group, p.x[1])))
        w = _moved(t, w, self.dtype.itemsize, ((group, self.weights.group),))
        y = _moved(t, y, self.dtype.itemsize, ((image, p.y[0]), (group, p.y[1]),
                                              *((s, a.y) for s, a in zip(starts, p.axes, strict=True))))
        self._unless_there(t, number, lambda: Packing(plan, t).write(x, "%scratch", starts, counts))
        self._tiles(t, part, counts, ("%scratch", w, y))
        if self.rows:
            self._follow(t, {IMAGES: (image, "1"), FEATURES: self._features(t, group, part)} | dict(enumerate(
                zip(starts, counts, strict=True))))
        head = "define internal void @share(ptr noalias %table, i64 %number, ptr noalias %scratch, ptr noalias %block) nounwind {"
        return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])

    def _unless_there(self, t: Text, number: str, write: Callable[[], None]) -> None:
        """Fills the scratch memory, unless the last share of this thread had the same block."""
        if self.plan.parts == 1:
            write()
            return
        missing, there = t.name("missing"), t.name("there")
        same = t.let(f"icmp eq i64 {t.let('load i64, ptr %block')}, {number}")
        t.line(f"br i1 {same}, label %{there}, label %{missing}")
        t.start(missing)
        t.line(f"store i64 {number}, ptr %block")
        write()
        t.line(f"br label %{there}")
        t.start(there)

    # --- what follows

    def _features(self, t: Text, group: str, part: str) -> tuple[str, str]:
        """The first output feature of a share, and how many there are."""
        p, plan = self.problem, self.plan
        if self.method.lanes is Lanes.GROUPS:
            return "0", str(p.groups * p.outputs)
        first = t.let(f"mul i64 {group}, {p.outputs}")
        if plan.parts == 1:
            return first, str(p.outputs)
        low, panels = _range(t, part, plan.parts, plan.panels)
        begin = t.let(f"mul i64 {low}, {plan.span}")
        most, whole = t.let(f"sub i64 {p.outputs}, {begin}"), t.let(f"mul i64 {panels}, {plan.span}")
        less = t.let(f"icmp slt i64 {most}, {whole}")
        return t.let(f"add i64 {first}, {begin}"), t.let(f"select i1 {less}, i64 {most}, i64 {whole}")

    def _follow(self, t: Text, share: dict[int, tuple[str, str]]) -> None:
        """Runs what follows over the rows of the share, whose results are still in a cache."""
        nest, table = self._slot(t, NEST), self._slot(t, NEST_TABLE)
        cut = self.plan.extents[: self.plan.apart]
        each = self.rows // math.prod(e.size for e in cut)

        def over(depth: int, before: str) -> None:
            first, count = share[cut[depth].axis] if cut else ("0", "1")
            low = t.let(f"add i64 {t.let(f'mul i64 {before}, {cut[depth].size if cut else 1}')}, {first}")
            high = t.let(f"add i64 {low}, {count}")
            if depth < len(cut) - 1:
                t.rows(low, high, lambda index: over(depth + 1, index))
                return
            rows = [t.let(f"mul i64 {end}, {each}") for end in (low, high)]
            t.line(f"call void {nest}(ptr {table}, i64 {rows[0]}, i64 {rows[1]}, ptr %scratch, i64 0)")

        over(0, "0")

    def _slot(self, t: Text, slot: int) -> str:
        at = t.let(f"getelementptr ptr, ptr %table, i64 {slot}")
        return t.let(f"load ptr, ptr {at}")

    def _tiles(self, t: Text, part: str, counts: Sequence[str], pointers: tuple[str, str, str]) -> None:
        plan, p = self.plan, self.problem
        walks = self._row_walks(counts)
        if self.method.lanes is Lanes.WINDOWS:
            walks.append(Walk(counts[-1], plan.span, (1, 0, 1)))
            self._walked(t, walks, pointers, "@edge" if p.axes[-1].count < plan.span else "@tile")
            return
        x_step, y_step = (plan.span, p.y[1]) if self.method.lanes is Lanes.GROUPS else (0, p.y[2])
        low, high = _range(t, part, plan.parts, plan.panels)
        end = t.let(f"add i64 {low}, {high}")

        def panel(k: str) -> None:
            moved = tuple(_moved(t, pointer, self.dtype.itemsize, ((k, step),)) for pointer, step in
                          zip(pointers, (x_step, self.weights.panel, plan.span * y_step), strict=True))
            last = t.let(f"icmp eq i64 {k}, {plan.panels - 1}")
            self._walked(t, walks, moved, t.let(f"select i1 {last}, ptr @edge, ptr @tile"))  # type: ignore[arg-type]

        t.rows(low, end, panel)

    def _walked(self, t: Text, walks: Sequence[Walk], pointers: tuple[str, str, str], function: str) -> None:
        """Calls the function for every tile of the walks."""
        if not walks:
            t.line(f"call void {function}(ptr {pointers[0]}, ptr {pointers[1]}, ptr {pointers[2]})")
            return
        walk, *inner = walks
        room = t.let(f"sub i64 {walk.count}, {walk.tile}")
        up = t.let(f"add i64 {walk.count}, {walk.tile - 1}")
        tiles = t.let(f"sdiv i64 {up}, {walk.tile}")

        def one(k: str) -> None:
            own = t.let(f"mul i64 {k}, {walk.tile}")
            fits = t.let(f"icmp slt i64 {own}, {room}")
            inside = t.let(f"select i1 {fits}, i64 {own}, i64 {room}")
            start = _at_least_zero(t, inside)
            moved = tuple(_moved(t, pointer, self.dtype.itemsize, ((start, step),))
                          for pointer, step in zip(pointers, walk.steps, strict=True))
            self._walked(t, inner, moved, function)  # type: ignore[arg-type]

        t.rows("0", tiles, one)


def _at_least_zero(t: Text, index: str) -> str:
    below = t.let(f"icmp slt i64 {index}, 0")
    return t.let(f"select i1 {below}, i64 0, i64 {index}")


def _digit(t: Text, number: str, base: int) -> tuple[str, str]:
    """The last digit of a number and the rest of it."""
    if base == 1:
        return "0", number
    return t.let(f"urem i64 {number}, {base}"), t.let(f"udiv i64 {number}, {base}")


def _range(t: Text, part: str, parts: int, size: int) -> tuple[str, str]:
    """Where part k of nearly equal parts of a range begins, and how long it is."""
    if parts == 1:
        return "0", str(size)
    low = t.let(f"udiv i64 {t.let(f'mul i64 {part}, {size}')}, {parts}")
    following = t.let(f"add i64 {part}, 1")
    high = t.let(f"udiv i64 {t.let(f'mul i64 {following}, {size}')}, {parts}")
    return low, t.let(f"sub i64 {high}, {low}")


def _moved(t: Text, pointer: str, itemsize: int, by: Sequence[tuple[str, int]]) -> str:
    """A pointer moved on by indices times element steps."""
    for index, step in by:
        if index != "0" and step:
            pointer = t.let(f"getelementptr i8, ptr {pointer}, i64 {t.let(f'mul i64 {index}, {step * itemsize}')}")
    return pointer
