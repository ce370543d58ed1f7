"""Telling of a node and of what is shown: when it appeared or vanished, copies, files.

What is needed for these alone is imported when they are asked for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deepx_graph.ir import Node
from deepx_graph.session.session import Version
from deepx_graph.tui.asking import Asking
from deepx_graph.tui.texts import FILLER, plain
from deepx_graph.tui.views.map import FocusMap
from deepx_graph.tui.views.rows import Rows

if TYPE_CHECKING:
    from deepx_graph.session.timeline import Sighting


class Telling(Asking):
    """The part of the browser that says when, and writes what is seen; `path` is the program's file."""

    path = ""

    @property
    def view(self) -> str:
        """The name of the view in sight. To be overridden."""
        raise NotImplementedError

    def action_view(self, name: str) -> None:
        """Brings a view to sight. To be overridden."""
        raise NotImplementedError

    async def mount_views(self) -> None:
        """Makes the views that are not there yet. To be overridden."""
        raise NotImplementedError

    def action_story(self) -> None:
        """Goes to the step at which the selected node, or one like it, appeared or vanished; again to the next such step."""
        session = self.session
        if session is None or self.selected is None:
            return
        node, at = self.selected[1], session.at
        timelines = [v for v in (*session.versions[at:], *session.versions[at - 1 :: -1]) if v.timeline is not None]
        if not timelines:
            self.notify("nothing has been optimised yet: the pipeline view runs passes")
            return
        version = timelines[0]
        self.work_on("looking", lambda m: version.timeline.sightings(node) if version.timeline else [],
                     lambda found: self._tell_story(node, version, found))

    async def _tell_story(self, node: Node, version: Version, found: list[Sighting]) -> None:
        from deepx_graph.tui.views.passes import PassesView, sighting_text

        self.notify(f"{plain(node.name or node.op.name, 40)}: {sighting_text(found)}", markup=False)
        if not found:
            return
        told, k = self._story
        k = (k + 1) % len(found) if told is node else 0
        self._story = node, k
        await self.mount_views()
        self.action_view("passes")
        passes = self.query_one(PassesView)
        passes.show_steps(version)
        passes.show_event(found[k].event)

    _story: tuple[Node | None, int] = (None, 0)

    def action_export(self) -> None:
        if self.session is not None:
            from deepx_graph.session.show.export import suffixes

            name = os.path.splitext(os.path.basename(self.path))[0] or "program"
            self.prompt(f"a file: {', '.join(suffixes())}, .txt", self.export_to, value=f"{name}-{self.view}.svg")

    def export_to(self, text: str) -> None:
        """Writes what is shown to a file. Raises UsageError for a name that does not say how."""
        session = self.session
        if session is None or not text.strip():
            return
        from deepx_graph.session.show.export import Shown, export

        shown, lines = Shown(session.module), "\n".join(self.lines_shown())
        boxes = self.query_one(f"#{self.view}")
        if isinstance(boxes, FocusMap) and boxes.map is not None and boxes.function is not None:
            address = session.address(boxes.function, boxes.map.centre)
            shown = Shown(session.module, address, boxes.depth, boxes.function, tuple(boxes.map.boxes))
        path = Path(text.strip()).expanduser()
        self.work_on("writing", lambda m: export(shown, path, text=lines + "\n"), lambda notes: self._exported(path, notes))

    def _exported(self, path: Path, notes: tuple[str, ...]) -> None:
        self.notify("\n".join([f"{path} is written", *(plain(n, 200) for n in notes[:3])]), markup=False)

    def lines_shown(self) -> list[str]:
        """What the view in sight shows, all of it, as lines of text."""
        view = self.query_one(f"#{self.view}")
        if isinstance(view, FocusMap):
            return str(view.map).replace(FILLER, "").split("\n") if view.map is not None else []
        tables = [view] if isinstance(view, Rows) else list(view.query(Rows))
        return ["".join(t for t, _ in table.pieces(k, 120)).rstrip() for table in tables for k in range(table.count())]
