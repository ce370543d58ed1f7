"""`draw`: a module as a picture, in one call.

Builds the view, keeps the part asked for, folds what is too large, and writes DOT, SVG, PNG or HTML. A picture always comes with
notes on what it does not show and how it came about. Files appear whole or not at all. Nothing is printed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from deepx_graph.errors import UsageError, printable, suggest
from deepx_graph.files import write_file
from deepx_graph.ir import Module
from deepx_graph.progress import stage
from deepx_graph.viz.folding.fold import OVERVIEW, fold, inline_hubs
from deepx_graph.viz.page.folds import folds_of
from deepx_graph.viz.page.html import PageGraph, page
from deepx_graph.viz.picture import graphviz, svg
from deepx_graph.viz.picture.dot import to_dot
from deepx_graph.viz.picture.layered import lay_out
from deepx_graph.viz.picture.overlay import Overlay, Painted
from deepx_graph.viz.picture.scene_svg import to_svg
from deepx_graph.viz.picture.style import theme_named
from deepx_graph.viz.view.build import build_view
from deepx_graph.viz.view.frames import in_halves
from deepx_graph.viz.view.model import View, chosen
from deepx_graph.viz.view.model import around as part_around


@dataclass(frozen=True)
class Drawing:
    """A picture, and what to tell its reader about it. A notebook shows an SVG."""

    data: bytes = field(repr=False)
    notes: tuple[str, ...] = ()

    def _repr_svg_(self) -> str | None:
        """The SVG without its XML declaration, which has no place inside a page; None for other forms."""
        declaration, _, rest = self.data.partition(b"?>")
        return rest.decode("utf-8").lstrip() if declaration.startswith(b"<?xml") and b"<svg" in rest else None


def draw(
    module: Module,
    path: str | os.PathLike[str] | None = None,
    *,
    format: str | None = None,
    theme: str = "light",
    function: str | None = None,
    around: str | None = None,
    depth: int = 2,
    max_nodes: int | None = None,
    collapse: bool = False,
    title: str | None = None,
    timeout: float = 20.0,
    legend: bool = True,
    keep: frozenset[str] | None = None,
    sideways: bool = False,
    layout: Layout = "layered",
    change: Callable[[View], View] | None = None,
    overlay: Callable[[View], Overlay] | None = None,
) -> Drawing:
    """Draws a module, or one `function` of it, to `path` when given; its suffix is the format unless `format` says otherwise.

    `keep` draws only the nodes of these addresses (`#17`), `around` (a name of the source, or an address) and `depth` only what
    lies near a node; a picture of more than `max_nodes` boxes is folded (by default to 40; a page has finer
    levels too); `collapse` draws a fused kernel as one box; `sideways` draws from left to right;
    `layout="graphviz"` has Graphviz lay out an SVG, as it does every PNG. `change` is applied to the view before it is folded, and
    `overlay` asked what to lay over it (a page has overlays of its own).

    Raises UsageError for an unknown format, theme, function or node, and for PNG without Graphviz; LayoutError when a PNG is
    not done within `timeout` seconds (an SVG falls back to our own layout instead).
    """
    _writer(format or _suffix(path))
    theme_named(theme)
    view = view_of(module, function, keep, around, depth, collapse=collapse, title=_title(module) if title is None else title)
    if not 0 <= timeout < 1e9:
        raise UsageError(f"a timeout of {timeout} seconds")
    view = replace(view if change is None else change(view), sideways=sideways)
    laid = None if overlay is None else overlay(view)
    drawing = write_view(view, format or _suffix(path), Look(theme, max_nodes, timeout, legend, layout, laid))
    if path is not None:
        write_file(Path(path), drawing.data)
    return drawing


def view_of(module: Module, function: str | None, keep: frozenset[str] | None, around: str | None, depth: int, *, collapse: bool,
            title: str, tooltips: bool = True) -> View:
    """The view of what `draw` is asked for, before anything is folded."""
    stage("draw")
    view = build_view(module, None if function is None else [function], collapse=collapse, open_calls=keep is None, title=title,
                      tooltips=tooltips)
    if keep is not None:
        view = chosen(view, keep)
    if around is not None:
        view = part_around(view, around, depth)
    return in_halves(view)


Layout = Literal["layered", "graphviz"]


@dataclass(frozen=True)
class Look:
    """How a view becomes a picture: see `draw`."""

    theme: str = "light"
    max_nodes: int | None = None
    timeout: float = 20.0
    legend: bool = True
    layout: Layout = "layered"
    overlay: Overlay | None = None


def write_view(view: View, format: str, look: Look | None = None) -> Drawing:
    """A view in one of the formats, folded where it is large. Raises as `draw`."""
    if not view.nodes:
        view = view.noted("there is nothing to draw")
    return _writer(format)(view, look or Look())


def _title(module: Module) -> str:
    return module.source.name if module.source else ""


def _suffix(path: str | os.PathLike[str] | None) -> str:
    if path is None:
        return "svg"
    suffix = Path(path).suffix.lstrip(".").lower()
    if not suffix:
        raise UsageError(f"'{printable(str(path))}' has no suffix to tell the format by: {', '.join('.' + f for f in FORMATS)}")
    return suffix


def _writer(format: str) -> Writer:
    if format not in FORMATS:
        near = suggest(format, FORMATS) or f"there are {', '.join(FORMATS)}"
        raise UsageError(f"no picture format '{printable(format)}': {near}")
    return FORMATS[format]


def _folded(view: View, look: Look) -> tuple[View, Painted | None]:
    """The picture of a view, and the colours of what is laid over it."""
    folded = inline_hubs(fold(view, look.max_nodes or OVERVIEW))
    if look.overlay is None:
        return folded, None
    painted = look.overlay.over(folded, theme_named(look.theme))
    return painted.view, painted


def _dot(view: View, look: Look) -> Drawing:
    view, painted = _folded(view, look)
    return Drawing(to_dot(view, look.theme, legend=look.legend, painted=painted).encode("utf-8"), view.notes)


def _svg(view: View, look: Look) -> Drawing:
    view, painted = _folded(view, look)
    if look.layout == "graphviz":
        try:
            text = to_dot(view, look.theme, legend=look.legend, painted=painted)
            data, notes = graphviz.render(text, "svg", look.timeout, large=graphviz.is_large(view))
            return Drawing(svg.filtered(data, view), view.notes + notes)
        except graphviz.LayoutError as e:
            view = view.noted(f"layered layout, because: {e.diagnostics[0].message}")
    stage("layout")
    return Drawing(to_svg(lay_out(view), look.theme, legend=look.legend, painted=painted), view.notes)


def _png(view: View, look: Look) -> Drawing:
    view, painted = _folded(view, look)
    if graphviz.engine() is None:
        raise UsageError(f"PNG needs Graphviz: {graphviz.INSTALL}; SVG and HTML do without")
    text = to_dot(view, look.theme, legend=look.legend, painted=painted)
    data, notes = graphviz.render(text, "png", look.timeout, large=graphviz.is_large(view))
    return Drawing(data, view.notes + notes)


def _html(view: View, look: Look) -> Drawing:
    folds = folds_of(view, look.max_nodes)
    return Drawing(page([PageGraph("", folds)], view.title, theme=look.theme), folds.notes)


Writer = Callable[[View, Look], Drawing]

FORMATS: dict[str, Writer] = {"dot": _dot, "svg": _svg, "png": _png, "html": _html}
