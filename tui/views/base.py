"""What the views of the browser have in common, and the table of them.

All but the list are imported when they are needed: the list is there sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, cast

from textual.binding import Binding
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from deepx_graph.ir import Function, Node
from deepx_graph.session.session import Session
from deepx_graph.session.show.views import PLUGIN_VIEWS

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser

OWN_VIEWS: dict[str, tuple[str, str, str]] = {
    "list": ("List", "lanes", "LaneList"), "map": ("Map", "map", "FocusMap"), "passes": ("Passes", "passes", "PassesView"),
    "pipeline": ("Pipeline", "pipeline", "PipelineView"), "run": ("Run", "run", "RunView"),
    "value-view": ("Value", "run", "ValueView"), "compare": ("Diff", "compare", "CompareView"),
}  # fmt: skip
"""The views by name, in the order of their keys: title, module, class."""


def views() -> dict[str, tuple[str, str, str]]:
    """Our views, and behind them those that plugins have registered so far."""
    return OWN_VIEWS | {name: (view.title, "plugin", name) for name, view in PLUGIN_VIEWS.items()}


def view_bindings() -> Iterator[Binding]:
    """The number keys of the views."""
    for k, (name, (title, *_)) in enumerate(views().items(), 1):
        if k < 10:
            yield Binding(str(k), f"view('{name}')", f"View: {title}", show=False)


def view_class(name: str) -> type[Widget]:
    """What a view is."""
    _, module, kind = views()[name]
    return cast("type[Widget]", getattr(import_module(f"deepx_graph.tui.views.{module}"), kind))


class Follower:
    """A widget that shows the selected node, for as long as it is displayed."""

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        """Another node is selected, or what is known of it has changed."""


class BrowserView(Container, Follower):
    """One of the views between which the number keys switch."""

    DEFAULT_CSS = "BrowserView { height: 1fr; }"

    @property
    def browser(self) -> Browser:
        """The app, which has the session."""
        return cast("Browser", self.app)

    @property
    def session(self) -> Session:
        """The session; there is one before any view is shown."""
        assert self.browser.session is not None
        return self.browser.session

    def show_version(self) -> None:
        """Another version of the program is current."""

    def opened(self) -> None:
        """The view has become the current one."""


class ViewSwitcher(ContentSwitcher):
    """The views, one of which is displayed. Posts `Opened` when another one is."""

    class Opened(Message):
        """A view has become the current one."""

    @property
    def shown(self) -> Widget:
        """The current view."""
        return self.query_one(f"#{self.current}")

    async def mount_views(self) -> None:
        """Makes the views that are not there yet."""
        missing = [view_class(name)(id=name) for name in views() if not self.query(f"#{name}")]
        for view in missing:
            view.display = False
        if missing:
            await self.mount_all(missing)
        for view in missing:
            if isinstance(view, BrowserView) and view.browser.session is not None:
                view.show_version()

    def open(self, name: str) -> None:
        """Makes a view the current one, and gives it the keys; where it is not there yet, after it has been made."""
        if self.query(f"#{name}"):
            self._open(name)
        else:
            self.call_later(self._make_and_open, name)

    async def _make_and_open(self, name: str) -> None:
        await self.mount_views()
        self._open(name)

    def _open(self, name: str) -> None:
        self.current = name
        view = self.shown
        if isinstance(view, BrowserView):
            view.opened()
        target = view if view.focusable else next(iter(view.query("*:can-focus")), None)
        (target or view).focus()
        self.post_message(self.Opened())
