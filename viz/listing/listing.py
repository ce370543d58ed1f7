"""A function as rows in the order of its schedule, with live values as lanes beside them: what `git log --graph` is to commits.

Every node has one row; loops, branches, kernels, functions and blocks that repeat have a head that folds them. A value runs down
its lane from the row that makes it to the row that uses it last. Lanes are few (`LANES`): parameters and values that are used far
away get at most half of them, and what finds none goes without. Everything here is near-linear, and no text is escaped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from deepx_graph.analysis.schedule import Block, Branch, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM, PARTIAL, callee_of
from deepx_graph.viz.folding.blocks import best_period, name_of
from deepx_graph.viz.listing.lanes import Row, RowKind, Weaver
from deepx_graph.viz.view.labels import family_of, loop_name, scalar_text, selects_by_bool, side_name

FOLDED: tuple[RowKind, ...] = ("node", "block", "repeat")
"""What is folded at first: kernels, blocks that repeat, long runs of parameters; other functions than the first are, too."""


@dataclass
class Listing:
    """The rows of some functions, which of them are folded, and where each node is."""

    rows: list[Row] = field(default_factory=list)
    row_of: dict[Node, int] = field(default_factory=dict)
    folded: set[int] = field(default_factory=set)
    visible: list[int] = field(default_factory=list)
    """The rows that no fold hides, in order."""

    @cached_property
    def lanes(self) -> int:
        """How many lanes are in use at the widest place."""
        return max((max(r.above | r.below, 1 << r.lane).bit_length() for r in self.rows), default=1)

    def refresh(self) -> None:
        """Works out anew what is visible."""
        found: list[int] = []
        at = 0
        for head in sorted(self.folded):
            if head >= at:
                found.extend(range(at, head + 1))
                at = head + 1 + self.rows[head].inside
        found.extend(range(at, len(self.rows)))
        self.visible = found

    def toggle(self, row: int) -> bool:
        """Folds what the row heads, or unfolds it; False where it heads nothing."""
        if not self.rows[row].inside:
            return False
        self.folded ^= {row}
        self.refresh()
        return True

    def head_of(self, row: int) -> int | None:
        """The innermost head that holds the row."""
        for at in range(row - 1, -1, -1):
            if self.rows[at].inside and at + self.rows[at].inside >= row:
                return at
        return None

    def fold_all(self, wanted: Callable[[Row], bool]) -> None:
        """Folds every head that is wanted and unfolds the others."""
        self.folded = {k for k, r in enumerate(self.rows) if r.inside and wanted(r)}
        self.refresh()

    def show(self, row: int) -> int:
        """Unfolds what hides the row; its place among the visible ones."""
        hiding = [h for h in self.folded if h < row <= h + self.rows[h].inside]
        if hiding:
            self.folded.difference_update(hiding)
            self.refresh()
        return self.place(row)

    def place(self, row: int) -> int:
        """Where a row is among the visible ones; where its fold is, when it is hidden."""
        return max(0, bisect_right(self.visible, row) - 1)


def listing(module: Module, *, numbers: bool = False) -> Listing:
    """The rows of a module's functions, the entry first; kernels and repeats folded, and all but the first of several functions.

    Constants of rank 0, which stand in the rows that use them, have rows only with `numbers`. Raises VerifyError for a function
    without a schedule.
    """
    found, bound = Listing(), _bound(module)
    for function in module.entry_first:
        _Lister(found.rows, function, numbers).run(_title(function, bound.get(function.name, 0)))
    for k, row in enumerate(found.rows):
        if row.node is not None:
            found.row_of.setdefault(row.node, k)
    functions_seen = 0
    for k, row in enumerate(found.rows):
        functions_seen += row.kind == "function"
        if row.inside and (row.kind in FOLDED or (row.kind == "function" and functions_seen > 1)):
            found.folded.add(k)
    found.refresh()
    return found


def body_of(node: Node) -> Function | None:
    """The function that a node holds and that has more to show than one operation: a kernel's, a sort's."""
    bodies = (v for a, v in zip(node.op.attrs, node.attrs, strict=True) if a.kind == "function" and isinstance(v, Function))
    return next((f for f in bodies if f.reducer is None), None)


Task = tuple[int, Block, int] | Callable[[], None]
"""The steps of a block at a depth, from one of them on; or something to do then."""


def _bound(module: Module) -> dict[str, int]:
    """How many leading parameters closures bind, by the names of functions."""
    closures = [n for f in module.functions for n in f.nodes if n.op is PARTIAL]
    return {callee_of(n): len(n.inputs) for n in closures}


def _title(function: Function, bound: int) -> str:
    """`f`, or `f over x, y`: a function, with what it captures where it is made as a closure."""
    names = [p.name or f"param {k}" for k, p in enumerate(function.params[:bound])]
    return f"{function.name} over {', '.join(names)}" if names else function.name


class _Lister:
    """Appends the rows of one function."""

    def __init__(self, rows: list[Row], function: Function, numbers: bool) -> None:
        self.rows, self.function, self.numbers = rows, function, numbers
        self.shown: set[Node] = set()

    def run(self, title: str) -> None:
        plan = schedule(self.function)
        head = self._row("function", None, 0, title)
        for p in self.function.params:
            self._node(p, 1)
        tasks: list[Task] = [(1, plan.root, 0)]
        while tasks:
            task = tasks.pop()
            if callable(task):
                task()
                continue
            depth, block, first = task
            for k in range(first, len(block.steps)):
                step = block.steps[k]
                if not isinstance(step, Eval):
                    tasks.append((depth, block, k + 1))
                    tasks += reversed(self._nested(step, depth))
                    break
                self._node(step.node, depth)
        self._leftover()
        inner = with_blocks(self.rows[head + 1 :])
        self.rows[head + 1 :] = inner
        self.rows[head].inside = len(inner)
        Weaver(inner, self.function).weave()

    def _row(self, kind: RowKind, node: Node | None, depth: int, title: str = "", uses: Iterable[Node] = ()) -> int:
        self.rows.append(Row(kind, self.function, node, depth, title, 0, tuple(uses)))
        return len(self.rows) - 1

    def _closing(self, head: int) -> Callable[[], None]:
        def close() -> None:
            self.rows[head].inside = len(self.rows) - head - 1

        return close

    def _constants(self, nodes: Iterable[Node], depth: int) -> None:
        for n in nodes:
            if n.op is CONSTANT and (self.numbers or scalar_text(n) is None):
                self._node(n, depth)

    def _node(self, node: Node, depth: int) -> None:
        if node in self.shown:
            return
        self.shown.add(node)
        self._constants(node.inputs, depth)
        at = self._row("node", node, depth, "", node.inputs)
        body = body_of(node)
        if body is not None:
            self._body(at, body, depth + 1)

    def _body(self, at: int, body: Function, depth: int) -> None:
        """The nodes of a kernel, in their own lanes."""
        nodes = (n for n in body.nodes if self.numbers or scalar_text(n) is None)
        inner = [Row("node", body, n, depth, "", 0, n.inputs) for n in nodes]
        Weaver(inner, body).weave()
        self.rows += inner
        self.rows[at].inside = len(inner)

    def _nested(self, step: IfStep | LoopStep | Once, depth: int) -> list[Task]:
        match step:
            case IfStep():
                return self._branches(step, depth)
            case LoopStep():
                return self._loop(step, depth)
            case Once():
                once = self._row("head", None, depth, "once")
                return [(depth + 1, step.block, 0), self._closing(once)]

    def _branches(self, step: IfStep, depth: int) -> list[Task]:
        by_bool = selects_by_bool(step.node)
        self._constants((step.selector,), depth)
        head = self._row("head", None, depth, "if" if by_bool else "switch", (step.selector,))
        tasks: list[Task] = []
        for k, branch in enumerate(step.branches):
            tasks += self._branch(branch, side_name(k, len(step.branches), by_bool), depth + 1)
        return [*tasks, lambda: self._end(step.node, depth, [v for b in step.branches for v in b.values]), self._closing(head)]

    def _branch(self, branch: Branch, title: str, depth: int) -> list[Task]:
        heads: list[int] = []

        def begin() -> None:
            heads.append(self._row("head", None, depth, title))

        def end() -> None:
            self._constants(branch.values, depth + 1)
            self._closing(heads[0])()

        return [begin, (depth + 1, branch.block, 0), end]

    def _end(self, node: Node, depth: int, uses: Sequence[Node]) -> None:
        self.shown.add(node)
        self._row("end", node, depth + 1, "", uses)

    def _loop(self, step: LoopStep, depth: int) -> list[Task]:
        begin = step.node.inputs[0]
        self._constants(step.inits, depth)
        head = self._row("head", None, depth, loop_name(step))
        self._node(begin, depth + 1)
        for column in step.phis:
            for phi in column:
                self._node(phi, depth + 1)

        def body() -> None:
            self._row("head", None, depth + 1, "while", (step.condition,))

        def end() -> None:
            self._constants(step.nexts, depth + 1)
            self._end(step.node, depth, [*step.nexts, begin])

        return [(depth + 1, step.header, 0), body, (depth + 1, step.body, 0), end, self._closing(head)]

    def _leftover(self) -> None:
        """Nodes that the schedule leaves out because nobody reads them: constants that are results, values never computed."""
        results = set(self.function.results)
        left = [n for n in self.function.nodes if n not in self.shown]
        for n in left:
            if n.op is CONSTANT and n in results:
                self._node(n, 1)
        rest = [n for n in left if n not in self.shown and (self.numbers or scalar_text(n) is None)]
        if rest:
            head = self._row("head", None, 1, "never computed")
            for n in rest:
                self._node(n, 2)
            self._closing(head)()


# --- blocks that repeat ---------------------------------------------------------------------------------------------


WORTH = 16
"""Rows that a head must at least hide."""

LONG = 4
"""Rows from which a repeat has a head of its own."""

WINDOWS = (8,)
"""What must be equal for a distance to be tried as a period: long enough that chance does not make many."""

Unit = list[Row]
"""A row with the rows that it heads."""


def with_blocks(rows: Sequence[Row]) -> list[Row]:
    """The rows of a function, with heads where they repeat or where many of one kind stand together."""
    if len(rows) < WORTH:
        return list(rows)
    found: list[Row] = []
    for kind, group in groupby(_units(rows), key=_kind):
        units = list(group)
        found += _together(units, kind) if kind else _repeated(units)
    return found


def _units(rows: Sequence[Row]) -> list[Unit]:
    units: list[Unit] = []
    at = 0
    while at < len(rows):
        end = at + 1 + rows[at].inside
        units.append(list(rows[at:end]))
        at = end
    return units


def _kind(unit: Unit) -> str:
    """The word for many of these, "" for operations."""
    node = unit[0].node
    return "parameters" if node is not None and node.op is PARAM else ""


def _together(units: list[Unit], kind: str) -> list[Row]:
    rows = _flat(units)
    return rows if len(units) <= WORTH else _under(f"{len(units):,} {kind}", rows)


def _repeated(units: list[Unit]) -> list[Row]:
    period, places = best_period([_token(u) for u in units], WINDOWS)
    found: list[Row] = []
    at = 0
    for start, repeats in places:
        blocks = [_flat(units[start + k * period : start + (k + 1) * period]) for k in range(repeats)]
        if sum(map(len, blocks)) < WORTH:
            continue
        found += _flat(units[at:start])
        name = contents(blocks[0])
        if len(blocks[0]) >= LONG:
            inner = [row for k, block in enumerate(blocks, 1) for row in _under(f"{name} ({k} of {repeats:,})", block, "repeat")]
        else:
            inner = _flat(blocks)
        found += _under(f"{name} ×{repeats:,}, each of {len(blocks[0]):,} rows", inner)
        at = start + repeats * period
    return found + _constants(units[at:]) if at else _constants(units)


def _constants(units: list[Unit]) -> list[Row]:
    found: list[Row] = []
    for constant, group in groupby(units, key=lambda u: u[0].node is not None and u[0].node.op is CONSTANT):
        rest = list(group)
        found += _together(rest, "constants") if constant else _flat(rest)
    return found


def _token(unit: Unit) -> tuple[object, ...]:
    """What is equal for units that look the same."""
    row = unit[0]
    return (row.title, len(unit)) if row.node is None else (row.node.op, row.node.type, len(row.uses), len(unit))


def contents(rows: Sequence[Row]) -> str:
    """What the rows are together: the name that a picture gives to such a box."""
    ops = [r.node.op for r in rows if r.node is not None and r.node.op not in (CONSTANT, PARAM)]
    return name_of(Counter(op.name for op in ops), {op.name: family_of(op) for op in ops})


def _flat(units: Sequence[Unit]) -> list[Row]:
    return [row for unit in units for row in unit]


def _under(title: str, rows: list[Row], kind: str = "block") -> list[Row]:
    """The rows one step further in, under a head."""
    head = Row("repeat" if kind == "repeat" else "block", rows[0].function, None, rows[0].depth, title, len(rows))
    for row in rows:
        row.depth += 1
    return [head, *rows]
