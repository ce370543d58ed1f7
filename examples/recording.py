"""Draws the recording at the top of README.md: the terminal browser at work, as one animated picture of text.

    python examples/recording.py docs/images/recording.svg

Each frame is a screen of the browser after some keys on examples/resnet18.hlo; the style sheet of the picture shows one after the
other, without a script. No frame shows times, so that the picture is the same wherever it is made.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from tour import SIZE, settled

from deepx_graph.session.session import Session
from deepx_graph.tui.app import Browser
from deepx_graph.tui.bars import Prompt

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "examples/resnet18.hlo"

FRAMES: tuple[tuple[str, ...], ...] = (
    (),
    ("slash", "=scope:ResBlock_3 op:convolution", "enter"),
    ("2",),
    ("down",),
    ("1", "4", "p", "=default", "enter", "r"),
    ("1",),
    ("o", "o"),
)
"""The keys before each frame; `=text` goes into the input line."""

SECONDS = 2.5
"""How long each frame is shown."""


async def screens(program: str) -> list[str]:
    """The browser after the keys of each frame, as SVG."""
    app = Browser(lambda: Session.open(program), program)
    found = []
    async with app.run_test(size=SIZE) as pilot:
        await settled(pilot)
        for keys in FRAMES:
            for key in keys:
                if key.startswith("="):
                    pilot.app.query_one(Prompt).value = key[1:]
                else:
                    await pilot.press(key)
                await settled(pilot)
            app.clear_notifications()
            await pilot.pause()
            found.append(app.export_screenshot())
    return found


def animated(frames: list[str]) -> str:
    """Pictures of one size as one picture that shows one after the other."""
    box = re.search(r'viewBox="([^"]*)"', frames[0])
    assert box is not None
    share = 100 / len(frames)
    rules = [
        f"@keyframes frame {{ 0%, {share:.3f}% {{ visibility: visible }} {share + 0.001:.3f}%, 100% {{ visibility: hidden }} }}",
        f".frame {{ visibility: hidden; animation: frame {SECONDS * len(frames):g}s steps(1) infinite }}",
        "@media (prefers-reduced-motion: reduce) { .frame { animation: none } .frame:first-of-type { visibility: visible } }",
    ]
    parts = []
    for k, frame in enumerate(frames):
        text = re.sub(r"@font-face \{.*?\}\n", "", frame, flags=re.DOTALL)
        text = re.sub(r"terminal-\d+", f"frame{k}", text)  # classes of their own, the same in every making
        text = "\n".join(line.strip() for line in text.split("\n") if line.strip() and not line.startswith("<!--"))
        parts.append(f'<g class="frame" style="animation-delay: {SECONDS * k:g}s">{text}</g>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1]}" role="img" aria-label="The terminal browser at work">\n'
            f"<style>{' '.join(rules)}</style>\n" + "\n".join(parts) + "\n</svg>\n")


def recording() -> str:
    """The picture."""
    os.chdir(ROOT)
    return animated(asyncio.run(screens(PROGRAM)))


def main(out: str) -> None:
    """Writes it."""
    target = Path(out).resolve()
    target.write_text(recording(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
