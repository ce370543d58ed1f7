"""Workloads over rows of 1024 elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.libraries.workloads.base import ROWS, Array, F, Workload, normal, parallel

WIDTH = 1024


class Softmax(Workload):
    """Along each row."""

    name, sizes = "softmax", ROWS

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return normal(rng, (n, WIDTH))

    def formula(self, xp: Any, x: Any) -> Any:
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    def by_torch(self, torch: Any, x: Any) -> Any:
        return torch.softmax(x, dim=-1)

    def by_jax(self, jax: Any, x: Any) -> Any:
        return jax.nn.softmax(x, axis=-1)

    def by_numexpr(self, ne: Any, x: Array) -> Any:
        e = ne.evaluate("exp(x - top)", {"x": x, "top": x.max(axis=-1, keepdims=True)})
        return ne.evaluate("e/total", {"e": e, "total": e.sum(axis=-1, keepdims=True)}, out=e)

    def by_numba(self, nb: Any) -> Any:
        def f(x):
            out, width = np.empty_like(x), x.shape[1]
            for r in nb.prange(x.shape[0]):
                top = x[r, 0]
                for i in range(width):
                    top = max(top, x[r, i])
                total = F(0)
                for i in range(width):
                    e = np.exp(x[r, i] - top)
                    out[r, i] = e
                    total += e
                scale = F(1) / total
                for i in range(width):
                    out[r, i] *= scale
            return out

        return parallel(nb)(f)


class LayerNorm(Workload):
    """Rows made of mean 0 and variance 1, then scaled and shifted."""

    name, sizes = "layernorm", ROWS
    EPS = 1e-5

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return normal(rng, (n, WIDTH), WIDTH, WIDTH)

    def formula(self, xp: Any, x: Any, w: Any, b: Any) -> Any:
        d = x - xp.mean(x, axis=-1, keepdims=True)
        return d / xp.sqrt(xp.mean(d * d, axis=-1, keepdims=True) + self.EPS) * w + b

    def by_torch(self, torch: Any, x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (WIDTH,), w, b, self.EPS)

    def by_numexpr(self, ne: Any, x: Array, w: Array, b: Array) -> Any:
        mean = x.mean(axis=-1, keepdims=True)
        square = np.einsum("ij,ij->i", x, x)[:, None] / F(WIDTH)
        scale = 1 / np.sqrt(square - mean * mean + F(self.EPS))
        return ne.evaluate("(x - mean)*scale*w + b", {"x": x, "mean": mean, "scale": scale, "w": w, "b": b})

    def by_numba(self, nb: Any) -> Any:
        eps = F(self.EPS)

        def f(x, w, b):
            out, width = np.empty_like(x), x.shape[1]
            share = F(1 / width)
            for r in nb.prange(x.shape[0]):
                total = F(0)
                for i in range(width):
                    total += x[r, i]
                mean, spread = total * share, F(0)
                for i in range(width):
                    d = x[r, i] - mean
                    spread += d * d
                scale = F(1) / np.sqrt(spread * share + eps)
                for i in range(width):
                    out[r, i] = (x[r, i] - mean) * scale * w[i] + b[i]
            return out

        return parallel(nb)(f)


class ReduceAxis(Workload):
    """Maximum and sum of `(x - y)**2` along the rows, and its mean down the columns."""

    name, sizes, tolerance = "reduce_axis", ROWS, 1e-3

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return normal(rng, (n, WIDTH), (n, WIDTH))

    def formula(self, xp: Any, x: Any, y: Any) -> Any:
        d = (x - y) ** 2
        return xp.max(d, axis=1), xp.sum(d, axis=1), xp.mean(d, axis=0)

    def by_numexpr(self, ne: Any, x: Array, y: Array) -> Any:
        d = ne.evaluate("(x - y)**2", {"x": x, "y": y})
        return d.max(axis=1), d.sum(axis=1), d.mean(axis=0)

    def by_numba(self, nb: Any) -> Any:
        def f(x, y):
            rows, width = x.shape
            tops, totals = np.empty(rows, F), np.empty(rows, F)
            parts = 2 if rows > 1 else 1
            columns = np.zeros((parts, width), F)
            for part in nb.prange(parts):
                for r in range(rows * part // parts, rows * (part + 1) // parts):
                    top, total = F(0), F(0)
                    for i in range(width):
                        d = x[r, i] - y[r, i]
                        d *= d
                        top = max(top, d)
                        total += d
                        columns[part, i] += d
                    tops[r], totals[r] = top, total
            return tops, totals, columns.sum(0) / F(rows)

        return parallel(nb)(f)


ROWWISE = (Softmax(), LayerNorm(), ReduceAxis())
