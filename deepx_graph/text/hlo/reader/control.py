"""Loops, branches, calls and fusions of HLO: computations that become part of the graph around them, or functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deepx_graph.errors import an
from deepx_graph.ir import Node
from deepx_graph.text.hlo.reader.context import InstructionContext
from deepx_graph.text.hlo.reader.effects import plain_leaves
from deepx_graph.text.hlo.reader.syntax import Computation, HloInstruction
from deepx_graph.text.xla import control
from deepx_graph.types import TupleType, Type, as_tensor


def _acts(c: InstructionContext) -> Node | None:
    """The state, where the instruction acts on it."""
    return c.lowering.state if c.lowering.acts(c.instruction) else None


def while_(c: InstructionContext) -> Node:
    """A loop variable for each leaf of the state; what the body passes on as it got it is a value from outside."""
    lowering, state, acts = c.lowering, c.inputs[0], _acts(c)
    _, body = (c.names(name)[0] for name in ("condition", "body"))
    inits = lowering.flatten(state)
    fixed = _fixed_leaves(lowering.computation(body, c.raw("body")), state.type)
    varying = [k for k in range(len(inits)) if k not in fixed] or list(range(len(inits)))

    def whole(values: Sequence[Node]) -> Node:
        now = dict(zip(varying, values, strict=True))
        return lowering.pack(state.type, [now.get(k, init) for k, init in enumerate(inits)])

    def iterate(variables: Sequence[Node]) -> tuple[Node, Sequence[Node]]:
        packed = whole(variables)
        go_on = c.inline("condition", [packed])
        after = lowering.flatten(c.inline("body", [packed]))
        return go_on, [after[k] for k in varying]

    return whole(control.loop(c, acts, [inits[k] for k in varying], iterate))


def _fixed_leaves(body: Computation, state: Type) -> set[int]:
    """The leaves of a loop's state whose item the body's root passes on unchanged."""
    if not isinstance(state, TupleType) or body.root.opcode != "tuple":
        return set()
    by_name = {i.name: i for i in body.instructions}
    found: set[int] = set()
    first = 0
    for k, (item, operand) in enumerate(zip(state.items, body.root.operands, strict=False)):
        count = len(plain_leaves(item))
        i = by_name.get(operand.text)
        if i and _is_item(i, k, by_name):
            found.update(range(first, first + count))
        first += count
    return found


def _is_item(i: HloInstruction, k: int, by_name: Mapping[str, HloInstruction]) -> bool:
    """Whether the instruction takes item k of the parameter."""
    if i.opcode != "get-tuple-element" or not i.operands or "index" not in i.attributes:
        return False
    whole = by_name.get(i.operands[0].text)
    return whole is not None and whole.opcode == "parameter" and i.attributes["index"].text == str(k)


def conditional(c: InstructionContext) -> Node:
    """A branch whose computations are inlined."""
    selector, *args = c.inputs
    if c.has("branch_computations"):
        named, index = [("branch_computations", k) for k in range(len(c.names("branch_computations")))], "i32"
    else:
        named, index = [("true_computation", 0), ("false_computation", 0)], "bool"
        for attribute, _ in named:
            c.raw(attribute)
    if len(args) != len(named):
        raise c.fail(f"{len(named)} branches and {len(args)} operands for them")
    dtype = as_tensor(selector.type).dtype
    if as_tensor(selector.type).dims != () or dtype.name != index:
        raise c.fail(f"the selector is {an(selector.type)}",
                     "pred[] for true_computation and false_computation, s32[] for branch_computations", c.instruction.operands[0])

    def way(attribute: str, k: int, arg: Node) -> Callable[[], list[Node]]:
        return lambda: c.lowering.flatten(c.inline(attribute, [arg], k))

    ways = [way(attribute, k, arg) for (attribute, k), arg in zip(named, args, strict=True)]
    return c.packed(control.branch(c, _acts(c), selector, ways))


def call(c: InstructionContext) -> Node:
    """A call; in the body of another operation, which cannot call, what is called."""
    name, at = c.names("to_apply")[0], c.raw("to_apply")
    if c.lowering.closed:
        return c.inline("to_apply", c.inputs)
    takes = c.lowering.parameters(c.lowering.computation(name, at))
    if len(takes) != len(c.inputs):
        raise c.fail(f"'{name}' takes {len(takes)} and is given {len(c.inputs)} operands", at=at)
    function = c.lowering.called(name, at)
    return c.packed(control.call(c, _acts(c), function, c.tensors))


def fusion(c: InstructionContext) -> Node:
    """A fusion, inlined."""
    return c.inline("calls", c.inputs)
