"""A program of one operation after a language: what became of the operation's attributes."""

from __future__ import annotations

from deepx_graph.ir import Module


def check_attributes(module: Module, again: Module) -> None:
    """Where the language has the operation itself, all that its attributes say is kept, be the values the same or not."""
    op = module.entry.results[0].op
    before, after = ([n for n in m.entry.nodes if n.op is op] for m in (module, again))
    if len(after) == 1:
        found = {a.name: (x, y) for a, x, y in zip(op.attrs, before[0].attrs, after[0].attrs, strict=True) if x != y}
        assert not found, f"{op.name}: {found}"
