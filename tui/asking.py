"""Selecting and asking: the node that all views look at, where one has been, queries, why two nodes are not one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.text import Text
from textual.widgets import Static

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Function, Node
from deepx_graph.session.query.language import completions, parse_query
from deepx_graph.session.session import Session
from deepx_graph.session.show.inspect import inspect
from deepx_graph.tui.help import MessageScreen
from deepx_graph.tui.prompt import Complete, Prompt, last_word
from deepx_graph.tui.texts import details, name_of, plain
from deepx_graph.tui.views.base import View
from deepx_graph.tui.views.inspector import Inspector
from deepx_graph.tui.views.lanes import LaneList
from deepx_graph.tui.views.map import FocusMap
from deepx_graph.tui.views.outline import Outline
from deepx_graph.tui.views.source import SourcePane
from deepx_graph.tui.work import Working
from deepx_graph.viz.listing.listing import Listing

KEPT = 500
"""Nodes that one can go back to."""


class Asking(Working):
    """The part of the browser that knows which node is selected."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.session: Session | None = None
        self.listing = Listing()
        self.numbers = False
        self.selected: tuple[Function, Node] | None = None
        self.found: list[tuple[Function, Node]] = []
        self.found_at = -1
        self.asked = ""
        self.visited: list[tuple[Function, Node]] = []
        self.visited_at = -1
        self.marked: tuple[Function, Node] | None = None
        self._stale = False

    @property
    def lanes(self) -> LaneList:
        return self.query_one("#list", LaneList)

    # --- the selected node

    def select(self, function: Function, node: Node, *, remember: bool = True) -> None:
        """Selects a node everywhere. Nodes without a row are shown in the panes only."""
        self.selected = function, node
        if remember:
            self._remember()
        self.lanes.show_node(node)
        self.selection_changed()

    def _remember(self) -> None:
        if self.selected is None or (self.visited and self.visited[self.visited_at][1] is self.selected[1]):
            return
        del self.visited[self.visited_at + 1 :]
        self.visited = [*self.visited[-KEPT:], self.selected]
        self.visited_at = len(self.visited) - 1

    def reselect(self, old: Node) -> None:
        """Selects what a node of another version has become: the node of its name, else of its place in the source."""
        span = old.span
        for row in self.listing.rows:
            n = row.node
            if n is not None and ((n.name and n.name == old.name) or (span is not None and n.span == span and n.op is old.op)):
                self.select(row.function, n)
                return

    def go_to(self, node: Node) -> None:
        """Selects a node of the program, wherever it is."""
        row = self.listing.row_of.get(node)
        function = self.listing.rows[row].function if row is not None else self._function_of(node)
        if function is not None:
            self.select(function, node)
        else:
            self.notify("that node is not in this version", severity="warning")

    def _function_of(self, node: Node) -> Function | None:
        if self.selected is not None and node in self.selected[0].users:
            return self.selected[0]
        return self.session.function_of(node) if self.session is not None else None

    def go_to_function(self, name: str) -> None:
        """Looks at the head of a function."""
        for k, row in enumerate(self.listing.rows):
            if row.kind == "function" and row.function.name == name:
                self.go_to_row(k)
                return

    def go_to_row(self, row: int) -> None:
        """Puts the cursor of the list on a row."""
        lanes = self.lanes
        place = self.listing.show(row)
        lanes.resized()
        lanes.cursor = place

    def selection_changed(self) -> None:
        """Brings the panes up to date, once, after what is under way has been drawn."""
        if not self._stale:
            self._stale = True
            self.call_after_refresh(self._update_panes)

    def _update_panes(self) -> None:
        self._stale = False
        self._show_status()
        if self.session is None or self.selected is None:
            return
        function, node = self.selected
        inspector, source = self.query_one(Inspector), self.query_one(SourcePane)
        if inspector.has_class("-on"):
            inspector.show_node(self.session, function, node)
        if source.has_class("-on"):
            source.show_node(node)
        for focus_map in self.query(FocusMap):
            if focus_map.display:
                focus_map.show_session_node(self.session, function, node)
        for view in self.query(View):
            if view.display:
                view.show_node(function, node)

    def _show_status(self) -> None:
        if self.is_working:
            return
        text = Text(no_wrap=True, overflow="ellipsis")
        if self.session is not None and self.selected is not None:
            function, node = self.selected
            name = name_of(node, self.session.facts(function))
            text.append(f" {name} {node.op.name}: {plain(str(node.type), 60)}  {details(node)}")
        if self.found:
            text.append(f"  [{self.found_at + 1}/{len(self.found)}] {plain(self.asked, 40)}", "bold")
        if self.marked is not None:
            text.append("  w: choose the other node", "bold")
        self.query_one("#status", Static).update(text, layout=False)

    def show_progress(self, text: str, done: int, total: int) -> None:
        if not text:
            self._show_status()
            return
        share = f" {done}/{total}" if total else ""
        self.query_one("#status", Static).update(Text(f" ⋯ {plain(text, 90)}{share}  (esc cancels)", no_wrap=True), layout=False)

    # --- from the parts

    def on_lane_list_moved(self, message: LaneList.Moved) -> None:
        if message.node is not None:
            far = self.selected is None or message.node is not self.selected[1]
            self.selected = message.function, message.node
            if far:
                self.selection_changed()

    def on_focus_map_moved(self, message: FocusMap.Moved) -> None:
        self.select(message.function, message.node)

    def on_focus_map_redraw(self) -> None:
        focus_map = self.query_one("#map", FocusMap)
        if self.session is not None and focus_map.function is not None and focus_map.node is not None:
            focus_map.show_map(self.session, focus_map.function, focus_map.node)

    def on_inspector_wanted(self, message: Inspector.Wanted) -> None:
        if message.node is not None:
            self._remember()
            self.go_to(message.node)
        elif message.line:
            source = self.query_one(SourcePane)
            source.add_class("-on")
            source.cursor = message.line

    def on_outline_chosen(self, message: Outline.Chosen) -> None:
        self.go_to_row(message.row)
        self.lanes.focus()

    def on_source_pane_line_chosen(self, message: SourcePane.LineChosen) -> None:
        self.ask(f"origin:{message.line}")

    def action_history(self, by: int) -> None:
        self._remember()
        at = self.visited_at + by
        if 0 <= at < len(self.visited):
            self.visited_at = at
            self.select(*self.visited[at], remember=False)

    # --- questions

    def action_ask_query(self) -> None:
        self.prompt("op:dot_general users>2 bytes>1M name:~attn", self.ask, last_word(completions), self.asked)

    def action_ask_node(self) -> None:
        names = sorted({n.name for row in self.listing.rows[:20000] if (n := row.node) is not None and n.name})
        self.prompt("a name, or #17", self.name_node, lambda text: [n for n in names if text and n.startswith(text)])

    def prompt(self, placeholder: str, answer: Callable[[str], None], complete: Complete | None = None, value: str = "") -> None:
        """Asks for a text; errors that the answer raises are shown."""
        self.query_one(Prompt).open(placeholder, answer, complete, value)

    def on_prompt_left(self) -> None:
        self.focus_view()

    def focus_view(self) -> None:
        """Gives the keys back to the view in sight. To be overridden."""

    def on_prompt_asked(self, message: Prompt.Asked) -> None:
        try:
            message.answer(message.text)
        except DeepxGraphError as e:
            self.show_error(e)

    def name_node(self, text: str) -> None:
        """Goes to the node of a name or number. Raises UsageError for one that is none."""
        if self.session is not None and text.strip():
            self._remember()
            self.select(*self.session.find(text.strip()))

    def ask(self, text: str) -> None:
        """Finds the nodes that a query asks for and goes to the first at or after the cursor. Raises UsageError for no query."""
        session = self.session
        if session is None:
            return
        query = parse_query(text)
        self.asked = text
        self.work_on("asking", lambda m: session.query(query) if text.strip() else [], self._answered)

    def _answered(self, found: list[tuple[Function, Node]]) -> None:
        self.found, self.found_at = found, -1
        self.lanes.hits = {n for _, n in found}
        self.lanes.refresh()
        if not found:
            if self.asked.strip():
                self.notify(f"nothing is found by {plain(self.asked, 60)}", markup=False)
            self.selection_changed()
            return
        here = self.lanes.listing.row_of.get(self.selected[1], 0) if self.selected is not None else 0
        after = (k for k, (_, n) in enumerate(found) if self.listing.row_of.get(n, -1) >= here)
        self.found_at = next(after, 0) - 1
        self.action_hit(1)

    def action_hit(self, by: int) -> None:
        if self.found:
            self.found_at = (self.found_at + by) % len(self.found)
            self._remember()
            function, node = self.found[self.found_at]
            if node not in self.listing.row_of and not self.numbers:
                self.notify("numbers have no rows: c shows them")
            self.select(function, node)

    def action_why(self) -> None:
        """Marks a node; the second time says why the two are, or are not, in one kernel."""
        if self.session is None or self.selected is None:
            return
        if self.marked is None:
            self.marked = self.selected
            self._show_status()
            return
        (_, a), (_, b), session = self.marked, self.selected, self.session
        self.marked = None
        self.work_on("asking", lambda m: session.why(a, b), self._because)

    def _because(self, reason: Any) -> None:
        self.push_screen(MessageScreen("In one kernel" if reason.fused else "Not in one kernel", plain(str(reason))))

    def action_copy(self, what: str) -> None:
        if self.session is None or self.selected is None:
            return
        function, node = self.selected
        text = plain(node.name or name_of(node, self.session.facts(function)))
        if what == "text":
            sections = inspect(self.session, function, node)
            text = "\n".join(plain(f"{e.label}: {e.text}") for s in sections for e in s.entries)
        self.copy_to_clipboard(text)
        self.notify(f"copied {plain(text.splitlines()[0], 60)}", markup=False)
