"""The fingerprint of a module: the same in every process for modules that are the same up to the identity of their nodes.

Names of functions, inputs and results count; what a text says beside what is computed (places, notes) does not. An operation is
told by its name: once a plugin has added something, which may mean anything in the next process, nothing has a fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from deepx_graph.ir.function import Function, Module
from deepx_graph.literal import Literal, bits
from deepx_graph.types import DType, Type

_added: list[str] = []


def add(name: str) -> None:
    """Something of this name is not of this package, and was added to it in this process."""
    _added.append(name)


def fingerprint(module: Module) -> bytes | None:
    """32 bytes that tell the module from all others; None where something was added, and for a module with an attribute of a kind
    that no operation of this package has."""
    if _added:
        return None
    parts: list[str] = [module.entry_name]
    writer = _Writer(parts.append)
    try:
        writer.value(module.datas)
        for function in module.functions:
            names = (function.name, function.public, function.vjp, tuple(p.name for p in function.params),
                     tuple(function.result_name(k) for k in range(len(function.results))))
            writer.value((names, function))
    except TypeError:
        return None
    return hashlib.sha256(_joined(parts)).digest()


class _Writer:
    """Says values in lines, each of which begins with what kind of value it is."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self.line = line
        self._known: dict[int, tuple[object, str]] = {}
        """Types and bodies of functions, which many nodes share, and how they are said."""

    def value(self, value: Any) -> None:
        """Raises TypeError for a value of an unknown kind."""
        if value is None or isinstance(value, (bool, int, str, float, complex, bytes)):
            self.line(f"{type(value).__name__} {value!r}")
        elif isinstance(value, (tuple, list)):
            self.line(f"items {len(value)}")
            for item in value:
                self.value(item)
        elif isinstance(value, (Type, DType)):
            self._once(value, lambda: f"type {value}")
        elif isinstance(value, Function):
            self._once(value, lambda: f"function {_digest(value.structure)}")
        elif isinstance(value, Literal):
            self.line(f"literal {value.type} {_content(value)}")
        elif isinstance(value, np.generic):
            self.line(f"number {value.dtype.str} {value.tobytes().hex()}")
        elif isinstance(value, Enum):
            self.line(f"enum {type(value).__name__} {value.name}")
        elif isinstance(value, dict):
            self.value(tuple(value.items()))
        elif is_dataclass(value):
            self.line(f"object {type(value).__name__}")
            self.value(tuple(getattr(value, f.name) for f in fields(value) if f.compare))
        else:
            raise TypeError(f"no fingerprint of a {type(value).__name__}")

    def _once(self, value: object, said: Callable[[], str]) -> None:
        if id(value) not in self._known:
            self._known[id(value)] = value, said()
        self.line(self._known[id(value)][1])


def _digest(value: Any) -> str:
    parts: list[str] = []
    _Writer(parts.append).value(value)
    return hashlib.sha256(_joined(parts)).hexdigest()


def _joined(lines: Sequence[str]) -> bytes:
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _content(literal: Literal) -> str:
    """A digest of the elements; of one that is stored once the bits of that."""
    array = literal.array
    if array.dtype.hasobject:
        return _digest(tuple(map(str, array.reshape(-1).tolist())))
    if literal.is_splat:
        return "all " + str(array[(0,) * array.ndim].tobytes().hex())
    return hashlib.sha256(bits(array).data).hexdigest()
