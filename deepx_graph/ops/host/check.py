"""Checks that a program makes of itself: `check.expect_*` of StableHLO's tests. They are effects, so that none is dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import CheckFailed
from deepx_graph.ir import Attr, Op, Operand, Result, examples
from deepx_graph.ir.constraint import STATE_VALUE, TENSOR, same_element_type, same_shape
from deepx_graph.literal import Array
from deepx_graph.ops.host.host import Host, acting
from deepx_graph.types import STATE, Type

_OPERANDS = (Operand("state", type=STATE_VALUE), Operand("actual", type=TENSOR), Operand("expected", type=TENSOR))


def _check_type(types: Sequence[Type], *attrs: Any) -> Type:
    return STATE


def _parts(x: Array) -> Array:
    """Real numbers: complex ones as pairs."""
    return np.stack([x.real, x.imag], axis=-1) if x.dtype.kind == "c" else x


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind not in "biu" else x


def _fail(what: str, got: Array, want: Array, wrong: Array) -> None:
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    count = int(wrong.sum())
    raise CheckFailed(f"{what}: {count} of {wrong.size} elements differ; at {list(at)} got {got[at]} and expected {want[at]}")


def _equal(got: Array, want: Array) -> Array:
    """Exactly equal; NaN equals NaN."""
    same = got == want
    return np.asarray(same | ((got != got) & (want != want)))


def _differing(what: str, got: Array, want: Array) -> None:
    """Raises CheckFailed, as the check `what`, unless both arrays are equal; NaN equals NaN."""
    got, want = _parts(got), _parts(want)
    if got.shape != want.shape:
        raise CheckFailed(f"{what}: got shape {list(got.shape)} and expected {list(want.shape)}")
    wrong = ~_equal(got, want)
    if wrong.any():
        _fail(what, got, want, wrong)


def _expect_almost_eq(state: object, got: Array, want: Array, tolerance: float) -> None:
    got, want = _wide(_parts(got)), _wide(_parts(want))
    with np.errstate(all="ignore"):
        wrong = ~(_equal(got, want) | (np.abs(got - want) <= tolerance))
    if wrong.any():
        _fail("expect_almost_eq", got, want, wrong)


def _ordinal(x: Array) -> Any:
    """Integers in the order of the floats, one step a unit in the last place; -0 and 0 are one."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").reshape(x.shape).astype(np.int64)
    low = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, low - bits, bits)


def _expect_close(state: object, got: Array, want: Array, max_ulp_difference: int, min_ulp_difference: int) -> None:
    got, want = _parts(got), _parts(want)
    distance = _ulp_distance(got, want)
    wrong = np.asarray((distance > max_ulp_difference) | (distance < min_ulp_difference), dtype=np.bool_)
    if wrong.any():
        _fail(f"expect_close within {max_ulp_difference} units in the last place", got, want, wrong)


def _ulp_distance(got: Array, want: Array) -> Any:
    """Python ints: 0 between equal values and between NaNs, the most that 64 bits hold between finite and other values."""
    if not got.size:
        return np.zeros(got.shape)
    steps = np.abs(_ordinal(got).astype(object) - _ordinal(want).astype(object))
    apart, farthest = ~(np.isfinite(got) & np.isfinite(want)), np.array((1 << 64) - 1, object)
    return np.where(_equal(got, want), 0, np.where(apart, farthest, steps))


def _expect_probed(world: Host, expected: Array, probe_id: str, iteration: int) -> None:
    seen = world.wires.probes.get(probe_id, [])
    if not 0 <= iteration < len(seen):
        raise CheckFailed(f"expect_serialized_eq: probe '{probe_id}' has seen {len(seen)} values and number {iteration} is asked")
    _differing("expect_serialized_eq", seen[iteration], expected)


def _check(name: str, summary: str, act: Callable[..., object], attrs: tuple[Attr, ...] = (),
           example: str = "") -> Op:
    return Op(name, summary, operands=_OPERANDS, results=(Result("after", type=STATE_VALUE),), attrs=attrs,
              constraints=(same_element_type("actual", "expected"), same_shape("actual", "expected")), infer=_check_type,
              eval=acting(act), foldable=False, example=examples.check(name, example), source=f"StableHLO check.{name}")


expect_eq: Op = _check("expect_eq", "Fail unless both are equal; NaN equals NaN.",
                       lambda state, got, want: _differing("expect_eq", got, want))
expect_almost_eq: Op = _check("expect_almost_eq", "Fail unless no element differs by more than the tolerance.", _expect_almost_eq,
                              (Attr("tolerance", "float", 1e-4),), " {tolerance = 0.0001}")
expect_close: Op = _check(
    "expect_close", "Fail unless no element differs by more than so many units in the last place.", _expect_close,
    (Attr("max_ulp_difference", "int", 1), Attr("min_ulp_difference", "int", 0)),
)  # fmt: skip
expect_probed: Op = Op(
    "expect_probed", "Fail unless a probe has seen just this value.", operands=(
        Operand("state", "what happened before", type=STATE_VALUE), Operand("expected", type=TENSOR)),
    attrs=(Attr("probe_id", "str"), Attr("iteration", "int", 0)),
    results=(Result("state", "what has happened then", type=STATE_VALUE),), infer=_check_type,
    eval=acting(_expect_probed), foldable=False, total=False, source="StableHLO check.expect_serialized_eq",
)  # fmt: skip
