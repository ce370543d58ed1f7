"""Programs over the devices of a mesh, called as if there were one: whole arrays in, whole arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import counted
from deepx_graph.ir import Module
from deepx_graph.ir.collective import Grid
from deepx_graph.literal import Array
from deepx_graph.runtime.compile import Compiled
from deepx_graph.runtime.inputs import Port, bind, input_ports, output_ports
from deepx_graph.session.cluster.checkpoint import input_digests
from deepx_graph.session.cluster.training import (
    Parts,
    Saving,
    TrainingProgram,
    check_same,
    compile_part,
    run_here,
    runner,
    training_program,
)
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan

if TYPE_CHECKING:
    from deepx_graph.runtime.transport.base import Transport
    from deepx_graph.runtime.transport.mpi import MpiTransport

class OverMesh:
    """A program over a mesh, called with whole arrays; a subclass says how the parts of devices are run.

    The program `first` takes the parts of inputs, `last` gives those of results.
    """

    interfaces = 1
    """How many devices have inputs and results of their own: one where they are whole."""

    def __init__(self, module: Module, plan: Plan, local: Partitioned | TrainingProgram, saving: Saving | None = None) -> None:
        self.plan, self.mesh, self.local, self.saving = plan, plan.mesh, local, saving
        self.first, self.last = (local.before, local.after) if isinstance(local, TrainingProgram) else (local, local)
        self.inputs: tuple[Port, ...] = input_ports(module.entry)
        self.outputs: tuple[Port, ...] = output_ports(module.entry)
        self.compiled: Compiled | None = None
        """The program of one device, where it is one and runs here."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {counted(self.mesh.count, 'device')}>"

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Array, ...]:
        """Runs it. Raises RunError for inputs that do not fit, and as the program does."""
        whole = bind(self.inputs, arrays, named)
        saving = self.saving and replace(self.saving, inputs=input_digests(self.inputs, whole))
        found = self.run([self.first.cut(whole, d) for d in self.devices], saving)
        return () if found is None else tuple(self.last.joined(found))

    def values(self, *arrays: Any, **named: Any) -> tuple[Array, ...]:
        """The same, as `outputs` lists it."""
        return self(*arrays, **named)

    @property
    def devices(self) -> Sequence[int]:
        """The devices whose inputs this process gives."""
        return range(self.mesh.count)

    def run(self, inputs: Parts, saving: Saving | None) -> Parts | None:
        """The results of all devices for the inputs of `devices`, saved meanwhile; None where another process has them."""
        raise NotImplementedError


class Sharded(OverMesh):
    """A program over a mesh. `f(x, y)` or `f(name=array)` takes whole arrays and gives a tuple of whole arrays.

    `plan` says how all values lie, `local` is what one device runs: on all devices in lock step in this process, or with a
    `transport` on the one that this process is; then device 0 gets the results, and the others none. With `saving` its training
    loop is run in segments, with checkpoints between them (`session/cluster/training.py`).
    """

    def __init__(self, module: Module, plan: Plan, *, transport: Transport | None = None, saving: Saving | None = None,
                 **options: Any) -> None:
        super().__init__(module, plan, training_program(module, plan) if saving else partition(module, plan), saving)
        self.transport, self.options = transport, options
        if transport is not None:
            check_same(transport, self.local, saving, options.get("seed", 0))
        if isinstance(self.local, Partitioned):
            self.compiled = compile_part(self.local, transport, options)

    @property
    def devices(self) -> Sequence[int]:
        return super().devices if self.transport is None else [self.transport.device]

    def run(self, inputs: Parts, saving: Saving | None) -> Parts | None:
        """As in `OverMesh`."""
        if self.compiled is not None:
            found = runner(self.compiled, len(self.devices))(inputs)
        else:
            found = run_here(self.local, self.devices, self.transport, inputs, saving, self.options)
        return found if self.transport is None else self.transport.gather(found[0])


def mpi_transport(grid: Grid, *, deterministic: bool = False, patience: float | None = None, attempt: int = 0) -> MpiTransport:
    """This process as one device of a grid, by its MPI rank. Raises UsageError without MPI, or for too few processes."""
    from deepx_graph.runtime.transport.base import PATIENCE
    from deepx_graph.runtime.transport.mpi import MpiTransport

    return MpiTransport(grid, deterministic=deterministic, patience=patience or PATIENCE, attempt=attempt)


