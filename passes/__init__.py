if __name__ != "deepx_graph.passes":
    raise ImportError("import deepx_graph.passes: this folder is a part of the deepx_graph package")
"""Passes: what maps a module to a better one, or to another one such as its gradient.

`PASSES` is the table of them all, imported when it is first asked for; a pass's name is on its class. `manager` runs pipelines,
`rewrite` applies rules. To add a pass: write its module, add the module's name here.
"""

from typing import TYPE_CHECKING, Any  # noqa: E402  the guard above comes first

if TYPE_CHECKING:
    from deepx_graph.rewrite.base import Pass

    PASSES: tuple[type[Pass], ...]

MODULES = (
    "interprocedural.internalize", "interprocedural.inline", "interprocedural.specialise", "interprocedural.tail_calls",
    "interprocedural.promote", "scalar.sccp", "scalar.unroll", "scalar.canonicalize",
    "rules.fold", "scalar.algebra", "scalar.simplify", "scalar.cse",
    "scalar.dce", "fusion.fuse", "autodiff.grad", "autodiff.jvp",
)
"""The modules that define passes, in the order in which tables show them."""


def __getattr__(name: str) -> Any:
    if name != "PASSES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from deepx_graph.rewrite.base import Pass

    modules = [import_module(f"{__name__}.{m}") for m in MODULES]
    found = tuple(
        v for m in modules for v in vars(m).values()
        if isinstance(v, type) and issubclass(v, Pass) and v.__module__ == m.__name__
    )  # fmt: skip
    globals()["PASSES"] = found
    return found
