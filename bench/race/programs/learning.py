"""Steps of optimisers, and gradients of losses that are more than a network's."""

from __future__ import annotations

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform, weights


@program(small=case(normal(8, 6), normal(8, 6), uniform(0.1, 1, 8), uniform(0.1, 1, 6)),
         medium=case(normal(1024, 768), normal(1024, 768), uniform(0.1, 1, 1024), uniform(0.1, 1, 768)))
def adafactor_step(p, g, rows, columns):
    square = g * g + 1e-30
    rows, columns = 0.9 * rows + 0.1 * square.mean(1), 0.9 * columns + 0.1 * square.mean(0)
    u = g * lax.rsqrt(rows / rows.mean())[:, None] * lax.rsqrt(columns)[None]
    u = u / jnp.maximum(1, jnp.sqrt((u * u).mean()))
    return p - 1e-2 * jnp.maximum(1e-3, jnp.sqrt((p * p).mean())) * u, rows, columns


@program(small=case(normal(20, 2), uniform(0, 1, 20, 20)), medium=case(normal(600, 2), uniform(0, 1, 600, 600)))
def neighbour_embedding_grad(y, p):
    """Of points in the plane whose distances are to follow given affinities, with heavy tails."""
    p = (p + p.T) / (p + p.T).sum()

    def loss(y):
        q = (1 - jnp.eye(y.shape[0])) / (1 + ((y[:, None] - y[None]) ** 2).sum(-1))
        return (p * (jnp.log(p + 1e-9) - jnp.log(q / q.sum() + 1e-9))).sum()

    return jax.grad(loss)(y)


@program(small=case(normal(30, 8), normal(30, 8), integers(0, 30, 6), integers(0, 30, 6), integers(0, 30, 6, 4)),
         medium=case(normal(20_000, 64), normal(20_000, 64), integers(0, 20_000, 512), integers(0, 20_000, 512),
                     integers(0, 20_000, 512, 8)))
def skipgram_step(u, v, centre, context, others):
    def loss(u, v):
        near, far = (u[centre] * v[context]).sum(-1), jnp.einsum("bd,bkd->bk", u[centre], v[others])
        return -(jax.nn.log_sigmoid(near) + jax.nn.log_sigmoid(-far).sum(-1)).mean()

    return tuple(x - 0.1 * g for x, g in zip((u, v), jax.grad(loss, (0, 1))(u, v), strict=True))


@program(small=case(uniform(0, 1, 3, 6, 3), *weights((18, 8), (8, 4))),
         medium=case(uniform(0, 1, 256, 48, 3), *weights((36, 64), (64, 4))))
def radiance_field_grad(points, w1, w2):
    """Of colours of rays, summed up behind what each sample lets through."""
    octaves = w1.shape[0] // 6

    def loss(w1, w2):
        waves = jnp.concatenate([f(2.0**k * points) for k in range(octaves) for f in (jnp.sin, jnp.cos)], -1)
        found = jax.nn.relu(waves @ w1) @ w2
        opaque = 1 - jnp.exp(-jax.nn.softplus(found[..., 0]) * 0.1)
        before = jnp.concatenate([jnp.ones_like(opaque[:, :1]), 1 - opaque[:, :-1] + 1e-10], -1)
        colours = ((opaque * jnp.cumprod(before, -1))[..., None] * jax.nn.sigmoid(found[..., 1:])).sum(1)
        return (colours**2).mean()

    return jax.grad(loss, (0, 1))(w1, w2)


@program(bound=1e-3, small=case(uniform(-1, 1, 6, 2), *weights((2, 8), (8, 8), (8, 1))),
         medium=case(uniform(-1, 1, 512, 2), *weights((2, 64), (64, 64), (64, 1))))
def residual_of_equation_grad(x, *params):
    """Of how far a network is from solving Poisson's equation: third derivatives."""
    def loss(params):
        a, b, c = params

        def u(z):
            return (jnp.tanh(jnp.tanh(z @ a) @ b) @ c)[0]

        laplacian = jax.vmap(lambda z: jnp.trace(jax.hessian(u)(z)))(x)
        return ((laplacian + jnp.sin(x.sum(-1))) ** 2).mean()

    return jax.grad(loss)(params)


@program(small=case(normal(8, 5), integers(0, 5, 8), normal(8), normal(8)),
         medium=case(normal(4096, 18), integers(0, 18, 4096), normal(4096), normal(4096)))
def clipped_policy_grad(logits, action, old, advantage):
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    def loss(logits):
        logs = jax.nn.log_softmax(logits)
        ratio = jnp.exp(jnp.take_along_axis(logs, action[:, None], 1)[:, 0] - old)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage).mean()
        return -gain + 0.01 * (jnp.exp(logs) * logs).sum(-1).mean()

    return jax.grad(loss)(logits)


@program(small=case(uniform(0, 1, 6, 3, 6), normal(6, 3), steps=5),
         medium=case(uniform(0, 1, 120, 6, 120), normal(120, 6), steps=60))
def value_iteration(p, reward, steps):
    p = p / p.sum(-1, keepdims=True)
    return lax.fori_loop(0, steps, lambda _, v: (reward + 0.95 * p @ v).max(-1), jnp.zeros(p.shape[0]))


@program(small=case(normal(20, 3), normal(4, 3)), medium=case(normal(3000, 16), normal(12, 16)))
def mixture_expectations(x, mu):
    k, _d = mu.shape

    def step(s, _):
        mu, var, pi = s
        q = -0.5 * (((x[:, None] - mu) ** 2 / var).sum(-1) + jnp.log(var).sum(-1)) + jnp.log(pi)
        r = jax.nn.softmax(q, -1)
        n = r.sum(0) + 1e-6
        mu = r.T @ x / n[:, None]
        var = r.T @ (x * x) / n[:, None] - mu**2 + 1e-3
        return (mu, var, n / n.sum()), jax.nn.logsumexp(q, -1).mean()

    return lax.scan(step, (mu, jnp.ones_like(mu), jnp.ones(k) / k), None, length=4)


@program(
    small=case(normal(6, 8), normal(6, 8), normal(6, 6), normal(8, 8)),
    medium=case(normal(96, 128), normal(96, 128), normal(96, 96), normal(128, 128)),
)
def shampoo_step(w, g, low, r):
    def root(a):
        n = a.shape[0]
        i = jnp.eye(n)
        a = a @ a.T / n + 0.1 * i
        z = 1 / jnp.trace(a)

        def it(s, _):
            x, m = s
            t = (5 * i - m) / 4
            t2 = t @ t
            return (x @ t, t2 @ t2 @ m), None

        (x, _), _ = lax.scan(it, (i * z**0.25, a * z), None, length=5)
        return x

    return w - 0.1 * root(low + g @ g.T) @ g @ root(r + g.T @ g)


@program(
    small=case(normal(512), normal(512), integers(-127, 127, 512), uniform(0, 1, 2)),
    medium=case(normal(262144), normal(262144), integers(-127, 127, 262144), uniform(0, 1, 1024)),
)
def eight_bit_adam(p, g, q, s):
    b = 256
    m = (q.astype(jnp.int8).reshape(-1, b).astype(jnp.float32) * (s[:, None] / 127)).reshape(-1)
    m = 0.9 * m + 0.1 * g
    mb = m.reshape(-1, b)
    s2 = jnp.abs(mb).max(1)
    q2 = jnp.round(mb / s2[:, None] * 127).astype(jnp.int8)
    return p - 0.01 * m / (jnp.sqrt(m * m) + 1e-3), q2.reshape(-1), s2
