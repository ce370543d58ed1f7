"""Objects that hold a program, told by what they can do; and programs that a Python file makes."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.interop.python_file import named
from tests.support.cli_runner import Run

HLO = "HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[2] sine(x) }"
MLIR = """\
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.sine %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


class Operation:
    """As an operation of MLIR's Python bindings."""

    def write_bytecode(self, file: Any) -> None:
        file.write(MLIR.encode())


class Lowered:
    """As `jax.stages.Lowered`."""

    def compiler_ir(self, dialect: str) -> Any:
        assert dialect == "stablehlo"
        return SimpleNamespace(operation=Operation(), body=None)

    def as_text(self) -> str:
        raise AssertionError("text without places")


class Broken:
    """As a message that is too large."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        raise ValueError("exceeds the maximum of 2 GB")

    def ListFields(self) -> list[Any]:  # noqa: N802
        return []


HELD = {
    "lowered": Lowered(), "mlir": Lowered().compiler_ir("stablehlo"), "bytes": HLO.encode(), "bytearray": bytearray(HLO, "utf-8"),
    "exported": SimpleNamespace(mlir_module_serialized=MLIR.encode(), in_tree=None), "tvm": SimpleNamespace(astext=lambda: HLO),
    "message": SimpleNamespace(SerializeToString=HLO.encode, ListFields=list),
    "xla": SimpleNamespace(as_serialized_hlo_module_proto=HLO.encode),
}  # fmt: skip


@pytest.mark.parametrize("held", HELD)
def test_objects_that_hold_a_program(held: str) -> None:
    (result,) = dx.compile(dx.load(HELD[held]), engine="numpy", optimize=False)(np.ones(2, "f4"))
    np.testing.assert_allclose(result, np.sin(np.ones(2)), rtol=1e-6)


def test_open_files(tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    path.write_text(HLO)
    with path.open() as text, path.open("rb") as data:
        assert dx.dumps(dx.load(text)) == dx.dumps(dx.load(data)) == dx.dumps(dx.load(path)) == dx.dumps(dx.load(io.StringIO(HLO)))
    with pytest.raises(dx.UsageError, match="cannot read"):
        dx.load(text)
    with pytest.raises(dx.LimitError):
        dx.load(io.StringIO(HLO), max_file_bytes=10)


@pytest.mark.parametrize("value", [123, 0, None, True, 1.5, object(), [1], {}, Lowered, np.ones(2), len, dx])
def test_other_objects_are_refused(value: Any) -> None:
    with pytest.raises(dx.UsageError, match="no program is in an object"):
        dx.load(value)


def test_what_another_library_raises_is_said() -> None:
    with pytest.raises(dx.UsageError, match="exceeds the maximum"):
        dx.load(Broken())


def test_no_library_is_imported() -> None:
    code = "import sys, deepx_graph as dx\ntry: dx.from_jax(len)\nexcept dx.UsageError as e: print(e)\n" \
           "print([m for m in ('jax', 'torch', 'onnx', 'tvm') if m in sys.modules])"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "import jax first" in done.stdout and done.stdout.endswith("[]\n")


FILE = """
import deepx_graph as dx
from beside import TEXT
module = dx.loads(TEXT)
held = TEXT.encode()
def made(): return module
def taking(x, k: "f32[2]"): return x
def failing():
    raise KeyError("gone")
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "beside.py").write_text(f"TEXT = {HLO!r}\n")
    (tmp_path / "own.py").write_text(FILE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("own", "beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path / "own.py"


@pytest.mark.parametrize("name", ["module", "held", "made"])
def test_the_command_line_runs_a_file(run: Run, file: Path, name: str) -> None:
    done = run("info", f"{file}:{name}")
    assert done.code == 0 and "x: f32[2]" in done.out


@pytest.mark.parametrize(("name", "said"), [
    ("failing", "own.py:9: KeyError"), ("nosuch", "has no 'nosuch'"), ("taking", "the type of 'x' of 'taking' is not known"),
    ("mad", "did you mean 'made'"), ("taking(f32[2)", "cannot have the type"),
])  # fmt: skip
def test_what_a_file_does_wrong_is_said(run: Run, file: Path, name: str, said: str) -> None:
    done = run("info", f"{file}:{name}")
    assert done.code == 2 and said in done.err and "Traceback" not in done.err


def test_other_names_are_files() -> None:
    assert named("a.py") is None and named("a.hlo:f") is None and named("a.py:1f") is None
    assert named("d/a.py:f(f32[2, 3], i32[])") == ("d/a.py", "f", "f32[2, 3], i32[]")
