"""Programs with something laid over them: the error that each operation makes, where NaN come from, or how values lie on a mesh.

Errors and shardings are known of the program without calls, which is what the session is about then.
"""

from __future__ import annotations

import math

from deepx_graph.errors import UsageError
from deepx_graph.ir import Module
from deepx_graph.numerics.nonfinite import explain_nonfinite
from deepx_graph.numerics.rounding import explain_rounding
from deepx_graph.session.session import Session
from deepx_graph.session.sharded import placed_values, plan_text, planned


def rounded(module: Module, seed: int = 0) -> Session:
    """A session that knows what the rounding of each operation adds to the outputs' error, on generated inputs.

    Raises UsageError where contributions are not known, and as `explain_rounding` does.
    """
    report = explain_rounding(module, Session(module).inputs({}, seed), seed=seed)
    if report.module is None or report.why_not:
        raise UsageError(f"what each operation contributes to the error is not known: {report.why_not}")
    session = Session(report.module)
    session.errors = {n.node: abs(n.contribution) for n in report.nodes if not math.isnan(n.contribution)}
    return session


def not_finite(module: Module, seed: int = 0) -> Session:
    """A session that knows which operations make the NaN and infinities of the outputs, on generated inputs.

    Raises UsageError where all outputs are finite, and as `explain_nonfinite` does.
    """
    report = explain_nonfinite(module, Session(module).inputs({}, seed), seed=seed)
    if not report.origins:
        why = "an input or a constant is not finite from the start" if report.outputs else "all outputs are finite"
        raise UsageError(f"no operation makes NaN or an infinity of an output on the generated inputs: {why}")
    session = Session(module)
    session.nonfinite = {o.node: o.count for o in report.origins}
    return session


def split(module: Module, path: str) -> Session:
    """A session that knows how each value lies on the mesh, by the plan in a file or, for `stated`, what the program says.

    Raises UsageError and ParseError as `planned` does.
    """
    inlined, plan = planned(module, plan_text(path), path)
    session = Session(inlined)
    session.shardings = placed_values(plan)
    return session
