"""An operation, a rule, a pass, an engine, a language and a view of browser, pages and pictures, added from outside."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import deepx_graph as dx
from deepx_graph.errors import Diagnostic, ParseError, Span
from deepx_graph.ir import Builder, Module
from deepx_graph.ops import OPS, abs_, add, divide, multiply, negate
from deepx_graph.ops.helpers import unary, widened
from deepx_graph.rewrite.base import Pass
from deepx_graph.rewrite.engine import rule
from deepx_graph.rewrite.pattern import X, op_of
from deepx_graph.runtime import engines
from deepx_graph.runtime.engines.base import Engine
from deepx_graph.types import F32, scalar


def _softsign_vjp(b, x, y, g):
    """g / (1 + |x|)^2"""
    side = b(add, b(abs_, x), b.like(1, x))
    return b(divide, g, b(multiply, side, side))


softsign = dx.register_op(unary(
    "softsign", "x / (1 + |x|).", widened(lambda x: x / (1 + np.abs(x))), kernel="x / (abs(x) + 1)", vjp=_softsign_vjp,
    kinds=("float",), source="PyTorch Softsign",
))  # fmt: skip


@dx.register_rule
@rule(op_of(softsign, op_of(negate, X)))
def softsign_of_negated(b, x):
    """softsign(-x) = -softsign(x)"""
    return b(negate, b(softsign, x))


@dx.register_pass
@dataclass(frozen=True)
class AtMost(Pass):
    """Refuses programs of more nodes than it is told."""

    name: ClassVar[str] = "at-most"
    nodes: int = 1000

    def run_under(self, module, control):
        count = sum(len(f.nodes) for f in module.functions)
        if count > self.nodes:
            raise dx.CheckFailed(f"{count} nodes, more than {self.nodes}")
        return module


class CountingEngine(Engine):
    """The reference engine, which counts the kernels that it makes."""

    name = "counting"

    def __init__(self, threads=None):
        self.inner, self.threads, self.made = engines.get("numpy", threads), threads, 0

    def kernel(self, node):
        self.made += 1
        return self.inner.kernel(node)

    def writes(self, node):
        return self.inner.writes(node)


dx.register_engine("counting", CountingEngine)


def read(source, options):
    """`x softsign tanh`: an input, and what is done to it, word by word."""
    builder = Builder()
    first, *words = source.text.split()
    node = builder.param(0, scalar(F32), first)
    params, at = (node,), len(first)
    for word in words:
        at = source.text.index(word, at)
        if word not in OPS:
            raise ParseError(Diagnostic(f"no operation '{word}'", Span(source, at, at + len(word))))
        node = builder(OPS[word], node)
        at += len(word)
    return Module((dx.Function("main", params, (node,)),), source=source, format="steps")


def write(module):
    """The words of a program that is a chain."""
    return " ".join([module.entry.params[0].name, *(n.op.name for n in module.entry.nodes[1:])]) + "\n"


dx.register_reader("steps", read, suffixes=(".steps",), summary="a chain of operations, word by word")
dx.register_printer("steps", write)


def users(module, node):
    """Who reads the selected value, and the operations that the program is made of."""
    function = next(f for f in module.functions if node in f.nodes)
    yield from (f"read by {user.op.name} {user.name}".rstrip() for user in dict.fromkeys(function.users[node]))
    counts = {}
    for n in function.nodes:
        counts[n.op.name] = counts.get(n.op.name, 0) + 1
    yield from (f"{count:>5} {name}" for name, count in sorted(counts.items()))


dx.register_view("users", users, title="Users")
