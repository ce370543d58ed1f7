"""Compilation on several threads: the code is that of one, what nobody asks for is not made, and an interrupt spoils nothing."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.runtime.native.llvm import compilers, machine_code, store
from deepx_graph.runtime.native.llvm.compilers import Compilation
from deepx_graph.runtime.native.llvm.target import Target, running_machine


def text(k: int) -> str:
    return f"""define void @f(ptr %a, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %p = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %p
  %y = fadd float %x, {k}.0
  store float %y, ptr %p
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


@pytest.fixture(params=[1, 2, 4], ids=lambda n: f"{n} cores")
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As many, with threads of their own."""
    monkeypatch.setattr(compilers, "available_cores", lambda: request.param)
    monkeypatch.setattr(compilers, "_COMPILERS", compilers.Compilers())
    return int(request.param)


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("optimise", [False, True])
def test_several_threads_make_the_code_of_one(optimise: bool) -> None:
    machine = running_machine()
    begun = [machine.compilation(text(k), optimise=optimise) for k in range(12)]
    for compilation in begun:
        compilation.begin()
    assert [c.code() for c in begun] == [machine.compile(text(k), optimise=optimise) for k in range(12)]


@pytest.mark.usefixtures("cores")
def test_who_asks_last_is_served_as_well_as_who_asks_first() -> None:
    begun = [running_machine().compilation(text(k)) for k in range(6)]
    for compilation in begun:
        compilation.begin()
    found: dict[int, bytes] = {}
    threads = [threading.Thread(target=lambda k=k: found.setdefault(k, begun[k].code())) for k in (5, 0, 3, 3, 1, 2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {k: running_machine().compile(text(k)) for k in range(6)}


def test_python_switches_threads_as_before_once_no_thread_compiles(cores: int) -> None:
    before = sys.getswitchinterval()
    begun = [running_machine().compilation(text(k)) for k in range(6)]
    for compilation in begun:
        compilation.begin()
    assert sys.getswitchinterval() <= before
    assert all(c.code() for c in begun)
    made = compilers._COMPILERS._threads
    assert (made is None) == (cores == 1)
    if made is not None:
        made.shutdown()
    assert sys.getswitchinterval() == before


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Compilation]:
    """What is compiled, on one core."""
    monkeypatch.setattr(compilers, "available_cores", lambda: 1)
    found: list[Compilation] = []
    run = Compilation.run
    monkeypatch.setattr(Compilation, "run", lambda self: (found.append(self), run(self))[1])
    return found


def test_what_nobody_asks_for_is_not_compiled(runs: list[Compilation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "load", lambda digest: None)
    owner = threading.Event()
    wanted = machine_code.functions(text(101), ["f"], owner)["f"]
    machine_code.functions(text(102), ["f"], owner)
    assert not runs
    assert wanted.address
    assert len(runs) == 1


def test_an_interrupted_compilation_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "available_cores", lambda: 1)
    monkeypatch.setattr(compilers, "_COMPILERS", compilers.Compilers())
    compilation = running_machine().compilation(text(7), optimise=True)
    compilation.begin()
    emit = compilers._emit

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compilers, "_emit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compilation.code()
    monkeypatch.setattr(compilers, "_emit", emit)
    assert compilation.code()


@pytest.mark.parametrize("optimise", [False, True])
def test_a_compilation_in_a_cycle_is_freed_whether_it_ran_or_not(optimise: bool) -> None:
    """LLVM's objects are freed in an order, and cycles are collected in none."""
    for k in range(40):
        compilation: Any = running_machine().compilation(text(k), optimise=optimise)
        compilation.itself = compilation
        if k % 3 == 1:
            compilation.run()
        if k % 3 == 2:
            compilation.begin()
        del compilation
        gc.collect()


def test_text_that_llvm_refuses_is_an_error_at_once() -> None:
    with pytest.raises(RuntimeError, match="expected"):
        machine_code.functions("define nonsense", ["f"], threading.Event())


# --- how much is compiled


def blocks(count: int, rows: int) -> str:
    """A chain of so many equal blocks over so many rows: a product, a row's norm, a function of each element."""
    lines, x = [], "%x"
    for k in range(count):
        lines.append(f"""  %p{k} = stablehlo.dot_general {x}, %w{k}, contracting_dims = [1] x [0]
      : (tensor<{rows}x32xf32>, tensor<32x32xf32>) -> tensor<{rows}x32xf32>
  %s{k} = stablehlo.reduce(%p{k} init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<{rows}x32xf32>, tensor<f32>) -> tensor<{rows}xf32>
  %b{k} = stablehlo.broadcast_in_dim %s{k}, dims = [0] : (tensor<{rows}xf32>) -> tensor<{rows}x32xf32>
  %d{k} = stablehlo.subtract %p{k}, %b{k} : tensor<{rows}x32xf32>
  %y{k} = stablehlo.tanh %d{k} : tensor<{rows}x32xf32>""")
        x = f"%y{k}"
    weights = "".join(f", %w{k}: tensor<32x32xf32>" for k in range(count))
    body = "\n".join(lines)
    return f"""func.func @main(%x: tensor<{rows}x32xf32>{weights}) -> tensor<{rows}x32xf32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
{body}
  return {x} : tensor<{rows}x32xf32>
}}"""


def test_equal_blocks_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that grows with their number is the function that calls them."""
    asked: set[str] = set()
    begin = Target.compilation
    monkeypatch.setattr(store, "load", lambda digest: None)
    monkeypatch.setattr(Target, "compilation", lambda self, ir, **how: (asked.add(ir), begin(self, ir, **how))[1])

    def compiled(count: int, rows: int) -> int:
        asked.clear()
        assert dx.compile(dx.loads(blocks(count, rows)), engine="native", threads=1).plan
        return len(asked)

    few = compiled(5, rows=24)
    assert 0 < compiled(11, rows=28) <= few
