"""Are the gradients of a program right? Finite differences on random inputs; and if they differ, which operation is to blame.

The program is checked in double precision where that is possible. At each sample the gradient of a random combination of outputs is
compared with differences along random directions. Two step sizes that disagree mean that the point lies on an edge (a comparison
flips): it does not count; what is open between them for rounding or curvature counts as no error. Neither does a
sample count at which an operation is undefined, as clamp where its bounds cross; the report says so.
Nothing is checked where gradient and difference are both next to zero, as behind a saturated tanh: smaller inputs are tried then.
An input for which no sample says anything is not checked, and the report is not ok. A gradient that is zero by structure, a
constant of the gradient program, is right where the differences are zero.
When an input differs, the rule of every operation is held against differences of that operation alone, at the values that it met,
and so are the derivatives that functions name themselves.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError, UsageError, an, counted, printable
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Array
from deepx_graph.numerics.double import widened
from deepx_graph.ops.interpret import evaluate
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.fusion.fuse import unfused
from deepx_graph.progress import stage
from deepx_graph.runtime.compile import Compiled, compile
from deepx_graph.runtime.engines.base import Engine, KernelFn
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.types import TensorType, TupleType, dtype_of, is_state

STEP = 1e-5
TOLERANCE = 1e-4
"""Largest relative error that still counts as equal; in single precision a hundred times this."""

SCALES = (1.0, 0.3, 0.1, 0.01)
"""By how much floating inputs are made smaller while some input is not checked."""


@dataclass(frozen=True)
class InputCheck:
    """What was found for one input: the largest relative error over the samples that count, and the derivatives there."""

    name: str
    type: str
    samples: int
    error: float
    gradient: float
    difference: float
    ok: bool
    checked: bool = True
    """Whether a gradient of zero would have been noticed, or is zero by structure."""
    zero: bool = False
    """Whether the gradient is zero by structure."""

    @property
    def why_not(self) -> str:
        """Why nothing was checked."""
        return "gradient and difference are zero" if self.samples else "no sample counts"

    @property
    def verdict(self) -> str:
        """What the report says of the input."""
        if not self.checked:
            return f"not checked: {self.why_not}"
        return "DIFFERS" if not self.ok else "ok: zero by structure" if self.zero else "ok"


@dataclass(frozen=True)
class GradCheck:
    """The report. `str()` is a table; `culprits` are the operations whose own rule disagrees with differences, worst first."""

    inputs: tuple[InputCheck, ...]
    culprits: tuple[str, ...] = ()
    double: bool = True
    left_out: tuple[str, ...] = ()
    """Why samples were left out."""

    @property
    def ok(self) -> bool:
        """Whether all gradients agree."""
        return all(i.ok for i in self.inputs)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return f"<gradients of {counted(len(self.inputs), 'input')}: {'agree' if self.ok else 'do not agree'}>"

    def to_json(self) -> dict[str, object]:
        """The report as plain data."""
        return {"ok": self.ok, "double": self.double, "culprits": list(self.culprits), "left_out": list(self.left_out),
                "inputs": [asdict(i) for i in self.inputs]}

    def __str__(self) -> str:
        lines = [f"{'input':<16} {'type':<20} {'samples':>7} {'error':>9} {'gradient':>13} {'difference':>13}"]
        for i in self.inputs:
            lines.append(f"{printable(i.name):<16} {i.type:<20} {i.samples:>7} {i.error:>9.1e} {i.gradient:>13.6g} "
                         f"{i.difference:>13.6g}  {i.verdict}")
        if not self.inputs:
            lines = ["nothing to compare: the program has no input with a gradient"]
        lines += [f"samples left out: {reason}" for reason in self.left_out]
        if not self.ok:
            lines += [f"likely culprit: {c}" for c in self.culprits[:5]]
            if not self.culprits:
                lines.append("no single operation is at fault")
        return "\n".join(lines) + "\n"


def check_gradient(module: Module, wrt: Sequence[str] | None = None, *, seed: int = 0, samples: int = 3,
                   data_root: Path | None = None) -> GradCheck:
    """Compares the gradients of the entry with finite differences. Raises as `grad` and `compile` do."""
    try:
        module, double = widened(module), True
    except DeepxGraphError:
        double = False
    recorder = _Recorder()
    check = _Check(module, wrt, recorder, double, seed, data_root)
    for scale in SCALES:
        for k in range(samples if check.unchecked else 0):
            check.sample(k, scale)
    inputs = tuple(check.report())
    culprits: tuple[str, ...] = ()
    if any(i.checked and not i.ok for i in inputs):
        culprits = (*_own_derivatives(module, seed, check.tolerance), *recorder.culprits(seed, check.tolerance))
    return GradCheck(inputs, culprits, double, tuple(check.left_out))


class _Check:
    """The program and its gradient, compiled; sums up what samples give."""

    def __init__(self, module: Module, wrt: Sequence[str] | None, recorder: _Recorder, double: bool, seed: int,
                 data_root: Path | None) -> None:
        plain = module.with_functions(map(unfused, module.functions))

        def ready(m: Module) -> Compiled:
            return compile(m, engine=recorder, seed=seed, data_root=data_root, out=io.StringIO())

        self.f = ready(plain)
        gradient = grad(module, wrt)
        self.g = compile(gradient, engine="numpy", seed=seed, data_root=data_root, out=io.StringIO())
        for p in self.f.inputs:
            if not isinstance(p.type, TensorType) or p.type.dims is None:
                raise UsageError(f"input '{p.name}' is {an(p.type)}: its rank must be known")
        self.tolerance = TOLERANCE if double else 100 * TOLERANCE
        self.step = STEP if double else 100 * STEP
        names = [p.name for p in self.f.inputs]
        self.places = [names.index(o.name.removeprefix("grad_")) for o in self.g.outputs]
        self.zero = {at for at, x in zip(self.places, gradient.entry.results, strict=True) if _is_zero(x)}
        self.rng = np.random.default_rng(seed)
        self.recorder = recorder
        self.worst: dict[int, tuple[tuple[bool, bool, float], tuple[float, float, float]]] = {}
        self.counted = dict.fromkeys(self.places, 0)
        self.unchecked = set(self.places)
        self.params = [p for p in plain.entry.params if not is_state(p.type)]
        self.left_out: dict[str, None] = {}

    def sample(self, number: int, scale: float) -> None:
        """One random input: records the values that operations meet, and compares along one direction for each input.

        Every second sample is of positive numbers, for what is not defined on others. Made smaller, it is for inputs that are not
        checked yet.
        """
        args = [random_value(self.rng, p.type) for p in self.f.inputs]
        if number % 2:
            args = [np.abs(a) + np.asarray(0.2, a.dtype) if a.dtype.kind == "f" else a for a in args]
        args = [a * np.asarray(scale, a.dtype) if a.dtype.kind in "fc" else a for a in args]
        args, crossed = in_order(self._crossed, args, self.params)
        for node in crossed:
            where = f" at {node.span}" if node.span else ""
            self.left_out[f"{node.op.name}{where}: '{node.op.ordered[0]}' is above '{node.op.ordered[1]}'"] = None
        if crossed:
            return
        with self.recorder:
            outs = self.f(*args)
        cts = [random_value(self.rng, TensorType(dtype_of(o.dtype), o.shape)) for o in outs if o.dtype.kind in "fcV"]
        gradients = self.g(*args, *cts)
        for done, (at, gradient) in enumerate(zip(self.places, gradients, strict=True)):
            stage(f"sample {number + 1}, differences", done, len(self.places))
            if scale != SCALES[0] and at not in self.unchecked:
                continue
            direction = random_value(self.rng, TensorType(dtype_of(gradient.dtype), gradient.shape))
            found = float(np.sum(gradient * direction).real)

            def value(x: Array, at: int = at) -> float:
                return self._value([*args[:at], x, *args[at + 1 :]], cts)

            wanted = differences(value, args[at], direction, self.step)
            if wanted is None:
                continue
            self.counted[at] += 1
            error = wanted.error_of(found)
            tells = at in self.zero or max(abs(found), abs(wanted.value)) > self.tolerance + wanted.doubt
            if tells:
                self.unchecked.discard(at)
            rank = error > self.tolerance, tells, error
            if at not in self.worst or rank >= self.worst[at][0]:
                self.worst[at] = rank, (error, found, wanted.value)

    def _crossed(self, args: Sequence[Array]) -> Crossed:
        self.recorder.crossed.clear()
        self.f(*args)
        return dict(self.recorder.crossed)

    def _value(self, args: Sequence[Array], cts: Sequence[Array]) -> float:
        outs = [o for o in self.f(*args) if o.dtype.kind in "fcV"]
        return float(sum(np.sum(o * c).real for o, c in zip(outs, cts, strict=True)))

    def report(self) -> list[InputCheck]:
        found = []
        for at in self.places:
            error, gradient, difference = self.worst[at][1] if at in self.worst else (0.0, 0.0, 0.0)
            port, count = self.f.inputs[at], self.counted[at]
            checked = at not in self.unchecked
            ok = checked and error <= self.tolerance
            zero = at in self.zero
            found.append(InputCheck(port.name, str(port.type), count, error, gradient, difference, ok, checked, zero))
        return found


def _is_zero(gradient: Node) -> bool:
    """Whether a gradient is zero by structure: a constant of zeros, or of no elements."""
    type = gradient.type
    return splat_of(gradient) == 0 or (isinstance(type, TensorType) and type.is_static and type.size == 0)


@dataclass(frozen=True)
class Slope:
    """A derivative by differences, and how much of it two estimates do not agree on: what rounding and curvature leave open."""

    value: float
    doubt: float

    def error_of(self, found: float) -> float:
        """The relative error of a derivative, beyond the doubt."""
        error, size = relative(found, self.value), max(abs(found), abs(self.value), 1.0)
        return max(0.0, error - self.doubt / size)


def differences(f: Callable[[Array], float], x: Array, direction: Array, step: float) -> Slope | None:
    """The derivative of f along a direction by central differences, with Richardson's extrapolation of three step sizes.

    None where two step sizes disagree by more than a tenth, or it is not finite.
    """
    large, middle, small = ((f(x + h * direction) - f(x - h * direction)) / (2 * h) for h in (step, step / 3, step / 9))
    if not np.all(np.isfinite((large, middle, small))) or relative(large, middle) > 0.1 * (step / STEP) ** 0.5:
        return None
    coarse, fine = (9 * middle - large) / 8, (9 * small - middle) / 8
    return Slope(coarse, abs(coarse - fine))


def relative(a: float, b: float) -> float:
    """The difference of two numbers relative to the larger, or to 1 where both are small."""
    return abs(a - b) / max(abs(a), abs(b), 1.0) if np.isfinite(a) and np.isfinite(b) else float("inf")


@dataclass
class _Recorder(Engine):
    """An engine with the kernels of the reference; while entered, keeps the first values that each operation meets."""

    name: str = "numpy"
    inner: Engine = field(default_factory=NumpyEngine)
    on: bool = False
    met: dict[Node, list[Any]] = field(default_factory=dict)
    crossed: dict[Node, tuple[Array, Array]] = field(default_factory=dict)

    def __enter__(self) -> None:
        self.on = True

    def __exit__(self, *_: object) -> None:
        self.on = False

    def writes(self, node: Node) -> bool:
        return self.inner.writes(node)

    def kernel(self, node: Node) -> KernelFn:
        """The kernel of the reference engine, which is listened to."""
        inner = self.inner.kernel(node)

        def run(values: Sequence[Any], out: Sequence[Array] | None) -> Any:
            if self.on and node not in self.met:
                self.met[node] = [np.array(v) if isinstance(v, np.ndarray) else v for v in values]
            found = crossing(node, values)
            if found is not None:
                self.crossed[node] = found
            return inner(values, out)

        return run

    def culprits(self, seed: int, tolerance: float) -> list[str]:
        """The operations whose rule disagrees with differences at the values met, worst first."""
        rng = np.random.default_rng(seed)
        found = []
        for done, (node, values) in enumerate(self.met.items()):
            stage("rules of operations", done, len(self.met))
            error = _error_of_rule(node, values, rng)
            if error is not None and error > tolerance:
                where = f" at {node.span}" if node.span else ""
                found.append((error, f"{node.op.name}{where}: its rule is off by {error:.1e}"))
        return [text for _, text in sorted(found, key=lambda pair: -pair[0])]


def _error_of_rule(node: Node, values: Sequence[Any], rng: np.random.Generator) -> float | None:
    """How far the `vjp` of one operation is from differences; None where that cannot be told."""
    if node.op.vjp is None or isinstance(node.type, TupleType) or not all(isinstance(v, np.ndarray) for v in values):
        return None
    floats = [k for k, v in enumerate(values) if v.dtype.kind in "fc"]
    if not floats or not isinstance(node.type, TensorType) or not node.type.dtype.is_differentiable:
        return None
    b = Builder()
    params = [b.param(k, i.type) for k, i in enumerate(node.inputs)]
    result = b.make(node.op, tuple(params), node.attrs, node.type)
    ct = random_value(rng, node.type)
    grads = pullback(b, [result], [b.constant(ct)], params)
    worst: float | None = None
    for k in floats:
        direction = random_value(rng, params[k].type) * np.maximum(1, np.abs(values[k]))  # a step that large numbers feel
        gradient = grads[k]
        function = Function("rule", tuple(params), () if gradient is None else (gradient,))
        exact = 0.0 if gradient is None else float(np.sum(evaluate(function, values)[0] * direction).real)

        def value(x: Array, k: int = k) -> float:
            moved = [*values[:k], x, *values[k + 1 :]]
            return float(np.sum(node.op.eval(moved, *node.attrs) * ct).real)  # type: ignore[misc]

        wanted = differences(value, values[k], direction, STEP if values[k].dtype.itemsize > 4 else 100 * STEP)
        if wanted is not None:
            worst = max(worst or 0.0, wanted.error_of(exact))
    return worst


def _own_derivatives(module: Module, seed: int, tolerance: float) -> list[str]:
    """The functions whose named derivative disagrees with differences of them."""
    found = []
    for f in module.functions:
        if f.vjp is not None and f.vjp in module and all(isinstance(p.type, TensorType) and p.type.is_static for p in f.params):
            alone = module.with_functions(o.with_(vjp=None) if o is f else o for o in module.functions)
            rng = np.random.default_rng(seed)
            run, back = compile(alone, entry=f.name, engine="numpy"), compile(alone, entry=f.vjp, engine="numpy")
            args = [random_value(rng, p.type) for p in run.inputs]
            cts = [random_value(rng, TensorType(dtype_of(o.dtype), o.shape)) for o in run(*args) if o.dtype.kind in "fc"]
            error = _error_of_pair(run, back, args, cts, rng)
            if error > tolerance:
                found.append(f"'{f.vjp}', which '{f.name}' names as its derivative: off by {error:.1e}")
    return found


def _error_of_pair(run: Compiled, back: Compiled, args: list[Array], cts: list[Array], rng: np.random.Generator) -> float:
    """How far a derivative is from differences of the function it is said to belong to."""
    worst = 0.0
    places = [k for k, a in enumerate(args) if a.dtype.kind in "fc"]
    for at, gradient in zip(places, back(*args, *cts), strict=True):
        direction = random_value(rng, run.inputs[at].type)

        def value(x: Array, at: int = at) -> float:
            outs = [o for o in run(*args[:at], x, *args[at + 1 :]) if o.dtype.kind in "fc"]
            return float(sum(np.sum(o * c).real for o, c in zip(outs, cts, strict=True)))

        wanted = differences(value, args[at], direction, STEP if args[at].dtype.itemsize > 4 else 100 * STEP)
        if wanted is not None:
            worst = max(worst, wanted.error_of(float(np.sum(gradient * direction).real)))
    return worst


# --- inputs at which operations are defined -------------------------------------------------------------------------

# Operations say which of their operands must not cross (`Op.ordered`, as the bounds of clamp). Where inputs are such operands they
# are moved apart; where computed values cross nothing can be said, and the sample does not count.

TRIES = 4
"""How often inputs are moved before a sample is given up."""

GAP = 0.1
"""How far apart bounds are put that crossed."""

Crossed = Mapping[Node, tuple[Array, Array]]
"""Nodes whose operands crossed, with the values of the lower and the upper one."""


def random_value(rng: np.random.Generator, type: Any) -> Array:
    """Numbers between -2 and 2, small integers, bools; a dimension that is not known is 3."""
    shape = tuple(d if isinstance(d, int) else 3 for d in type.dims)
    if type.dtype.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if type.dtype.is_integer:
        return np.asarray(rng.integers(0, 4, shape)).astype(type.dtype.np)
    value = rng.uniform(-2, 2, shape) + (1j * rng.uniform(-2, 2, shape) if type.dtype.kind == "complex" else 0)
    return np.asarray(value).astype(type.dtype.np)


def crossing(node: Node, values: Sequence[Any]) -> tuple[Array, Array] | None:
    """The values of the operands of a node that should be in order, when they are not."""
    if not node.op.ordered:
        return None
    named = dict(zip(node.op.named(node.inputs), values, strict=True))
    low, high = (named[name] for name in node.op.ordered)
    return (low, high) if np.any(low > high) else None


def in_order(run: Callable[[Sequence[Array]], Crossed], args: list[Array], params: Sequence[Node]) -> tuple[list[Array], Crossed]:
    """The inputs, moved until nothing crosses in a run of the program, and what crosses even so; `params` are their nodes."""
    crossed = run(args)
    for _ in range(TRIES):
        if not crossed:
            break
        moved = list(args)
        for node, (low, high) in crossed.items():
            _move(moved, {p: k for k, p in enumerate(params)}, node, low, high)
        if all(x is y for x, y in zip(moved, args, strict=True)):
            break
        args, crossed = moved, run(moved)
    return args, crossed


def _move(args: list[Array], places: Mapping[Node, int], node: Node, low: Array, high: Array) -> None:
    """Puts the upper bound above the lower one where it is an input, else the lower one below the upper."""
    lower, upper = (node.op.named(node.inputs)[name] for name in node.op.ordered)
    if upper.op is PARAM and upper in places:
        k, wanted = places[upper], np.maximum(high, low + np.asarray(GAP, low.dtype))
        args[k] = np.asarray(wanted.max() if args[k].ndim == 0 else wanted, args[k].dtype)
    elif lower.op is PARAM and lower in places:
        k, wanted = places[lower], np.minimum(low, high - np.asarray(GAP, high.dtype))
        args[k] = np.asarray(wanted.min() if args[k].ndim == 0 else wanted, args[k].dtype)
