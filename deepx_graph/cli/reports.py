"""Commands that tell of programs, for CI too: `info`, `loops`, `why`, `plan`; `diff` compares two, `check` holds one to budgets."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from deepx_graph.cli.meshes import on_mesh, why_collectives, why_dumped
from deepx_graph.cli.options import Arguments, add_split, named_values, natural, percent, read_program, reading_options, watch
from deepx_graph.cli.output import emit, emit_json, emit_report, say, say_notes
from deepx_graph.cli.schemas import report
from deepx_graph.cycles import no_collection
from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, counted, printable
from deepx_graph.progress import stage

if TYPE_CHECKING:
    from deepx_graph.ir import Module
    from deepx_graph.session.report.figures import Budget, Verdict


def add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--pass-pipeline", default="default", metavar="PIPELINE",
                        help="compare with what this pipeline makes of it (default: default; none compares nothing)")
    parser.add_argument("--all", action="store_true", help="list all inputs and outputs, however many")
    parser.add_argument("--profile-from", metavar="FILE.json",
                        help="only a table of what another runtime measured: a trace of onnxruntime, XLA or PyTorch")
    group = parser.add_argument_group("only what one device of a mesh has, and how devices meet")
    add_split(group, nargs="?", const="stated")
    parser.add_argument("--by", choices=("scope",), help="only a table of the modules of the model, as the names in its text tell")
    parser.add_argument("--depth", type=natural, default=2, metavar="N", help="--by: levels inside of the model (default 2)")


@no_collection()  # a fourth of the time of a large report
def run_info(args: Arguments) -> int:
    from deepx_graph.session import programs
    from deepx_graph.session.report.figures import table
    from deepx_graph.session.report.info import module_info
    from deepx_graph.session.report.kernels import kernels

    program = read_program(args)
    module = program.module
    stage("count")
    if args.plan is not None or args.mesh is not None:
        on_mesh(args, module)
        return 0
    if args.by:
        _by_scope(args, module)
        return 0
    if args.profile_from:
        _foreign(args, module)
        return 0
    info = module_info(module)
    done = programs.optimise(module, args.pass_pipeline)
    compared = table(module, done.module, args.pass_pipeline, info) if done.passes else None
    stage("kernels")
    found = kernels(done.module, args.engine, args.threads)
    if args.json:
        emit_report("info", info.to_json() | ({"exported": program.exported.to_json()} if program.exported else {})
                  | ({"compared": compared.to_json()} if compared else {})
                  | ({"kernels": found.to_json()} if found else {}))
    else:
        facts = info.lines(None) if args.all else info.lines()
        first = program.exported.lines() if program.exported else ()
        lines = [*first, *facts, *(compared.lines() if compared else ()), *(found.lines() if found else ())]
        emit("\n".join(map(printable, lines)) + "\n", None)
    return 0


def _by_scope(args: Arguments, module: Module) -> None:
    from deepx_graph.blas import available_cores
    from deepx_graph.session.report.scopes import by_scope

    found = by_scope(module, args.threads or available_cores())
    if args.json:
        emit_report("scopes", found.to_json())
    else:
        emit("\n".join(found.lines(args.depth)) + "\n", None)


def _foreign(args: Arguments, module: Module) -> None:
    from deepx_graph.session.profile_files import laid_over, read_profile

    found = laid_over(read_profile(args.profile_from), module)
    if args.json:
        emit_report("foreign-profile", found.to_json())
    else:
        emit("".join(f"{line}\n" for line in found.lines()), None)


def add_loops(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the program; - reads standard input")
    parser.add_argument("node", metavar="NODE", nargs="?", help="only the kernels that compute this: a name in the program")
    parser.add_argument("-p", "--pass-pipeline", default="default", metavar="PIPELINE", help="passes before (default: default)")


def run_loops(args: Arguments) -> int:
    from deepx_graph.session import programs
    from deepx_graph.session.report.loop_programs import loop_programs

    module = programs.optimise(read_program(args).module, args.pass_pipeline).module
    stage("kernels")
    found = loop_programs(module, args.engine, args.threads, args.node)
    if args.json:
        emit_report("loops", {"kernels": [k.to_json() for k in found]})
    else:
        emit("".join(f"{k}\n" for k in found), None)
    return 0


def add_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the program; - reads standard input")
    parser.add_argument("a", metavar="NODE", nargs="?",
                        help="a node: its name in the program, or #number; left out, all kernels and refusals")
    parser.add_argument("b", metavar="NODE2", nargs="?", help="another node")
    parser.add_argument("-p", "--pass-pipeline", default="clean", metavar="PIPELINE", help="passes before fusion (default: clean)")
    parser.add_argument("--all", action="store_true", help="without nodes: list all kernels and all pairs, however many")
    parser.add_argument("--measure", action="store_true", help="run the program on generated inputs, and say what the kernels took")
    parser.add_argument("--collective", metavar="NAME", nargs="?", const="",
                        help="why devices meet: one collective, such as all_gather.0, or all; FILE may be a folder that XLA dumped")
    parser.add_argument("--made", metavar="NODE",
                        help="which rewrites of the pipeline made this node: its name or #number after the passes")
    parser.add_argument("--plan", default="stated", metavar="FILE.plan",
                        help="--collective: how values lie (default: as the text says)")


def run_why(args: Arguments) -> int:
    from deepx_graph.session import programs
    from deepx_graph.session.report.placing import Placing

    if args.collective is not None and os.path.isdir(args.file):
        return why_dumped(args)
    module = read_program(args).module
    if args.collective is not None:
        return why_collectives(args, module)
    if args.made is not None:
        return _made(args, module)
    if args.a is None:
        return _fusion(args, programs.optimise(module, args.pass_pipeline).module)
    if args.b is None:
        raise UsageError(Diagnostic("why takes two nodes, or none", hint="without nodes it reports on all kernels"))
    names = [n.name for f in programs.optimise(module, args.pass_pipeline).module.functions for n in f.nodes]
    there = all(x.startswith("#") or x in names for x in (args.a, args.b))
    asked = programs.optimise(module, args.pass_pipeline).module if there else module
    placing = Placing(asked, args.engine, args.threads)
    reason = placing.why(args.a, args.b)
    found = placing.placed((args.a, args.b), measure=args.measure)
    if args.json:
        emit_report("why", {"fused": reason.fused, "kind": reason.kind.value, "message": reason.message,
                            "kernels": [p.to_json() for p in found]})  # fmt: skip
    else:
        emit("".join(f"{printable(str(line))}\n" for line in (reason.message, *found)), None)
    return 0


def _made(args: Arguments, module: Module) -> int:
    """The chain of rewrites that made a node."""
    from deepx_graph.session.report.provenance import provenance

    if args.a is not None:
        raise UsageError("--made is about one node, and excludes two others")
    found = provenance(module, args.made, args.pass_pipeline)
    if args.json:
        emit_report("made", found.to_json())
    else:
        emit("".join(f"{printable(line)}\n" for line in found.lines()), None)
    return 0


def _fusion(args: Arguments, module: Module) -> int:
    """All kernels of a program, and what was left apart."""
    from deepx_graph.session.report.fusion import fusion_report

    found = fusion_report(module, args.engine, args.threads)
    if args.json:
        emit_report("fusion", found.to_json())
    else:
        emit("".join(f"{line}\n" for line in found.lines(whole=args.all)), None)
    return 0


# --- comparing


def add_stages(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="where XLA dumped, with --xla_dump_to and --xla_dump_hlo_pass_re")
    parser.add_argument("module", metavar="MODULE", nargs="?", help="only this one: its name or number")
    parser.add_argument("--all", action="store_true", help="list the passes that changed nothing, too")
    parser.add_argument("--changes", action="store_true", help="list what was changed, operation by operation")


def run_stages(args: Arguments) -> int:
    from deepx_graph.session.dumps import chosen, dumped_modules, steps

    report: list[dict[str, object]] = []
    for module in chosen(dumped_modules(Path(args.folder)), args.module):
        rows: list[dict[str, object]] = []
        lines = [f"module {module.number} {module.name}: {counted(len(module.stages), 'stage')}"]
        for step in steps(module, reading_options(args)):
            rows.append({"order": step.stage.order, "title": step.stage.title, "file": str(step.stage.path), "nodes": step.nodes,
                         "changes": [str(c) for c in step.difference.changes] if step.difference else []})
            if args.all or step.difference is None or step.difference:
                lines.append(str(step))
                lines += [f"        {line}" for line in step.difference.lines()] if args.changes and step.difference else []
        if not args.json:
            emit("".join(printable(line) + "\n" for line in lines), None)
        report.append({"number": module.number, "name": module.name, "stages": rows})
    if args.json:
        emit_report("stages", {"modules": report})
    return 0


def add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="FILE", help="a program")
    parser.add_argument("b", metavar="FILE2", nargs="?",
                        help="another; - reads standard input; left out, pipelines of the first are compared")
    parser.add_argument("-p", "--pass-pipeline", action="append", default=[], metavar="PIPELINE",
                        help="of two programs: run it on both; of one: compare before and after, or two results")
    parser.add_argument("--as-written", action="store_true",
                        help="compare the programs as they stand; else two programs are inlined, unfused and simplified first")
    parser.add_argument("--values", action="store_true",
                        help="also run both on the same inputs and compare the outputs, which then decide the exit code")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="--values: what inputs are generated from")
    parser.add_argument("-o", "--output", metavar="FILE", help="a picture of both, coloured: .svg, .html, .dot or .png")


def run_diff(args: Arguments) -> int:
    from deepx_graph.session.equivalence import equivalent
    from deepx_graph.session.report.diff import diff
    from deepx_graph.session.report.meaning import PROVED, compare_meaning

    (first, a), (second, b) = _sides(args)
    meaning = compare_meaning(a, b)
    by_meaning = args.b is not None and not args.pass_pipeline and not args.as_written
    found = meaning.difference if by_meaning else diff(a, b)
    values = equivalent(a, b, seed=args.seed) if args.values else None
    if args.output:
        from deepx_graph.session.show.picture import compared

        forms = meaning.forms if by_meaning else (a, b)
        say_notes(compared((first, forms[0]), (second, forms[1]), args.output))
    if args.json:
        changes = [{"kind": c.kind, "function": c.function, "text": c.text} for c in found.changes]
        report = {"equal": not found, "verdict": meaning.verdict.name.lower(), "changes": changes, "affected": found.affected,
                  "same": found.same, "operations": found.operations, "scopes": [asdict(s) for s in meaning.scopes]}  # fmt: skip
        told = meaning.landmarks if by_meaning else None
        report |= {} if told is None else {"landmarks": asdict(told)}
        emit_report("diff", report | ({} if values is None else {"values": values.to_json()}))
    else:
        lines = [*(meaning.lines() if by_meaning else found.lines()), f"verdict: {meaning}"]
        lines += [f"values: {line}" for line in values.lines()] if values is not None else []
        emit("".join(printable(line) + "\n" for line in lines), None)
        if not found and not by_meaning:
            say("no difference")
    if values is not None:
        return 0 if values else 1
    return 1 if found and not (by_meaning and meaning.verdict in PROVED) else 0


def _sides(args: Arguments) -> list[tuple[str, Module]]:
    """The two modules that are compared, with what they are called."""
    pipelines = args.pass_pipeline
    if args.b is not None:
        if len(pipelines) > 1:
            raise UsageError("two programs take one pipeline, which runs on both")
        return [(path, _after(read_program(args, path).module, *pipelines)) for path in (args.a, args.b)]
    if not 1 <= len(pipelines) <= 2:
        raise UsageError(Diagnostic("one program has nothing to be compared with", expected="another program, or one -p or two"))
    module = read_program(args, args.a).module
    if len(pipelines) == 1:
        return [("before", module), (f"after {pipelines[0]}", _after(module, pipelines[0]))]
    return [(pipeline, _after(module, pipeline)) for pipeline in pipelines]


def _after(module: Module, pipeline: str = "") -> Module:
    from deepx_graph.session import programs

    return programs.optimise(module, pipeline).module if pipeline else module


def add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", action="append", default=[], metavar="BUDGET",
                        help="such as 'ops<=120', 'peak_bytes<=64M', 'ops.dot_general<=4'; repeat for several")
    parser.add_argument("--input", action="append", default=[], metavar="INPUT=TYPE",
                        help="the size of an input that the program leaves open: f32[8,128], or a FILE.npy")
    parser.add_argument("--inputs", metavar="FILE.npz", help="arrays whose sizes the inputs have, by name")
    parser.add_argument("--baseline", metavar="FILE.json", help="no figure may be above that of this file")
    parser.add_argument("--slack", type=percent, default=0.0, metavar="PERCENT", help="--baseline: by how much it may be (0%%)")
    parser.add_argument("--save-baseline", metavar="FILE.json", help="write the figures, for --baseline")
    parser.add_argument("--sarif", metavar="FILE.sarif", help="write what does not hold, and errors of the program, as SARIF 2.1.0")
    parser.add_argument("--markdown", action="store_true", help="the report as Markdown, for the summary of a CI job")
    parser.add_argument("--collectives", action="store_true",
                        help="every device of a group comes to the same collectives in the same order, in branches and loops")
    parser.add_argument("--plan", default="stated", metavar="FILE.plan",
                        help="for budgets on collectives: how values lie (default: as the text says)")


def run_check(args: Arguments) -> int:
    from deepx_graph.session.report import figures

    budgets = [figures.parse_budget(text) for text in args.budget]
    if args.baseline:
        budgets += figures.baseline_budgets(_baseline(args.baseline), args.slack / 100)
    if not budgets and not args.save_baseline and not args.collectives:
        expected = "--budget, --baseline or --collectives"
        raise UsageError(Diagnostic("nothing to check", expected=expected, hint="--budget 'ops<=120'"))
    try:
        before, verdicts = _judged(args, budgets)
    except DeepxGraphError as e:
        if args.sarif and not isinstance(e, UsageError):
            _write_sarif(args, (), e.diagnostics)
        raise
    if args.sarif:
        _write_sarif(args, verdicts, ())
    judgement = figures.Judgement(tuple(verdicts))
    good = bool(judgement)
    if args.json:
        emit_report("check", {"ok": good, "pipeline": args.pass_pipeline, "budgets": [v.to_json() for v in verdicts]})
    elif args.markdown:
        emit("\n".join([*figures.markdown(verdicts, before.source.name if before.source else "program"), ""]), None)
    else:
        emit(f"{judgement}\n", None)
    return 0 if good else 1


def _judged(args: Arguments, budgets: Sequence[Budget]) -> tuple[Module, list[Verdict]]:
    """The program, and the verdicts on what the pipeline makes of it, whose figures are written if that is asked for."""
    from deepx_graph.session import programs
    from deepx_graph.session.report import figures

    before = _sized(args, read_program(args).module)
    if args.collectives:
        programs.check_meetings(before)
    after = programs.optimise(before, args.pass_pipeline, watch(args)).module
    if args.save_baseline:
        known = {name: value for name, value in figures.figures(figures.reached_info(after)).items() if value is not None}
        emit_report("baseline", {"pipeline": args.pass_pipeline, "figures": known}, args.save_baseline)
    of_device = None
    if any(b.figure in figures.MESH_FIGURES for b in budgets):
        from deepx_graph.session.plans import figures_on_mesh

        of_device = figures_on_mesh(before, args.plan)
    return before, figures.judge(before, after, budgets, of_device)


def _baseline(path: str) -> dict[str, object]:
    """The figures of a file of --save-baseline. Raises UsageError where it is none."""
    from deepx_graph.files import read_text

    text = read_text(path)
    try:
        found = json.loads(text)
        kind, figures = found["schema"], found["figures"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(Diagnostic(f"cannot read '{printable(path)}': it is no file of --save-baseline")) from None
    if kind != report("baseline", {})["schema"] or not isinstance(figures, dict):
        raise UsageError(Diagnostic(f"'{printable(path)}' is no baseline of this version", hint="write it with --save-baseline"))
    return figures


def _write_sarif(args: Arguments, verdicts: Sequence[Verdict], diagnostics: Sequence[Diagnostic]) -> None:
    from deepx_graph.session.report.sarif import sarif
    from deepx_graph.version import __version__

    emit_json(sarif(args.file, verdicts, diagnostics, __version__), args.sarif)


def _sized(args: Arguments, module: Module) -> Module:
    """The module for inputs of the sizes that are given; itself when none is."""
    from deepx_graph.session.inputs import arrays_for, sized

    wishes = named_values(args.input, "such as x=f32[8,128] or x=FILE.npy")
    arrays = arrays_for(module, args.inputs) if args.inputs else {}
    return sized(module, wishes, arrays) if wishes or arrays else module
