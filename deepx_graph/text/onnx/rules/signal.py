"""Fourier transforms, windows, and the weights of mel spectrograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError, LimitError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.context import NodeContext, Rule, Rules
from deepx_graph.text.onnx.rules.elementwise import convert
from deepx_graph.types import C64, C128, F32, F64, I64, DType


def _complex(dtype: DType) -> DType:
    return C128 if dtype is F64 else C64


def as_complex(c: NodeContext, x: Node) -> Node:
    """Pairs along the last axis, or real numbers alone, as complex numbers without that axis."""
    *dims, last = c.shape_of(x)
    if last not in (1, 2):
        raise InferError(f"operand 0 is {x.type}", operand=0, expected="a last axis of 1, or of 2 for complex numbers")
    real = c.shaped(part_of(c, x, len(dims), 0, 1), dims)
    imaginary = c.shaped(part_of(c, x, len(dims), 1, 2), dims) if last == 2 else c.full(0, c.type_of(real))
    return c(ops.complex_, real, imaginary)


def as_pairs(c: NodeContext, x: Node) -> Node:
    """Complex numbers as pairs along a new last axis."""
    axis = len(c.dims_of(x))
    return c(ops.concatenate, c.add_axes(c(ops.real, x), (axis,)), c.add_axes(c(ops.imag, x), (axis,)), dimension=axis)


def fitted(c: NodeContext, x: Node, axis: int, length: int) -> Node:
    """Cut or padded with zeros to a length along an axis."""
    shape = c.shape_of(x)
    if length < 1 or length > c.limit:
        raise LimitError(f"a transform of {length} elements")
    if length <= shape[axis]:
        return part_of(c, x, axis, 0, length)
    high = tuple(length - d if k == axis else 0 for k, d in enumerate(shape))
    none = (0,) * len(shape)
    return c(ops.pad, x, c.like(0, x), edge_padding_low=none, edge_padding_high=high, interior_padding=none)


def transformed(c: NodeContext, x: Node, axis: int, kind: str) -> Node:
    """The transform along an axis: FFT or IFFT of complex numbers, RFFT (half of the result) of real ones."""
    rank = len(c.dims_of(x))
    order = [k for k in range(rank) if k != axis] + [axis]
    back = [order.index(k) for k in range(rank)]
    return c.transposed(c(ops.fft, c.transposed(x, order), fft_type=kind, fft_length=(c.shape_of(x)[axis],)), back)


def mirrored(c: NodeContext, half: Node, axis: int, length: int) -> Node:
    """The whole transform of real numbers: its other half is the conjugate of this one."""
    tail = part_of(c, half, axis, 1, (length + 1) // 2)
    return c(ops.concatenate, half, c(ops.reverse, c(ops.conj, tail), dimensions=(axis,)), dimension=axis)


def forward(c: NodeContext, x: Node, axis: int, length: int, onesided: bool) -> Node:
    """The transform of as many numbers along an axis, or the first half of it; real numbers by a transform of their own."""
    real = c.dtype_of(x).is_float
    made = transformed(c, fitted(c, x, axis, length), axis, "RFFT" if real else "FFT")
    if onesided:
        return made if real else part_of(c, made, axis, 0, length // 2 + 1)
    return mirrored(c, made, axis, length) if real else made


def _numbers(c: NodeContext, x: Node) -> Node:
    """Pairs along the last axis as complex numbers, single elements as real ones, without that axis."""
    *dims, last = c.shape_of(x)
    return c.shaped(x, dims) if last == 1 else as_complex(c, x)


def _dft(c: NodeContext) -> Node:
    x, rank = c.node(), c.rank()
    dtype = c.dtype()
    if dtype.bits < 32:
        x = c.cast(x, F32)
    axis = int(c.number_at(2)) if c.version >= 20 and c.has(2) else c.number("axis", 1) if c.version < 20 else -2
    axis = axis_of(axis, rank)
    inverse, onesided = c.flag("inverse"), c.flag("onesided")
    length = int(c.number_at(1)) if c.has(1) else None
    if inverse and onesided:
        length = length if length is not None else 2 * (c.shape()[axis] - 1)
        whole = mirrored(c, fitted(c, as_complex(c, x), axis, length // 2 + 1), axis, length)
        return c.cast(c.add_axes(c(ops.real, transformed(c, whole, axis, "IFFT")), (rank - 1,)), dtype)
    length = length if length is not None else c.shape()[axis]
    if inverse:
        return c.cast(as_pairs(c, transformed(c, fitted(c, as_complex(c, x), axis, length), axis, "IFFT")), dtype)
    return c.cast(as_pairs(c, forward(c, _numbers(c, x), axis, length, onesided)), dtype)


def _stft(c: NodeContext) -> Node:
    """Transforms of frames of the signal, each times a window."""
    step = int(c.number_at(1))
    batch, length = c.shape()[:2]
    size = int(c.number_at(3)) if c.has(3) else c.shape(2)[0] if c.has(2) else length
    if step < 1 or not 0 < size <= length:
        raise InferError(f"frames of {size} each {step} of {length}")
    count = (length - size) // step + 1
    x = c.node() if c.rank() == 3 else c.add_axes(c.node(), (2,))
    places = np.arange(count)[:, None] * step + np.arange(size)
    frames = c(ops.torch_index_select, _numbers(c, x), c.constant(places, I64), dim=1)
    if c.has(2):
        window = c.along(c.node(2), (batch, count, size), (2,))
        real = c.dtype_of(frames).is_float
        frames = c(ops.multiply, frames, window if real else c(ops.complex_, window, c.full(0, c.type_of(window))))
    return as_pairs(c, forward(c, frames, 2, size, c.flag("onesided", True)))


def _window(*weights: float) -> Rule:
    """Sums of cosines of multiples of the angle."""

    def build(c: NodeContext) -> Node:
        size = int(c.number_at(0))
        if not 0 <= size <= c.limit:
            raise LimitError(f"a window of {size} elements")
        around = size if c.flag("periodic", True) else max(1, size - 1)
        angle = np.arange(size) * (2 * math.pi / max(around, 1))
        found = sum(w * np.cos(k * angle) for k, w in enumerate(weights))
        return convert(c, c.constant(np.asarray(found, np.float32), F32), c.element_type("output_datatype", F32))

    return build


def _mel_weights(c: NodeContext) -> Node:
    """Triangles over the bins of a spectrum, equally wide on the mel scale."""
    bins, size, rate = (int(c.number_at(k)) for k in range(3))
    low, high = (float(c.number_at(k)) for k in (3, 4))
    width = size // 2 + 1
    if bins < 1 or size < 1 or rate < 1 or bins * width > c.limit:
        raise InferError(f"{bins} bands over a transform of {size} at {rate} Hz")
    least, most = (2595 * math.log10(1 + f / 700) for f in (low, high))
    edges = np.arange(bins + 2) * ((most - least) / (bins + 2)) + least
    places = np.floor((size + 1) * (700 * (10 ** (edges / 2595) - 1)) / rate).astype(int)
    made: Any = np.zeros((width, bins))
    for k in range(bins):
        lower, centre, upper = places[k : k + 3]
        if centre == lower:
            made[centre, k] = 1
        else:
            for j in range(lower, centre + 1):
                made[j, k] = (j - lower) / (centre - lower)
        if upper > centre:
            for j in range(centre, upper):
                made[j, k] = (upper - j) / (upper - centre)
    return convert(c, c.constant(made, F32), c.element_type("output_datatype", F32))


SIGNAL: Rules = {
    "DFT": _dft, "STFT": _stft, "HannWindow": _window(0.5, -0.5), "HammingWindow": _window(25 / 46, -21 / 46),
    "BlackmanWindow": _window(0.42, -0.5, 0.08), "MelWeightMatrix": _mel_weights,
}  # fmt: skip
