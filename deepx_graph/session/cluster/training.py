"""A program with a training loop, run over a mesh in segments, with a checkpoint after each.

What runs a segment is what runs any program over a mesh: all devices in lock step, or, with a transport, the one that this process
is. The next run over the same folder, on this mesh or another one, goes on from the newest checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, UsageError, printable
from deepx_graph.ir import Module
from deepx_graph.passes.delay_collectives import DelayCollectives
from deepx_graph.progress import stage
from deepx_graph.runtime.compile import Compiled, compile
from deepx_graph.runtime.transport.base import Transport
from deepx_graph.session import programs
from deepx_graph.session.cluster.checkpoint import Checkpoints, Layout, RunOf, Variables
from deepx_graph.session.cluster.segments import segments
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan
from deepx_graph.version import __version__

Parts = list[list[Any]]
"""Values on the devices that run here: a row for each."""


@dataclass(frozen=True)
class Saving:
    """Where checkpoints are, and after how many iterations one is made; `inputs` are the digests of those that the run is of."""

    folder: Path
    every: int = 100
    inputs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises UsageError for no positive number of iterations."""
        if self.every < 1:
            raise UsageError(f"a checkpoint every {self.every} iterations; at least 1")


@dataclass(frozen=True)
class TrainingProgram:
    """The segments of a program as one device runs them."""

    before: Partitioned
    some: Partitioned
    after: Partitioned
    variables: Variables
    digest: str

    def run(self, inputs: Parts, saving: Saving, devices: Sequence[int], transport: Transport | None, **options: Any) -> Parts:
        """The results on some devices for their inputs, from the newest checkpoint on.

        Raises UsageError and RunError as `Checkpoints.restored` does, and as the program does.
        """
        run = RunOf(self.digest, saving.inputs, options.get("seed", 0))
        checkpoints, layout = Checkpoints(saving.folder, run, self.variables), (self.before.mesh, self.before.results)
        iteration = _newest(checkpoints, transport)
        parts = (self.before, self.some, self.after)
        before, some, after = (runner(compile_part(part, transport, options), len(devices)) for part in parts)
        if iteration is None:
            iteration, state = 0, before(inputs)
        else:
            state = checkpoints.restored(iteration, layout, devices)
        most = np.int32(saving.every)
        while True:
            stage(f"iteration {iteration}")
            found = some([[*x, *s, most] for x, s in zip(inputs, state, strict=True)])
            state, done = [row[:-1] for row in found], int(found[0][-1])
            iteration += done
            if done < saving.every:
                return after([[*x, *s] for x, s in zip(inputs, state, strict=True)])
            _save(checkpoints, iteration, layout, devices, state, transport)


    def prepared(self, prepare: Callable[[Module], Module]) -> TrainingProgram:
        """The same with the passes done on each segment."""
        before, some, after = (replace(p, module=prepare(p.module)) for p in (self.before, self.some, self.after))
        return replace(self, before=before, some=some, after=after)


def training_program(module: Module, plan: Plan) -> TrainingProgram:
    """The segments of a program, split as a plan says. Raises UsageError as `segments` and `partition` do."""
    cut = segments(module, plan)
    before, some, after = (partition(s.module, s.plan) for s in (cut.before, cut.some, cut.after))
    digest = hashlib.blake2b(programs.dumps(module, "sea").encode(), digest_size=16).hexdigest()
    return TrainingProgram(before, some, after, cut.variables, digest)


def run_here(program: Partitioned | TrainingProgram, devices: Sequence[int], transport: Transport | None, inputs: Parts,
             saving: Saving | None, options: dict[str, Any]) -> Parts:
    """Runs a program on devices of this process: all of a mesh, or the one of a transport."""
    if isinstance(program, Partitioned):
        return runner(compile_part(program, transport, options), len(devices))(inputs)
    assert saving is not None
    return program.run(inputs, saving, devices, transport, **options)


def check_same(transport: Transport, program: Partitioned | TrainingProgram, saving: Saving | None, seed: int) -> None:
    """Whether all devices run the same: what meets by chance would give wrong results. Raises UsageError on device 0."""
    parts = [program] if isinstance(program, Partitioned) else [program.before, program.some, program.after]
    check_alike(transport, {"program": [programs.dumps(part.module, "sea") for part in parts],
                            "plan": [(part.mesh, part.params, part.results) for part in parts], "seed": seed,
                            "--deterministic": transport.deterministic, "--checkpoint-every": saving and saving.every})


def check_alike(transport: Transport, stated: Mapping[str, object]) -> None:
    """Whether all devices state the same of what they run, and are of one version. Raises UsageError on device 0."""
    said = {"version of deepx_graph": __version__, **stated}
    digests = [hashlib.blake2b(str(value).encode(), digest_size=16).digest() for value in said.values()]
    rows = transport.gather([np.frombuffer(d, np.uint8) for d in digests])
    for device, row in enumerate(rows or ()):
        other = [what for what, mine, its in zip(said, digests, row, strict=True) if its.tobytes() != mine]
        if other:
            raise UsageError(Diagnostic(f"device {device} has another {', '.join(other)} than device 0",
                                        hint="all processes take the same arguments and files"))


def compile_part(local: Partitioned, transport: Transport | None, options: dict[str, Any]) -> Compiled:
    """The program of one device, for all devices of its mesh, or for the one of a transport."""
    prepare = options.get("prepare")
    options = {**options, "prepare": lambda m: DelayCollectives().run(prepare(m) if prepare else m)}
    return compile(local.module, partitions=1 if transport else local.mesh.count, transport=transport, **options)


def runner(f: Compiled, count: int) -> Callable[[Parts], Parts]:
    """What runs it on so many devices."""

    def run(values: Parts) -> Parts:
        if count == 1:
            return [list(f(*values[0]))]
        return [list(row) for row in f(*([row[k] for row in values] for k in range(len(values[0]))))]

    return run


def _newest(checkpoints: Checkpoints, transport: Transport | None) -> int | None:
    """The iteration of the newest checkpoint. Raises RunError on device 0 where others see another one."""
    found = checkpoints.latest()
    seen = None if transport is None else transport.gather([np.array(_NONE if found is None else found)])
    if seen and len({int(n) for (n,) in seen}) > 1:
        notes = tuple(f"device {d} sees {'none' if n == _NONE else f'that of iteration {n}'}" for d, (n,) in enumerate(seen))
        raise RunError(Diagnostic(f"the devices see different checkpoints in {printable(str(checkpoints.folder))}", notes=notes,
                                  hint="--checkpoint DIR is to be a folder that all processes share"))
    return found


_NONE = -1
"""In place of an iteration where there is no checkpoint."""


def _save(checkpoints: Checkpoints, iteration: int, layout: Layout, devices: Sequence[int], state: Parts,
          transport: Transport | None) -> None:
    sums = [checkpoints.save_part(iteration, device, layout, values) for device, values in zip(devices, state, strict=True)]
    if transport is not None:
        every = transport.gather([np.array(s) for s in sums])  # all have written their parts
        if every is None:
            return
        sums = [int(s) for (s,) in every]
    checkpoints.seal(iteration, layout, sums)
