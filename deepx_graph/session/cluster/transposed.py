"""The gradient of the program of one device, by the transposes of its collectives: for programs that are split by hand already.

Where shardings are stated, gradients are taken first and split after. What `shard_map` has made is split; its gradient is that of
all devices together: a whole result is that of the devices that are first along the axes that do not split it, and a whole input
has the sum of the gradients of all its copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepx_graph import ops
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.rebuild import inlined
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.sharding.mesh import Axes, TensorSharding, count_of, local_shape
from deepx_graph.sharding.moves import Mover
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.types import I32, TensorType, as_tensor


def local_gradient(local: Partitioned, wrt: Sequence[str]) -> Partitioned:
    """The program of one device that gives the gradients of the inputs `wrt`, which lie as these; it takes the inputs, and a
    cotangent for each floating result, which lies as that. Raises as `grad` does; UsageError for an input that is padded."""
    entry = local.module.entry
    module = grad(local.module, wrt)
    given = dict(zip((p.name for p in entry.params), local.params, strict=True))
    shapes = {p.name: as_tensor(p.type).shape for p in entry.params}
    floating = [k for k, r in enumerate(entry.results) if isinstance(r.type, TensorType) and r.type.dtype.is_float]
    cotangents = [local.results[k] for k in floating]
    if any(local_shape(local.shapes[k], local.results[k].axes) != as_tensor(entry.results[k].type).shape for k in floating):
        raise UsageError("the gradient of a result of another size than its parts make")
    b = Builder()
    mover = Mover(b, local.mesh)
    old = module.entry
    params = [b.param(k, p.type, p.name) for k, p in enumerate(old.params)]
    first = len(entry.params)
    seeds = [_seed(mover, local, p, s) for p, s in zip(params[first:], cotangents, strict=True)]
    found = inlined(old, [*params[:first], *seeds])
    results = tuple(_summed(b, local, g, given[name]) for name, g in zip(wrt, found, strict=True))
    function = old.with_(params=tuple(params), results=results)
    whole = tuple(tuple(n * count_of(a) for n, a in zip(shapes[name], given[name].axes, strict=True)) for name in wrt)
    return replace(local, module=module.with_functions([function]), params=(*local.params, *cotangents),
                   results=tuple(given[name] for name in wrt), shapes=whole, meetings=())


def _missing(local: Partitioned, sharding: TensorSharding) -> Axes:
    return local.mesh.without(a for axes in sharding.axes for a in axes)


def _seed(mover: Mover, local: Partitioned, cotangent: Node, sharding: TensorSharding) -> Node:
    """The cotangent where the device has the copy that counts, else zeros."""
    missing = _missing(local, sharding)
    if not missing:
        return cotangent
    counts = mover.here([int(local.mesh.index(d, missing) == 0) for d in range(local.mesh.count)])
    is_first = mover.b(ops.compare, counts, mover.b.constant(1, I32), direction="EQ")
    return mover.b(ops.select, is_first, cotangent, mover.b.like(0, cotangent))


def _summed(b: Builder, local: Partitioned, gradient: Node, sharding: TensorSharding) -> Node:
    """The sum over the copies of an input."""
    missing = _missing(local, sharding)
    if not missing:
        return gradient
    return b(ops.spmd_all_reduce, gradient, replica_groups=local.mesh.groups(missing), channel_id=1, use_global_device_ids=True,
             computation=monoid_body(ops.add, as_tensor(gradient.type).dtype))
