"""Rules of XLA's simplifier that TensorRight (Arora et al., POPL 2025) states, as programs: both sides, over small operands.

The rules are written again here, all of those of `suites/tensorright` under the titles that they have there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepx_graph import ops
from deepx_graph.ir import Builder, Node
from deepx_graph.ops import reduction
from deepx_graph.ops.contract.convolution import conv_attrs
from deepx_graph.types import BOOL, F32, I32, Type, scalar, tensor

X, Y, Z = tensor(I32, (4, 3)), tensor(I32, (2, 3)), tensor(I32, (3, 5))
F, S, P = tensor(F32, (4, 3)), scalar(I32), scalar(F32)
B = tensor(BOOL, (4, 3))
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


def dots(b: Builder, x: Node, y: Node, contracting: Sequence[int], batching: Sequence[int] = ()) -> Node:
    """Over the same axes of both."""
    return b(ops.dot_general, x, y, lhs_batching_dimensions=tuple(batching), rhs_batching_dimensions=tuple(batching),
             lhs_contracting_dimensions=tuple(contracting), rhs_contracting_dimensions=tuple(contracting))  # fmt: skip


def counted(b: Builder, size: int) -> Node:
    """0, 1, 2, ..."""
    return b(ops.iota, dtype=I32, shape=(size,), iota_dimension=0)


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
    # --- numbers
    *(Stated(title, (F,), lambda b, x, f=f: f(b, x), lambda b, x: x, differs) for title, f, differs in (
        ("Add(0, A) ⇒ A", lambda b, x: b(ops.add, n(b, 0, x), x), "of the zero -0.0"),
        ("Sub(A, 0) ⇒ A", lambda b, x: b(ops.subtract, x, n(b, 0, x)), ""),
        ("Mul(1, A) ⇒ A", lambda b, x: b(ops.multiply, n(b, 1, x), x), ""),
        ("Mul(A, 1) ⇒ A", lambda b, x: b(ops.multiply, x, n(b, 1, x)), ""),
        ("Max(A, -inf) ⇒ A", lambda b, x: b(ops.maximum, x, n(b, -math.inf, x)), ""),
        ("Min(A, inf) ⇒ A", lambda b, x: b(ops.minimum, x, n(b, math.inf, x)), ""),
        ("Reverse(A, dims) ⇒ A", lambda b, x: flipped(b, x), ""),
        ("Reverse(Reverse(A, dims1), dims2) ⇒ A", lambda b, x: flipped(b, flipped(b, x, 0, 1), 0, 1), ""),
        ("Transpose(A) ⇒ A", lambda b, x: b(ops.transpose, x, permutation=(0, 1)), ""),
        ("Slice(A) ⇒ A", lambda b, x: cut(b, x, (0, 0), (4, 3)), ""),
        ("Pad(A, val, 0_0_0) ⇒ A", lambda b, x: padded(b, x, b.constant(7, F32), (0, 0), (0, 0)), ""),
        ("Slice(Pad(A)) ⇒ A", lambda b, x: cut(b, padded(b, x, b.constant(7, F32), (1, 2), (3, 0)), (1, 2), (5, 5)), ""),
    )),
    Stated("Add(Const, A) ⇒ Add(A, Const)", (F,), lambda b, x: b(ops.add, n(b, 3, x), x), lambda b, x: b(ops.add, x, n(b, 3, x))),
    Stated("Mul(0, A) ⇒ 0", (F,), lambda b, x: b(ops.multiply, n(b, 0, x), x), lambda b, x: b.splat(0, F),
           "of infinities and NaN, and the sign of zero"),
    Stated("Mul(Broadcast(A), Broadcast(B)) ⇒ Broadcast(Mul(A, B))", (F, F),
           lambda b, x, y: b(ops.multiply, spread(b, x, (2, 4, 3), (1, 2)), spread(b, y, (2, 4, 3), (1, 2))),
           lambda b, x, y: spread(b, b(ops.multiply, x, y), (2, 4, 3), (1, 2))),
    Stated("Mul(Mul(A, Const1), Broadcast(B)) ⇒ Mul(Broadcast(Mul(B, Const1), A))", (X, S),
           lambda b, x, y: b(ops.multiply, b(ops.multiply, x, n(b, 3, x)), spread(b, y, (4, 3))),
           lambda b, x, y: b(ops.multiply, spread(b, b(ops.multiply, y, n(b, 3, y)), (4, 3)), x)),
    Stated("Mul(Mul(A, Const1), Const2) ⇒ Mul(A, Mul(Const1, Const2))", (X,),
           lambda b, x: b(ops.multiply, b(ops.multiply, x, n(b, 3, x)), n(b, 5, x)), lambda b, x: b(ops.multiply, x, n(b, 15, x))),
    Stated("Mul(Mul(A, Const1), Mul(B, Const2)) ⇒ Mul(Mul(A, B), Mul(Const1, Const2))", (X, X),
           lambda b, x, y: b(ops.multiply, b(ops.multiply, x, n(b, 3, x)), b(ops.multiply, y, n(b, 5, y))),
           lambda b, x, y: b(ops.multiply, b(ops.multiply, x, y), n(b, 15, x))),
    Stated("Div(A, Const) ⇒ Mul(A, 1/Const)", (F,), lambda b, x: b(ops.divide, x, n(b, 8, x)),
           lambda b, x: b(ops.multiply, x, n(b, 0.125, x))),
    Stated("Divide(Divide(A, B), Divide(C, D)) ⇒ Divide(Mul(A, D), Mul(B, C))", (F, F, F, F),
           lambda b, x, y, z, w: b(ops.divide, b(ops.divide, x, y), b(ops.divide, z, w)),
           lambda b, x, y, z, w: b(ops.divide, b(ops.multiply, x, w), b(ops.multiply, y, z)),
           "of quotients that overflow, and of zeros"),
    Stated("Rem(Iota, Const) ⇒ Iota", (S,), lambda b, i: b(ops.add, b(ops.remainder, counted(b, 5), b.constant(5, I32)), i),
           lambda b, i: b(ops.add, counted(b, 5), i)),
    Stated("Rem(Add(Iota, Const), Const) ⇒ Rem(Iota, Const)", (S,),
           lambda b, i: b(ops.add, b(ops.remainder, b(ops.add, counted(b, 9), b.constant(4, I32)), b.constant(4, I32)), i),
           lambda b, i: b(ops.add, b(ops.remainder, counted(b, 9), b.constant(4, I32)), i)),
    Stated("Rem(Add(X, Const), Const) ⇒ Rem(X, Const)", (S,),
           lambda b, i: b(ops.add, b(ops.remainder, b(ops.add, b.constant(7, I32), b.constant(4, I32)), b.constant(4, I32)), i),
           lambda b, i: b(ops.add, b(ops.remainder, b.constant(7, I32), b.constant(4, I32)), i)),
    # --- order and truth
    *(Stated(f"{title}(A, A) ⇒ {value}", (kind,), lambda b, x, d=direction: b(ops.compare, x, x, direction=d),
             lambda b, x, v=value: b.splat(v, B), differs) for title, direction, kind, value, differs in (
        ("Eqv", "EQ", F, True, "of NaN"), ("Gt", "GT", F, False, ""), ("Lt", "LT", F, False, ""), ("Ne", "NE", F, False, "of NaN"),
    )),
    Stated("Gt(Max(A, B), A) ⇒ Gt(B, A)", (F, F), lambda b, x, y: b(ops.compare, b(ops.maximum, x, y), x, direction="GT"),
           lambda b, x, y: b(ops.compare, y, x, direction="GT")),
    Stated("And(A < Const, Const1 > A) ⇒ Lt(A, min(Const, Const1))", (F,),
           lambda b, x: b(ops.and_, b(ops.compare, x, n(b, 2, x), direction="LT"), b(ops.compare, n(b, 1, x), x, direction="GT")),
           lambda b, x: b(ops.compare, x, b(ops.minimum, n(b, 2, x), n(b, 1, x)), direction="LT")),
    *(Stated(title, (F, P, P), lambda b, x, low, high: b(ops.maximum, low, b(ops.minimum, x, high)),
             lambda b, x, low, high: b(ops.clamp, low, x, high), "where the bounds cross, and of NaN: HLO's clamp says otherwise")
      for title in ("Max(Broadcast(c1), Min(A, Broadcast(c2))) ⇒ Clamp(c1, A, c2)",)),
    Stated("Min(Broadcast(c1), Max(A, Broadcast(c2))) ⇒ Clamp(c1, A, c2)", (F,),
           lambda b, x: b(ops.minimum, n(b, 2, x), b(ops.maximum, x, n(b, -1, x))),
           lambda b, x: b(ops.clamp, n(b, -1, x), x, n(b, 2, x))),
    *(Stated(title, (B,), lambda b, x, f=f: f(b, x), lambda b, x, g=g: g(b, x)) for title, f, g in (
        ("And(0, A) ⇒ 0", lambda b, x: b(ops.and_, n(b, False, x), x), lambda b, x: b.splat(False, B)),
        ("And(A, 0) ⇒ 0", lambda b, x: b(ops.and_, x, n(b, False, x)), lambda b, x: b.splat(False, B)),
        ("And(1, A) ⇒ A", lambda b, x: b(ops.and_, n(b, True, x), x), lambda b, x: x),
        ("And(A, 1) ⇒ A", lambda b, x: b(ops.and_, x, n(b, True, x)), lambda b, x: x),
        ("Or(A, False) ⇒ A", lambda b, x: b(ops.or_, x, n(b, False, x)), lambda b, x: x),
        ("Or(False, A) ⇒ A", lambda b, x: b(ops.or_, n(b, False, x), x), lambda b, x: x),
        ("Or(A, True) ⇒ True", lambda b, x: b(ops.or_, x, n(b, True, x)), lambda b, x: b.splat(True, B)),
        ("Or(True, A) ⇒ True", lambda b, x: b(ops.or_, n(b, True, x), x), lambda b, x: b.splat(True, B)),
        ("Not(Not(A)) ⇒ A", lambda b, x: b(ops.not_, b(ops.not_, x)), lambda b, x: x),
    )),
    Stated("Select(False, A, B) ⇒ B", (F, F), lambda b, x, y: b(ops.select, b.constant(False), x, y), lambda b, x, y: y),
    Stated("Select(True, A, B) ⇒ A", (F, F), lambda b, x, y: b(ops.select, b.constant(True), x, y), lambda b, x, y: x),
    Stated("Select(P, A, A) ⇒ A", (B, F), lambda b, p, x: b(ops.select, p, x, x), lambda b, p, x: x),
    Stated("Select(Not(P), A, B) ⇒ Select(P, B, A)", (B, F, F), lambda b, p, x, y: b(ops.select, b(ops.not_, p), x, y),
           lambda b, p, x, y: b(ops.select, p, y, x)),
    # --- places
    Stated("Broadcast(Broadcast(A, shape, dims), shape2, dims2) ⇒ Broadcast(A, shape3, dims3)", (tensor(I32, (4,)),),
           lambda b, x: spread(b, spread(b, x, (4, 3), (0,)), (2, 4, 3), (1, 2)), lambda b, x: spread(b, x, (2, 4, 3), (1,))),
    Stated("Broadcast(Iota) ⇒ Iota", (S,), lambda b, i: b(ops.add, spread(b, counted(b, 5), (2, 5), (1,)), i),
           lambda b, i: b(ops.add, b(ops.iota, dtype=I32, shape=(2, 5), iota_dimension=1), i)),
    Stated("Iota ⇒ Zero", (S,), lambda b, i: b(ops.add, b(ops.iota, dtype=I32, shape=(1, 5), iota_dimension=0), i),
           lambda b, i: b(ops.add, b.splat(0, tensor(I32, (1, 5))), i)),
    Stated("Concat(A, Broadcast(Scalar)) ⇒ Pad(A, scalar, high)", (Y, S), lambda b, y, v: joined(b, y, spread(b, v, (2, 3))),
           lambda b, y, v: padded(b, y, v, (0, 0), (2, 0))),
    Stated("Concat(A, Concat(B, C)) ⇒ ConcatList(A, B, C)", (X, Y, X), lambda b, x, y, z: joined(b, x, joined(b, y, z)),
           lambda b, x, y, z: joined(b, x, y, z)),
    Stated("ConcatList(A, B, C) ⇒ Concat(A, Concat(B, C))", (X, Y, X), lambda b, x, y, z: joined(b, x, y, z),
           lambda b, x, y, z: joined(b, x, joined(b, y, z))),
    Stated("ConcatList(A, B) ⇒ Concat(A, B)", (X, Y), lambda b, x, y: joined(b, x, y), lambda b, x, y: joined(b, x, y)),
    Stated("DynamicSlice(Broadcast(A), ...) ⇒ Broadcast(DynamicSlice(A, ...))", (tensor(I32, (3,)), S, S),
           lambda b, x, i, j: moved(b, spread(b, x, (4, 3), (1,)), i, j, (2, 2)),
           lambda b, x, i, j: spread(b, b(ops.dynamic_slice, x, j, slice_sizes=(2,)), (2, 2), (1,))),
    Stated("DynamicSlice(Broadcast(Scalar)) ⇒ Broadcast(Scalar)", (S, S, S),
           lambda b, v, i, j: moved(b, spread(b, v, (4, 3)), i, j, (2, 2)), lambda b, v, i, j: spread(b, v, (2, 2))),
    Stated("DynamicSlice(Iota) ⇒ index", (S,), lambda b, i: b(ops.dynamic_slice, counted(b, 5), i, slice_sizes=(1,)),
           lambda b, i: b(ops.reshape, i, shape=(1,)), "where the index is out of range: HLO clamps it"),
    Stated("Add(A, DynamicUpdateSlice(Broadcast(0), B) ⇒ DynamicUpdateSlice(A,...)", (X, Y, S, S),
           lambda b, x, y, i, j: b(ops.add, x, b(ops.dynamic_update_slice, b.splat(0, X), y, i, j)),
           lambda b, x, y, i, j: b(ops.dynamic_update_slice, x, b(ops.add, y, moved(b, x, i, j, (2, 3))), i, j)),
    Stated("DynamicUpdateSlice(A, DynamicUpdateSlice(DynamicSlice(A, ...), B, ...), ...)) ⇒ DynamicUpdateSlice(A, B, ...)",
           (X, tensor(I32, (1, 1)), S, S),
           lambda b, x, y, i, j: b(ops.dynamic_update_slice, x,
                                   b(ops.dynamic_update_slice, moved(b, x, i, j, (2, 2)), y, j, i), i, j),
           lambda b, x, y, i, j: b(ops.dynamic_update_slice, x, y, b(ops.add, i, j), b(ops.add, i, j)),
           "where a start is out of range: HLO clamps each of them"),
    Stated("DynamicUpdateSlice(Broadcast(Const),A,...) ⇒ Pad(", (Y,),
           lambda b, y: b(ops.dynamic_update_slice, b.splat(7, X), y, b.constant(1, I32), b.constant(0, I32)),
           lambda b, y: padded(b, y, b.constant(7, I32), (1, 0), (1, 0))),
    Stated("Pad(A, val, low_int_high) ⇒ Pad(A, val, low_0_high)", (tensor(I32, (4, 1)), S),
           lambda b, x, v: padded(b, x, v, (1, 2), (0, 1), (1, 2)), lambda b, x, v: padded(b, x, v, (1, 2), (0, 1), (1, 0))),
    Stated("Pad(Broadcast(A), v, low_0_0) ⇒ Broadcast(Pad(Broadcast(A), v))", (tensor(I32, (4,)), S),
           lambda b, x, v: padded(b, spread(b, x, (4, 3), (0,)), v, (1, 0), (2, 0), (1, 0)),
           lambda b, x, v: spread(b, b(ops.pad, x, v, edge_padding_low=(1,), edge_padding_high=(2,), interior_padding=(1,)),
                                  (10, 3), (0,))),
    Stated("Reverse(Binary(A, Const)) ⇒ Binary(Reverse(A), Const)", (X,), lambda b, x: flipped(b, b(ops.add, x, n(b, 3, x)), 0),
           lambda b, x: b(ops.add, flipped(b, x, 0), n(b, 3, x))),
    Stated("Reverse(Broadcast(Scalar)) ⇒ Broadcast(Scalar)", (S,), lambda b, v: flipped(b, spread(b, v, (2, 3)), 0, 1),
           lambda b, v: spread(b, v, (2, 3))),
    Stated("Slice(Broadcast(A)) ⇒ Broadcast(A)", (tensor(I32, (3,)),),
           lambda b, x: cut(b, spread(b, x, (5, 3), (1,)), (1, 0), (4, 3), (2, 1)), lambda b, x: spread(b, x, (2, 3), (1,))),
    Stated("Slice(Broadcast(A)) ⇒ Broadcast(Slice(A))", (tensor(I32, (3,)),),
           lambda b, x: cut(b, spread(b, x, (5, 3), (1,)), (1, 1), (4, 3)),
           lambda b, x: spread(b, b(ops.slice_, x, start_indices=(1,), limit_indices=(3,), strides=(1,)), (3, 2), (1,))),
    Stated("Slice(Concat(A, B)) ⇒ Slice(A)", (X, Y), lambda b, x, y: cut(b, joined(b, x, y), (1, 0), (4, 3), (2, 1)),
           lambda b, x, y: cut(b, x, (1, 0), (4, 3), (2, 1))),
    Stated("Slice(Concat(A, B), A.size, A.size + B.size) ⇒ B", (X, Y), lambda b, x, y: cut(b, joined(b, x, y), (4, 0), (6, 3)),
           lambda b, x, y: y),
    Stated("Slice(Concat(A, B, C)) ⇒ Slice(Concat(B, C))", (X, Y, X),
           lambda b, x, y, z: cut(b, joined(b, x, y, z), (5, 0), (9, 3), (2, 1)),
           lambda b, x, y, z: cut(b, joined(b, y, z), (1, 0), (5, 3), (2, 1))),
    Stated("Slice(Const) ⇒ Const", (S,), lambda b, i: b(ops.add, cut(b, b.splat(7, X), (1, 0), (3, 2)), i),
           lambda b, i: b(ops.add, b.splat(7, tensor(I32, (2, 2))), i)),
    Stated("Slice(Pad(A, v)) ⇒ Broadcast(v)", (X, S), lambda b, x, v: cut(b, padded(b, x, v, (3, 0), (0, 0)), (0, 0), (2, 3)),
           lambda b, x, v: spread(b, v, (2, 3))),
    Stated("Slice(Reverse(A, dims), start, stride, end) ⇒ Reverse(Slice(A, ...), dims)", (X,),
           lambda b, x: cut(b, flipped(b, x, 0), (0, 1), (3, 3), (2, 1)),
           lambda b, x: flipped(b, cut(b, x, (1, 1), (4, 3), (2, 1)), 0)),
    Stated("Transpose(Transpose(A)) ⇒ Transpose(A)", (tensor(I32, (2, 4, 3)),),
           lambda b, x: b(ops.transpose, b(ops.transpose, x, permutation=(1, 2, 0)), permutation=(0, 2, 1)),
           lambda b, x: b(ops.transpose, x, permutation=(1, 0, 2))),
    # --- sums
    Stated("Const * Reduce(X) ⇒ Reduce(Const * X)", (X,), lambda b, x: b(ops.multiply, b.constant(3, I32), total(b, x, 0)),
           lambda b, x: total(b, b(ops.multiply, b.constant(3, I32), x), 0)),
    Stated("Mul(Reduce(X), Reduce(Y)) ⇒ Reduce(Mul(Broadcast(X), Broadcast(Y)))", (tensor(I32, (4,)), tensor(I32, (3,))),
           lambda b, x, y: b(ops.multiply, total(b, x, 0), total(b, y, 0)),
           lambda b, x, y: total(b, b(ops.multiply, spread(b, x, (4, 3), (0,)), spread(b, y, (4, 3), (1,))), 0, 1)),
    Stated("Reduce(X) ⇒ ReshapeDegenerate(X)", (tensor(I32, (1, 3)),), lambda b, x: total(b, x, 0),
           lambda b, x: b(ops.reshape, x, shape=(3,))),
    Stated("Reduce(Dot(X,Y)) ⇒ Dot(X,Y)", (tensor(I32, (3, 2, 4)), tensor(I32, (3, 2, 5))),
           lambda b, x, y: total(b, dots(b, x, y, (0,), (1,)), 0), lambda b, x, y: dots(b, x, y, (0, 1))),
    Stated("Dot(A,B) ⇒ 0 when one of the dimensions is 0", (tensor(F32, (4, 0)), tensor(F32, (0, 3))),
           lambda b, x, y: product(b, x, y), lambda b, x, y: b.splat(0, F)),
    Stated("Dot(A,B) ⇒ Mul(Broadcast(A), Broadcast(B)) when no contraction", (X, tensor(I32, (4, 5))),
           lambda b, x, y: dots(b, x, y, (), (0,)),
           lambda b, x, y: b(ops.multiply, spread(b, x, (4, 3, 5), (0, 1)), spread(b, y, (4, 3, 5), (0, 2)))),
    Stated("Dot(A,B) ⇒ Reduce(Mul(Broadcast(Transpose(A)), Broadcast(Transpose(B)))) ", (X, Z), lambda b, x, y: product(b, x, y),
           lambda b, x, y: total(b, b(ops.multiply, spread(b, turned(b, x), (3, 4, 5), (0, 1)),
                                      spread(b, y, (3, 4, 5), (0, 2))), 0)),
    Stated("Conv(A,B) ⇒ Dot(A, B)", (X, Z), lambda b, x, y: b(ops.convolution, x, turned(b, y), **conv_attrs(0)),
           lambda b, x, y: product(b, x, y)),
]
