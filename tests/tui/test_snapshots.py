"""How every screen of the browser looks, at 80x24 and 120x40, in a dark and a light theme: SVG pictures to compare with.

`pytest tests/tui/test_snapshots.py --snapshot-update` draws them anew; look at what has changed before you keep it. Nothing in the
pictures depends on time, machine or chance: figures of a run are set to fixed ones.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from textual.pilot import Pilot

import deepx_graph as dx
from deepx_graph.errors import Source
from deepx_graph.session.programs import loads
from deepx_graph.session.query.facts import Measured
from deepx_graph.session.session import Session
from deepx_graph.tui.app import Browser
from tests.support.tui_pilot import app_of, press, settled

PROGRAM = """sea 1
entry @main
func public @main(%x: f32[4,8], %w: f32[8,8], %n: i32[]) -> (%y: f32[4,8], %total: f32[]) {
  %zero = constant dense<0> : i32[]
  %one = constant dense<1> : i32[]
  %half = constant dense<0.5> : f32[]
  %none = constant dense<0.0> : f32[]
  %loop = loop_begin %zero, %x {loop = 0} : (i32[], f32[4,8])
  %i = phi %loop[0] : i32[]
  %state = phi %loop[1] : f32[4,8]
  %more = compare LT, %i, %n : bool[]
  %next = add %i, %one : i32[]
  %mixed = dot_general %state, %w, contracting = [1] x [0] : f32[4,8]
  %scaled = multiply %mixed, %half : f32[4,8]
  %kept = maximum %scaled, %none : f32[4,8]
  %done = loop_end %loop, %more, %next, %kept : (i32[], f32[4,8])
  %y = proj %done[1] : f32[4,8]
  %again = multiply %y, %half : f32[4,8]
  %twice = add %again, %again : f32[4,8]
  %total = reduce %twice, %none, dims = [0, 1], by func @sum(%a: f32[], %b: f32[]) -> (%c: f32[]) {
    %c = add %a, %b : f32[]
    return %c
  } : f32[]
  return %y, %total
}
"""
PIPELINE = "inline,sccp,cse,simplify,dce,fuse"
"""Of its own, so that the pictures stay as they are when the default pipeline changes."""

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
THEMES = ("textual-dark", "textual-light")


async def optimised(pilot: Pilot[int]) -> None:
    """Runs a pipeline, and sets the times of its passes to 1 ms each."""
    app = app_of(pilot)
    assert app.session is not None
    version = app.session.optimise(PIPELINE)
    assert version.record is not None
    version.record.stages[:] = [dataclasses.replace(s, seconds=1e-3) for s in version.record.stages]
    app.document.push(version)
    await settled(pilot)


async def ran(pilot: Pilot[int]) -> None:
    """Runs the program, and sets the times of its kernels to 1, 2, 3 ... ms."""
    session = app_of(pilot).session
    assert session is not None
    result = session.run(session.inputs({"x": "iota", "w": "ones", "n": "2"}), engine="numpy")
    order = sorted(result.measured, key=lambda n: n.serial)
    whole = sum(range(1, len(order) + 1))
    measured = {
        n: Measured(k * 1e-3, k / whole, 1 if n.inputs else 0, result.measured[n].nans, result.measured[n].infs)
        for k, n in enumerate(order, 1)
    }
    session.accept(dataclasses.replace(result, seconds=0.05, measured=measured))
    app_of(pilot).lanes.overlay = "time"


async def _list(pilot: Pilot[int]) -> None:
    await press(pilot, "j", "j")


async def _panes(pilot: Pilot[int]) -> None:
    await press(pilot, "slash", "=name:kept", "enter", "s", "t")


async def _map(pilot: Pilot[int]) -> None:
    await press(pilot, "slash", "=name:scaled", "enter", "2")


async def _passes(pilot: Pilot[int]) -> None:
    await optimised(pilot)
    await press(pilot, "3", "full_stop", "full_stop")


async def _pipeline(pilot: Pilot[int]) -> None:
    await press(pilot, "4", "p", f"={PIPELINE}", "enter", "r", "G")


async def _run(pilot: Pilot[int]) -> None:
    await ran(pilot)
    await press(pilot, "5")
    pilot.app.query_one("#run").show_version()  # type: ignore[attr-defined]


async def _overlay(pilot: Pilot[int]) -> None:
    await ran(pilot)
    await press(pilot, "g", "j")


async def _value(pilot: Pilot[int]) -> None:
    await ran(pilot)
    await press(pilot, "slash", "=name:kept", "enter", "6")


async def _diff(pilot: Pilot[int]) -> None:
    await optimised(pilot)
    await press(pilot, "7")


async def _query(pilot: Pilot[int]) -> None:
    await press(pilot, "slash", "=op:multiply users>0", "enter", "slash")


async def _mistake(pilot: Pilot[int]) -> None:
    await press(pilot, "slash", "=op:multiply (user>2", "enter")


async def _help(pilot: Pilot[int]) -> None:
    await press(pilot, "question_mark")


SCREENS: dict[str, Callable[[Pilot[int]], Awaitable[None]]] = {
    "list": _list, "panes": _panes, "map": _map, "passes": _passes, "pipeline": _pipeline, "run": _run, "overlay": _overlay,
    "value": _value, "diff": _diff, "query": _query, "mistake": _mistake, "help": _help,
}  # fmt: skip


SAMPLE = (("list", "80x24"), ("map", "120x40"), ("passes", "80x24"), ("run", "120x40"), ("help", "80x24"))
"""The screens that are always looked at, in the dark theme; the long suite looks at all of them."""


def cases() -> Iterator[Any]:
    for name, size, theme in itertools.product(SCREENS, SIZES, THEMES):
        always = (name, size) in SAMPLE and theme == THEMES[0]
        yield pytest.param(name, size, theme, marks=() if always else pytest.mark.conformance, id=f"{name}-{size}-{theme}")


@pytest.mark.parametrize(("name", "size", "theme"), cases())
def test_screen(name: str, size: str, theme: str, snap_compare: Any) -> None:
    def opened() -> Session:
        return Session(loads(Source("program.sea", PROGRAM)).module, path="program.sea")

    async def prepare(pilot: Pilot[int]) -> None:
        pilot.app.theme = theme
        pilot.app.animation_level = "none"
        await settled(pilot)
        await SCREENS[name](pilot)
        pilot.app.query("Input").set(disabled=False)
        for line in pilot.app.query("Input"):
            line.cursor_blink = False  # type: ignore[attr-defined]
        await settled(pilot)

    assert snap_compare(Browser(opened, "program.sea"), terminal_size=SIZES[size], run_before=prepare)


def test_the_program_of_the_pictures_is_one() -> None:
    assert len(dx.loads(PROGRAM).entry.nodes) == 20
