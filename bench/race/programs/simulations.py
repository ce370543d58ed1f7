"""Simulations: particles and differential equations."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform


def attraction(x):
    d = x[None] - x[:, None]
    return jnp.sum(d * (jnp.sum(d * d, -1) + 0.01)[..., None] ** -1.5, 1) / x.shape[0]


@program(small=case(normal(32, 3), normal(32, 3), steps=3), medium=case(normal(300, 3), normal(300, 3), steps=10), bound=1e-2)
def n_body(x, v, steps):
    def step(state, _):
        x, v = state
        v = v + 0.01 * attraction(x)
        return (x + 0.01 * v, v), None

    return lax.scan(step, (x, v), length=steps)[0]


def lorenz_slope(s):
    x, y, z = s
    return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])


@program(small=case(normal(3), steps=100), medium=case(normal(3), steps=10_000), bound=1e-2)
def lorenz(s, steps):
    return lax.scan(lambda s, _: ((s := s + 0.0005 * lorenz_slope(s)), s), s, length=steps)[1]


def rk4(slope, y, dt, steps):
    def step(_, y):
        a = slope(y)
        b = slope(y + dt / 2 * a)
        c = slope(y + dt / 2 * b)
        return y + dt / 6 * (a + 2 * b + 2 * c + slope(y + dt * c))

    return lax.fori_loop(0, steps, step, y)


@program(small=case(normal(3, 50), steps=20), medium=case(normal(3, 10_000), steps=100), bound=1e-2)
def rk4_lorenz(s, steps):
    return rk4(lorenz_slope, s, 0.001, steps)


@program(x64=True, small=case(normal(64, dtype=np.float64), steps=20), medium=case(normal(5000, dtype=np.float64), steps=50))
def rk4_pendulum_f64(angle, steps):
    return rk4(lambda s: jnp.stack([s[1], -jnp.sin(s[0])]), jnp.stack([angle, jnp.zeros_like(angle)]), 0.01, steps)


@program(small=case(uniform(0, 1, 32, 32), uniform(0, 1, 32, 32), steps=10),
         medium=case(uniform(0, 1, 256, 256), uniform(0, 1, 256, 256), steps=50), bound=1e-3)
def gray_scott(u, v, steps):
    def spread(x):
        return sum(jnp.roll(x, s, a) for s in (1, -1) for a in (0, 1)) - 4 * x

    def step(_, state):
        u, v = state
        r = u * v * v
        return u + 0.16 * spread(u) - r + 0.035 * (1 - u), v + 0.08 * spread(v) + r - 0.1 * v

    return lax.fori_loop(0, steps, step, (u, v))


@program(small=case(uniform(0, 1, 100, 2), normal(100, 2), steps=10),
         medium=case(uniform(0, 1, 50_000, 2), normal(50_000, 2), steps=50),
         bound=1e-2)
def bouncing_particles(x, v, steps):
    def step(state, _):
        x, v = state
        x = x + 0.001 * v
        outside = (x < 0) | (x > 1)
        return (jnp.clip(x, 0, 1), jnp.where(outside, -v, v)), jnp.sum(outside)

    return lax.scan(step, (x, v), length=steps)


@program(small=case(normal(3, 20), steps=10), medium=case(normal(3, 2000), steps=50), bound=1e-3)
def gradient_through_steps(s, steps):
    def loss(s):
        return jnp.sum(lax.scan(lambda s, _: (s + 0.001 * lorenz_slope(s), None), s, length=steps)[0] ** 2)

    return jax.grad(loss)(s)


@program(small=case(normal(16, 16), steps=3), medium=case(normal(128, 128), steps=5), bound=1e-3)
def vorticity_by_fft(w, steps):
    k = jnp.fft.fftfreq(w.shape[0], 1 / w.shape[0])
    x, y = k[:, None], k[None]
    square = x * x + y * y

    def real(spectrum):
        return jnp.fft.ifft2(spectrum).real

    def step(w, _):
        stream = w / jnp.where(square == 0, 1, square)
        moved = real(1j * y * stream) * real(1j * x * w) - real(1j * x * stream) * real(1j * y * w)
        return (w - 1e-3 * jnp.fft.fft2(moved)) / (1 + 1e-4 * square), None

    return real(lax.scan(step, jnp.fft.fft2(w).astype(jnp.complex64), length=steps)[0])


@program(small=case(normal(2, 2**6), normal(6, 2)), medium=case(normal(2, 2**14), normal(14, 2)), bound=1e-3)
def quantum_circuit(parts, angles):
    """Gates on one bit of the state after the other, then flips of each that depend on the one before."""
    state = (parts[0] + 1j * parts[1]).astype(jnp.complex64)
    state, bits = state / jnp.linalg.norm(state), len(angles)
    for k in range(bits):
        turn, phase = jnp.cos(angles[k, 0]), jnp.exp(1j * angles[k, 1])
        other = jnp.sqrt(1 - turn**2)
        gate = jnp.array([[turn * phase, -other], [other, turn / phase]])
        state = jnp.einsum("ij,ajb->aib", gate, state.reshape(2**k, 2, -1)).reshape(-1)
    for k in range(bits - 1):
        pairs = state.reshape(2**k, 2, 2, -1)
        state = jnp.stack([pairs[:, 0], pairs[:, 1, ::-1]], 1).reshape(-1)
    return jnp.abs(state) ** 2


@program(small=case(normal(9, 16, 16, scale=0.01), steps=3), medium=case(normal(9, 128, 128, scale=0.01), steps=20))
def lattice_boltzmann(f, steps):
    ways = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]], np.float32)
    weight = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)[:, None, None]

    def step(f, _):
        f = jnp.stack([jnp.roll(f[k], (int(x), int(y)), (0, 1)) for k, (x, y) in enumerate(ways)])
        density = f.sum(0)
        u = jnp.einsum("id,ixy->dxy", ways, f) / density
        along = 3 * jnp.einsum("id,dxy->ixy", ways, u)
        return f - (f - density * weight * (1 + along + 0.5 * along**2 - 1.5 * (u**2).sum(0))) / 0.8, None

    return lax.scan(step, f + weight, None, length=steps)[0]


@program(small=case(uniform(0, 4, 24, 3), normal(24, 3), steps=2),
         medium=case(uniform(0, 8, 256, 3), normal(256, 3), steps=10), bound=1e-2)
def periodic_molecules(x, v, steps):
    """Forces by Lennard and Jones in a box that repeats."""
    def force(x):
        d = x[:, None] - x[None]
        d = d - 8 * jnp.round(d / 8)
        square = jnp.maximum((d * d).sum(-1), 0.3) + 1e6 * jnp.eye(x.shape[0])
        s = jnp.where(square < 6.25, 1 / square, 0) ** 3
        return (jnp.clip(24 * (2 * s * s - s) / square, -50, 50)[..., None] * d).sum(1)

    def step(_, state):
        x, v = state
        v = v + 0.001 * force(x)
        return jnp.mod(x + 0.002 * v, 8), v

    return lax.fori_loop(0, steps, step, (x, v))


@program(small=case(uniform(0, 1, 16, 16), uniform(-2, 2, 2, 16, 16), steps=2),
         medium=case(uniform(0, 1, 256, 256), uniform(-2, 2, 2, 256, 256), steps=10))
def carried_back(x, flow, steps):
    """Advection: each cell takes what lay where its flow comes from."""
    n, m = x.shape
    y, z = jnp.meshgrid(jnp.arange(n, dtype=jnp.float32), jnp.arange(m, dtype=jnp.float32), indexing="ij")

    def step(_, x):
        at, to = jnp.clip(y - flow[0], 0, n - 1.001), jnp.clip(z - flow[1], 0, m - 1.001)
        i, j = at.astype(jnp.int32), to.astype(jnp.int32)
        a, b = at - i, to - j
        return (1 - a) * ((1 - b) * x[i, j] + b * x[i, j + 1]) + a * ((1 - b) * x[i + 1, j] + b * x[i + 1, j + 1])

    return lax.fori_loop(0, steps, step, x)


@program(small=case(normal(3), tolerance=1e-3), medium=case(normal(3), tolerance=1e-7), bound=5e-2)
def adaptive_steps(y, tolerance):
    """Bogacki and Shampine's pair of methods: the step is as long as the error allows."""
    def slope(y):
        return jnp.stack([y[1], (1 - y[0] ** 2) * y[1] - y[0], jnp.tanh(y[0] - y[2])])

    def step(state):
        t, h, y = state
        a = slope(y)
        b = slope(y + h / 2 * a)
        c = slope(y + 3 * h / 4 * b)
        z = y + h / 9 * (2 * a + 3 * b + 4 * c)
        error = jnp.abs(h * (-5 / 72 * a + b / 12 + c / 9 - slope(z) / 8)).max() + 1e-10
        good = error < tolerance
        return jnp.where(good, t + h, t), h * jnp.clip(0.9 * (tolerance / error) ** (1 / 3), 0.3, 2), jnp.where(good, z, y)

    return lax.while_loop(lambda s: s[0] < 5, step, (jnp.float32(0), jnp.float32(0.01), y))[2]


@program(small=case(uniform(5, 20, 30), uniform(80, 120, 30), steps=5),
         medium=case(uniform(5, 20, 50_000), uniform(80, 120, 50_000), steps=10), bound=1e-2)
def implied_volatility(price, strike, steps):
    """Of options, by Newton's method."""
    normal_curve = jax.scipy.stats.norm

    def step(_, s):
        d = (jnp.log(100 / strike) + s * s / 2) / s
        value = 100 * normal_curve.cdf(d) - strike * normal_curve.cdf(d - s)
        return jnp.clip(s - (value - price) / jnp.maximum(100 * normal_curve.pdf(d), 0.01), 0.05, 3)

    return lax.fori_loop(0, steps, step, jnp.full_like(price, 0.5))


@program(small=case(normal(4, 4), steps=20), medium=case(normal(500, 4), steps=200), bound=1e-1)
def double_pendulums(state, steps):
    """By Runge and Kutta's method of fourth order."""
    def change(state):
        a, b, p, q = state.T
        apart = a - b
        scale = 6 / (16 - 9 * jnp.cos(apart) ** 2)
        da, db = scale * (2 * p - 3 * jnp.cos(apart) * q), scale * (8 * q - 3 * jnp.cos(apart) * p)
        force = da * db * jnp.sin(apart)
        return jnp.stack([da, db, -0.5 * (force + 3 * jnp.sin(a)), -0.5 * (jnp.sin(b) - force)], 1)

    def step(_, state):
        first = change(state)
        second = change(state + 5e-4 * first)
        third = change(state + 5e-4 * second)
        fourth = change(state + 1e-3 * third)
        return state + 1e-3 / 6 * (first + 2 * second + 2 * third + fourth)

    return lax.fori_loop(0, steps, step, state)


@program(small=case(normal(32), steps=5), medium=case(normal(1024), steps=100), bound=1e-3)
def wave_packet(potential, steps):
    """Schroedinger's equation by steps that are split between places and frequencies."""
    n = potential.size
    frequency = jnp.fft.fftfreq(n) * n
    at_places, at_frequencies = jnp.exp(-0.005j * potential), jnp.exp(-5e-5j * frequency * frequency)
    wave = jnp.exp(-0.01 * (jnp.arange(n) - n / 2) ** 2).astype(jnp.complex64)

    def step(_, wave):
        return at_places * jnp.fft.ifft(at_frequencies * jnp.fft.fft(at_places * wave))

    return jnp.abs(lax.fori_loop(0, steps, step, wave)) ** 2


@program(small=case(integers(0, 2, 8, 8)), medium=case(integers(0, 2, 128, 128)))
def turning_ant(g):
    n = g.shape[0]

    def step(s, _):
        g, y, x, d = s
        c = g[y, x]
        d = (d + jnp.where(c == 1, 1, 3)) % 4
        g = g.at[y, x].set(1 - c)
        y = (y + jnp.array([-1, 0, 1, 0])[d]) % n
        x = (x + jnp.array([0, 1, 0, -1])[d]) % n
        return (g, y, x, d), None

    return lax.scan(step, (g, n // 2, n // 2, 0), None, length=200 if n < 100 else 20000)[0]


@program(
    small=case(normal(8, 4), integers(0, 8, 5, 8, 3), uniform(0, 1, 5, 8, 4)),
    medium=case(normal(64, 32), integers(0, 64, 60, 64, 3), uniform(0, 1, 60, 64, 32)),
)
def differential_evolution(p, idx, u):
    def cost(x):
        return (x**2 - 10 * jnp.cos(2 * jnp.pi * x)).sum(-1)

    def step(s, x):
        p, c = s
        i, r = x
        m = p[i[:, 0]] + 0.7 * (p[i[:, 1]] - p[i[:, 2]])
        t = jnp.where(r < 0.8, m, p)
        ct = cost(t)
        b = ct < c
        return (jnp.where(b[:, None], t, p), jnp.where(b, ct, c)), c.min()

    return lax.scan(step, (p, cost(p)), (idx, u))


@program(small=case(uniform(0.5, 1.5, 6, 20)), medium=case(uniform(0.5, 1.5, 24, 5000)), bound=1e-3)
def regressed_american_option(s):
    k = 1.0
    r = 0.99
    pay = jnp.maximum(k - s, 0)

    def step(v, x):
        s, p = x
        b = jnp.stack([jnp.ones_like(s), s, s * s, s**3], 1)
        w = (p > 0).astype(jnp.float32)
        a = (b * w[:, None]).T @ b + 1e-3 * jnp.eye(4)
        low = jnp.linalg.cholesky(a)
        c = jax.scipy.linalg.cho_solve((low, True), (b * w[:, None]).T @ (v * r))
        cont = b @ c
        return jnp.where((p > cont) & (p > 0), p, v * r), None

    v = lax.scan(step, pay[-1], (s[:-1], pay[:-1]), reverse=True)[0]
    return v.mean() * r
