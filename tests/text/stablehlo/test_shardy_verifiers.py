"""What Shardy's verifiers refuse is refused at the line that states it: a table by the constraints of its dialect's document."""

from __future__ import annotations

import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from tests.support.paths import SHARED

SUITE = SHARED / "suites" / "shardy" / "ir" / "test"

MESH = 'sdy.mesh @m = <["a"=2, "b"=4]>\n'


def constraint(sharding: str) -> str:
    return f"""{MESH}func.func @f(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {{
  %0 = sdy.sharding_constraint %x {sharding} : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}}"""


def argument(sharding: str) -> str:
    return f"""{MESH}func.func @f(
  %x: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding{sharding}}}) -> tensor<8x16xf32> {{
  return %x : tensor<8x16xf32>
}}"""


def operation(sharding: str) -> str:
    return f"""{MESH}func.func @f(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {{
  %0 = stablehlo.negate %x {{sdy.sharding = #sdy.sharding_per_value<[{sharding}]>}} : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}}"""


def collective(axes: str) -> str:
    return f"""{MESH}func.func @f(%x: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"a"}}, {{}}]>}}) -> tensor<8x16xf32> {{
  %0 = sdy.all_gather {axes} %x out_sharding=<@m, [{{}}, {{}}]> : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}}"""


def manual(before: str = '<@m, [{"a"}, {}]>', after: str = '<@m, [{"a"}, {}]>', axes: str = '"a"', given: str = "tensor<4x16xf32>",
           result: str = "tensor<8x16xf32>") -> str:
    return f"""{MESH}func.func @f(%x: tensor<8x16xf32>) -> {result} {{
  %0 = sdy.manual_computation(%x) in_shardings=[{before}] out_shardings=[{after}] manual_axes={{{axes}}} (%v: {given}) {{
    %r = stablehlo.negate %v : {given}
    sdy.return %r : {given}
  }} : (tensor<8x16xf32>) -> {result}
  return %0 : {result}
}}"""


SHARDINGS = {
    '<@m, [{"a"}]>': "1 dimension",
    '<@m, [{"a"}, {}, {}]>': "3 dimensions",
    '<@m, [{"a"}, {"a"}]>': "overlap",
    '<@m, [{"a", "a"}, {}]>': "overlap",
    '<@m, [{"a"}, {}], replicated={"a"}>': "overlap",
    '<@m, [{"b"}, {"b":(1)2}]>': "overlap",
    '<@other, [{"a"}, {}]>': "no mesh '@other'",
    '<@m, [{"c"}, {}]>': "no axis 'c'",
    '<@m, [{"b":(1)3}, {}]>': "no part of an axis",
    '<@m, [{"b":(2)4}, {}]>': "no part of an axis",
    '<@m, [{"b":(1)1}, {}]>': "no part of an axis",
    '<@m, [{"a"}p01, {}]>': "expected ','",
    '<@m, [{"a"}, {}], >': "expected a name",
    '<@m, [{"a"}, {}], unknown={"b"}>': "expected 'replicated' or 'unreduced'",
}
"""What is wrong with shardings of a matrix, wherever they stand."""

MANUAL = {
    manual(before='<@m, [{"a"}]>'): "1 dimension",
    manual(after='<@m, [{"a"}, {}, {}]>'): "3 dimensions",
    manual(before='<@m, [{"a"}, {}]>, <@m, [{}, {}]>'): "2 shardings for 1 value",
    manual(after=""): "0 shardings for 1 value",
    manual(before='<@m, [{"c"}, {}]>'): "no axis 'c'",
    manual(axes='"c"'): "no axis 'c'",
    manual(before='<@m, [{"b", "a"}, {}]>'): "manual axes stand before others",
    manual(given="tensor<8x16xf32>"): "a device has f32[4,16] of operand 0",
    manual(after='<@m, [{}, {"a"}]>'): "a device has f32[8,8] of result 0",
    manual(result="tensor<7x16xf32>"): "not split evenly",
}
"""Computations by hand whose outside and inside do not go together."""



def move(operation: str, before: str, after: str) -> str:
    return f"""sdy.mesh @m = <["a"=2, "b"=4, "c"=2]>
func.func @f(%x: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@m, {before}>}}) -> tensor<8x16xf32> {{
  %0 = sdy.{operation.replace("%x", f"%x out_sharding=<@m, {after}>")} : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}}"""


MOVES = [
    ('all_gather [{"b"}, {}] %x', '[{"a"}, {}]', "[{}, {}]", "can't apply gathering axis"),
    ('all_gather [{"a"}, {}] %x', '[{"a"}, {}]', '[{"a"}, {}]', "result sharding doesn't match"),
    ('all_gather [{}, {"b":(1)2, "b":(2)2}] %x', '[{}, {"b"}]', "[{}, {}]", "can be merged"),
    ('all_slice [{"a"}, {}] %x', "[{}, {}]", '[{}, {"a"}]', "result sharding doesn't match"),
    ('all_to_all [{"a"}: 0->2] %x', '[{"a"}, {}]', '[{}, {"a"}]', "out of range"),
    ('all_to_all [{"a"}: 0->0] %x', '[{"a"}, {}]', '[{"a"}, {}]', "overlapping source/target"),
    ('all_to_all [{"b"}: 0->1] %x', '[{"a"}, {}]', '[{}, {"b"}]', "can't apply all-to-all axis"),
    ("all_to_all [] %x", '[{"a"}, {}]', '[{"a"}, {}]', "parameter list is empty"),
    ("collective_permute %x", '[{"a"}, {}]', '[{"b"}, {}]', "sharded size"),
    ('all_reduce {"a"} %x', '[{"a"}, {}]', '[{"a"}, {}]', "overlaps with operand"),
    ('all_reduce {"a"} %x', '[{"b"}, {}]', '[{"c"}, {}]', "not equivalent"),
    ('all_reduce {"c", "a"} %x', "[{}, {}]", "[{}, {}]", "not ordered"),
    ('reduce_scatter [{"a"}, {}] %x', '[{}, {}], unreduced={"a"}', "[{}, {}]", "result sharding doesn't match"),
    ('replicated_to_unreduced {} %x', "[{}, {}]", "[{}, {}]", "must not be empty"),
    ('sharded_to_unreduced [{"a"}, {}] %x', '[{"a"}, {}]', "[{}, {}]", "out_unreduced_axes"),
]  # fmt: skip
"""Collectives that do not go from how their operand lies to how their result does."""

MOVED = [
    ('all_gather [{"a"}, {}] %x', '[{"b", "a"}, {}]', '[{"b"}, {}]'),
    ('all_slice [{"a"}, {}] %x', '[{"b"}, {}]', '[{"b", "a"}, {}]'),
    ('all_to_all [{"a"}: 0->1] %x', '[{"b", "a"}, {}]', '[{"b"}, {"a"}]'), ("collective_permute %x", '[{"a"}, {}]', '[{"c"}, {}]'),
    ('all_reduce {"a"} %x', '[{"b"}, {}], unreduced={"a"}', '[{"b"}, {}]'),
    ('reduce_scatter [{}, {"a"}] %x', '[{"b"}, {}], unreduced={"a"}', '[{"b"}, {"a"}]'),
    ('sharded_to_unreduced [{"a"}, {}] %x', '[{"a"}, {}]', '[{}, {}], unreduced={"a"}'),
]  # fmt: skip



def rule(said: str, type: str = "tensor<8x16xf32>", operation: str = "add") -> str:
    return f"""func.func @f(%x: {type}) -> {type} {{
  %0 = stablehlo.{operation} %x, %x {{sdy.sharding_rule = #sdy.op_sharding_rule<{said}>}} : {type}
  return %0 : {type}
}}"""


def test_operands_of_several_types_have_rules() -> None:
    """A choice by one number, of which the text says two types for three operands."""
    dx.loads("""func.func @f(%p: tensor<i1>, %x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = stablehlo.select %p, %x, %x {sdy.sharding_rule = #sdy.op_sharding_rule<([], [i, j], [i, j])->([i, j]) {i=8, j=16}>} :
    tensor<i1>, tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}""")


RULES = {
    rule("([i, j], [i, j])->([i, j]"): "of type OpShardingRuleAttr",
    rule("([i, j], [i, j])->([i, j]) {i=8, j}"): "the sizes of factors",
    rule("([i, j], [i, j])->([i, j]) {j=8, i=16}"): "ordered like an iota",
    rule("([i, *], [i, j])->([i, j]) {i=8, j=16}"): "the factors '*'",
    rule("([i, j], i, j)->([i, j]) {i=8, j=16}"): "the tensors",
    rule("([i, j], [i, j])->([i, j]) {i=8, j=16} reduction={j}"): "cannot be in result mappings",
    rule("([i, j], [i, j])->([i, j]) {i=8, j=16} splits={j}"): "'splits={j}' in a sharding rule",
    rule("([i, j], [i, j])->([i, j]) {i=8, j=16} permutation={z_3}"): "index must be less than 2, got: 20",
    rule("([i, j], [i, j])->([i, j]) {i=8, j=16, k=2} permutation={k}"): "k=2 that isn't used",
    rule("([i, j], [i, j])->([i, ji]) {i=8, j=16}"): "cannot reuse factors",
    rule("([i, j], [i, j])->([i, jk]) {i=8, j=16, k=1}"): "can't have a factor of size 1",
    rule("([i], [i])->([i]) {i=8}"): "mapping rank must match: 1 != 2",
    rule("([i, j])->([i, j]) {i=8, j=16}"): "number of operands and mappings must match: 2 != 1",
    rule("([i, j], [i, j])->([i, j]) {i=8, j=16}", "tensor<?x16xf32>"): "a ranked tensor with a static shape",
}
"""Rules that contradict themselves, or the types of their operation."""


def kept(before: str, after: str) -> str:
    """A constraint on what is unreduced before, and stays so or is from here on."""
    lies = f"{{sdy.sharding = #sdy.sharding<@m, [{{}}, {{}}], unreduced={before}>}}"
    return constraint(f"<@m, [{{}}, {{}}], unreduced={after}>").replace("<8x16xf32>)", f"<8x16xf32> {lies})")


def edge(before: str = "", after: str = "", x: str = "%x", kind: str = "func_data_flow_edge") -> str:
    return f"""func.func @f(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {{
  {before}
  %0 = sdy.{kind} {x} : tensor<8x16xf32>
  {after}
  return %0 : tensor<8x16xf32>
}}
func.func @g(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {{
  return %x : tensor<8x16xf32>
}}"""


NEGATED, CALLED = "%a = stablehlo.negate %x : tensor<8x16xf32>", "%a = call @g(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>"
TWICE = """%z = stablehlo.constant dense<true> : tensor<i1>
  %b = "stablehlo.if"(%z) ({ stablehlo.return %x : tensor<8x16xf32> }, { stablehlo.return %x : tensor<8x16xf32> })
    : (tensor<i1>) -> tensor<8x16xf32>"""

EDGES = {
    edge(after=NEGATED): "to have a single user", edge(after=NEGATED, kind="data_flow_edge"): "to have a single user",
    edge(after=TWICE): "to have a single user", edge(NEGATED, x="%a"): "to be a result of call op",
    edge().replace("8x16", "?x16"): "a static-shaped result",
}  # fmt: skip
"""Edges at values that are not theirs."""

BOUND = [manual().replace("negate %v", f"negate %v {said}") for said in (
    '{sdy.sharding = #sdy.sharding_per_value<[<@m, [{"a"}, {}]>]>}',
    '{sdy.sharding = #sdy.sharding_per_value<[<@m, [{}, {}], replicated={"a"}>]>}')]  # fmt: skip
"""Shardings along an axis of the computation by hand in which they stand."""

CASES = [
    *RULES.items(), *EDGES.items(), *((text, "already bound by a parent") for text in BOUND),
    (kept('max{"a"}', '{"a"}'), "cannot change the reduction operator"), (kept('{"a"}', 'min{"b"}'), "cannot introduce 'min'"),
    (collective('[{"a"}, {}]').replace(' {sdy.sharding = #sdy.sharding<@m, [{"a"}, {}]>}', ""), "operand without sharding"),
    (constraint('<@m, [{}, {}], replicated={"b", "a"}>'), "not ordered"),
    (constraint('<@m, [{}, {}], unreduced={"b", "a"}>'), "not ordered"),
    *((move(operation, before, after), said) for operation, before, after, said in MOVES),
    *((form(sharding), said) for form in (constraint, argument, operation) for sharding, said in SHARDINGS.items()),
    (operation('<@m, [{}, {}]>, <@m, [{}, {}]>'), "2 shardings for 1 value"),
    (collective('[{"a"}]'), "1 dimension"), (collective('[{"c"}, {}]'), "no axis 'c'"), (collective('[{"a"}, {"a"}]'), "overlap"),
    *MANUAL.items(),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), CASES, ids=range(len(CASES)))
def test_what_does_not_fit_is_refused_where_it_stands(text: str, said: str) -> None:
    with pytest.raises(DeepxGraphError) as e:
        dx.loads(text, "stablehlo")
    (found,) = e.value.diagnostics
    assert said in found.message and found.span is not None
    marked = text.splitlines()[found.span.line - 1][found.span.column - 1 :]
    assert marked.startswith(("%0 = ", "%x: ", "%r = ", "sdy."))


FITS = '<@m, [{"b":(2)2, "a", ?}p1, {?}], replicated={"b":(1)2}>'


TOKEN = f"""{MESH}func.func @f(%t: !stablehlo.token) -> !stablehlo.token {{
  %0 = sdy.sharding_constraint %t <@m, []> : !stablehlo.token
  return %0 : !stablehlo.token
}}"""

GOOD = [
    constraint(FITS), argument(FITS), operation(FITS), operation(f"#sdy.sharding{FITS}"), manual(), TOKEN,
    kept('max{"a"}', 'max{"a"}'), kept('{"a"}', '{"a", "b"}'), collective('[{"a"}, {}]'), *(move(*m) for m in MOVED),
    edge(), edge(CALLED, x="%a"), edge(NEGATED, x="%a", kind="data_flow_edge"),
    rule("([i, j], [i, j])->([i, j]) {i=8, j=16}, custom"),
    rule("([i, jk], [i, jk])->([i, jk]) {i=8, j=4, k=4} need_replication={k} blocked_propagation={i}"),
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD, ids=range(len(GOOD)))
def test_what_fits_is_read(text: str) -> None:
    assert dx.loads(text, "stablehlo").functions


@pytest.mark.skipif(not SUITE.is_dir(), reason="Shardy's tests are not beside the checkout")
def test_shardings_that_shardy_cannot_parse_are_refused() -> None:
    parts = (SUITE / "tensor_sharding_parsing_failure.mlir").read_text(encoding="utf-8").split("// -----")
    for part in parts:
        with pytest.raises(DeepxGraphError):
            dx.loads(part, "stablehlo")


@pytest.mark.skipif(not SUITE.is_dir(), reason="Shardy's tests are not beside the checkout")
@pytest.mark.parametrize(("name", "count"), [("collective", 112), ("sharding_constraint", 6), ("sharding_rule", 19),
                                             ("func_data_flow_edge", 4), ("constant", 2)])  # fmt: skip
def test_what_shardy_refuses_is_refused(name: str, count: int) -> None:
    parts = (SUITE / f"{name}_verification.mlir").read_text(encoding="utf-8").split("// -----")
    wrong = [p for p in parts if "expected-error" in p]
    assert len(wrong) == count
    for part in wrong:
        with pytest.raises(DeepxGraphError):
            dx.loads(part, "stablehlo")
