"""How long pictures take, in seconds of processor time: a layout of 300 boxes, and pages of 10 000 and 100 000 nodes.

    python -m bench.pictures                a generated program
    python -m bench.pictures FILE ...       files of your own

Reading is told apart from what follows; a page is written whole, with all that is known of each node. `units` are loops of plain
Python on the same machine at the same time (`unit`), so that two machines, or one under load, can be compared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import deepx_graph as dx
from bench.tui import program
from deepx_graph.ir import Module
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import explore
from deepx_graph.viz.draw import view_of
from deepx_graph.viz.folding.fold import fold
from deepx_graph.viz.picture.layered import lay_out

BOXES = 300


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a call, and what it gave."""
    start = time.process_time()
    found = run()
    return time.process_time() - start, found


def unit() -> float:
    """Processor time of a loop that makes and stores a quarter of a million tuples: about 0.1 s."""
    return seconds(lambda: {k: (k, str(k)) for k in range(250_000)})[0]


def report(what: str, module: Module) -> None:
    """A line for each step that a picture takes."""
    here = (unit() + unit()) / 2
    spent, view = seconds(lambda: view_of(module, None, None, None, 2, collapse=False, title="", tooltips=False))
    rows = [("view", spent)]
    spent, folded = seconds(lambda: fold(view, BOXES))
    rows.append((f"fold to {len(folded.nodes)} boxes", spent))
    rows.append((f"layout of {len(folded.nodes)} boxes", seconds(lambda: lay_out(folded))[0]))
    spent, page = seconds(lambda: explore([("", Session(module))]))
    rows.append((f"page, {len(page.data) / 1e6:.1f} MB", spent))
    for name, value in rows:
        print(f"{what:<24}{name:<26}{value:8.2f} s{value / here:10.1f} units")


def main(files: list[str]) -> None:
    modules: list[tuple[str, Callable[[], Module]]] = [(path, lambda path=path: dx.load(path)) for path in files]  # type: ignore[misc]
    for nodes in () if files else (10_000, 100_000):
        text = program(nodes)
        modules.append((f"{nodes:,} nodes", lambda text=text: dx.loads(text)))  # type: ignore[misc]
    for what, load in modules:
        spent, module = seconds(load)
        print(f"{what:<24}{'reading':<26}{spent:8.2f} s")
        report(what, module)


if __name__ == "__main__":
    main(sys.argv[1:])
