"""Running a command of the command line inside a test: its exit code and what it wrote where."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deepx_graph.cli import main as cli
from deepx_graph.cli.schemas import schema
from tests.support.paths import ROOT

BLOCK = str(ROOT / "examples" / "transformer_block.dx")

PLAIN = """\
newtensor (vector<int32>:[2 3]) -> (tensor<float32>:y)
mulscalar (tensor<float32>:x, var<float32>:2.0) -> (tensor<float32>:y)
newtensor (vector<int32>:[2 3]) -> (tensor<float32>:z)
addscalar (tensor<float32>:y, var<float32>:1.0) -> (tensor<float32>:z)
"""
"""x is an input; its shape follows from what it is written to."""

SEA = """\
sea 1
entry @main
func public @main(%x: f32[2,3], %n: i32[]) -> (%y: f32[2,3], %m: i32[]) {
  %0 = constant {value = dense<1.0> : f32[]}
  %1 = multiply %x, %0 : f32[2,3]
  %y = exponential %1 : f32[2,3]
  %m = add %n, %n : i32[]
  return %y, %m
}
"""


def checked_report(data: bytes | str) -> Any:
    """What is written as JSON; where it names a schema, that is the one which the package has, and it holds."""
    found = json.loads(data)
    if isinstance(found, dict) and "schema" in found:
        jsonschema.validate(found, schema(found["schema"].split("/")[1]), jsonschema.Draft202012Validator)
    return found


class Result:
    """What one command did."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code, self.bytes, self.err = code, out, err

    @property
    def out(self) -> str:
        return self.bytes.decode()

    @property
    def json(self) -> Any:
        """The report, which its schema holds for."""
        return checked_report(self.bytes)


Run = Callable[..., Result]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("opt", "a.dx", stdin="...")`."""

    def call(*arguments: str, stdin: str = "") -> Result:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = cli.main(arguments)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Result(code, out, err.decode())

    return call


@pytest.fixture
def sea(tmp_path: Path) -> str:
    path = tmp_path / "program.sea"
    path.write_text(SEA)
    return str(path)
