"""The line in which a query, a node or a pair of nodes is asked for, with completion by the Tab key."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input


class Completing(Suggester):
    """Suggests how the last word may go on."""

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        """The text with its last word completed in the first way there is."""
        return completed(value, self.complete(value))


def completed(value: str, found: list[str]) -> str | None:
    """`value` with its last word replaced by the first of the words; None where there is none."""
    if not found:
        return None
    start = max(value.rfind(c) for c in " (") + 1
    return value[:start] + found[0]


class Prompt(Input):
    """One line of input at the foot of the screen. Posts `Asked` when it is entered, and hides when it is left."""

    DEFAULT_CSS = """
    Prompt { display: none; height: 1; border: none; padding: 0 1; background: $boost; }
    Prompt:focus { border: none; }
    Prompt.-open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave"),
        Binding("tab", "complete", "Complete"),
    ]

    class Asked(Message):
        """A text was entered for a purpose."""

        def __init__(self, purpose: str, text: str) -> None:
            super().__init__()
            self.purpose, self.text = purpose, text

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, compact=True)
        self.purpose = ""

    def open(self, purpose: str, placeholder: str, complete: Callable[[str], list[str]] | None, value: str = "") -> None:
        """Asks for a text."""
        self.purpose, self.placeholder = purpose, placeholder
        self.suggester = Completing(complete) if complete is not None else None
        self.value = value
        self.cursor_position = len(value)
        self.add_class("-open")
        self.focus()

    def action_leave(self) -> None:
        self.close()

    def close(self) -> None:
        """Hides the line; what was looked at before has the keys again."""
        self.remove_class("-open")
        self.post_message(self.Left())

    class Left(Message):
        """The line was left."""

    def action_complete(self) -> None:
        if isinstance(self.suggester, Completing) and (text := completed(self.value, self.suggester.complete(self.value))):
            self.value = text
            self.cursor_position = len(text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.close()
        self.post_message(self.Asked(self.purpose, self.value))
