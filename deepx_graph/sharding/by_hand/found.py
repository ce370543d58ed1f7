"""Computations by hand found again in a function as readers make them: `run_parallel` over even parts of the operands, whose
results are joined. Only where all of that is there and nothing else looks at the parts: passes may have changed it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepx_graph import ops
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import PARTIAL, PROJ, callee_of, index_of
from deepx_graph.sharding.by_hand.manual import StatedByHand, position, result_of, stated_by_hand
from deepx_graph.sharding.mesh import Axes, Mesh, count_of
from deepx_graph.types import as_tensor, is_state


@dataclass(frozen=True)
class FoundByHand:
    """One computation: what it states, the function of a device, whole operands, the whole results that are read by number, and the
    nodes that only cut and join."""

    stated: StatedByHand
    callee: str
    operands: tuple[Node, ...]
    results: tuple[tuple[int, Node], ...]
    apart: frozenset[Node]


def found_by_hand(function: Function) -> dict[Node, FoundByHand]:
    """The computations by hand of a function whose state orders them alone."""
    return {n: found for n in function.nodes if (stated := stated_by_hand(n)) is not None
            and (found := _found(function, n, stated)) is not None}


def _found(function: Function, node: Node, stated: StatedByHand) -> FoundByHand | None:
    given, mesh = node.op.named(node.inputs, node.attrs), stated.mesh
    programs, args = given["programs"], given["args"]
    callees = {callee_of(p) if p.op is PARTIAL and not p.inputs else "" for p in programs}
    if len(callees) != 1 or "" in callees or given["infeed"] or (node.attr("replicas"), len(programs)) != (1, mesh.count):
        return None
    before, after = ([s.axes for s in stated.split(each)] for each in (stated.before, stated.after))
    operands: list[Node] = []
    for k, axes in enumerate(before):
        wholes = {_whole_of(x, mesh, axes, d) for d, x in enumerate(args[k :: len(before)])}
        if len(wholes) != 1 or (whole := wholes.pop()) is None:
            return None
        operands.append(whole)
    read = [u for u in function.users[node] if not is_state(u.type)]
    results, joining = [], set[Node]()
    for k in sorted({index_of(u) % len(after) for u in read}):
        root = _joined(function, next(u for u in read if index_of(u) % len(after) == k), math.prod(map(count_of, after[k])))
        leaves = [*_leaves(root, (0,) * len(as_tensor(root.type).shape), joining)]
        if len(leaves) != math.prod(map(count_of, after[k])) or not all(
                _is_part(leaf, at, node, k, mesh, after) for leaf, at in leaves):
            return None
        named = [u for u in function.users[root] if result_of(u) is not None]
        results.append((k, named[0] if len(named) == len(function.users[root]) == 1 else root))
    ends = {n for _, n in results}
    inner, cuts = joining - ends, {x for x in args if x not in operands and set(function.users[x]) == {node}}
    if not joining.issuperset(read) or any(u not in joining | ends for n in inner for u in function.users[n]) or (
            (inner | cuts).intersection((*function.results, *function.beside))):
        return None
    return FoundByHand(stated, next(iter(callees)), tuple(operands), tuple(results), frozenset(joining | cuts | ends))


def _whole_of(x: Node, mesh: Mesh, axes: Sequence[Axes], device: int) -> Node | None:
    """The value of which x is the part of a device."""
    counts = [count_of(a) for a in axes]
    if all(n == 1 for n in counts):
        return x
    if x.op is not ops.slice_:
        return None
    shape = as_tensor(x.type).shape
    start = tuple(at * size for at, size in zip(position(mesh, axes, device), shape, strict=True))
    whole = tuple(n * size for n, size in zip(counts, shape, strict=True))
    is_part = x.attr("start_indices") == start and set(x.attr("strides")) == {1} and as_tensor(x.inputs[0].type).shape == whole
    return x.inputs[0] if is_part else None


def _joined(function: Function, part: Node, count: int) -> Node:
    """What so many parts are joined to of which this is the first one; something else where they are not."""
    whole = part
    while len([*_leaves(whole, (0,) * len(as_tensor(whole.type).shape), set())]) < count:
        user = next(iter(function.users[whole]), None)
        if user is None or user.op is not ops.concatenate:
            break
        whole = user
    return whole


def _leaves(node: Node, at: tuple[int, ...], joining: set[Node]) -> Iterator[tuple[Node, tuple[int, ...]]]:
    """What is joined to a node, with where each part begins."""
    joining.add(node)
    if node.op is not ops.concatenate:
        yield node, at
        return
    dim = node.attr("dimension")
    for part in node.inputs:
        yield from _leaves(part, at, joining)
        at = (*at[:dim], at[dim] + as_tensor(part.type).shape[dim], *at[dim + 1 :])


def _is_part(leaf: Node, at: tuple[int, ...], node: Node, k: int, mesh: Mesh, after: Sequence[Sequence[Axes]]) -> bool:
    """Whether a leaf is what a device gives as result k, and lies where that device's part does."""
    if leaf.op is not PROJ or leaf.inputs[0] is not node:
        return False
    device, number = divmod(index_of(leaf), len(after))
    shape = as_tensor(leaf.type).shape
    return number == k and at == tuple(n * size for n, size in zip(position(mesh, after[k], device), shape, strict=True))
