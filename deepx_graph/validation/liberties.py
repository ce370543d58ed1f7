"""What a machine may make of a program beside what the reference does, found by computing it: no tolerance, but other runs.

- Subnormal numbers taken for zeros, as XLA sets the processor to do: a run in which all that is computed is flushed.
- Sums and products in another order: where the terms of one sign alone overflow, inf, -inf, NaN and the sum itself are what some
  order of the terms gives, and so with factors above and below 1. A run in which the terms are added one after the other, and runs
  in which each such result is one of these by chance, show what becomes of it.

An element is explained that is, up to rounding, what one of these runs gives; a result where all elements are.
Which operations sum is declared: those whose partial results over devices are added (`Partitioning.combiner`).
"""

from __future__ import annotations

import itertools
import math
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

IN_TURN, ORDERS = 1, 24
"""The run in which terms are added one after the other, and that many in which results that overflow are drawn."""

TERMS = 512
"""Elements of the smallest operand of a sum whose terms are added one after the other."""

CHOICES = 4
"""The most values that orders may give an element: in so many runs after each other it has each of them."""

Choices = list[tuple[Array, Any]]
"""Values of a result, each with the elements that may have it."""

Run = Callable[[Sequence[Any]], Array]
"""An operation in double precision, on other operands."""


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
    """Flushes every result; `order` says what sums and products are some terms of which overflow: as they are (None), added one
    after the other, or drawn from what some order of the terms gives."""

    def __init__(self, order: int | None) -> None:
        self.order, self.rng = order, np.random.default_rng(None if order is None else order // CHOICES)

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """The result as another machine, or another order, would give it."""
        if self.order is not None and isinstance(result, np.ndarray):
            result = self._reordered(node, operands, result)
        return result if node.op.view else flushed(result)

    def _reordered(self, node: Node, operands: Sequence[Any], result: Array) -> Array:
        neutral = _neutral(node)
        if neutral is None or _moderate(operands, result, neutral) or (run := _in_double(node, operands)) is None:
            return result
        with np.errstate(all="ignore"):
            if neutral == 0 and self.order == IN_TURN and (added := _in_turn(run, operands, result)) is not None:
                return added
            choices = _products(run, operands, result) if neutral == 1 else _sums(run, operands, result)
            return self._drawn(choices, result)

    def _drawn(self, choices: Choices, result: Array) -> Array:
        """For every element one of its choices, each in one of so many runs; the result itself where there is but one."""
        assert self.order is not None
        allowed = np.stack([np.broadcast_to(where, result.shape) for _, where in choices])
        values = np.stack([np.broadcast_to(value, result.shape) for value, _ in choices])
        count = allowed.sum(axis=0)
        turn = (self.rng.integers(0, 12, result.shape) + self.order) % np.maximum(count, 1)
        chosen = np.argmax(allowed & (np.cumsum(allowed, axis=0) == turn + 1), axis=0)
        return np.where(count > 1, np.take_along_axis(values, chosen[None], 0)[0].astype(result.dtype), result)


def _neutral(node: Node) -> int | None:
    """0 where the result is a sum of floats, of products perhaps, 1 where it is a product, else None."""
    split, type = node.op.sharding, node.type
    if not isinstance(type, TensorType) or not type.dtype.is_float:
        return None
    reducers = [] if split is None or split.combiner is None else [split.combiner(node)]
    reducers += [a.reducer for a in node.attrs if isinstance(a, Function)]
    found = [op.identity_for(type.dtype) for op in reducers if op is not None and op.monoid is not None]
    return next((int(n) for n in found if n in (0, 1)), None)


def _moderate(operands: Sequence[Any], result: Array, neutral: int) -> bool:
    """Whether no order of the terms overflows, as they are far from that; of factors that is not asked."""
    largest = float(ml_dtypes.finfo(result.dtype).max)  # type: ignore[no-untyped-call]
    return neutral == 0 and all(np.abs(o.astype(np.float64)).max(initial=0) < largest**0.25 for o in _floats(operands))


def _sums(run: Run, operands: Sequence[Any], result: Array) -> Choices:
    """What orders of the terms give: the sum itself; infinity where the terms of one sign overflow alone, up to what rounding
    makes of as many terms; NaN where those of both do. An infinite term leaves no other choice but NaN."""
    info = ml_dtypes.finfo(result.dtype)  # type: ignore[no-untyped-call]
    total, (above, below) = run(operands), _by_sign(run, operands)
    grown = 1 + run([np.ones_like(o) if _is_float(o) else o for o in operands]) * float(info.eps)
    up, down = above * grown > float(info.max), -below * grown > float(info.max)
    known = np.isnan(total)
    return [(total, True), (np.asarray(np.inf), up & ~known & (total != -np.inf)),
            (np.asarray(-np.inf), down & ~known & (total != np.inf)), (np.asarray(np.nan), up & down)]  # fmt: skip


def _products(run: Run, operands: Sequence[Any], result: Array) -> Choices:
    """What orders of the factors give: the product itself; infinity where those above 1 overflow alone; zero where those
    below 1 are subnormal alone; NaN where both are, or where infinity meets a zero."""
    info = ml_dtypes.finfo(result.dtype)  # type: ignore[no-untyped-call]

    def over(f: Callable[[Array], Array]) -> Array:
        return run([f(np.asarray(o)) if _is_float(o) else o for o in operands])

    total, sign = run(operands), over(np.sign)
    unknown = ~np.isnan(sign)
    many = over(lambda o: np.maximum(np.abs(o), 1)) > float(info.max)
    few = over(lambda o: np.where(o == 0, 1, np.minimum(np.abs(o), 1))) < float(info.tiny)
    return [(total, ~(unknown & np.isnan(total))), (sign * np.inf, unknown & many & (sign != 0)), (sign * 0, unknown & few),
            (np.asarray(np.nan), unknown & many & (few | (sign == 0)))]  # fmt: skip


def _by_sign(run: Run, operands: Sequence[Any]) -> tuple[Array, Array]:
    """The sums of the positive and of the negative terms, exact but for double precision. A sum of products is one that is zero as
    soon as one operand is: then the signs of the operands make those of the terms, else each operand holds terms."""
    finite = [np.nan_to_num(np.asarray(o, np.float64)) if _is_float(o) else o for o in operands]
    places = [k for k, o in enumerate(operands) if _is_float(o)]

    def with_signs(signs: Sequence[int]) -> Array:
        chosen = dict(zip(places, signs, strict=True))
        return run([np.where(o * chosen[k] > 0, o, 0) if k in chosen else o for k, o in enumerate(finite)])

    if any(with_signs([0 if k == p else 1 for k in places]).any() for p in places):
        return with_signs([1] * len(places)), with_signs([-1] * len(places))
    above = below = np.zeros(())
    for signs in itertools.product((1, -1), repeat=len(places)):
        terms = with_signs(signs)
        above, below = (above + terms, below) if math.prod(signs) > 0 else (above, below + terms)
    return above, below


def _in_turn(run: Run, operands: Sequence[Any], result: Array) -> Array | None:
    """The sum of the terms one after the other, rounded after each, products not, as machines do that have a fused multiplication
    and addition: the terms are those of the elements of the smallest operand, in order. None where there are too many."""
    sizes = [(np.size(o) < 2, np.size(o), k) for k, o in enumerate(operands) if _is_float(o)]
    if not sizes or min(sizes)[1] > TERMS:
        return None
    place = min(sizes)[2]
    array = np.asarray(operands[place], np.float64)

    def of(part: Array) -> Array:
        return run([part.reshape(array.shape) if k == place else o for k, o in enumerate(operands)])

    first = of(np.zeros(array.size))
    total = first.astype(result.dtype)
    for k in range(array.size):
        term = of(np.where(np.arange(array.size) == k, array.reshape(-1), 0)) - first
        total = flushed((total.astype(np.float64) + term).astype(result.dtype))
    return total


def _is_float(operand: Any) -> bool:
    return np.asarray(operand).dtype.kind not in "biuSU"


def _floats(operands: Sequence[Any]) -> list[Array]:
    return [np.asarray(o) for o in operands if _is_float(o)]


def _in_double(node: Node, operands: Sequence[Any]) -> Run | None:
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
