"""The entry of a module on samples of its inputs, as the module goes through passes: its results, and values of nodes in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deepx_graph.ir import Module, Node
from deepx_graph.numerics.noise import Nudge
from deepx_graph.numerics.observed import OperationBudget, Value, tensors
from deepx_graph.validation.cones import Cut, NoValueError, beyond_rounding, elements, identical, sample_value
from deepx_graph.validation.discrepancy import Discrepancy
from deepx_graph.validation.evaluator import Evaluator, Scene
from deepx_graph.validation.samples import positions

ELEMENTS = 1 << 20
"""Elements of all values of the entry beyond which it is not evaluated after every pass."""

ELEMENTS_ONCE = 1 << 26
"""The same where it is evaluated once, for a certificate."""

MOST = 200
"""Operations between what a run has computed and the leaves of a cut."""

SHORT = 2000
"""Operations of a run that is looked at from inside."""

ITERATIONS = 1
"""Iterations of loops that are looked at before a difference is."""


class Unchecked(NamedTuple):
    """In place of a result that cannot be computed here: why."""

    reason: str


Difference = tuple[int, Discrepancy, dict[str, Any]]
"""The number of an output that differs, how, and the inputs."""


def arguments(module: Module, first: int = 0) -> dict[Node, Any]:
    """Values for the parameters of the entry, those left out of which there are no samples; another `first` gives others."""
    found = {}
    for k, p in enumerate(module.entry.params):
        try:
            found[p] = sample_value(p.type, positions, first + k)
        except NoValueError:  # the state of effects, a function, a shape that is not known
            continue
    return found


class WholeProgram:
    """The module that was last looked at, evaluated on a sample, with a bound on the iterations of loops."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self._module: Module | None = None
        self._quick: Evaluator | None = None
        self._scenes: tuple[Module, list[Scene]] | None = None

    def compare(self, before: Module, after: Module) -> Difference | None:
        """The first output of the entry that differs, how, and on which inputs.

        Raises NoValueError where no output can be computed.
        """
        if max(_size(before), _size(after)) > ELEMENTS:
            self._module = None
            raise NoValueError("its values are too large")
        quick = self._at(before)
        wanted = _results(quick)
        quick.move(after)
        self._module = after
        found = _results(quick)
        differing = [k for k, (w, g) in enumerate(zip(wanted, found, strict=True))
                     if isinstance(w, Unchecked) or isinstance(g, Unchecked) or not all(map(identical, tensors(w), tensors(g)))]
        if not differing:
            return None
        return self._compare_in_full(before, after, differing)

    def compare_all(self, before: Module, after: Module) -> Difference | None:
        """As `compare`, for all iterations of loops, and of larger programs. Raises NoValueError where any output is not known."""
        if max(_size(before), _size(after)) > ELEMENTS_ONCE:
            raise NoValueError("its values are too large")
        for module in (before, after):
            found = _results(Evaluator(module, arguments(module, self.first), OperationBudget()))
            for unknown in (r for r in found if isinstance(r, Unchecked)):
                raise NoValueError(unknown.reason)
        return self._compare_in_full(before, after, range(len(before.entry.results)))

    def _compare_in_full(self, before: Module, after: Module, outputs: Sequence[int]) -> Difference | None:
        given = arguments(before, self.first)
        compared = len(outputs) < len(before.entry.results)
        full = Evaluator(before, given, OperationBudget())
        wanted = _results(full)
        full.move(after)
        reason = ""
        for k, (want, got) in enumerate(zip(wanted, _results(full), strict=True)):
            if k not in outputs:
                continue
            if isinstance(want, Unchecked) or isinstance(got, Unchecked):
                reason = want.reason if isinstance(want, Unchecked) else got.reason
                continue
            compared = True
            how = beyond_rounding(tensors(want), tensors(got), lambda _, k=k: _moved(before, given, k))  # type: ignore[misc]
            if how is not None:
                return k, how, {p.name or f"arg{n}": v for n, (p, v) in enumerate(given.items())}
        if not compared:
            raise NoValueError(reason)
        return None

    def difference(self, module: Module, cut: Cut) -> tuple[Discrepancy, Mapping[Node, Any]] | None:
        """How the nodes of a cut differ with the values that its leaves have somewhere in a run; None where they never do.

        Raises NoValueError where the leaves have no values in it.
        """
        cut, seen = cut.with_shapes(), False
        for scene in self._scenes_of(module):
            here = Evaluator(module, {}, OperationBudget(MOST))
            here.values = dict(scene)
            try:
                filling = {n: here.result(n) for n in cut.leaves}
                found = cut.difference(filling)
            except NoValueError:
                continue
            if found is not None:
                return found, filling
            seen = True
        if not seen:
            raise NoValueError("its values are never computed")
        return None

    def _at(self, module: Module) -> Evaluator:
        if self._module is not module or self._quick is None:
            self._module = module
            self._quick = Evaluator(module, arguments(module, self.first), OperationBudget(), iterations=ITERATIONS)
        self._quick.budget = OperationBudget()
        return self._quick

    def _scenes_of(self, module: Module) -> list[Scene]:
        """All that is known of a run of the module: of the entry, of iterations, and of the functions that it calls."""
        if self._scenes is None or self._scenes[0] is not module:
            scenes: list[Scene] = []
            _results(Evaluator(module, arguments(module, self.first), OperationBudget(SHORT), record=scenes))
            self._scenes = module, scenes
        return self._scenes[1]


def _results(evaluator: Evaluator) -> list[Any]:
    found = []
    for node in evaluator.module.entry.results:
        try:
            found.append(evaluator.result(node))
        except NoValueError as e:
            found.append(Unchecked(str(e)))
    return found


def _moved(module: Module, given: Mapping[Node, Any], output: int) -> Value:
    nudged = Evaluator(module, given, OperationBudget(), observer=Nudge(0))
    return tensors(nudged.result(module.entry.results[output]))


def _size(module: Module) -> int:
    return sum([elements(n.type) for n in module.entry.nodes])
