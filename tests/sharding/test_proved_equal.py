"""Distributed programs proved equal to the whole ones, over equations of the operations' own factor rules (`support/equations.py`).

Beside tests by numbers, which see one input: a proof is for all values, over real numbers, for these sizes and this mesh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Module, Node
from deepx_graph.ir.rebuild import new_item, rebuilt, with_inputs
from deepx_graph.ops import maximum
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.passes.scalar.simplify import ALGEBRA, CANONICAL
from deepx_graph.session.programs import Watch, optimise
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan, read_plan
from deepx_graph.sharding.propagate import propagate
from tests.support import rule_equations
from tests.support.sharded_programs import LOOP, MLP, TRAINING, inputs, layers, results_on_devices

RULES = (*ALGEBRA, *CANONICAL)
distributed = pytest.importorskip("tests.support.distributed_terms", reason="egglog is not installed (the extra 'proofs')")
xp = dx.xp

LAYERS = layers(8, 4, 8, 2)
GRADIENT = optimise(dx.loads(LAYERS, "stablehlo"), "grad,clean").module


def softmax(x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def attention(q: Any, k: Any, v: Any, o: Any) -> Any:
    """Of batch, heads, positions, features; `o` projects all heads' features onto the model's."""
    mixed = softmax(xp.matmul(q, xp.matrix_transpose(k)) * 0.5) @ v
    return xp.tensordot(xp.permute_dims(mixed, (0, 2, 1, 3)), o, axes=2)


def normalised(x: Any, scale: Any) -> Any:
    apart = x - xp.mean(x, axis=-1, keepdims=True)
    return apart / xp.sqrt(xp.mean(apart * apart, axis=-1, keepdims=True) + 1e-5) * scale


def normalised_block(x: Any, scale: Any, w: Any, v: Any) -> Any:
    """A norm and a block of two matrices, with what comes in added."""
    return x + xp.tanh(normalised(x, scale) @ w) @ v


def cross_entropy(x: Any, w: Any, target: Any) -> Any:
    """Of logits x @ w, with the log of the sum of exponentials, and targets as weights of the classes."""
    logits = x @ w
    top = xp.max(logits, axis=-1, keepdims=True)
    log_sum = xp.log(xp.sum(xp.exp(logits - top), axis=-1, keepdims=True)) + top
    return xp.sum((log_sum - logits) * target)


def experts(x: Any, w: Any, v: Any) -> Any:
    """Each expert on its own tokens."""
    return xp.matmul(xp.maximum(xp.matmul(x, w), 0.0), v)


def product(x: Any, w: Any) -> Any:
    return x @ w


def traced(f: Callable[..., Any], *types: str) -> Module:
    return dx.trace(f, *types)


HEADS = ("f32[4,4,6,2]",) * 3 + ("f32[4,2,8]",)
BLOCK = ("f32[8,8]", "f32[8]", "f32[8,16]", "f32[16,8]")
STANDARD: dict[str, tuple[Callable[[], Module], str]] = {
    "data parallel": (lambda: dx.loads(LAYERS, "stablehlo"), 'mesh <["data"=4]>\nx: [{"data"}, {}]'),
    "data parallel, gradients": (lambda: GRADIENT, 'mesh <["data"=4]>\nx: [{"data"}, {}]\n-> 2: [{}, {}]'),
    "data parallel, gradients scattered": (lambda: GRADIENT, 'mesh <["data"=4]>\nx: [{"data"}, {}]\n-> 1: [{"data"}, {}]\n'
                                           '-> 2: [{"data"}, {}]'),
    "fully sharded": (lambda: GRADIENT, 'mesh <["data"=4]>\nx: [{"data"}, {}]\nw0: [{"data"}, {}]\nv0: [{"data"}, {}]\n'
                      'w1: [{"data"}, {}]\nv1: [{"data"}, {}]\n-> 2: [{"data"}, {}]\n-> 3: [{"data"}, {}]'),
    "Megatron": (lambda: traced(normalised_block, *BLOCK), 'mesh <["model"=4]>\nw: [{}, {"model"}]\nv: [{"model"}, {}]'),
    "Megatron, data parallel, loss": (lambda: dx.loads(MLP, "stablehlo"), 'mesh <["data"=4, "model"=2]>\nx: [{"data"}, {}]\n'
                                      'w1: [{}, {"model"}]\nw2: [{"model"}, {}]'),
    "sequence parallel": (lambda: traced(normalised_block, *BLOCK), 'mesh <["model"=4]>\nx: [{"model"}, {}]\nw: [{}, {"model"}]\n'
                          'v: [{"model"}, {}]\n-> 0: [{"model"}, {}]'),
    "attention by heads": (lambda: traced(attention, *HEADS), 'mesh <["batch"=2, "heads"=2]>\nq: [{"batch"}, {"heads"}, {}, {}]\n'
                           'k: [{"batch"}, {"heads"}, {}, {}]\nv: [{"batch"}, {"heads"}, {}, {}]\no: [{"heads"}, {}, {}]'),
    "attention by positions": (lambda: traced(attention, *HEADS), 'mesh <["rows"=2]>\nq: [{}, {}, {"rows"}, {}]\n'
                               '-> 0: [{}, {"rows"}, {}]'),
    "product split along what is summed": (lambda: traced(product, "f32[8,16]", "f32[16,8]"),
                                           'mesh <["k"=8]>\nx: [{}, {"k"}]\nw: [{"k"}, {}]\n-> 0: [{}, {}]'),
    "product, sums scattered": (lambda: traced(product, "f32[8,16]", "f32[16,8]"),
                                'mesh <["i"=2, "k"=4]>\nx: [{"i"}, {"k"}]\nw: [{"k"}, {}]\n-> 0: [{"i"}, {"k"}]'),
    "vocabulary split": (lambda: traced(cross_entropy, "f32[4,8]", "f32[8,16]", "f32[4,16]"),
                         'mesh <["data"=2, "words"=4]>\nx: [{"data"}, {}]\nw: [{}, {"words"}]\ntarget: [{"data"}, {"words"}]'),
    "experts": (lambda: traced(experts, "f32[4,6,8]", "f32[4,8,16]", "f32[4,16,8]"),
                'mesh <["e"=4]>\nx: [{"e"}, {}, {}]\nw: [{"e"}, {}, {}]\nv: [{"e"}, {}, {}]\n-> 0: [{}, {}, {"e"}]'),
    "training loop": (lambda: dx.loads(TRAINING, "stablehlo"), 'mesh <["data"=4]>\nx: [{"data"}, {}]\ny: [{"data"}, {}]'),
    "loop and branch": (lambda: dx.loads(LOOP, "stablehlo"), 'mesh <["a"=2, "b"=2]>\nx: [{"a"}, {"b"}]'),
}  # fmt: skip


def distributed_program(name: str) -> tuple[Module, Plan, Partitioned]:
    build, text = STANDARD[name]
    module = build()
    plan = propagate(read_plan(text, module.entry))
    return module, plan, partition(module, plan)


def collectives(local: Partitioned) -> list[Node]:
    return [n for n in local.module.entry.nodes if n.op.exchange is not None and n.inputs]


@pytest.mark.parametrize("name", STANDARD)
def test_a_standard_program_is_proved(name: str) -> None:
    module, plan, local = distributed_program(name)
    assert collectives(local) or name == "attention by positions"
    assert distributed.unproved(module.entry, plan, local) == []


def faults(node: Node) -> Iterator[Node]:
    """A collective, or where a part begins, that is wrong: left out, by another combiner, among others, in another order."""
    named = node.named_attrs
    if node.op.exchange is not None and node.inputs:
        if node.type == node.inputs[0].type:
            yield node.inputs[0]
        changes: list[dict[str, Any]] = []
        if "computation" in named:
            changes.append({"computation": monoid_body(maximum, node.type.dtype)})
        if "replica_groups" in named:
            groups = np.array(named["replica_groups"])
            changes += [{"replica_groups": tuple(map(tuple, other.tolist()))} for other in (groups[:, ::-1], groups.T)
                        if other.shape == groups.shape and not np.array_equal(other, groups)]
        if "source_target_pairs" in named:
            pairs = named["source_target_pairs"]
            changes.append({"source_target_pairs": tuple((s, t) for (s, _), (_, t) in zip(pairs, pairs[::-1], strict=True))})
        yield from (replace(node, attrs=tuple((named | change).values())) for change in changes)
    if node.op.commutative is False and len(node.inputs) == 2 and node.inputs[0].type == node.inputs[1].type == node.type:
        yield replace(node, inputs=node.inputs[::-1])


def with_fault(local: Partitioned, at: Node, wrong: Node) -> Partitioned:
    """The program of one device with one node that is another."""

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node is not at:
            return new_item(node, inputs) or with_inputs(node, inputs)
        return inputs[0] if wrong is at.inputs[0] else with_inputs(wrong, inputs if wrong.inputs == at.inputs else inputs[::-1])

    return replace(local, module=local.module.with_functions([rebuilt(local.module.entry, step)]))


def gated(x: Any, w: Any, v: Any) -> Any:
    """A block of two matrices and a gate, written with more operations than it needs."""
    h = x @ w
    gate = 1.0 / (xp.exp(-h) + 1.0)
    return (-((-h) * gate) + xp.exp(xp.log(xp.exp(h)))) @ v


GATED = (lambda: traced(gated, "f32[8,8]", "f32[8,16]", "f32[16,8]"), 'mesh <["model"=4]>\nw: [{}, {"model"}]\nv: [{"model"}, {}]')


def test_a_program_of_one_device_that_rules_rewrote_is_proved_with_their_equations() -> None:
    build, text = GATED
    module = build()
    plan = propagate(read_plan(text, module.entry))
    local = partition(module, plan)
    fast = optimise(local.module, "simplify,dce", Watch(fast_math=True)).module
    assert len(fast.entry.nodes) < len(local.module.entry.nodes) - 4
    after = replace(local, module=fast)
    assert distributed.unproved(module.entry, plan, local) == []
    assert distributed.unproved(module.entry, plan, after), "without the equations of rules"
    assert distributed.unproved(module.entry, plan, after, RULES) == []
    for node in [n for n in fast.entry.nodes if n.op.exchange is not None or len(n.inputs) == 1]:
        if node.inputs and node.type == node.inputs[0].type:
            wrong = with_fault(after, node, node.inputs[0])
            assert distributed.unproved(module.entry, plan, wrong, RULES), node.op.name


def test_every_rule_is_an_equation_or_has_a_reason() -> None:
    """One of a closed list; whoever declares a rule as a pattern of elementwise operations has declared an equation."""
    counts = Counter(rule_equations.outcome(r) for r in RULES)
    assert counts[None] >= 45 and counts[rule_equations.NoEquation.TYPES] == 0, counts
    patterned = [r for r in RULES if r.pattern is not None]
    assert counts[rule_equations.NoEquation.CODE] == len(RULES) - len(patterned)


@pytest.mark.parametrize(("name", "most"), [*((n, 2) for n in STANDARD),
                                           *(pytest.param(n, 1000, marks=pytest.mark.conformance) for n in STANDARD)])
def test_what_numbers_refute_is_not_proved(name: str, most: int) -> None:
    """A proof of a wrong program would be worse than none."""
    module, plan, local = distributed_program(name)
    arrays, wrong = inputs(module), 0
    want = results_on_devices(local, arrays)
    for node, fault in [(n, fault) for n in local.module.entry.nodes for fault in faults(n)]:
        other = with_fault(local, node, fault)
        if all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(want, results_on_devices(other, arrays), strict=True)):
            continue
        wrong += 1
        assert distributed.unproved(module.entry, plan, other), f"{node.op.name} {fault.attrs}"
        if wrong == most:
            break
    assert wrong
