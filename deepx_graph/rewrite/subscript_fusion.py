"""Fusion by composed subscripts: slices, pads, concatenations, gathers and masks are computed where they are read.

A node that moves elements (its declaration says of which operand's element each of its own is) becomes part of the one kernel that
reads it, together with what it reads itself, so that nothing of it is ever in memory. A group has one root, which is in memory; its
other members are read by members alone. A scatter is a root: it takes in what it reads once, and the one number that it may start
from, as a division of integers does its divisor; so is an update of a box, also where it is made of the box that it writes over; a
reduction of several operands is one of what costs little; a sort is one of what has no operands. That, and views, which compute
nothing, are members of every group that reads them; a view that is a result is a root. So is a kernel that puts values of its own
in memory; what else a group would put there is a member where it is there a
row at a time, in loops that are fused. Groups keep to one scope, but that positions which are put together for gathers in a loop
are read where they lie. Those without such a node stay as passes have made them, unless a member is larger than caches are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cache

from deepx_graph.analysis.kinds import ByKind
from deepx_graph.analysis.liveness import liveness
from deepx_graph.analysis.scopes import Placement
from deepx_graph.ir import Function, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.rebuild import inlined, rebuild, replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, index_of
from deepx_graph.loops.elements import has_element, tensor_type
from deepx_graph.loops.lower import CHEAP, element_cost, lower, stored_values
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduce
from deepx_graph.ops.data.fusion import fused_body, fusion
from deepx_graph.ops.tensor.index import dynamic_slice, dynamic_update_slice, gather, scatter
from deepx_graph.ops.tensor.index_select import torch_index_select
from deepx_graph.ops.tensor.layout import reshape, transpose
from deepx_graph.ops.tensor.shape import concatenate, pad
from deepx_graph.ops.tensor.sort import sort
from deepx_graph.types import TensorType, TupleType, Type, is_static, leaves

MOST_OPS = 200
"""A group of more operations is cut."""

CACHE_BYTES = 256 << 10
"""What a core has near: values of so many bytes are stored and loaded at the speed of arithmetic."""

FAR = 1 << 20
"""A value of so many elements is in no cache when it is read: it is made where that is done, though nothing is moved."""

MOST_ROUNDS = 8
"""How often groups are cut at what their loops would put in memory; those that would still do so are left alone."""

MOST_TRANSPOSED = 1 << 14
"""Elements of a transpose that a loop reads as they come; of more, tiles are read, which a kernel of its own does."""

MOST_APART = 4
"""How far apart neighbours of a result may be in the operand: a few vectors of it hold a vector of the result."""

FEW_PICKED = 4
"""An element that is picked from what is put together takes no longer than to store and load so many of that."""

WRITES = (scatter, dynamic_update_slice)
"""Operations that write over parts of their first operand."""

_LOOKS_UP = (dynamic_slice, gather, torch_index_select)
"""Operations that read their first operand at computed positions."""


@dataclass(frozen=True)
class FusedGroup:
    """A root and its members as a function: `inputs` are the outside values for its parameters, `owner` says of which member each
    of its nodes is."""

    root: Node
    inputs: tuple[Node, ...]
    body: Function
    owner: dict[Node, Node]


KernelOf = Callable[[Function], object | None]


def with_composed_subscripts(function: Function, kernel_of: KernelOf) -> Function:
    """The function with each group that moves elements as one fusion, where its body has a kernel; itself where there is none."""
    if not any(_pays(n, n) or _needs_one_number(n) for n in function.nodes):
        return function
    groups = {g.root: g for g in _groups(function, kernel_of) if kernel_of(g.body) is not None}
    new: dict[Node, Node] = {}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node not in groups:
            return with_inputs(node, inputs)
        group = groups[node]
        return Node(fusion, tuple(new[i] for i in group.inputs), (group.body,), node.type, node.origin)

    return replaced(function, rebuild(function.nodes, new, step)) if groups else function


def _groups(function: Function, kernel_of: KernelOf) -> Sequence[FusedGroup]:
    """The groups that move elements and put nothing but their roots in memory."""
    candidates = _Candidates(function, kernel_of)
    whole: dict[tuple[Node, ...], FusedGroup] = {}  # those of which that is known
    in_rows = cache(_is_in_rows)  # the groups of equal layers have equal bodies
    for _ in range(MOST_ROUNDS):
        groups = candidates.groups()
        for members in groups:
            group = whole.get(members) or _fused(members)
            apart = {group.owner[n] for n in stored_values(group.body)} - {group.root} if members not in whole else set()
            apart = apart if apart and not in_rows(group.body) else set()
            candidates.roots |= apart
            if not apart:
                whole[members] = group
        if all(members in whole for members in groups):
            return [whole[members] for members in groups]
    return ()


class _Candidates:
    """What may be grouped. `roots` are nodes that must be in memory, and those that must not be in a group at all."""

    def __init__(self, function: Function, kernel_of: KernelOf) -> None:
        self.function, self.kernel_of = function, kernel_of
        self.scopes = Placement(function, liveness(function)).home
        self.results = set(function.results)
        self.given = set(self.results)
        """The results, and what they only look at in another shape."""
        for node in reversed(function.nodes):
            if node in self.given and node.op is reshape:
                self.given.add(node.inputs[0])
        self.bodies: dict[Function, int | None] = {}
        self.has_own_element = ByKind(_has_own_element)
        self.above: dict[Node, set[Node]] = {}
        """For a scatter what is made of the array that it may write over."""
        self.fitting: set[Node] = set()
        for n in function.nodes:
            if n in self.scopes and (n.inputs[0] in self.fitting if n.op is PROJ else self._fits(n)):
                self.fitting.add(n)
        self.roots = set(filter(_picks_few, function.nodes))
        self.looked_up: set[Node] = set()
        """What is read at computed positions, where no range decides a condition: up to what is in memory."""
        for node in reversed(function.nodes):
            users = self.function.users[node]
            if any((u in self.looked_up and u in self.fitting and not self._is_stored(u))
                   or (u.op in _LOOKS_UP and u.inputs[0] is node) for u in users):
                self.looked_up.add(node)

    def _fits(self, node: Node) -> bool:
        """Whether a group may hold the node: its elements are computed one by one from those of its operands."""
        types = (node.type, *(i.type for i in node.inputs))
        if node.op in (PARAM, CONSTANT, dot_general, convolution) or not all(map(_is_static, types)):
            return False
        if node.op is not fusion:
            return node.op in WRITES or _reads_each_once(node) or self.has_own_element(node)
        return self._stored_in(node.attr("body")) is not None

    def _stored_in(self, body: Function) -> int | None:
        """How many values a fusion puts in memory; None where no group may hold it. Worked out once for layers that are alike."""
        if body not in self.bodies:
            stored, has_products = _stored_of(body), any(n.op in (dot_general, convolution) for n in body.nodes)
            is_kernel = not has_products or (not stored and self.kernel_of(body) is not None)
            self.bodies[body] = stored if is_kernel else None
        return self.bodies[body]

    def _is_stored(self, node: Node) -> bool:
        """Whether the value of a node is put in memory whoever reads it."""
        return node.op in WRITES or _reads_each_once(node) or (
            node.op is fusion and bool(self._stored_in(node.attr("body"))))

    def groups(self) -> list[tuple[Node, ...]]:
        """The members of each group in order, the root last: one pass from users to operands."""
        computed: dict[Node, frozenset[Node | None]] = {}  # the roots of the groups in which a node is; None is outside of all
        members: dict[Node, list[Node]] = {}
        for node in reversed(self.function.nodes):
            readers = frozenset[Node | None]((None,) if node in self.results else ()).union(
                *(computed[u] for u in self.function.users[node] if u in computed))
            found = computed[node] = self._home(node, readers, members)
            for root in found - {None}:
                assert root is not None
                members.setdefault(root, []).append(node)
        groups = [_without_outer_reshapes(found[::-1]) for found in members.values()]
        return [g for g in groups if (len(g) > 1 and any(map(_pays, g, (*g[1:], None)))) or any(map(_needs_one_number, g))]

    def _home(self, node: Node, readers: frozenset[Node | None], members: dict[Node, list[Node]]) -> frozenset[Node | None]:
        """The groups in which a node is: those of all that read it, or one of its own."""
        if node not in self.fitting:
            return frozenset({None})
        if not node.inputs and node not in self.results:
            return readers
        written = any(r is not None and self._reads_what_is_written(node, r) for r in readers)
        if self._is_stored(node) or written:
            return frozenset({node})
        if node.op.view and node.op is not PROJ and node not in self.roots and (node.op is reshape or node not in self.given):
            return frozenset({node}) if None in readers and self._is_part_of_made(node) else readers
        if len(readers) == 1 and node not in self.roots:
            (root,) = readers
            if root is not None and self._may_join(node, members[root]):
                return readers
        return frozenset({None if node.op is PROJ else node})

    def _is_part_of_made(self, node: Node) -> bool:
        """Whether a view is all that is read of a value which is computed: then no more of that than the view shows needs to be."""
        if len(node.inputs) != 1:
            return False
        (made,) = node.inputs
        return (node not in self.given and made in self.fitting and not made.op.view and len(self.function.users[made]) == 1
                and made not in self.results and _size(node) < _size(made))

    def _reads_what_is_written(self, node: Node, root: Node) -> bool:
        """Whether a node is made of the array that a scatter may write over, which it could not if both were one kernel. What of it
        is put in memory is there before."""
        if root.op not in WRITES:
            return False
        if root not in self.above:
            self.above[root] = self._made_of(root.inputs[0], root) - self._in_the_same_place(root)
        return node in self.above[root]

    def _made_of(self, array: Node, root: Node) -> set[Node]:
        """What is computed of an array, below a root, up to what is in memory."""
        found, stack = set[Node](), [array]
        while stack:
            for user in self.function.users[stack.pop()]:
                is_read_there = user.op.view or not self._is_in_memory(user)
                if user is not root and user not in found and is_read_there:
                    found.add(user)
                    stack.append(user)
        return found

    def _in_the_same_place(self, root: Node) -> set[Node]:
        """What is made of the box alone that an update writes over, each element of the one in its place: it is read before it is
        written. Nothing where something else of the update is made of the array."""
        if root.op is not dynamic_update_slice:
            return set()
        array, update, *starts = root.inputs
        made, found = self._made_of(array, root), set[Node]()
        stack = [update]
        while stack:
            node = stack.pop()
            if node not in made or node in found:
                continue
            found.add(node)
            if node.op is not dynamic_slice or node.inputs != (array, *starts) or node.type != update.type:
                if not _keeps_places(node, made):
                    return set()
                stack += node.inputs
        return found

    def _is_in_memory(self, node: Node) -> bool:
        """Whether the value of a node, which is no view, is put in memory for certain: something outside of all groups reads it."""
        return (node not in self.fitting or self._is_stored(node) or node in self.results
                or any(u not in self.fitting for u in self.function.users[node]))

    def _puts_positions_together(self, node: Node) -> bool:
        """Whether a node only puts together what gathers read as positions: each of them is read where it lies, in loops too."""
        return node.op is concatenate and all(
            u.op is gather and u.inputs[0] is not node and u.attr("index_vector_dim") == node.attr("dimension")
            for u in self.function.users[node])

    def _may_join(self, node: Node, members: Sequence[Node]) -> bool:
        """Whether a group has room for a node of its scope, or for positions, and does not do it more slowly: loops that reduce by
        a function, or that ask for each element of which operand it is, are no vectors."""
        root = members[0]
        is_near = self.scopes[node] is self.scopes[root] or self._puts_positions_together(node)
        if root.op is sort or not is_near or sum(map(_ops, (node, *members))) > MOST_OPS:
            return False
        if node in self.looked_up and (
                (node.op in (concatenate, pad) and not (_picks_few(root) and root.inputs[0] is node)) or _size(root) > _size(node)):
            return False
        return _work(node) <= CHEAP or not any(isinstance(u.type, TupleType) and u.op is reduce for u in members)


def _without_outer_reshapes(members: Sequence[Node]) -> tuple[Node, ...]:
    """The members without what only looks at a value from outside in another way: new shapes, and items of tuples."""
    inside: dict[Node, None] = {}
    for node in members:
        if node.op not in (reshape, PROJ) or node.inputs[0] in inside:
            inside[node] = None
    return tuple(inside)


def _stored_of(body: Function) -> int | None:
    try:
        return len(stored_values(body)) if all(n.op in (PARAM, CONSTANT) or has_element(n) for n in body.nodes) else None
    except NotExpressible:
        return None


def _reads_each_once(node: Node) -> bool:
    """Whether the node's loops read each element of its operands once, and are no vectors if these take work."""
    return node.op is sort or (node.op is reduce and isinstance(node.type, TupleType))


def _has_own_element(node: Node) -> bool:
    """Whether an element is computed from those of the operands that its declaration says, and these lie close: a sum reads what it
    adds once, as it is made."""
    if (node.op.loops is not None and node.op is not reduce) or not has_element(node) or _is_scattered(node):
        return False
    try:
        element_cost(node)
    except NotExpressible:
        return False
    return True


def _is_static(type: Type) -> bool:
    return all(isinstance(t, TensorType) and is_static(t) for t in leaves(type))


def _is_in_rows(body: Function) -> bool:
    """Whether what is put in memory is more than a core's cache holds, and there a row at a time: loops that are fused keep it in a
    cache. Less is there anyway, and kernels apart have simpler loops."""
    try:
        program = lower(body)
        return sum(b.nbytes for b in program.scratch) > CACHE_BYTES and not optimised(program).scratch
    except NotExpressible:
        return False


def _keeps_places(node: Node, of: Container[Node]) -> bool:
    """Whether each element of a node is made of elements in its own place alone, of those operands that are `of` these."""
    body = fused_body(node)
    if body is None or len(body.results) > 1:
        return node.op.elementwise
    reached = {p for p, i in zip(body.params, node.inputs, strict=True) if i in of}
    for n in body.nodes:
        if not reached.isdisjoint(n.inputs):
            if not n.op.elementwise:
                return False
            reached.add(n)
    return True


def _is_scattered(node: Node) -> bool:
    """Whether neighbours in the result of a large transpose lie far apart in the operand."""
    if node.op is not transpose:
        return False
    type, permutation = tensor_type(node.inputs[0].type), node.attr("permutation")
    return type.size > MOST_TRANSPOSED and math.prod(type.shape[permutation[-1] + 1 :]) > MOST_APART


def _pays(node: Node, later: Node | None) -> bool:
    """Whether a group with a node, and perhaps a `later` one, is one kernel: it moves elements, or is large and not the root."""
    return _moves(node) or (later is not None and not node.op.view and _size(node) >= FAR)


def _needs_one_number(node: Node) -> bool:
    """Whether the kernel of a node is another one where it knows the number that all elements of an operand are: a scatter fills
    memory with it and reads none, and an integer is divided by it without a division."""
    if node.op is scatter:
        return any(splat_of(i) is not None for i in node.inputs[: len(node.inputs) // 2])
    return node.op.elementwise and any(splat_of(i) is not None and tensor_type(i.type).dtype.is_integer for i in node.inputs) and (
        _has_own_element(node) and _work(node) > CHEAP)


def _picks_few(node: Node) -> bool:
    """Whether a node reads few elements of what is put together: it asks for each of which part it is, in a kernel of its own."""
    return node.op in _LOOKS_UP and node.inputs[0].op in (concatenate, pad) and FEW_PICKED * _size(node) <= _size(node.inputs[0])


def _moves(node: Node) -> bool:
    """Whether the node puts elements elsewhere, or computes what has an element and no kernel expression, as no kernel of
    elementwise operations, broadcasts and reductions does."""
    op = node.op
    if op.elementwise:
        return op.element is not None and (op.kernel is None or op.kernel(*node.attrs) is None)
    return op in WRITES or (op.element is not None and op not in (reduce, broadcast_in_dim, reshape, dot_general, convolution))


def _size(node: Node) -> int:
    """Elements of its largest result; 0 where none is a tensor."""
    return max((t.size for t in leaves(node.type) if isinstance(t, TensorType)), default=0)


def _work(node: Node) -> float:
    """What an element takes, about."""
    if node.op is fusion:
        return sum(_work(n) for n in node.attr("body").nodes if n.op not in (PARAM, CONSTANT))
    return 0.0 if node.op is PROJ else element_cost(node).work


def _ops(node: Node) -> int:
    return len(node.attr("body").nodes) if node.op is fusion else 1


def _fused(members: Sequence[Node]) -> FusedGroup:
    """The function of a group."""
    root = members[-1]
    inside = set(members)
    outside = dict.fromkeys(i for n in members for i in n.inputs if i not in inside and i.op is not CONSTANT)
    params = tuple(Node(PARAM, (), (k, n.type), n.type, n.origin) for k, n in enumerate(outside))
    new: dict[Node, Node] = dict(zip(outside, params, strict=True))
    items: dict[Node, list[Node]] = {}
    owner: dict[Node, Node] = {}
    for node in members:
        if node.op is PROJ:
            new[node] = items[node.inputs[0]][index_of(node)]
            continue
        items[node] = _made(node, [new.get(i, i) for i in node.inputs], owner)
        new[node] = items[node][0]
    return FusedGroup(root, tuple(outside), Function("fusion", params, tuple(items[root]), public=False), owner)


def _made(node: Node, inputs: Sequence[Node], owner: dict[Node, Node]) -> list[Node]:
    """The nodes for the results of a member over these inputs; `owner` learns whose the new nodes are."""

    def step(part: Node, operands: tuple[Node, ...]) -> Node:
        made = with_inputs(part, operands)
        owner[made] = node
        return made

    if node.op is fusion:
        return inlined(node.attr("body"), inputs, step)
    made = step(node, tuple(inputs))
    if not isinstance(node.type, TupleType):
        return [made]
    return [Node(PROJ, (made,), (k,), type, node.origin) for k, type in enumerate(node.type.items)]
