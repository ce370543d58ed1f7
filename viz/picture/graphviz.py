"""Laying out DOT text with Graphviz, in a child process that can be stopped.

The engine is `dot` where it is installed, else the one in pygraphviz's wheel. Text goes in through stdin only. The processor time
and the memory of the child are limited; not its wall-clock time, which would let the load of the machine decide which layout is
taken. A layout that fails is tried again with faster settings; the caller decides what comes after that.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

from deepx_graph.errors import RunError, is_interrupt
from deepx_graph.progress import stage
from deepx_graph.viz.view.model import View, levels

Speed = Literal["full", "fast"]

FULL_UP_TO = 500
"""Nodes up to which the best layout is tried first."""

FULL_SPAN = 2500
"""Layers that all edges together may cross for that: the engine places a dummy node on each crossing."""

MEGABYTES = 2048
SHARE_OF_FULL = 0.6
"""Of the time there is, how much the best layout may take before the fast one gets the rest."""

BUSY = 4.0
"""How many times longer a child may take by the clock, in case it waits for something that never comes."""

OUT_OF_TIME = -getattr(signal, "SIGXCPU", 0) or None
"""How a child ends that has used up its processor time; there is no such limit on Windows."""

CHILD = Path(__file__).with_name("graphviz_child.py")
INSTALL = "install Graphviz (the `dot` program) or the Python package pygraphviz, whose wheel brings the engine along"


class LayoutError(RunError):
    """The layout engine is missing, failed, or did not finish in time."""


def is_large(view: View) -> bool:
    """Whether the best layout would take too long."""
    level = levels(view)
    span = sum(abs(level[e.target] - level[e.source]) for e in view.edges)
    return len(view.nodes) > FULL_UP_TO or span > FULL_SPAN


def engine() -> list[str] | None:
    """The layout engine as arguments for the child: the path of `dot`, nothing for pygraphviz; None when there is neither."""
    dot = shutil.which("dot")
    if dot:
        return [dot]
    return [] if importlib.util.find_spec("pygraphviz") else None


def processor_seconds() -> float:
    """The processor time that this process has taken, with that of the layouts it has waited for."""
    return sum(os.times()[:4])


def render(dot_text: str, format: str, timeout: float = 20.0, *, large: bool = False) -> tuple[bytes, tuple[str, ...]]:
    """The picture in `format` (svg, png) and notes on how it came about; the best settings are not tried when it is `large`.

    Raises LayoutError when no engine is there or none of its settings gets done within `timeout` seconds of processor time.
    """
    found = engine()
    stage("layout")
    if found is None:
        raise LayoutError(f"no layout engine found: {INSTALL}")
    tries: list[tuple[Speed, float]] = [("full", timeout * SHARE_OF_FULL), ("fast", timeout * (1 - SHARE_OF_FULL))]
    if large:
        tries = [("fast", timeout)]
    notes: list[str] = []
    for speed, seconds in tries:
        try:
            data = _run(found, dot_text, format, speed, seconds)
        except LayoutError as e:
            notes.append(f"{speed} layout: {e.diagnostics[0].message}")
        else:
            if speed == "fast":
                notes.append("drawn with fast layout settings: straight edges, more crossings")
            return data, tuple(notes)
    raise LayoutError("; ".join(notes))


def _run(found: list[str], dot_text: str, format: str, speed: Speed, seconds: float) -> bytes:
    """One layout. `-P` keeps the current folder out of the child's import path."""
    command = [sys.executable, "-P", str(CHILD), format, speed, str(MEGABYTES), str(math.ceil(seconds)), *found]
    late = LayoutError(f"not finished in {seconds:.3g} s")
    try:
        done = subprocess.run(command, input=dot_text.encode("utf-8"), capture_output=True, timeout=seconds * BUSY, check=False)
    except subprocess.TimeoutExpired:
        raise late from None
    except OSError as e:
        if is_interrupt(e):
            raise
        raise LayoutError(f"cannot start the layout engine: {e}") from None
    if done.returncode == OUT_OF_TIME:
        raise late
    if done.returncode or not done.stdout:
        raise LayoutError(f"the engine failed (status {done.returncode}){_last_line(done.stderr)}")
    return done.stdout


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""
