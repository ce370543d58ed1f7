"""Workloads that are a loop, or a long program, over few elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.libraries.workloads.base import Array, F, Workload, listed, parallel


class Mandelbrot(Workload):
    """Steps until each point escapes, at most 50; over as soon as all have. A chaotic map, so the reference is float32, too."""

    name, sizes = "mandelbrot", {"small": 1_000, "medium": 1_000_000}
    tolerance = 1e-2
    """The share of points with another count."""
    limited = False
    STEPS = 50

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return [rng.uniform(-2, 0.6, n).astype(F), rng.uniform(-1.2, 1.2, n).astype(F)]

    def reference(self, args: Sequence[Array]) -> list[Array]:
        return listed(self.formula(np, *args))

    def error(self, got: Array, want: Array) -> float:
        return float(np.mean(np.abs(got - want) > 0.5)) if got.shape == want.shape else float("inf")

    def formula(self, xp: Any, cr: Any, ci: Any) -> Any:
        zr, zi, count = cr, ci, 0 * cr
        for _ in range(self.STEPS):
            rr, ii = zr * zr, zi * zi
            inside = rr + ii < 4
            count = xp.where(inside, count + 1, count)
            zr, zi = xp.where(inside, rr - ii + cr, zr), xp.where(inside, 2 * zr * zi + ci, zi)
        return count

    def by_jax(self, jax: Any, cr: Any, ci: Any) -> Any:
        jnp = jax.numpy

        def step(state: Any) -> Any:
            turn, zr, zi, count, _ = state
            rr, ii = zr * zr, zi * zi
            inside = rr + ii < 4
            moved = jnp.where(inside, rr - ii + cr, zr), jnp.where(inside, 2 * zr * zi + ci, zi)
            return turn + 1, *moved, count + inside, jnp.any(inside)

        return jax.lax.while_loop(lambda s: (s[0] < self.STEPS) & s[4], step, (0, cr, ci, 0 * cr, True))[3]

    def by_numexpr(self, ne: Any, cr: Array, ci: Array) -> Any:
        zr, zi, count = cr, ci, np.zeros_like(cr)
        for _ in range(self.STEPS):
            inside = ne.evaluate("zr*zr + zi*zi < 4", {"zr": zr, "zi": zi})
            if not inside.any():
                break
            ne.evaluate("where(inside, count + 1, count)", {"inside": inside, "count": count}, out=count)
            names = {"inside": inside, "zr": zr, "zi": zi, "cr": cr, "ci": ci}
            zr = ne.evaluate("where(inside, zr*zr - zi*zi + cr, zr)", names)
            zi = ne.evaluate("where(inside, 2*zr*zi + ci, zi)", names)
        return count

    def by_numba(self, nb: Any) -> Any:
        steps = self.STEPS

        def f(cr, ci):
            out = np.empty_like(cr)
            for k in nb.prange(cr.size):
                zr, zi, count = cr[k], ci[k], 0
                while count < steps and zr * zr + zi * zi < F(4):
                    zr, zi = zr * zr - zi * zi + cr[k], F(2) * zr * zi + ci[k]
                    count += 1
                out[k] = count
            return out

        return parallel(nb)(f)


class Tiny(Workload):
    """2000 dependent operations over 64 elements: what a call of one operation costs."""

    name, sizes, tolerance = "tiny2000", {"small": 64}, 1e-4
    STEPS = tuple((("add", "sub", "mul", "max")[op], k + 3, k % 4 if back == 0 else k + 3 - back)
                  for k, (op, back) in enumerate(np.random.default_rng(7).integers([0, 0], [4, 3], (2000, 2)).tolist()))
    """Operation, left, right: step k makes value k + 4, from the one before it and an earlier one or an input."""

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        return [rng.uniform(-1, 1, n).astype(F) for _ in range(4)]

    def formula(self, xp: Any, *given: Any) -> Any:
        values = list(given)
        for op, i, j in self.STEPS:
            x, y = values[i], values[j]
            values.append((x + y) * 0.5 if op == "add" else (x - y) * 0.5 if op == "sub" else
                          x * y if op == "mul" else xp.where(x > y, x, y))
        return values[-1]

    def by_numexpr(self, ne: Any, *given: Array) -> Any:
        """One operation at a time: a text of several would repeat what they share."""
        texts = {"add": "(x + y)*half", "sub": "(x - y)*half", "mul": "x*y", "max": "where(x > y, x, y)"}
        values = list(given)
        for op, i, j in self.STEPS:
            values.append(ne.evaluate(texts[op], {"x": values[i], "y": values[j], "half": F(0.5)}))
        return values[-1]

    def by_numba(self, nb: Any) -> Any:
        """One loop, its 2000 lines written by this program."""
        texts = {"add": "(v{}+v{})*half", "sub": "(v{}-v{})*half", "mul": "v{}*v{}", "max": "max(v{}, v{})"}
        lines = [f"        v{k + 4} = {texts[op].format(i, j)}" for k, (op, i, j) in enumerate(self.STEPS)]
        head = ["def f(a, b, c, d):", "    out = np.empty_like(a)", "    for k in range(a.size):",
                "        v0, v1, v2, v3 = a[k], b[k], c[k], d[k]"]
        names: dict[str, Any] = {"np": np, "half": F(0.5)}
        exec("\n".join([*head, *lines, f"        out[k] = v{len(self.STEPS) + 3}", "    return out"]), names)
        return nb.njit(fastmath=True)(names["f"])


LOOPS = (Mandelbrot(), Tiny())
