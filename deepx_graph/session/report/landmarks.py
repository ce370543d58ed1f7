"""Which modules of two programs compute the same, by the values that leave them: however each program spells what is in between.

Exporters write one model in many ways: a mask that is added or selected, a transposed weight, a normalisation that is folded into a
convolution. What leaves a module of the model is the same all the same, up to the order of its elements. So both programs run in
double precision on the same ordinary inputs, and the values that leave each module are looked for among all values of the other
program. This is evidence and no proof; rounding of constants allows for six digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.analysis.name_scopes import ROOT, name_scopes
from deepx_graph.analysis.work import flops
from deepx_graph.errors import DeepxGraphError, VerifyError, counted, printable
from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.literal import Array
from deepx_graph.numerics.double import widened
from deepx_graph.numerics.observed import OperationBudget, RunObserver, observe
from deepx_graph.numerics.values import EvaluatedModule, ValueTable
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.runtime.inputs import input_ports, output_ports
from deepx_graph.types import TensorType, is_state, is_static, nbytes
from deepx_graph.validation.samples import FAMILIES, samples

OPENED = "inline,unfuse,inline"
"""Brings values that calls and kernels hide to light, and changes nothing else."""

RUNS = 2
"""Sets of inputs."""

NODES, OPERATIONS, FLOPS, VALUES, BYTES = 20_000, 100_000, 3e8, 1 << 26, 1 << 29
"""What a program may have (nodes, arithmetic, bytes of all values), and what a run of it may take (operations, bytes at a time),
for its values to be looked at without being asked for."""

DIGITS = 1e-6
"""How near values are that count as the same, beside the largest element."""


@dataclass(frozen=True)
class ModuleValues:
    """A module of a model: of the values that leave it, how many the other program has, too."""

    scope: str
    found: int
    values: int

    @property
    def same(self) -> bool:
        """Whether it has all of them."""
        return self.found == self.values


@dataclass(frozen=True)
class Landmarks:
    """What values tell of two programs: whether their outputs agree, and which modules of each give values that the other has."""

    outputs: bool
    first: tuple[ModuleValues, ...]
    second: tuple[ModuleValues, ...]

    def lines(self) -> Iterator[str]:
        """A report."""
        agree = "outputs agree to six digits" if self.outputs else "outputs differ"
        yield f"by values: {agree}, on {counted(RUNS, 'set')} of generated inputs in double precision"
        for word, modules in (("first", self.first), ("second", self.second)):
            if modules:
                yield f"  of the {word}: {_many(modules)} of {counted(len(modules), 'module')} give values that the other has, too"
            yield from (printable(f"    not {m.scope}: {m.found} of {m.values}") for m in modules if not m.same)


def _many(modules: Sequence[ModuleValues]) -> int:
    return sum(m.same for m in modules)


def landmarks(a: Module, b: Module, seed: int = 0) -> Landmarks | None:
    """Runs both; None where inputs or outputs are not alike, where there are effects, and where it would cost much."""
    a, b = (run_pipeline(m, parse_pipeline(OPENED)) for m in (a, b))
    if not (_comparable(a, b) and _cheap(a) and _cheap(b)):
        return None
    try:
        a, b = widened(a), widened(b)
    except VerifyError:
        return None
    names = [p.name for p in input_ports(b.entry)]
    found = []
    try:
        for inputs in samples(input_ports(a.entry), RUNS * len(FAMILIES), seed)[:: len(FAMILIES)]:
            first = _evaluated(a, inputs, seed)
            if not _telling(first):  # variances are not negative
                inputs = {name: np.abs(x) for name, x in inputs.items()}
                first = _evaluated(a, inputs, seed)
            renamed = dict(zip(names, (inputs[p.name] for p in input_ports(a.entry)), strict=True))
            found.append(_compared(first, _evaluated(b, renamed, seed)))
            if not _telling(first):
                return None
    except DeepxGraphError:
        return None
    return Landmarks(all(x.outputs for x in found), found[0].first, found[0].second)


def _telling(program: EvaluatedModule) -> bool:
    """Whether every output has an element that is a number."""
    return all(np.isfinite(_flat(x)).any() for x in program.outputs if np.size(x))


def _comparable(a: Module, b: Module) -> bool:
    return all([p.type for p in ports(a.entry)] == [p.type for p in ports(b.entry)] and
               all(isinstance(p.type, TensorType) and not is_state(p.type) for p in ports(a.entry))
               for ports in (input_ports, output_ports)) and \
        not any(is_state(p.type) for m in (a, b) for p in m.entry.params)  # fmt: skip


def _cheap(module: Module) -> bool:
    nodes = module.entry.nodes
    return (len(nodes) <= NODES and all(is_static(n.type) for n in nodes)
            and sum(map(flops, nodes)) <= FLOPS and sum(nbytes(n.type) for n in nodes) <= VALUES)  # fmt: skip


class _Bounded(RunObserver):
    """The values of a run that may compute so much."""

    def __init__(self) -> None:
        self.table, self.budget = ValueTable(), OperationBudget(OPERATIONS)

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """Records a value. Raises LimitError where that is too much."""
        return self.table.computed(node, operands, self.budget.computed(node, operands, result))


def _evaluated(module: Module, inputs: Mapping[str, Any], seed: int) -> EvaluatedModule:
    bounded = _Bounded()
    observed = observe(module, inputs, bounded, seed=seed, max_bytes=BYTES)
    return EvaluatedModule(observed.module, bounded.table, observed.outputs)


def _compared(a: EvaluatedModule, b: EvaluatedModule) -> Landmarks:
    pools = _Pool(a), _Pool(b)
    outputs = all(_near(_flat(x)[np.newaxis], _flat(y)) for x, y in zip(a.outputs, b.outputs, strict=True))
    return Landmarks(outputs, _modules(a, pools[1]), _modules(b, pools[0]))


def _modules(program: EvaluatedModule, other: _Pool) -> tuple[ModuleValues, ...]:
    entry = program.module.entry
    scopes = {n: s for n, s in name_scopes(entry).items() if n.op is not PARAM and n.op is not CONSTANT and s != ROOT}
    leaving = dict.fromkeys(n for n in entry.results if n in scopes)
    for user in entry.nodes:
        leaving |= dict.fromkeys(i for i in user.inputs if i in scopes and scopes.get(user) != scopes[i])
    rows: dict[str, list[bool]] = {}
    for n in leaving:
        for array in program.table.of(n) or ():
            rows.setdefault(str(scopes[n]), []).append(array in other)
    return tuple(ModuleValues(scope, sum(found), len(found)) for scope, found in rows.items())


class _Pool:
    """The values of a run, without the order of their elements."""

    def __init__(self, program: EvaluatedModule) -> None:
        self._known: dict[int, list[Array]] = {}
        for function in program.module.functions:
            for node in function.nodes:
                for array in program.table.of(node) or ():
                    if array.dtype.kind in "fiub":
                        self._known.setdefault(array.size, []).append(np.sort(array.astype(np.float64), axis=None))
        self._stacked: dict[int, Array] = {}

    def __contains__(self, array: Array) -> bool:
        if array.size not in self._known or array.dtype.kind not in "fiub":
            return False
        if array.size not in self._stacked:
            self._stacked[array.size] = np.stack(self._known[array.size])
        return _near(self._stacked[array.size], np.sort(array.astype(np.float64), axis=None))


def _flat(value: Any) -> Array:
    array = np.asarray(value).reshape(-1)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _near(known: Array, value: Array) -> bool:
    """Whether a row of `known` is the value, to the digits that count."""
    if not value.size:
        return True
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(value), np.abs(value), 0)
        near = (np.abs(known - value) <= DIGITS * finite.max()) | (known == value) | (np.isnan(known) & np.isnan(value))
    return bool(near.all(axis=1).any())
