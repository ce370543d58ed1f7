"""A program made small while something stays true of it: that it crashes, differs, is slow, or is wrong in XLA.

The program is run once, and the values of its nodes are recorded. Whatever is cut off below becomes an input with the value that it
had, so that inputs need not be found anew; outputs move down; branches become the side that was taken, loops one iteration; nodes
become one of their operands; sizes and numbers of iterations shrink. A step is kept where the predicate still holds.

Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002, on a graph instead of a text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.errors import DeepxGraphError, UsageError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import rebuild, with_inputs
from deepx_graph.ir.structure import (
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PHI,
    PROJ,
    REGION,
    branch_count,
    index_of,
    phi_choices,
    value_of,
)
from deepx_graph.literal import Array
from deepx_graph.numerics.values import ValueTable, evaluate
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.progress import stage
from deepx_graph.types import TensorType
from deepx_graph.verify import verify

SECONDS = 60.0
"""For how long smaller programs are looked for."""

Predicate = Callable[[Module, Mapping[str, Array]], bool]
"""Whether what is looked for is true of a program on its inputs, by name."""


@dataclass(frozen=True)
class Trial:
    """A program and its inputs by name."""

    module: Module
    inputs: dict[str, Array]

    @property
    def operations(self) -> int:
        """Operations of all functions, parameters and constants left out."""
        return sum(n.op is not PARAM and n.op is not CONSTANT for f in self.module.functions for n in f.nodes)

    @property
    def size(self) -> tuple[int, int, int, int]:
        """What shrinks: operations, elements of inputs, inputs and outputs, integers that are constants."""
        entry = self.module.entry
        integers = [abs(int(value_of(n).array.reshape(-1)[0])) for n in entry.nodes if _is_integer(n)]
        return self.operations, sum(a.size for a in self.inputs.values()), len(self.inputs) + len(entry.results), sum(integers)


@dataclass(frozen=True)
class ReducedProgram:
    """The least program that was found, how many operations there were, and how many programs were tried."""

    module: Module
    inputs: dict[str, Array]
    before: int
    after: int
    tried: int


def reduce_program(module: Module, inputs: Mapping[str, Array], holds: Predicate, *, seconds: float = SECONDS) -> ReducedProgram:
    """The least program found within the time. Raises UsageError where the predicate does not hold of the program itself."""
    start = Trial(module, dict(inputs))
    search = _Search(holds, time.monotonic() + seconds)
    if not search.holds_of(start):
        raise UsageError("what is looked for is not true of the program on these inputs")
    found = search.run(start)
    return ReducedProgram(found.module, found.inputs, start.operations, found.operations, search.tried)


class _Search:
    """Greedy descent over all kinds of steps until none helps or time is up."""

    def __init__(self, holds: Predicate, deadline: float) -> None:
        self.holds, self.deadline, self.tried = holds, deadline, 0

    def holds_of(self, trial: Trial) -> bool:
        self.tried += 1
        try:
            verify(trial.module)
            return self.holds(trial.module, trial.inputs)
        except DeepxGraphError:
            return False

    def run(self, trial: Trial) -> Trial:
        opened = _opened(trial)
        if opened is not None and self.holds_of(opened):
            trial = opened
        while True:
            before = trial.size
            for steps in STEPS:
                trial = self._descend(trial, steps)
            if trial.size >= before or self.late:
                return trial

    @property
    def late(self) -> bool:
        return time.monotonic() > self.deadline

    def _descend(self, trial: Trial, steps: Callable[[Trial], Iterator[Trial]]) -> Trial:
        """The trial after as many steps of a kind as help; after each they are drawn anew."""
        helped = True
        while helped and not self.late:
            helped = False
            for candidate in steps(trial):
                if self.late:
                    break
                if candidate.size < trial.size and self.holds_of(candidate):
                    trial, helped = candidate, True
                    stage(f"reduce: {trial.operations} operations")
                    break
        return trial


def _opened(trial: Trial) -> Trial | None:
    """The program with calls taken in, as far as they can be."""
    try:
        return Trial(run_pipeline(trial.module, parse_pipeline("inline")), trial.inputs)
    except DeepxGraphError:
        return None


def _single_results(trial: Trial) -> Iterator[Trial]:
    """Each output alone, then halves of them."""
    results = trial.module.entry.results
    if len(results) > 1:
        for r in results:
            yield _rebuilt(trial, {}, {}, [r])


def _fewer_results(trial: Trial) -> Iterator[Trial]:
    """All outputs but some: halves, quarters, and so on to single ones."""
    results = trial.module.entry.results
    length = len(results) // 2
    while length:
        for at in range(0, len(results), length):
            yield _rebuilt(trial, {}, {}, results[:at] + results[at + length :])
        length //= 2


def _cleaned(trial: Trial) -> Iterator[Trial]:
    """Without what nobody reads, columns of loops and branches among it, then simplified."""
    for pipeline in ("dce", "canonicalize, dce", "clean"):
        try:
            yield Trial(run_pipeline(trial.module, parse_pipeline(pipeline)), trial.inputs)
        except DeepxGraphError:
            continue


def _lower_results(trial: Trial) -> Iterator[Trial]:
    """An output moved down: to any node, those half way down first, then to operands of the outputs."""
    entry = trial.module.entry
    inside = _in_loops(entry)
    nodes = [n for n in entry.nodes if isinstance(n.type, TensorType) and n.op not in (PARAM, CONSTANT) and n not in inside]
    for part in (2, 4, 8, 16):
        for k in range(1, part):
            yield _rebuilt(trial, {}, {}, [nodes[len(nodes) * k // part]]) if nodes else trial
    for n in nodes:
        yield _rebuilt(trial, {}, {}, [n])


def _in_loops(entry: Function) -> set[Node]:
    """Nodes that depend on a variable of a loop, which have no value outside."""
    inside: set[Node] = set()
    for n in entry.nodes:
        if n.op is LOOP_BEGIN or (n.op is not LOOP_END and any(i in inside for i in n.inputs)):
            inside.add(n)
    return inside


def _cut_off(trial: Trial) -> Iterator[Trial]:
    """Runs of nodes that become inputs with the values that they had: halves, quarters, and so on to single nodes."""
    table, module = _values(trial)
    if table is None:
        return
    trial = Trial(module, trial.inputs)
    nodes = [n for n in module.entry.nodes if n.op is not PARAM and n.op is not CONSTANT and _single(table, n) is not None]
    length = max(1, len(nodes) // 2)
    while nodes:
        for at in range(0, len(nodes), length):
            chunk = nodes[at : at + length]
            yield _rebuilt(trial, {}, {n: value for n in chunk if (value := _single(table, n)) is not None})
        if length == 1:
            return
        length = max(1, length // 2)


def _straightened(trial: Trial) -> Iterator[Trial]:
    """A branch that is one of its sides; a loop that is one iteration, on the values that its variables had."""
    table, module = _values(trial)
    trial = Trial(module, trial.inputs)
    entry = module.entry
    ends = {n.inputs[0]: n for n in entry.nodes if n.op is LOOP_END}
    for region in [n for n in entry.nodes if n.op is REGION]:
        phis = [n for n in entry.nodes if n.op is PHI and n.inputs[0] is region]
        for k in range(branch_count(region)):
            yield _rebuilt(trial, {p: phi_choices(region, index_of(p))[k] for p in phis}, {})
    for begin, end in ends.items():
        items = [n for n in entry.nodes if n.op is PROJ and n.inputs[0] is end]
        phis = [n for n in entry.nodes if n.op is PHI and n.inputs[0] is begin]
        for run in (0, 1):
            values = {p: v for p in phis if table is not None and (v := _single(table, p, run)) is not None}
            if len(values) == len(phis):
                yield _rebuilt(trial, {i: end.inputs[2 + index_of(i)] for i in items}, values)


def _operands_instead(trial: Trial) -> Iterator[Trial]:
    """A node that is one of its operands of the same type."""
    for n in reversed(trial.module.entry.nodes):
        for i in dict.fromkeys(n.inputs):
            if i.type == n.type and n.op not in (PHI, REGION, LOOP_END):
                yield _rebuilt(trial, {n: i}, {})


def _smaller_constants(trial: Trial) -> Iterator[Trial]:
    """Integers that are constants, such as numbers of iterations, made smaller."""
    b = Builder()
    for n in trial.module.entry.nodes:
        if isinstance(n.type, TensorType) and _is_integer(n):
            value = int(value_of(n).array.reshape(-1)[0])
            for less in (1, 2):
                if value > less:
                    yield _rebuilt(trial, {n: b.splat(less, n.type)}, {})


def _is_integer(node: Node) -> bool:
    return node.op is CONSTANT and isinstance(node.type, TensorType) and node.type.dtype.is_integer and node.type.size == 1


def _smaller_sizes(trial: Trial) -> Iterator[Trial]:
    """Every dimension of one size made smaller at once, arrays cut to it."""
    types = [n.type for n in trial.module.entry.nodes if isinstance(n.type, TensorType) and n.type.is_static]
    for old in sorted({d for t in types for d in t.shape if d > 1}, reverse=True):
        for new in dict.fromkeys((1, 2, old // 2)):
            if 0 < new < old and (made := _resized(trial, old, new)) is not None:
                yield made


def _resized(trial: Trial, old: int, new: int) -> Trial | None:
    b, entry = Builder(), trial.module.entry

    def shape(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new if v == old else v for v in values)

    def made(n: Node, inputs: tuple[Node, ...]) -> Node:
        if n.op is PARAM:
            assert isinstance(n.type, TensorType)
            return b.param(index_of(n), TensorType(n.type.dtype, shape(n.type.shape)), n.name)
        if n.op is CONSTANT:
            return b.constant(_cut(value_of(n).array, shape(value_of(n).array.shape)))
        attrs = tuple(shape(v) if isinstance(v, tuple) and all(isinstance(d, int) for d in v) else v for v in n.attrs)
        return Node(n.op, inputs, attrs, n.op.infer([i.type for i in inputs], *attrs), n.origin)

    try:
        new_nodes = rebuild(entry.nodes, {}, made)
    except (DeepxGraphError, AssertionError, ValueError, LookupError, TypeError):
        return None
    after = entry.with_(params=tuple(new_nodes[p] for p in entry.params), results=tuple(new_nodes[r] for r in entry.results))
    inputs = {p.name: _cut(trial.inputs[p.name], shape(trial.inputs[p.name].shape)) for p in entry.params}
    return Trial(trial.module.with_functions(after if f is entry else f for f in trial.module.functions), inputs)


def _cut(array: Array, shape: Sequence[int]) -> Array:
    return np.ascontiguousarray(array[tuple(slice(0, n) for n in shape)])


def _values(trial: Trial) -> tuple[ValueTable | None, Module]:
    """The recorded values, and the module whose nodes they are of."""
    try:
        done = evaluate(trial.module, trial.inputs)
    except DeepxGraphError:
        return None, trial.module
    return done.table, done.module


def _single(table: ValueTable, node: Node, run: int = 0) -> Array | None:
    value = table.of(node, run) if isinstance(node.type, TensorType) else None
    return value[0] if value is not None and len(value) == 1 else None


def _rebuilt(trial: Trial, instead: Mapping[Node, Node], values: Mapping[Node, Array],
             results: Iterable[Node] | None = None) -> Trial:
    """The program with nodes in the place of others, and inputs in the place of those that have values; what is not needed goes."""
    entry, b = trial.module.entry, Builder()
    taken = {p.name for p in entry.params}
    made: dict[Node, Node] = {}
    given = dict(trial.inputs)
    for node, value in values.items():
        name = next(f"v{k}" for k in range(len(taken), 1 << 30) if f"v{k}" not in taken)
        taken.add(name)
        made[node] = b.param(0, node.type, name)
        given[name] = value

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        other = instead.get(node)
        return with_inputs(node, inputs) if other is None else made.get(other, other)

    rebuild(entry.nodes, made, step)
    chosen = entry.results if results is None else tuple(results)
    return _ported(trial.module, tuple(made[r] for r in chosen), given)


def _ported(module: Module, results: tuple[Node, ...], given: Mapping[str, Array]) -> Trial:
    """The program of these results with the inputs that they need, in order."""
    probe = Function("main", (), results)
    needed = [n for n in probe.nodes if n.op is PARAM]
    b = Builder()
    made = {p: b.param(k, p.type, p.name) for k, p in enumerate(needed)}
    params = tuple(made.values())
    rebuild(probe.nodes, made)
    names = tuple(f"y{k}" for k in range(len(results)))
    entry = Function(module.entry.name, params, tuple(made[r] for r in results), names)
    functions = [entry if f is module.entry else f for f in module.functions]
    return Trial(module.with_functions(functions), {p.name: given[p.name] for p in needed if p.name in given})


STEPS = (_single_results, _fewer_results, _cleaned, _lower_results, _cut_off, _straightened, _operands_instead, _smaller_constants,
         _smaller_sizes)  # fmt: skip
"""The kinds of steps, those that take most away first."""
