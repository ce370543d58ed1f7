"""Frames of loops tell the truth: what stands in one runs in every iteration, and what runs once stands outside or in `once`."""

from __future__ import annotations

import random

import pytest

from deepx_graph import optimize
from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import LOOP_END, STRUCTURAL
from deepx_graph.ops import add, compare, exponential, multiply, sine, tanh
from deepx_graph.types import F32, I32, scalar, tensor
from deepx_graph.viz import View, build_view
from tests.support import jax_corpus
from tests.support.generate import random_module

MATRIX = tensor(F32, (4, 4))


def every_iteration(function: Function) -> tuple[dict[Node, set[Node]], dict[Node, Node | None]]:
    """By loop what its header and body evaluate each time, branches apart; for all in `once` blocks the loop, or None, that makes
    them run again."""
    found: dict[Node, set[Node]] = {}
    once: dict[Node, Node | None] = {}
    around: dict[Node, Node | None] = {}
    stack: list[tuple[Block, Node | None, Node | None, bool]] = [(schedule(function).root, None, None, False)]
    while stack:
        block, loop, outer, is_once = stack.pop()
        for step in block.steps:
            match step:
                case Eval(node):
                    if is_once:
                        once[node] = outer
                    if loop is not None and node.op not in STRUCTURAL:
                        found[loop].add(node)
                case Once():
                    stack.append((step.block, None, around[step.loop], True))
                case IfStep():
                    stack += ((b.block, None, outer, is_once) for b in step.branches)
                case LoopStep():
                    found[step.node], around[step.node] = set(), outer
                    stack += [(inside, step.node, step.node, False) for inside in (step.header, step.body)]
    return found, once


def drawn(view: View, function: Function) -> tuple[dict[Node, set[Node]], set[Node]]:
    """By loop what stands right in its frame, without the loop's own boxes; and what stands right in a frame `once`."""
    kind = {c.id: c.kind for c in view.clusters}
    at = {function.nodes[int(n.address.rpartition("#")[2])]: n.cluster for n in view.nodes if n.address and "." not in n.address}
    loops = {at[n]: n for n in function.nodes if n.op is LOOP_END and n in at}
    found: dict[Node, set[Node]] = {end: set() for end in loops.values()}
    once: set[Node] = set()
    for node, cluster in at.items():
        if cluster in loops and node.op not in STRUCTURAL:
            found[loops[cluster]].add(node)
        once |= {node} if cluster is not None and kind[cluster] == "once" else set()
    return found, once


def agree(module: Module) -> int:
    """Compares the entry's picture with its schedule; the number of its loops."""
    view = build_view(Module((module.entry,), module.entry_name), collapse=True)
    (ran, once), (shown, _) = every_iteration(module.entry), drawn(view, module.entry)
    boxes = {module.entry.nodes[int(n.address.rpartition("#")[2])] for n in view.nodes if n.address}
    for end, nodes in ran.items():
        hoisted = shown[end] - nodes
        assert all(n in once and once[n] is end for n in hoisted), "what an inner loop needs once runs each time in the outer one"
        assert nodes & boxes <= shown[end]
    return len(ran)


LOOPS = ["while_fori", "while_data_dependent", "scan_carry_outputs", "sim_heat_stencil", "model_softmax_regression_loop"]


@jax_corpus.needs_corpus
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("pipeline", ["clean", "default"])
def test_loops_by_jax(name: str, pipeline: str) -> None:
    assert agree(optimize(jax_corpus.load(f"{name}.hlo"), pipeline)) > 0


def test_random_programs() -> None:
    loops = 0
    for seed in range(60):
        loops += agree(optimize(random_module(random.Random(seed)), "simplify"))
    assert loops > 10


def invariant(trips: int | None) -> Module:
    """A loop with an exponential that it does not change, a sine in a branch that it does not change either, and a loop inside that
    always computes the same."""
    b = Builder()

    def body(x: Node, n: Node, flag: Node) -> list[Node]:
        def count(node: Node) -> Node:
            return n if trips is None else b.constant(trips, I32)

        def inner(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            j, v = now
            return b(compare, j, b.constant(3, I32), direction="LT"), [b(add, j, b.constant(1, I32)), b(tanh, v)]

        fixed = b.loop([b.constant(0, I32), x], inner)[1]

        def iteration(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            i, v = now
            late = b(compare, i, b.constant(2, I32), direction="GT")
            (side,) = b.branch(late, [b(sine, x)], [v])
            after = b(multiply, b(add, v, b(exponential, x)), b(add, side, fixed))
            return b(compare, i, count(i), direction="LT"), [b(add, i, b.constant(1, I32)), after]

        return [b.loop([b.constant(0, I32), x], iteration)[1]]

    return Module((b.function("main", [("x", MATRIX), ("n", scalar(I32)), ("flag", scalar(I32))], body),))


def frames_around(view: View, title: str) -> list[str]:
    """The kinds of the frames around a box, from the outermost one inwards."""
    by_id = {c.id: c for c in view.clusters}
    (at,) = {n.cluster for n in view.nodes if n.title == title}
    found: list[str] = []
    while at is not None:
        found.insert(0, by_id[at].kind)
        at = by_id[at].parent
    return found


def test_what_runs_once_of_a_loop_that_goes_round_stands_outside() -> None:
    view = build_view(invariant(10))
    assert frames_around(view, "exponential") == ["function"]
    assert frames_around(view, "tanh") == ["function", "loop"], "a loop that always computes the same is beside, not inside"
    assert frames_around(view, "sine") == ["function", "loop", "branch", "once"], "perhaps never: the branch may not be taken"


def test_what_may_never_run_stands_in_a_frame_of_its_own() -> None:
    view = build_view(invariant(None))
    assert frames_around(view, "exponential") == ["function", "loop", "once"]
    assert frames_around(view, "tanh") == ["function", "loop", "once", "loop"]
    assert agree(invariant(None)) == 2


@pytest.mark.parametrize("format", ["dot", "svg", "html"])
def test_every_writer_draws_it(format: str) -> None:
    import deepx_graph as dx

    data = dx.draw(invariant(None), format=format).data.decode()
    assert "once" in data
