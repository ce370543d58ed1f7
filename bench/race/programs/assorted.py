"""Programs of fields that no other module has: hypernetworks, trees of cells, ciphers and codecs, tables filled by diagonals."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, integers, jax, jnp, lax, normal, program, uniform, weights


def descended(loss, p, rate):
    found, slope = jax.value_and_grad(loss)(p)
    return found, [a - rate * b for a, b in zip(p, slope, strict=True)]


@program(medium=case(normal(64, 32), normal(64, 16), normal(64, 8), *weights((16, 64), (64, 32 * 24), (64, 24 * 8))))
def hypernetwork_train(x, task, y, *p):
    """A network writes the weights of another one for each sample."""

    def loss(p):
        h = jnp.tanh(task @ p[0])
        first, second = (h @ p[1]).reshape(-1, 32, 24), (h @ p[2]).reshape(-1, 24, 8)
        hidden = jax.nn.relu(jnp.einsum("bi,bij->bj", x, first))
        return jnp.mean((jnp.einsum("bj,bjk->bk", hidden, second) - y) ** 2)

    return descended(loss, list(p), 0.1)


@program(medium=case(normal(16, 128, 48, scale=0.5), *weights((48, 144), (96, 240), (48, 5)), integers(0, 5, 16)))
def tree_cells_grad(leaves, of_leaf, of_pair, out, label):
    """An LSTM over a binary tree, level by level."""

    def loss(of_leaf, of_pair, out):
        i, o, u = jnp.split(leaves @ of_leaf, 3, -1)
        c = jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        while h.shape[1] > 1:
            i, left, right, o, u = jnp.split(h.reshape(16, -1, 96) @ of_pair, 5, -1)
            kept = jax.nn.sigmoid(left) * c[:, ::2] + jax.nn.sigmoid(right) * c[:, 1::2]
            c = jax.nn.sigmoid(i) * jnp.tanh(u) + kept
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(h[:, 0] @ out), label[:, None], 1))

    return jax.value_and_grad(loss, (0, 1, 2))(of_leaf, of_pair, out)


@program(medium=case(normal(256, 64), integers(0, 16, 256), *weights((64, 128), (128, 32))))
def hardest_triplets_grad(x, label, first, second):
    """The farthest sample of the same label and the nearest of another, for each."""

    def loss(first, second):
        e = jax.nn.relu(x @ first) @ second
        e = e / jnp.sqrt((e * e).sum(-1, keepdims=True) + 1e-8)
        d = jnp.sqrt(jnp.maximum(2 - 2 * e @ e.T, 1e-6))
        same = label[:, None] == label[None]
        far, near = jnp.where(same, d, -jnp.inf).max(1), jnp.where(same, jnp.inf, d).min(1)
        return jnp.mean(jax.nn.softplus(far - near))

    return jax.value_and_grad(loss, (0, 1))(first, second)


@program(medium=case(normal(8, 256, 64), *weights((3, 64, 192), (64, 10)), integers(0, 10, 8)))
def quasi_recurrent_grad(x, w, out, label):
    """Gates of a convolution, and a recurrence that is a scan of pairs."""

    def joined(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    def loss(w, out):
        before = jnp.pad(x, ((0, 0), (2, 0), (0, 0)))
        z, f, o = jnp.split(sum(before[:, k : k + 256] @ w[k] for k in range(3)), 3, -1)
        f = jax.nn.sigmoid(f)
        _, c = lax.associative_scan(joined, (f, (1 - f) * jnp.tanh(z)), axis=1)
        h = (jax.nn.sigmoid(o) * c).mean(1)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(h @ out), label[:, None], 1))

    return jax.value_and_grad(loss, (0, 1))(w, out)


@program(medium=case(normal(2, 24, 24, 64), *weights((64, 192), (64, 192), (64, 64))))
def axial_attention_grad(x, of_rows, of_columns, out):
    """Attention along the rows of a picture, then along its columns."""

    def along(x, w):
        q, k, v = (a.reshape(*a.shape[:-1], 4, 16) for a in jnp.split(x @ w, 3, -1))
        s = jax.nn.softmax(jnp.einsum("brihd,brjhd->brhij", q, k) / 4)
        return jnp.einsum("brhij,brjhd->brihd", s, v).reshape(x.shape)

    def loss(of_rows, of_columns, out):
        h = x + along(x, of_rows)
        h = h + along(h.swapaxes(1, 2), of_columns).swapaxes(1, 2)
        return jnp.mean((h @ out) ** 2)

    return jax.value_and_grad(loss, (0, 1, 2))(of_rows, of_columns, out)


@program(medium=case(uniform(-5, 5, 16, 20, 1), uniform(-5, 5, 16, 20, 1), *weights((1, 40), (40, 40), (40, 1))))
def learned_to_adapt_grad(x, y, *p):
    """The gradient through three steps of descent, for each task (MAML)."""

    def error(p, x, y):
        return jnp.mean((jnp.tanh(jnp.tanh(x @ p[0]) @ p[1]) @ p[2] - y) ** 2)

    def adapted(p, x, y):
        for _ in range(3):
            p = [a - 0.02 * b for a, b in zip(p, jax.grad(error)(p, x[:10], y[:10]), strict=True)]
        return error(p, x[10:], y[10:])

    return jax.value_and_grad(lambda p: jnp.mean(jax.vmap(lambda x, y: adapted(p, x, y))(x, y)))(list(p))


@program(medium=case(integers(0, 1 << 32, 8, dtype=np.uint32), integers(0, 1 << 32, 3, dtype=np.uint32)))
def stream_cipher(key, nonce):
    """8192 blocks of ChaCha20 (D. J. Bernstein)."""
    n, name = 8192, np.frombuffer(b"expand 32-byte k", np.uint32)
    state = [jnp.full(n, word) for word in (*name, *key)]
    state += [jnp.arange(n, dtype=jnp.uint32), *(jnp.full(n, word) for word in nonce)]

    def turned(x, bits):
        return x << bits | x >> (32 - bits)

    def mixed(s, a, b, c, d):
        for left, right in ((16, 12), (8, 7)):
            s[a] += s[b]
            s[d] = turned(s[d] ^ s[a], left)
            s[c] += s[d]
            s[b] = turned(s[b] ^ s[c], right)

    def rounds(_, s):
        s = list(s)
        for off in (0, 1):
            for i in range(4):
                mixed(s, i, 4 + (i + off) % 4, 8 + (i + 2 * off) % 4, 12 + (i + 3 * off) % 4)
        return tuple(s)

    return jnp.stack([a + b for a, b in zip(lax.fori_loop(0, 10, rounds, tuple(state)), state, strict=True)], 1)


@program(medium=case(integers(0, 256, 20000), integers(1, 40, 20000)))
def runs_expanded(value, length):
    """Run-length decoding into room for all that may come."""
    end, at = jnp.cumsum(length), jnp.arange(400000)
    run = jnp.searchsorted(end, at, side="right")
    return jnp.where(at < end[-1], value[jnp.minimum(run, 19999)], -1)


@program(medium=case(integers(0, 1 << 28, 50000, dtype=np.uint32)))
def varint_bytes(x):
    """Numbers of seven bits a byte, as in protocol buffers, and how many bytes they take."""
    size = 1 + sum((x >= 1 << bits).astype(jnp.int32) for bits in (7, 14, 21))
    k, start = jnp.arange(4), jnp.cumsum(size) - size
    more = jnp.where(k < size[:, None] - 1, 128, 0).astype(jnp.uint32)
    byte = (x[:, None] >> (7 * k).astype(jnp.uint32)) & 127 | more
    at = jnp.where(k < size[:, None], start[:, None] + k, 200000)
    return jnp.zeros(200000, jnp.uint8).at[at].set(byte.astype(jnp.uint8), mode="drop"), size.sum()


@program(medium=case(integers(0, 4, 8, 96)))
def folded_pairs(base):
    """The most pairs of bases that do not cross (R. Nussinov, A. B. Jacobson), diagonal by diagonal."""
    n = 96
    k = jnp.arange(n)
    fits = (base[:, :, None] + base[:, None, :] == 3) & (jnp.abs(k[:, None] - k) > 3)

    def diagonal(span, table):
        i, j = k, jnp.minimum(k + span, n - 1)
        within = jnp.where(i + 1 <= j - 1, table[:, jnp.minimum(i + 1, n - 1), j - 1], 0) + fits[:, i, j]
        halves = table[:, i] + jnp.roll(table[:, :, j].swapaxes(1, 2), -1, 2)
        split = jnp.where((k[None] >= i[:, None]) & (k[None] < j[:, None]), halves, 0).max(-1)
        return table.at[:, i, j].set(jnp.where(i + span < n, jnp.maximum(within, split), table[:, i, j]))

    table = lax.fori_loop(1, n, diagonal, jnp.zeros((8, n, n), jnp.int32))
    return table[:, 0, n - 1], table


@program(medium=case(integers(0, 10, 256, 9, 9)))
def sudoku_candidates(given):
    """What may stand in each cell, as bits, until nothing more follows."""

    def together(x, axis):
        return lax.reduce(x, 0, lax.bitwise_or, (axis,))

    def used(board):
        one = jnp.where(lax.population_count(board) == 1, board, 0)
        box = together(one.reshape(-1, 3, 3, 3, 3).swapaxes(2, 3).reshape(-1, 3, 3, 9), 3)
        return together(one, 2)[:, :, None] | together(one, 1)[:, None] | jnp.repeat(jnp.repeat(box, 3, 1), 3, 2)

    def step(state):
        board, _, count = state
        new = jnp.where(lax.population_count(board) == 1, board, board & ~used(board))
        return new, (new != board).any(), count + 1

    board = jnp.where(given > 0, 1 << jnp.maximum(given - 1, 0), 511)
    return lax.while_loop(lambda state: state[1] & (state[2] < 30), step, (board, True, 0))


@program(medium=case(uniform(0, 256, 100, 2)))
def nearest_sites_by_jumps(site):
    """The nearest site of each cell by jump flooding (G. Rong, T.-S. Tan)."""
    n, cell = 256, site.astype(jnp.int32)
    y, x = jnp.meshgrid(jnp.arange(n), jnp.arange(n), indexing="ij")
    owner = jnp.full((n, n), -1).at[cell[:, 0], cell[:, 1]].set(jnp.arange(100))

    def away(owner):
        p = site[jnp.maximum(owner, 0)]
        return jnp.where(owner < 0, jnp.inf, (p[..., 0] - y) ** 2 + (p[..., 1] - x) ** 2)

    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        best, least = owner, away(owner)
        for shift in ((a, b) for a in (-step, 0, step) for b in (-step, 0, step)):
            other = jnp.roll(owner, shift, (0, 1))
            d = away(other)
            best, least = jnp.where(d < least, other, best), jnp.minimum(d, least)
        owner = best
    return owner, jnp.bincount(jnp.maximum(owner, 0).reshape(-1), length=100)


@program(medium=case(integers(0, 256, 512, 255, dtype=np.uint8)))
def symbol_syndromes(word):
    """Syndromes of Reed-Solomon codes, by logarithms in the field of 256 elements."""
    power, log, v = np.zeros(512, np.int32), np.zeros(256, np.int32), 1
    for i in range(255):
        power[i] = power[i + 255] = v
        log[v] = i
        v = v << 1 ^ (0x11D if v & 128 else 0)
    at = jnp.array(log)[word.astype(jnp.int32)]
    shift = (jnp.arange(254, -1, -1)[:, None] * jnp.arange(16)) % 255
    terms = jnp.where(word[:, :, None] == 0, 0, jnp.array(power)[at[:, :, None] + shift])
    return lax.reduce(terms, 0, lax.bitwise_xor, (1,))


@program(medium=case(integers(0, 1 << 16, 16, 256, dtype=np.uint32), integers(0, 1 << 16, 16, 256, dtype=np.uint32)))
def long_multiplication(a, b):
    """Products of numbers of 256 digits, a row of partial products after the other, and the carries."""
    n = 256

    def added(total, x, at):
        return lax.dynamic_update_slice(total, lax.dynamic_slice(total, (0, at), (16, n)) + x, (0, at))

    def row(i, totals):
        p = a * lax.dynamic_slice_in_dim(b, i, 1, 1)
        return added(totals[0], p & 0xFFFF, i), added(totals[1], p >> 16, i)

    def carried(carry, digit):
        return (digit + carry) >> 16, (digit + carry) & 0xFFFF

    low, high = lax.fori_loop(0, n, row, (jnp.zeros((16, 2 * n), jnp.uint32),) * 2)
    digits = low + jnp.pad(high, ((0, 0), (1, 0)))[:, :-1]
    return lax.scan(carried, jnp.zeros(16, jnp.uint32), digits.T)[1].T


@program(medium=case(integers(0, 1 << 30, 20000, dtype=np.uint32), integers(0, 1 << 30, 100000, dtype=np.uint32)))
def bloom_filter(items, asked):
    """Which numbers may be among others, by four hashes each."""
    bits = 1 << 18

    def hashes(x):
        a = x * jnp.uint32(2654435761)
        a, b = a ^ (a >> 15), (x ^ (x >> 16)) * jnp.uint32(0x45D9F3B) | 1
        return [((a + k * b) >> 3) % bits for k in range(4)]

    table, found = jnp.zeros(bits, bool), jnp.ones(asked.shape, bool)
    for h in hashes(items):
        table = table.at[h].set(True)
    for h in hashes(asked):
        found = found & table[h]
    return found, found.sum()
