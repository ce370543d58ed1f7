"""The program that a function of arrays is: it is run once, on arrays without values, and what it does to them is the graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.array_api.array import Array, C, as_array
from deepx_graph.errors import Diagnostic, InferError, UsageError, VerifyError
from deepx_graph.ir import Function, Module
from deepx_graph.ir.structure import PARAM
from deepx_graph.runtime.inputs import Port
from deepx_graph.session.inputs import shaped
from deepx_graph.types import F32, TensorType, type_of_array
from deepx_graph.verify import verify

Tree = Any
"""Nested tuples, lists and dicts."""


def trace(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Module:
    """The program. Arrays and texts such as `f32[2,3]` among the arguments, also in nested tuples, lists and dicts, are its inputs;
    everything else is as it is.

    Arguments that are not given are the types of annotations, or the defaults. Raises UsageError for an argument that is neither,
    for a value that is asked for while tracing, and for a result that is no array; what the function raises passes through.
    """
    given = _bound(function, args, kwargs)
    params: list[tuple[str, TensorType]] = []

    def leaf(name: str, value: Any) -> Any:
        type = _input_type(name, value)
        if type is None:
            return value
        params.append((name, type))
        return Array(C.b.param(len(params) - 1, type, name))

    inputs = {name: _mapped(name, value, leaf) for name, value in given.items()}
    try:
        results = list(_leaves("", _call(function, inputs)))
        nodes = tuple(as_array(value).node for _, value in results)
    except InferError as e:
        raise VerifyError(e.diagnostic(None)) from None
    traced = [a for value in inputs.values() for _, a in _leaves("", value) if isinstance(a, Array) and a.node.op is PARAM]
    name = getattr(function, "__name__", "main")
    main = Function(name if name.isidentifier() else "main", tuple(a.node for a in traced), nodes,
                    tuple(n for n, _ in results) if all(n for n, _ in results) else ())
    module = Module((main,), main.name)
    verify(module)
    return module


def _bound(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, with what is not given. Raises UsageError for what nothing says."""
    if not callable(function):
        raise UsageError(f"no function is in an object of type {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # one written in C, which does not say what it takes
        raise UsageError(f"what {function!r} takes is not known: wrap it in a function of Python") from None
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError as e:
        raise UsageError(Diagnostic(f"{getattr(function, '__name__', 'the function')}: {e}", expected=str(signature))) from None
    for name, p in signature.parameters.items():
        if name in given or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        if p.default is not p.empty:
            given[name] = p.default
        elif isinstance(p.annotation, str) and "[" in p.annotation:
            given[name] = p.annotation.strip("'\"")
        else:
            raise UsageError(Diagnostic(f"nothing says what '{name}' is",
                                        expected="an example, a type such as 'f32[2,3]', a default, an annotation that is a type"))
    return {n: given[n] for n in signature.parameters if n in given}


def _call(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """What the function gives for arguments by name."""
    bound = inspect.signature(function).bind_partial()
    bound.arguments = dict(given)
    return function(*bound.args, **bound.kwargs)


def _input_type(name: str, value: Any) -> TensorType | None:
    """The type of an input; None for a value that is none."""
    if isinstance(value, Array):
        return value.type
    if isinstance(value, str) and value.endswith("]") and "[" in value:
        return shaped(Port(name, TensorType(F32, None)), value)
    if isinstance(value, TensorType):
        return value
    if hasattr(value, "__array__") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return type_of_array(np.asarray(value))
    return None


def _mapped(name: str, value: Tree, leaf: Callable[[str, Any], Any]) -> Tree:
    if isinstance(value, dict):
        return {k: _mapped(f"{name}.{k}", v, leaf) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(f"{name}.{n}", v, leaf) for n, v in zip(value._fields, value, strict=True)))
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(f"{name}.{k}", v, leaf) for k, v in enumerate(value))
    return leaf(name, value)


def _leaves(name: str, value: Tree) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree in order, with names that dicts and named tuples give. None has no leaves."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from _leaves(f"{name}.{k}" if name else str(k), v)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for n, v in zip(value._fields, value, strict=True):
            yield from _leaves(f"{name}.{n}" if name else n, v)
    elif isinstance(value, (tuple, list)):
        for k, v in enumerate(value):
            yield from _leaves(f"{name}.{k}" if name else "", v)
    elif value is not None:
        yield name, value
