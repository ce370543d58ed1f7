"""Random numbers by JAX's counters, and what draws them."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, key, lax, normal, program, uniform


@program(small=case(key(), n=1000), medium=case(key(), n=1_000_000))
def random_bits(k, n):
    return jax.random.bits(k, (n,))


@program(small=case(key(), n=1000), medium=case(key(), n=500_000))
def random_normal(k, n):
    return jax.random.normal(k, (n,))


@program(small=case(key(), n=50), medium=case(key(), n=5000))
def random_gamma(k, n):
    return jax.random.gamma(k, 2.5, (n,))


@program(small=case(key(), normal(20, 10)), medium=case(key(), normal(2000, 100)))
def random_categorical(k, logits):
    return jax.random.categorical(k, logits)


@program(small=case(key(), n=500), medium=case(key(), n=50_000))
def random_permutation(k, n):
    return jax.random.permutation(k, n)


@program(small=case(key(), normal(16, 64)), medium=case(key(), normal(512, 1024)))
def dropout(k, x):
    return jnp.where(jax.random.bernoulli(k, 0.9, x.shape), x / 0.9, 0)


@program(small=case(key(), n=500, steps=5), medium=case(key(), n=20_000, steps=20))
def random_walk(k, n, steps):
    def step(x, k):
        return x + 0.1 * jax.random.normal(k, x.shape), x.mean()

    return jax.lax.scan(step, jnp.zeros(n), jax.random.split(k, steps))


@program(small=case(key(), n=1000), medium=case(key(), n=500_000))
def monte_carlo_pi(k, n):
    p = jax.random.uniform(k, (n, 2))
    return 4 * jnp.mean(jnp.sum(p * p, 1) < 1)


@program(small=case(key(), uniform(0, 1, 32, 32), steps=5), medium=case(key(), uniform(0, 1, 128, 128), steps=50), bound=1e-3)
def ising(k, spins, steps):
    def step(s, k):
        around = sum(jnp.roll(s, d, a) for d in (1, -1) for a in (0, 1))
        flip = jax.random.uniform(k, s.shape) < jnp.exp(-0.8 * s * around)
        return jnp.where(flip, -s, s), s.sum()

    return jax.lax.scan(step, jnp.sign(spins - 0.5), jax.random.split(k, steps))


@program(small=case(integers(0, 2**32, 24, dtype=np.uint32), n=24, apart=15),
         medium=case(integers(0, 2**32, 624, dtype=np.uint32), n=624, apart=397))
def twister(state, n, apart):
    """Words of a Mersenne twister, a state after the other, each word made in its place."""
    def refreshed(k, state):
        y = (state[k] & jnp.uint32(0x80000000)) | (state[(k + 1) % n] & jnp.uint32(0x7FFFFFFF))
        odd = jnp.where(y & 1, jnp.uint32(0x9908B0DF), jnp.uint32(0))
        return state.at[k].set(state[(k + apart) % n] ^ (y >> 1) ^ odd)

    def step(state, _):
        state = lax.fori_loop(0, n, refreshed, state)
        y = state ^ (state >> 11)
        y = y ^ ((y << 7) & jnp.uint32(0x9D2C5680))
        return state, y ^ (y >> 18)

    return lax.scan(step, state, length=20)


@program(bound=1e-1, small=case(key(), normal(6), n=40), medium=case(key(), normal(30), n=5000))
def particle_filter(k, seen, n):
    def step(state, y):
        x, k = state
        k, first, second = jax.random.split(k, 3)
        x = 0.9 * x + 0.3 * jax.random.normal(first, x.shape)
        w = jax.nn.softmax(-0.5 * (y - x) ** 2)
        u = (jnp.arange(n) + jax.random.uniform(second)) / n
        kept = jnp.clip(jnp.searchsorted(jnp.cumsum(w), u), 0, n - 1)
        return (x[kept], k), w @ x

    return lax.scan(step, (jnp.linspace(-1, 1, n), k), seen)[1]


@program(small=case(key(), normal(4)), medium=case(key(), normal(16)))
def metropolis(k, x):
    """A Markov chain by Metropolis' rule, and which of its proposals are accepted."""
    def energy(x):
        return 0.5 * (x * x).sum() + 0.1 * (x**4).sum()

    def step(x, k):
        a, b = jax.random.split(k)
        proposed = x + 0.3 * jax.random.normal(a, x.shape)
        accepted = jnp.log(jax.random.uniform(b)) < energy(x) - energy(proposed)
        return jnp.where(accepted, proposed, x), accepted

    return lax.scan(step, x, jax.random.split(k, 300))
