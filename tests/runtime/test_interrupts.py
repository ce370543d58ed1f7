"""What a signal handler raises comes out as it is, at once, from wherever it arrives; and nothing runs twice because it failed."""

from __future__ import annotations

import ast
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import forking
from deepx_graph.cli import main as cli
from deepx_graph.errors import is_interrupt
from deepx_graph.files import replacing, write_file
from deepx_graph.forking import Lock
from deepx_graph.rewrite.engine import Rule
from tests.support.paths import ROOT
from tests.support.sources import source_files

ENGINES = ("numpy", "numexpr", "native")
ONES = np.ones(16, "f4")


class Deadline(Exception):
    """A caller's own."""


ERRORS = (Deadline, TimeoutError, ValueError, KeyError, dx.RunError, MemoryError, KeyboardInterrupt)


@pytest.fixture(params=ERRORS)
def error(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    """What the handler of the alarm raises."""
    kind = request.param

    def handler(number: int, frame: Any) -> None:
        raise kind("the caller's")

    before = signal.signal(signal.SIGALRM, handler)
    yield kind
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def caught(kind: type[BaseException], job: Callable[[], Any]) -> None:
    with pytest.raises(BaseException) as found:  # noqa: PT011
        job()
    assert type(found.value) is kind
    assert "the caller's" in str(found.value)
    assert is_interrupt(found.value)
    if isinstance(found.value, dx.DeepxGraphError):
        assert [d.span for d in found.value.diagnostics] == [None]


ENDLESS = """func.func @main(%a: tensor<16xf32>) -> tensor<16xf32> {
 %t = stablehlo.constant dense<true> : tensor<i1>
 %r:2 = stablehlo.while(%x = %a, %c = %t) : tensor<16xf32>, tensor<i1>
 cond { stablehlo.return %c : tensor<i1> }
 do { BODY
  stablehlo.return %y, %c : tensor<16xf32>, tensor<i1> }
 return %r#0 : tensor<16xf32> }"""
BODIES = {
    "elements": "%y = stablehlo.sine %x : tensor<16xf32>",
    "moves": "%y = stablehlo.reverse %x, dims = [0] : tensor<16xf32>",
}
BODIES["kernels"] = """%s = stablehlo.sine %x : tensor<16xf32>
  %m = stablehlo.reshape %s : (tensor<16xf32>) -> tensor<4x4xf32>
  %p = stablehlo.dot_general %m, %m, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y = stablehlo.reshape %p : (tensor<4x4xf32>) -> tensor<16xf32>"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("body", BODIES)
def test_a_deadline_ends_an_endless_loop(engine: str, body: str, error: type[BaseException]) -> None:
    f = dx.compile(dx.loads(ENDLESS.replace("BODY", BODIES[body])), engine=engine)
    caught(error, lambda: (signal.setitimer(signal.ITIMER_REAL, 0.03), f(ONES)))


CALL = """HloModule m
ENTRY e {
  x = f32[16]{0} parameter(0)
  n = f32[16]{0} negate(x)
  c = f32[16]{0} custom-call(n), custom_call_target="test.raises"
  ROOT r = f32[16]{0} exponential(c)
}"""
BRANCH = """HloModule m
no { ROOT p = f32[16]{0} parameter(0) }
yes {
  p = f32[16]{0} parameter(0)
  ROOT c = f32[16]{0} custom-call(p), custom_call_target="test.raises"
}
ENTRY e {
  x = f32[16]{0} parameter(0)
  t = s32[] constant(1)
  b = s32[] get-dimension-size(x), dimensions={0}
  ROOT r = f32[16]{0} conditional(t, x, x), branch_computations={no, yes}
}""".replace("  b = s32[] get-dimension-size(x), dimensions={0}\n", "")


@pytest.fixture
def calls() -> Iterator[list[Callable[[], Any]]]:
    """What the custom call does, one thing after the other, put in by the test; nothing when there is nothing left."""
    waiting: list[Callable[[], Any]] = []

    def function(x: Any) -> Any:
        if waiting:
            waiting.pop(0)()
        return x

    dx.register_custom_call("test.raises", function)
    yield waiting
    dx.register_custom_call("test.raises", None)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("text", [CALL, BRANCH], ids=["straight", "branch"])
@pytest.mark.parametrize("donate", [(), ("x",)])
def test_a_deadline_between_kernels_is_the_callers(engine: str, text: str, donate: tuple[str, ...], error: type[BaseException],
                                                   calls: list[Any]) -> None:
    f = dx.compile(dx.loads(text), engine=engine, optimize=False)
    for _ in range(3):  # the ways of a first and of later calls
        calls += [lambda: signal.raise_signal(signal.SIGALRM), lambda: pytest.fail("it ran again")]
        caught(error, lambda: f(ONES.copy(), donate=donate))
        calls.clear()
    (good,) = f(ONES)
    np.testing.assert_allclose(good, np.exp(-ONES) if text is CALL else ONES, rtol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("text", [CALL, BRANCH], ids=["straight", "branch"])
@pytest.mark.parametrize("donate", [(), ("x",)])
@pytest.mark.parametrize("kind", [ValueError, OSError, ZeroDivisionError, Deadline, dx.RunError, MemoryError])
def test_a_custom_call_that_fails_is_called_once_and_named(engine: str, text: str, donate: tuple[str, ...], calls: list[Any],
                                                           kind: type[Exception]) -> None:
    f = dx.compile(dx.loads(text), engine=engine, optimize=False)
    count = []

    def fails() -> None:
        count.append(1)
        raise kind("no luck")

    for k in range(3):
        calls += [fails] * 4
        with pytest.raises(dx.RunError) as found:
            f(ONES.copy(), donate=donate)
        assert len(count) == k + 1
        (told,) = found.value.diagnostics
        assert told.span is not None and "test.raises" in told.span.text
        calls.clear()


def test_a_deadline_is_no_fault_of_a_pass_or_rule(error: type[BaseException]) -> None:
    module = dx.loads(CALL.replace("custom-call(n), custom_call_target=\"test.raises\"", "negate(n)"))
    before = Rule.apply
    try:
        Rule.apply = lambda *_: signal.raise_signal(signal.SIGALRM)  # type: ignore[method-assign]
        caught(error, lambda: dx.optimize(module))
    finally:
        Rule.apply = before  # type: ignore[method-assign]


def test_a_deadline_is_no_failure_of_a_file(error: type[BaseException], tmp_path: Path) -> None:
    def interrupted() -> None:
        with replacing(tmp_path / "a") as stream:
            stream.write(b"begun")
            signal.raise_signal(signal.SIGALRM)

    caught(error, interrupted)
    assert list(tmp_path.iterdir()) == []
    write_file(tmp_path / "a", b"whole")


def test_only_what_a_handler_raises_is_an_interrupt() -> None:
    def raises(frame: Any = None) -> None:
        raise ValueError("plain")

    for job in (raises, lambda: np.zeros(3)[7], lambda: {}["x"]):
        with pytest.raises(Exception) as found:  # noqa: PT011
            job()
        assert not is_interrupt(found.value)


@pytest.fixture
def usual_handlers() -> Iterator[None]:
    """Those of a command in a terminal: whoever runs the tests may have told them to ignore signals."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_handlers")
@pytest.mark.parametrize(("number", "code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")])
def test_a_command_that_is_ended_leaves_nothing_behind(number: int, code: int, word: str, monkeypatch: pytest.MonkeyPatch,
                                                       tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ended(*_: Any) -> int:
        with replacing(tmp_path / "out.sea") as stream:
            stream.write(b"half")
            signal.raise_signal(number)
        return 0

    monkeypatch.setitem(cli.COMMANDS, "ops", cli.COMMANDS["ops"]._replace(run=ended))
    assert cli.main(["ops"]) == code
    assert word in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# --- who catches everything ---------------------------------------------------------------------------------------

WIDE = {
    ("deepx_graph/cli/main.py", "_main"): "the boundary between our own faults and a user: writes what reproduces it",
    ("deepx_graph/files.py", "_renamed"): "takes the temporary file away and raises again",
    ("deepx_graph/ops/host/custom_calls.py", "_called"): "a host function failed: RunError names the call; interrupts go on",
    ("deepx_graph/runtime/compile.py", "__call__"): "whoever wants to know of it is told, and it is raised again",
    ("deepx_graph/runtime/interpreter.py", "step"): "`fail` tells the place, or raises again",
    ("deepx_graph/runtime/unit_code.py", "__call__"): "`fail` tells the place, or raises again",
    ("passes/pipeline.py", "_run"): "PassError names the pass; interrupts go on",
    ("deepx_graph/rewrite/engine.py", "_rewritten"): "PassError names the rule; interrupts go on",
    ("deepx_graph/interop/plugins.py", "load_installed"): "a warning names the plugin; interrupts go on",
    ("deepx_graph/interop/live.py", "taken"): "UsageError says what the other library raised; interrupts go on",
    ("deepx_graph/interop/python_file.py", "_guarded"): "UsageError has the line of the user's file; interrupts go on",
    ("deepx_graph/session/fuzzing/checks.py", "examine"): "a finding of the campaign; interrupts go on",
    ("deepx_graph/session/fuzzing/checks.py", "examine_by"): "a finding of the campaign; interrupts go on",
    ("deepx_graph/session/diagnose/xla_worker.py", "main"): "what XLA says goes to a file; it is a program of its own",
    ("deepx_graph/session/show/views.py", "lines"): "the view tells the fault of the plugin; interrupts go on",
    ("deepx_graph/session/diagnose/children.py", "in_child"): "kills the child and raises again",
    ("deepx_graph/session/diagnose/children.py", "_work"): "in a forked child, which ends: the parent is told",
    ("deepx_graph/session/diagnose/reproducer.py", "reproducible"): "an internal error leaves a file; all are raised again",
    ("deepx_graph/session/diagnose/crash.py", "fault_of"): "what it is called for is told; interrupts go on",
    ("tui/document.py", "run"): "in a thread of its own: the browser raises it",
    ("tui/views/run.py", "take"): "puts the old index back and raises again",
}
"""Handlers of everything, and why they are right: nothing is swallowed."""


def _wide(tree: ast.AST) -> Iterator[str]:
    """The functions that catch, or suppress, every exception."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in _own(function):
            if isinstance(node, ast.ExceptHandler) and (node.type is None or _is_wide(node.type)):
                yield function.name
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress") and any(map(_is_wide, node.args)):
                yield function.name


def _own(function: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
            yield from _own(child)


def _is_wide(type: ast.expr) -> bool:
    return any(isinstance(n, ast.Name) and n.id in ("Exception", "BaseException") for n in ast.walk(type))


def test_whoever_catches_everything_is_known() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in source_files()}
    suspects = {path: text for path, text in texts.items() if re.search(r"except:|Exception\b.*[):]|BaseException", text)}
    found = {(path, name) for path, text in suspects.items() for name in _wide(ast.parse(text))}
    assert found == set(WIDE)


@pytest.mark.parametrize("step", range(12))
def test_an_interrupt_while_a_lock_is_taken_does_not_leave_it_held(step: int) -> None:
    """The tracer raises at the given line, call or return of the lock's own code, where a signal handler may be called."""
    lock, left = Lock(), step

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != forking.__file__:
            return None
        if left == 0:
            raise Deadline
        left -= 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with lock:
            pass
    except Deadline:
        pass
    finally:
        sys.settrace(before)
    assert lock.acquire(blocking=False)
