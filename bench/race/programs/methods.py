"""Methods of many fields: networks, physics, pictures, markets, statistics, graphs and numbers, each unlike those elsewhere."""

from __future__ import annotations

from bench.race.program import case, integers, jax, jnp, lax, normal, ordered, program, uniform, weights
from bench.race.programs.networks import cross_entropy, layer_norm, stepped

# --- networks


def mixed(x, wa, wb, wc, wd):
    y = x + jnp.swapaxes(jax.nn.gelu(jnp.swapaxes(layer_norm(x), 1, 2) @ wa) @ wb, 1, 2)
    return y + jax.nn.gelu(layer_norm(y) @ wc) @ wd


@program(medium=case(normal(8, 196, 192), integers(0, 100, 8),
                     *weights((196, 128), (128, 196), (192, 384), (384, 192), (192, 100))))
def patch_mixer_train(x, labels, *w):
    return stepped(lambda w: cross_entropy(mixed(x, *w[:4]).mean(1) @ w[4], labels), w)


def coupled(x, w, flip):
    a, b = jnp.split(x, 2, -1)
    a, b = (b, a) if flip else (a, b)
    s, t = jnp.split(jnp.tanh(jax.nn.relu(a @ w[0]) @ w[1]), 2, -1)
    b = b * jnp.exp(s) + t
    return jnp.concatenate([b, a] if flip else [a, b], -1), s.sum(-1)


@program(medium=case(normal(2048, 64), *weights(*((32, 128), (128, 64)) * 4)))
def coupling_flow_train(x, *w):
    def loss(w):
        y, total = x, 0.0
        for k in range(4):
            y, s = coupled(y, w[2 * k : 2 * k + 2], k % 2)
            total += s
        return jnp.mean(0.5 * (y * y).sum(-1) - total)

    return stepped(loss, w)


@program(medium=case(uniform(0, 1, 512, 784), normal(512, 32), *weights((784, 256), (256, 64), (32, 256), (256, 784))))
def variational_autoencoder_train(x, noise, *w):
    def loss(w):
        mean, spread = jnp.split(jax.nn.softplus(x @ w[0]) @ w[1], 2, -1)
        logits = jax.nn.softplus((mean + jnp.exp(0.5 * spread) * noise) @ w[2]) @ w[3]
        likelihood = (x * jax.nn.log_sigmoid(logits) + (1 - x) * jax.nn.log_sigmoid(-logits)).sum(-1)
        return jnp.mean(0.5 * (jnp.exp(spread) + mean ** 2 - 1 - spread).sum(-1) - likelihood)

    return stepped(loss, w)


def densely(x, w):
    for k in w:
        y = lax.conv_general_dilated(jnp.tanh(x), k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jnp.concatenate([x, y], -1)
    return x


@program(medium=case(normal(4, 32, 32, 32), *weights((3, 3, 32, 16), (3, 3, 48, 16), (3, 3, 64, 16), (3, 3, 80, 16))))
def densely_connected_grad(x, *w):
    return jax.grad(lambda w: jnp.mean(densely(x, w) ** 2))(w)


@program(medium=case(normal(4, 4096, 16), *weights(*((2, 16, 32), (1, 16, 16)) * 6)))
def gated_dilated_stack_grad(x, *w):
    def loss(w):
        y, skip = x, 0.0
        for k in range(6):
            z = lax.conv_general_dilated(jnp.pad(y, ((0, 0), (2 ** k, 0), (0, 0))), w[2 * k], (1,), "VALID", rhs_dilation=(2 ** k,),
                                         dimension_numbers=("NWC", "WIO", "NWC"))
            a, b = jnp.split(z, 2, -1)
            z = (jnp.tanh(a) * jax.nn.sigmoid(b)) @ w[2 * k + 1][0]
            y, skip = y + z, skip + z
        return jnp.mean(skip ** 2)

    return jax.grad(loss)(w)


@program(medium=case(normal(512, 512), normal(512, 512), scale=0.02))
def orthogonalised_momentum(g, m, *, scale):
    m = 0.95 * m + g
    x = m / (jnp.linalg.norm(m) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return m, -scale * x


def faked(x, bits=8):
    scale = lax.stop_gradient(jnp.max(jnp.abs(x))) / (2 ** (bits - 1) - 1)
    return x + lax.stop_gradient(jnp.clip(jnp.round(x / scale), -128, 127) * scale - x)


@program(medium=case(normal(256, 256), integers(0, 100, 256), *weights((256, 512), (512, 512), (512, 100))))
def quantisation_aware_train(x, y, *w):
    def loss(w):
        h = x
        for k in w[:-1]:
            h = jax.nn.relu(faked(h) @ faked(k))
        return cross_entropy(faked(h) @ faked(w[-1]), y)

    return stepped(loss, w)


@program(medium=case(normal(8, 256, 64), normal(8, 128, 64), *weights((64, 64), (64, 128), (64, 64), (64, 256), (256, 64))))
def cross_attention_grad(x, memory, *w):
    def loss(w):
        q = layer_norm(x) @ w[0]
        k, v = jnp.split(memory @ w[1], 2, -1)
        q, k, v = (a.reshape(*a.shape[:2], 4, 16) for a in (q, k, v))
        distance = jnp.abs(jnp.arange(256)[:, None] - 2 * jnp.arange(128))
        slopes = 2.0 ** -jnp.arange(1, 5)
        s = jnp.einsum("bthd,bshd->bhts", q, k) / 4 - slopes[:, None, None] * distance
        y = x + jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s), v).reshape(x.shape) @ w[2]
        y = y + jax.nn.silu(layer_norm(y) @ w[3]) @ w[4]
        return jnp.mean(y * y)

    return jax.grad(loss)(w)


@program(medium=case(normal(1024, 32), *weights((32, 128), (128, 32)), steps=10))
def neural_differential_equation_grad(x, *w, steps):
    def loss(w):
        def slope(y):
            return jnp.tanh(y @ w[0]) @ w[1]

        def step(y, _):
            k1 = slope(y)
            k2 = slope(y + 0.05 * k1)
            k3 = slope(y + 0.05 * k2)
            k4 = slope(y + 0.1 * k3)
            return y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return jnp.mean(lax.scan(step, x, None, length=steps)[0] ** 2)

    return jax.grad(loss)(w)


# --- fields on grids


@program(medium=case(normal(100000), steps=10))
def weighted_upwind_fluxes(u, *, steps):
    def flux(a, b, c, d, e):
        p = ((2 * a - 7 * b + 11 * c) / 6, (-b + 5 * c + 2 * d) / 6, (2 * c + 5 * d - e) / 6)
        s = (13 / 12 * (a - 2 * b + c) ** 2 + (a - 4 * b + 3 * c) ** 2 / 4, 13 / 12 * (b - 2 * c + d) ** 2 + (b - d) ** 2 / 4,
             13 / 12 * (c - 2 * d + e) ** 2 + (3 * c - 4 * d + e) ** 2 / 4)
        w = [g / (1e-6 + x) ** 2 for g, x in zip((0.1, 0.6, 0.3), s, strict=True)]
        return sum(x * y for x, y in zip(w, p, strict=True)) / sum(w)

    def step(_, u):
        f = flux(*(jnp.roll(0.5 * u * u, k) for k in (2, 1, 0, -1, -2)))
        return u - 0.001 * (f - jnp.roll(f, 1))

    return lax.fori_loop(0, steps, step, jnp.abs(u))


@program(medium=case(normal(128, 128, scale=0.1), normal(128, 128, scale=0.1), steps=5, sweeps=20))
def incompressible_flow(u, v, *, steps, sweeps):
    def dx(a):
        return (jnp.roll(a, -1, 1) - jnp.roll(a, 1, 1)) / 2

    def dy(a):
        return (jnp.roll(a, -1, 0) - jnp.roll(a, 1, 0)) / 2

    def near(a):
        return jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1)

    def step(_, state):
        u, v = state
        a = u - 0.1 * (u * dx(u) + v * dy(u)) + 0.01 * (near(u) - 4 * u)
        b = v - 0.1 * (u * dx(v) + v * dy(v)) + 0.01 * (near(v) - 4 * v)
        div = dx(a) + dy(b)
        p = lax.fori_loop(0, sweeps, lambda _, p: (near(p) - div) / 4, jnp.zeros_like(u))
        return a - dx(p), b - dy(p)

    return lax.fori_loop(0, steps, step, (u, v))


@program(medium=case(normal(300, 300), steps=20))
def signed_distance_by_evolution(phi, *, steps):
    sign = phi / jnp.sqrt(phi * phi + 1)

    def slope(a, b, c, d):
        x, y = jnp.maximum(jnp.maximum(a, 0), -jnp.minimum(b, 0)), jnp.maximum(jnp.maximum(c, 0), -jnp.minimum(d, 0))
        return jnp.sqrt(x * x + y * y)

    def step(_, p):
        q = jnp.pad(p, 1, mode="edge")
        a, b = p - q[:-2, 1:-1], q[2:, 1:-1] - p
        c, d = p - q[1:-1, :-2], q[1:-1, 2:] - p
        return p - 0.3 * sign * (jnp.where(sign > 0, slope(a, b, c, d), slope(b, a, d, c)) - 1)

    return lax.fori_loop(0, steps, step, phi)


# --- pictures and signals


@program(medium=case(uniform(0, 1, 4, 128, 128), uniform(0, 1, 4, 128, 128)))
def structural_similarity_grad(x, y):
    g = jnp.exp(-jnp.arange(-5.0, 6.0) ** 2 / 4.5)
    g = g / g.sum()

    def blurred(a):
        a = lax.conv_general_dilated(a[:, None], g.reshape(1, 1, 11, 1), (1, 1), "VALID")
        return lax.conv_general_dilated(a, g.reshape(1, 1, 1, 11), (1, 1), "VALID")[:, 0]

    def loss(x):
        mx, my = blurred(x), blurred(y)
        vx, vy, c = blurred(x * x) - mx * mx, blurred(y * y) - my * my, blurred(x * y) - mx * my
        return 1 - jnp.mean((2 * mx * my + 1e-4) * (2 * c + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4)))

    return jax.value_and_grad(loss)(x)


@program(medium=case(uniform(0, 1, 512, 512), k=200))
def strongest_corners(x, *, k):
    gx, gy = jnp.roll(x, -1, 1) - jnp.roll(x, 1, 1), jnp.roll(x, -1, 0) - jnp.roll(x, 1, 0)

    def summed(a):
        return lax.reduce_window(a, 0.0, lax.add, (5, 5), (1, 1), "SAME")

    a, b, c = summed(gx * gx), summed(gy * gy), summed(gx * gy)
    r = a * b - c * c - 0.05 * (a + b) ** 2
    peak = lax.reduce_window(r, -jnp.inf, lax.max, (7, 7), (1, 1), "SAME")
    return lax.top_k(jnp.where(r == peak, r, 0.0).reshape(-1), k)


@program(medium=case(uniform(0, 1, 400, 400)))
def local_binary_patterns(x):
    p = jnp.pad(x, 1, mode="reflect")
    places = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    code = sum((p[i : i + 400, j : j + 400] >= x).astype(jnp.int32) << k for k, (i, j) in enumerate(places))
    cell = code.reshape(8, 50, 8, 50).transpose(0, 2, 1, 3).reshape(64, -1)
    return jnp.zeros((64, 256), jnp.int32).at[jnp.arange(64)[:, None], cell].add(1)


@program(medium=case(normal(64, 16384), levels=6))
def wavelet_denoised(x, *, levels):
    low = jnp.array([0.48296291, 0.8365163, 0.22414387, -0.12940952])
    high = jnp.array([-0.12940952, -0.22414387, 0.8365163, -0.48296291])
    details, a = [], x
    for _ in range(levels):
        p = jnp.concatenate([a, a[:, :2]], 1)
        parts = [p[:, k : p.shape[1] - 2 + k : 2] for k in range(2)] + [p[:, 2 + k :: 2] for k in range(2)]
        a, d = (sum(f[k] * parts[k] for k in range(4)) for f in (low, high))
        details.append(jnp.sign(d) * jax.nn.relu(jnp.abs(d) - 0.5))
    for d in details[::-1]:
        even = low[2] * jnp.roll(a, 1, 1) + low[0] * a + high[2] * jnp.roll(d, 1, 1) + high[0] * d
        odd = low[3] * jnp.roll(a, 1, 1) + low[1] * a + high[3] * jnp.roll(d, 1, 1) + high[1] * d
        a = jnp.stack([even, odd], -1).reshape(x.shape[0], -1)
    return a


# --- markets


@program(medium=case(normal(100, 20000), normal(100, 20000)))
def stochastic_volatility_paths(z1, z2):
    def step(state, z):
        s, v, low = state
        v0 = jnp.maximum(v, 0.0)
        s = s * jnp.exp(-0.5 * v0 * 0.01 + jnp.sqrt(v0 * 0.01) * z[0])
        v = v + 2.0 * (0.04 - v0) * 0.01 + 0.3 * jnp.sqrt(v0 * 0.01) * (-0.7 * z[0] + 0.714 * z[1])
        return (s, v, jnp.minimum(low, s)), None

    one = jnp.ones(z1.shape[1])
    (s, _, low), _ = lax.scan(step, (one, 0.04 * one, one), (z1, z2))
    paid = jnp.where(low > 0.8, jax.nn.relu(s - 1), 0.0)
    return paid.mean(), paid.std()


# --- statistics


@program(medium=case(normal(4000, 8), normal(16, 8), steps=5))
def gaussian_mixture_fit(x, mean, *, steps):
    def step(_, state):
        mean, var, share = state
        d = (x[:, None] - mean) ** 2
        r = jax.nn.softmax(jnp.log(share) - 0.5 * jnp.sum(d / var + jnp.log(var), -1), 1)
        n = r.sum(0)
        mean = r.T @ x / n[:, None]
        return mean, r.T @ (x * x) / n[:, None] - mean ** 2 + 1e-3, n / n.sum()

    return lax.fori_loop(0, steps, step, (mean, jnp.ones_like(mean), jnp.full(16, 1 / 16)))


@program(medium=case(normal(3000, 24)))
def rank_correlation(x):
    r = jnp.argsort(jnp.argsort(x, 0), 0).astype(jnp.float32)
    r = (r - r.mean(0)) / r.std(0)
    return r.T @ r / x.shape[0]


# --- matrices and graphs


@program(medium=case(integers(0, 3000, 24000), integers(0, 3000, 24000), steps=12))
def levels_from_a_source(a, b, *, steps):
    def step(k, level):
        reached = jnp.zeros(3000, bool).at[b].max(level[a] == k)
        return jnp.where(reached & (level < 0), k + 1, level)

    return lax.fori_loop(0, steps, step, jnp.full(3000, -1).at[0].set(0))


@program(medium=case(normal(3000, 32), integers(0, 3000, 3000, 10), *weights((32, 64), (96, 32))))
def pooled_neighbours_grad(x, near, *w):
    def loss(w):
        h = jax.nn.relu(x[near] @ w[0]).max(1)
        y = jnp.concatenate([x, h], -1) @ w[1]
        y = y / jnp.sqrt(jnp.sum(y * y, -1, keepdims=True) + 1e-6)
        return -jnp.mean(jax.nn.log_sigmoid(jnp.sum(y * jnp.roll(y, 1, 0), -1)))

    return jax.grad(loss)(w)


# --- particles and numbers


@program(medium=case(uniform(0, 1, 1200, 2)))
def smoothed_particles(x):
    h = 0.06

    def energy(x):
        d = x[:, None] - x
        q = jnp.sqrt(jnp.sum(d * d, -1) + 1e-9) / h
        w = jnp.where(q < 1, 1 - 1.5 * q ** 2 + 0.75 * q ** 3, jnp.where(q < 2, 0.25 * (2 - q) ** 3, 0.0))
        density = w.sum(1)
        return jnp.sum(density ** 2) / 2

    return jax.value_and_grad(energy)(x)


@program(medium=case(ordered(2000), normal(64, 2000), uniform(0.01, 0.99, 20000)))
def cubic_spline(x, y, at):
    h = jnp.diff(x) + 1e-4
    slope = jnp.diff(y, axis=1) / h
    diagonal = 2 * (h[1:] + h[:-1])
    right = 6 * jnp.diff(slope, axis=1)

    def down(state, t):
        c, d = state
        a, b, u, r = t
        n = 1 / (b - a * c)
        c, d = u * n, (r - a * d) * n
        return (c, d), (c, d)

    zero = jnp.zeros(64)
    _, (c, d) = lax.scan(down, (jnp.float32(0), zero), (h[:-1], diagonal, h[1:], right.T))
    _, m = lax.scan(lambda z, t: (t[1] - t[0] * z,) * 2, zero, (c, d), reverse=True)
    m = jnp.pad(m.T, ((0, 0), (1, 1)))
    i = jnp.clip(jnp.searchsorted(x, at) - 1, 0, 1998)
    behind, ahead = at - x[i], x[i + 1] - at
    cubes = (m[:, i] * ahead ** 3 + m[:, i + 1] * behind ** 3) / (6 * h[i])
    lines = (y[:, i] / h[i] - m[:, i] * h[i] / 6) * ahead + (y[:, i + 1] / h[i] - m[:, i + 1] * h[i] / 6) * behind
    return cubes + lines


@program(medium=case(integers(0, 4, 20000)))
def suffix_ranks(text):
    n = text.shape[0]

    def double(rank, k):
        second = jnp.where(jnp.arange(n) + k < n, rank[jnp.minimum(jnp.arange(n) + k, n - 1)] + 1, 0)
        a, b, order = lax.sort((rank, second, jnp.arange(n)), num_keys=2)
        new = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum((a[1:] != a[:-1]) | (b[1:] != b[:-1]), dtype=jnp.int32)])
        return jnp.zeros(n, jnp.int32).at[order].set(new)

    rank = text
    for k in (1, 2, 4, 8):
        rank = double(rank, k)
    return rank
