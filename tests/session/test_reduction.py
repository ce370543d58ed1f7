"""Programs made small while something stays true of them."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.faults import CRITERIA
from deepx_graph.errors import UsageError
from deepx_graph.ir import Module, Node, Op
from deepx_graph.ops import minimum
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.pattern import X, Y, op_of
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.runtime.inputs import input_ports
from deepx_graph.session.diagnose.children import in_child
from deepx_graph.session.diagnose.predicates import PREDICATES, How, predicate
from deepx_graph.session.diagnose.reduction import reduce_program
from deepx_graph.session.diagnose.reduction_steps import Trial
from tests.support.generate import random_inputs, random_module
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


def test_a_child_that_its_timer_ended_is_late() -> None:
    """Whatever is counted of its time, which may be a tick less."""
    assert in_child(lambda: signal.raise_signal(signal.SIGPROF) or "", 60, processor_seconds=30).late  # type: ignore[func-returns-value]
    assert in_child(lambda: signal.raise_signal(signal.SIGPROF) or "", 60).death  # type: ignore[func-returns-value]


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


FAULTS = ("wrong rule", "failing rule", "death", "slowness")


def faulty(op: Op, fault: str) -> Rule:
    """A rule for every node of the operation: it gives the first operand of the node's type, which is wrong, or it fails."""

    def action(node: Node) -> Node | None:
        """op(x, ...) = x, which is wrong."""
        if fault == "failing rule":
            raise ZeroDivisionError
        return next((i for i in node.inputs if i.type == node.type), None)

    return rule(op)(action)


@contextmanager
def with_fault(op: Op, fault: str) -> Iterator[None]:
    """Inside of it the operation is treated wrongly, by a rule or by the kernel of the numpy engine."""
    kernel = NumpyEngine.kernel

    def dies(operands: Any, out: Any) -> Any:
        os.abort()

    def planted(self: NumpyEngine, node: Node) -> Any:
        right = kernel(self, node)

        def late(operands: Any, out: Any) -> Any:
            until = time.process_time() + 1.5
            while time.process_time() < until:
                pass
            return right(operands, out)

        return right if node.op is not op else dies if fault == "death" else late

    with pytest.MonkeyPatch.context() as patch:
        if fault in ("death", "slowness"):
            patch.setattr(NumpyEngine, "kernel", planted)
            yield
        else:
            with with_rules(faulty(op, fault)):
                yield


def rare_operations(module: Module) -> list[Op]:
    """The operations of which there are one or two."""
    counts = Counter(n.op for f in module.functions for n in f.nodes)
    return [op for op, count in counts.items() if count <= 2 and op.eval is not None]


def processor_seconds() -> float:
    """Of this process and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(40))
def test_planted_faults_become_ten_operations(number: int) -> None:
    """In random programs of two to four hundred operations; a minute of processor time is what each may take."""
    fault, rng = FAULTS[number % 4], random.Random(number)
    name = {"wrong rule": "differs", "slowness": "slow"}.get(fault, "crash")
    holds = predicate(name, How("clean" if name == "differs" or fault == "failing rule" else "dce", "numpy"))
    while True:
        module = random_module(rng, 1500)
        if not 200 <= Trial(module, {}).operations <= 400 or not (rare := rare_operations(module)):
            continue
        inputs = dict(zip([p.name for p in input_ports(module.entry)], random_inputs(rng, module), strict=True))
        op, started = rng.choice(rare), processor_seconds()
        with with_fault(op, fault):
            if not holds(module, inputs):  # nobody reads the operation, or the fault does not show
                continue
            found = reduce_program(module, inputs, holds, seconds=600)
        used = processor_seconds() - started
        print(f"{fault} of {op.name}: {found.before} -> {found.after} operations, {found.tried} trials, {used:.1f} s")
        assert found.after <= 10 and used <= 60
        return
