"""Gathering and scattering: segments, histograms, embeddings, graphs."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform, weights


@program(small=case(normal(2000), integers(0, 50, 2000)), medium=case(normal(1_000_000), integers(0, 1000, 1_000_000)))
def segment_sum(x, ids):
    return jax.ops.segment_sum(x, ids, 1000)


@program(small=case(normal(500, 8), integers(0, 50, 500)), medium=case(normal(50_000, 16), integers(0, 2000, 50_000)))
def segment_max_rows(x, ids):
    return jax.ops.segment_max(x, ids, 2000)


@program(small=case(normal(500, 8), integers(0, 50, 500)), medium=case(normal(50_000, 16), integers(0, 2000, 50_000)))
def segment_mean_rows(x, ids):
    total = jax.ops.segment_sum(x, ids, 2000)
    count = jax.ops.segment_sum(jnp.ones(ids.shape), ids, 2000)
    return total / jnp.maximum(count, 1)[:, None]


@program(small=case(uniform(0, 1, 2000)), medium=case(uniform(0, 1, 1_000_000)))
def histogram(x):
    bins = jnp.clip((x * 256).astype(jnp.int32), 0, 255)
    return jnp.zeros(256, jnp.int32).at[bins].add(1)


@program(small=case(normal(200, 16), integers(0, 200, 100), normal(100, 16)),
         medium=case(normal(20_000, 64), integers(0, 20_000, 10_000), normal(10_000, 64)))
def scatter_add_rows(table, rows, x):
    return table.at[rows].add(x)


@program(small=case(normal(64, 64), integers(0, 64, 500), integers(0, 64, 500), normal(500)),
         medium=case(normal(512, 512), integers(0, 512, 100_000), integers(0, 512, 100_000), normal(100_000)))
def scatter_points(image, i, j, x):
    return image.at[i, j].max(x)


@program(small=case(normal(1000, 16), integers(0, 1000, 200)), medium=case(normal(20_000, 64), integers(0, 20_000, 20_000)))
def gather_rows(table, rows):
    return table[rows]


@program(small=case(normal(64, 64), uniform(0, 63, 500), uniform(0, 63, 500)),
         medium=case(normal(512, 512), uniform(0, 511, 200_000), uniform(0, 511, 200_000)))
def gather_bilinear(image, y, x):
    i, j = jnp.floor(y).astype(jnp.int32), jnp.floor(x).astype(jnp.int32)
    a, b = y - i, x - j
    top = image[i, j] * (1 - b) + image[i, j + 1] * b
    return top * (1 - a) + (image[i + 1, j] * (1 - b) + image[i + 1, j + 1] * b) * a


@program(small=case(normal(40, 100), integers(0, 100, 40)), medium=case(normal(4000, 1000), integers(0, 1000, 4000)))
def take_along_rows(x, index):
    return jnp.take_along_axis(x, index[:, None], axis=1)[:, 0]


@program(small=case(normal(500, 32), integers(0, 500, 4, 16)), medium=case(normal(10_000, 128), integers(0, 10_000, 16, 128)))
def embedding_loss_grad(table, tokens):
    return jax.grad(lambda t: jnp.mean(jnp.tanh(t[tokens]) ** 2))(table)


@program(small=case(normal(100, 16), integers(0, 100, 400), integers(0, 100, 400), *weights((16, 16), (16, 16))),
         medium=case(normal(5000, 32), integers(0, 5000, 40_000), integers(0, 5000, 40_000), *weights((32, 32), (32, 32))))
def message_passing(x, source, target, w, u):
    messages = jax.nn.relu(x @ w)[source]
    received = jax.ops.segment_sum(messages, target, x.shape[0])
    return jax.nn.relu(x @ u + received)


@program(small=case(normal(100, 8), integers(0, 100, 400), integers(0, 100, 400), *weights((16, 1))),
         medium=case(normal(5000, 16), integers(0, 5000, 40_000), integers(0, 5000, 40_000), *weights((32, 1))))
def graph_attention(x, source, target, w):
    score = jax.nn.leaky_relu(jnp.concatenate([x[source], x[target]], 1) @ w)[:, 0]
    n = x.shape[0]
    peak = jax.ops.segment_max(score, target, n)
    e = jnp.exp(score - peak[target])
    return jax.ops.segment_sum(e[:, None] * x[source], target, n) / (jax.ops.segment_sum(e, target, n) + 1e-9)[:, None]


@program(small=case(integers(0, 100, 400), integers(0, 100, 400), steps=10),
         medium=case(integers(0, 10_000, 80_000), integers(0, 10_000, 80_000), steps=20))
def page_rank(source, target, steps):
    n = 10_000
    degree = jnp.maximum(jnp.zeros(n).at[source].add(1.0), 1)

    def step(_, r):
        return 0.15 / n + 0.85 * jnp.zeros(n).at[target].add((r / degree)[source])

    return jax.lax.fori_loop(0, steps, step, jnp.full(n, 1 / n))


@program(small=case(integers(0, 50, 300), normal(300), normal(8)),
         medium=case(integers(0, 1000, 50_000), normal(50_000), normal(32)))
def scatter_outer(ids, x, w):
    return jnp.zeros((1000, w.size)).at[ids].add(jnp.tanh(x)[:, None] * w)


@program(small=case(normal(100, 8), integers(0, 100, 400), integers(0, 100, 400)),
         medium=case(normal(4000, 32), integers(0, 4000, 40_000), integers(0, 4000, 40_000)))
def edge_differences(x, source, target):
    d = x[source] - x[target]
    weight = jnp.exp(-(d * d).sum(1))
    return jnp.zeros_like(x).at[target].add(weight[:, None] * d)


@program(small=case(normal(50, 6), integers(0, 6, 15), normal(15), normal(16)),
         medium=case(normal(20000, 20), integers(0, 20, 255), normal(255), normal(256)))
def decision_tree(x, feature, threshold, leaf):
    node = jnp.zeros(x.shape[0], jnp.int32)
    for _ in range(int(np.log2(leaf.size))):
        value = jnp.take_along_axis(x, feature[node][:, None], 1)[:, 0]
        node = 2 * node + 1 + (value > threshold[node])
    return leaf[node - (leaf.size - 1)]


@program(small=case(normal(2, 8, 8, 4), normal(2, 8, 8, 18)), medium=case(normal(2, 32, 32, 32), normal(2, 32, 32, 18)))
def deformable_samples(x, offsets):
    """Windows of 3 x 3 whose elements are elsewhere, each by an offset of its own, between pixels."""
    b, h, w, _ = x.shape
    offsets = offsets.reshape(b, h, w, 9, 2)
    gy = jnp.arange(h)[:, None, None] + jnp.repeat(jnp.arange(-1, 2), 3) + offsets[..., 0]
    gx = jnp.arange(w)[None, :, None] + jnp.tile(jnp.arange(-1, 2), 3) + offsets[..., 1]
    y0, x0 = jnp.floor(gy), jnp.floor(gx)
    fy, fx = (gy - y0)[..., None], (gx - x0)[..., None]

    def at(row, column):
        row, column = jnp.clip(row, 0, h - 1).astype(jnp.int32), jnp.clip(column, 0, w - 1).astype(jnp.int32)
        return x[jnp.arange(b)[:, None, None, None], row, column]

    above = at(y0, x0) * (1 - fx) + at(y0, x0 + 1) * fx
    below = at(y0 + 1, x0) * (1 - fx) + at(y0 + 1, x0 + 1) * fx
    return (above * (1 - fy) + below * fy).sum(3)


@program(small=case(integers(0, 50, 30), integers(0, 50, 30), n=50),
         medium=case(integers(0, 3000, 6000), integers(0, 3000, 6000), n=3000))
def merged_labels(a, b, n):
    """The connected parts of a graph, by pointers that jump."""
    def step(state):
        labels, _ = state
        least = jnp.minimum(labels[a], labels[b])
        new = labels.at[a].min(least).at[b].min(least)
        new = new[new]
        return new, jnp.any(new != labels)

    return lax.while_loop(lambda s: s[1], step, (jnp.arange(n), jnp.bool_(True)))[0]


@program(small=case(normal(12, 4), integers(0, 12, 30), integers(0, 12, 30), *weights((16, 4))),
         medium=case(normal(2000, 32), integers(0, 2000, 20_000), integers(0, 2000, 20_000), *weights((128, 32))))
def several_aggregators(x, source, target, w):
    """Mean, extremes and deviation of what the neighbours of each node say."""
    n, said = x.shape[0], x[source]
    count = jax.ops.segment_sum(jnp.ones(source.shape), target, n)[:, None] + 1e-6
    mean, square = (jax.ops.segment_sum(m, target, n) / count for m in (said, said * said))
    extremes = [jnp.where(count > 0.5, f(said, target, n), 0) for f in (jax.ops.segment_max, jax.ops.segment_min)]
    spread = jnp.sqrt(jnp.maximum(square - mean * mean, 0) + 1e-5)
    return jax.nn.relu(jnp.concatenate([mean, *extremes, spread], -1) @ w)


@program(small=case(uniform(0, 1, 8, 3), normal(3, 16, 2)), medium=case(uniform(0, 1, 4096, 3), normal(8, 4096, 2)))
def hashed_grid_encoding(x, t):
    out = []
    for low in range(t.shape[0]):
        s = 4 * 1.5**low
        p = x * s
        f = jnp.floor(p)
        w = p - f
        c = f.astype(jnp.uint32)
        acc = 0.0
        for k in range(8):
            o = jnp.array([k & 1, k >> 1 & 1, k >> 2], jnp.uint32)
            h = (c + o) * jnp.array([1, 2654435761, 805459861], jnp.uint32)
            h = (h[:, 0] ^ h[:, 1] ^ h[:, 2]) % jnp.uint32(t.shape[1])
            wt = jnp.where(o == 1, w, 1 - w).prod(1)
            acc = acc + wt[:, None] * t[low][h]
        out.append(acc)
    return jnp.concatenate(out, 1)


@program(
    small=case(uniform(0, 1, 8, 3), normal(3, 16, 2), normal(8, 6)),
    medium=case(uniform(0, 1, 4096, 3), normal(8, 4096, 2), normal(4096, 16)),
)
def hashed_grid_grad(x, t, y):
    return jax.grad(lambda t: ((hashed_grid_encoding(x, t) - y) ** 2).mean())(t)


@program(small=case(integers(0, 3, 40)), medium=case(integers(0, 3, 100000)))
def run_lengths(x):
    n = x.shape[0]
    new = jnp.concatenate([jnp.array([True]), x[1:] != x[:-1]])
    i = jnp.cumsum(new) - 1
    v = jnp.zeros(n, x.dtype).at[i].set(x)
    c = jnp.zeros(n, jnp.int32).at[i].add(1)
    return v, c, i[-1] + 1, jnp.cumsum(c)


@program(small=case(integers(0, 8, 30, 4), normal(30)), medium=case(integers(0, 64, 20000, 16), normal(20000)))
def boosted_split_histograms(b, g):
    nb = 8 if b.shape[0] < 100 else 64
    f = b.shape[1]
    h = (
        jnp.zeros((f, nb, 2))
        .at[jnp.arange(f)[None], b]
        .add(jnp.stack([jnp.broadcast_to(g[:, None], b.shape), jnp.ones(b.shape)], -1))
    )
    c = jnp.cumsum(h, 1)
    t = c[:, -1:]
    r = t - c
    gain = c[..., 0] ** 2 / (c[..., 1] + 1) + r[..., 0] ** 2 / (r[..., 1] + 1) - t[..., 0] ** 2 / (t[..., 1] + 1)
    best = gain.reshape(-1).argmax()
    return gain.max(), best // nb, best % nb


@program(small=case(normal(6, 3), integers(0, 6, 10, 2)), medium=case(normal(2000, 64), integers(0, 2000, 12000, 2)))
def equivariant_messages(x, e):
    p = x[:, :3]
    s, t = e[:, 0], e[:, 1]
    d = p[s] - p[t]
    r = jnp.sqrt((d * d).sum(-1, keepdims=True) + 1e-6)
    k = jnp.linspace(0, 5, 16)
    rbf = jnp.exp(-((r - k) ** 2)) * 0.5 * (jnp.cos(jnp.pi * jnp.clip(r / 5, 0, 1)) + 1)
    m = x[s] * rbf.sum(-1, keepdims=True)
    h = jnp.zeros_like(x).at[t].add(m)
    v = jnp.zeros_like(p).at[t].add(d / r * m.mean(-1, keepdims=True))
    return h, v
