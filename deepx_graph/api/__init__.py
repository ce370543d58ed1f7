"""The public functions of the library, as `import deepx_graph as dx` offers them. Thin: the work is done on the floors below.

Arguments are held to their annotations, and only errors of this package leave. Engines and pictures are imported by the functions
that need them: who loads a program and looks at it needs neither.
"""

from __future__ import annotations

import copyreg
from typing import Any

from deepx_graph.api.execution import build, compile, distribute, jit, load_compiled, memory, pipeline, run
from deepx_graph.api.programs import dumps, from_jax, load, loads, to_jax, trace
from deepx_graph.api.reports import check, check_grad, diff, draw, equivalent, explain_error, explain_nan, info, why
from deepx_graph.api.transforms import bisect, custom_vjp, grad, hvp, jvp, optimize
from deepx_graph.interop import load_plugins
from deepx_graph.ir import Builder as Builder
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.provided import provide
from deepx_graph.ops.host.custom_calls import register_custom_call


def _bundle(value: object) -> dict[str, str]:
    from deepx_graph.session.show.picture import bundle

    return bundle(value)


def _find(where: Module | Function, query: str) -> list[Node]:
    from deepx_graph.session.query.language import parse_query

    return parse_query(query).nodes(where)


def _text(module: Module) -> str:
    from deepx_graph.session import programs

    return programs.dumps(module)


def _operate(name: str, *operands: Any) -> Node:
    """An operator on nodes and numbers, by the function of `dx.xp`."""
    from deepx_graph import array_api
    from deepx_graph.array_api.array import Array

    made: Array = getattr(array_api, name)(*(Array(o) if isinstance(o, Node) else o for o in operands))
    return made.node


provide(show=_bundle, find=_find, text=_text, operate=_operate)
load_plugins()


def _pickled(module: Module) -> tuple[Any, ...]:
    """A module pickles as text that reads back exactly, and what waits for inputs beside it."""
    from deepx_graph.session import pickling

    return pickling.reduced(module)


copyreg.pickle(Module, _pickled)

__all__ = [
    "bisect", "build", "check", "check_grad", "compile", "custom_vjp", "diff", "distribute", "draw", "dumps", "equivalent",
    "explain_error", "explain_nan", "from_jax", "grad", "hvp", "info", "jit", "jvp",
    "load", "load_compiled", "loads", "memory", "optimize", "pipeline", "register_custom_call", "run", "to_jax", "trace", "why",
]  # fmt: skip
