"""Programs built ahead of time: what the object code computes, called from C, is what `eval` gives; what is refused, and how."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.runtime.aot.build import _planned
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.native.joined import JoinedKernel
from deepx_graph.runtime.native.llvm.machine_code import collected
from deepx_graph.runtime.native.llvm.target import running_machine
from deepx_graph.runtime.native.whole_program.plan import called
from tests.support.cli_runner import Run
from tests.support.paths import ROOT

Array = np.ndarray[Any, Any]

EXAMPLE = ROOT / "examples" / "ahead_of_time"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler called cc")

MLP = (EXAMPLE / "mlp.mlir").read_text(encoding="utf-8")

LOOP = """
module @loop {
  func.func public @main(%x: tensor<3xf64>, %steps: tensor<i32>) -> (tensor<3xf64>, tensor<i32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %a = stablehlo.constant dense<[[0.5, 0.25, 0.0], [0.0, 0.5, 0.25], [0.25, 0.0, 0.5]]> : tensor<3x3xf64>
    %r:2 = stablehlo.while(%v = %x, %k = %zero) : tensor<3xf64>, tensor<i32>
    cond {
      %c = stablehlo.compare LT, %k, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %p = stablehlo.dot_general %a, %v, contracting_dims = [1] x [0] : (tensor<3x3xf64>, tensor<3xf64>) -> tensor<3xf64>
      %s = stablehlo.sine %p : tensor<3xf64>
      %n = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %s, %n : tensor<3xf64>, tensor<i32>
    }
    return %r#0, %r#1 : tensor<3xf64>, tensor<i32>
  }
}
"""

SORT_AND_GATHER = """
module @ranks {
  func.func public @main(%keys: tensor<2x7xf32>, %rows: tensor<5x4xi8>, %which: tensor<3x1xi32>, %mask: tensor<7xi1>)
      -> (tensor<2x7xf32>, tensor<2x7xi32>, tensor<3x4xi8>, tensor<7xi1>) {
    %order = stablehlo.iota dim = 1 : tensor<2x7xi32>
    %s:2 = "stablehlo.sort"(%keys, %order) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
        %less = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %less : tensor<i1>
    }) {dimension = 1 : i64, is_stable = true} : (tensor<2x7xf32>, tensor<2x7xi32>) -> (tensor<2x7xf32>, tensor<2x7xi32>)
    %g = "stablehlo.gather"(%rows, %which) {
      dimension_numbers = #stablehlo.gather<
        offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1, 4>} : (tensor<5x4xi8>, tensor<3x1xi32>) -> tensor<3x4xi8>
    %not = stablehlo.not %mask : tensor<7xi1>
    return %s#0, %s#1, %g, %not : tensor<2x7xf32>, tensor<2x7xi32>, tensor<3x4xi8>, tensor<7xi1>
  }
}
"""

LARGE_MLP = """
module @large_mlp {
  func.func public @main(%x: tensor<96x300xf32>, %w1: tensor<256x300xf32>, %b1: tensor<256xf32>, %w2: tensor<256x128xf32>,
                         %y: tensor<6x64x32xf64>) -> (tensor<96x128xf32>, tensor<6x32x32xf64>) {
    %0 = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [1]
      : (tensor<96x300xf32>, tensor<256x300xf32>) -> tensor<96x256xf32>
    %1 = stablehlo.broadcast_in_dim %b1, dims = [1] : (tensor<256xf32>) -> tensor<96x256xf32>
    %2 = stablehlo.add %0, %1 : tensor<96x256xf32>
    %3 = stablehlo.tanh %2 : tensor<96x256xf32>
    %4 = stablehlo.dot_general %3, %w2, contracting_dims = [1] x [0]
      : (tensor<96x256xf32>, tensor<256x128xf32>) -> tensor<96x128xf32>
    %5 = stablehlo.dot_general %y, %y, batching_dims = [0] x [0], contracting_dims = [1] x [1]
      : (tensor<6x64x32xf64>, tensor<6x64x32xf64>) -> tensor<6x32x32xf64>
    return %4, %5 : tensor<96x128xf32>, tensor<6x32x32xf64>
  }
}
"""

CONVOLUTIONS = f"""
module @convolutions {{
  func.func public @main(%x: tensor<2x24x24x3xf32>, %k1: tensor<3x3x3x16xf32>, %b1: tensor<16xf32>, %k3: tensor<3x3x32x16xf32>,
                         %w: tensor<2304x64xf32>) -> tensor<2x64xf32> {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %k2 = stablehlo.constant dense<"0x{np.random.default_rng(1).standard_normal((3, 3, 16, 32)).astype("<f4").tobytes().hex()}">
      : tensor<3x3x16x32xf32>
    %0 = stablehlo.convolution(%x, %k1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {{stride = [1, 1], pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
      : (tensor<2x24x24x3xf32>, tensor<3x3x3x16xf32>) -> tensor<2x24x24x16xf32>
    %1 = stablehlo.broadcast_in_dim %b1, dims = [3] : (tensor<16xf32>) -> tensor<2x24x24x16xf32>
    %2 = stablehlo.add %0, %1 : tensor<2x24x24x16xf32>
    %3 = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<2x24x24x16xf32>
    %4 = stablehlo.maximum %2, %3 : tensor<2x24x24x16xf32>
    %5 = stablehlo.convolution(%4, %k2) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {{stride = [1, 1], pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
      : (tensor<2x24x24x16xf32>, tensor<3x3x16x32xf32>) -> tensor<2x24x24x32xf32>
    %6 = "stablehlo.reduce_window"(%5, %low) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %m = stablehlo.maximum %a, %b : tensor<f32>
        stablehlo.return %m : tensor<f32>
    }}) {{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}}
      : (tensor<2x24x24x32xf32>, tensor<f32>) -> tensor<2x12x12x32xf32>
    %7 = stablehlo.convolution(%6, %k3) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {{stride = [1, 1], pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
      : (tensor<2x12x12x32xf32>, tensor<3x3x32x16xf32>) -> tensor<2x12x12x16xf32>
    %8 = stablehlo.reshape %7 : (tensor<2x12x12x16xf32>) -> tensor<2x2304xf32>
    %9 = stablehlo.dot_general %8, %w, contracting_dims = [1] x [0] : (tensor<2x2304xf32>, tensor<2304x64xf32>) -> tensor<2x64xf32>
    return %9 : tensor<2x64xf32>
  }}
}}
"""

RNG = np.random.default_rng(3)
INPUTS: dict[str, list[Array]] = {
    MLP: [RNG.standard_normal(shape).astype("f4") for shape in ((4, 8), (8, 16), (16,), (16, 3), (3,))],
    LOOP: [RNG.standard_normal(3), np.array(37, "i4")],
    SORT_AND_GATHER: [RNG.permutation(14).reshape(2, 7).astype("f4"), RNG.integers(-100, 100, (5, 4)).astype("i1"),
                      np.array([[4], [0], [9]], "i4"), RNG.random(7) < 0.5],
    LARGE_MLP: [*(RNG.standard_normal(shape).astype("f4") / 8 for shape in ((96, 300), (256, 300), (256,), (256, 128))),
                RNG.standard_normal((6, 64, 32))],
    CONVOLUTIONS: [RNG.standard_normal(shape).astype("f4") / 8
                   for shape in ((2, 24, 24, 3), (3, 3, 3, 16), (16,), (3, 3, 32, 16), (2304, 64))],
}  # fmt: skip
"""What each program is run on; the last index is out of range and is clamped."""


def reference(module: dx.Module, inputs: list[Array]) -> list[Array]:
    """What each operation's `eval` gives."""
    return [np.asarray(r) for r in compile(module, engine="numpy")(*inputs)]


def near(found: Array, expected: Array, *, sums: bool = False) -> None:
    """Long `sums` are as near as the largest is."""
    if expected.dtype.kind == "f":
        within = 1e-5 if expected.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(found, expected, rtol=within, atol=within * abs(expected).max() if sums else 0)
    else:
        np.testing.assert_array_equal(found, expected)


@needs_cc
@pytest.mark.parametrize("text", INPUTS, ids=["mlp", "loop", "sort and gather", "large products", "convolutions"])
@pytest.mark.parametrize("cpu", ["native", "v2"])
def test_a_program_computes_in_c_what_eval_gives(text: str, cpu: str, tmp_path: Path) -> None:
    """In a process without Python, on a file of inputs."""
    module = dx.optimize(dx.loads(text))
    program = dx.build(module, tmp_path / "model.o", cpu=cpu, optimize=False)
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", tmp_path, EXAMPLE / "main.c", tmp_path / "model.o",
               *program.link_options, "-o", tmp_path / "model"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "in.bin").write_bytes(b"".join(a.tobytes() for a in INPUTS[text]))
    command = [tmp_path / "model", tmp_path / "in.bin", tmp_path / "out.bin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    data, start = (tmp_path / "out.bin").read_bytes(), 0
    for expected in reference(module, INPUTS[text]):
        near(np.frombuffer(data, expected.dtype, expected.size, start).reshape(expected.shape), expected,
             sums=text in (LARGE_MLP, CONVOLUTIONS))
        start += expected.nbytes
    assert start == len(data)


@pytest.mark.parametrize(("text", "count"), [(LARGE_MLP, 3), (CONVOLUTIONS, 4)], ids=["products", "convolutions"])
def test_large_products_and_convolutions_are_done_by_the_tuned_kernels(text: str, count: int) -> None:
    with collected(running_machine()):
        plan = _planned(dx.optimize(dx.loads(text)).entry)
    assert sum(isinstance(c.kernel, JoinedKernel) for _, c in called(plan.actions)) == count


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dx.Module, int]:
    """The loop as a shared library, its module, and the bytes of its workspace."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler called cc")
    folder, module = tmp_path_factory.mktemp("library"), dx.optimize(dx.loads(LOOP))
    program = dx.build(module, folder / "loop.o", shared=folder / "loop.so", name="loop", optimize=False)
    found = ctypes.CDLL(str(folder / "loop.so")).loop_run
    found.argtypes = [ctypes.c_void_p] * 3
    return found, module, program.workspace_bytes


def pointers(arrays: list[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])


def test_nothing_is_left_from_a_call_to_the_next_one(library: tuple[Any, dx.Module, int]) -> None:
    run, module, size = library
    memory = np.full(size + 128, 0xA5, np.uint8)
    start = -memory.ctypes.data % 64
    for steps in (5, 0, 11):
        inputs, results = [INPUTS[LOOP][0], np.array(steps, "i4")], [np.full(3, np.nan), np.array(-1, "i4")]
        assert run(pointers(inputs), pointers(results), memory.ctypes.data + start) == 0
        for found, expected in zip(results, reference(module, inputs), strict=True):
            near(found, expected)
    assert (memory[start + size :] == 0xA5).all()  # and it writes within its workspace
    assert (memory[:start] == 0xA5).all()


def test_a_bad_workspace_and_a_bad_pointer_are_told_from_success(library: tuple[Any, dx.Module, int]) -> None:
    run, _, size = library
    memory = np.zeros(size + 128, np.uint8)
    aligned = memory.ctypes.data + -memory.ctypes.data % 64
    inputs, results = INPUTS[LOOP], [np.full(3, 7.0), np.array(-1, "i4")]
    assert run(pointers(inputs), pointers(results), None) == 1
    assert run(pointers(inputs), pointers(results), aligned + 8) == 1
    for array in (0, 1):
        for k in (0, 1):
            given = [pointers(inputs), pointers(results)]
            given[array][k] = None
            assert run(*given, aligned) == 2
    for k in (0, 1):
        apart = pointers(results)
        apart[k] += 4
        assert run(pointers(inputs), apart, aligned) == 2
    assert (results[0] == 7).all()


def test_the_header_says_what_the_program_takes_and_gives(tmp_path: Path) -> None:
    program = dx.build(dx.loads(SORT_AND_GATHER), tmp_path / "ranks.o", header=tmp_path / "other.h", name="ranks", optimize=False)
    header = (tmp_path / "other.h").read_text(encoding="utf-8")
    for line in ("#define RANKS_INPUTS 4", "#define RANKS_INPUT_1_TYPE int8_t /* i8 */", "#define RANKS_INPUT_1_BYTES 20",
                 "#define RANKS_RESULT_1_COUNT 14", "#define RANKS_INPUT_3_TYPE uint8_t /* bool */",
                 f"#define RANKS_WORKSPACE_BYTES {program.workspace_bytes}", "#define RANKS_WORKSPACE_ALIGNMENT 64",
                 "int ranks_run(const void **in, void **out, void *workspace);"):  # fmt: skip
        assert line in header.splitlines()
    assert "static const int64_t ranks_input_0_shape[] = {2, 7};" in header


@pytest.mark.parametrize(("triple", "cpu", "machine"), [("aarch64-linux-gnu", "native", 183), ("x86_64-linux-gnu", "v4", 62)])
def test_code_for_another_machine_is_its_code(triple: str, cpu: str, machine: int, tmp_path: Path) -> None:
    """By the number of the machine in the header of ELF."""
    program = dx.build(dx.loads(MLP), tmp_path / "model.o", triple=triple, cpu=cpu, optimize=False)
    assert program.code[:4] == b"\x7fELF"
    assert int.from_bytes(program.code[18:20], "little") == machine
    assert (tmp_path / "model.o").read_bytes() == program.code


def test_kernels_made_for_another_machine_are_not_run_here() -> None:
    """A program runs as before after it was built, and before: neither takes the kernels of the other."""
    from deepx_graph.runtime.aot.build import built

    module = dx.optimize(dx.loads(MLP))
    first = built(module, triple="aarch64-linux-gnu").code
    (found,) = compile(module, engine="native")(*INPUTS[MLP])
    near(found, reference(module, INPUTS[MLP])[0])
    assert built(module, triple="aarch64-linux-gnu").code == first


def test_a_program_that_is_no_machine_function_is_refused_at_its_node(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "foreign.mlir"
    path.write_text("func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {\n"
                    "  %0 = stablehlo.custom_call @foreign(%x) : (tensor<4xf64>) -> tensor<4xf64>\n"
                    "  return %0 : tensor<4xf64>\n}\n")
    done = run("build", str(path), "-o", str(tmp_path / "foreign.o"))
    assert done.code == 5
    assert "foreign.mlir:2:3: error: 'main' is not one machine function: custom_call, which is no machine code" in done.err
    assert not list(tmp_path.glob("foreign.[oh]"))


@pytest.mark.parametrize(("options", "code", "said"), [
    (["--cpu", "v9"], 2, "no processor is called 'v9'"),
    (["--triple", "riscv64-linux-gnu"], 2, "no code is made for 'riscv64-linux-gnu'"),
    (["--name", "a-b"], 2, "'a-b' is no name of C"),
    (["--triple", "aarch64-linux-gnu", "--shared", "out.so"], 2, "'aarch64-linux-gnu'"),
])  # fmt: skip
def test_wrong_options_are_refused(run: Run, tmp_path: Path, options: list[str], code: int, said: str) -> None:
    (tmp_path / "mlp.mlir").write_text(MLP)
    done = run("build", str(tmp_path / "mlp.mlir"), "-o", str(tmp_path / "mlp.o"), *options)
    assert done.code == code
    assert said in done.err


def test_sizes_must_be_known(tmp_path: Path) -> None:
    module = dx.loads("func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  return %x : tensor<?xf32>\n}")
    with pytest.raises(dx.RunError, match="its size must be known"):
        dx.build(module, tmp_path / "model.o", optimize=False)


def test_the_command_says_what_it_made(run: Run, tmp_path: Path) -> None:
    done = run("build", str(EXAMPLE / "mlp.mlir"), "-o", str(tmp_path / "mlp.o"), "--name", "mlp", "--cpu", "v3")
    assert done.code == 0, done.err
    assert "for x86-64-v3" in done.err
    assert "-lm" in done.err
    assert (tmp_path / "mlp.h").exists()


def test_without_a_compiler_a_shared_library_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(dx.UsageError, match="cc, and there is none"):
        dx.build(dx.loads(MLP), tmp_path / "model.o", shared=tmp_path / "model.so", optimize=False)
