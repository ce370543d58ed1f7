"""The laws of derivatives, over every op: reverse mode against finite differences, to second order; forward mode against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ops import polygamma, zeta
from deepx_graph.ops.vjp.accumulate import pullback, pushforward
from deepx_graph.types import C128, F64, TupleType, scalar, type_of_array
from tests.support.gradient_laws import BY_CONVENTION, Arrays, drawn, function_of, gradient, paired, run, slope, wide
from tests.support.laws import LAWFUL, samples

DIFFERENTIABLE = [op for op in LAWFUL if op.vjp and op.name not in BY_CONVENTION]
each_op = pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)


def cases(op: Op) -> list[tuple[Arrays, dict[str, Any], list[int]]]:
    """Samples in double precision, and the operands by which to differentiate."""
    found = []
    for given, attrs in samples(op, seed=2):
        arrays = [a.astype(np.complex128) if a.dtype == np.complex64 and op.samples is None else a for a in given]
        result = op.infer([type_of_array(a) for a in arrays], *op.bind(attrs))
        types = result.items if isinstance(result, TupleType) else (result,)
        fixed = [k for k, name in enumerate(o.name for o in op.operands) if name in op.no_gradient_by]
        by = [k for k, a in enumerate(arrays) if wide(a) and k not in fixed]
        if not by or {t.dtype for t in types if t.dtype.is_differentiable} - {F64, C128}:
            continue
        found.append((list(arrays), attrs, by))
        scalars = [k for k in by if not arrays[k].shape]
        if not op.elementwise and 0 < len(scalars) < len(by):
            found.append((list(arrays), attrs, [k for k in by if k not in scalars]))
    return found


def test_what_has_no_law_is_little() -> None:
    assert set(BY_CONVENTION) == {op.name for op in LAWFUL if op.vjp} - {op.name for op in DIFFERENTIABLE}


@each_op
def test_vjp_agrees_with_finite_differences(op: Op) -> None:
    rng = np.random.default_rng(7)
    for arrays, attrs, by in cases(op):
        function = function_of(op, arrays, attrs, by)
        cts = [drawn(rng, y) for y in run(function, arrays)]
        found = run(gradient(function, cts, by), arrays)
        for k, g in zip(by, found, strict=True):
            v = drawn(rng, arrays[k])
            assert paired([g], [v]) == pytest.approx(slope(function, arrays, [k], [v], cts), rel=1e-7, abs=1e-8), attrs


@each_op
def test_the_gradient_of_the_gradient_agrees_with_finite_differences(op: Op) -> None:
    rng = np.random.default_rng(8)
    for arrays, attrs, by in cases(op):
        function = function_of(op, arrays, attrs, by)
        first = gradient(function, [drawn(rng, y) for y in run(function, arrays)], by)
        cts = [drawn(rng, arrays[k]) for k in by]
        b = Builder(peephole=True)
        wrt = [first.params[k] for k in by]
        found = pullback(b, first.results, [b.constant(c) for c in cts], wrt)
        second = first.with_(results=tuple(g if g is not None else b.splat(0, x.type) for g, x in zip(found, wrt, strict=True)))
        direction = [drawn(rng, arrays[k]) for k in by]
        want = slope(first, arrays, by, direction, cts)
        assert paired(run(second, arrays), direction) == pytest.approx(want, rel=1e-6, abs=1e-7), attrs


@each_op
def test_forward_mode_agrees_by_the_transpose_identity(op: Op) -> None:
    """<ct, jvp(v)> = <vjp(ct), v>."""
    rng = np.random.default_rng(9)
    for arrays, attrs, by in cases(op):
        function = function_of(op, arrays, attrs, by)
        node = function.results[0]
        outputs = run(function, arrays)
        cts, vs = [drawn(rng, y) for y in outputs], [drawn(rng, arrays[k]) for k in by]
        b = Builder(peephole=True)
        tangents: list[Node | None] = [None] * len(arrays)
        for k, v in zip(by, vs, strict=True):
            tangents[k] = b.constant(v)
        found = pushforward(b, node, tangents)
        items = found if isinstance(found, tuple) else (found,)
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        results = [b.splat(0, t) if i is None else i for i, t in zip(items, types, strict=True) if t.dtype.is_differentiable]
        assert [r.type for r in results] == [t for t in types if t.dtype.is_differentiable]
        forward = paired(cts, run(function.with_(results=tuple(results)), arrays))
        backward = paired(run(gradient(function, cts, by), arrays), vs)
        assert forward == pytest.approx(backward, rel=1e-9, abs=1e-9), attrs


@pytest.mark.parametrize("op", [polygamma, zeta], ids=lambda op: op.name)
def test_a_derivative_that_is_not_known_is_refused_with_the_path(op: Op) -> None:
    b = Builder()
    x, y = b.param(0, scalar(F64), "order"), b.param(1, scalar(F64), "x")
    root = b(op, x, y)
    assert pullback(b, [root], [b.constant(1.0)], [y])[0] is not None
    with pytest.raises(VerifyError, match="no gradient by its operand 'lhs'") as e:
        pullback(b, [root], [b.constant(1.0)], [x, y])
    assert f"it is needed on the path order -> {op.name}" in str(e.value)
    with pytest.raises(InferError, match="no gradient by its operand 'lhs'"):
        pushforward(b, root, [b.constant(1.0), None])
