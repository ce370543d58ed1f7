"""Programs over the devices of a mesh, called as if there were one: whole arrays in, whole arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, counted
from deepx_graph.files import read_text
from deepx_graph.ir import Module, Node
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
from deepx_graph.session.programs import optimise
from deepx_graph.session.query.facts import PlacedValue
from deepx_graph.session.report.collectives import collectives_of, mesh_figures
from deepx_graph.sharding.annotations import needed_plan, stated_plan
from deepx_graph.sharding.mesh import split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan, labels_of, program_of, read_plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.types import nbytes

if TYPE_CHECKING:
    from deepx_graph.runtime.transport.base import Transport
    from deepx_graph.runtime.transport.mpi import MpiTransport

PLAN_SUFFIX = ".plan"
STATED = "stated"
"""In place of a plan's file: what the text of the program states."""


def given_plan(module: Module, text: str | None = None, name: str = "<plan>") -> tuple[Module, Plan]:
    """The module without calls, and what `text` says, or else the program states, of how its values lie.

    Raises UsageError where neither says anything, ParseError for a plan that does not fit.
    """
    inlined = optimise(module, "inline").module
    return inlined, needed_plan(inlined) if text is None else read_plan(text, inlined.entry, name)


def planned(module: Module, text: str | None = None, name: str = "<plan>") -> tuple[Module, Plan]:
    """As `given_plan`, propagated to all values."""
    inlined, plan = given_plan(module, text, name)
    return inlined, propagate(plan)


def placed_values(plan: Plan) -> dict[Node, PlacedValue]:
    """How each value lies, and where that comes from. What propagation might have done further is not said any more, so that
    values that lie alike are told alike."""
    labels = labels_of(plan.function)
    found = {}
    for node, sharding in plan.values.items():
        first = next(iter(plan.origins.get(node, {}).values()), None) if sharding.is_split else None
        by = f" by {first.by.op.name} '{labels[first.by]}'" if first and first.by else ""
        source = f"from {first.source}{by}" if first else plan.reasons.get(node, "") if sharding.is_split else ""
        final = replace(sharding, dims=split(*sharding.axes).dims, replicated=())
        found[node] = PlacedValue(final.text(plan.mesh), source)
    return found


def stated_values(module: Module) -> dict[Node, PlacedValue]:
    """How the values of the entry lie by what the program itself states; none where it states nothing that one plan can say."""
    try:
        plan = stated_plan(module)
        return {} if plan is None else placed_values(propagate(plan))
    except DeepxGraphError:
        return {}


def figures_on_mesh(module: Module, plan: str) -> dict[str, int]:
    """The figures of the program of one device, under a plan's file or what the program states.

    One that is of one device already, as XLA dumps them, has its own.
    """
    inlined = optimise(module, "inline").module
    if collectives_of(inlined.entry):
        return mesh_figures(inlined.entry)
    inlined, found = planned(module, plan_text(plan), plan)
    return mesh_figures(partition(inlined, found).module.entry)


def plan_text(path: str) -> str | None:
    """The text of a plan's file; None for `stated`. Raises UsageError for a file that cannot be read."""
    return None if path == STATED else read_text(path)


def planned_program(path: str) -> str:
    """The path of the program that a plan's file names, which is beside it. Raises UsageError where it names none."""
    name = program_of(plan_text(path) or "")
    if not name:
        raise UsageError(Diagnostic(f"the plan {path} does not say which program it is for", expected='program "m.mlir"',
                                    hint=f"give the program, and --plan {path}; plan FILE -o FILE.plan writes the line"))
    return str(Path(path).with_name(name))


def beside(plan: Plan, file: str, output: str) -> Plan:
    """The plan as it is written to `output`: it names the program's file where that is in the same folder."""
    path = Path(file)
    is_beside = path.is_file() and path.resolve().parent == Path(output).resolve().parent
    named = replace(plan, program=path.name)
    return named if is_beside and program_of(str(named)) else plan


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


