"""Decoding of language models: caches in bytes and in pages, choices among tokens, routing within a capacity."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, key, lax, normal, program, uniform, weights

I8, U8 = np.int8, np.uint8
FAR = -1e30
"""What is added to scores that do not count."""


@program(small=case(normal(2, 1, 32), *(integers(-127, 128, 2, 16, 4, 8, dtype=I8),) * 2, uniform(0.005, 0.01, 2, 16, 4),
                    integers(5, 6), *weights((32, 96), (32, 32))),
         medium=case(normal(8, 1, 512), *(integers(-127, 128, 8, 512, 8, 64, dtype=I8),) * 2, uniform(0.005, 0.01, 8, 512, 8),
                     integers(300, 301), *weights((512, 1536), (512, 512))))
def decode_byte_cache(x, keys, values, scale, at, wqkv, wo):
    batch, heads, each = x.shape[0], *keys.shape[2:]
    q, k, v = (part.reshape(batch, heads, each) for part in jnp.split(x @ wqkv, 3, -1))
    s = jnp.abs(k).max(-1) / 127
    new = [jnp.clip(jnp.round(part / s[..., None]), -127, 127).astype(jnp.int8)[:, None] for part in (k, v)]
    keys, values = (lax.dynamic_update_slice(c, n, (0, at, 0, 0)) for c, n in zip((keys, values), new, strict=True))
    scale = lax.dynamic_update_slice(scale, s[:, None], (0, at, 0))
    scores = jnp.einsum("bhe,bshe->bhs", q, keys * scale[..., None]) / np.sqrt(each)
    scores = jnp.where(jnp.arange(keys.shape[1]) <= at, scores, FAR)
    mixed = jnp.einsum("bhs,bshe->bhe", jax.nn.softmax(scores), values * scale[..., None])
    return x + mixed.reshape(batch, 1, -1) @ wo, keys, scale


@program(small=case(normal(2, 4, 8), *(normal(10, 4, 2, 8),) * 2, integers(0, 10, 2, 3), integers(5, 12, 2)),
         medium=case(normal(8, 8, 64), *(normal(256, 16, 2, 64),) * 2, integers(0, 256, 8, 24), integers(100, 380, 8)))
def paged_attention(q, keys, values, table, lengths):
    batch, heads, each = q.shape
    groups = keys.shape[2]
    k, v = (pages[table].reshape(batch, -1, groups, each) for pages in (keys, values))
    scores = jnp.einsum("bgrd,bsgd->bgrs", q.reshape(batch, groups, heads // groups, each), k) / np.sqrt(each)
    scores = jnp.where(jnp.arange(k.shape[1]) < lengths[:, None, None, None], scores, FAR)
    return jnp.einsum("bgrs,bsgd->bgrd", jax.nn.softmax(scores), v).reshape(batch, heads, each)


@program(small=case(*(normal(2, 12, 2, 8),) * 3), medium=case(*(normal(2, 512, 4, 32),) * 3))
def window_and_sink_attention(q, k, v):
    """Each token sees a window before it, and the first ones."""
    n = q.shape[1]
    i = jnp.arange(n)
    seen = (i[None] <= i[:, None]) & ((i[:, None] - i[None] < n // 4) | (i[None] < 2))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, FAR)), v)


@program(small=case(key(), normal(2, 50, scale=2)), medium=case(key(), normal(16, 8000, scale=2)))
def nucleus_sampling(k, logits):
    order = jnp.argsort(-logits, axis=-1)
    ordered = jnp.take_along_axis(logits, order, -1)
    p = jax.nn.softmax(ordered, -1)
    keep = jnp.cumsum(p, -1) - p < 0.9
    pick = jax.random.categorical(k, jnp.where(keep, ordered, FAR), axis=-1)
    return jnp.take_along_axis(order, pick[:, None], -1)[:, 0]


@program(small=case(key(), normal(2, 4, 30), normal(2, 5, 30), integers(0, 30, 2, 4)),
         medium=case(key(), normal(16, 8, 4000), normal(16, 9, 4000), integers(0, 4000, 16, 8)))
def speculative_accept(k, draft, target, tokens):
    """How many drafted tokens stand, and the one after them."""
    q, p = jax.nn.softmax(draft), jax.nn.softmax(target)
    first, second = jax.random.split(k)
    chances = [jnp.take_along_axis(x, tokens[..., None], -1)[..., 0] for x in (p[:, :-1], q)]
    stands = jax.random.uniform(first, tokens.shape) < jnp.minimum(1, chances[0] / chances[1])
    count = jnp.cumprod(stands, -1).sum(-1)
    q = jnp.concatenate([q, jnp.zeros_like(q[:, :1])], 1)
    left = [jnp.take_along_axis(x, count[:, None, None], 1)[:, 0] for x in (p, q)]
    return count, jax.random.categorical(second, jnp.log(jnp.maximum(left[0] - left[1], 0) + 1e-9))


@program(small=case(normal(16, 8), normal(8, 4), capacity=6), medium=case(normal(2048, 256), normal(256, 16), capacity=200))
def routing_within_capacity(x, w, capacity):
    experts = w.shape[1]
    gates, chosen = lax.top_k(jax.nn.softmax(x @ w), 2)
    hot = jax.nn.one_hot(chosen, experts, dtype=jnp.int32)
    place = (jnp.cumsum(hot.reshape(-1, experts), 0).reshape(hot.shape) * hot - 1).max(-1)
    fits = place < capacity
    room = jnp.zeros((experts, capacity, x.shape[1]))
    sent = jnp.tanh(room.at[chosen, jnp.where(fits, place, capacity)].add(x[:, None], mode="drop"))
    back = sent.at[chosen, place].get(mode="fill", fill_value=0)
    return (back * (gates * fits)[..., None]).sum(1)


@program(small=case(integers(97, 101, 40, dtype=U8), merges=4), medium=case(integers(97, 105, 4000, dtype=U8), merges=20))
def pair_merges(text, merges):
    """The most frequent pair of neighbours becomes one token, again and again."""
    tokens = text.astype(jnp.int32) - 97

    def merge(k, x):
        pair = jnp.where((x[:-1] >= 0) & (x[1:] >= 0), x[:-1] * 64 + x[1:], 4096)
        counts = jnp.zeros(4097, jnp.int32).at[pair].add(1).at[4096].set(0)
        hit = pair == jnp.argmax(counts)
        hit = hit & ~jnp.concatenate([jnp.array([False]), hit[:-1]])
        x = x.at[:-1].set(jnp.where(hit, 10 + k, x[:-1]))
        keep = ~jnp.concatenate([jnp.array([False]), hit])
        return jnp.full_like(x, -1).at[jnp.where(keep, jnp.cumsum(keep) - 1, x.shape[0])].set(x, mode="drop")

    return lax.fori_loop(0, merges, merge, tokens)
