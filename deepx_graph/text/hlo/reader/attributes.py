"""The values of HLO attributes: windows, paddings, slices, dimension labels, groups. Each is parsed once per distinct text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from deepx_graph.text.hlo.reader.shapes import ShapeError, parse_shape
from deepx_graph.types import Type


class AttributeFault(ValueError):
    """What is wrong with a value, and what was expected."""

    def __init__(self, message: str, expected: str) -> None:
        super().__init__(message)
        self.message, self.expected = message, expected


@lru_cache(maxsize=65536)
def parse_ints(text: str) -> tuple[int, ...]:
    """`{0,1}`, `{}` or a single number."""
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    try:
        return tuple(int(p) for p in inner.split(",")) if inner else ()
    except ValueError:
        raise AttributeFault(f"'{text}' is not a list of integers", "{0,1}") from None


def parse_names(text: str) -> tuple[str, ...]:
    """`{r1, %r2}` or a single name."""
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    return tuple(p.strip().removeprefix("%") for p in inner.split(",")) if inner else ()


@lru_cache(maxsize=4096)
def parse_shapes(text: str) -> tuple[Type, ...]:
    """`{f32[2]{0}, (s32[], pred[])}`: a shape for each of several operands."""
    try:
        return parse_shape("(" + text.strip().removeprefix("{").removesuffix("}") + ")", 0)[0].items  # type: ignore[attr-defined,no-any-return]
    except ShapeError as e:
        raise AttributeFault(e.message, "{f32[2,3]{1,0}, ...}") from None


@lru_cache(maxsize=4096)
def parse_groups(text: str) -> tuple[tuple[int, ...], ...]:
    """`{{0,1},{2,3}}`, or the compressed form `[2,4]<=[8]` with an optional transpose `T(1,0)`."""
    if text.startswith("["):
        return _iota_groups(text)
    return tuple(parse_ints("{" + g + "}") for g in re.findall(r"\{([^{}]*)\}", text[1:-1]))


def _iota_groups(text: str) -> tuple[tuple[int, ...], ...]:
    import numpy as np

    match = re.fullmatch(r"\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?)?", text)
    if not match:
        raise AttributeFault(f"'{text}' is not a list of groups", "{{0,1},{2,3}} or [2,2]<=[4]")
    shape, source = parse_ints(match[1]), parse_ints(match[2] or match[1])
    order = parse_ints(match[3]) if match[3] else tuple(range(len(source)))
    count = math.prod(source)
    if count > 1 << 20 or math.prod(shape) != count or sorted(order) != list(range(len(source))):
        raise AttributeFault(f"'{text}' does not make groups", "as many replicas on both sides")
    flat = np.arange(count).reshape(source).transpose(order).reshape(shape)
    return tuple(tuple(int(i) for i in row) for row in flat.reshape(shape[0], -1))


@dataclass(frozen=True)
class Window:
    """`window={size=3x3 stride=2x2 pad=1_1x0_0 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}`, defaults filled in."""

    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    lhs_dilate: tuple[int, ...] = ()
    rhs_dilate: tuple[int, ...] = ()
    rhs_reversal: tuple[int, ...] = ()


@lru_cache(maxsize=4096)
def parse_window(text: str) -> Window:
    """The window. Raises AttributeFault."""
    fields: dict[str, str] = {}
    for part in text.strip("{} ").split():
        key, equal, value = part.partition("=")
        if not equal or key not in ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal") or key in fields:
            raise AttributeFault(f"'{part}' has no place in a window", "size= stride= pad= lhs_dilate= rhs_dilate= rhs_reversal=")
        fields[key] = value
    try:
        sizes = _by_x(fields.get("size", ""))
        n = len(sizes)
        pads = [tuple(int(i) for i in p.split("_")) for p in fields["pad"].split("x")] if "pad" in fields else [(0, 0)] * n
        parts = [_by_x(fields[k]) if k in fields else (d,) * n for k, d in
                 (("stride", 1), ("lhs_dilate", 1), ("rhs_dilate", 1), ("rhs_reversal", 0))]  # fmt: skip
    except ValueError:
        raise AttributeFault(f"'{text}' is not a window", "numbers joined by x, paddings as low_high") from None
    if any(len(p) != n for p in parts) or len(pads) != n or any(len(p) != 2 for p in pads):
        raise AttributeFault(f"the fields of '{text}' have different numbers of dimensions", f"{n} of each")
    stride, lhs, rhs, reversal = parts
    return Window(sizes, stride, tuple(p[0] for p in pads), tuple(p[1] for p in pads), lhs, rhs, reversal)


def _by_x(text: str) -> tuple[int, ...]:
    return tuple(int(p) for p in text.split("x")) if text else ()


@lru_cache(maxsize=4096)
def parse_padding(text: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """`0_1_0x2_0`: low, high and interior padding of each dimension."""
    try:
        rows = [tuple(int(i) for i in p.split("_")) for p in text.split("x")] if text else []
    except ValueError:
        rows = [()]
    if any(len(r) not in (2, 3) for r in rows):
        raise AttributeFault(f"'{text}' is not a padding", "low_high or low_high_interior, joined by x")
    return tuple(r[0] for r in rows), tuple(r[1] for r in rows), tuple(r[2] if len(r) > 2 else 0 for r in rows)


@lru_cache(maxsize=4096)
def parse_slices(text: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """`{[0:7], [0:8:2]}`: starts, limits and strides."""
    rows = []
    for part in re.findall(r"\[([^\]]*)\]", text):
        try:
            numbers = [int(i) for i in part.split(":")]
        except ValueError:
            numbers = []
        if len(numbers) not in (2, 3):
            raise AttributeFault(f"'[{part}]' is not a slice", "[start:limit] or [start:limit:stride]")
        rows.append((*numbers, 1)[:3])
    return tuple(r[0] for r in rows), tuple(r[1] for r in rows), tuple(r[2] for r in rows)


@dataclass(frozen=True)
class DimLabels:
    """`b01f_01io->b01f`: where batch, feature and spatial dimensions stand in input, kernel and output."""

    input: tuple[int, int, tuple[int, ...]]
    kernel: tuple[int, int, tuple[int, ...]]
    output: tuple[int, int, tuple[int, ...]]


@lru_cache(maxsize=4096)
def parse_dim_labels(text: str) -> DimLabels:
    """The labels. Raises AttributeFault."""
    match = re.fullmatch(r"([b\df?]+)_([io\d?]+)->([b\df?]+)", text)
    if not match:
        raise AttributeFault(f"'{text}' is not a set of dimension labels", "b01f_01io->b01f")
    return DimLabels(_labels(match[1], "bf"), _labels(match[2], "io"), _labels(match[3], "bf"))


def _labels(text: str, letters: str) -> tuple[int, int, tuple[int, ...]]:
    spatial = sorted(c for c in text if c.isdigit())
    if any(text.count(c) != 1 for c in letters) or spatial != [str(k) for k in range(len(spatial))] or (
            len(text) != len(spatial) + 2):  # fmt: skip
        raise AttributeFault(f"'{text}' does not name each dimension once", f"{letters[0]}, {letters[1]} and 0, 1, ...")
    return text.index(letters[0]), text.index(letters[1]), tuple(text.index(c) for c in spatial)
