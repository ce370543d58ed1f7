"""Random numbers as pure functions of a seed, reproducible bit for bit.

The generator is C++'s `std::minstd_rand0` (x -> 16807 x mod 2^31-1, x0 = seed mod 2^31-1, or 1 for 0) as the deepx CPU executor
uses it: a double in [0, 1) takes two draws, ((x1 - 1) + (x2 - 1) r) / r^2 with r = 2147483646; uniform is low + (high - low) u;
normal is libstdc++'s polar method, whose pairs are used second value first. Elements are filled in row-major order.
`module_seed` stands for a seed that the text does not give; running a module puts in a number derived from `--seed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Attr, Builder, Node, Op, Operand, at_least
from deepx_graph.ir.constraint import INTEGERS, REALS, SCALAR
from deepx_graph.ir.evaluation import BLOCK, nothing
from deepx_graph.literal import Array
from deepx_graph.ops.factors.index import UNIFORM
from deepx_graph.ops.helpers import REAL, dtype_attr, loops_in, shape_attr
from deepx_graph.ops.math.elementwise import convert, divide, multiply, subtract
from deepx_graph.types import F32, F64, I64, Dims, DType, Type, as_tensor, scalar, tensor

MULTIPLIER, MODULUS = 16807, 2**31 - 1
SPAN = MODULUS - 1


def minstd(seed: int, start: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Draws `start` to `start + count` (from 0) of std::minstd_rand0 seeded with `seed`."""
    first = (seed % MODULUS or 1) * pow(MULTIPLIER, start + 1, MODULUS) % MODULUS
    draws = np.empty(count, np.uint64)
    if count:
        draws[0] = first
    done = min(1, count)
    while done < count:
        step = min(done, count - done)
        draws[done : done + step] = draws[:step] * np.uint64(pow(MULTIPLIER, done, MODULUS)) % np.uint64(MODULUS)
        done += step
    return draws


def canonical(seed: int, start: int, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`count` doubles in [0, 1), from the pair of draws number `start` on."""
    draws = minstd(seed, 2 * start, 2 * count).astype(np.float64) - 1.0
    return (draws[0::2] + draws[1::2] * SPAN) / (float(SPAN) * SPAN)


def standard_normal(seed: int, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`count` values of std::normal_distribution<double>(0, 1)."""
    return np.concatenate([np.empty(0), *normal_blocks(seed, count)])


def normal_blocks(seed: int, count: int) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    """Those values block by block: Marsaglia's polar method, each accepted pair giving y, then x."""
    have = start = 0
    while have < count:
        tries = min(BLOCK, max(16, int((count - have) * 0.7)))
        pairs = 2.0 * canonical(seed, start, 2 * tries) - 1.0
        start += 2 * tries
        x, y = pairs[0::2], pairs[1::2]
        square = x * x + y * y
        good = (square <= 1.0) & (square != 0.0)
        scale = np.sqrt(-2.0 * np.log(square[good]) / square[good])
        values = np.stack([y[good] * scale, x[good] * scale], axis=1).reshape(-1)[: count - have]
        have += values.size
        yield values


def derive_seed(seed: int, index: int) -> int:
    """The seed of the `index`-th unseeded draw of a module: splitmix64 of both, brought into 1 .. 2^31-2."""
    mask = (1 << 64) - 1
    z = (seed * 0x9E3779B97F4A7C15 + (index + 1) * 0xBF58476D1CE4E5B9) & mask
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ (z >> shift)) * factor) & mask
    return 1 + (z ^ (z >> 31)) % (SPAN - 1)


def _random_type(types: Sequence[Type], shape: Dims, dtype: DType) -> Type:
    return tensor(dtype, shape)


def _operands(low: str, high: str) -> tuple[Operand, ...]:
    return Operand(low, type=REALS & SCALAR), Operand(high, type=REALS & SCALAR), Operand("seed", type=INTEGERS)


def _uniform(xs: Sequence[Array], shape: tuple[int, ...], dtype: DType) -> Array:
    low, high = float(xs[0]), float(xs[1])
    result = np.empty(math.prod(shape), dtype.np)
    for start in range(0, result.size, BLOCK):
        part = result[start : start + BLOCK]
        part[...] = (low + (high - low) * canonical(int(xs[2]), start, part.size)).astype(dtype.np)
    return result.reshape(shape)


def _normal(xs: Sequence[Array], shape: tuple[int, ...], dtype: DType) -> Array:
    mean, deviation = float(xs[0]), float(xs[1])
    result, at = np.empty(math.prod(shape), dtype.np), 0
    for values in normal_blocks(int(xs[2]), result.size):
        result[at : at + values.size] = (values * deviation + mean).astype(dtype.np)
        at += values.size
    return result.reshape(shape)


def _to(b: Builder, node: Node, like: Node) -> Node:
    dtype = as_tensor(like.type).dtype
    return node if as_tensor(node.type).dtype is dtype else b(convert, node, dtype=dtype)


def _random_vjp(unit: Callable[[Builder, Node], tuple[Node, Node]]) -> Callable[[Builder, Node, Node], Sequence[Node | None]]:
    """The gradients of both parameters, from the partial derivatives of an element by them."""

    def rule(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
        partials = unit(b, node)
        return tuple(_to(b, b(multiply, g, p), i) for p, i in zip(partials, node.inputs, strict=False)) + (None,)

    return rule


def _uniform_partials(b: Builder, node: Node) -> tuple[Node, Node]:
    low, high = (_to(b, i, node) for i in node.inputs[:2])
    u = b(divide, b(subtract, node, low), b(subtract, high, low))
    return b(subtract, b.like(1, u), u), u


def _normal_partials(b: Builder, node: Node) -> tuple[Node, Node]:
    mean, deviation = (_to(b, i, node) for i in node.inputs[:2])
    return b.like(1, node), b(divide, b(subtract, node, mean), deviation)


_ATTRS = (shape_attr(), dtype_attr(*REAL))


def _samples(rng: Any) -> Any:
    return [((np.float64(-0.5), np.float64(1.5), np.int64(s)), {"shape": n, "dtype": d})
            for s, n, d in ((42, (2, 3), F64), (7, (), F64), (1, (0, 2), F32))]


rng_uniform: Op = Op(
    "rng_uniform", "Evenly distributed in [low, high), from a seed.", operands=_operands("low", "high"),
    attrs=_ATTRS, sharding=UNIFORM, infer=_random_type, eval=_uniform, loops=loops_in("random", "uniform_loops"), scratch=nothing,
    vjp=_random_vjp(_uniform_partials), samples=_samples,
    source="deepx uniform; std::minstd_rand0, std::uniform_real_distribution",
)  # fmt: skip
rng_normal: Op = Op(
    "rng_normal", "Normally distributed, from a seed.", operands=_operands("mean", "stddev"),
    attrs=_ATTRS, infer=_random_type, eval=_normal, loops=loops_in("random", "normal_loops"), scratch=nothing,
    vjp=_random_vjp(_normal_partials), samples=_samples,
    source="deepx normal; std::minstd_rand0, std::normal_distribution of libstdc++",
)  # fmt: skip
module_seed: Op = Op(
    "module_seed", "The seed of a draw that the text leaves unseeded; fixed by the seed of the run.",
    attrs=(Attr("index", "int", check=at_least(0)),), infer=lambda types, index: scalar(I64),
    eval=lambda xs, index: np.asarray(derive_seed(0, index), np.int64), vjp=lambda b, node, g: (), foldable=False,
    source="deepx seed 0",
    samples=lambda rng: [((), {"index": k}) for k in (3, 0)],
)  # fmt: skip


def draw_index(node: Node) -> int | None:
    """The number of a draw whose seed is fixed by the run; None for other nodes."""
    index: int | None = node.attr("index") if node.op is module_seed else None
    return index
