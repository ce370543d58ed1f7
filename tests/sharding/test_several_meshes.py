"""Plans over several meshes of the same devices: their text, what they are over one mesh, and what a program does under them."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import ParseError, UsageError
from deepx_graph.ir import Module
from deepx_graph.session.plans import planned
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan, plan_diff, read_plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.several_meshes import over_one_mesh
from tests.support.partly_by_hand import MESH, partly_by_hand
from tests.support.seeds import seeds
from tests.support.sharded_programs import inputs, on_devices, results_on_devices
from tests.support.sharded_texts import over_several_meshes, random_text

COUNT = 500
SAMPLED = 20
TYPE = "tensor<8x8xf32>"


def moved(first: str, second: str, given: str, asked: str) -> Module:
    """A program that gives its parameter, which lies over one mesh, over another."""
    def said(name: str, dims: str) -> str:
        return f"{TYPE} {{sdy.sharding = #sdy.sharding<@{name}, {dims}>}}"

    return dx.loads(f"sdy.mesh @one = {first}\nsdy.mesh @two = {second}\nfunc.func @main(%x: {said('one', given)}) "
                    f"-> ({said('two', asked)}) {{ return %x : {TYPE} }}", "stablehlo")


def met(module: Module) -> list[str]:
    """The collectives of the program of one device, of which all devices together find what the program finds."""
    (x,), plan = inputs(module), propagate(needed_plan(module))
    np.testing.assert_array_equal(on_devices(module, plan, [x])[0], x)
    return [n.op.name.removeprefix("spmd_") for n in partition(module, plan).module.entry.nodes if n.op.exchange and n.inputs]


@pytest.mark.parametrize(("first", "second", "given", "asked", "kinds"), [
    # another name, and the other way round: nothing to do
    ('<["a"=4, "b"=2]>', '<["x"=4, "y"=2]>', '[{"a"}, {"b"}]', '[{"x"}, {"y"}]', []),
    ('<["a"=2, "b"=2]>', '<["y"=2, "x"=2], device_ids=[0, 2, 1, 3]>', '[{"a"}, {"b"}]', '[{"x"}, {"y"}]', []),
    # parts of axes, and more of them
    ('<["x"=4, "y"=2]>', '<["x"=2, "t"=4]>', '[{"x"}, {}]', '[{"x"}, {}]', ["all_gather"]),
    ('<["x"=4, "y"=2]>', '<["x"=2, "t"=4]>', '[{"x":(1)2}, {"y"}]', '[{"x"}, {"t":(2)2}]', []),
    ('<["x"=2, "y"=3]>', '<["z"=6]>', '[{"x"}, {}]', '[{"z":(1)2}, {}]', []),
    # devices in another order: each sends its part to another one
    ('<["a"=4]>', '<["a"=4], device_ids=[3, 1, 0, 2]>', '[{"a"}, {}]', '[{"a"}, {}]', ["collective_permute"]),
    # no axis of one is in the other
    ('<["a"=2, "b"=3]>', '<["c"=3, "d"=2]>', '[{"b"}, {}]', '[{"c"}, {}]', ["collective_permute"]),
])
def test_a_value_goes_from_mesh_to_mesh(first: str, second: str, given: str, asked: str, kinds: list[str]) -> None:
    assert met(moved(first, second, given, asked)) == kinds


def test_meshes_of_other_devices_are_refused_where_a_value_lies_over_one() -> None:
    text = f"""sdy.mesh @one = <["a"=4]>
    sdy.mesh @two = <["a"=2]>
    func.func @main(%x: {TYPE} {{sdy.sharding = #sdy.sharding<@one, [{{"a"}}, {{}}]>}}) -> {TYPE} {{
      %y = stablehlo.tanh %x {{sdy.sharding = #sdy.sharding_per_value<[<@two, [{{"a"}}, {{}}]>]>}} : {TYPE}
      return %y : {TYPE}
    }}"""
    module = dx.loads(text, "stablehlo")
    plan = propagate(needed_plan(module))
    with pytest.raises(UsageError, match="of 2 devices, and others over") as e:
        partition(module, plan)
    span = e.value.diagnostics[0].span
    assert span is not None and "stablehlo.tanh" in text[span.start : span.end]


PLAN = """mesh <["a"=4, "b"=2]>
mesh @tiles <["x"=2, "y"=4]>
x: @tiles [{"x"}, {"y":(1)2, ?}]
#1: [{"a"}, {}]
-> 0: @tiles [{}, {"y"}]
"""


def program() -> Module:
    return dx.loads(f"func.func @main(%x: {TYPE}) -> {TYPE} {{ %0 = stablehlo.tanh %x : {TYPE} return %0 : {TYPE} }}", "stablehlo")


def test_they_are_printed_read_and_compared() -> None:
    entry = program().entry
    plan = read_plan(PLAN, entry)
    assert str(plan) == PLAN and plan_diff(plan, read_plan(str(plan), entry)) == []
    other = read_plan(PLAN.replace('@tiles <["x"=2, "y"=4]>', '@tiles <["x"=4, "y"=4]>').replace("#1: ", "#1: @tiles ").replace(
        '{"a"}', '{"x"}'), entry)
    assert plan_diff(plan, other) == ['- mesh @tiles: <["x"=2, "y"=4]>', '+ mesh @tiles: <["x"=4, "y"=4]>',
                                      '- #1: [{"a"}, {}]', '+ #1: @tiles [{"x"}, {}]']


@pytest.mark.parametrize(("text", "message"), [
    (PLAN.replace("x: @tiles", "x: @tile"), "no mesh '@tile'"), (PLAN.replace('@tiles [{"x"}', '@tiles [{"a"}'), "no axis 'a'"),
    (PLAN.replace("#1: ", 'mesh @tiles <["x"=8]>\n#1: '), "another mesh '@tiles'"),
    (PLAN.replace("mesh @tiles", "tiles"), "no value is named"),
])
def test_what_is_wrong_in_them_is_pointed_at(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read_plan(text, program().entry)


def check_alike(plan: Plan) -> None:
    """Over one mesh each device has the part of each value that it has over the mesh of that."""
    one = over_one_mesh(plan)
    assert not one.others
    for node, sharding in plan.values.items():
        before, after = plan.mesh_of(sharding), one.values[node]
        assert [before.parts(axes) for axes in sharding.axes] == [one.mesh.parts(axes) for axes in after.axes]
        atoms = {a for axes in after.axes for a in one.mesh.atoms(axes)}
        assert atoms == set(one.origins.get(node, ())) or node not in plan.origins


def check_equal(got: list[np.ndarray], wanted: tuple[np.ndarray, ...]) -> None:
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(b).max(initial=0))))


@pytest.mark.parametrize("seed", seeds(SAMPLED, COUNT))
def test_random_programs_give_what_they_give_whole(seed: int) -> None:
    rng = random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = over_several_meshes(random_text(rng), rng, ordered=seed % 2 == 0)
        module = dx.optimize(dx.loads(text, "stablehlo"), "inline,clean")
    arrays, plan = inputs(module), propagate(needed_plan(module))
    check_alike(plan)
    assert read_plan(str(plan), module.entry).values == plan.values
    check_equal(on_devices(module, plan, arrays), dx.compile(module, engine="numpy", optimize=False)(*arrays))


@pytest.mark.parametrize("seed", seeds(SAMPLED, COUNT))
def test_a_computation_by_hand_may_be_over_one_of_them(seed: int) -> None:
    """What is around it lies over others."""
    rng = random.Random(seed)
    text = partly_by_hand(rng)
    apart = text.replace("<@mesh", "<@inner").replace("#sdy.sharding<@inner", "#sdy.sharding<@mesh")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = dx.loads(f"sdy.mesh @inner = {MESH}\n" + over_several_meshes(apart, rng, ordered=seed % 2 == 0), "stablehlo")
    arrays, (split, plan) = inputs(module), planned(module)
    whole = dx.compile(dx.loads(text, "stablehlo"), engine="numpy", optimize=False)(*arrays)
    check_equal(results_on_devices(partition(split, plan), arrays), whole)
