"""Sums along the last axes by numpy's fast loops: dot products in a kernel of one block, `einsum` in one of several.

A dot takes in the product that it adds up, reads its operands once and adds in as many lanes as the machine has; but numpy
holds the interpreter's lock meanwhile, so threads would wait for each other. `einsum` lets go of it and adds three times as fast
as `add.reduce`. Either goes over short pieces whose sums are added pairwise, so that no sum is worse than numpy's own, and no piece
is long enough for BLAS to start threads. Only for f32 and f64, and only where the operands lie in C order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from deepx_graph.ir.peephole import primitive_of
from deepx_graph.runtime.kernels.lower_primitives import WIDE_FLOATS
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Step

DOT = 2048
"""Elements of a piece of a dot: OpenBLAS uses one thread for up to 10 000, and in 32 lanes there are 64 additions in a row."""

PIECE = 1024
"""The longest row that `einsum` adds up as a whole, with 64 additions in a row; longer ones are cut."""


def with_fast_sums(program: KernelProgram, as_dots: bool) -> KernelProgram:
    """The program with its sums along the last axes done so."""
    uses = Counter(s for step in program.steps for s in set(step.sources))
    maker = {s.target: s for s in program.steps}
    gone: set[int] = set()
    steps = []
    for step in program.steps:
        if _is_last_sum(program, step):
            product = maker.get(step.sources[0]) if as_dots else None
            taken = product is not None and uses[product.target] == 1 and _is_product(program, product, step)
            if product is not None and taken:
                gone.add(product.target)
                step = replace(step, sources=product.sources)
            step = replace(step, make=_FastSum(_first(program, step), as_dots, step.make()))
        steps.append(step)
    return replace(program, steps=tuple(s for s in steps if s.target not in gone))


def _first(program: KernelProgram, step: Step) -> int:
    """The first of the axes that go, where these are the last ones."""
    assert step.reduction is not None
    return len(program.space) - len(step.reduction.axes)


def _is_last_sum(program: KernelProgram, step: Step) -> bool:
    """Whether the step adds up floats along the last axes, and along all of these."""
    if step.reduction is None or primitive_of(step.reduction.op) != "add" or not step.reduction.axes:
        return False
    last = tuple(range(_first(program, step), len(program.space)))
    return program.registers[step.target].dtype in WIDE_FLOATS and step.reduction.axes == last


def _is_product(program: KernelProgram, made: Step, total: Step) -> bool:
    """Whether the step multiplies, is no result, and both factors vary along all axes over which `total` adds."""
    shapes = [program.registers[s].shape for s in made.sources]
    spans = all(shape[k] == program.space[k] for shape in shapes for k in range(_first(program, total), len(program.space)))
    return made.primitive == "mul" and made.target not in program.results and spans


class _FastSum:
    """Makes the callable of a sum over the axes from `first` on; `otherwise` adds where the operands do not lie in C order."""

    __slots__ = ("as_dots", "first", "otherwise")

    def __init__(self, first: int, as_dots: bool, otherwise: Callable[..., Any]) -> None:
        self.first, self.as_dots, self.otherwise = first, as_dots, otherwise

    def __call__(self) -> Callable[..., Any]:
        first, otherwise = self.first, self.otherwise
        add_up: Callable[..., None] = _dots if self.as_dots else _sums

        def call(*args: Array) -> None:
            *sources, out = args
            inner = math.prod(sources[0].shape[first:])
            if all(s.flags.c_contiguous for s in sources):
                add_up(*(s.reshape(-1, inner) for s in sources), out.reshape(-1))
            else:
                otherwise(sources[0] if len(sources) == 1 else np.multiply(*sources), out)

        return call


def _sums(x: Array, out: Array) -> None:
    """Row sums of `x`."""
    inner = x.shape[1]
    if inner <= PIECE:
        np.einsum("ij->i", x, out=out)
        _keep_negative_zeros(out, x)
        return
    count, rest = divmod(inner, PIECE)
    parts = np.empty((len(out), count + (rest > 0)), x.dtype)
    np.einsum("ijk->ij", x[:, : inner - rest].reshape(len(x), count, PIECE), out=parts[:, :count])
    if rest:
        np.einsum("ij->i", x[:, -rest:], out=parts[:, count])
    np.add.reduce(parts, axis=-1, out=out)
    _keep_negative_zeros(out, x)


def _keep_negative_zeros(out: Array, *factors: Array) -> None:
    """Sums of nothing but -0.0 are -0.0; numpy's loops begin with the other zero."""
    rows = np.flatnonzero(out == 0)
    for width in (1, factors[0].shape[1]):  # few rows begin so
        if not rows.size or not width:
            return
        rows = rows[np.signbit(np.prod([f[rows, :width] for f in factors], axis=0)).all(axis=1)]
    out[rows] = -0.0


def _dots(x: Array, *others: Array) -> None:
    """Row sums of `x * y`, or of `x`; `others` are `y`, if any, and where they go."""
    *ys, out = others
    inner = x.shape[1]
    if inner <= DOT:
        np.vecdot(x, ys[0] if ys else _ones(x.dtype.char)[:inner], out)
        _keep_negative_zeros(out, x, *ys)
        return
    count, rest = divmod(inner, DOT)
    parts = np.empty((len(out), count + (rest > 0)), x.dtype)
    pieces = [a[:, : inner - rest].reshape(len(a), count, DOT) for a in (x, *ys)]
    np.vecdot(pieces[0], pieces[1] if ys else _ones(x.dtype.char), parts[:, :count])
    if rest:
        np.vecdot(x[:, -rest:], ys[0][:, -rest:] if ys else _ones(x.dtype.char)[:rest], parts[:, count])
    np.add.reduce(parts, axis=-1, out=out)
    _keep_negative_zeros(out, x, *ys)


@cache
def _ones(char: str) -> Array:
    return np.ones(DOT, char)
