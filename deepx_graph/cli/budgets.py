"""The command that checks a program against budgets: `check`, for CI."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from deepx_graph.cli.options import (
    Arguments,
    add_input,
    add_json,
    add_pipeline,
    add_reading,
    emit,
    emit_json,
    read_program,
    watch,
)
from deepx_graph.errors import Diagnostic, UsageError, printable

if TYPE_CHECKING:
    from deepx_graph.ir import Module


def add_check(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    parser.add_argument("--budget", action="append", default=[], metavar="BOUND",
                        help="such as 'ops<=120', 'peak_bytes<=64M', 'ops.dot_general<=4'; repeat for several")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=TYPE",
                        help="the size of an input that the program leaves open: f32[8,128], or a FILE.npy")
    parser.add_argument("--inputs", metavar="FILE.npz", help="arrays whose sizes the inputs have, by name")
    parser.add_argument("--markdown", action="store_true", help="the report as Markdown, for the summary of a CI job")
    add_json(parser)
    add_reading(parser)
    add_pipeline(parser, "default")


def run_check(args: Arguments) -> int:
    from deepx_graph import session
    from deepx_graph.session.report import budget

    budgets = [budget.parse_budget(text) for text in args.budget]
    if not budgets:
        raise UsageError(Diagnostic("nothing to check", expected="--budget, at least once", hint="--budget 'ops<=120'"))
    before = _sized(args, read_program(args).module)
    after = session.optimise(before, args.pass_pipeline, watch(args)).module
    verdicts = budget.judge(before, after, budgets)
    good = all(v.holds for v in verdicts)
    if args.json:
        emit_json({"ok": good, "pipeline": args.pass_pipeline, "budgets": [v.to_json() for v in verdicts]})
    elif args.markdown:
        emit("\n".join([*budget.markdown(verdicts, before.source.name if before.source else "program"), ""]), None)
    else:
        rows = (("ok" if v.holds else "EXCEEDED", v.budget.text, v.value) for v in verdicts)
        emit("".join(f"{word:<10}{printable(text):<32}{value:>16,}\n" for word, text, value in rows), None)
    return 0 if good else 1


def _sized(args: Arguments, module: Module) -> Module:
    """The module for inputs of the sizes that are given; itself when none is."""
    from deepx_graph.session.run.arrays import read_npz
    from deepx_graph.session.run.inputs import sized

    wishes: dict[str, str] = {}
    for item in args.input:
        name, equal, wish = item.partition("=")
        if not equal:
            raise UsageError(Diagnostic(f"--input {printable(item)}", expected="such as x=f32[8,128] or x=FILE.npy"))
        wishes[name] = wish
    arrays = read_npz(args.inputs)[0] if args.inputs else {}
    return sized(module, wishes, arrays) if wishes or arrays else module
