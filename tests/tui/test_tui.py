"""How the browser behaves: keys in, screens out. Nothing here looks at colours; snapshots do."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.widgets import Static

import deepx_graph as dx
from deepx_graph.analysis.name_scopes import name_scopes
from deepx_graph.cli.main import main
from deepx_graph.errors import UsageError
from deepx_graph.ir import Node, Origin
from deepx_graph.ops import tanh
from deepx_graph.session.session import Session
from deepx_graph.session.show.overlays import rounded
from deepx_graph.tui import screens
from deepx_graph.tui.app import Browser
from deepx_graph.tui.resume import State, location, saved
from deepx_graph.tui.screens import Commands, HelpScreen, MessageScreen, bindings_of, help_text, key_text
from deepx_graph.tui.views.lanes import LaneList
from deepx_graph.tui.views.map import FocusMap
from deepx_graph.tui.views.panes import SourcePane, outline
from deepx_graph.types import F32, tensor
from deepx_graph.viz.listing.listing import listing
from tests.support import viz_modules
from tests.support.browsing_programs import foldable
from tests.support.tui_pilot import SEA, app_of, browser, piloted, press, program, screen, settled, shown, until


@piloted
async def test_the_list_shows_every_node_and_the_panes_follow_the_cursor(tmp_path: Path) -> None:
    async with browser(program(tmp_path)) as pilot:
        for name in ("hidden", "gate", "tanh", "exponential", "multiply", "⇒ y"):
            assert name in shown(pilot)
        await press(pilot, "j", "s")
        assert app_of(pilot).selection.current is not None and app_of(pilot).selection.current[1].name == "hidden"  # type: ignore[index]
        assert "what         Hyperbolic tangent" in shown(pilot) or "tanh" in shown(pilot)
        assert pilot.app.query_one(SourcePane).marked == {4}
        await press(pilot, "G")
        assert pilot.app.query_one(SourcePane).marked == {6}


@piloted
async def test_a_line_of_the_source_leads_to_its_node(tmp_path: Path) -> None:
    async with browser(program(tmp_path)) as pilot:
        await press(pilot, "s")
        source = pilot.app.query_one(SourcePane)
        source.focus()
        await press(pilot, "g", "j", "j", "j", "j", "enter")
        assert app_of(pilot).selection.current[1].name == "gate"  # type: ignore[index]


@piloted
async def test_the_list_begins_with_what_the_program_was_opened_for() -> None:
    b = dx.Builder()
    module = dx.Module((b.function("main", [("x", tensor(F32, (4,)))], lambda x: [b(tanh, x)]),))
    for session, column in ((Session(module), "bytes"), (rounded(module), "error")):
        async with browser(session) as pilot:
            assert app_of(pilot).lanes.overlay == column


@piloted
async def test_queries_are_walked() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "slash", "=op:tanh", "enter")
        app = app_of(pilot)
        assert [n.name for _, n in app.search.matches] == ["a2", "b2"]
        assert app.selection.current[1].name == "a2"  # type: ignore[index]
        await press(pilot, "n")
        assert app.selection.current[1].name == "b2"  # type: ignore[index]
        await press(pilot, "n")
        assert app.selection.current[1].name == "a2"  # type: ignore[index]
        await press(pilot, "b", "b")
        assert app.selection.current[1].name in ("x", "a2")  # type: ignore[index]
        assert "[1/2] op:tanh" in shown(pilot)


@piloted
async def test_a_mistake_in_a_query_is_shown_with_carets() -> None:
    async with browser(foldable(), (80, 24)) as pilot:
        await press(pilot, "slash", "=user>2", "enter")
        assert isinstance(pilot.app.screen, MessageScreen)
        assert "did you mean 'users'?" in shown(pilot) and "^^^^" in shown(pilot)
        await press(pilot, "escape")
        assert not isinstance(pilot.app.screen, MessageScreen)


@piloted
async def test_words_of_a_query_are_completed() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "slash", "=not op:tan", "tab")
        assert app_of(pilot).query_one("#prompt").value in ("not op:tan", "not op:tanh")  # type: ignore[attr-defined]
        await press(pilot, "tab", "escape")
        assert not app_of(pilot).query_one("#prompt").display


@piloted
async def test_folds_open_and_close() -> None:
    async with browser(viz_modules.fused()) as pilot:
        lanes = app_of(pilot).lanes
        assert "exponential" not in shown(pilot)
        await press(pilot, "slash", "=fused", "enter", "space")
        assert "exponential" in shown(pilot)
        await press(pilot, "left")
        assert "exponential" not in shown(pilot)
        await press(pilot, "g", "space")
        assert lanes.count() == 1


@piloted
async def test_edges_are_followed_both_ways() -> None:
    async with browser(foldable()) as pilot:
        app = app_of(pilot)
        await press(pilot, "slash", "=#6", "enter", "left_square_bracket")
        start = app.selection.current[1]  # type: ignore[index]
        assert start.name
        await press(pilot, "right_square_bracket")
        assert start in app.selection.current[1].inputs  # type: ignore[index]


@piloted
async def test_the_map_walks_along_edges() -> None:
    async with browser(foldable()) as pilot:
        app = app_of(pilot)
        await press(pilot, "slash", "=name:a2", "enter", "2")
        boxes = pilot.app.query_one("#map", FocusMap)
        assert boxes.node is not None and boxes.node.name == "a2"
        await press(pilot, "k")
        assert boxes.node.name == "a1" and app.selection.current[1].name == "a1"  # type: ignore[index]
        await press(pilot, "j", "j")
        assert boxes.node.op.name == "add"
        before = boxes.depth
        await press(pilot, "plus")
        assert boxes.depth == before + 1
        assert "┌" in shown(pilot) and "▼" in shown(pilot)
        await press(pilot, "v", "h")
        assert "▶" in shown(pilot) and "▼" not in shown(pilot)
        assert boxes.node.name == "a2"  # to the left is what the value is made of
        await press(pilot, "l")
        assert boxes.node.op.name == "add"
        await press(pilot, "escape")
        assert app.view == "list"


@piloted
async def test_the_map_is_not_empty_where_the_list_begins_with_a_folded_row() -> None:
    module = dx.trace(lambda *xs: sum(xs[1:], xs[0]), *["f32[2]"] * 75)
    async with browser(module) as pilot:
        assert "75 parameters" in shown(pilot)
        await press(pilot, "2")
        assert pilot.app.query_one("#map", FocusMap).node is module.entry.params[0]
        assert "param" in shown(pilot) and "add" in shown(pilot)


@piloted
async def test_why_two_nodes_are_one_kernel() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "slash", "=name:a2", "enter", "w", "G", "w")
        assert isinstance(pilot.app.screen, MessageScreen)
        assert "one kernel" in shown(pilot)


@piloted
async def test_versions_are_undone_and_redone() -> None:
    async with browser(foldable()) as pilot:
        app = app_of(pilot)
        app.document.optimise("default")
        await press(pilot, "g")
        assert "fusion" in shown(pilot) and "2/2 default" in shown(pilot)
        await press(pilot, "u")
        assert "fusion" not in shown(pilot) and "1/2 loaded" in shown(pilot)
        await press(pilot, "U")
        assert "2/2 default" in shown(pilot)


@piloted
async def test_a_node_that_versions_share_is_selected_in_the_function_of_the_current_one() -> None:
    async with browser(foldable()) as pilot:
        app = app_of(pilot)
        app.document.optimise("default")
        await settled(pilot)
        session, current = app.session, app.selection.current
        assert session is not None and current is not None and current[1].name == "x"
        assert [u.op.name for u in current[0].users[current[1]]] == ["fusion"]
        session.undo()
        app.document._show(listing(session.module))
        assert app.selection.current == (session.module.entry, current[1])  # at once: the panes may be painted at any time


@piloted
async def test_the_palette_has_every_key_pass_and_function() -> None:
    async with browser(foldable()) as pilot:
        app = app_of(pilot)
        commands = {title: call for title, _, call in Commands(app.screen).commands()}
        assert {b.description for b in bindings_of(Browser)} | {"Optimise: default", "Run pass cse"} <= set(commands)
        for title, version in (("Run pass cse", "2/2 cse"), ("Gradient program", "3/3 grad")):
            commands[title]()
            await settled(pilot)
            assert version in shown(pilot)
        commands["Function main"]()
        assert app.lanes.row is not None and app.lanes.row.kind == "function"


@piloted
async def test_names_are_copied() -> None:
    async with browser(foldable()) as pilot:
        await press(pilot, "slash", "=name:b2", "enter", "y")
        assert pilot.app.clipboard == "b2"
        await press(pilot, "Y")
        assert "type: f32[4,8]" in pilot.app.clipboard


@piloted
async def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "h.hlo"
    name = "[red]x[/red]"
    path.write_text("HloModule m\n\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT t = f32[2] tanh(p), "
                    f'metadata={{op_name="{name}\\033[31m"}}\n}}\n')  # fmt: skip
    async with browser(str(path)) as pilot:
        await press(pilot, "j", "s")
        assert "\x1b" not in shown(pilot)
        assert "[red]x[/red]" in shown(pilot)  # as it stands in the source, not as markup


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@piloted
async def test_wide_combining_turning_and_endless_names_keep_the_columns(size: tuple[int, int], tmp_path: Path) -> None:
    names = ["\u65e5\u672c\u8a9e" * 20, "\U0001f600" * 40, "\u202egnp.exe", "e\u0301" * 60, "x" * 10_000, "\x1b]0;pwn\x07"]
    b = dx.Builder()

    def body(x: Node) -> list[Node]:
        for name in names:
            b.origin = Origin(name)
            x = b(tanh, x)
        return [x]

    async with browser(dx.Module((b.function("main", [("p", tensor(F32, (4,)))], body),)), size) as pilot:
        for key in ("j", "G", "i", "2", "5", "1"):
            await press(pilot, key)
            assert "\x1b" not in shown(pilot) and "\u202e" not in shown(pilot)
            assert all(cell_len(line) <= size[0] for line in screen(pilot))
        await press(pilot, "i")

        rows = [line for line in screen(pilot) if "tanh" in line and "f32[4]" in line and "●" in line]
        assert len(rows) == len(names) and len({cell_len(r[: r.index("f32[4]")]) for r in rows}) == 1


def parts() -> list[tuple[str, type]]:
    return [("Everywhere", Browser), *screens.parts()]


def test_every_binding_is_in_the_help() -> None:
    text = help_text(parts()).plain
    for _, owner in parts():
        for b in bindings_of(owner):
            assert b.description and key_text(b.key) in text and (b.tooltip or b.description) in text


def test_every_class_with_bindings_is_among_the_parts() -> None:
    import importlib
    import pkgutil

    import deepx_graph.tui as package

    known = {owner for _, owner in parts()}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"deepx_graph.tui.{info.name}")
        for found in vars(module).values():
            if isinstance(found, type) and found.__module__ == module.__name__ and "BINDINGS" in found.__dict__:
                assert found in known, found


def test_every_action_of_a_binding_exists() -> None:
    for _, owner in parts():
        for b in bindings_of(owner):
            name = b.action.split("(")[0].removeprefix("app.")
            assert hasattr(owner, f"action_{name}") or hasattr(Browser, f"action_{name}"), (owner, b.action)


@piloted
async def test_the_help_opens_and_closes() -> None:
    async with browser(foldable(), (80, 24)) as pilot:
        await press(pilot, "question_mark")
        assert isinstance(pilot.app.screen, HelpScreen) and "Keys" in shown(pilot)
        await press(pilot, "j", "escape")
        assert not isinstance(pilot.app.screen, HelpScreen)


@piloted
async def test_a_file_that_is_no_program_ends_with_its_diagnostic(tmp_path: Path) -> None:
    path = tmp_path / "bad.sea"
    path.write_text("sea 1\nentry @f\nfunc oops\n")
    app = Browser(lambda: Session.open(path), str(path))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.failed is not None)
    assert app.failed is not None and app.failed.exit_code == 3


@piloted
async def test_everything_fits_on_80_columns() -> None:
    async with browser(viz_modules.loop(), (80, 24)) as pilot:
        await press(pilot, "i")
        assert len(screen(pilot)) == 24 and all(len(line) <= 80 for line in screen(pilot))
        assert "users" in shown(pilot)
        assert pilot.app.query_one("#status", Static).size.height == 1


@pytest.mark.parametrize("view", "1234567")
@piloted
async def test_all_keys_of_a_view_fit_on_80_columns(view: str) -> None:
    async with browser(foldable(), (80, 24)) as pilot:
        await press(pilot, view)
        assert screen(pilot)[-1].endswith("q Quit")


def test_an_unknown_theme_is_reported_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'nord'"):
        Browser(lambda: Session(foldable()), theme="nrod")


@piloted
async def test_a_theme_is_chosen_and_changed() -> None:
    app = Browser(lambda: Session(foldable()), theme="nord")
    async with app.run_test() as pilot:
        await settled(pilot)
        assert app.theme == "nord"
        await press(pilot, "T")
        assert app.theme == "gruvbox"


@pytest.mark.parametrize("file", ["-", "program.hlo"])
def test_the_command_needs_a_file_and_a_terminal(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tui", file]) == 2
    assert "needs a" in capsys.readouterr().err


@piloted
async def test_without_colour_the_cursor_is_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with browser(foldable()) as pilot:
        strips = pilot.app.screen._compositor.render_strips()
        row = next(s for s in strips if any("›" in segment.text for segment in s))
        assert any(segment.style is not None and segment.style.reverse for segment in row)


@pytest.mark.skipif(sys.platform != "linux", reason="terminals hang up in this way on Linux")
def test_the_browser_ends_when_its_terminal_vanishes() -> None:
    """Not the process's controlling terminal, so that no signal comes by itself. Under nohup it would be ignored."""
    code = """
import os, pty, signal, threading
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from deepx_graph.cli.showing import _end_with_terminal
master, terminal = pty.openpty()
waiting = threading.Thread(target=_end_with_terminal, args=(terminal,))
waiting.start()
os.close(master)
waiting.join()
"""
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, start_new_session=True, check=False)
    assert ended.returncode == -signal.SIGHUP


@piloted
async def test_a_click_on_a_tab_opens_its_view(tmp_path: Path) -> None:
    async with browser(program(tmp_path)) as pilot:
        line = screen(pilot)[0]
        for title, name in (("Passes", "passes"), ("Map", "map"), ("List", "list")):
            await pilot.click("#bar", offset=(line.index(title), 0))
            await settled(pilot)
            assert app_of(pilot).view == name
        await pilot.click("#bar", offset=(line.index("nodes"), 0))
        assert app_of(pilot).view == "list"


@piloted
async def test_a_click_on_a_key_presses_it(tmp_path: Path) -> None:
    async with browser(program(tmp_path)) as pilot:
        await press(pilot, "2")
        assert "+ Wider  - Narrower" in screen(pilot)[-1]
        await pilot.click("#keys", offset=(screen(pilot)[-1].index("Narrower"), 0))
        await settled(pilot)
        assert pilot.app.query_one(FocusMap).depth == 1
        await pilot.click("#keys", offset=(screen(pilot)[-1].index("Quit") + 10, 0))
        assert app_of(pilot).is_running


@piloted
async def test_ctrl_c_says_which_key_quits(tmp_path: Path) -> None:
    async with browser(program(tmp_path)) as pilot:
        await press(pilot, "ctrl+c")
        (told,) = (n.message for n in pilot.app._notifications)
        assert "q quits" in told and "ctrl+q" not in told


@piloted
async def test_a_second_file_is_compared_from_the_start(tmp_path: Path) -> None:
    other = tmp_path / "q.sea"
    other.write_text(SEA.replace("exponential", "sine"))
    app = Browser(lambda: Session.open(program(tmp_path)), "p.sea", against=str(other))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        other_list = app.query_one("#other-list", LaneList)
        assert "q.sea" in shown(pilot) and "sine" in shown(pilot)
        app.selection.go_to(app.session.find("gate")[1])  # type: ignore[union-attr]
        await settled(pilot)
        assert other_list.node is not None and other_list.node.name == "gate", "its partner is under the cursor"
        other_list.focus()
        await press(pilot, "g", "j")
        assert app.selection.node is not None and app.selection.node.name == other_list.node.name
        await press(pilot, "o")
        assert app.lanes.overlay == other_list.overlay != "bytes", "costs stay comparable"
        app.lanes.overlay = "difference"
        await settled(pilot)
        assert shown(pilot).count("changed") == shown(pilot).count(" difference") == 2, "on both sides, each under a heading"
        await press(pilot, "7")
        assert "sine" in shown(pilot) and "exponential" in shown(pilot)


@piloted
async def test_the_browser_goes_on_where_it_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = str(program(tmp_path))
    app = Browser(lambda: Session.open(path), path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.document.optimise("simplify,dce")
        await settled(pilot)
        app.selection.go_to(app.session.find("gate")[1])  # type: ignore[union-attr]
        await press(pilot, "t", "2")
        await pilot.press("q")
    assert saved(path).pipelines and saved(path).view == "map"
    again = Browser(lambda: Session.open(path), path, state=saved(path))
    async with again.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert again.view == "map" and again.session is not None and again.session.at == 1
        assert again.selection.node is not None and again.selection.node.name == "gate"
        assert again.query_one("#outline").has_class("-on")
    location(path).write_text('{"view": 3, "panes": "x", "node": "#999"}')
    assert saved(path) == State(node="#999")
    location(path).write_text("[" * 5)
    assert saved(path) == State()


def test_the_outline_has_the_modules_of_the_model() -> None:
    text = "func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {\n" + "\n".join(
        f'%{k + 1} = stablehlo.tanh %{k} : tensor<4xf32> loc("jit(f)/Net/Layer_{k}/tanh")' for k in range(3)
    ) + "\nreturn %3 : tensor<4xf32>\n}"  # fmt: skip
    m = dx.loads(text)
    heads = outline(listing(m), name_scopes(m.entry))
    assert [(h.title, h.depth, h.inside) for h in heads if h.style == "italic"] == [
        ("Net", 1, 3), ("Layer_0", 2, 1), ("Layer_1", 2, 1), ("Layer_2", 2, 1)]


@piloted
async def test_what_the_program_states_of_shardings_is_a_column_without_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "x.mlir"
    file.write_text("""
    module @m attributes {mhlo.num_partitions = 2 : i32} {
      sdy.mesh @mesh = <["a"=2]>
      func.func public @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}) -> tensor<8x16xf32> {
        %0 = stablehlo.tanh %x : tensor<8x16xf32>
        return %0 : tensor<8x16xf32>
      }
    }
    """)
    async with browser(str(file)) as pilot:
        assert app_of(pilot).session is not None
        while app_of(pilot).lanes.overlay != "sharding":
            before = app_of(pilot).lanes.overlay
            await press(pilot, "o")
            assert app_of(pilot).lanes.overlay != before
        assert shown(pilot).count('[{"a"}, {}]') >= 2
