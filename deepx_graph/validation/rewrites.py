"""Every rewrite of a pipeline checked as it happens, by values: what `--verify-each=values` does.

A rewrite is checked by itself, over the cut of the two nodes (`cones.py`). Where they differ for values that the program may never
have there, its own values decide: the program is evaluated on samples of its inputs, and the nodes are compared in the first
iterations and the last one of the loop they are in, in the calls of their function, and in branches that are taken. Whatever a
pass does beside numbered rewrites of one node by another shows in the results of the functions before and after it, of which only
new nodes are evaluated.

A rewrite that is not exact, or none at all, is a fault of ours: a PassError says which, with both sides and the inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, counted
from deepx_graph.ir import Module, Node, describe
from deepx_graph.ir.structure import CALL, CONSTANT, PARTIAL, PROJ, TUPLE, callee_of, index_of
from deepx_graph.numerics.observed import tensors
from deepx_graph.passes.observer import Observer
from deepx_graph.rewrite.base import Pass, PassError, Rewrite
from deepx_graph.validation.cones import Cut, NoValueError, common_cut, opens
from deepx_graph.validation.discrepancy import Discrepancy
from deepx_graph.validation.pairs import compare_pair
from deepx_graph.validation.whole import WholeProgram

EACH = 10_000
"""Rewrites of a pipeline that are all checked; of those above, one in so many that about as many again are."""


NUMBERED = 1 << 14
"""Nodes, those of called functions at each call, beyond which two programs are not compared by structure."""


class ValidateRewrites(Observer):
    """Checks the rewrites of one pipeline. Raises PassError, naming the rewrite, when one changes what is computed.

    `checked` are how many were, `left_out` how many were not by the reason.
    """

    def __init__(self) -> None:
        self.checked = 0
        self.left_out: Counter[str] = Counter()
        self._same: dict[Node, Node] = {}
        self._module: Module | None = None
        self._seen = self._count = 0
        self._uncovered = False
        self._steps: list[tuple[str, Module, Module]] = []
        self._whole = WholeProgram()

    def before_pass(self, pass_: Pass, module: Module) -> None:
        self._module, self._uncovered, self._count = module, False, self._seen

    def on_rewrite(self, rewrite: Rewrite) -> None:
        self._seen += 1
        if rewrite.number > EACH and rewrite.number % (rewrite.number // EACH):
            self.left_out["sampled"] += 1
            return
        before, after = rewrite.before, rewrite.after
        if before is after or before.type != after.type or not (opens(before) or before.op is CONSTANT):
            self.left_out["seen in the results"] += 1
            self._uncovered = True
            return
        try:
            with np.errstate(all="ignore"):
                self._check(rewrite)
            self.checked += 1
        except NoValueError as e:
            self.left_out[str(e)] += 1
            self._uncovered = True
        if after.op is CONSTANT or after.serial < before.serial:
            self._same[before] = self._same.get(after, after)

    def after_pass(self, pass_: Pass, before: Module, after: Module) -> None:
        if after is before:
            return
        if (self._uncovered or self._seen == self._count) and _computes_otherwise(before, after):
            self._steps.append((pass_.name, before, after))

    def after_all(self) -> None:
        """Compares what the entry gives before the first and after the last pass that did more than rewrite nodes."""
        if not self._steps:
            return
        try:
            with np.errstate(all="ignore"):
                if self._whole.compare(self._steps[0][1], self._steps[-1][2]) is not None:
                    self._name_pass()
        except NoValueError as e:
            self.left_out[f"results: {e}"] += 1

    def _name_pass(self) -> None:
        """Raises PassError for the first pass after which the results differ."""
        for name, before, after in self._steps:
            found = self._whole.compare(before, after)
            if found is not None:
                output, how, inputs = found
                what = f"pass '{name}' changed output '{before.entry.result_name(output)}': {how}"
                raise PassError(Diagnostic(what, before.entry.results[output].span, notes=tuple(_shown(inputs))))

    def lines(self) -> list[str]:
        """What was checked, and what was not."""
        rows = [f"{counted(self.checked, 'rewrite')} checked by values"]
        return rows + [f"  {count} not: {reason}" for reason, count in self.left_out.most_common()]

    def _check(self, rewrite: Rewrite) -> None:
        if self._is_one(rewrite.before, rewrite.after):
            return
        assert self._module is not None
        found = compare_pair(common_cut(rewrite.before, rewrite.after, self._same), self._module, self._whole)
        if found is not None:
            raise PassError(self._problem(rewrite, *found))

    def _is_one(self, before: Node, after: Node) -> bool:
        """Whether it is the same operation on the same operands."""
        same = self._same
        return before.op is after.op and before.attrs == after.attrs and len(before.inputs) == len(after.inputs) and all(
            same.get(i, i) is same.get(j, j) for i, j in zip(before.inputs, after.inputs, strict=True))

    def _problem(self, rewrite: Rewrite, cut: Cut, how: Discrepancy, filling: Mapping[Node, Any]) -> Diagnostic:
        sides = (("was", rewrite.before), ("now", rewrite.after))
        notes = [f"{word}: {describe(n)}" for word, side in sides for n in _side(side, cut)]
        given = {n.reference or f"#{n.serial}": v for n, v in filling.items()}
        what = f"rewrite {rewrite.number}, '{rewrite.rule}' of pass '{rewrite.pass_name}', changed what is computed: {how}"
        return Diagnostic(what, rewrite.span, hint=f"--rewrite-limit {rewrite.number - 1} leaves it out, and what follows",
                          notes=(*notes, *_shown(given)))


def _computes_otherwise(before: Module, after: Module) -> bool:
    """Whether the entry gives other nodes, or calls functions that do, and not what is the same up to calls and copies."""
    if before.entry.results == after.entry.results and all(
            f.name not in after or f.results == after[f.name].results for f in before.functions):
        return False
    numbering = _ValueNumbering()
    wanted, got = (numbering.results(m, m.entry.name, tuple(range(len(m.entry.params)))) for m in (before, after))
    return wanted is None or wanted != got


class _ValueNumbering:
    """Numbers that are equal only for equal values: of the same operation on the same operands, calls being looked into.

    What an operation of control, or one with effects, gives is known by the node alone: a loop that is copied has other numbers.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._items: dict[int, tuple[int, ...]] = {}  # of tuples, what they consist of
        self._left = NUMBERED
        self._inside: list[str] = []

    def results(self, module: Module, name: str, arguments: tuple[int, ...]) -> tuple[int, ...] | None:
        """The numbers of what a function gives for arguments of these numbers; None where it recurs or is too large."""
        function = module[name]
        self._left -= len(function.nodes)
        if self._left < 0 or name in self._inside:
            return None
        self._inside.append(name)
        number = dict(zip(function.params, arguments, strict=True))
        for node in function.nodes:
            if node not in number:
                number[node] = self._number(module, node, tuple([number[i] for i in node.inputs]))
        self._inside.pop()
        return tuple([number[r] for r in function.results])

    def _number(self, module: Module, node: Node, inputs: tuple[int, ...]) -> int:
        op = node.op
        items = self.results(module, callee_of(node), inputs) if op is CALL else inputs if op is TUPLE else None
        if items is not None:
            found = self._numbers.setdefault((TUPLE, items), self._fresh())
            self._items[found] = items
            return found
        if op is PROJ and inputs[0] in self._items:
            return self._items[inputs[0]][index_of(node)]
        if op is CALL or op is PARTIAL:  # of a function that is not looked into, and may be another one by now
            return self._numbers.setdefault(object(), self._fresh())
        key = (op, node.attrs, node.type, inputs) if opens(node) or op is CONSTANT else (node, inputs)
        return self._numbers.setdefault(key, self._fresh())

    def _fresh(self) -> int:
        """A number that nothing has; those from zero on are the arguments'."""
        return -1 - len(self._numbers)


def _side(root: Node, cut: Cut) -> Iterator[Node]:
    """The nodes of one side of a cut, in order."""
    inner, wanted, stack = set(cut.inner), set[Node](), [root]
    while stack:
        node = stack.pop()
        if node in inner and node not in wanted:
            wanted.add(node)
            stack += (cut.same.get(i, i) for i in node.inputs)
    return iter(sorted(wanted, key=lambda n: n.serial))


def _shown(inputs: Mapping[str, Any]) -> Iterator[str]:
    for name, value in inputs.items():
        shown = ", ".join(np.array2string(a, threshold=16, edgeitems=4, separator=",").replace("\n", "") for a in tensors(value))
        yield f"with {name} = {shown}"
