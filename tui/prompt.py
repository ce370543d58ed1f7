"""The line in which something is asked for: a query, a node, a pass, a file; with completion by the Tab key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

Complete = Callable[[str], Iterable[str]]
"""Gives for a text the whole texts that it may become."""


def last_word(complete: Callable[[str], Iterable[str]], ends: str = " (") -> Complete:
    """Completion of the last word of a text, from a function that gives words for it."""

    def whole(value: str) -> Iterable[str]:
        start = max(value.rfind(c) for c in ends) + 1
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

    class Answered(Message):
        """A text was entered; `answer` waits for it."""

        def __init__(self, answer: Callable[[str], None], text: str) -> None:
            super().__init__()
            self.answer, self.text = answer, text

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
