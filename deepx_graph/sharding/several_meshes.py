"""Plans over several meshes, brought to one: partitioning moves a value between two of them as any other that is split anew.

The meshes are of the same devices. An axis of one is a part of an axis of another, or a product of such, where the same devices
differ along both: so `"x"` of <["x"=2, "t"=4]> is `"a":(1)2` of <["a"=4, "b"=2]>, and `"t"` is `"a":(2)2` and `"b"`. A mesh whose
axes are none, as one of 3 x 2 devices beside 2 x 3, or of devices in an order of its own, stands beside (`Mesh.beside`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.sharding.mesh import Axes, AxisRef, Mesh, TensorSharding, merged
from deepx_graph.sharding.plan import AxisOrigin, Plan
from deepx_graph.types import prime_factors

_Found = Mapping[AxisRef, Axes]
"""What axes of another mesh are on the one."""


def over_one_mesh(plan: Plan) -> Plan:
    """The same plan with all values over its first mesh, which has parts of axes for the others, or has them beside.

    Raises UsageError for a value over a mesh of another number of devices.
    """
    if not plan.others:
        return plan
    stated = [*plan.values.items(), *((plan.function.results[k], s) for k, s in plan.results.items())]
    mesh, known = plan.mesh, dict[str, _Found]()
    for name, other in plan.meshes.items():
        over = [(node, s) for node, s in stated if s.mesh == name]
        if over and other.axes and other.count != mesh.count:
            message = f"a value lies over the mesh {other}, of {other.count} devices, and others over {plan.mesh}, of {mesh.count}"
            raise UsageError(Diagnostic(f"{message}: a program is split over all devices", over[0][0].span))
        mesh, known[name] = _with_axes(mesh, plan.mesh, other, {a for _, s in over for a in s.every_axis})
    values = {n: _over(s, known[s.mesh]) for n, s in plan.values.items()}
    results = {k: _over(s, known[s.mesh]) for k, s in plan.results.items()}
    origins = {n: dict(_origins(plan.values[n], found, mesh, known)) for n, found in plan.origins.items()}
    return replace(plan, mesh=mesh, others=(), values=values, results=results, origins=origins)


def _with_axes(mesh: Mesh, first: Mesh, other: Mesh, axes: Iterable[AxisRef]) -> tuple[Mesh, _Found]:
    """The mesh, which is the first one with parts for others, with those for axes of one more; what these are there."""
    found = {a: _parts_of(first, other, a) for a in axes}
    try:
        known = {a: parts for a, parts in found.items() if parts is not None}
        if len(known) == len(found):
            return mesh.with_parts(part for parts in known.values() for part in parts), known
    except UsageError:
        pass  # no order of the factors of an axis has them all
    return replace(mesh, beside=(*mesh.beside, other)), {a: (replace(a, mesh=other.name),) for a in found}


def axes_on(one: Mesh, other: Mesh, name: str) -> Axes:
    """What an axis of a mesh is on the one over which a plan was brought; all axes of that, where it is not said by some."""
    if one.is_like(other):
        return (one.axis(name),)
    if beside := next((mesh for mesh in one.beside if mesh.is_like(other)), None):
        return (replace(beside.axis(name), mesh=beside.name),)
    return _parts_of(one, other, other.axis(name)) or tuple(one.axis(whole) for whole, _ in one.axes)


def _parts_of(first: Mesh, other: Mesh, a: AxisRef) -> Axes | None:
    """The parts of axes of one mesh along which the same devices differ as along an axis of another; None where there are none."""
    for part in _parts(first, a.size):
        if first.parts((part,)) == other.parts((a,)):
            return (part,)
    for size in sorted(set(prime_factors(a.size))):
        if size < a.size:
            major = _parts_of(first, other, replace(a, size=size))
            minor = _parts_of(first, other, replace(a, pre=a.pre * size, size=a.size // size)) if major else None
            if major and minor:
                return merged((*major, *minor))
    return None


def _parts(mesh: Mesh, count: int) -> Iterator[AxisRef]:
    """The parts of axes that split in so many."""
    for name, size in mesh.axes:
        yield from (AxisRef(name, pre, count) for pre in range(1, size // count + 1) if size % (pre * count) == 0)


def _over(sharding: TensorSharding, known: _Found) -> TensorSharding:
    """A sharding in terms of the one mesh."""
    def moved(axes: Axes) -> Axes:
        return merged(part for a in axes for part in known[a])

    dims = tuple(replace(d, axes=moved(d.axes)) for d in sharding.dims)
    return replace(sharding, dims=dims, replicated=moved(sharding.replicated), unreduced=moved(sharding.unreduced), mesh="")


def _origins(sharding: TensorSharding, found: Mapping[AxisRef, AxisOrigin], mesh: Mesh,
             known: Mapping[str, _Found]) -> Iterator[tuple[AxisRef, AxisOrigin]]:
    """Where the axes of a value come from, in terms of the one mesh."""
    for a in (a for axes in sharding.axes for a in axes):
        for atom in mesh.atoms(known[sharding.mesh][a]):
            yield from ((atom, origin) for b, origin in found.items() if b.overlaps(a))
