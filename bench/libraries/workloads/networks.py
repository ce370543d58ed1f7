"""Workloads of matrix products and a convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.libraries.workloads.base import ONE_SIZE, Array, F, Workload, normal, parallel

BATCH, WIDTH, HIDDEN = 256, 1024, 4096
PRODUCT = 2 * BATCH * WIDTH * HIDDEN
"""Operations of one of the MLP's products."""


def relu(xp: Any, x: Any) -> Any:
    """In words that every library has."""
    return xp.where(x > 0, x, 0 * x)


def mlp_inputs(rng: np.random.Generator) -> list[Array]:
    x, w1, b1, w2, b2 = normal(rng, (BATCH, WIDTH), (WIDTH, HIDDEN), HIDDEN, (HIDDEN, WIDTH), WIDTH)
    return [x, w1 / F(32), b1, w2 / F(64), b2]


class Mlp(Workload):
    """Two layers with a relu between them."""

    name, sizes, tolerance, flops = "mlp_fwd", ONE_SIZE, 1e-4, 2 * PRODUCT

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return mlp_inputs(rng)

    def formula(self, xp: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        return xp.matmul(relu(xp, xp.matmul(x, w1) + b1), w2) + b2

    def by_numpy(self, x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Any:
        hidden = x @ w1
        hidden += b1
        out = np.maximum(hidden, 0, out=hidden) @ w2
        out += b2
        return out

    def by_torch(self, torch: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        return torch.addmm(b2, torch.addmm(b1, x, w1).relu_(), w2)

    def by_numexpr(self, ne: Any, x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Any:
        h = x @ w1
        out = ne.evaluate("where(h + b > 0, h + b, 0)", {"h": h, "b": b1}, out=h) @ w2
        return ne.evaluate("h + b", {"h": out, "b": b2}, out=out)

    def by_numba(self, nb: Any) -> Any:
        def f(x, w1, b1, w2, b2):
            hidden = np.dot(x, w1)
            for r in nb.prange(hidden.shape[0]):
                for i in range(hidden.shape[1]):
                    hidden[r, i] = max(hidden[r, i] + b1[i], F(0))
            out = np.dot(hidden, w2)
            for r in nb.prange(out.shape[0]):
                for i in range(out.shape[1]):
                    out[r, i] += b2[i]
            return out

        return parallel(nb)(f)


class MlpTrain(Workload):
    """The same network: forward, mean squared error, backward, and the parameters updated in place."""

    name, sizes, tolerance, inplace, flops = "mlp_train", ONE_SIZE, 1e-4, (0, 1, 2, 3), 5 * PRODUCT
    RATE, SHARE = 1e-2, 2 / (BATCH * WIDTH)

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        x, *parameters = mlp_inputs(rng)
        return [*parameters, x, *normal(rng, (BATCH, WIDTH))]

    def formula(self, xp: Any, w1: Any, b1: Any, w2: Any, b2: Any, x: Any, y: Any) -> Any:
        z = xp.matmul(x, w1) + b1
        h = relu(xp, z)
        d = (xp.matmul(h, w2) + b2 - y) * self.SHARE
        e = xp.where(z > 0, xp.matmul(d, w2.T), 0 * z)
        rate = self.RATE
        return (w1 - rate * xp.matmul(x.T, e), b1 - rate * xp.sum(e, axis=0),
                w2 - rate * xp.matmul(h.T, d), b2 - rate * xp.sum(d, axis=0))

    def by_jax(self, jax: Any, w1: Any, b1: Any, w2: Any, b2: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return jax.numpy.mean((jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3] - y) ** 2)

        parameters = (w1, b1, w2, b2)
        return tuple(p - self.RATE * g for p, g in zip(parameters, jax.grad(loss)(parameters), strict=True))

    def by_torch(self, torch: Any, w1: Any, b1: Any, w2: Any, b2: Any, x: Any, y: Any) -> Any:
        def loss(w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
            return torch.nn.functional.mse_loss(torch.addmm(b2, torch.addmm(b1, x, w1).relu(), w2), y)

        parameters = (w1, b1, w2, b2)
        for p, g in zip(parameters, torch.func.grad(loss, argnums=(0, 1, 2, 3))(*parameters), strict=True):
            p.sub_(g, alpha=self.RATE)
        return parameters

    def by_pytensor(self, pt: Any, w1: Any, b1: Any, w2: Any, b2: Any, x: Any, y: Any) -> Any:
        import pytensor

        parameters = [w1, b1, w2, b2]
        loss = pt.mean((pt.matmul(relu(pt, pt.matmul(x, w1) + b1), w2) + b2 - y) ** 2)
        return tuple(p - F(self.RATE) * g for p, g in zip(parameters, pytensor.grad(loss, parameters), strict=True))

    def by_numpy(self, w1: Array, b1: Array, w2: Array, b2: Array, x: Array, y: Array) -> Any:
        h = x @ w1
        h += b1
        np.maximum(h, 0, out=h)
        d = h @ w2
        d += b2
        d -= y
        d *= F(self.SHARE)
        e = d @ w2.T
        e *= h > 0
        for p, g in ((w1, x.T @ e), (b1, e.sum(0)), (w2, h.T @ d), (b2, d.sum(0))):
            g *= F(self.RATE)
            p -= g
        return w1, b1, w2, b2

    def by_numexpr(self, ne: Any, w1: Array, b1: Array, w2: Array, b2: Array, x: Array, y: Array) -> Any:
        rate, share = F(self.RATE), F(self.SHARE)
        h = x @ w1
        ne.evaluate("where(h + b > 0, h + b, 0)", {"h": h, "b": b1}, out=h)
        d = h @ w2
        ne.evaluate("(d + b - y)*share", {"d": d, "b": b2, "y": y, "share": share}, out=d)
        e = d @ w2.T
        ne.evaluate("where(h > 0, e, 0)", {"h": h, "e": e}, out=e)
        for p, g in ((w1, x.T @ e), (b1, e.sum(0)), (w2, h.T @ d), (b2, d.sum(0))):
            ne.evaluate("p - rate*g", {"p": p, "g": g, "rate": rate}, out=p)
        return w1, b1, w2, b2

    def by_numba(self, nb: Any) -> Any:
        rate, share = F(self.RATE), F(self.SHARE)

        def f(w1, b1, w2, b2, x, y):
            h = np.dot(x, w1)
            for r in nb.prange(h.shape[0]):
                for i in range(h.shape[1]):
                    h[r, i] = max(h[r, i] + b1[i], F(0))
            d = np.dot(h, w2)
            for r in nb.prange(d.shape[0]):
                for i in range(d.shape[1]):
                    d[r, i] = (d[r, i] + b2[i] - y[r, i]) * share
            e = np.dot(d, w2.T)
            for r in nb.prange(e.shape[0]):
                for i in range(e.shape[1]):
                    e[r, i] = e[r, i] if h[r, i] > 0 else F(0)
            g1, g2 = np.dot(x.T, e), np.dot(h.T, d)
            for r in nb.prange(w1.shape[0]):
                for i in range(w1.shape[1]):
                    w1[r, i] -= rate * g1[r, i]
            for r in nb.prange(w2.shape[0]):
                for i in range(w2.shape[1]):
                    w2[r, i] -= rate * g2[r, i]
            b1 -= rate * e.sum(0)
            b2 -= rate * d.sum(0)
            return w1, b1, w2, b2

        return parallel(nb)(f)


class Attention(Workload):
    """Self-attention over 512 tokens of width 512, projections included."""

    sizes, tolerance = ONE_SIZE, 1e-4
    N = 512
    flops = 6 * 2 * N**3

    def __init__(self, heads: int) -> None:
        self.name, self.heads, self.scale = f"attention{heads}", heads, (self.N // heads) ** -0.5

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        x, *weights = normal(rng, *[(self.N, self.N)] * 5)
        return [x, *(w / F(22) for w in weights)]

    def _split(self, t: Any) -> Any:
        return t.reshape((self.N, self.heads, self.N // self.heads))

    def formula(self, xp: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        q, k, v = (xp.transpose(self._split(xp.matmul(x, w)), (1, 0, 2)) for w in (wq, wk, wv))
        scores = xp.matmul(q, xp.transpose(k, (0, 2, 1))) * self.scale
        e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        mixed = xp.matmul(e / xp.sum(e, axis=-1, keepdims=True), v)
        return xp.matmul(xp.transpose(mixed, (1, 0, 2)).reshape((self.N, self.N)), wo)

    def by_torch(self, torch: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        q, k, v = (self._split(x @ w).transpose(0, 1)[None] for w in (wq, wk, wv))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)[0]
        return mixed.transpose(0, 1).reshape(self.N, self.N) @ wo

    def by_numexpr(self, ne: Any, x: Array, wq: Array, wk: Array, wv: Array, wo: Array) -> Any:
        q, k, v = (self._split(x @ w).transpose(1, 0, 2) for w in (wq, wk, wv))
        scores = q @ k.transpose(0, 2, 1)
        names = {"s": scores, "top": scores.max(axis=-1, keepdims=True), "c": F(self.scale)}
        e = ne.evaluate("exp((s - top)*c)", names, out=scores)
        weights = ne.evaluate("e/total", {"e": e, "total": e.sum(axis=-1, keepdims=True)}, out=e)
        return (weights @ v).transpose(1, 0, 2).reshape(self.N, self.N) @ wo

    def by_numba(self, nb: Any) -> Any:
        heads, size, scale = self.heads, self.N, F(self.scale)
        width = size // heads

        def f(x, wq, wk, wv, wo):
            q, k, v = np.dot(x, wq), np.dot(x, wk), np.dot(x, wv)
            mixed = np.empty((size, size), F)
            for h in range(heads):
                here = slice(h * width, (h + 1) * width)
                scores = np.dot(np.ascontiguousarray(q[:, here]), np.ascontiguousarray(k[:, here]).T)
                for r in nb.prange(size):
                    top, total = scores[r, 0], F(0)
                    for i in range(size):
                        top = max(top, scores[r, i])
                    for i in range(size):
                        e = np.exp((scores[r, i] - top) * scale)
                        scores[r, i] = e
                        total += e
                    share = F(1) / total
                    for i in range(size):
                        scores[r, i] *= share
                mixed[:, here] = np.dot(scores, np.ascontiguousarray(v[:, here]))
            return np.dot(mixed, wo)

        return parallel(nb)(f)


NETWORKS = (Mlp(), MlpTrain(), Attention(1), Attention(8))
