"""The stages of a compilation, each a whole program, evaluated on the same inputs: the first that gives something else.

All stages are evaluated by the reference engine and compared with the first one, so "this pass is wrong" and "what comes later
shows it" are told apart. Where evaluating all would take too long the stages are searched by halves; a later pass may hide an
earlier mistake from that search, which is why the pair found is looked at from both sides.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError, Diagnostic, LimitError, RunError, UsageError, counted
from deepx_graph.ir import Module
from deepx_graph.ir.scalar_expr import Apply, Expr
from deepx_graph.literal import Array
from deepx_graph.numerics.noise import slacks
from deepx_graph.numerics.observed import OPERATIONS, ObservedEngine, OperationBudget
from deepx_graph.progress import stage
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.inputs import input_ports, output_ports
from deepx_graph.types import TensorType
from deepx_graph.validation.discrepancy import SEVERITY, Discrepancy, discrepancy, worst
from deepx_graph.validation.stage_run import StageRun, Tiling

PATIENCE = 60.0
"""Seconds that evaluating all stages may take, by the time of the first; above that they are searched by halves."""


@dataclass(frozen=True)
class CompilerStage:
    """A program on its way through a compiler: the pass that made it, and how to get it. `load` raises as `programs.load`."""

    title: str
    load: Callable[[], Module]
    path: str = ""


@dataclass
class Evaluated:
    """What a stage gives for every sample: its outputs, or why it could not be evaluated."""

    number: int
    stage: CompilerStage
    module: Module | None = None
    outputs: list[tuple[Array, ...]] = field(default_factory=list)
    skipped: str = ""
    found: tuple[int, int, Discrepancy] | None = None
    """The sample and the output that differ most from the first stage, and how."""
    wrong: bool = False
    """Whether something differs by more than a compiler may change by its own rules."""


@dataclass
class Reference:
    """The first stage, its inputs and outputs for every sample, and what rounding may make of them."""

    module: Module
    samples: Sequence[Mapping[str, Array]]
    seed: int = 0
    max_bytes: int | None = None
    operations: int = sys.maxsize
    """Operations that the run of a single sample may compute."""
    shardings: dict[int, Tiling] = field(default_factory=dict)
    """Of the outputs, as far as the stages before the program was partitioned say."""

    outputs: list[tuple[Array, ...]] = field(default_factory=list)
    spent: int = field(default=0, init=False)
    """Operations of the longest run."""

    def __post_init__(self) -> None:
        """Runs the samples; of several those are left out for which the program computes too long. Raises what running raises."""
        self.inputs, self.ports = input_ports(self.module.entry), output_ports(self.module.entry)
        self._slacks: dict[int, list[Array | None]] = {}
        budget = OperationBudget()
        f = compile(self.module, engine=ObservedEngine(budget), seed=self.seed, max_bytes=self.max_bytes)
        short: list[Mapping[str, Array]] = []
        for sample in self.samples:
            budget.left = OPERATIONS if len(self.samples) > 1 else self.operations
            try:
                self.outputs.append(tuple(np.asarray(r) for r in f(*(sample[p.name] for p in self.inputs))))
            except LimitError:
                if budget.left >= 0 or len(self.samples) == 1:
                    raise
                continue
            short.append(sample)
            self.spent = max(self.spent, (OPERATIONS if len(self.samples) > 1 else self.operations) - budget.left)
        if not short:
            raise LimitError(Diagnostic("the program computes too long on every set of inputs", expected="--inputs FILE.npz"))
        self.samples = short

    @cached_property
    def narrowest(self) -> Any:
        """The narrowest float type in which the program computes, to which a compiler need not round; None where it has none."""
        types = [n.type for f in self.module.functions for n in f.nodes]
        floats = {t.dtype for t in types if isinstance(t, TensorType) and t.dtype.is_float}
        return min(floats, key=lambda d: d.bits).np if floats else None

    def leaves_open(self, how: Discrepancy) -> bool:
        """Whether the language does: rounding, and the sign of a zero that a maximum or minimum chose."""
        return how.harmless or (how.kind == "sign of zero" and self.zeros_open)

    @cached_property
    def zeros_open(self) -> bool:
        """Whether the sign of a zero may be either in the first stage."""
        return zeros_open(self.module)

    def evaluate(self, number: int, at: CompilerStage) -> Evaluated:
        """What a stage gives, compared."""
        done = Evaluated(number, at)
        try:
            done.module = at.load()
            run = StageRun(self, done.module)
            done.outputs = [run.outputs(k) for k in range(len(self.samples))]
            done.found = self.compare(done.outputs)
            done.wrong = done.found is not None and not self.leaves_open(done.found[2])
        except DeepxGraphError as e:
            done.skipped = e.diagnostics[0].message if e.diagnostics else str(e)
        return done

    def compare(self, outputs: Sequence[Sequence[Array]]) -> tuple[int, int, Discrepancy] | None:
        """The sample and the output that differ most from the first stage."""
        found: list[tuple[int, int, int, Discrepancy]] = []
        for k, (wanted, given) in enumerate(zip(self.outputs, outputs, strict=True)):
            if len(wanted) != len(given):
                raise RunError(f"{counted(len(given), 'output')} where the first stage has {len(wanted)}")
            if (pair := self._worst(k, wanted, given)) is not None:
                found.append((SEVERITY[pair[1].kind], k, *pair))
        return min(found, key=lambda f: f[:3])[1:] if found else None

    def _worst(self, sample: int, wanted: Sequence[Array], given: Sequence[Array]) -> tuple[int, Discrepancy] | None:
        found = self._differences(wanted, given, [None] * len(wanted))
        if found is not None and found[1].kind == "wrong element" and not found[1].exact:
            return self._differences(wanted, given, self.slack(sample))
        return found

    def _differences(self, wanted: Sequence[Array], given: Sequence[Array],
                     slack: Sequence[Array | None]) -> tuple[int, Discrepancy] | None:
        exactly = np.zeros(())
        return worst([discrepancy(w, g, exactly if s is None else s, self.narrowest)
                      for w, g, s in zip(wanted, given, slack, strict=True)])

    def slack(self, sample: int) -> list[Array | None]:
        """What rounding may make of each output of a sample."""
        if sample not in self._slacks:
            self._slacks[sample] = slacks(self.module, self.samples[sample], self.outputs[sample], seed=self.seed,
                                          max_bytes=self.max_bytes)
        return self._slacks[sample]


def zeros_open(module: Module) -> bool:
    """Whether there is a maximum or minimum, or what is made of them (`clamp`), which may give either of two zeros."""
    bodies = [*module.functions]
    for f in bodies:
        if any((n.op.idempotent and n.op.monoid) or (n.op.kernel and _chooses(n.op.kernel(*n.attrs))) for n in f.nodes):
            return True
        bodies += [v for n in f.nodes for a, v in zip(n.op.attrs, n.attrs, strict=True) if a.kind == "function"]
    return False


def _chooses(tree: Expr | None) -> bool:
    """Whether an element is one of two, as one is larger."""
    return isinstance(tree, Apply) and (tree.primitive in ("max", "min") or any(map(_chooses, tree.args)))


@dataclass(frozen=True)
class StageSearch:
    """What was evaluated, in order, and the pair between which results become wrong: the last right stage, the first wrong one."""

    reference: Reference
    evaluated: tuple[Evaluated, ...]
    total: int
    right: Evaluated | None
    wrong: Evaluated | None

    @property
    def skipped(self) -> list[Evaluated]:
        """Stages that could not be evaluated."""
        return [e for e in self.evaluated if e.skipped]

    @property
    def between(self) -> list[Evaluated]:
        """Stages between the pair that could not be evaluated: any of them may be at fault, too."""
        if self.right is None or self.wrong is None:
            return []
        return [e for e in self.skipped if self.right.number < e.number < self.wrong.number]


def search(stages: Sequence[CompilerStage], samples: Callable[[Module], Sequence[Mapping[str, Array]]], *, seed: int = 0,
           max_bytes: int | None = None) -> StageSearch:
    """Evaluates the stages on samples of inputs for the first and finds where results become wrong.

    Raises UsageError without two stages, and for a first stage what loading and running it raise.
    """
    if not stages:
        raise UsageError("there are no stages")
    module = stages[0].load()
    if len(stages) < 2:
        raise UsageError(Diagnostic("there is only one stage; nothing to compare it with",
                                    hint="-p PIPELINE searches our own passes, --xla those of XLA"))
    reference = Reference(module, samples(module), seed, max_bytes)
    begin = time.perf_counter()
    first = Evaluated(0, stages[0], module, reference.outputs)
    StageRun(reference, module)
    spent = time.perf_counter() - begin
    if spent * len(stages) > PATIENCE:
        return _by_halves(reference, first, stages)
    done = [first, *_each(reference, stages[1:])]
    wrong = min((e for e in done if e.wrong), key=_severity, default=None)
    right = None if wrong is None else max((e for e in done if not e.skipped and e.number < wrong.number), key=lambda e: e.number)
    return StageSearch(reference, tuple(done), len(stages), right, wrong)


def _each(reference: Reference, stages: Sequence[CompilerStage]) -> Iterable[Evaluated]:
    for k, at in enumerate(stages):
        stage("evaluate", k, len(stages))
        yield reference.evaluate(k + 1, at)


def _severity(e: Evaluated) -> tuple[int, int]:
    """The worst difference first, of these the first stage that has it."""
    assert e.found is not None
    return SEVERITY[e.found[2].kind], e.number


def _by_halves(reference: Reference, first: Evaluated, stages: Sequence[CompilerStage]) -> StageSearch:
    """The pair found by bisection: right before, wrong after, nothing between that can be evaluated."""
    done = {0: first}

    def at(number: int) -> Evaluated:
        if number not in done:
            done[number] = reference.evaluate(number, stages[number])
        return done[number]

    low, high = 0, len(stages) - 1
    while high and at(high).skipped:
        high -= 1
    if at(high).wrong:
        while tried := [k for k in _middle_out(low, high) if not at(k).skipped][:1]:
            low, high = (low, tried[0]) if at(tried[0]).wrong else (tried[0], high)
    wrong = done[high] if done[high].wrong else None
    return StageSearch(reference, tuple(done[k] for k in sorted(done)), len(stages), done[low] if wrong else None, wrong)


def _middle_out(low: int, high: int) -> Iterable[int]:
    """The numbers between two, the middle one first."""
    return sorted(range(low + 1, high), key=lambda k: abs(k - (low + high) / 2))
