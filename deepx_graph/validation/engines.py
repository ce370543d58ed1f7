"""The reference engine under observation: with a bound on its operations, and with every result moved by its last place.

Inputs at the edges make loops long, or endless: a bound ends them. And how much of a difference rounding may make is found by
experiment: a program runs with every float result moved at random by its last place or not, and the spread of each output element
is what its conditioning makes of that (stochastic arithmetic, as in Parker, Monte Carlo Arithmetic, 1997). That follows each
element through the program, so that no relative tolerance is needed; where rounding decides a comparison the
spread is as large as what hangs on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import LimitError
from deepx_graph.ir import Module, Node
from deepx_graph.literal import Array
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.base import KernelFn
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.runtime.inputs import flatten

OPERATIONS = 20_000


class BoundedEngine:
    """`op.eval`, until `left` operations have been computed; raises LimitError then. `left` may be set anew for each run."""

    name = "numpy"

    def __init__(self, left: int = OPERATIONS) -> None:
        self.inner, self.left = NumpyEngine(), left

    def writes(self, node: Node) -> bool:
        """As the reference: never."""
        return self.inner.writes(node)

    def kernel(self, node: Node) -> KernelFn:
        """`op.eval`, counted."""
        kernel = self.inner.kernel(node)

        def run(operands: Sequence[Any], out: Sequence[Array] | None) -> Any:
            self.left -= 1
            if self.left < 0:
                raise LimitError("the run computes more operations than it is allowed here")
            return kernel(operands, out)

        return run


RUNS = 4
MARGIN = 16
"""What is allowed, in spreads of so many runs."""


class NudgingEngine:
    """The reference engine, with every float result moved by up to one unit in the last place."""

    name = "numpy"

    def __init__(self, seed: int) -> None:
        self.inner, self.rng = NumpyEngine(), np.random.default_rng(seed)

    def writes(self, node: Node) -> bool:
        """As the reference: never."""
        return self.inner.writes(node)

    def kernel(self, node: Node) -> KernelFn:
        """`op.eval`, moved; what only moves elements stays as it is."""
        kernel = self.inner.kernel(node)
        if node.op.view:
            return kernel
        return lambda operands, out: moved(kernel(operands, out), self.rng)


def moved(value: Any, rng: np.random.Generator) -> Any:
    """A value of a node with all its arrays nudged."""
    if isinstance(value, tuple):
        return tuple(moved(v, rng) for v in value)
    return nudged(value, rng) if isinstance(value, (np.ndarray, np.generic)) else value


def nudged(value: Any, rng: np.random.Generator) -> Any:
    """A float array with each element one unit in the last place up or down, or as it was; any other as it is."""
    if value.dtype.kind == "c":
        return np.asarray(nudged(value.real, rng) + 1j * nudged(value.imag, rng)).astype(value.dtype)
    if value.dtype.kind not in "fV" or value.dtype.itemsize < 2:
        return value
    towards = rng.integers(-1, 2, np.shape(value))
    limit = np.asarray(np.inf, value.dtype)
    with np.errstate(all="ignore"):
        up, down = np.nextafter(value, limit), np.nextafter(value, -limit)
    return np.asarray(np.where(np.isfinite(value) & (value != 0) & (towards != 0), np.where(towards > 0, up, down), value))


def slacks(module: Module, inputs: Mapping[str, Any], outputs: Sequence[Array], *, partitions: int = 1, seed: int = 0,
           max_bytes: int | None = None) -> list[Array | None]:
    """What rounding may make of each output: arrays of its shape; None of an output that is no float.

    Raises what compiling and running raise.
    """
    spread: list[Any] = [None] * len(outputs)
    rng = np.random.default_rng(seed)
    for k in range(RUNS):
        f = compile(module, engine=NudgingEngine(k), partitions=partitions, seed=seed, max_bytes=max_bytes)
        moved = {name: _each(value, rng) for name, value in inputs.items()}
        for n, (want, got) in enumerate(zip(outputs, flatten(f(**moved)), strict=True)):
            if want.dtype.kind not in "biu" and want.shape == np.shape(got):
                spread[n] = _wider(spread[n], want, np.asarray(got))
    return [None if s is None else s * MARGIN for s in spread]


def undecided(module: Module, inputs: Mapping[str, Any], outputs: Sequence[Array], *, max_bytes: int | None = None) -> list[Array]:
    """For each output where rounding decides what it is: elements of integers and bools that changed in one of the runs.

    Raises what compiling and running raise.
    """
    found = [np.zeros(want.shape, np.bool_) for want in outputs]
    rng = np.random.default_rng(0)
    for k in range(RUNS):
        f = compile(module, engine=NudgingEngine(k), max_bytes=max_bytes)
        moved = {name: _each(value, rng) for name, value in inputs.items()}
        for n, (want, got) in enumerate(zip(outputs, flatten(f(**moved)), strict=True)):
            if want.dtype.kind in "biu" and want.shape == np.shape(got):
                found[n] |= want != np.asarray(got)
    return found


def _each(value: Any, rng: np.random.Generator) -> Any:
    return [nudged(np.asarray(v), rng) for v in value] if isinstance(value, list) else nudged(np.asarray(value), rng)


def _wider(spread: Array | None, want: Array, got: Array) -> Array:
    return distances(want, got) if spread is None else np.maximum(spread, distances(want, got))


def distances(want: Array, got: Array) -> Array:
    """How far the elements of an array are from those it was moved from; infinitely where they are no numbers any more."""
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(wide) - want.astype(wide))
    lost = np.isfinite(want.astype(wide)) & ~np.isfinite(got.astype(wide))
    return np.where(lost, np.inf, np.nan_to_num(apart, nan=0.0, posinf=np.inf))
