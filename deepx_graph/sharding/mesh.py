"""Meshes of devices, and shardings of tensors over them, in the terms of Shardy's sharding representation.

A mesh is a grid of named axes; its devices are numbered row by row, or as `device_ids` says. A sharding says for each dimension of
a tensor along which axes it is split, the major one first, and whether propagation may split it further.

An axis may be split itself: its sub-axis `"y":(2)4` is the factor of size 4 that has a factor of 2 before it. `Mesh.atoms` are the
factors that all sub-axes of a mesh are products of: prime ones, in ascending order between the places where sub-axes begin and end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from deepx_graph.errors import UsageError, suggest
from deepx_graph.types import prime_factors

MOST_DEVICES = 4096
"""The most devices of a mesh."""


@dataclass(frozen=True)
class AxisRef:
    """The factor of an axis that has the size `size`, and a factor of size `pre` before it."""

    name: str
    pre: int
    size: int
    mesh: str = ""
    """The name of the mesh beside (`Mesh.beside`) that has the axis, if one has."""

    @property
    def post(self) -> int:
        """The size of this factor and of what is before it."""
        return self.pre * self.size

    def overlaps(self, other: AxisRef) -> bool:
        """Whether devices that differ in one may differ in the other."""
        if self.mesh != other.mesh:
            return True
        return self.name == other.name and self.pre < other.post and other.pre < self.post

    def __str__(self) -> str:
        return f'"{self.name}":({self.pre}){self.size}'


Axes = tuple[AxisRef, ...]
"""Axes along which something is split, the major one first."""


@dataclass(frozen=True)
class Mesh:
    """Named axes with their sizes, in order; `device_ids` are the numbers of the devices row by row, when not in order.

    One without axes that names a device is that one of some other mesh.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] = ()
    name: str = "mesh"
    cuts: tuple[tuple[str, int], ...] = ()
    """Where inside of axes sub-axes begin and end: the size of what is before. `with_parts` says it."""
    beside: tuple[Mesh, ...] = ()
    """Other grids of the same devices, by name. A tensor is split along axes of one grid alone."""

    def __post_init__(self) -> None:
        """Raises UsageError for a mesh that is none."""
        if len(dict(self.axes)) < len(self.axes) or any(size < 1 for _, size in self.axes):
            raise UsageError(f"a mesh with the axes {dict(self.axes)}: names differ, and sizes are at least 1")
        if self.count > MOST_DEVICES:
            raise UsageError(f"a mesh of {self.count} devices; at most {MOST_DEVICES}")
        if self.device_ids and self.single is None and sorted(self.device_ids) != list(range(self.count)):
            raise UsageError(f"device_ids of a mesh of {self.count} devices: each number below {self.count} once")

    @cached_property
    def count(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    @property
    def single(self) -> int | None:
        """The number of the device that a mesh without axes names; None for any other mesh."""
        return self.device_ids[0] if not self.axes and len(self.device_ids) == 1 else None

    def axis(self, name: str) -> AxisRef:
        """A whole axis. Raises UsageError for a name that the mesh does not have."""
        sizes = dict(self.axes)
        if name not in sizes:
            hint = suggest(name, sizes)
            raise UsageError(f"no axis '{name}' in the mesh" + (f": {hint}" if hint else ""))
        return AxisRef(name, 1, sizes[name])

    def _grid(self, a: AxisRef) -> Mesh:
        """The grid that has an axis: this mesh, or one beside."""
        return next(mesh for mesh in self.beside if mesh.name == a.mesh) if a.mesh else self

    def is_like(self, other: Mesh) -> bool:
        """Whether another mesh, perhaps of another name, has the same axes and devices."""
        return self.axes == other.axes and self.devices == other.devices

    def with_parts(self, axes: Iterable[AxisRef]) -> Mesh:
        """The same mesh, whose atoms these are products of. Raises UsageError for parts of an axis that no order of factors has."""
        added = {(a.name, at) for a in axes for at in (a.pre, a.post) if 1 < at < self.axis(a.name).size}
        cuts = sorted(added.union(self.cuts))
        for (name, at), (other, after) in pairwise(cuts):
            if name == other and after % at:
                raise UsageError(f'parts of the axis "{name}" that begin or end at {at} and {after}: {at} is no factor of {after}')
        return replace(self, cuts=tuple(cuts)) if added.difference(self.cuts) else self

    def atoms(self, axes: Iterable[AxisRef]) -> Axes:
        """The prime factors of axes. Raises UsageError for a sub-axis that is no product of such."""
        return tuple(atom for a in axes for atom in self._atoms_of(a))

    def _atoms_of(self, a: AxisRef) -> Iterator[AxisRef]:
        inside = [atom for atom in self._grid(a)._all_atoms(a.name, a.mesh) if a.pre <= atom.pre and atom.post <= a.post]
        if math.prod(atom.size for atom in inside) != a.size or (inside and inside[0].pre != a.pre):
            raise UsageError(f"the sub-axis {a} is no product of the factors that its axis is split into here")
        yield from inside

    def _all_atoms(self, name: str, mesh: str = "") -> Iterator[AxisRef]:
        pre = 1
        for post in sorted({self.axis(name).size, *(at for own, at in self.cuts if own == name)}):
            for p in prime_factors(post // pre):
                yield AxisRef(name, pre, p, mesh)
                pre *= p

    def shown(self, a: AxisRef) -> str:
        """The axis as texts write it: whole ones by name alone, `"x"@tiles` of a mesh beside."""
        said = f'"{a.name}"' if (a.pre, a.size) == (1, self._grid(a).axis(a.name).size) else str(a)
        return said + (f"@{a.mesh}" if a.mesh else "")

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The number of the device at each position, row by row."""
        return self.device_ids or tuple(range(self.count))

    @cached_property
    def _coordinates(self) -> dict[int, dict[str, int]]:
        """Where each device is along each axis."""
        found = {}
        for position, device in enumerate(self.devices):
            at = {}
            for name, size in reversed(self.axes):
                position, at[name] = divmod(position, size)
            found[device] = at
        return found

    def index(self, device: int, axes: Iterable[AxisRef]) -> int:
        """The number of the part that a device has of what is split along the axes."""
        part = 0
        for a in axes:
            grid = self._grid(a)
            part = part * a.size + grid._coordinates[device][a.name] // (grid.axis(a.name).size // a.post) % a.size
        return part

    @cached_property
    def _known(self) -> dict[Axes, tuple[int, ...]]:
        """The parts that devices have along axes, once asked for: every move along these asks."""
        return {}

    @cached_property
    def _known_groups(self) -> dict[Axes, tuple[tuple[int, ...], ...]]:
        """The same of groups."""
        return {}

    def parts(self, axes: Sequence[AxisRef]) -> tuple[int, ...]:
        """The same for each device."""
        key = tuple(axes)
        if key not in self._known:
            self._known[key] = tuple(self.index(d, key) for d in range(self.count))
        return self._known[key]

    def groups(self, axes: Sequence[AxisRef]) -> tuple[tuple[int, ...], ...]:
        """The devices that differ along the axes alone, in their order along them."""
        key = tuple(axes)
        if key not in self._known_groups:
            part, found = self.parts(key), dict[int, list[int]]()
            for device, rest in enumerate(self.parts(self.without(key))):
                found.setdefault(rest, []).append(device)
            self._known_groups[key] = tuple(tuple(sorted(group, key=part.__getitem__)) for group in found.values())
        return self._known_groups[key]

    def orders(self, axes: Iterable[AxisRef]) -> bool:
        """Whether axes stand in the order of the mesh, the parts of one axis in theirs."""
        names = [name for name, _ in self.axes]
        places = [(names.index(a.name), a.pre) for a in axes]
        return places == sorted(places)

    def without(self, axes: Iterable[AxisRef]) -> Axes:
        """The prime factors of the axes of the mesh that are not among these."""
        used = self.atoms(axes)
        mesh = used[0].mesh if used else ""
        grid = self._grid(used[0]) if used else self
        return tuple(a for name, _ in grid.axes for a in grid._all_atoms(name, mesh) if a not in used)

    def __str__(self) -> str:
        ids = f", device_ids=[{', '.join(map(str, self.device_ids))}]" if self.device_ids else ""
        axes = ", ".join([f'"{name}"={size}' for name, size in self.axes])
        return f"<[{axes}]{ids}>"


def merged(atoms: Iterable[AxisRef]) -> Axes:
    """The same axes with those joined that lie next to each other in one axis."""
    found: list[AxisRef] = []
    for a in atoms:
        if found and (found[-1].mesh, found[-1].name, found[-1].post) == (a.mesh, a.name, a.pre):
            found[-1] = replace(found[-1], size=found[-1].size * a.size)
        else:
            found.append(a)
    return tuple(found)


def count_of(axes: Iterable[AxisRef]) -> int:
    """Into how many parts the axes split."""
    return math.prod(a.size for a in axes)


def fills(size: int, axes: Iterable[AxisRef]) -> bool:
    """Whether every part of a size has some of it: rounded up, where the axes do not split it evenly."""
    parts = count_of(axes)
    return parts == 1 or size > -(-size // parts) * (parts - 1)


@dataclass(frozen=True)
class DimSharding:
    """The axes of one dimension; `open`: propagation may add some; `priority`: when it starts from here, 0 first."""

    axes: Axes = ()
    open: bool = False
    priority: int = 0

    def text(self, mesh: Mesh) -> str:
        """`{"x", ?}p1`."""
        inner = ", ".join([*map(mesh.shown, self.axes), *["?"] * self.open])
        return f"{{{inner}}}" + (f"p{self.priority}" if self.priority else "")


@dataclass(frozen=True)
class TensorSharding:
    """How a tensor lies on a mesh. Along `replicated` axes it stays whole; over `unreduced` ones it is still to be summed."""

    dims: tuple[DimSharding, ...]
    replicated: Axes = ()
    unreduced: Axes = ()
    unreduced_by: str = ""
    """How these are combined, where that is no sum: `max`, `min`."""
    mesh: str = ""
    """The name of the mesh that has these axes, where a plan has several and it is not the first."""

    @property
    def axes(self) -> tuple[Axes, ...]:
        """The axes of each dimension."""
        return tuple(d.axes for d in self.dims)

    def along(self, names: Collection[str]) -> tuple[Axes, ...]:
        """The axes of each dimension that have these names."""
        return tuple(tuple(a for a in axes if a.name in names) for axes in self.axes)

    @property
    def every_axis(self) -> Axes:
        """All axes that it names, those of dimensions first."""
        return (*(a for axes in self.axes for a in axes), *self.replicated, *self.unreduced)

    @property
    def is_split(self) -> bool:
        """Whether any dimension is split."""
        return any(self.axes)

    def with_axes(self, axes: Sequence[Axes]) -> TensorSharding:
        """The same with other axes of the dimensions."""
        return replace(self, dims=tuple(replace(d, axes=a) for d, a in zip(self.dims, axes, strict=True)))

    def text(self, mesh: Mesh) -> str:
        """`[{"x"}, {?}], replicated={"y"}`."""
        said = f"[{', '.join(d.text(mesh) for d in self.dims)}]"
        for word, by, axes in (("replicated", "", self.replicated), ("unreduced", self.unreduced_by, self.unreduced)):
            said += f", {word}={by}{{{', '.join(map(mesh.shown, axes))}}}" if axes else ""
        return said


def split(*dims: Axes) -> TensorSharding:
    """The final sharding along these axes."""
    return TensorSharding(tuple(DimSharding(a) for a in dims))


def open_sharding(rank: int) -> TensorSharding:
    """Of a tensor of which nothing is said."""
    return TensorSharding((DimSharding(open=True),) * rank)


def local_shape(shape: Sequence[int], axes: Sequence[Axes]) -> tuple[int, ...]:
    """The sizes on one device: rounded up, where a dimension is not split evenly; the last parts then have less, or nothing."""
    return tuple(-(-size // count_of(a)) for size, a in zip(shape, axes, strict=True))
