"""Every rewrite checked as it happens: wrong rules are caught and named wherever they are applied, right ones never."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, exponential, negate, subtract
from deepx_graph.passes.interprocedural import inline
from deepx_graph.passes.scalar.dce import Dce
from deepx_graph.passes.scalar.simplify import ALGEBRA, CANONICAL
from deepx_graph.rewrite.base import PassError, Rewrite
from deepx_graph.rewrite.engine import InterningBuilder, Rule
from deepx_graph.runtime.inputs import input_ports
from deepx_graph.session import programs
from deepx_graph.session.fuzzing import checks
from deepx_graph.session.fuzzing.checks import Case
from deepx_graph.types import F32, tensor
from deepx_graph.validation import pairs
from deepx_graph.validation.cones import common_cut
from deepx_graph.validation.programs import RandomProgram
from deepx_graph.validation.rewrites import ValidateRewrites
from tests.support.generate import random_inputs, random_module
from tests.support.reference import evaluate, same
from tests.support.rule_instances import CALLED, Draw, NoInstance, instance, values
from tests.support.rule_mutants import RuleMutant, mutants
from tests.support.wrong_rules import LOOP, planted, with_rules

BRANCHES = """HloModule m
yes { x = f32[4] parameter(0)
  y = f32[4] negate(x)
  ROOT z = f32[4] subtract(y, x) }
no { x = f32[4] parameter(0)
  ROOT z = f32[4] add(x, x) }
ENTRY main { p = pred[] parameter(0)
  x = f32[4] parameter(1)
  ROOT r = f32[4] conditional(p, x, x), true_computation=yes, false_computation=no }
"""


@contextmanager
def nothing_known() -> Iterator[None]:
    """As in a new process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "KNOWN", {})
        yield


@pytest.mark.parametrize("text", [BRANCHES, LOOP], ids=["branches", "loop"])
def test_a_wrong_rule_is_named_in_branches_and_loops(text: str) -> None:
    with with_rules(planted), pytest.raises(PassError, match=r"'planted' of pass 'simplify'.*wrong element") as e:
        dx.optimize(dx.loads(text), "clean", verify="values")
    assert "was: " in str(e.value) and "now: " in str(e.value) and "--rewrite-limit" in str(e.value)


def test_the_command_line_checks_rewrites_when_asked(tmp_path: Any, run: Any) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(LOOP)
    done = run("opt", str(file), "--verify-each=values")
    assert done.code == 0 and "checked by values" in done.err


def test_a_pass_that_is_no_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inlining that takes the arguments in the other order."""
    text = """HloModule m
f { x = s32[4] parameter(0)
  y = s32[4] parameter(1)
  ROOT z = s32[4] subtract(x, y) }
ENTRY main { x = s32[4] parameter(0)
  y = s32[4] parameter(1)
  ROOT r = s32[4] call(x, y), to_apply=f }
"""
    right = inline.inlined
    monkeypatch.setattr(inline, "inlined", lambda body, inputs, step: right(body, inputs[::-1], step))
    with pytest.raises(PassError, match="pass 'inline' changed output"):
        dx.optimize(dx.loads(text), "clean", verify="values")


def test_a_cut_ends_where_both_sides_meet() -> None:
    b = Builder()
    x, y = (b.param(k, tensor(F32, (3,)), n) for k, n in enumerate("xy"))
    deep = b(exponential, b(exponential, x))
    minus = b(negate, deep)
    before, after = b(add, minus, y), b(subtract, y, deep)
    cut = common_cut(before, after, {})
    assert set(cut.leaves) == {deep, y} and set(cut.inner) == {minus, before, after}
    assert set(cut.bottom().leaves) == {x, y} and cut.bottom().free


def checked(mutant: RuleMutant, draws: int) -> tuple[bool, bool]:
    """Whether the wrong rule changes the values of an instance, by the reference, and whether it is caught on one."""
    wrong = caught = False
    for seed in range(draws):
        d = Draw(random.Random(f"{mutant.rule.name} {seed}"), tame=mutant.rule.fast_math)
        try:
            before = instance(mutant.rule, d)
        except NoInstance:
            continue
        after = replacement(mutant.rule, before)
        if after is None:
            continue
        wrong = wrong or differs(mutant.rule, d, before, after)
        caught = caught or alarms(d, before, after, mutant.rule.name)
        if wrong and caught:
            break
    return wrong, caught


def replacement(r: Rule, before: Node) -> Node | None:
    if not r.may_apply(before.op, frozenset(i.op for i in before.inputs)):
        return None
    try:
        after = r.apply(before, InterningBuilder())
    except Exception:  # a mutant may do anything
        return None
    return after if after is not None and after.type == before.type else None


def differs(r: Rule, d: Draw, before: Node, after: Node) -> bool:
    args = [values(d.rng, p.type, tame=r.fast_math) for p in d.params]  # type: ignore[arg-type]
    try:
        want, got = (evaluate(Module((Function("f", tuple(d.params), (n,)), *CALLED), "f"), args)[0] for n in (before, after))
    except (DeepxGraphError, ArithmeticError, ValueError, TypeError):
        return False
    if not isinstance(want, (np.ndarray, np.generic)):
        return False
    if not r.fast_math or want.dtype.kind in "biu":
        return not same(np.asarray(want), np.asarray(got))
    tol = 64 * float(ml_dtypes.finfo(want.dtype).eps)  # type: ignore[no-untyped-call]
    return not np.allclose(want.astype(np.complex128), got.astype(np.complex128), rtol=tol, atol=tol, equal_nan=True)


def alarms(d: Draw, before: Node, after: Node, rule: str) -> bool:
    validation = ValidateRewrites()
    validation.before_pass(Dce(), Module((Function("f", tuple(d.params), (before,)), *CALLED), "f"))
    try:
        validation.on_rewrite(Rewrite(1, "simplify", rule, before, after))
    except PassError as e:
        return f"'{rule}'" in str(e)
    return False


RULES = (*ALGEBRA, *CANONICAL)


def bar(rules: Any, draws: int) -> tuple[int, list[str]]:
    """How many mutants are wrong, and which of these were not caught."""
    valid, missed = 0, []
    with nothing_known(), np.errstate(all="ignore"):
        for r in rules:
            for mutant in mutants(r):
                wrong, caught = checked(mutant, draws)
                valid += wrong
                missed += [str(mutant)] if wrong and not caught else []
    return valid, missed


@pytest.mark.filterwarnings("ignore")
def test_faults_in_rules_are_caught() -> None:
    valid, missed = bar(RULES[::40], 40)
    assert valid and not missed, missed


@pytest.mark.filterwarnings("ignore")
def test_a_shape_that_no_operand_has_is_seen() -> None:
    """Where rewrites of elements are checked without shapes: a rule that leaves scalars alone loses the one of the result."""
    valid, missed = bar([r for r in RULES if r.name == "scalar-operand"], 40)
    assert valid >= 2 and not missed, missed


WITHOUT = {
    "wrong operand": "and-not compare-self-float constant-compared-right elementwise-of-padded elementwise-of-stack or-not "
    "scalar-operand select-of-equal subtract-self subtract-self-float times-zero xor-self",
    "missing guard": "absorb-again declared-law identity-of-anything negate-difference-float not-order reverse-twice "
    "transpose-of-float-dot",
    "wrong constant": "abs-of-negative absorb-and absorb-or absorbing-number add-negative add-then-subtract all-scalars "
    "broadcast-nothing common-factor common-factor-float comparisons-of-the-same constant-compared-right constant-right "
    "declared-law divide-by-constant divide-by-power-of-two divide-by-root exponential-of-log identity-of-anything known-size "
    "log-of-exponential negate-constant-product negate-difference negate-difference-float negative-times-constant or-not or-ones "
    "product-of-exponentials product-of-negatives quotient-of-negatives remainder-of-less reshape-twice root-of-square "
    "select-again-false select-again-true select-not select-same square-of-root subtract-constant subtract-negative "
    "subtract-then-add transpose-of-ones",
}
"""By kind of fault the rules that have no place for one: what they give is a constant or is made by helpers from all of the node,
they apply wherever their pattern does, no number stands in them."""


def test_every_rule_has_mutants_of_every_kind() -> None:
    kinds = {r.name: {m.kind for m in mutants(r)} for r in RULES}
    for kind, names in WITHOUT.items():
        assert sorted(name for name, found in kinds.items() if kind not in found) == names.split()
    assert all(kinds.values())


@pytest.mark.filterwarnings("ignore")
def test_faults_in_patterns_are_caught() -> None:
    patterned = [r for r in RULES if any(m.number >= 100 for m in mutants(r))]
    valid, missed = bar(patterned[::5], 10)
    assert valid and not missed, missed


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_of_faults_in_every_rule_98_percent_are_caught() -> None:
    valid, missed = bar(RULES, 250)
    assert valid >= 100 and len(missed) <= 0.02 * valid, missed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.conformance) for k in range(50, 10_000, 50))])
def test_there_is_no_alarm_on_random_programs(first: int) -> None:
    """No rewrite is called wrong, and none was: on every engine the result is that of the program as it stands."""
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        module = random_module(rng)
        after = programs.optimise(module, "default", programs.Watch(values=True)).module
        inputs = dict(zip([p.name for p in input_ports(module.entry)], random_inputs(rng, module), strict=True))
        case = Case(RandomProgram(module, inputs), seed)
        for engine in ("numpy", *checks.ENGINES):
            found = list(checks.differences(case, checks.run(after, inputs, engine, 2), exact=False, what=engine))
            assert not found, f"{seed}: {found}"
