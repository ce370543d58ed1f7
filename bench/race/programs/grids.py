"""Stencils, pooling and images."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform


@program(small=case(normal(32, 32), steps=20), medium=case(normal(512, 512), steps=200), bound=1e-3)
def heat(u, steps):
    def step(_, u):
        inner = u[1:-1, 1:-1]
        return u.at[1:-1, 1:-1].add(0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner))

    return lax.fori_loop(0, steps, step, u)


@program(small=case(normal(32, 32), steps=20), medium=case(normal(256, 256), steps=100), bound=1e-3)
def heat_padded(u, steps):
    def step(_, u):
        p = jnp.pad(u, 1, mode="edge")
        return u + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)

    return lax.fori_loop(0, steps, step, u)


@program(small=case(normal(16, 16, 16)), medium=case(normal(64, 64, 64)))
def laplace_3d(u):
    return sum(jnp.roll(u, s, a) for s in (1, -1) for a in range(3)) - 6 * u


@program(small=case(integers(0, 2, 32, 32), steps=10), medium=case(integers(0, 2, 256, 256), steps=100))
def life(board, steps):
    def step(_, b):
        around = sum(jnp.roll(b, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - b
        return ((around == 3) | ((b == 1) & (around == 2))).astype(b.dtype)

    return lax.fori_loop(0, steps, step, board)


@program(small=case(normal(1000), steps=50), medium=case(normal(100_000), steps=200), bound=1e-3)
def wave(u, steps):
    def step(state, _):
        u, before = state
        after = 2 * u - before + 0.2 * (jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u)
        return (after, u), jnp.sum(after * after)

    (u, _), energy = lax.scan(step, (u, u), length=steps)
    return u, energy


@program(small=case(normal(1, 16, 16, 8)), medium=case(normal(8, 112, 112, 32)))
def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


@program(small=case(normal(1, 16, 16, 8)), medium=case(normal(8, 56, 56, 32)))
def average_pool(x):
    ones = jnp.ones((1, *x.shape[1:3], 1))

    def pooled(v):
        return lax.reduce_window(v, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")

    return pooled(x) / pooled(ones)


@program(small=case(normal(1, 16, 16, 8)), medium=case(normal(4, 56, 56, 32)))
def max_pool_grad(x):
    return jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2))(x)


@program(small=case(uniform(0, 1, 64, 64)), medium=case(uniform(0, 1, 1000, 1000)))
def gaussian_blur(x):
    w = (0.0625, 0.25, 0.375, 0.25, 0.0625)
    p = jnp.pad(x, 2, mode="reflect")
    rows = sum(c * p[k:k + x.shape[0]] for k, c in enumerate(w))
    return sum(c * rows[:, k:k + x.shape[1]] for k, c in enumerate(w))


@program(small=case(uniform(0, 1, 64, 64)), medium=case(uniform(0, 1, 1000, 1000)))
def sobel(x):
    p = jnp.pad(x, 1)
    a, b, c = p[:-2], p[1:-1], p[2:]
    gy = (c - a)[:, :-2] + 2 * (c - a)[:, 1:-1] + (c - a)[:, 2:]
    s = a + 2 * b + c
    return jnp.hypot(s[:, 2:] - s[:, :-2], gy)


@program(small=case(uniform(0, 1, 32, 32, 3)), medium=case(uniform(0, 1, 400, 400, 3)))
def resize_bilinear(x):
    h, w, c = x.shape
    return jax.image.resize(x, (h * 3 // 2, w * 3 // 2, c), "bilinear")


@program(small=case(uniform(0, 1, 2, 32, 32, 3)), medium=case(uniform(0, 1, 16, 224, 224, 3)))
def normalise_and_flip(x):
    mean, std = jnp.array([0.48, 0.45, 0.4]), jnp.array([0.22, 0.22, 0.22])
    return jnp.transpose(((x - mean) / std)[:, :, ::-1], (0, 3, 1, 2))


@program(small=case(integers(0, 256, 64, 64)), medium=case(integers(0, 256, 1000, 1000)), bound=1e-3)
def equalise_histogram(x):
    counts = jnp.zeros(256, jnp.int32).at[x.ravel()].add(1)
    cdf = jnp.cumsum(counts)
    return (cdf * (255.0 / x.size)).astype(jnp.uint8)[x]


@program(small=case(uniform(0, 1, 32, 32)), medium=case(uniform(0, 1, 300, 300)))
def median_filter(x):
    p = jnp.pad(x, 1, mode="edge")
    h, w = x.shape
    return jnp.sort(jnp.stack([p[i:i + h, j:j + w] for i in range(3) for j in range(3)]), axis=0)[4]


@program(small=case(uniform(0, 1, 32, 32)), medium=case(uniform(0, 1, 1000, 1000)))
def integral_image(x):
    return jnp.cumsum(jnp.cumsum(x, 0), 1)


@program(small=case(uniform(0, 1, 2, 16, 16, 3)), medium=case(uniform(0, 1, 16, 224, 224, 3)))
def patches(x):
    n, h, w, c = x.shape
    cut = ((x - 0.5) * 2).reshape(n, h // 8, 8, w // 8, 8, c)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(n, h * w // 64, 64 * c)


@program(small=case(normal(1, 8, 8, 16)), medium=case(normal(4, 64, 64, 64)))
def depth_to_space(x):
    n, h, w, c = x.shape
    return jax.nn.relu(x).reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)


@program(small=case(uniform(0, 1, 32, 32)), medium=case(uniform(0, 1, 1000, 1000)))
def hessian_determinant(x):
    p = jnp.pad(x, 1, mode="symmetric")
    yy = p[2:, 1:-1] - 2 * x + p[:-2, 1:-1]
    xx = p[1:-1, 2:] - 2 * x + p[1:-1, :-2]
    xy = (p[2:, 2:] - p[2:, :-2] - p[:-2, 2:] + p[:-2, :-2]) / 4
    return xx * yy - xy * xy


@program(small=case(uniform(0, 1, 16, 16, 3)), medium=case(uniform(0, 1, 600, 600, 3)))
def resize_down(x):
    h, w, c = x.shape
    return jax.image.resize(x, (h // 2, w // 2, c), "bicubic")


@program(small=case(uniform(0, 1, 16, 32, 3)), medium=case(uniform(0, 1, 500, 800, 3)))
def rotate_and_grey(x):
    grey = x @ jnp.array([0.299, 0.587, 0.114])
    return jnp.rot90(grey), jnp.clip(x[:, ::-1] * 1.2 - 0.1, 0, 1).transpose(2, 0, 1)


@program(small=case(uniform(0, 1, 10, 14, 3), normal(20, 21, 3)), medium=case(uniform(0, 1, 80, 112, 3), normal(160, 170, 3)))
def resize_gradient(x, target):
    return jax.value_and_grad(lambda x: jnp.mean((jax.image.resize(x, target.shape, "bicubic") - target) ** 2))(x)


@program(small=case(normal(2, 16, 24)), medium=case(normal(64, 96, 96)))
def cosine_transform_of_blocks(x):
    n, h, w = x.shape
    k = jnp.arange(8)
    basis = jnp.cos(jnp.pi * (2 * k + 1) * k[:, None] / 16) * jnp.where(k == 0, 8**-0.5, 0.5)[:, None]
    blocks = x.reshape(n, h // 8, 8, w // 8, 8).transpose(0, 1, 3, 2, 4)
    kept = jnp.einsum("ui,bxyij,vj->bxyuv", basis, blocks, basis) * (k[:, None] + k < 6)
    return jnp.einsum("ui,bxyuv,vj->bxyij", basis, kept, basis).transpose(0, 1, 3, 2, 4).reshape(x.shape)


@program(small=case(uniform(0, 1, 10, 10)), medium=case(uniform(0, 1, 100, 100)))
def bilateral_filter(x):
    p = jnp.pad(x, 2, mode="reflect")
    h, w = x.shape
    total = weight = 0.0
    for i in range(5):
        for j in range(5):
            y = p[i : i + h, j : j + w]
            near = jnp.exp(-((i - 2) ** 2 + (j - 2) ** 2) / 8 - (y - x) ** 2 * 50)
            total, weight = total + near * y, weight + near
    return total / weight


@program(small=case(integers(0, 255, 16, 16, dtype=np.uint8)), medium=case(integers(0, 255, 512, 512, dtype=np.uint8)))
def residue_of_opening(x):
    eroded = lax.reduce_window(x, np.uint8(255), lax.min, (3, 3), (1, 1), "SAME")
    opened = lax.reduce_window(eroded, np.uint8(0), lax.max, (3, 3), (1, 1), "SAME")
    return x - jnp.minimum(x, opened)


@program(small=case(normal(2, 20, 3)), medium=case(normal(16, 2001, 17)))
def max_pool_1d_grad(x):
    return jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 5, 1), (1, 3, 1), "SAME") ** 2).sum())(x)


@program(small=case(uniform(-0.3, 0.3, 3), size=12, steps=12), medium=case(uniform(-0.3, 0.3, 3), size=160, steps=40))
def ray_march(centre, size, steps):
    """To a sphere and a box, by distances to the nearest."""
    g = jnp.linspace(-1, 1, size)
    d = jnp.stack([*jnp.meshgrid(g, g), jnp.full((size, size), 1.5)], -1)
    d = d / jnp.linalg.norm(d, axis=-1, keepdims=True)

    def distance(p):
        sphere = jnp.sqrt(((p - centre) ** 2).sum(-1)) - 0.5
        q = jnp.abs(p - jnp.array([0.6, 0.2, 0.4])) - 0.25
        box = jnp.sqrt((jnp.maximum(q, 0) ** 2).sum(-1)) + jnp.minimum(q.max(-1), 0)
        return jnp.minimum(sphere, box)

    eye = jnp.array([0.0, 0.0, -2.0])
    return lax.fori_loop(0, steps, lambda _, t: t + jnp.minimum(distance(eye + t[..., None] * d), 1.0), jnp.zeros((size, size)))


@program(small=case(uniform(0, 1, 16, 16)), medium=case(uniform(0, 1, 256, 256)))
def oriented_histograms(x):
    gx, gy = jnp.pad(x[:, 2:] - x[:, :-2], ((0, 0), (1, 1))), jnp.pad(x[2:] - x[:-2], ((1, 1), (0, 0)))
    angle = jnp.clip((jnp.mod(jnp.arctan2(gy, gx), jnp.pi) * 9 / jnp.pi).astype(jnp.int32), 0, 8)
    rows, columns = (jnp.arange(n) // 8 for n in x.shape)
    found = jnp.zeros((x.shape[0] // 8, x.shape[1] // 8, 9)).at[rows[:, None], columns[None], angle].add(jnp.sqrt(gx**2 + gy**2))
    return found / (jnp.linalg.norm(found, axis=-1, keepdims=True) + 1e-3)


@program(small=case(uniform(0, 1, 10, 10), steps=4), medium=case(uniform(0, 1, 200, 200), steps=20))
def distance_to_points(x, steps):
    """Of each cell, by way of its neighbours."""
    def step(_, d):
        wide, (n, m) = jnp.pad(d, 1, constant_values=1e3), d.shape
        near = [wide[1 + i : 1 + i + n, 1 + j : 1 + j + m] + np.float32(np.hypot(i, j)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        return jnp.stack(near).min(0)

    return lax.fori_loop(0, steps, step, jnp.where(x > 0.99, 0, 1e3))


@program(small=case(integers(0, 256, 8, 8)), medium=case(integers(0, 256, 256, 256)))
def histogram_equalised(x):
    ranks = jnp.cumsum(jnp.zeros(256, jnp.int32).at[x.ravel()].add(1))
    return ((ranks[x] - ranks.min()) * 255 // jnp.maximum(ranks[-1] - ranks.min(), 1)).astype(jnp.uint8)


@program(small=case(integers(0, 256, 64)), medium=case(integers(0, 256, 65_536)))
def otsu_threshold(x):
    """Where a histogram falls apart best."""
    share = jnp.bincount(x, length=256) / x.size
    below, mean = jnp.cumsum(share), jnp.cumsum(share * jnp.arange(256))
    between = (mean[-1] * below - mean) ** 2 / jnp.maximum(below * (1 - below), 1e-9)
    return jnp.argmax(between), between.max()
