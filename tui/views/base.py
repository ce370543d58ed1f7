"""What the views of the browser have in common: they are told when the program changes and when another node is selected."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.containers import Container

from deepx_graph.ir import Function, Node
from deepx_graph.session.session import Session

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser


class View(Container):
    """One of the views between which the number keys switch."""

    DEFAULT_CSS = "View { height: 1fr; }"

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
        """Another version of the program is looked at."""

    def show_node(self, function: Function, node: Node) -> None:
        """Another node is selected."""

    def opened(self) -> None:
        """The view comes to sight."""

    def export_text(self) -> str | None:
        """What the view shows as text, None where there is nothing to export."""
        return None
