"""Commands that are ended from outside: real processes, which leave neither files nor children behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.cli_runner import SEA

CODES = pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["term", "int"])
WORDS = {143: b"terminated\n", 130: b"interrupted\n"}


def started(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A process in the folder that ignores no signal, whatever its parent ignores."""

    def usual() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            preexec_fn=usual, env=os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143),
                                              pytest.param(signal.SIGINT, 130, marks=pytest.mark.conformance)])
def test_a_layout_that_is_ended_leaves_no_child(tmp_path: Path, number: int, code: int) -> None:
    engine = tmp_path / "dot"  # one that is never done, and holds a pipe open while it lives
    engine.write_text("#!/bin/sh\nexec 3>held\necho begun >&3\nexec sleep 1000\n")
    engine.chmod(0o755)
    os.mkfifo(tmp_path / "held")
    (tmp_path / "p.sea").write_text(SEA)
    with open(os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as held:
        command = started(tmp_path, "-m", "deepx_graph", "draw", "p.sea", "-o", "o.svg", "--layout", "graphviz",
                          "--timeout", "1000")
        while not held.read():
            assert command.poll() is None
            time.sleep(0.02)
        command.send_signal(number)
        _, said = command.communicate()
        assert (command.returncode, said) == (code, WORDS[code])
        assert select.select([held], [], [], 60)[0]  # the pipe has ended: nobody holds it
        assert held.read() == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dot", "held", "p.sea"]


HALF = """
import sys, time
from deepx_graph.cli import main
from deepx_graph.files import replacing

def ended(args):
    with replacing("out.sea") as stream:
        stream.write(b"half")
        stream.flush()
        print("begun", flush=True)
        time.sleep(1000)

main.COMMANDS["ops"] = main.COMMANDS["ops"]._replace(run=ended)
sys.exit(main.main(["ops"]))
"""


@CODES
def test_a_file_that_is_being_written_is_taken_away(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "out.sea").write_text("old")
    command = started(tmp_path, "-c", HALF)
    assert command.stdout is not None
    assert command.stdout.readline() == b"begun\n"
    assert len(list(tmp_path.iterdir())) == 2
    command.send_signal(number)
    _, said = command.communicate()
    assert (command.returncode, said) == (code, WORDS[code])
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out.sea", "old")]


IMPORTED = """
import os, runpy, signal, sys

class Interrupted:
    def find_spec(name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted)
sys.argv = ["deepx-graph", "ops"]
runpy.run_module("deepx_graph", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["deepx_graph.cli.main", "deepx_graph.errors", "deepx_graph.ops.math.bits"])
def test_a_command_that_is_interrupted_while_it_is_imported_has_no_traceback(tmp_path: Path, module: str) -> None:
    command = started(tmp_path, "-c", f"MODULE = {module!r}\n{IMPORTED}")
    _, said = command.communicate()
    assert (command.returncode, said) == (130, WORDS[130])
