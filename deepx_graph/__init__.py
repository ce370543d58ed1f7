"""deepx_graph: read tensor IR as one graph, see it, shrink it, differentiate it, run it.

    import deepx_graph as dx
    m = dx.load("model.hlo")                     # or dx.loads(text), dx.trace(function, "f32[2,3]"), dx.from_jax
    m.find("op:dot_general users>1")             # nodes; print(m), dx.info(m), m.entry.nodes tell more
    best = dx.optimize(m)                        # a module again; dx.diff(m, best) says what is different
    dx.why(best)                                 # which operations are one kernel, and what kept others apart
    outputs = dx.run(m, x, y=y)                  # numpy arrays; f = dx.compile(m) to call it often
    gradient = dx.grad(m)                        # a module too: the inputs, then a cotangent for each output
    dx.draw(best, "model.svg")                   # or .html, .png, .dot
    text = dx.dumps(best, "stablehlo")

Whatever goes wrong is a `DeepxGraphError`, whose text has the place, what was expected and a hint. The `help` of each name has its
arguments, errors and an example.

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deepx_graph.version import __version__ as __version__

if TYPE_CHECKING:
    from deepx_graph import array_api as xp
    from deepx_graph.api import (
        bisect,
        build,
        check,
        check_grad,
        compile,
        custom_vjp,
        diff,
        distribute,
        draw,
        dumps,
        equivalent,
        explain_error,
        explain_nan,
        from_jax,
        grad,
        hvp,
        info,
        jit,
        jvp,
        load,
        load_compiled,
        loads,
        memory,
        optimize,
        pipeline,
        register_custom_call,
        run,
        to_jax,
        trace,
        why,
    )
    from deepx_graph.errors import (
        CheckFailed,
        DeepxGraphError,
        Diagnostic,
        LimitError,
        ParseError,
        RunError,
        UsageError,
        VerifyError,
    )
    from deepx_graph.interop.plugins import (
        register_engine,
        register_op,
        register_pass,
        register_printer,
        register_reader,
        register_rule,
        register_view,
    )
    from deepx_graph.ir import Builder, Function, Module, Node

_HOMES = {
    "deepx_graph.api": (
        "Builder", "Function", "Module", "Node", "bisect", "build", "check", "check_grad", "compile", "custom_vjp", "diff",
        "distribute", "draw", "dumps", "equivalent", "explain_error", "explain_nan", "from_jax", "grad", "hvp", "info",
        "jit", "jvp", "load", "load_compiled", "loads", "memory", "optimize", "pipeline", "register_custom_call", "run", "to_jax",
        "trace", "why",
    ),
    "deepx_graph.errors": (
        "CheckFailed", "DeepxGraphError", "Diagnostic", "LimitError", "ParseError", "RunError", "UsageError", "VerifyError",
    ),
    "deepx_graph.interop.plugins": (
        "register_engine", "register_op", "register_pass", "register_printer", "register_reader", "register_rule",
        "register_view",
    ),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Builder", "CheckFailed", "DeepxGraphError", "Diagnostic", "Function", "LimitError", "Module", "Node", "ParseError",
    "RunError", "UsageError", "VerifyError", "bisect", "build", "check", "check_grad", "compile", "custom_vjp", "diff",
    "distribute", "draw", "dumps", "equivalent", "explain_error", "explain_nan", "from_jax", "grad", "hvp", "info", "jit", "jvp",
    "load", "load_compiled", "loads", "memory", "optimize", "pipeline", "register_custom_call",
    "register_engine", "register_op", "register_pass", "register_printer", "register_reader", "register_rule", "register_view",
    "run", "to_jax", "trace", "why", "xp",
]  # fmt: skip


_MODULES = {"xp": "deepx_graph.array_api"}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF and name not in _MODULES:
        raise AttributeError(f"module 'deepx_graph' has no attribute {name!r}")
    value = import_module(_MODULES[name]) if name in _MODULES else getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__})
