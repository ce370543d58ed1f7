"""Rules that are wrong, put among those of `simplify`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deepx_graph.ir import Builder, Node
from deepx_graph.ops import negate, subtract
from deepx_graph.passes.scalar import simplify
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.pattern import X, Y, op_of


@rule(op_of(subtract, op_of(negate, X), Y))
def planted(b: Builder, x: Node, y: Node) -> Node | None:
    """-x - y = y - x, which is wrong."""
    return b(subtract, y, x)


@contextmanager
def with_rules(*rules: Rule) -> Iterator[None]:
    """The rules come first inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simplify, "ALGEBRA", (*rules, *simplify.ALGEBRA))
        yield
