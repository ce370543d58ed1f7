"""Relay expressions with what numpy makes of them, and functional programs with their results: what several tests run.

Inputs stand in the order `%x`, `%n`, `%i`, `%y`, `%k` of the names that an expression uses.
"""
# ruff: noqa: E501

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3)).astype(np.float32)
Y = RNG.standard_normal((3,)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 4, 4)).astype(np.float32)
N = np.array([[7, -7, 5], [-5, 0, 9]], np.int32)


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

INPUT_NAMES = ("%x", "%n", "%i", "%y", "%k")


def program(expression: str, inputs: tuple[np.ndarray, ...]) -> str:
    """`def @main` around an expression."""
    kinds = {"f": "float32", "i": "int32"}
    names = [n for n in INPUT_NAMES if n in expression]
    params = [f"{n}: Tensor[({', '.join(map(str, a.shape))}), {kinds[a.dtype.kind]}]" for n, a in zip(names, inputs, strict=True)]
    return f"def @main({', '.join(params)}) {{ {expression} }}"


LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"
PROGRAMS = [
    ("def @main(%x: int32) { let %f = fn (%n: int32, %a: int32) -> int32 { if (%n == 0) { %a } else { %f(%n - 1, %a * %n) } }; %f(%x, 1) }",
     5, 120),
    ("def @even(%n: int32) -> bool { if (%n == 0) { True } else { @odd(%n - 1) } }\n"
     "def @odd(%n: int32) -> bool { if (%n == 0) { False } else { @even(%n - 1) } }\n"
     "def @main(%x: int32) { @even(%x) }", 7, False),
    ("def @main(%x: int32) { let %y = %x + 1; let %add = fn (%a) { fn (%b) { %a * %b + %y } }; %add(%x)(10) }", 4, 45),
    ("def @twice[A](%f: fn (A) -> A, %x: A) -> A { %f(%f(%x)) }\n"
     "def @main(%x: int32) { let %k = 3; (@twice(fn (%z) { %z * %k }, %x), @twice(fn (%b: bool) { %x > 2 }, True)) }", 2, (18, False)),
    (LIST + "def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] { match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil } }\n"
     "def @fold[A, B](%f: fn (B, A) -> B, %z: B, %l: List[A]) -> B { match (%l) { Nil => %z, Cons(%h, %t) => @fold(%f, %f(%z, %h), %t) } }\n"
     "def @main(%x: int32) { @fold(add, 0, @map(fn (%i) { %i * %i }, Cons(%x, Cons(3, Nil)))) }", 4, 25),
    (LIST + "def @last(%l: List[int32]) -> int32 { match? (%l) { Cons(%h, Nil) => %h, Cons(_, %t) => @last(%t) } }\n"
     "def @main(%x: int32) { @last(Cons(1, Cons(2, Cons(%x, Nil)))) }", 9, 9),
    (LIST + "def @zip(%a: List[int32], %b: List[int32]) -> int32 { match (%a, %b) { (Cons(%x, %s), Cons(%y, %t)) => %x * %y + @zip(%s, %t),"
     " _ => 100 } }\ndef @main(%x: int32) { @zip(Cons(%x, Cons(2, Nil)), Cons(3, Nil)) }", 4, 112),
    ("def @count(%r: ref(int32), %n: int32) -> () { if (%n == 0) { () } else { ref_write(%r, ref_read(%r) + %n); @count(%r, %n - 1) } }\n"
     "def @main(%x: int32) { let %r = ref(0); @count(%r, %x); ref_read(%r) }", 4, 10),
    ("def @main(%x: int32) { let %r = ref(fn (%n: int32) -> int32 { %n }); let %f = fn (%n: int32) -> int32"
     " { if (%n == 0) { 1 } else { %n * ref_read(%r)(%n - 1) } }; ref_write(%r, %f); %f(%x) }", 5, 120),
    ("def @apply(%f: fn (int32) -> int32) -> int32 { %f(1) }\n"
     "def @main(%x: int32) { let %r = ref(%x); let %a = @apply(fn (%i) { ref_write(%r, ref_read(%r) + %i); 7 });"
     " let %b = @apply(fn (%i) { %i + 40 }); (%a, %b, ref_read(%r)) }", 5, (7, 41, 6)),
    ("def @main(%x: int32) { %0 = (let %a = %x + 1; %a * 2); let %t = (%0, (%x,)); %t.1.0 + %t.0 }", 3, 11),
    ("type E { Num(int32), Add(E, E), Mul(E, E) }\n"
     "def @opt(%e: E) -> E { match (%e) { Add(Num(%a), Num(%b)) => Num(%a + %b), Mul(%l, %r) => Mul(@opt(%l), @opt(%r)), _ => %e } }\n"
     "def @run(%e: E) -> int32 { match (%e) { Num(%n) => %n, Add(%l, %r) => @run(%l) + @run(%r), Mul(%l, %r) => @run(%l) * @run(%r) } }\n"
     "def @main(%x: int32) { @run(@opt(Mul(Add(Num(%x), Num(2)), Num(10)))) }", 3, 50),
]  # fmt: skip
