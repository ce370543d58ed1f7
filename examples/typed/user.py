"""A user's program with types, checked by mypy and pyright in strict mode against what the package says of itself."""

# pyright: strict

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_type

import numpy as np

import deepx_graph as dx


def layer(x: dx.xp.Array, w: dx.xp.Array) -> dx.xp.Array:
    """What is traced."""
    return dx.xp.tanh(x @ w)


def tour(path: str) -> Sequence[str]:
    """Load, find, optimise, ask, compare, differentiate, run, draw."""
    module = dx.load(path, max_nodes=1000)
    assert_type(module, dx.Module)
    assert_type(module.entry, dx.Function)
    nodes = module.find("op:dot_general users>1")
    assert_type(nodes, list[dx.Node])
    better = dx.optimize(module, "clean", fast_math=True)
    assert_type(better, dx.Module)
    lines = [*dx.info(better).lines(), *dx.diff(module, better).lines(), *dx.why(better).lines()]
    if not dx.check(better, ["ops<=100"]):
        lines.append("too large")
    gradient = dx.grad(module, ["x"])
    assert_type(dx.dumps(gradient, "hlo"), str)
    program = dx.compile(gradient, engine="numpy")
    outputs = program(*(np.zeros((2, 2), np.float32) for _ in program.inputs))
    lines += [str(np.asarray(y).shape) for y in outputs]
    dx.draw(better, "model.svg", collapse=True)
    return lines


def square(x: dx.Node) -> Sequence[dx.Node]:
    """The body of a function."""
    return [x * x + 1]


def built() -> bool:
    """Nodes made by operators, types as texts; gradients beside differences."""
    b = dx.Builder()
    function = b.function("main", [("x", "f32[3]")], square)
    assert_type(b.param(0, "f32[2]", "y"), dx.Node)
    return bool(dx.check_grad(dx.Module((function,)), "x", samples=1))


def words(module: dx.Module) -> str:
    """A printer of a plugin."""
    return " ".join(n.op.name for n in module.entry.nodes)


def plugged() -> None:
    """What a plugin registers."""
    dx.register_printer("words", words, summary="the names of operations")
    dx.register_view("inputs", lambda module, node: [i.name for i in node.inputs])


def traced() -> Mapping[str, str]:
    """A program of Python, and errors."""
    try:
        module = dx.trace(layer, "f32[2,2]", "f32[2,2]")
    except dx.DeepxGraphError as e:
        assert_type(e.diagnostics, tuple[dx.Diagnostic, ...])
        return {"error": e.diagnostics[0].message}
    return {f.name: str(f) for f in module.functions}
