"""Draws the pictures of docs/tour.md: five tasks in the terminal browser, done by keys on real programs.

    python examples/tour.py FOLDER docs/images

FOLDER has HLO texts that JAX printed: model_mlp_train_sgd.hlo, model_softmax_regression_loop.hlo, model_attention.hlo,
model_mlp.hlo and model_mlp.optimised.hlo. Times in the pictures are those of the machine that draws them.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from textual.pilot import Pilot

from deepx_graph.session.session import Session
from deepx_graph.tui.app import Browser
from deepx_graph.tui.bars import Prompt

SIZE = (100, 30)

TASKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tour-list": ("model_attention.hlo", ("slash", "=op:exponential", "enter")),
    "tour-map": ("model_attention.hlo", ("slash", "=op:exponential", "enter", "2")),
    "tour-expensive": ("model_mlp_train_sgd.hlo", ("4", "r", "5", "r", "pagedown")),
    "tour-why": ("model_softmax_regression_loop.hlo", ("4", "p", "=clean", "enter", "r", "1", "slash", "=name:add.13", "enter", "w",
                                                       "slash", "=name:mul.4", "enter", "w")),
    "tour-removed": ("model_attention.hlo", ("4", "r", "u", "1", "slash", "=name:broadcast_in_dim.2", "enter", "x")),
    "tour-compare": ("model_mlp.hlo", ("7", "o", "=model_mlp.optimised.hlo", "enter")),
    "tour-nan": ("model_attention.hlo", ("5", "enter", "=1e38", "enter", "r")),
    "tour-value": ("model_attention.hlo", ("5", "enter", "=1e38", "enter", "r", "exclamation_mark", "6")),
}  # fmt: skip
"""The pictures: the program, and the keys; `=text` goes into the input line."""


async def settled(pilot: Pilot[int]) -> None:
    """Waits until no work is under way."""
    app = pilot.app
    assert isinstance(app, Browser)
    for _ in range(400):
        await pilot.pause(0.01)
        if app.session is not None and not app.jobs.running and not app.workers:
            break
    await pilot.pause()


async def picture(program: str, keys: tuple[str, ...]) -> str:
    """The screen after the keys, as SVG that asks for nothing from elsewhere."""
    app = Browser(lambda: Session.open(program), program)
    async with app.run_test(size=SIZE) as pilot:
        await settled(pilot)
        for key in keys:
            if key.startswith("="):
                pilot.app.query_one(Prompt).value = key[1:]
            else:
                await pilot.press(key)
            await settled(pilot)
        app.clear_notifications()
        await pilot.pause()
        return re.sub(r"@font-face \{.*?\}\n", "", app.export_screenshot(), flags=re.DOTALL)


def main(folder: str, out: str) -> None:
    target = Path(out).resolve()
    os.chdir(folder)
    for name, (program, keys) in TASKS.items():
        (target / f"{name}.svg").write_text(asyncio.run(picture(program, keys)))
        print(name)


if __name__ == "__main__":
    main(*sys.argv[1:3])
