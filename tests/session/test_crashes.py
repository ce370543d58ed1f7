"""Crashes that are recorded, replayed in a process of their own, and reduced, whatever ends them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.passes.scalar.cse import Cse
from deepx_graph.runtime.compile import Compiled
from deepx_graph.session import programs
from deepx_graph.session.diagnose import reproducer
from deepx_graph.session.diagnose.children import in_child
from deepx_graph.session.diagnose.crash import fault_of, signature_of
from deepx_graph.session.diagnose.predicates import How, predicate
from deepx_graph.session.diagnose.reproducer import Reproducer, leave, recorded, replay

PROGRAM = "HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n ROOT y = f32[4] add(x, x)\n}\n"

PLUGIN = """\
import os, signal
from dataclasses import dataclass
import deepx_graph as dx
from deepx_graph.rewrite.base import Pass

@dx.register_pass
@dataclass(frozen=True)
class Fall(Pass):
    "Falls."
    name = "fall"
    def run(self, module):
        {fault}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("m.hlo").write_text(PROGRAM)
    return tmp_path


def planted(fault: str) -> list[str]:
    Path("plugin.py").write_text(PLUGIN.format(fault=fault))
    return ["opt", "m.hlo", "-p", "fall", "--plugin", "plugin.py"]


@pytest.mark.parametrize(("fault", "outcome"), [
    ("raise KeyError('lost')", "KeyError in deepx_graph.rewrite.base:run_under"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "the process died of SIGSEGV"),
    ("os.abort()", "the process died of SIGABRT"),
])  # fmt: skip
def test_a_crash_happens_again_from_its_file_alone(folder: Path, fault: str, outcome: str) -> None:
    recorded(planted(fault), outcome).write("crash.json")
    for name in ("m.hlo", "plugin.py"):
        Path(name).unlink()
    found = replay(Reproducer.read("crash.json"), trust=True)
    assert (found.outcome, found.crashed, found.same) == (outcome, True, True)
    other = replay(recorded(["info", "m.hlo"], outcome))
    assert not other.crashed and other.outcome == "exit code 2", "the file is gone: an error of the user"


def test_what_would_run_code_or_reach_outside_is_refused(folder: Path) -> None:
    for arguments in (planted("pass"), ["info", "../m.hlo"], ["opt", "m.hlo", "-o/etc/x"], ["run", "m.hlo", "--on", "mpi"]):
        with pytest.raises(dx.UsageError, match="would run code or reach outside"):
            replay(recorded(arguments, ""))


@pytest.mark.parametrize("text", [
    "", "[]", "{}", '{"schema": "deepx-graph/reproducer/1"}',
    json.dumps({"schema": "deepx-graph/reproducer/1", "files": [], "arguments": ["{3}"], "signature": ""})])
def test_any_other_file_is_refused(folder: Path, text: str) -> None:
    Path("x.json").write_text(text)
    with pytest.raises(dx.UsageError, match=r"'x.json' is no reproducer"):
        Reproducer.read("x.json")


def test_folders_and_standard_input_are_taken_along(folder: Path) -> None:
    (folder / "dumps").mkdir()
    for k in range(2):
        (folder / "dumps" / f"{k}_a.hlo").write_text(PROGRAM)
    kept = recorded(["bisect", "dumps", "--samples=2"], "")
    Path("dumps/0_a.hlo").unlink()
    assert replay(kept).outcome == "exit code 0"
    assert replay(recorded(["info", "-"], "", stdin=PROGRAM.encode())).outcome == "exit code 0"


@pytest.mark.parametrize(("signal_", "told"), [(signal.SIGSEGV, "the process died of SIGSEGV"), (None, "ZeroDivisionError in ")])
def test_the_death_of_a_process_is_a_crash_that_is_survived(monkeypatch: pytest.MonkeyPatch, signal_: int | None,
                                                           told: str) -> None:
    def fall(self: Cse, module: dx.Module, control: object) -> dx.Module:
        if signal_ is not None:
            os.kill(os.getpid(), signal_)
        raise ZeroDivisionError

    module = dx.loads(PROGRAM)
    inputs = {"x": np.zeros(4, np.float32)}
    assert not predicate("crash", How("cse"))(module, inputs)
    monkeypatch.setattr(Cse, "run_under", fall)
    assert predicate("crash", How("cse"))(module, inputs).startswith(told)
    assert fault_of(lambda: dx.loads("no program")) == "", "an error of the user"


@pytest.mark.parametrize("call", [lambda m: dx.optimize(m, "cse, dce"), lambda m: dx.compile(m), lambda m: dx.run(m, np.ones(4))])
def test_an_internal_error_in_python_leaves_a_file(monkeypatch: pytest.MonkeyPatch, call: Callable[..., object]) -> None:
    def fall(self: Cse, module: dx.Module, control: object) -> dx.Module:
        raise KeyError("lost")

    monkeypatch.setattr(Cse, "run_under", fall)
    with pytest.raises(dx.DeepxGraphError) as caught:
        call(dx.loads(PROGRAM))
    path = caught.value.__notes__[0].split()[2]
    kept = Reproducer.read(path)
    Path(path).unlink()
    assert kept.signature.startswith("KeyError in ") and "add" in (kept.files[0].text or "")
    assert replay(kept).outcome == "exit code 0", "in a process without the fault"


@pytest.mark.parametrize(("planted", "call"), [
    ("grad", lambda m: dx.grad(m, "x", loop="keep", budget=1 << 20)),
    ("compile", lambda m: dx.compile(m, engine="numpy", threads=1)),
    ("call", lambda m: dx.compile(m, engine="numpy")(np.ones(4, np.float32))),
    ("call", lambda m: dx.run(m, x=np.ones(4, np.float32), engine="numpy")),
])
def test_gradients_compiling_and_calls_leave_files_too(monkeypatch: pytest.MonkeyPatch, planted: str,
                                                       call: Callable[..., object]) -> None:
    def fall(*args: object, **options: object) -> Any:
        raise KeyError("lost")

    if planted == "grad":
        monkeypatch.setattr(programs, "gradient", fall)
    else:
        monkeypatch.setattr(Compiled, "_prepare" if planted == "compile" else "_run_checked", fall)
    with pytest.raises(KeyError) as caught:
        call(dx.loads(PROGRAM))
    (note,) = caught.value.__notes__
    path = note.split()[2]
    kept = Reproducer.read(path)
    Path(path).unlink()
    assert len(kept.files) == 1 + (planted == "call")
    assert replay(kept).outcome == "exit code 0", "in a process without the fault"


def test_a_loop_of_failures_leaves_few_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reproducer, "_left", {})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    notes: list[str] = []
    for k in range(reproducer.MAX_LEFT + 2):
        kind = type(f"Failure{k}", (Exception,), {})
        for _ in range(2):
            error = kind("lost")
            leave(error, dx.loads(PROGRAM), lambda path: ["info", path])
            notes += error.__notes__
    assert len(list(tmp_path.iterdir())) == reproducer.MAX_LEFT
    assert notes[0].endswith(" repeats it") and notes[1].endswith(" repeats the first error of this kind")
    assert notes[0].split()[2] == notes[1].split()[2]
    assert notes[-1] == f"no file that repeats it is written: this process has left {reproducer.MAX_LEFT}"


def test_what_a_child_does_is_said_and_bounded() -> None:
    def user_error() -> str:
        raise dx.UsageError("not so")

    def endless() -> str:
        while True:
            pass

    assert in_child(lambda: "words", 60).said == "words"
    assert "not so" in in_child(user_error, 60).error
    for ended in (in_child(endless, 60, processor_seconds=0.05), in_child(endless, 0.05)):
        assert ended.late and not ended.said and not ended.death
    assert in_child(os.abort, 60).death == "the process died of SIGABRT"


def test_a_signature_is_the_first_cause_and_the_place() -> None:
    with pytest.raises(dx.DeepxGraphError) as caught:
        dx.optimize(dx.loads(PROGRAM), [_Falling()])
    assert signature_of(caught.value).startswith("KeyError in deepx_graph.")


class _Falling(Cse):
    def run_under(self, module: dx.Module, control: object) -> dx.Module:
        raise KeyError("lost")
