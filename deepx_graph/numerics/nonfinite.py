"""Where NaN and infinities come from: the operations that made them out of other values, those that reach an output first.

A node is an origin where its result is NaN in an element and what that element was computed from is not: the same element of each
operand for an elementwise operation, all elements of all operands for any other. NaN made of an infinity names the origin of that
infinity as its cause. What an origin taints is followed through the values of the run, whichever branch, iteration or call they
pass through, so an origin whose NaN a `select` drops is known to be harmless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from deepx_graph.analysis.liveness import liveness
from deepx_graph.analysis.name_scopes import NameScope, name_scopes
from deepx_graph.analysis.scopes import Loops
from deepx_graph.errors import TextReport, counted, printable
from deepx_graph.ir import Module, Node, describe
from deepx_graph.ir.node import reachable
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Array
from deepx_graph.numerics.observed import ArrayFacts, RunObserver, observe, tensors
from deepx_graph.runtime.inputs import flatten, input_ports

Kind = Literal["NaN", "infinity"]

MAX_SOURCES = 1024
"""Operations, inputs and constants that are told apart as sources; further ones are not followed."""


@dataclass(frozen=True)
class NonfiniteSource:
    """An input or a constant that is not finite from the start."""

    text: str
    node: Node | None = None

    def lines(self) -> Iterator[str]:
        """One line that says what it is."""
        yield f"{self.text} holds NaN or infinities from the start"


@dataclass(frozen=True)
class NonfiniteOrigin:
    """A node that made NaN or an infinity of values that were none, the first time that it did.

    `count` of `size` elements of its result are new, `element` is the first of them and `operands` what it was computed from. `run`
    says how often the node had been computed by then, from 1; inside a loop that is `iteration`, and `carried` names the loop
    variable that takes the value on. `causes` are where the infinities come from that NaN was made of.
    """

    node: Node
    kind: Kind
    count: int
    size: int
    element: tuple[int, ...]
    operands: tuple[str, ...]
    run: int = 1
    iteration: int | None = None
    carried: str = ""
    backward: bool = False
    """Whether the node belongs to the backward part of a gradient."""
    causes: tuple[NonfiniteOrigin | NonfiniteSource, ...] = ()

    def lines(self) -> Iterator[str]:
        """What a person reads: where, what, of what, and what may help."""
        where = f"{self.node.span}: " if self.node.span else ""
        yield f"{where}{self.kind} is made by {describe(self.node)}"
        at = f", first at [{', '.join(map(str, self.element))}]" if self.element else ""
        yield f"  {self.count} of {counted(self.size, 'element')}{at}: {self.node.op.name}({', '.join(self.operands)})"
        if self.iteration is not None:
            carried = f", carried on by the loop variable '{printable(self.carried)}'" if self.carried else ""
            yield f"  in iteration {self.iteration} of its loop{carried}"
        elif self.run > 1:
            yield f"  when it is computed for the {self.run}th time"
        if self.backward:
            yield "  in the backward part of a gradient: where a select drops the forward value, select its operand before, too"
        for cause in self.causes:
            first, *rest = cause.lines()
            yield f"  because {first}"
            yield from (f"  {line}" for line in rest)


@dataclass(frozen=True, repr=False)
class NonfiniteReport(TextReport):
    """Which outputs are not finite, the sources that reach them, in the order of the run, and how many others reach none."""

    outputs: tuple[tuple[str, int, int], ...]
    """Name, NaNs and infinities of each output that has any."""
    sources: tuple[NonfiniteOrigin | NonfiniteSource, ...]
    harmless: int

    @property
    def origins(self) -> tuple[NonfiniteOrigin, ...]:
        """The operations among the sources."""
        return tuple(s for s in self.sources if isinstance(s, NonfiniteOrigin))

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"outputs": [{"name": name, "nan": nans, "infinite": infs} for name, nans, infs in self.outputs],
                "origins": [{"operation": o.node.op.name, "name": o.node.name, "place": str(o.node.span) if o.node.span else None,
                             "kind": str(o.kind), "count": o.count, "element": list(o.element), "operands": list(o.operands),
                             "iteration": o.iteration, "lines": list(o.lines())} for o in self.origins],
                "harmless": self.harmless}  # fmt: skip

    def lines(self) -> Iterator[str]:
        """The report of `run --explain-nan`."""
        if not self.outputs:
            yield "every output is finite"
        for name, nans, infs in self.outputs:
            yield f"output '{printable(name)}': {nans} NaN, {infs} {'infinity' if infs == 1 else 'infinities'}"
        for source in self.sources:
            yield from source.lines()
        if self.harmless:
            yield f"{counted(self.harmless, 'other operation')} made NaN or infinities that reach no output"


def explain_nonfinite(module: Module, inputs: Mapping[str, Any], *, seed: int = 0, max_bytes: int | None = None,
                      data_root: str | None = None, out: Any = None) -> NonfiniteReport:
    """Runs the entry on the reference engine and says where NaN and infinities of its outputs come from.

    `inputs` are arrays by name. Raises what compiling and running raise.
    """
    tracer = _Tracer()
    observed = observe(module, inputs, tracer, seed=seed, max_bytes=max_bytes, data_root=data_root, out=out)
    reached, outputs = 0, []
    for port, array, node in zip(observed.ports, observed.outputs, observed.taken, strict=True):
        if not isinstance(array, np.ndarray):
            continue
        nan, inf = _masks(array)
        if nan.any() or inf.any():
            outputs.append((port.name, int(nan.sum()), int(inf.sum())))
            reached |= tracer.last[node]
    caused = {id(c) for o in tracer.sources.values() if isinstance(o, NonfiniteOrigin) for c in o.causes}
    found = [s for bit, s in tracer.sources.items() if bit & reached and id(s) not in caused]
    harmless = sum(isinstance(s, NonfiniteOrigin) and not bit & reached for bit, s in tracer.sources.items())
    return NonfiniteReport(tuple(outputs), tuple(found), harmless)


def _masks(array: Array) -> tuple[Array, Array]:
    """Where an array is NaN, and where it is infinite."""
    if array.dtype.kind in "biuSUO" or not array.size:
        none = np.zeros(array.shape, bool)
        return none, none
    wide = array if array.dtype.kind in "fc" and array.dtype.itemsize >= 4 else array.astype(np.float32)
    nan = np.isnan(wide)
    return nan, np.isinf(wide) & ~nan


@dataclass(eq=False)
class _Tracer(RunObserver):
    """Follows what is not finite through a run. A taint is a set of sources as the bits of an integer."""

    sources: dict[int, NonfiniteOrigin | NonfiniteSource] = field(default_factory=dict)
    """By bit: operations, inputs and constants that what is not finite comes from."""
    bits: dict[Node, int] = field(default_factory=dict)
    runs: Counter[Node] = field(default_factory=Counter)
    loops: dict[Node, Node | None] = field(default_factory=dict)
    """The end of the innermost loop that a node depends on."""
    scopes: dict[Node, NameScope] = field(default_factory=dict)
    taints: ArrayFacts[int] = field(default_factory=ArrayFacts)
    last: dict[Node, int] = field(default_factory=dict)
    """The taint of what each node was computed as the last time that it was not finite."""

    def begin(self, module: Module, inputs: Mapping[str, Array]) -> None:
        """Inputs and constants that are not finite are sources themselves."""
        for f in module.functions:
            self.loops.update(Loops(liveness(f)).innermost)
            self.scopes.update(name_scopes(f))
            for node in f.nodes:
                if node.op is CONSTANT:
                    self.give(value_of(node).array, NonfiniteSource(f"the constant {describe(node)}", node))
        for port in input_ports(module.entry):
            if port.name in inputs:
                self.give(inputs[port.name], NonfiniteSource(f"input '{printable(port.name)}'"))

    def give(self, array: Array, source: NonfiniteSource) -> None:
        """An array that is there from the start becomes a source, if it is not finite."""
        bit = 1 << len(self.sources)
        if _odd_elements(array).any() and len(self.sources) < MAX_SOURCES:
            self.sources[bit] = source
            self.taints.note(array, bit)

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """Taints the result by what made it, if it is not finite."""
        self.runs[node] += 1
        for value in flatten(result):
            if not isinstance(value, (np.ndarray, np.generic)):
                continue
            nan, inf = _masks(np.asarray(value))
            if not (nan.any() or inf.any()):
                self.taints.forget(value)
            else:
                taint = self.last[node] = self.flow(node, operands, nan | inf) | self.born(node, operands, nan, inf)
                self.taints.note(value, taint)
        return result

    def flow(self, node: Node, operands: Sequence[Any], odd: Array) -> int:
        """The taints that operands pass on: of an elementwise operation, in elements where both are odd."""
        taint = 0
        for value in (v for operand in operands for v in flatten(operand)):
            bad = _odd_elements(value)
            if bad.any() and (not node.op.elementwise or bool((np.broadcast_to(bad, odd.shape) & odd).any())):
                taint |= self.taints.of(value, 0)
        return taint

    def born(self, node: Node, operands: Sequence[Any], nan: Array, inf: Array) -> int:
        """The bit of the node as an origin, 0 where it only passes on what it was given."""
        if node not in self.bits and len(self.sources) >= MAX_SOURCES:
            return 0
        fresh, kind = _fresh(node, operands, nan, inf)
        if not fresh.any():
            return 0
        if node not in self.bits:
            bit = self.bits[node] = 1 << len(self.sources)
            self.sources[bit] = self.origin(node, kind, fresh, operands)
        return self.bits[node]

    def origin(self, node: Node, kind: Kind, fresh: Array, operands: Sequence[Any]) -> NonfiniteOrigin:
        """What there is to say of a node that has just made something odd."""
        at = tuple(int(k) for k in np.argwhere(fresh)[0])
        taint = self.flow(node, operands, fresh) if kind == "NaN" else 0
        end = self.loops.get(node)
        return NonfiniteOrigin(
            node, kind, int(fresh.sum()), int(fresh.size), at, _shown(node, operands, at), self.runs[node],
            None if end is None else self.runs[node], "" if end is None else _carried_by(node, end),
            "grad" in node.origin.rewrites or (node in self.scopes and self.scopes[node].phase == "backward"),
            tuple(o for bit, o in self.sources.items() if taint & bit))


def _odd_elements(value: Any) -> Array:
    if not isinstance(value, (np.ndarray, np.generic)):
        return np.zeros((), bool)
    nan, inf = _masks(np.asarray(value))
    return nan | inf


def _fresh(node: Node, operands: Sequence[Any], nan: Array, inf: Array) -> tuple[Array, Kind]:
    """The elements that are NaN, or else infinite, while what they were computed from is not."""
    had_nan, had_odd = np.zeros((), bool), np.zeros((), bool)
    for array in (a for operand in operands for a in tensors(operand)):
        n, i = _masks(array)
        if not node.op.elementwise:
            n, i = np.asarray(n.any()), np.asarray(i.any())
        had_nan, had_odd = had_nan | n, had_odd | n | i
    born = nan & ~np.broadcast_to(had_nan, nan.shape)
    return (born, "NaN") if born.any() else (inf & ~np.broadcast_to(had_odd, inf.shape), "infinity")


def _shown(node: Node, operands: Sequence[Any], at: tuple[int, ...]) -> tuple[str, ...]:
    """The operands' values: the element for an elementwise operation, the range of what is finite for any other."""
    found = []
    for array in (a for operand in operands for a in tensors(operand)):
        if not array.ndim or node.op.elementwise:
            found.append(str(array[at] if array.ndim else array[()]))
        elif array.dtype.kind in "biu" or not array.size:
            found.append(f"{array.dtype}[{','.join(map(str, array.shape))}]")
        else:
            size = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
            finite = size[np.isfinite(size)]
            found.append(f"magnitudes up to {finite.max():.3g}" if finite.size else "no finite number")
    return tuple(found)


def _carried_by(node: Node, end: Node) -> str:
    """The name of the loop variable whose next value needs the node; empty where none does."""
    for k, following in enumerate(end.inputs[2:]):
        if node in reachable([following]):
            return end.inputs[0].inputs[k].name or f"variable {k}"
    return ""
