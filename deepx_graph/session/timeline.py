"""The time line of an optimisation: every pass and every numbered rewrite, with the module before and after each.

A record keeps the module after each pass; the modules in between are made again on demand, by running the pass under a limit on its
rewrites, which gives just what it had made by then. Nothing is kept but the last few of them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

from deepx_graph.ir import Module, Node
from deepx_graph.passes.observer import Record, Stage
from deepx_graph.passes.pipeline import format_pass
from deepx_graph.rewrite.base import Rewrite, RewriteControl
from deepx_graph.session.report.diff import Difference, diff

KEPT = 16
"""Modules between passes that are kept once made."""


@dataclass(frozen=True)
class Moment:
    """A point of the time line: after `rewrites` of pass number `stage`, or after that pass as a whole; pass -1 is the start."""

    stage: int
    rewrites: int

    def __str__(self) -> str:
        return f"pass {self.stage + 1}, rewrite {self.rewrites}"


@dataclass(frozen=True)
class Event:
    """One line of the time line: a pass (`rewrite` is None), or a rewrite in it. `after` is the moment when it is done."""

    stage: int
    title: str
    after: Moment
    before: Moment
    rewrite: Rewrite | None = None
    changed: bool = True

    @property
    def reason(self) -> str:
        """Why it was done: the rule's equation, or what the pass is for."""
        return reason_of(self.rewrite.rule) if self.rewrite is not None else ""


@dataclass(frozen=True)
class Sighting:
    """When a node appeared or vanished; `event` is None where it was there from the start, or still is."""

    kind: Literal["appeared", "vanished"]
    event: Event


@cache
def _equations() -> dict[str, str]:
    from deepx_graph.passes.rules.fold import fold_rule
    from deepx_graph.passes.scalar.simplify import ALGEBRA, CANONICAL

    return {r.name: r.equation for r in (*ALGEBRA, *CANONICAL, fold_rule(0))}


def reason_of(rule: str) -> str:
    """The equation of a rule; nothing for a rewrite that is no rule's."""
    return _equations().get(rule, "")


class Timeline:
    """The events of a record, in order."""

    def __init__(self, before: Module, record: Record) -> None:
        self.before, self.stages = before, tuple(record.stages)
        self._made: OrderedDict[Moment, Module] = OrderedDict()

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All events: each pass, then its rewrites."""
        return tuple(self._events())

    def _events(self) -> Iterator[Event]:
        for k, stage in enumerate(self.stages):
            end, start = Moment(k, len(stage.rewrites)), Moment(k - 1, len(self.stages[k - 1].rewrites) if k else 0)
            yield Event(k, format_pass(stage.pass_), end, start, None, stage.changed)
            for n, rewrite in enumerate(stage.rewrites):
                yield Event(k, rewrite.rule, Moment(k, n + 1), Moment(k, n), rewrite)

    def passes(self, *, unchanged: bool = False) -> list[tuple[Stage, list[Event]]]:
        """The passes with their events, the first of which is the pass; without those that changed nothing unless wanted."""
        found: list[tuple[Stage, list[Event]]] = [(stage, []) for stage in self.stages]
        for event in self.events:
            found[event.stage][1].append(event)
        return [(stage, events) for stage, events in found if stage.changed or unchanged]

    def input_of(self, stage: int) -> Module:
        """The module that a pass was given."""
        return self.before if stage <= 0 else self.stages[stage - 1].module

    def module_at(self, moment: Moment) -> Module:
        """The module at a moment; made by running the pass again as far as that."""
        if moment.stage < 0:
            return self.before
        stage = self.stages[moment.stage]
        if moment.rewrites >= len(stage.rewrites):
            return stage.module
        if moment.rewrites == 0:
            return self.input_of(moment.stage)
        if moment not in self._made:
            control = RewriteControl(moment.rewrites)
            control.pass_name = stage.pass_.name
            self._made[moment] = stage.pass_.run_under(self.input_of(moment.stage), control)
            while len(self._made) > KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(moment)
        return self._made[moment]

    def step(self, event: Event) -> tuple[Module, Module, Difference]:
        """The module before an event, after it, and what is different."""
        before, after = self.module_at(event.before), self.module_at(event.after)
        return before, after, diff(before, after)

    def sightings(self, node: Node) -> list[Sighting]:
        """When nodes like this one (of its operation, name and place in the source) became more or fewer."""
        key = _likeness(node)
        found: list[Sighting] = []
        there = _count(self.before, key)
        for k, stage in enumerate(self.stages):
            now = _count(stage.module, key) if stage.changed else there
            if now != there:
                found.append(Sighting("appeared" if now > there else "vanished", self._event_in(k, key, now > there)))
            there = now
        return found

    def _event_in(self, stage: int, key: tuple[Any, ...], appeared: bool) -> Event:
        """The rewrite of a pass that made or took such a node, or after which it was there or gone; the pass as a whole where
        none was.
        """
        whole, *inside = [e for e in self.events if e.stage == stage]
        fits = (e for e in inside if e.rewrite and _likeness(e.rewrite.after if appeared else e.rewrite.before) == key)
        return next(fits, None) or self._first_changing(inside, key) or whole

    def _first_changing(self, events: Sequence[Event], key: tuple[Any, ...]) -> Event | None:
        """The first event after which there are more or fewer such nodes, found by bisection; None where none is."""
        if not events:
            return None
        before, low, high = _count(self.module_at(events[0].before), key), 0, len(events) - 1
        if _count(self.module_at(events[-1].after), key) == before:
            return None
        while low < high:
            middle = (low + high) // 2
            changed = _count(self.module_at(events[middle].after), key) != before
            low, high = (low, middle) if changed else (middle + 1, high)
        return events[low]


def _likeness(node: Node) -> tuple[Any, ...]:
    """What stays the same when passes build a node anew over other operands."""
    span = node.span
    if not node.name and span is None:
        return (node,)
    return node.op, node.name, None if span is None else (span.start, span.end)


def _count(module: Module, key: tuple[Any, ...]) -> int:
    return sum(_likeness(n) == key for f in module.functions for n in f.nodes)


def op_changes(before: Counter[str], after: Counter[str]) -> list[tuple[str, int, int]]:
    """Operation, how many there were, and how many there are; the largest changes first."""
    names = [n for n in before | after if before[n] != after[n]]
    return sorted(((n, before[n], after[n]) for n in names), key=lambda row: (-abs(row[2] - row[1]), row[0]))
