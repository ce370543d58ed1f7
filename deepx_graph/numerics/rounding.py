"""Where digits are lost: the rounding errors of operations, what becomes of those of operands, their part in those of outputs.

The program runs twice, as it stands and in double precision (a shadow execution, as in Sanchez-Stern et al., Finding Root Causes
of Floating Point Error, PLDI 2018). An operation's own error is its result beside that of the same operation in double precision
on the very operands that it had; its total error is its result beside that of the run in double precision. Where the total is much
larger than that of every operand, digits cancel.

What own errors do to the outputs is a derivative. In double precision each operation's value v becomes v + s e, where e is its own
error, computed beside it, and s a number of its own: all s at 1 give the program as it runs, at 0 that in double precision. So the
derivative by one s at 1, along the signs of the outputs' errors, is what this operation's rounding, in all iterations together,
adds to them; one gradient program has all of these, and they add up to the measured error as far as that is of first order. With
the error of a narrower format for e it predicts what storing that one value in it would do: along random signs, as the mean of the
squares of such derivatives is the sum of the squares of what becomes of the outputs (Hutchinson's estimator, Communications in
Statistics 18, 1989). Along the signs of one error what changes some elements up and others down would seem to do nothing.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError, TextReport, UsageError, printable
from deepx_graph.ir import Builder, Function, Module, Node, Origin, describe
from deepx_graph.ir.evaluation import evaluation
from deepx_graph.ir.node import reachable
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.literal import Array
from deepx_graph.numerics.double import as_it_stands, shadow
from deepx_graph.numerics.observed import ArrayFacts, Observed, RunObserver, Value, observe, tensors
from deepx_graph.numerics.values import ValueTable
from deepx_graph.ops.math.elementwise import add, convert, is_finite, multiply, select, subtract
from deepx_graph.ops.tensor.layout import stop_gradient
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.fusion.fuse import unfused
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.inputs import flatten
from deepx_graph.types import F64, DType, TensorType, scalar

CANCELS = 16.0
"""An operation that makes the relative error so many times larger loses digits."""

RELEVANT = 0.05
"""The part of the outputs' error that must pass through an operation for its loss of digits to be reported."""


SIZES = 1e6
"""By how much elements of one size may differ in it."""

PROBES = 16
"""Random signs of which the mean is taken: what is predicted is right to a fifth, and exact where there is one element."""

FEW = 1 / 16
"""The part of all elements that those of one size have to be to have an error of their own."""


@dataclass(frozen=True)
class NodeError:
    """The errors of one operation, relative to the size (2-norm) of its result, in the run in which they were largest; the total
    is that of elements of one size where these differ much."""

    node: Node
    runs: int
    own: float
    total: float
    operands: float
    """The largest total error of an operand."""
    decided: int = 0
    """Elements of an integer or truth value that double precision decides otherwise, in the run in which they are most."""
    contribution: float = math.nan
    """What its rounding adds to the relative error of the outputs, in the mean of their elements; below zero where it takes from
    it. NaN: not known."""
    stored: float = math.nan
    """The relative error of the outputs, the root of the mean of the squares of their elements', if its value alone were stored in
    the format that was asked for."""

    @property
    def amplification(self) -> float:
        """How many times larger the error is than that of the operands, which count as rounded at least."""
        return self.total / max(self.operands, _rounding(self.node)) if self.total else 0.0


@dataclass(frozen=True, repr=False)
class RoundingReport(TextReport):
    """The relative error of each output (name, error), every operation on floats, and how much of the error they explain."""

    outputs: tuple[tuple[str, float], ...]
    nodes: tuple[NodeError, ...]
    explained: float = math.nan
    format: DType | None = None
    why_not: str = ""
    """Why contributions are not known."""
    module: Module | None = field(default=None, repr=False)
    """The program that these operations are of: with known types, without calls and kernels."""

    @property
    def cancellations(self) -> tuple[NodeError, ...]:
        """Operations that lose digits on the way to an output, those first that lose most of what matters."""
        share = self._shares()
        found = [(n.amplification * share[n.node], n) for n in self.nodes
                 if n.amplification >= CANCELS and share[n.node] >= RELEVANT]
        return tuple(n for _, n in sorted(found, key=lambda pair: -pair[0]))

    def _shares(self) -> dict[Node, float]:
        """Which part of the contributions each operation, and what it was computed from, has."""
        known = {n.node: abs(n.contribution) for n in self.nodes if not math.isnan(n.contribution)}
        whole = sum(known.values())
        lossy = [n.node for n in self.nodes if n.amplification >= CANCELS]
        return {n: sum(known.get(i, 0.0) for i in reachable([n])) / whole if whole else 1.0 for n in lossy}

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"outputs": [{"name": name, "error": error} for name, error in self.outputs],
                "nodes": [{"operation": n.node.op.name, "name": n.node.name, "place": str(n.node.span) if n.node.span else None,
                           "runs": n.runs, "own": n.own, "total": n.total, "operands": n.operands, "decided": n.decided,
                           "contribution": n.contribution, "stored": n.stored} for n in self.nodes],
                "explained": self.explained, "why_not": self.why_not,
                "cancellations": [_place(n.node) for n in self.cancellations]}  # fmt: skip

    def lines(self, most: int = 10) -> Iterator[str]:
        """The report of `run --explain-error`, of at most so many operations of each kind."""
        for name, error in self.outputs:
            digits = "exact" if not error else f"{error:.2g}, {max(0.0, -math.log10(error)):.1f} digits"
            yield f"output '{printable(name)}': relative error {digits}"
        if not self.outputs:
            yield "no output is of floats: only theirs have a relative error"
        if lost := self.cancellations[:most]:
            yield "digits are lost by"
        for n in lost:
            yield f"  {_place(n.node)}: x{n.amplification:.2g}, {n.operands:.2g} -> {n.total:.2g}"
        if decided := [n for n in self.nodes if n.decided][:most]:
            yield "decided otherwise than in double precision"
        for n in decided:
            yield f"  {_place(n.node)}: {n.decided} elements"
        yield from self._contributions(most)
        if self.format is not None and self.outputs:
            stored = sorted((n for n in self.nodes if n.stored > 0), key=lambda n: -n.stored)[:most]
            none = "" if stored else ": none, as it holds all of them"
            yield f"relative error of the outputs if one value were stored as {self.format}{none}"
            yield from (f"  {n.stored:8.2g}  {_place(n.node)}" for n in stored)

    def _contributions(self, most: int) -> Iterator[str]:
        whole = sum(abs(n.contribution) for n in self.nodes if not math.isnan(n.contribution))
        if self.why_not:
            yield f"what each operation contributes is not known: {self.why_not}"
        elif whole:
            rest = "; what is decided otherwise is not in them" if any(n.decided for n in self.nodes) else ""
            yield f"contributions to the outputs' error, which they explain to {self.explained:.0%}{rest}"
            for n in sorted(self.nodes, key=lambda n: -abs(n.contribution) if not math.isnan(n.contribution) else 0.0)[:most]:
                if n.contribution:
                    yield f"  {n.contribution / whole:6.1%}  own error {n.own:.2g}  {_place(n.node)}"


def _place(node: Node) -> str:
    return f"{node.span}: {describe(node)}" if node.span else describe(node)


def explain_rounding(module: Module, inputs: Mapping[str, Any], *, format: DType | None = None, seed: int = 0,
                     max_bytes: int | None = None, data_root: str | None = None, out: Any = None) -> RoundingReport:
    """Runs the entry as it stands and in double precision, and says which operations lose digits.

    `inputs` are arrays by name; `format` is a narrower float whose effect on each single value is predicted. Raises UsageError for
    a program that computes nothing in less than double precision, and what compiling and running raise.
    """
    if format is not None and not format.is_float:
        raise UsageError(f"'{format}' is no format of floating-point numbers")
    module = run_pipeline(module, parse_pipeline("inline"))
    module = module.with_functions(map(unfused, module.functions))
    options: dict[str, Any] = {"seed": seed, "max_bytes": max_bytes, "data_root": data_root, "out": out}
    types = observe(module, inputs, RunObserver(), **options)
    shadows = {f.name: shadow(f) for f in types.module.functions}
    if all(new is old or new.type == old.type for _, nodes in shadows.values() for old, new in nodes.items()):
        raise UsageError("nothing in this program is computed in less than double precision")
    exact = ValueTable({n for _, nodes in shadows.values() for n in nodes.values()}, sys.maxsize)
    wide_inputs = {name: _wide(array) for name, array in types.inputs.items()}
    fine = observe(types.module.with_functions(f for f, _ in shadows.values()), wide_inputs, exact, **options)
    errors = _Errors({old: new for _, nodes in shadows.values() for old, new in nodes.items()}, exact.values)
    found = observe(types.module, inputs, errors, **options)
    report = RoundingReport(tuple(_outputs(found, fine)), tuple(errors.found()), format=format, module=types.module)
    try:
        return _contributing(report, found, fine)
    except DeepxGraphError as e:
        return replace(report, why_not=str(e).splitlines()[0])


def _outputs(found: Observed, fine: Observed) -> Iterator[tuple[str, float]]:
    for port, a, b in zip(found.ports, found.outputs, fine.outputs, strict=True):
        if isinstance(a, np.ndarray) and _is_float(a):
            yield port.name, _relative(a, b)


# --- the errors of each operation -----------------------------------------------------------------------------------


@dataclass
class _Errors(RunObserver):
    """Compares every operation, as it is computed, with its shadow. `worst` has its run of the largest total error."""

    shadows: Mapping[Node, Node]
    exact: Mapping[Node, list[Value]]
    runs: Counter[Node] = field(default_factory=Counter)
    worst: dict[Node, NodeError] = field(default_factory=dict)
    totals: ArrayFacts[float] = field(default_factory=ArrayFacts)

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """Notes the errors of a result; inputs and constants have none."""
        if (shadow := self.shadows.get(node)) is not None:
            self.compare(node, shadow, operands, result)
        return result

    def compare(self, node: Node, shadow: Node, operands: Sequence[Any], result: Any) -> None:
        """The errors of one result."""
        run = self.runs[node]
        self.runs[node] += 1
        arrays, kept = tensors(result), self.exact.get(shadow, [])
        exact = kept[run] if run < len(kept) else None
        given = max((self.totals.of(a, 0.0) for o in operands for a in _leaves(o)), default=0.0)
        total = max((_by_sizes(a, b) for a, b in zip(arrays, exact, strict=True) if _is_float(a)), default=0.0) if exact else 0.0
        decided = sum(int((a != b).sum()) for a, b in zip(arrays, exact or arrays, strict=True)
                      if a.dtype.kind in "biu" and a.shape == b.shape)
        passed = max((_relative(a, b) for a, b in zip(arrays, exact, strict=True)), default=0.0) if decided and exact else total
        for leaf in _leaves(result):
            self.totals.note(leaf, passed)
        entry = NodeError(node, run + 1, _own(node, shadow, operands, arrays), total, given, decided)
        before = self.worst.get(node, entry)
        larger = entry if (entry.total, entry.own) > (before.total, before.own) else before
        self.worst[node] = replace(larger, own=max(entry.own, before.own), decided=max(entry.decided, before.decided))

    def found(self) -> Iterator[NodeError]:
        """Every operation on floats, and what decides otherwise."""
        for node, error in self.worst.items():
            if error.decided or (isinstance(node.type, TensorType) and node.type.dtype.is_differentiable):
                yield replace(error, runs=self.runs[node])


def _own(node: Node, shadow: Node, operands: Sequence[Any], arrays: Sequence[Array]) -> float:
    """The error of a result beside the operation in double precision on the same operands."""
    if shadow.op is not node.op or shadow.type == node.type:
        return 0.0
    fine = tensors(evaluation(shadow.op, shadow.attrs, shadow.type)([_wide(o) for o in operands]))
    return max((_relative(a, b) for a, b in zip(arrays, fine, strict=True) if _is_float(a)), default=0.0)


def _leaves(value: Any) -> list[Any]:
    return [v for v in flatten(value) if isinstance(v, (np.ndarray, np.generic))]


def _is_float(array: Array) -> bool:
    return array.dtype.kind not in "biuSUO"


def _wide(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_wide, value))
    if not isinstance(value, (np.ndarray, np.generic)) or not _is_float(np.asarray(value)):
        return value
    return np.asarray(value).astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def _relative(a: Array, b: Array) -> float:
    """The 2-norm of the difference relative to that of `b`, over elements where both are finite; of texts, none."""
    if a.shape != b.shape:
        return math.inf
    if a.dtype.kind in "SUO":
        return 0.0
    with np.errstate(all="ignore"):
        x, y = (_wide(v) if _is_float(v) else v.astype(np.float64) for v in (a, b))
        both = np.isfinite(x) & np.isfinite(y)
        off, size = np.linalg.norm((x - y)[both]), np.linalg.norm(y[both])
    return float(off / size) if size else math.inf if off else 0.0


def _by_sizes(a: Array, b: Array) -> float:
    """As `_relative`, the largest of elements of one size: those of a mask, -1e30, would hide what the others have lost."""
    found = _relative(a, b)
    size = np.abs(b)
    rest = np.isfinite(size) & (size > 0)
    least = rest.sum() * FEW
    while rest.sum() > least and a.shape == b.shape:
        near = rest & (size * SIZES >= size[rest].max())
        if near.sum() > least:
            found = max(found, _relative(a[near], b[near]))
        rest &= ~near
    return found


def _rounding(node: Node) -> float:
    """What one rounding to the type of the node may do."""
    import ml_dtypes

    dtype = node.type.dtype if isinstance(node.type, TensorType) else F64
    found: Any = ml_dtypes.finfo(dtype.np) if dtype.is_float or dtype.kind == "complex" else np.finfo(np.float32)  # type: ignore[no-untyped-call]
    return float(found.eps) / 2


# --- what they do to the outputs --------------------------------------------------------------------------------------


def _contributing(report: RoundingReport, found: Observed, fine: Observed) -> RoundingReport:
    """The report with the contribution of every operation of the entry, by one gradient."""
    entry = found.module.entry
    inside = set(entry.nodes)
    floats = [n for n in report.nodes if n.node in inside and _is_site(n.node)]
    own, stored = [n.node for n in floats if n.own], [n.node for n in floats if report.format is not None and not n.node.op.view]
    if not own and not stored:
        return report
    program = _perturbed(entry, own, stored, report.format)
    names = [p.name for p in program.params[len(entry.params) :]]
    derived = grad(found.module.with_functions([program]), names)
    inputs = [_wide(found.inputs[p.name]) for p in compile(found.module, engine="numpy").inputs]
    ones = [np.float64(name.startswith("own")) for name in names]
    signs, measured = _directions(found, fine)
    run = compile(derived, engine="numpy")
    slopes = np.array(run(*inputs, *ones, *signs), np.float64)
    probes = np.array([run(*inputs, *ones, *_probe(fine, k)) for k in range(PROBES)], np.float64) if stored else np.zeros((1, 0))
    if not (np.isfinite(slopes).all() and np.isfinite(probes).all()):
        return replace(report, why_not="a derivative is not finite (--explain-nan may say why)")
    added = dict(zip(own, slopes.tolist(), strict=False))
    predicted = dict(zip(stored, np.sqrt((probes**2).mean(0)).tolist()[len(own) :], strict=True))
    nodes = tuple(replace(n, contribution=added.get(n.node, 0.0), stored=predicted.get(n.node, math.nan)) for n in report.nodes)
    return replace(report, nodes=nodes, explained=sum(added.values()) / measured if measured else math.nan)


def _is_site(node: Node) -> bool:
    """Whether the error of the node's own is a tensor of real numbers."""
    return isinstance(node.type, TensorType) and node.type.dtype.is_float and node.op not in STRUCTURAL


def _directions(found: Observed, fine: Observed) -> tuple[list[Array], float]:
    """Along which outputs the error grows, and the error so measured: of each output the mean, relative to its largest element."""
    signs, measured = [], 0.0
    for a, b in zip(found.outputs, fine.outputs, strict=True):
        if not _is_float(a):
            continue
        x, y = _wide(a), _wide(b)
        with np.errstate(invalid="ignore"):
            off = np.where(np.isfinite(x) & np.isfinite(y), x - y, 0)
        scale = max(y.size, 1) * _largest(y)
        signs.append(np.asarray(np.sign(off) / scale, dtype=y.dtype))
        measured += float(np.abs(off).sum()) / scale
    return signs, measured


def _probe(fine: Observed, number: int) -> list[Array]:
    """Random signs for the elements of each output, as parts of its largest element and of the root of their number."""
    rng = np.random.default_rng(number)
    wide = [_wide(y) for y in fine.outputs if _is_float(y)]
    return [np.asarray(rng.choice((-1.0, 1.0), y.shape) / (math.sqrt(max(y.size, 1)) * _largest(y)), dtype=y.dtype) for y in wide]


def _largest(values: Array) -> float:
    """The size of the largest element; 1 where all are zero."""
    return float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0)) or 1.0


def _perturbed(entry: Function, own: Sequence[Node], stored: Sequence[Node], format: DType | None) -> Function:
    """The function in double precision with the errors of nodes, of their own and of a format, each scaled by a new parameter."""
    b = Builder()
    names = [f"own{k}" for k in range(len(own))] + [f"stored{k}" for k in range(len(stored))]
    params = [b.param(len(entry.params) + k, scalar(F64), name) for k, name in enumerate(names)]
    own_scale, stored_scale = dict(zip(own, params, strict=False)), dict(zip(stored, params[len(own) :], strict=True))

    def off(wide: Node, other: Node, scale: Node) -> Node:
        error = b(stop_gradient, b(subtract, other, wide))
        finite = b(select, b(is_finite, error), error, b.constant(0.0, F64))
        return b(add, wide, b(multiply, scale, finite))

    def adjust(node: Node, wide: Node, inputs: tuple[Node, ...]) -> Node:
        b.origin = Origin("", node.origin.spans)
        made = off(wide, as_it_stands(node, inputs), own_scale[node]) if node in own_scale else wide
        if format is None or node not in stored_scale:
            return made
        return off(made, b(convert, b(convert, made, dtype=format), dtype=F64), stored_scale[node])

    function, _ = shadow(entry, adjust)
    names = [f"y{k}" for k in range(len(entry.results))]
    return function.with_(params=(*function.params, *params), result_names=tuple(names))
