"""A stage run on the inputs of the first one; where it is partitioned, on parts of them, cut as its text says.

Shardings are such as `{devices=[4,1,2]<=[8] last_tile_dim_replicate}`.

Source: XLA, `hlo_sharding.h`; the tiles of an array are numbered row by row, `<=[4,2]T(1,0)` says which device has which.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, counted
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.numerics.observed import OPERATIONS, ObservedEngine, OperationBudget
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.inputs import Port, input_ports, output_ports
from deepx_graph.types import TensorType

if TYPE_CHECKING:
    from deepx_graph.validation.stages import Reference

_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))")


@dataclass(frozen=True)
class Tiling:
    """In how many tiles each dimension is cut, and the tile of each device; no tiles: every device has all of it."""

    tiles: tuple[int, ...] = ()
    tile_of: tuple[int, ...] = ()

    def region(self, device: int, shape: Sequence[int]) -> tuple[slice, ...]:
        """The part of an array of that shape which a device has; dimensions that do not divide are cut as if they were larger."""
        if not self.tiles:
            return tuple(slice(0, n) for n in shape)
        at = np.unravel_index(self.tile_of[device], self.tiles)
        sizes = [-(-n // t) for n, t in zip(shape, self.tiles, strict=True)]
        return tuple(slice(min(n, int(k) * s), min(n, (int(k) + 1) * s)) for n, k, s in zip(shape, at, sizes, strict=True))

    def cut(self, array: Array, devices: int) -> list[Array]:
        """What each device has of an array; zeros where its tile reaches over the end."""
        if not self.tiles:
            return [array] * devices
        sizes = tuple(-(-n // t) for n, t in zip(array.shape, self.tiles, strict=True))
        return [_padded(array[self.region(d, array.shape)], sizes) for d in range(devices)]

    def joined(self, parts: Sequence[Array], shape: Sequence[int]) -> Array:
        """The array of that shape of which each device has its part."""
        whole = np.zeros(tuple(shape), parts[0].dtype)
        for d, part in enumerate(parts):
            region = self.region(d, shape)
            whole[region] = part[tuple(slice(0, r.stop - r.start) for r in region)]
        return whole


def _padded(part: Array, sizes: tuple[int, ...]) -> Array:
    missing = [(0, s - n) for s, n in zip(sizes, part.shape, strict=True)]
    return np.ascontiguousarray(np.pad(part, missing) if any(m for _, m in missing) else part)


def parse_sharding(text: str, rank: int, devices: int) -> Tiling | None:
    """The sharding that a text says of an array of that rank; None for a text that says something else (one device, manual)."""
    if text.strip("{} ") == "replicated":
        return Tiling()
    found = _TILES.search(text)
    if found is None:
        return None
    sizes = tuple(map(int, found[1].split(",")))
    if found[4]:
        order = list(map(int, found[4].split(",")))
    else:
        reshape = tuple(map(int, found[2].split(",")))
        if math.prod(reshape) != devices:
            return None
        axes = tuple(map(int, found[3].split(","))) if found[3] else tuple(range(len(reshape)))
        order = np.arange(devices).reshape(reshape).transpose(axes).reshape(-1).tolist()
    if sorted(order) != list(range(devices)) or math.prod(sizes) != devices or len(sizes) < rank:
        return None
    shared = math.prod(sizes[rank:])
    tile_of = [0] * devices
    for position, device in enumerate(order):
        tile_of[device] = position // shared
    return Tiling(sizes[:rank], tuple(tile_of))


def matching(parts: Sequence[Array], whole: Array) -> Array | None:
    """The parts joined where nothing says how: each device may have any tile, the first that equals its part. None where the shapes
    are not those of tiles."""
    shape = parts[0].shape
    if len(shape) != whole.ndim or any(s == 0 or -(-n // s) * s < n for n, s in zip(whole.shape, shape, strict=True)):
        return None
    tiles = tuple(-(-n // s) for n, s in zip(whole.shape, shape, strict=True))
    count = math.prod(tiles)
    if count > len(parts):
        return None
    found = np.array(whole)
    for d, part in enumerate(parts):
        regions = [Tiling(tiles, (t,)).region(0, whole.shape) for t in range(count)]
        fits = [r for r in regions if _near(part, whole[r])]
        region = fits[0] if fits else regions[d * count // len(parts)]
        found[region] = part[tuple(slice(0, r.stop - r.start) for r in region)]
    return found


def _near(part: Array, tile: Array) -> bool:
    inside = part[tuple(slice(0, n) for n in tile.shape)]
    if inside.dtype.kind in "biu":
        return bool(np.array_equal(inside, tile))
    with np.errstate(all="ignore"):
        return bool(np.allclose(inside.astype(np.complex128), tile.astype(np.complex128), rtol=1e-3, atol=1e-5, equal_nan=True))


class StageRun:
    """A stage ready to run on the inputs of the first one; a partitioned program runs on all its devices, on parts of them."""

    def __init__(self, reference: Reference, module: Module) -> None:
        self.reference, self.module = reference, module
        self.ports, self.results = input_ports(module.entry), output_ports(module.entry)
        first = reference.inputs
        if len(self.ports) != len(first):
            raise RunError(f"{counted(len(self.ports), 'input')} where the first stage has {len(first)}")
        devices = int(dict(module.notes).get("num_partitions", "1"))
        self.partitioned = devices > 1 and not (_same(self.ports, first) and _same(self.results, reference.ports))
        self.devices = devices if self.partitioned else 1
        if not self.partitioned:
            self._learn_shardings(devices)
        self.budget = OperationBudget()
        self.f = compile(module, engine=ObservedEngine(self.budget), partitions=self.devices, seed=reference.seed,
                         max_bytes=reference.max_bytes)

    def inputs(self, sample: int) -> dict[str, Any]:
        """The sample's arrays under the names of this stage; those of each device where there are several."""
        given = [self.reference.samples[sample][p.name] for p in self.reference.inputs]
        return {p.name: self._cut(k, p, a) if self.partitioned else a.reshape(_shape(p, a))
                for k, (p, a) in enumerate(zip(self.ports, given, strict=True))}

    def outputs(self, sample: int) -> tuple[Array, ...]:
        """The results for a sample, as those of the whole program. Raises what running raises."""
        self.budget.left = OPERATIONS * 10 * self.devices if len(self.reference.samples) > 1 else sys.maxsize
        found = self.f(**self.inputs(sample))
        if not self.partitioned:
            return tuple(np.asarray(r) for r in found)
        return tuple(self._joined(k, [np.asarray(device[k]) for device in found], want)
                     for k, want in enumerate(self.reference.outputs[sample]))

    def _cut(self, k: int, port: Port, array: Array) -> list[Array]:
        parameters = [p for p in self.module.entry.params if isinstance(p.type, TensorType)]
        text = dict(parameters[k].origin.notes).get("sharding", "") if k < len(parameters) else ""
        sharding = Tiling() if array.shape == _shape(port, array) else parse_sharding(text, array.ndim, self.devices)
        if sharding is None:
            raise RunError(Diagnostic(f"the text does not say how input '{port.name}' is cut", expected="sharding={devices=[...]}"))
        return sharding.cut(array, self.devices)

    def _joined(self, k: int, parts: list[Array], want: Array) -> Array:
        if parts[0].shape == want.shape and k not in self.reference.shardings:
            return next((p for p in parts if not np.array_equal(p, want, equal_nan=want.dtype.kind in "fc")), parts[0])
        sharding = self.reference.shardings.get(k)
        whole = sharding.joined(parts, want.shape) if sharding is not None and len(sharding.tiles) in (0, want.ndim) else None
        whole = matching(parts, want) if whole is None else whole
        if whole is None:
            raise RunError("the parts of an output on the devices are no tiles of it")
        return whole

    def _learn_shardings(self, devices: int) -> None:
        results = [r for r in self.module.entry.results if isinstance(r.type, TensorType)]
        for k, r in enumerate(results):
            text = dict(r.origin.notes).get("sharding", "")
            if devices > 1 and text and (found := parse_sharding(text, len(r.type.dims or ()), devices)) is not None:  # type: ignore[attr-defined]
                self.reference.shardings[k] = found


def _same(a: Sequence[Port], b: Sequence[Port]) -> bool:
    return [p.type for p in a] == [p.type for p in b]


def _shape(port: Port, array: Array) -> tuple[int, ...]:
    return port.type.shape if isinstance(port.type, TensorType) and port.type.is_static else array.shape
