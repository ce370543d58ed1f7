"""What tests of the browser share: opening it on a program, pressing keys, waiting for its work, reading its screen.

No wait is for a time: textual's own pilot takes a process that gets no processor for one that has nothing to do, and its pauses
end before a key has arrived on a machine that is busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from textual._context import message_hook
from textual.events import Key
from textual.keys import key_to_character
from textual.message import Message
from textual.pilot import Pilot

from deepx_graph.ir import Module
from deepx_graph.session.session import Session
from deepx_graph.tui.app import Browser
from deepx_graph.tui.bars import Prompt

KEYS = {" ": "space", "]": "right_square_bracket", ")": "right_parenthesis", "*": "asterisk", "}": "right_curly_bracket"}
"""What textual calls the keys that are no letters."""

ROUNDS = 10_000
"""Rounds of messages after which a browser counts as one that never comes to rest."""


class Traffic:
    """Counts the messages that the parts of all apps receive."""

    def __init__(self) -> None:
        self.received = 0

    def __call__(self, message: Message) -> None:
        self.received += 1


TRAFFIC = Traffic()
message_hook.set(TRAFFIC)  # for every app of this process: tasks inherit the context in which they are made


@asynccontextmanager
async def browser(module: Module | Session | str, size: tuple[int, int] = (120, 40),
                  path: str = "program.hlo") -> AsyncIterator[Pilot[int]]:
    """The browser on a module or a session, or on the program in a file."""

    def opened() -> Session:
        if isinstance(module, Session):
            return module
        return Session.open(module) if isinstance(module, str) else Session(module, path=path)

    app = Browser(opened, path if not isinstance(module, str) else module)
    async with app.run_test(size=size) as pilot:
        app.animation_level = "none"
        await settled(pilot)
        yield pilot


async def settled(pilot: Pilot[int]) -> None:
    """Waits until nothing is under way: no work, no message that somebody has not dealt with, nothing to be painted."""
    app = app_of(pilot)
    for _ in range(ROUNDS):
        await app.workers.wait_for_complete()
        await drained()
        parts = [app, *app.screen.walk_children(with_self=True)]
        received = TRAFFIC.received
        await pilot.pause(0)  # one message through the queue of each part, behind all that is there; then it paints
        quiet = TRAFFIC.received - received == len(parts) and not any(p.message_queue_size for p in parts)
        if quiet and not app.workers and not app.jobs.running:
            return
    raise AssertionError("the browser never comes to rest")


async def drained() -> None:
    """Lets messages be received until none are: the rounds of `settled` are the surer, and the dearer."""
    received = -1
    while received != TRAFFIC.received:
        received = TRAFFIC.received
        for _ in range(3):
            await asyncio.sleep(0)


async def until(pilot: Pilot[int], condition: Callable[[], bool]) -> None:
    """Waits for what may come about after the app has ended, or while it ends."""
    for _ in range(ROUNDS):
        if condition():
            return
        await pilot.app.workers.wait_for_complete()
        await pilot.pause(0)
    raise AssertionError("it never comes about")


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Presses keys, and waits after each; `=text` puts a text into the input line, but for its last letter, which is typed."""
    for key in keys:
        if len(key) > 1 and key.startswith("="):
            line = pilot.app.query_one(Prompt)
            line.value = key[1:-1]
            line.cursor_position = len(line.value)
            key = key[-1]
        name = KEYS.get(key, key)
        pilot.app.post_message(Key(name, key_to_character(name)))
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

SEA = """sea 1
entry @f
func public @f(%x: f32[4,8]) -> (%y: f32[4,8]) {
  %hidden = tanh %x : f32[4,8]
  %gate = exponential %hidden : f32[4,8]
  %y = multiply %hidden, %gate : f32[4,8]
  return %y
}
"""


def piloted(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))  # type: ignore[arg-type]

    return run


def program(folder: Path) -> str:
    path = folder / "p.sea"
    path.write_text(SEA)
    return str(path)
