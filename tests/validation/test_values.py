"""Values of nodes, the inputs that they are computed from, and the kinds of difference between results."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.numerics.values import RUNS, evaluate
from deepx_graph.runtime.inputs import Port
from deepx_graph.types import BF16, BOOL, C64, F16, F32, F64, I4, I8, I32, I64, U8, U64, DType, tensor
from deepx_graph.validation.discrepancy import discrepancy
from deepx_graph.validation.samples import FAMILIES, sample_array, samples

LOOP = """HloModule loop
cond { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(20)
  ROOT lt = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  twice = f32[2] add(x, x)
  ROOT t = (s32[], f32[2]) tuple(next, twice) }
ENTRY main { x = f32[2] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[2]) tuple(zero, x)
  w = (s32[], f32[2]) while(t), condition=cond, body=body
  ROOT r = f32[2] get-tuple-element(w), index=1 }
"""


def test_the_values_of_a_loop_are_those_of_its_first_iterations() -> None:
    found = evaluate(dx.loads(LOOP), {"x": np.float32([1, 3])})
    twice = next(n for n in found.module.entry.nodes if n.name == "twice")
    values = [found.table.of(twice, k) for k in range(RUNS)]
    assert [v[0].tolist() for v in values if v] == [[2.0 ** (k + 1), 3 * 2.0 ** (k + 1)] for k in range(RUNS)]
    assert found.table.of(twice, RUNS) is None
    assert found.outputs[0].tolist() == [2.0**20, 3 * 2.0**20]
    param = found.module.entry.params[0]
    assert found.table.of(param) is not None


@pytest.mark.parametrize("dtype", [BOOL, I4, I8, I32, I64, U8, U64, F16, BF16, F32, F64, C64])
def test_every_family_of_samples_has_its_edges(dtype: DType) -> None:
    arrays = [sample_array(tensor(dtype, (40, 5)), k, np.random.default_rng(0)) for k in range(len(FAMILIES))]
    assert all(a.dtype == dtype.np and a.shape == (40, 5) for a in arrays)
    if dtype.kind == "float":
        wide = [a.astype(np.float64) for a in arrays]
        assert np.isfinite(wide[0]).all() and np.isnan(wide[4]).any() and np.isinf(wide[4]).any()
        assert (np.signbit(wide[2]) & (wide[2] == 0)).any(), "a negative zero"
        assert wide[3].max() == float(np.finfo(dtype.np).max) if dtype in (F16, F32, F64) else True
    if dtype in (I8, I32, I64):
        info = np.iinfo(dtype.np)
        assert arrays[3].min() == info.min and arrays[3].max() == info.max
        assert arrays[1].min() < 0 and arrays[1].max() > 9


def test_samples_repeat_and_are_refused_for_unknown_sizes() -> None:
    ports = [Port("x", tensor(F32, (3,))), Port("i", tensor(I32, ()))]
    first, again = samples(ports, 6, seed=1), samples(ports, 6, seed=1)
    assert all(np.array_equal(a[n], b[n], equal_nan=n == "x") for a, b in zip(first, again, strict=True) for n in a)
    with pytest.raises(dx.UsageError, match="the shape of input 'y' is not known"):
        samples([Port("y", tensor(F32, ("?1",)))], 1)


@pytest.mark.parametrize(("want", "got", "kind"), [
    (np.int32([4, 5]), np.int32([5, 5]), "wrong element"),
    (np.float32([1, 2]), np.float32([1, 3]), "wrong element"),
    (np.float32([np.inf]), np.float32([1e25]), "overflow folded"),
    (np.float32([1e25]), np.float32([np.inf]), "overflow made"),
    (np.float32([np.nan]), np.float32([0]), "NaN lost"),
    (np.float32([0]), np.float32([np.nan]), "NaN made"),
    (np.float32([0.0]), np.float32([-0.0]), "sign of zero"),
    (np.float32([1]), np.float32([1 + 2**-23]), "rounding"),
    (np.float32([1]), np.float32([1, 2]), "wrong type"),
    (np.float32([np.nan, 1]), np.float32([np.nan, 1]), None),
    (np.float32([]), np.float32([]), None),
])  # fmt: skip
def test_a_difference_is_named(want: np.ndarray, got: np.ndarray, kind: str | None) -> None:
    found = discrepancy(want, got)
    assert (found.kind if found else None) == kind


def test_what_a_narrow_type_on_the_way_allows_is_precision_kept() -> None:
    want, got = np.float32([1.0]), np.float32([1.005])
    assert discrepancy(want, got).kind == "wrong element"  # type: ignore[union-attr]
    found = discrepancy(want, got, narrowest=BF16.np)
    assert found is not None and found.kind == "precision kept" and found.harmless


def test_what_is_known_of_rounding_replaces_the_root_of_the_precision() -> None:
    want, got = np.float32([1.0]), np.float32([1.0001])
    assert discrepancy(want, got).kind == "rounding"  # type: ignore[union-attr]
    assert discrepancy(want, got, slack=np.float64([1e-6])).kind == "wrong element"  # type: ignore[union-attr]
