"""The laws that every declaration keeps; one test a law, over all ops."""

from __future__ import annotations

import numpy as np
import pytest

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Op
from deepx_graph.ir.structure import CONSTANT, TUPLE
from deepx_graph.ops import OPS
from deepx_graph.types import TupleType, compatible, type_of_array
from tests.support.laws import ELSEWHERE, LAWFUL, SAMPLED_DTYPES, bits, constants, random_array, same, samples, special_values

every_op = pytest.mark.parametrize("op", LAWFUL, ids=lambda op: op.name)
every_declared_op = pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)


@every_declared_op
def test_has_summary_and_source(op: Op) -> None:
    assert op.summary.endswith(".")
    assert op.summary[0].isupper() or op.summary[0].isdigit() or op.summary.startswith(("e ", "x ", "on_true", "operand"))
    assert op.source


def test_what_the_laws_leave_out_is_little() -> None:
    assert len(LAWFUL) + len(ELSEWHERE) == len(OPS)
    assert all(ELSEWHERE.values())


@every_op
def test_samples_have_several_values_of_every_attribute(op: Op) -> None:
    """One of them other than the default: what is lost of it on the way through a text is seen."""
    bound = [op.bind(attrs) for _, attrs in samples(op)] if op.attrs else []
    for k, attr in enumerate(op.attrs):
        values = {given[k] for given in bound}
        assert len(values) > 1 or (op.name, attr.name) == ("map", "computation"), attr.name


@every_op
def test_infer_agrees_with_eval(op: Op) -> None:
    count = 0
    for arrays, attrs in samples(op):
        values = op.bind(attrs)
        inferred = op.infer([type_of_array(a) for a in arrays], *values)
        with np.errstate(all="ignore"):
            result = op.eval(list(arrays), *values)
        results = result if isinstance(inferred, TupleType) else (result,)
        types = inferred.items if isinstance(inferred, TupleType) else (inferred,)
        for type, value in zip(types, results, strict=True):
            found = type_of_array(np.asarray(value))
            assert found == type if type.is_static else compatible(found, type)
        count += 1
    assert count, f"no sample fits {op.name}"


@every_op
def test_several_results_are_memory_of_their_own(op: Op) -> None:
    """Items that a caller is given are not copied: no two of them share memory, and none does with an operand."""
    for arrays, attrs in samples(op):
        values = op.bind(attrs)
        if op.view or not isinstance(op.infer([type_of_array(a) for a in arrays], *values), TupleType):
            return
        with np.errstate(all="ignore"):
            results = [np.asarray(r) for r in op.eval(list(arrays), *values)]
        for k, result in enumerate(results):
            assert not any(np.may_share_memory(result, other) for other in (*arrays, *results[:k])), f"result {k}"


@every_op
def test_fold_agrees_with_eval(op: Op) -> None:
    for arrays, attrs in samples(op, seed=1):
        b = Builder(peephole=True)
        node = b(op, *constants(b, arrays), **attrs)
        if op.foldable and arrays:
            assert node.op is (TUPLE if isinstance(node.type, TupleType) else CONSTANT)
            with np.errstate(all="ignore"):
                want = op.eval(list(arrays), *op.bind(attrs))
            wanted = want if isinstance(want, tuple) else (want,)
            for got, value in zip(node.inputs or (node,), wanted, strict=True):
                assert same(got.attrs[0].array, np.asarray(value))


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.elementwise and len(o.operands) == 2], ids=lambda op: op.name)
def test_a_scalar_operand_stands_for_all_elements(op: Op) -> None:
    rng = np.random.default_rng(3)
    for dtype in SAMPLED_DTYPES:
        x, s = random_array(rng, dtype, (2, 3), op.domain), random_array(rng, dtype, (), op.domain)
        attrs = {"direction": "EQ"} if op.attrs else {}
        try:
            op.infer([type_of_array(x), type_of_array(s)], *op.bind(attrs))
        except InferError:
            continue
        for pair, wide in (((x, s), (x, np.broadcast_to(s, (2, 3)))), ((s, x), (np.broadcast_to(s, (2, 3)), x))):
            with np.errstate(all="ignore"):
                got, want = op.eval(list(pair), *op.bind(attrs)), op.eval(list(wide), *op.bind(attrs))
            assert same(np.broadcast_to(got, (2, 3)), want)


def each_dtype(op: Op):
    for dtype in SAMPLED_DTYPES:
        values = special_values(dtype)
        try:
            op.infer([type_of_array(values)] * len(op.operands))
        except InferError:
            continue
        yield dtype, values


def run(op: Op, *arrays):
    with np.errstate(all="ignore"):
        return op.eval([np.asarray(a) for a in arrays])


def grid(values):
    return [np.ascontiguousarray(g) for g in np.meshgrid(values, values, indexing="ij")]


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.commutative], ids=lambda op: op.name)
def test_commutative(op: Op) -> None:
    for _, values in each_dtype(op):
        x, y = grid(values)
        assert same(run(op, x, y), run(op, y, x)) or np.array_equal(run(op, x, y), run(op, y, x), equal_nan=True)


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.associative], ids=lambda op: op.name)
def test_associative_on_integers(op: Op) -> None:
    for dtype, values in each_dtype(op):
        if not dtype.is_integer and dtype.kind != "bool":
            continue
        x, y, z = (np.ascontiguousarray(g) for g in np.meshgrid(values, values, values, indexing="ij"))
        assert same(run(op, run(op, x, y), z), run(op, x, run(op, y, z)))


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.idempotent], ids=lambda op: op.name)
def test_idempotent(op: Op) -> None:
    for _, values in each_dtype(op):
        assert same(run(op, values, values), values)


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.involution and o.elementwise], ids=lambda op: op.name)
def test_involution(op: Op) -> None:
    for _, values in each_dtype(op):
        assert same(run(op, run(op, values)), values)


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.identity is not None], ids=lambda op: op.name)
def test_identity_keeps_every_bit(op: Op) -> None:
    for dtype, values in each_dtype(op):
        unit = op.identity_for(dtype)
        if unit is None or dtype.kind == "complex":
            continue
        unit = np.asarray(unit, dtype=dtype.np)
        assert same(run(op, values, unit), values), dtype
        if op.commutative:
            assert same(run(op, unit, values), values), dtype


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.absorber is not None], ids=lambda op: op.name)
def test_absorber(op: Op) -> None:
    for dtype, values in each_dtype(op):
        if dtype.is_differentiable:
            continue
        zero = np.full_like(values, op.absorber)
        assert bits(run(op, values, zero)) == bits(zero)


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.monoid], ids=lambda op: op.name)
def test_monoid_reduces_as_the_op_does_one_by_one(op: Op) -> None:
    rng = np.random.default_rng(5)
    for dtype, _ in each_dtype(op):
        x = random_array(rng, dtype, (3, 4), (0.5, 1.5))
        one_by_one = x[:, 0]
        for k in range(1, 4):
            one_by_one = run(op, one_by_one, x[:, k])
        got = op.monoid(x, (1,))
        assert got.dtype == x.dtype
        rtol = 0 if not dtype.is_differentiable else float(8 * 2.0 ** -{16: 7, 32: 22, 64: 50}.get(min(dtype.bits, 64), 22))
        rtol = 2e-6 if dtype.kind == "complex" else rtol
        np.testing.assert_allclose(got.astype(complex), one_by_one.astype(complex), rtol=rtol)
