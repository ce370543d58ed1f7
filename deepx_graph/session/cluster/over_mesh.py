"""A program over a mesh for a caller in Python: the plan found, and the devices run where they are asked to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any
from weakref import finalize

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Module
from deepx_graph.passes.shard import chosen_plan
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.runtime.transport.dask import PREFIX, dask_client
from deepx_graph.session.cluster.calibration import network_here
from deepx_graph.session.cluster.gangs import OverDask
from deepx_graph.session.cluster.launch import LOCKSTEP, MPI, checked_place
from deepx_graph.session.programs import optimise
from deepx_graph.session.sharded import OverMesh, Sharded, mpi_transport, planned
from deepx_graph.sharding.annotations import stated_plan
from deepx_graph.sharding.mesh import Mesh
from deepx_graph.sharding.plan import Plan


def over_mesh(module: Module, mesh: Mapping[str, int] | None, plan: str | None, on: str, **options: Any) -> OverMesh:
    """The program over a mesh; see `dx.distribute`. Raises UsageError where nothing says how values lie, and for no such place."""
    axes = None if mesh is None else Mesh(tuple((str(name), int(size)) for name, size in mesh.items()))
    inlined, found = plan_over(module, axes, plan)
    try:
        checked_place(on)
    except ValueError as e:
        raise UsageError(Diagnostic(f"no place '{on}'", expected=str(e))) from None
    options["prepare"] = lambda m: optimise(m).module
    if on == LOCKSTEP:
        return Sharded(inlined, found, **options)
    if on == MPI:
        return Sharded(inlined, found, transport=mpi_transport(found), **options)
    stack = ExitStack()
    program = OverDask(inlined, found, stack.enter_context(dask_client(on.removeprefix(PREFIX))), **options)
    finalize(program, stack.close)
    return program


def plan_over(module: Module, mesh: Mesh | None, text: str | None, name: str = "<plan>",
              cluster: DeviceCluster | None = None) -> tuple[Module, Plan]:
    """The module without calls, and the plan that is given, or what it states, or the one of least predicted time on a mesh of
    devices of the cluster (of processes of this machine).

    Raises as `planned` does, and UsageError for a plan over another mesh.
    """
    if mesh is not None and text is None:
        inlined = optimise(module, "inline").module
        stated = stated_plan(inlined)
        if stated is None or stated.mesh.axes != mesh.axes:
            return inlined, chosen_plan(inlined, mesh, cluster or network_here(), None).plan
    inlined, found = planned(module, text, name)
    if mesh is not None and found.mesh.axes != mesh.axes:
        raise UsageError(f"the plan is for the mesh {found.mesh}, and not for {mesh}")
    return inlined, found
