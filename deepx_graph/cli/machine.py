"""The commands for what is kept on this machine: `calibrate`, the constants of the cost model; `cache`, compiled kernels."""

from __future__ import annotations

import argparse
from typing import Any

from deepx_graph.cli.options import Arguments, add_json, emit, emit_json, natural, say, size
from deepx_graph.errors import printable
from deepx_graph.units import sized


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="measure nothing: show the constants in use and where they come from")
    what.add_argument("--reset", action="store_true", help="forget what was measured and go by the shipped constants again")
    what.add_argument("-o", "--output", metavar="FILE", help="store them in this file instead (DEEPX_GRAPH_COSTS=FILE uses it)")
    add_json(parser)


def run_calibrate(args: Arguments) -> int:
    from deepx_graph.session.report import calibration as measuring

    if args.reset:
        gone = measuring.reset()
        say("nothing was stored" if gone is None else f"removed {printable(str(gone))}")
        return 0
    found = measuring.show() if args.show else measuring.calibrate(args.output, lambda what: say(f"measuring {what}"))
    if args.json:
        emit_json(found.to_json())
    else:
        emit("".join(f"{line}\n" for line in found.lines()), None)
    if found.note:
        say(f"note: {printable(found.note)}")
    where = "the shipped constants are in use" if args.show else "stored nowhere"
    say(where if found.path is None else f"{'from' if args.show else 'stored in'} {printable(str(found.path))}")
    return 0


def add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove all entries")
    parser.add_argument("--limit", type=size, metavar="N", help="remove the longest unused until N bytes are left (64M)")
    parser.add_argument("--days", type=natural, metavar="N", help="remove what was not used for N days")
    add_json(parser)


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
        emit_json(report)
        return 0
    rows = {"folder": printable(report["folder"] or "none"), "entries": f"{len(known):,}", "bytes": sized(report["bytes"]),
            "limit": f"{sized(report['limit'])}, {report['days']} days without use"}  # fmt: skip
    emit("".join(f"{name:<9}{value}\n" for name, value in rows.items()), None)
    return 0
