"""Parts of networks of many architectures, trained or asked: what nobody has tuned the compiler for."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform, weights


def _norm(x, g=None):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    y = (x - m) * lax.rsqrt(v + 1e-5)
    return y if g is None else y * g


def _heads(x, h):
    return x.reshape(*x.shape[:-1], h, x.shape[-1] // h).swapaxes(-2, -3)


def _attend(q, k, v, bias=0.0):
    s = jnp.einsum("...qd,...kd->...qk", q, k) / np.sqrt(q.shape[-1]) + bias
    o = jnp.einsum("...qk,...kd->...qd", jax.nn.softmax(s, -1), v).swapaxes(-2, -3)
    return o.reshape(*o.shape[:-2], -1)


def _conv(x, w, stride=1, groups=1, padding="SAME"):
    return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                    feature_group_count=groups)


@program(bound=1e-3, medium=case(integers(0, 500, 16, 20), integers(0, 500, 16, 16),
         *weights((500, 96), (96, 288), (96, 288), (192, 288), (96, 288), (96, 96), (96, 96), (96, 1), (96, 500))))
def translated_with_attention_grad(source, target, *params):
    """GRU encoder and decoder, additive attention."""
    def cell(h, gates, u):
        a, b = gates, h @ u
        r, z = jax.nn.sigmoid(a[:, :96] + b[:, :96]), jax.nn.sigmoid(a[:, 96:192] + b[:, 96:192])
        n = jnp.tanh(a[:, 192:] + r * b[:, 192:])
        return (1 - z) * n + z * h

    def loss(params):
        e, wi, wh, di, dh, a, b, s, out = params
        x = e[source] @ wi

        def encode(h, t):
            h = cell(h, t, wh)
            return h, h

        h, states = lax.scan(encode, jnp.zeros((16, 96)), x.swapaxes(0, 1))
        keys = jnp.einsum("tbd,de->bte", states, a)

        def decode(h, t):
            score = (jnp.tanh(keys + (h @ b)[:, None]) @ s)[..., 0]
            c = jnp.einsum("bt,tbd->bd", jax.nn.softmax(score, -1), states)
            h = cell(h, jnp.concatenate([t, c], -1) @ di, dh)
            return h, h

        _, hs = lax.scan(decode, h, e[target].swapaxes(0, 1))
        logits = hs[:-1] @ out
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), target.T[1:, :, None], -1)
        return -picked.mean()

    return jax.value_and_grad(loss)(params)


@program(bound=1e-3, medium=case(
    normal(4, 100, 96),
    *weights((96, 288), (96, 288), (96, 96), (96, 192), (15, 1, 96), (96, 96), (96, 288), (288, 96), (288, 96), (199, 4))))
def conformer_block_grad(x, *params):
    def loss(params):
        f1, qkv, o, glu, depth, point, f2, f3, f4, rel = params
        y = x + 0.5 * jax.nn.silu(_norm(x) @ f1) @ f4
        q, k, v = jnp.split(_norm(y) @ qkv, 3, -1)
        t = jnp.arange(100)
        bias = rel[t[:, None] - t[None] + 99].transpose(2, 0, 1)
        y = y + _attend(_heads(q, 4), _heads(k, 4), _heads(v, 4), bias) @ o
        a, b = jnp.split(_norm(y) @ glu, 2, -1)
        z = lax.conv_general_dilated(a * jax.nn.sigmoid(b), depth, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"),
                                     feature_group_count=96)
        m, s = z.mean((0, 1)), z.var((0, 1))
        y = y + jax.nn.silu((z - m) * lax.rsqrt(s + 1e-5)) @ point
        y = y + 0.5 * jax.nn.silu(_norm(y) @ f2) @ f3
        return (_norm(y) ** 3).mean()

    return jax.grad(loss)(params)


@program(bound=1e-3, medium=case(
    normal(2, 16, 16, 64), normal(50, 64), integers(0, 20, 2, 50), uniform(0, 1, 2, 50, 4),
    *weights((64, 192), (64, 64), (64, 64), (64, 128), (64, 64), (64, 256), (256, 64), (64, 21), (64, 4))))
def object_queries_grad(features, queries, classes, boxes, *params):
    """Decoder layers of queries that look at a map of features, losses of classes and boxes."""
    def loss(params):
        qkv, o, cq, ckv, co, up, down, cls, box = params
        memory = features.reshape(2, 256, 64)
        y, x = jnp.meshgrid(jnp.arange(16.0), jnp.arange(16.0), indexing="ij")
        f = 10000.0 ** (-jnp.arange(16) / 16)
        place = jnp.concatenate([g(p.reshape(-1, 1) * f) for p in (y, x) for g in (jnp.sin, jnp.cos)], -1)
        z = jnp.zeros((2, 50, 64))
        for _ in range(3):
            q, k, v = jnp.split((z + queries) @ qkv, 3, -1)
            z = _norm(z + _attend(_heads(q, 8), _heads(k, 8), _heads(v, 8)) @ o)
            k, v = jnp.split((memory + place) @ ckv, 2, -1)
            z = _norm(z + _attend(_heads((z + queries) @ cq, 8), _heads(k, 8), _heads(v, 8)) @ co)
            z = _norm(z + jax.nn.relu(z @ up) @ down)
        logs = jax.nn.log_softmax(z @ cls)
        found = jax.nn.sigmoid(z @ box)
        a0, a1 = found[..., :2] - found[..., 2:] / 2, found[..., :2] + found[..., 2:] / 2
        b0, b1 = boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2
        inter = jnp.prod(jnp.clip(jnp.minimum(a1, b1) - jnp.maximum(a0, b0), 0), -1)
        union = jnp.prod(found[..., 2:], -1) + jnp.prod(boxes[..., 2:], -1) - inter
        hull = jnp.prod(jnp.maximum(a1, b1) - jnp.minimum(a0, b0), -1)
        overlap = inter / union - (hull - union) / hull
        return -jnp.take_along_axis(logs, classes[..., None], -1).mean() + jnp.abs(found - boxes).mean() - overlap.mean()

    return jax.grad(loss)(params)


@program(medium=case(normal(2, 128, 256), normal(2, 1024, 2, 32), normal(2, 1024, 2, 32), integers(100, 800, 2),
                     *weights((256, 256), (256, 128), (256, 256))))
def prefill_of_chunk(x, keys, values, at, wq, wkv, wo):
    """Rotated grouped queries of a chunk of tokens, written to caches at places that differ by row."""
    t = at[:, None] + jnp.arange(128)
    f = 10000.0 ** (-jnp.arange(16) / 16)
    angle = t[..., None] * f

    def rotate(z):
        a, b = z[..., :16], z[..., 16:]
        c, s = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
        return jnp.concatenate([a * c - b * s, b * c + a * s], -1)

    q = rotate((x @ wq).reshape(2, 128, 8, 32))
    k, v = jnp.split((x @ wkv).reshape(2, 128, 4, 32), 2, 2)
    put = jax.vmap(lambda c, n, i: lax.dynamic_update_slice(c, n, (i, 0, 0)))
    keys, values = put(keys, rotate(k), at), put(values, v, at)
    s = jnp.einsum("bqghd,bkgd->bghqk", q.reshape(2, 128, 2, 4, 32), keys) / np.sqrt(32)
    s = jnp.where(jnp.arange(1024) <= t[:, None, None, :, None], s, -1e9)
    o = jnp.einsum("bghqk,bkgd->bqghd", jax.nn.softmax(s, -1), values).reshape(2, 128, 256)
    return x + o @ wo, keys, values


@program(bound=2e-3, medium=case(
    normal(8, 32), uniform(-1, 1, 8, 32, 32, 3), *weights((32, 1024), (4, 4, 64, 32), (4, 4, 32, 16), (4, 4, 16, 3)),
    *weights((4, 4, 3, 16), (4, 4, 16, 32), (4, 4, 32, 64), (1024, 1))))
def adversarial_step(noise, real, g0, g1, g2, g3, d1, d2, d3, d4):
    """Both players of a convolutional game take a step."""
    def up(x, w):
        return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def bn(x):
        return (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5)

    def generate(p):
        g0, g1, g2, g3 = p
        x = jax.nn.relu((noise @ g0).reshape(8, 4, 4, 64))
        x = jax.nn.relu(bn(up(x, g1)))
        return jnp.tanh(up(jax.nn.relu(bn(up(x, g2))), g3))

    def judge(p, x):
        d1, d2, d3, d4 = p
        x = jax.nn.leaky_relu(_conv(x, d1, 2), 0.2)
        x = jax.nn.leaky_relu(bn(_conv(x, d2, 2)), 0.2)
        x = jax.nn.leaky_relu(bn(_conv(x, d3, 2)), 0.2)
        return x.reshape(8, -1) @ d4

    g, d = (g0, g1, g2, g3), (d1, d2, d3, d4)

    def loss_d(d):
        return jax.nn.softplus(-judge(d, real)).mean() + jax.nn.softplus(judge(d, lax.stop_gradient(generate(g)))).mean()

    def loss_g(g):
        return jax.nn.softplus(-judge(d, generate(g))).mean()

    def step(p, loss):
        return [a - 1e-3 * b for a, b in zip(p, jax.grad(loss)(p), strict=True)]

    return step(d, loss_d), step(g, loss_g)


@program(bound=2e-3, medium=case(normal(2, 32, 32, 3), uniform(0, 1000, 2), normal(2, 32, 32, 3),
         *weights((64, 64), (3, 3, 3, 32), (3, 3, 32, 32), (64, 32), (3, 3, 32, 64), (3, 3, 64, 64), (64, 64), (64, 192), (64, 64),
                  (3, 3, 96, 32), (3, 3, 32, 3))))
def denoising_network_grad(x, t, noise, *params):
    """Group norms, a time's embedding, attention where the picture is smallest."""
    def gn(x):
        b, h, w, c = x.shape
        y = x.reshape(b, h, w, 8, c // 8)
        m, v = y.mean((1, 2, 4), keepdims=True), y.var((1, 2, 4), keepdims=True)
        return ((y - m) * lax.rsqrt(v + 1e-5)).reshape(x.shape)

    def loss(params):
        t1, c0, c1, e1, c2, c3, e2, qkv, o, c4, c5 = params
        f = jnp.exp(-np.log(10000.0) * jnp.arange(32) / 32)
        emb = jnp.concatenate([jnp.sin(t[:, None] * f), jnp.cos(t[:, None] * f)], -1)
        emb = jax.nn.silu(emb @ t1)
        keep = jnp.cos(t / 1000 * np.pi / 2)[:, None, None, None]
        h = _conv(keep * x + jnp.sqrt(1 - keep**2) * noise, c0)
        h = h + _conv(jax.nn.silu(gn(h) + (emb @ e1)[:, None, None]), c1)
        low = _conv(jax.nn.silu(gn(h)), c2, 2)
        low = low + _conv(jax.nn.silu(gn(low) + (emb @ e2)[:, None, None]), c3)
        q, k, v = jnp.split(gn(low).reshape(2, 256, 64) @ qkv, 3, -1)
        low = low + (_attend(q[:, None], k[:, None], v[:, None]) @ o).reshape(low.shape)
        big = jnp.repeat(jnp.repeat(low, 2, 1), 2, 2)
        y = _conv(jax.nn.silu(gn(jnp.concatenate([big, h], -1))), c4)
        return ((_conv(jax.nn.silu(gn(y)), c5) - noise) ** 2).mean()

    return jax.value_and_grad(loss)(params)


@program(bound=1e-3, medium=case(normal(512, 13), integers(0, 5000, 512, 8, 4), integers(0, 2, 512), normal(8, 5000, 16, scale=0.1),
                                 *weights((13, 64), (64, 16), (52, 64), (64, 1))))
def click_prediction_train(dense, sparse, label, tables, *params):
    """Bags of embeddings, products of all pairs, tables that few rows change."""
    i, j = np.triu_indices(9, 1)

    def loss(tables, params):
        a, b, c, d = params
        x = jax.nn.relu(jax.nn.relu(dense @ a) @ b)
        bags = jax.vmap(lambda t, s: t[s].sum(1), (0, 1), 1)(tables, sparse)
        z = jnp.concatenate([x[:, None], bags], 1)
        pairs = jnp.einsum("bik,bjk->bij", z, z)[:, i, j]
        logit = (jax.nn.relu(jnp.concatenate([x, pairs], 1) @ c) @ d)[:, 0]
        return (jax.nn.softplus(logit) - label * logit).mean()

    value, (gt, gp) = jax.value_and_grad(loss, (0, 1))(tables, params)
    return value, tables - 0.1 * gt, [p - 0.1 * g for p, g in zip(params, gp, strict=True)]


@program(bound=1e-3, medium=case(normal(16, 144, 8), normal(144, 10, 8, 16, scale=0.1), integers(0, 10, 16)))
def routed_capsules_grad(u, w, label):
    def squash(s):
        n = (s * s).sum(-1, keepdims=True)
        return n / (1 + n) * s * lax.rsqrt(n + 1e-9)

    def loss(w):
        votes = jnp.einsum("bni,nkij->bnkj", u, w)
        logits = jnp.zeros((16, 144, 10))
        for _ in range(3):
            v = squash(jnp.einsum("bnk,bnkj->bkj", jax.nn.softmax(logits, 2), votes))
            logits = logits + jnp.einsum("bnkj,bkj->bnk", votes, v)
        length = jnp.sqrt((v * v).sum(-1) + 1e-9)
        t = jax.nn.one_hot(label, 10)
        return (t * jax.nn.relu(0.9 - length) ** 2 + 0.5 * (1 - t) * jax.nn.relu(length - 0.1) ** 2).sum(-1).mean()

    return jax.value_and_grad(loss)(w)


@program(bound=1e-3, medium=case(uniform(-1, 1, 512, 32), normal(32, 32, 8, scale=0.1), normal(32, 16, 8, scale=0.1),
                                 normal(512, 16)))
def spline_network_grad(x, c1, c2, y):
    """Every weight is a function, given by coefficients of cubic B-splines."""
    knots = jnp.linspace(-2.2, 2.2, 12)

    def basis(x):
        x = x[..., None]
        b = ((x >= knots[:-1]) & (x < knots[1:])).astype(jnp.float32)
        for k in range(1, 4):
            left = (x - knots[:-k - 1]) / (knots[k:-1] - knots[:-k - 1])
            right = (knots[k + 1:] - x) / (knots[k + 1:] - knots[1:-k])
            b = left * b[..., :-1] + right * b[..., 1:]
        return b

    def loss(c):
        h = jnp.tanh(jnp.einsum("bik,iok->bo", basis(x), c[0]))
        return ((jnp.einsum("bik,iok->bo", basis(h), c[1]) - y) ** 2).mean()

    return jax.grad(loss)((c1, c2))


@program(bound=2e-3, medium=case(normal(64, 96), *weights((96, 96), (96, 96))))
def equilibrium_by_mixing(x, w, u):
    """Anderson's acceleration of a layer's fixed point: a small least squares system for each row."""
    m = 4

    def f(z):
        return jnp.tanh(z @ (0.5 * w) + x @ u)

    z0 = jnp.zeros_like(x)
    f0 = f(z0)
    zs = jnp.zeros((64, m, 96)).at[:, 0].set(z0).at[:, 1].set(f0)
    fs = jnp.zeros((64, m, 96)).at[:, 0].set(f0).at[:, 1].set(f(f0))

    def step(k, state):
        zs, fs = state
        n = jnp.minimum(k, m)
        g = fs - zs
        live = (jnp.arange(m) < n).astype(jnp.float32)
        h = jnp.einsum("bid,bjd->bij", g, g) * live[:, None] * live + 1e-4 * jnp.eye(m) + jnp.diag(1 - live)
        a, b = h, jnp.broadcast_to(live, (64, m))
        for i in range(m):
            b = b.at[:, i].divide(a[:, i, i])
            a = a.at[:, i].divide(a[:, i, i][:, None])
            for j in range(m):
                if j != i:
                    c = a[:, j, i]
                    a = a.at[:, j].add(-c[:, None] * a[:, i])
                    b = b.at[:, j].add(-c * b[:, i])
        alpha = b / b.sum(1, keepdims=True)
        z = jnp.einsum("bm,bmd->bd", alpha, fs)
        return zs.at[:, k % m].set(z), fs.at[:, k % m].set(f(z))

    zs, fs = lax.fori_loop(2, 20, step, (zs, fs))
    return fs[:, 19 % m]
