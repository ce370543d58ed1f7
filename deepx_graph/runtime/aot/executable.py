"""Executables: compiled programs as files, which start without optimising, planning or compiling.

A file is object code as `build` makes it, with a description of it as JSON, and a digest of both; nothing in it is a pickle. Its
machine code runs with all rights of the process: load only files from where you trust. Work is shared out among as many threads as
were asked for when the program was compiled. A call runs to its end: it cannot be interrupted.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np

from deepx_graph.errors import DeepxGraphError, Diagnostic, LimitError, RunError, UsageError, printable, sized
from deepx_graph.files import write_file
from deepx_graph.forking import Lock
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.runtime.aot.build import built
from deepx_graph.runtime.aot.entry import POOL_WORDS
from deepx_graph.runtime.aot.program import BuiltProgram
from deepx_graph.runtime.inputs import Port, bind
from deepx_graph.runtime.memory.pool import RESULTS, room
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import Processor, running_machine
from deepx_graph.runtime.native.threads import pool
from deepx_graph.runtime.native.whole_program.emit import POOL, SHARE
from deepx_graph.types import TensorType, dtype_named, tensor

llvm: Any = llvmlite.binding
"""It has no types."""

HEAD = b"deepx_graph executable 1\n"
DIGEST, LENGTH = 32, 8
"""Bytes behind the head: of the digest of all that follows it, and of the length of the description."""

NAME = "program"
MOST_BYTES = 1 << 31
"""Of a file."""

_DAMAGED = "save it again with `Compiled.save`"


def save(module: Module, path: str | Path, *, threads: int, vector_bits: int | None, seed: int, data_root: Path | None,
         prepare: Callable[[Module], Module] | None) -> None:
    """Writes the entry of a module as an executable for this machine. Raises as `built` does."""
    program = built(module, name=NAME, processor=Processor.here(vector_bits), threads=threads, seed=seed, data_root=data_root,
                    prepare=prepare)
    about = json.dumps(_description(program)).encode()
    rest = len(about).to_bytes(LENGTH, "little") + about + program.code
    write_file(path, HEAD + hashlib.sha256(rest).digest() + rest)


def _description(program: BuiltProgram) -> dict[str, Any]:
    p = program.processor
    return {"inputs": list(map(_port, program.inputs)), "results": list(map(_port, program.results)),
            "workspace": program.workspace_bytes, "threads": program.threads, "symbols": list(program.symbols),
            "processor": {"triple": p.triple, "cpu": p.cpu, "features": p.features, "bits": p.vector_bits}}


def _port(port: Port) -> dict[str, Any]:
    assert isinstance(port.type, TensorType)
    return {"name": port.name, "dtype": port.type.dtype.name, "shape": list(port.type.shape)}


def load(path: str | Path, max_bytes: int) -> Executable:
    """The program of a file. Raises UsageError for a file that is no executable, is damaged, or is for another machine; LimitError
    where its workspace is larger than `max_bytes`."""
    about, code = _parts(Path(path))
    try:
        processor = Processor(*(about["processor"][k] for k in ("triple", "cpu", "features", "bits")))
        inputs, results = (tuple(map(_port_of, about[k])) for k in ("inputs", "results"))
        workspace, threads = int(about["workspace"]), int(about["threads"])
        symbols = [str(s) for s in about["symbols"]]
    except (KeyError, TypeError, ValueError):
        raise _refused(path, "its description says something else than what is expected") from None
    _check_processor(path, processor)
    if not 0 <= workspace <= max_bytes:
        message = f"'{printable(str(path))}' needs {sized(workspace)} beside inputs and results, more than the limit"
        raise LimitError(Diagnostic(message, expected=f"at most {sized(max_bytes)}", hint="raise max_bytes"))
    _check_symbols(path, symbols)
    return Executable(code, inputs, results, workspace, threads)


def _parts(path: Path) -> tuple[dict[str, Any], bytes]:
    """The description and the object code of a file."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as e:  # a name with a zero byte is a ValueError
        raise UsageError(Diagnostic(f"cannot read '{printable(str(path))}': {getattr(e, 'strerror', None) or e}")) from None
    start = len(HEAD) + DIGEST
    if not data.startswith(HEAD) or len(data) > MOST_BYTES:
        raise _refused(path, "it does not begin as one of this version does")
    rest = data[start:]
    size = int.from_bytes(rest[:LENGTH], "little")
    if hashlib.sha256(rest).digest() != data[len(HEAD) : start] or size > len(rest) - LENGTH:
        raise _refused(path, "it is not what was written")
    try:
        about = json.loads(rest[LENGTH : LENGTH + size])
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise _refused(path, "it has no description")
    return about, rest[LENGTH + size :]


def _port_of(said: dict[str, Any]) -> Port:
    dtype, shape = dtype_named(said["dtype"]), tuple(int(d) for d in said["shape"])
    if any(d < 0 for d in shape):
        raise ValueError(shape)
    return Port(str(said["name"]), tensor(dtype, shape))


def _refused(path: str | Path, reason: str) -> DeepxGraphError:
    return UsageError(Diagnostic(f"'{printable(str(path))}' is no executable: {reason}", hint=_DAMAGED))


def _check_processor(path: str | Path, processor: Processor) -> None:
    """Raises UsageError where this machine lacks what the code was made for."""
    here = Processor.here()
    wanted, have = ({f for f in p.features.split(",") if f.startswith("+")} for p in (processor, Processor.here()))
    if processor.triple != here.triple or processor.vector_bits > here.vector_bits or not wanted <= have:
        lacking = ", ".join(sorted(f[1:] for f in wanted - have)) or f"vectors of {processor.vector_bits} bits"
        raise UsageError(Diagnostic(f"'{printable(str(path))}' is for {printable(processor.cpu)}, another machine", hint=_DAMAGED,
                                    notes=(f"this one has not: {lacking}",) if processor.triple == here.triple else ()))


def _check_symbols(path: str | Path, symbols: Sequence[str]) -> None:
    """Raises UsageError where this process lacks a function that the code calls: LLVM would call address 0."""
    running_machine()  # loads the libraries
    for symbol in symbols:
        if llvm.address_of_symbol(symbol) is None:
            message = f"'{printable(str(path))}' calls '{printable(symbol)}', which this machine lacks"
            raise UsageError(Diagnostic(message, hint=_DAMAGED))


class Executable:
    """A loaded program: `f(x, y)` or `f(name=array)` gives a tuple of fresh arrays. `inputs`, `outputs` have `.name` and `.type`.

    Calls from several threads are run one after the other.
    """

    def __init__(self, code: bytes, inputs: tuple[Port, ...], outputs: tuple[Port, ...], workspace_bytes: int,
                 threads: int) -> None:
        self.inputs, self.outputs, self.workspace_bytes = inputs, outputs, workspace_bytes
        workers = pool() if threads > 1 else None
        if threads > 1 and workers is None:
            raise UsageError(Diagnostic("the program shares its work among threads, and this machine has none that can take it"))
        self.threads, self._workers = threads, workers
        symbol = f"{NAME}_run"
        try:
            address = machine_code.linker().link(hashlib.sha256(code).hexdigest(), code, [symbol], self)[symbol]
        except RuntimeError as e:
            raise UsageError(Diagnostic("the executable cannot be linked", hint=_DAMAGED, notes=(str(e).strip(),))) from None
        self._function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * (4 if threads > 1 else 3))(address)
        self._workspace = room(workspace_bytes)
        self._results = [p.type for p in outputs if isinstance(p.type, TensorType)]
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<executable ({', '.join(f'{p.name}: {p.type}' for p in self.inputs)})>"

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Array, ...]:
        """Runs it. Raises RunError, before anything runs, for missing, extra or ill-typed inputs."""
        given = [np.ascontiguousarray(a) for a in bind(self.inputs, arrays, named)]
        results = [RESULTS.empty(t.shape, t.dtype.np) for t in self._results if t.dtype.np is not None]
        with self._lock:
            status = self._function(_addresses(given), _addresses(results), self._workspace.ctypes.data, *self._sharing())
        if status:
            raise RunError(Diagnostic("the executable refuses its arguments"))
        return tuple(results)

    def _sharing(self) -> Sequence[Any]:
        """What shares work out among threads, where there are several."""
        if self._workers is None:
            return ()
        self._workers.hire(self.threads - 1)
        words = (ctypes.c_void_p * len(POOL_WORDS))()
        words[POOL_WORDS[SHARE] // 8], words[POOL_WORDS[POOL] // 8] = self._workers.share_address, self._workers.address
        return (words,)


def _addresses(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
