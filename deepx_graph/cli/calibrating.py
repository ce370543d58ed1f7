"""The command that measures the machine for the cost model: calibrate."""

from __future__ import annotations

import argparse

from deepx_graph.cli.options import Arguments, add_json, emit, emit_json, say
from deepx_graph.errors import printable


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
