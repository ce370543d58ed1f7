"""Programs as pictures and files: one in any form, two in one picture, a part of one as a program; and what notebooks show.

A page is one to explore; all else `viz.draw` draws. In a notebook a module or function is a picture with its facts as text, a
profile bars with its table: small and quick, large programs folded, what cannot be drawn as text alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, printable
from deepx_graph.files import write_file
from deepx_graph.ir import Function, Module, Node
from deepx_graph.runtime.compile import Compiled
from deepx_graph.runtime.profile import KernelProfile, Profile
from deepx_graph.session.programs import encoded
from deepx_graph.session.query.selection import cut
from deepx_graph.session.report.diff import Kind, diff, pairs
from deepx_graph.session.report.info import function_info, module_info
from deepx_graph.session.report.meaning import Meaning
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import VIEWED, PageOptions, PageProgram, explore, node_of_box, plugin_notes
from deepx_graph.session.show.overlays import laid, over
from deepx_graph.session.show.views import PLUGIN_VIEWS
from deepx_graph.text import FORMATS
from deepx_graph.viz.draw import FORMATS as PICTURES
from deepx_graph.viz.draw import Drawing, draw, write_view
from deepx_graph.viz.picture.svg import Bar, bars
from deepx_graph.viz.view.model import View, ViewEdge, ViewNode, forward


def picture(program: Module | Session, path: str | os.PathLike[str] | None = None, *, format: str | None = None,
            overlay: str | None = None, **options: Any) -> Drawing:
    """As `viz.draw`, with all that is known of every node in an HTML page, and what the views of plugins show of each node in both.

    `overlay` names what is laid over the picture (`NAMES` of `session.show.overlays`); a session that was made to show something
    does so without it. Raises as `viz.draw`, and UsageError for an overlay of which nothing is known.
    """
    session = program if isinstance(program, Session) else Session(program)
    module = session.module
    form = format or (Path(path).suffix.lstrip(".").lower() if path is not None else None)
    if form != "html":
        name = overlay or laid(session)
        return draw(module, path, format=format, change=partial(_with_views, module) if PLUGIN_VIEWS else None,
                    overlay=None if name is None else over(session, name), **options)  # fmt: skip
    title = options.pop("title", None)
    for of_pictures in ("legend", "timeout", "layout"):
        options.pop(of_pictures, None)
    name = title if title is not None else module.source.name if module.source else ""
    session.path = session.path or name
    found = explore([("", session)], PageOptions(**options, overlay=overlay), title=name)
    if path is not None:
        write_file(Path(path), found.data)
    return found


def _with_views(module: Module, view: View) -> View:
    """The view with what plugins show of a node in its tooltip."""
    if len(view.nodes) > VIEWED:
        return view
    nodes = [box._replace(tip=box.tooltip + _notes(module, box)) if box.address else box for box in view.nodes]
    return replace(view, nodes=tuple(nodes))


def _notes(module: Module, box: ViewNode) -> str:
    _, (node, inside) = node_of_box(module, box)
    return "" if inside >= 0 else "".join("\n\n" + "\n".join(note) for note in plugin_notes(module, node))


BOXES = 120
SECONDS = 8.0
KERNELS = 25
"""Of a profile."""


def bundle(value: object) -> dict[str, str]:
    """The parts by MIME type: text for all, SVG where it can be drawn."""
    if isinstance(value, Module):
        return _drawn(value, str(module_info(value)))
    if isinstance(value, Function):
        return _drawn(Module((value,), value.name), str(function_info(value)))
    if isinstance(value, Profile):
        rows = value.rows()
        return {"text/plain": str(value)} | ({"image/svg+xml": _profile(rows)} if rows else {})
    if isinstance(value, Compiled):
        return _drawn(value.module, "\n".join([repr(value), *(f"  in   {p.name}: {p.type}" for p in value.inputs),
                                               *(f"  out  {p.name}: {p.type}" for p in value.outputs)]))  # fmt: skip
    if isinstance(value, Meaning):
        first, second = value.forms
        return _pictured("\n".join([*value.lines(), f"verdict: {value}"]),
                         lambda: write_view(both(("first", first), ("second", second)), "svg"))
    return {"text/plain": repr(value)}


def _drawn(module: Module, text: str) -> dict[str, str]:
    return _pictured(text, lambda: draw(module, format="svg", max_nodes=BOXES, timeout=SECONDS, title=""))


def _pictured(text: str, make: Callable[[], Drawing]) -> dict[str, str]:
    shown = {"text/plain": "\n".join(map(printable, text.split("\n")))}
    try:
        picture = make()
    except DeepxGraphError as e:
        return shown | {"text/plain": f"{shown['text/plain']}\nno picture: {e}"}
    return shown | {"image/svg+xml": picture.data.decode("utf-8").partition("?>")[2].lstrip()}


def _profile(rows: Sequence[KernelProfile]) -> str:
    found = [Bar(f"{r.kernel}: {r.type}", r.seconds, f"{r.seconds * 1e3:.3f} ms, {r.share:.1%}, {r.gb_per_s:.1f} GB/s")
             for r in rows[:KERNELS]]  # fmt: skip
    rest = sum(r.seconds for r in rows[KERNELS:])
    more = [Bar(f"{len(rows) - KERNELS} more kernels", rest, f"{rest * 1e3:.3f} ms")] if len(rows) > KERNELS else []
    return bars([*found, *more]).decode("utf-8")


MEANING = "red: only in the first; green: only in the second; amber: not the same in both"

Named = tuple[str, Module]


def compared(a: Named, b: Named, path: str) -> Drawing:
    """The picture, written to `path`; its suffix is the form. Raises UsageError for a suffix that is none."""
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix == "html":
        drawn = explore([(name, Session(module)) for name, module in (a, b)], title=f"{a[0]} and {b[0]}")
    else:
        drawn = write_view(both(a, b), suffix)
    write_file(Path(path), drawn.data)
    return drawn


def both(a: Named, b: Named) -> View:
    """One view of two programs; the boxes of the first that are also in the second are drawn once, as they are in the second."""
    first, second = (PageProgram(name, Session(module), PageOptions(collapse=True, tooltips=True)) for name, module in (a, b))
    partner = pairs(a[1], b[1])
    for change in diff(a[1], b[1], in_order=True).changes:
        for node, side in ((change.before, first), (change.after, second)):
            if node is not None:
                side.differs(node, change.kind, change.text)
    merged = _merged(first, second, partner)
    shift = len(second.view.nodes)
    alone = [n for n in first.view.nodes if n.id not in merged]
    number = merged | {n.id: shift + k for k, n in enumerate(alone)}
    nodes = [_marked(n, n.id, second, {"changed": "changed"}, "added") for n in second.view.nodes]
    frames = {c.kind: c.id for c in reversed(second.view.clusters) if c.parent is None}
    for n in alone:
        nodes.append(_marked(n, number[n.id], first, {}, "removed")._replace(cluster=frames.get("function")))
    edges = dict.fromkeys(second.view.edges)
    for e in first.view.edges:
        s, t = number[e.source], number[e.target]
        if s >= shift or t >= shift:
            edges.setdefault(ViewEdge(s, t, e.kind, e.label))
    view = replace(second.view, nodes=tuple(nodes), edges=tuple(edges), title=f"{a[0]} -> {b[0]}")
    return forward(view.noted(MEANING))


def _merged(first: PageProgram, second: PageProgram, partner: dict[Node, Node]) -> dict[int, int]:
    """Boxes of the first program that are boxes of the second: nodes by pairs, control and results by what they are called."""
    found: dict[int, int] = {}
    for id, (_, (node, inside)) in first.nodes.items():
        other = partner.get(node)
        if other is not None and (other, inside) in second.ids:
            found[id] = second.ids[other, inside]
    there: dict[tuple[str, str, int], int] = {}
    seen: dict[tuple[str, str], int] = {}
    for view, put in ((second.view, True), (first.view, False)):
        seen.clear()
        for n in view.nodes:
            if n.address:
                continue
            k = seen[n.kind, n.title] = seen.get((n.kind, n.title), -1) + 1
            if put:
                there[n.kind, n.title, k] = n.id
            elif (n.kind, n.title, k) in there:
                found[n.id] = there[n.kind, n.title, k]
    return found


def _marked(n: ViewNode, id: int, side: PageProgram, kinds: dict[str, Kind], alone: Kind) -> ViewNode:
    """The box with how it differs."""
    key = side.nodes.get(n.id)
    kind, how = side.diffs.get(key[1][0], ("", "")) if key is not None else ("", "")
    if not kind:
        return n._replace(id=id, change=alone if alone == "removed" else "")
    return n._replace(id=id, change=kinds.get(kind, alone), tip=f"{n.tooltip}\n{how}")



@dataclass(frozen=True)
class ExportedPart:
    """What is shown of a module: all of it, or what lies within `depth` edges of a node, whose address is such as `#17`."""

    module: Module
    around: str | None = None
    depth: int = 2
    function: Function | None = None
    nodes: tuple[Node, ...] = ()
    """With `around`: the nodes that are shown, which are cut out when a program is written."""


def suffixes() -> list[str]:
    """The suffixes that say how to export."""
    return [*(f".{p}" for p in PICTURES), *(s for f in FORMATS.values() if f.writes for s in f.suffixes)]


def export(shown: ExportedPart, path: Path, *, text: str | None = None) -> tuple[str, ...]:
    """Writes what is shown; notes on the way it was done. `text` is what goes into a `.txt`.

    Raises UsageError for a suffix that is none or a file that is there already, else as drawing and printing do.
    """
    if path.exists():
        raise UsageError(f"'{path}' is there already")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder '{path.parent}'")
    suffix = path.suffix.lower()
    if suffix == ".txt" and text is not None:
        write_file(path, text.encode())
        return ()
    if suffix.lstrip(".") in PICTURES:
        function = shown.around.rpartition("#")[0] if shown.around else ""
        drawn = picture(shown.module, format=suffix.lstrip("."), around=shown.around, depth=shown.depth, function=function or None)
        write_file(path, drawn.data)
        return drawn.notes
    form = next((f.name for f in FORMATS.values() if f.writes and suffix in f.suffixes), None)
    if form is None:
        raise UsageError(Diagnostic(f"'{path.name}' does not say what to write", expected=", ".join([*suffixes(), ".txt"])))
    module = shown.module if shown.function is None else cut(shown.module, shown.function, shown.nodes)
    write_file(path, encoded(module, form))
    return ()
