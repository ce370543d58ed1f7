"""The views by name, and everything that has keys. All but the list are imported when they are needed: the list is there sooner."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from textual.widget import Widget

VIEWS: dict[str, tuple[str, str, str]] = {
    "list": ("List", "lanes", "LaneList"), "map": ("Map", "map", "FocusMap"), "passes": ("Passes", "passes", "PassesView"),
    "pipeline": ("Pipeline", "pipeline", "PipelineView"), "run": ("Run", "run", "RunView"),
    "value-view": ("Value", "value", "ValueView"), "compare": ("Diff", "compare", "CompareView"),
}  # fmt: skip
"""The views by name, in the order of their keys: title, module, class."""


def view_class(name: str) -> type[Widget]:
    """What a view is."""
    _, module, kind = VIEWS[name]
    return cast("type[Widget]", getattr(import_module(f"deepx_graph.tui.views.{module}"), kind))


def parts() -> list[tuple[str, type]]:
    """Whose keys the help shows, beside those of the browser."""
    from deepx_graph.tui.help import HelpScreen, MessageScreen
    from deepx_graph.tui.prompt import Prompt
    from deepx_graph.tui.views.inspector import Inspector
    from deepx_graph.tui.views.outline import Outline
    from deepx_graph.tui.views.rows import Rows, Table
    from deepx_graph.tui.views.source import SourcePane

    views = ((title, view_class(name)) for name, (title, _, _) in VIEWS.items())
    return [("Lists and tables", Rows), ("Tables", Table), *views, ("Inspector", Inspector), ("Source", SourcePane),
            ("Outline", Outline), ("Input line", Prompt), ("Help", HelpScreen), ("Messages", MessageScreen)]
