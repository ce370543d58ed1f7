"""Arrays for inputs: read from `.npy` and `.npz` files, or generated as a few words say; and outputs as such files."""

from __future__ import annotations

import io
import itertools
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from deepx_graph.errors import Diagnostic, LimitError, RunError, UsageError, suggest
from deepx_graph.files import naming, replacing
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.rewrite.specialise import specialise
from deepx_graph.runtime.compile import memory_limit
from deepx_graph.runtime.inputs import Port, input_ports, mismatch, whole_types
from deepx_graph.types import ANY, F32, STRING, DType, TensorType, dtype_of, names_tensor, tensor_named

MAX_HEADER = 10_000
"""Characters of an npy header that are looked at."""

_DAMAGED = (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, KeyError, SyntaxError,
            tokenize.TokenError)
"""What numpy and zipfile raise for a file that is not what it says."""


def read_npy(path: str | Path, dtype: DType | None = None, max_bytes: int | None = None) -> Array:
    """The array of a `.npy` file. `dtype` is what raw bytes stand for.

    Raises UsageError when it cannot be opened, RunError when it is damaged or holds objects, LimitError when it is too large.
    """
    with _open(path) as stream:
        try:
            return _read_stream(stream, os.fstat(stream.fileno()).st_size, str(path), dtype, max_bytes)
        except _DAMAGED as e:
            raise _damaged(str(path), e) from None


def read_npz(path: str | Path, wanted: Mapping[str, DType | None] | None = None,
             max_bytes: int | None = None, places: Sequence[str] = ()) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The wanted arrays of a `.npz` file by name (all of them for None), and the names that were left unread. The names that
    `numpy.savez` makes, `arr_0`, `arr_1`, ..., stand for those of `places`, unless that one is in the file, too.

    Raises as `read_npy` does; the bound is on all arrays together.
    """
    left = memory_limit() if max_bytes is None else max_bytes
    found: dict[str, Array] = {}
    unread: list[str] = []
    with _open(path) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                named = _by_place([name.removesuffix(".npy") for name in archive.namelist()], places)
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    name = named.get(name, name)
                    if wanted is not None and name not in wanted:
                        unread.append(name)
                        continue
                    with archive.open(member) as data:
                        place = f"{path}[{name}]"
                        found[name] = _read_stream(data, member.file_size, place, (wanted or {}).get(name), left)
                    left -= found[name].nbytes
        except _DAMAGED as e:
            raise _damaged(str(path), e) from None
    return found, tuple(unread)


def arrays_for(module: Module, path: str | Path) -> dict[str, Array]:
    """All arrays of a `.npz` file; those without names are the inputs of a module in their order. Raises as `read_npz` does."""
    return read_npz(path, places=[p.name for p in input_ports(module.entry)])[0]


def placed(arrays: Mapping[str, Array], places: Sequence[str]) -> dict[str, Array]:
    """The arrays of an archive, those that have no name but their number under that of their place."""
    named = _by_place(arrays, places)
    return {named.get(name, name): array for name, array in arrays.items()}


def _by_place(given: Collection[str], places: Sequence[str]) -> dict[str, str]:
    """The names for arrays of an archive that have none but their number."""
    return {f"arr_{k}": name for k, name in enumerate(places) if f"arr_{k}" not in places and name not in given}


def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """The arrays, by name, as an uncompressed `.npz` file. Raises as `replacing` does."""
    with replacing(path) as stream:
        pack_npz(stream, arrays)


def pack_npz(stream: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """The arrays, by name, as an uncompressed `.npz` archive at the end of a stream."""
    with zipfile.ZipFile(stream, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                plain = array.astype(np.str_) if array.dtype.hasobject else np.asanyarray(array)
                npy.write_array(member, plain, allow_pickle=False)


def nearest_dtype(array: Array, dtype: DType | None) -> Array:
    """Raw bytes seen as elements of `dtype`, when they have its size; any other array as it is."""
    if array.dtype.kind == "V" and dtype is not None and dtype.np is not None and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype.np)
    return array


def _open(path: str | Path) -> IO[bytes]:
    with naming("read", path):
        return open(path, "rb")


def _damaged(place: str, error: Exception) -> RunError:
    return RunError(Diagnostic(f"{place} is damaged or no numpy file: {error}", expected="what numpy.save or numpy.savez writes"))


def _read_stream(stream: IO[bytes], size: int, place: str, dtype: DType | None, max_bytes: int | None) -> Array:
    """One array from the start of its header; `size` is how many bytes the stream is said to have."""
    shape, element, header = _header(stream)
    if element.hasobject:
        raise RunError(Diagnostic(f"{place} holds Python objects", expected="numbers"))
    needed = math.prod(shape) * element.itemsize
    limit = memory_limit() if max_bytes is None else max_bytes
    if needed > limit:
        raise LimitError(Diagnostic(f"{place} needs {needed:,} bytes, more than the {limit:,} allowed",
                                    hint="raise --max-bytes if you trust it"))
    if size != header + needed:
        raise RunError(f"{place} is damaged: {size:,} bytes for an array that needs {header + needed:,}")
    stream.seek(0)
    return nearest_dtype(npy.read_array(stream, allow_pickle=False, max_header_size=MAX_HEADER), dtype)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, element type and length in bytes of an npy header. Raises ValueError for none."""
    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"npy version {version[0]}.{version[1]}")
    stated = stream.read(2 * version[0])  # numpy would read as much as these bytes say before it looks at them
    length = int.from_bytes(stated, "little")
    if length > MAX_HEADER:
        raise ValueError(f"a header of {length:,} bytes")
    shape, _, element = readers[version](io.BytesIO(stated + stream.read(length)), max_header_size=MAX_HEADER)
    return shape, element, stream.tell()


def read_inputs(files: Mapping[str, str], archive: str | None, wanted: Mapping[str, DType | None],
                max_bytes: int | None = None) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The program's inputs from `NAME=FILE.npy` files and an archive, the files first, and the archive's unread names.

    Raises UsageError for a file given to a name that is no input; else as `read_npy`.
    """
    from_archive, unread = read_npz(archive, wanted, max_bytes, tuple(wanted)) if archive is not None else ({}, ())
    check_names(files, wanted)
    return from_archive | {name: read_npy(path, wanted[name], max_bytes) for name, path in files.items()}, unread


def check_names(given: Collection[str], inputs: Collection[str]) -> None:
    """Raises UsageError, with the nearest name, for a name that is no input."""
    for name in given:
        if name not in inputs:
            known = ", ".join(inputs) or "none: the program has no inputs"
            raise UsageError(Diagnostic(f"no input '{name}'", expected=known, hint=suggest(name, inputs)))


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, later ones of the same made different: `y`, `y#1`, `y#2`."""
    taken: dict[str, None] = {}
    for name in names:
        free = next(n for n in itertools.chain((name,), (f"{name}#{k}" for k in itertools.count(1))) if n not in taken)
        taken[free] = None
    return list(taken)


WISHES = ("random", "zeros", "ones", "iota")


def random_inputs(ports: Sequence[Port], seed: int, given: Collection[str] = (), max_bytes: int | None = None) -> dict[str, Array]:
    """Standard normal numbers (small integers, coin flips) for inputs that are not given. Raises as `wished_inputs` does."""
    return wished_inputs([p for p in ports if p.name not in given], {}, seed, max_bytes)


def random_array(type: TensorType, rng: np.random.Generator) -> Array:
    """Numbers of a static type, drawn from `rng`; of texts a few letters each."""
    if type.dtype is STRING:
        letters = rng.integers(97, 105, (type.size, 3), dtype=np.uint8)
        return np.array([bytes(row).decode() for row in letters], np.object_).reshape(type.shape)
    is_real = type.dtype.is_differentiable
    values = rng.standard_normal(type.shape) if is_real else rng.integers(0, 2 if type.dtype.bits == 8 else 8, type.shape)
    return np.asarray(values).astype(type.dtype.np)


def wished_inputs(ports: Sequence[Port], wishes: Mapping[str, str], seed: int, max_bytes: int | None = None) -> dict[str, Array]:
    """One array for each input, as its wish says; `random` where there is none.

    Raises UsageError for a wish that is none or a shape that is not known, LimitError for more bytes than allowed together.
    """
    wanted = {p.name: wishes.get(p.name, "").strip() or "random" for p in ports}
    return _made({p.name: p for p in ports}, wanted, np.random.default_rng(seed), max_bytes)


def is_wish(text: str) -> bool:
    """Whether a text says how an array is to be made; any other names a file."""
    return not text.endswith(".npy") and (names_tensor(text) or text.partition(" ")[0] in WISHES)


def generated(ports: Mapping[str, Port], wishes: Mapping[str, str], seed: int, max_bytes: int | None = None) -> dict[str, Array]:
    """The arrays that are wished for, each under its name. Raises as `wished_inputs` does."""
    return _made(ports, wishes, np.random.default_rng([seed, 1]), max_bytes)  # other numbers than of inputs that nobody mentions


def _made(ports: Mapping[str, Port], wishes: Mapping[str, str], rng: np.random.Generator,
          max_bytes: int | None) -> dict[str, Array]:
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
            type = _static(port, shaped(port, wishes[port.name]) if port.name in wishes else port.type)
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
    type = _static(port, shaped(port, rest) if rest.strip() else port.type)
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


def shaped(port: Port, text: str) -> TensorType:
    """The type that a text such as `f32[2,3]` or `[2,3]` names; the dtype of the port where it names none."""
    known = port.type.dtype if isinstance(port.type, TensorType) and port.type.dtype is not ANY else F32
    try:
        return tensor_named(text, known)
    except ValueError:
        wrong = Diagnostic(f"input '{port.name}' cannot have the type '{text.strip()}'", expected="such as f32[8,128]")
        raise UsageError(wrong) from None
