"""A program of one device as it stands, such as XLA's partitioner writes, on every device of a grid.

Nothing is split here: devices meet where the program says so, and each has inputs and results of its own. A whole input is cut by
what the text states of the parameter (`sharding=`, which XLA leaves in place).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError
from deepx_graph.ir import Module
from deepx_graph.ir.collective import Grid
from deepx_graph.literal import Array
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.inputs import Port, input_ports
from deepx_graph.runtime.transport.base import Transport
from deepx_graph.session import programs
from deepx_graph.session.cluster.training import check_alike
from deepx_graph.sharding.annotations import stated_plan
from deepx_graph.sharding.mesh import local_shape
from deepx_graph.sharding.pieces import piece
from deepx_graph.types import as_tensor


def cut_as_stated(module: Module, grid: Grid, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs by name, with a list of parts, one for each device, in place of an array of the whole size.

    What has the size of a part is every device's, as it stands. Raises UsageError for stated shardings over meshes that differ,
    RunError where they are over other devices than those of a replica.
    """
    plan = stated_plan(module) if grid.count > 1 else None
    shardings = {p.name: plan.values[p] for p in module.entry.params if p in plan.values} if plan else {}
    found = dict(given)
    for port in input_ports(module.entry):
        array, sharding = given.get(port.name), shardings.get(port.name)
        if plan is None or sharding is None or not isinstance(array, np.ndarray):
            continue
        local = as_tensor(port.type).shape
        if array.shape == local or len(array.shape) != len(local) or local_shape(array.shape, sharding.axes) != local:
            continue
        if plan.mesh.count != grid.partitions:
            raise RunError(Diagnostic(f"input '{port.name}' is cut for {plan.mesh.count} devices, and the program runs on {grid}"))
        found[port.name] = [piece(array, plan.mesh, sharding, grid.partition(d)) for d in range(grid.count)]
    return found


class OnEachDevice:
    """The program on the device that this process is: `values` takes the inputs of all devices, and gives the results of each on
    device 0, nothing elsewhere. Raises UsageError where processes run different programs."""

    def __init__(self, module: Module, transport: Transport, **options: Any) -> None:
        check_alike(transport, {"program": programs.dumps(module, "sea"), "seed": options.get("seed", 0),
                                "--deterministic": transport.deterministic})
        self.transport, self.grid, self.interfaces = transport, transport.grid, transport.grid.count
        self.compiled = compile(module, transport=transport, **options)
        self.inputs: tuple[Port, ...] = self.compiled.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The results of one device."""
        return self.compiled.outputs

    def values(self, **named: Any) -> Sequence[Sequence[Array]]:
        """The results of every device. Raises RunError for inputs that do not fit, and as the program does."""
        given = cut_as_stated(self.compiled.module, self.grid, named)
        mine = {k: v[self.transport.device] if isinstance(v, list) else v for k, v in given.items()}
        return self.transport.gather(list(self.compiled(**mine))) or ()
