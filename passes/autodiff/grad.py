"""`grad`: a module that computes the gradients of a module's outputs with respect to its inputs, as a graph like any other.

The new entry takes the inputs of the old one and a cotangent `ct_<output>` for each floating or complex output; it gives
`grad_<input>` for each floating or complex input. For a program's entry the forward and the backward part stand in one function;
for a function that is called each is a function of its own. docs/gradients.md says how the backward part comes about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from deepx_graph.errors import Diagnostic, InferError, UsageError, an, suggest
from deepx_graph.ir import Builder, Function, Module, Node, Origin, fresh_loop
from deepx_graph.ir.rebuild import on_demand
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    branches_of,
)
from deepx_graph.ops.data.tape import tape_empty, tape_push
from deepx_graph.ops.vjp.accumulate import check_gradient, zeros
from deepx_graph.passes.autodiff.activity import Activity, ReverseScopes
from deepx_graph.passes.autodiff.calls import Derivatives, Variant, cotangents
from deepx_graph.passes.autodiff.prepare import (
    closed,
    input_name,
    is_differentiable,
    straightened,
    unused_name,
    wanted_inputs,
    with_entry,
)
from deepx_graph.passes.autodiff.residuals import Residuals
from deepx_graph.passes.autodiff.reverse import ReversePass, ScopeCotangents
from deepx_graph.passes.autodiff.shift_invariance import shifts_only
from deepx_graph.passes.scalar.dce import prune
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.types import ANY, TensorType, TupleType, Type, is_state

LOOPS = ("keep", "recompute", "sqrt")
"""What to do about the values of a loop that its backward part needs: keep those of every iteration; keep the loop's variables of
every iteration and compute the rest again; do that for runs of about as many iterations as there are runs."""

BUDGET = 1 << 30
"""Bytes that loops may keep before `auto` computes values again."""


@dataclass(frozen=True)
class Grad(Pass):
    """Replaces the program by the one that computes its gradients.

    `wrt` names the inputs whose gradients are wanted, in order; all floating and complex ones when it is empty. `loop` is one of
    LOOPS or `auto`: the first of them under which loops keep no more than `budget` bytes, else the one that keeps least.
    """

    name: ClassVar[str] = "grad"
    wrt: tuple[str, ...] = ()
    loop: str = "auto"
    budget: int = BUDGET

    def run(self, module: Module) -> Module:
        """The gradient module; raises as `grad` does."""
        return grad(module, self.wrt or None, loop=self.loop, budget=self.budget)


@dataclass(frozen=True)
class Gradient:
    """A gradient program, and what its loops keep: bytes of all rows, and bytes that an iteration of each loop of unknown length
    adds."""

    module: Module
    loop: str
    row_bytes: int
    iteration_bytes: int


def grad(module: Module, wrt: Sequence[str] | None = None, *, loop: str = "auto", budget: int = BUDGET) -> Module:
    """The module whose entry maps inputs and cotangents of outputs to gradients of inputs.

    Raises UsageError for a name in `wrt` that is no input or an unknown `loop`, and VerifyError for an operation on the way that
    has no gradient.
    """
    if loop not in (*LOOPS, "auto"):
        known = (*LOOPS, "auto")
        raise UsageError(Diagnostic(f"no way '{loop}' to treat loops", expected=", ".join(known), hint=suggest(loop, known)))
    if loop != "auto":
        return _thrifty(module, wrt, loop).module
    found: list[Gradient] = []
    for kind in LOOPS:
        found.append(_gradient(module, wrt, kind))
        if found[-1].row_bytes <= budget:
            return found[-1].module
    return min(found, key=lambda g: g.row_bytes).module


def choices(module: Module, wrt: Sequence[str] | None = None) -> list[Gradient]:
    """The gradient program under each of LOOPS. Raises as `grad` does."""
    return [_thrifty(module, wrt, kind) for kind in LOOPS]


def _thrifty(module: Module, wrt: Sequence[str] | None, loop: str) -> Gradient:
    """The gradient program under one of LOOPS; where runs keep more than every iteration does, as in loops over a large state of
    which little is needed, `sqrt` is `keep`."""
    found = _gradient(module, wrt, loop)
    if loop != "sqrt" or not found.row_bytes:
        return found
    usual = _gradient(module, wrt, "keep")
    return replace(usual, loop=loop) if usual.row_bytes < found.row_bytes and not usual.iteration_bytes else found


def _gradient(module: Module, wrt: Sequence[str] | None, loop: str) -> Gradient:
    module = straightened(module)
    derivatives = Derivatives(module, loop)
    entry = derivatives.prepared(module.entry)
    inputs = wanted_inputs(entry, wrt)
    b = Builder(peephole=True)
    roots = [leaf for k, r in enumerate(entry.results) for leaf in _leaves(b, r, entry.result_name(k))]
    roots = [(n, name) for n, name in roots if is_differentiable(n.type)]
    taken = {p.name for p in entry.params}
    given = [p for p in entry.params if not is_state(p.type)]
    names = [unused_name(f"ct_{name}", taken) for _, name in roots]
    cotangents = [b.param(len(given) + k, n.type, names[k]) for k, (n, _) in enumerate(roots)]
    gradients = gradients_of(derivatives, b, entry, [n for n, _ in roots], cotangents, inputs)
    result_names = tuple(f"grad_{input_name(entry, x)}" for x in inputs)
    function = closed(entry, [*given, *cotangents], gradients, result_names)
    module = replace(module, functions=(*module.functions, *variants(derivatives)))
    module = with_entry(module, entry, prune(function, RewriteControl(), invariants=True), "grad")
    there = {id(n.origin) for f in module.functions for n in f.nodes}
    kept = [k for k in derivatives.kept if id(k.origin) in there]
    return Gradient(module, loop, sum(k.row_bytes for k in kept), sum(k.iteration_bytes for k in kept))


def _leaves(b: Builder, node: Node, name: str) -> list[tuple[Node, str]]:
    """The tensors of a result, with names."""
    if not isinstance(node.type, TupleType):
        return [(node, name)]
    return [leaf for k, item in enumerate(b.items(node)) for leaf in _leaves(b, item, f"{name}_{k}")]


# --- the derivative of one function ------------------------------------------------------------------------------------

_SEEN_THROUGH = (PARAM, PROJ, PHI, REGION, LOOP_BEGIN, LOOP_END, CALL, CALL_VALUE, PARTIAL)


def gradients_of(derivatives: Derivatives, b: Builder, entry: Function, roots: list[Node], given: list[Node],
                 inputs: list[Node]) -> list[Node]:
    """The gradients of the inputs of the entry, as nodes over its parameters and the given cotangents of the roots."""
    whole = entry.with_(results=(*roots, *(r for r in entry.results if is_state(r.type))), result_names=())
    sweep, frame = _swept(derivatives, b, whole, roots, given, inputs)
    results = [sweep.value(frame.found.get(x), x) for x in inputs]
    residuals = _settled(sweep, results, closed=False)
    return Rebuild(sweep, residuals).nodes(results)


def variants(derivatives: Derivatives) -> Iterator[Function]:
    """The functions of all variants that were asked for, and that these ask for in turn."""
    done = 0
    while done < len(derivatives.wanted):
        for variant, names in list(derivatives.wanted.items())[done:]:
            done += 1
            yield from _variant(derivatives, variant, *names)


def _variant(derivatives: Derivatives, variant: Variant, forward: str, backward: str) -> tuple[Function, Function]:
    """The forward and the backward function of a variant."""
    function = derivatives.prepared(derivatives.module[variant.callee])
    by = [function.params[k] for k in variant.by]
    roots = [function.results[k] for k in variant.of]
    b = Builder(peephole=True)
    given = [b.param(k, t, f"ct_{k}") for k, t in enumerate(cotangents([r.type for r in roots]))]
    sweep, frame = _swept(derivatives, b, function, roots, given, by)
    gradients = _given_back(sweep, frame, variant, function.params)
    residuals = _settled(sweep, gradients, closed=True)
    rebuild = Rebuild(sweep, residuals)
    first = len(residuals.captured)
    params = [Node(PARAM, (), (first + k, g.type), g.type, g.origin) for k, g in enumerate(given)]
    rebuild.made.update(((g, False), p) for g, p in zip(given, params, strict=True))
    results = tuple(rebuild.nodes(gradients))
    params = [residuals.reads[x] for x in residuals.captured] + params
    back = Function(backward, tuple(params), results, public=False, span=function.span)
    own = [rebuild.node((p, False)) for p in function.params]
    kept = [rebuild.node((x, False)) for x in residuals.captured]
    closure = b.partial(back, *kept)
    outs = (*(rebuild.node((r, False)) for r in function.results), closure)
    names = tuple(function.result_name(k) for k in range(len(function.results)))
    fore = Function(forward, tuple(own), outs, (*names, "pullback"), public=False, span=function.span)
    return fore, prune(back, RewriteControl(), invariants=True)


def _given_back(sweep: ReversePass, frame: ScopeCotangents, variant: Variant, params: Sequence[Node]) -> list[Node]:
    """The cotangents of the parameters; of those that a closure captured on a tape, which comes last."""
    values = {k: sweep.value(frame.found.get(params[k]), params[k]) for k in variant.by}
    if variant.captured < 0:
        return list(values.values())
    tape = sweep.b(tape_empty)
    for k in variant.by:
        if k < variant.captured:
            tape = sweep.b(tape_push, tape, values[k])
    return [*(v for k, v in values.items() if k >= variant.captured), tape]


def _swept(derivatives: Derivatives, b: Builder, function: Function, roots: Sequence[Node], given: Sequence[Node],
           by: Sequence[Node]) -> tuple[ReversePass, ScopeCotangents]:
    scopes = ReverseScopes(function)
    flow = Activity(function, scopes.live.ends, by, roots, shifts_only(function))
    for node in function.nodes:
        if flow.passes(node):
            try:
                _check(node, flow)
            except InferError as e:
                raise flow.refusal(node, e) from None
    sweep = ReversePass(b, scopes, flow, derivatives)
    frame = sweep.run(roots, given)
    b.origin = Origin()
    return sweep, frame


def _settled(sweep: ReversePass, results: Sequence[Node], *, closed: bool) -> Residuals:
    derivatives = sweep.derivatives
    residuals = Residuals(sweep, derivatives.repeats, closed=closed)
    residuals.settle(results)
    derivatives.kept += residuals.kept
    return residuals


def _check(node: Node, flow: Activity) -> None:
    """Raises InferError when a derivative cannot pass the node."""
    if isinstance(node.type, TensorType) and node.type.dtype is ANY:
        message = f"{node.op.name}: the gradient of {an(node.type)} is not known before its dtype is"
        raise InferError(message, hint="give the inputs' types first")
    if node.op not in _SEEN_THROUGH:
        check_gradient(node, flow)


# --- both parts as one graph ---------------------------------------------------------------------------------------

Key = tuple[Node, bool | Node]
"""A node, and where it is wanted: False where it is computed, True as the backward part sees it; a region or loop_end where that is
computed again in the backward part and the node belongs to its inside."""


class Rebuild:
    """The forward and the backward part as one graph in order, its nodes made on demand: forward constructs with the columns they
    have grown, backward nodes over the residuals that stand for what they use.

    A value is wanted either where it is computed or as the backward part sees it. Types are inferred again where operands have
    others than before.
    """

    def __init__(self, sweep: ReversePass, residuals: Residuals) -> None:
        self.sweep, self.residuals = sweep, residuals
        self.made: dict[Key, Node] = {}
        self.b = Builder(intern=True)
        self.nothing: dict[Type, Node] = {}
        """What stands in a column for a branch that has no value there; all such columns are of static types or tapes."""

    def nodes(self, results: Iterable[Node]) -> list[Node]:
        """The final nodes of some backward values."""
        return [self.node(self._seen_backward(r)) for r in results]

    def node(self, root: Key) -> Node:
        """The final node of a value."""
        return on_demand((root,), self.made, self._operands, self._make)[0]

    def _seen_backward(self, node: Node) -> Key:
        """How a backward node refers to an operand."""
        forward = self.sweep.is_forward(node)
        return node, forward and (self.residuals.closed or not self.sweep.home(node).is_root)

    def _operands(self, key: Key) -> list[Key]:
        node, where = key
        if where is True and node in self.residuals.reads:
            return [self._seen_backward(self.residuals.reads[node])]
        inputs = self._inputs(node)
        if where is not False:
            again = node if where is True else where
            return [(i, again) if self._inside(i, again) else self._seen_backward(i) for i in inputs]
        if self.sweep.is_forward(node):
            return [(i, False) for i in inputs]
        return [self._seen_backward(i) for i in inputs]

    def _inside(self, node: Node, construct: Node) -> bool:
        """Whether a node belongs to the inside of a region or loop."""
        if construct.op not in (REGION, LOOP_END) or not self.sweep.is_forward(node):
            return False
        home, around = self.sweep.home(node), self.sweep.home(construct)
        return home.depth > around.depth and home.at_depth(around.depth + 1).owner is construct

    def _inputs(self, node: Node) -> Sequence[Node]:
        """The inputs with those of grown columns; a value that a branch lacks is made up."""
        if node.op is LOOP_BEGIN:
            return (*node.inputs, *(c[0] for c in self.sweep.grown.get(node, ()) if c[0] is not None))
        if node.op is LOOP_END:
            return (*node.inputs, *(c[1] for c in self.sweep.grown.get(node.inputs[0], ()) if c[1] is not None))
        if node.op is REGION and node in self.sweep.grown:
            values = [[*side, *self._side(node, s)] for s, side in enumerate(branches_of(node))]
            return (node.inputs[0], *(v for side in values for v in side))
        return node.inputs

    def _side(self, region: Node, branch: int) -> list[Node]:
        found: list[Node] = []
        for column in self.sweep.grown[region]:
            given = next(v for v in column if v is not None)
            value = column[branch]
            if value is None:
                value = self.nothing.get(given.type) or self.nothing.setdefault(given.type, zeros(self.b, given.type, given))
            found.append(value)
        return found

    def _make(self, key: Key, over: tuple[Node, ...]) -> Node:
        node, where = key
        if where is True and node in self.residuals.reads:
            return over[0]
        attrs = (fresh_loop(),) if where is not False and node.op is LOOP_BEGIN else self._attrs(node)
        if over == node.inputs and attrs == node.attrs:
            return node
        same = attrs == node.attrs and [i.type for i in over] == [i.type for i in node.inputs]
        type = node.type if same else node.op.infer([i.type for i in over], *attrs)
        return Node(node.op, over, attrs, type, node.origin)

    def _attrs(self, node: Node) -> tuple[Any, ...]:
        if node in self.sweep.replaced:
            return self.sweep.replaced[node]
        return self.sweep.derivatives.attrs(node) if node in self.sweep.scopes.home else node.attrs
