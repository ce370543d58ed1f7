"""Commands that find faults: `bisect`, the pass that changed a result; `reduce`, a small program that still shows one; `replay`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deepx_graph.cli.options import Arguments, count, natural, read_program, reading_options, seconds, size
from deepx_graph.cli.output import emit, emit_report, say
from deepx_graph.errors import DeepxGraphError, Diagnostic, RunError, UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deepx_graph.ir import Module
    from deepx_graph.literal import Array
    from deepx_graph.session.diagnose.bisection import Bisection, Inputs

CRITERIA = ("crash", "differs", "slow", "wrong-in-xla")


def add_bisect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH",
                        help="a folder that a compiler dumped; several files, the stages in order; or a program, with -p or --xla")
    parser.add_argument("-p", "--pass-pipeline", metavar="PIPELINE", help="of a program: the passes of ours that are searched")
    parser.add_argument("--xla", action="store_true",
                        help="of a program: compile it by jaxlib (of DEEPX_GRAPH_JAX_PYTHON, a Python) and search its passes")
    parser.add_argument("--module", metavar="MODULE", help="of a folder: only the module of this name or number")
    parser.add_argument("--inputs", metavar="FILE.npz", help="inputs by name, or in order; by default samples are drawn")
    parser.add_argument("--samples", type=count, default=20, metavar="N", help="how many sets of inputs are drawn (20)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="what they are drawn from")
    parser.add_argument("--expected", metavar="FILE.npz",
                        help="what the machine gave for --inputs, in the order of the outputs: tells passes from code generation")
    parser.add_argument("--reduce", metavar="PREFIX", help="write the least program that shows it, PREFIX.hlo, and PREFIX.npz")
    parser.add_argument("--max-bytes", type=size, metavar="N", help="refuse to use more memory for one stage")


def run_bisect(args: Arguments) -> int:
    from deepx_graph.session.diagnose.bisection import Inputs
    from deepx_graph.session.inputs import read_npz

    given = read_npz(args.inputs)[0] if args.inputs else None
    expected = read_npz(args.expected)[0] if args.expected else None
    if expected is not None and given is None:
        given = {}  # right for a program that takes none
    machine = None if expected is None else [tuple(expected.values())]
    found = _bisected(args, Inputs(given, args.samples, args.seed), machine)
    if args.json:
        emit_report("bisect", {"modules": [one.to_json() for one in found]})
    else:
        emit("".join(f"{line}\n" for one in found for line in one.lines()), None)
    wrong = [one for one in found if one.found]
    if wrong and args.reduce:
        _write_reproducer(wrong[0], args.reduce)
    return 1 if wrong else 0


def _bisected(args: Arguments, inputs: Inputs, machine: list[tuple[Array, ...]] | None) -> list[Bisection]:
    from deepx_graph.session.diagnose import bisection
    from deepx_graph.session.dumps import chosen, dumped_modules

    options, first = reading_options(args), Path(args.paths[0])
    if args.pass_pipeline is not None or args.xla:
        if len(args.paths) > 1 or first.is_dir() or (args.xla and args.pass_pipeline is not None):
            raise UsageError(Diagnostic("-p and --xla take one program, and exclude one another"))
        module = read_program(args, args.paths[0]).module
        if args.xla:
            return [bisection.bisect_xla(module, inputs, max_bytes=args.max_bytes)]
        return [bisection.bisect_pipeline(module, args.pass_pipeline, inputs, max_bytes=args.max_bytes)]
    if first.is_dir() and len(args.paths) == 1:
        modules = chosen(dumped_modules(first), args.module)
        several = [m for m in modules if len(m.stages) > 1]
        if not several:
            raise UsageError(f"the modules of '{printable(args.paths[0])}' have one stage each; nothing to compare")
        return [bisection.bisect_dumped(m, inputs, options, max_bytes=args.max_bytes, machine=machine) for m in several]
    stages = [bisection.file_stage(Path(p).name, Path(p), options) for p in args.paths]
    return [bisection.bisect_stages(first.name, stages, inputs, max_bytes=args.max_bytes, machine=machine)]


def _write_reproducer(found: Bisection, prefix: str) -> None:
    """The least program and its inputs, in the language of the stages."""
    from deepx_graph.ir.structure import CONSTANT, PARAM

    small = found.reproducer()
    if small is None:
        say("note: there is no program smaller than the stages to write")
        return
    if found.code_generation:
        small = _reduced_in_xla(*small)
    path, inputs = _written(*small, prefix)
    operations = sum(n.op not in (PARAM, CONSTANT) for n in small[0].entry.nodes)
    say(f"the program of the {operations} operations that depart: {printable(path)}, inputs {printable(inputs)}")


def _reduced_in_xla(module: Module, inputs: dict[str, Array]) -> tuple[Module, dict[str, Array]]:
    """The least program that XLA gets wrong here; the given one where it cannot be tried, or XLA gets it right."""
    from deepx_graph.session.diagnose.predicates import How, predicate
    from deepx_graph.session.diagnose.reduction import reduce_program

    try:
        found = reduce_program(module, inputs, predicate("wrong-in-xla", How()))
    except DeepxGraphError as e:
        why = "; ".join(said for d in e.diagnostics for said in (d.message, *d.notes))
        say(f"note: it is not made smaller: {printable(why)}")
        return module, inputs
    return found.module, found.inputs


def add_reduce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--while", dest="criterion", choices=CRITERIA, required=True, help="what is to stay true of the program")
    parser.add_argument("-p", "--pass-pipeline", default="default", metavar="PIPELINE", help="how it is optimised (default)")
    parser.add_argument("--engine", default="auto", metavar="NAME", help="what runs it (auto)")
    parser.add_argument("--slower-than", type=seconds, default=1.0, metavar="N", help="with slow: seconds of processor time (1)")
    parser.add_argument("--inputs", metavar="FILE.npz",
                        help="inputs by name, or in order as arr_0, arr_1, ...; random ones, from --seed, where left out")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of random inputs")
    parser.add_argument("--seconds", type=seconds, default=60.0, metavar="N", help="for how long smaller programs are tried (60)")
    parser.add_argument("-o", "--output", default="reduced", metavar="PREFIX",
                        help="PREFIX.hlo, or as read, and PREFIX.npz (reduced)")
    parser.add_argument("--check", action="store_true", help="reduce nothing: exit code 0 where it is true, 1 where not")


def run_reduce(args: Arguments) -> int:
    from deepx_graph.runtime.inputs import input_ports
    from deepx_graph.session.diagnose.predicates import How, predicate
    from deepx_graph.session.diagnose.reduction import reduce_program
    from deepx_graph.session.inputs import arrays_for, random_inputs

    module = read_program(args).module
    given = arrays_for(module, args.inputs) if args.inputs else random_inputs(input_ports(module.entry), args.seed)
    holds = predicate(args.criterion, How(args.pass_pipeline, args.engine, args.slower_than))
    if args.check:
        return 0 if holds(module, given) else 1
    found = reduce_program(module, given, holds, seconds=args.seconds)
    path, inputs = _written(found.module, found.inputs, args.output)
    repeat = ["reduce", path, "--while", args.criterion, "-p", args.pass_pipeline, "--engine", args.engine, "--inputs", inputs,
              "--slower-than", str(args.slower_than), *_plugins(args), "--check"]  # fmt: skip
    _check_again(repeat)
    if args.criterion == "crash":
        _keep_crash(args, path, inputs)
    if args.json:
        emit_report("reduce", {"operations": [found.before, found.after], "tried": found.tried, "program": path, "inputs": inputs})
    else:
        emit(f"{found.before} operations -> {found.after}, {found.tried} programs tried\n", None)
    say(f"{printable(path)}, inputs {printable(inputs)}; again: deepx-graph {printable(' '.join(repeat))}")
    return 0


def _plugins(args: Arguments) -> list[str]:
    """The plugins of a command, for another one."""
    return [word for file in args.plugin for word in ("--plugin", file)]


def _keep_crash(args: Arguments, path: str, inputs: str) -> None:
    """Writes the crash as a file that replays, where a plain run ends in it."""
    from deepx_graph.session.diagnose.reproducer import recorded, replay

    command = ["run", path, "-p", args.pass_pipeline, "--engine", args.engine, "--inputs", inputs, *_plugins(args)]
    found = replay(recorded(command, ""), trust=True)
    if not found.crashed:
        say(f"note: a plain run does not end in it: {printable(found.outcome)}")
        return
    recorded(command, found.outcome).write(f"{args.output}.json")
    say(f"{printable(found.outcome)}; again: deepx-graph replay {printable(args.output)}.json")


def add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.json", help="what an internal error, or reduce --while crash, has written")
    parser.add_argument("--seconds", type=seconds, default=600.0, metavar="N", help="how long it may take (600)")
    parser.add_argument("--trust", action="store_true",
                        help="also run code that it brings along (--plugin, a program in Python), and reach outside of its folder")


def run_replay(args: Arguments) -> int:
    from deepx_graph.session.diagnose.reproducer import Reproducer, replay
    from deepx_graph.version import __version__

    kept = Reproducer.read(args.file)
    if kept.version != __version__:
        say(f"note: recorded by version {printable(kept.version)}, and this is {__version__}")
    found = replay(kept, args.seconds, args.trust)
    if args.json:
        emit_report("replay", {"recorded": kept.signature, "outcome": found.outcome, "crashed": found.crashed, "same": found.same,
                               "version": kept.version, "arguments": list(kept.arguments)})  # fmt: skip
    else:
        emit("".join(f"{printable(line)}\n" for line in found.lines()), None)
    return 1 if found.crashed else 0


def add_certify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs=2, help="the program as it was read, and as opt has written it")
    parser.add_argument("certificate", metavar="FILE.jsonl", help="what opt --certificate has written")


def run_certify(args: Arguments) -> int:
    from deepx_graph.session.programs import source
    from deepx_graph.validation.certificate import certify

    before, after = (read_program(args, path).module for path in args.files)
    found = certify(before, after, source(args.certificate, reading_options(args)).text.encode())
    if args.json:
        emit_report("certify", found.to_json())
    else:
        emit("".join(f"{line}\n" for line in found.lines()), None)
    return 0 if found.holds else 1


def _check_again(command: Sequence[str]) -> None:
    """Raises RunError where what was written does not show it in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "deepx_graph", *command], env=dict(os.environ), capture_output=True, check=False)
    if done.returncode:
        raise RunError("what was written does not show it in a process of its own")


def _written(module: Module, inputs: Mapping[str, Array], prefix: str) -> tuple[str, str]:
    """The files of a program, in its own language, and of its inputs."""
    from deepx_graph.cli.programs import rendered
    from deepx_graph.session.inputs import write_npz
    from deepx_graph.session.programs import own_format

    form = own_format(module)
    path = f"{prefix}.{'mlir' if form == 'stablehlo' else form}"
    emit(rendered(module, form), path)
    write_npz(f"{prefix}.npz", inputs)
    return path, f"{prefix}.npz"
