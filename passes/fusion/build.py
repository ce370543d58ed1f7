"""From groups to `fusion` nodes: builds the body of each kernel, and the function around them anew.

A body is in a normal form that engines rely on: members have the full shape of the kernel's space, or that of its rows with the
reduced axes dropped (never kept with size 1); everything else in it is a parameter, a constant with one value, or a broadcast to
one of these two shapes. Names and source spans are kept.
"""

from __future__ import annotations

from deepx_graph.ir import Builder, Function, Node, Origin
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.rebuild import on_demand, with_inputs, with_results
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, value_of
from deepx_graph.literal import Literal
from deepx_graph.ops import broadcast_in_dim, fusion, reduce, reshape
from deepx_graph.passes.fusion.iteration_space import Link, dims, is_adapter
from deepx_graph.passes.fusion.units import Group, Units
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.types import TensorType, Type, is_static, tensor


def with_kernels(units: Units, control: RewriteControl) -> Function:
    """The function with a `fusion` node for every group of more than one operation; itself when there is none."""
    groups = {id(g): g for g in units.group_of.values()}
    if not any(g.is_kernel for g in groups.values()):
        return units.function
    return _Rebuilder(units, control).function()


class _Rebuilder:
    """Builds units in order; `new` maps old nodes to new ones."""

    def __init__(self, units: Units, control: RewriteControl) -> None:
        self.units, self.control = units, control
        self.new: dict[Node, Node] = {}
        self.results = {units.links.link(r).root for r in units.function.results}

    def function(self) -> Function:
        position = self.units.order.position
        for unit in sorted(position, key=position.__getitem__):
            if isinstance(unit, Group) and unit.is_kernel:
                self._kernel(unit)
            else:
                self._keep(unit.members[0] if isinstance(unit, Group) else unit)
        function = self.units.function
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

    def _keep(self, node: Node) -> None:
        self.new[node] = with_inputs(node, tuple(map(self.value, node.inputs)))

    def _kernel(self, group: Group) -> None:
        outputs = [m for m in sorted(group.members, key=_serial) if m in self.results or any(self.units.readers(m))]
        body = _Body(self.units, group)
        made = [body.value(m) for m in outputs]
        if sum(n.op is not PARAM and n.op is not CONSTANT for n in body.made) < 2:
            for node in sorted(group.members, key=_serial):
                self._keep(node)
            return
        inputs = tuple(_shaped(self.value(node), type, node.origin) for node, type in body.given)
        function = Function("fusion", tuple(body.params), tuple(made), public=False)
        b = Builder(origin=_merged_origin(outputs, body.computed))
        kernel = b(fusion, *inputs, body=function)
        if not self.control.permit("fuse", outputs[-1], kernel):
            for node in sorted(group.members, key=_serial):
                self._keep(node)
            return
        for k, old in enumerate(outputs):
            result = kernel if len(outputs) == 1 else Node(PROJ, (kernel,), (k,), made[k].type, old.origin)
            self.new[old] = _shaped(result, old.type, old.origin)


class _Body:
    """Builds the body of one kernel. `given` are the values from outside, with the types of `params`."""

    def __init__(self, units: Units, group: Group) -> None:
        self.units, self.space = units, group.space
        self.params: list[Node] = []
        self.given: list[tuple[Node, Type]] = []
        self.made: list[Node] = []
        self.computed: list[Node] = []
        self._inside = {*group.members, *group.copies}
        self._new: dict[Node, Node] = {}
        self._leaves: dict[tuple[Node, Type], Node] = {}

    def value(self, member: Node) -> Node:
        """The body's node for a member, and those for what it needs."""
        return on_demand((member,), self._new, self._needs, self._member)[0]

    def _needs(self, node: Node) -> list[Node]:
        return [k.root for k in self.units.links.of(node) if k.root in self._inside]

    def _member(self, node: Node, _inside: tuple[Node, ...]) -> Node:
        full = node.op is reduce or dims(node) == self.space.full
        inputs = [self._operand(link, full) for link in self.units.links.of(node)]
        if node.op is reduce:
            inputs.append(self._constant(node.inputs[1], node.inputs[1].type))
        self.computed.append(node)
        return self._node(Node(node.op, tuple(inputs), node.attrs, self._type(node), node.origin))

    def _type(self, node: Node) -> Type:
        """The type of a member or operand in the body: rows never keep reduced axes."""
        assert isinstance(node.type, TensorType)
        is_row = node.type.dims == self.space.kept and self.space.axes is not None and node.type.dims != self.space.full
        return node.type.with_dims(self.space.rows) if is_row else node.type

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
    spans = dict.fromkeys(s for n in (*outputs, *members) for s in n.origin.spans)
    name = outputs[0].name if len(outputs) == 1 else ""
    return Origin(name, tuple(spans), ("fuse",))


def _serial(node: Node) -> int:
    return node.serial
