"""Elementwise formulas in every kind of number: half precision, complex, integers and their bits, double precision."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bench.race.program import BF16, case, integers, jax, jnp, lax, normal, program, uniform, weights


@program(small=case(normal(16, 32, dtype=BF16), *weights((32, 64), (64, 32), dtype=BF16)),
         medium=case(normal(128, 256, dtype=BF16), *weights((256, 512), (512, 256), dtype=BF16)))
def bf16_mlp(x, w1, w2):
    return jax.nn.gelu(x @ w1) @ w2


@program(small=case(normal(2000, dtype=BF16)), medium=case(normal(1_000_000, dtype=BF16)))
def bf16_chain(x):
    return jnp.tanh(x * 2 + 1) * jax.nn.sigmoid(x) - x / (1 + jnp.abs(x))


@program(small=case(normal(2000, dtype=np.float16)), medium=case(normal(1_000_000, dtype=np.float16)))
def f16_chain(x):
    return jnp.sqrt(x * x + 1) - jnp.exp(-jnp.abs(x)) * x


@program(small=case(normal(1000), normal(1000)), medium=case(normal(300_000), normal(300_000)))
def complex_chain(a, b):
    z = lax.complex(a, b)
    z = z * z + 0.3j * z - jnp.conj(z) / (1 + jnp.abs(z))
    w = jnp.exp(1j * jnp.real(z)) * z
    return jnp.abs(w), jnp.angle(w)


@program(small=case(normal(16, 16), normal(16, 16)), medium=case(normal(200, 200), normal(200, 200)))
def complex_matmul(a, b):
    z = lax.complex(a, b)
    return jnp.abs(z @ z.conj().T)


@program(small=case(normal(64), normal(64)), medium=case(normal(512), normal(512)))
def fourier_by_matrix(a, b):
    n = a.size
    k = jnp.arange(n)
    return jnp.exp(-2j * jnp.pi * (k[:, None] * k % n) / n) @ lax.complex(a, b)


@program(small=case(uniform(-2, 1, 1000), uniform(-1, 1, 1000), steps=30),
         medium=case(uniform(-2, 1, 200_000), uniform(-1, 1, 200_000), steps=50),
         bound=1e-2)
def mandelbrot(a, b, steps):
    c = lax.complex(a, b)

    def step(_, state):
        z, n = state
        inside = jnp.abs(z) < 2
        return jnp.where(inside, z * z + c, z), n + inside

    return lax.fori_loop(0, steps, step, (jnp.zeros_like(c), jnp.zeros(a.shape, jnp.int32)))[1]


@program(small=case(integers(0, 2**32, 2000, dtype=np.uint32)), medium=case(integers(0, 2**32, 1_000_000, dtype=np.uint32)))
def integer_hash(x):
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


@program(small=case(integers(0, 2**32, 2000, dtype=np.uint32)), medium=case(integers(0, 2**32, 1_000_000, dtype=np.uint32)))
def bit_tricks(x):
    reversed_bytes = (x << 24) | ((x & 0xFF00) << 8) | ((x >> 8) & 0xFF00) | (x >> 24)
    return lax.population_count(x), lax.clz(x), reversed_bytes, x & (~x + 1)


@program(small=case(integers(-100, 100, 2000, dtype=np.int8)), medium=case(integers(-100, 100, 1_000_000, dtype=np.int8)))
def quantised_add(x):
    wide = x.astype(jnp.int32) * 3 + 7
    return jnp.clip(wide >> 1, -128, 127).astype(jnp.int8), wide.sum()


@program(small=case(integers(-100, 100, 16, 32, dtype=np.int8), integers(-100, 100, 32, 16, dtype=np.int8)),
         medium=case(integers(-100, 100, 128, 256, dtype=np.int8), integers(-100, 100, 256, 128, dtype=np.int8)))
def int8_matmul(a, b):
    return lax.dot(a, b, preferred_element_type=jnp.int32)


@program(small=case(integers(1, 10_000, 1000), integers(1, 100, 1000)),
         medium=case(integers(1, 10_000, 300_000), integers(1, 100, 300_000)))
def integer_division(a, b):
    return a // b, a % b, jnp.gcd(a, b)


def option_price(spot, strike, time):
    spread = 0.2 * jnp.sqrt(time)
    d = (jnp.log(spot / strike) + 0.07 * time) / spread
    discounted = strike * jnp.exp(-0.05 * time)
    call = spot * jax.scipy.stats.norm.cdf(d) - discounted * jax.scipy.stats.norm.cdf(d - spread)
    return call, call - spot + discounted


@program(small=case(*(uniform(10, 100, 1000) for _ in range(2)), uniform(0.1, 2, 1000)),
         medium=case(*(uniform(10, 100, 300_000) for _ in range(2)), uniform(0.1, 2, 300_000)))
def black_scholes(*x):
    return option_price(*x)


@program(x64=True, small=case(*(uniform(10, 100, 1000, dtype=np.float64) for _ in range(2)),
         uniform(0.1, 2, 1000, dtype=np.float64)),
         medium=case(*(uniform(10, 100, 300_000, dtype=np.float64) for _ in range(2)), uniform(0.1, 2, 300_000, dtype=np.float64)))
def black_scholes_f64(*x):
    return option_price(*x)


@program(x64=True, small=case(normal(50, 20, dtype=np.float64)), medium=case(normal(2000, 500, dtype=np.float64)))
def standardise_f64(x):
    return (x - x.mean(0)) / x.std(0), jnp.cumsum(x, 0)[-1]


@program(small=case(normal(2000)), medium=case(normal(500_000)))
def special_functions(x):
    return lax.erf(x), lax.lgamma(jnp.abs(x) + 0.5), jnp.log1p(jnp.exp(-jnp.abs(x))), jnp.arctan2(x, 1 + x * x)


@program(small=case(normal(50, 40)), medium=case(normal(1000, 800)))
def transpose_chain(x):
    y = jnp.tanh(x.T).reshape(x.shape[0], -1)
    return (y[::-1] + x)[:, ::2].T


@program(small=case(integers(-100, 100, 8, 40, dtype=np.int8), integers(-100, 100, 20, 40, dtype=np.int8), uniform(0.1, 1, 20)),
         medium=case(integers(-100, 100, 64, 500, dtype=np.int8), integers(-100, 100, 300, 500, dtype=np.int8),
                     uniform(0.1, 1, 300)))
def quantised_linear(x, w, scale):
    y = lax.dot_general(x.astype(jnp.int32) - 3, w.astype(jnp.int32), (((1,), (1,)), ((), ())))
    return jnp.clip(jnp.round(y * (scale * 0.001)), -128, 127).astype(jnp.int8)


@program(small=case(integers(-128, 128, 8, 16, dtype=np.int8), integers(-128, 128, 16, 24, dtype=np.int8),
                    integers(-128, 128, 24, 8, dtype=np.int8), integers(0, 1000, 24)),
         medium=case(integers(-128, 128, 256, 256, dtype=np.int8), integers(-128, 128, 256, 512, dtype=np.int8),
                     integers(-128, 128, 512, 64, dtype=np.int8), integers(0, 1000, 512)))
def quantised_layers(x, w, v, bias):
    def product(a, b):
        return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)

    hidden = jnp.clip((product(x, w) + bias) * 37 >> 15, 0, 127).astype(jnp.int8)
    return jnp.clip(product(hidden, v) * 11 >> 12, -128, 127).astype(jnp.int8)


@program(small=case(integers(0, 50, 20, 30), integers(0, 50, 30, 20)),
         medium=case(integers(0, 50, 300, 200), integers(0, 50, 200, 300)))
def integer_matmul(a, b):
    return a @ b % 97


@program(small=case(integers(0, 1_000_000, 200)), medium=case(integers(0, 1_000_000, 20_000)))
def fermat_test(n):
    """Whether 2 and 3 are no witnesses that numbers below 65 000 are composite."""
    n = (n.astype(jnp.uint32) + 3) % 65_000 | 1

    def power(base):
        def step(state):
            found, square, rest = state
            return jnp.where(rest & 1 > 0, found * square % n, found), square * square % n, rest >> 1

        start = jnp.ones_like(n), jnp.full_like(n, base) % n, n - 1
        return lax.while_loop(lambda state: (state[2] > 0).any(), step, start)[0]

    return (power(2) == 1) & (power(3) == 1)


@program(small=case(normal(8, 64), normal(64, 16)), medium=case(normal(256, 512), normal(512, 256)))
def nearest_code_linear(x, w):
    """Weights as the nearest of 16 levels, a scale for every 64 of them."""
    levels = jnp.tanh(jnp.linspace(-2, 2, 16))
    blocks = w.reshape(-1, 64)
    scale = jnp.abs(blocks).max(1, keepdims=True)
    code = jnp.argmin(jnp.abs((blocks / scale)[..., None] - levels), -1).astype(jnp.uint8)
    pairs = code.reshape(-1, 2)
    return x @ (levels[code] * scale).reshape(w.shape), pairs[:, 0] << 4 | pairs[:, 1]


@program(x64=True, small=case(integers(0, 2**63, 25, 8, dtype=np.uint64)),
         medium=case(integers(0, 2**63, 25, 2000, dtype=np.uint64)))
def sponge_permutation(state):
    """24 rounds on 25 words of 64 bits, as Keccak's are."""
    def turned(x, by):
        return x << np.uint64(by) | x >> np.uint64(64 - by)

    def step(k, state):
        a = [state[i] for i in range(25)]
        c = [a[i] ^ a[i + 5] ^ a[i + 10] ^ a[i + 15] ^ a[i + 20] for i in range(5)]
        a = [x ^ c[(i - 1) % 5] ^ turned(c[(i + 1) % 5], 1) for i, x in enumerate(a)]
        b = [turned(a[(7 * i + 3 * (i // 5)) % 25], (11 * i) % 63 + 1) for i in range(25)]
        a = [b[i] ^ (~b[(i + 1) % 5 + i // 5 * 5] & b[(i + 2) % 5 + i // 5 * 5]) for i in range(25)]
        return jnp.stack([a[0] ^ jnp.uint64(k), *a[1:]])

    return lax.fori_loop(0, 24, step, state)


@program(small=case(normal(4, 16, dtype=BF16), integers(-128, 127, 16, 24, dtype=np.int8), uniform(0.01, 0.02, 24)),
         medium=case(normal(64, 512, dtype=BF16), integers(-128, 127, 512, 1024, dtype=np.int8), uniform(0.01, 0.02, 1024)))
def linear_of_byte_weights(x, w, scale):
    y = x @ w.astype(BF16)
    return jax.nn.silu(y.astype(jnp.float32) * scale).astype(BF16)


@program(small=case(uniform(-3, 3, 200)), medium=case(uniform(-3, 3, 300_000)))
def exact_gelu_grad(x):
    return jax.grad(lambda x: jax.nn.gelu(x, approximate=False).sum())(x)


@program(small=case(normal(6, 40)), medium=case(normal(500, 4096)), bound=1 / 127)
def quantised_by_groups(x):
    """Every eight values have a scale of their own. One that lies between two steps may go to either: bound is a step."""
    groups = x.reshape(x.shape[0], -1, 8)
    scale = jnp.abs(groups).max(-1, keepdims=True) / 127
    q = jnp.clip(jnp.round(groups / scale), -127, 127).astype(jnp.int8)
    return q, scale, (q * scale).reshape(x.shape)


@program(small=case(uniform(0.1, 5, 20)), medium=case(uniform(0.1, 5, 20_000)))
def bessel_and_digamma(x):
    return jax.scipy.special.i0e(x), jax.scipy.special.i1e(x), jax.scipy.special.digamma(x)


@program(small=case(normal(8, 4), normal(8, 4)), medium=case(normal(5000, 4), normal(5000, 4)))
def slerped(a, b):
    """Rotations between two rotations."""
    a, b = (x / jnp.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    near = jnp.sum(a * b, 1, keepdims=True)
    angle = jnp.arccos(jnp.clip(jnp.abs(near), -1, 1))
    share = jnp.maximum(jnp.sin(angle), 1e-4)
    return (jnp.sin(0.3 * angle) * a + jnp.sin(0.7 * angle) * jnp.where(near < 0, -b, b)) / share


@program(small=case(uniform(0, 3, 10)), medium=case(uniform(0, 3, 5000)))
def romberg(end):
    """Integrals from 0, by trapezoids of ever smaller steps and what they tend to."""
    at = jnp.linspace(0, 1, 65)[:, None] * end
    y = jnp.exp(-at * at) * jnp.cos(3 * at)
    sums = [end * (y[:: 64 >> k].sum(0) - 0.5 * (y[0] + y[-1])) / (1 << k) for k in range(7)]
    for m in range(1, 5):
        sums = [(4.0**m * fine - coarse) / (4.0**m - 1) for coarse, fine in pairwise(sums)]
    return sums[-1]


@program(small=case(integers(0, 256, 40)), medium=case(integers(0, 256, 50000)))
def cyclic_redundancy(b):
    t = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        t = np.where(t & 1, np.uint32(0xEDB88320) ^ (t >> 1), t >> 1).astype(np.uint32)
    t = jnp.asarray(t)

    def step(c, x):
        return t[(c ^ x) & 255] ^ (c >> 8), None

    return ~lax.scan(step, jnp.uint32(0xFFFFFFFF), b.astype(jnp.uint32))[0]


@program(small=case(uniform(0, 6, 10), uniform(0, 0.8, 10)), medium=case(uniform(0, 6, 20000), uniform(0, 0.8, 20000)))
def kepler_orbits(m, e):
    def body(i, x):
        return x - (x - e * jnp.sin(x) - m) / (1 - e * jnp.cos(x))

    x = lax.fori_loop(0, 8, body, m + e)
    nu = 2 * jnp.arctan2(jnp.sqrt(1 + e) * jnp.sin(x / 2), jnp.sqrt(1 - e) * jnp.cos(x / 2))
    r = 1 - e * jnp.cos(x)
    return r * jnp.cos(nu), r * jnp.sin(nu)


@program(
    small=case(normal(4, 16), integers(0, 256, 8, 8), uniform(0, 0.1, 8, 2)),
    medium=case(normal(8, 1024), integers(0, 256, 1024, 512), uniform(0, 0.1, 1024, 16)),
)
def four_bit_linear(x, w, s):
    w = w.astype(jnp.uint8)
    lo, hi = (w & 15).astype(jnp.float32) - 8, (w >> 4).astype(jnp.float32) - 8
    u = jnp.stack([lo, hi], -1).reshape(w.shape[0], s.shape[1], -1) * s[..., None]
    return x @ u.reshape(w.shape[0], -1).T


@program(
    small=case(integers(-2147483647, 2147483647, 6, 4), integers(-2147483647, 2147483647, 5, 4)),
    medium=case(integers(-2147483647, 2147483647, 256, 32), integers(-2147483647, 2147483647, 192, 32)),
)
def binary_product(a, b):
    return 32 * a.shape[1] - 2 * lax.population_count(a[:, None] ^ b[None]).sum(-1)


@program(small=case(normal(8, 16), normal(16, 8)), medium=case(normal(256, 512), normal(512, 256)))
def scaled_f8_product(a, b):
    f8 = jnp.float8_e4m3fn
    sa, sb = jnp.abs(a).max(1, keepdims=True) / 448, jnp.abs(b).max(0, keepdims=True) / 448
    qa, qb = (a / sa).astype(f8), (b / sb).astype(f8)
    return (qa.astype(jnp.float32) @ qb.astype(jnp.float32)) * sa * sb
