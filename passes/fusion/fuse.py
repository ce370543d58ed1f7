"""`fuse` puts operations that can run in one pass over their data into `fusion` nodes; `unfuse` takes them out again.

A kernel holds elementwise maps, the broadcasts they read, and reductions over the same axes with what feeds and follows them: a
softmax or a layer norm is one kernel. What may join is decided in `grouping`; the reasons are those that `why` shows.

A kernel's body is in a normal form that engines rely on: members have the full shape of the kernel's space, or that of its rows
with the reduced axes dropped (never kept with size 1); everything else in it is a parameter, a constant with one value, or a
broadcast to one of these two shapes. Names and source spans are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from deepx_graph.errors import UsageError
from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.rebuild import copied, inlined, new_item, on_demand, rebuilt, with_inputs, with_results
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, TUPLE, value_of
from deepx_graph.literal import Literal
from deepx_graph.ops import broadcast_in_dim, fusion, reshape
from deepx_graph.ops.contract.reduce import reduced_axes
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.passes.fusion.grouping import Group, Grouping
from deepx_graph.passes.fusion.iteration_space import Link, dims, is_adapter
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.types import TensorType, Type, is_static, tensor


@dataclass(frozen=True)
class Fuse(Pass):
    """Joins operations into kernels that go through their data once.

    `max_ops` and `max_inputs` bound a kernel; `reductions` lets it reduce; `duplicate` computes cheap operations again in each
    kernel that needs them. Raises UsageError for a bound below 2 operations or 1 input.
    """

    name: ClassVar[str] = "fuse"
    max_ops: int = 200
    max_inputs: int = 32
    reductions: bool = True
    duplicate: bool = False

    def __post_init__(self) -> None:
        if self.max_ops < 2 or self.max_inputs < 1:
            raise UsageError("fuse needs max-ops of at least 2 and max-inputs of at least 1")

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        """The module with its functions fused; itself where nothing can be."""
        return module.with_functions(
            f if control.exhausted else with_kernels(Grouping(f, self), control) for f in module.functions
        )


@dataclass(frozen=True)
class Unfuse(Pass):
    """Puts the operations of every kernel back into the function."""

    name: ClassVar[str] = "unfuse"

    def run(self, module: Module) -> Module:
        """The module without `fusion` nodes; itself when it has none."""
        return module.with_functions(map(unfused, module.functions))


def unfused(function: Function) -> Function:
    """The function with every `fusion` node replaced by its body; itself when it has none."""
    return rebuilt(function, _opened)


def _opened(node: Node, inputs: tuple[Node, ...]) -> Node:
    body = kernel_body(node)
    if body is None:
        return new_item(node, inputs) or with_inputs(node, inputs)
    made = inlined(body, inputs, copied)
    return made[0] if len(made) == 1 else Node(TUPLE, tuple(made), (), node.type, node.origin)


# --- from groups to kernels -------------------------------------------------------------------------------------------


def with_kernels(grouping: Grouping, control: RewriteControl) -> Function:
    """The function with a `fusion` node for every group of more than one operation; itself when there is none."""
    groups = {id(g): g for g in grouping.group_of.values()}
    if not any(g.is_kernel for g in groups.values()):
        return grouping.function
    return _Rebuilder(grouping, control).function()


class _Rebuilder:
    """Builds units in order; `new` maps old nodes to new ones."""

    def __init__(self, grouping: Grouping, control: RewriteControl) -> None:
        self.grouping, self.control = grouping, control
        self.new: dict[Node, Node] = {}
        self.results = {grouping.links.link(r).root for r in grouping.function.results}

    def function(self) -> Function:
        position = self.grouping.order.position
        for unit in sorted(position, key=position.__getitem__):
            if isinstance(unit, Group) and unit.is_kernel:
                self._kernel(unit)
            else:
                self._keep(unit.members[0] if isinstance(unit, Group) else unit)
        function = self.grouping.function
        return with_results(function, tuple(map(self.value, function.results)))

    def value(self, node: Node) -> Node:
        """The new node for an old one; what is seen through is rebuilt when it is first wanted."""
        chain = []
        while node not in self.new and is_adapter(node):
            chain.append(node)
            node = node.inputs[0]
        found = self.new.get(node, node)
        for node in reversed(chain):
            found = self.new[node] = with_inputs(node, (found,))
        return found

    def _keep(self, *nodes: Node) -> None:
        for node in nodes:
            self.new[node] = with_inputs(node, tuple(map(self.value, node.inputs)))

    def _kernel(self, group: Group) -> None:
        members = sorted(group.members, key=attrgetter("serial"))
        outputs = [m for m in members if m in self.results or any(self.grouping.readers(m))]
        body = _Body(self.grouping, group)
        made = [body.value(m) for m in outputs]
        if len(body.computed) < 2 and sum(n.op is not PARAM and n.op is not CONSTANT for n in body.made) < 2:
            self._keep(*members)
            return
        inputs = tuple(_shaped(self.value(node), type, node.origin) for node, type in body.given)
        function = Function("fusion", tuple(body.params), tuple(made), public=False)
        type = fusion.infer([i.type for i in inputs], function)
        kernel = Node(fusion, inputs, (function,), type, _merged_origin(outputs, body.computed))
        results = [kernel] if len(outputs) == 1 else [Node(PROJ, (kernel,), (k,), m.type, outputs[k].origin)
                                                      for k, m in enumerate(made)]
        shaped = {old: _shaped(result, old.type, old.origin) for old, result in zip(outputs, results, strict=True)}
        if not self.control.permit("fuse", outputs[-1], kernel if len(outputs) > 1 else shaped[outputs[0]]):
            self._keep(*members)
            return
        self.new |= shaped


class _Body:
    """Builds the body of one kernel. `given` are the values from outside, with the types of `params`."""

    def __init__(self, grouping: Grouping, group: Group) -> None:
        self.grouping, self.space = grouping, group.space
        self.params: list[Node] = []
        self.given: list[tuple[Node, Type]] = []
        self.made: list[Node] = []
        self.computed: list[Node] = []
        self._inside = {*group.members, *group.copies}
        self._new: dict[Node, Node] = {}
        self._leaves: dict[tuple[Node, Type], Node] = {}

    def value(self, member: Node) -> Node:
        """The body's node for a member, after those that it needs: so few values wait for their users."""
        return on_demand((member,), self._new, self._needs, lambda node, _: self._member(node))[0]

    def _needs(self, node: Node) -> list[Node]:
        return [k.root for k in self.grouping.links.of(node) if k.root in self._inside]

    def _member(self, node: Node) -> Node:
        reduces = reduced_axes(node) is not None
        full = reduces or dims(node) == self.space.full
        inputs = [self._operand(link, full) for link in self.grouping.links.of(node)]
        if reduces:
            inputs.append(self._constant(node.inputs[1], node.inputs[1].type))
        self.computed.append(node)
        type = self._type(node)
        if type is node.type:
            return self._node(node.over(tuple(inputs)))
        return self._node(Node(node.op, tuple(inputs), node.attrs, type, node.origin))

    def _type(self, node: Node) -> Type:
        """The type of a member or operand in the body: rows never keep reduced axes."""
        space = self.space
        assert isinstance(node.type, TensorType)
        is_row = space.axes is not None and node.type.dims == space.kept != space.full
        return node.type.with_dims(space.rows) if is_row else node.type

    def _node(self, node: Node) -> Node:
        self.made.append(node)
        return node

    def _operand(self, link: Link, full: bool) -> Node:
        if link.root in self._inside:
            return self._inner(link, self._new[link.root], full)
        wanted = self._type(link.operand) if not full else link.operand.type
        if link.root.op is CONSTANT and splat_of(link.root) is not None and is_static(wanted):
            return self._constant(link.root, wanted)
        if link.repeats and wanted == link.operand.type and link.axes is not None:
            source = self._parameter(link.root, link.root.type)
            return self._broadcast(source, wanted, link.axes, link.operand.origin)
        return self._parameter(link.operand, wanted)

    def _inner(self, link: Link, source: Node, full: bool) -> Node:
        if not full or dims(source) == self.space.full or (link.axes is None and not dims(source)):
            return source
        assert isinstance(source.type, TensorType)
        return self._broadcast(source, source.type.with_dims(self.space.full), self.space.kept_axes, link.operand.origin)

    def _broadcast(self, source: Node, type: Type, axes: tuple[int, ...], origin: Origin) -> Node:
        key = source, type
        found = self._leaves.get(key)
        if found is None or found.attr("broadcast_dimensions") != axes:
            assert isinstance(type, TensorType)
            found = self._leaves[key] = self._node(Node(broadcast_in_dim, (source,), (type.dims, axes), type, origin))
        return found

    def _constant(self, node: Node, type: Type) -> Node:
        key = node, type
        if key not in self._leaves:
            assert isinstance(type, TensorType)
            literal = value_of(node) if node.type == type else Literal.splat(splat_of(node), type)
            self._leaves[key] = self._node(Node(CONSTANT, (), (literal,), type, node.origin))
        return self._leaves[key]

    def _parameter(self, node: Node, type: Type) -> Node:
        key = node, type
        if key not in self._leaves:
            param = Node(PARAM, (), (len(self.params), type), type, node.origin)
            self._leaves[key] = self._node(param)
            self.params.append(param)
            self.given.append((node, type))
        return self._leaves[key]


def _shaped(node: Node, type: Type, origin: Origin) -> Node:
    """The node in a shape with the same elements."""
    if node.type == type:
        return node
    assert isinstance(type, TensorType)
    return Node(reshape, (node,), (type.dims,), tensor(type.dtype, type.dims), origin)


def _merged_origin(outputs: list[Node], members: list[Node]) -> Origin:
    """All places that the kernel came from; its name is that of its only output."""
    spans = dict.fromkeys([s for n in dict.fromkeys((*outputs, *members)) for s in n.origin.spans])
    name = outputs[0].name if len(outputs) == 1 else ""
    return Origin(name, tuple(spans), ("fuse",))
