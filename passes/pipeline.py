"""Pipelines: named ones, their text, and running them under observers.

    run_pipeline(module, parse_pipeline("default"), [Verify(), Timing()])

Passes run one after the other on whole modules; between them observers look on. A failure inside a pass that is not a user's
error is wrapped as PassError, which names the pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.errors import DeepxGraphError, Diagnostic, is_interrupt
from deepx_graph.ir import Module
from deepx_graph.passes import REGISTRY
from deepx_graph.passes.observer import Observer
from deepx_graph.passes.options import PipelineReader, format_pass
from deepx_graph.progress import stage
from deepx_graph.rewrite.base import Pass, PassError, RewriteControl

PIPELINES: dict[str, str] = {
    "default": "inline,partial-evaluation,tail-calls,inline,promote,sccp,cse,simplify,dce,fuse",
    "clean": "inline,partial-evaluation,tail-calls,inline,promote,sccp,cse,simplify,dce",
    "first-order": "internalize,inline,partial-evaluation,tail-calls,inline,promote,canonicalize,dce",
    "none": "",
}
"""Named pipelines. `default` is what `optimize` does; `clean` is the same without fusion, for reading and for gradients;
`first-order` takes closures, data, references and tail recursion away where it can, for languages that have none of them."""


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """The passes that the text names, with their options; an empty text is no pass at all.

    Raises UsageError with the place of the mistake, the nearest name, and what would be allowed there.
    """
    if not text.strip() or not PIPELINES.get(text.strip(), "-"):
        return ()
    return tuple(PipelineReader(text, REGISTRY, PIPELINES).read())


def format_pipeline(passes: Sequence[Pass]) -> str:
    """The canonical text: parsing it gives equal passes."""
    return ",".join(map(format_pass, passes))


def run_pipeline(module: Module, passes: Sequence[Pass], observers: Sequence[Observer] = (), *,
                 control: RewriteControl | None = None, limit: int | None = None) -> Module:
    """The module after all passes. `limit` allows the first so many rewrites only; `control` is for callers that count them.

    Raises PassError when a pass fails inside; errors meant for the user pass through.
    """
    listeners = tuple(o.on_rewrite for o in observers if type(o).on_rewrite is not Observer.on_rewrite)
    control = control or RewriteControl(limit)
    control.listeners += listeners
    for k, pass_ in enumerate(passes):
        stage(pass_.name, k, len(passes))
        control.pass_name = pass_.name
        for o in observers:
            o.before_pass(pass_, module)
        after = _run(pass_, module, control)
        for o in observers:
            o.after_pass(pass_, module, after)
        module = after
    return module


def _run(pass_: Pass, module: Module, control: RewriteControl) -> Module:
    try:
        return pass_.run_under(module, control)
    except PassError as e:
        raise PassError(Diagnostic(f"pass '{pass_.name}' failed"), *e.diagnostics) from e
    except DeepxGraphError:
        raise
    except Exception as e:  # the boundary between a user and our own faults
        if is_interrupt(e):
            raise
        raise PassError(Diagnostic(f"pass '{pass_.name}' failed: {type(e).__name__}: {e}")) from e
