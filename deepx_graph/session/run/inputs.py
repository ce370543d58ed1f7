"""Arrays for a program's inputs: generated from a seed, filled, or read from a file, as a few words say.

    random   zeros   ones   iota   3.5   data.npy   each also with a shape behind it: random f32[8,128]

Sizes are checked before memory is taken. A wish that cannot be met is a UsageError that names the input.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from deepx_graph.errors import Diagnostic, LimitError, RunError, UsageError
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.runtime.compile import memory_limit
from deepx_graph.runtime.inputs import Port, input_ports, mismatch, whole_types
from deepx_graph.runtime.specialise import specialise
from deepx_graph.session.run.arrays import check_names, read_npy
from deepx_graph.types import ANY, F32, DType, TensorType, dtype_named, dtype_names, dtype_of, tensor

WISHES = ("random", "zeros", "ones", "iota")
_SHAPE = re.compile(r"([a-z]+\d*[a-z0-9]*)?\s*\[([\d\s,]*)\]")


def random_inputs(ports: Sequence[Port], seed: int, given: Collection[str] = (), max_bytes: int | None = None) -> dict[str, Array]:
    """Standard normal numbers (small integers, coin flips) for inputs that are not given. Raises as `wished_inputs` does."""
    return wished_inputs([p for p in ports if p.name not in given], {}, seed, max_bytes)


def random_array(type: TensorType, rng: np.random.Generator) -> Array:
    """Numbers of a static type, drawn from `rng`."""
    is_real = type.dtype.is_differentiable
    values = rng.standard_normal(type.shape) if is_real else rng.integers(0, 2 if type.dtype.bits == 8 else 8, type.shape)
    return np.asarray(values).astype(type.dtype.np)


def wished_inputs(ports: Sequence[Port], wishes: Mapping[str, str], seed: int, max_bytes: int | None = None) -> dict[str, Array]:
    """One array for each input, as its wish says; `random` where there is none.

    Raises UsageError for a wish that is none or a shape that is not known, LimitError for more bytes than allowed together.
    """
    rng = np.random.default_rng(seed)
    left = memory_limit() if max_bytes is None else max_bytes
    found: dict[str, Array] = {}
    for port in ports:
        found[port.name] = _wished(port, wishes.get(port.name, "").strip() or "random", rng, left)
        left -= found[port.name].nbytes
    return found


def is_wish(text: str) -> bool:
    """Whether a text says how an array is to be made; any other names a file."""
    return not text.endswith(".npy") and (_SHAPE.fullmatch(text) is not None or text.partition(" ")[0] in WISHES)


def generated(ports: Mapping[str, Port], wishes: Mapping[str, str], seed: int, max_bytes: int | None = None) -> dict[str, Array]:
    """The arrays that are wished for, each under its name. Raises as `wished_inputs` does."""
    rng = np.random.default_rng([seed, 1])  # other numbers than those of the inputs that nobody mentions
    left = memory_limit() if max_bytes is None else max_bytes
    found: dict[str, Array] = {}
    for name, wish in wishes.items():
        found[name] = _wished(ports[name], wish, rng, left)
        left -= found[name].nbytes
    return found


def cast(name: str, array: Array, dtype: DType | None) -> Array:
    """The array with elements of `dtype`. Raises RunError where that is another kind of number, or too narrow for an integer."""
    if dtype is None or dtype.np is None or array.dtype == dtype.np or array.dtype.kind not in "biufcV":
        return array
    given = dtype_of(array.dtype)
    found = array.astype(dtype.np) if _KINDS.index(given.kind) <= _KINDS.index(dtype.kind) else None
    exact = dtype.is_integer or dtype.kind == "bool"
    if found is None or (exact and not np.array_equal(found, array)):
        raise RunError(Diagnostic(f"input '{name}' holds elements of type {given}, which cannot all be of type {dtype}"))
    return found


_KINDS = ("bool", "uint", "int", "float", "complex")


def sized(module: Module, wishes: Mapping[str, str], arrays: Mapping[str, Array]) -> Module:
    """The module for inputs of the sizes of `arrays`, and of the types or files in `wishes`; nothing is generated or allocated.

    Raises UsageError for a name that is no input or an input that is given by neither and whose size is open, RunError for types
    that do not fit.
    """
    ports = input_ports(module.entry)
    check_names({**wishes, **arrays}, [p.name for p in ports])
    given = dict(arrays)
    for port in ports:
        if port.name in wishes and wishes[port.name].endswith(".npy"):
            given[port.name] = _wished(port, wishes[port.name], np.random.default_rng(0), memory_limit())
        elif port.name not in given:
            type = _static(port, _shaped(port, wishes[port.name]) if port.name in wishes else port.type)
            given[port.name] = np.broadcast_to(np.zeros((), type.dtype.np), type.shape)
    problems = [d for p in ports if (d := mismatch(p, given[p.name])) is not None]
    if problems:
        raise RunError(*problems)
    return specialise(module, whole_types(module.entry, [given[p.name] for p in ports]))


def _wished(port: Port, wish: str, rng: np.random.Generator, max_bytes: int) -> Array:
    if wish.endswith(".npy"):
        return read_npy(Path(wish), port.type.dtype if isinstance(port.type, TensorType) else None, max_bytes)
    word, _, rest = wish.partition(" ")
    if "[" in word:  # a shape alone
        word, rest = "random", wish
    type = _static(port, _shaped(port, rest) if rest.strip() else port.type)
    if type.nbytes > max_bytes:
        raise LimitError(f"input '{port.name}' needs {type.nbytes:,} bytes, more than the {max_bytes:,} that are left")
    if word == "random":
        return random_array(type, rng)
    if word == "iota":
        return np.arange(type.size).reshape(type.shape).astype(type.dtype.np)
    try:
        value = {"zeros": 0.0, "ones": 1.0}[word] if word in WISHES else float(word)
    except ValueError:
        raise UsageError(Diagnostic(f"input '{port.name}' cannot be '{wish}'",
                                    expected=f"{', '.join(WISHES)}, a number or a file.npy")) from None
    return np.full(type.shape, value).astype(type.dtype.np)


def _static(port: Port, type: object) -> TensorType:
    if not isinstance(type, TensorType) or not type.is_static:
        raise UsageError(Diagnostic(f"the shape of input '{port.name}' is not known, so it cannot be generated: give it",
                                    expected="a file.npy, or a type such as f32[8,128]"))
    return type


def _shaped(port: Port, text: str) -> TensorType:
    """The type that a text such as `f32[2,3]` or `[2,3]` names; the dtype of the port where it names none."""
    m = _SHAPE.fullmatch(text.strip())
    if m is None or (m[1] and m[1] not in dtype_names()):
        raise UsageError(Diagnostic(f"input '{port.name}' cannot have the type '{text.strip()}'", expected="such as f32[8,128]"))
    known = port.type.dtype if isinstance(port.type, TensorType) and port.type.dtype is not ANY else F32
    return tensor(dtype_named(m[1]) if m[1] else known, tuple(int(d) for d in m[2].replace(" ", "").split(",") if d))
