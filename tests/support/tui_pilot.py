"""What tests of the browser share: opening it on a program, pressing keys, waiting for its work, reading its screen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from deepx_graph.ir import Module
from deepx_graph.session.session import Session
from deepx_graph.tui.app import Browser
from deepx_graph.tui.prompt import Prompt

KEYS = {" ": "space", "]": "right_square_bracket", ")": "right_parenthesis", "*": "asterisk", "}": "right_curly_bracket"}
"""What textual calls the keys that are no letters."""


@asynccontextmanager
async def browser(module: Module | str, size: tuple[int, int] = (120, 40), path: str = "program.hlo") -> AsyncIterator[Pilot[int]]:
    """The browser on a module, or on the program in a file."""

    def opened() -> Session:
        return Session.open(module) if isinstance(module, str) else Session(module, path=path)

    app = Browser(opened, path if not isinstance(module, str) else module)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        yield pilot


async def settled(pilot: Pilot[int]) -> None:
    """Waits until nothing is under way."""
    for _ in range(200):
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        app = pilot.app
        if isinstance(app, Browser) and not app.is_working and not app._stale and not app.workers:
            return


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Presses keys, and waits after each; `=text` puts a text into the input line, but for its last letter, which is typed."""
    for key in keys:
        if len(key) > 1 and key.startswith("="):
            line = pilot.app.query_one(Prompt)
            line.value = key[1:-1]
            line.cursor_position = len(line.value)
            key = key[-1]
        await pilot.press(KEYS.get(key, key))
        await settled(pilot)


def screen(pilot: Pilot[int]) -> list[str]:
    """The lines on the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    return ["".join(s.text for s in strip).rstrip() for strip in strips]


def shown(pilot: Pilot[int]) -> str:
    """The screen as one text."""
    return "\n".join(screen(pilot))


def app_of(pilot: Pilot[int]) -> Browser:
    """The browser."""
    assert isinstance(pilot.app, Browser)
    return pilot.app
