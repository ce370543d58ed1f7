"""Arrays cut into the parts of devices, and put together from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.literal import Array
from deepx_graph.sharding.mesh import Mesh, TensorSharding, count_of, local_shape


def _box(shape: Sequence[int], mesh: Mesh, sharding: TensorSharding, device: int) -> tuple[slice, ...]:
    """Where the part of a device lies in the whole."""
    sizes = local_shape(shape, sharding.axes)
    starts = [mesh.index(device, axes) * n for axes, n in zip(sharding.axes, sizes, strict=True)]
    return tuple(slice(start, start + n) for start, n in zip(starts, sizes, strict=True))


def piece(array: Array, mesh: Mesh, sharding: TensorSharding, device: int) -> Array:
    """The part of a device, a view. Raises ValueError where a dimension is not split evenly."""
    return array[_box(array.shape, mesh, sharding, device)]


def assembled(pieces: Sequence[Array], mesh: Mesh, sharding: TensorSharding) -> Array:
    """The whole of which each device has a part."""
    shape = [n * count_of(axes) for n, axes in zip(pieces[0].shape, sharding.axes, strict=True)]
    whole = np.empty(shape, pieces[0].dtype)
    for device, part in enumerate(pieces):
        whole[_box(shape, mesh, sharding, device)] = part
    return whole
