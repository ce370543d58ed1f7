"""The guide on operations, followed to the letter: declarations alone give operations that all parts know."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.newcomer import GUIDE
from tests.support.paths import ROOT


def test_the_declarations_of_the_guide_are_all_that_an_operation_needs() -> None:
    laws = re.findall(r"pytest (.*) -k (\w+)", GUIDE)
    files = dict.fromkeys(file for listed, _ in laws for file in listed.split())
    names = [name for _, name in laws]
    assert names == ["softplus", "roll", "forward_fill"]
    command = [sys.executable, "-m", "tests.support.newcomer", "-p", "no:cacheprovider", "tests/support/newcomer_checks.py"]
    done = subprocess.run([*command, *files, "-k", " or ".join(names)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 35
