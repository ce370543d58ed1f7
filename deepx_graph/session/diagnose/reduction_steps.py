"""What may make a program smaller while something stays true of it: the kinds of steps of a reduction, each a series of trials.

A step that runs the program, or passes over it, does so in a forked child first: what is looked for may be that it dies of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.errors import DeepxGraphError
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
from deepx_graph.numerics.observed import observe
from deepx_graph.numerics.values import ValueTable
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.session.diagnose.children import in_child
from deepx_graph.types import BF16, C64, C128, F16, F32, F64, I32, I64, DType, TensorType

PATIENCE = 60.0
"""Seconds that passes over a program, or a run that records its values, may take on the way."""

PARTS = (2, 4, 8, 16)
"""In how many parts a program is cut before single nodes are tried."""

USUAL = {F64: F32, I64: I32, C128: C64, F16: F32, BF16: F32}
"""The element type that is tried in place of another: the usual ones are the least."""


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
    def size(self) -> tuple[int, int, int, int, int]:
        """Operations, elements of inputs, inputs and outputs, values of unusual types, constants that are integers."""
        entry = self.module.entry
        integers = [abs(int(value_of(n).array.reshape(-1)[0])) for n in entry.nodes if _is_integer(n)]
        types = [n.type.dtype for n in entry.nodes if isinstance(n.type, TensorType)]
        return (self.operations, sum(a.size for a in self.inputs.values()), len(self.inputs) + len(entry.results),
                sum(t in USUAL for t in types), sum(integers))


Steps = Callable[[Trial, float], Iterator[Trial]]
"""Trials that may be smaller than one, by one kind of step; what is run on the way may take so many seconds of
processor time."""


def opened(trial: Trial, seconds: float) -> Iterator[Trial]:
    """With calls taken in, as far as they can be, though that copies what is called: their operations become those of the entry."""
    made = _passed(trial, "inline", seconds) if len(trial.module.functions) > 1 else None
    if made is not None:
        yield made


def _fewer_results(trial: Trial, seconds: float) -> Iterator[Trial]:
    """All outputs but some: halves, quarters, and so on to single ones."""
    results = trial.module.entry.results
    length = len(results) // 2
    while length:
        for at in range(0, len(results), length):
            yield _rebuilt(trial, {}, {}, results[:at] + results[at + length :])
        length //= 2


def _cleaned(trial: Trial, seconds: float) -> Iterator[Trial]:
    """Without what nobody reads, columns of loops and branches among it, then simplified."""
    for pipeline in ("dce", "canonicalize, dce", "clean"):
        made = _passed(trial, pipeline, seconds)
        if made is not None:
            yield made


def _passed(trial: Trial, pipeline: str, seconds: float) -> Trial | None:
    """The trial after passes; None where they do not end well."""

    def after() -> Trial:
        return Trial(run_pipeline(trial.module, parse_pipeline(pipeline)), trial.inputs)

    return after() if _ends_well(after, seconds) else None


def _ends_well(work: Callable[[], object], seconds: float) -> bool:
    """Whether a child that does the work comes back from it in time."""

    def done() -> str:
        work()
        return "done"

    return bool(in_child(done, PATIENCE, seconds).said)


def _prefixes(trial: Trial, seconds: float) -> Iterator[Trial]:
    """The first half of the operations, or more of them, with what nobody reads then as outputs."""
    nodes = _outside(trial.module.entry)
    for part in PARTS:
        kept = nodes[: len(nodes) * (part - 1) // part] if part > 2 else nodes[: len(nodes) // 2]
        read = {i for n in kept for i in n.inputs}
        ends = [n for n in kept if n not in read]
        if ends:
            yield _rebuilt(trial, {}, {}, ends)


def _lower_results(trial: Trial, seconds: float) -> Iterator[Trial]:
    """One output, moved down: to any node, those half way down first."""
    nodes = _outside(trial.module.entry)
    for part in PARTS if nodes else ():
        for k in range(1, part):
            yield _rebuilt(trial, {}, {}, [nodes[len(nodes) * k // part]])
    for n in nodes:
        yield _rebuilt(trial, {}, {}, [n])


def _outside(entry: Function) -> list[Node]:
    """The operations whose values may be outputs, in order."""
    inside = _in_loops(entry)
    return [n for n in entry.nodes if isinstance(n.type, TensorType) and n.op not in (PARAM, CONSTANT) and n not in inside]


def _in_loops(entry: Function) -> set[Node]:
    """Nodes that depend on a variable of a loop, which have no value outside."""
    inside: set[Node] = set()
    for n in entry.nodes:
        if n.op is LOOP_BEGIN or (n.op is not LOOP_END and any(i in inside for i in n.inputs)):
            inside.add(n)
    return inside


def _cut_off(trial: Trial, seconds: float) -> Iterator[Trial]:
    """Runs of nodes that become inputs with the values that they had: halves, quarters, and so on to single nodes."""
    table, module = _values(trial, seconds)
    trial = Trial(module, trial.inputs)
    nodes = [n for n in module.entry.nodes if n.op is not PARAM and n.op is not CONSTANT and _known(table, n) is not None]
    length = max(1, len(nodes) // 2)
    while nodes:
        for at in range(0, len(nodes), length):
            chunk = nodes[at : at + length]
            yield _rebuilt(trial, {}, {n: value for n in chunk if (value := _known(table, n)) is not None})
        if length == 1:
            return
        length = max(1, length // 2)


def _straightened(trial: Trial, seconds: float) -> Iterator[Trial]:
    """A branch that is one of its sides; a loop that is one iteration, on the values that its variables had."""
    table, module = _values(trial, seconds)
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
            values = {p: v for p in phis if (v := _known(table, p, run)) is not None}
            if len(values) == len(phis):
                yield _rebuilt(trial, {i: end.inputs[2 + index_of(i)] for i in items}, values)


def _operands_instead(trial: Trial, seconds: float) -> Iterator[Trial]:
    """A node that is one of its operands of the same type."""
    for n in reversed(trial.module.entry.nodes):
        for i in dict.fromkeys(n.inputs):
            if i.type == n.type and n.op not in (PHI, REGION, LOOP_END):
                yield _rebuilt(trial, {n: i}, {})


def _smaller_constants(trial: Trial, seconds: float) -> Iterator[Trial]:
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


def _smaller_sizes(trial: Trial, seconds: float) -> Iterator[Trial]:
    """Every dimension of one size made smaller at once, arrays cut to it."""
    types = [n.type for n in trial.module.entry.nodes if isinstance(n.type, TensorType) and n.type.is_static]
    for old in sorted({d for t in types for d in t.shape if d > 1}, reverse=True):
        for new in dict.fromkeys((1, 2, old // 2)):
            if 0 < new < old:
                yield from _retyped(trial, lambda n, old=old, new=new: new if n == old else n, lambda d: d)  # type: ignore[misc]


def _usual_types(trial: Trial, seconds: float) -> Iterator[Trial]:
    """All values of an element type in a more usual one."""
    types = {n.type.dtype for n in trial.module.entry.nodes if isinstance(n.type, TensorType)}
    for old in USUAL:
        if old in types:
            yield from _retyped(trial, lambda n: n, lambda d, old=old: USUAL[old] if d is old else d)  # type: ignore[misc]


def _retyped(trial: Trial, size: Callable[[int], int], dtype: Callable[[DType], DType]) -> Iterator[Trial]:
    """The program with other sizes of dimensions and other element types; none where an operation does not allow them."""
    b, entry = Builder(), trial.module.entry

    def shape(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(map(size, values))

    def array(old: Array, type: DType) -> Array:
        with np.errstate(all="ignore"):
            return _cut(old, shape(old.shape)).astype(dtype(type).np)

    def attribute(value: object) -> object:
        if isinstance(value, DType):
            return dtype(value)
        return shape(value) if isinstance(value, tuple) and all(isinstance(d, int) for d in value) else value

    def made(n: Node, inputs: tuple[Node, ...]) -> Node:
        if n.op is PARAM:
            assert isinstance(n.type, TensorType)
            return b.param(index_of(n), TensorType(dtype(n.type.dtype), shape(n.type.shape)), n.name)
        if n.op is CONSTANT:
            return b.constant(array(value_of(n).array, value_of(n).dtype))
        attrs = tuple(map(attribute, n.attrs))
        return Node(n.op, inputs, attrs, n.op.infer([i.type for i in inputs], *attrs), n.origin)

    try:
        new_nodes = rebuild(entry.nodes, {}, made)
    except (DeepxGraphError, AssertionError, ValueError, LookupError, TypeError):
        return
    after = entry.with_(params=tuple(new_nodes[p] for p in entry.params), results=tuple(new_nodes[r] for r in entry.results))
    types = {p.name: p.type.dtype for p in entry.params if isinstance(p.type, TensorType)}
    inputs = {name: array(value, types[name]) for name, value in trial.inputs.items()}
    yield Trial(trial.module.with_functions(after if f is entry else f for f in trial.module.functions), inputs)


def _cut(array: Array, shape: Sequence[int]) -> Array:
    return np.ascontiguousarray(array[tuple(slice(0, n) for n in shape)])


def _values(trial: Trial, seconds: float) -> tuple[ValueTable, Module]:
    """The values that are recorded until the program ends, or fails, and the module whose nodes they are of; none where the process
    would not survive it."""
    table = ValueTable()
    if _ends_well(lambda: _record(trial, ValueTable()), seconds):
        return table, _record(trial, table)
    return table, trial.module


def _record(trial: Trial, table: ValueTable) -> Module:
    """Fills the table; the module whose nodes have the values."""
    try:
        observe(trial.module, trial.inputs, table)
    except DeepxGraphError:  # what was computed before is known
        return table.module or trial.module
    return table.module or trial.module


def _known(table: ValueTable, node: Node, run: int = 0) -> Array | None:
    """A value of a node: the one that it had, or zeros where none is known; None for what is no array."""
    type = node.type
    if not isinstance(type, TensorType):
        return None
    value = table.of(node, run)
    if value is not None and len(value) == 1:
        return value[0]
    return np.zeros(type.shape, type.dtype.np) if type.is_static and type.dtype.np is not None and not run else None


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


STEPS: tuple[Steps, ...] = (_fewer_results, _prefixes, _cleaned, _cut_off, _lower_results, _straightened, _operands_instead,
                            _smaller_constants, _smaller_sizes, _usual_types)
"""The kinds of steps, those that take most away first."""
