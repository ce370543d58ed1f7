"""Where the axes of what devices exchange came from, beside what jaxlib's propagation records (`sdy.sharding_origins`): of the 12
standard programs and of 100 random ones.

jaxlib is given the programs as they are read: without operations whose results nothing uses, which it counts among the users of a
value, and without calls, as it looks at called functions apart. What differs is listed by cause.
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
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from tests.support import partitioner_oracle, shardy_oracle
from tests.support.jax_oracle import VARIABLE
from tests.support.sharded_texts import random_text

pytestmark = [pytest.mark.conformance,
              pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with JAX")]  # fmt: skip

COUNT = 100
_ORIGIN = re.compile(r'"?([\w:()]+)"? = "([^"]*)"')

TWO_RESULTS = "the axis splits the value as two results ask, and jaxlib records the one that asks through another dimension"
A_RESULT_TOO = "the parameter is a result as it stands, which is to lie in another way: jaxlib counts where that is from, too"
DIFFERENT = {
    ("random 93", "reshape 2", "a"): TWO_RESULTS, ("random 72", "param arg3", "a"): A_RESULT_TOO,
}  # fmt: skip
"""What is from elsewhere than jaxlib says, by program, value and axis."""

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


def recorded(module: Module, node: Node) -> Origins:
    """What jaxlib has written beside a value; a parameter's own sharding by the name that others have for it."""
    said = dict(node.origin.notes).get("sdy.sharding_origins", "")
    own = f"input: {module.entry.params.index(node)}" if node in module.entry.params else ""
    return together((axis.partition(":")[0], own if source == "self" else source) for axis, source in _ORIGIN.findall(said))


def given(text: str, module: Module) -> Plan:
    """What the program states of its parameters and results, for the same program after jaxlib's passes."""
    stated = needed_plan(loaded(text))
    place = {p: k for k, p in enumerate(stated.function.params)}
    values: Mapping[Node, object] = {module.entry.params[place[n]]: s for n, s in stated.values.items() if n in place}
    return propagate(Plan(stated.mesh, module.entry, values, stated.results))  # type: ignore[arg-type]


def compared(name: str, text: str, after: str) -> Iterator[tuple[tuple[str, str, str], bool]]:
    """For each axis of each value that a collective moves whether both say the same of where it is from."""
    module = loaded(after)
    plan = given(text, module)
    for meeting in partition(module, plan).meetings:
        node = meeting.value
        ours = together((a.name, o.source) for a, o in plan.origins.get(node, {}).items())
        theirs = recorded(module, node)
        for axis in sorted({*ours, *theirs}):
            if ours.get(axis) != theirs.get(axis):
                print(f"{name}: {node.op.name} {node.name}, axis {axis}: {ours.get(axis)}, jaxlib {theirs.get(axis)}")
            yield (name, f"{node.op.name} {node.name}", axis), ours.get(axis) == theirs.get(axis)


def test_origins_of_what_is_exchanged_are_those_that_jaxlib_records() -> None:
    rng = random.Random(2027)
    texts = {name: text for name, text, _ in partitioner_oracle.ask(dict.fromkeys(partitioner_oracle.STANDARD))}
    texts |= {f"random {k}": random_text(rng) for k in range(COUNT)}
    texts = {name: dx.dumps(loaded(text), "stablehlo") for name, text in texts.items()}
    answers = shardy_oracle.ask({name: (shardy_oracle.PROPAGATION_WITH_ORIGINS, text) for name, text in texts.items()})
    known = {name: after for name, after in answers.items() if after is not None}
    found = [same for name, after in known.items() for same in compared(name, texts[name], after)]
    print(f"{sum(same for _, same in found)} of {len(found)} axes are from where jaxlib says, in {len(known)} programs")
    assert len(known) == len(texts)
    assert {what for what, same in found if not same} == set(DIFFERENT)
