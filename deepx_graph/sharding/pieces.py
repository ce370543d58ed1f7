"""`Partitioned`: the program of one device. Arrays cut into the parts of devices, and put together from them.

Beyond the end of a dimension that is not split evenly parts have zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.sharding.mesh import Mesh, TensorSharding, local_shape
from deepx_graph.sharding.reasons import CollectiveCause


def box(shape: Sequence[int], mesh: Mesh, sharding: TensorSharding, device: int) -> tuple[slice, ...]:
    """Where the part of a device lies in the whole."""
    sizes = local_shape(shape, sharding.axes)
    starts = [mesh.index(device, axes) * n for axes, n in zip(sharding.axes, sizes, strict=True)]
    return tuple(slice(min(a, size), min(a + n, size)) for a, n, size in zip(starts, sizes, shape, strict=True))


def piece(array: Array, mesh: Mesh, sharding: TensorSharding, device: int) -> Array:
    """The part of a device: a view, where the whole fills it."""
    return padded(array[box(array.shape, mesh, sharding, device)], array.shape, sharding)


def padded(part: Array, shape: Sequence[int], sharding: TensorSharding) -> Array:
    """What lies in a box of a whole of that shape, as a device has it: with zeros, or empty texts, beyond the end."""
    missing = [(0, n - m) for n, m in zip(local_shape(shape, sharding.axes), part.shape, strict=True)]
    beyond: Any = "" if part.dtype == object else 0
    return np.pad(part, missing, constant_values=beyond) if any(n for _, n in missing) else part


def assembled(pieces: Sequence[Array], shape: Sequence[int], mesh: Mesh, sharding: TensorSharding) -> Array:
    """The whole, of that shape, of which each device has a part."""
    whole = np.empty(shape, pieces[0].dtype)
    for device, part in enumerate(pieces):
        where = box(shape, mesh, sharding, device)
        whole[where] = part[tuple(slice(s.stop - s.start) for s in where)]
    return whole


@dataclass(frozen=True)
class Partitioned:
    """The program of one device, with how its parameters and results lie on the mesh, and the sizes of whole results."""

    module: Module
    mesh: Mesh
    params: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]
    shapes: tuple[tuple[int, ...], ...]
    meetings: tuple[CollectiveCause, ...] = ()
    """The collectives of the program, each with why it is there, in order."""

    def __getstate__(self) -> dict[str, Any]:
        """Without the reasons, whose nodes are those of this process."""
        return {**self.__dict__, "meetings": ()}

    def cut(self, arrays: Sequence[Array], device: int) -> list[Array]:
        """The parts that a device is given of whole arguments, in order in memory, as every call would copy them else."""
        return [np.asarray(piece(a, self.mesh, s, device), order="C") for a, s in zip(arrays, self.params, strict=True)]

    def joined(self, found: Sequence[Sequence[Array]]) -> list[Array]:
        """The whole results, of which each device found its parts."""
        return [assembled([device[k] for device in found], shape, self.mesh, s)
                for k, (s, shape) in enumerate(zip(self.results, self.shapes, strict=True))]
