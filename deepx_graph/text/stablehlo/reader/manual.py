"""Reading `sdy.manual_computation`: what every device of a mesh does with its part becomes one `run_parallel` over slices.

Operands are sliced as their shardings say, results put together again; so the program means the same on whole tensors. A mesh is a
grid of named axes, its devices numbered row by row. A sharding says for each dimension of a tensor along which axes it is split,
the first axis outermost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from deepx_graph import ops
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.types import STATE, as_tensor

_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d+)')
_SHARDING = re.compile(r"<\s*@\"?([\w$.\-]+)\"?\s*,\s*\[((?:[^\[\]])*)\]")
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r'"([^"]*)"(:\()?')

Split = tuple[tuple[str, ...], ...]
"""The axes along which each dimension is split."""


@dataclass(frozen=True)
class Mesh:
    """Axes with their sizes, in order."""

    axes: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    def shards(self, axes: Sequence[str]) -> int:
        """Into how many parts axes split a dimension. Raises KeyError for an unknown axis."""
        sizes = dict(self.axes)
        return math.prod(sizes[a] for a in axes)

    def parts(self, device: int, split: Split) -> tuple[int, ...]:
        """The number of the part that a device has, in each dimension."""
        at: dict[str, int] = {}
        for name, size in reversed(self.axes):
            device, at[name] = divmod(device, size)
        sizes = dict(self.axes)
        found = []
        for axes in split:
            part = 0
            for a in axes:
                part = part * sizes[a] + at[a]
            found.append(part)
        return tuple(found)

    def owners(self, split: Split) -> dict[tuple[int, ...], int]:
        """For each part the first device that has it."""
        found: dict[tuple[int, ...], int] = {}
        for device in range(self.count):
            found.setdefault(self.parts(device, split), device)
        return found


def parse_mesh(text: str) -> Mesh:
    """`<["a"=2, "b"=2]>`. Raises ValueError for devices in another order than theirs."""
    axes = tuple((name, int(size)) for name, size in _AXIS.findall(text.partition("device_ids")[0]))
    mesh = Mesh(axes)
    given = re.search(r"device_ids\s*=\s*\[([\d,\s]*)\]", text)
    order = [int(n) for n in given[1].split(",")] if given and axes else []
    if order and (len(order) != mesh.count or order != list(range(mesh.count))):
        raise ValueError("a mesh of devices in an order of their own")
    return mesh


def parse_shardings(text: str) -> list[tuple[str, Split]]:
    """`[<@mesh, [{"a"}, {}]>, ...]`: the mesh and the split of each. Raises ValueError for parts of axes."""
    found = []
    for mesh, inner in _SHARDING.findall(text):
        names = [_NAME.findall(d) for d in _DIMENSION.findall(inner)]
        if any(part for d in names for _, part in d):
            raise ValueError("a dimension that is split along part of an axis")
        found.append((mesh, tuple(tuple(name for name, _ in d) for d in names)))
    return found


MOST_DEVICES = 4096


def manual_computation(c: OperationContext) -> list[Node]:
    """The results on whole tensors."""
    try:
        before, after = (parse_shardings(c.op.extra[k]) for k in ("in_shardings", "out_shardings"))
    except ValueError as e:
        raise c.fail(f"{c.op.name}: {e}, which is not supported") from None
    mesh = _mesh(c, [name for name, _ in (*before, *after)])
    if len(before) != len(c.inputs):
        raise c.fail(f"{c.op.name} has {len(before)} shardings for {len(c.inputs)} operands")
    function = _function(c)
    programs = [c.b.partial(function) for _ in range(mesh.count)]
    args = [_part(c, x, mesh, split, d) for d in range(mesh.count) for x, (_, split) in zip(c.inputs, before, strict=True)]
    results = c.act(ops.run_parallel, *programs, *args, replicas=1, partitions=mesh.count,
                    operand_segment_sizes=(1, mesh.count, 0, len(args)))
    each = [results[k :: len(after)] for k in range(len(after))]
    return [_whole(c, parts, mesh, split) for parts, (_, split) in zip(each, after, strict=True)]


def _mesh(c: OperationContext, names: Sequence[str]) -> Mesh:
    meshes = c.lowering.meshes
    known = set(names) or set(meshes)
    if len(known) != 1 or not known <= set(meshes):
        raise c.fail(f"{c.op.name} needs one mesh", "sdy.mesh @mesh = <[...]>")
    mesh = meshes[known.pop()]
    manual = set(re.findall(r'"([^"]*)"', c.op.extra["manual_axes"]))
    if any(size > 1 and name not in manual for name, size in mesh.axes):
        raise c.fail(f"{c.op.name} leaves axes of its mesh to a partitioner", "every axis of the mesh in manual_axes")
    if mesh.count > MOST_DEVICES:
        raise c.fail(f"a mesh of {mesh.count} devices", f"at most {MOST_DEVICES}")
    return mesh


def _function(c: OperationContext) -> Function:
    """What one device does, as a function of the module."""
    lowering, block = c.lowering, c.op.regions[0][0]
    outer, origin = lowering.state, c.b.origin
    params = lowering.params(block)
    lowering.state = state = c.b.param(len(params), STATE, "state")
    constants = {name: node for name, node in c.scope.items() if node.op is CONSTANT}
    results = lowering.run(block, constants | lowering.bound(block, params, c.op), c.op)
    function = Function(lowering.unused(f"{c.b.origin.name or 'manual'}_device"), (*params, state), (*results, lowering.state),
                        public=False, span=origin.span)
    lowering.state, c.b.origin = outer, origin
    lowering.made.append(function)
    return function


def _part(c: OperationContext, x: Node, mesh: Mesh, split: Split, device: int) -> Node:
    """The part of an operand that a device has."""
    shape = as_tensor(x.type).shape
    counts = [mesh.shards(axes) for axes in split]
    if all(n == 1 for n in counts):
        return x
    sizes = [extent // n for extent, n in zip(shape, counts, strict=True)]
    start = tuple(p * s for p, s in zip(mesh.parts(device, split), sizes, strict=True))
    limit = tuple(a + s for a, s in zip(start, sizes, strict=True))
    return c(ops.slice_, x, start_indices=start, limit_indices=limit, strides=(1,) * len(shape))


def _whole(c: OperationContext, parts: Sequence[Node], mesh: Mesh, split: Split) -> Node:
    """The tensor of which every device has a part, joined dimension by dimension, the last one first."""
    pieces = {at: parts[d] for at, d in mesh.owners(split).items()}
    for dim in reversed(range(len(split))):
        rows: dict[tuple[int, ...], list[Node]] = {}
        for at in sorted(pieces):
            rows.setdefault(at[:dim], []).append(pieces[at])
        pieces = {at: row[0] if len(row) == 1 else c(ops.concatenate, *row, dimension=dim) for at, row in rows.items()}
    return pieces[()]
