"""The operation at which one program departs from another that should compute the same, by value numbering through execution.

Both programs run on the same inputs and the values of all nodes are recorded. From an output that differs the two programs are
followed downwards side by side: as long as giving a node of the second program values of the first for its operands makes its
result right, the mistake lies in those operands. Where no such exchange helps, the pair of nodes is where the second program
departs: what the first computed there is now computed otherwise. Values that occur in both programs bound what is shown of each.

Alpern, Wegman and Zadeck, Detecting Equality of Variables in Programs, POPL 1988, with execution in place of congruence.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Function, Module, Node, Op, describe
from deepx_graph.ir.rebuild import rebuild
from deepx_graph.ir.structure import CALL, CONSTANT, PARAM, STRUCTURAL
from deepx_graph.literal import Array, content
from deepx_graph.numerics.observed import Value
from deepx_graph.numerics.values import RUNS, EvaluatedModule, evaluate
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.types import TensorType
from deepx_graph.validation.discrepancy import discrepancy

OPENED = "inline,unfuse,inline"
"""Brings values that calls and kernels hide to light, and changes nothing else."""

NEARBY = 12
"""Nodes of the first program tried in place of an operand."""

SHOWN = 12
"""Operations that are shown of each side."""


@dataclass(frozen=True)
class Departure:
    """Where two programs part: `before` of the first is computed as `after` by the second, in the `run`-th time.

    `operations` are what each side computes it from, down to `shared`: values that both programs have.
    """

    before: Node
    after: Node
    run: int
    first: EvaluatedModule
    second: EvaluatedModule
    shared: dict[Node, Value] = field(repr=False)

    def operations(self, side: Node) -> list[Node]:
        """The nodes of one side above what is shared, in topological order, constants left out."""
        found: dict[Node, None] = {}
        stack = [side]
        while stack:
            node = stack.pop()
            if node in found or (node is not side and node in self.shared):
                continue
            found[node] = None
            stack.extend(node.inputs)
        return sorted((n for n in found if n.op is not CONSTANT), key=lambda n: n.serial)

    def reproducer(self) -> tuple[Module, dict[str, Array]] | None:
        """A program of the first side's operations alone, and the values that they had; None where control flow is among them."""
        own = self.operations(self.before)
        if not own or any(n.op in STRUCTURAL for n in own):
            return None
        outside = list(dict.fromkeys(i for n in own for i in n.inputs if i not in own))
        b, made, inputs = Builder(), dict[Node, Node](), dict[str, Array]()
        for node in outside:
            value = self.first.table.of(node, self.run)
            if node.op is CONSTANT:
                made[node] = node
            elif value is None or len(value) != 1:
                return None
            else:
                name = f"p{len(inputs)}"
                made[node] = b.param(len(inputs), node.type, name)
                inputs[name] = value[0]
        rebuild(own, made)
        params = tuple(made[n] for n in outside if n.op is not CONSTANT)
        entry = Function("main", params, (made[self.before],), (self.before.name or "result",))
        return Module((entry,), "main", format=self.first.module.format), inputs

    def lines(self) -> list[str]:
        """The two sides, with the lines of the user's program."""
        made = next((s.place or s for s in (self.after.span, self.before.span) if s is not None), None)
        where = f" ({made})" if made else ""
        rows = [f"first differing value: {self.after.reference or f'#{self.after.serial}'}{where}"]
        for word, side in (("was", self.before), ("now", self.after)):
            steps = self.operations(side)
            rows += [f"  {word if k == 0 else '   '}: {describe(n)}" for k, n in enumerate(steps[-SHOWN:])]
            rows += [f"  {word}: {describe(side)}"] if not steps else []
        return rows


def departure(before: Module, after: Module, inputs: Mapping[str, Any], renamed: Mapping[str, Any], output: int, *,
              seed: int = 0, max_bytes: int | None = None) -> Departure | None:
    """Where `after`, run on `renamed` (the same arrays under its own names), departs on the way to its output of that number.

    None where the values do not tell: of programs that differ by their devices, and where both sides are followed to their ends.
    """
    first, second = (evaluate(opened(m), given, seed=seed, max_bytes=max_bytes)
                     for m, given in ((before, inputs), (after, renamed)))
    return _Walk(first, second).run(output)


def opened(module: Module) -> Module:
    """The module with the values that calls and kernels hide."""
    return run_pipeline(module, parse_pipeline(OPENED))


class ValuePool:
    """The values of a run, by what they have in common."""

    def __init__(self, evaluated: EvaluatedModule) -> None:
        self.exact: set[bytes] = set()
        self.scalars: set[tuple[Op, bytes]] = set()
        self.floats: dict[tuple[str, int], list[Array]] = defaultdict(list)
        for f in evaluated.module.functions:
            for node in f.nodes:
                for run in range(RUNS):
                    value = evaluated.table.of(node, run)
                    if value is None or (run and node.op is CONSTANT):
                        break
                    for array in value:
                        self._add(array)
                        if array.size == 1:
                            self.scalars.add((node.op, digest((array,))))
        self._stacked: dict[tuple[str, int], Array] = {}

    def _add(self, array: Array) -> None:
        key = digest((array,))
        if key not in self.exact:
            self.exact.add(key)
            if array.dtype.kind not in "biu":
                self.floats[array.dtype.name, array.size].append(_wide(array))

    def __contains__(self, array: Array) -> bool:
        """Whether the array occurs: to the bit, or up to rounding; shapes do not count."""
        if digest((array,)) in self.exact:
            return True
        key = (array.dtype.name, array.size)
        if array.dtype.kind in "biu" or key not in self.floats:
            return False
        if key not in self._stacked:
            self._stacked[key] = np.stack(self.floats[key])
        known, value = self._stacked[key], _wide(array)
        with np.errstate(all="ignore"):
            near = np.isfinite(value) & (np.abs(known - value) <= 1e-5 * np.minimum(np.abs(known), np.abs(value)))
        return bool((near | (known == value) | (np.isnan(known) & np.isnan(value))).all(axis=1).any())

    def has(self, op: Op, array: Array) -> bool:
        """Whether an operation of the kind gives this one number: that a number occurs somewhere may be chance."""
        return (op, digest((array,))) in self.scalars


def digest(arrays: Value) -> bytes:
    """What equal values have in common: element types, sizes and elements; every NaN is the same, shapes do not count."""
    made = hashlib.blake2b(digest_size=16)
    for a in arrays:
        if a.dtype.kind in "fc" or a.dtype.kind == "V":
            odd = np.isnan(a)
            a = np.where(odd, np.asarray(np.nan, a.dtype), a) if odd.any() else a
        made.update(f"{a.dtype.name}{a.size}".encode())
        made.update(content(a))
    return made.digest()


def _wide(array: Array) -> Array:
    return array.reshape(-1).astype(np.complex128 if array.dtype.kind == "c" else np.float64)


class _Walk:
    """The two programs, followed down from an output."""

    def __init__(self, first: EvaluatedModule, second: EvaluatedModule) -> None:
        self.first, self.second = first, second
        self.known, self.made = ValuePool(first), ValuePool(second)

    def run(self, output: int) -> Departure | None:
        a, b, at = _result(self.first.module.entry, output), _result(self.second.module.entry, output), 0
        if a is None or b is None:
            return None
        seen: set[tuple[Node, Node, int]] = set()
        while (a, b, at) not in seen:
            seen.add((a, b, at))
            below = self._below(a, b, at)
            if below is None:
                break
            a, b, at = below
        shared = dict(itertools.chain(self._shared(self.first, self.made), self._shared(self.second, self.known)))
        return Departure(a, b, at, self.first, self.second, shared)

    def _below(self, a: Node, b: Node, at: int) -> tuple[Node, Node, int] | None:
        """A pair of operands that explains why the pair differs; None where nothing below does."""
        if a.op in STRUCTURAL or b.op in STRUCTURAL:
            return self._through_structure(a, b, at)
        want = self.first.table.of(a, at)
        wrong = [k for k, i in enumerate(b.inputs) if not self._occurs(self.second, i, self.known, at)]
        if want is None or not wrong:
            return None
        pairs = {k: a.inputs[k] for k in wrong if a.op is b.op and len(a.inputs) == len(b.inputs)}
        if pairs and self._explains(b, pairs, at, want):
            return self._first_pair(pairs, b, at)
        for k in wrong:
            for candidate in self._nearby(a, b.inputs[k].type):
                if self._explains(b, {k: candidate}, at, want):
                    return candidate, b.inputs[k], at
        return None

    def _first_pair(self, pairs: Mapping[int, Node], b: Node, at: int) -> tuple[Node, Node, int] | None:
        return next(((p, b.inputs[k], at) for k, p in pairs.items() if self._differs(p, b.inputs[k], at)), None)

    def _through_structure(self, a: Node, b: Node, at: int) -> tuple[Node, Node, int] | None:
        """Through projections, branches and loops, which compute nothing themselves: to the first operand that differs, in the
        first iteration in which one does."""
        if a.op is not b.op or len(a.inputs) != len(b.inputs) or a.op in (PARAM, CONSTANT, CALL):
            return None
        for run in itertools.chain((at,), (r for r in range(RUNS) if r != at)):
            for x, y in zip(a.inputs, b.inputs, strict=True):
                if self._differs(x, y, run):
                    return x, y, run
        unknown = [(x, y, at) for x, y in zip(a.inputs, b.inputs, strict=True) if x not in self.first.table and x.op in STRUCTURAL]
        return unknown[0] if unknown and unknown[0][0] is not a else None

    def _differs(self, a: Node, b: Node, at: int) -> bool:
        want, got = self.first.table.of(a, at), self.second.table.of(b, at)
        return want is not None and got is not None and not _agree(want, got)

    def _explains(self, b: Node, exchanged: Mapping[int, Node], at: int, want: Value) -> bool:
        """Whether the second program's node gives what is wanted when these operands have values of the first program."""
        operands: list[Any] = []
        for k, i in enumerate(b.inputs):
            value = self.first.table.of(exchanged[k], at) if k in exchanged else self.second.table.of(i, at)
            if value is None or len(value) != 1 or (k in exchanged and exchanged[k].type != i.type):
                return False
            operands.append(value[0])
        assert b.op.eval is not None
        try:
            with np.errstate(all="ignore"):
                made = b.op.eval(operands, *b.attrs)
        except (DeepxGraphError, ValueError, TypeError):
            return False
        return _agree(want, tuple(made) if isinstance(made, tuple) else (np.asarray(made),))

    def _nearby(self, a: Node, type: Any) -> list[Node]:
        """Nodes under one of the first program that have a type and a value that the second has not, the next ones first."""
        found: list[Node] = []
        seen, level = {a}, [a]
        for _ in range(8):
            level = [i for n in level for i in n.inputs if i not in seen and not seen.add(i)]  # type: ignore[func-returns-value]
            found += [n for n in level if n.type == type and not self._occurs(self.first, n, self.made, 0)]
            if len(found) >= NEARBY:
                break
        return found[:NEARBY]

    def _occurs(self, side: EvaluatedModule, node: Node, pool: ValuePool, at: int) -> bool:
        value = side.table.of(node, at)
        return node.op is PARAM or (value is not None and all(array in pool for array in value))

    def _shared(self, side: EvaluatedModule, pool: ValuePool) -> list[tuple[Node, Value]]:
        found: list[tuple[Node, Value]] = []
        for f in side.module.functions:
            for node in f.nodes:
                value = side.table.of(node, 0)
                if value is None or not isinstance(node.type, TensorType) or node.op is CONSTANT:
                    continue
                if node.op is PARAM or all(array in pool and (array.size > 1 or pool.has(node.op, array)) for array in value):
                    found.append((node, value))
        return found


def _result(entry: Function, output: int) -> Node | None:
    """The node of an output; None inside a tuple."""
    found: list[Node] = []
    for r in entry.results:
        if not isinstance(r.type, TensorType):
            if len(found) <= output and type(r.type).__name__ == "TupleType":
                return None
            continue
        found.append(r)
    return found[output] if output < len(found) else None


def _agree(want: Sequence[Array], got: Sequence[Array]) -> bool:
    """Whether two values are the same up to rounding."""
    if len(want) != len(got):
        return False
    found = [discrepancy(w, g) for w, g in zip(want, got, strict=True)]
    return all(d is None or d.harmless for d in found)
