"""Operations in which devices meet: reductions, gathers and permutations across replicas and partitions.

They take the state first and give it last, so that a collective is run where the program has it, neither moved into a branch that
some devices do not take nor past another one. Those of a partitioner (`spmd_`) do not need it: all devices run one schedule. Each
says of itself who meets and what comes of it (`Op.exchange`); its `eval` is its meaning on one device. Which devices a group names
follows StableHLO: its numbers are replicas, partitions or both, by `channel_id` and `use_global_device_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Function, Node, Op, Operand, Result, examples
from deepx_graph.ir.collective import Devices, Exchange, Grid, GroupNetwork, nothing
from deepx_graph.ir.constraint import STATE_VALUE, TENSOR, Constraint
from deepx_graph.literal import Array
from deepx_graph.ops.factors.meeting import beside
from deepx_graph.ops.interpret import combine
from deepx_graph.ops.math import elementwise
from deepx_graph.types import STATE, U32, TensorType, TupleType, Type, as_tensor, scalar

Groups = tuple[tuple[int, ...], ...]
Values = Sequence[Sequence[Array]]

_OPERANDS = (Operand("state", "what happened before", type=STATE_VALUE), Operand("operands", variadic=True, type=TENSOR))
_RESULTS = (Result("results", variadic=True), Result("state", "what has happened then", type=STATE_VALUE))


_OF_NUMBERS = Constraint(
    "groups of device numbers",
    lambda v: isinstance(v, tuple) and all(isinstance(g, tuple) and all(isinstance(i, int) and i >= 0 for i in g) for g in v))
_APART = Constraint("no device in two groups", lambda v: len({i for g in v for i in g}) == sum(map(len, v)))
_PAIRS = Constraint("pairs of a source and a target, none of them twice",
                    lambda v: all(len(p) == 2 for p in v) and all(len({p[k] for p in v}) == len(v) for k in (0, 1)))

_GROUPS = Attr("replica_groups", "any", (), "who meets with whom; none: everybody", check=_OF_NUMBERS & _APART)
_CHANNEL = Attr("channel_id", "int", 0, "0: groups are within each partition")
_GLOBAL = Attr("use_global_device_ids", "bool", False, "groups hold device numbers")
_BODY = Attr("computation", "function", summary="combines two elements")
_SIZE = Attr("shard_count", "int", summary="how many devices make a group")


# --- who meets ----------------------------------------------------------------------------------------------------


def _groups(grid: Grid, kind: str, groups: Groups) -> Iterator[Devices]:
    """All groups as devices. `kind` is replica, partition, both or flat."""
    count = {"replica": grid.replicas, "partition": grid.partitions, "both": grid.replicas, "flat": grid.count}[kind]
    for group in groups or (tuple(range(count)),):
        if kind == "replica":
            yield from (tuple(grid.device(r, p) for r in group) for p in range(grid.partitions))
        elif kind == "partition":
            yield from (tuple(grid.device(r, p) for p in group) for r in range(grid.replicas))
        elif kind == "both":
            yield tuple(grid.device(r, p) for p in range(grid.partitions) for r in group)
        else:
            yield tuple(grid.device(*divmod(d, grid.partitions)) for d in group)


def _mine(found: Iterator[Devices], device: int) -> Devices:
    return next((g for g in list(found) if device in g), ())  # all are made first, so that a wrong one is seen


def _needed(group: Devices, device: int, replica_groups: Groups) -> Devices:
    """The group of the device. Raises ValueError where it is in none."""
    if not group:
        raise ValueError(f"device {device} is in none of the replica groups {list(map(list, replica_groups))}")
    return group


def _reducing(grid: Grid, device: int, replica_groups: Groups, channel_id: int, use_global_device_ids: bool, *_: Any) -> Devices:
    """The group of all_reduce, all_gather and reduce_scatter; every device must be in one."""
    kind = "flat" if use_global_device_ids else "both" if channel_id > 0 else "replica"
    return _needed(_mine(_groups(grid, kind, replica_groups), device), device, replica_groups)


def _moving(grid: Grid, device: int, replica_groups: Groups, channel_id: int, *_: Any) -> Devices:
    return _mine(_groups(grid, "partition" if channel_id > 0 else "replica", replica_groups), device)


def _moving_all(grid: Grid, device: int, replica_groups: Groups, channel_id: int, *_: Any) -> Devices:
    return _needed(_moving(grid, device, replica_groups, channel_id), device, replica_groups)


def _permuting(grid: Grid, device: int, source_target_pairs: Groups, channel_id: int) -> Devices:
    numbers = tuple(sorted({n for pair in source_target_pairs for n in pair}))
    return _mine(_groups(grid, "partition" if channel_id > 0 else "replica", (numbers,)), device) if numbers else ()


# --- what comes of it ---------------------------------------------------------------------------------------------


def _reduced(values: Values, body: Function) -> list[Array]:
    """Each operand, combined over the members in order."""
    dtypes = [as_tensor(p.type).dtype.np for p in body.params]
    totals = []
    for each in zip(*values, strict=True):
        total = each[0].astype(dtypes[0], copy=False)
        for value in each[1:]:
            total = combine(body, [total], [value.astype(dtypes[1], copy=False)])[0]
        totals.append(np.asarray(total))
    return totals


def _needs(size: int, group: Devices) -> None:
    if len(group) != size:
        raise ValueError(f"{len(group)} devices meet and the shapes are for {size}")


def _all_reduce(grid: Grid, group: Devices, values: Values, groups: Groups, channel: int, flat: bool, body: Function) -> Any:
    totals = _reduced(values, body)
    return [totals for _ in group]


def _all_gather(grid: Grid, group: Devices, values: Values, groups: Groups, channel: int, flat: bool, dim: int, size: int) -> Any:
    _needs(size, group)
    whole = [np.concatenate(each, axis=dim) for each in zip(*values, strict=True)]
    return [whole for _ in group]


def _reduce_scatter(grid: Grid, group: Devices, values: Values, groups: Groups, channel: int, flat: bool, dim: int, size: int,
                    body: Function) -> Any:
    _needs(size, group)
    parts = [np.split(total, size, axis=dim) for total in _reduced(values, body)]
    return [[p[k] for p in parts] for k in range(size)]


def _all_to_all(grid: Grid, group: Devices, values: Values, groups: Groups, channel: int, split: int, concat: int,
                size: int) -> Any:
    _needs(size, group)
    if split < 0:
        return [[v[k] for v in values] for k in range(size)]
    parts = [[np.split(x, size, axis=split) for x in v] for v in values]
    return [[np.concatenate([p[i][k] for p in parts], axis=concat) for i in range(len(values[0]))] for k in range(size)]


def _permute(grid: Grid, group: Devices, values: Values, pairs: Groups, channel: int) -> Any:
    number = grid.partition if channel > 0 else grid.replica
    by_number = {number(d): v for d, v in zip(group, values, strict=True)}
    source = {target: by_number[source] for source, target in pairs}
    return [source.get(number(d), nothing(v)) for d, v in zip(group, values, strict=True)]


def _broadcast(grid: Grid, group: Devices, values: Values, groups: Groups, channel: int, has_dynamic_root: bool) -> Any:
    if not has_dynamic_root:
        return [values[0] for _ in group]
    roots = values[0][-1].reshape(-1).tolist()
    if any(not 0 <= r < len(group) for r in roots) or len(roots) != len(values[0]) - 1:
        raise ValueError(f"the roots {roots} are not {len(values[0]) - 1} numbers below {len(group)}")
    data = [values[r][k] for k, r in enumerate(roots)]
    return [data for _ in group]


def _to_root(grid: Grid, group: Devices, values: Values, groups: Groups, channel: int, flat: bool, body: Function) -> Any:
    totals = _reduced(values, body)
    return [totals, *(nothing(totals) for _ in group[1:])]


# --- by a network -------------------------------------------------------------------------------------------------


def _split_up(network: GroupNetwork, array: Array, dim: int) -> Array:
    """The equal parts of an array along a dimension, along a new first one."""
    count = network.size
    if dim == 0 and array.flags.c_contiguous:
        return array.reshape(count, array.shape[0] // count, *array.shape[1:])
    pieces = np.split(array, count, axis=dim)
    return np.stack(pieces, out=network.empty((count, *pieces[0].shape), array.dtype))


def _put_together(network: GroupNetwork, parts: Array, dim: int) -> Array:
    """The items of the first dimension one after the other along a dimension of theirs."""
    shape = parts.shape[1:]
    whole = (*shape[:dim], shape[dim] * len(parts), *shape[dim + 1 :])
    return parts.reshape(whole) if dim == 0 else np.concatenate(list(parts), axis=dim, out=network.empty(whole, parts.dtype))


def _all_reduce_by(network: GroupNetwork, values: Sequence[Array], groups: Groups, channel: int, flat: bool,
                   body: Function) -> list[Array] | None:
    found = []
    for value in values:
        total = network.all_reduce(value, body)
        if total is None:
            return None
        found.append(total)
    return found


def _all_gather_by(network: GroupNetwork, values: Sequence[Array], groups: Groups, channel: int, flat: bool, dim: int,
                   size: int) -> list[Array] | None:
    return [_put_together(network, network.all_gather(v), dim) for v in values] if size == network.size else None


def _reduce_scatter_by(network: GroupNetwork, values: Sequence[Array], groups: Groups, channel: int, flat: bool, dim: int,
                       size: int, body: Function) -> list[Array] | None:
    """Parts go to where they are combined, in the order of devices."""
    if size != network.size:
        return None
    received = [network.all_to_all(_split_up(network, v, dim)) for v in values]
    return _reduced(list(zip(*received, strict=True)), body)


def _all_to_all_by(network: GroupNetwork, values: Sequence[Array], groups: Groups, channel: int, split: int, concat: int,
                   size: int) -> list[Array] | None:
    if split < 0 or size != network.size:
        return None
    return [_put_together(network, network.all_to_all(_split_up(network, v, split)), concat) for v in values]


def _nothing_beside(size: int, operands: Sequence[int], *attrs: Any) -> int:
    return 0


def _gathered_scratch(size: int, operands: Sequence[int], groups: Groups, channel: int, flat: bool, dim: int, *_: Any) -> int:
    """What comes lies as the result along the first dimension alone."""
    return size * max(operands, default=0) if dim else 0


def _scattered_scratch(size: int, operands: Sequence[int], groups: Groups, channel: int, flat: bool, dim: int, *_: Any) -> int:
    """What comes of all operands, and parts in order to be sent, or a partial sum."""
    most = max(operands, default=0)
    return sum(operands) + (most if dim else most // size if size > 2 else 0)


def _swapped_scratch(size: int, operands: Sequence[int], groups: Groups, channel: int, split: int, concat: int, *_: Any) -> int:
    """Parts in order to be sent, and then what comes, where the result lies in another one."""
    return max(operands, default=0) if split or concat else 0


# --- types --------------------------------------------------------------------------------------------------------


def _tensors(types: Sequence[Type]) -> list[TensorType]:
    return [as_tensor(t, k) for k, t in enumerate(types[1:], 1)]


def _with_state(results: Sequence[Type]) -> Type:
    return TupleType((*results, STATE))


def _body_types(found: Sequence[TensorType], body: Function) -> list[TensorType]:
    if len(body.params) != 2 or len(body.results) != 1:
        raise InferError(f"the computation takes {len(body.params)} and gives {len(body.results)} values", expected="2 and 1")
    dtype = as_tensor(body.results[0].type).dtype
    return [t.with_dtype(dtype) for t in found]


def _scaled(type: TensorType, dim: int, factor: Callable[[int], int]) -> TensorType:
    if type.dims is None:
        return type
    if not 0 <= dim < len(type.dims):
        raise InferError(f"there is no dimension {dim} in {type}")
    old = type.dims[dim]
    return type.with_dims((*type.dims[:dim], factor(old) if isinstance(old, int) else f"{old}'", *type.dims[dim + 1 :]))


def _split(size: int) -> Callable[[int], int]:
    def part(extent: int) -> int:
        if size < 1 or extent % size:
            raise InferError(f"a dimension of {extent} cannot be split into {size} equal parts")
        return extent // size

    return part


def _all_reduce_type(types: Sequence[Type], groups: Groups, channel: int, flat: bool, body: Function) -> Type:
    return _with_state(_body_types(_tensors(types), body))


def _all_gather_type(types: Sequence[Type], groups: Groups, channel: int, flat: bool, dim: int, size: int) -> Type:
    return _with_state([_scaled(t, dim, lambda n: n * size) for t in _tensors(types)])


def _reduce_scatter_type(types: Sequence[Type], groups: Groups, channel: int, flat: bool, dim: int, size: int,
                         body: Function) -> Type:
    return _with_state([_scaled(t, dim, _split(size)) for t in _body_types(_tensors(types), body)])


def _all_to_all_type(types: Sequence[Type], groups: Groups, channel: int, split: int, concat: int, size: int) -> Type:
    found = _tensors(types)
    if split < 0:
        if len(found) != size or any(t != found[0] for t in found):
            raise InferError(f"{len(found)} operands", expected=f"{size} of one type, one for each device")
        return _with_state(found)
    return _with_state([_scaled(_scaled(t, split, _split(size)), concat, lambda n: n * size) for t in found])


def _same_types(types: Sequence[Type], *attrs: Any) -> Type:
    return _with_state(_tensors(types))


def _broadcast_type(types: Sequence[Type], groups: Groups, channel: int, has_dynamic_root: bool) -> Type:
    found = _tensors(types)
    return _with_state(found[:-1] if has_dynamic_root else found)


# --- declarations -------------------------------------------------------------------------------------------------


def _collective(name: str, summary: str, attrs: tuple[Attr, ...], infer: Callable[..., Type], exchange: Exchange,
                shown: str, source: str = "") -> Op:
    def alone(xs: Sequence[Any], *values: Any) -> Any:
        return (*exchange.alone(xs[1:], values), xs[0])

    return Op(name, summary, operands=_OPERANDS, attrs=attrs, results=_RESULTS, infer=infer, eval=alone, exchange=exchange,
              foldable=False, total=False, example=examples.collective(name, shown), source=source or f"StableHLO {name}")


all_reduce: Op = _collective(
    "all_reduce", "Each operand combined over the devices of a group.", (_GROUPS, _CHANNEL, _GLOBAL, _BODY), _all_reduce_type,
    Exchange(_reducing, _all_reduce, _all_reduce_by, _nothing_beside, reduction=lambda *attrs: attrs[-1]),
    "replica_groups = [], SUM")  # fmt: skip
all_gather: Op = _collective(
    "all_gather", "The operands of the devices of a group, one after the other along a dimension.",
    (_GROUPS, _CHANNEL, _GLOBAL, Attr("all_gather_dim", "int"), _SIZE), _all_gather_type,
    Exchange(_reducing, _all_gather, _all_gather_by, _gathered_scratch),
    "replica_groups = [], all_gather_dim = 0, shard_count = 1")  # fmt: skip
reduce_scatter: Op = _collective(
    "reduce_scatter", "Each operand combined over a group; every device gets its part of it.",
    (_GROUPS, _CHANNEL, _GLOBAL, Attr("scatter_dimension", "int"), _SIZE, _BODY), _reduce_scatter_type,
    Exchange(_reducing, _reduce_scatter, _reduce_scatter_by, _scattered_scratch),
    "replica_groups = [], scatter_dimension = 0, shard_count = 1, SUM")  # fmt: skip
all_to_all: Op = _collective(
    "all_to_all", "Part k of each device's operand goes to device k of its group; with split_dimension -1, operand k goes there.",
    (_GROUPS, _CHANNEL, Attr("split_dimension", "int", -1), Attr("concat_dimension", "int", -1), Attr("split_count", "int")),
    _all_to_all_type, Exchange(_moving_all, _all_to_all, _all_to_all_by, _swapped_scratch),
    "replica_groups = [], split_dimension = 0, concat_dimension = 0, split_count = 1")  # fmt: skip
collective_permute: Op = _collective(
    "collective_permute", "Sent from source to target; zeros where nothing arrives.",
    (Attr("source_target_pairs", "any", check=_OF_NUMBERS & _PAIRS), _CHANNEL), _same_types,
    Exchange(_permuting, _permute), "source_target_pairs = [[0, 0]]")  # fmt: skip
collective_broadcast: Op = _collective(
    "collective_broadcast", "The operands of the first device of each group; zeros outside all groups.",
    (_GROUPS, _CHANNEL, Attr("has_dynamic_root", "bool", False, "the last operand says which member each operand is from")),
    _broadcast_type, Exchange(_moving, _broadcast), "replica_groups = []")  # fmt: skip
collective_reduce: Op = _collective(
    "collective_reduce", "Each operand combined over a group, for its first device; zeros for the others.",
    (_GROUPS, _CHANNEL, _GLOBAL, _BODY), _all_reduce_type, Exchange(_reducing, _to_root), "replica_groups = [], SUM")  # fmt: skip


# --- without the state --------------------------------------------------------------------------------------------


def _spmd(op: Op, example: str, transpose: Callable[[Builder, Node, Node], Node], *dims: str) -> Op:
    """The same among devices that all run one schedule, as a partitioner makes it: no other order is to be kept, hence no state.

    It is linear in what all devices bring; `transpose(b, node, cotangent)` takes what all of them have of cotangents back. Devices
    that do not meet in it may have parts of each operand, but along the dimensions that the attributes `dims` name.
    """

    def infer(types: Sequence[Type], *values: Any) -> Type:
        whole = op.infer((STATE, *types), *values)
        assert isinstance(whole, TupleType)
        return whole.items[0]

    assert op.exchange is not None
    exchange = op.exchange
    return Op(f"spmd_{op.name}", f"{op.summary} Made by a partitioner: pure.", operands=(Operand("operand", type=TENSOR),),
              attrs=op.attrs, infer=infer, eval=lambda xs, *values: exchange.alone(xs, values)[0], exchange=exchange,
              vjp=lambda b, node, g: (transpose(b, node, g),), sharding=beside(*dims), foldable=False,
              example=examples.spmd_collective(f"spmd_{op.name}", example), source=op.source)


def _summed(node: Node) -> Function:
    """The computation of a node, which has to be a sum. Raises InferError for any other."""
    body: Function = node.attr("computation")
    if body.reducer is None or body.reducer.name != "add":
        raise InferError(f"{node.op.name} has a gradient for sums alone, not for '{body.name}'")
    return body


def _sum_of(b: Builder, node: Node) -> Function:
    """The sum of two elements of the type of a node."""
    t = scalar(as_tensor(node.type).dtype)
    return b.function("add", (("a", t), ("b", t)), lambda x, y: (Builder()(elementwise.add, x, y),), public=False)


def _meeting(node: Node) -> dict[str, Any]:
    return {name: node.attr(name) for name in ("replica_groups", "channel_id", "use_global_device_ids")}


spmd_all_reduce: Op = _spmd(
    all_reduce, "replica_groups = [], SUM",
    lambda b, node, g: b(spmd_all_reduce, g, **_meeting(node), computation=_summed(node)))
spmd_all_gather: Op = _spmd(
    all_gather, "replica_groups = [], all_gather_dim = 0, shard_count = 1",
    lambda b, node, g: b(spmd_reduce_scatter, g, **_meeting(node), scatter_dimension=node.attr("all_gather_dim"),
                         shard_count=node.attr("shard_count"), computation=_sum_of(b, node)),
    "all_gather_dim")
spmd_reduce_scatter: Op = _spmd(
    reduce_scatter, "replica_groups = [], scatter_dimension = 0, shard_count = 1, SUM",
    lambda b, node, g: b(spmd_all_gather, g, **_meeting(node), all_gather_dim=node.attr("scatter_dimension"),
                         shard_count=_summed(node) and node.attr("shard_count")),
    "scatter_dimension")
spmd_all_to_all: Op = _spmd(
    all_to_all, "replica_groups = [], split_dimension = 0, concat_dimension = 0, split_count = 1",
    lambda b, node, g: b(spmd_all_to_all, g, replica_groups=node.attr("replica_groups"), channel_id=node.attr("channel_id"),
                         split_dimension=node.attr("concat_dimension"), concat_dimension=node.attr("split_dimension"),
                         split_count=node.attr("split_count")),
    "split_dimension", "concat_dimension")
spmd_collective_permute: Op = _spmd(
    collective_permute, "source_target_pairs = [[0, 0]]",
    lambda b, node, g: b(spmd_collective_permute, g, channel_id=node.attr("channel_id"), source_target_pairs=tuple(
        sorted((target, source) for source, target in node.attr("source_target_pairs")))))


PURE: dict[Op, Op] = {all_reduce: spmd_all_reduce, all_gather: spmd_all_gather, reduce_scatter: spmd_reduce_scatter,
                      all_to_all: spmd_all_to_all, collective_permute: spmd_collective_permute}
"""The collective of a partitioner that is another without the state and with one operand."""


def _number(name: str, summary: str, of: Callable[[Grid, int], int]) -> Op:
    exchange = Exchange(lambda grid, device: (device,), lambda grid, group, values: [[np.uint32(of(grid, group[0]))]])
    return Op(name, summary, infer=lambda types: scalar(U32), eval=lambda xs: np.asarray(exchange.alone(xs, ())[0]),
              exchange=exchange, foldable=False, source=f"StableHLO {name}")


partition_id: Op = _number("partition_id", "The number of this device's partition.", Grid.partition)
replica_id: Op = _number("replica_id", "The number of this device's replica.", Grid.replica)
