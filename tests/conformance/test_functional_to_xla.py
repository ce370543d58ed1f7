"""Functional programs in XLA's languages: closures and data gone, tail recursion as loops, and the same results both ways."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import VerifyError
from deepx_graph.ir.structure import CALL, LOOP_END
from deepx_graph.types import TensorType, TupleType
from tests.support import jax_oracle, paths
from tests.support.paths import ROOT
from tests.support.relay_programs import PROGRAMS

pytestmark = pytest.mark.validated

SHARED = paths.SHARED / "corpus"
CORPUS = sorted([*SHARED.glob("relay/*.relay"), *SHARED.glob("mindir/*.mindir")])
BEYOND = {8: "call_value|ref_create|partial"}
"""Of `PROGRAMS` those that keep a function in a reference, and what is told of them."""


def stored(path: Path) -> tuple[list[Any], list[Any]]:
    with np.load(path.parent / f"{path.name.partition('.')[0]}.npz", allow_pickle=False) as z:
        return [z[k] for k in sorted(z.files) if k.startswith("in")], [z[k] for k in sorted(z.files) if k.startswith("out")]


def converted(module: dx.Module, form: str) -> tuple[str, dx.Module]:
    """The text of the module in that form, and the module that it says."""
    text = dx.dumps(dx.optimize(module, "first-order"), form)
    return text, dx.loads(text)


@pytest.mark.parametrize("form", ["stablehlo", "hlo"])
@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.name)
def test_the_corpus_runs_equal_both_ways(path: Path, form: str) -> None:
    inputs, wanted = stored(path)
    module = dx.load(path)
    _, found = converted(module, form)
    assert found.format == form
    for version in (found, dx.optimize(found)):
        results = dx.compile(version, optimize=False)(*inputs)
        assert len(results) == len(wanted)
        for a, b, c in zip(results, wanted, dx.compile(module, optimize=False)(*inputs), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(a, c, rtol=1e-6, atol=1e-6)


def test_the_corpus_is_here() -> None:
    if not CORPUS:
        pytest.skip(f"{SHARED} is not here")


@pytest.mark.parametrize("form", ["stablehlo", "hlo"])
@pytest.mark.parametrize("k", range(len(PROGRAMS)))
def test_programs_run_equal_or_say_what_cannot_be_said(k: int, form: str) -> None:
    text, given, wanted = PROGRAMS[k]
    if k in BEYOND:
        with pytest.raises(VerifyError, match=BEYOND[k]) as caught:
            converted(dx.loads(text), form)
        assert all(d.span is not None for d in caught.value.diagnostics)
        assert any("first-order" in (d.hint or "") for d in _plain_complaint(text, form))
        return
    found = dx.compile(converted(dx.loads(text), form)[1], optimize=False)(np.int32(given))
    assert [int(v) for v in found] == list(np.atleast_1d(np.asarray(wanted)).astype(int))


def _plain_complaint(text: str, form: str) -> tuple[Any, ...]:
    with pytest.raises(VerifyError) as caught:
        dx.dumps(dx.loads(text), form)
    return tuple(caught.value.diagnostics)


def test_functions_stay_functions_where_nothing_inlines_them() -> None:
    text = ("def @norm(%x: Tensor[(3), float32]) -> Tensor[(3), float32] { %x / sum(%x) }\n"
            "def @main(%x: Tensor[(3), float32]) { @norm(@norm(%x) + 1f) }")  # fmt: skip
    module, x = dx.loads(text), np.array([1, 2, 5], np.float32)
    for form, call in (("stablehlo", "call @norm"), ("hlo", "call(")):
        written = dx.dumps(module, form)
        assert written.count(call) == 2
        found = dx.loads(written)
        assert sum(n.op is CALL for n in found.entry.nodes) == 2
        np.testing.assert_allclose(dx.compile(found, optimize=False)(x)[0], dx.compile(module, optimize=False)(x)[0], rtol=1e-6)


def test_tail_recursion_is_a_while() -> None:
    for text, *_ in (PROGRAMS[0], PROGRAMS[1]):
        written, found = converted(dx.loads(text), "hlo")
        assert " while(" in written and any(n.op is LOOP_END for n in found.entry.nodes)


@pytest.mark.conformance
@pytest.mark.skipif(jax_oracle.VARIABLE not in os.environ, reason=f"{jax_oracle.VARIABLE} does not name a Python that has jax")
def test_xla_takes_what_is_written_and_computes_the_same(tmp_path: Path) -> None:
    asked: dict[str, tuple[str, Any]] = {}
    expected: dict[str, list[Any]] = {}
    cases = [(p.name, dx.load(p), *stored(p)) for p in CORPUS]
    cases += [(f"program{k}", dx.loads(t), [np.int32(x)], [np.asarray(v) for v in np.atleast_1d(np.asarray(want, object))])
              for k, (t, x, want) in enumerate(PROGRAMS) if k not in BEYOND]  # fmt: skip
    for name, module, inputs, wanted in cases:
        first_order = dx.optimize(module, "first-order")
        flat = not any(isinstance(r.type, TupleType) for r in first_order.entry.results)  # jaxlib runs no tuples, only checks them
        asked[name] = dx.dumps(first_order, "stablehlo"), inputs if flat else None
        expected[name] = wanted
        (tmp_path / f"{name}.hlo").write_text(dx.dumps(first_order, "hlo"))
        types = [p.type.dtype.name for p in first_order.entry.params if isinstance(p.type, TensorType)]
        np.savez(tmp_path / f"{name}.npz", dtypes=np.array(types, str), **{f"in{k}": a for k, a in enumerate(inputs)})
    answers = jax_oracle.ask(asked)
    script = ROOT / "tests" / "support" / "xla_run.py"
    subprocess.run([os.environ[jax_oracle.VARIABLE], str(script), str(tmp_path)], check=True, capture_output=True, timeout=300)
    assert json.loads((tmp_path / "errors.json").read_text()) == {}
    for name, want in expected.items():
        by_hlo = np.load(tmp_path / f"{name}.out.npz")
        answer = answers[name]
        assert not isinstance(answer, str), f"{name}: {answer}"
        for k, w in enumerate(want):
            for got in (*answer[k : k + 1], by_hlo[f"out{k}"]):
                np.testing.assert_allclose(np.asarray(got).astype(float), np.asarray(w).astype(float), rtol=1e-5, atol=1e-5)
