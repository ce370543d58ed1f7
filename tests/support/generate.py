"""Random well-typed programs, and inputs for them.

`random_module(rng)` builds up to `max_ops` operations through `Builder`: elementwise maps, reductions, contractions, shape
operations, branches, bounded loops, calls and closures, over empty, size-1 and rank-0 shapes. `random_kernel(rng)` is a program
around one shape, near the sizes at which engines choose another loop; `random_loop(rng)` is a loop of integers. All randomness
comes from the given `random.Random`, so a seed is a program. `exact=True` leaves out what correct engines may round differently.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import (
    abs_,
    add,
    and_,
    atan2,
    broadcast_in_dim,
    ceil,
    clamp,
    compare,
    concatenate,
    convert,
    cosine,
    divide,
    dot_general,
    exponential,
    exponential_minus_one,
    floor,
    floor_mod,
    iota,
    is_finite,
    log_plus_one,
    logistic,
    maximum,
    minimum,
    multiply,
    negate,
    not_,
    or_,
    pad,
    power,
    reduction,
    reshape,
    reverse,
    rsqrt,
    select,
    sign,
    sine,
    slice_,
    sqrt,
    subtract,
    tanh,
    transpose,
    xor,
)
from deepx_graph.types import BF16, BOOL, C64, F16, F32, F64, I8, I32, I64, U8, U32, DType, TensorType, scalar, tensor
from tests.support import laws

Array = np.ndarray[Any, Any]
SHAPES: tuple[tuple[int, ...], ...] = ((), (), (1,), (3,), (4,), (2, 3), (3, 2), (2, 1, 3), (1, 3), (2, 2), (0,), (2, 0), (6,))
DTYPES: tuple[DType, ...] = (F32, F32, F64, I32, BOOL)
SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 33, 1023, 1024, 1025, 4095, 4096, 4097)
LARGE = (100_003, 200_000, 262_145)
"""Lengths around vectors, blocks and the sizes from which several threads work."""
KERNEL_DTYPES = (F32, F32, F64, F16, BF16, I8, I32, I64, U8, U32, BOOL, C64)
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
NUMBERS = (0, 1, -1, 2, 3)

UNARY: dict[str, Sequence[Any]] = {
    "float": (negate, abs_, sign, floor, ceil, sqrt),
    "int": (negate, abs_, sign, not_),
    "uint": (not_,),
    "bool": (not_,),
    "complex": (negate,),
}
TRANSCENDENTAL = (exponential, exponential_minus_one, log_plus_one, rsqrt, sine, cosine, tanh, logistic)
BINARY: dict[str, Sequence[Any]] = {
    "float": (add, subtract, multiply, divide, maximum, minimum),
    "int": (add, subtract, multiply, maximum, minimum, and_, or_, xor),
    "uint": (add, subtract, multiply, maximum, minimum, and_, or_, xor),
    "bool": (and_, or_, xor),
    "complex": (add, subtract),
}
EXACT_REDUCTIONS: dict[str, Sequence[Any]] = {
    "float": (maximum, minimum), "int": (add, maximum, minimum, multiply), "bool": (and_, or_),
    "uint": (add, maximum, minimum, multiply),
}  # fmt: skip
SMALL = 64
"""Elements up to which the sign of an extreme zero is that of the first one."""


class Generator:
    """Builds one function. `values` are the nodes in scope; every `_step` may add one."""

    def __init__(self, rng: random.Random, b: Builder, helpers: Sequence[Function], *, control: bool, exact: bool,
                 dtypes: Sequence[DType], shapes: Sequence[tuple[int, ...]]) -> None:
        self.rng, self.b, self.helpers = rng, b, helpers
        self.control, self.exact, self.dtypes, self.shapes = control, exact, dtypes, shapes
        self.values: list[Node] = []
        self.budget = 0
        self.depth = 0

    # --- choosing

    def pick(self, want: Callable[[TensorType], bool] = lambda t: True) -> Node | None:
        """A value in scope whose type is wanted, the newer ones more often."""
        found = [v for v in self.values if isinstance(v.type, TensorType) and want(v.type)]
        return found[int(len(found) * self.rng.random() ** 0.6)] if found else None

    def constant(self, type: TensorType) -> Node:
        """A constant of the type: mostly a splat of a small number, which is what rules look for."""
        number = self.rng.choice(NUMBERS)
        if type.dtype is BOOL:
            return self.b.splat(number > 0, type)
        if type.dtype.kind == "uint":
            return self.b.splat(abs(number), type)
        if self.rng.random() < 0.8:
            return self.b.splat(number * (0.5 if type.dtype.is_float and self.rng.random() < 0.3 else 1), type)
        noise = np.random.default_rng(self.rng.getrandbits(32)).integers(-3, 4, type.shape)
        return self.b.constant(noise, type.dtype)

    def of_type(self, type: TensorType) -> Node:
        """A value of exactly this type: one in scope, or made for it."""
        found = self.pick(lambda t: t == type)
        if found is not None and self.rng.random() < 0.85:
            return found
        return self.constant(type)

    def operand_for(self, type: TensorType) -> Node:
        """A second operand for an elementwise op: of the same type or, now and then, a scalar of the dtype."""
        return self.of_type(scalar(type.dtype) if self.rng.random() < 0.2 else type)

    def bool_scalar(self) -> Node:
        found = self.pick(lambda t: t.dtype is BOOL and t.dims == ())
        if found is not None and self.rng.random() < 0.7:
            return found
        x = self.pick(lambda t: t.dims == () and t.dtype is not BOOL)
        if x is None or self.rng.random() < 0.1:
            return self.b.constant(self.rng.random() < 0.5)
        return self.b(compare, x, self.of_type(x.type), direction=self.rng.choice(DIRECTIONS))  # type: ignore[arg-type]

    # --- pure steps; each gives a node or None where nothing in scope fits

    def unary(self) -> Node | None:
        x = self.pick()
        if x is None:
            return None
        kind = x.type.dtype.kind  # type: ignore[union-attr]
        ops = list(UNARY[kind])
        if kind == "float" and not self.exact:
            ops += TRANSCENDENTAL
        return self.b(self.rng.choice(ops), x)

    def binary(self) -> Node | None:
        x = self.pick()
        if x is None:
            return None
        kind = x.type.dtype.kind  # type: ignore[union-attr]
        ops = list(BINARY[kind])
        if kind == "float" and not self.exact:
            ops += (power, atan2, floor_mod)
        y = self.operand_for(x.type)  # type: ignore[arg-type]
        if self.rng.random() < 0.1:
            y = x
        inputs = (y, x) if self.rng.random() < 0.4 else (x, y)
        return self.b(self.rng.choice(ops), *inputs)

    def comparison(self) -> Node | None:
        x = self.pick()
        if x is None:
            return None
        directions = ("EQ", "NE") if x.type.dtype.kind == "complex" else DIRECTIONS  # type: ignore[union-attr]
        return self.b(compare, x, self.operand_for(x.type), direction=self.rng.choice(directions))  # type: ignore[arg-type]

    def selection(self) -> Node | None:
        x = self.pick()
        if x is None:
            return None
        p = self.operand_for(tensor(BOOL, x.type.dims))  # type: ignore[union-attr]
        return self.b(select, p, x, self.of_type(x.type))  # type: ignore[arg-type]

    def clamped(self) -> Node | None:
        x = self.pick(lambda t: t.dtype.kind in ("int", "uint", "float"))
        if x is None:
            return None
        low, high = self.b.like(0 if x.type.dtype.kind == "uint" else -1, x), self.b.like(2, x)  # type: ignore[union-attr]
        return self.b(clamp, low, x, high)

    def converted(self) -> Node | None:
        x = self.pick()
        if x is None:
            return None
        to = self.rng.choice(self.dtypes)
        if x.type.dtype.kind == "complex" and to.kind != "complex":  # type: ignore[union-attr]
            return None
        if x.type.dtype.is_float and to.is_integer:  # type: ignore[union-attr]
            x = self.b(select, self.b(is_finite, x), x, self.b.like(0, x))  # NaN has no integer
            x = self.b(clamp, self.b.like(0 if to.kind == "uint" else -100, x), x, self.b.like(100, x))
        return self.b(convert, x, dtype=to)

    def reduced(self) -> Node | None:
        x = self.pick(lambda t: bool(t.dims) and t.dtype.kind != "complex")
        if x is None:
            return None
        ops = list(EXACT_REDUCTIONS[x.type.dtype.kind])  # type: ignore[union-attr]
        if x.type.dtype.is_float and not self.exact:  # type: ignore[union-attr]
            ops += (add, multiply)
        axes = [d for d in range(len(x.type.dims)) if self.rng.random() < 0.6] or [0]  # type: ignore[union-attr,arg-type]
        total = reduction(self.b, self.rng.choice(ops), x, tuple(axes))
        if math.prod(x.type.dims) <= SMALL:  # type: ignore[union-attr,arg-type]
            return total
        return self.b(add, total, self.b.like(0, total)) if total.type.dtype.is_float else total  # type: ignore[union-attr]

    def spread(self) -> Node | None:
        """A reduction, and its result along the reduced axes again."""
        x = self.pick(lambda t: bool(t.dims) and 0 not in t.dims and t.dtype.kind != "complex")
        if x is None:
            return None
        shape = x.type.dims  # type: ignore[union-attr]
        axes = sorted(self.rng.sample(range(len(shape)), self.rng.randint(1, len(shape))))  # type: ignore[arg-type]
        total = reduction(self.b, self.rng.choice(EXACT_REDUCTIONS[x.type.dtype.kind]), x, tuple(axes))  # type: ignore[union-attr]
        if total.type.dtype.is_float:  # type: ignore[union-attr]
            total = self.b(add, total, self.b.like(0, total))  # which of -0 and +0 is the greater is a matter of their order
        self.values.append(total)
        kept = tuple(k for k in range(len(shape)) if k not in axes)  # type: ignore[arg-type]
        return self.b(broadcast_in_dim, total, shape=shape, broadcast_dimensions=kept)

    def contracted(self) -> Node | None:
        exact = self.exact
        x = self.pick(lambda t: bool(t.dims) and len(t.dims) == 2 and (t.dtype is I32 or (t.dtype.is_float and not exact)))
        if x is None:
            return None
        n = x.type.dims[1]  # type: ignore[union-attr,index]
        y = self.pick(lambda t: t.dtype is x.type.dtype and bool(t.dims) and len(t.dims) <= 2 and t.dims[0] == n)  # type: ignore[union-attr]
        if y is None:
            y = self.constant(tensor(x.type.dtype, (n, 2)))  # type: ignore[union-attr]
        return self.b(dot_general, x, y, lhs_batching_dimensions=(), rhs_batching_dimensions=(),
                      lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))

    def shaped(self) -> Node | None:
        x = self.pick()
        if x is None:
            return None
        move = self.rng.choice((self._broadcast, self._transpose, self._reshape, self._concatenate, self._slice, self._pad,
                                self._reverse))
        return move(x, x.type.dims)  # type: ignore[union-attr,arg-type]

    def _broadcast(self, x: Node, dims: tuple[int, ...]) -> Node:
        extra = self.rng.choice((1, 2, 3))
        if len(dims) >= 3 or math.prod(dims) > LARGE[0]:
            return x
        if self.rng.random() < 0.5:
            shape, at = (extra, *dims), tuple(range(1, len(dims) + 1))
        else:
            shape, at = (*dims, extra), tuple(range(len(dims)))
        grown = tuple(3 if d == 1 and k in at and self.rng.random() < 0.5 else d for k, d in enumerate(shape))
        return self.b(broadcast_in_dim, x, shape=grown, broadcast_dimensions=at)

    def _transpose(self, x: Node, dims: tuple[int, ...]) -> Node:
        return self.b(transpose, x, permutation=tuple(self.rng.sample(range(len(dims)), len(dims))))

    def _reshape(self, x: Node, dims: tuple[int, ...]) -> Node:
        size = int(np.prod(dims))
        shapes = [s for s in (*self.shapes, (size,), (size, 1), dims) if int(np.prod(s)) == size]
        return self.b(reshape, x, shape=self.rng.choice(shapes))

    def _concatenate(self, x: Node, dims: tuple[int, ...]) -> Node:
        if not dims:
            return x
        at = self.rng.randrange(len(dims))
        parts = [x, self.of_type(x.type)][: self.rng.choice((1, 2, 2))]  # type: ignore[arg-type]
        return self.b(concatenate, *parts, dimension=at) if dims[at] < 5 else x

    def _slice(self, x: Node, dims: tuple[int, ...]) -> Node:
        start = tuple(self.rng.randint(0, d // 2) for d in dims)
        stop = tuple(self.rng.randint(s, d) for s, d in zip(start, dims, strict=True))
        return self.b(slice_, x, start_indices=start, limit_indices=stop,
                      strides=tuple(self.rng.choice((1, 1, 2)) for _ in dims))

    def _pad(self, x: Node, dims: tuple[int, ...]) -> Node:
        if any(d > 4 for d in dims):
            return x
        low, high = (tuple(self.rng.choice((0, 0, 1)) for _ in dims) for _ in range(2))
        inner = tuple(self.rng.choice((0, 0, 0, 1)) for _ in dims)
        value = self.of_type(scalar(x.type.dtype))  # type: ignore[union-attr]
        return self.b(pad, x, value, edge_padding_low=low, edge_padding_high=high, interior_padding=inner)

    def _reverse(self, x: Node, dims: tuple[int, ...]) -> Node:
        return self.b(reverse, x, dimensions=tuple(d for d in range(len(dims)) if self.rng.random() < 0.5))

    def counted(self) -> Node | None:
        shapes = [s for s in self.shapes if s]
        if not shapes:
            return None
        shape = self.rng.choice(shapes)
        return self.b(iota, dtype=self.rng.choice((F32, I32)), shape=shape, iota_dimension=self.rng.randrange(len(shape)))

    def fixed(self) -> Node:
        return self.constant(tensor(self.rng.choice(self.dtypes), self.rng.choice(self.shapes)))

    def repeated(self) -> Node | None:
        """A node once more, as a text repeats itself: work for cse."""
        x = self.pick()
        if x is None or not x.inputs or x.op.eval is None:
            return None
        return self.b(x.op, *x.inputs, **{a.name: v for a, v in zip(x.op.attrs, x.attrs, strict=True)})

    # --- control

    def branch(self) -> None:
        """A branch of one to three values, each side with code of its own."""
        count = self.rng.choice((2, 2, 3))
        selector = self.bool_scalar() if count == 2 else self.of_type(scalar(I32))
        first = self._scope()
        if not first:
            return
        sides = [first] + [self._scope_of(first) for _ in range(count - 1)]
        self.values += self.b.branch(selector, *sides)

    def _scope(self) -> list[Node]:
        outer, self.values = self.values, list(self.values)
        self._nested(self.rng.randint(1, 6))
        picked = [v for v in (self.pick() for _ in range(self.rng.randint(1, 3))) if v is not None]
        self.values = outer
        return picked

    def _scope_of(self, like: list[Node]) -> list[Node]:
        outer, self.values = self.values, list(self.values)
        self._nested(self.rng.randint(0, 5))
        made = [self.of_type(v.type) for v in like]  # type: ignore[arg-type]
        self.values = outer
        return made

    def loop(self) -> None:
        """A loop of at most three iterations over a counter and some variables; some never change, some are never used."""
        limit = self.b.constant(self.rng.randint(0, 3), I32)
        carried = [v for v in (self.pick() for _ in range(self.rng.randint(0, 3))) if v is not None]

        def body(phis: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            outer, self.values = self.values, self.values + list(phis)
            more = self.b(compare, phis[0], limit, direction="LT")
            if self.rng.random() < 0.3:
                more = self.b(and_, more, self.bool_scalar())
            self._nested(self.rng.randint(1, 7))
            nexts = [self.b(add, phis[0], self.b.constant(1, I32))]
            for phi in phis[1:]:
                nexts.append(phi if self.rng.random() < 0.2 else self.of_type(phi.type))  # type: ignore[arg-type]
            self.values = outer
            return more, nexts

        self.values += self.b.loop([self.b.constant(0, I32), *carried], body)

    def called(self) -> None:
        """A call of a helper function, by name or through a closure."""
        if not self.helpers:
            return
        f = self.rng.choice(self.helpers)
        args = [self.of_type(t) for t in f.type.params]  # type: ignore[arg-type]
        if self.rng.random() < 0.6:
            self.values += self.b.call(f, *args)
        else:
            cut = self.rng.randint(0, len(args))
            self.values += self.b.call_value(self.b.partial(f, *args[:cut]), *args[cut:])

    def _nested(self, steps: int) -> None:
        self.depth += 1
        for _ in range(steps):
            self.step()
        self.depth -= 1

    def step(self) -> None:
        """Adds an operation, or a construct with code inside."""
        if self.budget <= 0:
            return
        self.budget -= 1
        if self.control and self.depth < 3 and self.rng.random() < 0.14:
            self.rng.choice((self.branch, self.branch, self.loop, self.loop, self.called))()
            return
        build = self.rng.choices(
            (self.unary, self.binary, self.comparison, self.selection, self.clamped, self.converted, self.reduced,
             self.contracted, self.shaped, self.counted, self.repeated, self.fixed, self.spread),
            (16, 30, 5, 6, 2, 5, 7, 4, 18, 2, 6, 3, 0) if self.shapes is SHAPES else
            (8, 30, 3, 10, 2, 5, 2, 0, 14, 2, 2, 1, 14))[0]  # fmt: skip
        made = build()
        if made is not None:
            self.values.append(made)

    def function(self, name: str, ops: int, **fields: Any) -> Function:
        """A function with one to four parameters, about `ops` operations and one to four results."""
        params = [(f"x{k}", tensor(self.rng.choice(self.dtypes), self.rng.choice(self.shapes)))
                  for k in range(self.rng.randint(1, 4))]

        def body(*nodes: Node) -> list[Node]:
            self.values, self.budget = list(nodes), ops
            while self.budget > 0:
                self.step()
            newest = self.values[len(nodes) :] or self.values
            return [newest[-1]] + self.rng.sample(newest, min(len(newest), self.rng.randint(0, 3)))

        return self.b.function(name, params, body, **fields)


def random_module(rng: random.Random, max_ops: int = 60, control: bool = True, exact: bool = False,
                  dtypes: Sequence[DType] = DTYPES, shapes: Sequence[tuple[int, ...]] = SHAPES) -> Module:
    """A well-typed program of up to about `max_ops` operations.

    `control` adds branches, loops, calls and closures; `exact` leaves out transcendental functions and sums of floats;
    parameters and constants have one of the `dtypes` and `shapes`, those that occur more often more often.
    """
    b = Builder()
    helpers: list[Function] = []
    if control:
        for k in range(rng.randint(0, 2)):
            maker = Generator(rng, b, tuple(helpers), control=True, exact=exact, dtypes=dtypes, shapes=shapes)
            helpers.append(maker.function(f"helper{k}", rng.randint(1, 6), public=False))
    main = Generator(rng, b, helpers, control=control, exact=exact, dtypes=dtypes, shapes=shapes)
    return Module((main.function("main", rng.randint(1, max_ops)), *helpers))


def random_kernel(rng: random.Random, large: bool = False) -> Module:
    """A program around one shape and of one element type or two, most of which runs as one fused kernel, exactly."""
    dtypes = [rng.choice(KERNEL_DTYPES)] * 2 + [rng.choice(KERNEL_DTYPES)]
    return random_module(rng, max_ops=20, control=False, exact=True, dtypes=dtypes, shapes=(_kernel_shape(rng, large),))


def _kernel_shape(rng: random.Random, large: bool) -> tuple[int, ...]:
    if large:
        size = rng.choice(LARGE)
        return rng.choice([(size,), (7, size // 7), (size // 33, 33), (size // 1025, 1025), (3, size // 51, 17)])
    rank = rng.choice((0, 1, 1, 2, 2, 3))
    return tuple(rng.choice(SIZES if rank == 1 else SIZES[:9] if rank == 3 else (*SIZES[:9], 1025)) for _ in range(rank))


class _Loop:
    """`for i in range(n)` over two to five more integers; `n` is a parameter, or the number 3.

    The variables start alike or not, stay as they are, take each other's values, or those of branches, and the results are only
    some of them: what tells passes apart that look at loop variables one by one.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.b = rng, Builder()

    def main(self, n: Node, x: Node, y: Node) -> Sequence[Node]:
        b, rng = self.b, self.rng
        atoms = [x, y, b.constant(0, I32), b.constant(1, I32)]
        limit = n if rng.random() < 0.8 else b.constant(3, I32)
        inits = [rng.choice(atoms[: rng.randint(1, 4)]) for _ in range(rng.randint(2, 5))]

        def iteration(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            nexts = [self._value([*v[1:], *v[1:], *atoms], v[1 + k]) for k in range(len(inits))]
            return b(compare, v[0], limit, direction="LT"), [b(add, v[0], b.constant(1, I32)), *nexts]

        final = b.loop([b.constant(0, I32), *inits], iteration)[1:]
        return rng.sample(final, rng.randint(1, len(final)))

    def _value(self, atoms: Sequence[Node], own: Node) -> Node:
        """A next value: often the variable itself or another one."""
        b, rng = self.b, self.rng
        one, two, three = (rng.choice(atoms) for _ in range(3))
        match rng.randrange(8):
            case 0 | 1:
                return own
            case 2 | 3:
                return one
            case 4:
                return b(rng.choice((add, subtract, multiply)), one, two)
            case 5:
                return b(add, own, b.constant(1, I32))
            case 6:
                return b(select, b(compare, one, two, direction="LT"), own, three)
        sides = [[one, two], [one if rng.random() < 0.4 else three, own]]
        return rng.choice(b.branch(b(compare, two, three, direction="EQ"), *sides))


def random_loop(rng: random.Random) -> Module:
    """A function of three integers, the first of which may be the number of iterations."""
    loop = _Loop(rng)
    return Module((loop.b.function("main", [(name, scalar(I32)) for name in ("n", "x", "y")], loop.main),))


SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0)


def random_array(rng: random.Random, type: TensorType) -> Array:
    """An array of the type; one in four holds NaN, infinities, signed zeros or the extremes of the dtype."""
    source = np.random.default_rng(rng.getrandbits(32))
    shape, dtype = type.shape, type.dtype.np
    wild = rng.random() < 0.25
    if type.dtype is BOOL:
        return source.integers(0, 2, shape).astype(np.bool_)
    if type.dtype.is_integer:
        small = source.integers(-5 if type.dtype.kind == "int" else 0, 6, shape).astype(dtype)
        ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1], dtype)  # type: ignore[arg-type,type-var]
        return np.asarray(np.where(source.random(shape) < 0.4, source.choice(ends, shape), small) if wild else small)
    plain = (source.standard_normal(shape) * 2).astype(dtype)
    if not wild:
        return np.asarray(plain)
    edge = np.array([*SPECIAL, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)  # type: ignore[arg-type,type-var]
    return np.asarray(np.where(source.random(shape) < 0.5, source.choice(edge, shape), plain))


def random_inputs(rng: random.Random, module: Module) -> list[Array]:
    """Arrays for the parameters of the module's entry, in order."""
    return [random_array(rng, p.type) for p in module.entry.params if isinstance(p.type, TensorType)]


# --- arrays that are awkward to read ----------------------------------------------------------------------------------


def awkward_values(rng: random.Random, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Ordinary values, with special ones strewn in half of the time."""
    found = np.random.default_rng(rng.randrange(1 << 30))
    x: Array = np.asarray(laws.random_array(found, dtype, shape, (-3, 3)))
    if rng.random() < 0.5 and x.size:
        special = np.asarray(laws.special_values(dtype))
        if dtype.kind == "float" and dtype.np.itemsize >= 4:  # type: ignore[union-attr]
            special = np.append(special, np.finfo(dtype.np).smallest_subnormal)  # type: ignore[arg-type]
        at = found.integers(0, x.size, 1 + x.size // 5)
        x.reshape(-1)[at] = found.choice(special.astype(x.dtype), at.size)
    return x


def laid_out(rng: random.Random, x: Array) -> Array:
    """The same values lying in memory some way."""
    match rng.randrange(9):
        case 0:
            return np.asarray(x, order="F")
        case 1:
            return x[::-1].copy()[::-1] if x.ndim else x
        case 2 if x.ndim:
            wide = np.empty((*x.shape[:-1], x.shape[-1] * 2), x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        case 3 if x.dtype.kind in "iufc" and x.dtype.itemsize > 1 and x.dtype.type.__module__ == "numpy":
            return x.astype(x.dtype.newbyteorder())
        case 4:
            x.flags.writeable = False
            return x
        case 5:
            shifted = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
            shifted[...] = x
            return shifted
        case 6 if x.ndim and x.size and x.dtype.kind != "V":
            return np.broadcast_to(x[:1], x.shape)
        case _:
            return x


def awkward_arguments(rng: random.Random, module: Module) -> list[Array]:
    """An array for each input; some are the same array, or overlap."""
    args: list[Array] = []
    for p in module.entry.params:
        shape, dtype = p.type.shape, p.type.dtype  # type: ignore[attr-defined]
        like = [a for a in args if a.shape == shape and a.dtype == dtype.np]
        if like and rng.random() < 0.15:
            args.append(rng.choice(like))
        elif like and shape and rng.random() < 0.15:
            longer = np.concatenate([like[0], like[0][:1]])
            args += [longer[1:]] if len(longer) > len(like[0]) else [like[0]]
        else:
            args.append(laid_out(rng, awkward_values(rng, dtype, shape)))
    return args
