"""The views of the browser beside the list: time line, pipeline, run, value, comparison, export."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.session.instrumented import statistics
from deepx_graph.session.programs import pipeline_items
from deepx_graph.session.session import Session
from deepx_graph.tui.formatting import column_plot, cost_piece, histogram, row_pieces
from deepx_graph.tui.screens import MessageScreen
from deepx_graph.tui.views.passes import PassesView
from deepx_graph.tui.views.pipeline import PipelineView
from deepx_graph.tui.views.rows import TextTable
from deepx_graph.tui.views.run import RunView
from deepx_graph.viz.listing.listing import listing
from tests.support.browsing_programs import foldable, hunted
from tests.support.paths import SHARED
from tests.support.tui_pilot import app_of, browser, piloted, press, program, shown


@piloted
async def test_the_time_line_steps_through_passes_and_rewrites() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "3")
        assert "Nothing has been optimised yet" in shown(pilot)
        await press(pilot, "4", "r", "3")
        text = shown(pilot)
        assert "cse" in text and "merge" in text and "inline" not in text  # passes that changed nothing are hidden
        await press(pilot, "full_stop")
        text = shown(pilot)
        assert "rewrite 1: merge, in cse" in text and "before" in text and "- " in text
        await press(pilot, "a")
        assert "inline" in shown(pilot)
        view = pilot.app.query_one(PassesView)
        await press(pilot, "space")
        assert view.folded


@piloted
async def test_passes_and_rewrites_are_found_by_a_text() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "4", "r", "3", "slash", *"MERGE", "enter")
        text = shown(pilot)
        assert "cse" in text and "merge" in text and "fold" not in text.partition("pass ")[0]
        await press(pilot, "slash", *[*["backspace"] * 5, *"inline"], "enter")
        assert "inline" in shown(pilot) and "merge" not in shown(pilot)  # although it changed nothing
        await press(pilot, "slash", *["backspace"] * 6, *"nowhere", "enter")
        assert "No step has 'nowhere' in it." in shown(pilot)
        await press(pilot, "slash", *["backspace"] * 7, "enter")
        assert "merge" in shown(pilot)


@piloted
async def test_a_step_can_be_looked_at_as_a_program() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "4", "r", "3", "full_stop", "v")
        app = app_of(pilot)
        assert app.view == "list" and app.session is not None
        assert "rewrite 1" in app.session.version.title
        assert len(app.session.query("op:tanh")) == 2 and len(app.session.query("const")) == 1


@piloted
async def test_when_a_node_vanished() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "4", "r", "u", "1", "slash", "=name:b2", "enter", "x")
        app = app_of(pilot)
        assert app.view == "passes"
        view = app.query_one(PassesView)
        assert view.event is not None and view.event.title == "merge"
        assert view.event.rewrite is not None and view.event.rewrite.before.name == "b2"


@piloted
async def test_the_pipeline_is_edited_and_run_again_in_place() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "4")
        app, view = app_of(pilot), pilot.app.query_one(PipelineView)
        await press(pilot, "p", "=inline,sccp,cse,simplify,dce,fuse", "enter", "d", "d", "G", "enter", "=fuse{max-ops=2}", "enter")
        assert view.passes == ["cse", "simplify", "dce", "fuse{max-ops=2}"]
        await press(pilot, "K", "a", "=sccp", "enter", "r")
        assert view.passes == ["cse", "simplify", "fuse{max-ops=2}", "sccp", "dce"]
        assert app.session is not None and app.session.version.pipeline == view.text
        assert "before" in shown(pilot) and "multiply" in shown(pilot)
        await press(pilot, "d", "r")
        assert len(app.session.versions) == 2  # the same start, not one on top of the other
        await press(pilot, "c")
        assert pilot.app.clipboard == f"deepx-graph opt program.hlo -p '{view.text}'"
        await press(pilot, "p", "=clean", "enter")
        assert view.passes == pipeline_items("clean")


@piloted
async def test_a_wrong_pass_is_reported_and_changes_nothing() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "4", "a", "=fuze", "enter")
        assert isinstance(pilot.app.screen, MessageScreen) and "did you mean 'fuse'?" in shown(pilot)
        await press(pilot, "enter")
        assert pilot.app.query_one(PipelineView).passes == pipeline_items("default")


@piloted
async def test_a_run_shows_costs_memory_and_where_a_nan_was_born() -> None:
    async with browser(hunted()) as pilot:
        await press(pilot, "5", "enter", "=ones", "enter", "r")
        text = shown(pilot)
        assert "memory over time" in text and "kernel" in text and "NaN or infinity made by 1 node;" in text
        await press(pilot, "exclamation_mark")
        app = app_of(pilot)
        assert app.view == "list" and app.selection.current is not None and app.selection.current[1].name == "gone"
        assert "%" in shown(pilot)  # the shares are in the list
        await press(pilot, "6")
        text = shown(pilot)
        assert "32 infinite" in text and "-inf" in text


@piloted
async def test_the_list_shows_the_times_of_the_last_run_of_several() -> None:
    async with browser(hunted()) as pilot:
        await press(pilot, "5", "r", "1")
        app = app_of(pilot)
        assert app.session is not None and app.session.result is not None
        before, result = shown(pilot), app.session.result
        shares = {n: dataclasses.replace(m, share=0.123) for n, m in result.measured.items()}
        await press(pilot, "5")
        app.query_one(RunView)._ran(dataclasses.replace(result, measured=shares))
        await press(pilot, "1")
        assert before.count("12%") < shown(pilot).count("12%")  # one node may have taken just so long


@piloted
async def test_a_slice_of_a_value(tmp_path: Path) -> None:
    async with browser(program(tmp_path)) as pilot:
        await press(pilot, "5", "enter", "=iota", "enter", "r", "1", "g", "j", "6", "enter", "=3, 6:", "enter")
        text = shown(pilot)
        assert "[30. 31.]" in text and "from 0 to 31, mean 15.5" in text
        await press(pilot, "enter", "=9", "enter")
        assert isinstance(pilot.app.screen, MessageScreen) and "does not fit" in shown(pilot)


@piloted
async def test_a_wrong_input_is_reported() -> None:
    async with browser(hunted()) as pilot:
        await press(pilot, "5", "enter", "=many", "enter")
        assert "cannot be 'many'" in shown(pilot)


@piloted
async def test_programs_and_versions_are_compared(tmp_path: Path) -> None:
    other = tmp_path / "other.sea"
    module = dx.optimize(foldable(), "cse")
    other.write_text(dx.dumps(module, "sea"))
    async with browser(foldable()) as pilot:
        await press(pilot, "7")
        assert "they are the same" in shown(pilot)
        await press(pilot, "o", f"={other}", "enter")
        text = shown(pilot)
        assert "tanh" in text and "1 → 2" in text
        await press(pilot, "n", "enter")
        assert app_of(pilot).view == "list"


@piloted
async def test_what_is_shown_is_exported(tmp_path: Path) -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "slash", "=name:a2", "enter", "2", "minus", "e", f"={tmp_path / 'part.sea'}", "enter")
        part = dx.load(tmp_path / "part.sea")
        assert {n.op.name for n in part.entry.nodes} == {"param", "constant", "multiply", "tanh", "add"}
        await press(pilot, "e", f"={tmp_path / 'map.txt'}", "enter")
        assert "│ tanh a2" in (tmp_path / "map.txt").read_text()
        await press(pilot, "1", "e", f"={tmp_path / 'all.svg'}", "enter")
        assert (tmp_path / "all.svg").stat().st_size > 500


@piloted
async def test_running_work_can_be_cancelled() -> None:
    async with browser(foldable()) as pilot:
        app = app_of(pilot)
        app.document.optimise("default")
        assert app.jobs.running
        app.action_cancel()
        await press(pilot, "g")
        assert app.session is not None and len(app.session.versions) == 1


@piloted
async def test_long_lines_can_be_read() -> None:
    async with browser(foldable(), (80, 24)) as pilot:
        await press(pilot, "4")
        table = pilot.app.query_one("#outcome", TextTable)
        table.focus()
        first = shown(pilot)
        await press(pilot, "right")
        assert table.shift == 16 and shown(pilot) != first
        await press(pilot, "left")
        assert shown(pilot).replace("›", " ") == first.replace("›", " ")


def test_columns_are_as_high_as_their_values() -> None:
    assert column_plot([1, 2, 4], 3, 1) == ["▂▄█"]
    assert column_plot([0, 8], 2, 2) == [" █", " █"]
    assert len(column_plot(list(range(1000)), 40, 3)[0]) == 40
    assert column_plot([], 10, 2) == []


def test_a_histogram_counts_everything() -> None:
    lines = histogram(statistics(np.arange(100.0)), 10)
    assert len(lines) == 16 and sum(int(line.split()[-1]) for line in lines) == 100
    assert histogram(statistics(np.full(5, 3.0)), 10) == ["all 3"]


RELAY = """#[version = "0.0.5"]
type List[A] {
  Cons(A, List[A]),
  Nil,
}
def @last(%l: List[Tensor[(), float32]], %d: Tensor[(), float32]) -> Tensor[(), float32] {
  match (%l) {
    Cons(%h, %t) => @last(%t, %h),
    Nil => %d,
  }
}
def @main(%x: Tensor[(), float32]) -> Tensor[(), float32] {
  %0 = Nil;
  %1 = Cons(%x, %0);
  @last(%1, %x)
}
"""


@piloted
async def test_data_types_constructors_and_calls_are_described(tmp_path: Path) -> None:
    path = tmp_path / "list.relay"
    path.write_text(RELAY)
    async with browser(str(path)) as pilot:
        await press(pilot, "i", "t")
        for text in ("construct Nil", "construct Cons", "call last", "type List = Cons | Nil"):
            assert text in shown(pilot)


def test_every_row_of_every_functional_program_has_a_text() -> None:
    corpus = SHARED / "corpus"
    files = [*corpus.glob("relay/*.relay"), *corpus.glob("mindir/*.mindir"), *corpus.glob("mindir/*.ir")]
    if not files:
        pytest.skip("no corpus of Relay and MindIR programs beside the project")
    for path in files:
        session = Session.open(path)
        for row in listing(session.module, numbers=True).rows:
            facts = session.facts(row.function)
            assert "".join(text for text, _ in row_pieces(row, facts)).strip()
            assert row.node is None or cost_piece(row.node, facts, "bytes")
