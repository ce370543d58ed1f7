"""The law of factor rules: an operation split along any one of its factors, evenly or not, computes what it computes whole."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Op
from deepx_graph.ir.factor_rule import FactorRule
from deepx_graph.ops import OPS
from deepx_graph.sharding.mesh import Axes, Mesh, TensorSharding, split
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.rules import factor_rule
from tests.support.laws import samples
from tests.support.sharded_programs import on_devices, program

RULED = [op for op in OPS.values() if (op.sharding or op.elementwise) and not op.exchange and op is not OPS["custom_call"]]


def split_along(rule: FactorRule, mapped, factor: int, axes: Axes) -> TensorSharding:
    """A tensor split along one factor, where that is the major one of a dimension."""
    return split(*(axes if dim[0] == factor else () for dim in mapped))


def parts_of(size: int) -> tuple[int, ...]:
    """Counts of parts: one that divides the size, and one that does not, so that the last part has less, or nothing."""
    if size == 1:
        return (2,)
    return next(p for p in range(2, size + 1) if size % p == 0), next(p for p in (2, 3, 5, 7) if size % p)


@pytest.mark.parametrize("op", RULED, ids=lambda op: op.name)
def test_split_along_each_factor(op: Op) -> None:
    tried = 0
    for arrays, attrs in islice(samples(op), 9):
        module = program(op, arrays, attrs)
        node = next(n for n in module.entry.nodes if n.op is op)
        rule = factor_rule(node)
        if rule is None:
            continue
        whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
        for factor, size in enumerate(rule.sizes):
            if size == 0:
                continue
            for count in parts_of(size):
                mesh = Mesh((("a", count),))
                axes = (mesh.axis("a"),)
                values = {n: split_along(rule, m, factor, axes) for n, m in zip(node.inputs, rule.operands, strict=True)}
                values |= {r: split_along(rule, m, factor, axes) for r, m in zip(module.entry.results, rule.results, strict=True)}
                for got, want in zip(on_devices(module, Plan(mesh, module.entry, values), arrays), whole, strict=True):
                    assert got.dtype == want.dtype
                    said = f"{rule} along factor {factor} into {count}"
                    if want.dtype == object:
                        np.testing.assert_array_equal(got, want, said)
                    else:
                        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=said)
                tried += 1
    assert tried or all(max((0, *np.shape(a))) < 2 for arrays, _ in samples(op) for a in arrays), "no factor was split"


WHOLE = {
    "constant", "tuple", "proj", "index_add", "get_dimension_size", "ensure_type", "fusion", "custom_call", "deferred", "opaque",
    "rng_uniform", "rng_normal", "module_seed", "construct", "tag", "field", "match_failed",
    "tape_empty", "tape_push", "tape_pop", "tape_add",
    "string_normalize", "string_to_number", "string_index", "number_to_string", "string_match",
}
"""What every device computes whole, or what partitioning refuses."""


def test_every_operation_has_a_rule_or_is_left_whole() -> None:
    pure = {name for name, op in OPS.items() if op.eval is not None and op.exchange is None and op not in RULED
            and not any(o.name == "state" for o in op.operands)}
    assert pure <= WHOLE <= set(OPS)
