"""Binary files that JAX's own libraries make of the corpus: the same graphs as the texts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
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


def restored(values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The matrix of which these are the eigenvalues and the columns eigenvectors."""
    return vectors @ np.diag(values) @ np.linalg.inv(vectors)


FACTORS = {
    "cpu_eig_": lambda w, left, right: [np.sort_complex(w.round(3)), restored(w, right), restored(w.conj(), left).T.conj(),
                                        np.linalg.norm(left, axis=0), np.linalg.norm(right, axis=0)],
    "cpu_eigh_": lambda v, w: [w, restored(w, v), v.T.conj() @ v],
    "cpu_schur_": lambda t, q: [q @ t @ q.T.conj(), q.T.conj() @ q, np.tril(t, -2)],
}  # fmt: skip
"""What says that factors are right where equal eigenvalues leave a choice: the matrix they are of, and what is asked of them."""


def test_artifacts_that_earlier_releases_of_jax_wrote_give_what_they_gave(folder: Path) -> None:
    """Those for CPU, linear algebra and symbolic shapes among them."""
    found = sorted(path for path in folder.glob("*.recorded") if path.with_name(f"{path.stem}.npz").exists())
    assert len(found) >= 45
    for path in found:
        recorded = np.load(path.with_name(f"{path.stem}.npz"))
        given, wanted = ([recorded[k] for k in recorded if k.startswith(side)] for side in ("in", "out"))
        got = list(dx.compile(load(path), optimize=False)(*given))
        scale = max((float(np.abs(np.nan_to_num(w)).max(initial=1)) for w in wanted), default=1)
        tolerance = scale * (1e-4 if {w.dtype.name for w in wanted} & {"float32", "complex64"} else 1e-9)
        of = next((factors for name, factors in FACTORS.items() if path.name.startswith(name)), lambda *arrays: list(arrays))
        for ours, theirs in zip(of(*got), of(*wanted), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance, err_msg=path.stem)


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
