"""What commands share: an argument parser that suggests, groups of options, and reading a program.

Only light modules are imported here: `--help` must not pay for numpy.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from deepx_graph.cli.output import say
from deepx_graph.errors import Diagnostic, UsageError, printable, suggest
from deepx_graph.runtime.native import WIDTHS

if TYPE_CHECKING:
    from deepx_graph.session.programs import Loaded
    from deepx_graph.session.query.selection import Subgraph
    from deepx_graph.text import ReadOptions

Arguments = argparse.Namespace
AddOptions = Callable[[argparse.ArgumentParser], None]

PICTURES = ("dot", "svg", "png", "html")
"""The forms of pictures."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints name the nearest word, and which exits with 2."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As inherited, but what a command does not know is the complaint of that command, which knows the nearest word."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self.commands.get(found.command, self).error(f"unrecognized arguments: {' '.join(rest)}")
        return found

    @property
    def commands(self) -> dict[str, argparse.ArgumentParser]:
        """The parsers of commands, by name."""
        return {name: p for a in self._actions if isinstance(a, argparse._SubParsersAction) for name, p in a.choices.items()}

    def error(self, message: str) -> NoReturn:
        hint = None
        if "invalid choice: " in message:
            wrong = message.split("invalid choice: ")[1].split(" (")[0].strip("'")
            known = message.split("choose from ")[-1].rstrip(")").replace("'", "").split(", ")
            hint = suggest(wrong, known)
        elif "unrecognized arguments: " in message:
            wrong = message.split("unrecognized arguments: ")[1].split()[0].split("=")[0]
            hint = suggest(wrong, [o for a in self._actions for o in a.option_strings])
        raise UsageError(Diagnostic(f"{self.prog}: {message}", hint=hint or f"{self.prog} --help lists them"))


def add_input(parser: argparse.ArgumentParser) -> None:
    """A program to read."""
    parser.add_argument("file", metavar="FILE", nargs="?", default="-",
                        help="the program; - or nothing reads standard input; FILE.py:FUNCTION runs your file")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How programs are read."""
    group = parser.add_argument_group("reading")
    group.add_argument("--format", metavar="FORMAT",
                       help="deepx, hlo, stablehlo, relay, mindir, onnx, onnxtxt, torch, anf or sea; by content when left out")
    group.add_argument("--broadcast", action="store_true", help="broadcast elementwise operands as numpy does; deepx does not")
    group.add_argument("--allow-unregistered", action="store_true",
                       help="keep operations that StableHLO does not have as they stand; without it they are errors")
    group.add_argument("--weights", choices=("constants", "inputs"), default="constants",
                       help="what the weights that a file holds become")
    group.add_argument("--entry", metavar="FUNCTION", help="the function to enter")
    group.add_argument("--data-root", metavar="DIR", help="the folder that load and save may touch; without it they touch nothing")
    group.add_argument("--max-nodes", type=count, metavar="N", help="refuse programs of more operations")
    group.add_argument("--max-file-bytes", type=size, metavar="N", help="refuse larger files (default: 256M)")


def add_pipeline(parser: argparse.ArgumentParser, default: str = "default") -> None:
    """Which passes run, and what to see of them."""
    group = parser.add_argument_group("passes")
    group.add_argument("-p", "--pass-pipeline", default=default, metavar="PIPELINE",
                       help=f"passes with options, such as 'cse,fuse{{max-ops=64}}', or a named pipeline (default: {default})")
    group.add_argument("--fast-math", action="store_true", help="allow rewrites that change floating-point results slightly")
    group.add_argument("--rewrite-limit", type=natural, metavar="N", help="apply only the first N rewrites")
    group.add_argument("--verify-each", "--verify-each=structure", dest="verify_each", action="store_const", const="structure",
                       default="structure", help="verify after every pass (the default)")
    group.add_argument("--verify-each=values", dest="verify_each", action="store_const", const="values",
                       help="check every rewrite by values, too")
    group.add_argument("--no-verify-each", "--verify-each=0", dest="verify_each", action="store_const", const="", help="do not")
    group.add_argument("--print-ir-before", action="append", default=[], metavar="PASS,...", help="print the module before passes")
    group.add_argument("--print-ir-after", action="append", default=[], metavar="PASS,...", help="print the module after passes")
    group.add_argument("--print-ir-before-all", action="store_true", help="print the module before every pass")
    group.add_argument("--print-ir-after-all", action="store_true", help="print the module after every pass")
    group.add_argument("--print-ir-after-change", action="store_true", help="print the module after passes that changed it")
    group.add_argument("--print-ir-tree-dir", metavar="DIR",
                       help="what is printed goes to numbered files of this folder: 003_after_cse.sea; after every pass by default")


def add_running(parser: argparse.ArgumentParser) -> None:
    """How programs run."""
    group = parser.add_argument_group("running")
    group.add_argument("--input", action="append", default=[], metavar="INPUT=FILE.npy",
                       help="an input: from a file, or generated, by a type or a few words: f32[8,128], zeros, 'ones f32[8]'")
    group.add_argument("--cast", action="store_true", help="convert the elements of inputs to the type that the program takes")
    group.add_argument("--inputs", metavar="FILE.npz",
                       help="inputs from an archive, by name, or in order where numpy.savez had no names (arr_0, arr_1, ...)")
    group.add_argument("--random-inputs", action="store_true", help="generate inputs that are not given, from --seed")
    group.add_argument("--replicas", type=int, metavar="N",
                       help="run on N devices at once (as many as HLO says whose devices meet); inputs may be NAME@0, NAME@1, ...")
    group.add_argument("--partitions", type=int, metavar="P", help="of P partitions each")
    add_split(group)
    group.add_argument("--on", type=place, default="lockstep", metavar="PLACE",
                       help="where the devices run: lockstep (in this process), mpi (one in each process), dask:tcp://HOST:PORT")
    group.add_argument("--patience", type=seconds, metavar="SECONDS",
                       help="over processes: end with an error when a device waits longer for the others (600)")
    group.add_argument("--deterministic", action="store_true",
                       help="the same bits for any number of threads, and with mpi as in lockstep")
    group.add_argument("--checkpoint", metavar="DIR",
                       help="save the variables of the training loop there, and go on from what is saved")
    group.add_argument("--checkpoint-every", type=count, metavar="N", help="after every N iterations (100)")
    group.add_argument("--infeed", metavar="FILE.npz", help="what the program's infeed takes, in the order of the archive")
    group.add_argument("--outfeed", metavar="FILE.npz", help="where what the program puts out goes")
    add_engine(group)
    group.add_argument("--seed", type=natural, default=0, metavar="N", help="what unseeded random numbers start from")
    group.add_argument("--max-bytes", type=size, metavar="N", help="refuse to use more memory: bytes, or with K, M, G")


def add_split(group: argparse._ActionsContainer, **mesh: Any) -> None:
    """How a program is split over devices; `mesh` is what is special of that option. `meshes.plan_asked` reads both."""
    group.add_argument("--plan", metavar="FILE.plan",
                       help="split the program over a mesh as the file says, or, for 'stated', as its text does")
    group.add_argument("--mesh", metavar="AXIS=N,...", **mesh,
                       help="the mesh, such as data=4,model=2; without --plan what the text states for it counts, or one is chosen")


def add_engine(group: argparse._ActionsContainer) -> None:
    """What runs it."""
    group.add_argument("--engine", default="auto", metavar="ENGINE", help="numexpr, native, numpy (the reference) or auto")
    group.add_argument("--threads", type=int, metavar="N", help="how many threads")
    group.add_argument("--vector-bits", type=int, choices=WIDTHS, help="width of the vectors of machine code (the widest)")


def add_part(parser: argparse.ArgumentParser, query: str, summary: str) -> None:
    """A part of the program: by a query, and by the ends of a way."""
    parser.add_argument(query, metavar="QUERY", help=summary)
    parser.add_argument("--from", dest="from_node", metavar="NODE", help="only what depends on this node: its name, or #number")
    parser.add_argument("--to", dest="to_node", metavar="NODE", help="only what this node depends on")


def chosen_part(args: Arguments, query: str | None, function: str | None = None) -> Subgraph:
    """The part that the options choose; false when they choose none."""
    from deepx_graph.session.query.selection import Subgraph

    return Subgraph(query, args.from_node, args.to_node, function)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def place(text: str) -> str:
    """Where devices run. Raises ArgumentTypeError."""
    from deepx_graph.session.cluster.launch import checked_place

    try:
        return checked_place(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def size(text: str) -> int:
    """A number of bytes: `4096`, `512M`, `2G`. Raises ArgumentTypeError."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor > 1 else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of bytes")
    return int(digits) * factor


def natural(text: str) -> int:
    """A whole number from 0. Raises ArgumentTypeError."""
    return _whole(text, 0)


def count(text: str) -> int:
    """A whole number from 1. Raises ArgumentTypeError."""
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least {least}")
    return int(text)


def seconds(text: str) -> float:
    """A time from 0. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def percent(text: str) -> float:
    """A number of percent from 0, with or without its sign. Raises ArgumentTypeError."""
    try:
        return seconds(text.removesuffix("%"))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of percent") from None


def named_values(items: Iterable[str], expected: str) -> dict[str, str]:
    """What `NAME=VALUE` gives to each name. Raises UsageError, with what is expected, for an item without a name."""
    pairs = [item.partition("=") for item in items]
    for name, equal, _ in pairs:
        if not equal:
            raise UsageError(Diagnostic(f"--input {printable(name)}", expected=expected))
    return {name: value for name, _, value in pairs}


def reading_options(args: Arguments) -> ReadOptions:
    """How the program is to be read."""
    from pathlib import Path

    from deepx_graph.text import ReadOptions

    bounds = {name: bound for name in ("max_nodes", "max_file_bytes") if (bound := getattr(args, name)) is not None}
    root = Path(args.data_root) if args.data_root else None
    return ReadOptions(args.broadcast, args.weights, data_root=root, unregistered=args.allow_unregistered, **bounds)


def read_program(args: Arguments, file: str | None = None, operators: str = "lowered") -> Loaded:
    """The program a command is about, its warnings written to standard error. `FILE.py:NAME` runs that file; `operators` are
    those of ReadOptions.
    """
    from deepx_graph.interop import python_file
    from deepx_graph.session import programs

    path = file if file is not None else args.file
    if path == programs.STDIN and sys.stdin is not None and sys.stdin.isatty():
        say("note: reading the program from standard input; Ctrl-D ends it")
    what = python_file.named(path)
    options = dataclasses.replace(reading_options(args), operators=operators)
    loaded = programs.load(path, args.format, options) if what is None else python_file.load_named(what, options)
    for warning in loaded.warnings:
        say(warning.render())
    if args.entry:
        return programs.Loaded(loaded.module.with_entry(args.entry), loaded.warnings)
    return loaded


def watch(args: Arguments) -> Any:
    """What the pass options ask to see."""
    from deepx_graph.session.programs import Watch

    said = args.print_ir_before or args.print_ir_after or args.print_ir_before_all
    unsaid = args.print_ir_tree_dir is not None and not said
    return Watch(
        verify=bool(args.verify_each), values=args.verify_each == "values",
        rewrite_limit=args.rewrite_limit, fast_math=args.fast_math,
        before=None if args.print_ir_before_all else _names(args.print_ir_before),
        after=None if args.print_ir_after_all or args.print_ir_after_change or unsaid else _names(args.print_ir_after),
        changed_only=args.print_ir_after_change, write=_Folder(args.print_ir_tree_dir) if args.print_ir_tree_dir else say,
    )  # fmt: skip


class _Folder:
    """Writes each text, whose first line tells a moment and a pass, to a file that is named by them."""

    def __init__(self, path: str) -> None:
        self.path, self.count = path, 0

    def __call__(self, text: str) -> None:
        from deepx_graph.files import make_folder, write_file

        heading, _, program = text.partition("\n")
        name = "_".join(re.findall(r"[\w-]+", heading.replace("----", "")))
        make_folder(self.path)
        write_file(f"{self.path}/{self.count:03}_{name}.sea", program.encode())
        self.count += 1


def _names(given: list[str]) -> tuple[str, ...]:
    return tuple(name.strip() for item in given for name in item.split(",") if name.strip())
