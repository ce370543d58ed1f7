"""The commands about gradients: grad, check-grad."""

from __future__ import annotations

import argparse

from deepx_graph.cli.options import (
    Arguments,
    add_input,
    add_json,
    add_pipeline,
    add_reading,
    count,
    emit,
    emit_json,
    natural,
    read_program,
    say,
    size,
    watch,
)
from deepx_graph.cli.programs import DIALECTS, rendered, wanted_form
from deepx_graph.units import sized

PIPELINE = "clean"
"""What is done to a gradient program where nothing is asked for."""

LOOPS = ("auto", "keep", "recompute", "sqrt")


def add_grad(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    _add_wrt(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where the result goes; - or nothing is standard output")
    parser.add_argument("--emit", metavar="FORM", help="as for opt; deepx in lines with <- where it can be said so")
    parser.add_argument("--dialect", choices=DIALECTS, help="which dialect of deepx to write")
    parser.add_argument("--loop", choices=LOOPS, default="auto", help="what loops keep for their backward part (default: auto)")
    parser.add_argument("--loop-budget", type=size, metavar="N", help="the bytes that auto lets loops keep (default: 1G)")
    parser.add_argument("--loop-bytes", action="store_true", help="say on standard error what each choice of --loop keeps")
    add_reading(parser)
    add_pipeline(parser, PIPELINE)


def _add_wrt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wrt", metavar="NAME,...", help="the inputs to differentiate by (default: every floating one)")


def _wrt(args: Arguments) -> list[str] | None:
    return [name.strip() for name in args.wrt.split(",")] if args.wrt else None


def run_grad(args: Arguments) -> int:
    from deepx_graph import session

    form = wanted_form(args)
    module = read_program(args).module
    if args.loop_bytes:
        for choice in session.gradient_choices(module, _wrt(args)):
            more = f", and {sized(choice.turn_bytes)} for an iteration of each loop of unknown length" if choice.turn_bytes else ""
            say(f"loop={choice.loop}: {sized(choice.row_bytes)}{more}")
    gradient = session.gradient(module, _wrt(args), args.loop, args.loop_budget)
    done = session.optimise(gradient, args.pass_pipeline, watch(args))
    is_deepx = (form or session.own_format(done.module)) == "deepx" and args.dialect in (None, "seed")
    lines = session.backward_lines(module, done.module) if is_deepx and args.pass_pipeline == PIPELINE else None
    emit(lines or rendered(done.module, form, args.dialect), args.output)
    return 0


def add_check_grad(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    _add_wrt(parser)
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the random inputs (default 0)")
    parser.add_argument("--samples", type=count, default=3, metavar="N", help="how many random inputs (default 3)")
    add_json(parser)
    add_reading(parser)


def run_check_grad(args: Arguments) -> int:
    from pathlib import Path

    from deepx_graph.session.gradcheck.check import check_gradient

    module = read_program(args).module
    root = Path(args.data_root) if args.data_root else None
    report = check_gradient(module, _wrt(args), seed=args.seed, samples=args.samples, data_root=root)
    emit_json(report.to_json()) if args.json else emit(str(report), None)
    return 0 if report.ok else 1
