"""Draws the pictures of README.md and docs/viz.md: `make pictures`.

    python examples/pictures.py docs/images

The pictures of docs/tour.md are screenshots, which `examples/tour.py` takes.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import deepx_graph as dx

ROOT = Path(__file__).resolve().parents[1]
BOXES = 40
"""Of the folded picture."""

NETWORK_LAYERS = 12


def attention() -> dx.Module:
    """The attention of the transformer block, optimised."""
    block = dx.load("examples/transformer_block.dx")  # the tooltips name the file as it is called here
    return dx.optimize(block.with_entry("attention"), "internalize,inline,dce,default")


def network() -> dx.Module:
    """Equal layers of norm, attention and mlp, in a row."""
    sys.path.insert(0, str(ROOT))
    from bench.models.gpt import gpt

    return dx.optimize(gpt(NETWORK_LAYERS), "clean")


def example_of_the_page() -> str:
    """The program of docs/viz.md, which draws the pictures of control flow."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "viz.md").read_text(encoding="utf-8"), re.DOTALL)
    return str(code)


def main(folder: str) -> None:
    """Draws all of them into a folder."""
    target = Path(folder).resolve()
    os.chdir(ROOT)
    block, layers, example = attention(), network(), example_of_the_page()
    resnet = dx.load("examples/resnet18.hlo")  # as for the block
    os.chdir(target)
    for theme, name in (("light", "attention.svg"), ("dark", "attention-dark.svg")):
        dx.draw(block, name, title="", theme=theme, timeout=600)
    dx.draw(layers, "folded.svg", title="", max_nodes=BOXES, timeout=600)
    dx.draw(resnet, "resnet18.svg", title="")
    exec(compile(example, "docs/viz.md", "exec"), {})


if __name__ == "__main__":
    main(sys.argv[1])
