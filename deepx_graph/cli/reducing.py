"""The command `reduce`: a program made small while it crashes, differs, is slow or is wrong in XLA."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from deepx_graph.cli.options import Arguments, natural, read_program, seconds
from deepx_graph.cli.output import emit, emit_report, say
from deepx_graph.errors import RunError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepx_graph.session.diagnose.reduction import ReducedProgram

CRITERIA = ("crash", "differs", "slow", "wrong-in-xla")


def add_reduce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--while", dest="criterion", choices=CRITERIA, required=True, help="what is to stay true of the program")
    parser.add_argument("-p", "--pass-pipeline", default="default", metavar="PIPELINE", help="how it is optimised (default)")
    parser.add_argument("--engine", default="auto", metavar="NAME", help="what runs it (auto)")
    parser.add_argument("--slower-than", type=seconds, default=1.0, metavar="N", help="with slow: seconds of processor time (1)")
    parser.add_argument("--inputs", metavar="FILE.npz", help="inputs by name; random ones, from --seed, where left out")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of random inputs")
    parser.add_argument("--seconds", type=seconds, default=60.0, metavar="N", help="for how long smaller programs are tried (60)")
    parser.add_argument("-o", "--output", default="reduced", metavar="PREFIX",
                        help="PREFIX.hlo, or as read, and PREFIX.npz (reduced)")
    parser.add_argument("--check", action="store_true", help="reduce nothing: exit code 0 where it is true, 1 where not")


def run_reduce(args: Arguments) -> int:
    from deepx_graph.runtime.inputs import input_ports
    from deepx_graph.session.diagnose.predicates import How, predicate
    from deepx_graph.session.diagnose.reduction import reduce_program
    from deepx_graph.session.inputs import random_inputs, read_npz

    module = read_program(args).module
    given = dict(read_npz(args.inputs)[0]) if args.inputs else random_inputs(input_ports(module.entry), args.seed)
    holds = predicate(args.criterion, How(args.pass_pipeline, args.engine, args.slower_than))
    if args.check:
        return 0 if holds(module, given) else 1
    found = reduce_program(module, given, holds, seconds=args.seconds)
    path, inputs = _written(found, args.output)
    repeat = ["reduce", path, "--while", args.criterion, "-p", args.pass_pipeline, "--engine", args.engine, "--inputs", inputs,
              "--slower-than", str(args.slower_than), "--check"]  # fmt: skip
    _check_again(repeat)
    if args.json:
        emit_report("reduce", {"operations": [found.before, found.after], "tried": found.tried, "program": path, "inputs": inputs})
    else:
        emit(f"{found.before} operations -> {found.after}, {found.tried} programs tried\n", None)
    say(f"{printable(path)}, inputs {printable(inputs)}; again: deepx-graph {printable(' '.join(repeat))}")
    return 0


def _written(found: ReducedProgram, prefix: str) -> tuple[str, str]:
    """The files of the program and of its inputs."""
    from deepx_graph.cli.programs import rendered
    from deepx_graph.session.inputs import write_npz
    from deepx_graph.session.programs import own_format

    form = own_format(found.module)
    path = f"{prefix}.{'mlir' if form == 'stablehlo' else form}"
    emit(rendered(found.module, form), path)
    write_npz(f"{prefix}.npz", found.inputs)
    return path, f"{prefix}.npz"


def _check_again(command: Sequence[str]) -> None:
    """Raises RunError where what was written does not show it in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "deepx_graph", *command], env=dict(os.environ), capture_output=True, check=False)
    if done.returncode:
        raise RunError("what was written does not show it in a process of its own")
