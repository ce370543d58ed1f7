"""Budgets: bounds on the figures of a program, such as `ops<=120`, `peak_bytes<=64M` or `ops.dot_general<=4`, and their verdict.

A bound in bytes counts in K of 1024, any other in k of 1000. A figure that is not known is never within its budget, nor beyond: it
is an error that says what is missing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, UsageError, printable, suggest
from deepx_graph.ir import Module
from deepx_graph.ops import OPS
from deepx_graph.session.report.info import once_each
from deepx_graph.session.report.metrics import FIGURES, figure_of, reached_info

SIGNS: Mapping[str, Callable[[int, int], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt, "=": operator.eq,
}  # fmt: skip
_BUDGET = re.compile(r"\s*([A-Za-z_]+(?:\.\w+)?)\s*(<=|>=|==|<|>|=)\s*(\d+)\s*([kmgtKMGT]?)(?:i?[bB])?\s*")
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True)
class Budget:
    """A bound on a figure; `text` is as it was given."""

    figure: str
    sign: str
    bound: int
    text: str


@dataclass(frozen=True)
class Verdict:
    """A budget, the figure before and after the pipeline, and whether the one after it holds."""

    budget: Budget
    before: int | None
    value: int

    @property
    def holds(self) -> bool:
        return SIGNS[self.budget.sign](self.value, self.budget.bound)

    def to_json(self) -> dict[str, object]:
        """The same as plain data."""
        b = self.budget
        return {"budget": b.text, "figure": b.figure, "sign": b.sign, "bound": b.bound, "before": self.before, "value": self.value,
                "holds": self.holds}  # fmt: skip


def parse_budget(text: str) -> Budget:
    """The budget that a text says. Raises UsageError, with the nearest figure, for one that it does not."""
    found = _BUDGET.fullmatch(text)
    if found is None:
        raise UsageError(Diagnostic(f"'{printable(text)}' is no budget", expected="such as ops<=120 or peak_bytes<=64M"))
    name, sign, digits, unit = found[1], found[2], found[3], found[4].lower()
    head, dot, _ = name.partition(".")
    known: Sequence[str] = [f"ops.{o}" for o in OPS] if dot and head == "ops" else [*FIGURES, "ops.NAME"]
    if name not in known:
        listed = ", ".join([*FIGURES, "ops.NAME"])
        raise UsageError(Diagnostic(f"no figure '{printable(name)}'", expected=listed, hint=suggest(name, known)))
    base = 1024 if not dot and FIGURES[name].binary else 1000
    return Budget(name, sign, int(digits) * base ** _POWER[unit], text.strip())


def judge(module: Module, optimised: Module, budgets: Sequence[Budget]) -> list[Verdict]:
    """The verdict on each budget, of a module after a pipeline.

    Raises UsageError for a figure that is not known before the inputs are.
    """
    before, after = reached_info(module), reached_info(optimised)
    found = []
    for budget in budgets:
        value = figure_of(after, budget.figure)
        if value is None:
            raise UsageError(Diagnostic(f"{budget.figure} is not known, as the program leaves sizes open",
                                        hint="give the inputs: --input NAME=f32[8,128], or --inputs FILE.npz"))
        verdict = Verdict(budget, figure_of(before, budget.figure), value)
        if after.open and _grows(budget) and not _decided(verdict):
            raise UsageError(Diagnostic(f"{budget.figure} is not known: {value:,}{once_each(after.open)}"))
        found.append(verdict)
    return found


def _grows(budget: Budget) -> bool:
    """Whether the figure grows with how often things run."""
    return budget.figure in FIGURES and FIGURES[budget.figure].runs


def _decided(verdict: Verdict) -> bool:
    """Whether the verdict stands however much larger the figure is."""
    return verdict.holds if verdict.budget.sign in (">", ">=") else not verdict.holds and verdict.budget.sign in ("<", "<=")


def markdown(verdicts: Sequence[Verdict], title: str) -> Iterator[str]:
    """The verdicts as a Markdown table, for the summary of a CI job."""
    broken = sum(not v.holds for v in verdicts)
    yield f"### {'❌' if broken else '✅'} {_cell(title)}: {broken} of {len(verdicts)} budgets exceeded"
    yield ""
    yield "| budget | before | value | |"
    yield "|---|---:|---:|---|"
    for v in verdicts:
        before = "not known" if v.before is None else f"{v.before:,}"
        yield f"| `{_cell(v.budget.text)}` | {before} | {v.value:,} | {'ok' if v.holds else '**exceeded**'} |"


def _cell(text: str) -> str:
    """A text from outside that no Markdown takes for markup."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|&])", r"\\\1", printable(text)) if "`" in text or "|" in text else printable(text)
