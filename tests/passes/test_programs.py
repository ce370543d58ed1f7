"""Random programs are settled after one run of the simplifying passes, and make most rules apply. What values they keep, judges say
(`tests/support/judges.py`)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.passes.scalar.simplify import settle
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.rewrite.engine import RuleSet
from tests.support.generate import random_module
from tests.support.judges import SETTLING

pytestmark = pytest.mark.validated


def test_simplify_settles_in_one_run_and_default_in_two() -> None:
    again = 0
    for seed in range(100):
        module = random_module(random.Random(seed), exact=True)
        simple = settle(module, RuleSet(SETTLING), RewriteControl())
        assert settle(simple, RuleSet(SETTLING), RewriteControl()) is simple
        once = run_pipeline(module, parse_pipeline("clean"))
        twice = run_pipeline(once, parse_pipeline("clean"))
        again += twice is not once
    assert again <= 2, "constants that only show once dead calls are gone are rare"


def test_the_programs_exercise_the_rules() -> None:
    applied: Counter[str] = Counter()
    for seed in range(150):
        control = RewriteControl()
        module = random_module(random.Random(seed), exact=True)
        run_pipeline(module, parse_pipeline("canonicalize,algebra,fold,inline,sccp,simplify,dce"), control=control)
        applied += control.applied
    assert len(applied) > 40
    assert not {"declared-law", "known-branch", "unchanging-loop-variable", "inline", "scalar-operand"} - set(applied)
