"""What stands between collectives and effects runs as one kernel: the same values, as often, at the same place."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from deepx_graph.analysis.schedule import schedule
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, PROJ, TUPLE
from deepx_graph.literal import Array
from deepx_graph.ops import add, cosine, multiply, print_, reshape, sine, slice_, spmd_all_gather, spmd_all_reduce, tanh, top_k
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.rewrite.control.clusters import clustered
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.base import KernelFn
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.runtime.memory.assignment import plan
from deepx_graph.types import BOOL, F32, STATE, tensor
from deepx_graph.verify import verify
from tests.support.generate import random_inputs, random_module

WHOLE = tensor(F32, (4, 8))
EVERYONE = {"replica_groups": ((0, 1),), "channel_id": 1, "use_global_device_ids": True}


class Counting(NumpyEngine):
    """Counts how often each kind of operation is computed, in fusions, too."""

    def __init__(self) -> None:
        super().__init__(1)
        self.counts: Counter[str] = Counter()

    def kernel(self, node: Node) -> KernelFn:
        run, body = super().kernel(node), fused_body(node)
        inside = [node] if body is None else [n for n in body.nodes if n.inputs]
        names = [n.op.name for n in inside if not n.op.view and n.op not in (PROJ, TUPLE, CONSTANT)]

        def counted(values: Sequence[object], out: Sequence[Array] | None) -> object:
            self.counts.update(names)
            return run(values, out)

        return counted


def clusters_of(function: Function) -> list[Function]:
    return [body for n in function.nodes if (body := fused_body(n)) is not None and body.name == "cluster"]


@pytest.mark.parametrize("seed", range(60))
def test_results_are_the_same_and_nothing_is_computed_more_often(seed: int) -> None:
    """Whatever operations are no part of a cluster, in programs with branches, loops and calls."""
    rng = random.Random(seed)
    module = random_module(rng, max_ops=80, exact=True)
    arrays, share = random_inputs(rng, module), rng.choice([0.3, 0.7, 0.9, 1.0])
    after = module.with_functions([
        clustered(f, lambda n: random.Random(f"{seed} {n.serial}").random() < share and n.op.eval is not None, lambda body: True)
        for f in module.functions])  # fmt: skip
    verify(after)
    before, now = Counting(), Counting()
    wanted, found = (compile(m, engine=e)(*arrays) for m, e in ((module, before), (after, now)))
    for want, have in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(want, have)
    assert now.counts == before.counts


def test_the_generated_programs_have_clusters() -> None:
    """Else the law above would hold of nothing."""
    found = [clusters_of(clustered(f, lambda n: n.op.eval is not None, lambda body: True))
             for seed in range(60) for f in random_module(random.Random(seed), max_ops=80, exact=True).functions]
    assert sum(map(len, found)) > 60


def test_tuples_and_what_is_read_in_branches_alone_are_right() -> None:
    """A tuple is no array of a kernel; a result of an operation with several may be needed in a branch only."""
    b = Builder()
    x, go = b.param(0, WHOLE, name="x"), b.param(1, tensor(BOOL, ()), name="go")
    two = b(top_k, b(sine, b(multiply, x, x)), k=3)
    (value,) = b.branch(go, [b(sine, b.proj(two, 0))], [b(slice_, x, start_indices=(0, 0), limit_indices=(4, 3), strides=(1, 1))])
    nested = b(TUPLE, b(TUPLE, b(cosine, x), b(tanh, b(cosine, x))), b(add, x, x))
    function = Function("main", (x, go), (value, b.proj(b.proj(nested, 0), 1), nested))
    x_here = np.random.default_rng(0).standard_normal(WHOLE.shape).astype("f4")
    after = clustered(function, lambda n: n.op.eval is not None, lambda body: True)
    for f, go_here in ((f, go_here) for f in (function, after) for go_here in (False, True)):
        for engine in ("numpy", "native"):
            found = compile(Module((f,)), engine=engine)(x_here, np.bool_(go_here))
            largest = np.sin(np.sort(np.sin(x_here * x_here))[:, :-4:-1]) if go_here else x_here[:, :3]
            wanted = [largest, np.tanh(np.cos(x_here)), np.cos(x_here), np.tanh(np.cos(x_here)), x_here + x_here]
            assert [a.shape for a in found] == [w.shape for w in wanted]
            for have, want in zip(found, wanted, strict=True):
                np.testing.assert_allclose(have, want, rtol=1e-5)


def with_a_reduction(b: Builder, x: Node) -> list[Node]:
    y = b(sine, b(multiply, x, x))
    total = b(spmd_all_reduce, y, **EVERYONE, computation=monoid_body(add, F32))
    return [b(tanh, b(add, total, x))]


def test_a_collective_cuts_a_program_in_two() -> None:
    b = Builder()
    x = b.param(0, WHOLE, name="x")
    function = Function("main", (x,), tuple(with_a_reduction(b, x)))
    bodies = clusters_of(clustered(function, lambda n: n.op.exchange is None, lambda body: True))
    assert [sorted(n.op.name for n in body.nodes if n.inputs) for body in bodies] == [["multiply", "sine"], ["add", "tanh"]]


def test_an_engine_that_declines_leaves_operations_as_they_are() -> None:
    b = Builder()
    x = b.param(0, WHOLE, name="x")
    function = Function("main", (x,), tuple(with_a_reduction(b, x)))
    assert clustered(function, lambda n: n.op.exchange is None, lambda body: False) is function


def test_what_is_gathered_is_let_go_before_the_next_is_gathered() -> None:
    """As where the layers of a model are gathered one after the other (fully sharded data parallelism): clusters that waited for
    all of them would hold all of them."""
    b, layers = Builder(), 6
    x = b.param(0, WHOLE, name="x")
    weights = [b.param(k, WHOLE, name=f"w{k}") for k in range(1, layers + 1)]
    value = x
    for w in weights:
        whole = b(reshape, b(spmd_all_gather, w, **EVERYONE, all_gather_dim=0, shard_count=2), shape=(2, *WHOLE.shape))
        halves = [b(reshape, b(slice_, whole, start_indices=(k, 0, 0), limit_indices=(k + 1, 4, 8), strides=(1, 1, 1)),
                    shape=WHOLE.shape) for k in range(2)]
        value = b(sine, b(add, b(multiply, value, halves[0]), b(cosine, halves[1])))
    function = Function("main", (x, *weights), (value,))
    found = clustered(function, lambda n: n.op.exchange is None, lambda body: True)
    assert len(clusters_of(found)) == layers
    assert plan(schedule(found)).value_bytes <= plan(schedule(function)).value_bytes


def first_element(b: Builder, x: Node) -> Node:
    return b(reshape, b(slice_, x, start_indices=(0, 0), limit_indices=(1, 1), strides=(1, 1)), shape=())


def test_effects_keep_their_order_between_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    b = Builder()
    state, x = b.param(0, STATE, name="state"), b.param(1, WHOLE, name="x")
    y = b(sine, b(multiply, x, x))
    said = b(print_, state, first_element(b, y))
    z = b(cosine, b(add, y, x))
    f = compile(Module((Function("main", (state, x), (b(print_, said, first_element(b, z)), z)),)), engine="native")
    x_here = np.random.default_rng(0).standard_normal(WHOLE.shape).astype("f4")
    (found,) = f(x_here)
    np.testing.assert_allclose(found, np.cos(np.sin(x_here * x_here) + x_here), rtol=1e-5)
    printed = [float(line.strip("[]")) for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    np.testing.assert_allclose(printed, [np.sin(x_here[0, 0] ** 2), found[0, 0]], atol=1e-4)
    assert len(clusters_of(f.lowered.entry)) == 2
