"""The table that `make conformance` prints: what passed of the corpora and of others' suites, counted from the tests that ran.

A row is a pattern over the names of tests. Nothing is typed: a suite that is not here, or was left out, has no row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

ROWS: dict[str, str] = {
    "JAX programs as HLO, every print, evaluated": r"text/hlo/test_read\.py::test_real_programs",
    "JAX programs as StableHLO, every print, evaluated": r"text/stablehlo/test_read\.py::test_real_programs",
    "JAX programs from HLO, optimised, default engine": r"test_jax_corpus\.py::test_outputs\[.*-hlo\]",
    "JAX programs from StableHLO, optimised, default engine": r"test_jax_corpus\.py::test_outputs\[.*-stablehlo\]",
    "gradients of JAX programs, from HLO and StableHLO": r"test_jax_corpus\.py::test_gradients\[",
    "JAX programs written as HLO and read again": r"text/hlo/test_print\.py::test_real_programs",
    "JAX programs written as StableHLO and read again": r"text/stablehlo/test_print\.py::test_real_programs",
    "JAX programs through HLO, StableHLO, HLO, sea, HLO: the same graph": r"round_trips\.py::test_the_same_graph\w+languages\[",
    "StableHLO's own `testdata`": r"text/stablehlo/test_read\.py::test_official_testdata",
    "StableHLO's own `interpret`, one process": r"text/stablehlo/test_read\.py::test_official_suite_sampled\[interpret-",
    "StableHLO's own `interpret`, several processes": r"test_devices\.py::test_official_sections",
    "StableHLO's own `math`": r"text/stablehlo/test_read\.py::test_official_suite_sampled\[math-",
    "StableHLO bytecode, VHLO 0.9 to 1.20: the graph of its text": r"text/stablehlo/test_bytecode\.py::test_bytecode_of_every",
    "JAX programs as MLIR bytecode and as portable artifacts: the graph of the text": r"test_binary_corpus\.py::test_(byte|a_port)",
    "JAX programs as HLO protocol buffers: the graph of the text": r"test_binary_corpus\.py::test_a_protocol_buffer",
    "XLA's parser tests: read, written and read as the same graph": r"test_hlo_suite\.py::test_what_xla_takes",
    "XLA's parser tests: printed back as it stood": r"test_hlo_suite\.py::test_what_xla_prints_back",
    "XLA's parser tests: refused at the location": r"test_hlo_suite\.py::test_what_xla_refuses",
    "deepx programs, every dialect, plain and optimised": r"test_deepx_corpus\.py::",
}  # fmt: skip
_ELSEWHERE = "run by test_devices"
"""The reason of a skip whose case another row has."""
_COUNTED = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped", "xfailed": "known",
            "xpassed": "failed"}


def table(stats: Mapping[str, Iterable[Any]]) -> list[str]:
    """Markdown rows from the reports of pytest by outcome: passed, of how many, known to fail, skipped."""
    counts: dict[str, Counter[str]] = {title: Counter() for title in ROWS}
    for outcome, word in _COUNTED.items():
        for report in stats.get(outcome, ()):
            if _ELSEWHERE not in str(getattr(report, "longrepr", "")):
                for title in _titles(report.nodeid):
                    counts[title][word] += 1
    lines = [f"| {title} | {c['passed']} of {c.total()} | {c['known'] or ''} | {c['skipped'] or ''} |"
             for title, c in counts.items() if c]
    return ["| what | passed | known to fail | skipped |", "|---|---|---|---|", *lines] if lines else []


def _titles(test: str) -> list[str]:
    return [title for title, pattern in ROWS.items() if re.search(pattern, test)]
