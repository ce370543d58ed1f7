"""Convolutions of floats as products of one matrix of all windows, in the precision of the operands.

The axis of the input that lies in order stays innermost where windows are laid out: that of features, with a row for each window;
or that of the batch, as in gradients by a kernel, with a column for each. Larger layouts than a cache holds go a part at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.literal import Array
from deepx_graph.ops.contract.convolution import CACHED_BYTES
from deepx_graph.ops.tensor.shape import pad_staged
from deepx_graph.types import F32, F64, Type, as_tensor, dilated, tensor


def convolution_staged(types: Sequence[Type], result: Type, *attrs: Any) -> Callable[..., Array] | None:
    """The eval of a `convolution` without groups; None for others, and for integers and complex numbers."""
    lhs, rhs, out = (as_tensor(t) for t in (*types, result))
    strides, low, high, base, dilations, reversal, ib, ifeature, isp, ki, ko, ks, ob, of, osp, groups, batch_groups = attrs
    if groups * batch_groups != 1 or lhs.dtype.kind != "float" or 0 in (*lhs.shape, *rhs.shape, *out.shape):
        return None
    wide, by_rows, features, rank = F64 if lhs.dtype is F64 else F32, ib != len(isp) + 1, rhs.shape[ko], len(isp)
    numpy: Any = wide.np
    sizes, counts = tuple(rhs.shape[k] for k in ks), tuple(out.shape[k] for k in osp)
    flips = tuple(slice(None, None, -1 if r else 1) for r in reversal)
    if by_rows:
        product, order, kernel_order, made = _by_rows, (ib, *isp, ifeature), (*ks, ki, ko), (ob, *osp, of)
        windows, factors, flip = (*counts, *sizes), (*strides, *dilations), (*flips, slice(None))
    else:
        product, order, kernel_order, made = _by_columns, (ifeature, *isp, ib), (ki, *ks, ko), (*osp, ob, of)
        windows, factors, flip = (*sizes, *counts), (*dilations, *strides), (slice(None), *flips)
    moved, edges = tuple(lhs.shape[k] for k in order), tuple((0, *p, 0) for p in (low, high, (d - 1 for d in base)))
    padded = tuple(dilated(size, gap + 1) + before + after for size, before, after, gap in zip(moved, *edges, strict=True))
    pad = pad_staged((tensor(wide, moved),), tensor(wide, padded), *edges) if any(map(any, edges)) else None
    first, *inner, last = (math.prod(padded[k + 1 :]) * numpy.itemsize for k in range(len(padded)))
    steps = (first, *(step * factor for step, factor in zip(inner * 2, factors, strict=True)), last)
    named, back = tuple(out.shape[k] for k in made), tuple(made.index(k) for k in range(len(made)))

    def run(x: Array, w: Array) -> Array:
        x = np.ascontiguousarray(x.transpose(order), numpy) if pad is None else pad(x.transpose(order), 0)
        view: Array = np.ndarray((padded[0], *windows, padded[-1]), numpy, x, 0, steps)
        kernel = w.transpose(kernel_order)[flip].astype(numpy, copy=False)
        return product(view, kernel, features, rank).reshape(named).transpose(back).astype(out.dtype.np, copy=False)

    return run


def _by_rows(view: Array, kernel: Array, features: int, rank: int) -> Array:
    """view (n, windows..., sizes..., c) and kernel (sizes..., c, o) to (n, windows..., o)."""
    weights = kernel.reshape(-1, features)
    depth, spatial = len(weights), view.shape[1 : 1 + rank]
    if view.nbytes <= CACHED_BYTES:
        return np.asarray(blas.matmul(view.reshape(-1, depth), weights))
    total = np.empty((view.shape[0], *spatial, features), view.dtype)
    rows = max(1, CACHED_BYTES * view.shape[0] * spatial[0] // view.nbytes) if rank else 1
    for image, target in zip(view, total, strict=True):
        for k in range(0, spatial[0] if rank else 1, rows):
            some = slice(k, k + rows) if rank else ...
            blas.matmul(image[some].reshape(-1, depth), weights, target[some].reshape(-1, features))
    return total


def _by_columns(view: Array, kernel: Array, features: int, rank: int) -> Array:
    """view (c, sizes..., windows..., n) and kernel (c, sizes..., o) to (windows..., n, o)."""
    columns = math.prod(view.shape[1 + rank :])
    some = max(1, CACHED_BYTES * len(view) // view.nbytes)
    total: Any = 0
    for k in range(0, len(view), some):
        total = total + blas.matmul(view[k : k + some].reshape(-1, columns).T, kernel[k : k + some].reshape(-1, features))
    return np.asarray(total)
