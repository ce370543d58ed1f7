"""The epilogue of a convolution, share by share: elementwise steps on its results while they are in a cache.

A function of one convolution and elementwise steps is taken apart here; the steps become a kernel of their own, of which each share
of the convolution runs the rows that it has finished. They read and write the results in place. `with_fused_epilogue` makes such
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.rebuild import inlined, rebuild, replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.runtime.native.convolution.plan import ConvolutionPlan
from deepx_graph.runtime.native.loopnest.kernel import NativeKernel, attempt


@dataclass(frozen=True)
class FusedConvolution:
    """A convolution of parameters and constants, and the function of the epilogue: its first parameter is the convolution's
    result, the others are the parameters `params` of the whole. None where nothing follows."""

    node: Node
    epilogue: Function | None
    params: tuple[int, ...]


def parts_of(function: Function, op: Op = convolution) -> FusedConvolution | str:
    """A function taken apart, or why it is not one operation of that kind and its epilogue."""
    nodes = [n for n in function.nodes if n.op is op]
    if len(nodes) != 1 or any(i.op not in (PARAM, CONSTANT) for i in nodes[0].inputs) or len(function.results) != 1:
        return f"not one {op.name} of what is given"
    node, result = nodes[0], function.results[0]
    if node is result:
        return FusedConvolution(node, None, ())
    b = Builder()
    used = [k for k, p in enumerate(function.params) if any(u is not node for u in function.users[p])]
    first, *others = (b.param(k, n.type) for k, n in enumerate((node, *(function.params[k] for k in used))))
    new = {node: first} | {function.params[k]: other for k, other in zip(used, others, strict=True)}
    rebuild(function.nodes, new)
    return FusedConvolution(node, Function("epilogue", (first, *others), (new[result],)), tuple(used))


def epilogue_of(parts: FusedConvolution, plan: ConvolutionPlan, threads: int) -> NativeKernel | str | None:
    """The kernel of the epilogue, one sweep of rows of which none belongs to two shares; or why there is none."""
    if parts.epilogue is None:
        return None
    if plan.apart == len(plan.extents):
        return "the epilogue has no whole rows in a share"
    kernel = attempt(parts.epilogue, threads, plan.apart)
    if isinstance(kernel, str):
        return kernel
    in_one_sweep = 0 in kernel.in_place[0] and not kernel.layout.scratch_bytes and not kernel.own_bytes
    return kernel if in_one_sweep and parts.epilogue.results[0].type == parts.node.type else "the epilogue is not in place"


def with_fused_epilogue(function: Function, accepts: Callable[[Function], bool], op: Op = convolution) -> Function:
    """The function with each convolution (or other `op`), and the one node that reads it, as a fusion; where its body is accepted.

    Constants go into the body, so that weights that never change are packed once. Linear in the nodes of the function.
    """
    found: dict[Node, Node] = {}  # the last node of what is joined, to the convolution
    bodies: dict[Node, tuple[Function, tuple[Node, ...]]] = {}
    for node in function.nodes:
        if node.op is op:
            for last in _ends(function, node):
                body, inputs = _body(node, last)
                if last not in found and accepts(body):
                    found[last], bodies[last] = node, (body, inputs)
                    break
    new: dict[Node, Node] = {}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node not in found:
            return with_inputs(node, inputs)
        body, outside = bodies[node]
        return Node(fusion, tuple(new[i] for i in outside), (body,), node.type, node.origin)

    return replaced(function, rebuild(function.nodes, new, step)) if found else function


def _ends(function: Function, node: Node) -> list[Node]:
    """What a convolution may be joined up to: the only node that reads it, itself where its weights are constant."""
    ends = [node] if node.op is convolution and node.inputs[1].op is CONSTANT else []
    readers = function.users[node]
    if node not in function.results and len(set(readers)) == 1:
        reader = readers[0]
        if (reader.op is fusion or reader.op.elementwise) and reader.type == node.type:
            ends.insert(0, reader)
    return ends


def _body(node: Node, last: Node) -> tuple[Function, tuple[Node, ...]]:
    """The function of a convolution up to `last`, and its arguments."""
    outside = dict.fromkeys(i for n in (node, last) for i in n.inputs if i is not node and i.op is not CONSTANT)
    b = Builder()
    new = {i: b.param(k, i.type) for k, i in enumerate(outside)}
    new |= {i: i for n in (node, last) for i in n.inputs if i.op is CONSTANT}
    params = tuple(new[i] for i in outside)
    new[node] = with_inputs(node, tuple(new[i] for i in node.inputs))
    if last is node:
        return Function("fusion", params, (new[node],)), tuple(outside)
    inputs = tuple(new[i] for i in last.inputs)
    (result,) = inlined(last.attr("body"), inputs) if last.op is fusion else (with_inputs(last, inputs),)
    return Function("fusion", params, (result,)), tuple(outside)
