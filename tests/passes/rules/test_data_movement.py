"""Rules of moves, windows, contractions and orders: on random programs what they make equals what was there, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepx_graph.passes.scalar.simplify import ALGEBRA, CANONICAL
from deepx_graph.rewrite.engine import InterningBuilder
from tests.support.data_movement import (
    PROGRAMS,
    drawn,
    run,
    size,
    values,
)
from tests.support.reference import same

RULES = {r.name: r for r in (*CANONICAL, *ALGEBRA)}
# --- programs that a rule is for --------------------------------------------------------------------------------------


UNSIGNED_ZERO = {"reduce-of-stack", "window-of-ones", "window-of-everything"}
"""Which of two zeros of unlike sign is the greater is not told by numpy, nor twice alike."""

LARGER = {"elementwise-of-stack", "reduce-of-stack", "first-of-sorted"}
"""Rules that do for each row what was done for all, or for a few what was done for all: less work, by more operations."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_rule_makes_is_equal_to_the_bit_and_not_larger(name: str) -> None:
    fired = 0

    @settings(max_examples=120, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def law(data: st.DataObject) -> None:
        nonlocal fired
        d, before = drawn(data, PROGRAMS[name])
        after = RULES[name].apply(before, InterningBuilder())
        if after is None:
            return
        fired += 1
        assert after.type == before.type
        assert size(d, after) <= size(d, before) or name in LARGER
        rng = np.random.default_rng(fired)
        args = [values(p, rng) for p in d.params]
        x, y = run(d, before, args), run(d, after, args)
        assert same(x, y) or (name in UNSIGNED_ZERO and same(x + x.dtype.type(0), y + y.dtype.type(0)))

    law()
    assert fired >= 4


