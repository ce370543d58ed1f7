"""The workload of a convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.libraries.workloads.base import ONE_SIZE, Array, F, Workload, normal, parallel

IMAGES, CHANNELS, SIDE, EPS = 8, 64, 56, 1e-5


def windows(x: Array) -> Array:
    """The 3x3 windows of images with a border of zeros, laid out for one product for each image."""
    bordered = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = np.lib.stride_tricks.sliding_window_view(bordered, (3, 3), (2, 3))
    return found.transpose(0, 1, 4, 5, 2, 3).reshape(x.shape[0], x.shape[1] * 9, -1)


class Convolution(Workload):
    """A 3x3 convolution that keeps the size, batch normalisation as in inference, relu; images by channel, row, column."""

    name, sizes, tolerance = "conv_bn_relu", ONE_SIZE, 1e-4
    flops = 2 * IMAGES * SIDE * SIDE * CHANNELS * CHANNELS * 9

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        """Images, weights; scale, shift, mean and variance of each channel."""
        x, w, *c = normal(rng, (IMAGES, CHANNELS, SIDE, SIDE), (CHANNELS, CHANNELS, 3, 3), *[CHANNELS] * 4)
        return [x, w / F(24), F(1) + F(0.1) * c[0], c[1], c[2], c[3] ** 2]

    def formula(self, xp: Any, x: Any, w: Any, scale: Any, shift: Any, mean: Any, var: Any) -> Any:
        """numpy's alone: windows are views of its arrays. The other libraries have forms of their own, or cannot."""
        if xp is not np:
            raise NotImplementedError("no convolution")
        k = scale / np.sqrt(var + x.dtype.type(EPS))
        product = np.matmul(w.reshape(CHANNELS, -1) * k[:, None], windows(x))
        product += (shift - mean * k)[:, None]
        return np.maximum(product, 0, out=product).reshape(x.shape)

    def by_torch(self, torch: Any, x: Any, w: Any, scale: Any, shift: Any, mean: Any, var: Any) -> Any:
        f = torch.nn.functional
        return f.relu(f.batch_norm(f.conv2d(x, w, padding=1), mean, var, scale, shift, eps=EPS))

    def by_jax(self, jax: Any, x: Any, w: Any, scale: Any, shift: Any, mean: Any, var: Any) -> Any:
        out = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")
        k, column = scale / jax.numpy.sqrt(var + EPS), (slice(None), None, None)
        return jax.nn.relu((out - mean[column]) * k[column] + shift[column])

    def by_numexpr(self, ne: Any, x: Array, w: Array, scale: Array, shift: Array, mean: Array, var: Array) -> Any:
        k = scale / np.sqrt(var + F(EPS))
        out = np.matmul(w.reshape(CHANNELS, -1) * k[:, None], windows(x))
        names = {"out": out, "move": (shift - mean * k)[:, None]}
        return ne.evaluate("where(out + move > 0, out + move, 0)", names, out=out).reshape(x.shape)

    def by_numba(self, nb: Any) -> Any:
        eps = F(EPS)

        def f(x, w, scale, shift, mean, var):
            images, channels, high, wide = x.shape
            columns = np.empty((channels * 9, images * high * wide), F)
            for c in nb.prange(channels):
                for tap in range(9):
                    row, up, left = columns[c * 9 + tap], tap // 3 - 1, tap % 3 - 1
                    for n in range(images):
                        for i in range(high):
                            for j in range(wide):
                                y, z = i + up, j + left
                                inside = 0 <= y < high and 0 <= z < wide
                                row[(n * high + i) * wide + j] = x[n, c, y, z] if inside else F(0)
            k = scale / np.sqrt(var + eps)
            flat = np.dot(w.reshape(channels, channels * 9) * k.reshape(channels, 1), columns)
            out = np.empty_like(x)
            for q in nb.prange(images * channels):
                n, c = q // channels, q % channels
                move = shift[c] - mean[c] * k[c]
                for i in range(high):
                    for j in range(wide):
                        out[n, c, i, j] = max(flat[c, (n * high + i) * wide + j] + move, F(0))
            return out

        return parallel(nb)(f)


CONVOLUTION = (Convolution(),)
