"""`chosen_plan`: the automatic plan of a program, held against the plans that people write by hand by what a step takes.

The search counts every operation as a kernel of its own, and each collective as time in which nothing is computed. What fusion and
overlapping make of a plan is known of its program alone, so the plans that are nearest are made into programs, and simulated.
"""

from __future__ import annotations

from dataclasses import replace

from deepx_graph.ir import Module
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.planning.automatic import SECONDS, AutomaticPlan, automatic_plan
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.events import SimulatedStep, run_events
from deepx_graph.planning.steps import roofline, step_tasks
from deepx_graph.sharding.annotations import stated_plan
from deepx_graph.sharding.mesh import Mesh
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.several_meshes import over_one_mesh

FARTHEST = 1.5
"""Plans that take more than so many times the seconds of the one that is found, by the search, are not simulated."""


def chosen_plan(module: Module, mesh: Mesh, cluster: DeviceCluster, memory: float | None,
                seconds: float = SECONDS) -> AutomaticPlan:
    """The automatic plan for the entry, in which computations by hand are opened, searched for so many seconds, or the plan beside
    it of which a step is simulated to take less; shardings over the same axes that the text states stay.

    Raises as `automatic_plan` does.
    """
    stated = stated_plan(module)
    given = over_one_mesh(stated) if stated is not None and stated.mesh.axes == mesh.axes else None
    found = automatic_plan(module.entry, given.mesh if given else mesh, cluster, memory=memory, given=given, seconds=seconds)
    near = [(r.name, r.plan) for r in found.rivals if r.plan is not None and r.seconds <= FARTHEST * found.seconds]
    if not near:
        return found
    own = _step(module, found.plan, cluster)
    steps = {name: _step(module, rival.plan, cluster) for name, rival in near}
    best = min(steps, key=lambda name: steps[name])
    if steps[best] >= own:
        return found
    said = f"taken: {best}, simulated to take {steps[best] * 1e6:,.1f} us a step; the plan that is least by the search takes"
    return replace(dict(near)[best], rivals=found.rivals, remark=f"{said} {own * 1e6:,.1f} us")


def _step(module: Module, plan: Plan, cluster: DeviceCluster) -> float:
    """The simulated seconds of a step under a plan."""
    return fused_steps(partition(module, plan), cluster)[1].seconds


def fused_steps(local: Partitioned, cluster: DeviceCluster) -> tuple[Module, SimulatedStep]:
    """The program of one device after its passes, and a step of it on a cluster, by the roofline of its device."""
    module = run_pipeline(local.module, parse_pipeline("default"))
    return module, run_events(step_tasks(module.entry, cluster, roofline(cluster))[0])
