"""Windows, paddings, slices and dimension labels: the fields whose values have a form of their own in either syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.text.xla import mlir_text
from deepx_graph.text.xla.fields import AttributeField, Attrs
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.types import as_tensor

if TYPE_CHECKING:
    from deepx_graph.text.hlo.printer.body import ComputationWriter
    from deepx_graph.text.hlo.reader.context import InstructionContext
    from deepx_graph.text.stablehlo.reader.context import OperationContext

Ints = tuple[int, ...]

# --- windows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """`window={size=3x3 stride=2x2 pad=1_1x0_0 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}` of HLO, defaults filled in."""

    size: Ints = ()
    stride: Ints = ()
    low: Ints = ()
    high: Ints = ()
    lhs_dilate: Ints = ()
    rhs_dilate: Ints = ()
    rhs_reversal: Ints = ()


_DEFAULTS = (("stride", 1), ("lhs_dilate", 1), ("rhs_dilate", 1), ("rhs_reversal", 0))


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
        parts = [_by_x(fields[k]) if k in fields else (d,) * n for k, d in _DEFAULTS]
    except ValueError:
        raise AttributeFault(f"'{text}' is not a window", "numbers joined by x, paddings as low_high") from None
    if any(len(p) != n for p in parts) or len(pads) != n or any(len(p) != 2 for p in pads):
        raise AttributeFault(f"the fields of '{text}' have different numbers of dimensions", f"{n} of each")
    stride, lhs, rhs, reversal = parts
    return Window(sizes, stride, tuple(p[0] for p in pads), tuple(p[1] for p in pads), lhs, rhs, reversal)


def _by_x(text: str) -> Ints:
    return tuple(int(p) for p in text.split("x")) if text else ()


def window_text(window: Window) -> str:
    """`window={size=3x3 pad=1_1x0_0}`, what is the default left out; empty for a window of no dimensions."""
    if not window.size:
        return ""
    pads = zip(window.low, window.high, strict=True)
    given = {k: _joined(getattr(window, k)) for k, default in _DEFAULTS if any(v != default for v in getattr(window, k))}
    rows = {"size": _joined(window.size), "stride": given.pop("stride", ""),
            "pad": _joined(f"{a}_{b}" for a, b in pads) if any(window.low) or any(window.high) else "", **given}
    return "window={" + " ".join(f"{k}={v}" for k, v in rows.items() if v) + "}"


def _joined(values: Iterable[object]) -> str:
    return "x".join(map(str, values))


@dataclass(frozen=True)
class WindowField(AttributeField):
    """A window: one attribute of HLO, one of ours and of MLIR for each part; `parts` names ours, in the order of MLIR.

    A convolution has the sizes in its kernel.
    """

    parts: tuple[tuple[str, str], ...]
    must_say_size: bool = False
    """Whether MLIR's reader finds no size otherwise."""

    def read_hlo(self, c: InstructionContext) -> Attrs:
        window = c.parsed("window", parse_window) if c.has("window") else Window()
        given = {name: getattr(window, part) for part, name in self.parts if part != "pad"}
        return given | {"padding_low": window.low, "padding_high": window.high}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        given = {part: node.attr(name) for part, name in self.parts if part != "pad"}
        if "size" not in given:
            kernel = as_tensor(node.inputs[1].type).shape
            given["size"] = tuple(kernel[d] for d in node.attr("kernel_spatial_dimensions"))
        return window_text(Window(**given, low=node.attr("padding_low"), high=node.attr("padding_high")))

    def read_mlir(self, c: OperationContext) -> Attrs:
        rank = as_tensor(c.inputs[0].type).rank or 0
        rank -= 0 if any(part == "size" for part, _ in self.parts) else 2
        pretty = c.raw("window") or {}
        found: dict[str, Any] = {}
        for part, name in self.parts:
            default = (0 if part == "rhs_reversal" else 1,) * rank
            if part == "pad":
                low_high = [_whole(c, "pad", p, 2) for p in pretty["pad"]] if part in pretty else _pairs(c, rank)
                found["padding_low"], found["padding_high"] = (tuple(p[k] for p in low_high) for k in range(2))
            elif _PRETTY.get(part, part) in pretty:
                found[name] = _whole(c, name, pretty[_PRETTY.get(part, part)])
            else:
                found[name] = c.ints(name, default=None if part == "size" and self.must_say_size else default)
        return found

    def write_mlir(self, node: Node) -> str:
        return ", ".join(f"{name} = {_part_text(node, part, name)}" for part, name in self.parts)


_PRETTY = {"rhs_reversal": "reverse"}


def _part_text(node: Node, part: str, name: str) -> str:
    if part == "pad":
        return mlir_text.rows_text(list(zip(node.attr("padding_low"), node.attr("padding_high"), strict=True)), 2)
    return mlir_text.bools_text(node.attr(name)) if part == "rhs_reversal" else mlir_text.ints_text(node.attr(name))


def _whole(c: OperationContext, name: str, values: Any, count: int | None = None) -> tuple[int, ...]:
    """The integers, so many, of a window's part. Raises ParseError for anything else."""
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, int) for v in values) or count not in (None, len(values)):
        raise c.fail(f"'{name}' is not a list of {'' if count is None else f'{count} '}integers")
    return tuple(int(v) for v in values)


def _pairs(c: OperationContext, rank: int) -> list[tuple[int, ...]]:
    """Low and high of a `padding` attribute: rank x 2 numbers, or one for all."""
    value = c.array("padding")
    flat = np.asarray(0 if value is None else value)
    if flat.dtype.kind not in "iub":
        raise c.fail("'padding' is not made of integers")
    rows = np.broadcast_to(flat, (rank, 2)) if flat.ndim == 0 else flat.reshape(-1, 2)
    return [(int(a), int(b)) for a, b in rows]


# --- slices and paddings ------------------------------------------------------------------------------------------

Rows = Sequence[tuple[int, int, int]]


@lru_cache(maxsize=4096)
def parse_padding(text: str) -> Rows:
    """`0_1_0x2_0`: low, high and interior padding of each dimension. Raises AttributeFault."""
    return tuple(_triple(p, "_", 0, f"'{text}' is not a padding", "low_high or low_high_interior, joined by x")
                 for p in (text.split("x") if text else ()))


@lru_cache(maxsize=4096)
def parse_slices(text: str) -> Rows:
    """`{[0:7], [0:8:2]}`: start, limit and stride of each dimension. Raises AttributeFault."""
    return tuple(_triple(part, ":", 1, f"'[{part}]' is not a slice", "[start:limit] or [start:limit:stride]")
                 for part in re.findall(r"\[([^\]]*)\]", text))


def _triple(text: str, sign: str, default: int, fault: str, expected: str) -> tuple[int, int, int]:
    """Two or three numbers. Raises AttributeFault for any other text."""
    try:
        first, second, *rest = map(int, text.split(sign))
        (third,) = rest or [default]
    except ValueError:
        raise AttributeFault(fault, expected) from None
    return first, second, third


class TripleField(AttributeField):
    """Three numbers for each dimension: one attribute of HLO, three of ours and of MLIR."""

    names: tuple[str, str, str]

    def _named(self, rows: Rows) -> Attrs:
        return {name: tuple(r[k] for r in rows) for k, name in enumerate(self.names)}

    def _rows(self, node: Node) -> Rows:
        return list(zip(*map(node.attr, self.names), strict=True))

    def write_mlir(self, node: Node) -> str:
        return ", ".join(f"{name} = {mlir_text.ints_text(node.attr(name))}" for name in sorted(self.names))


class SliceField(TripleField):
    """Starts, limits and strides."""

    names = ("start_indices", "limit_indices", "strides")

    def read_hlo(self, c: InstructionContext) -> Attrs:
        return self._named(c.parsed("slice", parse_slices))

    def read_mlir(self, c: OperationContext) -> Attrs:
        if "slice" not in c.op.extra:
            return {name: c.ints(name) for name in self.names}
        inner = c.op.extra["slice"].strip("[] ")
        return self._named([(*map(int, part.split(":")), 1)[:3] for part in inner.split(",")] if inner else [])  # type: ignore[misc]

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        return f"slice={{{', '.join(f'[{a}:{b}]' if s == 1 else f'[{a}:{b}:{s}]' for a, b, s in self._rows(node))}}}"


class PadField(TripleField):
    """What stands before, behind and between the elements."""

    names = ("edge_padding_low", "edge_padding_high", "interior_padding")

    def read_hlo(self, c: InstructionContext) -> Attrs:
        return self._named(c.parsed("padding", parse_padding))

    def read_mlir(self, c: OperationContext) -> Attrs:
        low, high = c.ints("edge_padding_low", "low"), c.ints("edge_padding_high", "high")
        interior = c.ints("interior_padding", "interior", default=(0,) * len(low))
        return dict(zip(self.names, (low, high, interior), strict=True))

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        rows = self._rows(node)
        is_inside = any(between for _, _, between in rows)
        return "padding=" + "x".join(f"{a}_{b}_{between}" if is_inside else f"{a}_{b}" for a, b, between in rows)


# --- dimension labels of convolutions -----------------------------------------------------------------------------

_OPERANDS = (("input", "batch", "feature", "bf"), ("kernel", "input_feature", "output_feature", "io"),
             ("output", "batch", "feature", "bf"))
"""Of each array: its name, the names of the two dimensions that are not spatial, and their letters."""


@lru_cache(maxsize=4096)
def parse_dim_labels(text: str) -> dict[str, Any]:
    """`b01f_01io->b01f` of HLO: where batch, feature and spatial dimensions stand in input, kernel and output.

    Raises AttributeFault.
    """
    match = re.fullmatch(r"([b\df?]+)_([io\d?]+)->([b\df?]+)", text)
    if not match:
        raise AttributeFault(f"'{text}' is not a set of dimension labels", "b01f_01io->b01f")
    for part, (*_, letters) in zip(match.groups(), _OPERANDS, strict=True):
        spatial = sorted(c for c in part if c.isdigit())
        if any(part.count(c) != 1 for c in letters) or spatial != [str(k) for k in range(len(part) - 2)]:
            raise AttributeFault(f"'{part}' does not name each dimension once", f"{letters[0]}, {letters[1]} and 0, 1, ...")
    return _dimensions(match.groups())


def _dimensions(labels: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Our attributes for the labels of input, kernel and output. Raises ValueError where a letter is missing."""
    found: dict[str, Any] = {}
    for of, (array, first, second, letters) in zip(labels, _OPERANDS, strict=True):
        spatial = sorted((int(label), k) for k, label in enumerate(of) if label.isdigit())
        found[f"{array}_{first}_dimension"] = of.index(letters[0])
        found[f"{array}_{second}_dimension"] = of.index(letters[1])
        found[f"{array}_spatial_dimensions"] = tuple(k for _, k in spatial)
    return found


def _labels(node: Node) -> list[list[str]]:
    """What stands at each dimension of input, kernel and output."""
    found = []
    for array, first, second, letters in _OPERANDS:
        at = {node.attr(f"{array}_{name}_dimension"): letter for name, letter in zip((first, second), letters, strict=True)}
        at |= {d: str(k) for k, d in enumerate(node.attr(f"{array}_spatial_dimensions"))}
        found.append([at[k] for k in range(len(at))])
    return found


class LabelsField(AttributeField):
    """Where batch, feature and spatial dimensions of a convolution stand."""

    def read_hlo(self, c: InstructionContext) -> Attrs:
        return c.parsed("dim_labels", parse_dim_labels)

    def read_mlir(self, c: OperationContext) -> Attrs:
        text = c.word("dim_numbers", "dimension_numbers")
        parts = text.replace("]x[", "] x [").replace("->", " x ").split(" x ")
        return _dimensions([[label.strip() for label in part.strip().strip("[]").split(",")] for part in parts])

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        lhs, rhs, out = map("".join, _labels(node))
        return f"dim_labels={lhs}_{rhs}->{out}"

    def write_mlir(self, node: Node) -> str:
        lhs, rhs, out = (f"[{', '.join(of)}]" for of in _labels(node))
        return f"{self.mlir} = #stablehlo.conv<{lhs}x{rhs}->{out}>"


def window(*parts: tuple[str, str], must_say_size: bool = False) -> WindowField:
    """A window of these parts."""
    return WindowField(parts, must_say_size, hlo=("window",), mlir=parts[0][1])


SLICES = SliceField(hlo=("slice",), mlir="limit_indices")
PADDING = PadField(hlo=("padding",), mlir="edge_padding_high")
LABELS = LabelsField(hlo=("dim_labels",), mlir="dimension_numbers")
