"""The command that compares: two programs, a program with what a pipeline makes of it, or the results of two pipelines."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from deepx_graph.cli.options import Arguments, add_json, add_reading, emit, emit_json, read_program, say
from deepx_graph.errors import Diagnostic, UsageError, printable

if TYPE_CHECKING:
    from deepx_graph.ir import Module

MOST = 2
"""Pipelines that can be compared."""


MEANING = "inline,unfuse,inline,simplify,cse,dce,internalize,dce"
"""What two programs go through before they are compared, so that calls, fusion and spelling do not count."""


def add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", help="a program")
    parser.add_argument("b", nargs="?", help="another; - reads standard input; left out, pipelines of the first are compared")
    parser.add_argument("-p", "--pass-pipeline", action="append", default=[], metavar="PIPELINE",
                        help="of two programs: run it on both; of one: compare before and after, or two results")
    parser.add_argument("--as-written", action="store_true",
                        help="compare the programs as they stand; else two programs are inlined, unfused and simplified first")
    parser.add_argument("-o", "--output", metavar="FILE", help="a picture of both, coloured: .svg, .html, .dot or .png")
    add_json(parser)
    add_reading(parser)


def run_diff(args: Arguments) -> int:
    from deepx_graph.session.report.diff import diff

    (first, a), (second, b) = _sides(args)
    found = diff(a, b)
    if args.output:
        from deepx_graph.session.show.diff_picture import compared

        drawn = compared((first, a), (second, b), args.output)
        for note in drawn.notes:
            say(f"note: {note}")
    if args.json:
        changes = [{"kind": c.kind, "function": c.function, "text": c.text} for c in found.changes]
        emit_json({"equal": not found, "changes": changes, "affected": found.affected, "same": found.same,
                   "operations": found.operations})  # fmt: skip
    else:
        emit("".join(printable(line) + "\n" for line in found.lines()), None)
        if not found:
            say(f"no difference{_reading(args)}")
    return 1 if found else 0


def _reading(args: Arguments) -> str:
    """What was done to two programs before they were compared, where nobody asked for a pipeline."""
    canonical = args.b is not None and not args.pass_pipeline and not args.as_written
    return ": with calls inlined and kernels taken apart both are the same (--as-written compares texts)" if canonical else ""


def _sides(args: Arguments) -> list[tuple[str, Module]]:
    """The two modules that are compared, with what they are called."""
    pipelines = args.pass_pipeline
    if args.b is not None:
        if len(pipelines) > 1:
            raise UsageError("two programs take one pipeline, which runs on both")
        pipeline = pipelines[0] if pipelines else "" if args.as_written else MEANING
        return [(path, _after(read_program(args, path).module, pipeline)) for path in (args.a, args.b)]
    if not 1 <= len(pipelines) <= MOST:
        raise UsageError(Diagnostic("one program has nothing to be compared with", expected="another program, or one -p or two"))
    module = read_program(args, args.a).module
    if len(pipelines) == 1:
        return [("before", module), (f"after {pipelines[0]}", _after(module, pipelines[0]))]
    return [(pipeline, _after(module, pipeline)) for pipeline in pipelines]


def _after(module: Module, pipeline: str = "") -> Module:
    from deepx_graph import session

    return session.optimise(module, pipeline).module if pipeline else module
