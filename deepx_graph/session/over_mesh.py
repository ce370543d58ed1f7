"""A program over a mesh for a caller in Python: the plan found, and the devices run where they are asked to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Module
from deepx_graph.ir.collective import Grid
from deepx_graph.passes.chosen_plan import chosen_plan
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.schedules import PipelineSchedule
from deepx_graph.runtime.transport.dask import ANSWER, PREFIX, dask_client
from deepx_graph.session.cluster.calibration import network_here
from deepx_graph.session.cluster.gangs import OverDask
from deepx_graph.session.cluster.launch import LOCKSTEP, MPI, attempt, checked_place, threads_of
from deepx_graph.session.cluster.pipelined import Pipelined
from deepx_graph.session.cluster.sharded import OverMesh, Sharded, mpi_transport
from deepx_graph.session.cluster.spmd import OnEachDevice
from deepx_graph.session.cluster.training import Saving, check_alike
from deepx_graph.session.plans import STATED, given_plan, planned
from deepx_graph.session.programs import dumps, optimise
from deepx_graph.sharding.annotations import stated_plan
from deepx_graph.sharding.by_hand.opened import opened
from deepx_graph.sharding.mesh import Mesh
from deepx_graph.sharding.plan import Plan, PortablePlan
from deepx_graph.sharding.several_meshes import over_one_mesh

if TYPE_CHECKING:
    from deepx_graph.runtime.transport.mpi import MpiTransport


OverDevices = OverMesh | Pipelined | OnEachDevice


@dataclass(frozen=True)
class MeshOptions:
    """Where and how a program runs over a mesh, for the command line and for Python alike.

    `on` is a place (`launch.checked_place`). `deterministic` gives the bits of lock step wherever devices are. A device waits
    `patience` seconds for others. With a folder for checkpoints the training loop runs `checkpoint_every` iterations at a time.
    """

    on: str = LOCKSTEP
    deterministic: bool = False
    patience: float | None = None
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for no such place, and for iterations between checkpoints that have no folder."""
        try:
            checked_place(self.on)
        except ValueError as e:
            raise UsageError(Diagnostic(f"no place '{self.on}'", expected=str(e))) from None
        if self.checkpoint_every is not None and self.checkpoint is None:
            raise UsageError(Diagnostic("checkpoints need a folder", hint="--checkpoint DIR, or checkpoint=DIR"))

    @property
    def saving(self) -> Saving | None:
        """Where checkpoints go, if anywhere. Raises UsageError for no positive number of iterations."""
        if self.checkpoint is None:
            return None
        folder = Path(self.checkpoint)
        return Saving(folder) if self.checkpoint_every is None else Saving(folder, self.checkpoint_every)

    def transport(self, grid: Grid) -> MpiTransport | None:
        """This process as one device of a grid over MPI; None elsewhere. Raises UsageError where there is no MPI."""
        if self.on != MPI:
            return None
        return mpi_transport(grid, deterministic=self.deterministic, patience=self.patience, attempt=attempt())

    def program(self, module: Module, asked: MeshAsked, transport: MpiTransport | None, **options: Any) -> OverMesh:
        """The program of a module without calls under the plan that is asked for, with the options of `compile`.

        Raises UsageError where the place is not to be had, and as `Sharded` and `MeshAsked.plan` do.
        """
        plan = asked.plan(module, transport=transport)
        if self.on.startswith(PREFIX):
            stack = ExitStack()
            sent = {name: value for name, value in options.items() if name in SENT}
            client = stack.enter_context(dask_client(self.on.removeprefix(PREFIX), min(ANSWER, self.patience or ANSWER)))
            program = OverDask(module, plan, client, saving=self.saving, patience=self.patience, **sent)
            finalize(program, stack.close)
            return program
        options["threads"] = _threads(options.get("threads"), transport)
        return Sharded(module, plan, transport=transport, saving=self.saving, deterministic=self.deterministic, **options)

    def each(self, module: Module, transport: MpiTransport | None, **options: Any) -> OnEachDevice:
        """A program of one device, on the one that this process is. Raises UsageError without MPI, and for checkpoints."""
        if transport is None or self.checkpoint is not None:
            message = "a program of one device runs in lock step or over MPI, without checkpoints"
            raise UsageError(Diagnostic(message, hint="--on mpi"))
        options["threads"] = _threads(options.get("threads"), transport)
        return OnEachDevice(module, transport, deterministic=self.deterministic, **options)

    def pipeline(self, module: Module, asked: PipelineAsked, transport: MpiTransport | None, **options: Any) -> Pipelined:
        """The pipeline of a module without calls, cut where its stages take as long on this machine.

        Raises UsageError for a place where pipelines do not run, for checkpoints, and as `Pipelined` does.
        """
        if self.on not in (LOCKSTEP, MPI) or self.checkpoint is not None:
            raise UsageError(Diagnostic("a pipeline runs in lock step or over MPI, without checkpoints", hint="--on mpi"))
        options["threads"] = _threads(options.get("threads"), transport)
        return Pipelined(module, asked.batch, asked.schedule, network_here(), mesh=asked.mesh, said=asked.said, transport=transport,
                         deterministic=self.deterministic, **options)


def _threads(asked: int | None, transport: MpiTransport | None) -> int | None:
    """The threads of a device: as many as are asked for, or its part of the cores of the machine."""
    return threads_of(transport.neighbours) if asked is None and transport is not None else asked


@dataclass(frozen=True)
class MeshAsked:
    """How a module without calls is to lie on a mesh: by a propagated plan, or by the best that is found."""

    mesh: Mesh
    said: Plan | None = None

    @property
    def grid(self) -> Grid:
        """All devices."""
        return Grid(1, self.mesh.count)

    def plan(self, module: Module, cluster: DeviceCluster | None = None, transport: MpiTransport | None = None) -> Plan:
        """The plan; one that is chosen is of least predicted time on devices of the cluster (processes of this machine), and where
        this is a process of several, device 0 chooses for all. Raises as `chosen_plan` does, and as `told` does there."""
        if self.said is not None:
            return self.said

        def chosen() -> Plan:
            return chosen_plan(module, self.mesh, cluster or network_here(), None).plan

        if transport is None:
            return chosen()
        check_alike(transport, {"program": dumps(module, "sea"), "--mesh": self.mesh})
        return transport.told(lambda: PortablePlan.of(chosen()), "for device 0 to choose a plan").on(module.entry)


@dataclass(frozen=True)
class PipelineAsked:
    """A pipeline of a module without calls: the inputs that are cut into microbatches, the schedule, and the mesh of each of its
    places, or the plan for the whole program over that; without both each place is a device."""

    batch: Sequence[str]
    schedule: PipelineSchedule
    mesh: Mesh | None = None
    said: Plan | None = None

    @property
    def grid(self) -> Grid:
        """All devices."""
        mesh = self.mesh if self.said is None else self.said.mesh
        return Grid(1, len(self.schedule.devices) * (1 if mesh is None else mesh.count))


def asked_pipeline(module: Module, batch: Sequence[str], schedule: PipelineSchedule, mesh: Mesh | None,
                   text: str | None = None, name: str = "<plan>") -> tuple[Module, PipelineAsked]:
    """The module without calls, and the pipeline by a mesh and the text of a plan, each if there is one; of the name `stated` the
    plan is what the program states.

    Raises ParseError for a plan that does not fit, UsageError for one over another mesh, and as `given_plan` does.
    """
    if text is None and name != STATED:
        return optimise(module, "inline").module, PipelineAsked(batch, schedule, mesh)
    inlined, said = given_plan(module, text, name)
    check_over(said, mesh)
    return inlined, PipelineAsked(batch, schedule, None, over_one_mesh(said))


SENT = ("engine", "threads", "seed", "max_bytes", "prepare")
"""The options of `compile` that tasks on other machines are given, too."""


def mesh_of(axes: Mapping[str, int] | None) -> Mesh | None:
    """The mesh of axes with their sizes, if there are any. Raises UsageError for one that is none."""
    return None if axes is None else Mesh(tuple((str(name), int(size)) for name, size in axes.items()))


def over_mesh(module: Module, mesh: Mapping[str, int] | None, plan: str | None, where: MeshOptions, **options: Any) -> OverMesh:
    """The program over a mesh; see `dx.distribute`. Raises UsageError where nothing says how values lie."""
    inlined, asked = asked_mesh(module, mesh_of(mesh), plan)
    return where.program(inlined, asked, where.transport(asked.grid), prepare=lambda m: optimise(m).module, **options)


def asked_mesh(module: Module, mesh: Mesh | None, text: str | None, name: str = "<plan>") -> tuple[Module, MeshAsked]:
    """The module without calls, and how it lies: by the plan that is given, or what it states, or one to be chosen on a mesh.

    Raises as `planned` does, and UsageError for a plan over another mesh.
    """
    if mesh is not None and text is None:
        inlined = opened(optimise(module, "inline").module)
        stated = stated_plan(inlined)
        if stated is None or stated.mesh.axes != mesh.axes:
            return inlined, MeshAsked(mesh)
    inlined, found = planned(module, text, name)
    check_over(found, mesh)
    return inlined, MeshAsked(found.mesh, found)


def check_over(plan: Plan, mesh: Mesh | None) -> None:
    """Raises UsageError for a plan over another mesh than one that is asked for."""
    if mesh is not None and plan.mesh.axes != mesh.axes:
        raise UsageError(f"the plan is for the mesh {plan.mesh}, and not for {mesh}")
