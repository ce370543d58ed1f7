"""A program made small while something stays true of it: that it crashes, differs, is slow, or is wrong in XLA.

The program is run once, and the values of its nodes are recorded. Whatever is cut off below becomes an input with the value that it
had, so that inputs need not be found anew; outputs move down; branches become the side that was taken, loops one iteration; nodes
become one of their operands; sizes and numbers of iterations shrink. A step is kept where the predicate still holds.

Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002, on a graph instead of a text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.progress import stage
from deepx_graph.session.diagnose.children import Ended, in_child
from deepx_graph.session.diagnose.reduction_steps import STEPS, Steps, Trial, opened
from deepx_graph.verify import verify

SECONDS = 60.0
"""For how long smaller programs are looked for."""

ALLOWED = 3
"""How many times the processor time of the program itself a smaller one may take: loops may become endless."""


@dataclass(frozen=True)
class Predicate:
    """What is looked for. `work`, in a forked child, says what is found of a program on its inputs, by name: the same text for the
    same fault, empty where there is none. The child is ended after so much processor time, which is a finding, too."""

    work: Callable[[Module, Mapping[str, Array]], str]
    processor_seconds: float | None = None
    ready: Callable[[], None] = lambda: None
    """Called before, in this process."""

    def ended(self, module: Module, inputs: Mapping[str, Array], seconds: float, processor_seconds: float | None = None) -> Ended:
        """A child that has done the work, within so many seconds, and so many of processor time."""
        self.ready()
        most = processor_seconds if self.processor_seconds is None else self.processor_seconds
        return in_child(lambda: self.work(module, inputs), seconds, most)

    def found(self, ended: Ended) -> str:
        """What a child that has ended shows."""
        return "too slow" if self.processor_seconds is not None and ended.late else ended.death or ended.said

    def __call__(self, module: Module, inputs: Mapping[str, Array], seconds: float = SECONDS) -> str:
        """What is found. Raises what `ready` raises."""
        return self.found(self.ended(module, inputs, seconds))


@dataclass(frozen=True)
class ReducedProgram:
    """The least program that was found, how many operations there were, and how many programs were tried."""

    module: Module
    inputs: dict[str, Array]
    before: int
    after: int
    tried: int


def reduce_program(module: Module, inputs: Mapping[str, Array], predicate: Predicate, *,
                   seconds: float = SECONDS) -> ReducedProgram:
    """The least program found within the time. Raises UsageError where nothing is found of the program itself, within that time."""
    start = Trial(module, dict(inputs))
    predicate.ready()
    search = _Search(predicate, time.monotonic() + seconds)
    search.begin(start)
    found = search.run(start)
    return ReducedProgram(found.module, found.inputs, start.operations, found.operations, search.tried)


class _Search:
    """Greedy descent over all kinds of steps until none helps or time is up."""

    def __init__(self, predicate: Predicate, deadline: float) -> None:
        self.predicate, self.deadline, self.tried = predicate, deadline, 0
        self.wanted = ""
        self.most = 1.0
        """Seconds of processor time that a trial may take."""

    def begin(self, trial: Trial) -> None:
        """Notes what is found of the program itself. Raises UsageError where that is nothing."""
        self.tried += 1
        ended = self.predicate.ended(trial.module, trial.inputs, self.seconds)
        self.wanted = self.predicate.found(ended)
        self.most = ALLOWED * ended.processor_seconds + 1
        if not self.wanted:
            why = ["it takes longer than it may"] if ended.late else ended.error.splitlines()[:1]
            raise UsageError(Diagnostic("what is looked for is not true of the program on these inputs", notes=tuple(why)))

    def holds_of(self, trial: Trial) -> bool:
        """Whether the same is found of a trial."""
        self.tried += 1
        try:
            verify(trial.module)
        except DeepxGraphError:
            return False
        return self.predicate.found(self.predicate.ended(trial.module, trial.inputs, self.seconds, self.most)) == self.wanted

    def run(self, trial: Trial) -> Trial:
        """The least program that is found."""
        trial = next(filter(self.holds_of, opened(trial, self.most)), trial)
        while True:
            before = trial.size
            for steps in STEPS:
                trial = self._descend(trial, steps)
            if trial.size >= before or self.late:
                return trial

    @property
    def seconds(self) -> float:
        """Those that are left."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def late(self) -> bool:
        """Whether none are."""
        return not self.seconds

    def _descend(self, trial: Trial, steps: Steps) -> Trial:
        """The trial after as many steps of a kind as help; after each they are drawn anew."""
        helped = True
        while helped and not self.late:
            helped = False
            for candidate in steps(trial, self.most):
                if self.late:
                    break
                if candidate.size < trial.size and self.holds_of(candidate):
                    trial, helped = candidate, True
                    stage(f"reduce: {trial.operations} operations")
                    break
        return trial
