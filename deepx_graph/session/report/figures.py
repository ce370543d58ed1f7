"""The figures of a module before and after a pipeline: operations by kind, bytes, arithmetic, peak memory; and budgets.

A budget is a bound on a figure, such as `ops<=120`, `peak_bytes<=64M` or `ops.dot_general<=4`; a verdict says whether it holds.

Counted are the functions that the entry reaches: counts are their sums, each function once, and depth and peak memory those of the
largest; costs are those of one run. A figure that is not known is None; it is never within its budget, nor beyond: it is an error
that says what is missing. A bound in bytes counts in K of 1024, any other in k of 1000.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, TextReport, UsageError, counted, printable, sized, suggest
from deepx_graph.ir import Module
from deepx_graph.ops import OPS
from deepx_graph.runtime.program import callees
from deepx_graph.session.report.info import FunctionInfo, ModuleInfo, module_info, once_each


@dataclass(frozen=True)
class Figure:
    """What is counted of a module; `binary` ones are bytes, `runs` those that grow with how often something runs."""

    summary: str
    of: Callable[[ModuleInfo], int | None]
    binary: bool = False
    runs: bool = False


def _together(of: Callable[[FunctionInfo], int | None], together: Callable[[list[int]], int] = sum
              ) -> Callable[[ModuleInfo], int | None]:  # fmt: skip
    """What the figure of a function says of all functions; not known where it is not known of one."""

    def of_module(info: ModuleInfo) -> int | None:
        values = [of(f) for f in info.functions]
        known = [v for v in values if v is not None]
        return together(known) if len(known) == len(values) else None

    return of_module


FIGURES: Mapping[str, Figure] = {
    "ops": Figure("operations", _together(lambda f: f.nodes)),
    "kernels": Figure("operations that compute something", _together(lambda f: f.kernels)),
    "edges": Figure("operands", _together(lambda f: f.edges)),
    "depth": Figure("operations on the longest path", _together(lambda f: f.depth, max)),
    "flops": Figure("arithmetic operations of one run", lambda m: m.flops, runs=True),
    "bytes_moved": Figure("bytes of operands and results of the kernels of one run", lambda m: m.bytes_moved, True, True),
    "constant_bytes": Figure("bytes of constants", _together(lambda f: f.constant_bytes), True),
    "peak_bytes": Figure("bytes of values alive at once, at most", _together(lambda f: f.peak_bytes, max), True),
}


MESH_FIGURES: Mapping[str, bool] = {
    "collective_bytes": True, "parameter_bytes": True, "collectives": False,
    **{f"{kind}s": False for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")},
}
"""Figures of the program of one device of a mesh, and whether they are bytes (`collectives.mesh_figures`)."""


def reached_info(module: Module, whole: ModuleInfo | None = None) -> ModuleInfo:
    """The facts of the functions that the entry reaches through calls; `whole` are those of all, where they are known."""
    names, stack = {module.entry_name}, [module.entry]
    while stack:
        for name in callees(stack.pop()) - names:
            names.add(name)
            stack.append(module[name])
    reached = module.with_functions(f for f in module.functions if f.name in names)
    return whole if whole is not None and reached is module else module_info(reached)


def figures(info: ModuleInfo) -> dict[str, int | None]:
    """All figures of a module, by name."""
    return {name: figure.of(info) for name, figure in FIGURES.items()}


def op_figures(info: ModuleInfo) -> Counter[str]:
    """How many nodes of each operation a module has."""
    total: Counter[str] = Counter()
    for f in info.functions:
        total.update(f.ops)
    return total


@dataclass(frozen=True)
class FigureRow:
    """One line of the table; None is not known."""

    name: str
    before: int | None
    after: int | None

    @property
    def percent(self) -> str:
        """By how much of what it was it has changed; empty where that says nothing."""
        return f"{self.after / self.before - 1:+.0%}" if self.before and self.after not in (None, self.before) else ""


@dataclass(frozen=True)
class Table:
    """A module before and after a pipeline: operations by kind, the most numerous first, and figures.

    `open` is what runs an unknown number of times, before and after, and is counted once.
    """

    pipeline: str
    ops: tuple[FigureRow, ...]
    figures: tuple[FigureRow, ...]
    open: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def lines(self) -> Iterator[str]:
        """The table as text."""
        rows = [(r.name, _shown(r.name, r.before, self.open[0]), _shown(r.name, r.after, self.open[1]), r.percent)
                for r in (*self.ops, *self.figures)]
        head = ("", "before", f"after {self.pipeline}", "")
        widths = [max(len(row[k]) for row in (head, *rows)) for k in range(4)]
        rule = "  " + "-" * (sum(widths) + 6)
        for k, row in enumerate((head, *rows)):
            if k in (1, 1 + len(self.ops)):
                yield rule
            cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
            yield ("  " + "  ".join(cells)).rstrip()

    def to_json(self) -> dict[str, object]:
        """The same as plain data."""
        return {"pipeline": self.pipeline} | {
            kind: {r.name: {"before": r.before, "after": r.after} for r in rows}
            for kind, rows in (("ops", self.ops), ("figures", self.figures))
        } | {"open": {"before": list(self.open[0]), "after": list(self.open[1])}}


def table(module: Module, optimised: Module, pipeline: str, info: ModuleInfo | None = None) -> Table:
    """The table of a module, of which `info` may be known, before and after a pipeline."""
    before, after = reached_info(module, info), reached_info(optimised)
    old, new = op_figures(before), op_figures(after)
    names = sorted(old | new, key=lambda n: (-max(old[n], new[n]), n))
    was, now = figures(before), figures(after)
    return Table(pipeline, tuple(FigureRow(n, old[n], new[n]) for n in names), tuple(FigureRow(n, was[n], now[n]) for n in FIGURES),
                 (before.open, after.open))


def _shown(name: str, value: int | None, open: Sequence[str]) -> str:
    if value is None:
        return "not known"
    figure = FIGURES.get(name)
    text = sized(value) if figure and figure.binary else f"{value:,}"
    return f"{text} x ?" if figure and figure.runs and open else text


def figure_of(info: ModuleInfo, name: str) -> int | None:
    """One figure: one of FIGURES, or `ops.NAME`, the number of operations of that name."""
    head, dot, op = name.partition(".")
    return op_figures(info)[op] if dot and head == "ops" else figures(info)[name]


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


@dataclass(frozen=True, repr=False)
class Judgement(TextReport):
    """The verdicts on all budgets; true when all hold."""

    verdicts: tuple[Verdict, ...]

    def __bool__(self) -> bool:
        return all(v.holds for v in self.verdicts)

    def lines(self) -> Iterator[str]:
        """The verdict on each budget."""
        rows = (("ok" if v.holds else "EXCEEDED", v.budget.text, v.value) for v in self.verdicts)
        yield from (f"{word:<10}{printable(text):<32}{value:>16,}" for word, text, value in rows)

    def __repr__(self) -> str:
        return f"<Judgement: {sum(v.holds for v in self.verdicts)} of {counted(len(self.verdicts), 'budget')} hold>"


def parse_budget(text: str) -> Budget:
    """The budget that a text says. Raises UsageError, with the nearest figure, for one that it does not."""
    found = _BUDGET.fullmatch(text)
    if found is None:
        raise UsageError(Diagnostic(f"'{printable(text)}' is no budget", expected="such as ops<=120 or peak_bytes<=64M"))
    name, sign, digits, unit = found[1], found[2], found[3], found[4].lower()
    head, dot, _ = name.partition(".")
    known: Sequence[str] = [f"ops.{o}" for o in OPS] if dot and head == "ops" else [*FIGURES, *MESH_FIGURES, "ops.NAME"]
    if name not in known:
        listed = ", ".join([*FIGURES, *MESH_FIGURES, "ops.NAME"])
        raise UsageError(Diagnostic(f"no figure '{printable(name)}'", expected=listed, hint=suggest(name, known)))
    is_binary = not dot and (MESH_FIGURES[name] if name in MESH_FIGURES else FIGURES[name].binary)
    base = 1024 if is_binary else 1000
    return Budget(name, sign, int(digits) * base ** _POWER[unit], text.strip())


def baseline_budgets(known: Mapping[str, object], slack: float) -> list[Budget]:
    """A budget for each figure of a baseline: that it does not grow by more than a part `slack`. Raises UsageError for a
    value that is none."""
    made = []
    for name, value in known.items():
        if name not in FIGURES or not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UsageError(Diagnostic(f"'{printable(name)}' of the baseline is no figure with a number",
                                        expected=", ".join(FIGURES), hint="write it anew with --save-baseline"))
        bound = int(value * (1 + slack))
        made.append(Budget(name, "<=", bound, f"{name}<={bound} (baseline {value})"))
    return made


def judge(module: Module, optimised: Module, budgets: Sequence[Budget], on_mesh: Mapping[str, int] | None = None) -> list[Verdict]:
    """The verdict on each budget, of a module after a pipeline; `on_mesh` are the figures of a device, where any is asked for.

    Raises UsageError for a figure that is not known before the inputs are.
    """
    before, after = reached_info(module), reached_info(optimised)
    found = []
    for budget in budgets:
        if budget.figure in MESH_FIGURES:
            found.append(Verdict(budget, None, (on_mesh or {})[budget.figure]))
            continue
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
