if __name__ != "deepx_graph.passes":
    raise ImportError("import deepx_graph.passes: this folder is a part of the deepx_graph package")
"""Passes: what maps a module to a better one, or to another one such as its gradient.

`REGISTRY` is the table of them all by name; the module of a pass is imported when the pass is first asked for. `pipeline` runs
pipelines. To add a pass: write its module, add a row to `MODULES`.
"""

from collections.abc import Iterator, Mapping  # noqa: E402  the guard above comes first
from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, cast  # noqa: E402

if TYPE_CHECKING:
    from deepx_graph.rewrite.base import Pass

MODULES = {
    "internalize": "interprocedural.inline",
    "inline": "interprocedural.inline",
    "partial-evaluation": "interprocedural.specialise",
    "tail-calls": "interprocedural.tail_calls",
    "promote": "interprocedural.promote",
    "sccp": "scalar.sccp",
    "unroll": "scalar.loops",
    "canonicalize": "scalar.simplify",
    "fold": "rules.fold",
    "algebra": "scalar.simplify",
    "simplify": "scalar.simplify",
    "fold-scale-axis": "scalar.simplify",
    "cse": "scalar.cse",
    "dce": "scalar.dce",
    "fuse": "fusion.fuse",
    "unfuse": "fusion.fuse",
    "grad": "autodiff.grad",
    "jvp": "autodiff.jvp",
    "legalise": "scalar.simplify",
    "shard": "shard",
    "delay-collectives": "delay_collectives",
}
"""The module of each pass by the pass's name, in the order in which tables show them."""


class Registry(Mapping[str, "type[Pass]"]):
    """The passes by name. Asking for the names imports nothing. `added` are those of plugins."""

    def __init__(self) -> None:
        self.added: dict[str, type[Pass]] = {}

    def __getitem__(self, name: str) -> "type[Pass]":
        if name in self.added:
            return self.added[name]
        found = vars(import_module(f"{__name__}.{MODULES[name]}")).values()
        return cast("type[Pass]", next(v for v in found if isinstance(v, type) and getattr(v, "name", None) == name))

    def __iter__(self) -> Iterator[str]:
        return iter((*MODULES, *self.added))

    def __len__(self) -> int:
        return len(MODULES) + len(self.added)


REGISTRY = Registry()
