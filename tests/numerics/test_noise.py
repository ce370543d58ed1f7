"""What rounding may make of sums: whatever order their terms are added in, the result is within it; what is exact is not moved."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.numerics.noise import slacks
from deepx_graph.validation.discrepancy import discrepancy

SUM = """HloModule m
add {{ a = {t}[] parameter(0) b = {t}[] parameter(1) ROOT c = {t}[] add(a, b) }}
ENTRY e {{ x = {t}[{n}] parameter(0) zero = {t}[] constant(0) ROOT y = {t}[] reduce(x, zero), dimensions={{0}}, to_apply=add }}
"""
DOT = """HloModule m
ENTRY e {{ x = {t}[{n}] parameter(0) ones = {t}[] constant(1) b = {t}[{n}] broadcast(ones), dimensions={{}}
  ROOT y = {t}[] dot(x, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}} }}
"""
SCATTER = """HloModule m
add {{ a = {t}[] parameter(0) b = {t}[] parameter(1) ROOT c = {t}[] add(a, b) }}
ENTRY e {{ x = {t}[{n}] parameter(0) zero = {t}[] constant(0) z = {t}[1] broadcast(zero), dimensions={{}}
  at = s32[] constant(0) i = s32[{n},1] broadcast(at), dimensions={{}}
  ROOT y = {t}[1] scatter(z, i, x), update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}},
    index_vector_dim=1, to_apply=add }}
"""
GREATEST = SUM.replace("ROOT c = {t}[] add(", "ROOT c = {t}[] maximum(")
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16}


def one_by_one(terms: np.ndarray) -> np.generic:
    """The sum in the order in which the terms stand, each partial sum rounded."""
    return np.cumsum(terms, dtype=terms.dtype)[-1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", [SUM, DOT, SCATTER], ids=["reduce", "dot", "scatter"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [3, 40, 1000])
def test_sums_in_any_order_are_within_the_slack(text: str, type: str, n: int) -> None:
    rng = np.random.default_rng(n)
    large = 16 / float(np.finfo(TYPES[type]).eps)
    swallowed = np.ones(n)
    swallowed[0], swallowed[-1] = large, -large
    module = dx.loads(text.format(t=type, n=n))
    for x in (rng.standard_normal(n).astype(TYPES[type]), swallowed.astype(TYPES[type])):
        (slack,) = slacks(module, {"x": x})
        want = np.ravel(dx.run(module, x, engine="numpy")[0])[0]
        assert slack is not None
        for _ in range(20):
            got = one_by_one(rng.permutation(x))
            assert abs(float(got) - float(want)) <= np.max(slack), (got, want, slack)


def test_other_reductions_do_not_depend_on_the_order() -> None:
    x = np.float32([-1e8, 1, 0.5])
    (slack,) = slacks(dx.loads(GREATEST.format(t="f32", n=3).replace("constant(0)", "constant(-inf)")), {"x": x})
    assert slack is not None and np.max(slack) < 1e-4


def test_a_wrong_sum_is_still_found() -> None:
    x = np.random.default_rng(0).uniform(1, 2, 100).astype(np.float32)
    (slack,) = slacks(dx.loads(SUM.format(t="f32", n=100)), {"x": x})
    assert slack is not None and np.max(slack) < 0.1, "less than any term"


LOG = SUM.replace("ROOT y = {t}[] reduce(", "s = {t}[] reduce(").replace("to_apply=add }}", "to_apply=add ROOT y = {t}[] log(s) }}")


@pytest.mark.parametrize("terms", [(0.1, 0.2, -0.3), (0.7, 0.1, -0.3, -0.5), (1.0, -2.0, 0.5, 0.5)], ids=str)
def test_where_sums_cancel_logarithms_are_open(terms: tuple[float, ...]) -> None:
    """The sum is zero, a positive or a negative number by the order of terms: its logarithm is infinite, a number or none."""
    module, x = dx.loads(LOG.format(t="f32", n=len(terms))), np.array(terms, "f4")
    want = np.asarray(dx.compile(module, engine="numpy")(x)[0])
    (slack,) = slacks(module, {"x": x})
    with np.errstate(all="ignore"):
        for order in itertools.permutations(x):
            found = discrepancy(want, np.log(np.asarray(one_by_one(np.array(order)))), slack)
            assert found is None or found.harmless, str(found)


def test_where_sums_do_not_cancel_a_logarithm_is_none_of_a_negative_number() -> None:
    module, x = dx.loads(LOG.format(t="f32", n=3)), np.array((0.5, 0.25, 1e-3), "f4")
    want = np.asarray(dx.compile(module, engine="numpy")(x)[0])
    (slack,) = slacks(module, {"x": x})
    found = discrepancy(want, np.array(np.nan, "f4"), slack)
    assert found is not None
    assert found.kind == "NaN made"
