"""What an op or an engine works out before a node runs gives what the op's eval gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.evaluation import staged
from deepx_graph.ops import OPS, and_, compare, convert, convolution, or_, reduce, select
from deepx_graph.ops.contract import convolution_staged
from deepx_graph.ops.tensor import index_staged
from deepx_graph.runtime.engines.numexpr_engine import NumexprEngine
from deepx_graph.types import BOOL, F32, F64, I8, I32, I64, U8, U32, DType, is_static, type_of_array
from tests.support.laws import LAWFUL, one_op, same, samples, special_values

SCALAR_DTYPES = (BOOL, I8, I32, I64, U8, U32, F32, F64)
TOLERANCE = {"f2": 2e-3, "f4": 2e-5, "c8": 2e-5}


def near(found: Any, wanted: Any) -> bool:
    """Equal in dtype and shape; in bits, or up to the order of sums."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind not in "fc":
        return same(found, wanted)
    bound = TOLERANCE.get(found.dtype.str[1:], 1e-12)
    return np.allclose(found, wanted, bound, bound, equal_nan=True)


def as_given(value: Any) -> Any:
    """As compiled programs pass it on: a tensor of rank 0 as a numpy scalar."""
    return value[()] if value.ndim == 0 and value.dtype.char in "?bhilqBHILQfd" else value


def computed(function: Any, operands: Any) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        found = function(*map(as_given, operands))
    return found if isinstance(found, tuple) else (found,)


def node_of(op: Op, arrays: Any, attrs: dict[str, Any]) -> Node:
    return one_op(op, arrays, attrs).results[0]


def evaluated(node: Node, arrays: Any) -> tuple[Any, ...]:
    assert node.op.eval is not None
    with np.errstate(all="ignore"):
        found = node.op.eval([np.asarray(a) for a in arrays], *node.attrs)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.staged is not None and op in LAWFUL], ids=lambda op: op.name)
def test_what_a_declaration_stages_is_its_eval(op: Op) -> None:
    for seed in range(3):
        for arrays, attrs in samples(op, seed):
            node = node_of(op, arrays, attrs)
            function = staged(node)
            if function is not None:
                assert all(map(near, computed(function, arrays), evaluated(node, arrays))), (node, attrs)


@pytest.mark.parametrize("op", LAWFUL, ids=lambda op: op.name)
def test_what_the_engine_stages_is_the_eval(op: Op) -> None:
    engine = NumexprEngine(1)
    for arrays, attrs in samples(op):
        node = node_of(op, arrays, attrs)
        function = engine.staged(node) if is_static(node.type) else None
        if function is not None:
            before = [a.copy() for a in arrays]
            found = computed(function, arrays)
            assert all(map(near, found, evaluated(node, arrays))), (node, attrs)
            assert all(map(same, arrays, before))
            assert op.view or not any(np.may_share_memory(f, a) for f in found for a in arrays if isinstance(f, np.ndarray))


@pytest.mark.parametrize("op", [op for op in LAWFUL if op.elementwise and op.samples is None], ids=lambda op: op.name)
def test_scalars_are_computed_as_arrays_are(op: Op) -> None:
    """At the extremes of every type too, where Python's operators could differ from numpy's loops."""
    engine = NumexprEngine(1)
    for arrays, attrs in samples(op):
        if np.ndim(arrays[0]):
            continue
        values = [special_values(type_of_array(a).dtype) for a in arrays]
        node = node_of(op, arrays, attrs)
        function = engine.staged(node)
        if function is None:
            continue
        grid = [g.reshape(-1) for g in np.meshgrid(*values, indexing="ij")] if values else []
        for point in zip(*grid, strict=True):
            assert all(map(near, computed(function, [np.asarray(p) for p in point]), evaluated(node, point))), (node, point)


@pytest.mark.parametrize("source", SCALAR_DTYPES, ids=str)
@pytest.mark.parametrize("target", SCALAR_DTYPES, ids=str)
def test_scalars_are_converted_as_arrays_are(source: DType, target: DType) -> None:
    engine, values = NumexprEngine(1), special_values(source)
    node = node_of(convert, [values[:1].reshape(())], {"dtype": target})
    function = engine.staged(node)
    assert function is not None
    for value in values:
        assert all(map(same, computed(function, [np.asarray(value)]), evaluated(node, [value]))), value


@pytest.mark.parametrize("op", [OPS["gather"], OPS["scatter"]], ids=lambda op: op.name)
def test_many_slices_are_found_as_few_are(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start indices inside and outside of the array, of one axis and of several."""
    monkeypatch.setattr(index_staged, "COLUMNS", 1)
    for seed in range(3):
        for arrays, attrs in samples(op, seed):
            for shift in (0, 2, -3):
                moved = [arrays[0], (arrays[1] + np.asarray(shift).astype(arrays[1].dtype)).astype(arrays[1].dtype), *arrays[2:]]
                node = node_of(op, moved, attrs)
                if (function := staged(node)) is not None:
                    assert all(map(near, computed(function, moved), evaluated(node, moved))), (node, attrs)


def random_convolution(rng: np.random.Generator) -> tuple[list[Any], dict[str, Any]]:
    """A small convolution of any rank, layout, steps and padding, also negative, that has results."""
    rank = int(rng.integers(0, 4))
    ends = (1, 4), (1, 3), (1, 3), (1, 3), (-1, 3), (-1, 3)
    window, strides, dilation, base, low, high = (rng.integers(*each, rank) for each in ends)
    reach = (window - 1) * dilation + 1
    sizes = np.maximum(1, -(-(reach - low - high - 1) // base) + 1) + rng.integers(0, 4, rank)
    dims = [rng.permutation(rank + 2).tolist() for _ in range(3)]
    batch, features, outputs = (int(n) for n in rng.integers(1, 4, 3))
    attrs = {"window_strides": strides, "padding_low": low, "padding_high": high, "lhs_dilation": base, "rhs_dilation": dilation,
             "window_reversal": rng.integers(0, 2, rank)}
    attrs = {name: tuple(map(int, values)) for name, values in attrs.items()}
    names = (("input", "batch", "feature"), ("kernel", "input_feature", "output_feature"), ("output", "batch", "feature"))
    for (name, one, other), (first, second, *spatial) in zip(names, dims, strict=True):
        attrs |= {f"{name}_{one}_dimension": first, f"{name}_{other}_dimension": second}
        attrs[f"{name}_spatial_dimensions"] = tuple(spatial)
    shapes = []
    for (first, second, *spatial), extents in zip(dims, ((batch, features, *sizes), (features, outputs, *window)), strict=False):
        shape = [0] * (rank + 2)
        for axis, extent in zip((first, second, *spatial), extents, strict=True):
            shape[axis] = int(extent)
        shapes.append(shape)
    dtype = [np.float32, np.float64, np.float16][rng.integers(3)]
    return [rng.normal(size=shape).astype(dtype) for shape in shapes], attrs


@pytest.mark.parametrize("cached", [convolution_staged.CACHED_BYTES, 64], ids=["at once", "in parts"])
def test_convolutions_of_every_layout(cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows laid out as rows or columns, in one piece or in parts, of inputs and kernels in any order of axes."""
    monkeypatch.setattr(convolution_staged, "CACHED_BYTES", cached)
    rng, taken = np.random.default_rng(0), 0
    for _ in range(200):
        arrays, attrs = random_convolution(rng)
        node = node_of(convolution, arrays, {**attrs, "feature_group_count": 1, "batch_group_count": 1})
        function = staged(node)
        if function is not None:
            assert all(map(near, computed(function, arrays), evaluated(node, arrays))), (node, attrs)
            taken += 1
    assert taken > 150


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
@pytest.mark.parametrize("direction", ["GT", "GE", "LT", "LE"])
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("tie", [False, True])
def test_the_extreme_and_its_position_are_found_as_the_body_says(dtype: Any, direction: str, nan: bool, tie: bool) -> None:
    """Bodies that keep NaN or not, and of equal elements the first or the last; positions in order and out of it."""
    rng = np.random.default_rng(0)
    number, index = type_of_array(np.zeros((), dtype)), type_of_array(np.zeros((), np.int32))

    def body(x: Node, i: Node, y: Node, j: Node) -> list[Node]:
        b = Builder()
        keep = b(compare, x, y, direction=direction)
        keep = b(or_, keep, b(compare, x, x, direction="NE")) if nan else keep
        first = b(and_, b(compare, x, y, direction="EQ"), b(compare, i, j, direction="LT"))
        return [b(select, keep, x, y), b(select, b(or_, keep, first) if tie else keep, i, j)]

    names = [(f"{name}{k}", t) for k in range(2) for name, t in (("value", number), ("index", index))]
    attrs = {"dimensions": (1,), "body": Builder().function("body", names, body, public=False)}
    values = rng.integers(0, 3, (4, 6)).astype(dtype)
    if values.dtype.kind == "f":
        values[1] = [0.0, -0.0, -0.0, 0.0, *([-1, -1] if direction[0] == "G" else [1, 1])]
        if nan:
            values[0, 2:4] = np.nan
    worst = values.min() - 1 if direction[0] == "G" and values.dtype.kind == "i" else np.asarray(1, dtype)
    ascending = np.broadcast_to(np.arange(6, dtype=np.int32), (4, 6))
    for positions in (ascending, rng.permutation(24).reshape(4, 6).astype(np.int32)):
        arrays = [values, positions, np.asarray(worst, dtype), np.asarray(-1, np.int32)]
        node = node_of(reduce, arrays, attrs)
        function = NumexprEngine(1).staged(node)
        assert function is not None
        assert all(map(same, computed(function, arrays), evaluated(node, arrays)))
