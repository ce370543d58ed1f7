"""What a program is reduced by: that it crashes, differs from the reference, is slow, or is wrong in XLA."""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.runtime.compile import compile
from deepx_graph.session import programs
from deepx_graph.session.diagnose.crash import crash_of
from deepx_graph.session.diagnose.reduction import Predicate
from deepx_graph.session.diagnose.xla import run_in_xla
from deepx_graph.validation.stages import Reference


@dataclass(frozen=True)
class How:
    """How programs are treated while they are reduced."""

    pipeline: str = "default"
    engine: str = "auto"
    slower_than: float = 1.0
    """Seconds of processor time, of optimising, compiling and running together."""


def crashes(how: How) -> Predicate:
    """Optimising, compiling or running ends in an internal error, or in the death of the process: always in the same one."""
    first: list[str] = []

    def holds(module: Module, inputs: Mapping[str, Array]) -> bool:
        found = crash_of(lambda: _treated(module, inputs, how))
        if found and not first:
            first.append(found)
        return found in first

    return holds


def differs(how: How) -> Predicate:
    """The results are not those of the reference, by more than rounding makes of them.

    A program may compute twice the operations of the first one: a loop that a step made endless shows nothing.
    """
    most: list[int] = []

    def holds(module: Module, inputs: Mapping[str, Array]) -> bool:
        reference = Reference(module, [inputs], operations=2 * most[0] if most else sys.maxsize)
        most.append(reference.spent)
        return _is_wrong(reference, _treated(module, inputs, how))

    return holds


def slow(how: How) -> Predicate:
    """It takes longer than it should."""

    def holds(module: Module, inputs: Mapping[str, Array]) -> bool:
        begin = time.process_time()
        _treated(module, inputs, how)
        return time.process_time() - begin > how.slower_than

    return holds


def wrong_in_xla(how: How) -> Predicate:
    """XLA, in a child process, gives something else than the reference."""

    def holds(module: Module, inputs: Mapping[str, Array]) -> bool:
        reference = Reference(module, [inputs])
        with tempfile.TemporaryDirectory(prefix="deepx-graph-") as folder:
            return _is_wrong(reference, run_in_xla(module, [inputs], Path(folder))[0])

    return holds


PREDICATES: dict[str, Callable[[How], Predicate]] = {
    "crash": crashes, "differs": differs, "slow": slow, "wrong-in-xla": wrong_in_xla,
}  # fmt: skip


def predicate(name: str, how: How) -> Predicate:
    """The predicate of a name. Raises UsageError for another."""
    if name not in PREDICATES:
        raise UsageError(Diagnostic(f"no predicate '{name}'", expected=", ".join(PREDICATES), hint=suggest(name, PREDICATES)))
    return PREDICATES[name](how)


def _treated(module: Module, inputs: Mapping[str, Array], how: How) -> tuple[Array, ...]:
    done = programs.optimise(module, how.pipeline).module
    f = compile(done, engine=how.engine, out=io.StringIO())
    return tuple(map(np.asarray, f(*(inputs[p.name] for p in f.inputs))))


def _is_wrong(reference: Reference, outputs: tuple[Array, ...]) -> bool:
    found = reference.compare([outputs])
    return found is not None and not reference.leaves_open(found[2])
