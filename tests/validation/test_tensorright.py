"""Rules of XLA's simplifier that TensorRight (Arora et al., POPL 2025) states, instantiated as programs: both sides are equivalent,
or the difference is the one that is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from deepx_graph.ir import Builder, Module
from deepx_graph.session.equivalence import equivalent
from deepx_graph.types import Type
from tests.support.paths import SHARED
from tests.support.tensorright import RULES, Side, Stated

SUITE = SHARED / "suites" / "tensorright" / "rules" / "xla"


def program(types: Sequence[Type], side: Side) -> Module:
    b = Builder()
    return Module((b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], lambda *xs: [side(b, *xs)]),))


@pytest.mark.skipif(not SUITE.is_dir(), reason="no ../shared with TensorRight's rules here")
def test_every_rule_of_the_suite_is_here() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SUITE.glob("*/Main.hs")))
    titles = set(re.findall(r'"([^"\n]+ ⇒ [^"\n]*)"', text)) - {" ⇒ "}
    assert {r.title for r in RULES} == titles


@pytest.mark.parametrize("stated", RULES, ids=lambda r: r.title)
def test_both_sides_are_equivalent_or_differ_as_is_known(stated: Stated) -> None:
    found = equivalent(program(stated.types, stated.left), program(stated.types, stated.right), count=20)
    assert bool(found) is not bool(stated.differs), found
