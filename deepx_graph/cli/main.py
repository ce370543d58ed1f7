"""The command `deepx-graph`: parses the command line, runs one command, reports failures by messages and exit codes.

Results go to standard output, everything else to standard error. Exit codes: 0 ok, 1 difference or budget exceeded, 2 usage,
3 parse, 4 verify, 5 run time, 70 our own fault (with a file that reproduces it), 130 interrupted, 143 terminated. Commands are
imported when they run, so that `--help` is quick.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from deepx_graph.cli import faults, meshes, output, programs, reports, running, showing, tool, words
from deepx_graph.cli.options import (
    AddOptions,
    Arguments,
    Parser,
    add_engine,
    add_input,
    add_json,
    add_pipeline,
    add_reading,
    add_running,
)
from deepx_graph.cli.output import say
from deepx_graph.cycles import rare_collection
from deepx_graph.errors import INTERNAL, DeepxGraphError
from deepx_graph.interop import load_plugins
from deepx_graph.runtime.native import vectors
from deepx_graph.version import __version__

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM



class Command(NamedTuple):
    """A command; of its options those of its own (`add`) stand between sets that others have, too.

    `group` is its heading in the list of commands; `examples` are command lines without the program's name, which help shows.
    """

    summary: str
    add: AddOptions
    run: Callable[[Arguments], int]
    before: tuple[AddOptions, ...] = ()
    after: tuple[AddOptions, ...] = ()
    group: str = ""
    examples: tuple[str, ...] = ()


LOOK, CHANGE, RUN, CHECK, TOOL = "Look at a program", "Make another program of it", "Run it", "Compare and check", "This tool"

COMMANDS: dict[str, Command] = {
    "info": Command(
        "say what a program takes, gives and is made of", reports.add_info, reports.run_info, (add_input,),
        (add_engine, add_json, add_reading), LOOK, ("info model.hlo", "info model.onnx --by scope --depth 1")),
    "draw": Command(
        "draw a program as DOT, SVG, PNG or HTML", showing.add_draw, showing.run_draw, (), (add_json, add_reading, add_pipeline),
        LOOK, ("draw model.hlo -o model.svg", "draw model.hlo --open",
               "draw model.hlo --where 'op:dot_general users>1' --as dot -o -")),
    "tui": Command(
        "browse a program in the terminal", showing.add_tui, showing.run_tui, (), (add_reading,), LOOK,
        ("tui model.hlo", "tui before.hlo after.hlo")),
    "why": Command(
        "say why two operations are, or are not, in one kernel", reports.add_why, reports.run_why, (),
        (add_engine, add_json, add_reading), LOOK, ("why model.hlo", "why model.hlo products weights",
                                                       "why model.hlo --made weights")),
    "loops": Command(
        "show the loops that kernels are machine code of", reports.add_loops, reports.run_loops, (),
        (add_engine, add_json, add_reading), LOOK, ("loops model.hlo", "loops model.hlo weights --engine native")),
    "plan": Command(
        "say how all values lie on a mesh, from the shardings that are given", meshes.add_plan, meshes.run_plan, (add_input,),
        (add_json, add_reading), LOOK, ("plan model.mlir", "plan model.mlir --plan my.plan -o whole.plan",
                            "plan model.mlir --auto --mesh data=4,model=2 --memory 16G")),
    "simulate": Command(
        "predict what a step takes on the devices of a cluster", meshes.add_simulate, meshes.run_simulate, (add_input,),
        (add_engine, add_json, add_reading), LOOK,
        ("simulate model.mlir --cluster h100", "simulate model.plan -o step.html")),
    "opt": Command(
        "optimise a program and print it", programs.add_opt, programs.run_opt, (add_input,), (add_reading, add_pipeline), CHANGE,
        ("opt model.hlo -o small.hlo", "opt model.mlir -p 'cse,fuse{max-ops=64}' --timing", "opt model.onnx -o model.mlir -p none",
         "opt model.hlo -o small.hlo --certificate small.jsonl", "opt --list-passes")),
    "grad": Command(
        "print the gradient program of a program", programs.add_grad, programs.run_grad, (add_input,),
        (add_json, add_reading, partial(add_pipeline, default=programs.PIPELINE)), CHANGE,
        ("grad loss.mlir -o gradient.mlir", "grad loss.mlir --wrt w,b --emit sea")),
    "build": Command(
        "compile a program ahead of time, to object code for C", programs.add_build, programs.run_build, (add_input,),
        (add_json, add_reading, add_pipeline), CHANGE, ("build model.mlir -o model.o --header model.h --cpu v3",)),
    "run": Command(
        "run a program", running.add_run, running.run_run, (add_input,), (add_json, add_reading, add_pipeline, add_running), RUN,
        ("run model.hlo --input x=x.npy -o results.npz", "run model.hlo --random-inputs --profile",
         "run model.hlo --inputs batch.npz --explain-nan")),
    "check": Command(
        "check a program against budgets", reports.add_check, reports.run_check, (add_input,),
        (add_json, add_reading, add_pipeline), CHECK,
        ("check model.hlo --budget 'ops<=120' --budget 'peak_bytes<=64M'", "check model.hlo --save-baseline baseline.json",
         "check model.hlo --baseline baseline.json --slack 5% --sarif check.sarif")),
    "reduce": Command(
        "make a program small while it crashes, differs, is slow or is wrong in XLA", faults.add_reduce, faults.run_reduce,
        (add_input,), (add_json, add_reading), CHECK, ("reduce model.hlo --while differs -p default -o small",)),
    "replay": Command(
        "run again what ended in an internal error, from the file that it left", faults.add_replay, faults.run_replay, (),
        (add_json,), CHECK, ("replay deepx-graph-x1.json", "replay reduced.json --seconds 60")),
    "diff": Command(
        "compare two programs", reports.add_diff, reports.run_diff, (), (add_json, add_reading), CHECK,
        ("diff before.hlo after.mlir", "diff model.hlo -p default -o changed.html", "diff a.onnx b.onnx --values")),
    "check-grad": Command(
        "compare gradients with finite differences", programs.add_check_grad, programs.run_check_grad, (add_input,),
        (add_json, add_reading), CHECK, ("check-grad loss.mlir --wrt w",)),
    "certify": Command(
        "check, without any pass, that an optimised program computes what the program did, by its certificate", faults.add_certify,
        faults.run_certify, (), (add_json, add_reading), CHECK, ("certify model.hlo small.hlo small.jsonl",)),
    "bisect": Command(
        "find the pass of a compiler that changed what a program computes", faults.add_bisect, faults.run_bisect, (),
        (add_json, add_reading), CHECK, ("bisect xla_dump/", "bisect model.mlir -p default --reduce small")),
    "stages": Command(
        "show what each pass of XLA changed, of a folder that it dumped", reports.add_stages, reports.run_stages, (),
        (add_json, add_reading), CHECK, ("stages xla_dump/ --changes",)),
    "fuzz": Command(
        "run random programs of every operation, and hold them against the reference", tool.add_fuzz, tool.run_fuzz, (),
        (add_json,), TOOL, ("fuzz --seconds 600 -o findings",)),
    "ops": Command(
        "list the operations, or explain one", tool.add_ops, tool.run_ops, (), (add_json,), TOOL, ("ops", "ops dot_general")),
    "calibrate": Command(
        "measure this machine for the cost model", tool.add_calibrate, tool.run_calibrate, (), (add_json,), TOOL,
        ("calibrate", "calibrate --show")),
    "cache": Command(
        "show, bound or clear the machine code kept on disk", tool.add_cache, tool.run_cache, (), (add_json,), TOOL,
        ("cache", "cache --limit 32M")),
    "schema": Command(
        "print the JSON Schema of a report of --json", tool.add_schema, tool.run_schema, (), (), TOOL, ("schema", "schema check")),
    "completion": Command(
        "print a completion script for a shell", tool.add_completion, lambda args: tool.run_completion(args, make_parser()), (), (),
        TOOL, ("completion bash >> ~/.bashrc", "completion zsh >> ~/.zshrc",
               "completion fish > ~/.config/fish/completions/dxg.fish")),
}  # fmt: skip
"""Every command, in the order of the list of commands."""

OVERVIEW = """\
Read tensor IR as one graph: see it, shrink it, differentiate it, run it.
A FILE is HLO, StableHLO, Relay, MindIR, ONNX, torch.export, deepx or sea. dxg is the same program; dxg FILE is dxg info FILE."""


def make_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(prog="deepx-graph", description=f"{OVERVIEW}\n\n{_command_list()}",
                    formatter_class=argparse.RawDescriptionHelpFormatter, usage="deepx-graph COMMAND [FILE] [options]",
                    epilog="deepx-graph COMMAND --help: its options, with examples.\n"
                           "exit codes: 0 ok, 1 difference or excess, 2 usage, 3 parse, 4 verify, 5 run time, 70 internal error, "
                           "130 interrupted, 143 terminated")
    parser.add_argument("--version", action="version", version=f"deepx-graph {__version__}")
    commands = parser.add_subparsers(dest="command", prog="deepx-graph", metavar="COMMAND", help=argparse.SUPPRESS)
    for name, (summary, own, _, before, after, _, examples) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False,
                                      formatter_class=argparse.RawDescriptionHelpFormatter,
                                      epilog="\n".join(["examples:", *(f"  deepx-graph {e}" for e in examples)]))
        command.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour of diagnostics")
        command.add_argument("--plugin", action="append", default=[], metavar="FILE.py",
                             help="run this file first, which registers operations, passes, engines, ...")
        command.add_argument("--quiet", action="store_true", help="do not say on a terminal what is being done")
        command.add_argument("--no-config", action="store_true", help="leave [tool.deepx_graph] of pyproject.toml out")
        for add in (*before, own, *after):
            add(command)
    return parser


def _command_list() -> str:
    """The commands by their groups."""
    groups: dict[str, list[str]] = {}
    for name, command in COMMANDS.items():
        groups.setdefault(command.group, []).append(f"  {name:<12}{command.summary}")
    return "\n\n".join("\n".join([f"{group}:", *lines]) for group, lines in groups.items())


class _Terminated(BaseException):
    """The process was asked to end; what is half written is taken away on the way out."""


def _terminate(number: int, frame: object) -> None:
    raise _Terminated


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return _main(argv)
    signal.signal(signal.SIGTERM, _terminate)
    atexit.register(gc.freeze)  # at the end of the process no cycle is looked for in a program that ends with it
    try:
        with rare_collection():
            return _main(argv)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stderr is None:  # closed by the caller: what is said leads nowhere
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    args: Arguments | None = None
    try:
        parser = make_parser()
        args = parser.parse_args(words.whole(arguments, parser.commands))
        if args.command is None:
            parser.print_help()
            return 0
        output.COLOUR = args.color
        _load_plugins(args.plugin)
        with vectors(getattr(args, "vector_bits", None)), output.shown(sys.stderr, not args.quiet):
            return COMMANDS[args.command].run(meshes.with_program(args))
    except DeepxGraphError as e:
        return _failed(arguments, e, args)
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except _Terminated:
        say("terminated")
        return TERMINATED
    except BrokenPipeError:
        _drop_output()
        return 128 + signal.SIGPIPE
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0
    except MemoryError:
        say("error: out of memory\n  hint: bound it with --max-bytes")
        return 5
    except Exception as e:  # the boundary between our own faults and a user
        return _reproducer(arguments, e, args)


def _failed(arguments: Sequence[str], error: DeepxGraphError, args: Arguments | None) -> int:
    """Says an error; the exit code. What is wrong with the arguments, the first of several processes says for all."""
    from deepx_graph.session.cluster.launch import is_first, is_told

    if args is not None or is_first():
        say(str(error))
        if "--json" in arguments:
            output.emit_errors(error, error.exit_code, args.output if args is not None and hasattr(args, "emit") else False)
    _drop_output()
    if error.exit_code == INTERNAL:
        return _reproducer(arguments, error, args)
    return 0 if is_told() else error.exit_code


def _load_plugins(files: Sequence[str]) -> None:
    """The installed plugins, and those of files, before anything asks for what they add."""
    load_plugins()
    for file in files:
        from deepx_graph.interop import plugins

        plugins.load_file(file)


def _drop_output() -> None:
    """What standard output cannot take is not tried again when the process ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reproducer(arguments: Sequence[str], error: BaseException, args: Arguments | None) -> int:
    """Write what is needed to repeat an internal error, and say where."""
    from deepx_graph.session.diagnose.reproducer import recorded
    from deepx_graph.session.programs import TAKEN_FROM_STDIN

    given = [s.text.encode() if s.data is None else bytes(s.data) for s in TAKEN_FROM_STDIN]
    path = recorded(arguments, error, None if args is None else vars(args), given[0] if given else None).keep()
    say(f"internal error: {type(error).__name__}\n  what happened, the command and the program are in a file, which repeats it: "
        f"deepx-graph replay {path}")
    return INTERNAL


if __name__ == "__main__":
    sys.exit(main())
