"""Files of jax.export: the program and what is said of it; its derivative beside ours; damaged ones."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from deepx_graph.cli.main import main as cli
from deepx_graph.errors import DeepxGraphError, ParseError, UsageError
from deepx_graph.session import programs
from deepx_graph.session.vjpcheck import check_against_vjp
from deepx_graph.text import decode_source, read
from deepx_graph.text.common.options import ReadResult
from tests.support.binary_corpus import VARIABLE
from tests.support.flatbuffers import exported
from tests.support.paths import SHARED

ARTIFACT = SHARED / "suites" / "vhlo" / "vhlo_emit_version_api.1_1_0.mlir.bc"
needs_suite = pytest.mark.skipif(not ARTIFACT.is_file(), reason="the suite ../shared/suites/vhlo is not here")
LIMIT = 1 << 28

def test_bytes_that_are_no_table_are_not_taken_for_one() -> None:
    for head in (b"\x10\0\0\0" + bytes(300), b"\x40\0\0\0" + b"\xff" * 300, b"\x3c\0\0\0\x38\0\x64\0" + bytes(300)):
        with pytest.raises(ParseError, match=r"binary data|not read"):
            read(decode_source(head, "f", LIMIT))


@needs_suite
def test_a_program_with_its_platforms_and_calling_convention() -> None:
    module = ARTIFACT.read_bytes()
    found = read(decode_source(exported(module), "f.jaxexport", LIMIT))
    assert found.module.entry == read(decode_source(module, "f", LIMIT)).module.entry
    assert found.exported is not None
    assert (found.exported.name, found.exported.platforms, found.exported.calling_convention) == ("f", ("cpu",), 10)
    assert found.exported.kept == (0, 1)
    with pytest.raises(UsageError, match="no derivative"):
        check_against_vjp(found.module, found.exported)


@needs_suite
def test_damaged_tables_are_refused_or_make_a_program() -> None:
    data = exported(ARTIFACT.read_bytes())
    ends = {True: 0, False: 0}
    for k in range(1500):
        rng = random.Random(k)
        mutant = bytearray(data)
        mutant[rng.randrange(120)] = rng.randrange(256)
        try:
            found = read(decode_source(bytes(mutant[: rng.choice((len(data), rng.randrange(len(data))))]), "f", LIMIT))
            ends[True] += found.exported is not None
        except DeepxGraphError:
            ends[False] += 1
    assert min(ends.values()) > 20


# --- files that JAX writes ----------------------------------------------------------------------------------------------

WRITER = """
import sys, jax, jax.numpy as jnp
from jax import export
of = lambda *s, d=jnp.float32: jax.ShapeDtypeStruct(s, d)
def f(p, n, x): return {"y": jnp.tanh(x @ p["w"] + p["b"]).sum() * n, "z": (x * x, n + 1)}
e = export.export(jax.jit(f))({"w": of(3, 5), "b": of(5)}, of(d=jnp.int32), of(4, 3))
open(sys.argv[1] + "/a", "wb").write(e.serialize(vjp_order=2))
e = export.export(jax.jit(lambda x, unused: jnp.sin(x).sum(0)), platforms=["cpu", "cuda"])(of(*export.symbolic_shape("n, 3")), of())
open(sys.argv[1] + "/b", "wb").write(e.serialize(vjp_order=1))
e = export.export(jax.jit(lambda unused, x: jnp.exp(x) * x))(of(), of(2, 3))
open(sys.argv[1] + "/c", "wb").write(e.serialize(vjp_order=1))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} names no Python with jaxlib")
    made = tmp_path_factory.mktemp("exported")
    done = subprocess.run([os.environ[VARIABLE], "-c", WRITER, str(made)], capture_output=True, text=True, check=False,
                          env=os.environ | {"JAX_PLATFORMS": "cpu"})
    if "install 'flatbuffers'" in done.stderr:
        pytest.skip(f"the Python of {VARIABLE} has no flatbuffers")
    assert done.returncode == 0, done.stderr
    return made


def loaded(path: Path) -> ReadResult:
    found = programs.load(path)
    return ReadResult(found.module, found.warnings, exported=found.exported)


def test_what_jax_says_of_arguments_and_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (loaded(folder / name).exported for name in "ab")
    assert first is not None
    assert second is not None
    assert first.in_tree == "(({'b': f32[5], 'w': f32[3, 5]}, i32[], f32[4, 3]), {})"
    assert first.out_tree == "{'y': f32[], 'z': (f32[4, 3], i32[])}"
    assert (second.platforms, second.kept, second.in_tree) == (("cpu", "cuda"), (0, 1), "((f32[n, 3], f32[]), {})")
    third = loaded(folder / "c").exported
    assert third is not None
    assert (third.kept, third.in_tree) == ((1,), "((f32[], f32[2, 3]), {})")
    assert cli(["info", str(folder / "a")]) == 0
    assert "calling convention 10" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_our_gradient_is_the_stored_derivative(folder: Path, name: str) -> None:
    found = loaded(folder / name)
    rows = check_against_vjp(found.module, found.exported)
    assert rows
    assert all(row.agrees for row in rows), rows


def test_the_derivative_of_the_stored_derivative(folder: Path) -> None:
    """A file has as many orders as it was written with."""
    exported = loaded(folder / "a").exported
    assert exported is not None
    assert exported.vjp is not None
    first = exported.vjp()
    assert first.exported is not None
    assert all(row.agrees for row in check_against_vjp(first.module, first.exported))
