"""A convolution or a matrix product and its epilogue: the elementwise steps, and reductions of rows, that read its result.

`with_fused_epilogue` joins the two as a fusion, where an engine has a kernel for it; `split_epilogue` takes such a function apart,
so that the epilogue becomes a kernel of its own that is run on each part of the result while that is in a cache. Operands of a
matrix product that are conversions without rounding come along: the product converts what it packs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from dataclasses import dataclass

from deepx_graph.analysis.kinds import kind_of
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.rebuild import inlined, rebuild, replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.ops.tensor.layout import transpose
from deepx_graph.rewrite.exact_values import exact_source


@dataclass(frozen=True)
class WithEpilogue:
    """An operation on parameters and constants, and the function of its epilogue: the first parameter is the operation's result,
    of a product perhaps transposed, the others are the parameters `params` of the whole. None where there is no epilogue."""

    node: Node
    result: Node
    epilogue: Function | None
    params: tuple[int, ...]

    @property
    def operands(self) -> tuple[Node, ...]:
        """What the operation reads: its operands, or what a product's are conversions of."""
        return _operands(self.node)

    @property
    def order(self) -> tuple[int, ...]:
        """The order in which the axes of a product are transposed; () for that in which they are."""
        return () if self.result is self.node else self.result.attr("permutation")

    @property
    def converted(self) -> tuple[bool, ...]:
        """Which of its operands are conversions."""
        return tuple(a is not b for a, b in zip(self.operands, self.node.inputs, strict=True))


def _operands(node: Node) -> tuple[Node, ...]:
    return tuple(map(exact_source, node.inputs)) if node.op is dot_general else node.inputs


def split_epilogue(function: Function, op: Op) -> WithEpilogue | None:
    """A function taken apart; None where it is not one such operation and its epilogue."""
    nodes = [n for n in function.nodes if n.op is op]
    if len(nodes) != 1 or any(i.op not in (PARAM, CONSTANT) for i in _operands(nodes[0])) or len(function.results) != 1:
        return None
    (node,), result = nodes, function.results[0]
    made = _moved(function, node) or node
    if made is result:
        return WithEpilogue(node, made, None, ())
    b = Builder()
    before = Function("operands", (), (made,)).nodes
    used = [k for k, p in enumerate(function.params) if any(u not in before for u in function.users[p])]
    first, *others = (b.param(k, n.type) for k, n in enumerate((made, *(function.params[k] for k in used))))
    new = {made: first} | {function.params[k]: other for k, other in zip(used, others, strict=True)}
    rebuild(function.nodes, new)
    return WithEpilogue(node, made, Function("epilogue", (first, *others), (new[result],)), tuple(used))


def with_fused_epilogue(function: Function, accepts: Callable[[Function], bool], op: Op,
                        converts: Callable[[Node], Sequence[bool]] = lambda _: ()) -> Function:
    """The function with each such operation, and the one node that reads it, as a fusion; where its body is accepted. Conversions
    of the operands that a product `converts` belong to it.

    Constants go into the body, so that weights that never change are packed once. Linear in the nodes of the function.
    """
    found: dict[Node, tuple[Function, tuple[Node, ...]]] = {}  # the last node of what is joined, to the body and its arguments
    bodies: dict[Hashable, Function | None] = {}  # those that are accepted; layers of a network have the same ones
    results = frozenset(function.results)
    for node in function.nodes:
        if node.op is op:
            for inside in _ends(function, node, results, tuple(_conversions(node, converts(node)))):
                last = inside[-1]
                if last in found:
                    continue
                outside = tuple(dict.fromkeys(i for n in inside for i in n.inputs if i not in inside and i.op is not CONSTANT))
                key = _form(inside, outside)
                if key not in bodies:
                    body = _body(inside, outside)
                    bodies[key] = body if accepts(body) else None
                if (accepted := bodies[key]) is not None:
                    found[last] = accepted, outside
                    break
    new: dict[Node, Node] = {}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node not in found:
            return with_inputs(node, inputs)
        body, outside = found[node]
        return Node(fusion, tuple([new[i] for i in outside]), (body,), node.type, node.origin)

    return replaced(function, rebuild(function.nodes, new, step)) if found else function


def _ends(function: Function, node: Node, results: Container[Node], converted: tuple[Node, ...]) -> list[tuple[Node, ...]]:
    """What may be joined, best first: with conversions of its operands an operation up to the only node that reads it, or itself;
    the same without these; a product with its transpose, which is how it is stored then; a convolution itself, where its weights
    are constant."""
    moved = _moved(function, node)
    last, suffixes = node, list[tuple[Node, ...]]()
    if moved is not None:
        last, suffixes = moved, [(moved,)]
    readers = set(function.users[last])
    if last not in results and len(readers) == 1:
        (reader,) = readers
        if (reader.op is fusion or reader.op.elementwise) and reader.type == last.type:
            suffixes.insert(0, (*suffixes[0], reader) if suffixes else (reader,))
    ends = [(*converted, node, *suffix) for suffix in (*suffixes, ())] if converted else []
    ends += [(node, *suffix) for suffix in suffixes]
    if node.op is convolution and node.inputs[1].op is CONSTANT:
        ends.append((node,))
    return ends


def _moved(function: Function, node: Node) -> Node | None:
    """The transpose of a product that alone reads it; None where there is none."""
    users = function.users[node]
    is_alone = node.op is dot_general and node not in function.results and len(users) == 1
    return users[0] if is_alone and users[0].op is transpose else None


def _conversions(node: Node, chosen: Sequence[bool]) -> Iterator[Node]:
    """The nodes between the chosen operands of a product and what these are conversions of, in order."""
    found = dict[Node, None]()
    for operand, is_chosen in zip(node.inputs, chosen, strict=False):
        while is_chosen and operand is not exact_source(operand):
            found[operand] = None
            (operand,) = operand.inputs
    return reversed(found)


def _form(inside: Sequence[Node], outside: Sequence[Node]) -> Hashable:
    """A value equal for nodes that have the same function of what comes from `outside`."""
    position: dict[Node, int] = {i: k for k, i in enumerate((*inside, *outside))}
    return tuple(map(kind_of, inside)), tuple([position.get(i, i) for n in inside for i in n.inputs])


def _body(inside: Sequence[Node], outside: Sequence[Node]) -> Function:
    """The function of some nodes up to the last one, whose parameters stand for what comes from `outside`."""
    b = Builder()
    new = {i: b.param(k, i.type) for k, i in enumerate(outside)}
    new |= {i: i for n in inside for i in n.inputs if i.op is CONSTANT}
    params = tuple(new[i] for i in outside)
    for node in inside:
        inputs = tuple(new[i] for i in node.inputs)
        (new[node],) = inlined(node.attr("body"), inputs) if node.op is fusion else (with_inputs(node, inputs),)
    return Function("fusion", params, (new[inside[-1]],))
