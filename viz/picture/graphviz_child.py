"""The program that runs in a child process to lay graphs out: DOT on stdin, one graph after another, the pictures on stdout.

Usage: python graphviz_child.py FORMAT SPEED MEGABYTES SECONDS [PATH OF dot]. It limits its own memory and processor time, then
becomes `dot`, or lays out with the engine bundled in pygraphviz. It imports nothing of this package and opens no file.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

FAST = {"splines": "line", "nslimit": "1", "nslimit1": "1", "mclimit": "0.2"}
"""Graph attributes that give up beauty for speed."""


def limit(megabytes: int, seconds: int) -> None:
    """Bounds for this process and what it becomes, where the system has them."""
    try:
        import resource
    except ImportError:  # Windows: the parent's timeout remains
        return
    for what, amount in ((resource.RLIMIT_AS, megabytes << 20), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        try:
            hard = resource.getrlimit(what)[1]
            resource.setrlimit(what, (amount if hard == resource.RLIM_INFINITY else min(amount, hard), hard))
        except (OSError, ValueError):
            continue


def main(arguments: list[str]) -> int:
    format, speed, megabytes, seconds, *engine = arguments
    limit(int(megabytes), int(seconds))
    fast = FAST if speed == "fast" else {}
    if engine:
        flags = [f"-G{name}={value}" for name, value in fast.items()]
        os.execv(engine[0], [engine[0], f"-T{format}", *flags])
    import pygraphviz

    for text in filter(str.strip, re.split(r"^(?=digraph )", sys.stdin.buffer.read().decode("utf-8"), flags=re.MULTILINE)):
        graph: Any = pygraphviz.AGraph(string=text)  # type: ignore[no-untyped-call]
        graph.graph_attr.update(fast)
        sys.stdout.buffer.write(graph.draw(format=format, prog="dot"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
