"""What the command palette offers: every key's action by name, every pass and pipeline, every function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from deepx_graph.passes import REGISTRY
from deepx_graph.passes.pipeline import PIPELINES
from deepx_graph.tui.formatting import plain
from deepx_graph.tui.screens import bindings_of, key_text

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser

Command = tuple[str, str, Callable[[], object]]


class Commands(Provider):
    """The commands of the browser."""

    @property
    def browser(self) -> Browser:
        return cast("Browser", self.app)

    def commands(self) -> Iterator[Command]:
        """Title, help, what to do."""
        browser = self.browser
        for b in bindings_of(type(browser)):
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
