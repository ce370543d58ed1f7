"""The page as its readers use it, in a browser: by keyboard alone, by search and links, on paper, enlarged, by screen readers."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.cli import main as cli
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import explore
from deepx_graph.viz.draw import view_of
from deepx_graph.viz.folding.fold import fold
from deepx_graph.viz.page.html import page
from deepx_graph.viz.picture.layered import lay_out
from deepx_graph.viz.picture.scene import path
from deepx_graph.viz.view.model import View
from tests.support import viz_modules as programs
from tests.support.browser import HOW_TO_GET, Browser, executable
from tests.support.paths import ROOT

BLOCK = ROOT / "examples" / "transformer_block.dx"
NAMED = programs.chain(600, names="net.{layer}.op{k}")

pytestmark = pytest.mark.skipif(executable() is None, reason=HOW_TO_GET)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a program that opens folded."""
    path = tmp_path_factory.mktemp("pages") / "large.html"
    path.write_bytes(explore([("", Session(NAMED))], title="large").data)
    return path


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "stages.html"
    assert cli.main(["draw", str(BLOCK), "-o", str(path), "--timeline", "--function", "softmax", "-p", "fold,cse,fuse"]) == 0
    return path


def selected(browser: Browser) -> list[list[int]]:
    """What is selected in each pane: the nodes of each selected box."""
    return browser.run("panes.map(p => p.boxes.filter(b => b.g.classList.contains('selected')).flatMap(b => b.box.members))")


def choose(browser: Browser, control: str, value: str) -> None:
    browser.run(f"(() => {{ const c = document.getElementById('{control}'); c.value = '{value}';"
                "c.dispatchEvent(new Event('change')); })()")  # fmt: skip


# --- layout


def whole(module: dx.Module) -> View:
    return view_of(module, None, None, None, 2, collapse=False, title="")


@pytest.mark.parametrize("view", [
    whole(programs.chain(12)), whole(programs.loop()), whole(programs.tangle(60)), fold(whole(NAMED), 40),
    replace(whole(programs.loop()), sideways=True),
], ids=["chain", "loop", "tangle", "folded", "sideways"])  # fmt: skip
def test_the_page_lays_out_as_a_picture_does(browser: Browser, tmp_path: Path, view: View) -> None:
    file = tmp_path / "none.html"
    file.write_bytes(page([]))
    browser.open(file)
    data = {
        "nodes": [{"id": n.id, "kind": n.kind, "title": n.title, "subtitle": n.subtitle, "cluster": n.cluster} for n in view.nodes],
        "edges": [{"source": e.source, "target": e.target, "kind": e.kind, "label": e.label} for e in view.edges],
        "clusters": [{"id": c.id, "title": c.title, "parent": c.parent} for c in view.clusters], "sideways": view.sideways,
    }  # fmt: skip
    browser.run(f"window.found = layOut({json.dumps(data)})")
    scene = lay_out(view)
    assert browser.run("[found.width, found.height]") == pytest.approx([scene.width, scene.height])
    for name, places in (("boxes", scene.boxes), ("frames", scene.frames)):
        found = dict(browser.run(f"[...found.{name}]"))
        assert found.keys() == places.keys()
        for key, place in places.items():
            assert found[key] == pytest.approx(place), (name, key)
    words = browser.run(f"found.lines.map(l => pathThrough(l.points, {json.dumps(view.sideways)}))")
    assert words == [path(line, sideways=view.sideways) if line.points else "" for line in scene.lines]
    assert [at and pytest.approx(at) for at in browser.run("found.lines.map(l => l.at)")] == [
        None if line.at is None else list(line.at) for line in scene.lines
    ]


@pytest.mark.parametrize("name", ["torch/transformer12.onnx", "jax/lstm.mlir"])
def test_the_page_begins_with_the_edges_of_the_picture(browser: Browser, tmp_path: Path, name: str) -> None:
    file = tmp_path / Path(name).name
    file.write_bytes(zipfile.ZipFile(Path(__file__).parent / "models.zip").read(name))
    assert cli.main(["draw", str(file), "-o", str(tmp_path / "model.html")]) == 0
    browser.open(tmp_path / "model.html")
    found = browser.run("panes[0].scene.links().map(e => [e.kind, e.label])")
    assert sorted(found) == sorted([e.kind, e.label] for e in fold(whole(dx.load(file)), 40).edges)


# --- by keyboard alone


def test_everything_is_reached_by_keyboard(browser: Browser, large: Path) -> None:
    browser.open(large)
    boxes = browser.run("panes[0].scene.boxes.length")
    browser.press("ArrowDown")
    (first,) = selected(browser)
    assert first
    assert browser.run("document.activeElement.classList.contains('selected')"), "the focus goes along"
    while not browser.run("openable(panes[0].chosenBox())"):
        browser.press("ArrowDown")
    chosen = browser.run("panes[0].chosenBox().key")
    browser.press("Enter")
    assert browser.run("panes[0].scene.boxes.length") > boxes
    assert browser.run("panes[0].scene.frames.filter(f => f.kind === 'open').map(f => f.box.key)") == [chosen]
    browser.run("(() => { const b = panes[0].scene.boxes.find(b => (b.cluster || '').startsWith('open'));"
                "select(0, b.members, b, panes[0], true); })()")
    browser.press("Backspace")
    assert browser.run("panes[0].scene.boxes.length") == boxes
    assert browser.run("panes[0].chosenBox().key") == chosen, "what was closed is selected again"
    browser.press("x")
    assert browser.run("panes[0].scene.boxes.length") > boxes
    browser.press("X")
    assert browser.run("panes[0].scene.boxes.length") == boxes
    browser.press("?")
    assert browser.run("document.activeElement.id") == "help"
    browser.press("Escape")
    assert browser.run("document.getElementById('help').hidden")
    browser.press("Escape")
    assert selected(browser) == [[]]
    assert browser.messages == []


def test_after_a_search_the_keys_are_keys_again(browser: Browser, large: Path) -> None:
    browser.open(large)
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"
    for letter in "tanh":
        browser.press(letter)
    browser.press("Enter")
    many = browser.run("state.hits.length")
    assert many > 2
    said = "document.getElementById('found').textContent"
    assert browser.run(said) == f"1 of {many}"
    browser.press("n")
    assert browser.run(said) == f"2 of {many}" and browser.run("document.getElementById('search').value") == "tanh"
    browser.press("N")
    browser.press("N")
    assert browser.run(said) == f"{many} of {many}"
    (node,) = selected(browser)
    assert len(node) == 1, "what was found has a box of its own"
    browser.click("#after")
    assert browser.run(said) == f"1 of {many}"
    browser.click("#before")
    assert browser.run(said) == f"{many} of {many}"


def test_closed_boxes_say_how_much_of_them_was_found(browser: Browser, large: Path) -> None:
    browser.open(large)
    browser.run("search('op:tanh')")
    tags = browser.run("[...document.querySelectorAll('.box.hit .tag')].map(t => parseInt(t.textContent))")
    alone = browser.run("panes[0].boxes.filter(b => b.g.classList.contains('hit') && b.box.members.length === 1).length")
    assert sum(tags) + alone == browser.run("state.hits.length")


# --- opening


def test_a_box_is_seen_to_open(browser: Browser, large: Path) -> None:
    browser.media(motion="no-preference")
    try:
        browser.open(large)
        browser.run("panes[0].enter(panes[0].scene.boxes.find(openable))")
        assert browser.run("document.getAnimations().length") > 5
        browser.run("Promise.all(document.getAnimations().map(a => a.finished))")
        assert browser.run("document.getAnimations().length") == 0
    finally:
        browser.media()
    browser.open(large)
    browser.run("panes[0].enter(panes[0].scene.boxes.find(openable))")
    assert browser.run("document.getAnimations().length") == 0, "unless the reader wants no motion"


def test_what_was_opened_for_a_search_closes_for_the_next(browser: Browser, large: Path) -> None:
    browser.open(large)
    boxes = browser.run("panes[0].scene.boxes.length")
    browser.run("goto(panes[0], 100)")
    opened = browser.run("panes[0].scene.boxes.length")
    browser.run("goto(panes[0], 500)")
    assert opened > boxes
    assert browser.run("panes[0].scene.boxOf(500).members") == [500]
    assert len(browser.run("panes[0].scene.boxOf(100).members")) > 1


def test_the_map_shows_where_one_is_and_leads_there(browser: Browser, large: Path) -> None:
    browser.open(large)
    browser.run("panes[0].openAll(true)")
    browser.run("panes[0].zoom(3)")
    browser.run("new Promise(requestAnimationFrame)")
    assert browser.run("getComputedStyle(panes[0].map).display") != "none"
    before = browser.run("({ ...panes[0].view })")
    browser.click(".map")
    after = browser.run("({ ...panes[0].view })")
    assert after["k"] == before["k"] and (after["x"], after["y"]) != (before["x"], before["y"])
    middle = browser.run("(() => { const s = panes[0].space(), v = panes[0].view;"
                         "return [(s.width / 2 - v.x) / v.k, (s.height / 2 - v.y) / v.k]; })()")
    assert middle == pytest.approx([v / 2 for v in browser.run("panes[0].scene.size")], rel=0.02)
    browser.press("m")
    assert browser.run("getComputedStyle(panes[0].map).display") == "none"


# --- links and names


def test_a_link_leads_back_to_a_selection(browser: Browser, large: Path) -> None:
    browser.open(large)
    browser.run("search('op:tanh')")
    browser.run("goto(panes[0], 321)")
    choose(browser, "overlay", "bytes")
    link = browser.run("location.hash")
    browser.open(large, link)
    assert selected(browser) == [[321]]
    assert browser.run("[state.query, state.overlay, document.getElementById('search').value]") == ["op:tanh", "bytes", "op:tanh"]
    browser.open(large)
    box = browser.run("(() => { const b = panes[0].scene.boxes.find(openable);"
                      "select(0, b.members, b, panes[0]); return b.members; })()")  # fmt: skip
    link = browser.run("location.hash")
    browser.open(large, link)
    assert selected(browser) == [box]
    browser.open(large, "#node=%2399999")
    assert "no node" in browser.run("document.getElementById('said').textContent")
    assert browser.messages == []


def test_names_are_copied(browser: Browser, large: Path) -> None:
    browser.open(large)
    browser.run("goto(panes[0], 321)")
    browser.run("navigator.clipboard.writeText = async text => { window.copied = text; }")
    browser.press("y")
    assert browser.run("copied") == browser.run("GRAPHS[0].nodes[321].name")
    browser.press("l")
    assert browser.run("copied") == browser.run("location.href")


# --- comparing


def test_stages_stand_side_by_side_with_one_selection(browser: Browser, stages: Path) -> None:
    browser.open(stages)
    browser.press(".")
    browser.press("c")
    assert browser.run("panes.map(p => p.graph.number_in_page)") == [1, 0]
    left, right = browser.run("panes.map(p => p.root.getBoundingClientRect().x)")
    assert right < left, "before on the left"
    node = browser.run("[...MAPS[1].get(0).keys()][2]")
    browser.run(f"goto(panes[0], {node})")
    here, there = selected(browser)
    assert here == [node] and there == [browser.run(f"MAPS[1].get(0).get({node})")]
    browser.press(".")
    assert browser.run("panes.map(p => p.graph.number_in_page)") == [2, 1]
    browser.press("c")
    assert browser.run("panes.length") == 1
    assert browser.messages == []


# --- for every reader


def test_screen_readers_are_told_what_is_there(browser: Browser, large: Path) -> None:
    browser.open(large)
    unnamed = ("[...document.querySelectorAll('button, input, select, [role=button], [role=application], [role=dialog], nav')]"
               ".filter(e => !(e.getAttribute('aria-label') || e.textContent).trim()).length")  # fmt: skip
    assert browser.run(unnamed) == 0
    group = "panes[0].boxes.find(b => openable(b.box)).g"
    assert browser.run(f"{group}.getAttribute('aria-expanded')") == "false"
    browser.press("ArrowDown")
    assert browser.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    order = browser.run("[...document.querySelectorAll('input, button:not([disabled]), select, svg[tabindex=\"0\"], summary')]"
                        ".filter(e => e.checkVisibility()).map(e => e.id || e.className.baseVal || e.tagName)")  # fmt: skip
    assert order[0] == "search" and order.index("theme") < order.index("svg" if "svg" in order else "")
    assert browser.run("document.getElementById('found').getAttribute('aria-live')") == "polite"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_contrast(browser: Browser, large: Path, theme: str) -> None:
    """At least 4.5 : 1 (WCAG 2.2, success criterion 1.4.3) for the texts on each colour of boxes, and 3 : 1 for marks (1.4.11)."""
    browser.media(theme)
    try:
        browser.open(large)
        script = """(() => {
          const c = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          const light = colour => {
            c.fillStyle = colour; c.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...c.getImageData(0, 0, 1, 1).data].map(v => v / 255)
              .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const style = getComputedStyle(document.documentElement), of = name => light(style.getPropertyValue(name));
          const ratio = (a, b) => (Math.max(of(a), of(b)) + 0.05) / (Math.min(of(a), of(b)) + 0.05);
          const rules = [...document.styleSheets].flatMap(s => [...s.cssRules]);
          const families = rules.map(r => (r.selectorText || "").match(/^\\.f-(\\w+)$/)).filter(Boolean).map(m => m[1]);
          return { texts: families.map(f => [f, ratio("--text", `--fill-${f}`)]), faint: [["faint", ratio("--faint", "--ground")]],
            marks: ["accent", "hit", "input", "user"].map(m => [m, ratio(`--${m}`, "--ground")]) };
        })()"""
        found = browser.run(script)
        assert len(found["texts"]) > 8
        assert [x for x in found["texts"] + found["faint"] if x[1] < 4.5] == []
        assert [x for x in found["marks"] if x[1] < 3] == []
    finally:
        browser.media()


def test_at_twice_the_size_nothing_is_out_of_reach(browser: Browser, large: Path) -> None:
    browser.size(640, 420)  # what 1280 by 840 are at 200 %
    try:
        browser.open(large)
        browser.run("goto(panes[0], 321)")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        for part in ("header", "#panes svg", "aside", "footer"):
            rectangle = f"document.querySelector('{part}').getBoundingClientRect()"
            x, y, w, h = browser.run(f"(r => [r.x, r.y, r.width, r.height])({rectangle})")
            assert x >= 0 and y >= 0 and x + w <= 641 and y + h <= 421 and h > 20, part
        bottom, top = (f"document.querySelector('{part}').getBoundingClientRect()" for part in ("#panes svg", "aside"))
        assert browser.run(f"{bottom}.bottom <= {top}.top + 1"), "the picture ends where the inspector begins"
        browser.run("new Promise(requestAnimationFrame)")
        visible = "(b => { const s = panes[0].space(), v = panes[0].view; "\
                  "return b.y * v.k + v.y >= 0 && (b.y + b.h) * v.k + v.y <= s.height; })"
        assert browser.run(f"{visible}(panes[0].chosenBox())"), "what was gone to is in sight beside the inspector"
    finally:
        browser.size(1300, 850)


def test_on_paper_is_the_whole_picture(browser: Browser, large: Path) -> None:
    browser.open(large)
    view = browser.run("({ ...panes[0].view })")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("panes[0].svg.getAttribute('viewBox').split(' ').map(Number)") == [0, 0, *browser.run("panes[0].scene.size")]
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("panes[0].svg.getAttribute('viewBox')") is None
    assert browser.run("({ ...panes[0].view })") == view
    rules = browser.run("[...document.styleSheets].flatMap(s => [...s.cssRules]).filter(r => r.conditionText === 'print')"
                        ".map(r => r.cssText).join('')")  # fmt: skip
    assert "header" in rules and "--ground" in rules, "no controls, and the colours for white paper"
    assert browser.printed() == 1


def test_pictures_beside_each_other_stand_in_the_middle_of_their_panes(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "two.html"
    file.write_bytes(explore([("a", Session(programs.chain(12))), ("b", Session(programs.chain(12)))]).data)
    browser.open(file)
    middles = "panes.map(p => [p.view.x + p.view.k * p.scene.size[0] / 2, p.space().width / 2])"
    assert all(at == pytest.approx(middle, abs=2) for at, middle in browser.run(middles))


def test_the_legend_names_every_colour_that_is_shown(browser: Browser, large: Path) -> None:
    browser.open(large)
    shown = browser.run("panes[0].scene.boxes.filter(b => b.family !== 'other' && !CONTROL.has(b.kind)).map(b => b.family)")
    listed = browser.run("document.getElementById('legend').textContent")
    assert all(family in listed for family in shown)
    for overlay in browser.run("OVERLAYS.map(m => m.name)"):
        choose(browser, "overlay", overlay)
        assert browser.run("document.querySelectorAll('#legend .scale').length") == 1, overlay


def test_shardings_are_colours_that_the_legend_names(browser: Browser, tmp_path: Path) -> None:
    program, file = tmp_path / "split.mlir", tmp_path / "split.html"
    program.write_text("""
    module @m attributes {mhlo.num_partitions = 2 : i32} {
      sdy.mesh @mesh = <["a"=2]>
      func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}, %y: tensor<8xf32>
                             {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> (tensor<8xf32>, tensor<8xf32>) {
        %0 = stablehlo.tanh %x : tensor<8xf32>
        return %0, %y : tensor<8xf32>, tensor<8xf32>
      }
    }
    """)
    assert cli.main(["draw", str(program), "--plan", "stated", "-o", str(file)]) == 0
    browser.open(file)
    samples = "[...document.querySelectorAll('#legend .sample')]"
    said = browser.run(f"{samples}.map(s => [s.textContent, s.querySelector('rect')?.style.fill])")
    colours = {text: fill for text, fill in said if fill}
    assert {'[{"a"}]', "[{}]"} <= set(colours)
    params = "panes[0].boxes.filter(b => b.box.kind === 'param')"
    boxes = browser.run(f"{params}.map(b => [b.box.title, b.g.querySelector('.shape').style.fill])")
    fills = dict(boxes)
    assert browser.run("GRAPHS[0].nodes.filter(n => n.name === 'x').map(n => n.annotation)") == [["from input: 0"]]
    assert fills["x"] == colours['[{"a"}]'] != fills["y"] == colours["[{}]"]
    assert cli.main(["draw", str(program), "-o", str(file)]) == 0
    browser.open(file)
    assert browser.run("state.overlay") == "none", "what the text itself states is there to be chosen"
    choose(browser, "overlay", "sharding")
    assert dict(browser.run(f"{params}.map(b => [b.box.title, b.g.querySelector('.shape').style.fill])")) == fills


def test_texts_above_boxes_do_not_run_into_one_another(browser: Browser, tmp_path: Path) -> None:
    """Shardings are longer than small boxes are wide: one without room is smaller, or cut, and whole below the pointer."""
    program, file = tmp_path / "split.mlir", tmp_path / "split.html"
    on = '{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"a_long_name"}]>}'
    program.write_text(f"""
    module @m attributes {{mhlo.num_partitions = 4 : i32}} {{
      sdy.mesh @mesh = <["data"=2, "a_long_name"=2]>
      func.func public @main(%x: tensor<8x8xf32> {on}, %y: tensor<8x8xf32> {on}, %z: tensor<8x8xf32> {on}) -> tensor<8x8xf32> {{
        %0 = stablehlo.tanh %x : tensor<8x8xf32>
        %1 = stablehlo.sine %y : tensor<8x8xf32>
        %2 = stablehlo.cosine %z : tensor<8x8xf32>
        %3 = stablehlo.add %0, %1 : tensor<8x8xf32>
        %4 = stablehlo.add %3, %2 : tensor<8x8xf32>
        return %4 : tensor<8x8xf32>
      }}
    }}
    """)
    assert cli.main(["draw", str(program), "--plan", "stated", "-o", str(file)]) == 0
    browser.open(file)
    boxes = browser.run("""[...document.querySelectorAll('.tag')].map(t => t.getBoundingClientRect())
        .map(r => [r.left, r.right, r.top, r.bottom])""")
    assert len(boxes) >= 8
    for k, (left, right, top, bottom) in enumerate(boxes):
        for other_left, other_right, other_top, other_bottom in boxes[:k]:
            assert right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
    said = browser.run("[...document.querySelectorAll('.tag')].map(t => t.querySelector('title')?.textContent ?? t.textContent)")
    assert set(said) == {'[{"data"}, {"a_long_name"}]'}
