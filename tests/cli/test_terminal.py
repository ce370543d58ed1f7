"""What a terminal is sent: nothing from a file can move its cursor, and a line that says what takes so long."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from deepx_graph.cli import main as cli
from deepx_graph.cli import output
from deepx_graph.cli.output import StatusLine
from deepx_graph.errors import printable_lines
from deepx_graph.progress import StageProgress, listening
from tests.support.cli_runner import Run

HOSTILE = """HloModule m
ENTRY e {
  p = f32[4]{0} parameter(0), metadata={source_file="\u202eevil\u2066.py" source_line=3}
  ROOT c = f32[4]{0} custom-call(p), custom_call_target="\x1b]0;title\x07\x1b[31m\u200b"
}
"""
UNSAFE = "\x1b\x07\u202e\u2066\u200b"


def on_terminal(*arguments: str) -> tuple[str, str]:
    """What a command writes to a terminal that is its standard output, and one that is its standard error."""
    ends = [pty.openpty() for _ in range(2)]
    child = subprocess.Popen([sys.executable, "-m", "deepx_graph", *arguments], stdout=ends[0][1], stderr=ends[1][1])
    for _, slave in ends:
        os.close(slave)
    found = tuple(_drained(master).decode() for master, _ in ends)
    assert child.wait() == 0
    return found[0], found[1]


def _drained(master: int) -> bytes:
    found = b""
    try:
        while data := os.read(master, 1 << 16):
            found += data
    except OSError:  # the other end is closed
        pass
    os.close(master)
    return found


def test_a_terminal_gets_no_control_characters_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hostile.hlo"
    path.write_text(HOSTILE)
    out, err = on_terminal("opt", str(path), "-p", "cse", "--print-ir-before-all", "--color", "never", "--quiet")
    assert "custom-call" in out and "before cse" in err
    assert r"\x1b]0;title\x07" in out and r"\u202eevil\u2066" in out
    assert not set(UNSAFE) & set(out + err)


def test_files_and_pipes_get_the_text_as_it_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "hostile.hlo"
    path.write_text(HOSTILE)
    assert run("opt", str(path), "-p", "none", "-o", str(tmp_path / "o.hlo")).code == 0
    assert set(UNSAFE) <= set(run("opt", str(path), "-p", "none").out)
    assert set(UNSAFE) <= set((tmp_path / "o.hlo").read_text())


@pytest.mark.parametrize(("text", "shown"), [
    ("a\tb\nc\r\n", "a\tb\nc\\r\n"), ("\x1b[31m", "\\x1b[31m"), ("é λ 图", "é λ 图"), ("", ""), ("\n\n", "\n\n"),
])
def test_lines_keep_their_ends_and_tabs(text: str, shown: str) -> None:
    assert printable_lines(text) == shown
    assert printable_lines(shown) == shown


# --- signs of life


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_comes_after_a_second_and_goes() -> None:
    terminal = Terminal()
    line = StatusLine(terminal)
    line.heard(StageProgress("simp\x1blify", 8, 10))
    line.update(0.9)
    line.hide()
    assert terminal.getvalue() == ""
    line.update(3.2)
    assert terminal.getvalue() == "\r\x1b[2Ksimp\\x1blify 8/10, 3 s\r"
    line.hide()
    assert terminal.getvalue().endswith("s\r\r\x1b[2K")
    before = terminal.getvalue()
    line.hide()
    assert terminal.getvalue() == before


@pytest.mark.parametrize(("arguments", "stages"), [
    (("opt",), {"read", "verify", "simplify", "fuse", "write"}), (("info",), {"read", "fuse", "count", "kernels"}),
    (("check-grad", "--samples", "1"), {"read", "sample 1, differences"}), (("draw", "-o", "OUT.svg"), {"read", "draw", "layout"}),
    (("run", "--random-inputs", "--repeat", "3"), {"read", "compile and run", "run"}),
])
def test_every_slow_command_says_what_it_does(run: Run, sea: str, tmp_path: Path, arguments: tuple[str, ...],
                                              stages: set[str]) -> None:
    command, *rest = arguments
    seen: list[StageProgress] = []
    with listening(seen.append):
        assert run(command, sea, *(a.replace("OUT", str(tmp_path / "o")) for a in rest)).code == 0
    assert stages <= {s.name for s in seen}
    assert all(0 <= s.done < max(s.total, 1) for s in seen)


@pytest.mark.parametrize(("arguments", "shown"), [((), True), (("--quiet",), False)])
def test_what_is_said_takes_the_line_away_first(run: Run, sea: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...],
                                                shown: bool) -> None:
    terminal = Terminal()

    def slow(args: object) -> int:
        if output._line is not None:
            output._line.update(2)
        output.say("note: here")
        if output._line is not None:
            output._line.update(3)
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "PERIOD", 3600)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setitem(cli.COMMANDS, "info", cli.COMMANDS["info"]._replace(run=slow))
    assert cli.main(["info", sea, "--color", "never", *arguments]) == 130
    line = "\r\x1b[2Kstart, {} s\r\r\x1b[2K" if shown else ""
    assert terminal.getvalue() == f"{line.format(2)}note: here\n{line.format(3)}interrupted\n"
