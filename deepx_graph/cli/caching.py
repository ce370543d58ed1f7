"""The command for the machine code that is kept on disk: cache."""

from __future__ import annotations

import argparse
from typing import Any

from deepx_graph.cli.options import Arguments, add_json, emit, emit_json, natural, say, size
from deepx_graph.errors import printable
from deepx_graph.units import sized


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
