"""Which pass of a compiler changed what a program computes: of XLA by its dumps, of any other by files, of our own by running it.

Evidence is values: every stage is run on the same inputs by the reference engine. Of the pass that is found the operation is
named at which the program departs, and a program of just these operations is made, with the values that they had as its inputs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepx_graph.errors import DeepxGraphError, Place, TextReport, UsageError, counted, printable
from deepx_graph.ir import Module, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.literal import Array
from deepx_graph.passes.pipeline import format_pass, parse_pipeline, run_pipeline
from deepx_graph.rewrite.base import Rewrite, RewriteControl
from deepx_graph.runtime.inputs import input_ports
from deepx_graph.session import programs
from deepx_graph.session.diagnose.xla import XlaCase, lowered, matches, run_cases
from deepx_graph.session.dumps import DumpedModule, dumped_modules
from deepx_graph.session.inputs import placed
from deepx_graph.text import ReadOptions
from deepx_graph.validation.culprit import Departure, departure
from deepx_graph.validation.discrepancy import Discrepancy
from deepx_graph.validation.liberties import explanation
from deepx_graph.validation.samples import samples
from deepx_graph.validation.stage_run import StageRun
from deepx_graph.validation.stages import CompilerStage, Evaluated, Reference, StageSearch, search

SAMPLES = 20


@dataclass(frozen=True)
class Inputs:
    """What stages are run on: given arrays by name, or so many samples at the edges, drawn from a seed."""

    given: Mapping[str, Array] | None = None
    count: int = SAMPLES
    seed: int = 0
    kept: tuple[int, ...] | None = None
    """The numbers of the samples that are used; all where that is not said."""

    def __call__(self, module: Module) -> Sequence[Mapping[str, Array]]:
        """The inputs of a module. Raises UsageError where they do not fit it or cannot be drawn."""
        ports = input_ports(module.entry)
        if self.given is None:
            drawn = samples(ports, self.count if ports else 1, self.seed)
            return drawn if self.kept is None else [drawn[k] for k in self.kept]
        given = placed(self.given, [p.name for p in ports])
        if all(p.name in given for p in ports):
            return [{p.name: given[p.name] for p in ports}]
        if len(self.given) == len(ports):
            return [dict(zip((p.name for p in ports), self.given.values(), strict=True))]
        missing = next(p.name for p in ports if p.name not in self.given)
        raise UsageError(f"no array for input '{missing}'")

    def that_end(self, module: Module) -> Inputs:
        """Without the samples for which the program computes too long, which a machine would compute for ever. Raises LimitError
        where there are no others, and what running raises."""
        drawn = self(module)
        short = {id(s) for s in Reference(module, drawn).samples}
        return self if self.given is not None else replace(self, kept=tuple(k for k, s in enumerate(drawn) if id(s) in short))


@dataclass(frozen=True, repr=False)
class Bisection(TextReport):
    """What was found: `search` over the stages, the place inside the pass, the rewrite where it is one of ours, and how the results
    of the machine differ from the last stage (`machine`) where these were given."""

    name: str
    search: StageSearch
    departure: Departure | None = None
    rewrite: Rewrite | None = None
    machine: tuple[int, int, Discrepancy] | None = None
    compared: bool = False
    """Whether results of the machine were given."""
    liberty: str = ""
    """What a machine may do that explains its results, where no pass does."""

    @property
    def wrong(self) -> Evaluated | None:
        """The stage whose pass changed a result."""
        return self.search.wrong

    @property
    def code_generation(self) -> bool:
        """Whether the results of the machine are wrong and those of the last stage are not."""
        return self._departs and not self.liberty

    @property
    def _departs(self) -> bool:
        return self.compared and self.wrong is None and self.machine is not None \
            and not self.search.reference.leaves_open(self.machine[2])

    @property
    def found(self) -> bool:
        """Whether something differs."""
        return self.wrong is not None or self.code_generation

    @property
    def kind(self) -> str:
        """The class of the difference, in a few words; empty where there is none."""
        if self.wrong is not None and self.wrong.found is not None:
            return self.wrong.found[2].kind
        return "code generation" if self.code_generation else self.liberty

    def lines(self) -> Iterator[str]:
        """The report."""
        done, evaluated = self.search, [e for e in self.search.evaluated if not e.skipped]
        yield f"{printable(self.name)}: {len(evaluated)} of {counted(done.total, 'stage')} evaluated on " \
              f"{counted(len(done.reference.samples), 'set')} of inputs"
        for e in done.skipped:
            yield f"  left out: '{printable(e.stage.title)}': {printable(e.skipped)}"
        if self.wrong is None:
            yield from self._without_wrong_pass(evaluated)
            return
        assert self.wrong.found is not None and done.right is not None
        sample, output, how = self.wrong.found
        port = done.reference.ports[output].name
        yield f"after pass '{printable(self.wrong.stage.title)}' (stage {self.wrong.number} of {done.total - 1}) " \
              f"the results differ: {how.kind}"
        yield f"  output {output} '{printable(port)}', inputs {sample}: {how}"
        yield f"  last right stage: '{printable(done.right.stage.title)}' (stage {done.right.number})"
        if done.between:
            yield f"  {counted(len(done.between), 'stage')} between the two could not be evaluated"
        if self.rewrite is not None:
            yield f"  rewrite {self.rewrite.number}, rule '{self.rewrite.rule}'; --rewrite-limit {self.rewrite.number - 1} is right"
        if self.departure is not None:
            yield from (f"  {line}" for line in self.departure.lines())
        if self.compared and self.machine is None:
            yield "  the machine's results are right: later passes, or code generation, undo it"

    def _without_wrong_pass(self, evaluated: Sequence[Evaluated]) -> Iterator[str]:
        harmless = [e for e in evaluated if e.found is not None]
        if self.code_generation:
            assert self.machine is not None
            yield "no pass changed a result, and its results differ: code generation or a library; " + self.machine[2].kind
            yield f"  output {self.machine[1]}, inputs {self.machine[0]}: {self.machine[2]}"
        elif self.liberty:
            yield f"no pass changed a result, and the machine's differ as they may: {self.liberty}"
        else:
            yield "no pass changed a result" + ("" if not harmless else f"; first {harmless[0].found[2].kind} "  # type: ignore[index]
                                                f"after '{printable(harmless[0].stage.title)}'")

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        report: dict[str, Any] = {
            "name": self.name, "stages": self.search.total, "evaluated": sum(not e.skipped for e in self.search.evaluated),
            "skipped": [{"stage": e.stage.title, "reason": e.skipped} for e in self.search.skipped], "found": self.found,
            "kind": self.kind, "pass": None if self.wrong is None else self.wrong.stage.title,
            "departs_at": None if self.departure is None else self.departure.lines()}  # fmt: skip
        if self.rewrite is not None:
            report["rewrite"] = {"number": self.rewrite.number, "rule": self.rewrite.rule}
        return report

    def reproducer(self) -> tuple[Module, dict[str, Array]] | None:
        """The least program whose operations the pass got wrong, as the stage before has them, and inputs that show it: the stage
        itself where no smaller one is known, and the first stage where code generation is at fault. None where nothing differs."""
        if self.code_generation and self.machine is not None:
            first = self.search.evaluated[0].module
            return None if first is None else (first, StageRun(self.search.reference, first).inputs(self.machine[0]))
        if self.departure is not None and (small := self.departure.reproducer()) is not None:
            return small
        if self.search.right is None or self.search.right.module is None:
            return None
        run = StageRun(self.search.reference, self.search.right.module)
        sample = self.wrong.found[0] if self.wrong is not None and self.wrong.found is not None else 0
        return None if run.partitioned else (self.search.right.module, run.inputs(sample))


def bisect(program: object, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: Inputs, pipeline: str | None,
           max_bytes: int | None) -> Bisection:
    """What `dx.bisect` does; raises as it."""
    if isinstance(program, Module):
        return bisect_pipeline(program, pipeline or "default", inputs, max_bytes=max_bytes)
    if pipeline is not None:
        raise UsageError("bisect: 'pipeline' is for a module")
    if isinstance(program, (str, Path)):
        dumped = [m for m in dumped_modules(Path(program)) if len(m.stages) > 1]
        if len(dumped) != 1:
            names = ", ".join(printable(m.name) for m in dumped)
            raise UsageError(f"bisect: the folder has stages of {counted(len(dumped), 'module')}: {names}")
        return bisect_dumped(dumped[0], inputs, max_bytes=max_bytes)
    if isinstance(program, (list, tuple)) and all(isinstance(p, (str, Path)) for p in program):
        stages = [file_stage(Path(p).name, Path(p)) for p in program]
        return bisect_stages(stages[0].title if stages else "", stages, inputs, max_bytes=max_bytes)
    text, arrays = lowered(program, args, kwargs)
    module = programs.loads(text, "stablehlo").module
    given = inputs if inputs.given is not None or not args else replace(inputs, given=matches(module, arrays))
    return bisect_xla(module, given, text=text, max_bytes=max_bytes)


def bisect_stages(name: str, stages: Sequence[CompilerStage], inputs: Inputs, *, max_bytes: int | None = None,
                  machine: Sequence[Sequence[Array]] | None = None) -> Bisection:
    """The first stage that gives something else than the first one, and where. `machine` are the results of the compiled program
    for every set of inputs.

    Raises what loading and running the first stage raise.
    """
    done = search(stages, inputs, seed=inputs.seed, max_bytes=max_bytes)
    found = Bisection(name, done, compared=machine is not None)
    if machine is not None:
        found = replace(found, machine=done.reference.compare(machine))
        if found.code_generation:
            last = next((e.module for e in reversed(done.evaluated) if e.module is not None and not e.skipped), None)
            found = replace(found, liberty=explanation(done.reference, machine, last))
    return replace(found, departure=_departure(done, inputs.seed, max_bytes))


def _departure(done: StageSearch, seed: int, max_bytes: int | None) -> Departure | None:
    """Where the pair of stages parts; None where one of them is partitioned and the other is not, or values do not tell."""
    right, wrong = done.right, done.wrong
    if right is None or wrong is None or right.module is None or wrong.module is None or wrong.found is None:
        return None
    sample, output, _ = wrong.found
    before, after = StageRun(done.reference, right.module), StageRun(done.reference, wrong.module)
    if before.partitioned or after.partitioned:
        return None
    try:
        return departure(right.module, wrong.module, before.inputs(sample), after.inputs(sample), output, seed=seed,
                         max_bytes=max_bytes)
    except DeepxGraphError:  # opened kernels may need more memory than the stages as they are
        return None


def bisect_dumped(module: DumpedModule, inputs: Inputs, options: ReadOptions | None = None, *, max_bytes: int | None = None,
                  machine: Sequence[Sequence[Array]] | None = None) -> Bisection:
    """As `bisect_stages`, of a module that a compiler dumped pass by pass."""
    stages = [file_stage(s.title, s.path, options) for s in module.stages]
    return bisect_stages(module.name, stages, inputs, max_bytes=max_bytes, machine=machine)


def file_stage(title: str, path: Path, options: ReadOptions | None = None) -> CompilerStage:
    """The stage in a file."""
    return CompilerStage(title, lambda: programs.load(path, options=options).module, str(path))


def bisect_xla(module: Module, inputs: Inputs, *, text: str | None = None, max_bytes: int | None = None) -> Bisection:
    """Of a program that XLA compiles in a child process: the pass of XLA, or its code generation, that is wrong.

    `text` is what XLA is given; by default the module is written. Raises as `run_in_xla` and `bisect_stages`.
    """
    inputs = inputs.that_end(module)
    case = XlaCase(with_places(module), inputs(module), text)
    with tempfile.TemporaryDirectory(prefix="deepx-graph-") as folder:
        run_cases({Path(folder): case})
        return bisect_case(case, Path(folder), inputs, max_bytes=max_bytes)


def with_places(module: Module) -> Module:
    """The module in which what no line of a user's program stands for is said to be from the line of its own text, so that stages
    made of it say so."""
    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        span, origin = node.span, node.origin
        if span is None or span.place is not None or span.source.binary:
            return with_inputs(node, inputs)
        there = replace(span, place=Place(span.source.name, span.line, span.column))
        return Node(node.op, inputs, node.attrs, node.type, replace(origin, spans=(there, *origin.spans[1:])))

    return module.with_functions([rebuilt(f, step) for f in module.functions])


def bisect_case(case: XlaCase, folder: Path, inputs: Inputs, *, max_bytes: int | None = None) -> Bisection:
    """As `bisect_xla`, of a case that was run in a folder."""
    machine = case.outputs(folder)
    dumped = max(dumped_modules(folder), key=lambda m: m.number)  # others are of the library around
    return bisect_dumped(dumped, inputs, max_bytes=max_bytes, machine=machine)


def bisect_pipeline(module: Module, pipeline: str, inputs: Inputs, *, max_bytes: int | None = None) -> Bisection:
    """The first of our own passes after which the program gives something else, and the first of its rewrites that does.

    Raises UsageError for a pipeline that is none, and as `bisect_stages`.
    """
    passes = parse_pipeline(pipeline)
    done = programs.optimise(module, pipeline, programs.Watch(record=True))
    assert done.record is not None
    kept = done.record.stages
    stages = [CompilerStage("the program", lambda: module),
              *(CompilerStage(format_pass(s.pass_), lambda after=s.module: after) for s in kept)]  # type: ignore[misc]
    found = bisect_stages(module.entry_name, stages, inputs, max_bytes=max_bytes)
    if found.wrong is None or not (rewrites := kept[found.wrong.number - 1].rewrites):
        return found
    upto = passes[: found.wrong.number]

    def wrong_with(limit: int) -> bool:
        after = run_pipeline(module, upto, control=RewriteControl(limit))
        return found.search.reference.evaluate(1, CompilerStage("", lambda: after)).wrong

    low, high = 0, len(rewrites)  # right with the first `low` of the pass's rewrites, wrong with `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wrong_with(rewrites[middle - 1].number) else (middle, high)
    return replace(found, rewrite=rewrites[high - 1])

