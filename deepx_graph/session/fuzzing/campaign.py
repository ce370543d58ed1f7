"""A campaign: seeds one after the other, examined in child processes that are bounded in time and memory.

A child examines a few seeds and says on standard output, one JSON object a line, which it begins and what it found. When it takes
too long over one, or dies, that is a finding about the seed, and the next child goes on behind it.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deepx_graph.files import replacing
from deepx_graph.session.fuzzing.checks import Finding

SEEDS_OF_A_CHILD = 50
SECONDS_OF_A_SEED = 120.0
BYTES_OF_A_CHILD = 8 << 30
"""Address space of a child: LLVM and the libraries of BLAS reserve much that they never touch."""


@dataclass
class Campaign:
    """What was examined and found. `findings` has the first of each signature, `counts` how many there were."""

    programs: int = 0
    seconds: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, finding: Finding) -> bool:
        """Whether the finding is the first of its signature."""
        self.counts[finding.signature] += 1
        return self.findings.setdefault(finding.signature, finding) is finding

    def lines(self) -> Iterator[str]:
        """The report: what was done, then each kind of finding, most frequent ones first."""
        yield f"{self.programs} programs in {self.seconds:.0f} s: {sum(self.counts.values())} findings of {len(self.counts)} kinds"
        for signature, count in self.counts.most_common():
            finding = self.findings[signature]
            yield f"{count:>6}  seed {finding.seed}, {finding.check}: {finding.message}"


def fuzz(seconds: float, first: int = 0, folder: Path | None = None,
         tell: Callable[[Campaign], None] = lambda campaign: None) -> Campaign:
    """Examines the seeds from `first` on until the seconds are over. The first program of each kind of finding goes to `folder`.

    `tell` hears of the campaign after every seed. Raises UsageError where the folder cannot be written.
    """
    campaign, start, seed = Campaign(), time.monotonic(), first
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    while time.monotonic() - start < seconds:
        child = _Child(seed, SEEDS_OF_A_CHILD)
        for found in child.lines(start + seconds):
            campaign.seconds = time.monotonic() - start
            if isinstance(found, int):
                seed, campaign.programs = found + 1, campaign.programs + 1
            elif campaign.add(found) and folder is not None:
                _keep(folder, found)
            tell(campaign)
    return campaign


def _keep(folder: Path, finding: Finding) -> None:
    """The program of a finding, its inputs, and what is wrong."""
    from deepx_graph.session.inputs import write_npz
    from deepx_graph.session.programs import encoded
    from deepx_graph.validation.programs import random_program

    program, stem = random_program(finding.seed), f"seed{finding.seed}-{finding.check}"
    for name, data in ((f"{stem}.sea", encoded(program.module, "sea")), (f"{stem}.json", json.dumps(asdict(finding)).encode())):
        with replacing(folder / name) as stream:
            stream.write(data)
    write_npz(folder / f"{stem}.npz", program.inputs)


class _Child:
    """A process that examines seeds."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.at = first, first
        code = f"from deepx_graph.session.fuzzing.campaign import work; work({first}, {count})"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "2"}
        self.process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL, env=environment)
        self.said: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line)
        self.said.put(None)

    def lines(self, until: float) -> Iterator[Finding | int]:
        """Findings, and seeds that are done; the process ends with the iterator, and at `until` (of the monotonic clock)."""
        try:
            while time.monotonic() < until:
                try:
                    line = self.said.get(timeout=min(SECONDS_OF_A_SEED, max(0.0, until - time.monotonic())))
                except queue.Empty:
                    if time.monotonic() < until:
                        yield self._lost("took too long", f"more than {SECONDS_OF_A_SEED:g} s")
                        yield self.at
                    return
                if line is None:
                    code = self.process.wait()
                    if code:
                        yield self._lost("died", f"exit code {code}")
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

    def _lost(self, check: str, message: str) -> Finding:
        return Finding(self.at, check.replace(" ", "-"), f"the process {check}: {message}", check)


def work(first: int, count: int) -> None:
    """What a child does: examines so many seeds, and says so line by line."""
    import resource

    from deepx_graph.session.fuzzing.checks import examine
    from deepx_graph.validation.programs import random_program

    resource.setrlimit(resource.RLIMIT_AS, (BYTES_OF_A_CHILD, BYTES_OF_A_CHILD))
    for seed in range(first, first + count):
        for finding in examine(seed, random_program(seed)):
            print(json.dumps(asdict(finding)), flush=True)
        print(json.dumps({"done": seed}), flush=True)
