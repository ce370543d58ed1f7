"""Every rewrite rule keeps the meaning on generated instances of its own shape: to the bit where it claims to be exact."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deepx_graph.ir import Function, Module, Node
from deepx_graph.passes.scalar.simplify import ALGEBRA, CANONICAL
from deepx_graph.rewrite.engine import InterningBuilder, Rule
from tests.support.data_movement import PROGRAMS
from tests.support.integers import PROGRAMS as OF_INTEGERS
from tests.support.reference import evaluate, same
from tests.support.rule_instances import CALLED, Draw, NoInstance, instance, values

RULES = (*ALGEBRA, *CANONICAL)

ROUNDED_ONCE = {"square", "inverse"}
"""Rules that give the correctly rounded result, from which numpy's `power` may differ in the last place."""

COMPLEX_BY_LAYOUT = {"scalar-operand", "all-scalars", "reshape-sinks"}
"""Rules that change the strides of an operand, on which the last place of numpy's complex functions depends."""

DRAWS, ENOUGH = 1000, 150


def generated(r: Rule) -> list[tuple[Draw, Node, Node]]:
    """Instances to which the rule applies, with what it makes of them."""
    found = []
    for seed in range(DRAWS):
        d = Draw(random.Random(f"{r.name} {seed}"), tame=r.fast_math)
        try:
            before = instance(r, d)
        except NoInstance:
            continue
        applies = r.may_apply(before.op, frozenset(i.op for i in before.inputs))
        after = r.apply(before, InterningBuilder()) if applies else None
        if after is not None and after.type == before.type:
            found.append((d, before, after))
            if len(found) == ENOUGH:
                break
    return found


@pytest.mark.parametrize("r", [r for r in RULES if r.name not in PROGRAMS | OF_INTEGERS], ids=lambda r: r.name)
def test_a_rule_keeps_the_meaning_of_generated_instances(r: Rule) -> None:
    """Rules whose operands need shapes that fit each other have programs of their own in `test_data_movement`, those of ranges of
    integers in `test_ranges`."""
    found = generated(r)
    assert len(found) >= 10, f"{len(found)} of {DRAWS} draws make an instance to which the rule applies"
    for d, before, after in found:
        args = [values(d.rng, p.type, tame=r.fast_math) for p in d.params]  # type: ignore[arg-type]
        want, got = (evaluated(d, n, args) for n in (before, after))
        assert agree(r, want, got), (r.equation, before.type, args, want, got)


def evaluated(d: Draw, result: Node, args: list[Any]) -> Any:
    main = Function("f", tuple(d.params), (result,))
    return evaluate(Module((main, *CALLED), "f"), args)[0]


def agree(r: Rule, want: Any, got: Any) -> bool:
    """Equal to the bit; for rules that are true of real numbers, up to rounding."""
    if isinstance(want, tuple):
        return len(want) == len(got) and all(agree(r, w, g) for w, g in zip(want, got, strict=True))
    want, got = np.asarray(want), np.asarray(got)
    exact = not r.fast_math and r.name not in ROUNDED_ONCE
    if want.dtype.kind in "biu" or (exact and not (want.dtype.kind == "c" and r.name in COMPLEX_BY_LAYOUT)):
        return same(want, got)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    units = 64 if r.fast_math else 4
    rtol = units * float(ml_dtypes.finfo(want.dtype).eps)
    alike = want.dtype == got.dtype and want.shape == got.shape
    return alike and bool(np.allclose(want.astype(wide), got.astype(wide), rtol=rtol, atol=1e-3, equal_nan=True))
