"""XLA in a child process: what it gives for a program, and the program after each of its passes.

The interpreter that has jaxlib is named by the environment variable DEEPX_GRAPH_JAX_PYTHON, else it is this one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, UsageError, printable
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.runtime.inputs import input_ports
from deepx_graph.session import programs
from deepx_graph.session.inputs import write_npz
from deepx_graph.types import TensorType

VARIABLE = "DEEPX_GRAPH_JAX_PYTHON"
WORKER = Path(__file__).with_name("xla_worker.py")
SECONDS = 300.0
"""What compiling and running may take."""
FLAGS = "--xla_dump_hlo_pass_re=.* --xla_dump_large_constants"


def python() -> str:
    """The interpreter that is to have jaxlib."""
    return os.environ.get(VARIABLE) or sys.executable


@dataclass(frozen=True)
class XlaCase:
    """What XLA is to compile and run: a module and samples of its inputs. `text` is StableHLO or HLO as it is to be compiled; by
    default the module is written as one of these."""

    module: Module
    samples: Sequence[Mapping[str, Array]]
    text: str | None = None

    def write(self, folder: Path) -> None:
        """The files that the worker reads."""
        folder.mkdir(parents=True, exist_ok=True)
        form = self.module.format if self.module.format in ("hlo", "stablehlo") else "hlo"
        text = self.text if self.text is not None else programs.dumps(self.module, form)
        (folder / "program.txt").write_text(text, encoding="utf-8")
        ports = input_ports(self.module.entry)
        types = [p.type.dtype.np.name for p in ports if isinstance(p.type, TensorType) and p.type.dtype.np is not None]
        arrays: dict[str, Any] = {"dtypes": np.array(types, dtype="U16"), "samples": np.array(len(self.samples))}
        for s, sample in enumerate(self.samples):
            arrays |= {f"{s}:{k}": _raw(sample[p.name]) for k, p in enumerate(ports)}
        write_npz(folder / "inputs.npz", arrays)

    def outputs(self, folder: Path) -> list[tuple[Array, ...]]:
        """The results of every sample. Raises RunError, with what XLA says, where it refused the program."""
        if not (folder / "outputs.npz").exists():
            error = folder / "error.txt"
            said = (error.read_text(encoding="utf-8") if error.exists() else "the process ended").strip().splitlines() or [""]
            errors = [line for line in said if "Error" in line] or said
            raise RunError(f"XLA does not run the program: {printable(errors[-1])[:500]}")
        with np.load(folder / "outputs.npz") as archive:
            results = [_typed(name) for name in archive["results"].tolist()] if "results" in archive else []
            return [tuple(_seen(archive[f"{s}:{k}"], d) for k, d in enumerate(results)) for s in range(len(self.samples))]


class XlaServer:
    """A process that has XLA and stays, for one program after another.

    `ready` is called before each, in the process that made this; `run` may then be in a forked child, which may end at any time.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="deepx-graph-")
        self._number = 0

    def ready(self) -> None:
        """Starts the process, anew where it has not answered. Raises UsageError where it cannot be started."""
        if self._process is not None and self._number and not self._answered:
            self.close()
        if self._process is None:
            self._process = _started([python(), str(WORKER), "--serve"], os.environ.get("XLA_FLAGS", ""))
        self._number += 1

    def run(self, module: Module, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        """The results of the module. Raises RunError, with what XLA says, where it refuses the program, and where it ended."""
        process, case = self._process, XlaCase(module, [inputs])
        assert process is not None and process.stdin is not None and process.stdout is not None
        case.write(self._place)
        said = b""
        with contextlib.suppress(BrokenPipeError):
            os.write(process.stdin.fileno(), f"{self._place}\n".encode())
        while str(self._place).encode() not in said and (more := os.read(process.stdout.fileno(), 1 << 16)):
            said += more
        if not self._answered:
            raise RunError(Diagnostic("XLA ended, or was never there", hint=f"{VARIABLE} names a Python that has jaxlib"))
        return case.outputs(self._place)[0]

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def _place(self) -> Path:
        return Path(self._folder.name, f"program{self._number}")

    @property
    def _answered(self) -> bool:
        return any((self._place / name).exists() for name in ("outputs.npz", "error.txt"))


def _started(command: Sequence[str], flags: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=_environment(flags), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL)
    except OSError as e:
        raise _not_started(e) from None


def _not_started(error: OSError) -> UsageError:
    message = f"cannot start '{printable(python())}': {error.strerror}"
    return UsageError(Diagnostic(message, hint=f"{VARIABLE} names a Python"))


def _environment(flags: str) -> dict[str, str]:
    return {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}


def run_cases(cases: Mapping[Path, XlaCase], *, timeout: float = SECONDS) -> None:
    """Runs all cases in one process; what each gave is in its folder, where `XlaCase.outputs` reads it. Raises UsageError where
    there is no jaxlib, RunError where the process takes longer than so many seconds."""
    for folder, case in cases.items():
        case.write(folder)
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()
    try:
        done = subprocess.run([python(), str(WORKER), *map(str, cases)], env=_environment(flags), capture_output=True, text=True,
                              timeout=timeout, check=False)
    except OSError as e:
        raise _not_started(e) from None
    except subprocess.TimeoutExpired:
        raise RunError(f"XLA did not end within {timeout:g} seconds") from None
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    if done.returncode and "No module named" in said[-1]:
        raise UsageError(Diagnostic(f"this Python has no jaxlib: {printable(said[-1])}",
                                    hint=f"{VARIABLE}=/path/to/python names one that has"))
    for folder in cases if done.returncode else ():
        if not (folder / "outputs.npz").exists() and not (folder / "error.txt").exists():
            (folder / "error.txt").write_text("\n".join(said), encoding="utf-8")


def _raw(array: Array) -> Array:
    """The array with elements that numpy's files have: raw bytes for those that they have not."""
    return array if array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1 else array.view(f"V{array.dtype.itemsize}")


def _typed(name: str) -> Any:
    """The element type of that name, of numpy or of ml_dtypes."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _seen(array: Array, dtype: Any) -> Array:
    """Raw bytes as elements of that type."""
    return array if array.dtype == dtype else array.view(dtype)


def lowered(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, list[Array]]:
    """The StableHLO of a jitted function of JAX for these arguments, and the arguments as its inputs.

    Raises UsageError for an object that is none, and for arguments that are not its inputs one by one.
    """
    if not hasattr(jitted, "lower") or "jax" not in sys.modules:
        raise UsageError(Diagnostic(f"bisect: cannot take {type(jitted).__name__}",
                                    expected="a module, a path, or a function made by jax.jit"))
    tree: Any = sys.modules["jax"].tree_util
    low = jitted.lower(*args, **kwargs)
    leaves = tree.tree_leaves((args, dict(kwargs)))
    infos = tree.tree_leaves(low.args_info)
    if len(leaves) != len(infos):
        raise UsageError("bisect: static arguments are to be bound first, by functools.partial")
    kept = getattr(getattr(low, "_lowering", None), "compile_args", {}).get("kept_var_idx")
    chosen = [a for k, a in enumerate(leaves) if kept is None or k in kept]
    arrays = [np.asarray(a) for a in chosen]
    stated = [i for k, i in enumerate(infos) if kept is None or k in kept]
    return low.as_text(debug_info=True), [a.astype(np.dtype(i.dtype)) for a, i in zip(arrays, stated, strict=True)]


def matches(module: Module, arrays: Sequence[Array]) -> dict[str, Array]:
    """The arrays by the names of the module's inputs. Raises UsageError for another number of them."""
    ports = input_ports(module.entry)
    if len(ports) != len(arrays):
        raise UsageError(f"{len(arrays)} arrays for the {len(ports)} inputs of the program")
    return {p.name: a for p, a in zip(ports, arrays, strict=True)}
