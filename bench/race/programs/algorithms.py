"""Algorithms from many fields, of which nobody has tuned the compiler for one."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, lax, normal, permuted, program, uniform


@program(bound=1e-3, medium=case(uniform(0, 1, 80, 80, 2), uniform(0.5, 2, 79, 79, 2)))
def finite_elements(jitter, conductivity):
    """Stiffness of triangles put together and applied: Jacobi's iterations."""
    n = 80
    y, x = jnp.meshgrid(jnp.arange(n, dtype=jnp.float32), jnp.arange(n, dtype=jnp.float32), indexing="ij")
    points = (jnp.stack([y, x], -1) + 0.3 * jitter).reshape(-1, 2)
    i = np.arange(n * n).reshape(n, n)
    lower = np.stack([i[:-1, :-1], i[1:, :-1], i[:-1, 1:]], -1)
    upper = np.stack([i[1:, 1:], i[:-1, 1:], i[1:, :-1]], -1)
    t = np.stack([lower, upper], 2).reshape(-1, 3)
    p = points[t]
    e = jnp.roll(p, -1, 1) - jnp.roll(p, -2, 1)
    area = 0.5 * jnp.abs(e[:, 0, 0] * e[:, 1, 1] - e[:, 0, 1] * e[:, 1, 0])
    k = jnp.einsum("tid,tjd->tij", e, e) * (conductivity.reshape(-1) / (4 * area))[:, None, None]
    load = jnp.zeros(n * n).at[t].add(jnp.broadcast_to(area[:, None] / 3, t.shape))
    diagonal = jnp.zeros(n * n).at[t].add(jnp.diagonal(k, axis1=1, axis2=2))
    inside = jnp.zeros((n, n)).at[1:-1, 1:-1].set(1.0).reshape(-1)

    def step(_, u):
        a = jnp.zeros(n * n).at[t].add(jnp.einsum("tij,tj->ti", k, u[t]))
        return inside * (u + 0.7 * (load - a) / diagonal)

    return lax.fori_loop(0, 20, step, jnp.zeros(n * n))


@program(bound=1e-3, medium=case(normal(64, 500, 8), normal(8, 16), normal(16, 16), normal(16, 4)))
def reservoir_and_ridge(x, win, w, target):
    """States of a leaky reservoir for many series, a ridge regression of them by conjugate gradients."""
    def step(h, u):
        h = 0.7 * h + 0.3 * jnp.tanh(u @ win + h @ (0.2 * w))
        return h, h

    _, states = lax.scan(step, jnp.zeros((64, 16)), x.swapaxes(0, 1))
    s = states.reshape(-1, 16)
    y = s @ target + 0.1 * jnp.sin(s[:, :4] * 5)
    a, b = s.T @ s + jnp.eye(16), s.T @ y

    def cg(_, z):
        v, r, p = z
        ap = a @ p
        rr = (r * r).sum(0)
        al = rr / ((p * ap).sum(0) + 1e-9)
        v, r = v + al * p, r - al * ap
        return v, r, r + (r * r).sum(0) / (rr + 1e-9) * p

    return lax.fori_loop(0, 8, cg, (jnp.zeros_like(b), b, b))[0]


@program(medium=case(uniform(0, 1, 2000, 2), uniform(0, 1, 1024, 2)))
def tree_queries(points, queries):
    """The nearest point by a balanced tree in an array, level by level built with sorts, walked without a stack."""
    n, depth = 1023, 10
    points = points[:n]
    idx, node = jnp.arange(n), jnp.zeros(n, jnp.int32)
    for level in range(depth):
        axis = level % 2
        _, _, idx = lax.sort((node[idx], points[idx, axis], idx), num_keys=2)
        size = (1 << (depth - level)) - 1
        tag = node[idx]
        within = jnp.arange(n) - jnp.searchsorted(tag, tag)
        below = jnp.where(within < size // 2, 2 * tag + 1, jnp.where(within == size // 2, tag - 10**6, 2 * tag + 2))
        new = jnp.where(tag >= (1 << level) - 1, below, tag)
        node = node.at[idx].set(new)
    node = node + 10**6 * (node < 0)
    tree = jnp.zeros((n, 2)).at[node].set(points)

    def nearest(q):
        def go(s):
            curr, prev, best, at = s
            parent = (curr + 1) // 2 - 1
            from_parent = prev < curr
            d = ((tree[curr] - q) ** 2).sum()
            better = from_parent & (d < best)
            best, at = jnp.where(better, d, best), jnp.where(better, curr, at)
            level = jnp.floor(jnp.log2(curr.astype(jnp.float32) + 1.0)).astype(jnp.int32)
            axis = level % 2
            delta = q[axis] - tree[curr, axis]
            near = 2 * curr + 1 + (delta > 0)
            far = 2 * curr + 2 - (delta > 0)
            leaf = 2 * curr + 1 >= n
            go_far = delta * delta < best
            new = jnp.where(from_parent, jnp.where(leaf, parent, near),
                            jnp.where(prev == near, jnp.where(go_far, far, parent), parent))
            return new, curr, best, at

        return lax.while_loop(lambda s: s[0] >= 0, go, (jnp.int32(0), jnp.int32(-1), jnp.float32(1e9), jnp.int32(0)))[2]

    return jax.vmap(nearest)(queries)


@program(medium=case(lambda rng: rng.integers(0, 2**32, (512, 16), dtype=np.uint32), steps=60))
def life_in_words(rows, steps):
    """Thirty-two cells in a word, sums of neighbours by adders of bits."""
    def sides(a):
        left = (a << 1) | (jnp.roll(a, 1, 1) >> 31)
        right = (a >> 1) | (jnp.roll(a, -1, 1) << 31)
        return left, right

    def step(_, a):
        up, down = jnp.roll(a, 1, 0), jnp.roll(a, -1, 0)
        ones = jnp.zeros_like(a)
        twos, fours = ones, ones
        for w in (*sides(up), up, *sides(a), *sides(down), down):
            c = ones & w
            ones = ones ^ w
            d = twos & c
            twos = twos ^ c
            fours = fours | d
        return twos & ~fours & (ones | a)

    return lax.fori_loop(0, steps, step, rows)


@program(medium=case(lambda rng: rng.integers(0, 2**32, (2048, 2, 16), dtype=np.uint32)))
def digests_of_messages(blocks):
    """SHA-256 of two blocks each, rounds in a loop over a ring of sixteen words."""
    primes = [p for p in range(2, 312) if all(p % q for q in range(2, int(p**0.5) + 1))][:64]
    k = jnp.array([int((p ** (1 / 3) % 1) * 2**32) for p in primes], jnp.uint32)
    start = jnp.array([int((p**0.5 % 1) * 2**32) for p in primes[:8]], jnp.uint32)

    def rot(a, n):
        return (a >> n) | (a << (32 - n))

    def block(state, w):
        def round_(s, t):
            v, w = s
            a, b, c, d, e, f, g, h = v
            w0 = w[0]
            s1 = rot(e, 6) ^ rot(e, 11) ^ rot(e, 25)
            t1 = h + s1 + ((e & f) ^ (~e & g)) + t + w0
            t2 = (rot(a, 2) ^ rot(a, 13) ^ rot(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
            x, y = w[1], w[14]
            new = w0 + (rot(x, 7) ^ rot(x, 18) ^ (x >> 3)) + w[9] + (rot(y, 17) ^ rot(y, 19) ^ (y >> 10))
            return ((t1 + t2, a, b, c, d + t1, e, f, g), (*w[1:], new)), None

        w = tuple(w[:, i] for i in range(16))
        (v, _), _ = lax.scan(round_, (state, w), k)
        return tuple(a + b for a, b in zip(state, v, strict=True))

    state = tuple(jnp.full(blocks.shape[0], s) for s in start)
    for i in range(2):
        state = block(state, blocks[:, i])
    return jnp.stack(state, 1)


@program(bound=1e-3, medium=case(normal(512, 512)))
def lifted_wavelets(x):
    """Cohen, Daubechies and Feauveau's 9/7 in place steps of four levels, small details dropped, and back."""
    c = (-1.586134342, -0.05298011854, 0.8829110762, 0.4435068522)

    def forward(a):
        e, o = a[0::2], a[1::2]
        for k in (0, 2):
            o = o + c[k] * (e + jnp.concatenate([e[1:], e[-1:]]))
            e = e + c[k + 1] * (o + jnp.concatenate([o[:1], o[:-1]]))
        return e / 1.149604398, o * 1.149604398

    def inverse(e, o):
        e, o = e * 1.149604398, o / 1.149604398
        for k in (2, 0):
            e = e - c[k + 1] * (o + jnp.concatenate([o[:1], o[:-1]]))
            o = o - c[k] * (e + jnp.concatenate([e[1:], e[-1:]]))
        return jnp.stack([e, o], 1).reshape(-1, *e.shape[1:])

    def shrink(d):
        return jnp.sign(d) * jnp.maximum(jnp.abs(d) - 1.0, 0)

    kept, a = [], x
    for _ in range(3):
        lo, hi = forward(a)
        ll, lh = forward(lo.T)
        hl, hh = forward(hi.T)
        kept.append([shrink(d) for d in (lh, hl, hh)])
        a = ll.T
    for lh, hl, hh in kept[::-1]:
        a = inverse(inverse(a.T, lh).T, inverse(hl, hh).T)
    return a


@program(medium=case(integers(0, 4000, 20000), integers(0, 4000, 20000), permuted(20000)))
def minimum_spanning_forest(u, v, w):
    """Boruvka's: every component takes its lightest edge, components merge by pointers."""
    n = 4000

    def step(s):
        c, taken, _ = s
        a, b = c[u], c[v]
        cross = a != b
        weight = jnp.where(cross, w, 1 << 30)
        best = jnp.full(n, 1 << 30, jnp.int32).at[a].min(weight).at[b].min(weight)
        mine = cross & ((best[a] == w) | (best[b] == w))
        parent = jnp.arange(n).at[jnp.where(cross & (best[a] == w), a, n)].set(b, mode="drop")
        parent = parent.at[jnp.where(cross & (best[b] == w), b, n)].set(a, mode="drop")
        loop = (parent[parent] == jnp.arange(n)) & (jnp.arange(n) < parent)
        parent = jnp.where(loop, jnp.arange(n), parent)
        parent = lax.fori_loop(0, 12, lambda _, p: p[p], parent)
        return parent[c], taken | mine, cross.any()

    c, taken, _ = lax.while_loop(lambda s: s[2], step, (jnp.arange(n), jnp.zeros(20000, bool), True))
    return c, taken, jnp.where(taken, w, 0).sum()


@program(bound=1e-3, medium=case(integers(0, 20, 64, 96), integers(0, 20, 64, 96), integers(-4, 5, 20, 20)))
def affine_gaps(a, b, score):
    """Local alignment with gaps that cost more to open, along antidiagonals, many pairs at once."""
    n = a.shape[1]
    i = jnp.arange(n)

    def up(z, fill):
        return jnp.concatenate([jnp.full((64, 1), fill), z[:, :-1]], 1)

    def step(s, k):
        h1, h2, e, f, best = s
        j = k - i
        ok = (j >= 0) & (j < n)
        sub = score[a, b[:, jnp.clip(j, 0, n - 1)]]
        e = jnp.maximum(h1 - 6, e - 1)
        f = jnp.maximum(up(h1, 0) - 6, up(f, -99) - 1)
        h = jnp.maximum(jnp.maximum(up(h2, 0) + sub, 0), jnp.maximum(e, f))
        h = jnp.where(ok, h, 0)
        return (h, h1, jnp.where(ok, e, -99), jnp.where(ok, f, -99), jnp.maximum(best, h.max(1))), None

    z = jnp.zeros((64, n), jnp.int32)
    s = (z, z, z - 99, z - 99, jnp.zeros(64, jnp.int32))
    return lax.scan(step, s, jnp.arange(2 * n - 1))[0][4]


@program(bound=1e-3, medium=case(normal(19, 24, 24, 24, scale=0.01)))
def flow_in_three_dimensions(f):
    """Lattice Boltzmann in 19 directions, relaxed at two rates, bounce-back off a ball."""
    c = np.array([(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if abs(x) + abs(y) + abs(z) <= 2])
    w = np.array([(1 / 3, 1 / 18, 1 / 36)[abs(d).sum()] for d in c], np.float32)
    back = np.array([int(np.where((c == -d).all(1))[0][0]) for d in c])
    g = jnp.arange(24.0) - 12
    ball = (g[:, None, None] ** 2 + g[:, None] ** 2 + g**2) < 16
    f = f + w[:, None, None, None]

    def step(_, f):
        f = jnp.stack([jnp.roll(f[i], tuple(c[i]), (0, 1, 2)) for i in range(19)])
        rho = f.sum(0)
        u = jnp.einsum("id,ixyz->dxyz", jnp.asarray(c, jnp.float32), f) / rho
        cu = 3 * jnp.einsum("id,dxyz->ixyz", jnp.asarray(c, jnp.float32), u)
        eq = w[:, None, None, None] * rho * (1 + cu + 0.5 * cu * cu - 1.5 * (u * u).sum(0))
        even, odd = 0.5 * (f + f[back] - eq - eq[back]), 0.5 * (f - f[back] - eq + eq[back])
        return jnp.where(ball, f[back], f - 1.2 * even - 0.9 * odd)

    return lax.fori_loop(0, 6, step, f)


@program(x64=True, medium=case(uniform(0.5, 1.5, 40, 40, dtype=np.float64), normal(40, 64, dtype=np.float64),
                               uniform(0.01, 0.2, 64, dtype=np.float64)))
def chemical_kinetics_f64(rates, start, dt):
    """Implicit steps of a stiff system for many cells: Jacobians eliminated without pivots."""
    a = rates / 40 - 3 * jnp.eye(40)

    def step(_, u):
        def rhs(u):
            return a @ u - 0.1 * u**3

        j = a[None] - 0.3 * jax.vmap(jnp.diag)((u**2).T)
        m = jnp.eye(40) - dt[:, None, None] * j
        b = (dt * rhs(u)).T

        def eliminate(k, s):
            m, b = s
            f = jnp.where(jnp.arange(40) > k, m[:, :, k] / m[:, k, k][:, None], 0)
            return m - f[:, :, None] * m[:, k][:, None], b - f * b[:, k][:, None]

        m, b = lax.fori_loop(0, 40, eliminate, (m, b))

        def back(i, x):
            k = 39 - i
            return x.at[:, k].set((b[:, k] - jnp.einsum("bj,bj->b", m[:, k], x)) / m[:, k, k])

        return u + lax.fori_loop(0, 40, back, jnp.zeros_like(b)).T

    return lax.fori_loop(0, 3, step, start)
