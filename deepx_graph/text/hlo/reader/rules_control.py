"""Loops, branches, calls and fusions of HLO: computations that become part of the graph around them, or functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepx_graph.errors import an
from deepx_graph.ir import Node
from deepx_graph.text.hlo.reader.context import Context
from deepx_graph.text.hlo.reader.effects import plain_leaves
from deepx_graph.text.hlo.reader.syntax import Computation, Instruction
from deepx_graph.types import TupleType, Type, as_tensor


def while_(c: Context) -> Node:
    """A loop variable for each leaf of the state; what the body passes on as it got it is a value from outside."""
    lowering, state = c.lowering, c.operands[0]
    condition, body = c.names("condition")[0], c.names("body")[0]
    inits, acts = lowering.flatten(state), lowering.state if lowering.acts(c.instruction) else None
    fixed = _fixed_leaves(lowering.computation(body, c.raw("body")), state.type)
    varying = [k for k in range(len(inits)) if k not in fixed] or list(range(len(inits)))

    def whole(values: Sequence[Node]) -> Node:
        now = dict(zip(varying, values, strict=True))
        return lowering.pack(state.type, [now.get(k, init) for k, init in enumerate(inits)])

    def turn(phis: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        if acts is not None:
            *phis_, lowering.state = phis
            phis = tuple(phis_)
        packed = whole(phis)
        go_on = c.inline(condition, c.raw("condition"), [packed])
        after = lowering.flatten(c.inline(body, c.raw("body"), [packed]))
        return go_on, [after[k] for k in varying] + lowering.states(acts)

    return whole(_after(c, acts, c.b.loop([inits[k] for k in varying] + ([] if acts is None else [acts]), turn)))


def _after(c: Context, acts: Node | None, results: Sequence[Node]) -> Sequence[Node]:
    """The results but for the state, which is current from here on."""
    if acts is None:
        return results
    *results, c.lowering.state = results
    return results


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


def _is_item(i: Instruction, k: int, by_name: Mapping[str, Instruction]) -> bool:
    """Whether the instruction takes item k of the parameter."""
    if i.opcode != "get-tuple-element" or not i.operands or "index" not in i.attributes:
        return False
    whole = by_name.get(i.operands[0].text)
    return whole is not None and whole.opcode == "parameter" and i.attributes["index"].text == str(k)


def conditional(c: Context) -> Node:
    """A branch whose computations are inlined."""
    selector, *args = c.operands
    if c.has("branch_computations"):
        names, index = [(n, c.raw("branch_computations")) for n in c.names("branch_computations")], "i32"
    else:
        names, index = [(c.names(k)[0], c.raw(k)) for k in ("true_computation", "false_computation")], "bool"
    if len(args) != len(names):
        raise c.fail(f"{len(names)} branches and {len(args)} operands for them")
    dtype = as_tensor(selector.type).dtype
    if as_tensor(selector.type).dims != () or dtype.name != index:
        raise c.fail(f"the selector is {an(selector.type)}", c.instruction.operands[0],
                     "pred[] for true_computation and false_computation, s32[] for branch_computations")
    acts = c.lowering.state if c.lowering.acts(c.instruction) else None
    branches = []
    for (n, at), a in zip(names, args, strict=True):
        if acts is not None:
            c.lowering.state = acts
        branches.append(c.lowering.flatten(c.inline(n, at, [a])) + c.lowering.states(acts))
    return c.lowering.pack(c.type, _after(c, acts, c.b.branch(selector, *branches)))


def call(c: Context) -> Node:
    """A call; in the body of another operation, which cannot call, what is called."""
    name, at = c.names("to_apply")[0], c.raw("to_apply")
    if c.lowering.closed:
        return c.inline(name, at, c.operands)
    takes = c.lowering.parameters(c.lowering.computation(name, at))
    if len(takes) != len(c.operands):
        raise c.fail(f"'{name}' takes {len(takes)} and is given {len(c.operands)} operands", at)
    function, acts = c.lowering.called(name, at), c.lowering.state if c.lowering.acts(c.instruction) else None
    args = [leaf for x in c.operands for leaf in c.lowering.flatten(x)]
    return c.lowering.pack(c.type, _after(c, acts, c.b.call(function, *args, *([] if acts is None else [acts]))))


def fusion(c: Context) -> Node:
    """A fusion, inlined."""
    return c.inline(c.names("calls")[0], c.raw("calls"), c.operands)
