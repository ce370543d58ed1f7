"""Propagation beside Shardy's: the functions of its own tests, and random programs, by our rules and by the passes of jaxlib."""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Function, Node
from deepx_graph.session.programs import optimise
from deepx_graph.sharding.annotations import stated_plan
from deepx_graph.sharding.by_hand.opened import opened
from deepx_graph.sharding.mesh import TensorSharding
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.rules import makes_constants
from deepx_graph.sharding.values import CARRIERS, DataFlow
from deepx_graph.types import TensorType
from tests.support.jax_oracle import VARIABLE
from tests.support.paths import SHARED
from tests.support.sharded_texts import over_several_meshes, random_text, stated_more
from tests.support.sharding_border_texts import BORDER_TEXTS
from tests.support.sharding_mixed_texts import MIXED_TEXTS
from tests.support.sharding_pairs import grouped, joined, pairs
from tests.support.sharding_program_texts import PROGRAM_TEXTS
from tests.support.sharding_statement_texts import STATEMENT_TEXTS
from tests.support.sharding_texts import SHARDED_TEXTS
from tests.support.shardy_oracle import PIPELINE, PROPAGATION, PROPAGATION_ALONE, ask

SUITE = SHARED / "suites" / "shardy" / "transforms"
TEXTS = sorted([*SUITE.glob("propagation/**/*.mlir"), *SUITE.glob("export/test/insert_explicit_reshards/*.mlir"),
                SUITE / "export/test/insert_explicit_reshards.mlir"])

DIFFERENT_TEXTS = {
    "jaxlib propagates nothing through `if`, of which it makes a `case` where JAX writes it": {
        "flow: if from the result", "flow: if of a product"},
}
"""The texts written in the style of Shardy's that come out in another way, by cause."""

NOT_WRITTEN = {"group: unused operation", "constraint: dead constraint beside a live one", "named: with closed shardings"}
"""Those that say something which StableHLO's printer does not write: of values that nothing uses, and that what goes into a
computation with a name does not say how it is made itself."""

LEFT_OUT = (*CARRIERS, ops.identity, ops.slice_, ops.concatenate)
"""What is an operation of its own on one side alone: edges of data flow, constraints, the ends of computations by hand."""


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """Each function of a file that calls none, with the meshes of its part."""
    for part in re.split(r"^// -----.*$", path.read_text(encoding="utf-8"), flags=re.M):
        meshes = "\n".join(re.findall(r"^sdy\.mesh.*$", part, flags=re.M))
        for text in re.split(r"^(?=func\.func)", part, flags=re.M)[1:]:
            if "call @" not in text:
                yield re.findall(r"@([\w.$\-]+)", text)[0], f"{meshes}\n{text}"


def callers(path: Path) -> Iterator[tuple[str, str, str]]:
    """Each part of a file with a function that calls others, and that function's name."""
    for number, part in enumerate(re.split(r"^// -----.*$", path.read_text(encoding="utf-8"), flags=re.M)):
        for found in re.finditer(r"^func\.func (?:public |private )?@([\w.$\-]+)\((?:.*\n)*?}", part, flags=re.M):
            if "call @" in found[0]:
                yield f"{path.stem}:{number}", found[1], part


def pipeline_of(text: str) -> str:
    return PROPAGATION_ALONE if "sdy.data_flow_edge" in text else PROPAGATION


def loaded(text: str, name: str = "") -> tuple[Function, Plan | None]:
    """A function, the first one unless it is named, without calls, and what it states."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = dx.loads(text, "stablehlo")
    module = opened(optimise(module.with_entry(name or module.entry_name), "inline").module)
    return module.entry, stated_plan(module)


def compared(function: Function) -> list[Node]:
    """The nodes that both sides have: no constants, which Shardy copies for each use, and nothing that it inserts."""
    constant: set[Node] = set()
    for node in function.nodes:
        if makes_constants(node) or (node.inputs and all(i in constant for i in node.inputs)):
            constant.add(node)
    return [n for n in function.nodes if isinstance(n.type, TensorType) and n.op not in LEFT_OUT and n not in constant]


def differences(ours: Plan, theirs: Plan | None, after: Function) -> list[str] | None:
    """The values that lie in another way; None where the two programs are not the same."""
    mine, other = compared(ours.function), compared(after)
    if [n.op for n in mine] != [n.op for n in other]:
        return None
    found = []
    for a, b in zip(mine, other, strict=True):
        here, there = _lies(ours, ours.values.get(a)), _lies(theirs, theirs.values.get(b) if theirs else None)
        if here != there:
            found.append(f"{a.op.name} {a.name}: {here} and not {there}")
    return found


def _lies(plan: Plan | None, sharding: TensorSharding | None) -> list[tuple[int, ...]] | None:
    """Which part of each dimension each device has of a value; None of one that is not split."""
    if plan is None or sharding is None or not sharding.is_split:
        return None
    mesh = plan.mesh_of(sharding)
    return [mesh.parts(axes) for axes in sharding.axes]


def verdict(before: str, after: str | None, name: str = "") -> str:
    """What becomes of one text: `equal`, `different: ...`, or why it is not compared."""
    if after is None:
        return "refused by jaxlib"
    try:
        _, plan = loaded(before, name)
        if plan is None:
            return "nothing stated"
        found = differences(propagate(plan), *reversed(loaded(after, name)))
    except DeepxGraphError as e:
        return f"refused: {e.diagnostics[0].message}"
    return "another structure" if found is None else f"different: {found}" if found else "equal"


def differing(texts: Mapping[str, str]) -> dict[str, str]:
    """Those that do not come out as by jaxlib's pass, with what is different."""
    answers = ask({key: (pipeline_of(text), text) for key, text in texts.items()})
    found = {key: verdict(text, answers[key]) for key, text in texts.items()}
    return {key: said for key, said in found.items() if said != "equal"}


@pytest.mark.parametrize(("lines", "value", "wanted"), [
    # a group has its members lie alike, one that nothing else uses among them
    ("sdy.sharding_group %x group_id=1 : T\nsdy.sharding_group %y group_id=1 : T\n%r = stablehlo.tanh %x : T", "r",
     '[{"a", ?}, {"b", ?}]'),
    # nothing is propagated over what moves a value
    ('%s = stablehlo.tanh %x : T\n%u = sdy.reshard %s <@mesh, [{}, {"b"}]> : T\n%r = stablehlo.negate %u : T',
     "s", '[{"a", ?}, {?}]'),
])
def test_what_a_text_says_beside_values_counts(lines: str, value: str, wanted: str) -> None:
    params = ('%x: T {sdy.sharding = #sdy.sharding<@mesh, [{"a", ?}, {?}]>}, '
              '%y: T {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"b", ?}]>}')
    text = f'sdy.mesh @mesh = <["a"=2, "b"=2]>\nfunc.func @main({params}) -> T {{\n{lines}\nreturn %r : T }}'
    function, plan = loaded(text.replace("T", "tensor<8x8xf32>"))
    assert plan is not None
    found = propagate(plan)
    assert {found.values[n].text(found.mesh) for n in function.nodes if n.name == value} == {wanted}


@pytest.mark.parametrize("name", [*SHARDED_TEXTS, *PROGRAM_TEXTS, *(n for n in STATEMENT_TEXTS if n not in NOT_WRITTEN)])
def test_what_is_written_says_as_much_as_what_was_read(name: str) -> None:
    text = {**SHARDED_TEXTS, **PROGRAM_TEXTS, **STATEMENT_TEXTS}[name]
    (_, before), (_, after) = loaded(text), loaded(dx.dumps(dx.loads(text, "stablehlo"), "stablehlo"))
    assert before is not None and after is not None
    assert differences(propagate(before), propagate(after), after.function) == []


@pytest.mark.parametrize("name", ["group: unused parameter", "group: three members", "group: in a loop"])
def test_where_nothing_may_lie_otherwise_members_of_a_group_are_one_class(name: str) -> None:
    """As in automatic plans; in propagation a member may be stated to lie in a way of its own."""
    function, _ = loaded(STATEMENT_TEXTS[name])
    apart, together = DataFlow(function, with_sources=False), DataFlow(function)
    (members,) = together.groups.values()
    assert len({together.of(v) for m in members for v in (m, *m.inputs)}) == 1
    assert len({apart.of(v) for m in members for v in (m, *m.inputs)}) > 1


def test_what_a_called_function_states_counts_where_it_is_called() -> None:
    """Of its parameter, of a value in it, of what it gives, and of a value that nothing uses."""
    text = """sdy.mesh @mesh = <["a"=2, "b"=2, "c"=2, "d"=2]>
    func.func @main(%x: T) -> T {
      %r = func.call @f(%x) : (T) -> T
      return %r : T
    }
    func.func private @f(%p: T {sdy.sharding = #sdy.sharding<@mesh, [{"a", ?}, {?}]>}) ->
        (T {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"b", ?}]>}) {
      %q = stablehlo.tanh %p {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a", "c", ?}, {?}]>]>} : T
      %u = stablehlo.negate %q : T
      %v = sdy.sharding_constraint %u <@mesh, [{?}, {"b", "d", ?}]> : T
      return %q : T
    }"""
    function, plan = loaded(text.replace("T", "tensor<8x8xf32>"))
    assert plan is not None
    assert propagate(plan).values[function.params[0]].text(plan.mesh) == '[{"a", "c", ?}, {"b", "d", ?}]'


def test_what_no_plan_can_say_is_pointed_at() -> None:
    text = """sdy.mesh @mesh = <["a"=6]>
    func.func @main(%x: T {sdy.sharding = #sdy.sharding<@mesh, [{"a":(1)2}, {}]>}) -> T {
      %y = stablehlo.tanh %x {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a":(3)2}, {}]>]>} : T
      return %y : T
    }""".replace("T", "tensor<12x8xf32>")
    with pytest.raises(dx.UsageError, match="2 is no factor of 3") as e:
        loaded(text)
    span = e.value.diagnostics[0].span
    assert span is not None and "stablehlo.tanh" in text[span.start : span.end]


def test_a_program_that_is_split_by_hand_alone_states_its_mesh() -> None:
    function, plan = loaded(STATEMENT_TEXTS["by hand: all axes by hand"])
    assert plan is not None
    assert propagate(plan).values[function.params[0]].text(plan.mesh) == '[{"a"}, {"b"}]'


needs_jaxlib = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with jaxlib")


@needs_jaxlib
@pytest.mark.conformance
@pytest.mark.skipif(not SUITE.exists(), reason="Shardy's tests are not beside the checkout")
def test_shardys_tests_come_out_as_there() -> None:
    texts = {f"{path.stem}:{k}:{name}": text for path in TEXTS for k, (name, text) in enumerate(functions(path))}
    answers = ask({key: (pipeline_of(text), text) for key, text in texts.items()})
    found = {key: verdict(text, answers[key]) for key, text in texts.items()}
    for key, said in found.items():
        print(said.partition(":")[0].ljust(20), key, said.partition(":")[2])
    assert {key: said for key, said in found.items() if said.startswith("different")} == {}
    assert list(found.values()).count("equal") >= 399


@needs_jaxlib
@pytest.mark.conformance
@pytest.mark.skipif(not SUITE.exists(), reason="Shardy's tests are not beside the checkout")
def test_shardys_tests_with_calls_come_out_as_there() -> None:
    """All but one: what a callee states closed there comes to its callers before what these state."""
    parts = {f"{key}:{name}": (name, text) for path in TEXTS for key, name, text in callers(path)}
    answers = ask({key: (PIPELINE, text) for key, (_, text) in parts.items()})
    found = {key: verdict(text, answers[key], name) for key, (name, text) in parts.items()}
    assert [key for key, said in found.items() if said.startswith("different")] == [
        "propagation_pipeline_dedup_functions_fully_true:6:main"]
    assert list(found.values()).count("equal") >= 39


@needs_jaxlib
@pytest.mark.conformance
def test_of_two_operations_that_want_an_axis_the_same_one_has_it() -> None:
    assert differing(dict(pairs())) == {}


@needs_jaxlib
@pytest.mark.conformance
def test_of_two_operands_that_want_an_axis_the_same_one_has_it() -> None:
    assert differing(dict(joined())) == {}


@needs_jaxlib
@pytest.mark.conformance
def test_further_texts_in_the_style_of_shardys_come_out_as_there() -> None:
    texts = {**SHARDED_TEXTS, **PROGRAM_TEXTS, **STATEMENT_TEXTS, **BORDER_TEXTS, **MIXED_TEXTS}
    assert differing(texts).keys() == set().union(*DIFFERENT_TEXTS.values())


@needs_jaxlib
@pytest.mark.conformance
def test_members_of_groups_lie_as_there() -> None:
    assert differing(dict(grouped())) == {}


@needs_jaxlib
@pytest.mark.conformance
def test_random_programs_come_out_as_by_jaxlib() -> None:
    """As they are read: jaxlib counts operations whose results nothing uses among the users of a value."""
    rng = random.Random(4711)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = {str(k): dx.dumps(dx.loads(random_text(rng), "stablehlo"), "stablehlo") for k in range(500)}
    assert differing(texts) == {}


@needs_jaxlib
@pytest.mark.conformance
def test_random_programs_with_more_said_of_them_come_out_as_by_jaxlib() -> None:
    rng = random.Random(1147)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = {str(k): dx.dumps(dx.loads(stated_more(random_text(rng), rng), "stablehlo"), "stablehlo") for k in range(500)}
    assert differing(texts) == {}


@needs_jaxlib
@pytest.mark.conformance
def test_random_programs_over_several_meshes_come_out_as_by_jaxlib() -> None:
    """Half of them with open dimensions, half with devices in orders of their own."""
    rng = random.Random(1471)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = (random_text(rng) if k % 2 else stated_more(random_text(rng), rng) for k in range(500))
        texts = {str(k): dx.dumps(dx.loads(over_several_meshes(text, rng, k % 4 < 2), "stablehlo"), "stablehlo")
                 for k, text in enumerate(said) if '"a":(' not in text}
    assert differing(texts) == {}
