"""Rows of a listing under heads that fold them: blocks that repeat, and long runs of parameters or constants.

Equal layers of a network become one row, `norm + attention + mlp ×12`, with a row for each of them inside. Only what stands at
the top of a function is looked at, and what is short stays as it is. Near-linear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.viz.folding.cluster_names import name_of
from deepx_graph.viz.folding.repeats import best_period
from deepx_graph.viz.listing.lanes import Row
from deepx_graph.viz.view.labels import family_of

WORTH = 16
"""Rows that a head must at least hide."""

LONG = 4
"""Rows from which a repeat has a head of its own."""

WINDOWS = (8,)
"""What must be equal for a distance to be tried as a period: long enough that chance does not make many."""

Unit = list[Row]
"""A row with the rows that it heads."""


def with_blocks(rows: Sequence[Row]) -> list[Row]:
    """The rows of a function, with heads where they repeat or where many of one kind stand together."""
    if len(rows) < WORTH:
        return list(rows)
    found: list[Row] = []
    for kind, group in groupby(_units(rows), key=_kind):
        units = list(group)
        found += _together(units, kind) if kind else _repeated(units)
    return found


def _units(rows: Sequence[Row]) -> list[Unit]:
    units: list[Unit] = []
    at = 0
    while at < len(rows):
        end = at + 1 + rows[at].inside
        units.append(list(rows[at:end]))
        at = end
    return units


def _kind(unit: Unit) -> str:
    """The word for many of these, "" for operations."""
    node = unit[0].node
    return "parameters" if node is not None and node.op is PARAM else ""


def _together(units: list[Unit], kind: str) -> list[Row]:
    rows = _flat(units)
    return rows if len(units) <= WORTH else _under(f"{len(units):,} {kind}", rows)


def _repeated(units: list[Unit]) -> list[Row]:
    period, places = best_period([_token(u) for u in units], WINDOWS)
    found: list[Row] = []
    at = 0
    for start, repeats in places:
        blocks = [_flat(units[start + k * period : start + (k + 1) * period]) for k in range(repeats)]
        if sum(map(len, blocks)) < WORTH:
            continue
        found += _flat(units[at:start])
        name = contents(blocks[0])
        if len(blocks[0]) >= LONG:
            inner = [row for k, block in enumerate(blocks, 1) for row in _under(f"{name} ({k} of {repeats:,})", block, "repeat")]
        else:
            inner = _flat(blocks)
        found += _under(f"{name} ×{repeats:,}, each of {len(blocks[0]):,} rows", inner)
        at = start + repeats * period
    return found + _constants(units[at:]) if at else _constants(units)


def _constants(units: list[Unit]) -> list[Row]:
    found: list[Row] = []
    for constant, group in groupby(units, key=lambda u: u[0].node is not None and u[0].node.op is CONSTANT):
        rest = list(group)
        found += _together(rest, "constants") if constant else _flat(rest)
    return found


def _token(unit: Unit) -> tuple[object, ...]:
    """What is equal for units that look the same."""
    row = unit[0]
    return (row.title, len(unit)) if row.node is None else (row.node.op, row.node.type, len(row.uses), len(unit))


def contents(rows: Sequence[Row]) -> str:
    """What the rows are together: the name that a picture gives to such a box."""
    ops = [r.node.op for r in rows if r.node is not None and r.node.op not in (CONSTANT, PARAM)]
    return name_of(Counter(op.name for op in ops), {op.name: family_of(op) for op in ops})


def _flat(units: Sequence[Unit]) -> list[Row]:
    return [row for unit in units for row in unit]


def _under(title: str, rows: list[Row], kind: str = "block") -> list[Row]:
    """The rows one step further in, under a head."""
    head = Row("repeat" if kind == "repeat" else "block", rows[0].function, None, rows[0].depth, title, len(rows))
    for row in rows:
        row.depth += 1
    return [head, *rows]
