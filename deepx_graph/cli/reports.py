"""The commands that tell: ops, why, info."""

from __future__ import annotations

import argparse

from deepx_graph.cli.options import Arguments, add_engine, add_input, add_json, add_reading, emit, emit_json, read_program
from deepx_graph.errors import printable
from deepx_graph.progress import stage


def add_ops(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="explain this operation")
    parser.add_argument("--markdown", action="store_true", help="the whole reference as Markdown")
    parser.add_argument("-o", "--output", metavar="FILE", help="where it goes")
    add_json(parser)


def run_ops(args: Arguments) -> int:
    from deepx_graph.cli import reference
    from deepx_graph.ops import FAMILIES, OPS, op_named

    if args.name:
        op = op_named(args.name)
        emit_json(reference.facts(op), args.output) if args.json else emit(reference.op_text(op), args.output)
    elif args.json:
        emit_json([reference.facts(op) for op in OPS.values()], args.output)
    elif args.markdown:
        emit(reference.markdown(), args.output)
    else:
        lines = []
        for family, members in FAMILIES.items():
            lines.append(f"{family}:")
            lines += [f"  {op.name:<24}{op.summary}" for op in members]
        emit("\n".join(lines) + "\n", args.output)
    return 0


def add_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the program; - reads standard input")
    parser.add_argument("a", help="a node: its name in the program, or #number")
    parser.add_argument("b", help="another node")
    parser.add_argument("-p", "--pass-pipeline", default="clean", metavar="PIPELINE", help="passes before fusion (default: clean)")
    parser.add_argument("--measure", action="store_true", help="run the program on generated inputs, and say what the kernels took")
    add_engine(parser)
    add_json(parser)
    add_reading(parser)


def run_why(args: Arguments) -> int:
    from deepx_graph import session
    from deepx_graph.session.run.kernel_of import Placing

    module = read_program(args).module
    names = [n.name for f in session.optimise(module, args.pass_pipeline).module.functions for n in f.nodes]
    there = all(x.startswith("#") or x in names for x in (args.a, args.b))
    asked = session.optimise(module, args.pass_pipeline).module if there else module
    placing = Placing(asked, args.engine, args.threads)
    reason = placing.why(args.a, args.b)
    found = placing.placed((args.a, args.b), measure=args.measure)
    if args.json:
        emit_json({"fused": reason.fused, "kind": reason.kind.value, "message": reason.message,
                   "kernels": [p.to_json() for p in found]})  # fmt: skip
    else:
        emit("".join(f"{printable(str(line))}\n" for line in (reason.message, *found)), None)
    return 0


def add_info(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    parser.add_argument("-p", "--pass-pipeline", default="default", metavar="PIPELINE",
                        help="compare with what this pipeline makes of it (default: default; none compares nothing)")
    parser.add_argument("--all", action="store_true", help="list all inputs and outputs, however many")
    add_engine(parser)
    add_json(parser)
    add_reading(parser)


def run_info(args: Arguments) -> int:
    from deepx_graph import session
    from deepx_graph.session.report.figures import table
    from deepx_graph.session.report.kernels import kernels

    module = read_program(args).module
    stage("count")
    info = session.module_info(module)
    done = session.optimise(module, args.pass_pipeline)
    compared = table(module, done.module, args.pass_pipeline) if done.passes else None
    stage("kernels")
    found = kernels(done.module, args.engine, args.threads)
    if args.json:
        emit_json(info.to_json() | ({"compared": compared.to_json()} if compared else {})
                  | ({"kernels": found.to_json()} if found else {}))
    else:
        facts = info.lines(None) if args.all else info.lines()
        lines = [*facts, *(compared.lines() if compared else ()), *(found.lines() if found else ())]
        emit("\n".join(map(printable, lines)) + "\n", None)
    return 0
