"""What must hold of random programs: a table of judges, each of which draws a program and inputs from a `random.Random`.

A judge fails by an assertion and says whether the case counts: where all is rounding, zero or infinite nothing can be compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

import deepx_graph as dx
from deepx_graph.ir import Module, Node
from deepx_graph.numerics.double import widened
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.autodiff.jvp import hvp, jvp
from deepx_graph.passes.observer import Verify, node_count
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.passes.rules.fold import fold_rule
from deepx_graph.passes.scalar.loops import merge_equal_variables
from deepx_graph.passes.scalar.simplify import ALGEBRA, CANONICAL
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.rewrite.engine import RuleSet, assert_normal_form, rewrite
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.engines.base import KernelFn
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.session.gradcheck import random_value
from deepx_graph.types import F64, I32, DType
from deepx_graph.verify import verify
from tests.support import laws
from tests.support.generate import DTYPES, awkward_arguments, random_inputs, random_kernel, random_loop, random_module
from tests.support.reference import evaluate, same

Array = np.ndarray[Any, Any]
Judge = Callable[[random.Random], bool]
SETTLING = (fold_rule(1 << 20), *CANONICAL, *ALGEBRA)
PIPELINES = ("inline", "sccp", "canonicalize", "fold", "algebra", "simplify", "cse", "dce", "clean",
             "simplify,sccp,inline,simplify,dce,cse")  # fmt: skip


def optimised(module: Module) -> Module:
    return run_pipeline(module, parse_pipeline("default"), [Verify()])


def mismatches(found: Sequence[Any], wanted: Sequence[Any], equal: Callable[[Any, Any], bool] = same) -> list[int]:
    """The numbers of the results that differ."""
    return [k for k, (a, b) in enumerate(zip(found, wanted, strict=True)) if not equal(a, b)]


# --- engines ----------------------------------------------------------------------------------------------------------


def engines_agree(rng: random.Random, exact: bool) -> bool:
    """As built and optimised, every engine gives what a plain evaluator gives that shares nothing with the runtime: to the bit
    where a program only rearranges and compares, else within rounding."""
    module = random_module(rng, exact=exact)
    inputs = random_inputs(rng, module)
    wanted, after = evaluate(module, inputs), optimised(module)
    for engine, program in (("numpy", module), ("numpy", after), ("numexpr", after), ("auto", after)):
        if program is module and not exact:
            continue
        found = compile(program, engine=engine)(*inputs)
        wrong = mismatches(found, wanted, same if exact else _near)
        if wrong and not exact:  # rounding that the program makes larger
            wrong = beyond_rounding(module, inputs, found, wanted)
        assert not wrong, f"results {wrong} differ on {engine}:\n{dx.dumps(module, 'sea')}"
    return True


def _near(found: Any, wanted: Any) -> bool:
    """Equal; floats within rounding of each other, NaN equal to NaN."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind != "f":
        return np.array_equal(found, wanted)
    loose = 1e-12 if found.dtype == np.float64 else 1e-5
    return np.allclose(found, wanted, rtol=loose, atol=loose, equal_nan=True)


class Nudging(NumpyEngine):
    """The reference with every float result wrong by up to four units in the last place, as a fast engine's may be."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def kernel(self, node: Node) -> KernelFn:
        inner = super().kernel(node)

        def run(values: Sequence[Any], out: Any) -> Any:
            value = inner(values, out)
            if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind != "f":
                return value
            ulps = self.rng.integers(-4, 5, np.shape(value)).astype(value.dtype)
            return np.asarray(value + ulps * np.abs(value) * np.finfo(value.dtype).eps)

        return run


def beyond_rounding(module: Module, inputs: Sequence[Any], found: Sequence[Any], wanted: Sequence[Any]) -> list[int]:
    """The numbers of the results that differ by more than what rounding in every operation can make of them."""
    nudged = [compile(module, engine=Nudging(k))(*inputs) for k in range(8)]
    wrong = []
    for k, (f, w) in enumerate(zip(found, wanted, strict=True)):
        others = [np.asarray(n[k]) for n in nudged]
        if f.dtype.kind == "f":
            with np.errstate(all="ignore"):
                slack = 4 * np.max([np.abs(o.astype(np.float64) - w) for o in others], axis=0)
                near = np.abs(f.astype(np.float64) - w) <= slack
            explained = bool(np.all(near | (f == w) | (np.isnan(f) & np.isnan(w)) | np.isnan(slack) | np.isinf(slack)))
        else:
            explained = any(np.array_equal(o, f) for o in others)
        if not _near(f, w) and not explained:
            wrong.append(k)
    return wrong


def awkward_arrays(rng: random.Random, engine: str, large: bool = False) -> bool:
    """Odd shapes and element types, arrays that lie in memory every way: bit for bit what the reference gives, as built and
    optimised, on one to five threads, called twice, with and without inputs given away."""
    module = random_kernel(rng, large)
    args = awkward_arguments(rng, module)
    before, wanted = [a.copy() for a in args], dx.compile(module, engine="numpy", optimize=False)(*args)
    after = dx.optimize(module)
    for program, threads in ((module, 1), (after, 2), (after, 5)):
        f = dx.compile(program, engine=engine, threads=threads, optimize=False)
        first = f(*args)
        for found in (first, f(*args), first):
            assert not mismatches(found, wanted, laws.same), f"{threads} threads"
        assert not mismatches(args, before, laws.same), "arguments are written over"
        given = [p.name for p in f.inputs if rng.random() < 0.7]
        assert not mismatches(f(*_copied(args), donate=given), wanted, laws.same), f"{threads} threads, given away {given}"
        assert not mismatches(first, wanted, laws.same), "earlier results are written over"
    return True


def _copied(args: Sequence[Array]) -> list[Array]:
    """Copies of the arrays, one for all places of the same array."""
    made: dict[int, Array] = {}
    return [made.setdefault(id(a), a.copy("K")) for a in args]


# --- passes -----------------------------------------------------------------------------------------------------------


class Meaning:
    """A program, and what it gives for some inputs."""

    def __init__(self, rng: random.Random) -> None:
        self.module = random_module(rng, exact=True)
        verify(self.module)
        self.inputs = [random_inputs(rng, self.module) for _ in range(2)]
        self.wanted = [evaluate(self.module, args) for args in self.inputs]

    def kept_by(self, after: Module, how: object) -> None:
        verify(after)
        for args, wanted in zip(self.inputs, self.wanted, strict=True):
            assert not mismatches(evaluate(after, args), wanted), how


def passes_keep_the_meaning(rng: random.Random) -> bool:
    before = Meaning(rng)
    for pipeline in PIPELINES:
        after = run_pipeline(before.module, parse_pipeline(pipeline), [Verify()])
        assert node_count(after) <= node_count(before.module) or "inline" in pipeline
        before.kept_by(after, pipeline)
    return True


def rules_end_in_a_normal_form_in_any_order(rng: random.Random) -> bool:
    before, rules = Meaning(rng), RuleSet(SETTLING)
    after = rewrite(before.module, rules, RewriteControl(), order=rng)
    assert_normal_form(after, rules)
    before.kept_by(after, "rules")
    return True


def every_prefix_of_the_rewrites_is_a_program(rng: random.Random) -> bool:
    """What `--rewrite-limit` relies on: stopping anywhere leaves a valid program with the same meaning."""
    before, passes, whole = Meaning(rng), parse_pipeline("clean"), RewriteControl()
    run_pipeline(before.module, passes, control=whole)
    for limit in sorted({0, 1, 2, whole.count // 2, max(0, whole.count - 1)}):
        control = RewriteControl(limit)
        after = run_pipeline(before.module, passes, [Verify()], control=control)
        assert control.count == min(limit, whole.count)
        before.kept_by(after, limit)
    assert run_pipeline(before.module, passes, limit=0) is before.module
    return True


LOOP_PIPELINES = ("sccp", "dce", "canonicalize", "cse", "simplify", "unroll", "cse,canonicalize,sccp,dce", "default")
ITERATIONS = (0, 1, 2, 5)


def passes_keep_what_a_loop_gives(rng: random.Random) -> bool:
    """A loop of integers, for several numbers of iterations, after the passes that look at its variables."""
    module = random_loop(rng)

    def results(m: Module) -> list[list[int]]:
        return [[int(r) for r in evaluate(m, [np.int32(n), np.int32(3), np.int32(-2)])] for n in ITERATIONS]

    wanted = results(module)
    for pipeline in LOOP_PIPELINES:
        after = run_pipeline(module, parse_pipeline(pipeline), [Verify()])
        assert results(after) == wanted, pipeline
    assert results(Module((merge_equal_variables(module.entry, RewriteControl()),))) == wanted
    return True


# --- derivatives, in double precision ---------------------------------------------------------------------------------

STEPS = (1e-5, 3e-6)
FLOATING = (F64, F64, F64, I32)


class Point:
    """A program, inputs in double precision, tangents of them and cotangents of its outputs."""

    def __init__(self, rng: random.Random, max_ops: int, dtypes: Sequence[DType] = FLOATING) -> None:
        self.module = widened(random_module(rng, max_ops=max_ops, dtypes=dtypes))
        self.rng = np.random.default_rng(rng.getrandbits(32))
        self.f = dx.compile(self.module, engine="numpy", optimize=False)
        self.args = [random_value(self.rng, p.type) for p in self.f.inputs]
        self.outs = self.run(self.f, self.args)
        self.floats = [k for k, a in enumerate(self.args) if a.dtype.kind == "f"]
        self.tangents = self.direction()
        self.cts = [self.rng.uniform(-1, 1, o.shape) for o in self.outs if o.dtype.kind == "f"]

    @cached_property
    def moves(self) -> bool:
        """Whether there is anything to differentiate."""
        return bool(self.floats and self.cts)

    def direction(self) -> list[Array]:
        return [self.rng.uniform(-1, 1, self.args[k].shape) for k in self.floats]

    def run(self, f: Any, args: Sequence[Any]) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return list(f(*args))

    def derived(self, module: Module, *more: Sequence[Any]) -> list[Any]:
        """What a gradient or tangent program gives, after its check."""
        verify(module)
        return list(self.run(dx.compile(module, engine="numpy", optimize=False), [*self.args, *(x for xs in more for x in xs)]))

    def value(self, h: float) -> float:
        """The outputs weighted with their cotangents, `h` along the tangents."""
        args = list(self.args)
        for k, t in zip(self.floats, self.tangents, strict=True):
            args[k] = np.asarray(args[k] + h * t)
        outs = [o for o in self.run(self.f, args) if o.dtype.kind == "f"]
        return paired(outs, self.cts)


def paired(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    with np.errstate(all="ignore"):
        return float(sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True)))


def size(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    with np.errstate(all="ignore"):
        return float(1 + sum(np.sum(np.abs(x * y)) for x, y in zip(xs, ys, strict=True)))


def forward_is_the_transpose_of_reverse(rng: random.Random, max_ops: int) -> bool:
    """<ct, J t> = <J' ct, t>."""
    p = Point(rng, max_ops)
    if not p.moves:
        return False
    back, forth = p.derived(grad(p.module), p.cts), p.derived(jvp(p.module), p.tangents)
    scale = size(back, p.tangents) + size(forth, p.cts)
    if not np.isfinite(scale):
        return False
    assert abs(paired(back, p.tangents) - paired(forth, p.cts)) <= 1e-9 * scale
    return True


def hessians_are_symmetric(rng: random.Random, max_ops: int) -> bool:
    """<u, H v> = <v, H u>, H v being forward mode over reverse mode; where all is zero it does not count."""
    p = Point(rng, max_ops)
    if not p.moves:
        return False
    u, v, h = p.tangents, p.direction(), hvp(p.module)
    hu, hv = p.derived(h, p.cts, u), p.derived(h, p.cts, v)
    scale = size(u, hv) + size(v, hu)
    if not np.isfinite(scale) or not any(np.any(x) for x in hv):
        return False
    assert abs(paired(u, hv) - paired(v, hu)) <= 1e-9 * scale
    return True


def reverse_agrees_with_differences(rng: random.Random, max_ops: int) -> bool:
    """Where two step sizes agree: elsewhere a comparison flips or a function has no derivative."""
    p = Point(rng, max_ops, DTYPES)
    if not p.moves:
        return False
    back = p.derived(grad(p.module), p.cts)
    slopes = [(p.value(h) - p.value(-h)) / (2 * h) for h in STEPS]
    scale = max(size(back, p.tangents), size([o for o in p.outs if o.dtype.kind == "f"], p.cts))
    if not np.all(np.isfinite([*slopes, scale])) or abs(slopes[0] - slopes[1]) > 1e-6 * scale:
        return False
    assert abs(paired(back, p.tangents) - slopes[1]) <= 2e-6 * scale
    return True


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trials:
    """How many seeds a judge gets in every run of the tests and in the long suites, which share of them must count, and how many
    cases hypothesis draws, which it makes small where they fail."""

    judge: Judge
    sampled: int
    whole: int
    counting: float = 1
    drawn: int = 0
    drawn_whole: int = 0


FAST = ("numexpr", *(("native",) if has_native() else ()))

JUDGES: dict[str, Trials] = {
    "engines, to the bit": Trials(partial(engines_agree, exact=True), 240, 1200, drawn=50, drawn_whole=1000),
    "engines, within rounding": Trials(partial(engines_agree, exact=False), 240, 1200, drawn=50),
    **{f"awkward arrays, {e}": Trials(partial(awkward_arrays, engine=e), 80, 2000) for e in FAST},
    **{f"large arrays, {e}": Trials(partial(awkward_arrays, engine=e, large=True), 6, 200) for e in FAST},
    "passes": Trials(passes_keep_the_meaning, 80, 80),
    "loops": Trials(passes_keep_what_a_loop_gives, 60, 60),
    "normal form": Trials(rules_end_in_a_normal_form_in_any_order, 20, 20),
    "prefixes": Trials(every_prefix_of_the_rewrites_is_a_program, 12, 12),
    "transpose": Trials(partial(forward_is_the_transpose_of_reverse, max_ops=40), 160, 160, 0.3, drawn=40, drawn_whole=1500),
    "transpose, long": Trials(partial(forward_is_the_transpose_of_reverse, max_ops=120), 0, 3000, 0.25),
    "Hessian": Trials(partial(hessians_are_symmetric, max_ops=60), 160, 3000, 0.04),
    "differences": Trials(partial(reverse_agrees_with_differences, max_ops=25), 20, 20, 0.3, drawn=40, drawn_whole=1500),
}
