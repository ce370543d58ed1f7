"""`equivalent`: programs that are the same are not told apart, mutants are, and the evidence is said."""

from __future__ import annotations

import random

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.rebuild import rebuild, replaced
from deepx_graph.ir.structure import LOOP_BEGIN
from deepx_graph.ops import add, maximum, minimum, multiply, subtract
from deepx_graph.session.equivalence import equivalent
from tests.support.generate import random_module

GELU = """func.func public @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %c = stablehlo.constant dense<0.7978845608> : tensor<8x4xf32>
  %h = stablehlo.constant dense<0.044715> : tensor<8x4xf32>
  %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %q = stablehlo.multiply %d, %d : tensor<8x4xf32>
  %m = stablehlo.multiply %q, %h : tensor<8x4xf32>
  %s = stablehlo.add %m, %c : tensor<8x4xf32>
  %t = stablehlo.tanh %s : tensor<8x4xf32>
  return %t : tensor<8x4xf32>
}"""


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("", "", "identical"),
    ("multiply %q, %h", "multiply %h, %q", "identical"),
    ("%m = stablehlo.multiply %q, %h", "%p = stablehlo.multiply %d, %h : tensor<8x4xf32>\n  %m = stablehlo.multiply %p, %d",
     "same mathematics"),
    ("add %m, %c", "subtract %m, %c", "different"),
    ("0.044715", "0.044716", "different"),
    ("0.7978845608", "0.7978855", "different"),
])  # fmt: skip
def test_the_verdict(old: str, new: str, kind: str) -> None:
    found = equivalent(dx.loads(GELU), dx.loads(GELU.replace(old, new) if old else GELU))
    assert found.kind in ({kind, "equal within rounding"} if kind == "same mathematics" else {kind})
    assert bool(found) is (kind != "different") and (found.witness is None) is bool(found)


def test_where_the_second_departs() -> None:
    found = equivalent(dx.loads(GELU), dx.loads(GELU.replace("add %m, %c", "subtract %m, %c")))
    assert found.departure is not None and found.departure.after.op is subtract


OTHER = {add: subtract, subtract: add, multiply: add, maximum: minimum, minimum: maximum}


def mutants(module: Module) -> list[Module]:
    """The module with one operation taken for another."""
    entry, found = module.entry, []
    for victim in entry.nodes:
        if victim.op in OTHER:

            def step(node: Node, inputs: tuple[Node, ...], victim: Node = victim) -> Node:
                op = OTHER[node.op] if node is victim else node.op
                return Node(op, inputs, node.attrs, node.type, node.origin)

            found.append(module.with_functions([replaced(entry, rebuild(entry.nodes, {p: p for p in entry.params}, step))]))
    return found


def test_optimised_programs_are_equivalent_and_mutants_with_other_values_are_not() -> None:
    told, missed = 0, []
    for seed in range(12):
        module = random_module(random.Random(seed), max_ops=8)
        assert equivalent(module, dx.optimize(module), count=3), seed
        endless = any(n.op is LOOP_BEGIN for f in module.functions for n in f.nodes)  # counting backwards
        for mutant in [] if endless else mutants(module)[:2]:
            rng = np.random.default_rng(seed)
            f, g = (dx.compile(m, engine="numpy", optimize=False) for m in (module, mutant))
            inputs = [np.asarray(rng.standard_normal(p.type.shape) * 3).astype(p.type.dtype.np) for p in f.inputs]
            with np.errstate(all="ignore"):
                apart = any(not np.allclose(a, b, rtol=1e-2, equal_nan=True) for a, b in zip(f(*inputs), g(*inputs), strict=True))
            if apart:
                told += 1
                if equivalent(module, mutant):
                    missed.append(seed)
    assert told >= 1 and not missed


def test_programs_that_do_not_correspond_are_refused() -> None:
    one = dx.loads(GELU)
    with pytest.raises(UsageError, match="not comparable"):
        equivalent(one, Module((Builder().function("main", [("x", one.entry.params[0].type)], lambda x: [x]),)))
