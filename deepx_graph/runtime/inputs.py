"""The inputs and outputs of a compiled module: their names and types, and what a caller gave for them.

A tuple-typed parameter is one input for each of its leaves, `name.0`, `name.1`; the state of effects is none. Every complaint names
the input and says what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, an, counted, suggest
from deepx_graph.ir import Function
from deepx_graph.literal import Array
from deepx_graph.ops.host.host import Host
from deepx_graph.types import ANY, STRING, StateType, TensorType, TupleType, Type, dtype_of, type_of_array


@dataclass(frozen=True)
class Port:
    """An input or output: a tensor, with the name it goes by."""

    name: str
    type: Type

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type}>"


def ports_of(named: Iterable[tuple[str, Type]]) -> tuple[Port, ...]:
    """The ports of named values: their leaves, states left out."""
    return tuple(Port(n, t) for name, type in named for n, t in _leaves(name, type) if not isinstance(t, StateType))


def input_ports(function: Function) -> tuple[Port, ...]:
    """The inputs of a function; a parameter without a name is `arg<k>`."""
    return ports_of((p.name or f"arg{k}", p.type) for k, p in enumerate(function.params))


def output_ports(function: Function) -> tuple[Port, ...]:
    """The outputs of a function."""
    return ports_of((function.result_name(k), r.type) for k, r in enumerate(function.results))


def _leaves(name: str, type: Type) -> Iterator[tuple[str, Type]]:
    if isinstance(type, TupleType):
        for k, item in enumerate(type.items):
            yield from _leaves(f"{name}.{k}", item)
    else:
        yield name, type


def bind(ports: Sequence[Port], arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Array]:
    """One C-contiguous array for each port, by position and name. Raises RunError for what is missing, extra or ill-typed."""
    if not named and len(arrays) == len(ports) and all(map(_fits_as_it_is, ports, arrays)):
        return list(arrays)
    expected = ", ".join(f"{p.name}: {p.type}" for p in ports) or "no inputs"
    if len(arrays) > len(ports):
        told = f"{counted(len(arrays), 'input is', 'inputs are')} given and the program takes {len(ports)}"
        raise RunError(Diagnostic(told, expected=expected))
    given: dict[int, Any] = dict(enumerate(arrays))
    index = {p.name: k for k, p in reversed(list(enumerate(ports)))}
    for name, value in named.items():
        if name not in index:
            raise RunError(Diagnostic(f"the program has no input '{name}'", expected=expected, hint=suggest(name, index)))
        if index[name] in given:
            raise RunError(Diagnostic(f"input '{name}' is given twice", expected=expected))
        given[index[name]] = value
    problems = [
        Diagnostic(f"input '{p.name}' is missing", expected=f"{p.name}: {p.type}") for k, p in enumerate(ports) if k not in given
    ]
    if problems:
        raise RunError(*problems)
    found = [_array(p, given[k]) for k, p in enumerate(ports)]
    wrong = [d for p, a in zip(ports, found, strict=True) if (d := mismatch(p, a)) is not None]
    wrong += _unequal(ports, found)
    if wrong:
        raise RunError(*wrong)
    return found


def _fits_as_it_is(port: Port, value: Any) -> bool:
    """The usual case: an array of just the type, whose sizes are all known."""
    t = port.type
    return (
        type(value) is np.ndarray and isinstance(t, TensorType) and value.shape == t.dims
        and value.dtype == t.dtype.np and t.dtype is not STRING and value.dtype.isnative and value.flags.c_contiguous
    )  # fmt: skip


def _array(port: Port, value: Any) -> Array:
    """The value as an array in native byte order; a Python number takes the dtype of its port."""
    type = port.type
    weak = isinstance(value, (bool, int, float, complex)) and isinstance(type, TensorType)
    if isinstance(value, np.ndarray) and hasattr(value, "mask") and np.ma.is_masked(value):
        raise RunError(Diagnostic(f"input '{port.name}' has masked elements, and programs know no masks", expected=str(type),
                                  hint="give the numbers that stand there instead: filled(0)"))
    try:
        if weak and isinstance(type, TensorType) and type.dims == () and type.dtype is not ANY:
            return np.asarray(value, dtype=type.dtype.np)
        array = np.asarray(value)
        if array.dtype.kind in TEXTS:
            return _texts(port, array)
        return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    except (ValueError, TypeError, OverflowError) as e:
        raise RunError(Diagnostic(f"input '{port.name}' is not an array: {e}", expected=str(type))) from None


TEXTS = "OTU"
"""The kinds of numpy arrays that texts may come in."""


def _texts(port: Port, array: Array) -> Array:
    """Texts as objects. Raises RunError for other objects."""
    made = np.array(array, dtype=np.object_, order="C")
    odd = [type(v).__name__ for v in made.reshape(-1) if not isinstance(v, str)]
    if odd:
        raise RunError(Diagnostic(f"input '{port.name}' holds an object, {odd[0]}", expected=str(port.type)))
    return made


def mismatch(port: Port, array: Array) -> Diagnostic | None:
    """What is wrong with an array for a port; None where it fits."""
    type = port.type
    if not isinstance(type, TensorType):
        return Diagnostic(f"input '{port.name}' is {an(type)}, which no array is", expected="an entry of tensors")
    try:
        dtype = dtype_of(array.dtype)
    except KeyError:
        return Diagnostic(f"input '{port.name}' has elements of type {array.dtype}", expected=str(type))
    shape = ",".join(map(str, array.shape))
    fits = type.dims is None or (
        len(type.dims) == array.ndim
        and all(isinstance(d, str) or d == n for d, n in zip(type.dims, array.shape, strict=True))
    )
    if not fits or type.dtype not in (dtype, ANY):
        hint = f"convert it: astype in numpy, --cast on the command line, makes it {type.dtype}" if fits else None
        return Diagnostic(f"input '{port.name}' is {an(dtype)}[{shape}]", expected=str(type), hint=hint)
    return None


def _unequal(ports: Sequence[Port], arrays: Sequence[Array]) -> Iterator[Diagnostic]:
    """Symbolic sizes that are not the same everywhere."""
    first: dict[str, tuple[str, int]] = {}
    for port, array in zip(ports, arrays, strict=True):
        dims = port.type.dims if isinstance(port.type, TensorType) else None
        if dims is None or len(dims) != array.ndim:
            continue
        for dim, size in zip(dims, array.shape, strict=True):
            name, before = first.setdefault(dim, (port.name, size)) if isinstance(dim, str) else (port.name, size)
            if before != size:
                message = f"size {dim} is {before} in input '{name}' and {size} in input '{port.name}'"
                yield Diagnostic(message, expected=f"the same size for {dim} everywhere")


def whole_types(function: Function, arrays: Sequence[Array]) -> list[Type]:
    """The types of the function's parameters, for arrays given for its input leaves."""
    rest = iter(arrays)
    return [_filled(p.type, lambda leaf: leaf if isinstance(leaf, StateType) else type_of_array(next(rest)), TupleType)
            for p in function.params]  # fmt: skip


def arguments(function: Function, arrays: Sequence[Array], world: Host) -> list[Any]:
    """The values of the function's parameters; `world` for the state."""
    rest = iter(arrays)
    return [_filled(p.type, lambda leaf: world if isinstance(leaf, StateType) else next(rest), tuple) for p in function.params]


def _filled(type: Type, leaf: Any, whole: Any) -> Any:
    return whole(tuple(_filled(t, leaf, whole) for t in type.items)) if isinstance(type, TupleType) else leaf(type)


@dataclass(frozen=True, slots=True, eq=False)
class FunctionValue:
    """A function value: the name of a function of the module, and its leading arguments."""

    callee: str
    captured: tuple[Any, ...]


def flatten(value: Any) -> list[Any]:
    """The leaves of nested tuples, left to right."""
    leaves: list[Any] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            stack.extend(reversed(item))
        else:
            leaves.append(item)
    return leaves
