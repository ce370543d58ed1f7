"""Loop distribution: a kernel of several results that reads next to nothing is taken apart where one is read only after another was
read last (K. Kennedy, K. S. McKinley, Loop distribution with arbitrary control flow, 1990).

So random numbers of a second round, made of a key and positions, take no memory in the first. What such a kernel makes alone is
made right before it is read, behind loops too. A kernel is also taken apart where each of its results is but what an update writes
over a box: each part then is one with its update.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence

from deepx_graph.ir import Function, Node
from deepx_graph.ir.rebuild import rebuild, replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, index_of, projections
from deepx_graph.loops.in_place import LEAST_BYTES
from deepx_graph.ops.contract.reduce import broadcast_in_dim
from deepx_graph.ops.data.fusion import fused_body, fusion_of, part_of
from deepx_graph.ops.tensor.index import dynamic_update_slice
from deepx_graph.rewrite.rematerialisation import MOST_WORK, is_kernel, is_tensor, work
from deepx_graph.types import TensorType, TupleType, is_static, nbytes


def with_late_results(function: Function, has_kernel: Callable[[Function], bool]) -> Function:
    """The function with such values made by kernels of their own, right before they are read; itself where there are none, or where
    there is no machine code for one of these kernels. Takes time linear in the function."""
    late = _late(function)
    if not late:
        return function
    makers = {value.inputs[0]: [k for k, v in _items(function, value.inputs[0]).items() if v not in late]
              for value in late if value.op is PROJ}
    new, bodies = dict[Node, Node](), list[Function]()

    def part(maker: Node, numbers: Sequence[int]) -> Node:
        whole = fused_body(maker)
        assert whole is not None
        body, used = part_of(whole, numbers)
        bodies.append(body)
        return fusion_of(body, [new[maker.inputs[k]] for k in used], maker.origin)

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node in late:
            return part(node.inputs[0], [index_of(node)]) if node.op is PROJ else node.over(inputs)
        if node in makers:
            return part(node, makers[node])
        if node.op is PROJ and node.inputs[0] in makers:
            kept = makers[node.inputs[0]]
            return inputs[0] if len(kept) == 1 else Node(PROJ, inputs, (kept.index(index_of(node)),), node.type, node.origin)
        return with_inputs(node, inputs)

    found = replaced(function, rebuild(_moved(function, late), new, step))
    return found if all(map(has_kernel, dict.fromkeys(bodies))) else function


def with_updates_apart(function: Function) -> Function:
    """The function with kernels of results that updates write, each one of them, as a kernel for each; itself where there is none
    of which the results have next to nothing in common."""
    makers = {n for n in function.nodes if _is_for_updates(function, n)}
    if not makers:
        return function
    new: dict[Node, Node] = {}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op is not PROJ or node.inputs[0] not in makers:
            return with_inputs(node, inputs)
        maker = node.inputs[0]
        whole = fused_body(maker)
        assert whole is not None
        body, used = part_of(whole, [index_of(node)])
        return fusion_of(body, [new[maker.inputs[k]] for k in used], maker.origin)

    return replaced(function, rebuild(function.nodes, new, step))


def _is_for_updates(function: Function, maker: Node) -> bool:
    """Whether an elementwise kernel of several results makes what updates write, each of them one result, which is nothing else."""
    body, users = fused_body(maker), function.users[maker]
    if body is None or len(body.results) < 2 or len(users) < len(body.results) or not all(_is_written(function, u) for u in users):
        return False
    is_elementwise = all(n.op.elementwise or not n.inputs or n.op is broadcast_in_dim for n in body.nodes)
    return is_elementwise and all(_is_made_of_little(maker, k) for k in range(len(body.results)))


def _is_written(function: Function, value: Node) -> bool:
    """Whether a value is but what one update writes."""
    readers = function.users[value]
    return value not in function.results and len(readers) == 1 and (
        readers[0].op is dynamic_update_slice and readers[0].inputs[1] is value)


def _moved(function: Function, late: Mapping[Node, int]) -> list[Node]:
    """The nodes in their order, but for the late ones: each before the position at which it is read first."""
    before: dict[int, list[Node]] = {}
    for value, at in late.items():
        before.setdefault(at, []).append(value)
    found: list[Node] = []
    for at, node in enumerate(function.nodes):
        found += before.get(at, ())
        found += () if node in late else (node,)
    return found + before.get(len(function.nodes), [])


def _late(function: Function) -> dict[Node, int]:
    """The values to be made later, and the position of what reads each first; that of results is the end."""
    position = {n: k for k, n in enumerate(function.nodes)}
    end, results = len(position), frozenset(function.results)
    large = [k for k, n in enumerate(function.nodes) if _is_large(n)]
    found: dict[Node, int] = {}
    for maker in function.nodes:
        items = _items(function, maker)
        reads = {k: [*(position[r] for r in function.users[v]), *([end] if v in results else [])] for k, v in items.items()}
        for k, v in items.items():
            waits = bisect_right(large, position[v]) < bisect_left(large, min(reads[k])) if v is maker else (
                any(max(reads[j]) < min(reads[k]) for j in items if j != k) and _is_made_of_little(maker, k))
            if waits:
                found[v] = min(reads[k])
    return found


def _items(function: Function, maker: Node) -> dict[int, Node]:
    """The large results of a kernel, by their numbers, where it reads next to nothing and each result is read."""
    types = maker.type.items if isinstance(maker.type, TupleType) else (maker.type,)
    if not is_kernel(maker) or not all(isinstance(t, TensorType) and is_static(t) and nbytes(t) >= LEAST_BYTES for t in types):
        return {}
    if not all(is_static(i.type) for i in maker.inputs) or sum(nbytes(i.type) for i in maker.inputs) >= LEAST_BYTES:
        return {}
    users = function.users[maker]
    found = projections(users) if isinstance(maker.type, TupleType) else {0: maker}
    is_whole = found.get(0) is maker or len(found) == len(users) == len(types)
    return found if is_whole and all(function.users[v] or v in function.results for v in found.values()) else {}


def _is_large(node: Node) -> bool:
    """Whether a node makes a tensor that takes memory."""
    return node.op not in (PARAM, CONSTANT) and not node.op.view and is_tensor(node) and nbytes(node.type) >= LEAST_BYTES


def _is_made_of_little(maker: Node, number: int) -> bool:
    """Whether what a result has in common with others takes no longer again than to store and load it."""
    body = fused_body(maker)
    assert body is not None
    alone, rest = (Function("part", (), tuple(r for k, r in enumerate(body.results) if (k == number) == own)).nodes
                   for own in (True, False))
    return sum(work(n) for n in set(alone).intersection(rest) if n.op is not PARAM) <= MOST_WORK
