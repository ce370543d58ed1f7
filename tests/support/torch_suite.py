"""Programs of torch.export with inputs and results of torch, as files that `torch_cases.py` wrote, and how a run of one ends."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError

FOLDER = os.environ.get("DEEPX_GRAPH_TORCH_CASES", "")
"""Where the cases are."""

TOLERANCES = {np.dtype(np.float64): (1e-7, 1e-9), np.dtype(np.float32): (2e-4, 2e-5), np.dtype(np.float16): (5e-3, 5e-3)}
NARROW = (3e-2, 3e-2)
"""Of bfloat16, whose expected values are stored in single precision."""


@dataclass(frozen=True)
class TorchCase:
    """A program, its inputs and what torch gives for them."""

    kind: str
    name: str
    form: str
    path: Path

    def data(self, prefix: str) -> list[Any]:
        """The arrays of that prefix in order."""
        with np.load(self.path.with_suffix(".npz")) as found:
            return [found[f"{prefix}_{k}"] for k in range(len(found.files)) if f"{prefix}_{k}" in found.files]

    def gradients(self) -> dict[str, Any]:
        with np.load(self.path.with_suffix(".npz")) as found:
            return {k.removeprefix("grad_"): found[k] for k in found.files if k.startswith("grad_")}


def torch_cases(kind: str = "") -> list[TorchCase]:
    """All cases; none where they are not there."""
    index = Path(FOLDER) / "index.json"
    if not FOLDER or not index.exists():
        return []
    rows = json.loads(index.read_text())["cases"]
    return [TorchCase(r["kind"], r["name"], r["form"], Path(FOLDER) / f"{r['file']}.pt2") for r in rows if kind in ("", r["kind"])]


def differs(found: Any, wanted: Any) -> str:
    """Nothing, or what differs."""
    narrow = found.dtype.name == "bfloat16"
    if found.shape != wanted.shape or (found.dtype != wanted.dtype and not narrow):
        return f"is {found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    rtol, atol = NARROW if narrow else TOLERANCES.get(wanted.dtype, (0.0, 0.0))
    try:
        np.testing.assert_allclose(found.astype(np.float32) if narrow else found, wanted, rtol=rtol, atol=atol)
    except AssertionError as e:
        return " ".join(str(e).split())[:200]
    return ""


def torch_outcome(case: TorchCase, engine: str = "numpy", pipeline: str = "") -> str:
    """`passed`, or why not. What a program gives beyond the results of torch are values that it has written."""
    try:
        module = dx.load(case.path)
        if pipeline:
            module = dx.optimize(module, pipeline)
        given, wanted = case.data("in"), case.data("out")
        types = [p.type for p in module.entry.params]
        inputs = [np.asarray(g).astype(t.dtype.np) for g, t in zip(given, types, strict=True)]
        found = dx.compile(module, engine=engine, optimize=False)(*inputs)
        if len(found) < len(wanted):
            return f"wrong: {len(found)} results, expected {len(wanted)}"
        for k, (f, w) in enumerate(zip(found, wanted, strict=False)):
            if what := differs(f, w):
                return f"wrong: result {k} {what}"
    except DeepxGraphError as e:
        return "refused: " + " ".join(str(e.diagnostics[0].message).split())[:200]
    except Exception as e:  # the point of the table is to show these
        return f"crashed: {type(e).__name__}: {e}"[:200]
    return "passed"


def main() -> None:
    """A table of the outcomes: `python -m tests.support.torch_suite [PART OF A NAME] [ENGINE] [PIPELINE]`."""
    part, engine, pipeline = (*sys.argv[1:], "", "", "")[:3]
    table: Counter[tuple[str, str, str]] = Counter()
    for case in torch_cases():
        if part in case.path.stem and case.kind != "gradient":
            ended = torch_outcome(case, engine or "numpy", pipeline)
            table[case.kind, case.form, ended.partition(":")[0]] += 1
            if ended != "passed":
                print(case.path.stem, ended)
    for key, count in sorted(table.items()):
        print(count, *key)


if __name__ == "__main__":
    main()
