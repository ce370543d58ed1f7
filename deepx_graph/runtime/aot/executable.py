"""Executables: compiled programs as files, which start without optimising, planning or compiling.

A file is a kernel as bytes (`stored_kernel.py`), whose code is one object as `build` makes it, and a digest of it; nothing in it is
a pickle. Its machine code runs with all rights of the process: load only files from where you trust. Work is shared out among as
many threads as were asked for when the program was compiled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding

from deepx_graph.errors import DeepxGraphError, Diagnostic, LimitError, UsageError, printable, sized
from deepx_graph.files import naming, write_file
from deepx_graph.forking import Lock
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.runtime.aot.build import KernelCode, _planned, fixed_entry, one_machine_function
from deepx_graph.runtime.aot.stored_kernel import ObjectCode, Said, StoredKernel, port_read, port_said, read, written
from deepx_graph.runtime.inputs import Port, bind, input_ports, output_ports
from deepx_graph.runtime.native.llvm.machine_code import collected
from deepx_graph.runtime.native.llvm.target import Processor, Target, running_machine
from deepx_graph.runtime.native.whole_program.calls import CallLimits
from deepx_graph.runtime.native.whole_program.kernel import WholeProgramKernel

llvm: Any = llvmlite.binding
"""It has no types."""

HEAD = b"deepx_graph executable 3\n"
DIGEST = 32
"""Bytes behind the head: of the digest of all that follows it."""

MOST_BYTES = 1 << 31
"""Of a file."""

_DAMAGED = "save it again with `Compiled.save`"


def save(module: Module, path: str | Path, *, threads: int, vector_bits: int | None, seed: int, data_root: Path | None,
         prepare: Callable[[Module], Module] | None) -> None:
    """Writes the entry of a module as an executable for this machine. Raises as `built` does."""
    p = Processor.here(vector_bits)
    entry, target = fixed_entry(module, seed, data_root, prepare), Target(processor=p)
    with collected(target) as collection, one_machine_function(entry):
        kernel = WholeProgramKernel(entry, _planned(entry, threads), CallLimits(0, 0))
        addresses = dict.fromkeys(kernel.image.addresses)
        code = KernelCode(addresses, collection, target)
    names = [code.symbol(address) for address in addresses]
    data = code.emitted(names)
    whole = ObjectCode(hashlib.sha256(data).hexdigest(), names, data)
    about = {"inputs": list(map(port_said, input_ports(module.entry))), "results": list(map(port_said, output_ports(entry))),
             "symbols": code.symbols,
             "processor": {"triple": p.triple, "cpu": p.cpu, "features": p.features, "bits": p.vector_bits}}
    rest = written(kernel, about, lambda address: (whole, code.symbol(address)))
    write_file(path, HEAD + hashlib.sha256(rest).digest() + rest)


def load(path: str | Path, max_bytes: int) -> Executable:
    """The program of a file. Raises UsageError for a file that is no executable, is damaged, or is for another machine; LimitError
    where its workspace is larger than `max_bytes`."""
    data = _contents(Path(path))

    def accept(about: Said) -> None:
        _check_processor(path, Processor(*(about["processor"][k] for k in ("triple", "cpu", "features", "bits"))))
        _check_symbols(path, about["symbols"])

    try:
        kernel, about = read(data, accept)
        inputs, results = (tuple(map(port_read, about[k])) for k in ("inputs", "results"))
    except RuntimeError as e:
        raise UsageError(Diagnostic("the executable cannot be linked", hint=_DAMAGED, notes=(str(e).strip(),))) from None
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _refused(path, "its description says something else than what is expected") from None
    if kernel.workspace_bytes > max_bytes:
        message = f"'{printable(str(path))}' needs {sized(kernel.workspace_bytes)} beside inputs and results, more than the limit"
        raise LimitError(Diagnostic(message, expected=f"at most {sized(max_bytes)}", hint="raise max_bytes"))
    return Executable(kernel, inputs, results)


def _contents(path: Path) -> bytes:
    """What a file has behind the digest."""
    with naming("read", path), open(path, "rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    start = len(HEAD) + DIGEST
    if not data.startswith(HEAD) or len(data) > MOST_BYTES:
        raise _refused(path, "it does not begin as one of this version does")
    if hashlib.sha256(data[start:]).digest() != data[len(HEAD) : start]:
        raise _refused(path, "it is not what was written")
    return data[start:]


def _refused(path: str | Path, reason: str) -> DeepxGraphError:
    return UsageError(Diagnostic(f"'{printable(str(path))}' is no executable: {reason}", hint=_DAMAGED))


def _check_processor(path: str | Path, processor: Processor) -> None:
    """Raises UsageError where this machine lacks what the code was made for."""
    here = Processor.here()
    wanted, have = ({f for f in p.features.split(",") if f.startswith("+")} for p in (processor, here))
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

    def __init__(self, kernel: StoredKernel, inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.threads, self.workspace_bytes = kernel.team, kernel.workspace_bytes
        self._kernel, self._lock = kernel, Lock()

    def __repr__(self) -> str:
        return f"<executable ({', '.join(f'{p.name}: {p.type}' for p in self.inputs)})>"

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Array, ...]:
        """Runs it. Raises RunError, before anything runs, for missing, extra or ill-typed inputs."""
        given = bind(self.inputs, arrays, named)
        with self._lock:
            return tuple(self._kernel(given))
