"""One HTML file that shows graphs and needs nothing else: no server, no network, no other file.

What is shown is data, as JSON in a script element that is never run; only our own script runs, by its hash, and writes every text
as text. The policy of the page allows nothing else, so that no name in a file can become markup, a link or code.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepx_graph.errors import printable
from deepx_graph.progress import stage
from deepx_graph.viz.page.folds import Folds
from deepx_graph.viz.picture.dot import LEGEND
from deepx_graph.viz.picture.overlay import MEASURES
from deepx_graph.viz.picture.style import BLOCK, HUES, THEMES, Theme, theme_named
from deepx_graph.viz.picture.svg import shown
from deepx_graph.viz.view.model import View, ViewNode

ASSETS = Path(__file__).parents[1] / "assets"
FAMILIES = (*HUES, BLOCK, "other")
"""Families with a colour of their own, and the rest."""

SCRIPTS = ("query.js", "labels.js", "layout.js", "graphs.js", "scene.js", "pane.js", "inspector.js", "explorer.js")

Detail = Mapping[str, Any]
"""What is known of one node, by the fields of the query language: texts and words as tuples, numbers. Plain data."""


@dataclass(frozen=True)
class PageGraph:
    """One graph of a page, with what is known of its nodes by their ids in the view."""

    title: str
    folds: Folds
    details: Mapping[int, Detail] = field(default_factory=dict)
    lines: Mapping[int, str] = field(default_factory=dict)
    """The lines of the source that nodes come from."""
    note: str = ""
    """What is said of it beside the slider of a time line."""


@dataclass(frozen=True)
class Pairs:
    """Which nodes of one graph of the page are which of another."""

    first: int
    second: int
    nodes: Mapping[int, int]


def page(graphs: Sequence[PageGraph], title: str = "", *, theme: str = "auto", pairs: Sequence[Pairs] = (), timeline: bool = False,
         operations: Mapping[str, Any] | None = None, overlay: str | None = None) -> bytes:
    """The file. Several graphs stand side by side, or with `timeline` one after another. `operations` is what there is to tell of
    each operation, `overlay` what it is coloured by as it opens. Raises UsageError for an unknown theme."""
    if theme != "auto":
        theme_named(theme)
    stage("write")
    data = {
        "title": shown(title), "timeline": timeline, "graphs": [_graph(g) for g in graphs], "operations": operations or {},
        "kinds": dict(LEGEND), "measures": [[name, m.about, m.unit] for name, m in MEASURES.items()], "overlay": overlay,
        "pairs": [{"a": p.first, "b": p.second, "nodes": [*map(list, p.nodes.items())]} for p in pairs],
    }  # fmt: skip
    style = _colours() + (ASSETS / "explorer.css").read_text(encoding="utf-8")
    script = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    text = (
        "<!DOCTYPE html>\n"
        f'<html lang="en" data-theme="{theme}"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(printable(title or 'graph'))}</title>\n"
        f"<style>{style}</style></head><body>\n"
        "<noscript>This page draws its graph with a script of its own, which your browser does not run.</noscript>\n"
        f'<script type="text/plain" id="data">{_packed(data)}</script>\n'
        f"<script>{script}</script>\n</body></html>\n"
    )
    return text.encode("utf-8", "backslashreplace")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _packed(data: object) -> str:
    """JSON, compressed: letters and digits, which can neither end a script element nor be read as markup."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), 5, mtime=0)).decode("ascii")


def _graph(graph: PageGraph) -> dict[str, Any]:
    folds = graph.folds
    view = folds.view
    return {
        "title": shown(graph.title), "note": shown(graph.note), "notes": [shown(n) for n in folds.notes],
        "size": len(view.nodes), "sideways": view.sideways,
        "columns": _columns(view.nodes, graph.details),
        "edges": {"source": [e.source for e in view.edges], "target": [e.target for e in view.edges],
                  "kind": _column([e.kind for e in view.edges]), "label": _column([shown(e.label) for e in view.edges])},
        "frames": [[c.id, shown(c.title), c.kind, c.parent] for c in view.clusters],
        "folds": [_fold(f, k, folds) for k, f in enumerate(folds.folded)],
        "lines": {line: shown(text) for line, text in graph.lines.items()},
    }  # fmt: skip


def _columns(nodes: Sequence[ViewNode], details: Mapping[int, Detail]) -> dict[str, Any]:
    """What is known of all nodes, by what it is."""
    plain: Detail = {}
    rows = [details.get(n.id) or ({"tip": shown(n.tooltip), "type": shown(n.shape)} if n.tooltip or n.shape else plain)
            for n in nodes]  # fmt: skip
    own: dict[str, list[Any]] = {
        "kind": [n.kind for n in nodes], "title": [shown(n.title) for n in nodes], "subtitle": [shown(n.subtitle) for n in nodes],
        "family": [_family(n) for n in nodes], "at": [shown(n.address) for n in nodes], "frame": [n.cluster for n in nodes],
        "name": [shown(n.name) for n in nodes], "line": [n.line for n in nodes],
    }  # fmt: skip
    told = dict.fromkeys(name for row in rows for name in row)
    return {name: _column(own[name] if name not in told else [row.get(name, o) for row, o in zip(rows, own[name], strict=True)])
            for name in own} | {name: _column([row.get(name) for row in rows]) for name in told if name not in own}  # fmt: skip


def _column(values: Sequence[Any]) -> list[list[Any]]:
    """The distinct values, and for each place the number of its value; -1 where there is nothing to say."""
    told = dict.fromkeys(values)
    told.pop(None, None)
    told.pop("", None)
    number = {v: k for k, v in enumerate(told)}
    return [[*number], [number.get(v, -1) for v in values]]


def _fold(view: View, number: int, folds: Folds) -> dict[str, Any]:
    """One folding: its boxes, and the frames that it adds to those of the whole."""
    known = {c.id for c in folds.view.clusters}
    name = {c.id: c.id if c.id in known else f"{number}.{c.id}" for c in view.clusters}
    return {
        "notes": [shown(n) for n in view.notes],
        "frames": [[name[c.id], shown(c.title), c.kind, None if c.parent is None else name[c.parent]]
                   for c in view.clusters if c.id not in known],
        "boxes": [_box(n, None if n.cluster is None else name[n.cluster], folds) for n in view.nodes],
    }  # fmt: skip


def _box(n: ViewNode, frame: int | str | None, folds: Folds) -> list[Any]:
    """A node of the whole by its number, or a box of several: their runs, its texts and family, and the folding that opens it."""
    if n.kind != "group":
        return [n.members[0] if n.members else n.id, frame]
    return [_runs(n.members), frame, shown(n.title), shown(n.subtitle), _family(n), folds.inside.get(n.members, -1)]


def _family(n: ViewNode) -> str:
    return n.family if n.family in FAMILIES else "other"


def _runs(ids: Sequence[int]) -> list[list[int]]:
    """Ids as runs `[first, how many]`."""
    runs: list[list[int]] = []
    for k in sorted(ids):
        if runs and runs[-1][0] + runs[-1][1] == k:
            runs[-1][1] += 1
        else:
            runs.append([k, 1])
    return runs


def _colours() -> str:
    """The themes as variables; without a wish of the reader the system's choice counts."""
    light, dark = (_variables(THEMES[name]) for name in ("light", "dark"))
    return (f":root{{{light}}}\n[data-theme=dark]{{{dark}}}\n"
            f"@media (prefers-color-scheme: dark){{[data-theme=auto]{{{dark}}}}}\n"
            f"@media print{{:root[data-theme]{{{light}}}}}\n" + _classes())  # fmt: skip


def _variables(theme: Theme) -> str:
    found = {"ground": theme.ground, "text": theme.text, "faint": theme.faint}
    for family in FAMILIES:
        found[f"fill-{family}"], found[f"line-{family}"] = theme.colours(family)
    found |= {f"edge-{kind}": colour for kind, colour in theme.edges.items()}
    for kind, (ground, border) in theme.clusters.items():
        found[f"frame-{kind}"], found[f"border-{kind}"] = ground, border
    return f"color-scheme:{theme.name};" + "".join(f"--{k}:{v};" for k, v in found.items())


def _classes() -> str:
    rules = [f".f-{f}{{fill:var(--fill-{f});stroke:var(--line-{f})}}" for f in FAMILIES]
    rules += [f".e-{kind}{{stroke:var(--edge-{kind})}}.m-{kind}{{fill:var(--edge-{kind})}}" for kind in THEMES["light"].edges]
    rules += [f".c-{kind}{{fill:var(--frame-{kind});stroke:var(--border-{kind})}}" for kind in THEMES["light"].clusters]
    return "\n".join(rules) + "\n"

