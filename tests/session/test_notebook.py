"""What a notebook shows of modules, functions and profiles."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.viz.picture.svg import Bar, bars
from tests.support import viz_modules as programs
from tests.support.svg_texts import HOSTILE, texts


def test_modules_and_functions_show_text_and_a_picture() -> None:
    module = dx.optimize(programs.loop(), "none")
    for value in (module, module.entry):
        shown = value._repr_mimebundle_()
        assert set(shown) == {"text/plain", "image/svg+xml"}
        assert "in   x: f32[4,8]" in shown["text/plain"]
        assert {"loop begin", "print"} <= set(texts(shown["image/svg+xml"].encode()))


def test_a_profile_shows_its_table_and_bars() -> None:
    f = dx.compile(programs.straight(), profile=True, optimize=False)
    f(np.ones((4, 8), "f4"), np.ones((4, 8), "f4"))
    assert f.profile is not None
    shown = f.profile._repr_mimebundle_()
    assert shown["text/plain"] == str(f.profile)
    root = ElementTree.fromstring(shown["image/svg+xml"])
    assert sum(e.tag.endswith("rect") for e in root.iter()) == len(f.profile.rows())


@pytest.mark.parametrize("name", HOSTILE[:9])
def test_bars_take_any_name(name: str) -> None:
    assert any(t for t in texts(bars([Bar(name, 1.0, name), Bar("b", 0.0, "")])))


def test_without_the_floors_that_draw_there_is_text() -> None:
    code = "from deepx_graph.ir import Builder, Module; from deepx_graph.types import F32, scalar; b = Builder(); " \
           "print(b.function('main', [('x', scalar(F32))], lambda x: [x])._repr_mimebundle_())"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'text/plain': '<function main: (f32[]) -> (f32[])>'}"
