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


@program(small=case(normal(8, 8)), medium=case(normal(192, 192)))
def alternating_direction_heat(u):
    n = u.shape[0]
    c = 0.4

    def solve(d):
        def f(s, x):
            cp, dp = s
            m = 1 / (1 + 2 * c + c * cp)
            cp = -c * m
            dp = (x + c * dp) * m
            return (cp, dp), (cp, dp)

        _, (cp, dp) = lax.scan(f, (jnp.zeros(n), jnp.zeros(n)), d)

        def b(x, s):
            cp, dp = s
            x = dp - cp * x
            return x, x

        return lax.scan(b, jnp.zeros(n), (cp, dp), reverse=True)[1]

    def half(u):
        e = jnp.pad(u, ((0, 0), (1, 1)))
        return solve(u + c * (e[:, 2:] - 2 * u + e[:, :-2]))

    def step(u, _):
        return half(half(u).T).T, None

    return lax.scan(step, u, None, length=3)[0]


@program(small=case(normal(8, 8, scale=0.1)), medium=case(normal(200, 200, scale=0.1)))
def electromagnetic_waves(ez):
    n = ez.shape[0]
    hx = jnp.zeros((n, n - 1))
    hy = jnp.zeros((n - 1, n))

    def step(s, t):
        ez, hx, hy = s
        hx = hx - 0.5 * (ez[:, 1:] - ez[:, :-1])
        hy = hy + 0.5 * (ez[1:] - ez[:-1])
        ez = ez.at[1:-1, 1:-1].add(0.5 * ((hy[1:, 1:-1] - hy[:-1, 1:-1]) - (hx[1:-1, 1:] - hx[1:-1, :-1])))
        ez = ez.at[n // 2, n // 2].add(jnp.sin(0.3 * t))
        return (ez, hx, hy), ez[n // 4, n // 4]

    s, y = lax.scan(step, (ez, hx, hy), jnp.arange(20.0))
    return s[0], y


@program(small=case(uniform(0.9, 1.1, 8, 8)), medium=case(uniform(0.9, 1.1, 160, 160)))
def shallow_water(h):
    u = v = jnp.zeros_like(h)

    def step(s, _):
        h, u, v = s

        def dx(q):
            return 0.5 * (jnp.roll(q, -1, 0) - jnp.roll(q, 1, 0))

        def dy(q):
            return 0.5 * (jnp.roll(q, -1, 1) - jnp.roll(q, 1, 1))

        hu, hv = h * u, h * v
        h2 = h - 0.05 * (dx(hu) + dy(hv))
        u2 = u - 0.05 * (u * dx(u) + v * dy(u) + 9.8 * dx(h)) + 0.01 * v
        v2 = v - 0.05 * (u * dx(v) + v * dy(v) + 9.8 * dy(h)) - 0.01 * u
        return (h2, u2, v2), None

    return lax.scan(step, (h, u, v), None, length=8)[0]


@program(small=case(uniform(0, 1, 12, 12)), medium=case(uniform(0, 1, 300, 400)))
def thinned_edges(x):
    p = jnp.pad(x, 1, mode="edge")
    gx = p[1:-1, 2:] - p[1:-1, :-2]
    gy = p[2:, 1:-1] - p[:-2, 1:-1]
    m = jnp.hypot(gx, gy)
    q = jnp.pad(m, 1)
    a = jnp.abs(gx) > jnp.abs(gy)
    s = gx * gy > 0
    n1 = jnp.where(a, q[1:-1, 2:], q[2:, 1:-1])
    n2 = jnp.where(a, q[1:-1, :-2], q[:-2, 1:-1])
    d1 = jnp.where(s, q[2:, 2:], q[2:, :-2])
    d2 = jnp.where(s, q[:-2, :-2], q[:-2, 2:])
    peak = (m >= n1) & (m >= n2) & (m >= jnp.minimum(d1, d2))
    strong = peak & (m > 0.6)
    weak = peak & (m > 0.2)

    def grow(s, _):
        return weak & (lax.reduce_window(s, False, lax.bitwise_or, (3, 3), (1, 1), "SAME") | s), None

    return lax.scan(grow, strong, None, length=6)[0], m


@program(small=case(uniform(0, 1, 12, 12)), medium=case(uniform(0, 1, 320, 480)))
def demosaiced(b):
    h, w = b.shape
    y, x = jnp.arange(h)[:, None], jnp.arange(w)[None]
    r = jnp.where((y % 2 == 0) & (x % 2 == 0), b, 0)
    bl = jnp.where((y % 2 == 1) & (x % 2 == 1), b, 0)
    g = b - r - bl

    def conv(q, k):
        p = jnp.pad(q, 1, mode="reflect")
        return sum(k[i][j] * p[i : i + h, j : j + w] for i in range(3) for j in range(3) if k[i][j])

    kr = [[0.25, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 0.25]]
    kg = [[0, 0.25, 0], [0.25, 1, 0.25], [0, 0.25, 0]]
    o = jnp.stack([conv(r, kr), conv(g, kg), conv(bl, kr)], -1)
    return jnp.clip(o @ jnp.array([[1.6, -0.4, -0.2], [-0.3, 1.5, -0.2], [0, -0.5, 1.5]]).T, 0, 1) ** (1 / 2.2)


@program(small=case(uniform(0, 1, 16, 16), uniform(0, 1, 16, 16)), medium=case(uniform(0, 1, 256, 256), uniform(0, 1, 256, 256)))
def guided_filter(g, p):
    def box(x):
        c = jnp.cumsum(jnp.pad(x, ((4, 3), (0, 0)), mode="edge"), 0)
        x = c[7:] - c[:-7]
        c = jnp.cumsum(jnp.pad(x, ((0, 0), (4, 3)), mode="edge"), 1)
        return (c[:, 7:] - c[:, :-7]) / 49

    mg, mp = box(g), box(p)
    a = (box(g * p) - mg * mp) / (box(g * g) - mg * mg + 0.01)
    return box(a) * g + box(mp - a * mg)


@program(small=case(uniform(0, 1, 16, 16), tile=8), medium=case(uniform(0, 1, 256, 256), tile=32))
def local_equalisation(x, tile=8):
    h, w = x.shape
    n = 32
    b = jnp.clip((x * n).astype(jnp.int32), 0, n - 1)
    t = b.reshape(h // tile, tile, w // tile, tile).transpose(0, 2, 1, 3).reshape(h // tile, w // tile, -1)
    hist = (t[..., None] == jnp.arange(n)).sum(-2).astype(jnp.float32)
    lim = tile * tile / n * 2.0
    ex = jnp.maximum(hist - lim, 0).sum(-1, keepdims=True)
    cdf = jnp.cumsum(jnp.minimum(hist, lim) + ex / n, -1) / (tile * tile)
    y, xx = jnp.arange(h)[:, None], jnp.arange(w)[None]
    fy, fx = (y + 0.5) / tile - 0.5, (xx + 0.5) / tile - 0.5
    y0, x0 = jnp.floor(fy).astype(jnp.int32), jnp.floor(fx).astype(jnp.int32)
    wy, wx = fy - y0, fx - x0

    def cy(v):
        return jnp.clip(v, 0, h // tile - 1)

    def cx(v):
        return jnp.clip(v, 0, w // tile - 1)

    def q(a, c):
        return cdf[cy(a), cx(c), b]

    return (1 - wy) * ((1 - wx) * q(y0, x0) + wx * q(y0, x0 + 1)) + wy * ((1 - wx) * q(y0 + 1, x0) + wx * q(y0 + 1, x0 + 1))


@program(small=case(uniform(0, 1, 8, 8, 3), normal(3, 3)), medium=case(uniform(0, 1, 240, 320, 3), normal(3, 3)))
def perspective_warp(img, hm):
    h, w, _ = img.shape
    y, x = jnp.meshgrid(jnp.arange(h, dtype=jnp.float32), jnp.arange(w, dtype=jnp.float32), indexing="ij")
    hm = jnp.eye(3) + 0.0005 * hm
    p = jnp.stack([x, y, jnp.ones_like(x)], -1) @ hm.T
    u, v = p[..., 0] / p[..., 2], p[..., 1] / p[..., 2]
    x0, y0 = jnp.floor(u), jnp.floor(v)
    a, b = u - x0, v - y0

    def at(yy, xx):
        ok = (yy >= 0) & (yy < h) & (xx >= 0) & (xx < w)
        return jnp.where(ok[..., None], img[jnp.clip(yy, 0, h - 1).astype(jnp.int32), jnp.clip(xx, 0, w - 1).astype(jnp.int32)], 0)

    a, b = a[..., None], b[..., None]
    return (1 - a) * (1 - b) * at(y0, x0) + a * (1 - b) * at(y0, x0 + 1) + (1 - a) * b * at(y0 + 1, x0) + a * b * at(y0 + 1, x0 + 1)
