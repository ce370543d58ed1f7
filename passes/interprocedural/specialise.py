"""`partial-evaluation`: functions called with closures, data or types that are known are copied for them.

A call one of whose arguments is a `partial`, a `construct`, or a tuple that holds one, becomes the call of a copy of the callee, in
which the parameter is that value over parameters of its own. In the copy the closure is called by name, the `match` takes its
known branch, and a recursive call is a call of a copy again. Equal calls share a copy, so `map` and `fold` are copied once for each
function that they are given; a recursion over a list of known length is unrolled. A generic function is copied for the types it is
called with. Where what is known would grow from one recursive call to the next, it is taken for unknown, so this ends.
Source: N. Jones, C. Gomard, P. Sestoft, Partial Evaluation and Automatic Program Generation (1993), polyvariant specialisation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from deepx_graph.errors import InferError
from deepx_graph.ir import Function, Module, Node, Op, fresh_loop
from deepx_graph.ir.rebuild import rebuild, rebuilt, with_inputs
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_BEGIN, PARAM, PARTIAL, TUPLE
from deepx_graph.ops import construct
from deepx_graph.passes.interprocedural.inline import Inline
from deepx_graph.passes.rules.control import CONTROL
from deepx_graph.passes.scalar.dce import reached
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.rewrite.engine import RuleSet, rewrite_function
from deepx_graph.types import FunctionType, Sizes, Type, bind_sizes, is_static, resolve

MAX_SHAPE = 100
"""A value is known down to so many closures and pieces of data; a larger one is unknown."""

MAX_ROUNDS = 8
"""What a function gives becomes known by inlining it; each round may find more."""


@dataclass(frozen=True)
class PartialEvaluation(Pass):
    """Copies functions for the closures, data and types that they are called with, as far as these are known.

    No function is copied more than `max_copies` times.
    """

    name: ClassVar[str] = "partial-evaluation"
    max_copies: int = 100

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        if not any(n.op is CALL or n.op is CALL_VALUE for f in module.functions for n in f.nodes):
            return module
        history = _History(self.max_copies)
        for _ in range(MAX_ROUNDS):
            after = _Evaluation(module, control, history).run()
            if after is module:
                break
            module = reached(Inline().run_under(after, control))
        return module


# --- what is known of a value -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dynamic:
    """Nothing is known but the type."""

    type: Type
    size: ClassVar[int] = 0


@dataclass(frozen=True)
class PartiallyStatic:
    """A closure, a piece of data or a tuple of what is known in turn."""

    op: Op
    attrs: tuple[object, ...]
    parts: tuple[Shape, ...]
    type: Type

    @cached_property
    def size(self) -> int:
        return 1 + sum(p.size for p in self.parts)


Shape = Dynamic | PartiallyStatic


def shape_of(node: Node) -> Shape:
    """What is known of a value."""
    found = _shape(node, MAX_SHAPE)
    return found if found is not None else Dynamic(node.type)


def _shape(node: Node, limit: int) -> Shape | None:
    """None where more is known than the limit allows."""
    if node.op not in (PARTIAL, construct, TUPLE):
        return Dynamic(node.type)
    if limit <= 0:
        return None
    parts: list[Shape] = []
    for i in node.inputs:
        part = _shape(i, limit - 1)
        if part is None:
            return None
        limit -= part.size
        parts.append(part)
    if node.op is TUPLE and all(isinstance(p, Dynamic) for p in parts):
        return Dynamic(node.type)
    return PartiallyStatic(node.op, node.attrs, tuple(parts), node.type)


def unknown_parts(node: Node, shape: Shape) -> Iterator[Node]:
    """The values that a known one is made from, in order."""
    if isinstance(shape, Dynamic):
        yield node
    else:
        for i, part in zip(node.inputs, shape.parts, strict=True):
            yield from unknown_parts(i, part)


def leaf_types(shape: Shape) -> Iterator[Type]:
    """The types of those values."""
    if isinstance(shape, Dynamic):
        yield shape.type
    else:
        for part in shape.parts:
            yield from leaf_types(part)


def value_of(shape: Shape, params: Iterator[Node], param: Node) -> Node:
    """The value over parameters that stand for its unknown parts."""
    if isinstance(shape, Dynamic):
        return next(params)
    parts = tuple(value_of(p, params, param) for p in shape.parts)
    return Node(shape.op, parts, shape.attrs, shape.type, param.origin)


# --- copies -----------------------------------------------------------------------------------------------------------

Request = tuple[str, tuple[Shape, ...], FunctionType]
"""A function, what is known of its arguments, and its type there."""


@dataclass(frozen=True)
class _Chain:
    """The copies that led to one another: the last, and those before it."""

    request: Request
    before: _Chain | None

    def last(self, name: str) -> Request | None:
        """The last copy of that function."""
        link: _Chain | None = self
        while link is not None and link.request[0] != name:
            link = link.before
        return link.request if link else None


class _History:
    """What holds in all rounds: how often functions were copied, and which of their arguments would grow for ever."""

    def __init__(self, max_copies: int) -> None:
        self.max_copies = max_copies
        self.counts: Counter[str] = Counter()
        self.growing: set[tuple[str, int]] = set()

    def admitted(self, name: str, shapes: tuple[Shape, ...], before: Request | None) -> tuple[Shape, ...]:
        """What is known of the arguments of a call within a copy for `before`, without what would grow for ever."""
        if before is not None and sum(s.size for s in shapes) > sum(s.size for s in before[1]):
            self.growing |= {(name, k) for k, (s, b) in enumerate(zip(shapes, before[1], strict=True)) if s.size > b.size}
        return tuple(Dynamic(s.type) if (name, k) in self.growing else s for k, s in enumerate(shapes))


class _Evaluation:
    """One round over a module."""

    def __init__(self, module: Module, control: RewriteControl, history: _History) -> None:
        self.module, self.control, self.history = module, control, history
        self.rules = RuleSet(CONTROL)
        self.names = {f.name for f in module.functions}
        self.copies: dict[Request, str | None] = {}
        self.queue: list[tuple[Function, _Chain]] = []

    def run(self) -> Module:
        """The module with the copies that its calls want; itself where they want none."""
        functions = [self._calls(f, None) for f in self.module.functions]
        while self.queue:
            functions.append(self._calls(*self.queue.pop()))
        return self.module.with_functions(functions)

    def _calls(self, function: Function, chain: _Chain | None) -> Function:
        """The function with its calls turned to copies where something is known of their arguments."""
        if not any(n.op is CALL or n.op is CALL_VALUE for n in function.nodes):
            return function
        function = rewrite_function(function, self.rules, self.control)

        def step(node: Node, inputs: tuple[Node, ...]) -> Node:
            call = with_inputs(node, inputs)
            return self._directed(call, chain) if call.op is CALL else call

        return rebuilt(function, step)

    def _directed(self, call: Node, chain: _Chain | None) -> Node:
        name, signature = call.attrs
        if name not in self.module or self.module[name].vjp is not None or not is_static(signature):
            return call
        shapes = self.history.admitted(name, tuple(map(shape_of, call.inputs)), chain.last(name) if chain else None)
        is_generic = self.module[name].type != signature
        if not is_generic and all(isinstance(s, Dynamic) for s in shapes):
            return call
        copy = self._copy((name, shapes, signature), chain, call)
        if copy is None:
            return call
        args = tuple(part for i, s in zip(call.inputs, shapes, strict=True) for part in unknown_parts(i, s))
        type = FunctionType(tuple(a.type for a in args), signature.results)
        return Node(CALL, args, (copy, type), call.type, call.origin)

    def _copy(self, request: Request, chain: _Chain | None, call: Node) -> str | None:
        """The name of the copy; None where there cannot be one."""
        if request not in self.copies:
            name = request[0]
            self.copies[request] = None
            counts = self.history.counts
            may = counts[name] < self.history.max_copies
            made = copied(self.module[name], request, self._unused(name)) if may else None
            if made is not None and self.control.permit("partial-evaluation", call, made.results[0] if made.results else call):
                counts[name] += 1
                self.names.add(made.name)
                self.copies[request] = made.name
                self.queue.append((made, _Chain(request, chain)))
        return self.copies[request]

    def _unused(self, name: str) -> str:
        k = self.history.counts[name]
        while f"{name}.{k}" in self.names:
            k += 1
        return f"{name}.{k}"


def copied(function: Function, request: Request, name: str) -> Function | None:
    """The function for what is known of its arguments; None where its types do not become known by them."""
    _, shapes, signature = request
    parts = [(p, t) for p, s in zip(function.params, shapes, strict=True) for t in leaf_types(s)]
    params = tuple(Node(PARAM, (), (k, t), t, p.origin) for k, (p, t) in enumerate(parts))
    given = iter(params)
    try:
        sizes = _sizes(function, signature)
        made = {p: value_of(s, given, p) for p, s in zip(function.params, shapes, strict=True)}
        rebuild(function.nodes, made, lambda node, inputs: _copied_node(node, inputs, sizes))
    except InferError:
        return None
    results = tuple(made[r] for r in function.results)
    if tuple(r.type for r in results) != signature.results:
        return None
    names = tuple(function.result_name(k) for k in range(len(results)))
    return replace(function, name=name, params=params, results=results, public=False, result_names=names)


def _sizes(function: Function, signature: FunctionType) -> Sizes:
    """What the symbols and type variables of a function's type stand for. Raises InferError where it does not fit."""
    sizes: Sizes = {}
    for declared, actual in zip(function.type.params + function.type.results, signature.params + signature.results, strict=True):
        bind_sizes(declared, actual, sizes)
    return sizes


def _copied_node(node: Node, inputs: tuple[Node, ...], sizes: Sizes) -> Node:
    """The node over other inputs; inferred anew where types change with them. Raises InferError where it has no known type."""
    if node.op is LOOP_BEGIN:
        return Node(node.op, inputs, (fresh_loop(),), node.op.infer([i.type for i in inputs], 0), node.origin)
    if not sizes:
        return Node(node.op, inputs, node.attrs, node.type, node.origin)
    attrs = tuple(resolve(v, a.kind, sizes) for a, v in zip(node.op.attrs, node.attrs, strict=True))
    type = node.op.infer([i.type for i in inputs], *attrs)
    if not is_static(type):
        raise InferError(f"the type of {node.name or node.op.name} is only known as {type}")
    return Node(node.op, inputs, attrs, type, node.origin)
