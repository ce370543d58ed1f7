"""Binary files that JAX's own libraries make of the corpus: the same graphs as the texts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepx_graph.ir import Module
from deepx_graph.session.report.diff import diff
from deepx_graph.text import open_source, read
from deepx_graph.verify import verify
from tests.support.binary_corpus import VARIABLE, export
from tests.support.jax_corpus import JAX, files, needs_corpus

pytestmark = [
    needs_corpus, pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with jaxlib")
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("binary_corpus")
    export(JAX, made)
    return made


def load(path: Path) -> Module:
    return read(open_source(path)).module


def test_artifacts_that_earlier_releases_of_jax_wrote_are_read(folder: Path) -> None:
    """Of StableHLO 0.9 to 1.17, for CPU, GPU and TPU, of Shardy and of symbolic shapes."""
    found = sorted(folder.glob("*.recorded"))
    assert len(found) >= 140
    for path in found:
        verify(load(path))


@pytest.mark.parametrize("name", sorted(files("hlo")))
def test_a_protocol_buffer_is_the_graph_of_the_text(folder: Path, name: str) -> None:
    text, binary = load(JAX / name), load(folder / f"{name}.pb")
    assert list(diff(text, binary).lines()) == []


def places(module: Module) -> list[str]:
    """Where every node comes from in the user's program, as far as the file says."""
    return [n.span.place.chain(99) if n.span.place else "" for f in module.functions for n in f.nodes if n.span]


def notes(module: Module) -> list[object]:
    return [module.notes, *(n.origin.notes for f in module.functions for n in f.nodes)]


@pytest.mark.parametrize("name", sorted(files("stablehlo")))
def test_bytecode_of_the_dialects_themselves_is_the_graph_of_the_text(folder: Path, name: str) -> None:
    text, binary = load(JAX / name), load(folder / name.replace(".stablehlo", ".mlirbc"))
    assert list(diff(text, binary).lines()) == []
    assert notes(text) == notes(binary)


@pytest.mark.parametrize("name", sorted(set(files("stablehlo")) - {"hand_fusion.stablehlo"}))
def test_a_portable_artifact_is_the_graph_of_the_text_that_jaxlib_makes_of_it(folder: Path, name: str) -> None:
    """The fusion of MHLO has no artifact."""
    binary = folder / name.replace(".stablehlo", ".vhlo")
    text, module = load(binary.with_suffix(".vhlo.mlir")), load(binary)
    assert list(diff(text, module).lines()) == []
    assert notes(text) == notes(module)
    assert places(text) == places(module)
