"""`jvp`: a module that computes how a module's outputs change along a direction of its inputs; and Hessian-vector products.

The new entry takes the inputs of the old one, then a tangent `t_<input>` for each floating or complex input, or those in
`wrt`, and gives a tangent `t_<output>` for each floating or complex output. It needs no memory that grows with the length of a
loop. Effects contribute nothing; loads are kept, with what comes before them.

Each function is built again with a tangent beside each value that has one. A tangent is made by `ops.pushforward`, out of the op's
`vjp`; what is here is control. A region and a loop get further columns for tangents, a zero standing where one side has none; only
loop variables that a derivative reaches are doubled. A function that is called, and not inlined, is built once with every floating
value doubled: each parameter and result is followed by its tangents. One that names its own derivative is asked for it. Where no
derivative passes, nodes stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from deepx_graph.errors import Diagnostic, InferError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Op, fresh_loop
from deepx_graph.ir.rebuild import inlined, made_by
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    LOOP_BEGIN,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    TUPLE,
    branch_width,
    branches_of,
    index_of,
)
from deepx_graph.ops import tape_pop, tape_push
from deepx_graph.ops.vjp.accumulate import carries, pullback, pushforward, zeros
from deepx_graph.passes.autodiff.activity import Activity
from deepx_graph.passes.autodiff.calls import Derivatives
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.autodiff.prepare import (
    closed,
    input_name,
    straightened,
    unused_name,
    wanted_inputs,
    with_entry,
    with_plain_entry,
)
from deepx_graph.rewrite.base import Pass
from deepx_graph.types import FunctionType, TupleType, Type, is_state

Tangent = Any
"""None (zero), a Node, or for a tuple a tuple of these."""


@dataclass(frozen=True)
class Jvp(Pass):
    """Replaces the program by the one that computes its outputs' tangents from its inputs and theirs.

    `wrt` names the inputs that move, in order; all floating and complex ones when it is empty.
    """

    name: ClassVar[str] = "jvp"
    wrt: tuple[str, ...] = ()

    def run(self, module: Module) -> Module:
        """The module of tangents; raises as `jvp` does."""
        return jvp(module, self.wrt or None)


def jvp(module: Module, wrt: Sequence[str] | None = None) -> Module:
    """The module whose entry maps inputs and tangents of inputs to tangents of outputs.

    Raises UsageError for a name in `wrt` that is no input, and VerifyError for an operation on the way that has no gradient.
    """
    module = straightened(module)
    entry = Derivatives(module).prepared(module.entry)
    inputs = wanted_inputs(entry, wrt)
    plain = [p for p in entry.params if not is_state(p.type)]
    for p in plain:
        if isinstance(p.type, FunctionType):
            raise VerifyError(Diagnostic("forward mode of a program that takes a function is not supported", p.span))
    b = Builder(peephole=True)
    taken = {p.name for p in entry.params}
    tangents = {p: b.param(len(plain) + k, p.type, unused_name(f"t_{input_name(entry, p)}", taken)) for k, p in enumerate(inputs)}
    forward = Forward(replace(module, functions=tuple(entry if f is module.entry else f for f in module.functions)))
    results = forward.run(b, entry, {p: (p, tangents.get(p)) for p in entry.params})
    leaves = [leaf for k, (value, t) in enumerate(results) for leaf in _leaves(b, value, t, entry.result_name(k))]
    function = closed(entry, [*plain, *tangents.values()], [t for t, _ in leaves], tuple(f"t_{name}" for _, name in leaves))
    more = forward.finish()
    return with_entry(replace(module, functions=(*module.functions, *more)), entry, function, "jvp")


def hvp(module: Module, wrt: Sequence[str] | None = None) -> Module:
    """How the gradient of a program changes along a direction: forward mode over reverse mode.

    The new entry takes the inputs, one cotangent `ct_<output>` for each floating or complex output, then a tangent `t_<input>` for
    each input in `wrt` (all floating and complex ones when None); it gives `t_grad_<input>` for those. Raises as `grad` does.
    """
    module = with_plain_entry(module)
    names = [input_name(module.entry, p) for p in wanted_inputs(module.entry, wrt)]
    return jvp(grad(module, names), names)


# --- functions with tangents ------------------------------------------------------------------------------------------


def tangent_types(type: Type) -> tuple[Type, ...]:
    """The types of the tangents of a value, leaf by leaf; a function value has none beside it, it computes them."""
    if isinstance(type, TupleType):
        return tuple(t for item in type.items for t in tangent_types(item))
    return (type,) if carries(type) and not isinstance(type, FunctionType) else ()


def dual_type(type: Type) -> Type:
    """The type of the value itself where its tangents go along: only of function values another."""
    if isinstance(type, TupleType):
        return TupleType(tuple(map(dual_type, type.items)))
    return FunctionType(doubled(type.params), doubled(type.results)) if isinstance(type, FunctionType) else type


def doubled(types: Iterable[Type]) -> tuple[Type, ...]:
    """Each type followed by those of its tangents."""
    return tuple(t for type in types for t in (dual_type(type), *tangent_types(type)))


def is_zero(tangent: Tangent) -> bool:
    """Whether nothing in the tangent is other than zero by construction."""
    return all(map(is_zero, tangent)) if isinstance(tangent, tuple) else tangent is None


class Forward:
    """Builds functions with tangents. `duals` are those made so far of functions that are called, by the name of the old one."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.duals: dict[str, Function] = {}
        self.wanted: list[str] = []
        self._names = {f.name for f in module.functions}
        self._named: dict[str, str] = {}

    def run(self, b: Builder, function: Function, params: dict[Node, tuple[Node, Tangent]]) -> list[tuple[Node, Tangent]]:
        """The results and their tangents, given new parameters and theirs."""
        body = _Body(self, b, function, params)
        return [(body.primal[r], body.tangent.get(r)) for r in function.results]

    def finish(self) -> list[Function]:
        """The functions that are called by what was built so far, and by one another."""
        while self.wanted:
            name = self.wanted.pop()
            if name not in self.duals:
                self.duals[name] = self._dual(self.module[name])
        return list(self.duals.values())

    def dual_name(self, name: str) -> str:
        """The name of the function with tangents; it is made when `finish` is called."""
        if name not in self._named:
            self._named[name] = unused_name(f"{name}_jvp", self._names)
            self.wanted.append(name)
        return self._named[name]

    def _dual(self, function: Function) -> Function:
        if function.vjp is not None:
            message = f"'{function.name}' names its own derivative, which forward mode does not use where it is a value"
            raise VerifyError(Diagnostic(message, function.span))
        b = Builder(peephole=True)
        params: list[Node] = []
        given: dict[Node, tuple[Node, Tangent]] = {}
        for old in function.params:
            b.origin = old.origin
            types = (dual_type(old.type), *tangent_types(old.type))
            new = [b.param(len(params) + k, t, old.name if k == 0 else f"t_{old.name}") for k, t in enumerate(types)]
            params += new
            given[old] = new[0], _nested(old.type, iter(new[1:]))
        results = [n for value, tangent in self.run(b, function, given) for n in (value, *_flat(b, value, tangent))]
        return Function(self._named[function.name], tuple(params), tuple(results), public=False, span=function.span)


def _nested(type: Type, leaves: Iterator[Node]) -> Tangent:
    """A tangent of the type from its leaves."""
    if isinstance(type, TupleType):
        return tuple(_nested(t, leaves) for t in type.items)
    return next(leaves) if tangent_types(type) else None


def _leaves(b: Builder, value: Node, tangent: Tangent, name: str = "") -> list[tuple[Node, str]]:
    """The tangents of a value's tensors, zeros included, each with the tensor's name."""
    if not tangent_types(value.type):
        return []
    if isinstance(value.type, TupleType):
        parts = tangent or (None,) * len(value.type.items)
        items = [(k, t) for k, t in enumerate(parts) if tangent_types(value.type.items[k])]
        return [leaf for k, t in items for leaf in _leaves(b, b.proj(value, k), t, f"{name}_{k}")]
    return [(zeros(b, value.type, value) if tangent is None else tangent, name)]


def _flat(b: Builder, value: Node, tangent: Tangent) -> list[Node]:
    """All leaves of a value's tangent, zeros made up."""
    return [leaf for leaf, _ in _leaves(b, value, tangent)]


class _Body:
    """One function on its way: the new node of each old one, and its tangent."""

    def __init__(self, forward: Forward, b: Builder, function: Function, params: dict[Node, tuple[Node, Tangent]]) -> None:
        self.forward, self.b = forward, b
        self.primal: dict[Node, Node] = {}
        self.tangent: dict[Node, Tangent] = {}
        ends = {n.inputs[0]: n for n in function.nodes if n.op is LOOP_END}
        moving = [p for p, (_, t) in params.items() if not is_zero(t) or _has_function(p.type)]
        self.flow = Activity(function, ends, moving, function.results)
        self.columns: dict[Node, list[int]] = {}
        for node in function.nodes:
            if node in params:
                self.primal[node], tangent = params[node]
            else:
                self.b.origin = node.origin.rewritten("jvp")
                tangent = _RULES.get(node.op, _Body._plain)(self, node)
            if not is_zero(tangent):
                self.tangent[node] = tangent

    def _keep(self, node: Node) -> tuple[Node, ...]:
        """Puts the node over its new inputs, which are returned."""
        inputs = tuple(self.primal[i] for i in node.inputs)
        changed = any(a is not i for a, i in zip(inputs, node.inputs, strict=True))
        self.primal[node] = self._over(node, inputs) if changed else node
        return inputs

    def _over(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """The same operation on other inputs, not simplified: its rule wants it as it is."""
        same = all(a.type == i.type for a, i in zip(inputs, node.inputs, strict=True))
        type = node.type if same else node.op.infer([i.type for i in inputs], *node.attrs)
        if node.op is PROJ and inputs[0].op is TUPLE:
            k = index_of(node)
            return inputs[0].inputs[k]
        return self.b.intern(node.op, inputs, node.attrs, type, node.origin)

    def _plain(self, node: Node) -> Tangent:
        self._keep(node)
        given = [self.tangent.get(i) for i in node.inputs]
        if all(map(is_zero, given)) or not self.flow.passes(node):
            return None
        try:
            return pushforward(self.b, self.primal[node], given)
        except InferError as e:
            raise self.flow.refusal(node, e) from None

    def _tuple(self, node: Node) -> Tangent:
        self._keep(node)
        return tuple(self.tangent.get(i) for i in node.inputs)

    def _item(self, node: Node) -> Tangent:
        self._keep(node)
        whole = self.tangent.get(node.inputs[0])
        return None if whole is None else whole[index_of(node)]

    # --- tapes: function values on them have no tangent beside them

    def _push(self, node: Node) -> Tangent:
        if not isinstance(node.inputs[1].type, FunctionType):
            return self._plain(node)
        self._keep(node)
        return self.tangent.get(node.inputs[0])

    def _pop(self, node: Node) -> Tangent:
        type: Type = node.attr("type")
        if not isinstance(type, FunctionType):
            return self._plain(node)
        self.primal[node] = self.b(tape_pop, self.primal[node.inputs[0]], type=dual_type(type))
        below = self.tangent.get(node.inputs[0])
        return None if below is None else (below, None)

    # --- branches and loops

    def _widened(self, node: Node, groups: Sequence[Sequence[Node]], columns: Sequence[int]) -> list[list[Node]]:
        """For each group of values, the new values and then the tangents of those columns."""
        return [[self.primal[v] for v in values]
                + [t for k in columns for t in _flat(self.b, self.primal[values[k]], self.tangent.get(values[k]))]
                for values in groups]  # fmt: skip

    def _columns(self, node: Node, columns: Sequence[int], width: int, take: Callable[[int], Node]) -> Tangent:
        """The tangent of a construct whose further results, from `width` on, are the leaves for those columns."""
        assert isinstance(node.type, TupleType)
        found: list[Tangent] = [None] * width
        count = sum(len(tangent_types(node.type.items[k])) for k in columns)
        leaves = iter([take(width + k) for k in range(count)])
        for k in columns:
            found[k] = _nested(node.type.items[k], leaves)
        return tuple(found)

    def _region(self, node: Node) -> Tangent:
        width, sides = branch_width(node), branches_of(node)
        columns = [k for k in range(width) if any(values[k] in self.tangent for values in sides)]
        if not columns:
            return self._plain(node)
        values = [v for side in self._widened(node, sides, columns) for v in side]
        new = self.primal[node] = self.b(REGION, self.primal[node.inputs[0]], *values, branches=len(sides))
        return self._columns(node, columns, width, lambda k: self.b(PHI, new, index=k))

    def _loop_begin(self, node: Node) -> Tangent:
        columns = self.columns[node] = [k for k in range(len(node.inputs)) if self.flow.passes((node, k))]
        (inits,) = self._widened(node, [node.inputs], columns)
        new = self.primal[node] = self.b(LOOP_BEGIN, *inits, loop=fresh_loop())
        return self._columns(node, columns, len(node.inputs), lambda k: self.b(PHI, new, index=k))

    def _loop_end(self, node: Node) -> Tangent:
        begin, condition, nexts = node.inputs[0], node.inputs[1], node.inputs[2:]
        columns = self.columns[begin]
        (values,) = self._widened(node, [nexts], columns)
        new = self.primal[node] = self.b(LOOP_END, self.primal[begin], self.primal[condition], *values)
        return self._columns(node, columns, len(nexts), lambda k: self.b.proj(new, k))

    # --- calls

    def _arguments(self, nodes: Iterable[Node]) -> list[Node]:
        return [a for n in nodes for a in (self.primal[n], *_flat(self.b, self.primal[n], self.tangent.get(n)))]

    def _call(self, node: Node) -> Tangent:
        if all(is_zero(self.tangent.get(i)) and not _has_function(i.type) for i in node.inputs):
            return self._plain(node)
        if self.forward.module[node.attr("callee")].vjp is not None:
            return self._transposed(node)
        signature = dual_type(node.attr("signature"))
        call = self.b(CALL, *self._arguments(node.inputs), callee=self.forward.dual_name(node.attr("callee")), signature=signature)
        return self._results(node, call)

    def _transposed(self, node: Node) -> Tangent:
        """A call of a function that names its own derivative, which is linear in the cotangents: the transpose of that."""
        assert isinstance(node.type, TupleType)
        inputs = self._keep(node)
        try:
            rule = Derivatives(self.forward.module).own(node)
            assert rule is not None
            slots = [self.b.param(k, t) if tangent_types(t) else None for k, t in enumerate(node.type.items)]
            wanted = [s for s in slots if s is not None]
            pulled = iter(inlined(rule, [*inputs, *wanted], made_by(self.b)))
            pairs = [(next(pulled), self.tangent.get(i)) for i in node.inputs if tangent_types(i.type)]
            moving = [(c, t) for c, t in pairs if t is not None]
            found = iter(pullback(self.b, [c for c, _ in moving], [t for _, t in moving], wanted))
        except InferError as e:
            raise self.flow.refusal(node, e) from None
        return tuple(None if s is None else next(found) for s in slots)

    def _partial(self, node: Node) -> Tangent:
        self.primal[node] = self.b(PARTIAL, *self._arguments(node.inputs), callee=self.forward.dual_name(node.attr("callee")),
                                   signature=dual_type(node.attr("signature")))  # fmt: skip
        return None

    def _call_value(self, node: Node) -> Tangent:
        function, *args = node.inputs
        return self._results(node, self.b(CALL_VALUE, self.primal[function], *self._arguments(args)))

    def _results(self, node: Node, call: Node) -> Tangent:
        """Takes a call's results apart into values and tangents."""
        assert isinstance(node.type, TupleType)
        values, tangents = [], []
        rest = iter(self.b.items(call))
        for type in node.type.items:
            values.append(next(rest))
            tangents.append(_nested(type, rest))
        self.primal[node] = self.b.pack(*values)
        return tuple(tangents)


_RULES: dict[Op, Callable[[_Body, Node], Tangent]] = {
    TUPLE: _Body._tuple, PROJ: _Body._item, PHI: _Body._item, REGION: _Body._region, LOOP_BEGIN: _Body._loop_begin,
    LOOP_END: _Body._loop_end, CALL: _Body._call, PARTIAL: _Body._partial, CALL_VALUE: _Body._call_value,
    tape_push: _Body._push, tape_pop: _Body._pop,
}  # fmt: skip


def _has_function(type: Type) -> bool:
    return any(map(_has_function, type.items)) if isinstance(type, TupleType) else isinstance(type, FunctionType)
