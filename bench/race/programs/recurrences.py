"""Recurrences: each step is short and waits for the step before."""

from __future__ import annotations

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform


@program(small=case(normal(100)), medium=case(normal(100_000)))
def double_smoothing(x):
    def step(state, x):
        level, trend = state
        new = 0.8 * (level + trend) + 0.2 * x
        trend = 0.9 * trend + 0.1 * (new - level)
        return (new, trend), new + trend

    return lax.scan(step, (x[0], jnp.float32(0)), x)[1]


@program(small=case(normal(200)), medium=case(normal(100_000)))
def biquad_filter(x):
    def step(state, x):
        x1, x2, y1, y2 = state
        y = 0.2 * x + 0.3 * x1 + 0.2 * x2 + 0.5 * y1 - 0.1 * y2
        return (x, x1, y, y1), y

    return lax.scan(step, (jnp.float32(0),) * 4, x)[1]


@program(small=case(normal(50, 4)), medium=case(normal(2000, 64)))
def smoothed_rows(x):
    return lax.scan(lambda m, x: ((m := 0.9 * m + 0.1 * x), m), jnp.zeros(x.shape[1]), x)[1]


@program(small=case(uniform(0, 1, 100), integers(0, 10, 100)), medium=case(uniform(0, 1, 100_000), integers(0, 10, 100_000)))
def peak_since_mark(x, mark):
    return lax.scan(lambda m, xs: ((m := jnp.where(xs[1] == 0, xs[0], jnp.maximum(m, xs[0]))), m), jnp.float32(0), (x, mark))[1]


@program(small=case(uniform(1, 2, 50), uniform(0, 0.4, 50), normal(50)),
         medium=case(uniform(1, 2, 20_000), uniform(0, 0.4, 20_000), normal(20_000)), bound=1e-3)
def tridiagonal_solve(diagonal, beside, right):
    def forward(state, row):
        c, r = state
        d, e, x = row
        pivot = d - e * c
        new = e / pivot, (x - e * r) / pivot
        return new, new

    _, (c, r) = lax.scan(forward, (jnp.float32(0), jnp.float32(0)), (diagonal, beside, right))
    return lax.scan(lambda y, cr: ((y := cr[1] - cr[0] * y), y), jnp.float32(0), (c, r), reverse=True)[1]


@program(small=case(integers(0, 4, 30), integers(0, 4, 30)), medium=case(integers(0, 4, 300), integers(0, 4, 300)))
def common_subsequence(a, b):
    def row(above, x):
        def cell(left, inputs):
            diagonal, up, y = inputs
            best = jnp.where(x == y, diagonal + 1, jnp.maximum(left, up))
            return best, best

        rest = lax.scan(cell, jnp.int32(0), (above[:-1], above[1:], b))[1]
        return jnp.concatenate([jnp.zeros(1, jnp.int32), rest]), None

    return lax.scan(row, jnp.zeros(b.size + 1, jnp.int32), a)[0][-1]


@program(small=case(normal(30), normal(30)), medium=case(normal(300), normal(300)))
def time_warping(x, y):
    def row(above, x):
        def cell(left, inputs):
            diagonal, up, y = inputs
            best = jnp.abs(x - y) + jnp.minimum(jnp.minimum(left, up), diagonal)
            return best, best

        rest = lax.scan(cell, jnp.float32(jnp.inf), (above[:-1], above[1:], y))[1]
        return jnp.concatenate([jnp.full(1, jnp.inf), rest]), None

    return lax.scan(row, jnp.full(y.size + 1, jnp.inf).at[0].set(0), x)[0][-1]


@program(small=case(normal(4), normal(50, 3, scale=0.01)), medium=case(normal(4), normal(5000, 3, scale=0.01)), bound=1e-3)
def turn_by_quaternions(q, rates):
    def step(q, w):
        turn = jnp.concatenate([jnp.ones(1), w / 2])
        a, u, b, v = q[0], q[1:], turn[0], turn[1:]
        q = jnp.concatenate([(a * b - u @ v)[None], a * v + b * u + jnp.cross(u, v)])
        q = q / jnp.sqrt(jnp.sum(q * q))
        return q, q

    return lax.scan(step, q, rates)[1]


@program(small=case(normal(50)), medium=case(normal(5000)), bound=1e-3)
def kalman_filter(z):
    f, h = jnp.array([[1.0, 0.1], [0.0, 1.0]]), jnp.array([1.0, 0.0])

    def step(state, z):
        x, p = state
        x, p = f @ x, f @ p @ f.T + 0.01 * jnp.eye(2)
        k = p @ h / (h @ p @ h + 0.5)
        x, p = x + k * (z - h @ x), p - jnp.outer(k, h @ p)
        return (x, p), x

    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), z)[1]


@program(small=case(normal(3, 2), normal(3, 2), steps=50), medium=case(normal(3, 2), normal(3, 2), steps=5000), bound=1e-1)
def three_bodies(x, v, steps):
    def step(_, state):
        x, v = state
        d = x[None] - x[:, None]
        v = v + 1e-5 * jnp.sum(d / (jnp.sum(d * d, -1, keepdims=True) + 0.1) ** 1.5, 1)
        return x + 1e-3 * v, v

    return lax.fori_loop(0, steps, step, (x, v))


@program(small=case(integers(1_000, 1_000_000), integers(1_000, 1_000_000)),
         medium=case(integers(1, 1 << 30, 20_000), integers(1, 1 << 30, 20_000)))
def common_divisor(a, b):
    def step(state):
        a, b = state
        going = b != 0
        return jnp.where(going, b, a), jnp.where(going, a % jnp.where(going, b, 1), 0)

    return lax.while_loop(lambda s: jnp.any(s[1] != 0), step, (a, b))[0]


@program(small=case(integers(1, 1 << 30), steps=100), medium=case(integers(1, 1 << 30), steps=50_000))
def shift_register(seed, steps):
    def step(s, _):
        s = s ^ (s << 13)
        s = s ^ (s >> 17)
        s = s ^ (s << 5)
        return s, s

    return lax.scan(step, seed.astype(jnp.uint32), length=steps)[1]


@program(small=case(uniform(1, 100)), medium=case(uniform(1e6, 1e7)))
def root_by_bisection(x):
    """Until the interval is as small as single precision allows."""
    def step(state):
        low, high, k = state
        middle = 0.5 * (low + high)
        below = middle * middle < x
        return jnp.where(below, middle, low), jnp.where(below, high, middle), k + 1

    return lax.while_loop(lambda s: (s[1] - s[0] > 1e-7 * s[1]) & (s[2] < 200), step, (jnp.float32(0), x, 0))


@program(small=case(normal(8), steps=50), medium=case(normal(8), steps=2000), bound=1e-3)
def gradient_descent_small(x, steps):
    """Rosenbrock's function of few variables."""
    def loss(x):
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    return lax.fori_loop(0, steps, lambda _, x: x - 1e-4 * jnp.clip(jax.grad(loss)(x), -100, 100), 0.1 * x)


@program(small=case(normal(4, 12, 5), normal(5, 5)), medium=case(normal(60, 300, 10), normal(10, 10)))
def hidden_markov_posterior(emission, transition):
    """Forward and backward over many sequences, in logarithms."""
    move, seen = jax.nn.log_softmax(transition), jnp.swapaxes(jax.nn.log_softmax(emission), 0, 1)

    def forward(a, e):
        a = jax.nn.logsumexp(a[:, :, None] + move, 1) + e
        return a, a

    def backward(c, e):
        c = jax.nn.logsumexp(move + (e + c)[:, None], 2)
        return c, c

    start = jnp.zeros_like(seen[0])
    first, second = lax.scan(forward, start, seen)[1], lax.scan(backward, start, seen, reverse=True)[1]
    return jax.nn.softmax(first + second, -1).mean((0, 1)), jax.nn.logsumexp(first[-1], 1)


@program(small=case(normal(4, 4), integers(0, 4, 20)), medium=case(normal(32, 32), integers(0, 32, 400)), bound=1e-3)
def chain_field_grad(transition, tags):
    """The loss of a conditional random field of a chain, and its gradient."""
    seen = jax.nn.one_hot(tags, transition.shape[0]) * 0.5

    def loss(t):
        last, _ = lax.scan(lambda a, e: (jax.nn.logsumexp(a[:, None] + t, 0) + e, None), seen[0], seen[1:])
        return jax.nn.logsumexp(last) - t[tags[:-1], tags[1:]].sum()

    return jax.value_and_grad(loss)(transition)


@program(small=case(integers(0, 5, 4, 12), normal(5, 5), normal(5)),
         medium=case(integers(0, 40, 64, 200), normal(40, 40), normal(40)))
def viterbi_scores(seen, transition, emission):
    def score(sequence):
        def step(s, x):
            return (s[:, None] + transition).max(0) + emission * (x == jnp.arange(emission.size)), None

        return lax.scan(step, emission, sequence)[0].max()

    return jax.vmap(score)(seen)


@program(small=case(integers(1, 1000, 20), size=64), medium=case(integers(1, 2**30, 1000), size=4096))
def open_addressing(keys, size):
    """Keys into a table, each at the first free place."""
    def insert(table, key):
        at = (key.astype(jnp.uint32) * jnp.uint32(2654435761) >> 7).astype(jnp.int32) & (size - 1)
        at = lax.while_loop(lambda at: (table[at] != 0) & (table[at] != key), lambda at: (at + 1) & (size - 1), at)
        return table.at[at].set(key), at

    return lax.scan(insert, jnp.zeros(size, jnp.int32), keys)


@program(small=case(uniform(0.5, 2, 20)), medium=case(uniform(0.5, 2, 5000)))
def newton_within_scan(x):
    """Square roots, each from where the one before it ended."""
    def step(y, a):
        root = lax.while_loop(lambda s: jnp.abs(s * s - a) > 1e-5 * a, lambda s: 0.5 * (s + a / s), y)
        return root, root

    return lax.scan(step, jnp.float32(1), x)


@program(small=case(normal(60)), medium=case(normal(20_000)), bound=1e-3)
def garch_likelihood(returns):
    """Of variances that follow from those before, and its gradient."""
    def loss(logs):
        base, news, memory = jnp.exp(logs)

        def step(variance, x):
            variance = base + news * x * x + memory * variance
            return variance, jnp.log(variance) + x * x / variance

        return lax.scan(step, jnp.float32(1), returns)[1].mean()

    return jax.value_and_grad(loss)(jnp.array([-2.0, -2.0, -0.3]))


@program(small=case(normal(48)), medium=case(normal(12_000)), bound=1e-3)
def seasonal_smoothing(x):
    """Level, trend and twelve seasons (Holt and Winters)."""
    def step(state, x):
        level, trend, seasons = state
        new = 0.3 * (x - seasons[0]) + 0.7 * (level + trend)
        trend = 0.1 * (new - level) + 0.9 * trend
        return (new, trend, jnp.concatenate([seasons[1:], 0.2 * (x - new)[None] + 0.8 * seasons[:1]])), new + trend

    return lax.scan(step, (x[0], jnp.float32(0), jnp.zeros(12)), x)[1]


@program(small=case(uniform(80, 120, 4), steps=10), medium=case(uniform(80, 120, 64), steps=256))
def binomial_options(price, steps):
    """From the leaves of a tree of prices back to its root."""
    up = jnp.exp(0.2 / jnp.sqrt(jnp.float32(steps)))
    chance = (1.0001 - 1 / up) / (up - 1 / up)

    def back(_, value):
        return jnp.pad((chance * value[:, 1:] + (1 - chance) * value[:, :-1]) / 1.0001, ((0, 0), (0, 1)))

    leaves = jnp.maximum(100 - price[:, None] * up ** (2.0 * jnp.arange(steps + 1) - steps), 0)
    return lax.fori_loop(0, steps, back, leaves)[:, 0]


@program(bound=1e-3, small=case(normal(10, 6), normal(10, 6), normal(6)),
         medium=case(normal(1000, 128), normal(1000, 128), normal(128)))
def weighted_keys(k, v, decay):
    """Values by the exponentials of their keys, which fade, kept in range by the greatest so far (RWKV)."""
    decay = -jnp.exp(decay)

    def step(state, inputs):
        above, below, most = state
        k, v = inputs
        top = jnp.maximum(most, k)
        old, new = jnp.exp(most - top), jnp.exp(k - top)
        found = (old * above + new * v) / (old * below + new)
        top = jnp.maximum(most + decay, k)
        old, new = jnp.exp(most + decay - top), jnp.exp(k - top)
        return (old * above + new * v, old * below + new, top), found

    zero = jnp.zeros_like(decay)
    return lax.scan(step, (zero, zero, zero - 1e30), (k, v))[1]


@program(
    small=case(normal(2, 6, 8), normal(2, 6, 8), normal(2, 6, 8), normal(8), normal(8)),
    medium=case(normal(4, 256, 128), normal(4, 256, 128), normal(4, 256, 128), normal(128), normal(128)),
)
def receptance_time_mix(k, v, r, w, u):
    e = -jnp.exp(w)

    def step(s, x):
        a, b, m = s
        kt, vt = x
        m1 = jnp.maximum(m, u + kt)
        y = (jnp.exp(m - m1) * a + jnp.exp(u + kt - m1) * vt) / (jnp.exp(m - m1) * b + jnp.exp(u + kt - m1))
        m2 = jnp.maximum(m + e, kt)
        return (jnp.exp(m + e - m2) * a + jnp.exp(kt - m2) * vt, jnp.exp(m + e - m2) * b + jnp.exp(kt - m2), m2), y

    z = jnp.zeros((k.shape[0], k.shape[2]))
    _, y = lax.scan(step, (z, z, z - 1e30), (k.swapaxes(0, 1), v.swapaxes(0, 1)))
    return jax.nn.sigmoid(r) * y.swapaxes(0, 1)


@program(small=case(normal(40), n=6), medium=case(normal(20000), n=64))
def levinson_durbin(x, n=6):
    r = jnp.stack([(x[: x.shape[0] - k] * x[k:]).sum() for k in range(n + 1)])
    a = jnp.zeros(n + 1).at[0].set(1.0)

    def step(s, i):
        a, e = s
        m = jnp.arange(n + 1)
        k = -jnp.where(m < i, a * r[jnp.clip(i - m, 0, n)], 0).sum() / e
        rev = jnp.where(m <= i, a[jnp.clip(i - m, 0, n)], 0)
        return (a + k * rev, e * (1 - k * k)), k

    (a, e), k = lax.scan(step, (a, r[0] + 1e-3), jnp.arange(1, n + 1))
    return a, e, k


@program(small=case(integers(0, 256, 40)), medium=case(integers(0, 256, 40000)))
def utf8_automaton(b):
    def step(s, x):
        need, cp = s
        cont = (x & 0xC0) == 0x80
        start = jnp.where(x < 0x80, 0, jnp.where(x < 0xE0, 1, jnp.where(x < 0xF0, 2, 3)))
        bits = jnp.where(x < 0x80, x, jnp.where(x < 0xE0, x & 31, jnp.where(x < 0xF0, x & 15, x & 7)))
        bad = jnp.where(need > 0, ~cont, cont)
        ok = (need > 0) & cont
        need2 = jnp.where(ok, need - 1, jnp.where(bad & cont, 0, start))
        cp2 = jnp.where(ok, cp << 6 | x & 63, bits)
        return (need2, cp2), jnp.where(bad, -1, jnp.where(need2 == 0, cp2, -2))

    _, o = lax.scan(step, (0, 0), b)
    return o, (o >= 0).sum()


@program(small=case(normal(6), normal(3, 6), normal(3, 6)), medium=case(normal(20000), normal(8, 20000), normal(8, 20000)))
def two_loop_recursion(g, s, y):
    rho = 1 / (s * y).sum(1)

    def first(q, x):
        si, yi, ri = x
        a = ri * (si @ q)
        return q - a * yi, a

    q, a = lax.scan(first, g, (s, y, rho), reverse=True)
    q = q * (s[-1] @ y[-1]) / (y[-1] @ y[-1])

    def second(r, x):
        si, yi, ri, ai = x
        return r + si * (ai - ri * (yi @ r)), None

    return -lax.scan(second, q, (s, y, rho, a))[0]


@program(small=case(normal(16), n=60), medium=case(normal(200), n=20000))
def plucked_string(x, n=60):
    def step(s, i):
        j = i % x.shape[0]
        v = s[j]
        w = s[(j + 1) % x.shape[0]]
        return s.at[j].set(0.498 * (v + w)), v

    return lax.scan(step, x, jnp.arange(n))[1]


@program(small=case(normal(60)), medium=case(normal(8000)))
def feedback_delay_network(x):
    d = (3, 5, 7, 11) if x.shape[0] < 100 else (149, 211, 263, 293)
    m = 0.45 * jnp.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])

    def step(s, z):
        t, bufs = s
        o = jnp.stack([b[t % low] for b, low in zip(bufs, d, strict=False)])
        f = m @ o + z
        return (t + 1, tuple(b.at[t % low].set(f[i]) for i, (b, low) in enumerate(zip(bufs, d, strict=False)))), o.sum()

    return lax.scan(step, (0, tuple(jnp.zeros(low) for low in d)), x)[1]
