"""What must hold of any program: each check says what does not, or nothing.

The reference is the program as it stands on the engine `numpy`. Floats may differ from it by what rounding in every operation can
make of them (`validation/engines.py`); all else, and what is only written and read back, is exact.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import UsageError, VerifyError, is_interrupt
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.inputs import input_ports
from deepx_graph.session import programs
from deepx_graph.validation.discrepancy import Discrepancy, discrepancy
from deepx_graph.validation.engines import slacks, undecided
from deepx_graph.validation.programs import RandomProgram
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
class Case:
    """A program with inputs, and what the reference gives for them."""

    program: RandomProgram
    outputs: tuple[Array, ...]

    @property
    def module(self) -> Module:
        return self.program.module


Check = Callable[[Case], Iterator[str]]


def examine(seed: int, program: RandomProgram) -> Iterator[Finding]:
    """Runs every check; one that raises what is no message to a user is a finding, too."""
    try:
        verify(program.module)
        case = Case(program, run(program.module, program.inputs, "numpy"))
    except Exception as e:
        if is_interrupt(e):
            raise
        yield _crash(seed, "reference", e)
        return
    for name, check in CHECKS.items():
        try:
            for message in check(case):
                yield Finding(seed, name, message, f"{name}: {message.split(': ', 1)[0]}")
        except Exception as e:
            if is_interrupt(e):
                raise
            yield _crash(seed, name, e)


def _crash(seed: int, check: str, error: Exception) -> Finding:
    """A failure: its kind, its first line, and the innermost place in the library."""
    at, place = error.__traceback__, ""
    while at is not None:
        place = f"{at.tb_frame.f_globals.get('__name__', '')}:{at.tb_frame.f_code.co_name}"
        at = at.tb_next
    first = str(error).split("\n")[0][:200]
    return Finding(seed, check, f"{type(error).__name__}: {first} (in {place})", f"{check}: {type(error).__name__} in {place}")


def run(module: Module, inputs: Mapping[str, Array], engine: str, threads: int | None = None) -> tuple[Array, ...]:
    """The outputs of a program that may print."""
    f = compile(module, engine=engine, threads=threads, max_bytes=MAX_BYTES, out=io.StringIO())
    return tuple(map(np.asarray, f(*(inputs[p.name] for p in f.inputs))))


def _differences(case: Case, found: Sequence[Array], *, exact: bool, what: str) -> Iterator[str]:
    """A line for each output that is not what it should be."""
    pairs = enumerate(zip(case.outputs, found, strict=True))
    wrong = [(k, d) for k, (want, got) in pairs if (d := discrepancy(want, got)) is not None]
    if wrong and not exact:
        allowed = slacks(case.module, case.program.inputs, case.outputs, max_bytes=MAX_BYTES)
        loose = undecided(case.module, case.program.inputs, case.outputs, max_bytes=MAX_BYTES)
        wrong = [(k, d) for k, _ in wrong
                 if (d := _beyond(case.outputs[k], _decided(case.outputs[k], found[k], loose[k]), allowed[k])) is not None]
    for k, d in wrong:
        yield f"{what} output {k} of {case.module.entry.results[k].op.name}: {d}"


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
        yield from _differences(case, run(case.module, case.program.inputs, engine), exact=False, what=engine)


def passes_keep_the_meaning(case: Case) -> Iterator[str]:
    """Cleaned to the bit on the reference; optimised within rounding on every engine, with several threads."""
    clean = programs.optimise(case.module, "clean").module
    yield from _differences(case, run(clean, case.program.inputs, "numpy"), exact=True, what="clean")
    after = programs.optimise(case.module, "default").module
    for engine in ENGINES:
        yield from _differences(case, run(after, case.program.inputs, engine, 2), exact=False, what=f"default, {engine}")


def languages_keep_the_program(case: Case) -> Iterator[str]:
    """Written, read and run: the bits of what was written, which is the program in the operations that the language has."""
    for form, legal in LANGUAGES.items():
        try:
            data = programs.encoded(case.module, form)
        except (VerifyError, UsageError):
            continue  # it says that it cannot
        written = programs.optimise(case.module, legal).module
        expected = Case(RandomProgram(written, case.program.inputs), run(written, case.program.inputs, "numpy"))
        again = programs.loads(data).module
        names = [p.name for p in input_ports(again.entry)]
        inputs = dict(zip(names, case.program.inputs.values(), strict=True))
        yield from _differences(expected, run(again, inputs, "numpy"), exact=True, what=form)


def gradients_run_alike(case: Case) -> Iterator[str]:
    """The gradient program is well-formed, and every engine gives of it what the reference gives."""
    try:
        back = programs.optimise(programs.gradient(case.module), "clean").module
    except (VerifyError, UsageError):
        return  # an operation without a gradient
    rng = np.random.default_rng(0)
    ports = input_ports(back.entry)
    inputs: dict[str, Any] = {}
    for p, given in zip(ports, [*case.program.inputs.values(), *[None] * len(ports)], strict=False):
        shape, dtype = p.type.shape, p.type.dtype.np  # type: ignore[attr-defined]
        inputs[p.name] = given if given is not None else rng.standard_normal(shape).astype(dtype)
    second = Case(RandomProgram(back, inputs), run(back, inputs, "numpy"))
    after = programs.optimise(back, "default").module
    for engine in ENGINES:
        yield from _differences(second, run(after, inputs, engine), exact=False, what=f"gradient, {engine}")


ENGINES: tuple[str, ...] = ("numexpr", "native") if has_native() else ("numexpr",)

LANGUAGES = {"sea": "none", "hlo": "legalise{target=hlo}", "stablehlo": "legalise{target=stablehlo}"}
"""Forms that every program is written in, and the pass that makes a program legal for each."""

CHECKS: dict[str, Check] = {
    "engines": engines_agree, "passes": passes_keep_the_meaning, "languages": languages_keep_the_program,
    "gradients": gradients_run_alike,
}  # fmt: skip

