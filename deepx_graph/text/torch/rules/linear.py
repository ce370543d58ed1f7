"""Matrix products, distances, Fourier transforms."""

from __future__ import annotations

import math

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import part_of, taken
from deepx_graph.text.common.products import determinant, einsum, product
from deepx_graph.text.common.steps import Unsupported, axis_of
from deepx_graph.text.torch.context import CallContext, Rule, Rules, Value
from deepx_graph.text.torch.promotion import result_type


def _operands(c: CallContext, first: int = 0, second: int = 1) -> tuple[Node, Node]:
    dtype = result_type([c.get(first), c.get(second)])
    return c.as_node(c.get(first), dtype), c.as_node(c.get(second), dtype)


def _product(c: CallContext) -> Node:
    return product(c, *_operands(c))


def with_factors(c: CallContext, made: Node, alpha: Value, other: Node, beta: Value) -> Node:
    """alpha * made + beta * other"""
    dtype = c.dtype_of(made)
    if alpha != 1:
        made = c(ops.multiply, made, c.as_node(alpha, dtype))
    if beta == 0:
        return made
    other = other if beta == 1 else c(ops.multiply, other, c.as_node(beta, dtype))
    return c.each(ops.add, made, other)


def _added_product(c: CallContext) -> Node:
    """addmm, addmv, baddbmm: beta * self + alpha * (a b)"""
    return with_factors(c, product(c, *_operands(c, 1, 2)), c.get("alpha", 1), c.node(0), c.get("beta", 1))


def _linear(c: CallContext) -> Node:
    return linear(c, c.node(0), c.node(1), c.optional(2))


def linear(c: CallContext, x: Node, weight: Node, bias: Node | None) -> Node:
    """x times the transpose of the weight, plus the bias."""
    rank = len(c.dims_of(x))
    made = c(
        ops.dot_general, x, weight, lhs_contracting_dimensions=(rank - 1,), rhs_contracting_dimensions=(len(c.dims_of(weight)) - 1,)
    )
    return made if bias is None else c.each(ops.add, made, bias)


def _outer(c: CallContext) -> Node:
    x, y = _operands(c)
    dims = (c.dims_of(x)[0], c.dims_of(y)[0])
    return c(ops.multiply, c.along(x, dims, (0,)), c.along(y, dims, (1,)))


def _einsum(c: CallContext) -> Node:
    return einsum(c, c.text("equation", c.text(0)), c.nodes("tensors" if c.has("tensors") else 1))


def _bilinear(c: CallContext) -> Node:
    made = einsum(c, "...i,kij,...j->...k", [c.node(0), c.node(2), c.node(1)])
    return made if not c.has(3) else c.each(ops.add, made, c.node(3))


def _trilinear(c: CallContext) -> Node:
    """Three tensors with axes of one put in, multiplied, and summed over some axes."""
    made: Node | None = None
    for k, name in enumerate(("expand1", "expand2", "expand3")):
        x = c.add_axes(c.node(k), c.ints(name))
        made = x if made is None else c.each(ops.multiply, made, x)
    assert made is not None
    return ops.reduction(c.b, ops.add, made, c.ints("sumdim"))


def _tensordot(c: CallContext) -> Node:
    x, y = _operands(c)
    left, right = (tuple(axis_of(a, len(c.dims_of(n))) for a in c.ints(k)) for k, n in ((2, x), (3, y)))
    return c(ops.dot_general, x, y, lhs_contracting_dimensions=left, rhs_contracting_dimensions=right)


def _distances(c: CallContext) -> Node:
    """Between the rows of two matrices."""
    x, y = _operands(c)
    a, b = c.shape_of(x), c.shape_of(y)
    p = c.real("p", 2.0)
    dims = (*a[:-1], b[-2], a[-1])
    axes = range(len(a) - 2)
    off = c(
        ops.subtract,
        c.along(x, dims, [*axes, len(dims) - 3, len(dims) - 1]),
        c.along(y, dims, [*axes, len(dims) - 2, len(dims) - 1]),
    )
    return _length(c, off, p)


def _length(c: CallContext, off: Node, p: float) -> Node:
    axis = (len(c.dims_of(off)) - 1,)
    size = c(ops.abs_, off)
    if p == math.inf:
        return ops.reduction(c.b, ops.maximum, size, axis)
    if p == 1:
        return ops.reduction(c.b, ops.add, size, axis)
    if p == 2:
        return c(ops.sqrt, ops.reduction(c.b, ops.add, c(ops.multiply, off, off), axis))
    if p == 0:
        return ops.reduction(c.b, ops.add, c.to(c(ops.compare, off, c.like(0, off), direction="NE"), c.dtype_of(off)), axis)
    return c(ops.power, ops.reduction(c.b, ops.add, c(ops.power, size, c.like(p, size)), axis), c.like(1 / p, size))


def _row_distances(c: CallContext) -> Node:
    """pairwise_distance: between rows of the same number."""
    off = c(ops.subtract, *c.pair())
    made = _length(c, c(ops.add, off, c.like(c.real("eps", 1e-6), off)), c.real("p", 2.0))
    return c.shaped(made, (*c.dims_of(made), 1)) if c.flag("keepdim") else made


def _pair_distances(c: CallContext) -> Node:
    """Between each two different rows of a matrix, in order."""
    x = c.node()
    rows, columns = np.triu_indices(c.shape_of(x)[0], 1)
    off = c(ops.subtract, taken(c, x, 0, rows), taken(c, x, 0, columns))
    return _length(c, off, c.real("p", 2.0))


# --- Fourier transforms ---------------------------------------------------------------------------------------------


def _scale(mode: int, sizes: list[int]) -> float:
    count = math.prod(sizes)
    return {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[mode]


def _along_last(c: CallContext, x: Node, axes: tuple[int, ...]) -> tuple[Node, list[int]]:
    order = [*(k for k in range(len(c.dims_of(x))) if k not in axes), *axes]
    return c.transposed(x, order), [order.index(k) for k in range(len(order))]


def _transform(kind: str) -> Rule:
    """_fft_c2c, _fft_r2c and _fft_c2r along some axes."""

    def build(c: CallContext) -> Node:
        x, rank = c.node(), len(c.dims_of(c.node()))
        axes = [axis_of(a, rank) for a in c.ints(1)]
        if kind == "r2c" and not c.flag(3, True):  # both sides of the transform of a real signal
            return transformed(c, c.cast(x, c.result_type()), "c2c", axes, c.number(2), True)
        if kind == "c2r":
            return transformed(c, x, kind, axes, c.number(2), False, c.number(3))
        return transformed(c, x, kind, axes, c.number(2), kind == "r2c" or c.flag(3))

    return build


def transformed(c: CallContext, x: Node, kind: str, axes: list[int], mode: int, forward: bool, last: int = 0) -> Node:
    """The transform of complex numbers, from real ones or to real ones, one axis at a time. `mode` says how it is scaled."""
    sizes = [c.shape_of(x)[a] for a in axes]
    if kind == "c2r":
        sizes[-1] = last
    steps = axes if kind == "c2r" else axes[::-1]
    for k, a in enumerate(steps):
        real = (kind == "r2c" and k == 0) or (kind == "c2r" and k == len(steps) - 1)
        word = ("RFFT" if forward else "IRFFT") if real else "FFT" if forward else "IFFT"
        moved, back = _along_last(c, x, (a,))
        length = sizes[-1] if real else c.shape_of(moved)[-1]
        x = c.transposed(c(ops.fft, moved, fft_type=word, fft_length=(length,)), back)
    factor = _scale(mode, sizes) * (1.0 if forward else math.prod(sizes))
    return x if factor == 1 else c(ops.multiply, x, c.like(factor, x))


def _named_transform(kind: str, forward: bool) -> Rule:
    """torch.fft.rfft and its kin along one axis."""

    def build(c: CallContext) -> Node:
        x, axis = c.node(), c.axis("dim", -1)
        if kind == "c2c" and c.dtype_of(x).kind != "complex":
            x = c.cast(x, c.result_type())
        size = c.shape_of(x)[axis]
        length = c.number("n", 2 * (size - 1) if kind == "c2r" else size)
        wanted = length // 2 + 1 if kind == "c2r" else length
        if wanted < size:
            x = part_of(c, x, axis, 0, wanted)
        elif wanted > size:
            high = [wanted - size if k == axis else 0 for k in range(len(c.dims_of(x)))]
            x = c(ops.pad, x, c.like(0, x), edge_padding_low=(0,) * len(high), edge_padding_high=tuple(high),
                  interior_padding=(0,) * len(high))  # fmt: skip
        word = c.one_of("norm", "backward", "backward", "ortho", "forward")
        mode = 1 if word == "ortho" else 2 if (word == "forward") == forward else 0
        return transformed(c, x, kind, [axis], mode, forward, length)

    return build


def _joint_transform(kind: str, forward: bool, most: int = 0) -> Rule:
    """torch.fft.fft2, rfftn and their kin along several axes, of the sizes that they have."""

    def build(c: CallContext) -> Node:
        x, rank = c.node(), len(c.dims_of(c.node()))
        if c.has("s"):
            raise Unsupported("a transform of other sizes")
        if kind == "c2c" and c.dtype_of(x).kind != "complex":
            x = c.cast(x, c.result_type())
        axes = [axis_of(a, rank) for a in c.ints("dim", tuple(range(-most, 0)) if most else tuple(range(rank)))]
        word = c.one_of("norm", "backward", "backward", "ortho", "forward")
        mode = 1 if word == "ortho" else 2 if (word == "forward") == forward else 0
        last = 2 * (c.shape_of(x)[axes[-1]] - 1) if kind == "c2r" else 0
        return transformed(c, x, kind, axes, mode, forward, last)

    return build


def _short_time_transform(c: CallContext) -> Node:
    """Frames of a signal, by a window, transformed; one column for each frame."""
    x, n = c.node(), c.number("n_fft")
    hop, length = c.number("hop_length", n // 4), c.number("win_length", n)
    dtype, rank = c.dtype_of(x), len(c.dims_of(x))
    if c.flag("align_to_window") or dtype.kind == "complex" or c.flag("center"):
        raise Unsupported("a form of the transform that torch.stft does not export")
    size = c.shape_of(x)[-1]
    count = 1 + (size - n) // hop
    places = np.arange(count)[:, None] * hop + np.arange(n)
    frames = c.shaped(taken(c, x, rank - 1, places.reshape(-1)), (*c.shape_of(x)[:-1], count, n))
    if c.has("window"):
        low = (n - length) // 2
        window = c(ops.pad, c.to(c.node("window"), dtype), c.scalar(0, dtype), edge_padding_low=(low,),
                   edge_padding_high=(n - length - low,), interior_padding=(0,))  # fmt: skip
        frames = c(ops.multiply, frames, c.along(window, c.dims_of(frames), (rank,)))
    one_sided = c.flag("onesided", True)
    given = frames if one_sided else c.cast(frames, c.result_type())
    made = transformed(c, given, "r2c" if one_sided else "c2c", [rank], 1 if c.flag("normalized") else 0, True)
    return c.transposed(made, (*range(rank - 1), rank, rank - 1))


def _kronecker(c: CallContext) -> Node:
    """Each element of the first times the whole second."""
    x, y = _operands(c)
    rank = max(len(c.dims_of(x)), len(c.dims_of(y)))
    a, b = ((1,) * (rank - len(c.dims_of(v))) + c.shape_of(v) for v in (x, y))
    dims = tuple(d for pair in zip(a, b, strict=True) for d in pair)
    wide = c(ops.multiply, c.along(c.shaped(x, a), dims, tuple(range(0, 2 * rank, 2))),
             c.along(c.shaped(y, b), dims, tuple(range(1, 2 * rank, 2))))
    return c.shaped(wide, tuple(m * n for m, n in zip(a, b, strict=True)))


def _chain(c: CallContext) -> Node:
    made, *rest = c.nodes()
    for x in rest:
        made = product(c, made, x)
    return made


def _det(c: CallContext) -> Node:
    shape = c.shape_of(c.node())
    return determinant(c, c.node(), shape[-1], shape[:-2])


def _cholesky(c: CallContext) -> Node:
    made = c(ops.cholesky, c.node(), lower=True)
    rank = len(c.dims_of(made))
    return c.transposed(made, [*range(rank - 2), rank - 1, rank - 2]) if c.flag("upper") else made


LINEAR: Rules = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "linalg_matmul", "vdot"), _product),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _added_product), "linear": _linear, "outer": _outer, "einsum": _einsum,
    "bilinear": _bilinear, "tensordot": _tensordot, "_trilinear": _trilinear,
    "fft_rfft": _named_transform("r2c", True), "fft_irfft": _named_transform("c2r", False),
    "fft_fft": _named_transform("c2c", True), "fft_ifft": _named_transform("c2c", False),
    "fft_fft2": _joint_transform("c2c", True, 2), "fft_ifft2": _joint_transform("c2c", False, 2),
    "fft_fftn": _joint_transform("c2c", True), "fft_ifftn": _joint_transform("c2c", False),
    "fft_rfft2": _joint_transform("r2c", True, 2), "fft_irfft2": _joint_transform("c2r", False, 2),
    "fft_rfftn": _joint_transform("r2c", True), "fft_irfftn": _joint_transform("c2r", False), "stft": _short_time_transform,
    "kron": _kronecker, **dict.fromkeys(("chain_matmul", "linalg_multi_dot"), _chain),
    **dict.fromkeys(("cdist", "_cdist_forward"), _distances),
    **dict.fromkeys(("pdist", "_pdist_forward"), _pair_distances), "pairwise_distance": _row_distances,
    "_fft_c2c": _transform("c2c"), "_fft_r2c": _transform("r2c"),
    "_fft_c2r": _transform("c2r"), **dict.fromkeys(("linalg_det", "det"), _det),
    **dict.fromkeys(("linalg_cholesky", "cholesky"), _cholesky),
}  # fmt: skip
