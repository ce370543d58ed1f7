"""Arrays cut into the parts of devices, and put together from them. Beyond the end of a dimension parts have zeros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.literal import Array
from deepx_graph.sharding.mesh import Mesh, TensorSharding, local_shape


def _box(shape: Sequence[int], mesh: Mesh, sharding: TensorSharding, device: int) -> tuple[slice, ...]:
    """Where the part of a device lies in the whole."""
    sizes = local_shape(shape, sharding.axes)
    starts = [mesh.index(device, axes) * n for axes, n in zip(sharding.axes, sizes, strict=True)]
    return tuple(slice(min(a, size), min(a + n, size)) for a, n, size in zip(starts, sizes, shape, strict=True))


def piece(array: Array, mesh: Mesh, sharding: TensorSharding, device: int) -> Array:
    """The part of a device: a view, where the whole fills it."""
    part = array[_box(array.shape, mesh, sharding, device)]
    missing = [(0, n - m) for n, m in zip(local_shape(array.shape, sharding.axes), part.shape, strict=True)]
    return np.pad(part, missing) if any(n for _, n in missing) else part


def assembled(pieces: Sequence[Array], shape: Sequence[int], mesh: Mesh, sharding: TensorSharding) -> Array:
    """The whole, of that shape, of which each device has a part."""
    whole = np.empty(shape, pieces[0].dtype)
    for device, part in enumerate(pieces):
        box = _box(shape, mesh, sharding, device)
        whole[box] = part[tuple(slice(s.stop - s.start) for s in box)]
    return whole
