"""SVG that is safe to open: the layout engine's output rebuilt from known elements and attributes, with tooltips; and plain bars.

Whatever is not on the lists below is dropped: no scripts, links, images, styles or references get through. Tooltips and the weight
of a box's first line come from the view; the engine's own ids never reach the reader.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from xml.etree import ElementTree

from deepx_graph.errors import printable
from deepx_graph.viz.picture.graphviz import LayoutError
from deepx_graph.viz.picture.style import FONT
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import View

escape = partial(html.escape, quote=False)  # that of xml.sax takes the modules of HTTP with it
"""A text between tags."""

NAMESPACE = "http://www.w3.org/2000/svg"

ELEMENTS = frozenset({"svg", "g", "title", "text", "path", "polygon", "polyline", "ellipse", "circle", "rect", "line"})

ATTRIBUTES = frozenset({
    "width", "height", "viewBox", "transform", "class", "d", "points", "cx", "cy", "r", "rx", "ry", "x", "y", "x1", "x2", "y1",
    "y2", "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-family",
    "font-size", "font-style", "font-weight", "text-anchor", "paint-order", "stroke-linejoin", "role",
})  # fmt: skip

VALUE = re.compile(r"[A-Za-z0-9 ,.#%+()_\-\n]*")
"""What an attribute may hold: numbers, names and colours; nothing with a colon, a quote or a slash."""

FITTING = "max-width:100%;height:auto"
"""A picture wider than the window is shrunk to it."""

SMALL = 0.84
"""The size of a box's further lines, against its first."""


def filtered(svg: bytes, view: View) -> bytes:
    """The SVG text of a laid out view, made safe. Raises LayoutError when it is no SVG."""
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as e:
        raise LayoutError(f"the layout engine wrote no valid SVG: {e}") from None
    names = tooltips(view)
    clean = _clean(root, names)
    if clean is None:
        raise LayoutError("the layout engine wrote no SVG")
    clean.set("xmlns", NAMESPACE)
    clean.set("role", "img")
    clean.set("style", FITTING)
    clean.tail = None
    text: bytes = ElementTree.tostring(clean, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def tooltips(view: View) -> dict[str, str]:
    """What to show for each group of the engine's output, by the engine's name for it: boxes, frames and edges."""
    names = {f"n{n.id}": n.tooltip or n.title for n in view.nodes}
    names |= {f"cluster_{c.id}": c.title for c in view.clusters}
    titles = {n.id: n.title for n in view.nodes}
    for e in view.edges:
        a, b = (e.source, e.target) if e.kind != "back" else (e.target, e.source)
        names[f"n{a}->n{b}"] = f"{titles[e.source]} → {titles[e.target]}"
    return names


def shown(text: str) -> str:
    """`text` with what is invisible or not allowed in XML escaped, line by line."""
    if text.isascii() and text.isprintable():  # nearly all of them
        return text
    return "\n".join(map(printable, text.split("\n")))


def _local(tag: object) -> str:
    return tag.rsplit("}", 1)[-1] if isinstance(tag, str) else ""


def _clean(root: ElementTree.Element, names: dict[str, str]) -> ElementTree.Element | None:
    """The allowed part of the tree; links and other unknown elements give way to their allowed children."""
    if _local(root.tag) != "svg":
        return None
    result = _copy(root)
    stack = [(root, result, False)]
    while stack:
        old, new, in_node = stack.pop()
        lines = 0
        for child in old:
            name = _local(child.tag)
            if name == "a":
                stack.append((child, new, in_node))
            elif name == "title":
                _title(new, (child.text or "").strip(), names)
            elif name in ELEMENTS:
                copy = _copy(child)
                new.append(copy)
                if name == "text":
                    _text(copy, child.text or "", lines if in_node else -1)
                    lines += 1
                stack.append((child, copy, in_node or _is_box(child, names)))
    return result


def _is_box(group: ElementTree.Element, names: dict[str, str]) -> bool:
    """The group is a node of the view, not one of the legend."""
    return group.get("class") == "node" and (group.findtext(f"{{{NAMESPACE}}}title") or "").strip() in names


def _copy(old: ElementTree.Element) -> ElementTree.Element:
    kept = {k: v for k, v in old.attrib.items() if k in ATTRIBUTES and VALUE.fullmatch(v) and "url(" not in v.lower()}
    new = ElementTree.Element(_local(old.tag), kept)
    new.tail = "\n"
    return new


def _title(group: ElementTree.Element, name: str, names: dict[str, str]) -> None:
    if names.get(name):
        title = ElementTree.Element("title")
        title.text = shown(names[name])
        group.insert(0, title)


def _text(element: ElementTree.Element, text: str, line: int) -> None:
    """The text of a box: its first line strong, the others smaller. `line` is -1 outside boxes."""
    element.text = shown(text)
    if line == 0:
        element.set("font-weight", "bold")
    elif line > 0:
        element.set("font-size", f"{float(element.get('font-size', '12')) * SMALL:.2f}")
        element.set("opacity", "0.8")


# --- bars -----------------------------------------------------------------------------------------------------------


WIDTH, NAME, LINE, LONGEST = 900, 330, 22, 48
GREY, FILL = "#808890", "#3b82c4"


@dataclass(frozen=True)
class Bar:
    """A name, an amount of any unit, and what is written beside the bar."""

    name: str
    amount: float
    text: str


def bars(rows: Sequence[Bar]) -> bytes:
    """The bars, the largest as long as there is room."""
    top = max((r.amount for r in rows), default=0.0) or 1.0
    height = LINE * len(rows) + 10
    parts = [f'<svg xmlns="{NAMESPACE}" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
             f'font-family="{FONT}" font-size="12" role="img">']  # fmt: skip
    for k, row in enumerate(rows):
        y, long = 5 + LINE * k, max(1.0, (WIDTH - NAME - 220) * row.amount / top)
        parts.append(
            f'<g><title>{escape(shown(row.name))}</title>'
            f'<text x="{NAME - 8}" y="{y + 15}" text-anchor="end" fill="{GREY}">{escape(shown(short(row.name, LONGEST)))}</text>'
            f'<rect x="{NAME}" y="{y + 3}" width="{long:.1f}" height="{LINE - 6}" rx="2" fill="{FILL}"/>'
            f'<text x="{NAME + long + 6:.1f}" y="{y + 15}" fill="{GREY}">{escape(shown(row.text))}</text></g>'
        )
    return ("\n".join([*parts, "</svg>"]) + "\n").encode("utf-8")
