"""A module for given inputs: every type known, every seed fixed.

Symbols and unknown ranks are resolved by inferring every node again from the types of the inputs; a symbol is one size throughout.
Functions are copied once for each signature they are called with; a recursive call takes the callee's declared results. Functions
in which nothing is unknown stay the same objects, and so does the module when there is nothing to do. What was deferred until types
or values are known is lowered; the values of inputs that this asks for are then part of what the module is specialised to.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError, Diagnostic, InferError, RunError, an
from deepx_graph.ir import Builder, Function, Module, Node, fresh_loop
from deepx_graph.ir.structure import CALL, CONSTANT, LOOP_BEGIN, PARAM, PARTIAL, callee_of, index_of, signature_of
from deepx_graph.literal import Literal
from deepx_graph.ops.data.deferred import Lowering, lowering_of
from deepx_graph.ops.host.effects import loaded_path
from deepx_graph.ops.host.host import Host
from deepx_graph.ops.known import KnownValues
from deepx_graph.ops.math.random import derive_seed, draw_index
from deepx_graph.types import (
    FunctionType,
    Sizes,
    TensorType,
    Type,
    bind_sizes,
    is_static,
    merge_types,
    resolve,
    resolve_type,
    scalar,
)
from deepx_graph.verify import verify

Request = tuple[str, tuple[Type, ...]]
"""A function and the types of its arguments (of the parameters, that is)."""

Rebuild = Generator[Request, FunctionType, Function]
"""Asks for the callees that it meets, is sent their types, and gives the function."""


class InputValues:
    """The values of the entry's parameters, and which of them the specialised module depends on (`asked`)."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values
        self.asked: set[int] = set()

    def __call__(self, index: int) -> Any:
        self.asked.add(index)
        return self.values[index]


def specialise(module: Module, input_types: Sequence[Type], *, seed: int = 0, data_root: Path | None = None,
               arguments: InputValues | None = None) -> Module:
    """The module for entry parameters of these types, with seeds derived from `seed` (`ops.random.derive_seed`).

    Files that are loaded give their types now. Deferred operations are lowered by the values of `arguments` where they need them.
    Raises RunError when an input does not fit or a type stays unknown, VerifyError when the result is not well-formed.
    """
    entry = module.entry
    if len(input_types) != len(entry.params):
        raise RunError(f"{len(input_types)} input types for the {len(entry.params)} parameters of '{entry.name}'")
    work = _Specialiser(module, seed, data_root, arguments)
    if entry.name not in work.open and tuple(input_types) == entry.type.params:
        return module
    result = module.with_functions(work.run((entry.name, tuple(input_types))))
    verify(result)
    return result


def has_deferred(module: Module) -> bool:
    """Whether something waits for the values of inputs, as it may."""
    return any(lowering_of(n) is not None for f in module.functions for n in f.nodes)


def is_fixed(module: Module) -> bool:
    """Whether the types of all inputs are known, and nothing waits for their values: the module can be made ready before a call."""
    return all(is_static(p.type) for p in module.entry.params) and not has_deferred(module)


def is_open(function: Function) -> bool:
    """Whether something in the function itself, a body of an operation included, is not known before it is specialised."""
    stack, seen = [function], {id(function)}
    while stack:
        for n in stack.pop().nodes:
            if draw_index(n) is not None or not is_static(n.type) or lowering_of(n) is not None:
                return True
            for a, value in zip(n.op.attrs, n.attrs, strict=True):
                if a.kind == "dims" and not all(isinstance(d, int) for d in value):
                    return True
                if a.kind == "function" and id(value) not in seen:
                    seen.add(id(value))
                    stack.append(value)
    return False


class _Specialiser:
    """Rebuilds functions on demand, one after the other, on an explicit stack."""

    def __init__(self, module: Module, seed: int, data_root: Path | None, arguments: InputValues | None = None,
                 around: Sizes | None = None) -> None:
        self.around = around or {}  # what symbols are that a body of an operation shares with what is around it
        self.module, self.seed, self.arguments = module, seed, arguments
        self.world = Host(data_root)
        self.open = self._open_functions()
        self.done: dict[Request, Function] = {}
        self.started: dict[Request, str] = {}
        self.names = {f.name for f in module.functions}
        self.taken: set[str] = set()

    def _open_functions(self) -> set[str]:
        """The functions that must be copied: something in them is unknown, or in what they call."""
        callers: dict[str, set[str]] = {f.name: set() for f in self.module.functions}
        for f in self.module.functions:
            for n in f.nodes:
                if (n.op is CALL or n.op is PARTIAL) and callee_of(n) in callers:
                    callers[callee_of(n)].add(f.name)
        found = {f.name for f in self.module.functions if is_open(f)}
        stack = list(found)
        while stack:
            new = callers[stack.pop()] - found
            found |= new
            stack += new
        return found

    def run(self, request: Request) -> list[Function]:
        """The functions of the new module: the requested one first, then what it needs."""
        stack: list[tuple[Request, Rebuild]] = [(request, self._rebuild(request))]
        answer: FunctionType | None = None
        while stack:
            current, work = stack[-1]
            try:
                wanted = work.send(answer)  # type: ignore[arg-type]  # None starts a generator
            except StopIteration as e:
                self.done[current] = e.value
                answer = e.value.type
                stack.pop()
                continue
            if wanted in self.done:
                answer = self.done[wanted].type
            elif wanted in self.started:
                answer = self._declared(wanted)
            else:
                stack.append((wanted, self._rebuild(wanted)))
                answer = None
        kept = [f for f in self.module.functions if f.name not in self.open and f.name != request[0]]
        return [self.done[request], *(f for r, f in self.done.items() if r != request), *kept]

    def _declared(self, request: Request) -> FunctionType:
        """The signature of a function that is being built further down the stack: what it declares, at these sizes."""
        function = self.module[request[0]]
        sizes: Sizes = {}
        for p, t in zip(function.params, request[1], strict=True):
            bind_sizes(p.type, t, sizes)
        results = tuple(resolve_type(r, sizes) for r in function.type.results)
        if not all(map(is_static, results)):
            message = f"'{function.name}' calls itself and the types of its results are not declared"
            raise RunError(Diagnostic(message, function.span, expected="static result types"))
        return FunctionType(request[1], results)

    def _name(self, request: Request) -> str:
        """The name of a copy: the function's own for the first one, then `name.1`, ..."""
        if request not in self.started:
            name, k = request[0], 0
            while name in self.taken or (k and name in self.names):
                k += 1
                name = f"{request[0]}.{k}"
            self.taken.add(name)
            self.started[request] = name
        return self.started[request]

    def _rebuild(self, request: Request) -> Rebuild:
        function = self.module[request[0]]
        name = self._name(request)
        new: dict[Node, Node] = {}
        sizes: Sizes = {}
        known = KnownValues(self.arguments if function is self.module.entry else None)
        for p, actual in zip(function.params, request[1], strict=True):
            type = _param_type(function, p, actual, sizes)
            new[p] = Node(PARAM, (), (index_of(p), type), type, p.origin)
        sizes = {**self.around, **sizes}
        for node in function.nodes:
            if node in new:
                continue
            inputs = tuple(new[i] for i in node.inputs)
            try:
                lowering = lowering_of(node)
                if lowering is not None:
                    new[node] = _lowered(lowering, node, inputs, known)
                    continue
                if node.op is CALL or node.op is PARTIAL:
                    attrs: tuple[Any, ...] = yield from self._callee(node, inputs, sizes)
                else:
                    attrs = self._attrs(node, inputs, sizes)
                new[node] = self._node(node, inputs, attrs)
            except InferError as e:
                raise RunError(e.diagnostic(node.span, f"{node.op.name}: ")) from None
        params, results = tuple(new[p] for p in function.params), tuple(new[r] for r in function.results)
        names = tuple(function.result_name(k) for k in range(len(results)))
        return function.with_(name=name, params=params, results=results, result_names=names)

    def _callee(self, node: Node, inputs: tuple[Node, ...], sizes: Sizes) -> Generator[Request, FunctionType, tuple[Any, ...]]:
        """The callee and signature of a call or closure; asks for a copy of a callee in which something is unknown."""
        callee, signature = callee_of(node), resolve_type(signature_of(node), sizes)
        if callee not in self.open:
            return callee, self.module[callee].type
        assert isinstance(signature, FunctionType)
        given = tuple(i.type for i in inputs)
        types = tuple(merge_types(t, p) for t, p in zip(given, signature.params, strict=False)) + signature.params[len(given) :]
        if not all(map(is_static, types)):
            raise InferError(f"the types of the arguments of the function value '{callee}' are not known")
        found = yield callee, types
        return self.started[callee, types], found

    def _attrs(self, node: Node, inputs: tuple[Node, ...], sizes: Sizes) -> tuple[Any, ...]:
        if node.op is LOOP_BEGIN:
            return (fresh_loop(),)
        path = loaded_path(node)
        if path is not None and not is_static(node.attr("type")):
            return path, merge_types(node.attr("type"), self._type_of_file(node, path))
        return tuple(
            self._body(v, inputs, sizes) if a.kind == "function" else resolve(v, a.kind, sizes)
            for a, v in zip(node.op.attrs, node.attrs, strict=True)
        )

    def _type_of_file(self, node: Node, path: str) -> TensorType:
        """What the file of a `load` holds. Raises RunError, at the instruction, when that cannot be told."""
        try:
            return self.world.type_of(path)
        except RunError as e:
            raise RunError(*(replace(d, span=d.span or node.span) for d in e.diagnostics)) from None

    def _body(self, body: Function, inputs: Sequence[Node], sizes: Sizes) -> Function:
        """The body of an operation for operands of these types; its scalar parameters take the operands' dtype."""
        if not is_open(body) or len(body.params) != len(inputs):
            return body
        types = []
        for p, i in zip(body.params, inputs, strict=True):
            by_element = isinstance(p.type, TensorType) and p.type.dims == () and isinstance(i.type, TensorType)
            types.append(scalar(i.type.dtype) if by_element and isinstance(i.type, TensorType) else i.type)
        inner = _Specialiser(Module((body,), body.name), self.seed, self.world.data_root, around=sizes)
        return inner.run((body.name, tuple(types)))[0]

    def _node(self, node: Node, inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Node:
        draw = draw_index(node)
        if draw is not None:
            literal = Literal(np.asarray(derive_seed(self.seed, draw), np.int64))
            return Node(CONSTANT, (), (literal,), literal.type, node.origin)
        type = node.op.infer([i.type for i in inputs], *attrs)
        if not is_static(type):
            message = f"the type of {node.name or node.op.name} is only known as {type}"
            raise InferError(message, hint="give the inputs' shapes, or state its type in the text")
        return Node(node.op, inputs, attrs, type, node.origin)


def _lowered(lowering: Lowering, node: Node, inputs: tuple[Node, ...], known: KnownValues) -> Node:
    """What a deferred operation means for these operands. Raises RunError for what still is not known."""
    try:
        made = lowering(Builder(origin=node.origin), inputs, known)
    except DeepxGraphError as e:
        raise RunError(*e.diagnostics) from None
    if not is_static(made.type):
        raise InferError(f"the type of {node.name or node.attr('name')} is only known as {made.type}")
    return made


def _param_type(function: Function, param: Node, actual: Type, sizes: Sizes) -> Type:
    try:
        bind_sizes(param.type, actual, sizes)
        return merge_types(param.type, actual)
    except InferError as e:
        name = param.name or f"arg{index_of(param)}"
        message = f"input '{name}' of '{function.name}' is {an(actual)}: {e.message}"
        raise RunError(Diagnostic(message, param.span, expected=str(param.type))) from None
