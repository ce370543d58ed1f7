"""How much of a difference rounding may make, found by experiment: every float result is moved at random by its last place or not,
and a sum of n terms, which may be added in any order, by sqrt(n) last places of the sum of their absolute values (what rounding n
partial sums makes with high probability: Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019).

The spread of each output element is what its conditioning makes of that (stochastic arithmetic, as in Parker, Monte Carlo
Arithmetic, 1997). That follows each element through the program, so that no relative tolerance is needed; where rounding decides a
comparison the spread is as large as what hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.scalar_expr import rounds
from deepx_graph.literal import Array
from deepx_graph.numerics.observed import ObservedEngine, RunObserver
from deepx_graph.ops.math.elementwise import add
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.inputs import flatten
from deepx_graph.types import TensorType, leaves

RUNS = 8
MARGIN = 16
"""What is allowed, in spreads of so many runs."""


class Nudge(RunObserver):
    """Moves every float result by up to one unit in the last place; what is not rounded stays as it is, unless `ties` are to be
    broken that choosing makes."""

    def __init__(self, seed: int, ties: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.ties = ties

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """The result, moved."""
        if is_sum(node):
            assert node.op.eval is not None
            sizes, terms = (node.op.eval([of(x) for x in operands], *node.attrs) for of in (_sizes, _ones))
            return reordered(result, sizes, terms, self.rng)
        return result if is_exact(node) and not self.ties else moved(result, self.rng)


def is_sum(node: Node) -> bool:
    """Whether each element of the result is a sum of elements of operands, or of products of them."""
    if node.op.place is not None or not isinstance(node.type, TensorType):
        return False
    if bodies := [a for a in node.attrs if isinstance(a, Function)]:
        return all(body.reducer is add for body in bodies)
    sharding = node.op.sharding
    return sharding is not None and sharding.combiner is not None and sharding.combiner(node) is add


def _sizes(x: Any) -> Any:
    """What makes the sum of absolute values of the terms, in place of an operand of a sum."""
    return np.abs(x).astype(x.dtype) if x.dtype.kind in "cfV" else x


def _ones(x: Any) -> Any:
    """What makes the number of terms."""
    return np.ones_like(x) if x.dtype.kind in "cfV" else x


def reordered(value: Any, size: Any, terms: Any, rng: np.random.Generator) -> Any:
    """Floats that are sums, each moved up or down, or as it was; any other array as it is. `size` has the sums of the absolute
    values of their terms, `terms` how many these are. What may as well cancel is zero in one case of three."""
    if value.dtype.kind == "c":
        return _of_parts(value, lambda part: reordered(part, size.real, terms.real, rng))
    if value.dtype.kind not in "fV" or value.dtype.itemsize < 2:
        return value
    towards = rng.integers(-1, 2, np.shape(value))
    with np.errstate(all="ignore"):
        place = np.nextafter(size, np.asarray(np.inf, value.dtype)).astype(np.float64) - size.astype(np.float64)
        most = place * np.sqrt(terms.astype(np.float64))
        step, cancels = most * towards, (np.abs(value) <= most) & (rng.integers(0, 3, np.shape(value)) == 0)
        other = np.where(np.isnan(value), -value, (value.astype(np.float64) + step).astype(value.dtype))
    keep = (towards == 0) | (size == 0) | ~(np.isfinite(step) | np.isnan(value))
    return np.asarray(np.where(cancels, np.zeros((), value.dtype), np.where(keep, value, other)))


def _of_parts(value: Any, of_part: Callable[[Any], Any]) -> Any:
    """A complex array, of what is made of its real and of its imaginary part."""
    return np.asarray(of_part(value.real) + 1j * of_part(value.imag)).astype(value.dtype)


def is_exact(node: Node) -> bool:
    """Whether the floats that a node gives are those of its operands, or computed from them without rounding: elements are moved,
    chosen, compared, negated, cut to integers."""
    if node.op.view or node.op.place is not None:
        return True
    kernel = None if node.op.kernel is None else node.op.kernel(*node.attrs)
    if kernel is None or rounds(kernel):
        return False
    return not any(isinstance(t, TensorType) and t.dtype.kind == "complex" for i in node.inputs for t in leaves(i.type))


def moved(value: Any, rng: np.random.Generator) -> Any:
    """A value of a node with all its arrays nudged."""
    if isinstance(value, tuple):
        return tuple(moved(v, rng) for v in value)
    return nudged(value, rng) if isinstance(value, (np.ndarray, np.generic)) else value


def nudged(value: Any, rng: np.random.Generator) -> Any:
    """A float array with each element one unit in the last place up or down, or as it was; any other as it is. The sign of a NaN,
    which no document says, is either."""
    if value.dtype.kind == "c":
        return _of_parts(value, lambda part: nudged(part, rng))
    if value.dtype.kind not in "fV" or value.dtype.itemsize < 2:
        return value
    towards = rng.integers(-1, 2, np.shape(value))
    limit = np.asarray(np.inf, value.dtype)
    with np.errstate(all="ignore"):
        up, down = np.nextafter(value, limit), np.nextafter(value, -limit)
        other = np.where(np.isfinite(value), np.where(towards > 0, up, down), np.where(np.isnan(value), -value, value))
    return np.asarray(np.where((value != 0) & (towards != 0), other, value))


def slacks(module: Module, inputs: Mapping[str, Any], outputs: Sequence[Array] | None = None, *, replicas: int = 1,
           partitions: int = 1, seed: int = 0, max_bytes: int | None = None, ties: bool = False) -> list[Array | None]:
    """What rounding may make of each output: arrays of its shape; None of an output that is no float. With `ties` it is also what
    hangs on values that the program makes equal by choosing one of them.

    `outputs` are those of the reference on these inputs, where they are known already.
    Raises what compiling and running raise.
    """
    options: dict[str, Any] = {"replicas": replicas, "partitions": partitions, "seed": seed, "max_bytes": max_bytes}
    if outputs is None:
        outputs = list(map(np.asarray, flatten(compile(module, engine="numpy", **options)(**inputs))))
    spread: list[Any] = [None] * len(outputs)
    rng = np.random.default_rng(seed)
    for k in range(RUNS):
        f = compile(module, engine=ObservedEngine(Nudge(k, ties)), **options)
        moved = {name: _each(value, rng) for name, value in inputs.items()}
        for n, (want, got) in enumerate(zip(outputs, flatten(f(**moved)), strict=True)):
            if want.dtype.kind not in "biuO" and want.shape == np.shape(got):
                spread[n] = _wider(spread[n], want, np.asarray(got))
    return [None if s is None else s * MARGIN for s in spread]


def undecided(module: Module, inputs: Mapping[str, Any], outputs: Sequence[Array], *, max_bytes: int | None = None) -> list[Array]:
    """For each output where rounding decides what it is: elements of integers, bools and texts that changed in one run.

    Raises what compiling and running raise.
    """
    found = [np.zeros(want.shape, np.bool_) for want in outputs]
    rng = np.random.default_rng(0)
    for k in range(RUNS):
        f = compile(module, engine=ObservedEngine(Nudge(k)), max_bytes=max_bytes)
        moved = {name: _each(value, rng) for name, value in inputs.items()}
        for n, (want, got) in enumerate(zip(outputs, flatten(f(**moved)), strict=True)):
            if want.dtype.kind in "biuO" and want.shape == np.shape(got):
                found[n] |= want != np.asarray(got)
    return found


def _each(value: Any, rng: np.random.Generator) -> Any:
    return [nudged(np.asarray(v), rng) for v in value] if isinstance(value, list) else nudged(np.asarray(value), rng)


def _wider(spread: Array | None, want: Array, got: Array) -> Array:
    return distances(want, got) if spread is None else np.maximum(spread, distances(want, got))


def distances(want: Array, got: Array) -> Array:
    """How far the elements of an array are from those it was moved from; infinitely where numbers become none, or the reverse."""
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(wide) - want.astype(wide))
    undecided = (np.isnan(want) != np.isnan(got)) | (np.isfinite(want.astype(wide)) & ~np.isfinite(got.astype(wide)))
    return np.where(undecided, np.inf, np.nan_to_num(apart, nan=0.0, posinf=np.inf))
