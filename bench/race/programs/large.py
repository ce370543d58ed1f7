"""Programs of sizes that no cache holds, and networks of some depth: raced where `--size large` is asked for."""

from __future__ import annotations

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform
from bench.race.programs import networks


@program(large=case(integers(0, 2000, 4, 257), *networks.gpt_weights(2000, 384, 4), heads=6), bound=1e-2)
def gpt_large_train(tokens, *w, heads):
    return networks.stepped(lambda w: networks.cross_entropy(networks.gpt(tokens[:, :-1], *w, heads=heads), tokens[:, 1:]), w)


@program(large=case(integers(0, 2000, 4, 256), *networks.gpt_weights(2000, 384, 4), heads=6), bound=1e-2)
def gpt_large(tokens, *w, heads):
    return networks.gpt(tokens, *w, heads=heads)


@program(
    large=case(
        normal(8, 3, 224, 224),
        normal(64, 3, 7, 7, scale=0.1),
        normal(64, 64, 3, 3, scale=0.05),
        normal(64, 64, 3, 3, scale=0.05),
        normal(128, 64, 3, 3, scale=0.05),
        normal(128, 128, 3, 3, scale=0.03),
        normal(128, 64, 1, 1, scale=0.1),
    )
)
def resnet_stem(x, w0, w1, w2, w3, w4, w5):
    def c(x, w, s=1):
        return lax.conv_general_dilated(x, w, (s, s), "SAME")

    h = jax.nn.relu(c(x, w0, 2))
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")
    h = jax.nn.relu(h + c(jax.nn.relu(c(h, w1)), w2))
    h = jax.nn.relu(c(h, w5, 2) + c(jax.nn.relu(c(h, w3, 2)), w4))
    return h.mean((2, 3))


@program(
    large=case(
        normal(8, 56, 56, 64), normal(1, 1, 64, 256, scale=0.1), normal(3, 3, 1, 256, scale=0.2), normal(1, 1, 256, 64, scale=0.06)
    )
)
def inverted_bottleneck_grad(x, w1, wd, w2):
    dn = ("NHWC", "HWIO", "NHWC")

    def loss(p, x):
        h = jnp.clip(lax.conv_general_dilated(x, p[0], (1, 1), "SAME", dimension_numbers=dn), 0, 6)
        h = jnp.clip(lax.conv_general_dilated(h, p[1], (1, 1), "SAME", dimension_numbers=dn, feature_group_count=256), 0, 6)
        return ((x + lax.conv_general_dilated(h, p[2], (1, 1), "SAME", dimension_numbers=dn)) ** 2).mean()

    return jax.value_and_grad(loss)((w1, wd, w2), x)


@program(large=case(normal(2048, 2048), normal(2048, 2048)))
def square_product(a, b):
    return jnp.tanh(a @ b)


@program(large=case(normal(4096, 4096)))
def row_and_column_sums(a):
    return a.sum(0), a.sum(1), (a * a).mean(), a.max(0)


@program(large=case(normal(4096, 4096)))
def transpose_and_scale(a):
    return a.T * 2 + 1


@program(large=case(normal(1 << 24), normal(1 << 24), normal(1 << 24)))
def long_chain(x, y, z):
    return jnp.tanh(x) * y + jnp.exp(-z * z), (x - y) ** 2


@program(large=case(normal(1 << 23)))
def long_cumsum(x):
    return jnp.cumsum(x)


@program(large=case(normal(1 << 21)))
def long_sort(x):
    return jnp.sort(x)


@program(large=case(normal(200000, 64), integers(0, 200000, 1000000)))
def large_gather(x, i):
    return x[i].sum(0)


@program(large=case(normal(500000, 16), integers(0, 50000, 500000)))
def large_segment_sum(x, i):
    return jax.ops.segment_sum(x, i, 50000)


@program(large=case(uniform(0, 1, 2048, 2048)))
def large_heat(u):
    def step(u, _):
        p = jnp.pad(u, 1, mode="edge")
        return u + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u), None

    return lax.scan(step, u, None, length=10)[0]


@program(large=case(uniform(0, 1, 128, 128, 128)))
def large_laplace(u):
    def step(u, _):
        v = u[1:-1, 1:-1, 1:-1]
        n = (
            u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
        ) / 6
        return u.at[1:-1, 1:-1, 1:-1].set(0.7 * n + 0.3 * v), None

    return lax.scan(step, u, None, length=6)[0]


@program(large=case(normal(8192, 3)))
def large_n_body(p):
    d = p[:, None] - p[None]
    r = jnp.sum(d * d, -1) + 1e-2
    return jnp.sum(d * r[..., None] ** -1.5, 1)


@program(large=case(normal(32, 512, 256), normal(256, 1024, scale=0.05), normal(256, 1024, scale=0.05)), bound=1e-3)
def long_lstm(x, wx, wh):
    def step(s, x):
        h, c = s
        i, f, g, o = jnp.split(x @ wx + h @ wh, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    z = jnp.zeros((x.shape[0], 256))
    return lax.scan(step, (z, z), x.swapaxes(0, 1))[1]


@program(large=case(normal(2, 1024, 512), normal(512, 1536, scale=0.04), normal(512, 512, scale=0.04)))
def long_causal_attention_grad(x, w, wo):
    def f(w, wo, x):
        b, n, d = x.shape
        h = 8
        q, k, v = (t.reshape(b, n, h, d // h).swapaxes(1, 2) for t in jnp.split(x @ w, 3, -1))
        s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), q @ k.swapaxes(-1, -2) * (d // h) ** -0.5, -1e9)
        y = (jax.nn.softmax(s, -1) @ v).swapaxes(1, 2).reshape(b, n, d) @ wo
        return (y**2).mean()

    return jax.grad(f, (0, 1))(w, wo, x)


@program(large=case(normal(16384, 64), normal(512, 64)))
def large_k_means(x, c):
    def step(c, _):
        d = (x * x).sum(1)[:, None] - 2 * x @ c.T + (c * c).sum(1)
        i = d.argmin(1)
        o = jax.nn.one_hot(i, c.shape[0])
        return (o.T @ x) / (o.sum(0)[:, None] + 1e-6), None

    return lax.scan(step, c, None, length=3)[0]


@program(large=case(uniform(0, 1, 1080, 1920, 3)))
def full_image_pipeline(img):
    g = img @ jnp.array([0.299, 0.587, 0.114])
    p = jnp.pad(g, 2, mode="edge")
    k = [1, 4, 6, 4, 1]
    r = sum(k[i] * p[:, i : i + g.shape[1]] for i in range(5)) / 16
    b = sum(k[i] * r[i : i + g.shape[0]] for i in range(5)) / 16
    s = jnp.clip(g + 1.5 * (g - b), 0, 1)
    return jnp.clip(img * (s / (g + 1e-3))[..., None], 0, 1) ** (1 / 2.2), jnp.histogram(s, 256, (0, 1))[0]


@program(large=case(normal(1024, 1024)))
def large_cholesky(a):
    s = a @ a.T + 1024 * jnp.eye(1024)
    low = jnp.linalg.cholesky(s)
    return jax.scipy.linalg.solve_triangular(low, a, lower=True)


@program(large=case(normal(64, 65536)))
def rows_of_spectra(x):
    return jnp.abs(jnp.fft.rfft(x)) ** 2


@program(large=case(normal(512, 4096), normal(4096), normal(4096), normal(512, 4096)))
def layer_norm_backward(x, g, b, dy):
    def f(x, g, b):
        m = x.mean(-1, keepdims=True)
        v = ((x - m) ** 2).mean(-1, keepdims=True)
        return (((x - m) * lax.rsqrt(v + 1e-5) * g + b) * dy).sum()

    return jax.grad(f, (0, 1, 2))(x, g, b)


@program(large=case(normal(512, 32000), integers(0, 32000, 512)))
def large_vocabulary_loss_grad(z, y):
    return jax.grad(lambda z: -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1).mean())(z)


@program(large=case(*(normal(1 << 22) for _ in range(4))))
def large_adam(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


@program(large=case(integers(0, 1 << 30, 1 << 20)))
def large_unique_count(x):
    s = jnp.sort(x % 65536)
    n = jnp.concatenate([jnp.array([True]), s[1:] != s[:-1]])
    return n.sum(), jnp.bincount(s, length=65536).max()


@program(large=case(normal(2, 32, 32, 32, 32), normal(3, 3, 3, 32, 64, scale=0.05)))
def volume_convolution(x, w):
    return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))).mean(
        (1, 2, 3)
    )
