"""`why` and the compiled program of the default engine agree: two nodes are in one kernel, or not, in both."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM, STRUCTURAL
from deepx_graph.ops import add, dot_general, fusion, tanh, transpose
from deepx_graph.passes.fusion.fuse import Fuse
from deepx_graph.passes.fusion.reason import Kind
from deepx_graph.runtime.compile import compile
from deepx_graph.session.report.placing import Placing
from deepx_graph.text import sea
from deepx_graph.types import F32, tensor
from tests.support import jax_corpus
from tests.support.cli_runner import Run
from tests.support.widths import has_native

BLOCK = "examples/transformer_block.dx"
PAIRS = 60


def places(node: Node) -> Iterator[int]:
    """The lines of the text on which what a kernel computes stands."""
    if node.op is fusion:
        for inner in node.attrs[0].nodes:
            if inner.op is not PARAM:
                yield from places(inner)
    elif node.span is not None:
        yield node.span.line


def agreement(module: Module, engine: str = "auto") -> int:
    """Asks of pairs of nodes; how many of them are in one kernel. A line of the text tells each node."""
    module = dx.loads(sea.write(dx.optimize(module, "clean")))
    compiled = compile(module, engine=engine, threads=2, prepare=Fuse().run, profile=True)  # kernels apart, as reports list them
    kernels = [set(places(n)) for f in compiled._latest().module.functions for n in f.nodes
               if n.op not in STRUCTURAL and not n.op.view]
    nodes = [n for n in module.entry.nodes if n.op not in STRUCTURAL and n.op is not CONSTANT and not n.op.view]
    every = [(a, b) for k, a in enumerate(nodes) for b in nodes[k + 1 :]]
    placing, together = Placing(module, engine, 2), 0
    for a, b in random.Random(0).sample(every, min(PAIRS, len(every))):
        assert a.span is not None and b.span is not None
        reason = placing.why(a, b)
        assert reason.fused == any(a.span.line in k and b.span.line in k for k in kernels), f"{reason}\n{sea.write(module)}"
        together += reason.fused
    return together


def network() -> Module:
    """Two products with what follows each, one of them transposed first, which the engine takes the other way round."""
    b = Builder()
    m = tensor(F32, (64, 64))

    def body(x: Node, w: Node) -> list[Node]:
        def product(x: Node, y: Node) -> Node:
            return b(dot_general, x, y, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))

        first = b(tanh, b(add, product(x, w), w))
        return [b(tanh, b(transpose, product(first, w), permutation=(1, 0)))]

    return Module((b.function("main", [("x", m), ("w", m)], body),))


@pytest.mark.parametrize("engine", ["numpy", "numexpr", "auto"])
def test_why_tells_what_runs(engine: str) -> None:
    assert agreement(dx.load(BLOCK), engine) > 0
    assert agreement(network(), engine) > 0


@jax_corpus.needs_corpus
@pytest.mark.parametrize("name", [
    "hand_batch_norm_training", "model_attention", "model_layernorm", "model_mlp_train_sgd", "model_softmax_regression_loop",
    "conv2d_same", "while_fori",
])  # fmt: skip
def test_why_tells_what_runs_of_programs_by_jax(name: str) -> None:
    agreement(jax_corpus.load(f"{name}.hlo"))


@pytest.mark.skipif(not has_native(), reason="no matrix products in machine code on this machine")
def test_a_gemm_and_its_epilogue_are_one_kernel(run: Run) -> None:
    done = run("why", BLOCK, "products", "weights")
    first, second, third, _ = done.out.split("\n")
    assert "run in one kernel, which the engine joins (native: machine code, with epilogue)" in first
    assert second.partition(" is in ")[2] == third.partition(" is in ")[2], "one kernel, named once for each node"
    told = run("why", BLOCK, "products", "weights", "--json").json
    assert (told["fused"], told["kind"]) == (True, Kind.JOINED.value)
    apart = run("why", BLOCK, "products", "weights", "--engine", "numexpr", "--json").json
    assert (apart["fused"], apart["kind"]) == (False, Kind.NOT_ELEMENTWISE.value)
