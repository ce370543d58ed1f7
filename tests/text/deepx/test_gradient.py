"""Gradient programs as deepx lines with `<-`: read back they take, give and compute what the gradient program does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add, concatenate, dot_general, exponential, logistic, maximum, multiply, reduction, sine, subtract
from deepx_graph.session.programs import gradient
from deepx_graph.text.deepx.printer.gradient import write_backward
from deepx_graph.types import F32, F64, I32, scalar, tensor
from tests.support.grad_programs import Body, module

P, V = tensor(F32, (2, 3)), tensor(F32, (3,))

PROGRAMS: dict[str, tuple[Body, tuple[object, ...]]] = {
    "uses add up": (lambda b, x, y: [b(multiply, b(multiply, x, y), b(exponential, x))], (P, P)),
    "several outputs, one of them used": (lambda b, x, y: [z := b(multiply, x, y), b(maximum, z, x)], (P, P)),
    "one value twice": (lambda b, x: [y := b(sine, x), y, b(multiply, y, y)], (P,)),
    "a product and sums": (lambda b, x, y: [
        b(dot_general, x, y, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,)),
        reduction(b, add, x, (0,))], (P, P)),
    "numbers": (lambda b, x: [b(subtract, b(multiply, x, b.like(3, x)), b.like(0.5, x))], (tensor(F64, (2, 3)),)),
    "joined, and written out": (lambda b, x, y: [b(logistic, b(concatenate, x, b(sine, y), dimension=1))], (P, P)),
    "an input that no output needs": (lambda b, x, y, k: [b(sine, y)], (P, P, tensor(I32, (3,)))),
    "an output that is an input": (lambda b, x, y: [x, b(multiply, x, y)], (P, P)),
    "a total": (lambda b, x: [reduction(b, add, b(multiply, x, x), (0, 1))], (P,)),
}  # fmt: skip


def both(m: Module) -> tuple[Module, str | None]:
    g = dx.optimize(gradient(m), "clean")
    return g, write_backward(m, g)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_backwards_compute_the_gradients(name: str) -> None:
    body, types = PROGRAMS[name]
    g, text = both(module(body, *types))
    assert text is not None
    assert "<-" in text
    again = dx.loads(text, "deepx")
    assert [(p.name, p.type) for p in again.entry.params] == [(p.name, p.type) for p in g.entry.params]
    rng = np.random.default_rng(0)
    args = [np.asarray(rng.uniform(-2, 2, p.type.shape)).astype(p.type.dtype.np) for p in g.entry.params]  # type: ignore[union-attr]
    for x, y in zip(dx.compile(again, optimize=False)(*args), dx.compile(g, optimize=False)(*args), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_lines_are_the_forward_ones_reversed() -> None:
    _, text = both(module(lambda b, x, y: [b(multiply, x, y)], P, P, names=("x", "y"), results=("z",)))
    assert text is not None
    assert "mul@float32 x y->z" in text.splitlines()
    assert "mul@float32 x(grad_x) y(grad_y)<-z(z_grad)" in text.splitlines()


def branching(b: Builder, x: Node, p: Node) -> list[Node]:
    return list(b.branch(p, [b(sine, x)], [x]))


def test_what_lines_cannot_say_has_none() -> None:
    assert both(module(lambda b, x: [b(sine, x)], scalar(F32)))[1] is None
    assert both(module(lambda b, x: [b(sine, x)], tensor(F32, ("n",))))[1] is None
    assert both(module(branching, P, tensor(I32, ())))[1] is None


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.sea"
    path.write_text(dx.dumps(module(lambda b, x, y: [b(multiply, x, y)], P, P), "sea"))
    assert main(["grad", str(path), "--emit", "deepx"]) == 0
    assert "<-" in capsys.readouterr().out
    assert main(["grad", str(path), "--emit", "deepx", "--dialect", "wire"]) == 0
    assert "<-" not in capsys.readouterr().out
