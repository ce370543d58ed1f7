"""Certificates of optimisations, and their checker, which replays the rewrites without any pass and trusts none.

A certificate is a text of lines, each a JSON object with the SHA-256 of itself and of all lines before. The first line names the
version, the pipeline, and the digests of the program before and after. Each further line is a pass: the module that it left, and
for every function that it rewrote a *trace*, a function of the same parameters whose results are those of the function before, the
two sides of every rewrite in order, and the results of the function after. All is in the sea form, which reads back exactly.

The checker compares the two sides of every rewrite on samples of its own, over their cut (`cones.py`), takes those that are alike
for equal, closes that under congruence (equal operations on equal operands are equal; Downey, Sethi and Tarjan, Variations on the
Common Subexpression Problem, 1980), and asks whether the results before and after are equal then. Where rewrites do not explain a
pass, nor the substitution of bodies for calls and kernels, the results of the whole program before and after it are compared on
samples instead. What it trusts is the reader of the sea form, the declarations of operations, and the evaluation of nodes; no pass,
and no rule.

Passes that inline and fuse number no rewrite of one node by another. They are checked by substitution: with every kernel opened
and every call of a function that is not recursive replaced by its body, both programs are the same, node for node. Nodes that are
equal operations on equal operands count once there; loops, effects and what may not end are the same where they are met in the same
order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError, Diagnostic, Source, VerifyError, counted, printable
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.peephole import commutes, mergeable, splat_of
from deepx_graph.ir.rebuild import copied, inlined, new_item, rebuilt, with_inputs
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, LOOP_BEGIN, PARAM, PARTIAL, TUPLE, callee_of, signature_of
from deepx_graph.literal import Literal
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.progress import stage
from deepx_graph.text import sea
from deepx_graph.types import TensorType, TupleType
from deepx_graph.validation.cones import NoValueError, common_cut, opens
from deepx_graph.validation.pairs import compare_pair
from deepx_graph.validation.whole import Difference, WholeProgram

SCHEMA = "deepx-graph/certificate/1"
FIRST = 7_000
"""The samples of the checker are numbered from here: none of them is one that an optimisation looks at."""

SETS = 3
"""Sets of inputs on which whole programs are compared."""

LARGEST = 100_000
"""Nodes of an unfolded function beyond which it is not unfolded."""

TRACE = "trace of "
"""How the names of traces begin."""


class CertificateError(VerifyError):
    """A certificate does not show what it should."""


def digest_of(module: Module) -> str:
    """The SHA-256 of a program, in the sea form."""
    return hashlib.sha256(sea.write(module).encode()).hexdigest()


def chained(payloads: Sequence[Mapping[str, Any]]) -> str:
    """The lines of a certificate."""
    lines, before = [], ""
    for payload in payloads:
        text = json.dumps(payload, sort_keys=True)
        before = hashlib.sha256(f"{before}{text}".encode()).hexdigest()
        lines.append(json.dumps({"payload": payload, "sha256": before}, sort_keys=True) + "\n")
    return "".join(lines)


def payloads_of(data: bytes) -> list[dict[str, Any]]:
    """What the lines of a certificate say. Raises CertificateError where a byte of them is not as it was written."""
    try:
        found = [json.loads(line)["payload"] for line in data.decode("ascii").splitlines()]
        if not found or any(not isinstance(p, dict) for p in found) or chained(found).encode() != data:
            raise ValueError
        if found[0].get("schema") != SCHEMA:
            raise CertificateError(Diagnostic("this is no certificate of a kind that is known", expected=SCHEMA))
        return found
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CertificateError("the certificate is damaged: its digests are not those of its lines") from None


@dataclass
class Certified:
    """What was checked: passes that their rewrites explain, others by how they were checked, and what could not be."""

    rewrites: int = 0
    explained: list[str] = field(default_factory=list)
    unfolded: list[str] = field(default_factory=list)
    """Passes that leave the same program, once calls and kernels are opened."""
    compared: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    written: str = ""
    """How the program that was given stands beside that of the certificate."""

    @property
    def holds(self) -> bool:
        """Whether every step was checked."""
        return not self.unchecked

    def lines(self) -> Iterator[str]:
        """What `certify` prints."""
        yield f"{counted(self.rewrites, 'rewrite')} checked on samples of the checker's own"
        for title, passes in (("explained by their rewrites", self.explained), ("the same once unfolded", self.unfolded),
                              ("compared as a whole", self.compared)):
            if passes:
                yield f"passes {title}: {', '.join(passes)}"
        yield f"the program after is {self.written}"
        yield from (f"not checked: {printable(why)}" for why in self.unchecked)
        yield "certified" if self.holds else "not certified"

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"rewrites": self.rewrites, "explained": self.explained, "unfolded": self.unfolded, "compared": self.compared,
                "unchecked": self.unchecked, "written": self.written, "holds": self.holds}  # fmt: skip


def certify(before: Module, after: Module, data: bytes) -> Certified:
    """Checks that a certificate shows the second program to compute what the first does.

    Raises CertificateError where it is damaged, is about other programs, or a step of it changes what is computed.
    """
    header, *steps = payloads_of(data)
    done, module = Certified(), before
    if digest_of(before) != header.get("input"):
        raise CertificateError("the certificate is about another program than the first")
    with np.errstate(all="ignore"):
        for k, step in enumerate(steps):
            stage("check", k, len(steps))
            module = _Step(module, step, done).checked()
        if digest_of(module) != header.get("output"):
            raise CertificateError("the steps of the certificate do not lead to the program that it is about")
        _check_written(module, after, done)
    return done


def _check_written(module: Module, after: Module, done: Certified) -> None:
    """The program that was given, which has gone through a file of some language, beside the last one of the certificate."""
    if digest_of(after) == digest_of(module):
        done.written = "that of the certificate"
        return
    done.written = "that of the certificate as another text: compared on samples"
    try:
        found = _compared(module, after)
    except NoValueError as e:
        done.unchecked.append(f"the program as it was written: {e}")
        return
    if found is not None:
        raise CertificateError(f"the second program is not that of the certificate: output {found[0]}: {found[1]}")


def _compared(before: Module, after: Module) -> Difference | None:
    """How the results of two programs differ on samples. Raises NoValueError where they cannot be compared."""
    types = [[n.type for n in nodes] for m in (before, after) for nodes in (m.entry.params, m.entry.results)]
    if types[0] != types[2] or types[1] != types[3]:
        raise NoValueError("inputs or outputs are of other types")
    for first in range(FIRST, FIRST + 100 * SETS, 100):
        found = WholeProgram(first).compare_all(before, after)
        if found is not None:
            return found
    return None


class _Step:
    """One pass of a certificate, from the module before it."""

    def __init__(self, before: Module, step: Mapping[str, Any], done: Certified) -> None:
        self.name, self.before, self.done = str(step.get("pass")), before, done
        try:
            read = sea.read(Source(f"<after {printable(self.name)}>", str(step["text"]))).module
            self.traces = {str(name): [(int(n), str(rule)) for n, rule in rows] for name, rows in step["traces"].items()}
        except DeepxGraphError as e:
            raise CertificateError(f"pass '{printable(self.name)}': the text cannot be read: {e.diagnostics[0].message}") from None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CertificateError(f"pass '{printable(self.name)}' is not described") from None
        self.traced = {f.name: f for f in read.functions if f.name.startswith(TRACE)}
        self.after = read.with_functions(f for f in read.functions if f.name not in self.traced)
        self.bodies: dict[Function, Function] = {}  # by what a body became: the body that it was
        self.equal: set[str] = set()

    def checked(self) -> Module:
        """The module after the pass. Raises CertificateError where something else is computed."""
        for name, rows in self.traces.items():
            self._replay(name, rows)
        if self._is_explained():
            self.done.explained.append(self.name)
            return self.after
        self.equal |= same_once_unfolded(self.before, self.after)
        if self._is_explained():
            self.done.unfolded.append(self.name)
            return self.after
        try:
            found = _compared(self.before, self.after)
        except NoValueError as e:
            self.done.unchecked.append(f"pass '{self.name}': {e}")
            return self.after
        if found is not None:
            raise CertificateError(f"pass '{printable(self.name)}' changes output {found[0]}: {found[1]}")
        self.done.compared.append(self.name)
        return self.after

    def _is_explained(self) -> bool:
        """Whether every function is as it was, or was shown to be equal."""
        old = {f.name: f for f in self.before.functions}
        same = [f.name in old and (f == old[f.name] or f.name in self.equal) for f in self.after.functions]
        return all(same) and self.before.entry_name == self.after.entry_name

    def _replay(self, name: str, rows: Sequence[tuple[int, str]]) -> None:
        """Checks the rewrites of a trace, and notes whether they make the function before the one after."""
        trace = self.traced.get(name)
        width = 0 if trace is None else len(trace.results) - 2 * len(rows)
        if trace is None or width < 0 or width % 2:
            raise CertificateError(f"pass '{printable(self.name)}': '{printable(name)}' is no trace")
        count, nodes = width // 2, trace.results
        old, new = (trace.with_(results=r) for r in (nodes[:count], nodes[len(nodes) - count :]))
        own = name.removeprefix(TRACE)
        is_function = own in self.after and own in self.before
        if is_function and not (self.before[own] == old and self.after[own] == new):
            return
        classes = _Classes(trace.nodes, self.bodies)
        context = self.before.with_functions(old.with_(name=own) if f.name == own else f for f in self.before.functions)
        whole, same = WholeProgram(FIRST), dict[Node, Node]()
        for k, (number, rule) in enumerate(rows):
            pair, what = (nodes[count + 2 * k], nodes[count + 2 * k + 1]), f"rewrite {number}, '{printable(rule)}'"
            if self._is_equal(pair, same, context, whole, f"{what} of pass '{printable(self.name)}'"):
                classes.merge(*pair)
        classes.close()
        if all(classes.of(a) is classes.of(b) for a, b in zip(old.results, new.results, strict=True)):
            if is_function:
                self.equal.add(own)
            else:
                self.bodies[new] = old

    def _is_equal(self, pair: tuple[Node, Node], same: dict[Node, Node], module: Module, whole: WholeProgram, what: str) -> bool:
        """Whether the two sides of a rewrite were seen to be alike. Raises CertificateError where they are not."""
        before, after = pair
        if before is after or before.type != after.type or not opens(before):
            return False
        try:
            found = compare_pair(common_cut(before, after, same), module, whole, FIRST)
        except NoValueError:
            return False
        if found is not None:
            raise CertificateError(f"{what} changes what is computed: {found.how}")
        self.done.rewrites += 1
        if after.serial < before.serial:
            same[before] = same.get(after, after)
        return True


class _Classes:
    """Nodes that are equal: by rewrites that were checked, and as equal operations on equal operands."""

    def __init__(self, nodes: Sequence[Node], bodies: Mapping[Function, Function]) -> None:
        self.nodes, self.bodies = nodes, bodies
        self.above = {n: n for n in nodes}

    def of(self, node: Node) -> Node:
        """The node that stands for a class."""
        while self.above[node] is not node:
            self.above[node] = node = self.above[self.above[node]]
        return node

    def merge(self, a: Node, b: Node) -> bool:
        """Makes two classes one; whether they were two."""
        first, second = sorted((self.of(a), self.of(b)), key=lambda n: n.serial)
        self.above[second] = first
        return first is not second

    def close(self) -> None:
        """Merges what is equal by congruence, until nothing is left to be."""
        changed = True
        while changed:
            changed = False
            for pair in self._congruent():
                changed = self.merge(*pair) or changed

    def _congruent(self) -> Iterator[tuple[Node, Node]]:
        met: dict[Any, Node] = {}
        for node in self.nodes:
            inputs = [self.of(i) for i in node.inputs]
            if len(inputs) == 2 and commutes(node.op, node.type):
                inputs.sort(key=lambda n: n.serial)
            attrs = tuple([self.bodies.get(a, a) if isinstance(a, Function) else a for a in node.attrs])
            other = node if node.op is PARAM else met.setdefault((node.op, attrs, node.type, *inputs), node)
            if other is not node:
                yield other, node


def same_once_unfolded(before: Module, after: Module) -> set[str]:
    """The names of the functions that are the same in both modules once all is unfolded."""
    old, new = unfolded(before), unfolded(after)
    return {name for name, f in new.items() if name in old and normal_form(old[name]) == normal_form(f)}


def unfolded(module: Module) -> dict[str, Function]:
    """The functions unfolded, by name; without those that would be too large, and those that call such."""
    callees = {f.name: {callee_of(n) for n in f.nodes if n.op in (CALL, PARTIAL)} & {g.name for g in module.functions}
               for f in module.functions}  # fmt: skip
    done: dict[str, Function] = {}
    waiting = dict(callees)
    while waiting:
        ready = [name for name, needed in waiting.items() if needed <= done.keys()]
        if not ready:  # what is left is recursive, or calls what is: its calls stay, by name
            ready = list(waiting)
        bodies = dict(done)
        for name in ready:
            del waiting[name]
            nodes = len(module[name].nodes) + sum(len(bodies[c].nodes) for c in callees[name] if c in bodies)
            if nodes <= LARGEST:
                done[name] = _opened(module[name], bodies)
    return {name: f for name, f in done.items() if len(f.nodes) <= LARGEST}


def _opened(function: Function, bodies: Mapping[str, Function]) -> Function:
    """The function with kernels opened, and calls of the given functions replaced by their bodies."""

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        node = new_item(node, inputs) or with_inputs(node, inputs)
        if node.op is CALL_VALUE and node.inputs[0].op is PARTIAL:
            partial = node.inputs[0]
            node = Node(CALL, partial.inputs + node.inputs[1:], partial.attrs, node.type, node.origin)
        body = kernel_body(node) or (bodies.get(callee_of(node)) if node.op is CALL else None)
        if body is None or [i.type for i in node.inputs] != [p.type for p in body.params]:
            return node
        if node.op is CALL and body.type != signature_of(node):
            return node
        made = tuple(inlined(body, node.inputs, copied))
        return Node(TUPLE, made, (), node.type, node.origin) if isinstance(node.type, TupleType) else made[0]

    return rebuilt(rebuilt(function, step), lambda node, inputs: _seen_through(with_inputs(node, inputs)))


def _seen_through(node: Node) -> Node:
    """What kernels have in place of a reshape or a broadcast: an operand that stays as it is, or a constant of equal elements."""
    if node.op.axes is None or not isinstance(node.type, TensorType) or node.type.dims is None:
        return node
    operand = node.inputs[0]
    if operand.op is CONSTANT and (element := splat_of(operand)) is not None and node.type.is_static:
        return Node(CONSTANT, (), (Literal.splat(element, node.type),), node.type, node.origin)
    is_same = node.type == operand.type and node.op.axes(node.type.dims, *node.attrs) == tuple(range(len(node.type.dims)))
    return operand if is_same else node


def normal_form(function: Function) -> tuple[Any, ...]:
    """A value that is equal for functions which are the same but for names, what is shared, and the order of commuting operands.

    Nodes are numbered as they are met from the results down, so that the order in which they were made does not count.
    """
    params = {p: k for k, p in enumerate(function.params)}
    number: dict[Node, int] = {}
    rows: dict[Any, int] = {}
    apart: dict[Node, int] = {}
    stack = list(reversed(function.results))
    while stack:
        node = stack[-1]
        missing = [i for i in node.inputs if i not in number] if node not in number else []
        if node in number or missing:
            if missing:
                stack += missing[::-1]
            else:
                stack.pop()
            continue
        stack.pop()
        inputs = [number[i] for i in node.inputs]
        if len(inputs) == 2 and commutes(node.op, node.type):
            inputs.sort()
        attrs: tuple[Any, ...] = (params[node],) if node.op is PARAM else () if node.op is LOOP_BEGIN else node.attrs
        own = apart.setdefault(node, len(apart)) if node.op is LOOP_BEGIN or not mergeable(node.op, node.type) else -1
        number[node] = rows.setdefault((node.op, attrs, node.type, tuple(inputs), own), len(rows))
    return (function.type, *rows, tuple(number[r] for r in function.results))
