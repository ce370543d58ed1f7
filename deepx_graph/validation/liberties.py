"""What a machine may make of a program beside what the reference does, found by computing it: no tolerance, but other runs.

- Subnormal numbers taken for zeros, as XLA sets the processor to do: a run in which all that is computed is flushed.
- Sums in another order: where some of the terms alone overflow, inf, -inf, NaN and the sum itself are what some
  order of the terms gives. Runs in which such sums are one of these by chance show what becomes of it.

An element is explained that is, up to rounding, what one of these runs gives; a result where all elements are.
Which operations sum is declared: those whose partial results over devices are added (`Partitioning.combiner`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.literal import Array
from deepx_graph.numerics.double import widened
from deepx_graph.numerics.observed import ObservedEngine, RunObserver
from deepx_graph.runtime.compile import compile
from deepx_graph.types import TensorType
from deepx_graph.validation.culprit import opened
from deepx_graph.validation.discrepancy import HARMLESS, Kind, beyond
from deepx_graph.validation.stage_run import StageRun
from deepx_graph.validation.stages import Reference

FLUSHED = "subnormal numbers taken for zeros"
REORDERED = "sums in another order, where terms overflow"

SUBSETS = 24
"""Sets of terms that are drawn to see whether they overflow alone: from most of them to one in a hundred."""

ORDERS = 16
"""Runs in which sums that overflow are drawn."""


def explanation(reference: Reference, machine: Sequence[Sequence[Array]], last: Module | None) -> str:
    """Which liberty explains what a machine gave for every sample; empty where none does. `last` is the program that it ran."""
    for why, orders in ((FLUSHED, 0), (REORDERED, ORDERS)):
        try:
            if all(_explained(reference, k, outputs, last, orders) for k, outputs in enumerate(machine)):
                return why
        except DeepxGraphError:
            return ""
    return ""


def _explained(reference: Reference, sample: int, outputs: Sequence[Array], last: Module | None, orders: int) -> bool:
    wanted, slack = reference.outputs[sample], reference.slack(sample)
    allowed: tuple[Kind, ...] = (*HARMLESS, "sign of zero") if reference.zeros_open else HARMLESS

    def differing(given: Sequence[Array], got: Sequence[Array]) -> list[Array]:
        return [np.ones(w.shape, np.bool_) if (w.dtype, w.shape) != (g.dtype, g.shape)
                else beyond(w, g, s, reference.narrowest, allowed) for w, g, s in zip(given, got, slack, strict=True)]

    left = differing(wanted, outputs)
    if not any(m.any() for m in left):
        return True
    small = [flushed(g) for g in outputs]
    for given in _others(reference, sample, last, orders):
        left = [m & d for m, d in zip(left, differing(given, small), strict=True)]
        if not any(m.any() for m in left):
            return True
    return False


def _others(reference: Reference, sample: int, last: Module | None, orders: int) -> Iterator[tuple[Array, ...]]:
    """What other runs give."""
    runs: list[tuple[Module, Mapping[str, Array]]] = [(reference.module, reference.samples[sample])]
    if last is not None and last is not reference.module:
        stage = StageRun(reference, last)
        runs += [] if stage.partitioned else [(opened(last), stage.inputs(sample))]
    for module, inputs in runs:
        given = {name: flushed(np.asarray(a)) for name, a in inputs.items()}
        for k in range(1 + orders):
            observer = OtherArithmetic(k or None)
            f = compile(module, engine=ObservedEngine(observer), seed=reference.seed, max_bytes=reference.max_bytes)
            with np.errstate(all="ignore"):
                yield tuple(flushed(np.asarray(r)) for r in f(*(given[p.name] for p in f.inputs)))


def flushed(value: Any) -> Any:
    """A value with zeros for its subnormal numbers, of the same sign."""
    if isinstance(value, tuple):
        return tuple(map(flushed, value))
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    if value.dtype.kind == "c":
        return np.asarray(flushed(value.real) + 1j * flushed(value.imag)).astype(value.dtype)
    if value.dtype not in (np.float32, np.float64):
        return value
    small = np.abs(value) < np.finfo(value.dtype).tiny
    return np.where(small, np.copysign(value.dtype.type(0), value), value) if small.any() else value


class OtherArithmetic(RunObserver):
    """Flushes every result; with a seed it draws what sums are whose terms overflow in some order."""

    def __init__(self, seed: int | None) -> None:
        self.rng = None if seed is None else np.random.default_rng(seed)

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """The result as another machine, or another order, would give it."""
        if self.rng is not None and _is_sum(node) and isinstance(result, np.ndarray):
            result = self._drawn(node, operands, result, self.rng)
        return result if node.op.view else flushed(result)

    def _drawn(self, node: Node, operands: Sequence[Any], result: Array, rng: np.random.Generator) -> Array:
        largest = float(ml_dtypes.finfo(result.dtype).max)  # type: ignore[no-untyped-call]
        if all(np.abs(o.astype(np.float64)).max(initial=0) < largest**0.25 for o in operands if o.dtype.kind == "f"):
            return result
        run = _in_double(node, operands)
        if run is None:
            return result
        total, (above, below) = run(operands), _overflowing(run, operands, largest, rng)
        choices = np.stack([total, np.where(above, np.inf, total), np.where(below, -np.inf, total),
                            np.where(above & below, np.nan, total)])  # fmt: skip
        drawn = np.take_along_axis(choices, rng.integers(0, 4, (1, *total.shape)), 0)[0]
        return np.where(above | below, drawn.astype(result.dtype), result)


def _is_sum(node: Node) -> bool:
    """Whether the result is a sum of products, of floats."""
    split, type = node.op.sharding, node.type
    if not isinstance(type, TensorType) or not type.dtype.is_float:
        return False
    reducers = [] if split is None or split.combiner is None else [split.combiner(node)]
    reducers += [a.reducer for a in node.attrs if isinstance(a, Function)]
    return any(op is not None and op.monoid is not None and op.identity_for(type.dtype) == 0 for op in reducers)


def _overflowing(run: Callable[[Sequence[Any]], Array], operands: Sequence[Any], largest: float,
                 rng: np.random.Generator) -> tuple[Array, Array]:
    """For which elements terms are found whose sum is beyond the largest number, or below the least: an order that begins with them
    overflows. They are drawn, as the terms of some elements of the operands, the others being zeros."""
    above = below = np.zeros((), np.bool_)
    for k in range(SUBSETS):
        part = run([_some(np.asarray(o), 0.85**k, rng) for o in operands])
        above, below = above | (part > largest), below | (part < -largest)
    return above, below


def _some(array: Array, kept: float, rng: np.random.Generator) -> Array:
    """Some elements of a float array: of any sign, of one, or of the other."""
    if array.dtype.kind != "f":
        return array
    sign = rng.integers(-1, 2)
    return np.where((rng.random(array.shape) < kept) & (sign * array >= 0), array, 0)


def _in_double(node: Node, operands: Sequence[Any]) -> Callable[[Sequence[Any]], Array] | None:
    """The operation in double precision; None where there is none."""
    b = Builder()
    params = tuple(b.param(k, i.type, f"x{k}") for k, i in enumerate(node.inputs))
    entry = Function("main", params, (Node(node.op, params, node.attrs, node.type),), ("y",))
    try:
        f = compile(widened(Module((entry,))), engine="numpy")
        types = [p.type.dtype.np for p in f.inputs]  # type: ignore[attr-defined]
        f(*[np.asarray(o, t) for o, t in zip(operands, types, strict=True)])
    except (DeepxGraphError, AttributeError):
        return None
    return lambda arrays: np.asarray(f(*[np.asarray(a, t) for a, t in zip(arrays, types, strict=True)])[0])
