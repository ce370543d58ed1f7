"""A campaign: programs one after the other, examined in child processes that are bounded in time and memory.

A child examines a few programs and says on standard output, one JSON object a line, which are done and what it found. When it takes
too long over one, or too much memory, or dies, that is a finding about the program, and the next child goes on behind it.
Of each kind of finding the first is made small, in a process of its own; two that are of the same operations then are one.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deepx_graph.errors import DeepxGraphError
from deepx_graph.files import make_folder, replacing
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.session.diagnose.reduction import Predicate, ReducedProgram, reduce_program
from deepx_graph.session.fuzzing.checks import CHECKS, Case, Finding, examine, examine_by
from deepx_graph.session.fuzzing.sources import Sources
from deepx_graph.session.inputs import write_npz
from deepx_graph.session.programs import encoded
from deepx_graph.validation.programs import RandomProgram

PROGRAMS_OF_A_CHILD = 50
SECONDS_OF_A_PROGRAM = 60
"""Of processor time, all threads together; a child that says nothing for ten times as long is stopped, too."""
RESIDENT_OF_A_CHILD = 3 << 30
BYTES_OF_A_CHILD = 8 << 30
"""Address space: LLVM and the libraries of BLAS reserve much that they never touch."""
SECONDS_OF_A_REDUCTION = 60.0
LOOK = 0.5
"""Seconds between looks at a child's memory."""


@dataclass
class Campaign:
    """What was examined and found. `findings` has the first of each signature, `counts` how many there were, `kinds` how many
    programs were of which generator, `causes` what the small program of a finding is made of, by its signature."""

    programs: int = 0
    seconds: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    causes: dict[str, str] = field(default_factory=dict)

    def add(self, finding: Finding) -> bool:
        """Whether the finding is the first of its signature."""
        self.counts[finding.signature] += 1
        return self.findings.setdefault(finding.signature, finding) is finding

    def lines(self) -> Iterator[str]:
        """The report: what was done, then each kind of finding, most frequent ones first."""
        of = ", ".join(f"{n} {kind}" for kind, n in self.kinds.items())
        yield f"{self.programs} programs ({of}) in {self.seconds:.0f} s: {sum(self.counts.values())} findings of " \
              f"{len(self.counts)} kinds"
        for signature, count in self.counts.most_common():
            finding = self.findings[signature]
            cause = f" [{self.causes[signature]}]" if signature in self.causes else ""
            yield f"{count:>6}  program {finding.seed}, {finding.check}: {finding.message}{cause}"


def fuzz(seconds: float, first: int = 0, folder: Path | None = None, tell: Callable[[Campaign], None] = lambda campaign: None, *,
         count: int | None = None, sources: Sources | None = None) -> Campaign:
    """Examines the programs from number `first` on until the seconds are over, or so many are done. The first program of each kind
    of finding goes to `folder`, made small.

    `tell` hears of the campaign after every program. Raises UsageError where the folder cannot be written.
    """
    sources = sources or Sources()
    campaign, start, number = Campaign(), time.monotonic(), first
    last = sys.maxsize if count is None else first + count
    if folder is not None:
        make_folder(folder)
    while time.monotonic() - start < seconds and number < last:
        child = _Child(number, min(PROGRAMS_OF_A_CHILD, last - number), sources)
        for found in child.lines(start + seconds):
            campaign.seconds = time.monotonic() - start
            if isinstance(found, int):
                number, campaign.programs = found + 1, campaign.programs + 1
                campaign.kinds[sources.kind(found)] += 1
            elif campaign.add(found) and folder is not None:
                _keep(folder, found, sources, campaign)
            tell(campaign)
    return campaign


def _keep(folder: Path, finding: Finding, sources: Sources, campaign: Campaign) -> None:
    """The program of a finding, made small where that succeeds, its inputs, and what is wrong; not where the small program is of
    the operations of one that is kept."""
    stem = folder / f"{finding.seed}-{finding.check}"
    with replacing(stem.with_suffix(".json")) as stream:
        stream.write(json.dumps(asdict(finding)).encode())
    with _child("shrink", str(stem), asdict(finding), sources.files) as process:
        try:
            cause = process.communicate(timeout=10 * SECONDS_OF_A_REDUCTION)[0].strip()
        except subprocess.TimeoutExpired:
            cause = ""
        finally:
            process.kill()
    if not cause:
        return
    if f"{finding.check}: {cause}" in campaign.causes.values():
        for suffix in (".json", ".sea", ".npz"):
            stem.with_suffix(suffix).unlink(missing_ok=True)
    campaign.causes[finding.signature] = f"{finding.check}: {cause}"


def _child(function: str, *arguments: Any) -> subprocess.Popen[str]:
    """A process that runs a function of this module."""
    code = f"import json, sys; from {__name__} import {function}; {function}(*json.loads(sys.argv[1]))"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "2"}
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, json.dumps(arguments)], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.DEVNULL, env=environment)


class _Child:
    """A process that examines programs."""

    def __init__(self, first: int, count: int, sources: Sources | None = None) -> None:
        self.at, self.files = first, () if sources is None else sources.files
        self.process = _child("work", first, count, self.files)
        self.said: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line)
        self.said.put(None)

    def lines(self, until: float) -> Iterator[Finding | int]:
        """Findings, and programs that are done; the process ends with the iterator, and at `until` (of the monotonic clock)."""
        heard = time.monotonic()
        try:
            while time.monotonic() < until:
                try:
                    line = self.said.get(timeout=min(LOOK, max(0.0, until - time.monotonic())))
                except queue.Empty:
                    if (lost := self._beyond_bounds(time.monotonic() - heard)) is not None:
                        yield lost
                        yield self.at
                        return
                    continue
                heard = time.monotonic()
                if line is None:
                    code = self.process.wait()
                    if code == -signal.SIGXCPU:
                        yield self._lost("took too long", f"more than {SECONDS_OF_A_PROGRAM} s of processor time")
                    elif code:
                        yield self._lost("died", f"exit code {code}")
                    if code:
                        yield self.at
                    return
                said = json.loads(line)
                if "done" in said:
                    yield int(said["done"])
                    self.at = said["done"] + 1
                else:
                    yield Finding(**said)
        finally:
            self.process.kill()
            self.process.wait()

    def _beyond_bounds(self, silent: float) -> Finding | None:
        if silent > 10 * SECONDS_OF_A_PROGRAM:
            return self._lost("took too long", f"nothing was heard for {silent:.0f} s")
        if (resident := _resident(self.process.pid)) > RESIDENT_OF_A_CHILD:
            return self._lost("took too much memory", f"{resident >> 20} MB resident")
        return None

    def _lost(self, check: str, message: str) -> Finding:
        return Finding(self.at, check.replace(" ", "-"), f"the process {check}: {message}", check)


def _resident(pid: int) -> int:
    """Bytes of a process that are in memory; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


# --- in a child


def _bound() -> Callable[[], None]:
    """Bounds this process; calling the result gives it so many seconds more. What programs print is not heard."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (BYTES_OF_A_CHILD, BYTES_OF_A_CHILD))
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    return lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS_OF_A_PROGRAM, hard))


def work(first: int, count: int, files: list[str]) -> None:
    """What a child does: examines so many programs, and says so line by line."""
    heard, renew, sources = sys.stdout, _bound(), Sources(tuple(files))
    for number in range(first, first + count):
        renew()
        for finding in examine(number, sources.program(number)):
            print(json.dumps(asdict(finding)), flush=True, file=heard)
        print(json.dumps({"done": number}), flush=True, file=heard)


def shrink(stem: str, said: dict[str, Any], files: list[str]) -> None:
    """What another child does: writes the program of a finding, then the least one that is found to show it, and says of which
    operations that is."""
    heard, renew = sys.stdout, _bound()
    finding, program = Finding(**said), Sources(tuple(files)).program(said["seed"])
    kept(Path(stem), program.module, program.inputs)
    renew()
    small = least(finding, program, SECONDS_OF_A_REDUCTION / 2)
    if small is not None:
        kept(Path(stem), small.module, small.inputs)
        print(" ".join(sorted({n.op.name for n in small.module.entry.nodes} - {"param", "constant"})), flush=True, file=heard)


# --- findings made small


def least(finding: Finding, program: RandomProgram, seconds: float) -> ReducedProgram | None:
    """The least program found within the seconds that shows it; None where it does not show in this process."""

    def shows(module: Module, inputs: Mapping[str, Array]) -> str:
        case = Case(RandomProgram(module, dict(inputs)), finding.seed)
        again = examine_by(finding.check, case) if finding.check in CHECKS else examine(finding.seed, case.program)
        return next((_fault(f) for f in again if _fault(f) == _fault(finding)), "")

    try:
        return reduce_program(program.module, program.inputs, Predicate(shows), seconds=seconds)
    except DeepxGraphError:
        return None


def _fault(finding: Finding) -> str:
    """The check and what it ran, or the place of a crash: what stays when a program is made small."""
    return f"{finding.check} {finding.signature.split(' output ')[0]}"


def kept(stem: Path, module: Module, inputs: Mapping[str, Array]) -> None:
    """Writes a program and its inputs beside a finding."""
    with replacing(stem.with_suffix(".sea")) as stream:
        stream.write(encoded(module, "sea"))
    write_npz(stem.with_suffix(".npz"), inputs)
