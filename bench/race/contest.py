"""Races programs: a process for each side, results compared first, then rounds in turns whose order is reversed every round."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from bench.harness.process import Process, interleaved
from bench.libraries.measure import installed
from bench.race.compare import digest_fault, fault
from bench.race.program import Array, Program
from bench.race.side import LONG, load, save
from bench.race.store import stored_digests, stored_text

Row = dict[str, Any]
"""`name` and `kind` of a program; `fails`, or for `ours` and `xla` the seconds of a call in each round, and those of the start
(compiling and the first call) by the clock and by the processor, of all threads."""
STARTS = {"start": "by the clock", "start_cpu": "by the processor"}
"""The fields of a start, and how each is told."""
TIMEOUT = 300.0
SLOW_ROUNDS = 1
"""Rounds, beside that which warms up, of a program that takes one side longer than `LONG`."""


def has_xla(python: str) -> bool:
    """Whether that Python has JAX."""
    return bool(installed(python, ["jax"])[0])


def race(chosen: Iterable[Program], python: str | None, engine: str, rounds: int, threads: int) -> Iterator[Row]:
    """A row for each program. Without the Python that has XLA our side runs alone, and is compared with what is stored."""
    with tempfile.TemporaryDirectory() as cache:  # empty, so that machine code is compiled
        pythons = {"ours": sys.executable} | ({"xla": python} if python is not None else {})
        sides = {name: Process(name, command, threads, "bench.race.side", TIMEOUT, {"DEEPX_GRAPH_CACHE": cache})
                 for name, command in pythons.items()}
        try:
            for p in chosen:
                with tempfile.TemporaryDirectory() as folder:
                    yield _row(p, sides, Path(folder), engine, rounds)
        finally:
            for side in sides.values():
                side.close()


def _row(p: Program, sides: dict[str, Process], folder: Path, engine: str, rounds: int) -> Row:
    row: Row = {"name": p.name, "kind": p.kind}
    dtypes = [save(folder / f"in{k}.npy", a) for k, a in enumerate(p.inputs)]
    question = {"load": stored_text(p), "folder": str(folder), "dtypes": dtypes, "engine": engine}
    loaded = {name: side.ask(**question) for name, side in sides.items()}
    fails = [f"{name}: {answer['fails']}" for name, answer in loaded.items() if "fails" in answer]
    if not fails:
        fails = [text for text in [_fault(p, loaded, folder)] if text]
    if not fails:
        slow = max(answer["seconds"] for answer in loaded.values()) > LONG
        times = interleaved(sides, loaded, min(rounds, SLOW_ROUNDS) if slow else rounds)
        fails = [f"{name}: {answer['fails']}" for name, answer in loaded.items() if "fails" in answer]
        row |= {name: {"times": t, "start": loaded[name]["first"], "start_cpu": loaded[name]["first_cpu"]}
                for name, t in times.items()}
    return {**row, "fails": "; ".join(fails)} if fails else row


def together(races: Iterable[Iterable[Row]]) -> list[Row]:
    """The rows of several races of the same programs as those of one with more rounds; a failure stays one."""
    found: dict[str, Row] = {}
    for row in chain.from_iterable(races):
        known = found.setdefault(row["name"], row)
        if known is not row and "fails" not in known:
            sides = [side for side in ("ours", "xla") if side in known and side in row]
            found[row["name"]] = row if "fails" in row else known | {side: {
                "times": known[side]["times"] + row[side]["times"],
                **{start: min(known[side][start], row[side][start]) for start in STARTS}} for side in sides}  # fmt: skip
    return list(found.values())


def _fault(p: Program, loaded: dict[str, dict[str, Any]], folder: Path) -> str:
    results = {name: _results(folder, name, answer["dtypes"]) for name, answer in loaded.items()}
    if "xla" in results:
        return fault(results["ours"], results["xla"], p.bound)
    return digest_fault(results["ours"], stored_digests(p), p.bound)


def _results(folder: Path, side: str, dtypes: list[str]) -> list[Array]:
    return [load(folder / f"{side}{k}.npy", dtype) for k, dtype in enumerate(dtypes)]
