"""Reading Shardy's dialect: constraints on how values lie, which are kept as notes of identities, and computations by hand.

Its collectives (`sdy.all_gather`, ...) are constraints, too: they move a value from one sharding to another and change nothing of
it as a whole; neither does `sdy.all_reduce`, which sums what is unreduced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from deepx_graph import ops
from deepx_graph.errors import counted
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.sharding.annotations import ASKED, BORDER, CONSTRAINT, MOVED
from deepx_graph.sharding.by_hand.manual import (
    AXES,
    IN,
    INNER_PART,
    INNER_WHOLE,
    INTO,
    LIES,
    OUT,
    RESULT,
    ROLE,
    names_note,
    position,
)
from deepx_graph.sharding.mesh import Axes, Mesh, TensorSharding, count_of
from deepx_graph.sharding.mesh import split as split_along
from deepx_graph.sharding.moves import Mover
from deepx_graph.sharding.priorities import BARRIER, Direction
from deepx_graph.sharding.values import GROUP
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.reader.effects import without_tokens
from deepx_graph.text.stablehlo.reader.shardy_checks import check_axes, check_constraint, check_edge, check_move
from deepx_graph.text.stablehlo.reader.shardy_forms import COLLECTIVES
from deepx_graph.text.stablehlo.reader.shardy_places import is_dangling
from deepx_graph.types import STATE, Type, as_tensor, compatible, tensor

Rule = Callable[[OperationContext], list[Node]]


def _noted(c: OperationContext, x: Node, role: str, *notes: tuple[str, str]) -> Node:
    """The value, with notes of its own."""
    before = c.b.origin
    c.b.origin = replace(before, notes=(*before.notes, *notes))
    found = c(ops.identity, x, role=role)
    c.b.origin = before
    return found


def _fitting(c: OperationContext, form: str, types: Sequence[Type]) -> list[tuple[Mesh, TensorSharding]]:
    """The shardings that an operation states, without those of tokens. Raises ParseError for what does not fit the types."""
    found = c.lowering.shardings(c.op.name, form, types, c.lowering.span(c.op))
    return [f for f, type in zip(found, types, strict=False) if type != STATE]


def sharding_constraint(c: OperationContext) -> list[Node]:
    """The operand: where its parts lie does not change it. The constraint is a note; one that nothing uses, of the operand."""
    said = c.op.extra.get("form") or c.word("sharding", "out_sharding", default="").removeprefix("#sdy.sharding")
    made = _fitting(c, said, c.op.result_types or [c.inputs[0].type]) if said else []
    if not c.inputs:  # a token
        return []
    if said and "axes" in c.op.extra:
        check_axes(c, said)
    if made and c.op.name in COLLECTIVES:
        check_move(c, made[0])
    elif made:
        check_constraint(c, made[0])
    note = (CONSTRAINT, f"#sdy.sharding{said}")
    if c.op.name == "sdy.sharding_constraint":
        found = _noted(c, c.inputs[0], ASKED, note)
    else:
        found = _noted(c, c.inputs[0], MOVED, note, (BARRIER, "NONE"))
    if is_dangling(c.op):
        c.scope[c.op.operands[0][0]] = found
    return [found]


def _barrier(c: OperationContext) -> list[Node]:
    """The operand; shardings are propagated over it in the directions named alone."""
    said = c.raw("allowed_direction") or 0
    try:
        allowed = Direction(said) if isinstance(said, int) else Direction[said]
    except (KeyError, ValueError):
        raise c.fail(f"{c.op.name}: no direction '{said}'", ", ".join(d.name or "" for d in Direction)) from None
    return [_noted(c, c.inputs[0], "propagation_barrier", (BARRIER, allowed.name or "NONE"))]


def _edge(c: OperationContext) -> list[Node]:
    """What flows along a data-flow edge, with the sharding of all that does."""
    check_edge(c)
    said = c.op.extra.get("form") or c.word("sharding", default="").removeprefix("#sdy.sharding")
    if said:
        _fitting(c, said, [c.inputs[0].type])
    return [_noted(c, c.inputs[0], "data_flow_edge", *([(CONSTRAINT, f"#sdy.sharding{said}")] if said else []))]


def _group(c: OperationContext) -> list[Node]:
    """Nothing; the value is one that lies as all of its group do."""
    name = c.op.operands[0][0]
    c.scope[name] = _noted(c, c.inputs[0], "sharding_group", (GROUP, str(c.number("group_id", default=0))))
    return []


def _named_computation(c: OperationContext) -> list[Node]:
    """Its body, inlined; what is said of operands and results is a constraint on them."""
    def said(values: Sequence[Node], word: str, types: Sequence[Type]) -> list[Node]:
        texts = re.findall(r"<@[^>]*>", c.op.extra.get(word, ""))
        if not texts:
            return list(values)
        _fitting(c, f"<[{', '.join(texts)}]>", types)
        notes = [(CONSTRAINT, f"#sdy.sharding{t}") for t, type in zip(texts, types, strict=True) if type != STATE]
        return [_noted(c, x, BORDER, note) for x, note in zip(values, notes, strict=True)]

    return said(c.region(0, said(c.inputs, "in_shardings", c.op.operand_types)), "out_shardings", c.op.result_types)


# --- sdy.manual_computation: what every device of a mesh does with its part ---------------------------------------

Split = tuple[Axes, ...]
"""The axes along which each dimension is split."""


def manual_computation(c: OperationContext) -> list[Node]:
    """The results on whole tensors: one `run_parallel` over slices of the operands, as their shardings say, put together again.

    Devices that differ along axes that are left to a partitioner alone do the same. In another computation by hand every device is
    at work already, and takes its part.
    """
    manual = set(re.findall(r'"([^"]*)"', c.op.extra["manual_axes"]))
    taken, given = _stated(c, "in_shardings", c.op.operand_types), _stated(c, "out_shardings", c.op.result_types)
    before, after = _by_manual_axes(c, "in_shardings", taken, manual), _by_manual_axes(c, "out_shardings", given, manual)
    mesh = _mesh(c, [m for m, _ in (*before, *after)])
    if unknown := manual - dict(mesh.axes).keys():
        raise c.fail(f"{c.op.name}: no axis '{min(unknown)}' in the mesh", f"some of {', '.join(dict(mesh.axes))}")
    if c.lowering.bound_axes:
        return _nested(c, mesh, taken, given, manual)
    function = _function(c, manual)
    _check_parts(c, "operand", [x.type for x in c.inputs], before, [p.type for p in function.params[:-1]])
    _check_parts(c, "result", c.results, after, [r.type for r in function.results[:-1]])
    programs = [c.b.partial(function) for _ in range(mesh.count)]
    args = [_part(c, x, mesh, split, d) for d in range(mesh.count) for x, (_, split) in zip(c.inputs, before, strict=True)]
    notes = (IN, _note(taken)), (OUT, _note(given)), (AXES, names_note(manual))
    c.b.origin = replace(origin := c.b.origin, notes=(*c.b.origin.notes, *notes))
    results = c.act(ops.run_parallel, *programs, *args, replicas=1, partitions=mesh.count,
                    operand_segment_sizes=(1, mesh.count, 0, len(args)))
    c.b.origin = origin
    each = [results[k :: len(after)] for k in range(len(after))]
    return [c(ops.identity, _joined(c, parts, mesh, split), role=ROLE) for parts, (_, split) in zip(each, after, strict=True)]


def _nested(c: OperationContext, mesh: Mesh, taken: Sequence[tuple[Mesh, TensorSharding]],
            given: Sequence[tuple[Mesh, TensorSharding]], manual: Set[str]) -> list[Node]:
    """What one device does by hand with its part of what it has, and the others' parts of the results beside its own."""
    lowering, mover = c.lowering, Mover(c.b, mesh)
    before, after = ([(m, s.along(manual)) for m, s in each] for each in (taken, given))
    axes = (AXES, names_note(manual))
    _check_parts(c, "operand", [x.type for x in c.inputs], before, [a.type for a in c.op.regions[0][0].args])
    whole = [_noted(c, x, INTO, (LIES, _note([said])), axes) for x, said in zip(c.inputs, taken, strict=True)]
    parts = [_noted(c, _own_part(mover, x, split), INNER_PART) for x, (_, split) in zip(whole, before, strict=True)]
    bound, lowering.bound_axes = lowering.bound_axes, lowering.bound_axes | manual
    results = c.region(0, parts)
    lowering.bound_axes = bound
    _check_parts(c, "result", c.results, after, [r.type for r in results])
    joined = [_gathered(c, _noted(c, r, RESULT), mesh, split) for r, (_, split) in zip(results, after, strict=True)]
    return [_noted(c, r, INNER_WHOLE, (LIES, _note([said])), axes) for r, said in zip(joined, given, strict=True)]


def _own_part(mover: Mover, x: Node, split: Split) -> Node:
    """The part of an operand that this device has."""
    for dim, axes in enumerate(split):
        if axes:
            size = as_tensor(x.type).shape[dim] // count_of(axes)
            x = mover.sliced(x, dim, mover.here([part * size for part in mover.mesh.parts(axes)]), size)
    return x


def _gathered(c: OperationContext, x: Node, mesh: Mesh, split: Split) -> Node:
    """The whole of which this device has a part."""
    for dim, axes in enumerate(split):
        if axes:
            along = mesh.with_parts(axes)
            groups = along.groups(along.atoms(axes))
            (x,) = c.act(ops.all_gather, x, all_gather_dim=dim, replica_groups=groups, channel_id=1, use_global_device_ids=True,
                         shard_count=count_of(axes))
    return x


def _note(shardings: Sequence[tuple[Mesh, TensorSharding]]) -> str:
    return f"#sdy.sharding_per_value<[{', '.join(f'<mesh{mesh}, {sharding.text(mesh)}>' for mesh, sharding in shardings)}]>"


def _stated(c: OperationContext, word: str, types: Sequence[Type]) -> list[tuple[Mesh, TensorSharding]]:
    """`[<@mesh, [{"a"}, {}]>, ...]`: how each value lies."""
    found = _fitting(c, f"<{c.op.extra[word]}>", types)
    if len(found) != len(without_tokens(types)):
        raise c.fail(f"{c.op.name} needs a mesh that is read", "sdy.mesh @mesh = <[...]>")
    return found


def _by_manual_axes(c: OperationContext, word: str, stated: Sequence[tuple[Mesh, TensorSharding]],
                    manual: Set[str]) -> list[tuple[Mesh, Split]]:
    """The mesh and the split of each value along manual axes. Raises ParseError where these do not stand before others."""
    found = [(mesh, sharding.along(manual)) for mesh, sharding in stated]
    for (_, sharding), (_, split) in zip(stated, found, strict=True):
        if any(axes[: len(own)] != own for axes, own in zip(sharding.axes, split, strict=True)):
            raise c.fail(f"{c.op.name}: manual axes stand before others in {word}")
    return found


def _check_parts(c: OperationContext, what: str, types: Sequence[Type], shardings: Sequence[tuple[Mesh, Split]],
                 parts: Sequence[Type]) -> None:
    """What a device has of each value is its even part along the manual axes. Raises ParseError for other types in the body."""
    if len(parts) != len(types):
        raise c.fail(f"{c.op.name}: {counted(len(types), what)}, and {len(parts)} in the body")
    for k, (type, (mesh, split), part) in enumerate(zip(types, shardings, parts, strict=True)):
        whole = as_tensor(type)
        counts = [count_of(axes) for axes in split]
        if any(size % n for size, n in zip(whole.shape, counts, strict=True)):
            raise c.fail(f"{c.op.name}: {what} {k} of {type} is not split evenly by {split_along(*split).text(mesh)}")
        own = tensor(whole.dtype, tuple(size // n for size, n in zip(whole.shape, counts, strict=True)))
        if not compatible(own, part):
            raise c.fail(f"{c.op.name}: a device has {own} of {what} {k}, and the body has {part}", str(own))


def _mesh(c: OperationContext, stated: Sequence[Mesh]) -> Mesh:
    meshes = set(stated) or set(c.lowering.meshes.values())
    if len(meshes) != 1:
        raise c.fail(f"{c.op.name} needs one mesh", "sdy.mesh @mesh = <[...]>")
    return meshes.pop()


def _function(c: OperationContext, manual: Set[str]) -> Function:
    """What one device does, as a function of the module, in which nothing is split along the axes that are."""
    lowering, block = c.lowering, c.op.regions[0][0]
    outer, origin = lowering.state, c.b.origin
    params = lowering.params(block)
    lowering.state = state = c.b.param(len(params), STATE, "state")
    constants = {name: node for name, node in c.scope.items() if node.op is CONSTANT}
    bound, lowering.bound_axes = lowering.bound_axes, lowering.bound_axes | manual
    results = lowering.run(block, constants | lowering.bound(block, params, c.op), c.op)
    lowering.bound_axes = bound
    function = Function(lowering.unused(f"{c.b.origin.name or 'manual'}_device"), (*params, state), (*results, lowering.state),
                        public=False, span=origin.span)
    lowering.state, c.b.origin = outer, origin
    lowering.made.append(function)
    return function


def _part(c: OperationContext, x: Node, mesh: Mesh, split: Split, device: int) -> Node:
    """The part of an operand that a device has."""
    shape = as_tensor(x.type).shape
    counts = [count_of(axes) for axes in split]
    if all(n == 1 for n in counts):
        return x
    sizes = [extent // n for extent, n in zip(shape, counts, strict=True)]
    start = tuple(p * s for p, s in zip(position(mesh, split, device), sizes, strict=True))
    limit = tuple(a + s for a, s in zip(start, sizes, strict=True))
    return c(ops.slice_, x, start_indices=start, limit_indices=limit, strides=(1,) * len(shape))


def _joined(c: OperationContext, parts: Sequence[Node], mesh: Mesh, split: Split) -> Node:
    """The tensor of which every device has a part, joined dimension by dimension, the last one first."""
    pieces: dict[tuple[int, ...], Node] = {}
    for device, part in enumerate(parts):
        pieces.setdefault(position(mesh, split, device), part)
    for dim in reversed(range(len(split))):
        rows: dict[tuple[int, ...], list[Node]] = {}
        for at in sorted(pieces):
            rows.setdefault(at[:dim], []).append(pieces[at])
        pieces = {at: row[0] if len(row) == 1 else c(ops.concatenate, *row, dimension=dim) for at, row in rows.items()}
    return pieces[()]


def _by_hand(c: OperationContext) -> list[Node]:
    """What every device does with its part; along no axes it has only a name."""
    return manual_computation(c) if '"' in c.op.extra["manual_axes"] else _named_computation(c)


SHARDY: dict[str, Rule] = {
    **dict.fromkeys(("sdy.sharding_constraint", "sdy.reshard", *COLLECTIVES), sharding_constraint),
    "sdy.propagation_barrier": _barrier,
    **dict.fromkeys(("sdy.data_flow_edge", "sdy.func_data_flow_edge"), _edge),
    "sdy.sharding_group": _group,
    "sdy.named_computation": _named_computation,
    "sdy.manual_computation": _by_hand,
}
"""How they are read."""
