"""Networks, their losses and training steps."""

from __future__ import annotations

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform, weights


def stepped(loss, params, rate=0.01):
    """One step of gradient descent: the loss, and the parameters after it."""
    value, grads = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - rate * g, params, grads)


def layer_norm(x, g=1.0, b=0.0):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def cross_entropy(logits, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1))


# --- perceptrons and experts


def mlp(x, w1, b1, w2, b2, w3, b3):
    return jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3


SMALL_MLP = weights((32, 64), (64,), (64, 64), (64,), (64, 10), (10,))
MEDIUM_MLP = weights((256, 512), (512,), (512, 512), (512,), (512, 100), (100,))


@program(small=case(normal(16, 32), integers(0, 10, 16), *SMALL_MLP),
         medium=case(normal(128, 256), integers(0, 100, 128), *MEDIUM_MLP))
def mlp_loss(x, y, *w):
    return cross_entropy(mlp(x, *w), y)


@program(small=case(normal(16, 32), integers(0, 10, 16), *SMALL_MLP),
         medium=case(normal(128, 256), integers(0, 100, 128), *MEDIUM_MLP))
def mlp_train(x, y, *w):
    return stepped(lambda w: cross_entropy(mlp(x, *w), y), w)


def experts(x, gate, w1, w2):
    top, which = lax.top_k(jax.nn.softmax(x @ gate), 2)
    mask = jax.nn.one_hot(which, gate.shape[1])
    share = jnp.einsum("tk,tke->te", top / top.sum(-1, keepdims=True), mask)
    hidden = jax.nn.gelu(jnp.einsum("td,edh->teh", x, w1))
    return jnp.einsum("teh,ehd,te->td", hidden, w2, share)


@program(small=case(normal(16, 16), *weights((16, 4), (4, 16, 32), (4, 32, 16))),
         medium=case(normal(256, 64), *weights((64, 8), (8, 64, 128), (8, 128, 64))))
def mixture_of_experts(x, gate, w1, w2):
    return experts(x, gate, w1, w2)


@program(small=case(normal(16, 16), *weights((16, 4), (4, 16, 32), (4, 32, 16))),
         medium=case(normal(256, 64), *weights((64, 8), (8, 64, 128), (8, 128, 64))))
def mixture_of_experts_train(x, *w):
    return stepped(lambda w: jnp.mean((experts(x, *w) - x) ** 2), w)


@program(small=case(normal(16, 20), *weights((20, 12), (12, 3), (3, 12), (12, 20))),
         medium=case(normal(512, 400), *weights((400, 128), (128, 16), (16, 128), (128, 400))))
def autoencoder_train(x, *w):
    def loss(w):
        return jnp.mean((jnp.tanh(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2]) @ w[3] - x) ** 2)

    return stepped(loss, w)


# --- attention


def rotated(x):
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[-2])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)], -1)


@program(small=case(normal(2, 16, 8), normal(2, 16, 8), normal(2, 16, 8)),
         medium=case(normal(8, 256, 64), normal(8, 256, 64), normal(8, 256, 64)))
def rotary_attention(q, k, v):
    s = jnp.einsum("htd,hsd->hts", rotated(q), rotated(k)) / jnp.sqrt(jnp.float32(q.shape[-1]))
    s = jnp.where(jnp.tril(jnp.ones(s.shape[1:], bool)), s, -1e9)
    return jax.nn.softmax(s) @ v


@program(small=case(normal(4, 16, 8), normal(16, 8), normal(16, 8)),
         medium=case(normal(8, 256, 64), normal(256, 64), normal(256, 64)))
def multi_query_attention(q, k, v):
    return jnp.einsum("hts,sd->thd", jax.nn.softmax(jnp.einsum("htd,sd->hts", q, k) * 0.125), v)


@program(small=case(normal(2, 32, 8), normal(2, 32, 8), normal(2, 32, 8)),
         medium=case(normal(8, 1024, 32), normal(8, 1024, 32), normal(8, 1024, 32)))
def window_attention(q, k, v):
    h, t, d = q.shape
    q, k, v = (x.reshape(h, t // 16, 16, d) for x in (q, k, v))
    s = jnp.einsum("hwtd,hwsd->hwts", q, k) / d ** 0.5
    return jnp.einsum("hwts,hwsd->hwtd", jax.nn.softmax(s), v).reshape(h, t, d)


def gpt_weights(vocabulary, width, layers):
    block = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    return weights((vocabulary, width), *(block * layers))


def gpt(tokens, table, *w, heads):
    t, width = tokens.shape[1], table.shape[1]
    x = table[tokens] * width ** 0.5
    mask = jnp.tril(jnp.ones((t, t), bool))
    for wqkv, wo, w1, w2 in zip(w[::4], w[1::4], w[2::4], w[3::4], strict=True):
        qkv = (layer_norm(x) @ wqkv).reshape(*x.shape[:2], 3, heads, -1)
        q, k, v = (qkv[:, :, i] for i in range(3))
        s = jnp.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
        a = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.where(mask, s, -1e9)), v)
        x = x + a.reshape(x.shape) @ wo
        x = x + jax.nn.gelu(layer_norm(x) @ w1) @ w2
    return layer_norm(x) @ table.T


@program(small=case(integers(0, 50, 1, 16), *gpt_weights(50, 16, 1), heads=2),
         medium=case(integers(0, 200, 2, 64), *gpt_weights(200, 128, 2), heads=4))
def gpt_forward(tokens, *w, heads):
    return gpt(tokens, *w, heads=heads)


@program(small=case(integers(0, 50, 1, 17), *gpt_weights(50, 16, 1), heads=2),
         medium=case(integers(0, 200, 2, 65), *gpt_weights(200, 128, 2), heads=4), bound=1e-3)
def gpt_train(tokens, *w, heads):
    return stepped(lambda w: cross_entropy(gpt(tokens[:, :-1], *w, heads=heads), tokens[:, 1:]), w)


@program(small=case(integers(0, 50), *gpt_weights(50, 16, 1), steps=8),
         medium=case(integers(0, 200), *gpt_weights(200, 64, 1), steps=32))
def decoder_with_cache(token, table, wqkv, wo, w1, w2, steps):
    width = table.shape[1]

    def step(state, i):
        token, keys, values = state
        x = table[token] * width ** 0.5
        q, k, v = jnp.split(layer_norm(x) @ wqkv, 3)
        keys, values = (lax.dynamic_update_slice(c, n[None], (i, 0)) for c, n in ((keys, k), (values, v)))
        s = jnp.where(jnp.arange(steps) <= i, keys @ q / width ** 0.5, -1e9)
        x = x + jax.nn.softmax(s) @ values @ wo
        x = x + jax.nn.gelu(layer_norm(x) @ w1) @ w2
        token = jnp.argmax(layer_norm(x) @ table.T).astype(token.dtype)
        return (token, keys, values), token

    cache = jnp.zeros((steps, width))
    return lax.scan(step, (token, cache, cache), jnp.arange(steps))[1]


# --- recurrent cells


def lstm(xs, w, u, b):
    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], u.shape[0]))
    return lax.scan(step, (zero, zero), xs)[1]


def gru(xs, w, u):
    def step(h, x):
        a, b = x @ w, h @ u
        n = h.shape[-1]
        z, r = jax.nn.sigmoid(a[:, :n] + b[:, :n]), jax.nn.sigmoid(a[:, n:2 * n] + b[:, n:2 * n])
        h = (1 - z) * h + z * jnp.tanh(a[:, 2 * n:] + r * b[:, 2 * n:])
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], u.shape[0])), xs)[1]


SMALL_LSTM, MEDIUM_LSTM = weights((8, 64), (16, 64), (64,)), weights((64, 512), (128, 512), (512,))
SMALL_GRU, MEDIUM_GRU = weights((8, 48), (16, 48)), weights((64, 384), (128, 384))


@program(small=case(normal(10, 4, 8), *SMALL_LSTM), medium=case(normal(50, 16, 64), *MEDIUM_LSTM))
def lstm_forward(xs, *w):
    return lstm(xs, *w)


@program(small=case(normal(10, 4, 8), *SMALL_LSTM), medium=case(normal(50, 16, 64), *MEDIUM_LSTM))
def lstm_train(xs, *w):
    return stepped(lambda w: jnp.mean(lstm(xs, *w) ** 2), w)


@program(small=case(normal(10, 4, 8), *SMALL_GRU), medium=case(normal(50, 16, 64), *MEDIUM_GRU))
def gru_forward(xs, *w):
    return gru(xs, *w)


@program(small=case(normal(10, 4, 8), *SMALL_GRU), medium=case(normal(50, 16, 64), *MEDIUM_GRU))
def gru_train(xs, *w):
    return stepped(lambda w: jnp.mean(gru(xs, *w) ** 2), w)


# --- parts


@program(small=case(normal(16, 32), *weights((32,), (32,))), medium=case(normal(1024, 512), *weights((512,), (512,))))
def layer_norm_train(x, g, b):
    return stepped(lambda w: jnp.mean(jnp.tanh(layer_norm(x, *w)) ** 2), (g, b))


@program(small=case(normal(4, 8, 8, 8), *weights((8,), (8,))), medium=case(normal(16, 32, 32, 64), *weights((64,), (64,))))
def batch_norm_train(x, g, b):
    def loss(w):
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return jnp.mean(jax.nn.relu((x - mean) * lax.rsqrt(var + 1e-5) * w[0] + w[1]) ** 2)

    return stepped(loss, (g, b))


@program(small=case(normal(2, 8, 8, 8)), medium=case(normal(8, 32, 32, 64)))
def group_norm_grad(x):
    def loss(x):
        g = x.reshape(*x.shape[:3], 4, -1)
        g = (g - g.mean((1, 2, 4), keepdims=True)) * lax.rsqrt(g.var((1, 2, 4), keepdims=True) + 1e-5)
        return jnp.mean(jax.nn.silu(g) ** 2)

    return jax.grad(loss)(x)


@program(small=case(normal(32, 10), integers(0, 10, 32)), medium=case(normal(1024, 1000), integers(0, 1000, 1024)))
def cross_entropy_grad(logits, labels):
    return jax.value_and_grad(cross_entropy)(logits, labels)


def adam(p, m, v, g, t):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 0.01 * (m / (1 - 0.9 ** t)) / (jnp.sqrt(v / (1 - 0.999 ** t)) + 1e-8), m, v


@program(small=case(normal(1000), normal(1000), uniform(0, 1, 1000), normal(1000)),
         medium=case(normal(1_000_000), normal(1_000_000), uniform(0, 1, 1_000_000), normal(1_000_000)))
def adam_step(p, m, v, g):
    return adam(p, m, v, g, 10.0)


@program(small=case(normal(50, 10), normal(50), normal(10), steps=20),
         medium=case(normal(2000, 100), normal(2000), normal(100), steps=50),
         bound=1e-3)
def adam_loop(x, y, p, steps):
    def step(i, state):
        p, m, v = state
        return adam(p, m, v, jax.grad(lambda p: jnp.mean((x @ p - y) ** 2))(p), i + 1.0)

    return lax.fori_loop(0, steps, step, (p, jnp.zeros_like(p), jnp.zeros_like(p)))[0]


@program(small=case(normal(1, 8, 8, 8), *weights((8, 24))), medium=case(normal(4, 32, 32, 32), *weights((32, 96))))
def shifted_window_attention(x, w):
    n, side, _, c = x.shape
    x = jnp.roll(x, (-2, -2), (1, 2)).reshape(n, side // 4, 4, side // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
    q, k, v = jnp.split(x @ w, 3, -1)
    y = jax.nn.softmax(jnp.einsum("wtd,wsd->wts", q, k) / c ** 0.5) @ v
    y = y.reshape(n, side // 4, side // 4, 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, side, side, c)
    return jnp.roll(y, (2, 2), (1, 2))


@program(small=case(normal(2, 16, 8), normal(2, 16, 8), normal(2, 16, 8)),
         medium=case(normal(4, 512, 32), normal(4, 512, 32), normal(4, 512, 32)))
def linear_attention(q, k, v):
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    return jnp.einsum("htd,hde->hte", q, jnp.einsum("htd,hte->hde", k, v)) / jnp.einsum("htd,hd->ht", q, k.sum(1))[..., None]


@program(small=case(normal(2, 16, 16), uniform(0, 1, 2, 16, 16)), medium=case(normal(8, 128, 128), uniform(0, 1, 8, 128, 128)))
def focal_dice_grad(x, y):
    y = jnp.round(y)

    def loss(x):
        q = jax.nn.sigmoid(x)
        right = jnp.where(y > 0, q, 1 - q)
        focal = -((1 - right) ** 2 * jnp.log(right + 1e-7)).mean()
        dice = 1 - (2 * (q * y).sum((1, 2)) + 1) / (q.sum((1, 2)) + y.sum((1, 2)) + 1)
        return focal + dice.mean()

    return jax.value_and_grad(loss)(x)


@program(small=case(*(normal(6, 2, 8) for _ in range(3)), normal(6, 2)),
         medium=case(*(normal(64, 4, 32) for _ in range(3)), normal(64, 4)))
def delta_rule_grad(q, k, v, gate):
    """Linear attention whose state forgets what it replaces."""
    def loss(k, v):
        def step(state, x):
            q, k, v, gate = x
            k = k / jnp.sqrt((k * k).sum(-1, keepdims=True) + 1e-6)
            error = v - jnp.einsum("hde,hd->he", state, k)
            state = state + jax.nn.sigmoid(gate)[:, None, None] * k[:, :, None] * error[:, None, :]
            return state, jnp.einsum("hde,hd->he", state, q)

        start = jnp.zeros((q.shape[1], q.shape[2], v.shape[2]))
        return (lax.scan(step, start, (q, k, v, gate))[1] ** 2).mean()

    return jax.grad(loss, (0, 1))(k, v)


@program(small=case(normal(16, 8), *weights((8, 2), (2, 8, 12), (2, 12, 8))),
         medium=case(normal(128, 64), *weights((64, 4), (4, 64, 128), (4, 128, 64))))
def experts_choose_train(x, *w):
    """A mixture whose experts choose their tokens."""
    def loss(w):
        gate, w1, w2 = w
        share, chosen = lax.top_k(jax.nn.softmax(x @ gate, -1).T, len(x) // 4)
        hidden = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", x[chosen], w1))
        made = jnp.einsum("ecf,efd->ecd", hidden, w2) * share[..., None]
        return ((jnp.zeros_like(x).at[chosen].add(made) - x) ** 2).mean()

    return stepped(loss, w)


@program(small=case(normal(2, 16, 8), *weights((3, 8), (8, 20)), uniform(0.1, 2, 8, 6)),
         medium=case(normal(2, 128, 128), *weights((3, 128), (128, 160)), uniform(0.1, 2, 128, 16)), bound=1e-3)
def selective_state_train(x, *w):
    """A state space model whose steps depend on what they read."""
    def loss(w):
        taps, mixed, decay = w
        late = jnp.pad(x, ((0, 0), (2, 0), (0, 0)))
        z = jax.nn.silu(sum(late[:, k : k + x.shape[1]] * taps[k] for k in range(3)))
        width, states = decay.shape
        given, read, rest = jnp.split(z @ mixed, [states, 2 * states], -1)
        pace = jax.nn.softplus(z * rest.mean(-1, keepdims=True) - 1)

        def step(state, t):
            pace, given, read, z = t
            state = state * jnp.exp(-pace[..., None] * decay) + (pace * z)[..., None] * given[:, None]
            return state, jnp.einsum("bds,bs->bd", state, read)

        start = jnp.zeros((x.shape[0], width, states))
        found = lax.scan(step, start, tuple(jnp.swapaxes(t, 0, 1) for t in (pace, given, read, z)))[1]
        return (jnp.swapaxes(found, 0, 1) ** 2).mean()

    return stepped(loss, w)


@program(small=case(normal(8, 4, 4, 3), normal(8, 4, 4, 3), *weights((3, 3, 3, 8), (32, 1))),
         medium=case(normal(32, 8, 8, 3), normal(32, 8, 8, 3), *weights((3, 3, 3, 16), (256, 1))), bound=1e-3)
def gradient_penalty_train(real, made, *w):
    """A critic whose gradient has norm 1: gradients of gradients of convolutions."""
    def critic(x, w):
        kernel, last = w
        h = lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (jax.nn.leaky_relu(h).reshape(len(x), -1) @ last)[:, 0]

    def loss(w):
        slope = jax.grad(lambda x: critic(x, w).sum())((real + made) / 2)
        norm = jnp.sqrt((slope**2).sum((1, 2, 3)) + 1e-6)
        return critic(made, w).mean() - critic(real, w).mean() + 10 * ((norm - 1) ** 2).mean()

    return stepped(loss, w)


@program(small=case(normal(8, 16), normal(8, 16), *weights((16, 8), (16, 8))),
         medium=case(normal(512, 256), normal(512, 256), *weights((256, 128), (256, 128))))
def contrastive_pairs_grad(x, y, wx, wy):
    """Each row of one side is to find its own of the other among all."""
    def loss(wx, wy):
        a, b = (v / jnp.linalg.norm(v, axis=-1, keepdims=True) for v in (x @ wx, y @ wy))
        scores, i = a @ b.T * 10, jnp.arange(x.shape[0])
        return -sum(jax.nn.log_softmax(scores, axis)[i, i] for axis in (0, 1)).mean() / 2

    return jax.value_and_grad(loss, (0, 1))(wx, wy)


@program(small=case(normal(20, 8), normal(6, 8), uniform(1, 2, 6), normal(6, 8)),
         medium=case(normal(4096, 64), normal(256, 64), uniform(1, 2, 256), normal(256, 64)))
def codebook_step(x, codes, counts, sums):
    """The nearest code of each row, and codes that follow their rows."""
    pick = jnp.argmin((x * x).sum(1, keepdims=True) - 2 * x @ codes.T + (codes * codes).sum(1), 1)
    hot, found = jax.nn.one_hot(pick, codes.shape[0]), codes[pick]
    counts, sums = 0.99 * counts + 0.01 * hot.sum(0), 0.99 * sums + 0.01 * hot.T @ x
    return sums / counts[:, None], counts, found, ((found - x) ** 2).mean()


@program(small=case(*(normal(2, 2, 12, 8),) * 3, chunk=4), medium=case(*(normal(2, 4, 512, 64),) * 3, chunk=64))
def chunked_retention(q, k, v, chunk):
    """Attention that fades, within chunks by products and between them by a state."""
    b, h, n, d = q.shape
    decay, i = 1 - 2.0 ** (-5 - jnp.arange(h, dtype=jnp.float32)), jnp.arange(chunk)
    mask = jnp.where(i[:, None] >= i[None], decay[:, None, None] ** (i[:, None] - i[None]), 0)
    kept, passed = decay[:, None] ** (chunk - 1 - i), decay[:, None] ** (i + 1)

    def step(state, x):
        q, k, v = x
        near = jnp.einsum("bhij,bhjd->bhid", jnp.einsum("bhid,bhjd->bhij", q, k) * mask, v)
        far = jnp.einsum("bhid,bhde->bhie", q, state) * passed[..., None]
        added = jnp.einsum("bhjd,bhje->bhde", k * kept[..., None], v)
        return state * (decay**chunk)[:, None, None] + added, near + far

    chunks = tuple(x.reshape(b, h, n // chunk, chunk, d).transpose(2, 0, 1, 3, 4) for x in (q, k, v))
    return lax.scan(step, jnp.zeros((b, h, d, d)), chunks)[1].transpose(1, 2, 0, 3, 4).reshape(q.shape)


@program(small=case(normal(4, 10, 6), integers(0, 3, 4, 10), normal(6, 6)),
         medium=case(normal(32, 128, 24), integers(0, 24, 32, 128), normal(24, 24)))
def tagging_loss_grad(scores, tags, moves):
    """Of a conditional random field."""
    def loss(scores, moves):
        def step(a, s):
            return jax.nn.logsumexp(a[:, :, None] + moves, 1) + s, None

        total = jax.nn.logsumexp(lax.scan(step, scores[:, 0], scores[:, 1:].swapaxes(0, 1))[0], -1)
        path = jnp.take_along_axis(scores, tags[..., None], -1).sum((1, 2)) + moves[tags[:, :-1], tags[:, 1:]].sum(1)
        return (total - path).mean()

    return jax.value_and_grad(loss, (0, 1))(scores, moves)


@program(small=case(normal(2, 6, 8), *weights((8, 8), (8, 4), (8, 4), (8, 8)), heads=4),
         medium=case(normal(4, 128, 64), *weights((64, 64), (64, 16), (64, 16), (64, 64)), heads=8))
def grouped_query_attention(x, wq, wk, wv, wo, heads):
    """Several queries for each key and value."""
    batch, length, width = x.shape
    size = width // heads
    groups = wk.shape[1] // size
    q = (x @ wq).reshape(batch, length, groups, heads // groups, size)
    k, v = ((x @ w).reshape(batch, length, groups, size) for w in (wk, wv))
    scores = jnp.einsum("btghd,bsgd->bghts", q, k) / size**0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    return jnp.einsum("bghts,bsgd->btghd", jax.nn.softmax(scores, -1), v).reshape(batch, length, width) @ wo


@program(
    small=case(normal(6, 6, 4), normal(4, 4), normal(4, 4), normal(4, 4), normal(4, 4), normal(4, 4)),
    medium=case(
        normal(96, 96, 32),
        normal(32, 32, scale=0.2),
        normal(32, 32, scale=0.2),
        normal(32, 32, scale=0.2),
        normal(32, 32, scale=0.2),
        normal(32, 32, scale=0.2),
    ),
)
def triangle_multiplication(z, wa, wb, ga, gb, wo):
    def n(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    h = n(z)
    a = jax.nn.sigmoid(h @ ga) * (h @ wa)
    b = jax.nn.sigmoid(h @ gb) * (h @ wb)
    return z + n(jnp.einsum("ikc,jkc->ijc", a, b)) @ wo


@program(
    small=case(normal(2, 12, 8), integers(0, 3, 2, 12), normal(8, 24, scale=0.3)),
    medium=case(normal(2, 512, 128), integers(0, 6, 2, 512), normal(128, 384, scale=0.08)),
)
def packed_sequence_attention(x, seg, w):
    seg = jnp.sort(seg, 1)
    b, n, d = x.shape
    h = 4
    q, k, v = (t.reshape(b, n, h, d // h) for t in jnp.split(x @ w, 3, -1))
    s = jnp.einsum("bnhd,bmhd->bhnm", q, k) * (d // h) ** -0.5
    i = jnp.arange(n)
    s = s - (2.0 ** -jnp.arange(1, h + 1))[:, None, None] * jnp.abs(i[:, None] - i)
    m = (seg[:, :, None] == seg[:, None]) & (i[:, None] >= i)
    a = jax.nn.softmax(jnp.where(m[:, None], s, -1e30), -1)
    return jnp.einsum("bhnm,bmhd->bnhd", a, v).reshape(b, n, d)


@program(
    small=case(normal(2, 6, 8, scale=0.5), normal(8, 16, scale=0.3), normal(8, 16, scale=0.3), normal(16, 8, scale=0.3)),
    medium=case(
        normal(8, 128, 192, scale=0.5), normal(192, 512, scale=0.07), normal(192, 512, scale=0.07), normal(512, 192, scale=0.05)
    ),
)
def gated_ffn_train(x, wg, wu, wd):
    def loss(p):
        f = jax.checkpoint(lambda x: (jax.nn.silu(x @ p[0]) * (x @ p[1])) @ p[2])
        y = x
        for _ in range(2):
            y = y + f(y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6))
        return (y**2).mean()

    p = (wg, wu, wd)
    low, g = jax.value_and_grad(loss)(p)
    return low, jax.tree.map(lambda a, b: a - 0.02 * (jnp.sign(b) + 0.1 * a), p, g)


@program(small=case(normal(12, 4), normal(3, 4)), medium=case(normal(8192, 64), normal(16, 64)))
def slot_attention(x, s):
    def step(s, _):
        a = jax.nn.softmax(s @ x.T / 8, 0)
        a = a / (a.sum(1, keepdims=True) + 1e-8)
        u = a @ x
        z = jax.nn.sigmoid(u - s)
        return (1 - z) * s + z * jnp.tanh(u), None

    return lax.scan(step, s, None, length=3)[0]
