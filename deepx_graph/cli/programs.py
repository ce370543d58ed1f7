"""The commands that make a program of a program: `opt`, `grad`; `check-grad`, which checks a gradient; `build`, object code."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from typing import TYPE_CHECKING, Any

from deepx_graph.cli.options import (
    PICTURES,
    Arguments,
    add_part,
    chosen_part,
    count,
    natural,
    read_program,
    reading_options,
    size,
    watch,
)
from deepx_graph.cli.output import check_suffix, emit, emit_report, emit_report_beside, say, say_notes
from deepx_graph.cycles import no_collection
from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, printable, sized, suggest
from deepx_graph.progress import stage

if TYPE_CHECKING:
    from deepx_graph.ir import Module
    from deepx_graph.rewrite.base import Pass
    from deepx_graph.session.programs import Loaded, Optimised
    from deepx_graph.session.report.certificates import WriteCertificate


DIALECTS = ("seed", "wire", "function")


def add_opt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="where the result goes; - or nothing is standard output")
    parser.add_argument("--emit", metavar="FORM",
                        help="deepx, hlo, hlo-proto, stablehlo, mlirbc, onnx, onnxtxt, relay, sea, anf, cps, json, dot, svg, png, "
                             "html (default: what the output's name ends in, or as read)")
    parser.add_argument("--dialect", choices=DIALECTS, help="which dialect of deepx to write")
    parser.add_argument("--opset", type=count, metavar="N", help="the version of the operator set of ONNX to write (18)")
    parser.add_argument("--external-data", action="store_true",
                        help="write the weights of an ONNX model into FILE.data beside it, as is done anyway for 2 GiB and more")
    parser.add_argument("--debug-info", action="store_true",
                        help="keep what an exporter of ONNX notes at nodes for debugging: stack traces, scopes")
    add_part(parser, "--extract", "cut these nodes out first, as a program of its own: a query, such as 'op:dot_general'")
    parser.add_argument("--list-passes", action="store_true", help="list the passes and their options, and do nothing")
    parser.add_argument("--split-input-file", action="store_true",
                        help="take what stands between lines '// -----' as programs of their own")
    parser.add_argument("--verify-diagnostics", action="store_true",
                        help="print nothing: hold errors and warnings to what comments of the text expect of its lines, as in "
                             "'// expected-error@+1 {{no value}}'")
    parser.add_argument("--dump-pass-pipeline", action="store_true", help="say on standard error what runs, in canonical form")
    parser.add_argument("--certificate", metavar="FILE.jsonl",
                        help="write what the passes did, for deepx-graph certify, which checks it without them")
    parser.add_argument("--timing", action="store_true", help="report the time of every pass")
    parser.add_argument("--pass-statistics", action="store_true", help="report how often each rule was applied")
    parser.add_argument("--dump-rewrites", action="store_true", help="list every rewrite")
    parser.add_argument("--json", action="store_true",
                        help="a report as JSON: on standard output with -o FILE, else on standard error")


@no_collection()
def run_opt(args: Arguments) -> int:
    from deepx_graph.session import programs

    if args.list_passes:
        return _list_passes(args)
    if args.split_input_file or args.verify_diagnostics:
        return _in_pieces(args)
    start, form = time.perf_counter(), wanted_form(args)
    part = chosen_part(args, args.extract)
    keeps = form == "onnx" and args.pass_pipeline == "default" and not (part or args.certificate)
    module = read_program(args, operators="kept" if keeps else "lowered").module
    if keeps and module.format == "onnx" and not _is_before(args.opset, module):
        return _shrink(args, module)
    if keeps and module.format == "onnx" and module.source is not None:
        module = programs.loads(module.source, module.format, reading_options(args)).module
    module = part.extracted(module) if part else module
    read = time.perf_counter() - start
    certificate = _certificate(module) if args.certificate else None
    done = _optimised(args, module, certificate)
    emit(rendered(done.module, form, args.dialect, args.opset), args.output)
    if certificate is not None:
        emit(certificate.text, args.certificate)
    _report(args, done, read)
    for line in [] if done.validated is None or args.json else done.validated.lines():
        say(line)
    return 0


def _is_before(opset: int | None, module: Module) -> bool:
    """Whether an operator set is asked for that is earlier than that of the model: its operators cannot stay what they are."""
    from deepx_graph.text.onnx.printer.model import own_opset

    return opset is not None and opset < own_opset(module)


def _certificate(module: Module) -> WriteCertificate:
    from deepx_graph.session.report.certificates import WriteCertificate

    return WriteCertificate(module)


def _optimised(args: Arguments, module: Module, certificate: WriteCertificate | None = None) -> Optimised:
    from deepx_graph.session import programs

    watching = watch(args)
    watching.observers = (*watching.observers, *([] if certificate is None else [certificate]))
    watching.record = args.dump_rewrites
    done = programs.optimise(module, args.pass_pipeline, watching)
    if args.dump_pass_pipeline:
        say(f"pipeline: {done.pipeline or 'none'}")
    return done


def _in_pieces(args: Arguments) -> int:
    """Each piece of a text by itself, or, with --verify-diagnostics, what is wrong with it held to what it expects."""
    from deepx_graph.session import expectations, programs

    source, form = programs.source(args.file, reading_options(args)), wanted_form(args)
    if source.binary or form in PICTURES:
        raise UsageError("only a program that is text, and stays text, has pieces and expectations")
    texts, codes = [], [0]
    for piece in expectations.pieces(source) if args.split_input_file else (source,):
        given: list[Diagnostic] = []
        try:
            loaded = programs.loads(piece, args.format, reading_options(args))
            given += loaded.warnings
            module = loaded.module.with_entry(args.entry) if args.entry else loaded.module
            text = rendered(_optimised(args, module).module, form, args.dialect, args.opset)
            texts.append(text.decode() if isinstance(text, bytes) else text)
        except DeepxGraphError as e:
            given += e.diagnostics
            codes += [] if args.verify_diagnostics else [e.exit_code]
        if args.verify_diagnostics:
            given = expectations.unmet(expectations.expectations(piece), given)
            codes += [1 for _ in given]
        for diagnostic in given:
            say(diagnostic.render())
    if not args.verify_diagnostics:
        emit(f"{expectations.SEPARATOR}\n".join(texts), args.output)
    return max(codes)


def _shrink(args: Arguments, module: Module) -> int:
    """From ONNX to ONNX: operators stay what they are. Says what has changed; exit code 1 where results differ."""
    from deepx_graph.session.shrink import ShrinkOptions, shrink

    found = shrink(module, reading_options(args), ShrinkOptions(args.opset, args.debug_info))
    if args.output in (None, "-"):
        emit(found.encoded(), args.output)
    else:
        found.save(args.output, args.external_data)
    if args.json and args.output not in (None, "-"):
        emit_report("shrink", found.to_json())
    else:
        for line in found.lines():
            say(line)
    return 0 if found.agrees else 1


def _list_passes(args: Arguments) -> int:
    from deepx_graph.passes import REGISTRY
    from deepx_graph.passes.pipeline import PIPELINES, Fix, options_of

    passes: list[type[Pass]] = [*REGISTRY.values(), Fix]
    rows: list[dict[str, Any]] = [
        {"name": p.name, "summary": p.summary(),
         "options": {f.name.replace("_", "-"): f.default for f in options_of(p)}}
        for p in passes
    ]  # fmt: skip
    if args.json:
        emit_report("passes", {"passes": rows, "pipelines": PIPELINES})
        return 0
    for row in rows:
        options = " ".join(f"{k}={str(v).lower()}" for k, v in row["options"].items())
        emit(f"{row['name']:<20}{row['summary']}{f'  {{{options}}}' if options else ''}\n", None)
    for name, text in PIPELINES.items():
        emit(f"{name:<20}pipeline: {text or 'nothing'}\n", None)
    return 0


def _report_json(args: Arguments, done: Optimised, read: float) -> dict[str, Any]:
    """What passes and rules did, and every rewrite if --dump-rewrites asks for them, as plain data; times in seconds."""
    report: dict[str, Any] = {
        "pipeline": done.pipeline, "read": read, "passes": [dataclasses.asdict(row) for row in done.timing.rows],
        "applied": dict(done.control.applied), "declined": dict(done.control.declined)}  # fmt: skip
    if done.validated is not None:
        report["checked"], report["unchecked"] = done.validated.checked, dict(done.validated.left_out)
    if args.dump_rewrites and done.record is not None:
        rewrites = [rewrite for stage in done.record.stages for rewrite in stage.rewrites]
        report["rewrites"] = [{"number": r.number, "pass": r.pass_name, "rule": r.rule, "before": repr(r.before),
                               "after": repr(r.after), "place": str(r.span) if r.span else None} for r in rewrites]
    return report


def _report(args: Arguments, done: Optimised, read: float) -> None:
    if args.json:
        report = _report_json(args, done, read)
        emit_report_beside("opt", report, args.output)
        return
    if args.timing:
        say(f"{'read':<16}{read * 1e3:>10.2f}")
        say(done.timing.table())
    if args.pass_statistics:
        say(f"{'applied':>8}  rule")
        for rule, count in done.control.applied.most_common():
            say(f"{count:>8}  {rule}")
        for rule, count in done.control.declined.most_common():
            say(f"{count:>8}  {rule} (declined: it would have changed a type)")
    if args.dump_rewrites and done.record is not None:
        for stage in done.record.stages:
            for rewrite in stage.rewrites:
                say(str(rewrite))


def wanted_form(args: Arguments) -> str | None:
    """The form to write: that of --emit, else deepx where a dialect is named, else what the output file's name ends in.

    None, for the language that was read, where it ends in nothing or `.txt`. Raises UsageError where it ends in something else.
    """
    from deepx_graph.text import FORMATS

    if args.emit or args.dialect or not args.output:
        return args.emit or ("deepx" if args.dialect else None)
    suffix = os.path.splitext(args.output)[1].lower()
    forms: dict[str, str | None] = {".txt": None} | {f".{form}": form for form in (*PICTURES, "json")}
    forms |= {s: name for name, f in FORMATS.items() if f.writes for s in f.suffixes}
    check_suffix(args.output, forms, "name the form with --emit")
    return forms.get(suffix)


def rendered(module: Module, form: str | None, dialect: str | None = None, opset: int | None = None) -> str | bytes:
    """The module in one of the forms of --emit. Raises UsageError for another."""
    from deepx_graph.session import programs
    from deepx_graph.text import FORMATS

    stage("write")
    if form in PICTURES:
        from deepx_graph.session.show.picture import picture

        drawn = picture(module, format=form)
        say_notes(drawn)
        return drawn.data
    if form == "json":
        from deepx_graph.session.report.info import module_json

        return json.dumps(module_json(module), indent=1) + "\n"
    form = form or programs.own_format(module)
    if form not in FORMATS:
        known = [*FORMATS, *PICTURES, "json"]
        raise UsageError(Diagnostic(f"cannot emit '{form}'", expected=", ".join(known), hint=suggest(form, known)))
    options = {"dialect": dialect, "opset": opset}
    return programs.encoded(module, form, **{k: v for k, v in options.items() if v})


PIPELINE = "clean"
"""What is done to a gradient program where nothing is asked for."""

LOOPS = ("auto", "keep", "recompute", "sqrt")


def add_grad(parser: argparse.ArgumentParser) -> None:
    _add_wrt(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where the result goes; - or nothing is standard output")
    parser.add_argument("--emit", metavar="FORM", help="as for opt; deepx in lines with <- where it can be said so")
    parser.add_argument("--dialect", choices=DIALECTS, help="which dialect of deepx to write")
    parser.add_argument("--opset", type=count, metavar="N", help="the version of the operator set of ONNX to write (18)")
    parser.add_argument("--loop", choices=LOOPS, default="auto", help="what loops keep for their backward part (default: auto)")
    parser.add_argument("--loop-budget", type=size, metavar="N", help="the bytes that auto lets loops keep (default: 1G)")
    parser.add_argument("--loop-bytes", action="store_true", help="say on standard error what each choice of --loop keeps")


def _add_wrt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wrt", metavar="INPUT,...", help="the inputs to differentiate by (default: every floating one)")


def _wrt(args: Arguments) -> list[str] | None:
    return [name.strip() for name in args.wrt.split(",")] if args.wrt else None


def run_grad(args: Arguments) -> int:
    from deepx_graph.passes.autodiff.grad import choices
    from deepx_graph.session import programs

    form = wanted_form(args)
    module = read_program(args).module
    if args.loop_bytes:
        for choice in choices(module, _wrt(args)):
            each = choice.iteration_bytes
            more = f", and {sized(each)} for an iteration of each loop of unknown length" if each else ""
            say(f"loop={choice.loop}: {sized(choice.row_bytes)}{more}")
    gradient = programs.gradient(module, _wrt(args), args.loop, args.loop_budget)
    done = programs.optimise(gradient, args.pass_pipeline, watch(args))
    lines = None
    if (form or programs.own_format(done.module), args.dialect or "seed", args.pass_pipeline) == ("deepx", "seed", PIPELINE):
        from deepx_graph.text.deepx.printer.gradient import write_backward

        lines = write_backward(module, done.module)
    emit(lines or rendered(done.module, form, args.dialect, args.opset), args.output)
    if args.json:
        entry = done.module.entry
        emit_report_beside("grad", {"pipeline": done.pipeline, "inputs": [[p.name, str(p.type)] for p in entry.params],
                                     "outputs": [[entry.result_name(k), str(r.type)] for k, r in enumerate(entry.results)],
                                     "nodes": len(entry.nodes)}, args.output)
    return 0


def add_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE.o", help="the object code (NAME.o)")
    parser.add_argument("--header", metavar="FILE.h", help="the C header (beside the object code)")
    parser.add_argument("--shared", metavar="FILE.so", help="a shared library too, linked by cc")
    parser.add_argument("--name", default="model", metavar="NAME", help="the C function is NAME_run (model)")
    parser.add_argument("--cpu", default="native", metavar="CPU",
                        help="native (this machine), or a level of x86-64: v2 (SSE 4.2), v3 (AVX2), v4 (AVX-512)")
    parser.add_argument("--triple", metavar="TRIPLE", help="another machine, such as aarch64-linux-gnu")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="what unseeded random numbers start from")


def run_build(args: Arguments) -> int:
    from pathlib import Path

    from deepx_graph.runtime.engines import require_native
    from deepx_graph.session import programs

    require_native("building ahead of time")
    from deepx_graph.runtime.aot.build import build

    watching, path = watch(args), args.output or f"{args.name}.o"
    program = build(read_program(args).module, path, header=args.header, shared=args.shared, name=args.name, cpu=args.cpu,
                    triple=args.triple, seed=args.seed, data_root=Path(args.data_root) if args.data_root else None,
                    prepare=lambda module: programs.optimise(module, args.pass_pipeline, watching).module)
    if args.json:
        inputs, results = ([[p.name, str(p.type)] for p in ports] for ports in (program.inputs, program.results))
        emit_report("build", {"object": path, "bytes": len(program.code), "cpu": program.processor.cpu, "inputs": inputs,
                              "link": list(program.link_options), "workspace_bytes": program.workspace_bytes, "results": results})
        return 0
    workspace = sized(program.workspace_bytes)
    say(f"{printable(path)}: {sized(len(program.code))} for {program.processor.cpu}, a workspace of {workspace}; "
        f"link with {' '.join(program.link_options)}")
    return 0


def add_check_grad(parser: argparse.ArgumentParser) -> None:
    _add_wrt(parser)
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the random inputs (default 0)")
    parser.add_argument("--samples", type=count, default=3, metavar="N", help="how many random inputs (default 3)")
    parser.add_argument("--against-vjp", action="store_true",
                        help="compare with the derivative that a file of jax.export has stored, not with differences")


def run_check_grad(args: Arguments) -> int:
    from pathlib import Path

    from deepx_graph.session.gradcheck import check_gradient

    program = read_program(args)
    module = program.module
    if args.against_vjp:
        return _against_vjp(args, program)
    root = Path(args.data_root) if args.data_root else None
    report = check_gradient(module, _wrt(args), seed=args.seed, samples=args.samples, data_root=root)
    emit_report("check-grad", report.to_json()) if args.json else emit(str(report), None)
    return 0 if report.ok else 1


def _against_vjp(args: Arguments, program: Loaded) -> int:
    from dataclasses import asdict

    from deepx_graph.session.vjpcheck import check_against_vjp

    found = check_against_vjp(program.module, program.exported, _wrt(args), seed=args.seed, samples=args.samples)
    ok = all(c.agrees for c in found)
    if args.json:
        emit_report("check-vjp", {"ok": ok, "inputs": [asdict(c) for c in found]})
    else:
        emit("\n".join(printable(str(c)) for c in found) + "\n" if found else "no input has a gradient\n", None)
    return 0 if ok else 1
