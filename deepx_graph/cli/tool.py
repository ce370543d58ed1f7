"""The commands about the tool and this machine: `ops`; `calibrate`, the cost model; `cache`, of kernels; `fuzz`; `completion`."""

from __future__ import annotations

import argparse
from typing import Any

from deepx_graph.cli import reference, schemas
from deepx_graph.cli.options import Arguments, Parser, natural, seconds, size
from deepx_graph.cli.output import emit, emit_json, emit_report, say
from deepx_graph.cli.report_fields import REPORTS
from deepx_graph.errors import printable, sized


def add_ops(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="OP", nargs="?", help="explain this operation")
    parser.add_argument("--markdown", action="store_true", help="the whole reference as Markdown")
    parser.add_argument("-o", "--output", metavar="FILE", help="where it goes")


def run_ops(args: Arguments) -> int:
    from deepx_graph.ops import FAMILIES, OPS, op_named

    if args.name:
        op = op_named(args.name)
    if args.json:
        emit_report("ops", {"operations": [reference.facts(o) for o in ([op] if args.name else OPS.values())]}, args.output)
    elif args.name:
        emit(reference.op_text(op), args.output)
    elif args.markdown:
        emit(reference.markdown(), args.output)
    else:
        lines = []
        for family, members in FAMILIES.items():
            lines.append(f"{family}:")
            lines += [f"  {op.name:<24}{op.summary}" for op in members]
        emit("\n".join(lines) + "\n", args.output)
    return 0


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="measure nothing: show the constants in use and where they come from")
    what.add_argument("--reset", action="store_true", help="forget what was measured and go by the shipped constants again")
    what.add_argument("-o", "--output", metavar="FILE",
                      help="store them in this file instead (DEEPX_GRAPH_COSTS=FILE uses it), a network in FILE.network")
    parser.add_argument("--network", action="store_true", help="the collectives of MPI instead, between processes of this machine")


def run_calibrate(args: Arguments) -> int:
    from deepx_graph.session.report.calibration import calibrate, calibration_in_use, forget_calibration

    if args.network:
        return _calibrate_network(args)
    if args.reset:
        gone = forget_calibration()
        say("nothing was stored" if gone is None else f"removed {printable(str(gone))}")
        return 0
    found = calibration_in_use() if args.show else calibrate(args.output, lambda what: say(f"measuring {what}"))
    if args.json:
        emit_report("calibrate", found.to_json())
    else:
        emit("".join(f"{line}\n" for line in found.lines()), None)
    if found.note:
        say(f"note: {printable(found.note)}")
    where = "the shipped constants are in use" if args.show else "stored nowhere"
    say(where if found.path is None else f"{'from' if args.show else 'stored in'} {printable(str(found.path))}")
    return 0


def _calibrate_network(args: Arguments) -> int:
    from deepx_graph.session.cluster.calibration import calibrate_network, forget_network, network_in_use

    if args.reset:
        gone = forget_network()
        say("nothing was stored" if gone is None else f"removed {printable(str(gone))}")
        return 0
    if not args.show:
        say("measuring collectives, for about half a minute")
    found = network_in_use() if args.show else calibrate_network(args.output)
    if args.json:
        emit_report("network", found.to_json())
    else:
        emit(str(found.cluster), None)
    if found.note:
        say(f"note: {found.note}")
    say("the shipped figures are in use" if found.path is None else
        f"{'from' if args.show else 'stored in'} {printable(str(found.path))}")
    return 0


def add_fuzz(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="programs of which mutants are examined, too")
    parser.add_argument("--seconds", type=seconds, default=60.0, metavar="N", help="for how long (60)")
    parser.add_argument("--count", type=natural, metavar="N", help="for how many programs at most")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="the first program; each next one has the next number")
    parser.add_argument("-o", "--output", metavar="DIR", help="where the program of each kind of finding goes, with its inputs")


def run_fuzz(args: Arguments) -> int:
    from dataclasses import asdict
    from pathlib import Path

    from deepx_graph.progress import stage
    from deepx_graph.session.fuzzing.campaign import fuzz
    from deepx_graph.session.fuzzing.sources import mutable

    found = fuzz(args.seconds, args.seed, None if args.output is None else Path(args.output),
                 lambda c: stage(f"fuzz: {c.programs} programs, {len(c.findings)} kinds of findings"), count=args.count,
                 sources=mutable(list(map(Path, args.files))))
    if args.json:
        emit_report("fuzz", {"programs": found.programs, "seconds": found.seconds,
                             "findings": [asdict(f) | {"count": found.counts[s]} for s, f in found.findings.items()]})
    else:
        emit("".join(f"{printable(line)}\n" for line in found.lines()), None)
    return 1 if found.findings else 0


def add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove all entries")
    parser.add_argument("--limit", type=size, metavar="N", help="remove the longest unused until N bytes are left (64M)")
    parser.add_argument("--days", type=natural, metavar="N", help="remove what was not used for N days")


def run_cache(args: Arguments) -> int:
    from deepx_graph.runtime.native.llvm import store

    folder = store.location()
    objection = "there is no folder for it" if folder is None else store.objection(folder)
    if args.clear or args.limit is not None or args.days is not None:
        count, nbytes = store.prune(0 if args.clear else args.limit, args.days)
        say(f"entries: {count} removed, {sized(nbytes)}")
    known = store.entries(folder) if folder is not None and objection is None else []
    report: dict[str, Any] = {
        "folder": None if folder is None else str(folder), "used": objection is None, "entries": len(known),
        "bytes": sum(e.nbytes for e in known), "limit": store.limit(), "days": store.longest()}  # fmt: skip
    if objection is not None:
        say(f"warning: machine code is not kept on disk: {printable(objection)}")
    if args.json:
        emit_report("cache", report)
        return 0
    rows = {"folder": printable(report["folder"] or "none"), "entries": f"{len(known):,}", "bytes": sized(report["bytes"]),
            "limit": f"{sized(report['limit'])}, {report['days']} days without use"}  # fmt: skip
    emit("".join(f"{name:<9}{value}\n" for name, value in rows.items()), None)
    return 0


def add_schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="REPORT", nargs="?", help="the report, such as info; left out, all are listed")
    parser.add_argument("--markdown", action="store_true", help="the page of all reports as Markdown")


def run_schema(args: Arguments) -> int:
    if args.markdown:
        emit(schemas.markdown(), None)
    elif args.name:
        emit_json(schemas.schema(args.name), None)
    else:
        emit("".join(f"{name:<17}{found.command}: {found.summary}\n" for name, found in REPORTS.items()), None)
    return 0


# --- completion


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"),
                        help="source what is printed: eval \"$(deepx-graph completion bash)\"")
    parser.add_argument("--line", metavar="TEXT", help="what the script asks: how a line that ends at the cursor may go on")


def run_completion(args: Arguments, parser: Parser) -> int:
    """Prints a script that asks this program, or answers it."""
    from deepx_graph.cli import completion

    emit(completion.SCRIPTS[args.shell] if args.line is None else completion.answer(parser, args.shell, args.line), None)
    return 0
