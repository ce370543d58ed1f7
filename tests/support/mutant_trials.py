"""What is asked of a damaged program: it is refused with a diagnostic, or all that is done with programs can be done with it.

Trials run in child processes, whose memory and time are bounded: `python -m tests.support.mutant_trials KIND COUNT [FIRST]` reports
by language and kind of failure.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import selectors
import signal
import subprocess
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Module
from deepx_graph.session.inputs import random_inputs
from deepx_graph.text import FORMATS
from tests.support.mutants import ROOT, Seed, corpus_seeds, exaggerated, mutant, op_seeds, own_seeds

MEMORY = 1 << 30
"""Bytes that a child may have beyond what it has at its start."""
SECONDS = 20
RUN_SECONDS = 0.5
"""How long a damaged program may run, which may well be one that never ends."""
KILLED, LONG = "killed", f"longer than {SECONDS} s"
ENDS = ("refused", "loaded")
"""How a mutant may end."""
Step = Callable[[Module], None]
Mutants = Callable[[int], tuple[Seed, str]]
WRITERS = tuple(name for name, f in FORMATS.items() if f.writes and not f.binary and name != "cps")
LARGEST = 1 << 24
"""Bytes that a damaged program may ask for when it runs."""


class TooLong(BaseException):
    """A program that runs on."""


class Broken(Exception):
    """A law that does not hold of a program."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises TooLong in a block that takes longer."""

    def stop(number: int, frame: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def values(module: Module) -> tuple[np.ndarray, ...] | None:
    """The results on random inputs by the reference engine; None where there are none."""
    with suppress(DeepxGraphError, TooLong), deadline(RUN_SECONDS), np.errstate(all="ignore"):
        compiled = dx.compile(module, engine="numpy", max_bytes=LARGEST, out=io.StringIO(), optimize=False)
        return tuple(np.asarray(x) for x in compiled(*random_inputs(compiled.inputs, 0, max_bytes=LARGEST).values()))
    return None


def trial(seed: Seed, text: str, steps: Sequence[Step] | None = None) -> str:
    """`refused`, or `loaded`; what loads is put to the steps, all of them where none are given. Raises whatever is wrong."""
    try:
        module = dx.loads(text.encode("latin-1") if seed.binary else text, seed.format)
    except DeepxGraphError as e:
        if not e.diagnostics or not str(e):
            raise Broken("an error without a word") from e
        return "refused"
    for step in STEPS if steps is None else steps:
        step(module)
    return "loaded"


def optimised(module: Module) -> None:
    dx.optimize(module)


def differentiated(module: Module) -> None:
    with suppress(DeepxGraphError):
        dx.grad(module)


def pushed_forward(module: Module) -> None:
    with suppress(DeepxGraphError):
        dx.jvp(module)


def drawn(module: Module) -> None:
    dx.draw(module, format="dot")


def continued(module: Module) -> None:
    """As continuations, which nothing reads."""
    with suppress(DeepxGraphError):
        dx.dumps(module, "cps")


def written(name: str) -> Step:
    """What a writer writes is read back as a program of the same values."""

    def step(module: Module) -> None:
        try:
            text = dx.dumps(module, name)
        except DeepxGraphError:
            return
        try:
            back = dx.loads(text, name)
        except DeepxGraphError as e:
            raise Broken(f"what was written as {name} does not read: {e.diagnostics[0].message[:60]}") from e
        want = values(module)
        got = values(back) if want is not None else None
        if want is None or got is None or any(x.size > 4096 for x in want):
            return
        if len(want) != len(got) or not all(_same(x, y) for x, y in zip(want, got, strict=True)):
            raise Broken(f"other values after {name}")

    return step


STEPS: tuple[Step, ...] = (optimised, differentiated, pushed_forward, drawn, continued, *map(written, WRITERS))


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return x.size == y.size == 0
    if x.dtype.kind == "V":  # bfloat16 and narrower
        x, y = x.astype(np.float32), y.astype(np.float32)
    if x.dtype.kind not in "fc":
        return bool((x == y).all())
    return bool(np.allclose(x, y, rtol=1e-2, atol=1e-2, equal_nan=True))


# --- children -----------------------------------------------------------------------------------------------------


def own() -> Mutants:
    return partial(mutant, own_seeds())


def corpus() -> Mutants:
    return partial(mutant, [*own_seeds(), *corpus_seeds()])


def numbers() -> Mutants:
    return partial(exaggerated, tuple(op_seeds()))


KINDS: dict[str, Callable[[], Mutants]] = {"own": own, "corpus": corpus, "numbers": numbers}
"""Of what is in this checkout; with the shared corpus; of all operations, with one hostile number each."""


def child(kind: str) -> None:
    """Trials of the numbers on standard input, one line of JSON each on standard output."""
    warnings.simplefilter("ignore")
    mutants = KINDS[kind]()
    bound_memory()
    print(json.dumps(("", "ready")), flush=True)
    for number in map(int, sys.stdin):
        seed, text = mutants(number)
        step = random.Random(number).choice(STEPS)
        print(json.dumps((seed.language, verdict(seed, text, [step]))), flush=True)


def bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def verdict(seed: Seed, text: str, steps: Sequence[Step] | None = None) -> str:
    """`refused`, `loaded`, or what went wrong and where."""
    try:
        return trial(seed, text, steps)
    except (Exception, TooLong) as e:
        frames = [f for f in traceback.extract_tb(e.__traceback__) if "deepx_graph" in f.filename or "mutant" not in f.filename]
        ours = next((f for f in reversed(frames) if str(ROOT) in f.filename and "/tests/" not in f.filename), None)
        where = f"{Path(ours.filename).relative_to(ROOT)}:{ours.lineno}" if ours else ""
        said = str(e) if isinstance(e, Broken) else ""
        return " ".join(filter(None, (type(e).__name__, where, said)))


def processor_seconds(pid: int) -> float:
    """The time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Child:
    """A process that tries mutants, and is made again when it dies or takes too long."""

    def __init__(self, kind: str) -> None:
        self.arguments = [sys.executable, "-m", "tests.support.mutant_trials", "--child", kind]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        if self.process is None:
            self.process = subprocess.Popen(self.arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)
            self._answer(self.process, 600)
        return self.process

    def ask(self, number: int) -> tuple[str, str]:
        """The language of a mutant, and how it ended."""
        process = self.start()
        assert process.stdin is not None
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        language, answer = self._answer(process, SECONDS)
        if answer in (KILLED, LONG):
            self.stop()
        return language, answer

    def _answer(self, process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
        """What the child says; "" and the reason where it dies before that, or takes more of the processor."""
        assert process.stdout is not None
        end = processor_seconds(process.pid) + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not selector.select(1):
                if processor_seconds(process.pid) > end:
                    return "", LONG
        line = process.stdout.readline()
        return tuple(json.loads(line)) if line else ("", KILLED)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@dataclass
class Report:
    """How many mutants ended how, in all and by language, and the first numbers of each way."""

    counts: Counter[str] = field(default_factory=Counter)
    languages: dict[str, Counter[str]] = field(default_factory=dict)
    first: dict[str, list[int]] = field(default_factory=dict)

    def add(self, number: int, language: str, answer: str) -> None:
        self.counts[answer] += 1
        self.languages.setdefault(language, Counter())[answer if answer in ENDS else "flagged"] += 1
        self.first.setdefault(answer, [])
        if len(self.first[answer]) < 5:
            self.first[answer].append(number)

    @property
    def failures(self) -> dict[str, list[int]]:
        return {k: v for k, v in self.first.items() if k not in ENDS}

    def __str__(self) -> str:
        lines = [f"{name:<12} {dict(ends)}" for name, ends in sorted(self.languages.items())]
        lines += [f"{n:8} {k}  {self.first[k] if k in self.failures else ''}" for k, n in self.counts.most_common()]
        return "\n".join(lines)


def run(numbers: Iterable[int], kind: str, progress: Callable[[Report], object] = lambda report: None) -> Report:
    """The report of the mutants of these numbers."""
    report, worker = Report(), Child(kind)
    try:
        for number in numbers:
            report.add(number, *worker.ask(number))
            progress(report)
    finally:
        worker.stop()
    return report


def main(arguments: Sequence[str]) -> None:
    if "--child" in arguments:
        child(arguments[-1])
        return
    kind, count, first = arguments[0], int(arguments[1]), int(arguments[2]) if len(arguments) > 2 else 0
    print(run(range(first, first + count), kind))


if __name__ == "__main__":
    main(sys.argv[1:])
