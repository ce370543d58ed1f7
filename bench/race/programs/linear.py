"""Linear algebra: solvers, factorisations, products of many shapes and layouts."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, lax, normal, positive_definite, program, uniform


@program(small=case(normal(5, 200, scale=0.3), normal(200), steps=10),
         medium=case(normal(5, 20_000, scale=0.3), normal(20_000), steps=100))
def banded_iteration(bands, x, steps):
    def step(_, x):
        y = sum(bands[k] * jnp.roll(x, k - 2) for k in range(5))
        return y / jnp.max(jnp.abs(y))

    return lax.fori_loop(0, steps, step, x)


def conjugate_gradients(a, b, steps):
    def step(_, state):
        x, r, p, rr = state
        ap = a @ p
        alpha = rr / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        return x, r, r + new / rr * p, new

    return lax.fori_loop(0, steps, step, (jnp.zeros_like(b), b, b, b @ b))[0]


@program(small=case(positive_definite(32), normal(32), steps=5),
         medium=case(positive_definite(500), normal(500), steps=20), bound=1e-3)
def conjugate_gradient(a, b, steps):
    return conjugate_gradients(a, b, steps)


@program(x64=True, small=case(positive_definite(32, np.float64), normal(32, dtype=np.float64), steps=5),
         medium=case(positive_definite(500, np.float64), normal(500, dtype=np.float64), steps=20))
def conjugate_gradient_f64(a, b, steps):
    return conjugate_gradients(a, b, steps)


@program(small=case(positive_definite(32), normal(32), steps=20),
         medium=case(positive_definite(400), normal(400), steps=50), bound=1e-3)
def power_iteration(a, x, steps):
    x = lax.fori_loop(0, steps, lambda _, x: (y := a @ x) / jnp.linalg.norm(y), x)
    return x @ a @ x


@program(small=case(positive_definite(32), normal(32, 4)), medium=case(positive_definite(256), normal(256, 16)), bound=1e-3)
def cholesky_solve(a, b):
    factor = jnp.linalg.cholesky(a)
    half = lax.linalg.triangular_solve(factor, b, left_side=True, lower=True)
    return factor, lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)


@program(small=case(positive_definite(16)), medium=case(positive_definite(128)), bound=1e-3)
def cholesky_by_columns(a):
    n = a.shape[0]

    def column(k, lower):
        c = a[:, k] - lower @ lower[k]
        return lower.at[:, k].set(jnp.where(jnp.arange(n) >= k, c / jnp.sqrt(c[k]), 0))

    return lax.fori_loop(0, n, column, jnp.zeros_like(a))


@program(small=case(positive_definite(16), normal(16, 4)), medium=case(positive_definite(256), normal(256, 16)), bound=1e-3)
def forward_substitution(a, b):
    def row(k, x):
        return x.at[k].set((b[k] - jnp.where(jnp.arange(a.shape[0]) < k, a[k], 0) @ x) / a[k, k])

    return lax.fori_loop(0, a.shape[0], row, jnp.zeros_like(b))


@program(small=case(positive_definite(16)), medium=case(positive_definite(128)), bound=1e-3)
def eliminate(a):
    n = a.shape[0]

    def step(k, m):
        pivot = m[k] / m[k, k]
        return (m - jnp.outer(m[:, k], pivot)).at[k].set(pivot)

    return lax.fori_loop(0, n, step, jnp.concatenate([a, jnp.eye(n)], 1))[:, n:]


@program(small=case(*(normal(24, 24, scale=0.2) for _ in range(5))), medium=case(*(normal(256, 256, scale=0.06) for _ in range(5))))
def matrix_chain(a, b, c, d, e):
    return a @ b @ c @ d @ e


@program(small=case(normal(16, 8, 8), normal(16, 8, 8)), medium=case(normal(2000, 16, 16), normal(2000, 16, 16)))
def batched_small_gemm(a, b):
    return a @ b


@program(small=case(normal(16, 4, 4), normal(16, 4)), medium=case(normal(20_000, 4, 4), normal(20_000, 4)))
def batched_matvec(a, x):
    return jnp.einsum("bij,bj->bi", a, x)


@program(small=case(normal(6, 8, 10), normal(10, 6, 7)), medium=case(normal(32, 64, 48), normal(48, 32, 40)))
def einsum_odd_layout(a, b):
    return jnp.einsum("abc,cad->dab", a, b)


@program(small=case(normal(5, 6, 7, 8), normal(8, 5, 9)), medium=case(normal(16, 24, 20, 32), normal(32, 16, 40)))
def einsum_two_contractions(a, b):
    return jnp.einsum("abcd,dae->ceb", a, b)


@program(small=case(normal(20, 3), normal(3, 30), normal(30)), medium=case(normal(2000, 3), normal(3, 3000), normal(3000)))
def thin_products(a, b, x):
    return (a @ b) @ x, a.T @ a


@program(small=case(normal(16, 64)), medium=case(normal(100, 5000)))
def covariance(x):
    return jnp.cov(x)


@program(small=case(positive_definite(24)), medium=case(positive_definite(200)), bound=1e-3)
def newton_inverse(a):
    return lax.fori_loop(0, 8, lambda _, x: x @ (2 * jnp.eye(a.shape[0]) - a @ x), a.T / jnp.sum(a * a))


@program(x64=True, small=case(normal(24, 24, dtype=np.float64), normal(24, 24, dtype=np.float64)),
         medium=case(normal(300, 300, dtype=np.float64), normal(300, 300, dtype=np.float64)))
def matmul_f64(a, b):
    return jnp.tanh(a @ b) @ b


@program(small=case(normal(24, 24, scale=0.1)), medium=case(normal(128, 128, scale=0.05)), bound=1e-3)
def matrix_exponential(a):
    def term(k, state):
        total, power = state
        power = power @ a / k
        return total + power, power

    eye = jnp.eye(a.shape[0])
    return lax.fori_loop(1, 12, term, (eye, eye))[0]


@program(small=case(normal(200, 4), normal(200, 3)), medium=case(normal(200_000, 8), normal(200_000, 3)))
def least_squares_sums(x, y):
    return x.T @ x, x.T @ y, (x * x).sum(0)


@program(small=case(normal(40, 30), normal(40, 2), normal(2, 30)),
         medium=case(normal(2000, 1500), normal(2000, 2), normal(2, 1500)))
def low_rank_update(a, u, v):
    return a - 0.1 * (u @ v), (a @ v.T) @ (u.T @ u)


@program(small=case(normal(8, 6, 5), normal(6, 7), normal(5, 9)), medium=case(normal(64, 48, 40), normal(48, 56), normal(40, 36)))
def einsum_three_factors(x, a, b):
    return jnp.einsum("nij,ip,jq->qnp", x, a, b)


@program(small=case(normal(4, 6, 10, 3), normal(4, 6, 5, 3)), medium=case(normal(16, 32, 100, 8), normal(16, 32, 60, 8)))
def einsum_outer_layout(a, b):
    return jnp.einsum("bhid,bhjd->bijh", a, b)


@program(small=case(normal(300), normal(300)), medium=case(normal(2_000_000), normal(2_000_000)), bound=1e-3)
def similarity(x, y):
    return x @ y / (jnp.linalg.norm(x) * jnp.linalg.norm(y)), jnp.abs(x - y).sum(), jnp.max(jnp.abs(x - y))


@program(small=case(normal(1, 300), normal(300, 1), normal(60, 3)), medium=case(normal(1, 6000), normal(6000, 1), normal(1200, 3)))
def part_of_outer_product(x, y, w):
    """Only a part of the outer product is read, by a product."""
    return (y * x)[:17, ::5] @ w


@program(small=case(integers(-128, 128, 24, 40, dtype="i1"), integers(-128, 128, 40, 20, dtype="i1"), normal(20)),
         medium=case(integers(-128, 128, 192, 320, dtype="i1"), integers(-128, 128, 320, 200, dtype="i1"), normal(200)), bound=0.01)
def requantised_linear(x, w, scale):
    """Bytes to bytes: an integer product, scaled, rounded and clipped."""
    y = lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
    return jnp.clip(jnp.round(y.astype(jnp.float32) * scale * 0.01), -128, 127).astype(jnp.int8)


@program(bound=1e-3, small=case(normal(10, 10)), medium=case(normal(64, 64)))
def tridiagonalise(a):
    """By Householder's reflections."""
    n = a.shape[0]

    def step(k, a):
        below = jnp.where(jnp.arange(n) > k, a[:, k], 0.0)
        v = below.at[k + 1].add(jnp.sign(below[k + 1]) * jnp.linalg.norm(below))
        v = v / (jnp.linalg.norm(v) + 1e-12)
        a = a - 2 * jnp.outer(v, v @ a)
        return a - 2 * jnp.outer(a @ v, v)

    return lax.fori_loop(0, n - 2, step, a + a.T)


@program(x64=True, bound=1e-6, small=case(normal(12, 3, dtype=np.float64), normal(12, dtype=np.float64)),
         medium=case(normal(160, 4, dtype=np.float64), normal(160, dtype=np.float64)))
def gaussian_process_grad(x, y):
    """The gradient of the likelihood by Matern's kernel: a factorisation and solves from both sides."""
    def loss(t):
        r = jnp.sqrt(((x[:, None] - x) ** 2 * jnp.exp(t[0])).sum(-1) + 1e-12)
        covariance = (1 + r + r * r / 3) * jnp.exp(t[1] - r) + 0.1 * jnp.eye(len(x))
        factor = jnp.linalg.cholesky(covariance)
        half = lax.linalg.triangular_solve(factor, y[:, None], left_side=True, lower=True)
        return (half**2).sum() / 2 + jnp.log(jnp.diag(factor)).sum()

    return jax.value_and_grad(loss)(jnp.zeros(2))


@program(small=case(uniform(-0.4, 0, 6, 16), uniform(-0.4, 0, 6, 16), normal(6, 16)),
         medium=case(uniform(-0.4, 0, 500, 1024), uniform(-0.4, 0, 500, 1024), normal(500, 1024)))
def cyclic_reduction(before, behind, right):
    """Tridiagonal systems, each equation rid of its neighbours, then of those two away, ..."""
    diagonal, step = jnp.ones_like(before), 1

    def moved(x, by, fill):
        gap = jnp.full((len(x), abs(by)), fill)
        return jnp.concatenate([gap, x[:, :-by]] if by > 0 else [x[:, -by:], gap], 1)

    while step < before.shape[1]:
        a, c = -before / moved(diagonal, step, 1.0), -behind / moved(diagonal, -step, 1.0)
        diagonal = diagonal + a * moved(behind, step, 0.0) + c * moved(before, -step, 0.0)
        right = right + a * moved(right, step, 0.0) + c * moved(right, -step, 0.0)
        before, behind = a * moved(before, step, 0.0), c * moved(behind, -step, 0.0)
        step *= 2
    return right / diagonal


@program(small=case(normal(6, 6)), medium=case(normal(96, 96)), bound=1e-2)
def eigenvalues_by_rotations(a):
    a, n = a + a.T, a.shape[0]

    def step(k, a):
        p = k % (n - 1)
        q = p + 1
        angle = 0.5 * jnp.arctan2(2 * a[p, q], a[q, q] - a[p, p])
        c, s = jnp.cos(angle), jnp.sin(angle)
        above, below = c * a[p] - s * a[q], s * a[p] + c * a[q]
        a = a.at[p].set(above).at[q].set(below)
        left, right = c * a[:, p] - s * a[:, q], s * a[:, p] + c * a[:, q]
        return a.at[:, p].set(left).at[:, q].set(right)

    return jnp.sort(jnp.diag(lax.fori_loop(0, 10 * n, step, a)))


@program(small=case(normal(5, 4, 4)), medium=case(normal(3000, 4, 4)), bound=1e-3)
def small_inverses(a):
    a = a + 4 * jnp.eye(4)
    return jnp.linalg.det(a), jnp.linalg.inv(a)


@program(small=case(normal(17, 17), cycles=1), medium=case(normal(129, 129), cycles=4))
def multigrid(f, cycles):
    """Poisson's equation by V-cycles."""
    def around(u):
        p = jnp.pad(u, 1)
        return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]

    def smooth(u, f, times):
        for _ in range(times):
            u = 0.2 * u + 0.2 * (around(u) + f)
        return u

    def cycle(u, f):
        u = smooth(u, f, 2)
        if u.shape[0] <= 5:
            return smooth(u, f, 4)
        coarse = 4 * (f - (4 * u - around(u)))[::2, ::2]
        e = cycle(jnp.zeros_like(coarse), coarse)
        fine = jnp.zeros_like(u).at[::2, ::2].set(e).at[1::2, ::2].set((e[1:] + e[:-1]) / 2)
        fine = fine.at[:, 1::2].set((fine[:, 2::2] + fine[:, :-1:2]) / 2)
        return smooth(u + fine, f, 2)

    u = jnp.zeros_like(f)
    for _ in range(cycles):
        u = cycle(u, f)
    return u


@program(small=case(normal(6, 4), normal(5, 4), normal(5)), medium=case(normal(2000, 8), normal(500, 8), normal(500)))
def kernel_interpolation(x, centres, weight):
    d = ((x[:, None] - centres[None]) ** 2).sum(-1)
    return jnp.sqrt(1 + d) @ weight, (d * jnp.log(jnp.sqrt(d) + 1e-6)) @ weight


@program(small=case(normal(6, 4), normal(6, 5, 3)), medium=case(normal(64, 4), normal(64, 500, 3)))
def rotated_by_quaternions(q, points):
    q = q / jnp.linalg.norm(q, axis=-1, keepdims=True)
    real, axis = q[:, None, :1], q[:, None, 1:]
    twice = 2 * jnp.cross(axis, points)
    return points + real * twice + jnp.cross(axis, twice)


@program(small=case(normal(20, 6), normal(20)), medium=case(normal(500, 64), normal(500)), bound=1e-3)
def lasso_by_coordinates(x, y):
    """Sparse least squares, one coordinate after the other."""
    norms = (x * x).sum(0)

    def coordinate(state, j):
        w, rest = state
        column = x[:, j]
        along = column @ rest + norms[j] * w[j]
        new = jnp.sign(along) * jnp.maximum(jnp.abs(along) - 5, 0) / norms[j]
        return (w.at[j].set(new), rest - column * (new - w[j])), None

    return lax.fori_loop(0, 5, lambda _, s: lax.scan(coordinate, s, jnp.arange(w.size))[0], (w := jnp.zeros(x.shape[1]), y))[0]


@program(small=case(normal(20, 3)), medium=case(normal(3000, 3)))
def farthest_points(x):
    """Sixteen points, each the farthest from those before."""
    def step(state, _):
        distance, at = state
        distance = jnp.minimum(distance, ((x - x[at]) ** 2).sum(1))
        at = jnp.argmax(distance)
        return (distance, at), at

    return lax.scan(step, (jnp.full(x.shape[0], jnp.inf), jnp.argmax(x[:, 0])), None, length=16)[1]


@program(small=case(normal(5, 5)), medium=case(normal(128, 128)))
def pivoted_elimination(a):
    n = a.shape[0]
    r = jnp.arange(n)

    def step(s, k):
        a, p = s
        j = jnp.where(r >= k, jnp.abs(a[:, k]), -1).argmax()
        rk, rj = a[k], a[j]
        a = a.at[k].set(rj).at[j].set(rk)
        pk, pj = p[k], p[j]
        p = p.at[k].set(pj).at[j].set(pk)
        f = jnp.where(r > k, a[:, k] / a[k, k], 0)
        a = a - f[:, None] * jnp.where(r >= k, a[k], 0)[None]
        return (a.at[:, k].set(jnp.where(r > k, f, a[:, k])), p), None

    return lax.scan(step, (a, r), r)[0]


@program(
    small=case(normal(6, 5), uniform(0, 1, 6, 5), normal(5, 3)),
    medium=case(normal(200, 160), uniform(0, 1, 200, 160), normal(160, 16)),
)
def alternating_least_squares(r, m, v):
    m = (m < 0.4).astype(jnp.float32)
    k = v.shape[1]

    def solve(r, m, v):
        a = jnp.einsum("nm,mi,mj->nij", m, v, v) + 0.1 * jnp.eye(k)
        b = (m * r) @ v
        low = jnp.linalg.cholesky(a)
        y = jax.scipy.linalg.solve_triangular(low, b[..., None], lower=True)
        return jax.scipy.linalg.solve_triangular(low, y, lower=True, trans=1)[..., 0]

    u = solve(r, m, v)
    v = solve(r.T, m.T, u)
    return u, v, (m * (r - u @ v.T) ** 2).sum()


@program(small=case(normal(3, 7), normal(3, 5), normal(7, 5, 2)), medium=case(normal(512, 64), normal(512, 48), normal(64, 48, 32)))
def bilinear_fusion(a, b, w):
    y = jnp.einsum("ni,nj,ijk->nk", a, b, w)
    return jnp.sign(y) * jnp.sqrt(jnp.abs(y) + 1e-6)
