"""Programs as a page to explore: one, several side by side, or the stages of a pipeline one after another.

The page knows of every node what the inspector and the query language know, and which node of one program is which of another. Of
very large programs only the outlines are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from deepx_graph.cycles import no_collection
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import LOOP_BEGIN
from deepx_graph.passes.observer import op_counts
from deepx_graph.session.query.facts import FLAGS, NUMBERS, TEXTS, Facts, form
from deepx_graph.session.report.diff import diff, pairs
from deepx_graph.session.session import Session
from deepx_graph.session.show.inspect import declaration
from deepx_graph.session.show.views import PLUGIN_VIEWS
from deepx_graph.session.timeline import op_changes
from deepx_graph.types import Type
from deepx_graph.viz.draw import Drawing, view_of
from deepx_graph.viz.page.folds import folds_of
from deepx_graph.viz.page.html import PageGraph, Pairs, page
from deepx_graph.viz.picture.svg import shown
from deepx_graph.viz.view.model import View, ViewNode, renumbered

DETAILED = 20_000
"""Nodes of a program up to which the page tells all of each."""

VIEWED = 2_000
"""Nodes of a program up to which the page has what the views of plugins show of each."""

CHANGES = 4
"""Operations that a stage names."""

RUNS, SECONDS = 11, 2.0
"""Runs that a profile takes the medians of, the first left out; fewer when so much time is over."""

ON_EVERY_PAGE = frozenset({"op", "name", "family"})
"""Fields that a page has of every node."""

LINE = 200
"""The longest piece of a line of the source that is shown."""

VIEW_LINES = 40
"""Lines of a plugin's view of one node."""

Key = tuple[Node, int]
"""A node, and the number inside its kernel (-1 for the node itself): what a box of the unfolded view is."""


@dataclass(frozen=True)
class PageOptions:
    """What of a program is shown, and how."""

    function: str | None = None
    around: str | None = None
    depth: int = 2
    max_nodes: int | None = None
    collapse: bool = False
    theme: str = "auto"
    sideways: bool = False
    keep: frozenset[str] | None = None
    """Addresses of the only nodes to show."""
    overlay: str | None = None
    """What the page is coloured by as it opens; None for what its program was made to show."""
    tooltips: bool = False
    """Whether boxes say all of their nodes themselves; a page has it in its columns."""


@dataclass
class PageProgram:
    """A program on the page. `diffs` says of nodes in what they differ."""

    title: str
    session: Session
    choice: PageOptions
    diffs: dict[Node, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def view(self) -> View:
        c, module = self.choice, self.session.module
        view = view_of(module, c.function, c.keep, c.around, c.depth, collapse=c.collapse, title=self.title,
                       tooltips=c.tooltips)
        return renumbered(replace(view, sideways=c.sideways))

    @cached_property
    def nodes(self) -> dict[int, tuple[Function, Key]]:
        """What each box of the view is, where it is a node."""
        return {box.id: node_of_box(self.session.module, box) for box in self.view.nodes if box.address}

    @cached_property
    def ids(self) -> dict[Key, int]:
        """The box of each node."""
        return {key: id for id, (_, key) in self.nodes.items()}

    def differs(self, node: Node, kind: str, text: str) -> None:
        """Notes in what a node differs; of a number that has no box, in those that it stands in."""
        self.diffs[node] = kind, text
        function = self.session.function_of(node)
        if function is not None and (node, -1) not in self.ids:
            for user in function.users[node]:
                self.diffs.setdefault(user, ("changed", text))

    def details(self) -> dict[int, Mapping[str, Any]]:
        """What is known of each box."""
        full = len(self.view.nodes) <= DETAILED
        alike: dict[object, dict[str, Any]] = {}
        return {id: self._detail(f, key, alike if full else None) for id, (f, key) in self.nodes.items()}

    def _detail(self, function: Function, key: Key, alike: dict[object, dict[str, Any]] | None) -> dict[str, Any]:
        """What is known of a node; `alike` keeps what nodes of one form have in common, None where only outlines are told."""
        outer, inside = key
        body = outer.attr("body") if inside >= 0 else function
        node = body.nodes[inside] if inside >= 0 else outer
        found: dict[str, Any] = {"op": node.op.name, "type": (_type_text(node.type),)}
        if self.diffs:
            found["diff"], found["how"] = (*map(shown, self.diffs.get(outer, ("same", ""))),)
        if inside < 0 and PLUGIN_VIEWS and len(self.view.nodes) <= VIEWED:
            found["views"] = tuple(plugin_notes(self.session.module, node))
        return found if alike is None else found | _fields(self.session.facts(body), node, alike)

    def lines(self) -> dict[int, str]:
        """The lines of the source that boxes come from."""
        found: dict[int, str] = {}
        for id, (_, (node, inside)) in self.nodes.items():
            for k, span in enumerate(node.origin.spans):
                line = self.view.nodes[id].line if k == 0 and inside < 0 else span.line
                if line not in found:
                    start, end = span.source.line_bounds(line)
                    found[line] = span.source.text[start : min(end, start + LINE)].strip()
        return found

    def operations(self) -> Iterator[tuple[str, Any]]:
        """The declaration of each operation that occurs."""
        seen: set[str] = set()
        for _, (outer, inside) in self.nodes.values():
            node = outer.attr("body").nodes[inside] if inside >= 0 else outer
            if node.op.name not in seen:
                seen.add(node.op.name)
                lines = [[shown(e.label), shown(e.text)] for e in declaration(node)]
                yield node.op.name, [["operation", lines]] if lines else []


@lru_cache(maxsize=4096)
def _type_text(type: Type) -> str:
    return shown(str(type))


def node_of_box(module: Module, box: ViewNode) -> tuple[Function, Key]:
    """What a box with an address is, and the function that it stands in."""
    name, _, number = box.address.rpartition("#")
    outer, _, inside = number.partition(".")
    function = module[name] if name else module.entry
    return function, (function.nodes[int(outer)], int(inside) if inside else -1)


def _fields(facts: Facts, node: Node, alike: dict[object, dict[str, Any]]) -> dict[str, Any]:
    """What the query language knows of a node, without what every page has anyway."""
    key = form(node)
    if key not in alike:
        alike[key] = _values(facts, node, of_form=True)
    common, own = alike[key], _values(facts, node, of_form=False)
    flags = (*common.get("flags", ()), *own.get("flags", ()))
    return common | own | ({"flags": flags} if flags else {})


def plugin_notes(module: Module, node: Node) -> Iterator[tuple[str, ...]]:
    """What each view of a plugin shows of a node: its title, then its first lines."""
    for view in PLUGIN_VIEWS.values():
        lines = [shown(line[:LINE]) for line in view.lines(module, node)[: VIEW_LINES + 1]]
        yield (shown(view.title), *lines[:VIEW_LINES], *(["…"] if len(lines) > VIEW_LINES else []))


def _values(facts: Facts, node: Node, *, of_form: bool) -> dict[str, Any]:
    """The fields that follow from a node's form, or those that do not."""
    found: dict[str, Any] = {}
    for name, texts in TEXTS.items():
        if texts.form is not of_form or name in ON_EVERY_PAGE or (name == "attr" and node.op is LOOP_BEGIN):
            continue  # a loop's identity is an arbitrary number, another one in every run
        values = tuple(shown(v) for v in dict.fromkeys(texts.get(facts, node)) if v)
        if values:
            found[name] = values
    for name, number in NUMBERS.items():
        value = number.get(facts, node) if number.form is of_form else None
        if value is not None:
            found[name] = float(f"{value:.6g}") if isinstance(value, float) else value  # amounts of any size
    flags = tuple(name for name, flag in FLAGS.items() if flag.form is of_form and flag.test(facts, node))
    return found | ({"flags": flags} if flags else {})


def explore(programs: Sequence[tuple[str, Session]], choice: PageOptions | None = None, *, title: str = "") -> Drawing:
    """The page of one program, or of several side by side with what differs between neighbours.

    Raises UsageError for a function or node that is not there.
    """
    choice = choice or PageOptions()
    return _page([PageProgram(name, session, choice) for name, session in programs], choice, title, timeline=False)


def explore_stages(stages: Sequence[tuple[str, Module]], choice: PageOptions | None = None, *, title: str = "") -> Drawing:
    """The page of the stages of a pipeline, one after another; each shows what it changed."""
    choice = choice or PageOptions()
    shown_stages = [PageProgram(name, Session(module), choice) for name, module in stages]
    return _page(shown_stages, choice, title, timeline=True)


@no_collection()
def _page(programs: list[PageProgram], choice: PageOptions, title: str, *, timeline: bool) -> Drawing:
    links = [_linked(programs, k, timeline) for k in range(len(programs) - 1)]
    graphs: list[PageGraph] = []
    notes: list[str] = []
    operations: dict[str, Any] = {}
    for p in programs:
        folds = folds_of(p.view, choice.max_nodes)
        note = _stage_note(programs, len(graphs)) if timeline else ""
        graphs.append(PageGraph(p.title, folds, p.details(), p.lines(), note))
        operations.update(p.operations())
        notes += [f"{p.title}: {note}" if len(programs) > 1 else note for note in folds.notes]
    data = page(graphs, title, theme=choice.theme, pairs=links, timeline=timeline, operations=operations,
                overlay=choice.overlay)  # fmt: skip
    return Drawing(data, tuple(notes))


def _stage_note(stages: Sequence[PageProgram], k: int) -> str:
    """Which operations became more or fewer in a stage, the largest changes first."""
    if k == 0:
        return ""
    changes = op_changes(*(op_counts(s.session.module) for s in (stages[k - 1], stages[k])))
    listed = [f"{name} {old} → {new}" for name, old, new in changes[:CHANGES]]
    return ", ".join(listed + (["…"] if len(changes) > CHANGES else []))


def _linked(programs: list[PageProgram], k: int, timeline: bool) -> Pairs:
    """What of one program is which of the next; says of both in what they differ (in a time line, of the later one)."""
    a, b = programs[k], programs[k + 1]
    partner = pairs(a.session.module, b.session.module)
    for change in diff(a.session.module, b.session.module, in_order=not timeline).changes:
        if change.before is not None and not timeline:
            a.differs(change.before, change.kind, change.text)
        if change.after is not None:
            b.differs(change.after, change.kind, change.text)
    nodes: dict[int, int] = {}
    for id, (_, (node, inside)) in a.nodes.items():
        other = partner.get(node)
        if other is not None and (other, inside) in b.ids and _alike(node, other, inside):
            nodes[id] = b.ids[other, inside]
    return Pairs(k, k + 1, nodes)


def _alike(node: Node, other: Node, inside: int) -> bool:
    """Numbers inside two kernels mean the same when the kernels are the same."""
    return inside < 0 or node.attr("body") == other.attr("body")


def measured(module: Module, seed: int = 0, engine: str = "auto") -> Session:
    """A session about a program that has run several times, on generated inputs. Raises as running does."""
    session = Session(module)
    session.accept(session.run(session.inputs({}, seed), engine=engine, seed=seed, keep=False, runs=RUNS, within=SECONDS))
    return session


def fused(module: Module, engine: str = "auto") -> Session:
    """A session about what fusion makes of a program, which knows of each node what was left apart there. Raises as the report."""
    from deepx_graph.session.programs import optimise
    from deepx_graph.session.report.fusion import fusion_report

    report = fusion_report(optimise(module, "clean").module, engine)
    session = Session(report.module)
    session.apart = report.apart
    return session


def stages_of(module: Module, pipeline: str, *, fast_math: bool = False) -> list[tuple[str, Module]]:
    """The program as it was read, and after each pass of a pipeline that changed it. Raises as `optimise`."""
    from deepx_graph.passes.pipeline import format_pass

    version = Session(module).optimise(pipeline, fast_math=fast_math)
    changed = (s for s in (version.record.stages if version.record else ()) if s.changed)
    return [("as read", module), *((f"after {format_pass(s.pass_)}", s.module) for s in changed)]
