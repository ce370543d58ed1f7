"""Reading `sdy.manual_computation`: what every device of a mesh does with its part becomes one `run_parallel` over slices.

Operands are sliced as their shardings say, results put together again; so the program means the same on whole tensors. Meshes and
shardings are those of `sharding/`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepx_graph import ops
from deepx_graph.errors import ParseError
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.sharding.mesh import Axes, Mesh, count_of
from deepx_graph.sharding.notation import read_annotation
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.types import STATE, as_tensor

Split = tuple[Axes, ...]
"""The axes along which each dimension is split."""


def manual_computation(c: OperationContext) -> list[Node]:
    """The results on whole tensors."""
    before, after = (_shardings(c, c.op.extra[k]) for k in ("in_shardings", "out_shardings"))
    mesh = _mesh(c, [m for m, _ in (*before, *after)])
    if len(before) != len(c.inputs):
        raise c.fail(f"{c.op.name} has {len(before)} shardings for {len(c.inputs)} operands")
    function = _function(c)
    programs = [c.b.partial(function) for _ in range(mesh.count)]
    args = [_part(c, x, mesh, split, d) for d in range(mesh.count) for x, (_, split) in zip(c.inputs, before, strict=True)]
    results = c.act(ops.run_parallel, *programs, *args, replicas=1, partitions=mesh.count,
                    operand_segment_sizes=(1, mesh.count, 0, len(args)))
    each = [results[k :: len(after)] for k in range(len(after))]
    return [_whole(c, parts, mesh, split) for parts, (_, split) in zip(each, after, strict=True)]


def _shardings(c: OperationContext, text: str) -> list[tuple[Mesh, Split]]:
    """`[<@mesh, [{"a"}, {}]>, ...]`: the mesh and the split of each."""
    try:
        return [(mesh, sharding.axes) for mesh, sharding in read_annotation(f"<{text}>", c.lowering.meshes)]
    except ParseError as e:
        raise c.fail(f"{c.op.name}: {e.diagnostics[0].message}", e.diagnostics[0].expected) from None


def _mesh(c: OperationContext, stated: Sequence[Mesh]) -> Mesh:
    meshes = set(stated) or set(c.lowering.meshes.values())
    if len(meshes) != 1:
        raise c.fail(f"{c.op.name} needs one mesh", "sdy.mesh @mesh = <[...]>")
    mesh = meshes.pop()
    manual = set(re.findall(r'"([^"]*)"', c.op.extra["manual_axes"]))
    if any(size > 1 and name not in manual for name, size in mesh.axes):
        raise c.fail(f"{c.op.name} leaves axes of its mesh to a partitioner", "every axis of the mesh in manual_axes")
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


def _position(mesh: Mesh, split: Split, device: int) -> tuple[int, ...]:
    """The number of the part that a device has, in each dimension."""
    return tuple(mesh.index(device, axes) for axes in split)


def _part(c: OperationContext, x: Node, mesh: Mesh, split: Split, device: int) -> Node:
    """The part of an operand that a device has."""
    shape = as_tensor(x.type).shape
    counts = [count_of(axes) for axes in split]
    if all(n == 1 for n in counts):
        return x
    sizes = [extent // n for extent, n in zip(shape, counts, strict=True)]
    start = tuple(p * s for p, s in zip(_position(mesh, split, device), sizes, strict=True))
    limit = tuple(a + s for a, s in zip(start, sizes, strict=True))
    return c(ops.slice_, x, start_indices=start, limit_indices=limit, strides=(1,) * len(shape))


def _whole(c: OperationContext, parts: Sequence[Node], mesh: Mesh, split: Split) -> Node:
    """The tensor of which every device has a part, joined dimension by dimension, the last one first."""
    pieces: dict[tuple[int, ...], Node] = {}
    for device, part in enumerate(parts):
        pieces.setdefault(_position(mesh, split, device), part)
    for dim in reversed(range(len(split))):
        rows: dict[tuple[int, ...], list[Node]] = {}
        for at in sorted(pieces):
            rows.setdefault(at[:dim], []).append(pieces[at])
        pieces = {at: row[0] if len(row) == 1 else c(ops.concatenate, *row, dimension=dim) for at, row in rows.items()}
    return pieces[()]
