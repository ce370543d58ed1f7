"""The lines above and below the views: tabs; what is asked for, with completion; the selected node, or how far a job is; keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.message import Message
from textual.screen import Screen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, Static

from deepx_graph.session.session import Session
from deepx_graph.tui.formatting import plain
from deepx_graph.tui.views.base import views


class TabBar(Static):
    """A tab for each view, which a click opens, then the program."""

    @dataclass
    class Chosen(Message):
        """A tab was clicked."""

        view: str

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)
        self.tabs: list[tuple[int, str]] = []
        """The column behind each tab, and its view."""

    def show(self, view: str, path: str, session: Session | None) -> None:
        """Shows the current view, and which version of which program is seen, once there is one."""
        text = Text(no_wrap=True, overflow="ellipsis")
        self.tabs = []
        for k, (tab, (title, *_)) in enumerate(views().items(), 1):
            text.append(f" {k} {title} ", "reverse bold" if tab == view else "")
            self.tabs.append((len(text), tab))
        if session is not None:
            step = f" · {session.at + 1}/{len(session.versions)}" if len(session.versions) > 1 else ""
            text.append(f"  {plain(os.path.basename(path), 30)}", "bold")
            text.append(f"{step} {plain(session.version.title, 24)} · {sum(session.version.counts.values()):,} nodes")
        self.update(text, layout=False)

    def on_click(self, event: Click) -> None:
        view = next((tab for end, tab in self.tabs if event.x < end), None)
        if view is not None:
            self.post_message(self.Chosen(view))


class StatusBar(Static):
    """One line about the selected node, or about the job under way."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)

    def show(self, text: str, *notes: str) -> None:
        """Shows a text, and what is to stand out behind it."""
        line = Text(text, no_wrap=True, overflow="ellipsis")
        for note in filter(None, notes):
            line.append(f"  {note}", "bold")
        self.update(line, layout=False)

    def show_progress(self, text: str, done: int, total: int) -> None:
        """Shows how far a job is."""
        share = f" {done}/{total}" if total else ""
        self.show(f" ⋯ {plain(text, 90)}{share}  (esc cancels)")


class KeyBar(Widget):
    """The keys of what has the focus, which a click presses.

    One widget, where textual's `Footer` makes and lays out one for each key whenever the focus goes to another view.
    """

    DEFAULT_CSS = """
    KeyBar {
        height: 1; text-wrap: nowrap; color: $footer-foreground; background: $footer-background;
        .keys--key { color: $footer-key-foreground; background: $footer-key-background; text-style: bold; }
        .keys--action { color: $footer-description-foreground; background: $footer-description-background; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"keys--key", "keys--action"}

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.keys: list[tuple[int, str]] = []
        """The column behind each key with its action, and the key."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._update)

    def _update(self, screen: Screen[Any]) -> None:
        self.refresh()

    def render(self) -> Text:
        key_style, action_style = map(self.get_component_rich_style, ("keys--key", "keys--action"))
        shown = [b.binding for b in self.screen.active_bindings.values() if b.binding.show]
        text, self.keys = Text(no_wrap=True), []
        first: dict[str, Binding] = {}  # of several keys of an action
        for binding in shown:
            first.setdefault(binding.action, binding)
        for binding in first.values():
            text.append(f" {self.app.get_key_display(binding)} ", key_style).append(f"{binding.description} ", action_style)
            self.keys.append((len(text), binding.key))
        return text

    def on_click(self, event: Click) -> None:
        key = next((key for end, key in self.keys if event.x < end), None)
        if key is not None:
            self.app.simulate_key(key)


Complete = Callable[[str], Iterable[str]]
"""Gives for a text the whole texts that it may become."""


def last_word(complete: Complete) -> Complete:
    """Completion of the last word of a text, from a function that gives words for it."""

    def whole(value: str) -> Iterable[str]:
        start = max(value.rfind(c) for c in " (") + 1
        return (value[:start] + word for word in complete(value))

    return whole


class Completing(Suggester):
    """Suggests the first text that goes on from what is typed."""

    def __init__(self, complete: Complete) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.complete = complete

    def first(self, value: str) -> str | None:
        """The first text that goes on from the value."""
        return next((t for t in self.complete(value) if t.startswith(value) and t != value), None)

    async def get_suggestion(self, value: str) -> str | None:
        return self.first(value)


class Prompt(Input):
    """One line of input at the foot of the screen. Posts `Answered` when it is entered, and `Closed` whenever it closes."""

    DEFAULT_CSS = """
    Prompt { display: none; height: 1; border: none; padding: 0 1; background: $boost; }
    Prompt:focus { border: none; }
    Prompt.-open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Leave"),
        Binding("tab", "complete", "Complete"),
    ]

    @dataclass
    class Answered(Message):
        """A text was entered; `answer` waits for it."""

        answer: Callable[[str], None]
        text: str

    class Closed(Message):
        """The line is hidden again."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, compact=True)
        self.answer: Callable[[str], None] = lambda text: None

    def open(self, placeholder: str, answer: Callable[[str], None], complete: Complete | None = None, value: str = "") -> None:
        """Asks for a text, which is given to `answer`."""
        self.answer, self.placeholder = answer, placeholder
        self.suggester = Completing(complete) if complete is not None else None
        self.value = value
        self.cursor_position = len(value)
        self.add_class("-open")
        self.focus()

    def action_close(self) -> None:
        """Hides the line; the view has the keys again."""
        self.remove_class("-open")
        self.post_message(self.Closed())

    def action_complete(self) -> None:
        if isinstance(self.suggester, Completing) and (text := self.suggester.first(self.value)):
            self.value = text
            self.cursor_position = len(text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_close()
        self.post_message(self.Answered(self.answer, self.value))
