"""Programs over the devices of a mesh, called as if there were one: whole arrays in, whole arrays out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import UsageError, counted
from deepx_graph.ir import Module
from deepx_graph.ir.collective import Grid
from deepx_graph.literal import Array
from deepx_graph.runtime.compile import Compiled, compile
from deepx_graph.runtime.inputs import Port, bind, input_ports, output_ports
from deepx_graph.session.programs import optimise
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan, read_plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.types import nbytes

if TYPE_CHECKING:
    from deepx_graph.runtime.transport.mpi import MpiTransport

STATED = "stated"
"""In place of a plan's file: what the text of the program states."""


def planned(module: Module, text: str | None = None, name: str = "<plan>") -> tuple[Module, Plan]:
    """The module without calls, and the plan for all its values: what `text` says, or else what the program states, propagated.

    Raises UsageError where neither says anything, ParseError for a plan that does not fit.
    """
    inlined = optimise(module, "inline").module
    plan = needed_plan(inlined) if text is None else read_plan(text, inlined.entry, name)
    return inlined, propagate(plan)


def plan_text(path: str) -> str | None:
    """The text of a plan's file; None for `stated`. Raises UsageError for a file that cannot be read."""
    if path == STATED:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"the plan {path} cannot be read: {e}") from None


def exchanged(local: Partitioned) -> dict[str, dict[str, int]]:
    """How often devices meet in the program of one device, by kind (`count`), with the `bytes` that each of them gets."""
    found: dict[str, dict[str, int]] = {}
    for node in local.module.entry.nodes:
        if node.op.exchange is not None and node.inputs:
            row = found.setdefault(node.op.name.removeprefix("spmd_"), {"count": 0, "bytes": 0})
            row["count"] += 1
            row["bytes"] += nbytes(node.type)
    return dict(sorted(found.items()))


def collectives(local: Partitioned) -> str:
    """The same as a line of text."""
    said = [f"{row['count']} {kind} ({counted(row['bytes'], 'byte')})" for kind, row in exchanged(local).items()]
    return f"collectives: {', '.join(said) or 'none'}"


class Sharded:
    """A program over a mesh. `f(x, y)` or `f(name=array)` takes whole arrays and gives a tuple of whole arrays.

    `plan` says how all values lie, `local` is the program of one device, `compiled` runs it: on all devices in lock step in this
    process, or with a `transport` on the one that this process is; then device 0 gets the results, and the others none.
    """

    def __init__(self, module: Module, plan: Plan, *, transport: MpiTransport | None = None, **options: Any) -> None:
        self.plan, self.local, self.transport = plan, partition(module, plan), transport
        self.inputs: tuple[Port, ...] = input_ports(module.entry)
        self.outputs: tuple[Port, ...] = output_ports(module.entry)
        self.grid = Grid()
        partitions = 1 if transport else plan.mesh.count
        self.compiled: Compiled = compile(self.local.module, partitions=partitions, transport=transport, **options)

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Array, ...]:
        """Runs it. Raises RunError for inputs that do not fit, and as the program does."""
        whole = bind(self.inputs, arrays, named)
        count = self.plan.mesh.count
        if self.transport is not None:
            found = self.transport.gather(self.compiled(*self.local.cut(whole, self.transport.device)))
        else:
            parts = [self.local.cut(whole, d) for d in range(count)]
            each = [list(values) for values in zip(*parts, strict=True)]
            found = self.compiled(*each) if count > 1 else (self.compiled(*parts[0]),)  # type: ignore[assignment]
        return () if found is None else tuple(self.local.joined(found))


def mpi_transport(plan: Plan, *, deterministic: bool = False, timeout: float | None = None) -> MpiTransport:
    """This process as a device of the plan's mesh, by its MPI rank. Raises UsageError without MPI, or for too few processes."""
    from deepx_graph.runtime.transport.mpi import PATIENCE, MpiTransport

    return MpiTransport(Grid(1, plan.mesh.count), deterministic=deterministic, patience=timeout or PATIENCE)


