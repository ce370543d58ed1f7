"""Expressions of Relay with what numpy makes of them: every operator, and every attribute with a value other than its default.

Inputs stand in the order `%x`, `%n`, `%i`, `%y`, `%k` of the names that an expression uses.
"""
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.support.relay_reference import convolution, largest, mean, mean_inside, normal, pooling, transposed

Array = np.ndarray[Any, Any]
Row = tuple[str, tuple[Array, ...], Any]

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3)).astype(np.float32)
Y = RNG.standard_normal((3,)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 4, 4)).astype(np.float32)
N = np.array([[7, -7, 5], [-5, 0, 9]], np.int32)
CUBE = RNG.standard_normal((2, 3, 4)).astype(np.float32)
SQUARE = RNG.standard_normal((3, 3)).astype(np.float32)
TIES = np.array([[3, 1, 3], [0, 2, 0]], np.float32)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


OPERATORS = [
    ("add(%x, %y)", (X, Y), X + Y),
    ("%x + 2f * %x - %x / 4f", (X,), X + 2 * X - X / 4),
    ("where(%x > 0f, %x, zeros_like(%x))", (X,), np.where(X > 0, X, 0)),
    ("where(%x < 0f, 1, 2)", (X,), np.where(X < 0, 1, 2).astype(np.int32)),
    ("floor_divide(%n, 3)", (N,), N // 3),
    ("floor_mod(%n, 3)", (N,), N % 3),
    ("trunc_divide(%n, 3)", (N,), np.trunc(N / 3).astype(np.int32)),
    ("divide(%n, -2)", (N,), np.trunc(N / -2).astype(np.int32)),
    ("trunc(%x)", (X,), np.trunc(X)),
    ("log2(abs(%x))", (X,), np.log2(np.abs(X))),
    ("isnan(%x / %x)", (np.array([[0, 1, 2]], np.float32),), np.array([[True, False, False]])),
    ('cast(%x * 10f, dtype="int32")', (X,), (X * 10).astype(np.int32)),
    ("clip(%x, a_min=-0.5f, a_max=0.5f)", (X,), np.clip(X, -0.5, 0.5)),
    ("nn.leaky_relu(%x, alpha=0.1f)", (X,), np.where(X > 0, X, X * np.float32(0.1))),
    ("nn.softmax(%x)", (X,), _softmax(X)),
    ("nn.log_softmax(%x)", (X,), np.log(_softmax(X))),
    ("reshape(%x, newshape=[-1])", (X,), X.reshape(-1)),
    ("reshape(%i, newshape=[0, -3, -2])", (IMAGE,), IMAGE.reshape(1, 8, 4)),
    ("reshape(%i, newshape=[-4, 1, -1, 2, -3])", (IMAGE,), IMAGE.reshape(1, 1, 2, 16)),
    ("transpose(%i, axes=[0, -1, 1, 2])", (IMAGE,), IMAGE.transpose(0, 3, 1, 2)),
    ("squeeze(expand_dims(%x, axis=1, num_newaxis=2), axis=[1])", (X,), X[:, None, :]),
    ("concatenate((%x, %x), axis=-1)", (X,), np.concatenate([X, X], -1)),
    ("stack((%x, %x), axis=1)", (X,), np.stack([X, X], 1)),
    ("split(%x, indices_or_sections=3, axis=1).1", (X,), X[:, 1:2]),
    ("split(%x, indices_or_sections=[1], axis=1).1", (X,), X[:, 1:]),
    ("tile(%x, reps=[2, 1, 2])", (X,), np.tile(X, (2, 1, 2))),
    ("repeat(%x, repeats=2, axis=1)", (X,), np.repeat(X, 2, 1)),
    ("take(%x, %k, axis=1)", (X, np.array([2, 0], np.int32)), X[:, [2, 0]]),
    ("take(%x, %k)", (X, np.array([[5, 1]], np.int32)), X.reshape(-1)[[[5, 1]]]),
    ('take(%x, %k, axis=0, mode="wrap")', (X, np.array([-1, 2], np.int32)), X[[1, 0]]),
    ("gather(%x, axis=1, %k)", (X, np.array([[2, 0, 1], [1, 1, 0]], np.int32)), np.take_along_axis(X, np.array([[2, 0, 1], [1, 1, 0]]), 1)),
    ("gather_nd(%x, %k)", (X, np.array([[0, 1], [2, 0]], np.int32)), X[[0, 1], [2, 0]]),
    ("strided_slice(%x, begin=[0, 2], end=[2, -4], strides=[1, -2])", (X,), X[:, 2::-2]),
    ('strided_slice(%x, begin=[1], end=[-1], slice_mode="size", axes=[1])', (X,), X[:, 1:]),
    ("broadcast_to(%y, shape=[2, 3])", (Y,), np.broadcast_to(Y, (2, 3))),
    ("collapse_sum_to(%x, shape=[1, 3])", (X,), X.sum(0, keepdims=True)),
    ("sum(%x, axis=[1], keepdims=True)", (X,), X.sum(1, keepdims=True)),
    ("mean(%i, axis=[1], exclude=True)", (IMAGE,), IMAGE.mean((0, 2, 3))),
    ("max(%x)", (X,), X.max()),
    ("prod(%x, axis=-1)", (X,), X.prod(-1)),
    ("argmax(%x, axis=1)", (X,), X.argmax(1).astype(np.int32)),
    ("argmin(%x)", (X,), np.int32(X.argmin())),
    ("argmax(%n, axis=0, keepdims=True)", (N,), N.argmax(0, keepdims=True).astype(np.int32)),
    ("variance(%x, mean(%x, axis=[1], keepdims=True), axis=[1])", (X,), X.var(1)),
    ("logsumexp(%x, axis=[1])", (X,), np.log(np.exp(X).sum(1))),
    ("all(%x > -10f)", (X,), np.bool_(True)),
    ("cumsum(%x, axis=1)", (X,), X.cumsum(1)),
    ("cumsum(%n, axis=1, exclusive=True)", (N,), N.cumsum(1).astype(np.int32) - N),
    ('one_hot(%k, 1f, 0f, depth=3, axis=-1, dtype="float32")', (np.array([2, 0], np.int32),), np.eye(3, dtype=np.float32)[[2, 0]]),
    ("topk(%x, k=2).0", (X,), -np.sort(-X, 1)[:, :2]),
    ('topk(%x, k=1, axis=0, ret_type="indices", is_ascend=True)', (X,), X.argmin(0, keepdims=True).astype(np.int32)),
    ("sort(%x, axis=1, is_ascend=False)", (X,), -np.sort(-X, 1)),
    ("argsort(%x, axis=1)", (X,), X.argsort(1).astype(np.int32)),
    ('full(3f, shape=[2], dtype="int32")', (), np.array([3, 3], np.int32)),
    ('zeros(shape=[2, 1], dtype="float64")', (), np.zeros((2, 1))),
    ('arange(1, 10, 3, dtype="int32")', (), np.arange(1, 10, 3, dtype=np.int32)),
    ("reverse(%x, axis=1)", (X,), X[:, ::-1]),
    ("nn.dense(%x, %x, units=2)", (X,), X @ X.T),
    ("nn.matmul(%x, %x, transpose_a=True)", (X,), X.T @ X),
    ("nn.batch_matmul(expand_dims(%x, axis=0), expand_dims(%x, axis=0))", (X,), (X @ X.T)[None]),
    ("nn.bias_add(%x, %y, axis=-1)", (X, Y), X + Y),
    ("nn.pad(%x, 1f, pad_width=[[0, 1], [2, 0]])", (X,), np.pad(X, ((0, 1), (2, 0)), constant_values=1)),
    ("nn.batch_flatten(%i)", (IMAGE,), IMAGE.reshape(1, -1)),
    ("nn.max_pool2d(%i, pool_size=[2, 2], strides=[2, 2])", (IMAGE,), IMAGE.reshape(1, 2, 2, 2, 2, 2).max((3, 5))),
    ("nn.avg_pool2d(%i, pool_size=[2, 2], strides=[2, 2])", (IMAGE,), IMAGE.reshape(1, 2, 2, 2, 2, 2).mean((3, 5))),
    ("nn.avg_pool2d(%i, pool_size=[3, 3], strides=[3, 3], padding=[1, 1])", (IMAGE,), np.stack([[
        [IMAGE[0, c, :2, :2].mean(), IMAGE[0, c, :2, 2:].mean()], [IMAGE[0, c, 2:, :2].mean(), IMAGE[0, c, 2:, 2:].mean()]] for c in (0, 1)])[None]),
    ("nn.avg_pool2d(%i, pool_size=[3, 1], padding=[1, 0], count_include_pad=True)", (IMAGE,),
     (np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 0)))[:, :, :4] + np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 0)))[:, :, 1:5] + np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 0)))[:, :, 2:]) / 3),
    ("nn.avg_pool2d(%i, pool_size=[2, 2], dilation=[2, 2], strides=[2, 2], padding=[1, 1]) * 0f", (IMAGE,), IMAGE[:, :, :2, :2] * 0),
    ("nn.avg_pool2d(%i, pool_size=[3, 3], padding=[1, 1]) * 0f", (IMAGE,), IMAGE * 0),
    ("nn.global_avg_pool2d(%i)", (IMAGE,), IMAGE.mean((2, 3), keepdims=True)),
    ("nn.adaptive_max_pool2d(%i, output_size=[1, 2])", (IMAGE,), IMAGE.reshape(1, 2, 4, 2, 2).max((2, 4))[:, :, None]),
    ("nn.layer_norm(%x, %y, %y)", (X, Y), (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5) * Y + Y),
    ("nn.l2_normalize(%x, eps=1e-8f, axis=[1])", (X,), X / np.sqrt((X * X).sum(1, keepdims=True))),
    ('layout_transform(%i, src_layout="NCHW", dst_layout="NHWC")', (IMAGE,), IMAGE.transpose(0, 2, 3, 1)),
    ("nn.upsampling(%i, scale_h=2f, scale_w=2f)", (IMAGE,), IMAGE.repeat(2, 2).repeat(2, 3)),
    ("nn.space_to_depth(%i, block_size=2)", (IMAGE,), IMAGE.reshape(1, 2, 2, 2, 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 2)),
    ("nn.depth_to_space(nn.space_to_depth(%i, block_size=2), block_size=2)", (IMAGE,), IMAGE),
    ("trilu(%x, 1, upper=True)", (X,), np.triu(X, 1)),
    ("trilu(%x, upper=False)", (X,), np.tril(X)),
    ("sequence_mask(%x, %k, mask_value=9f, axis=1)", (X, np.array([1, 3], np.int32)), np.where(np.arange(3) < [[1], [3]], X, 9)),
    ("nn.lrn(%i, size=3)", (IMAGE,), IMAGE / (2 + 1e-4 / 3 * (IMAGE**2).sum(1, keepdims=True)) ** 0.75),
    ("sigmoid(%x) * tanh(%x)", (X,), np.tanh(X) / (1 + np.exp(-X))),
]  # fmt: skip


def _unary() -> Iterator[Row]:
    inside, above = np.tanh(X), np.abs(X) + np.float32(1.25)
    for name, how in {"negative": np.negative, "exp": np.exp, "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
                      "atan": np.arctan, "asinh": np.arcsinh, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "isfinite": np.isfinite,
                      "fast_exp": np.exp, "fast_tanh": np.tanh, "abs": np.abs, "ones_like": np.ones_like, "copy": np.copy}.items():
        yield f"{name}(%x)", (X,), how(X)
    for name, how in {"asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh}.items():
        yield f"{name}(%x)", (inside,), how(inside)
    for name, how in {"acosh": np.arccosh, "log": np.log, "log10": np.log10, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}.items():
        yield f"{name}(%x)", (above,), how(above)
    halves = np.array([0.5, -0.5, 1.5, -2.5, 2.4], np.float32)
    yield "round(%x)", (halves,), np.array([1, -1, 2, -3, 2], np.float32)
    odd = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    yield "isinf(%x)", (odd,), np.isinf(odd)
    yield "erf(%x)", (np.array([0, 0.5, -1], np.float32),), np.array([0, 0.5204999, -0.8427008], np.float32)
    yield "fast_erf(%x)", (np.array([0, 0.5, -1], np.float32),), np.array([0, 0.5204999, -0.8427008], np.float32)
    yield "nn.gelu(%x)", (np.array([0, 0.5, -1], np.float32),), np.array([0, 0.345731, -0.158655], np.float32)
    yield "nn.relu(%x)", (X,), np.maximum(X, 0)
    yield "sqrt(%n)", (np.array([16, 10], np.int32),), np.array([4, 3], np.int32)
    for name in ("floor", "ceil", "round", "trunc"):
        yield f"{name}(%n)", (N,), N
    for name in ("identity", "on_device", "device_copy", "annotation.stop_fusion", "annotation.compiler_begin", "annotation.compiler_end"):
        yield f"{name}(%x)", (X,), X


def _binary() -> Iterator[Row]:
    other = np.array([3, -2, 4], np.int32)
    for name, how in {"subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "less": np.less,
                      "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal, "equal": np.equal,
                      "not_equal": np.not_equal, "mod": np.fmod, "floor_mod": np.mod, "trunc_mod": np.fmod}.items():
        yield f"{name}(%n, %k)", (N, np.array([5, -2, 5], np.int32)), how(N, np.array([5, -2, 5], np.int32))
    for name, how in {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}.items():
        yield f"{name}(%n, %k)", (N, other), how(N, other)
    for name, how in {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}.items():
        yield f"{name}(%x > 0f, %n > 0)", (X, N), how(X > 0, N > 0)
    yield "logical_not(%x > 0f)", (X,), ~(X > 0)
    yield "bitwise_not(%n)", (N,), ~N
    yield "atan2(%x, %y)", (X, Y), np.arctan2(X, Y)
    yield "power(%x, %y)", (np.abs(X), Y), np.abs(X) ** Y
    yield "left_shift(%n, 2)", (N,), N << 2
    yield "right_shift(%n, 1)", (N,), N >> 1
    yield 'right_shift(%n, cast(1, dtype="uint8"))', (np.array([200, 7], np.uint8),), np.array([100, 3], np.uint8)
    yield "floor_divide(%x, %y)", (X * 4, Y), np.floor(X * 4 / Y)
    yield "trunc_divide(%x, %y)", (X * 4, Y), np.trunc(X * 4 / Y)
    yield "nn.prelu(%i, %y)", (IMAGE, np.array([0.5, 2], np.float32)), np.where(IMAGE > 0, IMAGE, IMAGE * np.array([0.5, 2], np.float32)[:, None, None])
    yield "nn.prelu(%x, %y, axis=0)", (X, np.array([0.5, 2], np.float32)), np.where(X > 0, X, X * np.array([[0.5], [2]], np.float32))
    yield "cast_like(%x, %n)", (X * 10, N), (X * 10).astype(np.int32)
    yield "clip(%n, a_min=-6.5f, a_max=100000000000f)", (N,), np.maximum(N, -6)
    yield "clip(%x, a_min=-0.1f64, a_max=0.3f64)", (X.astype(np.float64),), X.astype(np.float64).clip(-0.1, 0.3)
    yield "%x * 0.1f64", (X.astype(np.float64),), X.astype(np.float64) * 0.1
    yield "where(%n, %x, 0f)", (X, N), np.where(N != 0, X, 0).astype(np.float32)


def _reductions() -> Iterator[Row]:
    def spread(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        return x.var(axis, keepdims=keepdims)

    def unbiased(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        return x.var(axis, keepdims=keepdims, ddof=1)

    def logs(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        return np.log(np.exp(x).sum(axis, keepdims=keepdims))

    flags = CUBE > -1, CUBE > 1
    forms: list[tuple[str, Callable[..., Any], Array]] = [
        ("sum(%i{})", np.sum, CUBE), ("max(%i{})", np.max, CUBE), ("min(%i{})", np.min, CUBE), ("prod(%i{})", np.prod, CUBE),
        ("mean(%i{})", np.mean, CUBE), ("all(%i > -1f{})", np.all, flags[0]), ("any(%i > 1f{})", np.any, flags[1]),
        ("logsumexp(%i{})", logs, CUBE), ("variance(%i{})", spread, CUBE), ("variance(%i{}, unbiased=True)", unbiased, CUBE)]
    for form, how, x in forms:
        yield form.format(""), (CUBE,), np.asarray(how(x))
        yield form.format(", axis=[0, -1]"), (CUBE,), how(x, (0, 2))
        yield form.format(", axis=1, keepdims=True"), (CUBE,), how(x, 1, keepdims=True)
        yield form.format(", axis=[1], exclude=True"), (CUBE,), how(x, (0, 2))
    for name, found in (("argmax", np.argmax), ("argmin", np.argmin)):
        for axis in (0, 1):
            want = found(TIES, axis).astype(np.int32)
            yield f"{name}(%x, axis=[{axis}])", (TIES,), want
            yield f"{name}(%x, axis=[{1 - axis}], exclude=True, keepdims=True)", (TIES,), np.expand_dims(want, axis)
        last = (2 - found(TIES[:, ::-1], 1)).astype(np.int32)
        yield f"{name}(%x, axis=[1], select_last_index=True)", (TIES,), last
        yield f"{name}(%x)", (TIES,), np.int32(found(TIES))
    for name, sums in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):
        yield f"{name}(%i, axis=1)", (CUBE,), sums(CUBE, 1)
        yield f"{name}(%x)", (X,), sums(X)
        yield f'{name}(%n, axis=-1, dtype="float32")', (N,), sums(N, 1).astype(np.float32)
        first = np.zeros((2, 1)) if name == "cumsum" else np.ones((2, 1))
        yield f"{name}(%x, axis=1, exclusive=True)", (X,), np.concatenate([first, sums(X, 1)[:, :-1]], 1).astype(np.float32)


def _shapes() -> Iterator[Row]:
    yield "transpose(%i)", (CUBE,), CUBE.T
    yield "squeeze(reshape(%x, newshape=[1, 2, 1, 3]))", (X,), X
    yield "expand_dims(%x, axis=-1)", (X,), X[..., None]
    yield 'reshape(zeros(shape=[0, 2], dtype="float32"), newshape=[3, 0], allowzero=True)', (), np.zeros((3, 0), np.float32)
    yield "reshape_like(%x, %k)", (X, np.zeros((3, 2), np.int32)), X.reshape(3, 2)
    yield 'layout_transform(%i, src_layout="NCHW", dst_layout="HWNC")', (IMAGE,), IMAGE.transpose(2, 3, 0, 1)
    yield "concatenate((%x, %n))", (X, X + 1), np.concatenate([X, X + 1])
    yield "stack((%x, %n))", (X, X + 1), np.stack([X, X + 1])
    yield "stack((%x, %n), axis=-1)", (X, X + 1), np.stack([X, X + 1], -1)
    yield "split(%x, indices_or_sections=2).1", (X,), X[1:]
    yield "strided_slice(%x, begin=[0, 1], end=[2, 3])", (X,), X[:, 1:3]
    yield "strided_slice(%i, begin=[-3, 1], end=[3, 4], strides=[2, 2], axes=[1, 2])", (CUBE,), CUBE[:, 0:3:2, 1:4:2]
    yield 'strided_slice(%i, begin=[1, 1, 0], end=[1, -1, 3], strides=[1, 2, 2], slice_mode="size")', (CUBE,), CUBE[1:2, 1:, 0:3]
    yield "slice_like(%i, %k)", (CUBE, np.zeros((1, 2, 3), np.int32)), CUBE[:1, :2, :3]
    yield "slice_like(%i, %k, axes=[0, -1])", (CUBE, np.zeros((1, 2, 3), np.int32)), CUBE[:1, :, :3]
    yield "tile(%i, reps=[2])", (CUBE,), np.tile(CUBE, 2)
    yield "tile(%i, reps=[3, 1])", (CUBE,), np.tile(CUBE, (3, 1))
    yield "repeat(%x, repeats=2)", (X,), np.repeat(X, 2)
    yield "repeat(%i, repeats=3, axis=0)", (CUBE,), np.repeat(CUBE, 3, 0)
    yield "repeat(%i, repeats=2, axis=-1)", (CUBE,), np.repeat(CUBE, 2, -1)
    yield "reverse(%i, axis=[0, -1])", (CUBE,), CUBE[::-1, :, ::-1]
    yield "flip(%i, axis=1)", (CUBE,), CUBE[:, ::-1]
    yield "nn.pad(%x, pad_value=2f, pad_width=[[1, 0], [0, 2]])", (X,), np.pad(X, ((1, 0), (0, 2)), constant_values=2)
    yield "nn.pad(%x, pad_width=[[1, 0], [0, 2]])", (X,), np.pad(X, ((1, 0), (0, 2)))
    yield "broadcast_to_like(%y, %k)", (Y, np.zeros((2, 3), np.int32)), np.broadcast_to(Y, (2, 3))
    yield "collapse_sum_like(%x, %y)", (X, Y), X.sum(0)
    yield 'ones(shape=[2], dtype="int8")', (), np.ones(2, np.int8)
    yield "full(3f, shape=[2, 1])", (), np.full((2, 1), 3, np.float32)
    yield "full_like(%x, 3f)", (X,), np.full_like(X, 3)
    yield 'arange(1, 10, 3, dtype="float32")', (), np.arange(1, 10, 3, dtype=np.float32)
    yield "arange(0, 4, 1)", (), np.arange(4, dtype=np.int32)
    yield "shape_of(%x)", (X,), np.array([2, 3], np.int32)
    yield 'shape_of(%x, dtype="int64")', (X,), np.array([2, 3])
    yield "ndarray_size(%x)", (X,), np.int32(6)
    yield 'ndarray_size(%x, dtype="int64")', (X,), np.int64(6)
    for indexing in ("ij", "xy"):
        for k in range(3):
            want = np.meshgrid(Y, Y[:2] + 1, Y[:1], indexing=indexing)[k]
            yield f'meshgrid((%x, %n, %i), indexing="{indexing}").{k}', (Y, Y[:2] + 1, Y[:1]), want
    yield "meshgrid((%x, %n)).0", (Y, Y[:2]), np.meshgrid(Y, Y[:2], indexing="ij")[0]


def _choices() -> Iterator[Row]:
    far = np.array([5, -4, 1], np.int32)
    yield "take(%x, %k, axis=1)", (X, far), X.take(far, 1, mode="clip")
    yield 'take(%x, %k, axis=1, mode="wrap")', (X, far), X.take(far, 1, mode="wrap")
    yield "gather(%x, axis=0, %k)", (X, np.array([[1, 0, 1]], np.int32)), np.take_along_axis(X, np.array([[1, 0, 1]]), 0)
    yield "gather_nd(%i, %k)", (CUBE, np.array([[1, 0], [2, 1]], np.int32)), CUBE[[1, 0], [2, 1]]
    hot = np.eye(3, dtype=np.float32)[[2, 0]]
    yield 'one_hot(%k, 1f, 0f, depth=3, axis=0, dtype="float32")', (np.array([2, 0], np.int32),), hot.T
    yield 'one_hot(%k, 5, -1, depth=3, dtype="float32")', (np.array([2, 0], np.int32),), hot * 6 - 1
    yield "sort(%x, axis=0)", (X,), np.sort(X, 0)
    yield "sort(%x)", (X,), np.sort(X)
    yield 'argsort(%x, axis=0, is_ascend=False, dtype="int64")', (X,), np.argsort(-X, 0, kind="stable")
    yield "argsort(%x)", (X,), np.argsort(X).astype(np.int32)
    yield 'topk(%x, k=2, dtype="int64").1', (X,), np.argsort(-X, 1)[:, :2]
    yield 'topk(%x, ret_type="values")', (X,), -np.sort(-X, 1)[:, :1]
    yield 'topk(%x, k=0, axis=0, ret_type="values")', (X,), -np.sort(-X, 0)


def _products() -> Iterator[Row]:
    pair = RNG.standard_normal((2, 4, 3)).astype(np.float32), RNG.standard_normal((2, 4, 3)).astype(np.float32)
    turned = pair[1].transpose(0, 2, 1)
    for a, flag_a in ((pair[0], False), (pair[0].transpose(0, 2, 1), True)):
        for b, flag_b in ((pair[1], True), (turned, False)):
            yield f"nn.batch_matmul(%x, %n, transpose_a={flag_a}, transpose_b={flag_b})", (np.ascontiguousarray(a), np.ascontiguousarray(b)), pair[0] @ turned
            if flag_a or not flag_b:
                yield (f"nn.matmul(%x, %n, transpose_a={flag_a}, transpose_b={flag_b})", (np.ascontiguousarray(a[0]), np.ascontiguousarray(b[1])),
                       pair[0][0] @ turned[1])
    yield "nn.batch_matmul(%x, %n)", (pair[0][:1], pair[1]), pair[0][:1] @ turned
    small = np.array([[1, 2, 3], [100, 100, 100]], np.int8)
    wide = small.astype(np.int32) @ small.astype(np.int32).T
    yield 'nn.dense(%x, %x, out_dtype="int32")', (small,), wide
    yield 'nn.matmul(%x, %x, transpose_b=True, out_dtype="int32")', (small,), wide
    yield 'nn.batch_matmul(%x, %x, out_dtype="int32")', (small[None],), wide[None]
    yield "nn.bias_add(%i, %y)", (IMAGE, Y[:2]), IMAGE + Y[:2, None, None]
    yield "nn.bias_add(%i, %y, axis=-2)", (IMAGE, np.arange(4, dtype=np.float32)), IMAGE + np.arange(4, dtype=np.float32)[:, None]


def _norms() -> Iterator[Row]:
    def softmax(x: Array, axis: int) -> Array:
        return np.exp(x) / np.exp(x).sum(axis, keepdims=True)

    for name in ("nn.softmax", "nn.fast_softmax"):
        yield f"{name}(%i, axis=1)", (CUBE,), softmax(CUBE, 1)
        yield f"{name}(%i)", (CUBE,), softmax(CUBE, 2)
    yield "nn.log_softmax(%i, axis=1)", (CUBE,), np.log(softmax(CUBE, 1))
    target = np.array([[0.25, 0.75, 0], [1, 0, 2]], np.float32)
    yield "nn.cross_entropy(%x, %n)", (np.abs(X), target), -(np.log(np.abs(X)) * target).sum() / np.float32(2)
    yield "nn.cross_entropy_with_logits(%x, %n)", (X, target), -(X * target).sum() / np.float32(2)
    scale, offset = np.array([2, 0.5, -1], np.float32), np.array([0, 1, 3], np.float32)
    s, o = scale[:, None], offset[:, None]
    off = normal(CUBE, 2, 1e-5)
    flat = normal(CUBE, 1, 0.5)
    yield "nn.layer_norm(%i, %y, %k)", (CUBE.transpose(0, 2, 1).copy(), scale, offset), (normal(CUBE, 1, 1e-5) * s + o).transpose(0, 2, 1)
    yield "nn.layer_norm(%i, %y, %k, axis=1, epsilon=0.5f, scale=False)", (CUBE, scale, offset), flat + o
    yield "nn.layer_norm(%i, %y, %k, axis=1, epsilon=0.5f, center=False)", (CUBE, scale, offset), flat * s
    yield "nn.instance_norm(%i, %y, %k)", (CUBE, scale, offset), off * s + o
    yield ("nn.instance_norm(%i, %y, %k, axis=2, epsilon=0.5f, scale=False)", (CUBE.transpose(0, 2, 1).copy(), scale, offset),
           (normal(CUBE, 2, 0.5) + o).transpose(0, 2, 1))
    yield "nn.instance_norm(%i, %y, %k, epsilon=0.5f, center=False)", (CUBE, scale, offset), normal(CUBE, 2, 0.5) * s
    groups = RNG.standard_normal((2, 4, 3)).astype(np.float32)
    four = np.array([2, 0.5, -1, 3], np.float32), np.array([0, 1, 3, -2], np.float32)
    by_two, softly = (normal(groups.reshape(2, 2, 6), 2, e).reshape(2, 4, 3) for e in (1e-5, 0.5))
    yield "nn.group_norm(%i, %y, %k, num_groups=2)", (groups, *four), by_two * four[0][:, None] + four[1][:, None]
    yield ("nn.group_norm(%i, %y, %k, num_groups=2, axis=2, epsilon=0.5f, scale=False)", (groups.transpose(0, 2, 1).copy(), *four),
           (softly + four[1][:, None]).transpose(0, 2, 1))
    yield "nn.group_norm(%i, %y, %k, num_groups=2, epsilon=0.5f, center=False)", (groups, *four), softly * four[0][:, None]
    level, width = np.array([0.5, -1, 2], np.float32), np.array([1, 4, 0.25], np.float32)

    def moved(epsilon: float) -> Array:
        return np.asarray((CUBE - level[:, None]) / np.sqrt(width[:, None] + epsilon))

    given = CUBE, np.stack([scale, offset, level, width])
    rows = ", ".join(f"reshape(strided_slice(%k, begin=[{k}, 0], end=[{k + 1}, 3]), newshape=[3])" for k in range(4))
    yield f"nn.batch_norm(%i, {rows}).0", given, moved(1e-5) * s + o
    yield f"nn.batch_norm(%i, {rows}, epsilon=0.5f, scale=False).0", given, moved(0.5) + o
    yield f"nn.batch_norm(transpose(%i, axes=[0, 2, 1]), {rows}, axis=-1, center=False).0", given, (moved(1e-5) * s).transpose(0, 2, 1)
    yield f"nn.batch_norm(%i, {rows}).1", given, level
    yield f"nn.batch_norm(%i, {rows}).2", given, width
    yield "nn.l2_normalize(%i, eps=9f, axis=[1])", (CUBE,), CUBE / np.sqrt(np.maximum((CUBE**2).sum(1, keepdims=True), 9))
    yield "nn.l2_normalize(%i, eps=0f, axis=[1], exclude=True)", (CUBE,), CUBE / np.sqrt((CUBE**2).sum((0, 2), keepdims=True))
    yield "nn.dropout(%x).0", (X,), X
    yield "nn.dropout(%x).1", (X,), np.ones_like(X)


def _convolutions() -> Iterator[Row]:
    for n, letters in ((1, "W"), (2, "HW"), (3, "DHW")):
        sizes, taps = (7, 6, 5)[:n], (3, 2, 2)[:n]
        x, w = RNG.standard_normal((2, 4, *sizes)), RNG.standard_normal((6, 2, *taps))
        x, w = x.astype(np.float32), w.astype(np.float32)
        low, high, strides, dilation = (1, 2, 0)[:n], (2, 0, 1)[:n], (2, 1, 2)[:n], (2, 3, 2)[:n]
        last, mixed = (*range(2, 2 + n), 0, 1), (0, *range(2, 2 + n), 1)
        words = [["NC"[k] if k < 2 else letters[k - 2] for k in order] for order in (last, mixed)]
        kernel = ["OI"[k] if k < 2 else letters[k - 2] for k in (*range(2, 2 + n), 1, 0)]
        want = convolution(x, w, strides=strides, low=low, high=high, dilation=dilation, groups=2)
        yield (f'nn.conv{n}d(%x, %k, strides={list(strides)}, padding={[*low, *high]}, dilation={list(dilation)}, groups=2, data_layout="{"".join(words[0])}",'
               f' kernel_layout="{"".join(kernel)}", out_layout="{"".join(words[1])}", out_dtype="float64")',
               (x.transpose(last).copy(), w.transpose(*range(2, 2 + n), 1, 0).copy()), want.transpose(mixed).astype(np.float64))
        ones, none = (1,) * n, (0,) * n
        y = x[:, :2]
        yield f"nn.conv{n}d(%x, %k)", (y, w), convolution(y, w, strides=ones, low=none, high=none, dilation=ones)
        yield f"nn.conv{n}d(%x, %k, padding={list(low)})", (y, w), convolution(y, w, strides=ones, low=low, high=low, dilation=ones)
        yield f"nn.conv{n}d(%x, %k, padding=2)", (y, w), convolution(y, w, strides=ones, low=(2,) * n, high=(2,) * n, dilation=ones)
        yield from _transposed(n, letters, x, w[:4])
    y, w = RNG.standard_normal((1, 2, 4, 4)).astype(np.float32), RNG.standard_normal((4, 1, 2, 2)).astype(np.float32)
    deep = w.reshape(2, 2, 2, 2).transpose(2, 3, 0, 1)  # O counts the input channels in a depthwise HWOI, and I the multiplier
    want = convolution(y, w, strides=(1, 1), low=(0, 0), high=(0, 0), dilation=(1, 1), groups=2)
    yield 'nn.conv2d(%i, %k, groups=2, kernel_layout="HWOI")', (y, deep.copy()), want


def _transposed(n: int, letters: str, x: Array, w: Array) -> Iterator[Row]:
    ones, none = (1,) * n, (0,) * n
    yield f"nn.conv{n}d_transpose(%x, %k)", (x, w), transposed(x, w, strides=ones, low=none, high=none, dilation=ones, extra=none)
    low, high, strides, dilation, extra = (1, 0, 1)[:n], (0, 1, 1)[:n], (2, 3, 2)[:n], (2, 1, 1)[:n], (1, 2, 0)[:n]
    want = transposed(x, w, strides=strides, low=low, high=high, dilation=dilation, extra=extra)
    last = (0, *range(2, 2 + n), 1)
    yield (f'nn.conv{n}d_transpose(%x, %k, strides={list(strides)}, padding={[*low, *high]}, dilation={list(dilation)}, output_padding={list(extra)},'
           f' data_layout="N{letters}C", kernel_layout="{letters}OI", out_dtype="float64")',
           (x.transpose(last).copy(), w.transpose(*range(2, 2 + n), 1, 0).copy()), want.transpose(last).astype(np.float64))


def _poolings() -> Iterator[Row]:
    for n, letters in ((1, "W"), (2, "HW"), (3, "DHW")):
        x = RNG.standard_normal((1, 2, *(8, 6, 5)[:n])).astype(np.float32)
        last = (0, *range(2, 2 + n), 1)
        size, strides, dilation = (3, 2, 2)[:n], (2, 3, 1)[:n], (2, 1, 2)[:n]
        low, high = (1, 1, 0)[:n], (0, 1, 1)[:n]
        given = f"pool_size={list(size)}, strides={list(strides)}, dilation={list(dilation)}, padding={[*low, *high]}"
        ones, none = (1,) * n, (0,) * n
        ways = [("max", "", largest, -np.inf), ("avg", "", mean_inside, np.nan), ("avg", ", count_include_pad=True", mean, 0)]
        for word, more, how, value in ways:
            want = pooling(x, how, size=size, strides=strides, low=low, high=high, dilation=dilation, value=value)
            yield f'nn.{word}_pool{n}d(%x, {given}, layout="N{letters}C"{more})', (x.transpose(last).copy(),), want.transpose(last)
            if not more:
                whole = pooling(x, how, size=size, strides=ones, low=none, high=none, dilation=ones, value=value)
                yield f"nn.{word}_pool{n}d(%x, pool_size={list(size)})", (x,), whole
                wide = (3, 1, 2)[:n]
                for mode, behind in (("", none), (", ceil_mode=True", (2, 0, 1)[:n])):
                    found = pooling(x, how, size=size, strides=wide, low=none, high=behind, dilation=ones, value=value)
                    yield f"nn.{word}_pool{n}d(%x, pool_size={list(size)}, strides={list(wide)}{mode})", (x,), found
        parts = (2, 3, 1)[:n]
        steps = tuple(d // p for d, p in zip(x.shape[2:], parts, strict=True))
        for word, how in (("max", largest), ("avg", mean)):
            want = pooling(x, how, size=steps, strides=steps, low=none, high=none, dilation=ones, value=0)
            yield f"nn.adaptive_{word}_pool{n}d(%x, output_size={list(parts)})", (x,), want
            yield f'nn.adaptive_{word}_pool{n}d(%x, output_size={list(parts)}, layout="N{letters}C")', (x.transpose(last).copy(),), want.transpose(last)
            yield f"nn.adaptive_{word}_pool{n}d(%x)", (x,), x
    for word, how in (("max", np.max), ("avg", np.mean)):
        yield f"nn.global_{word}_pool2d(%i)", (IMAGE,), how(IMAGE, (2, 3), keepdims=True)
        yield f'nn.global_{word}_pool2d(%i, layout="NHWC")', (IMAGE,), how(IMAGE, (1, 2), keepdims=True)


def _images() -> Iterator[Row]:
    blocks = RNG.standard_normal((1, 8, 2, 3)).astype(np.float32)
    yield "nn.depth_to_space(%i, block_size=2)", (blocks,), blocks.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6)
    yield ('nn.depth_to_space(%i, block_size=2, mode="CRD")', (blocks,),
           blocks.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6))
    yield 'nn.upsampling(%i, scale_h=3f, layout="NHWC")', (IMAGE,), IMAGE.repeat(3, 1)
    squares = np.pad(IMAGE**2, ((0, 0), (0, 0), (1, 1), (0, 0)))
    near = squares[:, :, :4] + squares[:, :, 1:5] + squares[:, :, 2:]
    yield "nn.lrn(%i, size=3, axis=2, bias=1.5f, alpha=0.5f, beta=2f)", (IMAGE,), IMAGE / (1.5 + 0.5 / 3 * near) ** 2
    yield "nn.lrn(%i)", (IMAGE * 9,), IMAGE * 9 / (2 + 1e-4 / 5 * ((IMAGE * 9)**2).sum(1, keepdims=True)) ** 0.75
    yield "trilu(%i, k=-1, upper=False)", (CUBE,), np.tril(CUBE, -1)
    yield "trilu(%i)", (CUBE,), np.triu(CUBE)
    lengths = np.array([1, 2, 0], np.int32)
    yield "sequence_mask(%x, %k)", (X, lengths), np.where(np.arange(2)[:, None] < lengths, X, 0).astype(np.float32)
    diagonal = SQUARE.copy()
    np.fill_diagonal(diagonal, Y)
    yield "matrix_set_diag(%i, %y)", (SQUARE, Y), diagonal


FAMILIES = (_unary, _binary, _reductions, _shapes, _choices, _products, _norms, _convolutions, _poolings, _images)

EVERY_OPERATOR: list[Row] = [row for family in FAMILIES for row in family()]
"""Rows that are run and printed on the reference engine alone; those of OPERATORS on the default one too, and optimised."""

KEPT = [
    ("gather_nd(%x, %k, batch_dims=1)", (X, np.array([[0], [1]], np.int32))),
    ("take(%x, %k, axis=1, batch_dims=1)", (X, np.array([[0], [1]], np.int32))),
    ('nn.pad(%x, pad_width=[[1, 0], [0, 2]], pad_mode="edge")', (X,)),
    ('nn.upsampling(%i, scale_h=2f, method="bilinear")', (IMAGE,)),
    ('nn.depth_to_space(%i, block_size=1, layout="NHWC")', (IMAGE,)),
    ('nn.space_to_depth(%i, block_size=1, layout="NHWC")', (IMAGE,)),
    ("matrix_set_diag(%i, %y, k1=1)", (SQUARE, Y)),
    ("matrix_set_diag(%i, %y, k2=1)", (SQUARE, Y)),
    ("nn.conv1d_transpose(%i, %k, groups=2)", (CUBE[:, :2], np.ones((2, 1, 1), np.float32))),
    ("nn.conv2d_transpose(%i, %k, groups=2)", (IMAGE, np.ones((2, 1, 1, 1), np.float32))),
    ("nn.conv3d_transpose(%i, %k, groups=2)", (IMAGE[..., None], np.ones((2, 1, 1, 1, 1), np.float32))),
]  # fmt: skip
"""Calls that an attribute makes another operation than those that are known here: they are kept as they stand."""

INPUT_NAMES = ("%x", "%n", "%i", "%y", "%k")


def program(expression: str, inputs: tuple[Array, ...]) -> str:
    """`def @main` around an expression."""
    names = [n for n in INPUT_NAMES if n in expression]
    params = [f"{n}: Tensor[({', '.join(map(str, a.shape))}), {a.dtype}]" for n, a in zip(names, inputs, strict=True)]
    return f"def @main({', '.join(params)}) {{ {expression} }}"
