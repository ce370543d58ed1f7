"""The commands that show a program: `draw` in a file, `tui` in the terminal."""

from __future__ import annotations

import argparse
import gc
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepx_graph.cli.options import (
    PICTURES,
    Arguments,
    add_part,
    chosen_part,
    count,
    natural,
    read_program,
    reading_options,
    seconds,
    watch,
)
from deepx_graph.cli.output import emit, emit_report, say, say_notes
from deepx_graph.cli.schemas import report
from deepx_graph.cycles import no_collection
from deepx_graph.errors import Diagnostic, UsageError, suggest

if TYPE_CHECKING:
    from deepx_graph.ir import Module
    from deepx_graph.session.programs import Loaded
    from deepx_graph.session.session import Session
    from deepx_graph.viz.draw import Drawing




def add_draw(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE",
                        help="the program; - or nothing reads standard input; several stand side by side in an HTML page")
    parser.add_argument("-o", "--output", metavar="OUT.svg",
                        help="the picture: .dot, .svg, .png, .html; or - with --as")
    parser.add_argument("--as", dest="form", choices=PICTURES, help="the form, where the file's name does not say it")
    parser.add_argument("--stage", metavar="STAGE",
                        help="input (default), output (after the pipeline; default with --profile), grad, or the name of a pass: "
                             "the module after it")
    parser.add_argument("--function", metavar="FUNCTION", help="only this function")
    parser.add_argument("--around", metavar="NODE", help="only what is near a node: its name, or #number")
    parser.add_argument("--depth", type=natural, default=2, metavar="N", help="how near: steps along edges (default 2)")
    parser.add_argument("--max-visible", type=count, metavar="N",
                        help="fold above so many boxes (default: 40)")
    parser.add_argument("--sideways", action="store_true", help="draw from left to right")
    parser.add_argument("--open", action="store_true", help="show the picture in a browser; without -o a temporary page")
    parser.add_argument("--theme", choices=("light", "dark"), help="default: light; an HTML page follows the reader's system")
    parser.add_argument("--timeline", action="store_true", help="HTML: every stage of the pipeline, with a slider")
    parser.add_argument("--overlay", metavar="NAME",
                        help="colour boxes by bytes, moved (bytes read and written) or flops; by time, error, nonfinite, apart or "
                             "sharding where an option below makes them known, which is then the default")
    parser.add_argument("--profile", action="store_true",
                        help="run it several times on generated inputs; show kernels as boxes, with the median time of each")
    parser.add_argument("--profile-from", metavar="FILE.json",
                        help="the times in a trace of onnxruntime, XLA or PyTorch, over the program as it was read")
    parser.add_argument("--fusion", action="store_true",
                        help="the fused program, with what its kernels would save if they were joined, and why they are not")
    add_overlays(parser)
    add_part(parser, "--where", "only the nodes that a query asks for, such as 'op:dot_general users>1'")
    parser.add_argument("--collapse", action="store_true", help="draw fused kernels as one box")
    parser.add_argument("--timeout", type=seconds, default=20.0, metavar="S",
                        help="seconds for a layout by Graphviz (default 20)")
    parser.add_argument("--layout", choices=("layered", "graphviz"), default="layered",
                        help="who lays out an SVG: deepx_graph (layered, the default) or Graphviz")


@no_collection()  # a fifth of the time of a large page
def run_draw(args: Arguments) -> int:
    if not args.output and not args.open:
        raise UsageError(Diagnostic("no file to draw to", expected="-o NAME.svg, .html, .png or .dot; or --open"))
    args.output = args.output or _temporary(args.form or "html")
    to_stdout = args.output == "-"
    if to_stdout and args.open:
        raise UsageError("a picture on standard output cannot be opened")
    if to_stdout and not args.form:
        raise UsageError("a picture on standard output needs --as dot, svg, png or html")
    is_page = (args.form or args.output.rpartition(".")[2].lower()) == "html"
    if not is_page and (len(args.files) > 1 or args.timeline):
        raise UsageError(Diagnostic("several programs and --timeline need a page", expected="-o NAME.html",
                                    hint="deepx-graph diff A B -o NAME.svg draws two as one picture"))  # fmt: skip
    drawn = _page(args) if is_page else _picture(args)
    emit(drawn.data, args.output)
    if args.json:
        facts = {"file": args.output, "form": args.form or args.output.rpartition(".")[2].lower(), "bytes": len(drawn.data),
                  "notes": list(drawn.notes)}  # fmt: skip
        say(json.dumps(report("draw", facts))) if to_stdout else emit_report("draw", facts)
    else:
        say_notes(drawn)
    if args.open:
        import webbrowser

        if not webbrowser.open(Path(args.output).resolve().as_uri()):
            say(f"note: no browser was found; the picture is {args.output}")
    return 0


def add_overlays(parser: argparse.ArgumentParser) -> None:
    """The options that lay something over a program."""
    parser.add_argument("--explain-error", action="store_true",
                        help="what the rounding of each operation adds to the error of the outputs")
    parser.add_argument("--explain-nan", action="store_true",
                        help="which operations make the NaN and infinities of outputs")
    parser.add_argument("--inputs", metavar="FILE.npz", help="of these two: inputs by name; others are generated")
    parser.add_argument("--plan", metavar="FILE.plan",
                        help="how values lie on the mesh of a plan; stated: as the text says")


def overlaid(args: Arguments) -> Callable[[Module], Session]:
    """What makes a session of a program, with what the options lay over it. Raises UsageError for two at once."""
    from deepx_graph.session.session import Session

    if args.explain_error + args.explain_nan + bool(args.plan) > 1:
        raise UsageError("one of --explain-error, --explain-nan and --plan at a time")
    if args.inputs and not args.explain_error and not args.explain_nan:
        raise UsageError("--inputs is for --explain-error and --explain-nan")
    if not args.explain_error and not args.explain_nan and not args.plan:
        return Session
    from deepx_graph.session.inputs import arrays_for
    from deepx_graph.session.show.overlays import not_finite, rounded, split

    if args.plan:
        return lambda module: split(module, args.plan)

    def observed(module: Module) -> Session:
        given = arrays_for(module, args.inputs) if args.inputs else {}
        return (rounded if args.explain_error else not_finite)(module, given)

    return observed


def _temporary(form: str) -> str:
    """A name for a picture that is only to be looked at; what reads it may outlive this program, so it stays."""
    import tempfile

    return str(Path(tempfile.mkdtemp(prefix="deepx_graph-")) / f"picture.{form}")


def _options(args: Arguments, module: Module) -> dict[str, Any]:
    part = chosen_part(args, args.where, args.function)
    return {"function": args.function, "around": args.around, "depth": args.depth, "max_nodes": args.max_visible,
            "collapse": args.collapse or args.profile or args.fusion,
            "keep": part.addresses(module) if part else None, "sideways": args.sideways}  # fmt: skip


def _picture(args: Arguments) -> Drawing:
    (session,) = _sessions(args, args.files or ["-"])
    from deepx_graph.session.show.picture import picture

    return picture(session, None if args.form else args.output, format=args.form or args.output.rpartition(".")[2].lower(),
                   theme=args.theme or "light", timeout=args.timeout, layout=args.layout, overlay=args.overlay,
                   **_options(args, session.module))  # fmt: skip


def _page(args: Arguments) -> Drawing:
    from deepx_graph.session.plans import stated_values
    from deepx_graph.session.show.explore import PageOptions, explore, explore_stages, stages_of
    from deepx_graph.session.show.overlays import SHARDING

    files = args.files or ["-"]
    if args.timeline:
        if len(files) > 1 or args.profile or args.fusion or _explained(args):
            raise UsageError("a timeline is of one program, without --profile, --fusion and what is explained")
        module = _stage(args, read_program(args, *files).module)
        choice = PageOptions(**_options(args, module) | {"keep": None}, theme=args.theme or "auto", overlay=args.overlay)
        return explore_stages(stages_of(module, args.pass_pipeline, fast_math=args.fast_math), choice, title=files[0])
    sessions = _sessions(args, files)
    for session in sessions:
        session.shardings = session.shardings or stated_values(session.module)
    overlay = args.overlay or (SHARDING if args.plan else None)
    choice = PageOptions(**_options(args, sessions[0].module), theme=args.theme or "auto", overlay=overlay)
    named = [(file if len(files) > 1 else "", session) for file, session in zip(files, sessions, strict=True)]
    return explore(named, choice, title=" and ".join(files))


def _explained(args: Arguments) -> bool:
    return bool(args.explain_error or args.explain_nan or args.plan)


def _sessions(args: Arguments, files: list[str]) -> list[Session]:
    """The programs, with what the options lay over them."""
    from deepx_graph.session.show.explore import fused, measured

    if args.fusion and (args.profile or args.stage):
        raise UsageError("--fusion shows a stage of its own, without --profile and --stage")
    if _explained(args) and (args.fusion or args.profile or args.profile_from):
        raise UsageError("--explain-error, --explain-nan and --plan show a program of their own, without profiles and --fusion")
    modules = [_stage(args, read_program(args, file).module) for file in files]
    if args.profile_from:
        sessions = [_measured_elsewhere(args, m) for m in modules]
    else:
        look = measured if args.profile else fused if args.fusion else overlaid(args)
        sessions = [look(m) for m in modules]
    for file, session in zip(files, sessions, strict=True):
        if session.result is not None:
            runs = session.result.runs
            say(f"note: {file}: times are " + (f"medians of {runs} runs, the first left out" if runs > 1 else
                                               "those of the first run, which is slower than others"))
    return sessions


def _measured_elsewhere(args: Arguments, module: Module) -> Session:
    """A session that knows the times of a trace."""
    from deepx_graph.session.profile_files import laid_over, read_profile
    from deepx_graph.session.session import Session

    found = laid_over(read_profile(args.profile_from), module)
    say(f"note: {args.profile_from}: {found.matched:.0%} of the time of {found.runtime} was found in the program")
    session = Session(module)
    session.measured = found.measured
    return session


def _stage(args: Arguments, module: Module) -> Module:
    """The module that --stage names; to be measured, that which would be run."""
    from deepx_graph.session import programs

    args.stage = args.stage or ("output" if args.profile else "input")
    if args.stage == "input":
        return module
    if args.stage == "grad":
        return programs.optimise(programs.gradient(module), "clean", watch(args)).module
    watching = watch(args)
    watching.record = True
    done = programs.optimise(module, args.pass_pipeline, watching)
    if args.stage == "output" or done.record is None:
        return done.module
    stages = {s.pass_.name: s.module for s in done.record.stages}
    if args.stage not in stages:
        known = ["input", "output", "grad", *stages]
        raise UsageError(Diagnostic(f"no stage '{args.stage}'", expected=", ".join(known), hint=suggest(args.stage, known)))
    return stages[args.stage]


def add_tui(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the program to look at; - reads standard input")
    parser.add_argument("other", metavar="FILE2", nargs="?",
                        help="another, which stands beside it with the partner of the selected node")
    parser.set_defaults(quiet=True)  # the whole terminal is its own
    parser.add_argument("--theme", metavar="THEME", help="the colours to start with")
    parser.add_argument("--resume", action="store_true", help="go on where the browser of this file was left")
    add_overlays(parser)


def run_tui(args: Arguments) -> int:
    if args.other == "-":
        raise UsageError("the second program is to be a file")
    streams = (sys.stdout,) if args.file == "-" else (sys.stdin, sys.stdout)
    if not all(stream is not None and stream.isatty() for stream in streams):
        raise UsageError("the browser needs a terminal; info, draw and opt work without one")
    look = overlaid(args)
    piped = _from_pipe(args) if args.file == "-" else None
    sys.setswitchinterval(0.001)  # the thread of the keys waits less for those that work
    gc.disable()  # until the program is there: millions of objects are made, none of them in a cycle
    from deepx_graph.interop import python_file
    from deepx_graph.session.session import Session
    from deepx_graph.tui.app import Browser
    from deepx_graph.tui.resume import saved

    def open_session() -> Session:
        if piped is not None:
            laid = look(piped.module)
            laid.path, laid.warnings = args.file, tuple(piped.warnings)
            return laid
        what, reading = python_file.named(args.file), reading_options(args)
        session = (Session.open(args.file, args.format, reading, check=False) if what is None else
                   Session(python_file.load_named(what, reading).module, path=args.file))
        if args.entry:
            session.versions[0] = type(session.version)(session.module.with_entry(args.entry), "loaded")
        if args.explain_error or args.explain_nan or args.plan:
            laid = look(session.module)
            laid.path, laid.warnings = session.path, session.warnings
            return laid
        return session

    state = saved(args.file) if args.resume and piped is None else None
    app = Browser(open_session, args.file, theme=args.theme, against=args.other, state=state)
    threading.Thread(target=_end_with_terminal, args=(sys.stdin.fileno(),), daemon=True).start()
    app.run()
    if app.failed is not None:
        say(str(app.failed))
        return app.failed.exit_code
    return app.return_code or 0


def _from_pipe(args: Arguments) -> Loaded:
    """The program on standard input, of which the terminal takes the place. Raises UsageError where there is none."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(Diagnostic("there is no program on standard input", hint="deepx-graph opt FILE | deepx-graph tui -"))
    found = read_program(args)
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        raise UsageError("the browser needs a terminal; info, draw and opt work without one") from None
    os.dup2(terminal, sys.stdin.fileno())
    os.close(terminal)
    return found


def _end_with_terminal(terminal: int) -> None:
    """Waits, without work, for the terminal to vanish; then ends the process as the hang-up of its own terminal would.

    A terminal that is not the process's controlling one sends no signal, and textual would read its end for ever.
    """
    if hasattr(select, "poll"):
        hangup = select.poll()
        hangup.register(terminal, 0)
        if any(mask & select.POLLHUP for _, mask in hangup.poll()):
            os.kill(os.getpid(), signal.SIGHUP)
