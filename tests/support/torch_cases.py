"""Writes programs of torch.export with inputs and the results of torch. Runs in an environment that has `torch`:

    PYTHON tests/support/torch_cases.py FOLDER [KIND ...]

FOLDER/index.json lists the cases: kind (operator, network, gradient), name, and whether the program is as exported (`raw`) or
decomposed (`core`). Each has NAME.pt2 and NAME.npz with in_0, in_1, ... and out_0, out_1, ... in the order of the leaves.
"""

import copy
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as fn
from torch import nn
from torch.utils import _pytree as pytree

warnings.filterwarnings("ignore")


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def rand(*shape, low=-2.0, high=2.0):
    return torch.rand(shape) * (high - low) + low


def ints(*shape, low=-5, high=6, dtype=torch.int64):
    return torch.randint(low, high, shape, dtype=dtype)


X, Y, P = rand(3, 4), rand(3, 4), rand(3, 4, low=0.1, high=3.0)
U = rand(3, 4, low=-0.9, high=0.9)
N, M = ints(3, 4), ints(3, 4, low=1, high=5)
B, C = rand(3, 4) > 0, rand(3, 4) > 0.5
IMAGE = rand(2, 4, 9, 8)
LINE = rand(2, 4, 11)
VOLUME = rand(1, 4, 5, 6, 5)

UNARY = {
    "abs": X,
    "acos": U,
    "acosh": P + 1,
    "asin": U,
    "asinh": X,
    "atan": X,
    "atanh": U,
    "ceil": X,
    "cos": X,
    "cosh": X,
    "erf": X,
    "exp": X,
    "expm1": X,
    "floor": X,
    "log": P,
    "log10": P,
    "log1p": P,
    "log2": P,
    "neg": X,
    "reciprocal": P,
    "relu": X,
    "round": X * 3,
    "rsqrt": P,
    "sigmoid": X,
    "sign": X,
    "sin": X,
    "sinh": X,
    "sqrt": P,
    "tan": X,
    "tanh": X,
    "trunc": X,
    "isinf": X,
    "isnan": X,
    "frac": X,
    "exp2": X,
    "erfc": X,
    "erfinv": U,
    "lgamma": P,
    "digamma": P,
    "square": X,
    "logit": torch.rand(3, 4) * 0.8 + 0.1,
    "isfinite": X,
    "sgn": X,
    "deg2rad": X,
    "clone": X,
    "nan_to_num": torch.tensor([1.0, float("nan"), float("inf"), -float("inf")]),
}
BINARY = {
    "add": (X, Y),
    "sub": (X, Y),
    "mul": (X, Y),
    "div": (X, P),
    "maximum": (X, Y),
    "minimum": (X, Y),
    "atan2": (X, Y),
    "pow": (P, Y),
    "fmod": (X, P),
    "remainder": (X, Y),
    "eq": (N, M),
    "ne": (N, M),
    "lt": (X, Y),
    "le": (N, M),
    "gt": (X, Y),
    "ge": (N, M),
    "logical_and": (B, C),
    "logical_or": (B, C),
    "logical_xor": (B, C),
    "bitwise_and": (N, M),
    "bitwise_or": (N, M),
    "bitwise_xor": (N, M),
    "fmax": (X, Y),
    "fmin": (X, Y),
    "hypot": (X, Y),
    "xlogy": (P, P),
    "copysign": (X, Y),
    "logaddexp": (X, Y),
    "floor_divide": (X, Y),
    "bitwise_left_shift": (M, M),
    "bitwise_right_shift": (N, M),
}


def operators():
    """Name, function, arguments."""
    for name, x in UNARY.items():
        yield name, getattr(torch, name), (x,)
    for name, pair in BINARY.items():
        yield name, getattr(torch, name), pair
    yield "floats_of_ints", lambda n: (torch.sin(n), torch.sqrt(n.abs()), n / 2, n.float().mean()), (N,)
    yield "promotion", lambda x, n, b: (x + n, n + b, n * 2.5, x * 2, b + 1, n + torch.tensor(1.5), x.half() + n), (X, N, B)
    yield "scalars", lambda x, n: (x + 2, 3 - x, x * 2.5, 1 / x.abs().add(1), n // 3, n % 3, n - 7, -n, n**2, x**3, 2**x), (X, N)
    yield "int_division", lambda n, m: (n // m, n % m, torch.div(n, m, rounding_mode="trunc"), torch.fmod(n, m)), (N, M)
    yield "float_division", lambda x, p: tuple(torch.div(x * 7, p, rounding_mode=m) for m in (None, "trunc", "floor")), (X, P)
    yield "alpha", lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), torch.rsub(x, y, alpha=3)), (X, Y)
    yield "broadcasting", lambda x, y: (x + y, torch.where(x > 0, x, y)), (rand(3, 1, 4), rand(5, 1))
    yield "bitwise_not", lambda n, b: (~n, ~b, torch.logical_not(n)), (N, B)
    yield "where", torch.where, (B, X, Y)
    yield "where_scalar", lambda b, x: (torch.where(b, x, 0.0), torch.where(b, 1.0, x)), (B, X)
    yield "clamp", lambda x, y: (x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(max=y), x.clamp(y, y + 1)), (X, Y)
    yield "addcmul", lambda x, y, p: (torch.addcmul(x, y, p, value=0.5), torch.addcdiv(x, y, p, value=2)), (X, Y, P)
    yield "lerp", lambda x, y: (torch.lerp(x, y, 0.3), torch.lerp(x, y, 0.8)), (X, Y)
    yield "masked_fill", lambda x, b: x.masked_fill(b, -1.5), (X, B)
    yield "isclose", lambda x, y: torch.isclose(x, x + 1e-9) | torch.isclose(x, y), (X, Y)
    yield "round_decimals", lambda x: torch.round(x, decimals=2), (X,)
    yield "casts", lambda x, n: (x.int(), n.float(), x.double(), n.bool(), x.to(torch.float16), n.to(torch.uint8)), (X, N)
    for name in (
        "relu6",
        "hardtanh",
        "leaky_relu",
        "elu",
        "celu",
        "selu",
        "gelu",
        "softplus",
        "silu",
        "mish",
        "hardswish",
        "hardsigmoid",
        "logsigmoid",
        "softsign",
        "tanhshrink",
        "hardshrink",
        "softshrink",
    ):
        yield name, getattr(fn, name), (X,)
    yield "gelu_tanh", lambda x: fn.gelu(x, approximate="tanh"), (X,)
    yield (
        "activations",
        lambda x: (fn.leaky_relu(x, 0.2), fn.elu(x, 0.5), fn.softplus(x, 2, 1), fn.threshold(x, 0.1, 5), fn.glu(x)),
        (X,),
    )
    yield "prelu", fn.prelu, (IMAGE, rand(4))
    # reductions
    for name in ("sum", "mean", "amax", "amin", "var", "std", "logsumexp"):
        over = getattr(torch, name)
        yield name, lambda x, f=over: (f(x, dim=1), f(x, dim=(0, 2), keepdim=True)), (rand(3, 4, 5),)
    yield (
        "sum_all",
        lambda x, n, b: (x.sum(), n.sum(), b.sum(), x.mean(), x.prod(), x.prod(1), n.sum(0), x.max(), x.min()),
        (X, N, B),
    )
    yield "any", lambda b, n: (b.any(), b.any(1), b.all(), b.all(0), n.any(1, keepdim=True), torch.any(b, (0, 1))), (B, N)
    yield "arg", lambda x: (x.argmax(), x.argmin(1), x.argmax(0, keepdim=True)), (X,)
    yield "max_dim", lambda x: (*x.max(1), *x.min(0, keepdim=True)), (X,)
    yield "variance", lambda x: (x.var(), x.var(1, unbiased=False), torch.var_mean(x, 1), torch.std_mean(x, 0, correction=0)), (X,)
    yield (
        "norms",
        lambda x: (x.norm(), x.norm(1, 1), torch.linalg.vector_norm(x, 3, 0), torch.linalg.vector_norm(x, float("inf"))),
        (X,),
    )
    yield "cumulative", lambda x, n: (x.cumsum(1), x.cumprod(0), n.cumsum(0), x.logcumsumexp(1)), (X, N)
    yield "sort", lambda x: (*torch.sort(x, 1), *torch.sort(x, 0, descending=True), torch.argsort(x, 1)), (X,)
    yield "topk", lambda x: (*torch.topk(x, 2, 1), *torch.topk(x, 2, 0, largest=False), *x.kthvalue(2, 1), x.median()), (X,)
    yield "softmax", lambda x: (x.softmax(1), x.log_softmax(0), fn.softmin(x, 1)), (X,)
    yield (
        "bucketize",
        lambda x: (torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), torch.bucketize(x, torch.tensor([0.0]), right=True)),
        (X,),
    )
    yield (
        "count_nonzero",
        lambda n: (torch.count_nonzero(n), torch.count_nonzero(n, 1), torch.diff(n, dim=1), *torch.aminmax(n)),
        (N,),
    )
    # shapes
    t = rand(2, 3, 4)
    yield (
        "views",
        lambda x: (x.view(6, 4), x.reshape(-1), x.flatten(1), x.unflatten(2, (2, 2)), x.permute(2, 0, 1), x.transpose(0, 2)),
        (t,),
    )
    yield "squeezes", lambda x: (x.unsqueeze(1), x[:, :1].squeeze(1), x[:1, :1].squeeze(), x.unsqueeze(-1).squeeze((0, 3))), (t,)
    yield "expands", lambda x: (x[:1].expand(5, -1, -1), x[0, :, :1].expand(3, 4), x.repeat(2, 1, 3), x.repeat(2, 1, 1, 1)), (t,)
    yield "joins", lambda x: (torch.cat([x, x], 1), torch.stack([x, x], 2), torch.hstack([x, x]), torch.vstack([x, x])), (t,)
    yield "parts", lambda x: (*x.split(2, 2), *x.chunk(2, 1), *x.unbind(0), *x.split([1, 3], 2), *torch.tensor_split(x, 2, 2)), (t,)
    yield "slices", lambda x: (x[0], x[:, 1:], x[..., ::2], x[:, -2:], x.select(2, -1), x.narrow(1, 1, 2), x[1:100]), (t,)
    yield (
        "orders",
        lambda x: (x.flip(0, 2), x.roll(1, 1), x.roll((1, -2), (0, 2)), x.rot90(1, (1, 2)), x.roll(3), x.movedim(0, 2)),
        (t,),
    )
    yield (
        "triangles",
        lambda x: (x.tril(), x.triu(1), torch.diagonal(x, 1, 1, 2), torch.diag_embed(x[0]), x[0].diag(), x[0, 0].diag()),
        (t,),
    )
    yield "unfold", lambda x: (x.unfold(2, 2, 1), torch.as_strided(x, (2, 2), (4, 3), 1), x.repeat_interleave(2, 1)), (t,)
    yield (
        "scatter_parts",
        lambda x: (
            torch.slice_scatter(x, x[:, :1] * 2, 1, 1, 2),
            torch.select_scatter(x, x[0], 0, 1),
            torch.slice_scatter(x, x[..., :2], 2, 0, 4, 2),
        ),
        (t,),
    )
    yield "diagonal_scatter", lambda x, y: torch.diagonal_scatter(x, y, 1), (rand(4, 5), rand(4))
    yield "pads", lambda x: (fn.pad(x, (1, 2)), fn.pad(x, (1, 0, 2, 1), value=3.0), fn.pad(x, (-1, 1))), (t,)
    yield "pad_modes", lambda x: tuple(fn.pad(x, (1, 2, 2, 1), mode=m) for m in ("reflect", "replicate", "circular")), (IMAGE,)
    yield "pad_lines", lambda x: tuple(fn.pad(x, (1, 2), mode=m) for m in ("reflect", "replicate")), (LINE,)
    yield "pad_volumes", lambda x: tuple(fn.pad(x, (1, 2, 1, 1, 0, 1), mode=m) for m in ("reflect", "replicate")), (VOLUME,)
    yield "meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), (rand(3), rand(4))
    yield "shuffles", lambda x: (fn.pixel_shuffle(x, 2), fn.pixel_unshuffle(x[..., :8, :], 2), fn.channel_shuffle(x, 2)), (IMAGE,)
    yield (
        "creations",
        lambda x: (
            torch.zeros(2, 3),
            torch.ones_like(x),
            torch.full((2,), 7),
            torch.arange(5),
            torch.arange(1, 9, 2),
            torch.arange(0, 1, 0.25),
            torch.linspace(0, 1, 5),
            torch.eye(3),
            x.new_zeros(2),
            x.new_full((2,), 3),
            torch.full_like(x, 2.5),
            torch.tril_indices(3, 3),
            torch.scalar_tensor(2.0),
        ),
        (X,),
    )
    # index
    index = torch.tensor([0, 2, 1, 2])
    yield "index_select", lambda x, i: (x.index_select(0, i), torch.gather(x, 0, i.view(1, 4)), x.take(i), x[i]), (X, index)
    yield (
        "indices",
        lambda x, i: (x[i[:3], i[:3]], x[:, i], x[None, i], x[i[:, None], i[None, :]], x[[0, -1]]),
        (rand(3, 4, 3), index),
    )
    yield "indices_apart", lambda x, i: (x[i[:2], :, i[:2]], x[:, i[:2], i[:2]]), (rand(3, 4, 5), index)
    yield "masks", lambda x, b: (x[b], torch.masked_select(x, b), torch.nonzero(b)), (X, B)
    yield (
        "index_put",
        lambda x, i, y: (x.index_put((i,), y), x.index_put((i,), y, accumulate=True)),
        (X, torch.tensor([0, 2]), rand(2, 4)),
    )
    yield (
        "index_puts",
        lambda x, i: (
            x.index_put((i, i), torch.tensor(9.0)),
            x.index_add(0, i, x[:2], alpha=2),
            x.index_copy(0, i, x[:2] * 3),
            x.index_fill(1, i, 4.0),
        ),
        (X, torch.tensor([0, 2])),
    )
    places = torch.tensor([[0, 1, 2, 0], [2, 0, 1, 1]])
    yield "scatters", lambda x, i, y: (x.scatter(0, i, y), x.scatter(0, i, 5.0), x.scatter_add(0, i, y)), (X, places, rand(2, 4))
    for how in ("sum", "prod", "mean", "amax", "amin"):
        yield (
            f"scatter_reduce_{how}",
            lambda x, i, y, how=how: (x.scatter_reduce(0, i, y, how), x.scatter_reduce(0, i, y, how, include_self=False)),
            (X, places, rand(2, 4)),
        )
    yield "masked_scatter", lambda x, b, y: x.masked_scatter(b, y), (X, B, rand(20))
    yield "embedding", fn.embedding, (ints(2, 5, low=0, high=7), rand(7, 3))
    yield "one_hot", lambda i: fn.one_hot(i, 5), (ints(6, low=0, high=5),)
    yield "take_along", lambda x, i: torch.take_along_dim(x, i, 1), (X, ints(3, 2, low=0, high=4))
    # products
    a, b, v = rand(4, 5), rand(5, 6), rand(5)
    yield "products", lambda a, b, v: (a @ b, a.mm(b), a @ v, v @ v, torch.outer(v, v), v.dot(v), v @ b), (a, b, v)
    yield (
        "batches",
        lambda x, y, z: (torch.bmm(x, y), torch.baddbmm(z, x, y, beta=0.5, alpha=2), x[None] @ y),
        (rand(2, 3, 4), rand(2, 4, 5), rand(2, 3, 5)),
    )
    yield "addmm", lambda a, b, c: (torch.addmm(c, a, b), torch.addmm(c, a, b, beta=0.5, alpha=2)), (a, b, rand(6))
    yield "linear", fn.linear, (rand(2, 3, 5), rand(4, 5), rand(4))
    yield "einsum", lambda a, b: (torch.einsum("ij,jk->ki", a, b), torch.einsum("...i,ij", a, b)), (a, b)
    yield "bilinear", fn.bilinear, (rand(2, 3), rand(2, 4), rand(5, 3, 4), rand(5))
    yield (
        "distances",
        lambda a: (torch.cdist(a, a * 2), torch.cdist(a, a * 2, p=1), fn.pdist(a), fn.cosine_similarity(a, a * a)),
        (a,),
    )
    yield (
        "fft",
        lambda x: (torch.view_as_real(torch.fft.rfft(x)), torch.fft.irfft(torch.fft.rfft(x)), torch.fft.fft(x).abs()),
        (rand(3, 8),),
    )
    # windows
    for n, x in ((1, LINE), (2, IMAGE), (3, VOLUME)):
        conv, turned = getattr(fn, f"conv{n}d"), getattr(fn, f"conv_transpose{n}d")
        w, g, bias = rand(6, 4, *(3,) * n), rand(4, 2, *(3,) * n), rand(6)
        yield (
            f"conv{n}d",
            lambda x, w, bias, f=conv: (f(x, w, bias), f(x, w, stride=2, padding=1), f(x, w, padding="same")),
            (x, w, bias),
        )
        yield f"conv{n}d_groups", lambda x, g, f=conv: (f(x, g, groups=2, dilation=2, padding=2), f(x[0], g, groups=2)), (x, g)
        yield (
            f"conv_transpose{n}d",
            lambda x, g, f=turned: (f(x, g, stride=2, padding=1, output_padding=1), f(x, g, groups=2)),
            (x, g),
        )
        pools = [getattr(fn, f"{k}_pool{n}d") for k in ("max", "avg", "adaptive_avg", "adaptive_max")]
        yield f"max_pool{n}d", lambda x, f=pools[0]: (f(x, 3, 2, 1), f(x, 2, ceil_mode=True), f(x, 2, 1, dilation=2)), (x,)
        yield f"max_pool{n}d_places", lambda x, f=pools[0]: f(x, 3, 2, 1, return_indices=True), (x,)
        yield (
            f"avg_pool{n}d",
            lambda x, f=pools[1]: (f(x, 3, 2, 1), f(x, 3, 2, 1, count_include_pad=False), f(x, 2, 3, 1, ceil_mode=True)),
            (x,),
        )
        yield f"adaptive_avg_pool{n}d", lambda x, f=pools[2]: (f(x, 1), f(x, 2), f(x, 3)), (x,)
        yield f"adaptive_max_pool{n}d", lambda x, f=pools[3]: (f(x, 2), *f(x, 3, return_indices=True)), (x,)
    yield "blocks", lambda x: (fn.unfold(x, 3, padding=1, stride=2), fn.fold(fn.unfold(x, (2, 3)), (9, 8), (2, 3))), (IMAGE,)
    for mode in ("nearest", "bilinear", "bicubic", "nearest-exact"):
        yield (
            f"resize_{mode.replace('-', '_')}",
            lambda x, m=mode: (
                fn.interpolate(x, (5, 17), mode=m),
                fn.interpolate(x, scale_factor=2, mode=m),
                fn.interpolate(x, scale_factor=(1.3, 0.6), mode=m),
            ),
            (IMAGE,),
        )
    yield (
        "resize_corners",
        lambda x: (
            fn.interpolate(x, (5, 17), mode="bilinear", align_corners=True),
            fn.interpolate(x, scale_factor=2, mode="bicubic", align_corners=True),
        ),
        (IMAGE,),
    )
    yield "resize_line", lambda x: (fn.interpolate(x, 7, mode="linear"), fn.interpolate(x, scale_factor=2)), (LINE,)
    yield "resize_smooth", lambda x: fn.interpolate(x, (5, 4), mode="bilinear", antialias=True), (IMAGE,)
    grid = rand(2, 3, 4, 2, low=-1.3, high=1.3)
    for mode in ("bilinear", "nearest", "bicubic"):
        for pad in ("zeros", "border", "reflection"):
            yield (
                f"grid_{mode}_{pad}",
                lambda x, g, m=mode, p=pad: (fn.grid_sample(x, g, m, p, False), fn.grid_sample(x, g, m, p, True)),
                (IMAGE, grid),
            )
    yield "affine_grid", lambda t: (fn.affine_grid(t, (2, 3, 4, 5), False), fn.affine_grid(t, (2, 3, 4, 5), True)), (rand(2, 2, 3),)
    # normalisation
    yield "layer_norm", lambda x, w, b: (fn.layer_norm(x, (4,), w, b), fn.layer_norm(x, (3, 4))), (t, rand(4), rand(4))
    yield "group_norm", lambda x, w, b: (fn.group_norm(x, 2, w, b), fn.group_norm(x, 4)), (IMAGE, rand(4), rand(4))
    yield "instance_norm", lambda x, w, b: fn.instance_norm(x, weight=w, bias=b), (IMAGE, rand(4), rand(4))
    yield "rms_norm", lambda x, w: (fn.rms_norm(x, (4,), w), fn.rms_norm(x, (3, 4))), (t, rand(4))
    yield (
        "batch_norm",
        lambda x, m, v, w, b: (fn.batch_norm(x, m, v, w, b), fn.batch_norm(x, None, None, w, b, True)),
        (IMAGE, rand(4), rand(4, low=0.5, high=2.0), rand(4), rand(4)),
    )
    yield "local_response", lambda x: fn.local_response_norm(x, 3), (IMAGE,)
    yield "normalize", lambda x: (fn.normalize(x), fn.normalize(x, p=1, dim=0)), (X,)
    # attention, losses
    q, k = rand(2, 3, 5, 8), rand(2, 3, 6, 8)
    yield (
        "attention",
        lambda q, k, v: (fn.scaled_dot_product_attention(q, k, v), fn.scaled_dot_product_attention(q, k, v, scale=0.2)),
        (q, k, k * 2),
    )
    yield "attention_causal", lambda q: fn.scaled_dot_product_attention(q, q, q, is_causal=True), (q,)
    yield (
        "attention_mask",
        lambda q, k, m, a: (fn.scaled_dot_product_attention(q, k, k, m), fn.scaled_dot_product_attention(q, k, k, a)),
        (q, k, rand(5, 6) > -1, rand(5, 6)),
    )
    yield (
        "attention_groups",
        lambda q, k: fn.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (rand(2, 4, 5, 8), rand(2, 2, 5, 8)),
    )
    classes = torch.tensor([0, 3, 1])
    yield (
        "cross_entropy",
        lambda x, i, p: (
            fn.cross_entropy(x, i),
            fn.cross_entropy(x, i, reduction="none"),
            fn.cross_entropy(x, i, label_smoothing=0.1),
            fn.cross_entropy(x, p.softmax(1)),
            fn.cross_entropy(x, i, ignore_index=3),
        ),
        (X, classes, Y),
    )
    yield (
        "nll_loss",
        lambda x, i, w: (fn.nll_loss(x, i), fn.nll_loss(x, i, w), fn.nll_loss(x, i, reduction="sum")),
        (X, classes, P[0]),
    )
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        of = getattr(fn, name)
        yield name, lambda x, y, f=of: (f(x, y), f(x, y, reduction="sum"), f(x, y, reduction="none")), (X, Y)
    yield (
        "binary_losses",
        lambda x, y: (
            fn.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
            fn.binary_cross_entropy_with_logits(x, y.sigmoid()),
            fn.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        ),
        (X, Y),
    )
    # written in place
    yield "in_place", _in_place, (X, Y)
    yield "in_place_views", _in_place_views, (rand(4, 4),)
    yield "cond", lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)), (X,)
    yield "empty", lambda x: (x[:0].sum(1), torch.cat([x[:0], x])), (X,)


def _in_place(x, y):
    z = x.clone()
    z.add_(1)
    z.mul_(y)
    z.relu_()
    w = torch.zeros_like(x)
    w.copy_(z[0])
    w[1] = 5.0
    w[:, 2] += z[:, 1]
    return z, w, x


def _in_place_views(x):
    z = x.clone()
    row, turned, flat = z[1], z.t(), z.view(-1)
    row.add_(10)
    turned[0, 2] = 7.0
    z.view(2, 8)[1].zero_()
    z[z > 8] = -1.0
    return z, row, turned, flat


# --- networks -------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, width, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.down = nn.Sequential(nn.Conv2d(width, width, 1, stride), nn.BatchNorm2d(width)) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = fn.relu(self.bn1(self.conv1(x)), inplace=True)
        return fn.relu(self.bn2(self.conv2(y)) + self.down(x))


class Block(nn.Module):
    """A transformer block in the way of GPT."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, -1))
        y = fn.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    def __init__(self, layers=2, width=16, words=20):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(12, width)
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.word(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Llama(nn.Module):
    """Rotary places, root-mean-square norms, gated layers, grouped heads."""

    def __init__(self, width=16, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k = nn.Linear(width, width, bias=False), nn.Linear(width, groups * self.size, bias=False)
        self.v, self.o = nn.Linear(width, groups * self.size, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in ((width, 32), (width, 32), (32, width)))
        angles = torch.outer(torch.arange(8).float(), 1 / 10000 ** (torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin(), persistent=False)

    def turn(self, x):
        half = self.size // 2
        rotated = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * self.cos[: x.shape[-2]] + rotated * self.sin[: x.shape[-2]]

    def forward(self, x):
        b, t, _ = x.shape
        y = self.norm1(x)
        q = self.turn(self.q(y).view(b, t, self.heads, -1).transpose(1, 2))
        k = self.turn(self.k(y).view(b, t, self.groups, -1).transpose(1, 2)).repeat_interleave(self.heads // self.groups, 1)
        v = self.v(y).view(b, t, self.groups, -1).transpose(1, 2).repeat_interleave(self.heads // self.groups, 1)
        x = x + self.o(fn.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1))
        y = self.norm2(x)
        return x + self.down(fn.silu(self.gate(y)) * self.up(y))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1), nn.ConvTranspose2d(16, 8, 2, 2)
        self.norm, self.out = nn.GroupNorm(4, 8), nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = fn.silu(self.norm(self.a(x)))
        up = self.c(fn.silu(self.b(a)))
        return self.out(torch.cat([a, up], 1))


class Recurrent(nn.Module):
    def __init__(self, kind, **more):
        super().__init__()
        self.rnn, self.head = kind(5, 6, batch_first=True, **more), nn.Linear(6 * (2 if more.get("bidirectional") else 1), 3)

    def forward(self, x):
        y, _ = self.rnn(x)
        return self.head(y[:, -1])


class Squeeze(nn.Module):
    """Depthwise convolution with squeeze and excitation."""

    def __init__(self, width=8):
        super().__init__()
        self.wide, self.depth = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, 4 * width, 5, 2, 2, groups=4 * width)
        self.squeeze, self.excite = nn.Conv2d(4 * width, width, 1), nn.Conv2d(width, 4 * width, 1)
        self.narrow, self.norm = nn.Conv2d(4 * width, width, 1), nn.BatchNorm2d(4 * width)

    def forward(self, x):
        y = fn.hardswish(self.norm(self.depth(fn.relu6(self.wide(x)))))
        y = y * fn.hardsigmoid(self.excite(fn.relu(self.squeeze(fn.adaptive_avg_pool2d(y, 1)))))
        return self.narrow(y)


class Patches(nn.Module):
    """A vision transformer."""

    def __init__(self, width=16):
        super().__init__()
        self.cut, self.cls = nn.Conv2d(3, width, 4, 4), nn.Parameter(torch.randn(1, 1, width))
        self.place, self.blocks = nn.Parameter(torch.randn(1, 17, width)), nn.Sequential(Block(width, 2), Block(width, 2))
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.blocks(x)[:, 0])


class Cache(nn.Module):
    """Writes a buffer, and reads it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        self.seen[1:3] = x
        self.steps += 1
        return self.lin(self.seen).sum(0) + self.steps


class Nested(nn.Module):
    """Inputs and results in dicts and tuples."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, batch, scale=None):
        x = self.lin(batch["x"]) + batch["more"][0]
        return {"logits": x * (1 if scale is None else scale), "states": (x.relu(), [x.sum()])}


class Loops(nn.Module):
    def forward(self, x):
        from torch._higher_order_ops import scan
        from torch._higher_order_ops.while_loop import while_loop

        total, rows = scan(lambda s, v: (s + v, s * v), torch.zeros(4), x)
        count, halved = while_loop(lambda k, v: k < 5, lambda k, v: (k + 1, v / 2), (torch.tensor(0), total))
        return rows, halved, count


class Mapped(nn.Module):
    def forward(self, x, y):
        from torch._higher_order_ops.map import map as hop_map

        return hop_map(lambda row, y: row.sin() + y, x, y)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.outer.weight = self.inner.weight

    def forward(self, x):
        return self.outer(self.inner(x).tanh())


class Dense(nn.Module):
    """Each layer reads all that were before it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(4 + 2 * k), nn.ReLU(), nn.Conv2d(4 + 2 * k, 2, 3, 1, 1)) for k in range(3)
        )

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return fn.avg_pool2d(x, 2)


class Seq2Seq(nn.Module):
    """A recurrent encoder, and a decoder that attends to it."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.GRU(4, 6, batch_first=True), nn.GRU(4, 6, batch_first=True)
        self.score, self.out = nn.Linear(6, 6), nn.Linear(12, 4)

    def forward(self, x, y):
        memory, last = self.encoder(x)
        states, _ = self.decoder(y, last)
        weights = torch.einsum("btd,bsd->bts", self.score(states), memory).softmax(-1)
        return self.out(torch.cat([states, weights @ memory], -1))


def image(n=2, c=3, size=16):
    return torch.randn(n, c, size, size)


def networks():
    """Name, module, arguments, dynamic shapes."""
    batch, time = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("time", min=2, max=12)
    mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4), nn.Softmax(-1))
    yield "mlp", mlp, (rand(3, 8),), None
    yield "mlp_dynamic", mlp, (rand(3, 8),), {"input": {0: batch}}
    cnn = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    yield "cnn", cnn, (image(),), None
    yield "cnn_dynamic", cnn, (image(),), {"input": {0: batch}}
    yield (
        "resnet",
        nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3),
            nn.MaxPool2d(3, 2, 1),
            Residual(8),
            Residual(8, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        ),
        (image(2, 3, 32),),
        None,
    )
    yield "gpt", Gpt(), (ints(2, 7, low=0, high=20),), None
    yield "gpt_dynamic", Gpt(), (ints(2, 7, low=0, high=20),), {"tokens": {0: batch, 1: time}}
    yield "gpt_deep", Gpt(layers=6), (ints(1, 5, low=0, high=20),), None
    yield "llama", Llama(), (rand(2, 6, 16),), None
    yield "llama_dynamic", Llama(), (rand(2, 6, 16),), {"x": {0: batch}}
    yield "unet", UNet(), (image(),), None
    yield "squeeze", Squeeze(), (image(2, 8, 10),), None
    yield "patches", Patches(), (image(),), None
    yield "patches_dynamic", Patches(), (image(),), {"x": {0: batch}}
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        name = kind.__name__.lower()
        yield name, Recurrent(kind), (rand(2, 7, 5),), None
        yield f"{name}_deep", Recurrent(kind, num_layers=2, bidirectional=True), (rand(2, 7, 5),), None
    yield "lstm_cell", nn.LSTMCell(4, 5), (rand(3, 4), (rand(3, 5), rand(3, 5))), None
    yield "encoder", nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (rand(2, 5, 16),), None
    yield (
        "encoder_first",
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu"),
        (rand(2, 5, 16),),
        None,
    )
    yield "decoder", nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), (rand(2, 5, 16), rand(2, 4, 16)), None
    yield "multihead", nn.MultiheadAttention(16, 2, batch_first=True), (rand(2, 5, 16), rand(2, 6, 16), rand(2, 6, 16)), None
    yield "cache", Cache(), (rand(2, 3),), None
    yield "nested", Nested(), ({"x": rand(2, 4), "more": (rand(4),)},), None
    yield "nested_scale", Nested(), ({"x": rand(2, 4), "more": (rand(4),)}, rand()), None
    yield "loops", Loops(), (rand(5, 4),), None
    yield "mapped", Mapped(), (rand(5, 4), rand(4)), None
    yield "tied", Tied(), (rand(2, 4),), None
    yield "half", nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).half(), (rand(3, 8).half(),), None
    yield "bfloat", nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4)).bfloat16(), (rand(3, 8).bfloat16(),), None
    yield "double", nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).double(), (rand(3, 8).double(),), None
    yield "embeddings", nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3)), (ints(2, 5, low=0, high=9),), None
    yield (
        "conv1d",
        nn.Sequential(nn.Conv1d(4, 8, 3), nn.InstanceNorm1d(8, affine=True), nn.PReLU(8), nn.AvgPool1d(2)),
        (LINE,),
        None,
    )
    yield "conv3d", nn.Sequential(nn.Conv3d(4, 4, 3, padding=1), nn.BatchNorm3d(4), nn.AdaptiveAvgPool3d(2)), (VOLUME,), None
    yield (
        "transposed",
        nn.Sequential(nn.ConvTranspose2d(3, 6, 4, 2, 1), nn.LeakyReLU(0.1), nn.Upsample(scale_factor=2)),
        (image(),),
        None,
    )
    yield (
        "sizes",
        Call(lambda x: x.reshape(x.shape[0] * x.shape[1], -1) * x.shape[0] + x.flatten(0, 1).sum()),
        (rand(3, 4, 5),),
        {"args": ({0: batch},)},
    )
    yield (
        "sizes_two",
        Call(lambda x, y: torch.cat([x, y])[1:].mean(0) / (x.shape[0] + y.shape[0])),
        (rand(3, 4), rand(5, 4)),
        {"args": ({0: batch}, {0: time})},
    )
    yield (
        "ranges",
        Call(lambda x: x + torch.arange(x.shape[0])[:, None] + torch.zeros(x.shape[0], 4)),
        (rand(3, 4),),
        {"args": ({0: batch},)},
    )
    yield (
        "autoencoder",
        nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.ELU(), nn.Linear(6, 48), nn.Sigmoid(), nn.Unflatten(1, (3, 4, 4))),
        (image(2, 3, 4),),
        None,
    )
    yield (
        "mixture",
        Call(
            lambda x, w: torch.einsum(
                "be,bed->bd",
                (x @ w[..., 0]).softmax(-1),
                torch.einsum("bi,ied->bed", x, w.unsqueeze(-1).expand(-1, -1, -1, 3)[:, :, 0]),
            )
        ),
        (rand(4, 6), rand(6, 5, 2)),
        None,
    )
    yield "pyramid", Call(lambda x: torch.cat([fn.adaptive_avg_pool2d(x, k).flatten(1) for k in (1, 2, 3)], 1)), (image(),), None
    yield "style", Call(lambda x: (lambda f: f @ f.transpose(1, 2) / f.shape[-1])(x.flatten(2))), (image(),), None
    yield (
        "rope",
        Call(lambda q: torch.stack([q[..., ::2] * q.cos()[..., ::2], q[..., 1::2]], -1).flatten(-2)),
        (rand(2, 3, 8),),
        None,
    )
    yield "ctc_scores", Call(lambda x: x.log_softmax(-1).cumsum(1).logsumexp(-1)), (rand(2, 5, 4),), None
    yield "batch_first", nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4)), (rand(5, 4),), None
    yield "weight_norm", nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (rand(2, 4),), None
    yield "spectral", nn.Sequential(nn.Linear(4, 4), nn.Softplus(), nn.Hardtanh(), nn.LogSoftmax(-1)), (rand(2, 4),), None
    yield "siamese", Call(lambda x, y: fn.cosine_similarity(x.tanh(), y.tanh()) + fn.pairwise_distance(x, y)), (X, Y), None
    yield (
        "focal",
        Call(lambda x, y: (fn.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction="none") * (1 - x.sigmoid()) ** 2).mean()),
        (X, Y),
        None,
    )
    yield (
        "windows",
        Call(lambda x: x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 4, 4).mean((2, 3))),
        (image(),),
        None,
    )
    yield "shifts", Call(lambda x: torch.roll(x, (-2, -2), (2, 3)) + fn.pad(x, (1, 1, 1, 1))[:, :, 1:-1, 1:-1]), (image(),), None
    yield "topk_gate", Call(lambda x: (lambda v, i: torch.zeros_like(x).scatter(1, i, v.softmax(1)))(*x.topk(2, 1))), (X,), None
    yield "quantised", Call(lambda x: (x * 10).round().clamp(-128, 127).to(torch.int8).float() / 10), (X,), None
    yield (
        "mask_fill",
        Call(lambda x: x.masked_fill(torch.ones(4, 4).tril() == 0, float("-inf")).softmax(-1)),
        (rand(2, 4, 4),),
        None,
    )
    yield (
        "complex",
        Call(lambda x: torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2)) * torch.polar(torch.ones(2), torch.ones(2)))),
        (X,),
        None,
    )
    yield "adjoint", Call(lambda x: torch.view_as_real(torch.complex(x, x + 1).mH @ torch.complex(x, -x))), (rand(3, 4),), None
    rows = torch.tensor([0, 2, 2])
    least = Call(lambda x, v: (x.index_reduce(0, rows, v, "amin"), x.index_reduce(0, rows, v, "mean", include_self=False)))
    yield "index_reduce", least, (rand(4, 3), rand(3, 3)), None
    quotient = Call(lambda x: (x.new_zeros(x.shape[0] // 2 + 1, 3), x.flip(0)))
    yield "quotient_of_sizes_dynamic", quotient, (rand(5, 4),), {"args": ({0: batch},)}
    yield "lstm_projected", nn.LSTM(5, 6, 2, bidirectional=True, proj_size=3), (rand(4, 2, 5),), None
    yield "dense_block", Dense(), (image(2, 4, 8),), None
    yield "seq2seq", Seq2Seq(), (rand(2, 5, 4), rand(2, 3, 4)), None
    graph = Call(lambda x, edges: torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]).relu())
    yield "message_passing", graph, (rand(5, 3), ints(2, 8, low=0, high=5)), None
    yield "gated", nn.Sequential(nn.Linear(4, 8), nn.GLU(), nn.BatchNorm1d(4), nn.CELU()), (rand(3, 4),), None
    train = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    yield "training", train, (image(),), None


def gradients():
    """Five networks whose sum of squares is differentiated by their parameters."""
    yield "mlp", nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), (rand(3, 8),)
    yield (
        "cnn",
        nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(384, 4)
        ),
        (image(),),
    )
    yield "gpt", Gpt(layers=1), (ints(2, 5, low=0, high=20),)
    yield "lstm", Recurrent(nn.LSTM), (rand(2, 4, 5),)
    yield "unet", UNet(), (image(1, 3, 8),)


# --- writing --------------------------------------------------------------------------------------------------------


def array(value):
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return (value.float() if value.dtype is torch.bfloat16 else value).numpy()
    return np.asarray(value)


def leaves(value):
    return [array(v) for v in pytree.tree_leaves(value) if isinstance(v, (torch.Tensor, int, float))]


def save(folder, index, kind, name, module, arguments, shapes=None, core=False):
    torch.manual_seed(0)
    full = f"{kind}_{name}_{'core' if core else 'raw'}"
    try:
        expected = leaves(copy.deepcopy(module)(*copy.deepcopy(arguments)))
        program = torch.export.export(copy.deepcopy(module), copy.deepcopy(arguments), dynamic_shapes=shapes, strict=False)
        if core:
            program = program.run_decompositions()
        torch.export.save(program, folder / f"{full}.pt2")
    except Exception as e:
        print(full, type(e).__name__, str(e).splitlines()[0][:200] if str(e) else "")
        return
    given = {f"in_{k}": v for k, v in enumerate(leaves(arguments))}
    np.savez(folder / f"{full}.npz", **given, **{f"out_{k}": v for k, v in enumerate(expected)})
    index.append({"kind": kind, "name": name, "form": "core" if core else "raw", "file": full})


def save_gradient(folder, index, name, module, arguments):
    """The program whose weights are inputs, and the derivative of the sum of squares of its results by each parameter."""
    module = module.eval()
    full = f"gradient_{name}"
    program = torch.export.export(copy.deepcopy(module), arguments, strict=False)
    torch.export.save(program, folder / f"{full}.pt2")
    out = module(*arguments)
    (out.double().pow(2).sum() / 2).backward()
    found = {f"grad_{n}": array(p.grad) for n, p in module.named_parameters() if p.grad is not None}
    np.savez(folder / f"{full}.npz", **{f"in_{k}": v for k, v in enumerate(leaves(arguments))}, out_0=array(out), **found)
    index.append({"kind": "gradient", "name": name, "form": "raw", "file": full})


def main(folder, kinds):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    index = []
    if "operator" in kinds:
        for name, function, arguments in operators():
            for core in (False, True):
                save(folder, index, "operator", name, Call(function), arguments, core=core)
    if "network" in kinds:
        for name, module, arguments, shapes in networks():
            module = module if name == "training" else module.eval()
            for core in (False, True):
                save(folder, index, "network", name, module, arguments, shapes, core)
    if "gradient" in kinds:
        for name, module, arguments in gradients():
            save_gradient(folder, index, name, module, arguments)
    (folder / "index.json").write_text(json.dumps({"torch": torch.__version__, "cases": index}, indent=1))
    print(len(index), "cases")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ("operator", "network", "gradient"))
