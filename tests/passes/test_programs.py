"""Random programs keep their meaning to the bit through every pass, reach a normal form, and are settled after one run."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from deepx_graph.ir import Module
from deepx_graph.passes.observer import Verify, node_count
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.passes.rules.fold import fold_rule
from deepx_graph.passes.scalar.algebra import ALGEBRA
from deepx_graph.passes.scalar.canonicalize import CANONICAL, settle
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.rewrite.engine import RuleSet, assert_normal_form, rewrite
from deepx_graph.verify import verify
from tests.support.generate import random_inputs, random_module
from tests.support.reference import evaluate, same

ALL_RULES = (fold_rule(1 << 20), *CANONICAL, *ALGEBRA)


def assert_same_meaning(before: Module, after: Module, rng: random.Random) -> None:
    for _ in range(2):
        args = random_inputs(rng, before)
        assert all(map(same, evaluate(before, args), evaluate(after, args)))


@pytest.mark.parametrize("pipeline", ["inline", "sccp", "canonicalize", "fold", "algebra", "simplify", "cse", "dce", "clean",
                                      "simplify,sccp,inline,simplify,dce,cse"])  # fmt: skip
@pytest.mark.parametrize("batch", range(4))
def test_a_pass_keeps_the_meaning(pipeline: str, batch: int) -> None:
    for seed in range(batch * 20, batch * 20 + 20):
        rng = random.Random(seed)
        before = random_module(rng, exact=True)
        verify(before)
        after = run_pipeline(before, parse_pipeline(pipeline), [Verify()])
        assert node_count(after) <= node_count(before) or "inline" in pipeline
        assert_same_meaning(before, after, rng)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_rules_end_in_a_normal_form_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    before = random_module(rng, exact=True)
    rules = RuleSet(ALL_RULES)
    after = rewrite(before, rules, RewriteControl(), order=rng)
    verify(after)
    assert_normal_form(after, rules)
    assert_same_meaning(before, after, rng)


def test_simplify_settles_in_one_run_and_default_in_two() -> None:
    again = 0
    for seed in range(100):
        module = random_module(random.Random(seed), exact=True)
        simple = settle(module, RuleSet(ALL_RULES), RewriteControl())
        assert settle(simple, RuleSet(ALL_RULES), RewriteControl()) is simple
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


@pytest.mark.parametrize("seed", range(12))
def test_every_prefix_of_the_rewrites_is_a_program(seed: int) -> None:
    """What `--rewrite-limit` relies on: stopping anywhere leaves a valid program with the same meaning."""
    rng = random.Random(seed)
    module = random_module(rng, exact=True)
    passes = parse_pipeline("clean")
    whole = RewriteControl()
    run_pipeline(module, passes, control=whole)
    for limit in sorted({0, 1, 2, whole.count // 2, max(0, whole.count - 1)}):
        control = RewriteControl(limit)
        after = run_pipeline(module, passes, [Verify()], control=control)
        assert control.count == min(limit, whole.count)
        assert_same_meaning(module, after, rng)
    assert run_pipeline(module, passes, limit=0) is module
