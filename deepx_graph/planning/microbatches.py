"""The program of one microbatch: what a data parallel device computes on its part of the batch, before gradients are summed.

A batch can be cut into microbatches where data parallel devices would need nothing of one another but the sum of results. So
the partitioner makes the program, and says where it cannot be done. Results of all microbatches are to be added.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt
from deepx_graph.sharding.mesh import Mesh, split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.types import as_tensor

AXIS = "microbatch"


def microbatch_program(module: Module, batch: Sequence[str], count: int) -> Function:
    """The entry on one of `count` parts of the inputs named in `batch`, along their first dimension.

    Raises UsageError for inputs that cannot be cut so, and where parts of the batch need one another.
    """
    function, mesh = module.entry, Mesh(((AXIS, max(1, count)),))
    names = {p.name: p for p in function.params}
    values = {}
    for name in batch:
        p = names.get(name)
        shape = as_tensor(p.type).shape if p is not None else ()
        if p is None or not shape or shape[0] % max(1, count):
            raise UsageError(Diagnostic(f"input '{name}' cannot be cut into {count} parts along its first dimension",
                                        expected=f"inputs of the program, of a multiple of {count} rows"))
        values[p] = split((mesh.axis(AXIS),), *([()] * (len(shape) - 1)))
    for p in function.params:
        values.setdefault(p, split(*([()] * len(as_tensor(p.type).shape))))
    if count == 1:
        return function
    whole = {k: split(*([()] * len(as_tensor(r.type).shape))) for k, r in enumerate(function.results)}
    local = partition(module, propagate(Plan(mesh, function, values, whole))).module.entry
    return rebuilt(local, lambda n, inputs: _alone(n, inputs, set(local.results)))


def _alone(node: Node, inputs: tuple[Node, ...], results: set[Node]) -> Node:
    """The node without the sum over microbatches of a result, which is added later."""
    if node.op is ops.spmd_all_reduce and node in results and node.attr("computation").reducer is ops.add:
        return inputs[0]
    if node.op.exchange is not None or node.op is ops.partition_id:
        raise UsageError(Diagnostic(f"parts of the batch need one another: {node.op.name}", node.span,
                                    hint="a result must be a sum over the batch; info --mesh and why --collective say more"))
    return node if inputs == node.inputs else Node(node.op, inputs, node.attrs, node.type, node.origin)
