"""Where the axes of values came from, beside what jaxlib's propagation records (`sdy.sharding_origins`): of the 12 standard
programs and of random ones.

jaxlib is given the programs as they are read: without operations whose results nothing uses, which it counts among the users of a
value, and without calls, as it looks at called functions apart. It keeps one record for a value and for the result that it is, of
which only the axes that split the value count here; and the first time that an operation had an axis for a value, also where a
reshape could not write it there. Then the steps that it records beside (`sdy.propagation_edges`) say which operation brought it.
"""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping

import pytest

import deepx_graph as dx
from deepx_graph.ir import Module, Node
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.plan import AxisOrigin, Plan
from deepx_graph.sharding.propagate import propagate
from tests.support import partitioner_oracle, shardy_oracle
from tests.support.jax_oracle import VARIABLE
from tests.support.sharded_texts import random_text

pytestmark = [pytest.mark.conformance,
              pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with JAX")]  # fmt: skip

COUNT = 250
_ORIGIN = re.compile(r'"?([\w:()]+)"? = "([^"]*)"')
_STEP = re.compile(r"step-(\d+) = \[((?:\{[^{}]*\}(?:, )?)+)\]")
_EDGE = re.compile(r'"(\w+)"(?::\(\d+\)\d+)? = [\w\-]+ -> \[([^\]]*)\]')

Origins = dict[str, frozenset[str]]
"""The sources of each axis, its parts taken together."""


def together(pairs: Iterable[tuple[str, str]]) -> Origins:
    found: Origins = {}
    for axis, source in pairs:
        found[axis] = found.get(axis, frozenset()) | {source}
    return found


def loaded(text: str) -> Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = dx.loads(text, "stablehlo")
        return module if len(module.functions) == 1 else dx.optimize(module, "inline")


def recorded(module: Module, theirs: Plan, node: Node) -> Origins:
    """What jaxlib has written beside a value of the axes that split it; a parameter's own sharding by the name that others have for
    it."""
    said = dict(node.origin.notes).get("sdy.sharding_origins", "")
    own = f"input: {module.entry.params.index(node)}" if node in module.entry.params else ""
    split = {a.name for axes in theirs.values[node].axes for a in axes} if node in theirs.values else set()
    found = together((axis.partition(":")[0], own if source == "self" else source) for axis, source in _ORIGIN.findall(said))
    return {axis: sources for axis, sources in found.items() if axis in split}


def arrivals(module: Module, node: Node, axis: str) -> list[Node]:
    """The operations that had an axis for a value, in the order in which jaxlib records it."""
    found = []
    for by in (node, *module.entry.users[node]):
        here = {"result-0"} if by is node else {f"operand-{k}" for k, i in enumerate(by.inputs) if i is node}
        for step, edges in _STEP.findall(dict(by.origin.notes).get("sdy.propagation_edges", "")):
            if any(name == axis and here & set(targets.split(", ")) for name, targets in _EDGE.findall(edges)):
                found.append((int(step), by))
    return [by for _, by in sorted(found, key=lambda s: s[0])]


def given(text: str, module: Module) -> Plan:
    """What the program states of its parameters and results, for the same program after jaxlib's passes."""
    stated = needed_plan(loaded(text))
    place = {p: k for k, p in enumerate(stated.function.params)}
    values: Mapping[Node, object] = {module.entry.params[place[n]]: s for n, s in stated.values.items() if n in place}
    return propagate(Plan(stated.mesh, module.entry, values, stated.results))  # type: ignore[arg-type]


def compared(name: str, text: str, after: str) -> Iterator[tuple[str, bool]]:
    """For each axis of each value whether both say the same of where it is from."""
    module = loaded(after)
    plan, theirs = given(text, module), needed_plan(module)
    for node, origins in plan.origins.items():
        ours, wanted = together((a.name, o.source) for a, o in origins.items()), recorded(module, theirs, node)
        for axis in sorted({*ours, *wanted}):
            mine = [o for a, o in origins.items() if a.name == axis]
            same = ours.get(axis) == wanted.get(axis) or is_later(module, node, axis, mine)
            yield f"{name}: {node.op.name} {node.name}, axis {axis}: {ours.get(axis)}, jaxlib {wanted.get(axis)}", same


def is_later(module: Module, node: Node, axis: str, origins: list[AxisOrigin]) -> bool:
    """Whether the axis came to the value several times by jaxlib's account, and ours is from the last one."""
    by = arrivals(module, node, axis)
    return len(by) > 1 and any(o.by is by[-1] for o in origins)


def test_origins_of_all_values_are_those_that_jaxlib_records() -> None:
    rng = random.Random(2027)
    texts = {name: text for name, text, _ in partitioner_oracle.ask(dict.fromkeys(partitioner_oracle.STANDARD))}
    texts |= {f"random {k}": random_text(rng) for k in range(COUNT)}
    texts = {name: dx.dumps(loaded(text), "stablehlo") for name, text in texts.items()}
    answers = shardy_oracle.ask({name: (shardy_oracle.PROPAGATION_WITH_ORIGINS, text) for name, text in texts.items()})
    known = {name: after for name, after in answers.items() if after is not None}
    found = [one for name, after in known.items() for one in compared(name, texts[name], after)]
    print(f"{sum(same for _, same in found)} of {len(found)} axes are from where jaxlib says, in {len(known)} programs")
    assert len(known) == len(texts)
    assert [said for said, same in found if not same] == []
