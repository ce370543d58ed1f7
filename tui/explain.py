"""Explanations of the selected node: why it is, or is not, in one kernel with another; which step of a pipeline made or removed it.

What the timeline needs is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepx_graph.ir import Node
from deepx_graph.tui.formatting import plain
from deepx_graph.tui.screens import MessageScreen

if TYPE_CHECKING:
    from deepx_graph.passes.fusion.reason import Reason
    from deepx_graph.session.session import Version
    from deepx_graph.session.timeline import Sighting
    from deepx_graph.tui.app import Browser


class Explainer:
    """Explains, with the node that is marked to be compared with another."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.marked: Node | None = None
        self._sighting: tuple[Node | None, int] = (None, 0)

    @property
    def status(self) -> str:
        """What is expected of the reader, nothing mostly."""
        return "w: choose the other node" if self.marked is not None else ""

    # --- kernels

    def fusion(self) -> None:
        """Marks the selected node; the second time says why the two are, or are not, in one kernel."""
        session, node = self.browser.session, self.browser.selection.node
        if session is None or node is None:
            return
        if self.marked is None:
            self.marked = node
            self.browser.show_status()
            return
        other, self.marked = self.marked, None
        self.browser.jobs.start("asking", lambda m: session.why(other, node), self._show_reason)

    def _show_reason(self, reason: Reason) -> None:
        self.browser.push_screen(MessageScreen("In one kernel" if reason.fused else "Not in one kernel", plain(str(reason))))

    # --- the timeline

    def timeline(self) -> None:
        """Goes to the step at which the selected node, or one like it, appeared or vanished; again to the next such step."""
        session, node = self.browser.session, self.browser.selection.node
        if session is None or node is None:
            return
        at = session.at
        versions = [v for v in (*session.versions[at:], *session.versions[at - 1 :: -1]) if v.timeline is not None]
        if not versions:
            self.browser.notify("nothing has been optimised yet: the pipeline view runs passes")
            return
        version = versions[0]
        self.browser.jobs.start("looking", lambda m: version.timeline.sightings(node) if version.timeline else [],
                                lambda found: self._show_sighting(node, version, found))

    async def _show_sighting(self, node: Node, version: Version, found: list[Sighting]) -> None:
        from deepx_graph.tui.views.passes import PassesView, sighting_text

        self.browser.notify(f"{plain(node.reference or node.op.name, 40)}: {sighting_text(found)}", markup=False)
        if not found:
            return
        last, k = self._sighting
        k = (k + 1) % len(found) if last is node else 0
        self._sighting = node, k
        await self.browser.switcher.mount_views()
        self.browser.action_view("passes")
        passes = self.browser.query_one(PassesView)
        passes.show_steps(version)
        passes.show_event(found[k].event)
