"""Which rewrites made a node: the chain, beside what builders credit to nodes on their own."""

from __future__ import annotations

import random
from itertools import groupby

import pytest

import deepx_graph as dx
from deepx_graph.session.programs import Watch, optimise
from deepx_graph.session.report.provenance import Makers
from deepx_graph.session.session import Session
from deepx_graph.session.show.inspect import inspect
from tests.support.generate import random_module

PROGRAM = """\
HloModule m
ENTRY main {
  x = f32[4,6] parameter(0)
  one = f32[] constant(1)
  ones = f32[4,6] broadcast(one), dimensions={}
  v = f32[4,6] multiply(x, ones)
  n = f32[4,6] negate(v)
  w = f32[4,6] add(v, n)
  a = f32[4,6] exponential(w)
  b = f32[4,6] exponential(w)
  s = f32[4,6] add(a, b)
  ROOT r = (f32[4,6], f32[4,6]) tuple(s, w)
}
"""


def test_the_chain_of_a_node_has_both_sides_and_the_users_line() -> None:
    found = dx.why(dx.loads(PROGRAM), made="w")
    assert [(s.rule, s.pass_name, s.before.op.name, s.after.op.name) for s in found.steps] == [
        ("add-negative", "simplify", "add", "subtract")]  # fmt: skip
    assert [s.rule for s in found.operands] == ["scalar-operand", "declared-law"], "v is x by then"
    text = "\n".join(found.lines())
    assert "w = f32[4,6] add(v, n)" in text and "x + (-y) = x - y" in text and "w = subtract(x, x)" in text


def test_a_node_that_stands_for_another_says_so() -> None:
    found = dx.why(dx.loads(PROGRAM), made="a")
    assert not found.steps and [s.before.name for s in found.stands_for] == ["b"]
    assert found.to_json()["stands_for"][0]["rule"] == "merge"


def test_a_node_that_went_is_told_of_as_it_was_at_last() -> None:
    assert dx.why(dx.loads(PROGRAM), made="b", pipeline="cse,simplify,dce").node.name == "b"
    with pytest.raises(dx.UsageError, match="no node 'zz'"):
        dx.why(dx.loads(PROGRAM), made="zz")


@pytest.mark.parametrize("seed", range(40))
def test_chains_are_the_rules_that_builders_credit(seed: int) -> None:
    module = random_module(random.Random(seed))
    done = optimise(module, "simplify", Watch(record=True))
    assert done.record is not None
    makers = Makers(module, done.record)
    for f in done.module.functions:
        for node in f.nodes:
            steps = makers.of(node).steps
            assert tuple(rule for rule, _ in groupby(s.rule for s in steps)) == node.origin.rewrites, node
            assert [s.number for s in steps] == sorted({s.number for s in steps})


def test_the_panel_of_a_node_has_its_chain() -> None:
    session = Session(dx.loads(PROGRAM))
    session.push(session.optimise("clean"))
    function, node = session.find("w")
    sections = {s.title: s for s in inspect(session, function, node)}
    assert any("add-negative" in e.text for e in sections["made by"].entries)
