"""A user's program with types, strictly checked by pyright; mypy checks it wherever `make lint` runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.conformance
def test_pyright_accepts_a_strict_project() -> None:
    pytest.importorskip("pyright", reason="pyright is not installed: pip install 'pyright[nodejs]'")
    done = subprocess.run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "examples/typed/user.py"], cwd=ROOT,
                          capture_output=True, text=True, check=False, timeout=300)
    if "0 errors" not in done.stdout and "errors," not in done.stdout:
        pytest.skip(f"pyright, which needs node, does not run: {done.stderr[-200:]}")
    assert "0 errors" in done.stdout, done.stdout
