"""MindSpore's convolutions and poolings, by Relay's: sizes come for the spatial axes, for all four, or as one number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.text.mindir.args import Args, Rule
from deepx_graph.text.relay.context import ranked


def _window_attrs(a: Args) -> dict[str, Any]:
    def size(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = a.ints(-1, name, default)
        return value[-2:] if len(value) == 4 else value * 2 if len(value) == 1 else value

    strides = size("strides", size("stride", (1, 1)))
    return {"kernel": size("kernel_size", (1, 1)), "strides": strides, "dilation": size("dilation", (1, 1))}


def _same_padding(shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Padding that makes the result as large as the operand divided by the strides."""
    whole = [max(0, (-(-n // s) - 1) * s + k - n) for n, k, s in zip(shape, kernel, strides, strict=True)]
    return (*(w // 2 for w in whole), *(w - w // 2 for w in whole))


def _padding(a: Args, shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    mode = a.plain(-1, "pad_mode", "valid")
    mode = {0: "pad", 1: "same", 2: "valid"}.get(mode, mode) if isinstance(mode, int) else str(mode).lower()
    if mode == "same":
        return _same_padding(shape, kernel, strides)
    pads = a.ints(-1, "pad", a.ints(-1, "pad_list", (0, 0, 0, 0)))
    pads = pads * 4 if len(pads) == 1 else pads
    return (pads[0], pads[2], pads[1], pads[3]) if mode == "pad" else (0, 0, 0, 0)


def conv2d(a: Args) -> Node:
    x, w = a.node(0), a.node(1)
    sizes, shape, kernel = _window_attrs(a), ranked(x).shape, ranked(w).shape
    spread = [(k - 1) * d + 1 for k, d in zip(kernel[2:], sizes["dilation"], strict=True)]
    return a.relay("nn.conv2d", x, w, strides=sizes["strides"], padding=_padding(a, shape[2:], spread, sizes["strides"]),
                   dilation=sizes["dilation"], groups=a.plain(-1, "group", 1), channels=kernel[0], kernel_size=tuple(kernel[2:]),
                   data_layout="NCHW", kernel_layout="OIHW")


def pool(operator: str) -> Rule:
    def build(a: Args) -> Node:
        x, sizes = a.node(0), _window_attrs(a)
        padding = _padding(a, ranked(x).shape[2:], sizes["kernel"], sizes["strides"])
        return a.relay(operator, x, pool_size=sizes["kernel"], strides=sizes["strides"], padding=padding, layout="NCHW")

    return build
