"""Random programs of one or two fused bodies, whose values no correct engine may round differently, and awkward inputs for them.

Shapes lie around the sizes at which engines change their way; values are special ones among ordinary ones; arrays lie in memory
every way that numpy knows. A `random.Random` decides everything, so a seed is a case.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import (
    abs_,
    add,
    and_,
    broadcast_in_dim,
    compare,
    concatenate,
    convert,
    divide,
    floor,
    maximum,
    minimum,
    multiply,
    negate,
    not_,
    or_,
    reshape,
    reverse,
    select,
    slice_,
    sqrt,
    subtract,
    transpose,
    xor,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.types import BF16, BOOL, C64, F16, F32, F64, I8, I32, I64, U8, U32, DType, tensor
from tests.support import laws

Array = np.ndarray[Any, Any]
SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 33, 1023, 1024, 1025, 4095, 4096, 4097)
LARGE = (100_003, 200_000, 262_145)
DTYPES = (F32, F32, F64, F16, BF16, I8, I32, I64, U8, U32, BOOL, C64)


def random_shape(rng: random.Random, large: bool) -> tuple[int, ...]:
    if large:
        size = rng.choice(LARGE)
        return rng.choice([(size,), (7, size // 7), (size // 33, 33), (size // 1025, 1025), (3, size // 51, 17)])
    rank = rng.choice((0, 1, 1, 2, 2, 3))
    return tuple(rng.choice(SIZES if rank == 1 else SIZES[:9] if rank == 3 else (*SIZES[:9], 1025)) for _ in range(rank))


class _Growing:
    """A body under construction; `values` are all its nodes."""

    def __init__(self, rng: random.Random, params: Sequence[Node]) -> None:
        self.rng, self.b = rng, Builder()
        self.values: list[Node] = list(params)

    def pick(self, like: Node | None = None) -> Node:
        """A recent value, of the type of `like` if any is."""
        if like is None:
            return self.rng.choice(self.values[-6:] if self.rng.random() < 0.7 else self.values)
        return self.rng.choice([v for v in self.values if v.type == like.type])

    def grow(self) -> None:
        x = self.pick()
        made = self.rng.choice((self._map, self._map, self._map, self._choose, self._fold, self._view, self._convert))(x)
        if made is not None:
            self.values.append(made)

    def _map(self, x: Node) -> Node:
        rng, b, kind = self.rng, self.b, x.type.dtype.kind  # type: ignore[attr-defined]
        y = self.pick(x) if rng.random() < 0.8 else b.like(rng.choice((0, 1, 2)), x)
        if kind == "bool":
            return b(rng.choice((and_, or_, xor)), x, y) if rng.random() < 0.7 else b(not_, x)
        if kind == "complex":
            return b(rng.choice((add, subtract)), x, y) if rng.random() < 0.7 else b(negate, x)
        if kind in ("int", "uint"):
            return b(rng.choice((add, subtract, multiply, maximum, minimum, and_, or_, xor)), x, y)
        if rng.random() < 0.3:
            return b(rng.choice((abs_, negate, sqrt, floor)), x)
        return b(rng.choice((add, subtract, multiply, divide)), x, y)

    def _choose(self, x: Node) -> Node:
        y, kind = self.pick(x), x.type.dtype.kind  # type: ignore[attr-defined]
        direction = self.rng.choice(("EQ", "NE") if kind in ("complex", "bool") else ("LT", "LE", "GT", "GE", "EQ", "NE"))
        mask = self.b(compare, x, y, direction=direction)
        self.values.append(mask)
        return self.b(select, mask, y, x)

    def _fold(self, x: Node) -> Node | None:
        """Along some axes, and back to the shape it had: sums of integers, extremes of the others, which are exact."""
        shape, kind = x.type.shape, x.type.dtype.kind  # type: ignore[attr-defined]
        if not shape or 0 in shape or kind == "complex":
            return None
        axes = tuple(sorted(self.rng.sample(range(len(shape)), self.rng.randint(1, len(shape)))))
        exact = {"bool": (and_, or_), "float": (maximum, minimum)}.get(kind, (add, maximum, minimum))
        total = reduction(self.b, self.rng.choice(exact), x, axes)
        if kind == "float":  # which of -0 and +0 is the greater is a matter of their order
            total = self.b(add, total, self.b.like(0, total))
        self.values.append(total)
        kept = tuple(k for k in range(len(shape)) if k not in axes)
        return self.b(broadcast_in_dim, total, shape=shape, broadcast_dimensions=kept)

    def _view(self, x: Node) -> Node | None:
        rng, b, shape = self.rng, self.b, x.type.shape  # type: ignore[attr-defined]
        if not shape:
            return b(broadcast_in_dim, x, shape=(rng.choice(SIZES),), broadcast_dimensions=())
        axis = rng.randrange(len(shape))
        match rng.randrange(5):
            case 0:
                return b(transpose, x, permutation=tuple(rng.sample(range(len(shape)), len(shape))))
            case 1:
                return b(reverse, x, dimensions=(axis,))
            case 2:
                start = [min(1, d) if k == axis else 0 for k, d in enumerate(shape)]
                step = [rng.choice((1, 2, 3)) if k == axis else 1 for k in range(len(shape))]
                return b(slice_, x, start_indices=tuple(start), limit_indices=shape, strides=tuple(step))
            case 3:
                return b(concatenate, x, self.pick(x), dimension=axis) if math.prod(shape) < 10_000 else None
            case _:
                return b(reshape, x, shape=(*shape[:axis], 1, *shape[axis:]))

    def _convert(self, x: Node) -> Node | None:
        kinds: dict[str, tuple[DType, ...]] = {"bool": (F32, I32), "int": (F64, I64), "uint": (F64, I64), "float": (F32, F64)}
        targets = kinds.get(x.type.dtype.kind)  # type: ignore[attr-defined]
        return self.b(convert, x, dtype=self.rng.choice(targets)) if targets and self.rng.random() < 0.4 else None


def random_program(rng: random.Random, large: bool = False) -> Module:
    """A module of a few inputs of one type or two, and up to five results, which may be inputs and may repeat."""
    shape, dtype, other = random_shape(rng, large), rng.choice(DTYPES), rng.choice(DTYPES)
    types = [tensor(dtype, shape)] * rng.randint(1, 4) + [tensor(other, shape)] * rng.randint(0, 2)

    def body(*params: Node) -> Sequence[Node]:
        growing = _Growing(rng, params)
        for _ in range(rng.randint(1, 14)):
            growing.grow()
        return [rng.choice(growing.values) for _ in range(rng.randint(1, 4))] + growing.values[-1:]

    return Module((Builder().function("f", [(f"p{k}", t) for k, t in enumerate(types)], body),), "f")


def random_values(rng: random.Random, dtype: DType, shape: tuple[int, ...]) -> Array:
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


def random_arguments(rng: random.Random, module: Module) -> list[Array]:
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
            args.append(laid_out(rng, random_values(rng, dtype, shape)))
    return args
