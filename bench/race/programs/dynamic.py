"""Loops whose steps depend on what was computed: dynamic programming, searches, iterations with branches."""

from __future__ import annotations

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform


@program(small=case(integers(0, 4, 40), integers(0, 4, 40)), medium=case(integers(0, 4, 400), integers(0, 4, 400)))
def edit_distance(a, b):
    first = jnp.arange(b.size + 1)

    def row(above, char):
        def cell(left, inputs):
            diagonal, up, other = inputs
            best = jnp.minimum(jnp.minimum(left, up) + 1, diagonal + (char != other))
            return best, best

        start = above[0] + 1
        _, rest = lax.scan(cell, start, (above[:-1], above[1:], b))
        return jnp.concatenate([start[None], rest]), None

    last, _ = lax.scan(row, first, a)
    return last[-1]


@program(small=case(uniform(0, 10, 24, 24)), medium=case(uniform(0, 10, 200, 200)))
def floyd_warshall(d):
    def step(k, d):
        return jnp.minimum(d, d[:, k][:, None] + d[k][None, :])

    return lax.fori_loop(0, d.shape[0], step, d)


@program(small=case(normal(200, 4), normal(5, 4), steps=5), medium=case(normal(10_000, 16), normal(32, 16), steps=10), bound=1e-2)
def k_means(x, centres, steps):
    def step(_, c):
        distance = jnp.sum(c * c, 1) - 2 * x @ c.T
        one_hot = jax.nn.one_hot(jnp.argmin(distance, 1), c.shape[0])
        return one_hot.T @ x / jnp.maximum(one_hot.sum(0), 1)[:, None]

    return lax.fori_loop(0, steps, step, centres)


@program(small=case(normal(20, 20), normal(20), beams=4, steps=8), medium=case(normal(500, 500), normal(500), beams=8, steps=20))
def beam_search(transition, start, beams, steps):
    scores, tokens = lax.top_k(jax.nn.log_softmax(start), beams)
    moves = jax.nn.log_softmax(transition)

    def step(state, _):
        scores, tokens = state
        best, where = lax.top_k((scores[:, None] + moves[tokens]).ravel(), beams)
        parent, token = where // moves.shape[1], where % moves.shape[1]
        return (best, token), (parent, token)

    return lax.scan(step, (scores, tokens), length=steps)


@program(small=case(normal(16, 16)), medium=case(normal(200, 100)), bound=1e-3)
def gram_schmidt(a):
    def step(k, q):
        v = a[:, k] - q @ (q.T @ a[:, k])
        return q.at[:, k].set(v / jnp.linalg.norm(v))

    return lax.fori_loop(0, a.shape[1], step, jnp.zeros_like(a))


@program(small=case(integers(1, 100)), medium=case(integers(100_000, 1_000_000)))
def collatz(n):
    def step(state):
        n, steps = state
        return lax.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), steps + 1

    return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))


@program(small=case(normal(64)), medium=case(normal(20_000)))
def adaptive_descent(x):
    def step(state):
        x, rate, k = state
        new = x - rate * (4 * x ** 3 - 3 * x)
        better = jnp.sum(new ** 4 - 1.5 * new ** 2) < jnp.sum(x ** 4 - 1.5 * x ** 2)
        x, rate = lax.cond(better, lambda: (new, rate * 1.1), lambda: (x, rate * 0.5))
        return x, rate, k + 1

    return lax.while_loop(lambda s: s[2] < 60, step, (x, jnp.float32(0.3), 0))[0]


@program(small=case(normal(16, 8, 8)), medium=case(normal(500, 16, 16)))
def map_rows(x):
    return lax.map(lambda m: jnp.tanh(m @ m.T).sum(0), x)


@program(small=case(integers(1, 20, 30), uniform(0, 1, 30)), medium=case(integers(1, 100, 200), uniform(0, 1, 200)))
def knapsack(weight, value):
    def item(best, wv):
        w, v = wv
        shifted = jnp.where(jnp.arange(best.size) >= w, jnp.roll(best, w) + v, -jnp.inf)
        return jnp.maximum(best, shifted), None

    return lax.scan(item, jnp.zeros(1000), (weight, value))[0]


@program(small=case(normal(8, 8), normal(20, 8)), medium=case(normal(64, 64), normal(500, 64)))
def viterbi(transition, emission):
    def step(score, e):
        total = score[:, None] + transition
        return total.max(0) + e, total.argmax(0)

    score, back = lax.scan(step, emission[0], emission[1:])

    def follow(state, pointers):
        before = pointers[state]
        return before, before

    last = score.argmax()
    return score.max(), lax.scan(follow, last, back, reverse=True)[1]


@program(small=case(uniform(1, 100, 200)), medium=case(uniform(1, 100, 100_000)))
def newton_until(x):
    def step(state):
        y, _ = state
        new = 0.5 * (y + x / y)
        return new, jnp.max(jnp.abs(new - y))

    return lax.while_loop(lambda s: s[1] > 1e-4, step, (x, jnp.float32(1)))[0]


@program(small=case(integers(0, 3, 50), normal(16)), medium=case(integers(0, 3, 500), normal(4096)))
def switch_in_scan(choices, x):
    branches = (jnp.sin, lambda x: x * 0.5 + 1, lambda x: jnp.roll(x, 1))
    return lax.scan(lambda x, c: (lax.switch(c, branches, x), x[0]), x, choices)


@program(small=case(integers(2, 3), n=300), medium=case(integers(2, 3), n=20_000))
def sieve(start, n):
    def step(state):
        p, prime = state
        multiples = (jnp.arange(n) % p == 0) & (jnp.arange(n) > p)
        return p + 1, prime & ~multiples

    return lax.while_loop(lambda s: s[0] * s[0] < n, step, (start, jnp.ones(n, bool)))[1]


@program(small=case(normal(2, 12, 8), integers(0, 7, 2, 3)), medium=case(normal(8, 100, 40), integers(0, 39, 8, 20)))
def ctc_loss_grad(x, labels):
    """The forward recursion of connectionist temporal classification, whose blank is the last class, and its gradient."""
    batch, steps, classes = x.shape
    size, least = 2 * labels.shape[1] + 1, -1e30
    extended = jnp.full((batch, size), classes - 1).at[:, 1::2].set(labels)
    may_skip = (extended[:, 2:] != classes - 1) & (extended[:, 2:] != extended[:, :-2])
    may_skip = jnp.concatenate([jnp.zeros((batch, 2), bool), may_skip], 1)

    def before(a, count):
        return jnp.pad(a, ((0, 0), (count, 0)), constant_values=least)[:, :-count]

    def loss(x):
        logs = jnp.take_along_axis(jax.nn.log_softmax(x), jnp.broadcast_to(extended[:, None], (batch, steps, size)), 2)

        def step(a, log):
            skipped = jnp.where(may_skip, before(a, 2), least)
            return jnp.logaddexp(jnp.logaddexp(a, before(a, 1)), skipped) + log, None

        first = jnp.full((batch, size), least).at[:, :2].set(logs[:, 0, :2])
        last, _ = lax.scan(step, first, jnp.swapaxes(logs, 0, 1)[1:])
        return -jnp.logaddexp(last[:, -1], last[:, -2]).mean()

    return jax.value_and_grad(loss)(x)


@program(small=case(integers(0, 2, 16, 16)), medium=case(integers(0, 2, 128, 128)))
def connected_components(m):
    def step(state):
        labels, _ = state
        p = jnp.pad(labels, 1)
        beside = jnp.maximum(jnp.maximum(p[:-2, 1:-1], p[2:, 1:-1]), jnp.maximum(p[1:-1, :-2], p[1:-1, 2:]))
        new = jnp.where(m == 1, jnp.maximum(labels, beside), 0)
        return new, jnp.any(new != labels)

    first = jnp.where(m == 1, jnp.arange(m.size).reshape(m.shape) + 1, 0)
    return lax.while_loop(lambda s: s[1], step, (first, jnp.bool_(True)))[0]


@program(small=case(normal(20), normal(20)), medium=case(normal(500), normal(500)), bound=1e-3)
def soft_alignment_grad(a, b):
    """Two sequences aligned by a soft minimum, and the gradient through both loops."""
    far = 1e4

    def cost(a):
        def row(above, distances):
            def cell(left, inputs):
                diagonal, up, distance = inputs
                found = distance - jax.nn.logsumexp(-jnp.stack([left, diagonal, up]))
                return found, found

            _, found = lax.scan(cell, jnp.float32(far), (above[:-1], above[1:], distances))
            return jnp.concatenate([jnp.full(1, far), found]), None

        return lax.scan(row, jnp.full(b.size + 1, far).at[0].set(0.0), (a[:, None] - b) ** 2)[0][-1]

    return jax.grad(cost)(a)


@program(small=case(integers(0, 20, 60), integers(0, 20, 60), uniform(0, 1, 60), n=20),
         medium=case(integers(0, 2000, 20_000), integers(0, 2000, 20_000), uniform(0, 1, 20_000), n=2000))
def shortest_paths(source, target, length, n):
    def step(state):
        d, _ = state
        new = d.at[target].min(d[source] + length)
        return new, jnp.any(new < d)

    return lax.while_loop(lambda s: s[1], step, (jnp.full(n, 1e9).at[0].set(0), jnp.bool_(True)))[0]


@program(small=case(normal(3, 8), normal(8, 8)), medium=case(normal(16, 64), normal(64, 64)))
def nested_branches(x, w):
    def step(state, row):
        h, n = state

        def mixed(h):
            return lax.cond(h.sum() > 0, lambda h: jnp.tanh(h @ w), lambda h: h * 0.5, h)

        h = lax.cond(n % 3 == 0, mixed, lambda h: h + row, h)
        return (h, n + 1), {"norm": jnp.vdot(h, h), "largest": h.argmax()}

    return lax.scan(step, (jnp.zeros(x.shape[1]), 0), jnp.tile(x, (5, 1)))


@program(small=case(integers(0, 20, 20, 2), n=20), medium=case(integers(0, 2000, 3000, 2), n=2000))
def union_find(edges, n):
    """Which edges join two trees of a forest (Kruskal)."""
    def root(parents, a):
        return lax.while_loop(lambda a: parents[a] != a, lambda a: parents[a], a)

    def join(parents, edge):
        a, b = root(parents, edge[0]), root(parents, edge[1])
        return parents.at[jnp.maximum(a, b)].set(jnp.minimum(a, b)), a != b

    return lax.scan(join, jnp.arange(n), edges)


@program(small=case(uniform(0, 1, 30)), medium=case(uniform(0, 1, 3000)))
def heap_pushes(x):
    """The least of all numbers so far, by a binary heap."""
    def push(heap, inputs):
        at, value = inputs

        def is_below(state):
            heap, j = state
            return (j > 0) & (heap[(j - 1) // 2] > heap[j])

        def up(state):
            heap, j = state
            parent = (j - 1) // 2
            above, here = heap[parent], heap[j]
            return heap.at[parent].set(here).at[j].set(above), parent

        heap, _ = lax.while_loop(is_below, up, (heap.at[at].set(value), at))
        return heap, heap[0]

    return lax.scan(push, jnp.full(x.size, jnp.inf, jnp.float32), (jnp.arange(x.size), x))


@program(small=case(normal(16)), medium=case(normal(1000)))
def insertion_sorted(x):
    def insert(found, k):
        value = x[k]
        state = lax.while_loop(lambda s: (s[1] > 0) & (s[0][jnp.maximum(s[1] - 1, 0)] > value),
                               lambda s: (s[0].at[s[1]].set(s[0][s[1] - 1]), s[1] - 1), (found, k))
        return state[0].at[state[1]].set(value), state[1]

    return lax.scan(insert, jnp.zeros_like(x), jnp.arange(x.size))


@program(small=case(integers(0, 30, 40)), medium=case(integers(0, 3000, 20_000)))
def least_recently_used(keys):
    """How often a cache of 16 places has what is asked for."""
    def step(state, key):
        slots, ages, time = state
        hits = slots == key
        found = hits.any()
        at = jnp.where(found, jnp.argmax(hits), jnp.argmin(ages))
        return (slots.at[at].set(key), ages.at[at].set(time), time + 1), found

    return lax.scan(step, (jnp.full(16, -1), jnp.zeros(16, jnp.int32), jnp.int32(1)), keys)[1].sum()


@program(small=case(uniform(0, 1, 6, 6)), medium=case(uniform(0, 1, 100, 100)))
def seam_carving(energy):
    """The cheapest path from the top of an image to its bottom."""
    def row(costs, energies):
        padded = jnp.pad(costs, 1, constant_values=jnp.inf)
        three = jnp.stack([padded[:-2], costs, padded[2:]])
        return jnp.min(three, 0) + energies, jnp.argmin(three, 0) - 1

    def back(column, moves):
        return jnp.clip(column + moves[column], 0, moves.size - 1), column

    costs, moves = lax.scan(row, energy[0], energy[1:])
    return costs, lax.scan(back, jnp.argmin(costs), moves[::-1])[1]


@program(small=case(integers(0, 3, 40), integers(0, 3, 6)), medium=case(integers(0, 3, 20_000), integers(0, 3, 12)))
def string_search(text, pattern):
    """Where a pattern ends in a text (Knuth, Morris and Pratt)."""
    def longest(fail, k, char):
        k = lax.while_loop(lambda k: (k > 0) & (pattern[k] != char), lambda k: fail[k - 1], k)
        return k + (pattern[k] == char)

    def prefix(fail, i):
        return fail.at[i].set(longest(fail, fail[i - 1], pattern[i])), None

    fail = lax.scan(prefix, jnp.zeros(pattern.size, jnp.int32), jnp.arange(1, pattern.size))[0]

    def step(k, char):
        k = longest(fail, jnp.where(k == pattern.size, fail[-1], k), char)
        return k, k == pattern.size

    return lax.scan(step, jnp.int32(0), text)[1]


@program(small=case(normal(30)), medium=case(normal(3000)))
def longest_increasing(x):
    """By the least end of an ascending selection of each length."""
    def step(state, value):
        ends, length = state
        at = jnp.searchsorted(ends, value)
        return (ends.at[at].set(value), jnp.maximum(length, at + 1)), at

    return lax.scan(step, (jnp.full(x.size, jnp.inf), 0), x)


@program(small=case(normal(30)), medium=case(normal(5000)))
def next_greater(x):
    """Where the next greater element is, by a stack of those that wait for it."""
    def step(state, i):
        stack, size, found = state
        size, found = lax.while_loop(lambda s: (s[0] > 0) & (x[stack[s[0] - 1]] < x[i]),
                                     lambda s: (s[0] - 1, s[1].at[stack[s[0] - 1]].set(i)), (size, found))
        return (stack.at[size].set(i), size + 1, found), None

    return lax.scan(step, (jnp.zeros(x.size, jnp.int32), jnp.int32(0), jnp.full(x.size, -1)), jnp.arange(x.size))[0][2]


@program(small=case(normal(5, 3), normal(3, 3)), medium=case(normal(400, 24), normal(24, 24)))
def viterbi_path(e, t):
    def fwd(a, x):
        s = a[:, None] + t
        return s.max(0) + x, s.argmax(0)

    a, bp = lax.scan(fwd, e[0], e[1:])
    last = a.argmax()

    def back(s, p):
        return p[s], s

    first, path = lax.scan(back, last, bp, reverse=True)
    return jnp.concatenate([first[None], path]), a.max()


@program(
    small=case(integers(0, 12, 30), integers(0, 12, 30), uniform(0.1, 1, 30)),
    medium=case(integers(0, 2000, 20000), integers(0, 2000, 20000), uniform(0.1, 1, 20000)),
)
def relaxed_edges(s, t, w):
    n = 12 if s.shape[0] < 100 else 2000
    d = jnp.full(n, jnp.inf).at[0].set(0.0)

    def body(c):
        d, _, i = c
        e = d.at[t].min(d[s] + w)
        return e, (e < d).any(), i + 1

    return lax.while_loop(lambda c: c[1] & (c[2] < 30), body, (d, True, 0))


@program(small=case(integers(0, 4, 8, 8)), medium=case(integers(0, 4, 256, 256)))
def flooded_maze(m):
    free = m > 0
    n = m.shape[0]
    d = jnp.where(jnp.arange(n * n).reshape(n, n) == 0, 0, 1 << 20)

    def body(c):
        d, _ch, i = c
        e = jnp.pad(d, 1, constant_values=1 << 20)
        q = jnp.minimum(jnp.minimum(e[2:, 1:-1], e[:-2, 1:-1]), jnp.minimum(e[1:-1, 2:], e[1:-1, :-2])) + 1
        q = jnp.where(free, jnp.minimum(d, q), d)
        return q, (q != d).any(), i + 1

    return lax.while_loop(lambda c: c[1] & (c[2] < 60), body, (d, True, 0))
