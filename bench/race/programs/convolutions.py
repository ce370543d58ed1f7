"""Convolutions in every form, and networks of them."""

from __future__ import annotations

import numpy as np

from bench.race.program import BF16, case, integers, jax, jnp, lax, normal, program, weights
from bench.race.programs.networks import stepped

LAYOUT = ("NHWC", "HWIO", "NHWC")


def conv(x, w, stride=1, **more):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=LAYOUT, **more)


@program(small=case(normal(1, 16, 16, 8), *weights((3, 3, 1, 8))), medium=case(normal(8, 56, 56, 64), *weights((3, 3, 1, 64))))
def depthwise_convolution(x, w):
    return conv(x, w, feature_group_count=x.shape[-1])


@program(small=case(normal(1, 16, 16, 8), *weights((3, 3, 8, 8))), medium=case(normal(4, 56, 56, 32), *weights((3, 3, 32, 32))))
def dilated_convolution(x, w):
    return conv(x, w, rhs_dilation=(2, 2))


@program(small=case(normal(1, 16, 16, 8), *weights((3, 3, 2, 16))), medium=case(normal(4, 28, 28, 64), *weights((3, 3, 16, 64))))
def grouped_convolution(x, w):
    return conv(x, w, feature_group_count=4)


@program(small=case(normal(1, 8, 8, 8), *weights((4, 4, 8, 4))), medium=case(normal(4, 28, 28, 64), *weights((4, 4, 64, 32))))
def transposed_convolution(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=LAYOUT)


@program(small=case(normal(2, 64, 4), *weights((5, 4, 8))), medium=case(normal(16, 2000, 16), *weights((5, 16, 32))))
def convolution_1d(x, w):
    return lax.conv_general_dilated(x, w, (1,), [(4, 0)], dimension_numbers=("NWC", "WIO", "NWC"))


@program(small=case(normal(1, 6, 8, 8, 4), *weights((3, 3, 3, 4, 4))),
         medium=case(normal(1, 16, 32, 32, 16), *weights((3, 3, 3, 16, 16))))
def convolution_3d(x, w):
    return lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))


@program(small=case(normal(2, 8, 16, 16), normal(8, 8, 3, 3, scale=0.1)),
         medium=case(normal(8, 32, 28, 28), normal(32, 32, 3, 3, scale=0.1)))
def convolution_grads(x, w):
    return jax.grad(lambda x, w: jnp.mean(lax.conv(x, w, (1, 1), "SAME") ** 2), (0, 1))(x, w)


def block(x, w1, w2, s1, s2):
    def norm(y, s):
        return (y - y.mean((0, 1, 2))) * lax.rsqrt(y.var((0, 1, 2)) + 1e-5) * (1 + s)

    return jax.nn.relu(x + norm(conv(jax.nn.relu(norm(conv(x, w1), s1)), w2), s2))


SMALL_BLOCK, MEDIUM_BLOCK = weights((3, 3, 8, 8), (3, 3, 8, 8), (8,), (8,)), weights((3, 3, 32, 32), (3, 3, 32, 32), (32,), (32,))


@program(small=case(normal(2, 8, 8, 8), *SMALL_BLOCK), medium=case(normal(8, 28, 28, 32), *MEDIUM_BLOCK))
def resnet_block(x, *w):
    return block(x, *w)


@program(small=case(normal(2, 8, 8, 8), *SMALL_BLOCK), medium=case(normal(8, 28, 28, 32), *MEDIUM_BLOCK), bound=1e-3)
def resnet_block_train(x, *w):
    return stepped(lambda w: jnp.mean(block(x, *w) ** 2), w)


def unet_weights(c):
    return weights((3, 3, 3, c), (3, 3, c, 2 * c), (3, 3, 2 * c, 2 * c), (3, 3, 3 * c, c), (1, 1, c, 3))


@program(small=case(normal(1, 16, 16, 3), *unet_weights(4)), medium=case(normal(2, 64, 64, 3), *unet_weights(16)))
def unet(x, w1, w2, w3, w4, w5):
    a = jax.nn.relu(conv(x, w1))
    b = jax.nn.relu(conv(lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), w2))
    b = jax.nn.relu(conv(b, w3))
    up = jnp.repeat(jnp.repeat(b, 2, 1), 2, 2)
    return conv(jax.nn.relu(conv(jnp.concatenate([a, up], -1), w4)), w5)


@program(small=case(normal(4, 12, 12, 1), *weights((3, 3, 1, 8), (3, 3, 8, 8), (72, 10))),
         medium=case(normal(32, 28, 28, 1), *weights((3, 3, 1, 16), (3, 3, 16, 32), (1568, 10))))
def convnet_train(x, *w):
    def pooled(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(w):
        h = pooled(jax.nn.relu(conv(pooled(jax.nn.relu(conv(x, w[0]))), w[1])))
        return jnp.mean(jax.nn.log_softmax(h.reshape(h.shape[0], -1) @ w[2]) ** 2)

    return stepped(loss, w)


@program(small=case(normal(1, 4, 8, 8), normal(4, 4, 3, 3, scale=0.1)),
         medium=case(normal(4, 32, 32, 32), normal(32, 32, 3, 3, scale=0.1)))
def transposed_convolution_nchw(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))


@program(small=case(normal(2, 20, 4), *weights((8, 4, 4))), medium=case(normal(8, 1000, 32), *weights((8, 32, 16))))
def upsample_1d(x, w):
    return jnp.tanh(lax.conv_transpose(x, w, (4,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")))


@program(small=case(normal(1, 16, 16, 4), *weights((3, 3, 4, 8))), medium=case(normal(4, 56, 56, 32), *weights((3, 3, 32, 64))))
def strided_convolution_grads(x, w):
    return jax.grad(lambda x, w: jnp.mean(conv(x, w, 2) ** 2), (0, 1))(x, w)


@program(small=case(normal(1, 15, 17, 4), *weights((3, 5, 2, 8))), medium=case(normal(4, 63, 65, 32), *weights((3, 5, 16, 64))))
def strided_groups(x, w):
    return lax.conv_general_dilated(x, w, (2, 3), [(1, 2), (0, 3)], rhs_dilation=(2, 1), feature_group_count=2,
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


@program(small=case(integers(-128, 127, 1, 8, 8, 4, dtype=np.int8), integers(-128, 127, 3, 3, 4, 4, dtype=np.int8)),
         medium=case(integers(-128, 127, 2, 32, 32, 64, dtype=np.int8), integers(-128, 127, 3, 3, 64, 64, dtype=np.int8)))
def convolution_of_bytes(x, w):
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=jnp.int32)
    return jnp.clip(y >> 8, -128, 127).astype(jnp.int8)


@program(small=case(normal(4, 6, 6, 3), *weights((3, 3, 3, 4))), medium=case(normal(8, 32, 32, 32), *weights((3, 3, 32, 32))))
def bf16_convolution_and_pool(x, w):
    y = lax.conv_general_dilated(x.astype(BF16), w.astype(BF16), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lax.reduce_window(jax.nn.relu(y), np.array(0, BF16), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@program(small=case(normal(1, 8, 8, 4), *weights((1, 1, 4, 8), (3, 3, 1, 8), (8, 2), (2, 8), (1, 1, 8, 4))),
         medium=case(normal(4, 32, 32, 24), *weights((1, 1, 24, 96), (3, 3, 1, 96), (96, 8), (8, 96), (1, 1, 96, 24))))
def inverted_residual(x, wide, depthwise, down, up, narrow):
    h = jax.nn.hard_swish(conv(x, wide))
    h = jax.nn.hard_swish(conv(h, depthwise, feature_group_count=depthwise.shape[-1]))
    gate = jax.nn.hard_sigmoid(jax.nn.relu(h.mean((1, 2)) @ down) @ up)
    return x + conv(h * gate[:, None, None], narrow)


@program(small=case(normal(3, 1, 6, 6, 2), *weights((3, 3, 6, 16))), medium=case(normal(6, 2, 32, 32, 8), *weights((3, 3, 24, 64))))
def convolutional_lstm(xs, w):
    def step(state, x):
        hidden, memory = state
        i, f, g, o = jnp.split(conv(jnp.concatenate([x, hidden], -1), w), 4, -1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden.mean()

    start = jnp.zeros((*xs.shape[1:-1], w.shape[-1] // 4))
    return lax.scan(step, (start, start), xs)


@program(
    small=case(normal(2, 8, 8, 4), normal(7, 7, 1, 4, scale=0.2), normal(4, 16, scale=0.3), normal(16, 4, scale=0.3)),
    medium=case(normal(4, 32, 32, 64), normal(7, 7, 1, 64, scale=0.1), normal(64, 256, scale=0.1), normal(256, 64, scale=0.06)),
)
def convnext_block_grad(x, wd, w1, w2):
    def loss(p, x):
        wd, w1, w2 = p
        h = lax.conv_general_dilated(
            x, wd, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=x.shape[-1]
        )
        h = (h - h.mean(-1, keepdims=True)) * lax.rsqrt(h.var(-1, keepdims=True) + 1e-6)
        h = jax.nn.gelu(h @ w1)
        gx = jnp.sqrt((h**2).sum((1, 2), keepdims=True))
        nx = gx / (gx.mean(-1, keepdims=True) + 1e-6)
        return ((x + (h * nx + h) @ w2) ** 2).mean()

    return jax.grad(loss, (0, 1))((wd, w1, w2), x)


@program(
    small=case(normal(2, 8, 8, 4), normal(4, 2, scale=0.5), normal(2, 4, scale=0.5), normal(3, 3, 4, 4, scale=0.2)),
    medium=case(normal(8, 32, 32, 64), normal(64, 16, scale=0.2), normal(16, 64, scale=0.2), normal(3, 3, 64, 64, scale=0.05)),
)
def squeeze_excite_standardised(x, a, b, w):
    w = (w - w.mean((0, 1, 2))) / (w.std((0, 1, 2)) + 1e-5)
    h = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    s = jax.nn.hard_sigmoid(jax.nn.relu(h.mean((1, 2)) @ a) @ b)
    return jax.nn.hard_swish(h * s[:, None, None] + x)
