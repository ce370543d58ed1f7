"""The figures of a module in a row each, before and after a pipeline: operations by kind, bytes, arithmetic, peak memory.

Counted are the functions that the entry reaches: counts and costs are their sums, each function once, depth and peak memory those
of the largest. A figure that is not known is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deepx_graph.ir import Module
from deepx_graph.runtime.program import callees
from deepx_graph.session.report import FunctionInfo, ModuleInfo, module_info

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Figure:
    """What is counted of a module; `binary` ones are bytes."""

    summary: str
    of: Callable[[FunctionInfo], int | None]
    together: Callable[[list[int]], int] = sum
    binary: bool = False


FIGURES: Mapping[str, Figure] = {
    "ops": Figure("operations", lambda f: f.nodes),
    "kernels": Figure("operations that compute something", lambda f: f.kernels),
    "edges": Figure("operands", lambda f: f.edges),
    "depth": Figure("operations on the longest way", lambda f: f.depth, max),
    "flops": Figure("arithmetic operations", lambda f: f.flops),
    "bytes_moved": Figure("bytes of operands and results of kernels", lambda f: f.bytes_moved, binary=True),
    "constant_bytes": Figure("bytes of constants", lambda f: f.constant_bytes, binary=True),
    "peak_bytes": Figure("bytes alive at once, at most", lambda f: f.peak_bytes, max, binary=True),
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
    found: dict[str, int | None] = {}
    for name, figure in FIGURES.items():
        values = [figure.of(f) for f in info.functions]
        known = [v for v in values if v is not None]
        found[name] = figure.together(known) if len(known) == len(values) else None
    return found


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
    """A module before and after a pipeline: operations by kind, the most numerous first, and figures."""

    pipeline: str
    ops: tuple[Row, ...]
    figures: tuple[Row, ...]

    def lines(self) -> Iterator[str]:
        """The table as text."""
        rows = [(r.name, _shown(r.name, r.before), _shown(r.name, r.after), _percent(r)) for r in (*self.ops, *self.figures)]
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
        }


def table(module: Module, optimised: Module, pipeline: str) -> Table:
    """The table of a module before and after a pipeline."""
    before, after = reached_info(module), reached_info(optimised)
    old, new = op_figures(before), op_figures(after)
    names = sorted(old | new, key=lambda n: (-max(old[n], new[n]), n))
    was, now = figures(before), figures(after)
    return Table(pipeline, tuple(Row(n, old[n], new[n]) for n in names), tuple(Row(n, was[n], now[n]) for n in FIGURES))


def _shown(name: str, value: int | None) -> str:
    if value is None:
        return "not known"
    binary = name in FIGURES and FIGURES[name].binary
    return f"{value / MEBIBYTE:,.2f} MiB" if binary and value >= MEBIBYTE else f"{value:,}"


def _percent(row: Row) -> str:
    return "" if not row.change else f"{row.change:+.0%}"


def figure_of(info: ModuleInfo, name: str) -> int | None:
    """One figure: one of FIGURES, or `ops.NAME`, the number of operations of that name."""
    head, dot, op = name.partition(".")
    return op_figures(info)[op] if dot and head == "ops" else figures(info)[name]
