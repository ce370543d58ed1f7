"""The picture beside a row of a listing: its own mark, the lanes that pass, and how those of its operands join it."""

from __future__ import annotations

from typing import Literal

from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION
from deepx_graph.viz.listing.lanes import Row

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
