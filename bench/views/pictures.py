"""How long pictures take, each figure beside its bound: a layout of 300 boxes, pages of 10 000 and 100 000 nodes; and, where
there is a Chromium, how long these pages take in it, and a frame of one that is panned.

    python -m bench.views.pictures                a generated program
    python -m bench.views.pictures FILE ...       files of your own

Each line has seconds of processor time and of a clock; a bound is met when the processor time is below it, which other work on
the machine does not lengthen, and `clock too` says that the clock was as well. Reading is told apart from what follows; a page is
written whole, with all that is known of each node. In the browser, which draws without a graphics card here, the clock runs from
the start of the navigation; 60 frames a second leave 16.7 ms for each, of which the processor time is what the page computes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import deepx_graph as dx
from bench.views.tui import program
from deepx_graph.ir import Module
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import explore
from deepx_graph.viz.draw import view_of
from deepx_graph.viz.folding.fold import fold
from deepx_graph.viz.picture.layered import lay_out
from tests.support.browser import HOW_TO_GET, Browser, executable

BOXES = 300
LAYOUT, READABLE, COMPLETE, LARGE, FRAME, SIZE = 0.5, 1.0, 3.0, 10.0, 1 / 60, 5e6
"""Bounds: seconds for a layout of 300 boxes, until a page of 10 000 nodes can be read and is complete, for one of 100 000, for a
frame; bytes of a page."""

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

PAINTED = """new Promise(done => {
  const seen = () => performance.getEntriesByName('first-contentful-paint')[0];
  if (seen()) done(seen().startTime);
  else new PerformanceObserver(() => { if (seen()) done(seen().startTime); }).observe({ type: 'paint', buffered: true });
})"""
"""Milliseconds until the first picture; the entry comes some frames after it."""


class Measured(NamedTuple):
    """Seconds of processor time, and of a clock."""

    processor: float
    clock: float


def seconds(run: Callable[[], Any]) -> tuple[Measured, Any]:
    """What a call took, and what it gave."""
    start, clock = time.process_time(), time.perf_counter()
    found = run()
    return Measured(time.process_time() - start, time.perf_counter() - clock), found


def row(what: str, step: str, taken: Measured, most: float | None = None, unit: float = 1.0) -> None:
    """One line: what was measured, beside its bound where there is one."""
    name = "s" if unit == 1.0 else "ms"
    line = f"{what:<20}{step:<32}{taken.processor / unit:8.2f} {name} processor {taken.clock / unit:8.2f} {name} clock"
    if most is not None:
        met = "not met" if taken.processor > most else "met" + (", clock too" if taken.clock <= most else "")
        line += f"   bound {most / unit:.1f} {name}: {met}"
    print(line, flush=True)


def report(what: str, module: Module, nodes: int) -> None:
    """A line for each step that a picture takes."""
    shown, view = seconds(lambda: view_of(module, None, None, None, 2, collapse=False, title="", tooltips=False))
    row(what, "view", shown)
    folded_in, folded = seconds(lambda: fold(view, BOXES))
    row(what, f"fold to {len(folded.nodes)} boxes", folded_in)
    unfolded = view.only(n.id for n in view.nodes[:BOXES])
    row(what, f"layout of {len(unfolded.nodes)} boxes", seconds(lambda: lay_out(unfolded))[0], LAYOUT)
    written, page = seconds(lambda: explore([("", Session(module))]))
    row(what, "page written", written, LARGE if nodes > 10_000 else COMPLETE)
    size = len(page.data)
    print(f"{what:<20}{'page':<32}{size / 1e6:8.2f} MB   bound {SIZE / 1e6:.0f} MB: {'met' if size <= SIZE else 'not met'}")
    if executable() is not None:
        in_browser(what, page.data, LARGE if nodes > 10_000 else READABLE, LARGE if nodes > 10_000 else COMPLETE)


def in_browser(what: str, page: bytes, readable: float, complete: float) -> None:
    """What a reader waits for: the first picture, all of it, and frames while it moves, as it opens and with all boxes open."""
    with tempfile.TemporaryDirectory() as scratch, Browser(Path(scratch) / "profile") as browser:
        file = Path(scratch) / "page.html"
        file.write_bytes(page)
        browser.processor_time()
        browser.open(file)
        browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        clock, spent = browser.run("performance.now()") / 1e3, browser.processor_time()
        row(what, "in a browser: first picture", Measured(spent, browser.run(PAINTED) / 1e3), readable)
        row(what, "in a browser: complete", Measured(spent, clock), complete)
        for boxes in ("first picture", "open all"):
            if boxes == "open all":
                browser.run("panes[0].openAll(true), null")
            browser.run("new Promise(done => setTimeout(done, 400))")
            before = browser.processor_time()
            times = browser.run(PAN)
            each = (browser.processor_time() - before) / FRAMES
            count = browser.run("panes[0].scene.boxes.length")
            row(what, f"a frame of {count} boxes", Measured(each, times[len(times) // 2] / 1e3), FRAME, 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    files: list[str] = parser.parse_args().files
    if executable() is None:
        print(HOW_TO_GET)
    modules: list[tuple[str, Callable[[], Module]]] = [(Path(f).name, lambda f=f: dx.load(f)) for f in files]  # type: ignore[misc]
    for nodes in () if files else (10_000, 100_000):
        text = program(nodes)
        modules.append((f"{nodes:,} nodes", lambda text=text: dx.loads(text)))  # type: ignore[misc]
    for what, load in modules:
        taken, module = seconds(load)
        row(what, "reading", taken)
        report(what, module, sum(len(f.nodes) for f in module.functions))


if __name__ == "__main__":
    main()
