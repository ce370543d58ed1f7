"""Rows of a listing, and the lanes in which their values run down beside them.

Lanes are bits of an int, so that a row of any width is a few numbers and 100 000 rows are quick. A value keeps its lane from the
row that makes it to its last use; a new one takes the lane of an operand that ends there, so that chains run straight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION
from deepx_graph.types import is_state
from deepx_graph.viz.view.labels import scalar_text

LANES = 10
"""How many lanes there are."""

FAR = 200
"""Rows between a value and its last use from which it counts as used far away."""

RowKind = Literal["function", "node", "head", "block", "repeat", "end"]
"""`node` rows and `end` rows (of a region or loop) each stand for a node; the others are titles of what
they fold: a function, a loop or branch, rows that are alike, one of several repeats."""


@dataclass(slots=True)
class Row:
    """One line. Lanes are bits: `above` and `below` run into and out of the row, `joins` are those of the operands."""

    kind: RowKind
    function: Function
    node: Node | None
    depth: int
    title: str = ""
    inside: int = 0
    """How many of the next rows are folded with this one."""
    uses: tuple[Node, ...] = ()
    lane: int = 0
    above: int = 0
    below: int = 0
    joins: int = 0
    effects: int = 0
    controls: int = 0


class Weaver:
    """Gives lanes to the values of rows that stand in order."""

    def __init__(self, rows: list[Row], function: Function) -> None:
        self.rows, self.own = rows, function
        self.lane_of: dict[Node, int] = {}
        self.live = self.effects = self.controls = self.far = 0
        self.last: dict[Node, int] = {}

    def weave(self) -> None:
        rows = [r for r in self.rows if r.function is self.own]
        for k, row in enumerate(rows):
            for n in row.uses:
                self.last[n] = k
        for r in self.own.results:
            self.last.setdefault(r, -1)
        for k, row in enumerate(rows):
            self._row(k, row)

    def _row(self, k: int, row: Row) -> None:
        row.above, row.effects, row.controls = self.live, self.effects, self.controls
        ends = 0
        for n in row.uses:
            lane = self.lane_of.get(n)
            if lane is not None:
                row.joins |= 1 << lane
                if self.last[n] <= k:
                    ends |= 1 << lane
                    del self.lane_of[n]
        self.live &= ~ends
        self.effects &= self.live
        self.controls &= self.live
        self.far &= self.live
        row.lane = _lowest(ends) if ends else _free(self.live)
        node = row.node
        if node is not None and self.last.get(node, -1) > k and self._may_have_lane(node, k):
            self._take(node, row.lane, k)
            row.effects |= self.effects & 1 << row.lane
            row.controls |= self.controls & 1 << row.lane
        row.below = self.live

    def _may_have_lane(self, node: Node, k: int) -> bool:
        if scalar_text(node) is not None or self.live.bit_count() >= LANES:
            return False
        return not self._is_far(node, k) or self.far.bit_count() < LANES // 2

    def _is_far(self, node: Node, k: int) -> bool:
        return node.op is PARAM or node.op is CONSTANT or self.last[node] - k > FAR

    def _take(self, node: Node, lane: int, k: int) -> None:
        bit = 1 << lane
        self.lane_of[node] = lane
        self.live |= bit
        if self._is_far(node, k):
            self.far |= bit
        if is_state(node.type):
            self.effects |= bit
        elif node.op in (LOOP_BEGIN, REGION, LOOP_END):
            self.controls |= bit


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _free(live: int) -> int:
    return _lowest(~live)


# --- characters -----------------------------------------------------------------------------------------------------


Stroke = Literal["data", "effect", "control", "node"]
_PASSING: dict[Stroke, str] = {"data": "│", "effect": "┊", "control": "║", "node": "│"}


def gutter(row: Row, lanes: int, mark: str) -> list[tuple[str, Stroke]]:
    """The characters beside a row, two for each lane: `mark` stands in the row's own lane."""
    joined = [k for k in range(lanes) if row.joins >> k & 1]
    low, high = min([*joined, row.lane]), max([*joined, row.lane])
    found: list[tuple[str, Stroke]] = []
    for k in range(lanes):
        stroke: Stroke = "effect" if row.effects >> k & 1 else "control" if row.controls >> k & 1 else "data"
        if k == row.lane:
            found.append((mark, "node"))
        elif row.joins >> k & 1:
            found.append((_corner(k, row.lane, bool(row.below >> k & 1), k in (low, high)), stroke))
        elif row.above >> k & 1:
            found.append((_PASSING[stroke], stroke))
        else:
            found.append(("─" if low < k < high else " ", "data"))
        found.append(("─" if low <= k < high else " ", "data"))
    return found


def _corner(lane: int, own: int, goes_on: bool, outermost: bool) -> str:
    if not outermost:
        return "┼" if goes_on else "┴"
    if lane < own:
        return "├" if goes_on else "╰"
    return "┤" if goes_on else "╯"


def mark_of(row: Row) -> str:
    """The sign of a row: what kind of node it is."""
    node = row.node
    if node is None:
        if row.kind in ("block", "repeat"):
            return "≡"
        return {"if": "◇", "switch": "◇", "while": "◇"}.get(row.title, "┬" if row.kind != "function" else "■")
    if node.op is PARAM:
        return "▷"
    if node.op is CONSTANT:
        return "□"
    if node.op in (PHI, LOOP_BEGIN, LOOP_END, REGION):
        return "φ" if node.op is PHI else "◈"
    return "◆" if row.inside else "●"
