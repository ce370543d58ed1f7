"""The benchmark measures what it says: texts compute the formulas, what fails is told, tables are what the history holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from bench import __main__ as command
from bench.harness.child import RETRIES, undisturbed
from bench.harness.limits import seconds_at_least
from bench.harness.process import ROOT, Process
from bench.harness.threads import environment
from bench.libraries import tables
from bench.libraries.contestants import PEERS, contestant
from bench.libraries.measure import WORKER, installed, measure
from bench.libraries.ours import PROGRAMS, Auto
from bench.libraries.ours import program as text_of
from bench.libraries.worker import Worker, worst_error
from bench.libraries.workloads import ALL, SIZES, Workload


def smallest(w: Workload) -> list[Any]:
    return w.inputs(next(w.sizes[s] for s in SIZES if s in w.sizes), np.random.default_rng(0))


# --- the programs


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.stablehlo")), ids=lambda p: p.name.removesuffix(".stablehlo"))
def test_every_text_has_the_inputs_of_its_workload(path: Path) -> None:
    name, size, _ = path.name.split(".")
    w = ALL[name]
    types = [p.type for p in dx.load(path).entry.params]
    args = w.inputs(2, np.random.default_rng(0))  # in place of many elements or rows
    shapes = [tuple(w.sizes[size] if d == 2 else d for d in a.shape) for a in args]
    assert [(t.dtype.np, t.shape) for t in types] == [(a.dtype, shape) for a, shape in zip(args, shapes, strict=True)]


@pytest.mark.parametrize("name", list(ALL))
def test_a_text_computes_the_formula(name: str) -> None:
    w = ALL[name]
    args = smallest(w)
    try:
        module = text_of(name, args)
    except FileNotFoundError:
        pytest.skip(f"no text of {name} yet")
    want = w.reference(args)
    got = dx.compile(module, engine="numexpr", threads=1, optimize=False)(*args)
    assert worst_error(w, [np.asarray(g) for g in got], want) <= w.tolerance


@pytest.mark.parametrize("library", ["numpy", "numexpr"])
@pytest.mark.parametrize("name", list(ALL))
def test_what_an_expert_writes_computes_the_formula(name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_THREADS", "1")
    w = ALL[name]
    args = smallest(w)
    want = w.reference(args)
    peer = contestant(library)
    assert worst_error(w, peer.outputs(peer.prepare(w, [a.copy() for a in args])()), want) <= w.tolerance


def test_inputs_given_away_are_fed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of Adam are the formula applied twice."""
    monkeypatch.setenv("BENCH_THREADS", "1")
    w = ALL["adam"]
    args = smallest(w)
    once = w.reference(args)
    twice = w.reference([*once, args[3]])
    call = Auto().prepare(w, [a.copy() for a in args])
    assert worst_error(w, list(call()), once) <= w.tolerance
    assert worst_error(w, list(call()), twice) <= w.tolerance


def test_an_error_is_one() -> None:
    w = ALL["axpy"]
    want = np.array([1.0, -4.0], np.float32)
    assert w.error(want, want) == 0
    assert w.error(want + np.float32(1), want) == 0.25
    assert w.error(np.array([1.0, np.nan], np.float32), want) == np.inf
    assert worst_error(w, [], [want]) == np.inf


# --- timing


def test_a_batch_in_which_a_core_was_taken_is_timed_again() -> None:
    taken = iter([0, 3, 3, 4, 4, 4])
    seconds = iter([0.5e-3, 0.4e-3, 0.6e-3])
    found = undisturbed(lambda: next(seconds), 10, lambda: next(taken))
    assert found == {"seconds": 0.6e-3, "preempted": 0}


def test_of_disturbed_batches_the_least_disturbed_counts() -> None:
    taken = iter([0, 5, 5, 7, 7, 13, 13, 20])
    seconds = iter([1e-3, 3e-3, 2e-3, 1e-3])
    assert undisturbed(lambda: next(seconds), 1, lambda: next(taken)) == {"seconds": 3e-3, "preempted": 2}
    assert next(seconds, None) is None, f"{RETRIES} tries"


def test_a_long_batch_is_timed_once() -> None:
    taken, seconds = iter([0, 9]), iter([1.0])
    assert undisturbed(lambda: next(seconds), 1, lambda: next(taken)) == {"seconds": 1.0, "preempted": 9}


def test_a_process_measures_and_an_impossible_question_is_an_answer() -> None:
    processes = {name: Process(name, sys.executable, 1, WORKER) for name in ("numpy", "nobody")}
    try:
        row = measure(ALL["axpy"], "small", processes, 2, 1)
    finally:
        for process in processes.values():
            process.close()
    assert (row["read"], row["written"], row["elements"], row["threads"]) == (16_000, 4_000, 1_000, 1)
    assert 0 < row["times"]["numpy"]["min"] <= row["times"]["numpy"]["median"]
    assert row["times"]["numpy"]["error"] < 1e-6
    assert "nobody" in row["fails"] and "nobody" not in row["times"]


def test_wrong_results_are_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Wrong(Process):
        def ask(self, **question: Any) -> dict[str, Any]:
            return {"first": 1.0, "error": 0.5, "seconds": 1.0, "held": 0} if "load" in question else {}

    row = measure(ALL["axpy"], "small", {"numpy": Wrong("numpy", sys.executable, 1, WORKER)}, 2, 1)
    assert row["times"] == {} and row["fails"] == {"numpy": "wrong results, off by 5.0e-01"}


def test_a_process_that_ends_fails_and_can_be_asked_again() -> None:
    process = Process("numpy", sys.executable, 1, WORKER)
    process._command = [sys.executable, "-c", "pass"]
    try:
        assert process.ask(free=True) == {"fails": "its process ended"}
        assert process.ask(free=True) == {"fails": "its process ended"}
    finally:
        process.close()


def test_no_answer_in_time_is_a_failure() -> None:
    process = Process("numpy", sys.executable, 1, WORKER, timeout=0.1)
    process._command = [sys.executable, "-c", "input(); input()"]
    assert process.ask(free=True) == {"fails": "no answer in 0 s"}
    assert process._process is None


def test_missing_peers_are_a_line_each() -> None:
    there, lines = installed(sys.executable, ["numpy"])
    assert there == {"numpy": np.__version__} and lines == []
    there, lines = installed("no-such-python", ["numpy", "jax"])
    assert there == {} and lines == ["numpy: no-such-python has no numpy", "jax: no-such-python has no jax"]


def test_a_worker_frees_what_it_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_THREADS", "1")
    w = ALL["reduce_full"]
    args = smallest(w)
    for k, a in enumerate(args):
        np.save(tmp_path / f"in{k}.npy", a)
    np.save(tmp_path / "out0.npy", w.reference(args)[0])
    worker = Worker("numpy")
    worker.cores.all = ()  # the threads of the tests stay where they are
    answer = worker.answer({"load": "reduce_full", "folder": str(tmp_path), "inputs": 2, "outputs": 1})
    assert answer["error"] < 1e-5 and worker.answer({"time": 3})["seconds"] > 0
    assert "peak" in worker.answer({"free": True}) and worker.call is None


def test_every_library_gets_the_number_of_threads() -> None:
    told = environment(3)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "BENCH_THREADS")
    assert {told[name] for name in names} == {"3"}


# --- tables


LIMITS = {"read.cache": 100e9, "moved.cache": 200e9, "read.memory": 20e9, "moved.memory": 40e9, "flops": 200e9}


def row(name: str, size: str, times: dict[str, tuple[float, float]], threads: int = 2, **more: Any) -> dict[str, Any]:
    found = {n: {"min": a, "median": b, "memory": 5_000_000} for n, (a, b) in times.items()}
    return {"workload": name, "size": size, "elements": 1_000_000, "read": 16_000_000, "written": 4_000_000, "flops": 0,
            "threads": threads, "times": found, "fails": {}} | more


def record(*rows: dict[str, Any], cpu: str = "cpu") -> dict[str, Any]:
    return {"date": "2001-02-03", "machine": {"cpu": cpu, "cores": 2}, "versions": {"numpy": "9"}, "limits": {"2": LIMITS},
            "rows": list(rows)}


def test_the_limit_is_the_slowest_of_reading_moving_and_multiplying() -> None:
    assert seconds_at_least(LIMITS, 16_000_000, 4_000_000, 0, cached=True) == pytest.approx(0.16e-3)
    assert seconds_at_least(LIMITS, 4_000_000, 16_000_000, 0, cached=True) == pytest.approx(0.1e-3)
    assert seconds_at_least(LIMITS, 4_000_000, 16_000_000, 0, cached=False) == pytest.approx(0.5e-3)
    assert seconds_at_least(LIMITS, 4_000_000, 16_000_000, 200_000_000, cached=True) == pytest.approx(1e-3)


def test_a_table_has_times_and_ratios() -> None:
    times = {"auto": (0.32e-3, 0.4e-3), "jax": (0.64e-3, 0.5e-3), "numpy": (1e-3, 2e-3)}
    text = tables.rendered([record(row("axpy", "medium", times))])
    assert "| axpy | 0.32 / 0.4 | 0.64 / 0.5 | 1 / 2 | 0.50 / 0.80 | 2.00 |" in text
    assert "| workload | **auto** | jax | numpy | auto / best peer | auto / limit |" in text
    assert "2001-02-03: cpu, 2 cores; numpy 9." in text and "read and 200 moved in cache, 20 and 40 out of it, 200 GFLOP/s." in text


def test_where_we_stand_is_said_in_a_line() -> None:
    behind = row("axpy", "medium", {"auto": (2e-3, 1e-3), "jax": (1e-3, 2e-3)})
    level = row("gelu", "medium", {"auto": (1.04e-3, 1e-3), "jax": (1e-3, 1e-3)})
    text = tables.rendered([record(behind, level)])
    assert "or within 5%, in 1 of 2 rows; behind by more, by minimum: axpy medium 2.00." in text


def test_huge_pages_are_a_ratio_of_their_own() -> None:
    times = {"auto": (1e-3, 1e-3), "jax": (4e-3, 4e-3), "jax+huge": (2e-3, 2e-3)}
    text = tables.rendered([record(row("axpy", "large", times))])
    assert "| axpy | 1 / 1 | 4 / 4 | 2 / 2 | 0.25 / 0.25 | 0.50 / 0.50 | 1.25 |" in text


def test_failures_are_named_and_small_calls_have_no_limit() -> None:
    text = tables.rendered([record(row("axpy", "small", {"auto": (1e-6, 1e-6)}, fails={"torch": "RuntimeError: no\nmore"}))])
    assert "| axpy | 1 / 1 | - | - |" in text
    assert "- torch on axpy, small: RuntimeError: no" in text and "more" not in text


def test_scaling_in_threads_and_size() -> None:
    rows = [row("axpy", "medium", {"auto": (2e-3, 2e-3), "numpy": (3e-3, 3e-3)}, threads=1),
            row("axpy", "medium", {"auto": (1e-3, 1e-3), "numpy": (3e-3, 3e-3)}),
            row("axpy", "small", {"auto": (1e-6, 1e-6), "numpy": (2e-6, 2e-6)}, elements=1000)]
    text = tables.rendered([record(*rows)])
    assert "| axpy | medium | 2.00 | 1.00 |" in text
    assert "| axpy | 1, 2 | 1, 3 |" in text


def test_of_a_history_the_newest_rows_of_this_machine_count() -> None:
    old = record(row("axpy", "medium", {"auto": (1.0, 1.0)}), row("gelu", "medium", {"auto": (2.0, 2.0)}))
    other = record(row("trans", "medium", {"auto": (3.0, 3.0)}), cpu="another")
    new = record(row("axpy", "medium", {"auto": (4.0, 4.0)}))
    found = tables.newest([old, other, new])
    assert [(r["workload"], r["times"]["auto"]["min"]) for r in found] == [("axpy", 4.0), ("gelu", 2.0)]


def test_only_what_is_between_the_markers_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    tables.rewrite(page, [record(row("axpy", "medium", {"auto": (1e-3, 1e-3)}))])
    text = page.read_text()
    assert text.startswith(f"before\n{tables.BEGIN}\n") and text.endswith(f"{tables.END}\nafter\n") and "old" not in text
    page.write_text("no markers")
    with pytest.raises(ValueError, match="has no lines"):
        tables.rewrite(page, [record()])


def test_the_performance_page_has_the_markers() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert text.count(tables.BEGIN) == text.count(tables.END) == 1


def test_the_command_writes_history_and_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "deeper" / "history.jsonl"
    page.write_text(f"{tables.BEGIN}\n{tables.END}")
    options = ["--only", "axpy", "--size", "small", "--rounds", "1", "--engines", "auto", "--peers", "numpy", "--threads", "1"]
    assert command.main([*options, "--json", str(kept), "--table", str(page)]) == 0
    (found,) = command.history(kept)
    assert set(found["rows"][0]["times"]) == {"auto", "numpy"} and set(found["machine"]) == {"cpu", "cores"}
    assert "| axpy |" in page.read_text() and "axpy small, 1 threads" in capsys.readouterr().out
    assert command.main(["--rounds", "0", "--json", str(tmp_path / "none"), "--table", str(page)]) == 1
    with pytest.raises(SystemExit):
        command.main(["--only", "axpi"])
    assert "no 'axpi'" in capsys.readouterr().err


def test_what_was_measured_before_an_interruption_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(w: Workload, size: str, *rest: Any) -> dict[str, Any]:
        if size == "medium":
            raise KeyboardInterrupt
        return row(w.name, size, {"numpy": (1.0, 1.0)})

    monkeypatch.setattr(command, "measure", interrupted)
    monkeypatch.setattr(command, "limits", lambda threads: {})
    kept = tmp_path / "history.jsonl"
    with pytest.raises(KeyboardInterrupt):
        command.main(["--only", "axpy", "--peers", "numpy", "--json", str(kept)])
    (found,) = command.history(kept)
    assert [r["size"] for r in found["rows"]] == ["small"]


def test_every_workload_is_listed_and_every_peer_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == list(ALL)
    assert command.parser().parse_args(["--peers", ",".join(PEERS)]).peers == list(PEERS)


# --- the other measurements


def test_broken_bounds_of_length_are_reported() -> None:
    from bench.scaling.length import Run, complaints, tables

    runs = {("hlo", 10_000): Run(1.0, 1 << 20), ("hlo", 100_000): Run(24.0, 3 << 30)}
    steps = {("hlo", 10_000): {"read": 0.5}, ("hlo", 100_000): {"read": 5.0, "write": 1.0}}
    assert [line.partition("took ")[2] or line.partition("cost ")[2] for line in complaints(runs, steps)] == [
        "more than 2 GB", "more than 12 times 10 000"]
    assert "| hlo | 100,000 | 24.00 | 24.0 | 3221 |" in tables(runs, steps) and "| write | - | 1.000 |" in tables(runs, steps)


@pytest.mark.parametrize("form", ["deepx", "hlo", "stablehlo"])
def test_texts_of_any_length_are_programs(form: str) -> None:
    from bench.models.texts import TEXTS

    text = TEXTS[form](300)
    assert 290 <= len([line for line in text.splitlines() if "=" in line or "->" in line]) <= 700
    assert dx.dumps(dx.optimize(dx.loads(text)), "sea")


def test_recursion_and_loop_run_as_many_kernels() -> None:
    from bench.engines.pairs import counted, recursion

    pair = next(recursion())
    args = (np.int32(5), *pair.args[1:])
    assert counted(pair.ours, args) == counted(pair.other, args)
    assert counted(pair.ours, args)[0] >= 5
