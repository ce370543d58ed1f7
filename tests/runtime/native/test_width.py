"""The width of vectors: how it is asked for, that code keeps to it, and that the values do not depend on it."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Function
from deepx_graph.loops.lower import lower
from deepx_graph.ops import multiply, reverse, transpose
from deepx_graph.runtime.native import VARIABLE, WIDTHS, asked, vectors
from deepx_graph.runtime.native.llvm import machine_code, target
from deepx_graph.runtime.native.loop_program.emit import CodePart, module_text, parts
from deepx_graph.types import F32, tensor
from tests.support.cli_runner import Run
from tests.support.paths import ROOT
from tests.support.widths import MODULES, narrower

Array = np.ndarray[Any, Any]
PROGRAM = """func.func @main(%x: tensor<300x64xf32>, %w: tensor<64x96xf32>) -> (tensor<300x96xf32>, tensor<f32>, tensor<300x64xf16>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<300x64xf32>, tensor<64x96xf32>) -> tensor<300x96xf32>
  %t = stablehlo.tanh %y : tensor<300x96xf32>
  %e = stablehlo.exponential %t : tensor<300x96xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<300x96xf32>, tensor<f32>) -> tensor<f32>
  %h = stablehlo.convert %x : (tensor<300x64xf32>) -> tensor<300x64xf16>
  %d = stablehlo.add %h, %h : tensor<300x64xf16>
  return %e, %s, %d : tensor<300x96xf32>, tensor<f32>, tensor<300x64xf16>
}"""  # noqa: E501
every_width = pytest.mark.parametrize("bits", WIDTHS)


def inputs() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in ((300, 64), (64, 96))]


def skip_unless_there(bits: int) -> None:
    widest = 8 * target.Target().register_bytes
    if bits > widest:
        pytest.skip(f"this machine has vectors of {widest} bits")


@every_width
def test_values_are_the_same_at_every_width(bits: int) -> None:
    skip_unless_there(bits)
    x, w = inputs()
    f = dx.compile(dx.loads(PROGRAM), engine="native", vector_bits=bits)
    e = np.exp(np.tanh(x.astype(np.float64) @ w))
    for found, wanted in zip(f(x, w), (e, e.sum(), 2 * x.astype(np.float16)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("bits", narrower())
def test_narrower_code_keeps_to_its_registers_and_instructions(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not target.this_machine().triple.startswith("x86_64"):
        pytest.skip("the registers are those of x86-64")
    written: list[str] = []

    def functions(ir: str, *rest: Any, **named: Any) -> dict[str, int]:
        machine = target.this_machine()
        module = target.llvm.parse_assembly(ir)
        module.triple = machine.triple
        written.append(machine._machine.emit_assembly(module))
        return original(ir, *rest, **named)

    original = machine_code.functions
    monkeypatch.setattr(machine_code, "functions", functions)
    x, w = inputs()
    dx.compile(dx.loads(PROGRAM), engine="native", vector_bits=bits)(x, w)
    text = "\n".join(written)
    assert "%xmm" in text
    assert not re.search("%zmm|%k[1-7]" if bits == 256 else "%[yz]mm|%k[1-7]|\tv[a-z]", text)


def test_object_code_is_kept_by_width() -> None:
    machines = [target.Target(bits) for bits in (*narrower(), None)]
    assert len({m.digest("") for m in machines}) == len(machines)
    assert target.Target(8 * machines[-1].register_bytes).digest("") == machines[-1].digest("")


def test_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert asked() is None
    monkeypatch.setenv(VARIABLE, "128")
    assert asked() == 128 and target.this_machine().register_bytes == 16
    assert dx.compile(dx.loads(PROGRAM), engine="native", optimize=False).engine.vector_bits == 128  # type: ignore[attr-defined]
    with vectors(256), vectors(None):
        assert asked() == 256
    assert asked() == 128


@pytest.mark.parametrize("text", ["0", "64", "1024", "wide", "128.0", "-128", "²56"])
def test_no_width_at_all(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(UsageError, match=re.escape(f"{VARIABLE} is '{text}'")) as e:
        dx.compile(dx.loads(PROGRAM), engine="native", optimize=False)
    assert "128 | 256 | 512" in str(e.value)


def test_a_wrong_width_is_refused() -> None:
    with pytest.raises(UsageError, match="vector_bits is '100'"):
        dx.compile(dx.loads(PROGRAM), vector_bits=100, optimize=False)


def test_vectors_that_the_machine_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Features(dict[str, bool]):
        def flatten(self) -> str:
            return "+sse2"

    monkeypatch.setattr(target.llvm, "get_host_cpu_features", lambda: Features(sse2=True))
    assert target.Target().register_bytes == 16
    with pytest.raises(UsageError, match="no vectors of 256 bits"):
        target.Target(256)


@pytest.mark.parametrize("bits", narrower()[:1])
def test_a_pickled_callable_keeps_its_width(bits: int) -> None:
    f = dx.compile(dx.loads(PROGRAM), engine="native", vector_bits=bits, optimize=False)
    again = pickle.loads(pickle.dumps(f))
    assert again.engine.vector_bits == bits


def test_the_command_line(run: Run, tmp_path: Any) -> None:
    path = tmp_path / "p.mlir"
    path.write_text(PROGRAM)
    plain = run("run", str(path), "--random-inputs", "--engine", "native", "--vector-bits", "128")
    assert plain.code == 0, plain.err
    wrong = run("run", str(path), "--random-inputs", "--vector-bits", "100")
    assert wrong.code == 2 and "--vector-bits" in wrong.err and "256" in wrong.err


def test_the_modules_that_run_at_every_width_are_there() -> None:
    missing = [name for name in MODULES if not (ROOT / "tests" / f"{name.replace('.', '/')}.py").is_file()]
    assert not missing


def test_elements_that_do_not_lie_together_are_loaded_one_by_one() -> None:
    """For a processor with AVX-512, which LLVM would use gathers for."""
    b = Builder()
    x = b.param(0, tensor(F32, (4, 32, 224, 3)))
    flipped = b(reverse, b(multiply, x, x), dimensions=(2,))
    program = lower(Function("f", (x,), (b(transpose, flipped, permutation=(0, 3, 1, 2)),)))
    machine = target.Target(processor=target.Processor("x86_64-unknown-linux-gnu", "znver4", "", 512))
    with target.written_for(machine):
        text = module_text(program, [CodePart(tuple(p)) for p in parts(program)], machine)
        code = machine._machine.emit_assembly(machine.parsed(text, optimise=True))
    assert "vmulps" in code and "gather" not in code
