"""A plain evaluator: `op.eval` on demand, laziness of branches and loops by the letter of the definition. Slow and small.

The independent meaning that passes are tested against; it shares nothing with the runtime. Pure programs only.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PARTIAL,
    PHI,
    REGION,
    branches_of,
    is_loop_variable,
)


def evaluate(module: Module, args: Sequence[Any], entry: str | None = None) -> list[Any]:
    """The results of the entry (or the named) function."""
    with np.errstate(all="ignore"):
        return _Frame(module, module[entry] if entry else module.entry, args).results()


class _Frame:
    """One activation of a function. A value is remembered per iteration of the loops that it depends on."""

    def __init__(self, module: Module, function: Function, args: Sequence[Any]) -> None:
        self.module, self.function, self.args = module, function, args
        self.loops: dict[Node, tuple[int, tuple[Any, ...]]] = {}  # loop_begin -> (iteration, variables)
        self.iterations = itertools.count()
        self.known: dict[tuple[Any, ...], Any] = {}
        self.inside: dict[Node, frozenset[Node]] = {}
        for n in function.nodes:
            deps = frozenset().union(*(self.inside[i] for i in n.inputs))
            if is_loop_variable(n):
                deps |= {n.inputs[0]}
            self.inside[n] = deps - {n.inputs[0]} if n.op is LOOP_END else deps

    def results(self) -> list[Any]:
        return [self.value(r) for r in self.function.results]

    def value(self, n: Node) -> Any:
        key = (n, *sorted(self.loops[b][0] for b in self.inside[n]))
        if key not in self.known:
            self.known[key] = self.compute(n)
        return self.known[key]

    def compute(self, n: Node) -> Any:
        if n.op is PARAM:
            return self.args[n.attrs[0]]
        if n.op is CONSTANT:
            return n.attrs[0].array
        if n.op is PHI:
            return self.phi(n)
        if n.op is REGION:
            return tuple(map(self.value, branches_of(n)[self.taken(n)]))
        if n.op is LOOP_END:
            return self.loop(n)
        values = [self.value(i) for i in n.inputs]
        if n.op is CALL:
            return tuple(_Frame(self.module, self.module[n.attrs[0]], values).results())
        if n.op is PARTIAL:
            return n.attrs[0], values
        if n.op is CALL_VALUE:
            name, captured = values[0]
            return tuple(_Frame(self.module, self.module[name], [*captured, *values[1:]]).results())
        assert n.op.eval is not None, n
        return n.op.eval(values, *n.attrs)

    def taken(self, region: Node) -> int:
        selector = self.value(region.inputs[0])
        if np.asarray(selector).dtype.kind == "b":
            return 0 if selector else 1
        return int(selector) if 0 <= int(selector) < region.attrs[0] else int(region.attrs[0]) - 1

    def phi(self, n: Node) -> Any:
        control = n.inputs[0]
        if control.op is LOOP_BEGIN:
            return self.loops[control][1][n.attrs[0]]
        return self.value(branches_of(control)[self.taken(control)][n.attrs[0]])

    def loop(self, end: Node) -> Any:
        begin, cond, *nexts = end.inputs
        saved = self.loops.get(begin)
        variables = tuple(self.value(i) for i in begin.inputs)
        while True:
            self.loops[begin] = (next(self.iterations), variables)
            if not self.value(cond):
                break
            variables = tuple(self.value(x) for x in nexts)
        if saved is None:
            del self.loops[begin]
        else:
            self.loops[begin] = saved
        return variables


def same(a: Any, b: Any) -> bool:
    """Equal to the bit but for NaN payloads: shape, dtype, values, signs of zeros."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind == "V":
        a, b = a.astype(np.float64), b.astype(np.float64)
    if a.dtype.kind == "c":
        return bool(np.array_equal(a, b, equal_nan=True))  # the zeros of products have no one sign
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0])))
