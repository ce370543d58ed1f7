"""The stages of a pipeline as programs: each forward and backward, on one device or split over the devices of a mesh.

How a stage is split is said by a plan for the whole program, or chosen for its backward program, which computes the stage again:
of the automatic plan and those by hand that are near it the one whose programs are simulated to take least. What crosses from one
stage to the next lies there as where it was made, so each device sends to one other. Equal stages, such as those of equal layers,
have the same programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from deepx_graph.ir import Function, Module, Node
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.chosen_plan import FARTHEST, fused_steps
from deepx_graph.planning.automatic import automatic_plan
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.stages import PipelineStage
from deepx_graph.runtime import engines
from deepx_graph.runtime.engines.base import canonicalized
from deepx_graph.runtime.transport.mpi import plan_of_device
from deepx_graph.sharding.mesh import Mesh, TensorSharding, local_shape, split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan, PortablePlan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.types import TensorType, as_tensor

SEARCH = 2.0
"""Seconds of the processor in which the plan of a stage is searched for."""


@dataclass(frozen=True)
class StageCost:
    """What a program of a stage is predicted to take on one device: seconds, and bytes beside those of its inputs."""

    seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True, eq=False)
class StageProgram:
    """The programs of a stage, for one device of its mesh, by the plan of the backward one, or of the forward one where there is no
    other; the costs are predictions on a cluster."""

    plan: Plan
    forward: Partitioned
    backward: Partitioned | None
    cluster: DeviceCluster

    @cached_property
    def costs(self) -> tuple[StageCost, StageCost]:
        """Forward and backward."""
        return _cost(self.forward, self.cluster), StageCost() if self.backward is None else _cost(self.backward, self.cluster)

    @property
    def seconds(self) -> float:
        """Both ways."""
        return sum(cost.seconds for cost in self.costs)


@dataclass(frozen=True)
class PlacedStage:
    """A stage with its programs; `names` are the inputs of the whole program among its own. `wanted` are the numbers of its inputs
    that have a gradient, `cotangents` those of its results that have one."""

    stage: PipelineStage
    names: tuple[str, ...]
    wanted: tuple[int, ...]
    cotangents: tuple[int, ...]
    program: StageProgram

    @property
    def differentiated(self) -> list[str]:
        """The inputs of the whole program of which it gives gradients."""
        return [self.names[k] for k in self.wanted if k < len(self.names)]

    @property
    def sent_back(self) -> list[int]:
        """The numbers of what crosses into it whose cotangents it sends back."""
        return [k - len(self.names) for k in self.wanted if k >= len(self.names)]

    @property
    def received(self) -> list[TensorType]:
        """What one device gets of what crosses into it."""
        return [self._part(k) for k in range(len(self.names), len(self.stage.function.params))]

    @property
    def returned(self) -> list[TensorType]:
        """What one device sends back of that."""
        return [self._part(k) for k in self.wanted if k >= len(self.names)]

    def parameters(self, names: Sequence[str]) -> list[TensorType]:
        """What one device has of these inputs of the whole program."""
        return [self._part(k) for k, name in enumerate(self.names) if name in names]

    def _part(self, k: int) -> TensorType:
        type = as_tensor(self.stage.function.params[k].type)
        return type.with_dims(local_shape(type.shape, self.program.forward.params[k].axes))


class StagePrograms:
    """Makes the programs of stages on a mesh: as `said`, a plan for the whole function, or as is chosen for a cluster.

    `chosen` are the plans that another process has chosen for the same stages, equal ones once. `batch` names the inputs that have
    no gradient. Raises UsageError, when called, as `automatic_plan` and `partition` do.
    """

    def __init__(self, function: Function, batch: Sequence[str], mesh: Mesh, cluster: DeviceCluster, said: Plan | None,
                 chosen: Iterable[PortablePlan] | None = None) -> None:
        self.function, self.batch, self.mesh, self.cluster = function, frozenset(batch), mesh, cluster
        self.said = None if said is None else propagate(said).values
        self._chosen_before = None if chosen is None else iter(chosen)
        self._known: dict[Any, StageProgram] = {}

    def __call__(self, found: Sequence[PipelineStage]) -> list[PlacedStage]:
        """The stages, in order, with their programs."""
        placed: list[PlacedStage] = []
        for stage in found:
            came = placed[-1].program.forward.results if placed else ()
            placed.append(self._placed(stage, came))
        return placed

    def _placed(self, stage: PipelineStage, came: Sequence[TensorSharding]) -> PlacedStage:
        function = stage.function
        names = tuple(self.function.params[k].name for k in stage.params)
        cotangents = tuple(k for k, r in enumerate(function.results) if _is_float(r))
        wanted = tuple(k for k, p in enumerate(function.params)
                       if cotangents and _is_float(p) and not (k < len(names) and names[k] in self.batch))
        key = function, wanted, tuple(came), tuple(self._stated(stage))
        if key not in self._known:
            self._known[key] = self._program(stage, wanted, cotangents, came)
        return PlacedStage(stage, names, wanted, cotangents, self._known[key])

    def _program(self, stage: PipelineStage, wanted: Sequence[int], cotangents: Sequence[int],
                 came: Sequence[TensorSharding]) -> StageProgram:
        """As said, or the fastest of those that are chosen."""
        function = stage.function
        forward = Module((function,), function.name)
        backward = grad(forward, [function.params[k].name for k in wanted]) if wanted else None
        whole = forward if backward is None else backward
        if self.said is None and self.mesh.count > 1:
            first = len(function.params) - len(came)
            fixed = dict(zip(whole.entry.params[first: len(function.params)], came, strict=True))
            plans, results = self._chosen(Plan(self.mesh, whole.entry, fixed)), {}
        else:
            stated = self._stated(stage)
            inputs, lie = stated[: len(function.params)], stated[len(function.params):]
            given = dict(zip(whole.entry.params, [*inputs, *(lie[k] for k in cotangents)], strict=False))
            plans, results = [self._filled(Plan(self.mesh, whole.entry, given))], dict(enumerate(lie))
        count = len(function.params)
        made = [self._split(forward, backward, plan, wanted, results or dict(zip(cotangents, _lie(plan)[count:], strict=False)))
                for plan in plans]
        return made[0] if len(made) == 1 else min(made, key=lambda program: program.seconds)

    def _stated(self, stage: PipelineStage) -> list[TensorSharding]:
        """How its inputs and results lie, by the plan for the whole function; whole without one."""
        values = [*(self.function.params[k] for k in stage.params), *stage.crossing, *stage.leaving]
        said: Mapping[Node, TensorSharding] = self.said or {}
        return [split(*(said[v].axes if v in said else ((),) * len(as_tensor(v.type).shape))) for v in values]

    def _chosen(self, given: Plan) -> list[Plan]:
        """The automatic plan, and those by hand that are near; or the one that was chosen before."""
        if self._chosen_before is not None:
            return [next(self._chosen_before).on(given.function)]
        found = automatic_plan(given.function, self.mesh, self.cluster, given=given, seconds=SEARCH)
        plans = [found.plan, *(r.plan.plan for r in found.rivals if r.plan is not None and r.seconds <= FARTHEST * found.seconds)]
        return [plan for k, plan in enumerate(plans) if all(plan.values != before.values for before in plans[:k])]

    def _split(self, forward: Module, backward: Module | None, plan: Plan, wanted: Sequence[int],
               results: Mapping[int, TensorSharding]) -> StageProgram:
        """The programs by a plan for the backward one, or for the other where there is none; gradients lie as their inputs."""
        function, lie = forward.entry, _lie(plan)
        if backward is None:
            return StageProgram(plan, partition(forward, replace(plan, results=results)), None, self.cluster)
        given = Plan(self.mesh, function, dict(zip(function.params, lie, strict=False)), results)
        back = partition(backward, replace(plan, results={k: lie[n] for k, n in enumerate(wanted)}))
        return StageProgram(plan, partition(forward, self._filled(given)), back, self.cluster)

    def _filled(self, given: Plan) -> Plan:
        """A plan for all values."""
        return given if self.mesh.count == 1 else propagate(given)


def _lie(plan: Plan) -> list[TensorSharding]:
    """How the inputs of its function lie by a plan."""
    return [split(*plan.values[p].axes) for p in plan.function.params]


def _cost(local: Partitioned, cluster: DeviceCluster) -> StageCost:
    fused, step = fused_steps(local, cluster)
    engine = engines.get("numpy")
    module = canonicalized(fused, engine, apart=True)
    return StageCost(step.seconds, plan_of_device(module, engine, local.mesh.count).peak_bytes)


def _is_float(value: Node) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float
