"""Rules of XLA's simplifier that TensorRight (Arora et al., POPL 2025) states, instantiated as programs: both sides are equivalent,
or the difference is the one that is known.

The rules are written again here, some of those of `suites/tensorright`; a rule whose title the suite no longer has fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from deepx_graph import ops
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import reduction
from deepx_graph.session.equivalence import equivalent
from deepx_graph.types import F32, I32, Type, scalar, tensor
from tests.support.paths import SHARED

SUITE = SHARED / "suites" / "tensorright" / "rules" / "xla"
X, Y, Z = tensor(I32, (4, 3)), tensor(I32, (2, 3)), tensor(I32, (3, 5))
F, S, P = tensor(F32, (4, 3)), scalar(I32), scalar(F32)
Side = Callable[..., Node]


@dataclass(frozen=True)
class Stated:
    """A rule: its title, the types of its operands, its sides, and how they differ where they do."""

    title: str
    types: tuple[Type, ...]
    left: Side
    right: Side
    differs: str = ""


def cut(b: Builder, x: Node, low: Sequence[int], high: Sequence[int], steps: Sequence[int] = (1, 1)) -> Node:
    return b(ops.slice_, x, start_indices=tuple(low), limit_indices=tuple(high), strides=tuple(steps))


def spread(b: Builder, x: Node, shape: Sequence[int], at: Sequence[int] = ()) -> Node:
    return b(ops.broadcast_in_dim, x, shape=tuple(shape), broadcast_dimensions=tuple(at))


def padded(b: Builder, x: Node, v: Node, low: Sequence[int], high: Sequence[int], gaps: Sequence[int] = (0, 0)) -> Node:
    return b(ops.pad, x, v, edge_padding_low=tuple(low), edge_padding_high=tuple(high), interior_padding=tuple(gaps))


def joined(b: Builder, *xs: Node) -> Node:
    return b(ops.concatenate, *xs, dimension=0)


def moved(b: Builder, x: Node, i: Node, j: Node, sizes: Sequence[int]) -> Node:
    return b(ops.dynamic_slice, x, i, j, slice_sizes=tuple(sizes))


def turned(b: Builder, x: Node) -> Node:
    return b(ops.transpose, x, permutation=(1, 0))


def flipped(b: Builder, x: Node, *axes: int) -> Node:
    return b(ops.reverse, x, dimensions=axes)


def total(b: Builder, x: Node, *axes: int) -> Node:
    return reduction(b, ops.add, x, axes)


def product(b: Builder, x: Node, y: Node) -> Node:
    return b(ops.dot_general, x, y, lhs_batching_dimensions=(), rhs_batching_dimensions=(), lhs_contracting_dimensions=(1,),
             rhs_contracting_dimensions=(0,))  # fmt: skip


def n(b: Builder, value: float, like: Node) -> Node:
    return b.like(value, like)


RULES = [
    Stated("Add(Add(A, c1), c2) ⇒ Add(A, Add(c1, c2))", (X,), lambda b, x: b(ops.add, b(ops.add, x, n(b, 3, x)), n(b, 4, x)),
           lambda b, x: b(ops.add, x, n(b, 7, x))),
    Stated("Add(A, 0) ⇒ A", (F,), lambda b, x: b(ops.add, x, n(b, 0, x)), lambda b, x: x, "of the zero -0.0"),
    Stated("Add(Broadcast(A), Broadcast(B)) ⇒ Broadcast(Add(A, B))", (F, F),
           lambda b, x, y: b(ops.add, spread(b, x, (2, 4, 3), (1, 2)), spread(b, y, (2, 4, 3), (1, 2))),
           lambda b, x, y: spread(b, b(ops.add, x, y), (2, 4, 3), (1, 2))),
    Stated("Transpose(Broadcast(Scalar)) ⇒ Broadcast(Scalar)", (S,), lambda b, x: turned(b, spread(b, x, (2, 3))),
           lambda b, x: spread(b, x, (3, 2))),
    Stated("Slice(Broadcast(Scalar)) ⇒ Broadcast(Scalar)", (S,), lambda b, x: cut(b, spread(b, x, (5, 4)), (1, 0), (4, 4), (2, 1)),
           lambda b, x: spread(b, x, (2, 4))),
    Stated("Clamp(c1, Clamp(c1, A, c2), c2) ⇒ Clamp(c1, A, c2)", (F,),
           lambda b, x: b(ops.clamp, n(b, -1, x), b(ops.clamp, n(b, -1, x), x, n(b, 2, x)), n(b, 2, x)),
           lambda b, x: b(ops.clamp, n(b, -1, x), x, n(b, 2, x))),
    Stated("Ge(A, A) ⇒ True", (X,), lambda b, x: b(ops.compare, x, x, direction="GE"),
           lambda b, x: spread(b, b.constant(True), (4, 3))),
    Stated("Le(A, A) ⇒ True", (F,), lambda b, x: b(ops.compare, x, x, direction="LE"),
           lambda b, x: spread(b, b.constant(True), (4, 3)),
           "of NaN"),
    Stated("Concat(A, Concat(B, C)) ⇒ Concat(Concat(A, B), C)", (X, Y, X), lambda b, x, y, z: joined(b, x, joined(b, y, z)),
           lambda b, x, y, z: joined(b, joined(b, x, y), z)),
    Stated("Concat(Slice(A), Slice(A)) ⇒ Slice(A)", (X,),
           lambda b, x: joined(b, cut(b, x, (0, 1), (1, 3)), cut(b, x, (1, 1), (3, 3))),
           lambda b, x: cut(b, x, (0, 1), (3, 3))),
    Stated("Concat(Broadcast(Scalar), B) ⇒ Pad(B, scalar, low)", (S, Y), lambda b, v, y: joined(b, spread(b, v, (2, 3)), y),
           lambda b, v, y: padded(b, y, v, (2, 0), (0, 0))),
    Stated("Div(A, 1) ⇒ A", (F,), lambda b, x: b(ops.divide, x, n(b, 1, x)), lambda b, x: x),
    Stated("Divide(A, Divide(B, C)) ⇒ Divide(Mul(A, C), B)", (F, F, F), lambda b, x, y, z: b(ops.divide, x, b(ops.divide, y, z)),
           lambda b, x, y, z: b(ops.divide, b(ops.multiply, x, z), y), "of quotients that overflow, and of zeros"),
    Stated("Rem(Rem(A, B), B) ⇒ Rem(A, B)", (X, X), lambda b, x, y: b(ops.remainder, b(ops.remainder, x, y), y),
           lambda b, x, y: b(ops.remainder, x, y)),
    Stated("Dot(A,Dot(B,C)) ⇒ Dot(Dot(A,B),C)", (X, Z, tensor(I32, (5, 2))), lambda b, x, y, z: product(b, x, product(b, y, z)),
           lambda b, x, y, z: product(b, product(b, x, y), z)),
    Stated("Dot(A, B) ⇒ Dot(B, A)", (X, Z), lambda b, x, y: product(b, x, y),
           lambda b, x, y: turned(b, product(b, turned(b, y), turned(b, x)))),
    Stated("DynamicSlice(A) ⇒ Slice(A)", (X,), lambda b, x: moved(b, x, b.constant(1, I32), b.constant(0, I32), (2, 3)),
           lambda b, x: cut(b, x, (1, 0), (3, 3))),
    Stated("DynamicSlice(A,...) ⇒ A // output shape is the same as input shape", (X, S, S),
           lambda b, x, i, j: moved(b, x, i, j, (4, 3)),
           lambda b, x, i, j: x),
    Stated("DynamicSlice(Transpose(A), ...) ⇒ Transpose(DynamicSlice(A, ...))", (X, S, S),
           lambda b, x, i, j: moved(b, turned(b, x), i, j, (2, 2)), lambda b, x, i, j: turned(b, moved(b, x, j, i, (2, 2)))),
    Stated("DynamicSlice(DynamicSlice(A,...),...) ⇒ DynamicSlice(A,...)", (X, S, S),
           lambda b, x, i, j: moved(b, moved(b, x, i, j, (3, 2)), j, i, (1, 1)),
           lambda b, x, i, j: moved(b, x, b(ops.add, i, j), b(ops.add, i, j), (1, 1)),
           "where a start is out of range: the proof assumes that it is not, and HLO clamps"),
    Stated("DynamicUpdateSlice(A, B, 0) ⇒ B", (X, X), lambda b, x, y: b(ops.dynamic_update_slice, x, y, n(b, 0, x), n(b, 0, x)),
           lambda b, x, y: y),
    Stated("Gt(Max(A, B), B) ⇒ Gt(A, B)", (X, X), lambda b, x, y: b(ops.compare, b(ops.maximum, x, y), y, direction="GT"),
           lambda b, x, y: b(ops.compare, x, y, direction="GT")),
    Stated("Mul(A, 0) ⇒ 0", (F,), lambda b, x: b(ops.multiply, x, n(b, 0, x)), lambda b, x: b.splat(0, F),
           "of infinities and NaN, and the sign of zero"),
    Stated("Add(Mul(A, C), Mul(B, C)) ⇒ Mul(Add(A, B), C)", (X, X, X),
           lambda b, x, y, z: b(ops.add, b(ops.multiply, x, z), b(ops.multiply, y, z)),
           lambda b, x, y, z: b(ops.multiply, b(ops.add, x, y), z)),
    Stated("Mul(Abs(A), Abs(A)) ⇒ Mul(A, A)", (F,), lambda b, x: b(ops.multiply, b(ops.abs_, x), b(ops.abs_, x)),
           lambda b, x: b(ops.multiply, x, x)),
    Stated("Mul(Exp(A), Exp(B)) ⇒ Exp(Add(A, B))", (F, F),
           lambda b, x, y: b(ops.multiply, b(ops.exponential, x), b(ops.exponential, y)),
           lambda b, x, y: b(ops.exponential, b(ops.add, x, y)), "of factors that overflow"),
    Stated("Negate(Negate(A)) ⇒ A", (F,), lambda b, x: b(ops.negate, b(ops.negate, x)), lambda b, x: x),
    Stated("Pad(A, val, negative_negative) ⇒ Slice(Pad(A, val, 0_0), abs(negative),negative+size)", (X, S),
           lambda b, x, v: padded(b, x, v, (-1, 0), (-1, 0)),
           lambda b, x, v: cut(b, padded(b, x, v, (0, 0), (0, 0)), (1, 0), (3, 3))),
    Stated("Reduce(Concat(Reduce(X), Reduce(Y))) ⇒ Reduce(Concat(X,Y))", (X, Y),
           lambda b, x, y: total(b, joined(b, spread(b, total(b, x, 0), (1, 3), (1,)), spread(b, total(b, y, 0), (1, 3), (1,))), 0),
           lambda b, x, y: total(b, joined(b, x, y), 0)),
    Stated("Reduce(Relabel(X)) ⇒ Relabel(Reduce(X))", (X,), lambda b, x: total(b, turned(b, x), 1), lambda b, x: total(b, x, 0)),
    Stated("Reduce(Reduce(X)) ⇒ Reduce(X)", (F,), lambda b, x: total(b, total(b, x, 0), 0), lambda b, x: total(b, x, 0, 1)),
    Stated("Reverse(Reverse(A, dims1), dims2) ⇒ Reverse(A, disjoint union of dims1 and dims2)", (X,),
           lambda b, x: flipped(b, flipped(b, x, 0), 1), lambda b, x: flipped(b, x, 0, 1)),
    Stated("Slice(Pad(A, v)) ⇒ Slice(A)", (X, S), lambda b, x, v: cut(b, padded(b, x, v, (1, 2), (0, 1)), (2, 2), (5, 4)),
           lambda b, x, v: cut(b, x, (1, 0), (4, 2))),
    Stated("Slice(Slice(A)) ⇒ Slice(A)", (X,), lambda b, x: cut(b, cut(b, x, (1, 0), (4, 3), (2, 1)), (0, 1), (2, 3), (1, 2)),
           lambda b, x: cut(b, x, (1, 1), (4, 3), (2, 2))),
    Stated("Slice(Concat(A, B)) ⇒ Slice(B)", (X, Y), lambda b, x, y: cut(b, joined(b, x, y), (4, 0), (5, 3)),
           lambda b, x, y: cut(b, y, (0, 0), (1, 3))),
    Stated("Sub(A, A) ⇒ 0", (F,), lambda b, x: b(ops.subtract, x, x), lambda b, x: b.splat(0, F), "of infinities and NaN"),
    Stated("Sub(A, Const) ⇒ Add(A, Neg(Const))", (F,), lambda b, x: b(ops.subtract, x, n(b, 3, x)),
           lambda b, x: b(ops.add, x, n(b, -3, x))),
]


def program(types: Sequence[Type], side: Side) -> Module:
    b = Builder()
    return Module((b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], lambda *xs: [side(b, *xs)]),))


@pytest.mark.skipif(not SUITE.is_dir(), reason="no ../shared with TensorRight's rules here")
def test_the_titles_are_those_of_the_suite() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SUITE.glob("*/Main.hs")))
    assert [r.title for r in RULES if f'"{r.title}"' not in text] == []


@pytest.mark.parametrize("stated", RULES, ids=lambda r: r.title)
def test_both_sides_are_equivalent_or_differ_as_is_known(stated: Stated) -> None:
    found = equivalent(program(stated.types, stated.left), program(stated.types, stated.right), count=20)
    assert bool(found) is not bool(stated.differs), found
