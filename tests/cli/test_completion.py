"""Completion of commands, options and values, asked for as the scripts do, and by pressing Tab in real shells."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deepx_graph.cli.completion import SCRIPTS, answer
from deepx_graph.cli.main import make_parser
from deepx_graph.cli.words import split_line
from tests.support.cli_runner import BLOCK, SEA, Run

PARSER = make_parser()


def after(line: str, shell: str = "bash") -> list[str]:
    return answer(PARSER, shell, line).splitlines()


@pytest.mark.parametrize(("line", "expected"), [
    ("dxg gr", ["grad"]),
    ("dxg opt --print-ir-after-c", ["--print-ir-after-change"]),
    ("dxg run x --engine nump", ["numpy"]),
    ("dxg run x --engine=nump", ["--engine=numpy"]),
    ("dxg opt --format st", ["stablehlo"]),
    ("dxg opt --emit st", ["stablehlo"]),
    ("dxg opt x -p cse,dc", ["cse,dce"]),
    ("dxg opt x -p 'cse,fuse{max-o", ["cse,fuse{max-ops="]),
    ("dxg opt x --print-ir-after cse,simp", ["cse,simplify"]),
    ("dxg ops dot_g", ["dot_general"]),
    ("dxg schema che", ["check-grad", "check-vjp", "check"]),
    ("dxg check x --budget peak", ["peak_bytes<="]),
    ("dxg draw x --theme d", ["dark"]),
    ("dxg draw x --stage simp", ["simplify"]),
    ("dxg draw x --where op:dot_g", ["op:dot_general"]),
    (f"dxg why {BLOCK} prod", ["products"]),
    (f"dxg why {BLOCK} products weigh", ["weights"]),
    (f"dxg draw {BLOCK} --around prod", ["products"]),
    (f"dxg opt {BLOCK} --entry gel", ["gelu"]),
    (f"dxg grad {BLOCK} --wrt wq,wo", ["wq,wo"]),
    (f"dxg run {BLOCK} --input gain1", ["gain1="]),
    (f"dxg run {BLOCK} --input gain1=a", [":files"]),
    ("dxg info mod", [":files"]),
    ("dxg nosuch", [":files"]),
    ("dxg run x --seed ", []),
    ("dxg why no_such_file.hlo prod", []),
])
def test_what_a_line_may_go_on_with(line: str, expected: list[str]) -> None:
    assert after(line) == expected


def test_meanings_stand_beside_commands_and_options() -> None:
    assert after("dxg gr", "fish") == ["grad\tPrint the gradient program of a program"]
    assert after("dxg run --profile-", "zsh") == []
    assert after("dxg opt --list-p", "zsh") == ["--list-passes\tlist the passes and their options, and do nothing"]


def test_a_python_file_is_not_run_for_a_name(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("raise SystemExit('run')")
    assert after(f"dxg why {tmp_path}/m.py prod") == []


@pytest.mark.parametrize(("line", "words"), [
    ("dxg a b", ["dxg", "a", "b"]), ("dxg a ", ["dxg", "a", ""]), ("dxg 'a b", ["dxg", "a b"]), ('dxg "a', ["dxg", "a"]),
    ("dxg 'a' ", ["dxg", "a", ""]), ("", [""]),
])
def test_a_line_is_split_as_a_shell_does(line: str, words: list[str]) -> None:
    assert split_line(line) == words


def test_the_command_prints_the_scripts_and_answers(run: Run) -> None:
    for shell, script in SCRIPTS.items():
        assert run("completion", shell).out == script
    assert run("completion", "bash", "--line", "dxg gra").out == "grad\n"


# --- real shells


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program, and `dxg` on a path of its own."""
    program = tmp_path / "bin" / "dxg"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -m deepx_graph \"$@\"\n")
    program.chmod(0o755)
    (tmp_path / "program.sea").write_text(SEA.replace("%1", "%product"))
    return tmp_path


def shows(shell: list[str], folder: Path, setup: str, line: str, expected: str) -> bool:
    """Whether a shell on a terminal shows a text after a line and a Tab."""
    env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "PS1": "", "LC_ALL": "C.UTF-8"}
    ours, its = pty.openpty()
    child = subprocess.Popen(shell, stdin=its, stdout=its, stderr=its, cwd=folder, env=env, start_new_session=True)
    os.close(its)
    try:
        os.write(ours, f"{setup}\necho rea''dy\n".encode())
        if not _seen(ours, "ready"):
            return False
        os.write(ours, f"{line}\t".encode())
        return _seen(ours, expected)
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def _seen(terminal: int, word: str) -> bool:
    """Whether a word comes while something comes."""
    seen = ""
    while word not in seen and select.select([terminal], [], [], 30)[0]:
        seen += os.read(terminal, 1 << 16).decode(errors="replace")
    return word in seen


LINES = [
    ("dxg ops dot_gen", "dot_general"), ("dxg run program.sea --engine nump", "numpy"),
    ("dxg opt program.sea -p cse,dc", "cse,dce"), ("dxg why program.sea prod", "product"), ("dxg info prog", "program.sea"),
]  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("line", "expected"), [*LINES, ("dxg run program.sea --engine=nump", "--engine=numpy")])
def test_tab_in_bash(folder: Path, line: str, expected: str) -> None:
    """The function that the script defines, called as bash calls it; a terminal is the next test."""
    word = line.split()[-1].split("=")[-1]
    ask = (f'{SCRIPTS["bash"]}COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}\n_deepx_graph dxg "{word}" x 2>/dev/null\n'
           'printf "%s\\n" "${COMPREPLY[@]}"')  # fmt: skip
    env = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=folder, env=env)
    assert done.stdout.split() == [expected.split("=")[-1]]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_tab_at_a_terminal_of_bash(folder: Path) -> None:
    setup = 'eval "$(dxg completion bash)"'
    assert shows(["bash", "--norc", "--noprofile", "-i"], folder, setup, "dxg ops dot_gen", "eral")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_tab_at_a_terminal_of_zsh(folder: Path) -> None:
    setup = 'autoload -Uz compinit; compinit -D; eval "$(dxg completion zsh)"'
    for line, expected in (LINES[0], LINES[3]):
        assert shows(["zsh", "-f", "-i"], folder, setup, line, expected[len(line.split()[-1]):])


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("line", "expected"), [*LINES, ("dxg run program.sea --engine=nump", "--engine=numpy")])
def test_tab_in_fish(folder: Path, line: str, expected: str) -> None:
    env = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    ask = f"{SCRIPTS['fish']}complete -C '{line}'"
    done = subprocess.run(["fish", "-N", "-c", ask], capture_output=True, text=True, check=True, cwd=folder, env=env)
    assert [row.split("\t")[0] for row in done.stdout.splitlines()] == [expected]
