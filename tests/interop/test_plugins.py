"""The example of a plugin: an operation, a rule, a pass, an engine and a language on the command line and in Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

PLUGIN = ROOT / "examples" / "plugin" / "src" / "example_plugin.py"
CHECKS = '''
import numpy as np, deepx_graph as dx, example_plugin as p
from deepx_graph import ops
from deepx_graph.ops import OPS
b = dx.Builder()
from deepx_graph.types import F32, tensor
f = b.function("main", [("x", tensor(F32, (5,)))], lambda x: [b(p.softsign, b(ops.negate, x)) * 2])
m = dx.Module((f,))
x = np.linspace(-2, 2, 5, dtype=np.float32)
want = -x / (1 + np.abs(x)) * 2
for engine in ("numpy", "numexpr", "auto", "counting"):
    for program in (m, dx.optimize(m)):
        np.testing.assert_allclose(dx.compile(program, engine=engine)(x)[0], want, rtol=1e-6)
assert dx.loads(dx.dumps(m, "sea"), "sea").find("op:softsign")
assert "abs" in dx.dumps(m, "hlo") and "divide" in dx.dumps(m, "stablehlo")
fused = dx.optimize(m)
assert fused.find("op:fusion") and "softsign" in dx.dumps(fused, "sea")
simple = dx.optimize(m, "simplify")
assert "softsign-of-negated" in str([n.origin.rewrites for n in simple.entry.nodes])
(grad,) = dx.run(dx.grad(m), x, np.ones(5, np.float32))
np.testing.assert_allclose(grad, -2 / (1 + np.abs(x)) ** 2, rtol=1e-6)
assert dx.optimize(m, [p.AtMost(100)]) is not None
for bad in (lambda: dx.optimize(m, "at-most{nodes=1}"), lambda: dx.register_engine("numpy", p.CountingEngine),
            lambda: dx.register_reader("hlo", p.read), lambda: dx.register_op(p.unary("add", "Again.", abs))):
    try: bad()
    except dx.DeepxGraphError as e: print(str(e).split(chr(10))[0])
    else: raise AssertionError("not refused")
print(dx.dumps(dx.loads("x softsign tanh", "steps")))
'''


def python(*arguments: str, path: Path | None = None) -> Any:
    places = [str(p) for p in (path, ROOT) if p is not None]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment, timeout=120)


def test_what_a_plugin_adds_works_as_if_it_stood_here() -> None:
    done = python("-c", CHECKS, path=PLUGIN.parent)
    assert done.returncode == 0, done.stderr
    assert [line[:40] for line in done.stdout.split("\n")[1:4]] == [
        "error: there is an engine 'numpy' alread", "error: there is a format 'hlo' already",
        "error: there is an operation 'add' alrea"]  # fmt: skip
    assert done.stdout.endswith("x softsign tanh\n\n")


def test_a_file_is_a_plugin_of_one_command(tmp_path: Path) -> None:
    program = tmp_path / "p.steps"
    program.write_text("x negate softsign")
    done = python("-m", "deepx_graph", "opt", str(program), "--plugin", str(PLUGIN), "--emit", "sea", "-p", "simplify,at-most")
    assert done.returncode == 0 and done.stdout.index("softsign") < done.stdout.index("negate"), done.stderr
    shown = python("-m", "deepx_graph", "ops", "softsign", "--plugin", str(PLUGIN))
    assert "x / (1 + |x|)" in shown.stdout
    ran = python("-m", "deepx_graph", "run", str(program), "--plugin", str(PLUGIN), "--engine", "counting", "--random-inputs")
    assert ran.returncode == 0, ran.stderr
    (tmp_path / "broken.py").write_text("import deepx_graph\n1 / 0\n")
    broken = python("-m", "deepx_graph", "ops", "--plugin", str(tmp_path / "broken.py"))
    assert broken.returncode == 2 and "broken.py:2: ZeroDivisionError" in broken.stderr and "Traceback" not in broken.stderr


BROWSING = '''
import example_plugin, deepx_graph as dx
from tests.support.tui_pilot import browser, piloted, press, shown
from tests.support.browsing_programs import foldable
@piloted
async def look():
    async with browser(foldable()) as pilot:
        assert "8 Users" in shown(pilot)
        await press(pilot, "8")
        text = shown(pilot)
        assert "read by " in text and "tanh" in text, text
        example_plugin.users.__code__ = (lambda module, node: 1 / 0).__code__
        await press(pilot, "1", "j", "8")
        assert "the plugin failed: ZeroDivisionError" in shown(pilot)
look()
for bad in ("list", "a b", ""):
    try: dx.register_view(bad, print)
    except dx.UsageError: pass
    else: raise AssertionError(bad)
'''


DRAWING = '''
import deepx_graph.tui.views.base  # a plugin may come later than the browser
import deepx_graph as dx, example_plugin
from tests.support.pages import data_of
m = dx.loads("x negate softsign", "steps")
svg = dx.draw(m, format="svg").data.decode()
assert "read by softsign" in svg and svg.count("Users") == len(m.entry.nodes), svg
told = str(data_of(dx.draw(m, format="html").data)["graphs"][0]["columns"]["views"])
assert "['Users', 'read by softsign', " in told, told
dx.register_view("broken", lambda module, node: 1 / 0)
assert "the plugin failed: ZeroDivisionError" in dx.draw(m, format="svg").data.decode()
assert [*deepx_graph.tui.views.base.views()][-2:] == ["users", "broken"]
'''


def test_a_view_is_on_pages_and_in_pictures_and_may_come_later_than_the_browser() -> None:
    done = python("-c", DRAWING, path=PLUGIN.parent)
    assert done.returncode == 0, done.stderr


def test_a_view_of_a_plugin_stands_behind_a_key_of_its_own() -> None:
    done = python("-c", BROWSING, path=PLUGIN.parent)
    assert done.returncode == 0, done.stderr


def test_the_names_of_views_that_are_taken_are_those_of_the_browser() -> None:
    from deepx_graph.interop.plugins import _OWN_VIEWS
    from deepx_graph.tui.views.base import OWN_VIEWS

    assert set(OWN_VIEWS) == _OWN_VIEWS


def test_an_installed_plugin_is_found_by_its_entry_point(tmp_path: Path) -> None:
    if python("-c", "import pip").returncode:
        pytest.skip("pip, which installs the example, is not in this environment")
    place = tmp_path / "site"
    copy = tmp_path / "plugin"
    (copy / "src").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "src/example_plugin.py"):
        (copy / name).write_text((PLUGIN.parent.parent / name).read_text())
    made = python("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(place), str(copy))
    assert made.returncode == 0, made.stderr
    shown = python("-m", "deepx_graph", "ops", "softsign", path=place)
    assert "x / (1 + |x|)" in shown.stdout, shown.stderr
    used = python("-c", "import deepx_graph as dx; print(dx.loads('x softsign', 'steps'))", path=place)
    assert used.stdout.strip() == "x softsign", used.stderr
