"""The program of one microbatch: what a data parallel device computes on its part of the batch, before gradients are summed.

A batch can be cut into microbatches where data parallel devices would need nothing of one another but the sum of results. So
the partitioner makes the program, and says where it cannot be done. Results of all microbatches are to be added.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, UsageError, suggest
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

    Raises UsageError for no inputs or such as cannot be cut so, and where parts of the batch need one another.
    """
    if not batch and count > 1:
        raise UsageError(Diagnostic("a pipeline works on microbatches", expected="the inputs that are cut into them"))
    function, mesh = module.entry, Mesh(((AXIS, max(1, count)),))
    names = {p.name: p for p in function.params}
    values = {}
    for name in batch:
        p = names.get(name)
        if p is None:
            raise UsageError(Diagnostic(f"the program has no input '{name}' to cut into microbatches",
                                        expected="one of " + ", ".join(names), hint=suggest(name, names)))
        shape = as_tensor(p.type).shape
        if not shape or shape[0] % max(1, count):
            raise UsageError(Diagnostic(f"input '{name}' cannot be cut into {count} parts along its first dimension",
                                        expected=f"a multiple of {count} rows"))
        values[p] = split((mesh.axis(AXIS),), *([()] * (len(shape) - 1)))
    for p in function.params:
        values.setdefault(p, split(*([()] * len(as_tensor(p.type).shape))))
    if count == 1:
        return function
    whole = {k: split(*([()] * len(as_tensor(r.type).shape))) for k, r in enumerate(function.results)}
    local = partition(module, propagate(Plan(mesh, function, values, whole))).module.entry
    sums = _sums(local, frozenset(p for p in local.params if p.name in batch))
    found = rebuilt(local, lambda n, inputs: _alone(n, inputs, sums))
    for result in local.results:
        if result not in sums:
            raise UsageError(Diagnostic("a result is no sum over the batch", result.span, hint=HINT))
    return found


HINT = "results must be sums over the batch, or linear in such; info --mesh and why --collective say more"

_LINEAR = (ops.negate, ops.reshape, ops.broadcast_in_dim, ops.transpose, ops.add, ops.subtract)
"""What is linear in all of its operands together."""

_SCALED = (ops.multiply, ops.divide)
"""What is linear in the first operand where the second one is the same for all microbatches."""


def _sums(local: Function, batch: frozenset[Node]) -> frozenset[Node]:
    """The values that are linear in sums over all microbatches, and so sums themselves, of what each of them makes of its part."""
    found: set[Node] = set()
    varying = set(batch)
    for node in local.nodes:
        if varying.intersection(node.inputs):
            varying.add(node)
        operands = node.inputs[::-1] if node.op is ops.multiply and node.inputs[0] not in found else node.inputs
        is_sum = node.op is ops.spmd_all_reduce and node.attr("computation").reducer is ops.add
        is_linear = node.op in _LINEAR and found.issuperset(operands)
        is_scaled = node.op in _SCALED and operands[0] in found and not varying.intersection(operands[1:])
        if is_sum or is_linear or is_scaled:
            found.add(node)
    return frozenset(found)


def _alone(node: Node, inputs: tuple[Node, ...], sums: frozenset[Node]) -> Node:
    """The node without the sum over microbatches, which is added later where all else is linear in it."""
    if node.op is ops.spmd_all_reduce and node in sums:
        return inputs[0]
    needs = node not in sums and sums.intersection(node.inputs)
    if node.op.exchange is not None or node.op is ops.partition_id or needs:
        raise UsageError(Diagnostic(f"parts of the batch need one another: {node.op.name}", node.span, hint=HINT))
    return node if inputs == node.inputs else Node(node.op, inputs, node.attrs, node.type, node.origin)
