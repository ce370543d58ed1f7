"""Sorting, searching, selecting and permuting."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jnp, lax, normal, ordered, permuted, program, uniform


@program(small=case(normal(1000)), medium=case(normal(1_000_000)))
def sort(x):
    return jnp.sort(x)


@program(small=case(normal(20, 50)), medium=case(normal(500, 500)))
def argsort_rows(x):
    return jnp.argsort(x, axis=1)


@program(small=case(normal(8, 400)), medium=case(normal(64, 1000)))
def median_rows(x):
    return jnp.median(x, axis=1)


@program(small=case(integers(0, 20, 1000), normal(1000)), medium=case(integers(0, 100, 20_000), normal(20_000)))
def sort_two_keys(k, x):
    return lax.sort((k, x, jnp.arange(k.size)), num_keys=2)


@program(small=case(normal(16, 200), k=8), medium=case(normal(256, 4000), k=32))
def top_k(x, k):
    return lax.top_k(x, k)


@program(small=case(ordered(1000), uniform(0, 1, 500)), medium=case(ordered(100_000), uniform(0, 1, 100_000)))
def searchsorted(a, x):
    return jnp.searchsorted(a, x)


@program(small=case(ordered(256), uniform(0, 1, 1000)), medium=case(ordered(256), uniform(0, 1, 20_000)))
def digitize_by_sort(edges, x):
    return jnp.searchsorted(edges, x, method="sort")


@program(small=case(integers(0, 100, 1000)), medium=case(integers(0, 5000, 100_000)))
def unique_ranks(x):
    s = jnp.sort(x)
    first = jnp.concatenate([jnp.ones(1, bool), s[1:] != s[:-1]])
    rank = jnp.cumsum(first)
    return s, rank, rank[-1]


@program(small=case(permuted(2000)), medium=case(permuted(500_000)))
def inverse_permutation(p):
    return jnp.zeros_like(p).at[p].set(jnp.arange(p.size, dtype=p.dtype))


@program(small=case(permuted(256), normal(256, 16)), medium=case(permuted(50_000), normal(50_000, 16)))
def permute_rows(p, x):
    return x[p]


@program(small=case(normal(40, 4), uniform(0, 1, 40)), medium=case(normal(300, 4), uniform(0, 1, 300)))
def suppress_overlapping_boxes(boxes, scores):
    order = jnp.argsort(-scores)
    low = boxes[order, :2]
    high = low + jnp.abs(boxes[order, 2:]) + 0.1
    sides = jnp.maximum(jnp.minimum(high[:, None], high) - jnp.maximum(low[:, None], low), 0)
    common, areas = sides.prod(-1), (high - low).prod(-1)
    share = common / (areas[:, None] + areas - common)

    def step(i, kept):
        return kept & ~((share[i] > 0.4) & (jnp.arange(len(kept)) > i) & kept[i])

    return order, lax.fori_loop(0, len(scores), step, jnp.ones(len(scores), bool))


@program(small=case(integers(0, 2**32, 64, dtype=np.uint32)), medium=case(integers(0, 2**32, 2**13, dtype=np.uint32)))
def bitonic_network(x):
    places, block = jnp.arange(len(x)), 2
    while block <= len(x):
        apart = block // 2
        while apart:
            other = x[places ^ apart]
            keeps_least = ((places & block) == 0) == ((places & apart) == 0)
            x = jnp.where(keeps_least, jnp.minimum(x, other), jnp.maximum(x, other))
            apart //= 2
        block *= 2
    return x


@program(small=case(normal(8, 20)), medium=case(normal(128, 4000)))
def clip_by_quantiles(x):
    low, high = (jnp.quantile(x, q, axis=1, keepdims=True) for q in (0.05, 0.95))
    y = jnp.clip(x, low, high)
    return (y - y.mean(1, keepdims=True)) / y.std(1, keepdims=True)


@program(small=case(uniform(0, 10, 12, 4), uniform(0, 10, 8, 4)), medium=case(uniform(0, 10, 4000, 4), uniform(0, 10, 60, 4)))
def matched_boxes(a, b):
    """Which of some boxes each box lies over most."""
    a, b = (jnp.concatenate([x[:, :2], x[:, :2] + x[:, 2:]], -1) for x in (a, b))
    low, high = jnp.maximum(a[:, None, :2], b[None, :, :2]), jnp.minimum(a[:, None, 2:], b[None, :, 2:])
    both = jnp.prod(jnp.maximum(high - low, 0), -1)
    sizes = [jnp.prod(x[:, 2:] - x[:, :2], -1) for x in (a, b)]
    ratio = both / (sizes[0][:, None] + sizes[1][None] - both)
    best, found = ratio.argmax(1), ratio.max(1) > 0.5
    return jnp.where(found, best, -1), (b[best] - a) * found[:, None]


@program(small=case(integers(0, 256, 50)), medium=case(integers(0, 65536, 30000)))
def radix_passes(x):
    n = x.shape[0]
    k = jnp.arange(n)
    for s in range(0, 16, 4):
        d = (x >> s) & 15
        oh = (d[:, None] == jnp.arange(16)).astype(jnp.int32)
        within = jnp.cumsum(oh, 0)
        base = jnp.cumsum(within[-1]) - within[-1]
        pos = base[d] + jnp.take_along_axis(within, d[:, None], 1)[:, 0] - 1
        x = jnp.zeros_like(x).at[pos].set(x)
        k = jnp.zeros_like(k).at[pos].set(k)
    return x, k
