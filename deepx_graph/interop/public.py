"""What makes a function public: arguments are held to their annotations, and only errors of this package leave."""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, ParamSpec, TextIO, TypeVar, Union, get_args, get_origin, get_type_hints

from deepx_graph.errors import Diagnostic, InferError, UsageError, VerifyError

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which raises UsageError for an argument of another type than its annotation, and no InferError."""
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        taken = {name: p.annotation for name, p in signature.parameters.items()}
        return get_type_hints(SimpleNamespace(__annotations__=taken), function.__globals__)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as e:
            raise UsageError(Diagnostic(f"{function.__name__}: {e}", expected=f"{function.__name__}{signature}")) from None
        for name, value in given.items():
            if signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD and not _fits(value, hints()[name]):
                what = reprlib.repr(value) if isinstance(value, (Mapping, list, tuple)) else f"of type {type(value).__name__}"
                raise UsageError(Diagnostic(f"{function.__name__}: '{name}' cannot be {what}",
                                            expected=str(signature.parameters[name].annotation)))
        try:
            return function(*args, **kwargs)
        except InferError as e:
            raise VerifyError(e.diagnostic(None)) from None

    return called


def _fits(value: object, hint: Any) -> bool:
    """Whether a value may stand where the annotation is: what can be asked whether it is true, for a bool; an index, for an int; a
    real number, for a float."""
    if hint is Any:
        return True
    if isinstance(hint, TypeVar):
        return hint.__bound__ is None or _fits(value, hint.__bound__)
    origin = get_origin(hint)
    if origin is type:
        return isinstance(value, type) and issubclass(value, get_args(hint)[0])
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(v, get_args(hint)[0]) for v in value)
    if origin in (Union, UnionType):
        return any(_fits(value, h) for h in get_args(hint))
    if origin is Sequence:
        return isinstance(value, Sequence) and all(_fits(v, get_args(hint)[0]) for v in value)
    if origin is Mapping:
        key, of = get_args(hint)
        return isinstance(value, Mapping) and all(_fits(k, key) for k in value) and (
            of is Any or all(_fits(v, of) for v in value.values()))  # an archive of arrays reads them to give them
    if hint is int or hint is bool:
        try:
            (operator.index if hint is int else bool)(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False
        return True
    if hint is float:
        return isinstance(value, numbers.Real)
    if hint is TextIO:
        return hasattr(value, "write")
    return isinstance(value, os.PathLike if hint is Path else origin or hint)
