"""What callers meet at the public functions: arguments are held to their annotations, and only errors of this package leave."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
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
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD and not _fits(value, hints()[name]):
                raise UsageError(Diagnostic(f"{function.__name__}: '{name}' cannot be of type {type(value).__name__}",
                                            expected=str(signature.parameters[name].annotation)))
        try:
            return function(*args, **kwargs)
        except InferError as e:
            raise VerifyError(e.diagnostic(None)) from None

    return called


def _fits(value: object, hint: Any) -> bool:
    """Whether a value may stand where the annotation is; any value may be asked whether it is true."""
    if hint is Any or hint is bool:
        return True
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, h) for h in get_args(hint))
    if origin is Sequence:
        return isinstance(value, Sequence) and all(_fits(v, get_args(hint)[0]) for v in value)
    if hint is int:
        return hasattr(value, "__index__")
    if hint is TextIO:
        return hasattr(value, "write")
    return isinstance(value, os.PathLike if hint is Path else origin or hint)
