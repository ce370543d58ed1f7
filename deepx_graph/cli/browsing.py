"""The command that opens the terminal browser. textual is imported here, when it runs, and nowhere before."""

from __future__ import annotations

import argparse
import gc
import os
import select
import signal
import sys
import threading

from deepx_graph.cli.options import Arguments, add_reading, say
from deepx_graph.errors import UsageError


def add_tui(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the program to look at")
    parser.add_argument("other", nargs="?", help="another, from which it differs: opens the view of differences")
    parser.set_defaults(quiet=True)  # the whole terminal is its own
    parser.add_argument("--theme", metavar="NAME", help="the colours to start with")
    add_reading(parser)


def run_tui(args: Arguments) -> int:
    if "-" in (args.file, args.other):
        raise UsageError("the browser needs a file: the terminal is for the keys")
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise UsageError("the browser needs a terminal; info, draw and opt work without one")
    sys.setswitchinterval(0.001)  # the thread of the keys waits less for those that work
    gc.disable()  # until the program is there: millions of objects are made, none of them in a cycle
    from deepx_graph.session.session import Session
    from deepx_graph.text import ReadOptions
    from deepx_graph.tui.app import Browser

    limit = {"max_nodes": args.max_nodes} if args.max_nodes is not None else {}
    options = ReadOptions(broadcast=args.broadcast, weights=args.weights, **limit)

    def open_session() -> Session:
        session = Session.open(args.file, args.format, options, check=False)
        if args.entry:
            session.versions[0] = type(session.version)(session.module.with_entry(args.entry), "loaded")
        return session

    app = Browser(open_session, args.file, theme=args.theme, against=args.other)
    threading.Thread(target=_end_with_terminal, args=(sys.stdin.fileno(),), daemon=True).start()
    app.run()
    if app.failed is not None:
        say(str(app.failed))
        return app.failed.exit_code
    return app.return_code or 0


def _end_with_terminal(terminal: int) -> None:
    """Waits, without work, for the terminal to vanish; then ends the process as the hang-up of its own terminal would.

    A terminal that is not the process's controlling one sends no signal, and textual would read its end for ever.
    """
    if hasattr(select, "poll"):
        hangup = select.poll()
        hangup.register(terminal, 0)
        if any(mask & select.POLLHUP for _, mask in hangup.poll()):
            os.kill(os.getpid(), signal.SIGHUP)
