"""What is written: valid, deterministic, and harmless whatever the names in the file are."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from deepx_graph.errors import UsageError, printable
from deepx_graph.ir import Node
from deepx_graph.viz import build_view, draw
from deepx_graph.viz.folding.fold import OVERVIEW
from deepx_graph.viz.picture import graphviz as layout
from deepx_graph.viz.picture import svg
from deepx_graph.viz.picture.layered import lay_out
from deepx_graph.viz.picture.scene_svg import to_svg
from deepx_graph.viz.picture.style import theme_named
from deepx_graph.viz.view import build
from tests.support import viz_modules as programs
from tests.support.paths import ROOT
from tests.support.svg_texts import HOSTILE, texts

LONG = 600.0
"""Seconds that no layout takes here: what is drawn must not depend on how busy the machine is."""


@pytest.mark.parametrize("name", HOSTILE, ids=[printable(n)[:20] for n in HOSTILE])
def test_hostile_names_are_shown_as_they_are(name: str) -> None:
    module = programs.named(name)
    for data in (draw(module, format="svg", title=name, layout="graphviz").data, to_svg(lay_out(build_view(module, title=name)))):
        shown = texts(data)
        assert not re.search(rb"<\s*(script|a|image|use|style|foreignObject)\b|href", data)
        assert all(c == "\n" or printable(c) == c for t in shown for c in t)
        if len(name) < 30 and "\n" not in name:
            assert printable(name) in shown


@pytest.mark.parametrize("name", HOSTILE, ids=[printable(n)[:20] for n in HOSTILE])
def test_dot_has_only_our_ids_and_quoted_labels(name: str) -> None:
    text = draw(programs.named(name), format="dot", title=name).data.decode()
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text, flags=re.DOTALL)
    assert outside.count('"') % 2 == 0
    assert "<" not in outside
    assert not re.search(r"\b(URL|href|image|shapefile|src)\b", outside, re.IGNORECASE)
    ids = set(re.findall(r"^\s*(?:subgraph )?(\w+)(?= \[| \{| ->)", outside, re.MULTILINE)) - {"node", "edge", "graph", "digraph"}
    assert all(re.fullmatch(r"n\d+|cluster_(\d+|legend)|legend_\w+|deepx_graph", id) for id in ids)


def test_equal_programs_give_equal_bytes() -> None:
    for program in (programs.loop, programs.fused, lambda: programs.tangle(60)):
        for format in ("dot", "svg", "html"):
            one, other = (draw(program(), format=format, max_nodes=40, timeout=LONG) for _ in range(2))
            assert one.data == other.data


def test_kinds_of_edges_differ_in_dot() -> None:
    text = draw(programs.loop(), format="dot", legend=False).data.decode()
    edges = [line for line in text.splitlines() if "->" in line]
    assert {style for line in edges for style in re.findall(r"style=(\w+)", line)} == {"solid", "bold", "dotted", "dashed"}
    assert sum("dashed" in line for line in edges) == 1
    assert sum("dotted" in line for line in edges) == 6
    assert len(edges) == len(build_view(programs.loop()).edges)


def test_themes_differ_only_in_colours() -> None:
    def without_colours(theme: str) -> str:
        return re.sub(r"#[0-9a-f]{6}", "#", draw(programs.loop(), format="dot", theme=theme).data.decode())

    light, dark = (draw(programs.loop(), format="dot", theme=t).data for t in ("light", "dark"))
    assert light != dark
    assert without_colours("light") == without_colours("dark")


def luminance(colour: str) -> float:
    """Relative luminance, from WCAG 2."""
    channels = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("name", ["light", "dark"])
def test_text_is_readable_on_every_ground(name: str) -> None:
    from deepx_graph.ops import FAMILIES
    from deepx_graph.viz.picture.style import theme_named

    theme = theme_named(name)
    grounds = [theme.ground, *(c[0] for c in theme.clusters.values())]
    pairs = [(theme.text, g) for g in grounds] + [(theme.faint, g) for g in grounds]
    pairs += [(theme.text, theme.colours(family)[0]) for family in (*FAMILIES, "other", "group")]
    pairs += [(theme.edges[k], g) for k in ("control", "effect") for g in grounds]
    for front, back in pairs:
        low, high = sorted((luminance(front), luminance(back)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back)


def test_tooltips_are_in_the_svg() -> None:
    shown = texts(draw(programs.straight(), format="svg").data)
    assert "#2 add: f32[4,8]\nname s" in shown
    assert "add → tanh" in shown


@pytest.mark.parametrize("text", ["subtitle", "tooltip"])
def test_texts_are_made_for_what_is_drawn(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Node] = []
    monkeypatch.setattr(build, text, lambda node, *rest: made.append(node) or "")
    draw(programs.tangle(2500), format="dot")
    assert len(made) <= OVERVIEW


def test_the_legend_names_what_occurs() -> None:
    shown = texts(draw(programs.loop(), format="svg").data)
    for name in ("elementwise", "effects", "data, with its type", "control", "order of effects", "next iteration of a loop"):
        assert name in shown
    assert "order of effects" not in texts(draw(programs.straight(), format="svg").data)


def test_png() -> None:
    data = draw(programs.straight(), format="png").data
    assert data.startswith(b"\x89PNG\r\n\x1a\n")


def test_the_suffix_tells_the_format(tmp_path: Path) -> None:
    for suffix, start in (("svg", b"<?xml"), ("dot", b"digraph"), ("html", b"<!DOCTYPE html>"), ("SVG", b"<?xml")):
        path = tmp_path / f"picture.{suffix}"
        drawing = draw(programs.straight(), path)
        assert path.read_bytes() == drawing.data
        assert drawing.data.startswith(start)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(("options", "message"), [
    ({"path": "a.svgg"}, "did you mean 'svg'"),
    ({"path": "noformat"}, "no suffix"),
    ({"format": "svg", "theme": "drak"}, "did you mean 'dark'"),
    ({"format": "svg", "function": "mian"}, "did you mean 'main'"),
    ({"format": "svg", "around": "nothing"}, "no node 'nothing'"),
])  # fmt: skip
def test_mistakes_are_reported(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw(programs.straight(), **options)  # type: ignore[arg-type]


def test_an_unwritable_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        draw(programs.straight(), tmp_path / "missing" / "a.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        draw(programs.straight(), tmp_path / "folder.svg")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.svg"]


def test_without_an_engine_svg_falls_back_and_png_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "engine", lambda: None)
    drawing = draw(programs.loop(), format="svg", layout="graphviz")
    assert "loop begin" in texts(drawing.data)
    assert drawing.notes == (f"layered layout, because: no layout engine found: {layout.INSTALL}",)
    with pytest.raises(UsageError, match="pygraphviz"):
        draw(programs.loop(), format="png")


def test_a_layout_that_takes_too_long_falls_back_and_says_so() -> None:
    drawing = draw(programs.tangle(450), format="svg", layout="graphviz", timeout=0.02)
    assert texts(drawing.data)
    assert "layered layout" in drawing.notes[-1]
    assert "not finished" in drawing.notes[-1]
    with pytest.raises(layout.LayoutError, match="not finished"):
        draw(programs.tangle(450), format="png", timeout=0.02)


def script(folder: Path, body: str) -> str:
    path = folder / "dot"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_an_installed_dot_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, 'cat >/dev/null; echo "<svg xmlns=\'http://www.w3.org/2000/svg\'><text>$*</text></svg>"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert texts(draw(programs.straight(), format="svg", layout="graphviz").data) == ["-Tsvg"]


def test_the_fast_settings_come_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    svg_text = "<svg xmlns='http://www.w3.org/2000/svg'/>"
    script(tmp_path, f'cat >/dev/null; case "$*" in *nslimit*) echo "{svg_text}";; *) exit 3;; esac')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert draw(programs.straight(), format="svg", layout="graphviz").notes == (
        "full layout: the engine failed (status 3)", "drawn with fast layout settings: straight edges, more crossings",
    )  # fmt: skip


def test_a_layout_that_waits_has_not_used_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, 'cat >/dev/null; sleep 1.3; echo "<svg xmlns=\'http://www.w3.org/2000/svg\'><text>$*</text></svg>"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    drawing = draw(programs.straight(), format="svg", layout="graphviz", timeout=2.0)
    assert texts(drawing.data) == ["-Tsvg"]
    assert drawing.notes == ()


@pytest.mark.skipif(layout.OUT_OF_TIME is None, reason="no limit on processor time on this system")
def test_a_layout_that_has_used_up_its_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "cat >/dev/null; kill -XCPU $$")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert "full layout: not finished in 12 s" in draw(programs.straight(), format="svg", layout="graphviz", timeout=20.0).notes[-1]


@pytest.mark.parametrize("reply", ["not xml", "<html/>", "<svg xmlns='http://www.w3.org/2000/svg'>"])
def test_an_engine_that_writes_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: str) -> None:
    script(tmp_path, f'cat >/dev/null; echo "{reply}"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    drawing = draw(programs.straight(), format="svg", layout="graphviz")
    assert "SVG" in drawing.notes[-1]
    assert "tanh" in texts(drawing.data)


def test_the_filter_drops_what_is_not_on_its_lists() -> None:
    source = (
        b"<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' onload='alert(1)'>"
        b"<script>alert(1)</script><style>*{}</style><image xlink:href='http://x/'/>"
        b"<a xlink:href='javascript:alert(1)'><text x='1' style='a' fill='url(#x)'>kept</text></a>"
        b"<foreignObject><text>gone</text></foreignObject></svg>"
    )
    data = svg.filtered(source, build_view(programs.straight()))
    assert texts(data) == ["kept"]
    assert b"onload" not in data
    assert data.count(b"style") == 1  # ours, on the root


def test_an_empty_part_is_still_a_picture() -> None:
    from deepx_graph.ir import Function

    drawing = draw(programs.module(Function("main", (), ())), format="svg")
    assert drawing.notes == ("there is nothing to draw",)
    assert any("nothing to draw" in t for t in texts(drawing.data))


def test_what_is_written_beside_lines_stands_before_them_on_its_own_ground() -> None:
    scene = lay_out(build_view(programs.loop()))
    text = to_svg(scene).decode()
    assert text.rindex('class="edge"') < text.index("paint-order")
    grounds = {c.id: theme_named("light").clusters[c.kind][0] for c in scene.view.clusters}
    rims = re.findall(r'<g stroke="(#\w+)"[^>]*paint-order="stroke"><text[^>]*>([^<]*)</text>', text)
    assert {(grounds[c.id], c.title) for c in scene.view.clusters} <= set(rims)
    assert len(rims) == len(scene.view.clusters) + sum(line.at is not None for line in scene.lines)
    (of_page,) = re.findall(r"^\.el\{(.*)\}", (ROOT / "viz" / "assets" / "explorer.css").read_text(encoding="utf-8"), re.MULTILINE)
    assert "paint-order" in of_page and "text-anchor" not in of_page  # they begin where they are placed, on pages too
