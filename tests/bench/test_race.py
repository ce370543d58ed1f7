"""The race against XLA: programs compute what XLA computed for them, differences are found, and counts do not grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from bench.race import __main__ as command
from bench.race import memory
from bench.race.compare import digest, digest_fault, error, fault
from bench.race.contest import race, together
from bench.race.program import BF16, Program, programs
from bench.race.report import BEGIN, END, geometric_mean, line, ratio, rendered, rewrite
from bench.race.side import load, save
from bench.race.store import stored_digests, stored_text

SAMPLE = ("mlp_loss", "lstm_forward", "depthwise_convolution", "edit_distance", "heat", "max_pool", "power_iteration",
          "complex_chain", "bf16_mlp", "random_normal", "argmax_rows", "segment_sum", "lorenz", "argsort_rows",
          "black_scholes_f64", "integer_hash", "resample_by_phases")
"""Of every kind, and of every dtype; few kernels to compile."""


def small(name: str) -> Program:
    return programs()[f"{name}.small"]


def sampled() -> list[Any]:
    """The names of all functions; those outside of the sample are part of the long suites."""
    names = [n.removesuffix(".small") for n, p in programs().items() if p.size == "small"]
    return [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.conformance) for n in names]


@pytest.mark.parametrize("engine", ["numpy", "auto"])
@pytest.mark.parametrize("name", sampled())
def test_a_program_computes_what_xla_computed(name: str, engine: str) -> None:
    p = small(name)
    results = dx.compile(dx.loads(stored_text(p)), engine=engine)(*p.inputs)
    assert digest_fault([np.asarray(r) for r in results], stored_digests(p), p.bound) == ""


def test_every_program_is_stored_with_the_types_of_its_inputs() -> None:
    """All small ones, and some others, whose inputs take longer to make."""
    words = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int32": "i32", "int8": "i8",
             "uint8": "ui8", "uint32": "ui32", "uint64": "ui64"}
    for p in [p for k, p in enumerate(programs().values()) if p.size == "small" or k % 20 == 1]:
        head = next(line for line in stored_text(p).splitlines() if "@main(" in line).partition(") -> ")[0]
        types = [part.partition(">")[0] for part in head.split("tensor<")[1:]]
        assert types == ["x".join([*map(str, a.shape), words[a.dtype.name]]) for a in p.inputs], p.name
        assert stored_digests(p), p.name


# --- what is the same


def test_results_apart_are_found() -> None:
    x = np.array([1.0, -2.0, np.nan, np.inf], np.float32)
    assert error(x, x) == 0
    assert error(x + np.float32(1e-3), x) == pytest.approx(5e-4, rel=1e-3)
    assert error(np.array([1.0, -2.0, 0.0, np.inf], np.float32), x) == np.inf
    assert error(np.array([np.inf, -2.0, np.nan, np.inf], np.float32), x) == np.inf
    assert error(x.astype(np.float64), x) == error(x[:2], x) == np.inf
    assert error(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])) == 0.25
    assert error(np.array([3 + 4j]), np.array([3 - 4j])) == pytest.approx(1.6)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.bool_])
def test_digests_tell_what_is_off(dtype: Any) -> None:
    x = (np.arange(40).reshape(5, 8) % 7).astype(dtype)
    assert digest_fault([x], [digest(x)]) == ""
    other = x.copy()
    other[-1, -1] = not x[-1, -1]
    assert "is off by" in digest_fault([other], [digest(x)])
    assert "is off by" in fault([other], [x])
    assert digest_fault([x.ravel()], [digest(x)]) and digest_fault([], [digest(x)]) and fault([], [x])


def test_one_element_of_many_that_is_off_shows_in_the_mean() -> None:
    x = np.ones(1000, np.float32)
    assert digest_fault([np.where(np.arange(1000) == 3, 2, x).astype(np.float32)], [digest(x)])


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.complex64, np.bool_])
def test_arrays_reach_the_other_process(tmp_path: Path, dtype: Any) -> None:
    x = np.array([[0, 1, 2]]).astype(dtype)
    got = load(tmp_path / "x.npy", save(tmp_path / "x.npy", x))
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x)


# --- the race


def test_our_side_runs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--alone", "--only", "^integer_hash.small", "--rounds", "1", "--threads", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("integer_hash.small") and "ratio" not in said and "failed: 0" in said


def test_what_fails_is_a_row() -> None:
    (row,) = race([small("integer_hash")], None, "no such engine", 1, 1)
    assert "no such engine" in row["fails"]
    assert "fails: ours" in line(row)


def rows(ratios: Sequence[float]) -> list[dict[str, Any]]:
    """Of programs that take us so many times the 1 and 2 microseconds of XLA."""
    return [{"name": "p", "kind": "k", "ours": {"times": [2e-6 * r, 1e-6 * r], "start": 0.1, "start_cpu": 0.3},
             "xla": {"times": [1e-6, 2e-6], "start": 0.2, "start_cpu": 0.2}} for r in ratios]  # fmt: skip


def test_bounds_decide_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "race", lambda *_: iter(rows([1.0, 4.0])))
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert command.main(["--alone"]) == command.main(["--alone", "--below", "2.1", "--worst", "4"]) == 0
    assert command.main(["--alone", "--below", "1.9"]) == command.main(["--alone", "--worst", "3"]) == 1


def test_races_are_put_together() -> None:
    first, second = rows([3.0]), rows([2.0])
    (row,) = together([first, second])
    assert row["ours"] == {"times": [6e-6, 3e-6, 4e-6, 2e-6], "start": 0.1, "start_cpu": 0.3} and ratio(row) == pytest.approx(2.0)
    failed = [{"name": "p", "kind": "k", "fails": "why"}]
    assert together([first, failed]) == together([failed, first]) == failed


def test_tables_say_what_the_rows_say(tmp_path: Path) -> None:
    one, two = rows([3.0, 12.0])
    one |= {"name": "f.small"}
    two |= {"name": "f.medium"}
    text = rendered([one, two, {"name": "g.small", "kind": "k", "fails": "why"}])
    assert "| k | 6.0 | 3.0 | 12 | 2 of 2 | f 3.0 / 12 |" in text
    assert "by the clock 0.50 of" in text and "by the processor 1.50 of" in text
    lines = ("| f.medium | 12.0 | 18.0 | 1.0 | 1.5 |", "| f.small | 3.0 | 4.5 | 1.0 |", "- g.small: why")
    assert sorted(map(text.index, lines)) == list(map(text.index, lines))
    page = tmp_path / "page.md"
    page.write_text(f"a\n{BEGIN}\nold\n{END}\nb\n")
    rewrite(page, [one, two])
    assert page.read_text().startswith(f"a\n{BEGIN}\n\n| kind") and page.read_text().endswith(f"{END}\nb\n")
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no lines"):
        rewrite(page, [one])


def test_programs_are_chosen() -> None:
    def names(*arguments: str) -> list[str]:
        return [p.name for p in command.chosen(command.parser().parse_args(arguments))]

    assert names("--only", "^heat") == ["heat.small", "heat.medium", "heat_padded.small", "heat_padded.medium"]
    assert names("--only", "^heat", "--size", "small", "--every", "2") == ["heat.small"]
    assert names("--kind", "sorting", "--only", "^heat") == []
    assert sorted([*names(), *names("--size", "large")]) == sorted(programs()), "large ones where they are asked for alone"


# --- memory


def test_a_call_of_a_program_has_what_its_plan_states(capsys: pytest.CaptureFixture[str]) -> None:
    """A sort and its scratch, loops of stencils, large and small products."""
    only = "^(sort|heat|wave|matmul_f64|batched_small_gemm).medium"
    assert command.main(["memory", "--alone", "--only", only, "--threads", "2"]) == 0
    assert capsys.readouterr().out == "more than stated: 0; failed: 0\n"


def test_pieces_of_an_argument_are_read_where_they_lie() -> None:
    """Viterbi's steps but the first, 128 kB, and backward pointers of as much."""
    pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")
    viterbi = programs()["viterbi.medium"]
    assert dx.compile(dx.loads(stored_text(viterbi)), engine="native").plan.peak_bytes < 1.5 * viterbi.inputs[1].nbytes


def test_memory_is_listed_by_ratio() -> None:
    rows = [{"name": name, "kind": "k", "ours": {"bytes": ours, "held": held}, "xla": {"bytes": xla}}
            for name, ours, held, xla in (("much", 30, 31, 10), ("little", 5, 5, 10), ("none", 0, 0, 0))]
    said = memory.summary([*rows, {"name": "g", "kind": "k", "fails": "why"}]).splitlines()
    assert [text.split()[0] for text in said[1:4]] == ["little", "none", "much"]
    assert said[3].endswith("3.000  a call has 31")
    assert said[4:] == ["at most XLA's: 2 of 3, geometric mean of ratios 1.14", "more than stated: 1; failed: 1"]


# --- counts


def test_steps_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A sort alone is one step; a loop of 20 iterations is interpreted by the numpy engine."""
    assert command.main(["steps", "--only", "^(sort|heat_padded).small", "--engine", "numpy"]) == 0
    heat, sort = (line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines())
    assert sort == ["sort.small", "1", "sort by eval 1"]
    assert int(heat[1]) > 20 * 4 and "control" in heat[2]


@pytest.mark.parametrize("name", sampled())
def test_counts_do_not_grow(name: str) -> None:
    """One that falls belongs into the table: `python -m bench.race counts`."""
    pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")
    from bench.race.counts import counts, known

    steps, kernels, moved = counts(small(name))
    assert all(a <= b for a, b in zip((steps.total(), kernels, moved), known()[f"{name}.small"], strict=True))


def test_every_small_program_is_counted() -> None:
    from bench.race.counts import counted, known

    assert list(known()) == [p.name for p in counted()]
