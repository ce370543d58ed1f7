"""The HTML page in a browser: what a reader sees and does, and that nothing in a file can do anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deepx_graph as dx
from deepx_graph.cli import main as cli
from deepx_graph.errors import UsageError
from deepx_graph.session.query.facts import RELATIONS
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import explore
from deepx_graph.viz import draw
from deepx_graph.viz.folding.fold import OVERVIEW
from deepx_graph.viz.picture import graphviz as layout
from tests.support import viz_modules as programs
from tests.support.browser import HOW_TO_GET, Browser, executable
from tests.support.pages import data_of
from tests.support.paths import ROOT
from tests.support.svg_texts import HOSTILE

BLOCK = ROOT / "examples" / "transformer_block.dx"

QUERIES = (
    "op:dot_general", "op:dot*,reduce", "name:~w", "users>1 not param", "bytes>=1M", "(op:add or op:divide) flops>100",
    "before:weights", "after:raised", "type:f32", "rank=3", "family:linear", "softmax", "line>80", "kernel",
)  # fmt: skip
"""Each is asked in the page and of the session."""

needs_browser = pytest.mark.skipif(executable() is None, reason=HOW_TO_GET)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "block.html"
    dx.draw(dx.load(BLOCK), path, max_nodes=100)  # all of it
    return path


def count(browser: Browser, selector: str) -> int:
    return int(browser.run(f"document.querySelectorAll({json.dumps(selector)}).length"))


def text(browser: Browser, selector: str) -> str:
    return str(browser.run(f"document.querySelector({json.dumps(selector)}).textContent"))


def search(browser: Browser, query: str) -> str:
    """Types a query, and gives what the page says."""
    browser.run(f"(() => {{ const s = document.getElementById('search'); s.value = {json.dumps(query)};"
                "s.dispatchEvent(new Event('input')); return new Promise(r => setTimeout(r, 160)); })()")  # fmt: skip
    return text(browser, "#found")


# --- bytes


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_markup(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "engine", lambda: None)
    module = programs.named(name)
    for page in (explore([("", Session(module))], title=name).data, draw(module, format="html", title=name).data):
        shown = page.decode()
        assert shown.count("<script") == 2
        assert shown.count("</script") == 2
        assert "<!--" not in shown
        assert not re.search(r"\b(https?:)?//(?!www\.w3\.org/2000/svg)[a-z]+\.", shown)
        data_of(page)


def test_the_policy_allows_our_own_text_only() -> None:
    import base64
    import hashlib

    page = explore([("", Session(programs.loop()))]).data.decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = {k: base64.b64encode(hashlib.sha256(v.encode()).digest()).decode() for k, v in (("style", style), ("script", script))}
    assert policy == (f"default-src 'none'; style-src 'sha256-{digest['style']}'; script-src 'sha256-{digest['script']}'; "
                      "base-uri 'none'; form-action 'none'")  # fmt: skip


def test_equal_programs_give_equal_pages() -> None:
    assert explore([("", Session(programs.loop()))]).data == explore([("", Session(programs.loop()))]).data


def expanded(box: list[Any]) -> list[int]:
    """The nodes that a box of a folding stands for."""
    return [n for first, many in box[0] for n in range(first, first + many)] if isinstance(box[0], list) else [box[0]]


@pytest.mark.parametrize("module", [programs.chain(700, names="net.{layer}.op{k}"), programs.chain(900), programs.tangle(3000)],
                         ids=["scopes", "repeats", "tangle"])  # fmt: skip
def test_every_box_opens_to_all_that_it_stands_for_and_to_few_boxes(module: dx.Module) -> None:
    (graph,) = data_of(explore([("", Session(module))]).data)["graphs"]
    folds = graph["folds"]
    assert sorted(n for box in folds[0]["boxes"] for n in expanded(box)) == list(range(graph["size"]))
    large = [box for fold in folds for box in fold["boxes"] if isinstance(box[0], list) and len(expanded(box)) > OVERVIEW]
    assert large and all(box[5] > 0 for box in large)
    for box in (b for fold in folds for b in fold["boxes"] if isinstance(b[0], list) and b[5] > 0):
        inside = folds[box[5]]["boxes"]
        assert 2 <= len(inside) <= OVERVIEW
        assert sorted(n for inner in inside for n in expanded(inner)) == expanded(box)


def test_mistakes_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="did you mean 'dark'"):
        dx.draw(programs.loop(), format="html", theme="drak")
    assert cli.main(["draw", str(BLOCK), str(BLOCK), "-o", str(tmp_path / "x.svg")]) == 2
    assert "need a page" in capsys.readouterr().err


# --- in a browser


@needs_browser
def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    for k, name in enumerate(HOSTILE[:6]):
        path = tmp_path / f"{k}.html"
        dx.draw(programs.named(name), path, title=name)
        browser.open(path)
        browser.click(".box", 0)
        assert browser.run("document.querySelectorAll('script').length") == 2
        assert count(browser, "img, iframe, table td[href], b") == 0
        assert name in browser.run("document.body.innerText") + browser.run("document.querySelector('.boxes').textContent")
    assert browser.messages == []


@needs_browser
def test_a_click_inspects_and_lights_what_is_beside(browser: Browser, block: Path) -> None:
    browser.open(block)
    assert count(browser, ".selected") == 0
    browser.run("select(0, [GRAPHS[0].nodes.findIndex(n => n.name === 'weights')])")
    where = browser.run("panes[0].boxes.findIndex(b => b.g.classList.contains('selected'))")
    browser.press("Escape")
    assert count(browser, ".selected") == 0
    browser.run("goto(panes[0], GRAPHS[0].nodes.findIndex(n => n.name === 'weights'))")
    browser.press("Escape")
    browser.click(".box", where)
    side = text(browser, "#side")
    for part in ("weights", "f32[4,256,256]", "line 31", "flops", "inputs", "quotient", "users"):
        assert part.lower() in side.lower(), part
    assert count(browser, ".selected") == 1
    assert count(browser, ".input") >= 1 and count(browser, ".user") >= 1
    assert count(browser, ".edge.lit.in") >= 1
    browser.press("u")
    assert text(browser, "#side h2") != ""
    assert browser.messages == []


@needs_browser
def test_search_uses_the_query_language_of_the_command_line(browser: Browser, block: Path) -> None:
    browser.open(block)
    session = Session(dx.load(BLOCK))
    for query in QUERIES:
        drawn = browser.run("[...GRAPHS[0].nodes.filter(n => n.at).map(n => n.at)]")
        asked = {session.address(f, n) for f, n in session.query(query)} & set(drawn)
        boxes = sum(at in asked for at in drawn)  # a node of a helper has one wherever the helper is called
        found = search(browser, query)
        hits = set(browser.run("state.hits.map(h => GRAPHS[0].nodes[h.node].at)"))
        if query.partition(":")[0] in RELATIONS:  # on the page a path goes through the helpers that are open
            assert hits >= asked, query
        else:
            assert (found, hits) == (f"{boxes} found", asked), query
    assert count(browser, ".hit") > 0
    assert "no field" in search(browser, "opp:add")
    assert "closed" in search(browser, "(op:add")
    search(browser, "op:exponential")
    browser.run("document.activeElement.blur()")
    browser.press("n")
    assert text(browser, "#found") == "1 of 2"
    assert "exponential" in text(browser, "#side h2")


@needs_browser
def test_boxes_open_and_close(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "deep.html"
    dx.draw(programs.chain(3000), path)
    browser.open(path)
    before = browser.run("panes[0].scene.boxes.map(b => b.key)")
    first = browser.run("panes[0].boxes.findIndex(b => openable(b.box))")
    browser.click(".box", first, count=2)
    after = browser.run("panes[0].scene.boxes.map(b => b.key)")
    assert set(before) - set(after) == {before[first]} and len(after) > len(before), "in its place, all else as it was"
    assert browser.run("panes[0].scene.frames.filter(f => f.kind === 'open').length") == 1
    browser.press("Backspace")
    assert browser.run("panes[0].scene.boxes.map(b => b.key)") == before
    browser.run("goto(panes[0], 1500)")
    assert browser.run("panes[0].boxes.find(b => b.g.classList.contains('selected')).box.members") == [1500]
    browser.run("panes[0].show(GRAPHS[0])")
    browser.click(".box", first)
    browser.press("a")
    assert count(browser, ".box.outside") >= 1
    assert browser.run("panes[0].scene.alone") is True
    assert browser.messages == []


@needs_browser
def test_pan_zoom_theme_overlay_and_help(browser: Browser, block: Path) -> None:
    browser.open(block)
    before = browser.run("panes[0].view.k")
    browser.press("+")
    assert browser.run("panes[0].view.k") == pytest.approx(before * 1.25)
    at = browser.run("panes[0].view.x")
    browser.press("L")
    assert browser.run("panes[0].view.x") == at - 80
    browser.press("w")
    assert browser.run("panes[0].view.k") < before
    background = "getComputedStyle(document.body).backgroundColor"
    browser.media("light")
    light = browser.run(background)
    browser.media("dark")
    dark = browser.run(background)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(21, 24, 29)")
    browser.press("t")
    assert browser.run(background) == light
    browser.run("document.getElementById('overlay').value = 'flops'")
    browser.run("document.getElementById('overlay').dispatchEvent(new Event('change'))")
    assert count(browser, ".tag") > 10
    assert "%" in text(browser, ".tag")
    assert browser.run("document.getElementById('help').hidden") is True
    browser.press("?")
    assert browser.run("document.getElementById('help').hidden") is False
    of_time = browser.run("KEYS.filter(([key]) => [',', '.', 'c'].includes(key)).length")
    assert count(browser, "#help kbd") == browser.run("KEYS.length") - of_time
    assert browser.messages == []


@needs_browser
def test_two_programs_side_by_side(browser: Browser, tmp_path: Path) -> None:
    first, second, page = tmp_path / "a.dx", tmp_path / "b.sea", tmp_path / "x.html"
    source = BLOCK.read_text()
    first.write_text(source)
    second.write_text(dx.dumps(dx.loads(source.replace("0.125", "0.25")), "sea"))
    assert cli.main(["draw", str(first), str(second), "-o", str(page)]) == 0
    browser.open(page)
    assert count(browser, ".pane") == 2
    changed = browser.run("GRAPHS.map(g => g.nodes.filter(n => n.diff && n.diff !== 'same').length)")
    assert changed[0] == changed[1] >= 1
    assert count(browser, ".d-changed") >= 2
    browser.run("goto(panes[0], GRAPHS[0].nodes.findIndex(n => n.name === 'weights'))")
    assert browser.run("panes.map(p => p.boxes.filter(b => b.g.classList.contains('selected')).length)") == [1, 1]
    names = browser.run("panes.map(p => p.graph.nodes[p.boxes.find(b => b.g.classList.contains('selected')).box.members[0]].title)")
    assert names[0] == names[1]
    assert browser.messages == []


@needs_browser
def test_what_differs_is_in_the_legend_and_both_sides_open_at_the_same_level(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    page.write_bytes(explore([("long", Session(programs.tangle(120))), ("short", Session(programs.loop()))]).data)
    browser.open(page)
    sizes = browser.run("GRAPHS.map(g => g.size)")
    assert sizes[1] <= OVERVIEW < sizes[0], "one would be drawn whole, the other not"
    assert all(boxes <= OVERVIEW for boxes in browser.run("panes.map(p => p.scene.boxes.length)"))
    samples = "[...document.querySelectorAll('footer .difference')]"
    shown = browser.run(f"{samples}.map(e => [e.textContent, getComputedStyle(e.querySelector('rect')).fill])")
    assert [text for text, _ in shown] == ["only in the first", "only in the second", "not the same in both"]
    assert len({colour for _, colour in shown}) == 3


@needs_browser
def test_a_profile_opens_with_its_times(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    assert cli.main(["draw", str(BLOCK), "-o", str(page), "--profile"]) == 0
    browser.open(page)
    assert text(browser, "#overlay option:checked") == "time"
    assert count(browser, ".tag") >= 5


@needs_browser
def test_the_time_line(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    assert cli.main(["draw", str(BLOCK), "-o", str(page), "--timeline", "--function", "softmax", "-p", "fold,cse,fuse"]) == 0
    browser.open(page)
    stages = browser.run("GRAPHS.map(g => g.title)")
    assert stages[0] == "as read" and stages[-1].startswith("after fuse")
    assert count(browser, ".pane") == 1
    browser.press(".")
    assert text(browser, "#stages").startswith(f"2 of {len(stages)}")
    browser.run("(() => { const s = document.getElementById('stage'); s.value = s.max; s.dispatchEvent(new Event('input')); })()")
    assert stages[-1] in text(browser, "#stages")
    assert "broadcast_in_dim 8 → 0" in text(browser, "#stages")
    assert count(browser, ".d-added, .d-changed") >= 1
    assert browser.messages == []
