"""The guide on operations, followed to the letter: its declaration in its one file gives an operation that all parts know."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.newcomer import GUIDE
from tests.support.paths import ROOT


def test_the_declaration_of_the_guide_is_all_that_an_operation_needs() -> None:
    (laws,) = re.findall(r"pytest (.*)", GUIDE)
    command = [sys.executable, "-m", "tests.support.newcomer", "-p", "no:cacheprovider", "tests/support/newcomer_checks.py"]
    done = subprocess.run([*command, *laws.split()], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 15
