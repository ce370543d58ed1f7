"""How the values of a program lie on a mesh: by a plan's file or what the program states, and what devices exchange by that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, counted
from deepx_graph.files import read_text
from deepx_graph.ir import Module, Node
from deepx_graph.session.programs import optimise
from deepx_graph.session.query.facts import PlacedValue
from deepx_graph.session.report.collectives import collectives_of, mesh_figures
from deepx_graph.sharding.annotations import needed_plan, stated_plan
from deepx_graph.sharding.by_hand.opened import opened, opened_nodes
from deepx_graph.sharding.mesh import split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan, labels_of, program_of, read_plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.types import nbytes

STATED = "stated"
"""In place of a plan's file: what the text of the program states."""


def given_plan(module: Module, text: str | None = None, name: str = "<plan>") -> tuple[Module, Plan]:
    """The module without calls, and what `text` says, or else the program states, of how its values lie. Computations by hand
    are opened.

    Raises UsageError where neither says anything, ParseError for a plan that does not fit.
    """
    inlined = opened(optimise(module, "inline").module)
    return inlined, needed_plan(inlined) if text is None else read_plan(text, inlined.entry, name)


def planned(module: Module, text: str | None = None, name: str = "<plan>") -> tuple[Module, Plan]:
    """As `given_plan`, propagated to all values."""
    inlined, plan = given_plan(module, text, name)
    return inlined, propagate(plan)


def placed_values(plan: Plan) -> dict[Node, PlacedValue]:
    """How each value lies, and where that comes from. What propagation might have done further is not said any more, so that
    values that lie alike are told alike."""
    labels = labels_of(plan.function)
    found = {}
    for node, sharding in plan.values.items():
        first = next(iter(plan.origins.get(node, {}).values()), None) if sharding.is_split else None
        by = f" by {first.by.op.name} '{labels[first.by]}'" if first and first.by else ""
        source = f"from {first.source}{by}" if first else plan.reasons.get(node, "") if sharding.is_split else ""
        final = replace(sharding, dims=split(*sharding.axes).dims, replicated=())
        found[node] = PlacedValue(plan.text_of(final), source)
    return found


def stated_values(module: Module) -> dict[Node, PlacedValue]:
    """How the values of the entry lie by what the program itself states; none where it states nothing that one plan can say."""
    try:
        whole, nodes = opened_nodes(module)
        plan = stated_plan(whole)
        placed = {} if plan is None else placed_values(propagate(plan))
        return {n: placed[made] for n, made in nodes.items() if made in placed}
    except DeepxGraphError:
        return {}


def figures_on_mesh(module: Module, plan: str) -> dict[str, int]:
    """The figures of the program of one device, under a plan's file or what the program states.

    One that is of one device already, as XLA dumps them, has its own.
    """
    inlined = optimise(module, "inline").module
    if collectives_of(inlined.entry):
        return mesh_figures(inlined.entry)
    inlined, found = planned(module, plan_text(plan), plan)
    return mesh_figures(partition(inlined, found).module.entry)


def plan_text(path: str) -> str | None:
    """The text of a plan's file; None for `stated`. Raises UsageError for a file that cannot be read."""
    return None if path == STATED else read_text(path)


def planned_program(path: str) -> str:
    """The path of the program that a plan's file names, which is beside it. Raises UsageError where it names none."""
    name = program_of(plan_text(path) or "")
    if not name:
        raise UsageError(Diagnostic(f"the plan {path} does not say which program it is for", expected='program "m.mlir"',
                                    hint=f"give the program, and --plan {path}; plan FILE -o FILE.plan writes the line"))
    return str(Path(path).with_name(name))


def beside(plan: Plan, file: str, output: str) -> Plan:
    """The plan as it is written to `output`: it names the program's file where that is in the same folder."""
    path = Path(file)
    is_beside = path.is_file() and path.resolve().parent == Path(output).resolve().parent
    named = replace(plan, program=path.name)
    return named if is_beside and program_of(str(named)) else plan


def exchanged(local: Partitioned) -> dict[str, dict[str, int]]:
    """How often devices meet in the program of one device, by kind (`count`), with the `bytes` that each of them gets."""
    found: dict[str, dict[str, int]] = {}
    for node in local.module.entry.nodes:
        if node.op.exchange is not None and node.inputs:
            row = found.setdefault(node.op.name.removeprefix("spmd_"), {"count": 0, "bytes": 0})
            row["count"] += 1
            row["bytes"] += nbytes(node.type)
    return dict(sorted(found.items()))


def collectives(local: Partitioned) -> str:
    """The same as a line of text."""
    said = [f"{row['count']} {kind} ({counted(row['bytes'], 'byte')})" for kind, row in exchanged(local).items()]
    return f"collectives: {', '.join(said) or 'none'}"
