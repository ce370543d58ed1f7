"""Reductions by any function, cumulative operations and scans."""

from __future__ import annotations

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform


@program(small=case(normal(20, 50)), medium=case(normal(1000, 1000)))
def argmax_rows(x):
    return jnp.argmax(x, axis=1)


@program(small=case(normal(20, 50)), medium=case(normal(1000, 1000)))
def argmin_columns(x):
    return jnp.argmin(x, axis=0), jnp.min(x, axis=0)


@program(small=case(normal(20, 50)), medium=case(normal(500, 1000)))
def logsumexp_pair(x):
    def join(a, b):
        (m, s), (n, t) = a, b
        peak = jnp.maximum(m, n)
        return peak, s * jnp.exp(m - peak) + t * jnp.exp(n - peak)

    m, s = lax.reduce((x, jnp.ones_like(x)), (-1e30, 0.0), join, (1,))
    return m + jnp.log(s)


@program(small=case(normal(20, 50)), medium=case(normal(500, 1000)), bound=1e-3)
def welford(x):
    def join(a, b):
        (n, mean, m2), (k, other, o2) = a, b
        total = jnp.maximum(n + k, 1.0)
        d = other - mean
        return n + k, mean + d * k / total, m2 + o2 + d * d * n * k / total

    n, mean, m2 = lax.reduce((jnp.ones_like(x), x, jnp.zeros_like(x)), (0.0, 0.0, 0.0), join, (1,))
    return mean, m2 / n


@program(small=case(normal(20, 50)), medium=case(normal(1000, 1000)))
def variance_axes(x):
    return jnp.var(x, 0), jnp.std(x, 1)


@program(small=case(normal(8, 10, 12)), medium=case(normal(64, 100, 120)))
def sum_middle_axis(x):
    return x.sum(1), jnp.abs(x).max((0, 2)), jnp.prod(1 + 0.01 * x, 1)


@program(small=case(normal(1000)), medium=case(normal(1_000_000)), bound=1e-3)
def cumulative_sum(x):
    return jnp.cumsum(x)


@program(small=case(normal(20, 50)), medium=case(normal(1000, 500)))
def cumulative_max_rows(x):
    return lax.cummax(x, axis=1)


@program(small=case(normal(20, 50)), medium=case(normal(64, 400)), bound=1e-3)
def cumulative_logsumexp(x):
    return lax.cumlogsumexp(x, axis=1)


@program(small=case(uniform(0.9, 1.1, 50, 20)), medium=case(uniform(0.99, 1.01, 1000, 200)), bound=1e-3)
def cumulative_product(x):
    return lax.cumprod(x, axis=0)


@program(small=case(uniform(0, 1, 64, 8), normal(64, 8)), medium=case(uniform(0, 1, 2048, 64), normal(2048, 64)))
def linear_recurrence(a, b):
    def join(x, y):
        return x[0] * y[0], y[0] * x[1] + y[1]

    return lax.associative_scan(join, (a, b))[1]


@program(small=case(normal(64, 3, 3, scale=0.5)), medium=case(normal(4000, 3, 3, scale=0.5)), bound=1e-3)
def matrix_scan(x):
    return lax.associative_scan(lambda a, b: jnp.clip(a @ b, -2, 2), x)


@program(small=case(normal(500)), medium=case(normal(500_000)))
def moments(x):
    d = x - x.mean()
    v = (d * d).mean()
    return (d ** 3).mean() / v ** 1.5, (d ** 4).mean() / v ** 2, jnp.abs(x).max(), (x > 0).sum()


@program(small=case(normal(20, 50)), medium=case(normal(1000, 1000)))
def any_all_count(x):
    return (x > 2).any(1), (x > -3).all(0), jnp.count_nonzero(x > 0, 1)


@program(small=case(normal(30, 8), normal(40, 8)), medium=case(normal(1000, 16), normal(800, 16)))
def nearest_pairs(x, y):
    d = jnp.sum((x[:, None] - y[None]) ** 2, -1)
    return d.argmin(1), jnp.sqrt(d.min(1))


@program(small=case(normal(100)), medium=case(normal(200_000)), bound=1e-3)
def exponential_average(x):
    return lax.scan(lambda m, x: ((m := 0.9 * m + 0.1 * x), m), jnp.float32(0), x)[1]


@program(small=case(normal(20, 200)), medium=case(normal(500, 2000)))
def rolling_window(x):
    total = lax.reduce_window(x, 0.0, lax.add, (1, 16), (1, 1), "VALID")
    peak = lax.reduce_window(x, -jnp.inf, lax.max, (1, 16), (1, 1), "VALID")
    return total / 16, peak


@program(small=case(normal(16, 64)), medium=case(normal(1000, 1000)))
def normalise_rows(x):
    return jax.nn.softmax(x, -1) - x / jnp.linalg.norm(x, axis=-1, keepdims=True)


@program(small=case(normal(4, 16), normal(16, 4)), medium=case(normal(200, 64), normal(64, 32)), bound=1e-2)
def balanced_transport(x, y):
    """Sinkhorn's iteration in logarithms: rows and columns are brought to one in turns."""
    k = -jnp.abs(x @ y)

    def step(state, _):
        f = -jax.nn.logsumexp(k + state[1], 1)
        return (f, -jax.nn.logsumexp(k + f[:, None], 0)), None

    (f, g), _ = lax.scan(step, (jnp.zeros(k.shape[0]), jnp.zeros(k.shape[1])), length=20)
    return jnp.exp(k + f[:, None] + g)


@program(small=case(normal(20, 2), integers(0, 20, 8, 2)), medium=case(normal(5000, 2), integers(0, 5000, 256, 2)))
def consensus_lines(p, idx):
    a, b = p[idx[:, 0]], p[idx[:, 1]]
    d = b - a
    n = jnp.stack([-d[:, 1], d[:, 0]], 1)
    n = n / (jnp.linalg.norm(n, axis=1, keepdims=True) + 1e-6)
    c = (n * a).sum(1)
    r = jnp.abs(p @ n.T - c)
    k = (r < 0.1).sum(0)
    best = k.argmax()
    w = (r[:, best] < 0.1).astype(jnp.float32)
    m = (w[:, None] * p).sum(0) / w.sum()
    q = (p - m) * w[:, None]
    return k, n[best], q.T @ q


@program(
    small=case(uniform(-1.5, 1.5, 8, 2), uniform(-1.5, 1.5, 6, 2)),
    medium=case(uniform(-1.5, 1.5, 400, 2), uniform(-1.5, 1.5, 300, 2)),
)
def great_circle_distances(a, b):
    d = a[:, None] - b[None]
    h = jnp.sin(d[..., 0] / 2) ** 2 + jnp.cos(a[:, None, 0]) * jnp.cos(b[None, :, 0]) * jnp.sin(d[..., 1] / 2) ** 2
    g = 2 * jnp.arcsin(jnp.sqrt(jnp.clip(h, 0, 1)))
    return g.min(1), g.argmin(1), jnp.arctan2(jnp.sin(d[..., 1]) * jnp.cos(b[None, :, 0]), g)


@program(small=case(normal(5, 8), normal(6, 8)), medium=case(normal(256, 64), normal(256, 64)))
def log_sinkhorn_assignment(a, b):
    s = a @ b.T / 4
    s = jnp.pad(s, ((0, 1), (0, 1)), constant_values=1.0)

    def it(s, _):
        s = s - jax.nn.logsumexp(s, 1, keepdims=True)
        return s - jax.nn.logsumexp(s, 0, keepdims=True), None

    s = lax.scan(it, s, None, length=10)[0]
    m = s[:-1, :-1]
    i, j = m.argmax(1), m.argmax(0)
    return i, (j[i] == jnp.arange(i.shape[0])) & (m.max(1) > -2)
