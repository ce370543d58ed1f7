"""The process that runs programs: forks while others run, memory from compile to compile, and the machine code kept on disk."""

from __future__ import annotations

import ast
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.cli_runner import Run, run  # noqa: F401  fixtures are found here
from tests.support.paths import ROOT
from tests.support.sources import source_files

pytest.importorskip("llvmlite")

from deepx_graph.runtime.native.llvm import store
from deepx_graph.runtime.native.llvm.machine_code import functions, linker
from deepx_graph.runtime.native.llvm.target import Target
from tests.support.kernel_store import kernel_store

PRODUCT = """func.func @main(%a: tensor<150x150xf32>, %b: tensor<150x150xf32>) -> tensor<150x150xf32> {
 %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<150x150xf32>, tensor<150x150xf32>) -> tensor<150x150xf32>
 %t = stablehlo.tanh %p : tensor<150x150xf32>
 return %t : tensor<150x150xf32> }"""
LOOP = """func.func @main(%a: tensor<16xf32>) -> tensor<16xf32> {
 %z = stablehlo.constant dense<0> : tensor<i32>
 %n = stablehlo.constant dense<LIMIT> : tensor<i32>
 %one = stablehlo.constant dense<1> : tensor<i32>
 %r:2 = stablehlo.while(%x = %a, %i = %z) : tensor<16xf32>, tensor<i32>
 cond { %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1> }
 do { %y = stablehlo.sine %x : tensor<16xf32>
  %j = stablehlo.add %i, %one : tensor<i32>
  stablehlo.return %y, %j : tensor<16xf32>, tensor<i32> }
 return %r#0 : tensor<16xf32> }"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty store."""
    with kernel_store(monkeypatch, tmp_path / "kernels"):
        yield tmp_path / "kernels"


# --- forks


def in_child(job: Any, seconds: float = 60) -> int:
    """The exit code of a forked child that does the job; 99 when it does not end."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if job() else 1)
        finally:
            os._exit(2)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return 99


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("engine", ["numpy", "numexpr", "native"])
@pytest.mark.parametrize("text", [PRODUCT, LOOP.replace("LIMIT", "30000")], ids=["straight", "loop"])
def test_a_child_forked_while_another_thread_runs_can_run(engine: str, text: str) -> None:
    if engine != "native" and text is not PRODUCT:
        text = LOOP.replace("LIMIT", "300")
    module = dx.optimize(dx.loads(text))
    f = dx.compile(module, engine=engine, optimize=False)
    arrays = [np.full(p.type.shape, 0.01, "f4") for p in f.inputs]  # type: ignore[union-attr]
    wanted, stop = f(*arrays)[0], threading.Event()

    def calls() -> None:
        while not stop.is_set():
            f(*arrays)

    thread = threading.Thread(target=calls)
    thread.start()
    try:
        for _ in range(3):
            time.sleep(0.005)
            assert in_child(lambda: np.array_equal(f(*arrays)[0], wanted)) == 0
            assert in_child(lambda: np.array_equal(dx.compile(module, engine=engine, optimize=False)(*arrays)[0], wanted)) == 0
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_another_thread_compiles_can_compile() -> None:
    stop = threading.Event()

    def compiles() -> None:
        k = 0
        while not stop.is_set():
            k += 1
            ir = f"define double @f(double %x) {{\n  %y = fadd double %x, {k}.0\n  ret double %y\n}}\n"
            assert functions(ir, ["f"], threading.Event())["f"].address

    thread = threading.Thread(target=compiles)
    thread.start()
    try:
        for k in range(4):
            time.sleep(0.003)
            ir = f"define double @g(double %x) {{\n  %y = fmul double %x, {k}.5\n  ret double %y\n}}\n"
            assert in_child(lambda ir=ir: functions(ir, ["g"])["g"].address != 0) == 0
    finally:
        stop.set()
        thread.join()


OWN_LOCKS = {
    "deepx_graph/runtime/native/llvm/compilers.py": "a fork waits until nothing is compiled, holding it",
    "deepx_graph/cli/output.py": "renews itself: a signal handler may take it again",
    "deepx_graph/blas.py": "it is made anew after a fork, before which it is taken",
    "deepx_graph/forking.py": "`Lock` is made of them, and cached properties have theirs renewed",
    "deepx_graph/runtime/transport/mailbox.py": "those of a Dask worker, whose processes are spawned",
}


def test_locks_are_such_as_a_fork_renews() -> None:
    made = set()
    for path in source_files():
        text = path.read_text(encoding="utf-8")
        calls = ast.walk(ast.parse(text)) if "threading" in text else []
        if any(isinstance(n, ast.Call) and ast.unparse(n.func).rpartition(".")[2] in ("Lock", "RLock", "Condition", "Semaphore")
               and ast.unparse(n.func).startswith("threading") for n in calls):
            made.add(str(path.relative_to(ROOT)))
    assert made == set(OWN_LOCKS)


# --- memory from compile to compile


def resident() -> int:
    """Kilobytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") // 1024


WARM_UP = 50
"""After so many compiles the arenas of LLVM and of the allocator hold what they need; before that a process on its own grows."""


def soak(engine: str, iterations: int, distinct: bool, warm_up: int = WARM_UP) -> float:
    """Kilobytes of growth for each compile and run."""
    start = 0
    for k in range(warm_up + iterations):
        if k == warm_up:
            gc.collect()
            start = resident()
        text = PRODUCT.replace("150", "16").replace("tanh %p", "multiply %p, %h").replace(
            " %p =", f" %h = stablehlo.constant dense<{k % 1000 if distinct else 1}.5> : tensor<16x16xf32>\n %p =")
        f = dx.compile(dx.loads(text), engine=engine)
        f(np.ones((16, 16), "f4"), np.ones((16, 16), "f4"))
        f(np.ones((16, 16), "f4"), np.ones((16, 16), "f4"))
        del f
    gc.collect()
    return (resident() - start) / iterations


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
@pytest.mark.parametrize("distinct", [False, True])
def test_compiling_again_and_again_takes_no_memory(folder: Path, distinct: bool) -> None:
    assert soak("native", 30, distinct) < 20


@pytest.mark.conformance
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
@pytest.mark.parametrize("engine", ["numpy", "numexpr", "native"])
@pytest.mark.parametrize("distinct", [False, True])
def test_a_long_soak(folder: Path, engine: str, distinct: bool) -> None:
    """Of distinct programs the arenas hold what they need after some hundred; what grows then grows for ever."""
    assert soak(engine, 900, distinct, warm_up=300) < 3


def test_code_is_linked_once_and_goes_with_its_last_owner(folder: Path) -> None:
    ir = "define double @own(double %x) {\n  ret double %x\n}\n"
    before = len(linker())
    first, second = threading.Event(), threading.Event()
    at = functions(ir, ["own"], first)["own"].address
    assert functions(ir, ["own"], second)["own"].address == at
    assert len(linker()) == before + 1
    del first
    assert len(linker()) == before + 1
    del second
    assert len(linker()) == before
    assert len(list(folder.glob("*.o"))) == 1


# --- the store


DIGEST = "ab" * 32
IR = "define double @f(double %x) {\n  %y = fadd double %x, 4.0\n  ret double %y\n}\n"


@pytest.fixture
def entry(folder: Path) -> Path:
    """Of code that is stored."""
    assert functions(IR, ["f"], threading.Event())["f"].address
    len(linker())
    (path,) = folder.glob("*.o")
    return path


def compiles_anew(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the stored code is a miss; it runs in any case."""
    count, compilation = [], Target.compilation
    monkeypatch.setattr(Target, "compilation", lambda self, ir, **options: count.append(ir) or compilation(self, ir))
    assert functions(IR, ["f"], threading.Event())["f"].address
    len(linker())
    return bool(count)


def test_an_entry_is_used(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not compiles_anew(monkeypatch)


def _garbage(path: Path) -> None:
    digest = path.stem
    store.save(digest, b"no object code")


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _foreign(path: Path) -> None:
    os.chown(path, 65534, -1)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "a bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "of another name": lambda path: path.write_bytes(path.read_bytes().replace(b"code 1", b"code 2")),
    "garbage with a right digest": _garbage,
    "a link": _link,
    "a fifo": _fifo,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "writable by others": lambda path: path.chmod(0o666),
    "of another owner": _foreign,
    "unreadable": lambda path: path.chmod(0),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_is_wrong_with_an_entry_is_a_miss(entry: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() and damage == "of another owner":
        pytest.skip("only root can give files away")
    DAMAGES[damage](entry)
    if os.getuid() == 0 and damage == "unreadable":
        pytest.skip("root reads everything")
    assert compiles_anew(monkeypatch)


@pytest.mark.parametrize(("mode", "used"), [(0o755, True), (0o1777, True), (0o777, False)])
def test_a_folder_above_that_others_can_write_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int, used: bool,
                                                  run: Run) -> None:  # noqa: F811
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    monkeypatch.setenv("DEEPX_GRAPH_CACHE", str(above / "kernels"))
    store._folder.cache_clear()
    store.save(DIGEST, b"code")
    assert (store.load(DIGEST) == b"code") is used
    done = run("cache")
    assert done.code == 0
    assert ("entries  1" in done.out) is used
    assert ("others can write to" in done.err) is not used
    store._folder.cache_clear()


def test_the_store_keeps_its_bounds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPX_GRAPH_CACHE_LIMIT", "100K")
    monkeypatch.setattr(store, "_COUNT", store._counting())
    for k in range(store.OFTEN * 3):
        store.save(f"{k:064}", bytes(3000))
        os.utime(folder / f"{k:064}.o", (k + time.time() - 1000,) * 2)
    known = store.entries(folder)
    assert sum(e.nbytes for e in known) <= (100 << 10) + store.OFTEN * 3100
    assert known[-1].path.stem == f"{store.OFTEN * 3 - 1:064}"  # the last used stays
    os.utime(known[0].path, (0, 0))
    assert store.load(known[0].path.stem) is not None  # used now
    assert store.entries(folder)[-1].path == known[0].path
    os.utime(known[1].path, (time.time() - 61 * store.DAY,) * 2)
    assert store.prune(1 << 30)[0] == 1
    store.save("e" * 64, b"code")
    assert store.load("e" * 64) == b"code"
    monkeypatch.setenv("DEEPX_GRAPH_CACHE_LIMIT", "0")  # off: what is there is not read either
    assert store.load("e" * 64) is None
    store.save("f" * 64, b"code")
    monkeypatch.delenv("DEEPX_GRAPH_CACHE_LIMIT")
    assert store.load("f" * 64) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_processes_that_write_one_entry_at_once_leave_a_whole_one(folder: Path) -> None:
    codes = [bytes([k]) * (100_000 + k) for k in range(4)]

    def writes(code: bytes) -> bool:
        for _ in range(50):
            store.save(DIGEST, code)
        return store.load(DIGEST) in codes

    results: list[int] = []
    threads = [threading.Thread(target=lambda c=c: results.append(in_child(lambda: writes(c)))) for c in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0] * len(codes)
    assert store.load(DIGEST) in codes
    assert [p.name for p in folder.iterdir()] == [f"{DIGEST}.o"]


def test_the_command_shows_bounds_and_clears_it(entry: Path, run: Run) -> None:  # noqa: F811
    done = run("cache", "--json")
    assert (done.code, done.json["folder"], done.json["entries"]) == (0, str(entry.parent), 1)
    assert done.json["bytes"] == entry.stat().st_size
    assert "entries  1" in run("cache", "--limit", "1M").out
    done = run("cache", "--clear")
    assert done.code == 0
    assert "1 removed" in done.err
    assert "entries  0" in done.out
    assert list(entry.parent.iterdir()) == []
