"""Random small expressions that a rewrite rule may apply to.

`Draw` makes leaves, attribute values that fit given operands, and nodes of any op over them; `instance` makes an expression in the
shape of one rule: the rule's own pattern where it has one, else a root that it looks at over operands that it looks for. Dtypes go
from bool to complex, ranks from 0 to 4, axes are equal and distinct, of size 0 and 1, and constants are those that rules ask for:
identities, signed zeros, powers of two up to the ends of the type, extremes, NaN.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.structure import CALL_VALUE, CONSTANT, REGION, TUPLE
from deepx_graph.ops import (
    OPS,
    add,
    and_,
    broadcast_in_dim,
    clamp,
    compare,
    concatenate,
    construct,
    convert,
    dot_general,
    ensure_type,
    field,
    get_dimension_size,
    identity,
    iota,
    maximum,
    minimum,
    multiply,
    not_,
    or_,
    pad,
    reduce,
    reduce_precision,
    reshape,
    reverse,
    select,
    slice_,
    sort,
    subtract,
    tag,
    transpose,
)
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.rewrite.engine import InterningBuilder, Rule
from deepx_graph.rewrite.pattern import Const, OpPattern, Pattern, Var
from deepx_graph.types import (
    BF16,
    BOOL,
    C64,
    F8E4M3FN,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    U32,
    DataType,
    DType,
    TensorType,
    scalar,
    tensor,
)

DTYPES = (BOOL, I8, I32, I64, U8, U32, F8E4M3FN, F16, BF16, F32, F64, C64)
SIZES = (1, 2, 2, 3, 3, 4)
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


class NoInstance(Exception):
    """The draw does not make an expression: the operands do not fit each other."""


def type_of(node: Node) -> TensorType:
    if not isinstance(node.type, TensorType):
        raise NoInstance
    return node.type


class Draw:
    """Draws expressions. Equal requests are one node, as where rules are applied."""

    def __init__(self, rng: random.Random, *, tame: bool = False) -> None:
        self.rng, self.tame = rng, tame
        self.b = InterningBuilder()
        self.params: list[Node] = []

    # --- leaves

    def dtype(self) -> DType:
        return self.rng.choice(DTYPES)

    def shape(self) -> tuple[int, ...]:
        rank = self.rng.choice((0, 1, 1, 2, 2, 3, 3, 4))
        shape = [self.rng.choice(SIZES if rank > 1 else (1, 5, 9)) for _ in range(rank)]
        if rank and self.rng.random() < 0.1:
            shape[self.rng.randrange(rank)] = 0
        return tuple(shape)

    def param(self, type: TensorType) -> Node:
        node = self.b.param(len(self.params), type, f"x{len(self.params)}")
        self.params.append(node)
        return node

    def leaf(self, type: TensorType, constants: float = 0.2) -> Node:
        """A parameter, sometimes the one before, or a constant, whole or scalar."""
        if self.rng.random() < constants:
            return self.constant(type)
        known = [p for p in self.params if p.type == type]
        return self.rng.choice(known) if known and self.rng.random() < 0.4 else self.param(type)

    def number(self, dtype: DType) -> Any:
        return self.rng.choice((1, 2, 3) if self.tame and dtype is not BOOL else numbers(dtype))

    def constant(self, type: TensorType) -> Node:
        """Mostly of one value; sometimes a scalar that stands for all elements, sometimes different values."""
        if self.rng.random() < 0.3:
            type = scalar(type.dtype)
        if self.rng.random() < 0.8:
            return self.b.splat(self.number(type.dtype), type)
        values = [self.number(type.dtype) for _ in range(math.prod(type.shape))]
        return self.b.constant(np.array(values, dtype=object).astype(type.dtype.np).reshape(type.shape))

    # --- attributes and operands that fit

    def axes(self, rank: int, low: int = 0) -> tuple[int, ...]:
        """Some axes, in order."""
        count = self.rng.randint(min(low, rank), rank)
        return tuple(sorted(self.rng.sample(range(rank), count)))

    def permutation(self, rank: int) -> tuple[int, ...]:
        return tuple(self.rng.sample(range(rank), rank))

    def each(self, rank: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(self.rng.randint(low, high) for _ in range(rank))

    def node(self, op: Op, operands: Sequence[Node], attrs: dict[str, Any]) -> Node:
        try:
            return self.b(op, *operands, **attrs)
        except (InferError, VerifyError, ValueError, OverflowError, LookupError):
            raise NoInstance from None

    def over(self, op: Op, given: Sequence[Node | None], fixed: dict[str, Any] | None = None) -> Node:
        """A node of the op with the operands given (None: to be drawn) and attribute values that fit them."""
        first = next((g for g in given if g is not None), None)
        if op in FITTING:
            return FITTING[op](self, op, first if first is not None else self.param(self.type()), given, fixed or {})
        if op.attrs or any(o.variadic for o in op.operands):
            raise NoInstance
        like = type_of(first) if first is not None else self.type()
        return self.node(op, [g if g is not None else self.sibling(like) for g in given], {})

    def type(self) -> TensorType:
        return tensor(self.dtype(), self.shape())

    def sibling(self, type: TensorType) -> Node:
        """Another operand beside one of that type: of the same shape, or a scalar."""
        return self.leaf(scalar(type.dtype) if self.rng.random() < 0.15 else type)


def numbers(dtype: DType) -> list[Any]:
    """What constants are made of: identities, absorbers, signed zeros, powers of two to the ends of the type, extremes."""
    if dtype is BOOL:
        return [False, True]
    if dtype.is_integer:
        info = ml_dtypes.iinfo(dtype.np)
        some = [0, 1, 2, 3, 4, 8, -1, -2, -4, info.max, info.min, info.max // 2 + 1]
        return [n for n in some if info.min <= n <= info.max]
    if dtype.kind == "complex":
        return [0, 1, -1, 2, 1j, -2 + 1j, complex(0.0, -0.0)]
    info = ml_dtypes.finfo(dtype.np)
    least, most = int(info.minexp), int(info.maxexp)
    powers = [2.0**k for k in (least, least - 1, least - 3, least + 1, -least - 1, most - 1, most - 2, 3, -3)]
    wild = [0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 0.5, -0.5, math.inf, -math.inf, math.nan]
    return [*wild, *powers, *(-p for p in powers[:3])]


# --- ops whose attributes or operands must fit each other


Fit = Callable[[Draw, Op, Node, Sequence["Node | None"], dict[str, Any]], Node]


def _attributes(draw: Callable[[Draw, TensorType], dict[str, Any]]) -> Fit:
    """For an op of one operand: attribute values for its type."""

    def fit(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
        return d.node(op, [x], {**draw(d, type_of(x)), **fixed})

    return fit


def _broadcast(d: Draw, t: TensorType) -> dict[str, Any]:
    rank = len(t.shape) + d.rng.choice((0, 0, 1, 2))
    at = sorted(d.rng.sample(range(rank), len(t.shape)))
    if d.rng.random() < 0.3:
        d.rng.shuffle(at)
    shape = [d.rng.choice((1, 2, 3)) for _ in range(rank)]
    for size, place in zip(t.shape, at, strict=True):
        shape[place] = shape[place] if size == 1 and d.rng.random() < 0.5 else size
    if math.prod(shape) > 400:
        raise NoInstance
    return {"shape": tuple(shape), "broadcast_dimensions": tuple(at)}


def _reshape(d: Draw, t: TensorType) -> dict[str, Any]:
    kept = [s for s in t.shape if s != 1 or d.rng.random() < 0.5]
    for _ in range(d.rng.randint(0, 2)):
        kept.insert(d.rng.randint(0, len(kept)), 1)
    flat = (math.prod(t.shape),)
    return {"shape": d.rng.choice((tuple(kept), tuple(kept), flat, t.shape, t.shape[::-1]))}


def _slice(d: Draw, t: TensorType) -> dict[str, Any]:
    whole = d.rng.random() < 0.2
    start = tuple(0 if whole else d.rng.randint(0, s) for s in t.shape)
    limit = tuple(n if whole else d.rng.randint(s, n) for s, n in zip(start, t.shape, strict=True))
    strides = tuple(1 if whole else d.rng.choice((1, 1, 2)) for _ in t.shape)
    return {"start_indices": start, "limit_indices": limit, "strides": strides}


def _pad(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
    rank = len(type_of(x).shape)
    low, gap = d.rng.choice(((0, 0), (0, 1), (-1, 0))), d.rng.choice((0, 0, 1))
    attrs = {"edge_padding_low": d.each(rank, *low), "edge_padding_high": d.each(rank, *low),
             "interior_padding": d.each(rank, 0, gap)}  # fmt: skip
    return d.node(op, [x, d.leaf(scalar(type_of(x).dtype))], {**attrs, **fixed})


def _compare(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
    operands = [g if g is not None else d.sibling(type_of(x)) for g in given]
    return d.node(op, operands, {"direction": d.rng.choice(DIRECTIONS), **fixed})


def _select(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
    pred, *sides = given
    known = next((s for s in sides if s is not None), None)
    like = type_of(known) if known is not None else tensor(d.dtype(), type_of(x).dims)
    pred = pred if pred is not None else d.sibling(tensor(BOOL, like.dims))
    return d.node(op, [pred, *(s if s is not None else d.leaf(like, 0.4) for s in sides)], fixed)


def _clamp(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
    return d.node(op, [g if g is not None else d.sibling(type_of(x)) for g in given], fixed)


def _concatenate(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
    t = type_of(x)
    if not t.shape:
        raise NoInstance
    axis = d.rng.randrange(len(t.shape))
    others = []
    for _ in range(d.rng.randint(0, 2)):
        shape = (*t.shape[:axis], d.rng.choice((0, 1, 2)), *t.shape[axis + 1 :])
        others.append(d.leaf(tensor(t.dtype, shape), 0.1))
    parts = [x, *others]
    d.rng.shuffle(parts)
    whole = [d.b(broadcast_in_dim, p, shape=t.shape, broadcast_dimensions=()) if not type_of(p).shape else p for p in parts]
    return d.node(op, whole, {"dimension": axis, **fixed})


def _reduce(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
    t = type_of(x)
    monoid = d.rng.choice((or_, and_) if t.dtype is BOOL else (add, multiply, maximum, minimum))
    if t.dtype.kind == "complex" and monoid in (maximum, minimum):
        raise NoInstance
    ones = [k for k, s in enumerate(t.shape) if s == 1]
    axes = tuple(ones) if ones and d.rng.random() < 0.6 else d.axes(len(t.shape), 1)
    return d.node(op, [x, d.leaf(scalar(t.dtype), 0.5)], {"dimensions": axes, "body": monoid_body(monoid, t.dtype), **fixed})


def _dot(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
    """Any axes of the one operand may be batch, contracted or free, also several of a kind; the other has them in any order."""
    t = type_of(x)
    kinds = [d.rng.choice("bcf") for _ in t.shape]
    sizes = [(k, s) for k, s in zip(kinds, t.shape, strict=True) if k != "f"]
    sizes += [("f", d.rng.choice((1, 2, 3))) for _ in range(d.rng.randint(0, 3))]
    order = d.permutation(len(sizes))
    other = d.leaf(tensor(t.dtype, tuple(sizes[k][1] for k in order)), 0)
    mine = {k: [a for a, kind in enumerate(kinds) if kind == k] for k in "bc"}
    theirs = {k: [order.index(j) for j, (kind, _) in enumerate(sizes) if kind == k] for k in "bc"}
    left, right = (mine, theirs) if d.rng.random() < 0.5 else (theirs, mine)
    attrs = {"lhs_batching_dimensions": tuple(left["b"]), "rhs_batching_dimensions": tuple(right["b"]),
             "lhs_contracting_dimensions": tuple(left["c"]), "rhs_contracting_dimensions": tuple(right["c"])}
    return d.node(op, (x, other) if left is mine else (other, x), {**attrs, **fixed})


def _sort(d: Draw, op: Op, x: Node, given: Sequence[Node | None], fixed: dict[str, Any]) -> Node:
    t = type_of(x)
    if not t.shape or t.dtype.kind == "complex":
        raise NoInstance
    direction = d.rng.choice(("LT", "GT"))
    b, s = Builder(), scalar(t.dtype)
    by = b.function("by", [("a", s), ("b", s)], lambda p, q: (b(compare, p, q, direction=direction),), public=False)
    return d.node(op, [x], {"dimension": d.rng.randrange(len(t.shape)), "comparator": by, **fixed})


FITTING: dict[Op, Fit] = {
    broadcast_in_dim: _attributes(_broadcast),
    reshape: _attributes(_reshape),
    slice_: _attributes(_slice),
    transpose: _attributes(lambda d, t: {"permutation": d.permutation(len(t.shape))}),
    reverse: _attributes(lambda d, t: {"dimensions": d.axes(len(t.shape))}),
    convert: _attributes(lambda d, t: {"dtype": d.dtype()}),
    ensure_type: _attributes(lambda d, t: {"type": t}),
    identity: _attributes(lambda d, t: {"role": "copy"}),
    get_dimension_size: _attributes(lambda d, t: {"dimension": d.rng.randrange(max(1, len(t.shape)))}),
    reduce_precision: _attributes(lambda d, t: {"exponent_bits": 5, "mantissa_bits": 7}),
    pad: _pad,
    compare: _compare,
    select: _select,
    clamp: _clamp,
    concatenate: _concatenate,
    reduce: _reduce,
    dot_general: _dot,
    sort: _sort,
}


# --- in the shape of a rule


def instance(r: Rule, d: Draw) -> Node:
    """A root that the rule may apply to. Raises NoInstance where the draw comes to nothing."""
    if r.name in CONTROL:
        return CONTROL[r.name](d)
    if r.pattern is not None:
        return _matching(d, r.pattern, d.type(), {})
    root = d.rng.choice(roots(r))
    count = len(root.operands)
    given: list[Node | None] = [None] * count
    given[d.rng.randrange(count)] = operand = _looked_for(d, r, root)
    if d.rng.random() < 0.5:  # another such operand, of the same shape where it can be
        beside = d.constant(type_of(operand)) if CONSTANT in r.any_operand else _again(d, operand)
        given = [g if g is not None else beside for g in given]
    return d.over(root, given)


def _again(d: Draw, node: Node) -> Node:
    """The same expression over other leaves."""
    attrs = {a.name: v for a, v in zip(node.op.attrs, node.attrs, strict=True)}
    return d.node(node.op, [d.leaf(type_of(i)) for i in node.inputs], attrs)


def roots(r: Rule) -> list[Op]:
    return [op for op in OPS.values() if r.roots(op) and op.eval is not None]


def _looked_for(d: Draw, r: Rule, root: Op) -> Node:
    """An operand of an op that the rule asks for, or of the root's kind: one or two levels over a leaf."""
    op = d.rng.choice([*r.any_operand, root])
    type = d.type()
    node = d.leaf(scalar(type.dtype) if op is broadcast_in_dim and d.rng.random() < 0.7 else type)
    if d.rng.random() < 0.3:
        node = d.over(d.rng.choice((reshape, broadcast_in_dim, transpose)), [node])
    if op is CONSTANT:
        return d.constant(type_of(node))
    if op is iota:
        shape = type_of(node).shape
        return d.node(iota, [], {"dtype": d.dtype(), "shape": shape, "iota_dimension": d.rng.randrange(max(1, len(shape)))})
    given: list[Node | None] = [None] * len(op.operands)
    given[d.rng.randrange(len(given))] = node
    if CONSTANT in r.any_operand and len(given) == 2:
        given = [node, d.constant(type_of(node))]
    return d.over(op, given)


def _matching(d: Draw, p: Pattern, type: TensorType, bound: dict[str, Node]) -> Node:
    """A node that matches the pattern; leaves are of the type, and of that of the operands beside them."""
    if isinstance(p, OpPattern):
        return _matching_op(d, p, type, bound)
    if isinstance(p, Const):
        return bound.setdefault(p.name, d.constant(type))
    if isinstance(p, Var):
        if p.name not in bound:
            bound[p.name] = d.leaf(type, 0.15)
        return bound[p.name]
    if type.dtype.is_integer and (not float(p).is_integer() or (p < 0 and type.dtype.kind == "uint")):
        raise NoInstance
    return d.b.splat(p, type if d.rng.random() < 0.7 else scalar(type.dtype))


def _matching_op(d: Draw, p: OpPattern, type: TensorType, bound: dict[str, Node]) -> Node:
    made: dict[int, Node] = {}
    for k in sorted(range(len(p.args)), key=lambda k: not isinstance(p.args[k], OpPattern)):
        like = type_of(made[min(made)]) if made else type
        if p.op is select:
            like = tensor(BOOL, like.dims) if k == 0 else tensor(type.dtype, like.dims)
        elif d.rng.random() < 0.1:
            like = scalar(like.dtype)
        made[k] = _matching(d, p.args[k], like, bound)
    return d.over(p.op, [made[k] for k in range(len(p.args))], dict(p.attrs))


# --- rules over control and data: the programs that they look at


def _selected(d: Draw, choices: Sequence[Sequence[Node]]) -> tuple[Node, ...]:
    """A branch by a bool or by a number, known or not, that has the values of the choices, some of them more than once."""
    if len({tuple(v.type for v in c) for c in choices}) > 1:
        raise NoInstance
    if d.rng.random() < 0.5:
        selector = d.rng.choice((lambda: d.param(scalar(BOOL)), lambda: d.b.constant(d.rng.random() < 0.5)))()
        sides = [d.rng.choice(choices), choices[-1]]
    else:
        selector = d.rng.choice((lambda: d.param(scalar(I32)), lambda: d.b.constant(d.rng.randint(-1, 3), I32)))()
        sides = [d.rng.choice(choices) for _ in range(d.rng.randint(1, 3))]
    return d.b.branch(selector, *sides)


def _tuples(d: Draw) -> list[Node]:
    one = d.type()
    two = d.rng.choice((one, d.type()))
    return [d.b.pack(d.leaf(one), d.leaf(two)) for _ in range(2)]


def _branch(d: Draw) -> Node:
    one, two = d.type(), d.type()
    return d.rng.choice(_selected(d, [[d.leaf(one), d.leaf(two)] for _ in range(2)]))


def _of_bools(d: Draw) -> Node:
    p, yes = d.param(scalar(BOOL)), d.rng.random() < 0.5
    return d.b.branch(p, [d.b.constant(yes)], [d.b.constant(not yes)])[0]


def _region(d: Draw, selector: Node, branches: int) -> Node:
    one, two = d.type(), d.type()
    values = [d.leaf(t) for _ in range(branches) for t in (one, two)]
    return d.node(REGION, [selector, *values], {"branches": branches})


def _of_choice(d: Draw) -> Node:
    numbers = _selected(d, [[d.b.constant(k, I32)] for k in (0, 1, 2, -1)])
    return _region(d, numbers[0], d.rng.randint(2, 3))


def _items_in_order(d: Draw) -> Node:
    known = _selected(d, [[t] for t in _tuples(d)])[0]
    items = list(d.b.items(known))
    return d.node(TUPLE, items if d.rng.random() < 0.7 else items[::-1], {})


def _not_entered(d: Draw) -> Node:
    inits = [d.leaf(d.type()), d.leaf(d.type())]
    return d.rng.choice(d.b.loop(inits, lambda phis: (d.b.constant(False), list(phis))))


def _closure(d: Draw) -> Node:
    return d.b.partial(d.rng.choice(CALLED), d.param(scalar(I32)))


def _data(d: Draw) -> Node:
    x, y = d.leaf(scalar(F32)), d.leaf(scalar(F32))
    name = d.rng.choice(("Left", "Right"))
    return d.node(construct, [x, y] if name == "Left" else [x], {"constructor": name, "type": DataType("Either")})


def _tag(d: Draw, value: Node) -> Node:
    return d.node(tag, [value], {"cases": d.rng.choice((("Left",), ("Right", "Left"), ("Right",)))})


def _field(d: Draw, value: Node) -> Node:
    return d.node(field, [value], {"constructor": "Left", "index": d.rng.randint(0, 1), "type": scalar(F32)})


def _callee(name: str, swapped: bool) -> Function:
    b, t = Builder(), scalar(I32)
    return b.function(name, [("x", t), ("y", t)], lambda x, y: (b(subtract, *((y, x) if swapped else (x, y))),), public=False)


CALLED = (_callee("less", False), _callee("more", True))
"""The functions that closures of instances are over."""

CONTROL: dict[str, Callable[[Draw], Node]] = {
    "item-of-tuple": lambda d: d.b.proj(_tuples(d)[0], d.rng.randint(0, 1)),
    "tuple-of-all-items": _items_in_order,
    "known-branch": _branch,
    "same-in-all-branches": _branch,
    "branch-of-bools": _of_bools,
    "branch-on-not": lambda d: _region(d, d.b(not_, d.param(scalar(BOOL))), 2),
    "loop-never-entered": _not_entered,
    "call-of-known-closure": lambda d: d.node(CALL_VALUE, [_closure(d), d.param(scalar(I32))], {}),
    "tag-of-known-constructor": lambda d: _tag(d, _data(d)),
    "field-of-known-value": lambda d: _field(d, _data(d)),
    "item-of-tuples": lambda d: d.b.proj(_selected(d, [[t] for t in _tuples(d)])[0], d.rng.randint(0, 1)),
    "call-of-either-closure":
        lambda d: d.node(CALL_VALUE, [_selected(d, [[_closure(d)] for _ in range(2)])[0], d.param(scalar(I32))], {}),
    "tag-of-either-value": lambda d: _tag(d, _selected(d, [[_data(d)] for _ in range(3)])[0]),
    "field-of-either-value": lambda d: _field(d, _selected(d, [[_data(d)] for _ in range(3)])[0]),
    "branch-on-a-choice-of-numbers": _of_choice,
}  # fmt: skip


def values(rng: random.Random, type: TensorType, *, tame: bool = False) -> Any:
    """An array: small numbers among the special ones; only positive small ones when it is to be tame."""
    count = math.prod(type.shape)
    if tame and not type.dtype.is_integer and type.dtype is not BOOL:
        picked: list[Any] = [rng.uniform(0.5, 2.5) for _ in range(count)]
    elif tame and type.dtype.is_integer:
        picked = [rng.randint(1, 5) for _ in range(count)]
    else:
        some = numbers(type.dtype)
        picked = [rng.choice(some) if rng.random() < 0.4 or type.dtype in (BOOL, C64) else rng.randint(0, 99) for _ in range(count)]
    with np.errstate(all="ignore"):
        return np.array(picked, dtype=object).astype(type.dtype.np).reshape(type.shape)
