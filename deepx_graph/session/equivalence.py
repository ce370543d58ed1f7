"""Do two programs compute the same? An answer that says which evidence it has.

1. Their canonical forms are equal (`session/report/meaning.py`): the same operations, exactly or up to laws of real numbers.
2. They give the same numbers for samples, those at the edges of types among them: to the bit, or within what rounding in every
   operation of the first can make of its outputs (`numerics/noise.py`); and, where they can be computed so, in double precision
   within what rounding in double precision can, and that of constants which only one of them has, or uses more often
   (`validation/constants.py`). So a coefficient that is wrong in the sixth digit is not taken for rounding.
3. They are equal as algebra: the same over residues modulo several primes (`validation/algebra.py`). That sees no rounding,
   overflow or NaN, so it is said beside what numbers say, and never alone. Rational functions that are not equal as algebra, and
   have the same constants, are different whatever numbers say.
4. They do not compute the same: a witness, and the node at which the second departs from the first.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from deepx_graph.errors import DeepxGraphError, Diagnostic, LimitError, TextReport, UsageError, counted, printable
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.numerics.double import widened
from deepx_graph.numerics.noise import slacks
from deepx_graph.numerics.observed import ObservedEngine, OperationBudget
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.progress import stage
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.inputs import input_ports, output_ports
from deepx_graph.session.report.meaning import Sameness, compare_meaning
from deepx_graph.types import F64, TensorType
from deepx_graph.validation.algebra import AlgebraicEvidence, compare_algebra
from deepx_graph.validation.boundary_values import boundary_values, repetitions
from deepx_graph.validation.constants import MARGIN, float_constants, moved_constants, shared_constants
from deepx_graph.validation.culprit import Departure, departure
from deepx_graph.validation.discrepancy import Discrepancy, discrepancy, worst
from deepx_graph.validation.samples import FAMILIES, samples

Kind = Literal["identical", "same mathematics", "equal", "equal within rounding", "different"]

AROUND_BOUNDARIES = 8
"""Sets of inputs around the programs' own constants and sizes."""

CONSTANT_RUNS = 4
"""How often constants that only one of the programs has are moved at random."""


@dataclass(frozen=True)
class Witness:
    """Inputs by the names of the first program, and what the programs give for them that differs."""

    inputs: dict[str, Array]
    output: str
    discrepancy: Discrepancy
    precision: str = ""
    """`double` where the difference shows in double precision only."""


@dataclass(frozen=True, repr=False)
class Equivalence(TextReport):
    """The answer. True unless the programs are different; `evidence` says in a sentence what it rests on."""

    kind: Kind
    evidence: str
    witness: Witness | None = None
    departure: Departure | None = field(default=None, repr=False)
    algebra: AlgebraicEvidence | None = None
    """What residues say; None where nothing was left to say."""

    def __bool__(self) -> bool:
        return self.kind != "different"

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data."""
        found = self.witness and {"output": self.witness.output, "difference": str(self.witness.discrepancy),
                                  "precision": self.witness.precision or "own"}
        return {"kind": self.kind, "same": bool(self), "evidence": self.evidence, "witness": found,
                "algebra": self.algebra and {"equal": self.algebra.equal, "evidence": str(self.algebra)}}

    def lines(self) -> Iterator[str]:
        """The report of `diff --values`."""
        yield f"{self.kind}: {self.evidence}"
        if self.witness is not None:
            within = " in double precision" if self.witness.precision else ""
            yield f"output '{printable(self.witness.output)}'{within}: {self.witness.discrepancy}"
        if self.algebra is not None:
            yield str(self.algebra)
        if self.departure is not None:
            yield from self.departure.lines()

def equivalent(a: Module, b: Module, inputs: Mapping[str, Any] | None = None, *, count: int = 8, seed: int = 0,
               max_bytes: int | None = None) -> Equivalence:
    """Whether `b` computes what `a` does, by forms, then by numbers.

    `inputs`, by the names of `a`, are run first; `count` samples are drawn beside them, of ordinary numbers and of edges in turn,
    several times as many for an input of few elements, and some around the programs' own constants and sizes. Where one program has
    constants for weights that are inputs of the other, and no `inputs` are given, they are compared for any weights.
    Raises UsageError where inputs or outputs are not of the same number and types, and what passes and running raise.
    """
    meaning = compare_meaning(a, b, any_weights=False)
    if inputs is None and not _same_ports(*meaning.aligned):
        meaning = compare_meaning(a, b)
    (a, b), taken = meaning.aligned, "".join(f"; {line}" for line in meaning.taken())
    _check_ports(a, b)
    if meaning.verdict is Sameness.EXACT:
        return Equivalence("identical", f"{Sameness.EXACT.value}{taken}")
    given = [{name: np.asarray(v) for name, v in inputs.items()}] if inputs is not None else []
    ports = input_ports(a.entry)
    times = repetitions(ports)
    around = boundary_values(a, b).samples(ports, AROUND_BOUNDARIES * times, seed)
    drawn = [*samples(ports, count * times, seed), *around]
    ordinary = [*given, *drawn[: count : len(FAMILIES)], *around[:AROUND_BOUNDARIES]]
    seen = _Seen()
    for k, each in enumerate([*given, *drawn]):
        stage("compare values", k, len(given) + len(drawn))
        try:
            witness = _compared(a, b, each, seen, seed, max_bytes)
        except LimitError:  # values at the edges make loops long
            if k < len(given):
                raise
            continue
        if witness is not None:
            return _different(a, b, witness, seed, max_bytes)
    if not seen.finite:  # variances are not negative
        ordinary = [{name: np.abs(x) for name, x in each.items()} for each in ordinary]
        for each in ordinary:
            if (witness := _compared(a, b, each, seen, seed, max_bytes)) is not None:
                return _different(a, b, witness, seed, max_bytes)
    witness, double = _in_double(a, b, ordinary, seed, max_bytes)
    if witness is not None:
        return Equivalence("different", "rounding does not explain it", witness)
    algebra = compare_algebra(a, b, seed, max_bytes)
    shared = shared_constants(a, b)
    if algebra.equal is False and algebra.rational and all(np.array_equal(float_constants(m), shared) for m in (a, b)):
        return Equivalence("different", "they are different rational functions, though numbers do not show it", algebra=algebra)
    found = _agreed(meaning.verdict, seen, double)
    return replace(found, evidence=f"{found.evidence}{taken}", algebra=algebra)


@dataclass
class _Seen:
    """What runs have shown so far."""

    runs: int = 0
    exact: bool = True
    finite: bool = False
    """Whether some element of some output was a number."""


def _agreed(verdict: Sameness, seen: _Seen, double: bool) -> Equivalence:
    how = "to the bit" if seen.exact else "within what rounding in every operation makes of the outputs"
    more = f"{', and in double precision' if double else ''}{'' if seen.finite else ', but no element is finite'}"
    if not seen.runs:
        raise LimitError("no set of inputs could be run within the bounds of a comparison")
    numbers = f"the same for {counted(seen.runs, 'set')} of inputs {how}{more}"
    if verdict is Sameness.CLOSE:
        return Equivalence("same mathematics", f"{Sameness.CLOSE.value}; {numbers}")
    return Equivalence("equal" if seen.exact else "equal within rounding", numbers)


def _same_ports(a: Module, b: Module) -> bool:
    return all([p.type for p in ports(a.entry)] == [q.type for q in ports(b.entry)] for ports in (input_ports, output_ports))


def _check_ports(a: Module, b: Module) -> None:
    for word, here, there in (("input", input_ports(a.entry), input_ports(b.entry)),
                              ("output", output_ports(a.entry), output_ports(b.entry))):
        if len(here) != len(there):
            raise UsageError(f"the programs have {counted(len(here), word)} and {len(there)}: they are not comparable")
        for p, q in zip(here, there, strict=True):
            if p.type != q.type:
                raise UsageError(Diagnostic(f"{word} '{printable(p.name)}' is {p.type}, and '{printable(q.name)}' {q.type}"))


def _run(module: Module, arrays: Sequence[Array], seed: int, max_bytes: int | None) -> tuple[Array, ...]:
    f = compile(module, engine=ObservedEngine(OperationBudget()), seed=seed, max_bytes=max_bytes, out=io.StringIO())
    return tuple(map(np.asarray, f(*arrays)))


def _compared(a: Module, b: Module, inputs: Mapping[str, Array], seen: _Seen, seed: int, max_bytes: int | None,
              folding: Callable[[Mapping[str, Array], Sequence[Array]], list[Array]] | None = None, precision: str = "",
              ) -> Witness | None:
    """A witness where rounding does not explain what differs; notes what was seen."""
    arrays = [inputs[p.name] for p in input_ports(a.entry)]
    wanted, found = _run(a, arrays, seed, max_bytes), _run(b, arrays, seed, max_bytes)
    seen.runs += 1
    seen.finite = seen.finite or not wanted or any(bool(np.isfinite(w.astype(np.complex128)).any()) for w in wanted if w.size)
    first = [discrepancy(w, g) for w, g in zip(wanted, found, strict=True)]
    if not any(first):
        return None
    seen.exact = False
    allowed = slacks(a, inputs, wanted, seed=seed, max_bytes=max_bytes)
    if folding is not None:
        allowed = [s if s is None else s + f for s, f in zip(allowed, folding(inputs, wanted), strict=True)]
    beyond = [_beyond(w, g, s) if d else None for w, g, s, d in zip(wanted, found, allowed, first, strict=True)]
    bad = worst(beyond)
    return None if bad is None else Witness(dict(inputs), output_ports(a.entry)[bad[0]].name, bad[1], precision)


def _beyond(want: Array, got: Array, slack: Array | None) -> Discrepancy | None:
    found = discrepancy(want, got, slack)
    return None if found is None or found.harmless else found


def _in_double(a: Module, b: Module, runs: Sequence[Mapping[str, Array]], seed: int,
               max_bytes: int | None) -> tuple[Witness | None, bool]:
    """A witness in double precision, and whether the programs could be compared in it."""
    try:
        narrow = [run_pipeline(m, parse_pipeline("inline,unfuse")) for m in (a, b)]
        first, second = map(widened, narrow)
        _check_ports(first, second)
    except DeepxGraphError:
        return None, False
    if not any(isinstance(p.type, TensorType) and p.type.dtype is F64 for p in output_ports(first.entry)):
        return None, False
    folding = _Folding(narrow[0], narrow[1], seed, max_bytes)
    for inputs in runs:
        wide = {p.name: inputs[p.name].astype(p.type.dtype.np) for p in input_ports(first.entry)}  # type: ignore[attr-defined]
        try:
            witness = _compared(first, second, wide, _Seen(), seed, max_bytes, folding.slack, "double")
        except DeepxGraphError:
            return None, False
        if witness is not None:
            return witness, True
    return None, bool(runs)


@dataclass(frozen=True)
class _Folding:
    """What rounding of the constants that only one of two programs has, or uses more often, may make of the outputs."""

    a: Module
    b: Module
    seed: int
    max_bytes: int | None

    def slack(self, inputs: Mapping[str, Array], wanted: Sequence[Array]) -> list[Array]:
        """For each output of the first program in double precision. Raises what running raises."""
        arrays, found = [inputs[p.name] for p in input_ports(self.a.entry)], [np.zeros(np.shape(w)) for w in wanted]
        shared, rng = shared_constants(self.a, self.b), np.random.default_rng(self.seed)
        for module in (self.a, self.b):
            if np.isin(float_constants(module), shared).all():
                continue
            usual = _run(widened(module), arrays, self.seed, self.max_bytes)
            for _ in range(CONSTANT_RUNS):
                moved = _run(widened(moved_constants(module, shared, rng)), arrays, self.seed, self.max_bytes)
                with np.errstate(all="ignore"):
                    found = [np.fmax(f, MARGIN * np.abs(m - u)) if m.dtype.kind in "fc" else f
                             for f, m, u in zip(found, moved, usual, strict=True)]
        return found


def _different(a: Module, b: Module, witness: Witness, seed: int, max_bytes: int | None) -> Equivalence:
    """The verdict, with the place where the second program departs, as far as values tell."""
    names = [p.name for p in output_ports(a.entry)]
    renamed = dict(zip([p.name for p in input_ports(b.entry)], [witness.inputs[p.name] for p in input_ports(a.entry)], strict=True))
    found = departure(a, b, witness.inputs, renamed, names.index(witness.output), seed=seed, max_bytes=max_bytes)
    return Equivalence("different", "a set of inputs shows it", witness, found)
