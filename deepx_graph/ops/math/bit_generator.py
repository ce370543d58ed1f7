"""Random bits from counters, bit for bit as XLA makes them: `rng_bit_generator` with ThreeFry-2x32 and Philox-4x32-10.

State goes in and comes out: a key, then a counter of 64 bits (ThreeFry), or of 64 or 128 (Philox). Element order is that of XLA's
expander: for a 32-bit ThreeFry draw the two words of a block are neighbours along the first even axis (else the longest one);
Philox fills row-major. Elements narrower than 32 bits keep the low bits of a word each. Nothing here draws on the system.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Op, Operand, Result, one_of
from deepx_graph.ir.constraint import dtypes, rank
from deepx_graph.ir.evaluation import WORD
from deepx_graph.literal import Array
from deepx_graph.ops.factors.index import BITS
from deepx_graph.ops.helpers import REAL, dtype_attr, loops_in, shape_attr
from deepx_graph.types import F32, I8, U8, U16, U32, U64, Dims, DType, TupleType, Type, as_tensor, tensor

Words = np.ndarray[Any, np.dtype[np.uint32]]
Longs = np.ndarray[Any, np.dtype[np.uint64]]

ALGORITHMS = ("DEFAULT", "THREE_FRY", "PHILOX")
"""DEFAULT is Philox, as on XLA's CPU."""

_HALF = np.uint64(32)
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
PHILOX_KEYS = (0x9E3779B9, 0xBB67AE85)
PHILOX_FACTORS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))


def _words(x: Longs) -> tuple[Words, Words]:
    """The low and the high halves."""
    return x.astype(np.uint32), (x >> _HALF).astype(np.uint32)


def _long(low: Words, high: Words) -> Longs:
    return low.astype(np.uint64) | (high.astype(np.uint64) << _HALF)


def threefry2x32(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    """The 20-round ThreeFry-2x32 block cipher of Salmon et al. (Random123) on arrays of counters."""
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(distance)) | (y >> np.uint32(32 - distance)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def philox4x32(key: tuple[int, int], counter: Sequence[Words]) -> tuple[Words, Words, Words, Words]:
    """The 10-round Philox-4x32 block function of Salmon et al. (Random123) on arrays of counters."""
    a, b, c, d = counter
    for number in range(10):
        first, second = (np.uint32((k + number * step) & 0xFFFFFFFF) for k, step in zip(key, PHILOX_KEYS, strict=True))
        low_a, high_a = _words(a.astype(np.uint64) * PHILOX_FACTORS[0])
        low_c, high_c = _words(c.astype(np.uint64) * PHILOX_FACTORS[1])
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
    return a, b, c, d


# --- the two generators: (state, shape, bits of an element) to (new state, elements as unsigned integers) ---------


def split_axis(shape: tuple[int, ...]) -> int:
    """The axis along which pairs of words lie: the first of even size, else the first of the longest."""
    even = [k for k, d in enumerate(shape) if d % 2 == 0]
    return even[0] if even else shape.index(max(shape))


def _three_fry(state: Longs, shape: tuple[int, ...], bits: int) -> tuple[Longs, Array]:
    key = _words(state[:1])
    if bits == 64:
        blocks = shape
    else:
        axis = split_axis(shape) if shape else 0
        blocks = (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :]) if shape else (1,)
    count = math.prod(blocks)
    low, high = threefry2x32(key, _words(state[1] + np.arange(count, dtype=np.uint64)))
    new_state = np.array([state[0], (int(state[1]) + count) % (1 << 64)], np.uint64)
    if bits == 64:
        return new_state, _long(low, high).reshape(shape)
    if not shape:
        return new_state, low.reshape(())
    pairs = np.stack([low.reshape(blocks), high.reshape(blocks)], axis=axis + 1)
    rounded = pairs.reshape(*shape[:axis], 2 * blocks[axis], *shape[axis + 1 :])
    return new_state, np.take(rounded, np.arange(shape[axis]), axis=axis)


def _philox(state: Longs, shape: tuple[int, ...], bits: int) -> tuple[Longs, Array]:
    size = math.prod(shape)
    count = -(-size * (2 if bits == 64 else 1) // 4)
    start, top = (int(state[1]), int(state[2])) if state.size == 3 else (int(state[1]), int(state[0]))
    low = np.uint64(start) + np.arange(count, dtype=np.uint64)
    high = np.uint64(top) + (low < np.uint64(start)).astype(np.uint64)
    key = tuple(int(word[0]) for word in _words(state[:1]))
    words = philox4x32((key[0], key[1]), (*_words(low), *_words(high)))
    filled = [_long(words[0], words[1]), _long(words[2], words[3])] if bits == 64 else words
    whole = (start + (top << 64) + count) % (1 << 128)
    counter = [whole % (1 << 64), whole >> 64][: state.size - 1]
    return np.array([state[0], *counter], np.uint64), np.stack(filled, axis=1).reshape(-1)[:size].reshape(shape)


_GENERATORS: dict[str, Callable[[Longs, tuple[int, ...], int], tuple[Longs, Array]]] = {
    "DEFAULT": _philox, "THREE_FRY": _three_fry, "PHILOX": _philox,
}  # fmt: skip


def _bits_type(types: Sequence[Type], algorithm: str, shape: Dims, dtype: DType) -> Type:
    state = as_tensor(types[0], 0)
    sizes = (2,) if algorithm == "THREE_FRY" else (2, 3)
    wanted = " or ".join(f"u64[{n}]" for n in sizes)
    if state.dims is not None and state.dims not in [(n,) for n in sizes]:
        raise InferError(f"the state of {algorithm} is {an(state)}", operand=0, expected=wanted)
    return TupleType((state, tensor(dtype, shape)))


def _in_dtype(drawn: Array, dtype: DType) -> Array:
    """The low bits of unsigned integers as elements of a dtype."""
    assert dtype.np is not None
    if dtype.bits < 8:
        mask = (1 << dtype.bits) - 1
        kept = (drawn & np.uint32(mask)).astype(np.uint8)
        if dtype.kind == "float":
            return kept.view(dtype.np)
        sign = (mask + 1) // 2 if dtype.kind == "int" else 0
        return np.asarray(((kept.astype(np.int8) ^ sign) - sign).astype(dtype.np))
    return np.ascontiguousarray(drawn.astype(f"u{dtype.bits // 8}")).view(dtype.np).reshape(drawn.shape)


def _bits_eval(xs: Sequence[Array], algorithm: str, shape: tuple[int, ...], dtype: DType) -> tuple[Array, Array]:
    new_state, drawn = _GENERATORS[algorithm](np.ascontiguousarray(xs[0]), shape, dtype.bits)
    return new_state, _in_dtype(drawn, dtype)


def _scratch(types: Sequence[Type], result: Type, algorithm: str, shape: tuple[int, ...], dtype: DType) -> int:
    """Counters, words before and after a round, and the elements as words and as drawn."""
    words = math.prod(shape) * (2 if dtype.bits == 64 else 1)
    return words * (4 * 6 + 2 * WORD)


def _samples(rng: Any) -> Any:
    state = np.array([7, 2**64 - 2], np.uint64)
    longer = np.array([7, 2**64 - 2, 5], np.uint64)
    return [((s,), {"rng_algorithm": a, "shape": n, "dtype": d})
            for a, s in (("THREE_FRY", state), ("PHILOX", state), ("PHILOX", longer), ("DEFAULT", state))
            for n, d in (((3,), U32), ((), U64), ((2, 3), U64), ((5, 3), U16), ((0, 3), U8), ((3, 3), I8), ((4,), F32))]


rng_bit_generator: Op = Op(
    "rng_bit_generator", "Random bits from a key and a counter, and the state that follows.",
    operands=(Operand("initial_state", type=dtypes(U64) & rank(1, 1)),), results=(Result("output_state"), Result("output")),
    attrs=(Attr("rng_algorithm", "str", "DEFAULT", "DEFAULT is PHILOX", check=one_of(*ALGORITHMS)), shape_attr(),
           dtype_attr(*REAL)),
    sharding=BITS, infer=_bits_type, eval=_bits_eval, loops=loops_in("random", "bit_generator_loops"), scratch=_scratch,
    vjp=lambda b, node, g: (None,), samples=_samples,
    source="StableHLO rng_bit_generator; XLA prng.cc",
)  # fmt: skip
"""The family."""
