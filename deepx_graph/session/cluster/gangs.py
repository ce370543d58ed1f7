"""A program over a mesh whose devices are long tasks on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deepx_graph.ir import Module
from deepx_graph.ir.collective import Grid
from deepx_graph.runtime.transport.base import PATIENCE, Transport
from deepx_graph.session import pickling  # noqa: F401  # the command line does not import `deepx_graph.api`, by which modules are pickled
from deepx_graph.session.cluster.sharded import OverMesh
from deepx_graph.session.cluster.training import Parts, Saving, TrainingProgram, check_same, run_here, training_program
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan

if TYPE_CHECKING:
    from distributed import Client


class OverDask(OverMesh):
    """A program over a mesh, each device a task of a gang. When workers are lost, all start again, with `saving` from the last
    checkpoint; `folder` is then one that all workers see. Raises UsageError as `Sharded` does."""

    def __init__(self, module: Module, plan: Plan, client: Client, *, saving: Saving | None = None, patience: float | None = None,
                 prepare: Callable[[Module], Module] | None = None, **options: Any) -> None:
        local = training_program(module, plan) if saving else partition(module, plan)
        super().__init__(module, plan, _prepared(local, prepare) if prepare else local, saving)
        self.client, self.options, self.patience = client, options, patience or PATIENCE

    def run(self, inputs: Parts, saving: Saving | None) -> Parts:
        """As in `OverMesh`. Raises as `run_gang` does."""
        from deepx_graph.runtime.transport.gang import run_gang

        arguments = [(self.local, row, saving, self.options) for row in inputs]
        found: Parts = run_gang(self.client, Grid(1, self.mesh.count), _member, arguments, patience=self.patience)
        return found


def _prepared(local: Partitioned | TrainingProgram, prepare: Callable[[Module], Module]) -> Partitioned | TrainingProgram:
    """The program after passes, which are done here, and not on each worker."""
    if isinstance(local, TrainingProgram):
        return local.prepared(prepare)
    return replace(local, module=prepare(local.module))


def _member(transport: Transport, local: Partitioned | TrainingProgram, inputs: list[Any], saving: Saving | None,
            options: dict[str, Any]) -> list[Any]:
    """In a task: the results of one device."""
    check_same(transport, local, saving, options.get("seed", 0))
    return run_here(local, [transport.device], transport, [inputs], saving, options)[0]
