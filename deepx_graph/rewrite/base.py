"""What a pass is, and what it runs under.

A pass is a frozen dataclass: its class variable `name` is its name in pipelines, its fields are its options, `run` maps a module to
a module. It never changes the module it is given, prints nothing and keeps no state. `RewriteControl` numbers what passes do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.errors import INTERNAL, DeepxGraphError, Span
from deepx_graph.ir import Module, Node


class PassError(DeepxGraphError):
    """A pass failed or made an invalid module: a fault of this package, not of the user's program."""

    exit_code = INTERNAL


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One application: in `pass_name`, `rule` replaced `before` by `after`. Numbered from 1 across the pipeline."""

    number: int
    pass_name: str
    rule: str
    before: Node
    after: Node

    @property
    def span(self) -> Span | None:
        """Where in the source the replaced node came from."""
        return self.before.span

    def __str__(self) -> str:
        where = f"{self.span}: " if self.span else ""
        return f"{where}{self.number} {self.pass_name}: {self.rule}: {self.before!r} -> {self.after!r}"


class RewriteControl:
    """Numbers every application of every pass that runs under it, and allows the first `limit` of them only.

    `applied` and `declined` count by rule: a rule is declined when its result does not have the type of what it replaces.
    """

    def __init__(self, limit: int | None = None, listeners: tuple[Callable[[Rewrite], None], ...] = ()) -> None:
        self.limit = limit
        self.listeners = listeners
        self.pass_name = ""
        self.count = 0
        self.applied: Counter[str] = Counter()
        self.declined: Counter[str] = Counter()

    @property
    def exhausted(self) -> bool:
        """No further application is allowed."""
        return self.limit is not None and self.count >= self.limit

    def permit(self, rule: str, before: Node, after: Node) -> bool:
        """Whether the application may be done; if so it is counted and told to the listeners."""
        if self.exhausted:
            return False
        self.count += 1
        self.applied[rule] += 1
        if self.listeners:
            rewrite = Rewrite(self.count, self.pass_name, rule, before, after)
            for listener in self.listeners:
                listener(rewrite)
        return True

    def decline(self, rule: str) -> None:
        """Counts a result that the engine refused."""
        self.declined[rule] += 1


@dataclass(frozen=True)
class Pass:
    """Base of all passes. A subclass overrides `run`, or `run_under` when what it does is to be numbered and limited."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.run is Pass.run and cls.run_under is Pass.run_under:
            raise TypeError(f"{cls.__name__} overrides neither run nor run_under")

    def run(self, module: Module) -> Module:
        """The module after this pass; the same object when nothing changed."""
        return self.run_under(module, RewriteControl())

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        """As `run`, asking `control` before every application."""
        return self.run(module)

    @classmethod
    def summary(cls) -> str:
        """One line on what the pass does."""
        return (cls.__doc__ or "").strip().split("\n")[0]
