"""Screens over the browser: the help, which reads all keys from the bindings, and messages; and the commands of the palette."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from deepx_graph.passes import REGISTRY
from deepx_graph.passes.pipeline import PIPELINES
from deepx_graph.session.query.language import describe
from deepx_graph.tui.formatting import plain

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser


KEYS = {
    "left_square_bracket": "[", "right_square_bracket": "]", "question_mark": "?", "slash": "/", "plus": "+", "minus": "-",
    "full_stop": ".", "comma": ",", "less_than_sign": "<", "greater_than_sign": ">", "number_sign": "#", "equals_sign": "=",
    "exclamation_mark": "!",
}  # fmt: skip
"""How keys are written whose names are longer than they are."""


def key_text(keys: str) -> str:
    """The keys of a binding as a reader finds them on the keyboard."""
    return " ".join(KEYS.get(k.strip(), k.strip()) for k in keys.split(","))


def bindings_of(owner: type) -> Iterator[Binding]:
    """The bindings that a class declares itself."""
    for b in owner.__dict__.get("BINDINGS", ()):
        yield b if isinstance(b, Binding) else Binding(*b)


def parts() -> list[tuple[str, type]]:
    """Whatever has keys, beside the browser itself."""
    from deepx_graph.tui.bars import Prompt
    from deepx_graph.tui.views.base import view_class, views
    from deepx_graph.tui.views.panes import Inspector, Outline, SourcePane
    from deepx_graph.tui.views.rows import TextTable, VirtualList

    shown = ((title, view_class(name)) for name, (title, _, _) in views().items())
    return [("Lists and tables", VirtualList), ("Tables", TextTable), *shown, ("Inspector", Inspector), ("Source", SourcePane),
            ("Outline", Outline), ("Input line", Prompt), ("Help", HelpScreen), ("Messages", MessageScreen)]


def help_text(parts: Sequence[tuple[str, type]]) -> Text:
    """All keys by part, then the query language."""
    from deepx_graph.tui.views.base import view_bindings

    text = Text()
    _table(text, "Views", [(b.key, b.description.removeprefix("View: ")) for b in view_bindings()])
    for title, owner in parts:
        rows = [(key_text(b.key), b.tooltip or b.description) for b in bindings_of(owner)]
        if rows:
            _table(text, title, rows)
    _table(text, "Query language (/)", [*describe(), ("and or not ( )", "join terms; terms in a row must all hold")])
    return text


def _table(text: Text, title: str, rows: Iterable[tuple[str, str]]) -> None:
    text.append(f"{title}\n", "bold underline")
    for key, what in rows:
        text.append(f"  {key:<22}", "bold").append(f" {what}\n")
    text.append("\n")


class HelpScreen(ModalScreen[None]):
    """Shows the help until it is closed."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll {
        width: 90%; max-width: 110; height: 90%; border: round $primary; background: $surface; padding: 0 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "close", "Close"),
        Binding("j", "scroll(1)", "Down", show=False),
        Binding("k", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, parts: Sequence[tuple[str, type]]) -> None:
        super().__init__()
        self.parts = parts

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Keys"
            yield Static(help_text(self.parts), markup=False)

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


class MessageScreen(ModalScreen[None]):
    """Shows a text, such as a diagnostic with its carets, until it is closed."""

    DEFAULT_CSS = """
    MessageScreen { align: center middle; }
    MessageScreen VerticalScroll {
        width: 90%; max-width: 130; height: auto; max-height: 80%; border: round $warning; background: $surface; padding: 0 1;
    }
    MessageScreen .-carets { width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,space", "close", "Close")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.heading, self.text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = self.heading
            # a diagnostic with carets below a line is not wrapped: they would no longer stand below what they mark
            yield Static(Text(self.text), markup=False, classes="-carets" if "^" in self.text else "")

    def action_close(self) -> None:
        self.dismiss()


Command = tuple[str, str, Callable[[], object]]


class Commands(Provider):
    """The commands of the browser."""

    @property
    def browser(self) -> Browser:
        return cast("Browser", self.app)

    def commands(self) -> Iterator[Command]:
        """Title, help, what to do."""
        from deepx_graph.tui.views.base import view_bindings

        browser = self.browser
        for b in (*view_bindings(), *bindings_of(type(browser))):
            yield b.description, f"key {key_text(b.key)}", partial(self._do, b.action)
        for name, text in PIPELINES.items():
            yield f"Optimise: {name}", text or "nothing", partial(browser.document.optimise, name)
        for p in REGISTRY.values():
            yield f"Run pass {p.name}", p.summary(), partial(browser.document.optimise, p.name)
        yield "Gradient program", "differentiate what is looked at", browser.document.differentiate
        if browser.session is not None:
            for f in browser.session.module.functions[:200]:
                yield f"Function {plain(f.name, 60)}", f"{len(f.nodes)} nodes", partial(browser.selection.go_to_function, f.name)

    async def _do(self, action: str) -> None:
        await self.app.run_action(action)

    async def discover(self) -> Hits:
        """All commands, before anything is typed."""
        for title, help, call in self.commands():
            yield DiscoveryHit(title, call, help=help)

    async def search(self, query: str) -> Hits:
        """The commands that match."""
        matcher = self.matcher(query)
        for title, help, call in self.commands():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), call, help=help)
