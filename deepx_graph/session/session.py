"""`Session`: one program and all that was done with it, for any front end. It draws nothing and knows no terminal.

A session keeps versions: the program as loaded, and what pipelines and gradients made of it, in a line that undo and redo walk.
Modules never change, so a version costs what differs. Long work takes a `Monitor`; when it is cancelled the session is as before.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.passes.observer import Record, op_counts
from deepx_graph.session.progress import Monitor, Reporting
from deepx_graph.session.query.facts import Apart, Facts, Measured, PlacedValue
from deepx_graph.session.query.language import Query, parse_query
from deepx_graph.text import ReadOptions, open_source, read
from deepx_graph.verify import verify

if TYPE_CHECKING:  # what only some questions need is imported when they are asked: a program is shown sooner
    from deepx_graph.passes.fusion.reason import Reason
    from deepx_graph.session.instrumented import RunResult
    from deepx_graph.session.report.info import Memory
    from deepx_graph.session.report.provenance import Makers
    from deepx_graph.session.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Version:
    """The program at one time, and how it came about: from `parent`, by the passes of `record`."""

    module: Module
    title: str
    parent: Version | None = None
    record: Record | None = None
    pipeline: str = ""

    @cached_property
    def timeline(self) -> Timeline | None:
        """The passes and rewrites that made it; None for what no pipeline made."""
        from deepx_graph.session.timeline import Timeline

        return Timeline(self.parent.module, self.record) if self.record is not None and self.parent is not None else None

    @cached_property
    def makers(self) -> Makers | None:
        """Which rewrites made its nodes; None for what no pipeline made."""
        from deepx_graph.session.report.provenance import Makers

        return Makers(self.parent.module, self.record) if self.record is not None and self.parent is not None else None

    @cached_property
    def counts(self) -> Any:
        """How many nodes of each operation it has."""
        return op_counts(self.module)


class Session:
    """A program with its versions, runs and facts. Nodes are those of `module`, the version that is looked at."""

    def __init__(self, module: Module, *, path: str = "", warnings: Sequence[Diagnostic] = ()) -> None:
        self.path, self.warnings = path, tuple(warnings)
        self.versions: list[Version] = [Version(module, "loaded")]
        self.at = 0
        self.result: RunResult | None = None
        self.measured: Mapping[Node, Measured] = {}
        self.apart: Mapping[Node, Apart] = {}
        self.errors: Mapping[Node, float] = {}
        self.nonfinite: Mapping[Node, int] = {}
        self.shardings: Mapping[Node, PlacedValue] = {}
        self.changes: Mapping[Node, str] = {}
        self._facts: dict[int, Facts] = {}  # by identity: functions that are alike have other nodes
        self._memory: dict[int, tuple[Function, Memory | None]] = {}

    @classmethod
    def open(cls, path: str | Path, format: str | None = None, options: ReadOptions | None = None, *,
             check: bool = True) -> Session:
        """A session about the program in a file. Raises as `load`; without `check` the caller is to call `check` soon."""
        found = read(open_source(path, options), format, options)
        session = cls(found.module, path=str(path), warnings=found.warnings)
        if check:
            session.check()
        return session

    def check(self) -> None:
        """Raises VerifyError when the program as it was read breaks a rule of its operations."""
        verify(self.original)

    # --- versions

    @property
    def version(self) -> Version:
        return self.versions[self.at]

    @property
    def module(self) -> Module:
        return self.version.module

    @property
    def original(self) -> Module:
        return self.versions[0].module

    def push(self, version: Version) -> Version:
        """Makes a version the latest one; what had been undone is gone."""
        del self.versions[self.at + 1 :]
        self.versions.append(version)
        self.go(len(self.versions) - 1)
        return version

    def go(self, number: int) -> bool:
        """Looks at version `number`; False where there is none."""
        if not 0 <= number < len(self.versions):
            return False
        self.at = number
        self._facts.clear()
        self._memory.clear()
        return True

    def undo(self) -> bool:
        """Looks at the version before; False at the first."""
        return self.go(self.at - 1)

    def redo(self) -> bool:
        """Looks at the version after; False at the last."""
        return self.go(self.at + 1)

    # --- passes

    def optimise(self, pipeline: str = "default", *, start: Version | None = None, fast_math: bool = False,
                 monitor: Monitor | None = None) -> Version:
        """What a pipeline makes of `start` (the version that is looked at), as a version with its time line; does not push it.

        Raises UsageError for a pipeline that is none, PassError when a pass fails, Cancelled.
        """
        from deepx_graph.passes.pipeline import format_pass, parse_pipeline
        from deepx_graph.session.programs import Watch, optimise, pipeline_name

        start = start or self.version
        observers = (Reporting(monitor, len(parse_pipeline(pipeline))),) if monitor is not None else ()
        done = optimise(start.module, pipeline, Watch(record=True, fast_math=fast_math, observers=observers))
        text = ",".join(map(format_pass, done.passes))
        return Version(done.module, pipeline_name(text), start, done.record, text)

    def gradient(self, wrt: Sequence[str] | None = None) -> Version:
        """The gradient program of the version that is looked at; does not push it. Raises as `gradient`."""
        from deepx_graph.session.programs import gradient

        return Version(gradient(self.module, wrt), "grad" if wrt is None else f"grad by {', '.join(wrt)}", self.version)

    def shell_line(self, pipeline: str) -> str:
        """The command that does the same from a shell."""
        return f"deepx-graph opt {shlex.quote(self.path or '-')} -p {shlex.quote(pipeline)}"

    # --- questions

    def facts(self, function: Function) -> Facts:
        """What can be asked of the nodes of a function, with the last run's measurements where it ran this module."""
        if id(function) not in self._facts:
            measured = self.result.measured if self.result is not None else self.measured
            self._facts[id(function)] = Facts(function, measured, self.apart, self.errors, self.shardings,
                                              self.changes, self.nonfinite)
        return self._facts[id(function)]

    def memory(self, function: Function, *, wait: bool = True) -> Memory | None:
        """The memory of a function over its run; None where sizes are not known, or, without `wait`, not worked out yet."""
        if wait and id(function) not in self._memory:
            from deepx_graph.session.report.info import memory

            self._memory[id(function)] = function, memory(function)
        return self._memory.get(id(function), (None, None))[1]

    def warm(self, monitor: Monitor) -> None:
        """Works out the facts of all functions that questions will ask for, so that none of them has to wait."""
        for k, f in enumerate(self.module.functions):
            monitor.report(f"looking at {f.name}", k, len(self.module.functions))
            facts = self.facts(f)
            _ = (facts.number, facts.depth, facts.places, facts.results, facts.scopes, f.users)

    def query(self, text: str | Query) -> list[tuple[Function, Node]]:
        """The nodes that a query asks for, those of the entry first. Raises UsageError for no query."""
        query = parse_query(text) if isinstance(text, str) else text
        return [(f, n) for f in self.module.entry_first for n in query.nodes(self.facts(f))]

    def find(self, text: str) -> tuple[Function, Node]:
        """The node of a name or number (see `why.find_node`). Raises UsageError with the nearest name."""
        from deepx_graph.passes.fusion.why import find_node

        return find_node(self.module, text)

    def function_of(self, node: Node) -> Function | None:
        """The function of the module that a node is in; None for one of another version, or inside a kernel."""
        return next((f for f in self.module.functions if node in f.users), None)

    def address(self, function: Function, node: Node) -> str:
        """How a user names a node: `#17`, or `function#17` outside the entry."""
        prefix = "" if function.name == self.module.entry_name else function.name
        return f"{prefix}#{self.facts(function).number[node]}"

    def why(self, a: str | Node, b: str | Node) -> Reason:
        """Why two nodes are, or are not, in one kernel of the default engine. Raises UsageError for a name that is none."""
        from deepx_graph.session.report.placing import Placing

        return Placing(self.module).why(a, b)

    # --- running

    def inputs(self, wishes: Mapping[str, str], seed: int = 0, max_bytes: int | None = None) -> dict[str, Any]:
        """Arrays for the inputs, as wishes say (see `inputs`). Raises UsageError and LimitError."""
        from deepx_graph.runtime.inputs import input_ports
        from deepx_graph.session.inputs import wished_inputs

        ports = input_ports(self.module.entry)
        for name in wishes:
            if name not in {p.name for p in ports}:
                raise UsageError(f"no input '{name}'")
        return wished_inputs(ports, wishes, seed, max_bytes)

    def run(self, inputs: Mapping[str, Any], *, engine: str = "auto", seed: int = 0, keep: bool = True, runs: int = 1,
            within: float = math.inf, max_bytes: int | None = None, data_root: str | None = None,
            monitor: Monitor | None = None) -> RunResult:
        """Runs the version that is looked at and looks on; does not `accept` the result. Raises as running does, and Cancelled."""
        from deepx_graph.session.instrumented import watch_run

        return watch_run(self.module, inputs, engine=engine, seed=seed, keep=keep, runs=runs, within=within,
                         max_bytes=max_bytes, data_root=data_root, monitor=monitor)

    def accept(self, result: RunResult) -> None:
        """Makes a run the last one. When it had to know more types than the module, the module with them is a new version."""
        if result.module is not self.module:
            self.push(Version(result.module, "types of the inputs", self.version))
        self.result = result
        self._facts.clear()
