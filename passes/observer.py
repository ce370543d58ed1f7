"""What looks on while a pipeline runs: checks, times, prints, records.

`run_pipeline` tells every observer before and after each pass, and of each rewrite to those that override `on_rewrite`.
Observers never change a module, and print only through the function they are given.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Module
from deepx_graph.ir.structure import PARAM
from deepx_graph.rewrite.base import Pass, PassError, Rewrite
from deepx_graph.verify import verify


class Observer:
    """Base: does nothing. Override what is of interest."""

    def before_pass(self, pass_: Pass, module: Module) -> None:
        """The pass is about to run on the module."""

    def after_pass(self, pass_: Pass, before: Module, after: Module) -> None:
        """The pass has run; `after is before` when it changed nothing."""

    def after_all(self) -> None:
        """All passes have run."""

    def on_rewrite(self, rewrite: Rewrite) -> None:
        """One numbered application inside a pass."""


STANDING: list[Callable[[], Observer]] = []
"""Makers of observers that look on at every pipeline, such as checks while tests run."""


class Verify(Observer):
    """Verifies what every pass makes. Raises PassError, naming the pass, when a module breaks a rule of its operations."""

    def after_pass(self, pass_: Pass, before: Module, after: Module) -> None:
        if after is before:
            return
        try:
            verify(after)
        except VerifyError as e:
            raise PassError(Diagnostic(f"pass '{pass_.name}' made an invalid module"), *e.diagnostics) from e


@dataclass(frozen=True)
class PassTime:
    """One line of a timing table."""

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int


class Timing(Observer):
    """Wall time of every pass, in `rows`."""

    def __init__(self) -> None:
        self.rows: list[PassTime] = []
        self._start = 0.0

    def before_pass(self, pass_: Pass, module: Module) -> None:
        node_count(module)  # cached from here on, so that it is not the pass that pays
        self._start = time.perf_counter()

    def after_pass(self, pass_: Pass, before: Module, after: Module) -> None:
        spent = time.perf_counter() - self._start
        self.rows.append(PassTime(pass_.name, spent, node_count(before), node_count(after)))

    def table(self) -> str:
        """The rows as text, with shares of the whole."""
        whole = sum(r.seconds for r in self.rows) or 1.0
        lines = [f"{'pass':<16}{'ms':>10}{'share':>8}{'nodes':>20}"]
        for r in self.rows:
            nodes = f"{r.nodes_before} -> {r.nodes_after}"
            lines.append(f"{r.name:<16}{r.seconds * 1e3:>10.2f}{r.seconds / whole:>8.0%}{nodes:>20}")
        return "\n".join(lines)


class Print(Observer):
    """Writes the module, as `render` shows it, before or after passes.

    `before` and `after` are pass names, or None for all of them; `changed_only` leaves out passes that changed nothing.
    """

    def __init__(self, write: Callable[[str], object], render: Callable[[Module], str], *, before: Collection[str] | None = (),
                 after: Collection[str] | None = (), changed_only: bool = False) -> None:
        self.write, self.render = write, render
        self.before, self.after, self.changed_only = before, after, changed_only

    def before_pass(self, pass_: Pass, module: Module) -> None:
        if self.before is None or pass_.name in self.before:
            self._show("before", pass_, module)

    def after_pass(self, pass_: Pass, before: Module, after: Module) -> None:
        wanted = self.after is None or pass_.name in self.after
        if wanted and not (self.changed_only and after is before):
            self._show("after", pass_, after)

    def _show(self, when: str, pass_: Pass, module: Module) -> None:
        self.write(f"// ---- {when} {pass_.name} ----\n{self.render(module).rstrip()}\n")


@dataclass(frozen=True)
class Stage:
    """What one pass did: the module it left, the change in operations, its rewrites in order."""

    pass_: Pass
    module: Module
    changed: bool
    seconds: float
    nodes: int
    delta: dict[str, int]
    """Op name to how many more (or fewer) there are; ops whose number did not change are left out."""
    rewrites: tuple[Rewrite, ...]


@dataclass
class Record(Observer):
    """Keeps every stage: for reports, undo and the browser's time line."""

    stages: list[Stage] = field(default_factory=list)
    keep_rewrites: bool = True

    def __post_init__(self) -> None:
        self._rewrites: list[Rewrite] = []
        self._start = 0.0

    def before_pass(self, pass_: Pass, module: Module) -> None:
        self._rewrites = []
        self._start = time.perf_counter()

    def on_rewrite(self, rewrite: Rewrite) -> None:
        if self.keep_rewrites:
            self._rewrites.append(rewrite)

    def after_pass(self, pass_: Pass, before: Module, after: Module) -> None:
        spent = time.perf_counter() - self._start
        old, new = op_counts(before), op_counts(after)
        delta = {name: new[name] - old[name] for name in sorted(old | new) if new[name] != old[name]}
        changed = after is not before
        self.stages.append(Stage(pass_, after, changed, spent, new.total(), delta, tuple(self._rewrites)))


def op_counts(module: Module) -> Counter[str]:
    """How many nodes of each op the module has, parameters left out."""
    return Counter(n.op.name for f in module.functions for n in f.nodes if n.op is not PARAM)


def node_count(module: Module) -> int:
    """How many nodes the module has, parameters left out."""
    return sum(len(f.nodes) - len(f.params) for f in module.functions)
