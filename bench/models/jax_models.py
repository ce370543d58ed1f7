"""Models and their gradients as JAX lowers them, as StableHLO texts in JSON on standard output.

Run by a Python that has JAX: `{name: {"forward": text, "gradient": text}}`. The gradient takes the inputs of the model and a
cotangent of each result, as `grad` does. Read by `pairs.py`; nothing here is part of the library.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    import jax
    import jax.numpy as jnp

    def arrays(*shapes):
        return [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]

    def mlp(x, w1, b1, w2, b2, w3, b3):
        h = jnp.tanh(x @ w1 + b1)
        h = jax.nn.relu(h @ w2 + b2)
        return h @ w3 + b3

    def cross_entropy(x, w, b, y):
        logits = jax.nn.log_softmax(x @ w + b)
        return -jnp.mean(jnp.sum(logits * y, axis=-1))

    def layernorm(x, g, b):
        mean = jnp.mean(x, -1, keepdims=True)
        var = jnp.mean((x - mean) ** 2, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * g + b

    def attention(q, k, v):
        s = q @ k.T / jnp.sqrt(jnp.float32(q.shape[-1]))
        return jax.nn.softmax(s, axis=-1) @ v

    def block(x, wq, wk, wv, wo, g1, b1, w1, w2):
        h = layernorm(x, g1, b1)
        a = attention(h @ wq, h @ wk, h @ wv) @ wo
        x = x + a
        return x + jax.nn.gelu(x @ w1) @ w2

    def rnn(xs, h, w, u, b):
        def step(h, x):
            h = jnp.tanh(h @ w + x @ u + b)
            return h, h

        _, hs = jax.lax.scan(step, h, xs)
        return hs

    def gru(xs, h, wz, wr, wh):
        def step(h, x):
            both = jnp.concatenate([x, h], -1)
            z, r = jax.nn.sigmoid(both @ wz), jax.nn.sigmoid(both @ wr)
            n = jnp.tanh(jnp.concatenate([x, r * h], -1) @ wh)
            return (1 - z) * h + z * n, None

        return jax.lax.scan(step, h, xs)[0]

    def power(x, w):
        return jax.lax.fori_loop(0, 20, lambda i, h: jnp.sin(h * w), x)

    def branch(x, p):
        return jax.lax.cond(p[0] > 0, lambda x: jnp.sin(x) * x, lambda x: jnp.exp(x), x)

    def regression(x, w, b, y):
        return jnp.mean((x @ w + b - y) ** 2)

    n, d = 64, 128
    models = {
        "mlp": (mlp, arrays((n, d), (d, 256), (256,), (256, 128), (128,), (128, 10), (10,))),
        "cross entropy": (cross_entropy, arrays((n, d), (d, 10), (10,), (n, 10))),
        "regression": (regression, arrays((n, d), (d, 1), (1,), (n, 1))),
        "layer norm": (layernorm, arrays((256, 512), (512,), (512,))),
        "attention": (attention, arrays((128, 64), (128, 64), (128, 64))),
        "transformer block": (block, arrays((n, d), (d, d), (d, d), (d, d), (d, d), (d,), (d,), (d, 256), (256, d))),
        "rnn of 50 steps": (rnn, arrays((50, 32, 64), (32, 128), (128, 128), (64, 128), (128,))),
        "gru of 30 steps": (gru, arrays((30, 16, 64), (16, 64), (128, 64), (128, 64), (128, 64))),
        "loop of 20": (power, arrays((256, 256), (256, 256))),
        "branch": (branch, arrays((256, 256), (1,))),
    }
    found = {}
    for name, (f, args) in models.items():
        out = jax.tree.leaves(jax.eval_shape(f, *args))

        def gradient(*given, f=f, args=args):
            _, pull = jax.vjp(f, *given[: len(args)])
            return pull(*given[len(args) :])

        both = jax.jit(f).lower(*args), jax.jit(gradient, keep_unused=True).lower(*args, *out)
        found[name] = {"forward": both[0].as_text(), "gradient": both[1].as_text()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
