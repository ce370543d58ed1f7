"""What commands tell of a program over the devices of a mesh: `plan`, `simulate`, `why --collective`, `info --mesh`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepx_graph.cli.options import Arguments, add_split, count, read_program, seconds, size
from deepx_graph.cli.output import emit, emit_report, say
from deepx_graph.errors import Diagnostic, UsageError, printable

if TYPE_CHECKING:
    from deepx_graph.ir import Module
    from deepx_graph.planning.automatic import AutomaticPlan
    from deepx_graph.session.cluster.simulation import SimulationReport
    from deepx_graph.session.over_mesh import MeshAsked, PipelineAsked
    from deepx_graph.session.report.collectives import CollectiveRow
    from deepx_graph.sharding.plan import Plan


PLAN_SUFFIX = ".plan"


def with_program(args: Arguments) -> Arguments:
    """Where a plan's file stands for the program of a command that has a plan: the program that it names, under that plan.

    Raises UsageError where it names none, and for another plan beside it.
    """
    if not hasattr(args, "plan") or not str(getattr(args, "file", "")).endswith(PLAN_SUFFIX):
        return args
    from deepx_graph.session.plans import STATED, planned_program

    if args.plan not in (None, STATED, args.file):
        raise UsageError(Diagnostic(f"two plans: {args.file} and --plan {args.plan}", hint="give the program, and one --plan"))
    args.plan, args.file = args.file, planned_program(args.file)
    return args


def plan_asked(args: Arguments, module: Module, cluster: str | None = None) -> tuple[Module, Plan]:
    """As `mesh_asked`, with the plan, chosen for a cluster where none is given."""
    from deepx_graph.session.cluster.simulation import cluster_of

    inlined, asked = mesh_asked(args, module)
    return inlined, asked.plan(inlined, None if cluster is None else cluster_of(cluster))


def mesh_asked(args: Arguments, module: Module) -> tuple[Module, MeshAsked]:
    """The module without calls and how it is to lie by --plan and --mesh (`options.add_split`).

    Raises UsageError where nothing says how values lie, and for a plan over another mesh.
    """
    from deepx_graph.session.over_mesh import asked_mesh
    from deepx_graph.session.plans import STATED, plan_text
    from deepx_graph.sharding.notation import mesh_from_option

    said = args.plan or STATED
    mesh = None if args.mesh in (None, STATED) else mesh_from_option(args.mesh)
    return asked_mesh(module, mesh, plan_text(said), said)


def add_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", default="stated", metavar="FILE.plan",
                        help="what is given; 'stated' (the default): what the text says")
    parser.add_argument("--auto", action="store_true",
                        help="choose it: the least predicted time of a step on --mesh; in stages: simulate --devices, run --stages")
    parser.add_argument("--mesh", metavar="AXIS=N,...", help="with --auto: the axes of the mesh, such as data=4,model=2")
    parser.add_argument("--memory", type=size, metavar="N", help="with --auto: bytes of a device that values may take")
    parser.add_argument("--search", type=seconds, metavar="SECONDS",
                        help="with --auto: how long to search, of the processor (10), before what was found is held against others")
    parser.add_argument("--cluster", default="h100", metavar="CLUSTER", help="with --auto: where it runs, as for simulate (h100)")
    parser.add_argument("-o", "--output", metavar="FILE.plan", help="where to write it")


def run_plan(args: Arguments) -> int:
    from deepx_graph.session.plans import beside, collectives, exchanged, plan_text, planned
    from deepx_graph.sharding.partition import partition

    report: dict[str, object] = {}
    if args.auto or args.mesh:
        module, found = _automatic(args)
        plan, lines = found.plan, [printable(line) for line in found.lines()]
        report["automatic"] = {"seconds": found.seconds, "gap": found.gap, "memory_bytes": found.memory_bytes,
                               "decisions": found.decisions, "dearest": [m.__dict__ for m in found.dearest],
                               "rivals": [r.to_json() for r in found.rivals]}
    else:
        (module, plan), lines = planned(read_program(args).module, plan_text(args.plan), args.plan), []
    local = partition(module, plan)
    if args.output:
        plan = beside(plan, args.file, args.output)
    if args.json:
        if args.output:
            emit(str(plan), args.output)
        emit_report("plan", {"plan": str(plan), "collectives": exchanged(local), **report})
        return 0
    emit(str(plan), args.output)
    for line in (*lines, collectives(local)):
        say(line)
    return 0


def _automatic(args: Arguments) -> tuple[Module, AutomaticPlan]:
    from deepx_graph.passes.chosen_plan import chosen_plan
    from deepx_graph.planning.automatic import SECONDS
    from deepx_graph.planning.search import IN_STAGES
    from deepx_graph.session.cluster.simulation import cluster_of
    from deepx_graph.session.programs import optimise
    from deepx_graph.sharding.by_hand.opened import opened
    from deepx_graph.sharding.notation import mesh_from_option

    if not (args.auto and args.mesh):
        raise UsageError(Diagnostic("a plan is chosen for a mesh", expected="--auto --mesh data=4,model=2", hint=IN_STAGES))
    module = opened(optimise(read_program(args).module, "inline").module)
    return module, chosen_plan(module, mesh_from_option(args.mesh), cluster_of(args.cluster), args.memory,
                               SECONDS if args.search is None else args.search)


def add_simulate(parser: argparse.ArgumentParser) -> None:
    add_split(parser)
    parser.add_argument("--cluster", default="here", metavar="CLUSTER",
                        help="where it runs: a100, h100, tpu-v4, tpu-v5e, cpu-10g, a file, or 'here' (the default), as measured")
    parser.add_argument("-o", "--output", metavar="FILE.html", help="where the time line goes, as a page")
    add_pipeline(parser).add_argument(
        "--devices", type=count, metavar="N",
        help="find how many places, copies and devices of a stage are best, in place of --stages")


def add_pipeline(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """A pipeline, over the mesh of `add_split` where there is one: `pipeline_asked` reads it. Gives the group of its options."""
    group = parser.add_argument_group("a pipeline, of the program and its gradient")
    group.add_argument("--stages", type=count, metavar="N",
                       help="places, each with a stage of the program or several: devices, or meshes of such by --mesh or --plan")
    group.add_argument("--batch", metavar="INPUT,...", help="the inputs that are cut into microbatches")
    group.add_argument("--microbatches", type=count, default=8, metavar="N", help="how many (8)")
    group.add_argument("--schedule", choices=("gpipe", "1f1b", "interleaved"), default="1f1b", help="the order of events (1f1b)")
    group.add_argument("--chunks", type=count, default=1, metavar="N", help="stages on each device (1)")
    return group


def run_simulate(args: Arguments) -> int:
    """What a step takes on a cluster, predicted."""
    from deepx_graph.session.cluster.simulation import simulate
    from deepx_graph.session.report.steps import time_line

    ways: list[str] = []
    if args.devices:
        found, ways = _searched_pipeline(args)
    elif args.stages:
        found = _simulated_pipeline(args)
    else:
        module, plan = plan_asked(args, read_program(args).module, cluster=args.cluster)
        found = simulate(module, plan, args.cluster, engine=args.engine, threads=args.threads)
    lines = [printable(line) for line in (*ways, *found.lines())]
    if args.output:
        emit(time_line(found.step, f"{args.file} on {args.cluster}", lines), args.output)
    if args.json:
        emit_report("simulate", found.to_json())
    else:
        emit("".join(f"{line}\n" for line in lines), None)
    return 0


def _searched_pipeline(args: Arguments) -> tuple[SimulationReport, list[str]]:
    """The prediction for the best pipeline on so many devices, and which others there are, in words."""
    from deepx_graph.session.cluster.pipeline_search import searched_pipeline
    from deepx_graph.session.cluster.simulation import cluster_of, simulated_pipeline
    from deepx_graph.session.programs import optimise

    if other := [f"--{name}" for name in ("stages", "mesh", "plan") if getattr(args, name) is not None]:
        raise UsageError(Diagnostic(f"{' and '.join(other)} beside --devices, which finds what is best"))
    if args.chunks > 1:
        raise UsageError(Diagnostic("--chunks beside --devices, of which each place has one stage"))
    module, batch = optimise(read_program(args).module, "inline").module, _batch(args)
    found = searched_pipeline(module, batch, args.devices, args.schedule, args.microbatches, cluster_of(args.cluster))
    return simulated_pipeline(found.plan, args.schedule, args.cluster), list(found.lines())


def _batch(args: Arguments) -> list[str]:
    """The inputs that are cut into microbatches. Raises UsageError for none."""
    if not args.batch:
        raise UsageError(Diagnostic("a pipeline works on microbatches", expected="--batch x,y: the inputs that are cut into them"))
    names: list[str] = args.batch.split(",")
    return names


def _simulated_pipeline(args: Arguments) -> SimulationReport:
    from deepx_graph.session.cluster.pipeline_plan import pipeline_plan
    from deepx_graph.session.cluster.simulation import cluster_of, simulated_pipeline

    module, asked = pipeline_asked(args, read_program(args).module)
    plan = pipeline_plan(module, asked.batch, asked.schedule, cluster_of(args.cluster), asked.mesh, asked.said)
    return simulated_pipeline(plan, args.schedule, args.cluster)


def pipeline_asked(args: Arguments, module: Module) -> tuple[Module, PipelineAsked]:
    """The module without calls, and the pipeline that is asked for. Raises UsageError where it says too little, and as
    `pipeline_schedule` and `asked_pipeline` do."""
    from deepx_graph.planning.schedules import pipeline_schedule
    from deepx_graph.session.over_mesh import asked_pipeline
    from deepx_graph.session.plans import STATED, plan_text
    from deepx_graph.sharding.notation import mesh_from_option

    if other := [f"--{name}" for name in ("replicas", "partitions") if getattr(args, name, None) is not None]:
        message = f"{' and '.join(other)} beside --stages: the devices of each stage are those of a mesh"
        raise UsageError(Diagnostic(message, hint="--mesh data=2,model=2, or --plan FILE"))
    batch = _batch(args)
    schedule = pipeline_schedule(args.schedule, args.stages, args.microbatches, args.chunks)
    mesh = None if args.mesh in (None, STATED) else mesh_from_option(args.mesh)
    said = () if args.plan is None else (plan_text(args.plan), args.plan)
    return asked_pipeline(module, batch, schedule, mesh, *said)


def why_collectives(args: Arguments, module: Module) -> int:
    """All collectives with their reasons, or one, with what to do instead."""
    from deepx_graph.session.plans import given_plan, plan_text
    from deepx_graph.session.report.collectives import OtherPlans, chosen_rows, collective_rows
    from deepx_graph.sharding.partition import partition
    from deepx_graph.sharding.propagate import propagate

    inlined, given = given_plan(module, plan_text(args.plan), args.plan)
    plan = propagate(given)
    local = partition(inlined, plan)
    found = chosen_rows(collective_rows(local, plan), args.collective)
    others = OtherPlans(inlined, given, local)
    return _emit_collectives(args, [(row, others.instead(local.meetings[k]) if args.collective else []) for k, row in found])


def why_dumped(args: Arguments) -> int:
    """The collectives of XLA's partitioner, in a folder that it dumped."""
    from pathlib import Path

    from deepx_graph.session.report.collectives import chosen_rows
    from deepx_graph.session.report.xla_collectives import dumped_collectives

    dumped = dumped_collectives(Path(args.file))
    chosen = chosen_rows([d.row for d in dumped], args.collective)
    return _emit_collectives(args, [(row, dumped[k].instead() if args.collective else []) for k, row in chosen])


def _emit_collectives(args: Arguments, found: Sequence[tuple[CollectiveRow, list[str]]]) -> int:
    """Collectives, each with what to give instead."""
    if args.json:
        emit_report("collectives", {"collectives": [row.to_json() | {"instead": other} for row, other in found]})
        return 0
    lines = [line for row, other in found for line in (*row.lines(), *(f"  {o}" for o in other))]
    emit("".join(f"{printable(line)}\n" for line in lines or ["no collectives: devices need nothing of one another"]), None)
    return 0


def on_mesh(args: Arguments, module: Module) -> None:
    """What one device of the mesh has, and how devices meet."""
    from deepx_graph.session.report.collectives import mesh_figures, mesh_lines
    from deepx_graph.sharding.partition import partition

    inlined, plan = plan_asked(args, module)
    local = partition(inlined, plan)
    if args.json:
        emit_report("mesh", {"mesh": str(plan.mesh), "devices": plan.mesh.count, "figures": mesh_figures(local.module.entry)})
    else:
        emit("".join(f"{printable(line)}\n" for line in mesh_lines(local, plan)), None)
