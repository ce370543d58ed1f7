"""Elementwise workloads, and full reductions of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.libraries.workloads.base import ELEMENTS, Array, F, Workload, normal, parallel

ROOT = 0.7978845608028654
"""The square root of 2 / pi, of gelu."""


class Axpy(Workload):
    """`a*b + c - 2*d`: four arrays read, one written."""

    name = "axpy"

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return normal(rng, n, n, n, n)

    def formula(self, xp: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return a * b + c - d * 2

    def by_numexpr(self, ne: Any, a: Array, b: Array, c: Array, d: Array) -> Any:
        return ne.evaluate("a*b + c - d*2", {"a": a, "b": b, "c": c, "d": d})

    def by_numba(self, nb: Any) -> Any:
        def f(a, b, c, d):
            out = np.empty_like(a)
            for i in nb.prange(out.size):
                out[i] = a[i] * b[i] + c[i] - F(2) * d[i]
            return out

        return parallel(nb)(f)


class Trans(Workload):
    """`exp(-x*x) * tanh(y) + sqrt(|z|)`: a chain of functions."""

    name = "trans"

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return normal(rng, n, n, n)

    def formula(self, xp: Any, x: Any, y: Any, z: Any) -> Any:
        return xp.exp(-x * x) * xp.tanh(y) + xp.sqrt(xp.abs(z))

    def by_numexpr(self, ne: Any, x: Array, y: Array, z: Array) -> Any:
        return ne.evaluate("exp(-x*x)*tanh(y) + sqrt(abs(z))", {"x": x, "y": y, "z": z})

    def by_numba(self, nb: Any) -> Any:
        def f(x, y, z):
            out = np.empty_like(x)
            for i in nb.prange(out.size):
                out[i] = np.exp(-x[i] * x[i]) * np.tanh(y[i]) + np.sqrt(abs(z[i]))
            return out

        return parallel(nb)(f)


class Gelu(Workload):
    """The activation, by tanh."""

    name = "gelu"

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return normal(rng, n)

    def formula(self, xp: Any, x: Any) -> Any:
        return 0.5 * x * (1 + xp.tanh(ROOT * (x + 0.044715 * x * x * x)))

    def by_torch(self, torch: Any, x: Any) -> Any:
        return torch.nn.functional.gelu(x, approximate="tanh")

    def by_jax(self, jax: Any, x: Any) -> Any:
        return jax.nn.gelu(x, approximate=True)

    def by_numexpr(self, ne: Any, x: Array) -> Any:
        """Constants of Python would be doubles, and so would all the work."""
        names = {"x": x, "half": F(0.5), "root": F(ROOT), "third": F(0.044715)}
        return ne.evaluate("half*x*(1 + tanh(root*(x + third*x*x*x)))", names)

    def by_numba(self, nb: Any) -> Any:
        half, root, third, one = F(0.5), F(ROOT), F(0.044715), F(1)

        def f(x):
            out = np.empty_like(x)
            for i in nb.prange(out.size):
                v = x[i]
                out[i] = half * v * (one + np.tanh(root * (v + third * v * v * v)))
            return out

        return parallel(nb)(f)


class CrossEntropy(Workload):
    """The mean sigmoid cross-entropy of logits x and labels y, and its gradient by x."""

    name = "xent"

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        (x,) = normal(rng, n)
        x[x == 0] = 1  # there relu and abs have no slope, and libraries choose different ones
        return [x, rng.integers(0, 2, n).astype(F)]

    def formula(self, xp: Any, x: Any, y: Any) -> Any:
        losses = xp.where(x > 0, x, 0 * x) - x * y + xp.log1p(xp.exp(-xp.abs(x)))
        return xp.mean(losses), (1 / (1 + xp.exp(-x)) - y) / x.shape[0]

    def by_torch(self, torch: Any, x: Any, y: Any) -> Any:
        gradient, loss = torch.func.grad_and_value(
            lambda logits: torch.nn.functional.binary_cross_entropy_with_logits(logits, y))(x)
        return loss, gradient

    def by_jax(self, jax: Any, x: Any, y: Any) -> Any:
        jnp = jax.numpy
        return jax.value_and_grad(lambda v: jnp.mean(jax.nn.relu(v) - v * y + jnp.log1p(jnp.exp(-jnp.abs(v)))))(x)

    def by_numexpr(self, ne: Any, x: Array, y: Array) -> Any:
        names = {"x": x, "y": y, "e": ne.evaluate("exp(-abs(x))", {"x": x}), "share": F(1 / x.size)}
        loss = ne.evaluate("sum(where(x > 0, x, 0) - x*y + log1p(e))", names) * names["share"]
        return loss, ne.evaluate("(where(x >= 0, 1, e)/(1 + e) - y)*share", names)

    def by_numba(self, nb: Any) -> Any:
        zero, one = F(0), F(1)

        def f(x, y):
            gradient, share, total = np.empty_like(x), F(1 / x.size), 0.0
            for i in nb.prange(x.size):
                v = x[i]
                e = np.exp(-abs(v))
                total += max(v, zero) - v * y[i] + np.log1p(e)
                gradient[i] = ((one if v >= zero else e) / (one + e) - y[i]) * share
            return F(total * share), gradient

        return parallel(nb)(f)


class ReduceFull(Workload):
    """`sum((x - y)**2)`. The tolerance leaves room for libraries that add float32 one after the other."""

    name, tolerance = "reduce_full", 1e-3

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return normal(rng, n, n)

    def formula(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.sum((x - y) ** 2)

    def by_numexpr(self, ne: Any, x: Array, y: Array) -> Any:
        return ne.evaluate("sum((x - y)**2)", {"x": x, "y": y})

    def by_numba(self, nb: Any) -> Any:
        def f(x, y):
            total = F(0)
            for i in nb.prange(x.size):
                d = x[i] - y[i]
                total += d * d
            return total

        return parallel(nb)(f)


class Adam(Workload):
    """A step of Adam: parameters, both moments and the gradient read; parameters and moments updated in place."""

    name, inplace = "adam", (0, 1, 2)
    RATE, B1, B2, EPS = 1e-3, 0.9, 0.999, 1e-8
    C1, C2 = 1 / (1 - B1**10), 1 / (1 - B2**10)

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        p, m, v, g = normal(rng, n, n, n, n)
        return [p, F(0.1) * m, F(0.1) * v * v, g]

    def formula(self, xp: Any, p: Any, m: Any, v: Any, g: Any) -> Any:
        m = self.B1 * m + (1 - self.B1) * g
        v = self.B2 * v + (1 - self.B2) * g * g
        return p - self.RATE * (m * self.C1) / (xp.sqrt(v * self.C2) + self.EPS), m, v

    def by_numpy(self, p: Array, m: Array, v: Array, g: Array) -> Any:
        m *= F(self.B1)
        m += F(1 - self.B1) * g
        v *= F(self.B2)
        v += F(1 - self.B2) * g * g
        p -= F(self.RATE * self.C1) * m / (np.sqrt(F(self.C2) * v) + F(self.EPS))
        return p, m, v

    def by_torch(self, torch: Any, p: Any, m: Any, v: Any, g: Any) -> Any:
        m.mul_(self.B1).add_(g, alpha=1 - self.B1)
        v.mul_(self.B2).addcmul_(g, g, value=1 - self.B2)
        p.addcdiv_(m, (v * self.C2).sqrt_().add_(self.EPS), value=-self.RATE * self.C1)
        return p, m, v

    def by_numexpr(self, ne: Any, p: Array, m: Array, v: Array, g: Array) -> Any:
        names = {"p": p, "m": m, "v": v, "g": g, **{k: F(c) for k, c in self._constants().items()}}
        for text, out in (("b1*m + a1*g", m), ("b2*v + a2*g*g", v), ("p - rate*m/(sqrt(c2*v) + eps)", p)):
            ne.evaluate(text, names, out=out)
        return p, m, v

    def by_numba(self, nb: Any) -> Any:
        b1, a1, b2, a2, rate, c2, eps = (F(c) for c in self._constants().values())

        def f(p, m, v, g):
            for i in nb.prange(p.size):
                first = b1 * m[i] + a1 * g[i]
                second = b2 * v[i] + a2 * g[i] * g[i]
                m[i], v[i] = first, second
                p[i] -= rate * first / (np.sqrt(c2 * second) + eps)
            return p, m, v

        return parallel(nb)(f)

    def _constants(self) -> dict[str, float]:
        return {"b1": self.B1, "a1": 1 - self.B1, "b2": self.B2, "a2": 1 - self.B2, "rate": self.RATE * self.C1, "c2": self.C2,
                "eps": self.EPS}


class BlackScholes(Workload):
    """Prices of European calls and puts in float64; the normal distribution by the polynomial of Abramowitz and Stegun, 26.2.17."""

    name, dtype, tolerance = "blackscholes", np.float64, 1e-11
    sizes = ELEMENTS | {"large": 10_000_000}
    RISKLESS, VOLATILITY = 0.02, 0.3
    K, DENSITY = 0.2316419, 0.3989422804014327
    POLYNOMIAL = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        """Prices, strikes, years."""
        return [rng.uniform(5, 30, n), rng.uniform(1, 100, n), rng.uniform(0.25, 10, n)]

    def formula(self, xp: Any, s: Any, x: Any, t: Any) -> Any:
        r, v = self.RISKLESS, self.VOLATILITY
        spread = v * xp.sqrt(t)
        d = (xp.log(s / x) + (r + v * v / 2) * t) / spread
        p, q = self._normal(xp, d), self._normal(xp, d - spread)
        paid = x * xp.exp(-r * t)
        return s * p - paid * q, paid * (1 - q) - s * (1 - p)

    def _normal(self, xp: Any, z: Any) -> Any:
        a, b, c, d, e = self.POLYNOMIAL
        k = 1 / (1 + self.K * xp.abs(z))
        tail = self.DENSITY * xp.exp(-0.5 * z * z) * (k * (a + k * (b + k * (c + k * (d + k * e)))))
        return xp.where(z > 0, 1 - tail, tail)

    def by_numexpr(self, ne: Any, s: Array, x: Array, t: Array) -> Any:
        drift = self.RISKLESS + self.VOLATILITY**2 / 2
        names: dict[str, Any] = dict(zip("abcde", self.POLYNOMIAL, strict=True))
        names |= {"s": s, "x": x, "t": t, "r": self.RISKLESS, "vol": self.VOLATILITY, "drift": drift}
        names |= {"kk": self.K, "g": self.DENSITY}

        def run(text: str, **more: Any) -> Any:
            return ne.evaluate(text, names | more)

        def distribution(z: Array) -> Any:
            k = run("1/(1 + kk*abs(z))", z=z)
            tail = run("g*exp(-0.5*z*z)*(k*(a + k*(b + k*(c + k*(d + k*e)))))", z=z, k=k)
            return run("where(z > 0, 1 - tail, tail)", z=z, tail=tail)

        z = run("(log(s/x) + drift*t)/(vol*sqrt(t))")
        p, q, paid = distribution(z), distribution(run("z - vol*sqrt(t)", z=z)), run("x*exp(-r*t)")
        return run("s*p - paid*q", p=p, q=q, paid=paid), run("paid*(1 - q) - s*(1 - p)", p=p, q=q, paid=paid)

    def by_numba(self, nb: Any) -> Any:
        (a, b, c, d, e), kk, g = self.POLYNOMIAL, self.K, self.DENSITY
        r, vol = self.RISKLESS, self.VOLATILITY

        @nb.njit(fastmath=True, inline="always")
        def distribution(z):
            k = 1 / (1 + kk * abs(z))
            tail = g * np.exp(-0.5 * z * z) * (k * (a + k * (b + k * (c + k * (d + k * e)))))
            return 1 - tail if z > 0 else tail

        def f(s, x, t):
            call, put = np.empty_like(s), np.empty_like(s)
            for i in nb.prange(s.size):
                spread = vol * np.sqrt(t[i])
                z = (np.log(s[i] / x[i]) + (r + vol * vol / 2) * t[i]) / spread
                p, q, paid = distribution(z), distribution(z - spread), x[i] * np.exp(-r * t[i])
                call[i] = s[i] * p - paid * q
                put[i] = paid * (1 - q) - s[i] * (1 - p)
            return call, put

        return parallel(nb)(f)


ELEMENTWISE = (Axpy(), Trans(), Gelu(), CrossEntropy(), ReduceFull(), Adam(), BlackScholes())
