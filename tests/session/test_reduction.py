"""Programs made small while something stays true of them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.faults import CRITERIA
from deepx_graph.errors import UsageError
from deepx_graph.ir import Module, Node
from deepx_graph.ops import minimum
from deepx_graph.rewrite.engine import rule
from deepx_graph.rewrite.pattern import X, Y, op_of
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.session.diagnose.predicates import PREDICATES, How, predicate
from deepx_graph.session.diagnose.reduction import reduce_program
from tests.support.wrong_rules import with_rules


@rule(op_of(minimum, X, Y))
def first(x: Node, y: Node) -> Node:
    """min(x, y) = x, which is wrong."""
    return x


@rule(op_of(minimum, X, Y))
def failing(x: Node, y: Node) -> Node:
    """min(x, y), which fails."""
    raise ZeroDivisionError


def long_program() -> Module:
    def f(x: Any, y: Any) -> Any:
        for _ in range(60):
            x = dx.xp.tanh(x * 0.5) + y
        z = dx.xp.minimum(x, y)
        for _ in range(40):
            z = z + dx.xp.sin(z) * 0.1
        return z

    return dx.trace(f, "f32[4,6]", "f32[4,6]")


@pytest.mark.parametrize(("wrong", "name"), [(first, "differs"), (failing, "crash")])
def test_three_hundred_operations_become_a_few(wrong: Any, name: str) -> None:
    module = long_program()
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.standard_normal((4, 6)).astype(np.float32) for p in module.entry.params}
    holds = predicate(name, How("clean", "numpy"))
    with with_rules(wrong):
        found = reduce_program(module, inputs, holds, seconds=600)
        assert holds(found.module, found.inputs)
    assert found.before >= 280 and found.after <= 3
    assert all(a.size <= 2 for a in found.inputs.values())


def test_a_loop_that_a_step_makes_endless_is_given_up() -> None:
    def counted(step: int) -> Module:
        return dx.loads(f"""HloModule m
body {{ v = s32[] parameter(0)\n k = s32[] constant({step})\n ROOT n = s32[] add(v, k) }}
go {{ v = s32[] parameter(0)\n k = s32[] constant(9)\n ROOT c = pred[] compare(v, k), direction=LT }}
ENTRY main {{ i = s32[] parameter(0)\n ROOT w = s32[] while(i), condition=go, body=body }}""")

    holds = predicate("differs", How("clean", "numpy"))
    inputs = {"i": np.asarray(0, np.int32)}
    assert not holds(counted(1), inputs)
    assert holds.ended(counted(0), inputs, 60, processor_seconds=0.2).late
    with pytest.raises(UsageError, match="longer than it may"):
        reduce_program(counted(0), inputs, holds, seconds=0.5)


def test_what_is_not_true_is_not_reduced() -> None:
    module = dx.trace(lambda x: x + 1, "f32[2]")
    with pytest.raises(UsageError, match="not true"):
        reduce_program(module, {"x": np.ones(2, np.float32)}, predicate("differs", How()))


def test_the_command_writes_a_program_that_shows_it(tmp_path: Any, run: Any) -> None:
    file, prefix = tmp_path / "m.sea", tmp_path / "small"
    file.write_text(dx.dumps(long_program(), "sea"))
    done = run("reduce", str(file), "--while", "slow", "--slower-than", "0", "--seconds", "2", "--engine", "numpy",
               "-o", str(prefix))
    assert done.code == 0 and "operations ->" in done.out
    assert dx.load(f"{prefix}.sea").entry.nodes and f"{prefix}.npz" in done.err


def test_the_command_offers_every_predicate() -> None:
    """It names them itself, as predicates import engines."""
    assert tuple(PREDICATES) == CRITERIA


def test_an_operation_of_which_the_reference_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """No values can be recorded then; inputs are zeros."""
    module, kernel = long_program(), NumpyEngine.kernel
    inputs = {p.name: np.ones((4, 6), np.float32) for p in module.entry.params}

    def planted(self: NumpyEngine, node: Node) -> Any:
        return (lambda operands, out: os.abort()) if node.op is minimum else kernel(self, node)

    monkeypatch.setattr(NumpyEngine, "kernel", planted)
    found = reduce_program(module, inputs, predicate("crash", How("dce", "numpy")), seconds=600)
    assert found.before >= 280 and found.after == 1
