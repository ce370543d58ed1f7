"""What a program is reduced by: that it crashes, differs from the reference, is slow, or is wrong in XLA."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, suggest
from deepx_graph.ir import Builder, Function, Module
from deepx_graph.literal import Array
from deepx_graph.ops import add
from deepx_graph.runtime.compile import compile
from deepx_graph.session import programs
from deepx_graph.session.diagnose.children import in_child
from deepx_graph.session.diagnose.crash import fault_of
from deepx_graph.session.diagnose.reduction import Predicate
from deepx_graph.session.diagnose.xla import XlaServer
from deepx_graph.types import F32, scalar
from deepx_graph.validation.stages import Reference

WARMING = 60.0
"""Seconds that a first small program may take."""


@dataclass(frozen=True)
class How:
    """How programs are treated while they are reduced."""

    pipeline: str = "default"
    engine: str = "auto"
    slower_than: float = 1.0
    """Seconds of processor time, of optimising, compiling and running together."""


def crashes(how: How) -> Predicate:
    """Optimising, compiling or running ends in an internal error, or in the death of the process: always in the same one."""
    return Predicate(lambda module, inputs: fault_of(lambda: _treated(module, inputs, how)), ready=_Warm(how))


def differs(how: How) -> Predicate:
    """The results are not those of the reference, by more than rounding makes of them, or there are none."""

    def work(module: Module, inputs: Mapping[str, Array]) -> str:
        reference = Reference(module, [inputs])
        try:
            outputs = _treated(module, inputs, how)
        except DeepxGraphError as e:
            return f"no results: {type(e).__name__}"
        return _differing(reference, outputs)

    return Predicate(work, ready=_Warm(how))


def slow(how: How) -> Predicate:
    """It takes longer than it should."""

    def work(module: Module, inputs: Mapping[str, Array]) -> str:
        _treated(module, inputs, how)
        return ""

    return Predicate(work, how.slower_than, _Warm(how))


def wrong_in_xla(how: How) -> Predicate:
    """XLA, in a child process, gives something else than the reference."""
    server = XlaServer()
    return Predicate(lambda module, inputs: _differing(Reference(module, [inputs]), server.run(module, inputs)), ready=server.ready)


PREDICATES: dict[str, Callable[[How], Predicate]] = {
    "crash": crashes, "differs": differs, "slow": slow, "wrong-in-xla": wrong_in_xla,
}  # fmt: skip


def predicate(name: str, how: How) -> Predicate:
    """The predicate of a name. Raises UsageError for another."""
    if name not in PREDICATES:
        raise UsageError(Diagnostic(f"no predicate '{name}'", expected=", ".join(PREDICATES), hint=suggest(name, PREDICATES)))
    return PREDICATES[name](how)


@dataclass
class _Warm:
    """Has modules imported once, before children would import them each for itself, where a child has survived that."""

    how: How
    done: bool = False

    def __call__(self) -> None:
        if not self.done:
            self.done = True
            if in_child(lambda: _small_run(self.how), WARMING).said:
                _small_run(self.how)


def _small_run(how: How) -> str:
    b = Builder()
    x = b.param(0, scalar(F32), "x")
    _treated(Module((Function("main", (x,), (b(add, x, x),)),)), {"x": np.ones((), np.float32)}, how)
    return "done"


def _treated(module: Module, inputs: Mapping[str, Array], how: How) -> tuple[Array, ...]:
    done = programs.optimise(module, how.pipeline).module
    f = compile(done, engine=how.engine, out=io.StringIO())
    return tuple(map(np.asarray, f(*(inputs[p.name] for p in f.inputs))))


def _differing(reference: Reference, outputs: tuple[Array, ...]) -> str:
    found = reference.compare([outputs])
    return "" if found is None or reference.leaves_open(found[2]) else "different results"
