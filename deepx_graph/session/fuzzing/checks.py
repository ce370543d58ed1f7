"""What must hold of any program: each check says what does not, or nothing.

The reference is the program as it stands on the engine `numpy`. Floats may differ from it by what rounding in every operation can
make of them (`numerics/noise.py`); all else, and what is only written and read back, is exact.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.errors import LimitError, UsageError, VerifyError, is_interrupt
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.numerics.noise import RUNS, Nudge, slacks, undecided
from deepx_graph.numerics.observed import ObservedEngine, OperationBudget
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.inputs import input_ports
from deepx_graph.session import programs
from deepx_graph.session.diagnose.crash import places
from deepx_graph.text.formats import FORMATS
from deepx_graph.types import TensorType
from deepx_graph.validation.discrepancy import Discrepancy, discrepancy
from deepx_graph.validation.programs import RandomProgram
from deepx_graph.validation.stages import zeros_open
from deepx_graph.verify import verify

MAX_BYTES = 1 << 28


@dataclass(frozen=True)
class Finding:
    """A check that a program did not pass: which, and what is wrong. `signature` is the same for findings of one cause, mostly."""

    seed: int
    check: str
    message: str
    signature: str


@dataclass(frozen=True)
class Ran:
    """What a program gave: its outputs, and what it printed."""

    outputs: tuple[Array, ...]
    printed: str = ""


@dataclass(frozen=True)
class Case:
    """A program with inputs, and its number, by which checks choose what they do in turn."""

    program: RandomProgram
    number: int = 0

    @property
    def module(self) -> Module:
        return self.program.module

    @cached_property
    def reference(self) -> Ran:
        """What it gives as it stands."""
        return run(self.module, self.program.inputs, "numpy")

    @cached_property
    def prints_exactly(self) -> bool:
        """Whether rounding does not show in what is printed."""
        for k in range(RUNS):
            out = io.StringIO()
            f = compile(self.module, engine=ObservedEngine(Nudge(k)), max_bytes=MAX_BYTES, out=out)
            f(*(self.program.inputs[p.name] for p in f.inputs))
            if out.getvalue() != self.reference.printed:
                return False
        return True


Check = Callable[[Case], Iterator[str]]


def examine(seed: int, program: RandomProgram) -> Iterator[Finding]:
    """Runs every check; one that raises what is no message to a user is a finding, too. Programs that compute long are left out."""
    case = Case(program, seed)
    try:
        verify(program.module)
        run(program.module, program.inputs, ObservedEngine(OperationBudget()))
        case.reference  # noqa: B018
    except LimitError:
        return
    except Exception as e:
        if is_interrupt(e):
            raise
        yield _crash(seed, "reference", e)
        return
    for name in CHECKS:
        yield from examine_by(name, case)


def examine_by(name: str, case: Case) -> Iterator[Finding]:
    """What one check finds."""
    try:
        for message in CHECKS[name](case):
            yield Finding(case.number, name, message, f"{name}: {message.split(': ', 1)[0]}")
    except Exception as e:
        if is_interrupt(e):
            raise
        yield _crash(case.number, name, e)


def _crash(seed: int, check: str, error: Exception) -> Finding:
    """A failure: its kind, its first line, and the innermost place in the library."""
    place = places(error)[-1]
    first = str(error).split("\n")[0][:200]
    return Finding(seed, check, f"{type(error).__name__}: {first} (in {place})", f"{check}: {type(error).__name__} in {place}")


def run(module: Module, inputs: Mapping[str, Array], engine: str | ObservedEngine, threads: int | None = None) -> Ran:
    """What a program gives. Raises VerifyError where what the engine makes of it is not well-formed."""
    out = io.StringIO()
    f = compile(module, engine=engine, threads=threads, max_bytes=MAX_BYTES, out=out)
    verify(f.lowered)
    return Ran(tuple(map(np.asarray, f(*(inputs[p.name] for p in f.inputs)))), out.getvalue())


def differences(case: Case, found: Ran, *, exact: bool, what: str, derivative: bool = False) -> Iterator[str]:
    """A line for each output that is not what it should be, and one for what is printed. Of a derivative 0 and -0
    are one, and what hangs on ties that the program makes is either."""
    wanted = case.reference.outputs
    pairs = enumerate(zip(wanted, found.outputs, strict=True))
    wrong = [(k, d) for k, (want, got) in pairs if (d := discrepancy(want, got)) is not None]
    if wrong and not exact:
        allowed = slacks(case.module, case.program.inputs, wanted, max_bytes=MAX_BYTES, ties=derivative)
        loose = undecided(case.module, case.program.inputs, wanted, max_bytes=MAX_BYTES)
        wrong = [(k, d) for k, _ in wrong
                 if (d := _beyond(wanted[k], _decided(wanted[k], found.outputs[k], loose[k]), allowed[k])) is not None
                 and not (d.kind == "sign of zero" and (derivative or zeros_open(case.module)))]
    results = [r for r in case.module.entry.results if isinstance(r.type, TensorType)]
    for k, d in wrong:
        yield f"{what} output {k} of {results[k].op.name if k < len(results) else 'a tuple'}: {d}"
    if found.printed != case.reference.printed and (exact or case.prints_exactly):
        yield f"{what} prints something else: {found.printed[:60]!r} instead of {case.reference.printed[:60]!r}"


def _decided(want: Array, got: Array, loose: Array) -> Array:
    """What was found, but for integers that rounding decides: bits of floats, comparisons, positions."""
    return np.where(loose, want, got) if loose.any() and want.shape == got.shape else got


def _beyond(want: Array, got: Array, slack: Array | None) -> Discrepancy | None:
    d = discrepancy(want, got, slack)
    return None if d is None or d.harmless else d


# --- the checks -----------------------------------------------------------------------------------------------------


def engines_agree(case: Case) -> Iterator[str]:
    """As it stands on every engine."""
    for engine in ENGINES:
        yield from differences(case, run(case.module, case.program.inputs, engine), exact=False, what=engine)


def passes_keep_the_meaning(case: Case) -> Iterator[str]:
    """Cleaned to the bit on the reference; optimised within rounding on every engine, with several threads."""
    clean = programs.optimise(case.module, "clean").module
    yield from differences(case, run(clean, case.program.inputs, "numpy"), exact=True, what="clean")
    after = programs.optimise(case.module, "default").module
    for engine in ENGINES:
        yield from differences(case, run(after, case.program.inputs, engine, 2), exact=False, what=f"default, {engine}")


def languages_keep_the_program(case: Case) -> Iterator[str]:
    """Written, read and run: the bits of what was written, which is the program in the operations that the language has. Those of
    `ALWAYS` each time, of the others one in turn."""
    for form in (*ALWAYS, OTHERS[case.number % len(OTHERS)]):
        if (trip := _round_trip(case, form)) is not None:
            written, again = trip
            yield from differences(written, run(again.module, again.program.inputs, "numpy"), exact=form in ALWAYS, what=form)


def _round_trip(case: Case, form: str) -> tuple[Case, Case] | None:
    """The program in the operations that a language has, and as it is read again; None where the language cannot say it."""
    try:
        data = programs.encoded(case.module, form)
        written = programs.optimise(case.module, f"legalise{{target={form}}}" if FORMATS[form].target else "none").module
    except (VerifyError, UsageError):
        return None
    again = programs.loads(data, form).module
    names = [p.name for p in input_ports(again.entry)]
    inputs = dict(zip(names, case.program.inputs.values(), strict=True))
    return Case(RandomProgram(written, case.program.inputs)), Case(RandomProgram(again, inputs))


def gradients_run_alike(case: Case) -> Iterator[str]:
    """The gradient program is well-formed, and every engine gives of it what the reference gives."""
    second = _gradient(case)
    if second is None:
        return
    after = programs.optimise(second.module, "default").module
    for engine in ENGINES:
        yield from differences(second, run(after, second.program.inputs, engine), exact=False, what=f"gradient, {engine}")


def gradients_survive_a_language(case: Case) -> Iterator[str]:
    """The gradient of what was written and read back, on an engine, is that of what was written: a pair of a language and an engine
    in turn. Where operands tie or are infinite, derivatives depend on how a language says an operation; so no inputs do or are, and
    ties that the program makes are seen by moving results. So does the sign of a zero: +0 where a value is seen not to depend on
    an input, that of 0 * x where an operation's rule is followed."""
    form, engine = CROSSED[case.number % len(CROSSED)]
    trip = _round_trip(Case(_without_ties(case.program)), form)
    if trip is None or len({_stops(side.module) for side in trip}) > 1:  # the language does not say where gradients stop
        return
    if (want := _gradient(trip[0])) is None or (got := _gradient(trip[1])) is None:
        return
    inputs = dict(zip((p.name for p in input_ports(got.module.entry)), want.program.inputs.values(), strict=True))
    after = programs.optimise(got.module, "default").module
    yield from differences(want, run(after, inputs, engine), exact=False, what=f"gradient of {form}, {engine}", derivative=True)


def _finite(x: Array) -> Array:
    """One in the place of what is no number."""
    return np.where(np.isfinite(x), x, np.ones((), x.dtype))


def _stops(module: Module) -> bool:
    return any(n.op.stops_gradient for f in module.functions for n in f.nodes)


def _without_ties(program: RandomProgram) -> RandomProgram:
    """The program with floats moved by up to a thousandth, each by another part of it, and none infinite or NaN."""
    rng = np.random.default_rng(0)

    def moved(x: Array) -> Array:
        by = rng.uniform(-1e-3, 1e-3, x.shape)
        return x if x.dtype.kind in "biuO" else np.asarray(_finite(x) * (1 + by) + by).astype(x.dtype)

    with np.errstate(all="ignore"):
        return RandomProgram(program.module, {name: moved(np.asarray(x)) for name, x in program.inputs.items()})


def _gradient(case: Case) -> Case | None:
    """The gradient program, cleaned, with cotangents; None where an operation has no gradient."""
    try:
        back = programs.optimise(programs.gradient(case.module), "clean").module
    except (VerifyError, UsageError):
        return None
    rng, ports = np.random.default_rng(0), input_ports(back.entry)
    inputs: dict[str, Any] = {}
    for p, given in zip(ports, [*case.program.inputs.values(), *[None] * len(ports)], strict=False):
        shape, dtype = p.type.shape, p.type.dtype.np  # type: ignore[attr-defined]
        inputs[p.name] = given if given is not None else rng.standard_normal(shape).astype(dtype)
    return Case(RandomProgram(back, inputs))


ENGINES: tuple[str, ...] = ("numexpr", "native") if has_native() else ("numexpr",)

ALWAYS = ("sea", "hlo", "stablehlo")
"""Forms that every program is written in, and that say it to the bit."""

OTHERS = tuple(name for name, f in FORMATS.items() if f.writes and f.reads and name not in ALWAYS)

CROSSED = tuple((form, engine) for engine in ("numpy", *ENGINES) for form in (*ALWAYS, *OTHERS))

CHECKS: dict[str, Check] = {
    "engines": engines_agree, "passes": passes_keep_the_meaning, "languages": languages_keep_the_program,
    "gradients": gradients_run_alike, "crossed": gradients_survive_a_language,
}  # fmt: skip
