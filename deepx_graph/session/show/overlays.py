"""Programs with something laid over them: the error that each operation makes, where NaN come from, or how values lie on a mesh.

Errors and shardings are known of the program without calls, which is what the session is about then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.session.inputs import check_names
from deepx_graph.session.plans import placed_values, plan_text, planned
from deepx_graph.session.query.facts import NUMBERS
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import node_of_box
from deepx_graph.viz.picture.overlay import MEASURES, Amounts, Overlay, Words
from deepx_graph.viz.view.model import View

SHARDING = "sharding"

NAMES = (*MEASURES, SHARDING)
"""What can be laid over a picture."""


def laid(session: Session) -> str | None:
    """What a session was made to show; None for one of a program alone."""
    shown = {"time": session.measured or session.result, "apart": session.apart, "error": session.errors,
             "nonfinite": session.nonfinite, SHARDING: session.shardings}  # fmt: skip
    return next((name for name, found in shown.items() if found), None)


def over(session: Session, name: str) -> Callable[[View], Overlay]:
    """What lays one of `NAMES` over a view of the session's program. Raises UsageError for another name or what is not known."""
    if name not in NAMES:
        raise UsageError(Diagnostic(f"no overlay '{name}'", expected=", ".join(NAMES), hint=suggest(name, NAMES)))
    return lambda view: _shardings(session, view) if name == SHARDING else _amounts(session, view, name)


def _amounts(session: Session, view: View, name: str) -> Overlay:
    found: dict[int, float] = {}
    for box in view.nodes:
        if box.address:
            function, (node, inside) = node_of_box(session.module, box)
            body = node.attr("body") if inside >= 0 else function
            value = NUMBERS[name].get(session.facts(body), body.nodes[inside] if inside >= 0 else node)
            if value is not None:
                found[box.id] = value
    if not any(found.values()):
        raise UsageError(f"nothing is known of '{name}' in this program: it is measured or explained by another option")
    return Amounts(MEASURES[name], found)


def _shardings(session: Session, view: View) -> Overlay:
    if not session.shardings:
        raise UsageError(Diagnostic("how values lie on a mesh is not known", hint="--plan FILE, or --plan stated"))
    nodes = ((box.id, node_of_box(session.module, box)[1]) for box in view.nodes if box.address)
    return Words("how values lie on the mesh", {id: session.shardings[node].text for id, (node, inside) in nodes
                                                if inside < 0 and node in session.shardings})  # fmt: skip


def rounded(module: Module, inputs: Mapping[str, Array] | None = None) -> Session:
    """A session that knows what the rounding of each operation adds to the outputs' error, on given inputs and, for others,
    generated ones.

    Raises UsageError where contributions are not known or a name is no input's, and as `explain_rounding` does.
    """
    from deepx_graph.numerics.rounding import explain_rounding  # takes gradients and engines with it

    report = explain_rounding(module, _inputs(module, inputs or {}))
    if report.module is None or report.why_not:
        raise UsageError(f"what each operation contributes to the error is not known: {report.why_not}")
    session = Session(report.module)
    session.errors = {n.node: abs(n.contribution) for n in report.nodes if not math.isnan(n.contribution)}
    return session


def not_finite(module: Module, inputs: Mapping[str, Array] | None = None) -> Session:
    """A session that knows which operations make the NaN and infinities of the outputs, on given inputs and, for others,
    generated ones.

    Raises UsageError where all outputs are finite or a name is no input's, and as `explain_nonfinite` does.
    """
    from deepx_graph.numerics.nonfinite import explain_nonfinite

    report = explain_nonfinite(module, _inputs(module, inputs or {}))
    if not report.origins:
        why = "an input or a constant is not finite from the start" if report.outputs else "all outputs are finite"
        raise UsageError(f"no operation makes NaN or an infinity of an output on these inputs: {why}")
    session = Session(module)
    session.nonfinite = {o.node: o.count for o in report.origins}
    return session


def _inputs(module: Module, given: Mapping[str, Array]) -> dict[str, Array]:
    """The given inputs, and generated ones for all others. Raises UsageError for a name that is none's."""
    generated = Session(module).inputs({})
    check_names(given, generated)
    return {**generated, **given}


def split(module: Module, path: str) -> Session:
    """A session that knows how each value lies on the mesh, by the plan in a file or, for `stated`, what the program says.

    Raises UsageError and ParseError as `planned` does.
    """
    inlined, plan = planned(module, plan_text(path), path)
    session = Session(inlined)
    session.shardings = placed_values(plan)
    return session
