"""Texts of the browser: rows, sizes for people, marks, plots. What came from a file passes through `printable` here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.cells import cell_len, set_cell_size

from deepx_graph.errors import human, printable, sized
from deepx_graph.ir import Attr, Node
from deepx_graph.ir.node import reference
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Literal
from deepx_graph.ops import FAMILY_OF
from deepx_graph.session.instrumented import Statistics
from deepx_graph.session.query.facts import Facts, moved_by, size_of, work_of
from deepx_graph.session.session import Session
from deepx_graph.viz.listing.lanes import Row
from deepx_graph.viz.view.labels import constant_text, op_title, scalar_text, short

Piece = tuple[str, str]
"""A text and the name of its style."""

OVERLAYS = ("bytes", "flops", "time", "error", "nonfinite", "sharding", "difference", "none")
"""What the last column of the list may show; what is laid over the program only where something is."""

STYLES = {"structure": "faint", "fusion": "kernel", "linear": "heavy", "reduce": "reduce", "window": "heavy", "effects": "effect"}
"""The style of an operation by its family; others are plain."""


def plain(text: str, limit: int = 0) -> str:
    """Text from a file, safe for a terminal and cut to so many cells: characters may be two cells wide, or none."""
    if not limit:
        return printable(text)
    found = printable(short(text, limit))
    return found if cell_len(found) <= limit else set_cell_size(found, limit - 1).rstrip() + "…"


def padded(text: str, width: int) -> str:
    """A text cut, or filled with spaces, to so many cells."""
    return text + " " * (width - cell_len(text)) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


FILLER = "\0"
"""The second cell of a wide character, in texts of one character a cell; it is not to be written."""


def by_cells(text: str) -> str:
    """The text with one character for every cell."""
    widths = ((c, cell_len(c)) for c in text)
    return "".join(c + FILLER * (width - 1) for c, width in widths if width)


def time_text(seconds: float) -> str:
    """A time in few characters: `1.5 ms`, `820 µs`."""
    ms = seconds * 1e3
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 1 else f"{ms * 1e3:.0f} µs"


def bar(share: float, width: int) -> str:
    """A share as a bar of so many cells."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


def name_of(node: Node, facts: Facts) -> str:
    """The name of a node, else its number."""
    return plain(node.reference, 40) if node.name else f"#{facts.number.get(node, 0)}"


def operands(inputs: Sequence[Node], facts: Facts) -> str:
    """The operands by name; numbers stand in the title."""
    shown = [name_of(i, facts) for i in inputs if scalar_text(i) is None]
    return ", ".join(shown[:6]) + (f", … {len(shown) - 6} more" if len(shown) > 6 else "")


def cost_piece(node: Node, facts: Facts, overlay: str) -> Piece:
    """The last column of a row."""
    if overlay == "time":
        found = facts.measured.get(node)
        if found is None or not found.calls:
            return "", "faint"
        return f"{bar(found.share, 4)}{found.share:>5.0%}", "hot" if found.share >= 0.1 else "faint"
    if overlay in LAID:
        return LAID[overlay](facts, node)
    if overlay == "none" or node.op is PARAM:
        return "", "faint"
    return sized(size_of(node)) if overlay == "bytes" else human(work_of(node)), "faint"


def _error(facts: Facts, node: Node) -> Piece:
    most, own = max(facts.errors.values(), default=0.0), facts.errors.get(node, 0.0)
    return (f"{own:.0e}" if own else ""), "hot" if own and own >= most / 10 else "faint"


def _nonfinite(facts: Facts, node: Node) -> Piece:
    made = facts.nonfinite.get(node, 0)
    return (human(made) if made else ""), "hot"


def _sharding(facts: Facts, node: Node) -> Piece:
    found = facts.shardings[node].text if node in facts.shardings else ""
    return found, "result" if '"' in found else "faint"


LAID: Mapping[str, Callable[[Facts, Node], Piece]] = {
    "error": _error, "nonfinite": _nonfinite, "sharding": _sharding,
    "difference": lambda facts, node: (facts.changes.get(node, ""), "hot"),
}  # fmt: skip
"""The columns of what is laid over a program."""


def overlays(session: Session) -> tuple[str, ...]:
    """What the last column may show of a program."""
    laid = {"error": session.errors, "nonfinite": session.nonfinite, "sharding": session.shardings, "difference": session.changes}
    return tuple(name for name in OVERLAYS if laid.get(name, True))


def title_of(node: Node) -> str:
    """The operation with those attributes and operands without which one would not know what it does."""
    title = op_title(node, node.inputs) if node.inputs else node.op.name
    if node.op.foldable is False:  # a constant's value, the function that is called, the constructor that is meant
        title = " ".join(filter(None, (title, *map(_attribute, node.op.attrs, node.attrs))))
    if "index" in node.op.attr_index and node.inputs:  # which value of several
        title += f" {node.attr('index')}"
    return title


def row_pieces(row: Row, facts: Facts) -> list[Piece]:
    """What a row says: operation, name, operands; or its title."""
    indent = "  " * min(row.depth, 12)
    node = row.node
    if node is None:
        return [(indent, ""), (plain(row.title, 60), "head")]
    pieces = [(indent, ""), (plain(title_of(node)), STYLES.get(FAMILY_OF.get(node.op, ""), "op"))]
    pieces.append((f" {name_of(node, facts)}", "name"))
    given = operands(node.inputs, facts)
    if given:
        pieces.append((f" ({given})", "faint"))
    if node in facts.results:
        names = [reference(facts.function.result_name(k)) for k, r in enumerate(facts.function.results) if r is node]
        pieces.append((f" ⇒ {plain(', '.join(names), 40)}", "result"))
    return pieces


def _attribute(attr: Attr, value: Any) -> str:
    """An attribute without which a row would not say what the operation does, else nothing."""
    if isinstance(value, Literal):
        return constant_text(value)
    return short(value, 24) if attr.kind == "str" else ""


def columns(width: int) -> tuple[int, int]:
    """How wide the columns of types and costs are in a list of that width."""
    return (20, 9) if width >= 90 else (14, 8) if width >= 60 else (0, 8)


def type_text(node: Node, width: int) -> str:
    """The type of a node, its beginning where there is no room for all of it, set to the right of its column."""
    if not width:
        return ""
    text = plain(str(node.type))
    return padded(text, width) if cell_len(text) > width else text.rjust(width)


def details_text(node: Node) -> str:
    """What a node moves and computes, on one line."""
    return f"{sized(size_of(node))}, {sized(moved_by(node))} moved, {human(work_of(node))} flops"


HISTOGRAM_LINES = 16
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def column_plot(values: Sequence[float], width: int, height: int) -> list[str]:
    """The values, the largest of each stretch, as columns `height` lines high; the first line is the top."""
    if not values or width < 1:
        return []
    top = max(values) or 1
    width = min(width, len(values))
    cuts = [len(values) * k // width for k in range(width + 1)]
    heights = [round(max(values[a:b]) / top * height * 8) for a, b in pairwise(cuts)]
    return ["".join(_EIGHTHS[max(0, min(8, h - 8 * line))] for h in heights) for line in range(height - 1, -1, -1)]


def histogram(figures: Statistics, width: int) -> list[str]:
    """The distribution of the finite elements, from low to high: range, bar, count."""
    counts = figures.counts
    if len(counts) < 2:
        return [f"all {figures.low:.6g}"] if counts else []
    each = max(1, len(counts) // HISTOGRAM_LINES)
    grouped = [sum(counts[k : k + each]) for k in range(0, len(counts), each)]
    most, step = max(grouped), (figures.high - figures.low) / len(grouped)
    return [f"{figures.low + k * step:>12.5g} {bar(n / most, width)} {n:,}" for k, n in enumerate(grouped)]
