"""The package and the example plugin in a clean environment: the command line, Python and the browser find what it adds.

Packages that both depend on are borrowed by a path file; nothing comes from the network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

IN_PYTHON = """
import numpy as np, deepx_graph as dx
assert "site-packages" in dx.__file__, dx.__file__
m = dx.loads("x negate softsign", "steps")
assert dx.optimize(m, "simplify").find("op:softsign")[0].inputs[0].op.name == "param", "the rule moves the sign outwards"
assert dx.optimize(m, "at-most{nodes=9}") is not None
print(dx.run(m, np.float32(3), engine="counting"), dx.dumps(m, "steps"))
"""
IN_THE_BROWSER = """
import sys, deepx_graph
from deepx_graph.interop.plugins import load_installed
assert "site-packages" in deepx_graph.__file__
load_installed("deepx_graph.plugins")  # as the command line does before it imports the browser
from tests.support.tui_pilot import browser, piloted, press, shown

@piloted
async def look():
    async with browser(sys.argv[1]) as pilot:
        assert "softsign" in shown(pilot) and "8 Users" in shown(pilot), shown(pilot)
        await press(pilot, "j", "j", "8")
        assert "read by" in shown(pilot) and "softsign" in shown(pilot), shown(pilot)
        await press(pilot, "2")
        assert "softsign" in shown(pilot), shown(pilot)
        await press(pilot, "4", "p", "=simplify,at-most", "enter", "r")
        assert "at-most" in shown(pilot) and "failed" not in shown(pilot), shown(pilot)
look()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment that has the package and the plugin."""
    if not find_spec("pip") or not find_spec("setuptools"):
        pytest.skip("pip and setuptools, which install the example, are not in this environment")
    place = tmp_path_factory.mktemp("clean")
    venv.create(place / "env", with_pip=False)
    (site,) = (place / "env" / "lib").glob("*/site-packages")
    borrowed = {str(Path(spec.origin).parent.parent) for name in ("numpy", "setuptools", "textual", "pip")
                if (spec := find_spec(name)) and spec.origin}
    (site / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    copy = place / "checkout"
    left = shutil.ignore_patterns(".*", "tests", "docs", "bench", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=left)
    python = place / "env" / "bin" / "python"
    for source in (copy, copy / "examples" / "plugin"):
        done = subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps",
                               "--no-index", "--no-build-isolation", "--ignore-installed", str(source)],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return place / "env" / "bin"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in the plugin's language, of its operation."""
    path = tmp_path / "p.steps"
    path.write_text("x negate softsign tanh\n")
    return path


def ran(*command: Any, path: Path | None = None) -> str:
    """What a command of the clean environment prints, outside the checkout."""
    around = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    around |= {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, env=around, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_line_finds_all_that_the_plugin_adds(environment: Path, program: Path) -> None:
    tool = environment / "deepx-graph"
    assert "x / (1 + |x|)" in ran(tool, "ops", "softsign")
    text = ran(tool, "opt", program, "-p", "simplify,at-most", "--emit", "steps")
    assert text.split() == ["x", "softsign", "negate", "tanh"] or text.split() == ["x", "softsign", "tanh", "negate"], text
    ran(tool, "run", program, "--engine", "counting", "--random-inputs")
    ran(tool, "draw", program, "-o", program.with_suffix(".svg"))
    assert "softsign" in program.with_suffix(".svg").read_text()
    assert "at-most" in ran(tool, "opt", "--list-passes")


def test_python_finds_all_that_the_plugin_adds(environment: Path) -> None:
    assert "-0.75" in ran(environment / "python", "-c", IN_PYTHON)


def test_the_browser_shows_and_runs_what_the_plugin_adds(environment: Path, program: Path, tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "tests").symlink_to(ROOT / "tests")
    ran(environment / "python", "-c", IN_THE_BROWSER, program, path=tmp_path / "only")
