"""How long pictures take, in seconds of processor time: a layout of 300 boxes, and pages of 10 000 and 100 000 nodes; and, where
there is a Chromium, how long these pages take in it, and a frame of one that is panned.

    python -m bench.pictures                a generated program
    python -m bench.pictures FILE ...       files of your own

Reading is told apart from what follows; a page is written whole, with all that is known of each node. `units` are loops of plain
Python on the same machine at the same time (`unit`), so that two machines, or one under load, can be compared. In the browser,
which draws without a graphics card here, seconds to the first picture are those of a clock, which other work on the machine
lengthens; 60 frames a second leave 16.7 ms for each, of which `main thread` is what the page itself computes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deepx_graph as dx
from bench.tui import program
from deepx_graph.ir import Module
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import explore
from deepx_graph.viz.draw import view_of
from deepx_graph.viz.folding.fold import fold
from deepx_graph.viz.picture.layered import lay_out
from tests.support.browser import HOW_TO_GET, Browser, executable

BOXES = 300

FRAMES = 180

PAN = f"""new Promise(done => {{
  const pane = panes[0], times = [];
  let k = 0, last = performance.now();
  const step = now => {{
    times.push(now - last);
    last = now;
    pane.pan(k % 60 < 30 ? 6 : -6, k % 40 < 20 ? 4 : -4);
    if (++k < {FRAMES}) requestAnimationFrame(step); else done(times.slice(1).sort((a, b) => a - b));
  }};
  requestAnimationFrame(step);
}})"""
"""Moves the picture with every frame; the milliseconds that frames took, the shortest first."""

PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


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
    if executable() is not None:
        in_browser(what, page.data)


def in_browser(what: str, page: bytes) -> None:
    """What a reader waits for: the first picture, and frames while it moves, first as it opens, then with all boxes open."""
    with tempfile.TemporaryDirectory() as scratch, Browser(Path(scratch) / "profile") as browser:
        file = Path(scratch) / "page.html"
        file.write_bytes(page)
        browser.processor_time()
        browser.open(file)
        browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        spent = browser.processor_time()
        print(f"{what:<24}{'in a browser':<26}{browser.run(PAINTED) / 1e3:8.2f} s, {spent:.2f} s of processor time")
        for boxes in ("first picture", "open all"):
            if boxes == "open all":
                browser.run("panes[0].openAll(true), null")
            browser.run("new Promise(done => setTimeout(done, 400))")
            before = browser.processor_time()
            times = browser.run(PAN)
            each = (browser.processor_time() - before) / FRAMES
            count = browser.run("panes[0].scene.boxes.length")
            print(f"{what:<24}{f'a frame of {count} boxes':<26}{times[len(times) // 2]:8.1f} ms, main thread {each * 1e3:.1f} ms")


def main(files: list[str]) -> None:
    if executable() is None:
        print(HOW_TO_GET)
    modules: list[tuple[str, Callable[[], Module]]] = [(Path(f).name, lambda f=f: dx.load(f)) for f in files]  # type: ignore[misc]
    for nodes in () if files else (10_000, 100_000):
        text = program(nodes)
        modules.append((f"{nodes:,} nodes", lambda text=text: dx.loads(text)))  # type: ignore[misc]
    for what, load in modules:
        spent, module = seconds(load)
        print(f"{what:<24}{'reading':<26}{spent:8.2f} s")
        report(what, module)


if __name__ == "__main__":
    main(sys.argv[1:])
