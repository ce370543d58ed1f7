"""Sparse conditional constant propagation, optimistic, through branches, loops and calls of private functions.

Every value starts as unknown and only falls: to one constant, then to varying. A branch that no selector takes and an iteration
that no condition allows do not count, so `x = 1; while ...: x = x * 1` is 1 (Wegman and Zadeck; C. Click). Evaluates through
`op.eval` within the fold limit. Values that stay unknown are never computed and are left alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.peephole import FOLD_LIMIT
from deepx_graph.ir.rebuild import rebuild, replaced, with_inputs
from deepx_graph.ir.structure import (
    CALL,
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    TUPLE,
    branch_count,
    callee_of,
    index_of,
    phi_choices,
    taken_branch,
    value_of,
)
from deepx_graph.literal import Literal
from deepx_graph.passes.rules.fold import constant_value
from deepx_graph.passes.scalar.dce import bodies, references
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.types import TensorType

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "unknown"})()
"""No execution seen so far gives a value."""
VARYING: Any = type("Varying", (), {"__repr__": lambda _: "varying"})()
"""Not one constant."""

_SEEN_THROUGH = frozenset({PARAM, PHI, PROJ})
"""Ops whose values come from elsewhere than their inputs as a whole."""


@dataclass(frozen=True)
class Sccp(Pass):
    """Finds values that are constant on every path that can be taken, through branches, loops and calls."""

    name: ClassVar[str] = "sccp"
    max_bytes: int = FOLD_LIMIT

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        if control.exhausted:
            return module
        values = _Solver(module, self.max_bytes).solve()
        return module.with_functions(_rebuilt(f, values, control) for f in module.functions)


def meet(values: Iterable[Any]) -> Any:
    """The one value on which all agree that are known; VARYING when they do not."""
    result = UNKNOWN
    for value in values:
        if value is VARYING or (result is not UNKNOWN and value is not UNKNOWN and value != result):
            return VARYING
        if value is not UNKNOWN:
            result = value
    return result


class _Solver:
    """The fixed point over all functions at once. A value is a Literal, a tuple of Literals, UNKNOWN or VARYING."""

    def __init__(self, module: Module, limit: int) -> None:
        self.module, self.limit = module, limit
        self.ends = {n.inputs[0]: n for f in module.functions for n in f.nodes if n.op is LOOP_END}
        self.arguments = self._arguments()
        self.values: dict[Node, Any] = {n: UNKNOWN for f in module.functions for n in f.nodes}

    @cached_property
    def users(self) -> dict[Node, list[Node]]:
        """For each node those whose values are computed from its own; not asked for where no value changes twice."""
        users: dict[Node, list[Node]] = {}
        for node in self.values:
            for source in self._sources(node):
                users.setdefault(source, []).append(node)
        return users

    def _arguments(self) -> dict[Node, list[Node]]:
        """For each parameter of a function all of whose calls are seen, what is given for it."""
        private = private_functions(self.module)
        given: dict[Node, list[Node]] = {p: [] for f in self.module.functions if f.name in private for p in f.params}
        for f in self.module.functions:
            for call in f.nodes:
                if call.op is CALL and callee_of(call) in self.module:
                    for p, argument in zip(self.module[callee_of(call)].params, call.inputs, strict=True):
                        if p in given:
                            given[p].append(argument)
        return given

    def _sources(self, node: Node) -> Sequence[Node]:
        """What the node's value is computed from; constructs are seen through, to the one value that counts."""
        if node.op not in _SEEN_THROUGH:
            return node.inputs
        if node.op is PARAM:
            return self.arguments.get(node, ())
        source = node.inputs[0] if node.inputs else node
        if node.op is PHI and source.op is REGION:
            return [source.inputs[0], *phi_choices(source, index_of(node))]
        if (node.op is PHI and source.op is LOOP_BEGIN) or (node.op is PROJ and source.op is LOOP_END):
            return self._loop_sources(node)
        if node.op is PROJ and source.op is TUPLE:
            return source.inputs[index_of(node)],
        if node.op is PROJ and source.op is CALL and callee_of(source) in self.module:
            return self.module[callee_of(source)].results[index_of(node)],
        return node.inputs

    def _loop_sources(self, node: Node) -> list[Node]:
        """Condition, initial and next value of the variable that the phi or projection reads."""
        end = self.ends[node.inputs[0]] if node.op is PHI else node.inputs[0]
        return [end.inputs[1], end.inputs[0].inputs[index_of(node)], end.inputs[2 + index_of(node)]]

    def solve(self) -> dict[Node, Any]:
        """The value of every node."""
        values = self.values
        for node in values:
            values[node] = self._value(node)
        work = deque(n for n in values if n.op in _SEEN_THROUGH)  # all others come after what they are computed from
        queued = set(work)
        while work:
            node = work.popleft()
            queued.discard(node)
            old = values[node]
            if old is VARYING:
                continue
            new = self._value(node)
            if new is old or new == old:
                continue
            values[node] = new if old is UNKNOWN else VARYING
            for user in self.users.get(node, ()):
                if user not in queued:
                    queued.add(user)
                    work.append(user)
        return values

    def _value(self, node: Node) -> Any:
        if node.op is CONSTANT:
            return value_of(node)
        if node.op not in _SEEN_THROUGH:
            return self._operation(node, [self.values[i] for i in node.inputs])
        if node.op is PARAM and node not in self.arguments:
            return VARYING
        values = [self.values[s] for s in self._sources(node)]
        source = node.inputs[0] if node.inputs else node
        if node.op is PARAM:
            return meet(values)
        if node.op is PHI and source.op is REGION:
            return _phi_of_region(values[0], values[1:])
        if node.op is PHI and source.op is LOOP_BEGIN:
            return meet(values[1:2] if values[0] is UNKNOWN or _is_false(values[0]) else values[1:])
        return self._item(node, source, values) if node.op is PROJ else self._operation(node, values)

    def _item(self, node: Node, source: Node, values: list[Any]) -> Any:
        if source.op is LOOP_END:
            if _is_false(values[0]):
                return values[1]
            return meet(values[1:]) if values[0] is VARYING else UNKNOWN  # else it never ends
        if source.op is TUPLE or (source.op is CALL and callee_of(source) in self.module):
            return values[0]
        return values[0][index_of(node)] if isinstance(values[0], tuple) else values[0]

    def _operation(self, node: Node, values: list[Any]) -> Any:
        if VARYING in values or node.op.eval is None or not node.op.foldable:
            return _absorbed(node, values)
        if UNKNOWN in values:
            return UNKNOWN
        if any(isinstance(v, tuple) for v in values):
            return VARYING
        value = constant_value(node.op, values, node.attrs, node.type, self.limit)
        return VARYING if value is None else value


def private_functions(module: Module) -> set[str]:
    """Names of functions all of whose calls are seen: not public, entered, bound to a closure, or called from a body."""
    names = {f.name for f in module.functions if not f.public and f.name != module.entry_name}
    for f in module.functions:
        names -= {callee_of(n) for n in f.nodes if n.op is PARTIAL} | {f.vjp}
        for body in bodies(f):
            names -= set(references(body))
    return names


def _phi_of_region(selector: Any, values: list[Any]) -> Any:
    if selector is UNKNOWN:
        return UNKNOWN
    return meet(values) if selector is VARYING else values[taken_branch(selector.splat_value, len(values))]


def _is_false(value: Any) -> bool:
    return isinstance(value, Literal) and not bool(value.splat_value)


def _absorbed(node: Node, values: list[Any]) -> Any:
    """x * 0 = 0 for integers and bools, whatever x is."""
    type, zero = node.type, node.op.absorber
    if zero is None or not isinstance(type, TensorType) or type.dtype.is_differentiable or not type.is_static:
        return VARYING
    found = next((v.splat_value for v in values if isinstance(v, Literal) and v.splat_value == zero), None)
    return VARYING if found is None else Literal.splat(found, type)


def _rebuilt(function: Function, values: dict[Node, Any], control: RewriteControl) -> Function:
    """The function with constants for what is constant, and the values of branches and loops whose course is known."""
    if not any(n.op is PHI or n.op is PROJ or (n.op is not CONSTANT and isinstance(values[n], Literal)) for n in function.nodes):
        return function
    made: dict[Node, Node] = {}
    constants: dict[Literal, Node] = {}
    b = Builder()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        value = values[node]
        if isinstance(value, Literal) and node.op is not CONSTANT and value.type == node.type:
            constant = constants.get(value)
            if constant is None:
                b.origin = Origin("", node.origin.spans, node.origin.rewritten("sccp").rewrites)
                constant = constants[value] = b.literal(value)
            if control.permit("constant-on-every-path", node, constant):
                return constant
        known = _known_course(node, values) if node.op is PHI or node.op is PROJ else None
        if known is not None and known.type == node.type and control.permit("known-course", node, known):
            return made[known]
        return with_inputs(node, inputs)

    return replaced(function, rebuild(function.nodes, made, step))


def _known_course(node: Node, values: dict[Node, Any]) -> Node | None:
    """Of a `phi` or `proj`, the value of the one branch that is ever taken, or the initial value of a loop that never iterates."""
    source, k = node.inputs[0], index_of(node)
    if node.op is PHI and source.op is REGION and isinstance(values[source.inputs[0]], Literal):
        return phi_choices(source, k)[taken_branch(values[source.inputs[0]].splat_value, branch_count(source))]
    if node.op is PROJ and source.op is LOOP_END and _is_false(values[source.inputs[1]]):
        initial: Node = source.inputs[0].inputs[k]
        return initial
    return None
