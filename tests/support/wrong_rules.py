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

LOOP = """HloModule m
cond { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4] negate(x)
  z = f32[4] subtract(y, x)
  ROOT t = (s32[], f32[4]) tuple(next, z) }
ENTRY main { x = f32[4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(t), condition=cond, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1 }
"""
"""A loop in which `planted` finds a place."""


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
