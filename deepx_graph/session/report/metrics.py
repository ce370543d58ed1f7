"""The figures of a module in a row each, before and after a pipeline: operations by kind, bytes, arithmetic, peak memory.

Counted are the functions that the entry reaches: counts are their sums, each function once, and depth and peak memory those of the
largest; costs are those of one run. A figure that is not known is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepx_graph.ir import Module
from deepx_graph.runtime.program import callees
from deepx_graph.session.report.info import FunctionInfo, ModuleInfo, module_info
from deepx_graph.units import sized


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


def reached_info(module: Module) -> ModuleInfo:
    """The facts of the functions that the entry reaches through calls."""
    names, stack = {module.entry_name}, [module.entry]
    while stack:
        for name in callees(stack.pop()) - names:
            names.add(name)
            stack.append(module[name])
    return module_info(module.with_functions(f for f in module.functions if f.name in names))


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
class Row:
    """One line of the table; None is not known."""

    name: str
    before: int | None
    after: int | None

    @property
    def change(self) -> float | None:
        """By how much of what it was it has changed; None where that says nothing."""
        return None if not self.before or self.after is None else self.after / self.before - 1


@dataclass(frozen=True)
class Table:
    """A module before and after a pipeline: operations by kind, the most numerous first, and figures.

    `open` is what runs an unknown number of times, before and after, and is counted once.
    """

    pipeline: str
    ops: tuple[Row, ...]
    figures: tuple[Row, ...]
    open: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def lines(self) -> Iterator[str]:
        """The table as text."""
        rows = [(r.name, _shown(r.name, r.before, self.open[0]), _shown(r.name, r.after, self.open[1]), _percent(r))
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


def table(module: Module, optimised: Module, pipeline: str) -> Table:
    """The table of a module before and after a pipeline."""
    before, after = reached_info(module), reached_info(optimised)
    old, new = op_figures(before), op_figures(after)
    names = sorted(old | new, key=lambda n: (-max(old[n], new[n]), n))
    was, now = figures(before), figures(after)
    return Table(pipeline, tuple(Row(n, old[n], new[n]) for n in names), tuple(Row(n, was[n], now[n]) for n in FIGURES),
                 (before.open, after.open))


def _shown(name: str, value: int | None, open: Sequence[str]) -> str:
    if value is None:
        return "not known"
    figure = FIGURES.get(name)
    text = sized(value) if figure and figure.binary else f"{value:,}"
    return f"{text} x ?" if figure and figure.runs and open else text


def _percent(row: Row) -> str:
    return "" if not row.change else f"{row.change:+.0%}"


def figure_of(info: ModuleInfo, name: str) -> int | None:
    """One figure: one of FIGURES, or `ops.NAME`, the number of operations of that name."""
    head, dot, op = name.partition(".")
    return op_figures(info)[op] if dot and head == "ops" else figures(info)[name]
