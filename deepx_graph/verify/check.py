"""Whether a module is well formed: every node by its op's own rules, and what no node can tell alone.

Node by node: operands, attributes, type, callee. Over a function: parameters, loops closed once and left only through their end,
the state passed on like a baton. All problems are collected, each with the node's location, its printed form and the op's words.
Near-linear in the number of nodes. A function in an attribute is verified like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, VerifyError, an, suggest
from deepx_graph.ir import Function, Module, Node, Op, problem
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION, value_of
from deepx_graph.literal import Literal
from deepx_graph.types import TensorType, TupleType, Type, merge_types
from deepx_graph.verify.control import LoopDependences, Report, Threads

MAX_BODY_DEPTH = 100
"""Functions in attributes of functions in attributes, and so on."""

MAX_BYTES = (1 << 63) - 1
"""Bytes that can be counted by a machine at all; a run has bounds of its own."""


def verify(module: Module) -> None:
    """Raises VerifyError with every problem of the module; returns when there is none.

    A node that keeps its own rules is marked and not looked at again: after a pass only what the pass made is checked node by node.
    """
    problems: list[Diagnostic] = []
    _check_names(module, problems.append)
    checked: set[int] = set()
    known: set[Hashable] = set()
    work = [(f, 0) for f in reversed(module.functions)]
    while work:
        function, depth = work.pop()
        if id(function) in checked:
            continue
        checked.add(id(function))
        if depth > MAX_BODY_DEPTH:
            problems.append(Diagnostic(f"functions are nested deeper than {MAX_BODY_DEPTH}", function.span))
            continue
        work += [(body, depth + 1) for body in _check_function(module, function, problems.append, known)]
    if problems:
        raise VerifyError(*problems)


def _bodies(node: Node) -> Iterator[Function]:
    return (value for value in node.attrs if isinstance(value, Function))


# --- the module ---------------------------------------------------------------------------------------------------


def _check_names(module: Module, report: Report) -> None:
    names = [f.name for f in module.functions]
    if module.entry_name not in names:
        report(Diagnostic(f"the entry '{module.entry_name}' is no function of the module",
                          expected=", ".join(names[:8]) or "a function", hint=suggest(module.entry_name, names)))
    met: set[str] = set()
    for f in module.functions:
        if f.name in met:
            report(Diagnostic(f"two functions are named '{f.name}'", f.span))
        met.add(f.name)
        if f.vjp is not None and f.vjp not in module:
            report(Diagnostic(f"'{f.vjp}', the derivative of '{f.name}', is no function of the module", f.span,
                              hint=suggest(f.vjp, names)))
    made = Counter(name for data in module.datas for name in (data.name, *(c.name for c in data.constructors)))
    for name, count in made.items():
        if count > 1:
            report(Diagnostic(f"two data types or constructors are named '{name}'"))


def _check_function(module: Module, function: Function, report: Report, known: set[Hashable]) -> list[Function]:
    """Reports what is wrong with the function; gives the functions in its nodes' attributes. `known` are signatures of the module
    that are right, of operations that have such."""
    _check_params(function, report)
    own = set(function.params)
    bodies: list[Function] = []
    sound, holds_state, loops = True, False, False
    for node in function.nodes:
        op = node.op
        if op is PARAM and node not in own:
            report(problem(node, f"is used in '{function.name}' and is none of its parameters",
                            hint="a function is closed: pass the value as an argument"))
        if op.in_module is not None:
            for wrong in op.in_module(module, node):
                report(wrong)
        if op.function_attrs:
            bodies += _bodies(node)
        elif op is LOOP_BEGIN:
            loops = True
        if node.type.holds_state:
            holds_state = True
        if node.sound:
            continue
        fault = _own_problem(node, known)
        if fault is not None:
            report(fault)
            sound = False
        else:
            object.__setattr__(node, "sound", True)
    if sound and loops:  # these checks rely on operands being where the op has them
        LoopDependences(function, report).check()
    if sound and holds_state:
        Threads(function, report).check()
    return bodies


def _check_params(function: Function, report: Report) -> None:
    own = set(function.params)
    if len(own) < len(function.params):
        report(Diagnostic(f"function '{function.name}' has the same parameter twice", function.span))
    for k, p in enumerate(function.params):
        if p.op is not PARAM or p.attrs[:1] != (k,):
            report(problem(p, f"stands as parameter {k} of '{function.name}'", expected=f"param with index {k}"))
    if len(function.result_names) not in (0, len(function.results)):
        report(Diagnostic(f"function '{function.name}' has {len(function.results)} results and "
                          f"{len(function.result_names)} names for them", function.span))


# --- one node -----------------------------------------------------------------------------------------------------


def _own_problem(node: Node, known: set[Hashable]) -> Diagnostic | None:
    """The fault of a node, found from its declaration and inputs alone."""
    op, attrs, inputs, serial = node.op, node.attrs, node.inputs, node.serial
    if op is CONSTANT and _is_its_value(node):
        return None
    is_plain = op is not PHI and op is not CONSTANT and op is not LOOP_END
    for i in inputs:
        if i.serial >= serial:
            return problem(node, "is older than one of its inputs")
        if i.op is LOOP_BEGIN:
            is_plain = False
    types, kinds = tuple([i.type for i in inputs]), tuple(map(type, attrs)) if attrs else ()
    try:
        try:
            if op.function_attrs:
                _check_with_functions(known, op, types, attrs, kinds, node.type)
            else:
                _check_signature(op, types, attrs, kinds, node.type)
        except TypeError:  # an attribute that cannot be hashed is of no kind that there is
            _check_signature.__wrapped__(op, types, attrs, kinds, node.type)
    except InferError as e:
        return problem(node, e.message, e.expected, e.hint)
    return None if is_plain else _structural_problem(node)


def _is_its_value(node: Node) -> bool:
    """Whether a constant is a value under the type of that value, which is all that there is to one."""
    return not node.inputs and len(node.attrs) == 1 and isinstance(value := value_of(node), Literal) and node.type == value.type


@lru_cache(maxsize=4096)
def _check_signature(op: Op, types: tuple[Type, ...], attrs: tuple[Any, ...], kinds: tuple[type, ...], type: Type) -> None:
    """Raises InferError where the op does not take such operands and attributes, or gives another type.

    Programs repeat themselves: there are a few hundred signatures in 100 000 operations. `kinds` are those of the attributes, as 1
    is equal to True.
    """
    op.check_arity(len(types))
    if len(attrs) != len(op.attrs):
        raise InferError(f"has {len(attrs)} attributes", expected=str(len(op.attrs)))
    if op.attrs:
        op.bind({a.name: v for a, v in zip(op.attrs, attrs, strict=True)})
    inferred = op.infer(types, *attrs)
    if inferred is not type:
        merge_types(inferred, type)
    _check_countable(type)


def _check_with_functions(known: set[Hashable], op: Op, types: tuple[Type, ...], attrs: tuple[Any, ...], kinds: tuple[type, ...],
                          type: Type) -> None:
    """The same where attributes are functions, once for each: for one module alone, as what is remembered stays, and a function
    would with all its nodes."""
    signature = op, types, tuple([id(a) if isinstance(a, Function) else a for a in attrs]), kinds, type
    if signature not in known:
        _check_signature.__wrapped__(op, types, attrs, kinds, type)
        known.add(signature)


@lru_cache(maxsize=65536)
def _check_countable(type: Type) -> None:
    """Raises InferError for a tensor whose sizes or bytes no machine can address."""
    if isinstance(type, TupleType):
        for item in type.items:
            _check_countable(item)
    elif isinstance(type, TensorType) and type.dims is not None:
        known = [d for d in type.dims if isinstance(d, int)]
        if max(known, default=0) > MAX_BYTES or (type.is_static and type.nbytes > MAX_BYTES):
            raise InferError(f"{type} is larger than any memory", expected=f"at most {MAX_BYTES} bytes")


def _structural_problem(node: Node) -> Diagnostic | None:
    """The fault of a control node, or of a node that reads one that it may not read."""
    if node.op is PHI and node.inputs[0].op not in (REGION, LOOP_BEGIN):
        return problem(node, f"reads {an(node.inputs[0].op.name)}", expected="a region or loop_begin",
                        hint="an item of any other tuple is a proj")
    if node.op is CONSTANT and node.type != value_of(node).type:
        return problem(node, f"is a constant of type {value_of(node).type}", expected="the type of its value")
    if node.op is LOOP_END and node.inputs[0].op is not LOOP_BEGIN:
        return problem(node, f"closes {an(node.inputs[0].op.name)}", expected="a loop_begin")
    for k, i in enumerate(node.inputs):
        if i.op is LOOP_BEGIN and node.op is not PHI and not (node.op is LOOP_END and k == 0):
            return problem(node, f"operand {k} is a loop_begin, which is no value",
                            expected="phi of the loop_begin, or proj of its loop_end")
    return None
