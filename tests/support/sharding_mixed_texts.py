"""Texts in which several of what Shardy has meet: parts of axes of odd sizes, priorities in loops and branches, calls, computations
by hand in each other, groups across them, values of one device, sums that are left, stated rules. What comes of them is said by
jaxlib's pass.
"""

from __future__ import annotations

from tests.support.sharding_border_texts import ENDS, ROWS, TANH, H, T, around, by_hand
from tests.support.sharding_texts import loop, text

SIX = 'sdy.mesh @mesh = <["a"=6, "b"=2]>'
TWELVE = 'sdy.mesh @mesh = <["a"=12]>'
ONES = 'sdy.mesh @mesh = <["a"=1, "b"=4, "c"=2]>'
TURNED = 'sdy.mesh @mesh = <["a"=2, "b"=4], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>'
DOT = "stablehlo.dot_general"
EIGHTS = f"({T}, {T}) -> {T}"

MIXED_TEXTS = {
    # parts of axes whose sizes are not prime
    "six: a minor part of two": text(
        'x: 12x12xf32 [{"a":(3)2}, {?}]', "%r = stablehlo.tanh %x : tensor<12x12xf32>", "r: 12x12xf32", SIX),
    "six: a major part of three beside the minor one": text(
        'x: 12x12xf32 [{"a":(1)3}, {"a":(3)2}]',
        "%r = stablehlo.transpose %x, dims = [1, 0] : (tensor<12x12xf32>) -> tensor<12x12xf32>", "r: 12x12xf32", SIX),
    "six: a part of three is split off": text(
        'x: 6x4xf32 [{"a":(1)3, "b"}, {?}]', "%r = stablehlo.reshape %x : (tensor<6x4xf32>) -> tensor<3x2x4xf32>",
        "r: 3x2x4xf32", SIX),
    "six: parts of two operands": text(
        'x: 12x12xf32 [{"a":(1)3}, {?}]; y: 12x12xf32 [{"a"}, {?}]', "%r = stablehlo.add %x, %y : tensor<12x12xf32>",
        "r: 12x12xf32", SIX),
    "six: constraint on a part": text(
        'x: 12x12xf32 [{"a"}, {?}]', """
        %s = stablehlo.tanh %x : tensor<12x12xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{?}, {"a":(3)2}]> : tensor<12x12xf32>
        %r = stablehlo.negate %u : tensor<12x12xf32>""", "r: 12x12xf32", SIX),
    "twelve: four behind three": text(
        'x: 24x24xf32 [{"a":(3)4}, {"a":(1)3}]', f"%r = {DOT} %x, %x, contracting_dims = [1] x [0] : "
        "(tensor<24x24xf32>, tensor<24x24xf32>) -> tensor<24x24xf32>", "r: 24x24xf32", TWELVE),
    "twelve: the middle": text(
        'x: 24x24xf32 [{"a":(2)3}, {?}]', "%r = stablehlo.transpose %x, dims = [1, 0] : (tensor<24x24xf32>) -> tensor<24x24xf32>",
        'r: 24x24xf32 [{"a":(6)2}, {?}]', TWELVE),
    "twelve: kept out": text(
        'x: 24x24xf32 [{"a"}, {?}]; y: 24x24xf32 [{?}, {?}], replicated={"a":(3)4}',
        "%r = stablehlo.add %x, %y : tensor<24x24xf32>", "r: 24x24xf32", TWELVE),
    # meshes
    "mesh: axes of one": text(
        'x: 8x8xf32 [{"a"}, {"b"}]; y: 8x8xf32 [{?}, {"a", "c"}]', f"%r = {DOT} %x, %y, contracting_dims = [1] x [0] : {EIGHTS}",
        "r: 8x8xf32", ONES),
    "mesh: devices in another order": text(
        'x: 8x8xf32 [{"b"}, {?}]', f"%r = {DOT} %x, %x, contracting_dims = [1] x [1] : {EIGHTS}", 'r: 8x8xf32 [{?}, {"a"}]',
        TURNED),
    "mesh: a value of one device beside others": text(
        'x: 8x8xf32 [{"a"}, {?}]', f"""
        %s = stablehlo.tanh %x {{sdy.sharding = #sdy.sharding_per_value<[<@one, []>]>}} : {T}
        %t = stablehlo.negate %x : {T}
        %r = stablehlo.add %s, %t : {T}""", "r: 8x8xf32",
        'sdy.mesh @mesh = <["a"=2, "b"=2, "c"=4]>\nsdy.mesh @one = <[], device_ids=[3]>'),
    # priorities where values flow
    "priority: a variable before its result": text(
        'x: 8x8xf32 [{"a"}p1, {?}]; n: i32', loop(f"%w = stablehlo.tanh %v : {T}"), 'r: 8x8xf32 [{?}, {"a"}p0]'),
    "priority: a product in a loop": text(
        'x: 8x8xf32 [{"a"}p1, {?}]; y: 8x8xf32 [{?}, {"a"}p0]; n: i32',
        loop(f"%w = {DOT} %v, %y, contracting_dims = [1] x [0] : {EIGHTS}"), "r: 8x8xf32"),
    "priority: in branches": text(
        'x: 8x8xf32 [{"a"}p2, {?}]; y: 8x8xf32 [{?}, {"a"}p1]; n: i32', f"""
        %s = "stablehlo.case"(%n) ({{
        stablehlo.return %x : {T} }}, {{
        %u = stablehlo.tanh %y : {T}
        stablehlo.return %u : {T} }}) : (tensor<i32>) -> {T}
        %r = stablehlo.negate %s : {T}""", "r: 8x8xf32"),
    "priority: of a group": text(
        'x: 8x8xf32 [{"a"}p1, {?}]; y: 8x8xf32 [{?}, {"b"}p0]', f"""
        %s = stablehlo.tanh %x : {T}
        %t = stablehlo.tanh %y : {T}
        sdy.sharding_group %s group_id=3 : {T}
        sdy.sharding_group %t group_id=3 : {T}
        %r = stablehlo.add %s, %t : {T}""", "r: 8x8xf32"),
    "priority: elementwise before a product": text(
        'x: 8x8xf32 [{?}, {"a", ?}]; y: 8x8xf32 [{?}, {"b", ?}]', f"""
        %s = {DOT} %x, %y, contracting_dims = [1] x [0] : {EIGHTS}
        %t = stablehlo.add %s, %x : {T}
        %r = stablehlo.multiply %t, %s : {T}""", "r: 8x8xf32"),
    "priority: a sum over what is spread": text(
        'x: 8x8xf32 [{"a"}p1, {"b"}p0]; y: 8xf32 [{"c"}p0]', f"""
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : ({T}, tensor<f32>) -> tensor<8xf32>
        %t = stablehlo.add %s, %y : tensor<8xf32>
        %r = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<8xf32>) -> {T}""", "r: 8x8xf32"),
    # edges of data flow
    "flow: a loop over what a branch gives": text(
        'x: 8x8xf32; n: i32', loop(f"""
        %w = "stablehlo.case"(%i) ({{
        %u = stablehlo.tanh %v : {T}
        stablehlo.return %u : {T} }}, {{
        stablehlo.return %v : {T} }}) : (tensor<i32>) -> {T}"""), 'r: 8x8xf32 [{"c"}, {"a"}]'),
    "flow: a barrier in a loop": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; n: i32', loop(f"""
        %u = stablehlo.optimization_barrier %v : {T}
        %w = stablehlo.tanh %u : {T}"""), 'r: 8x8xf32 [{?}, {"b"}]'),
    "flow: a loop after a loop's constraint": text(
        'x: 8x8xf32; n: i32', loop(f"""
        %u = sdy.sharding_constraint %v <@mesh, [{{"a", ?}}, {{?}}]> : {T}
        %w = {DOT} %u, %u, contracting_dims = [1] x [0] : {EIGHTS}"""), "r: 8x8xf32"),
    "flow: a stated result of a loop's step": text(
        'x: 8x8xf32; n: i32', loop(
            f'%w = stablehlo.tanh %v {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"b", ?}}, {{"a"}}]>]>}} : {T}'),
        "r: 8x8xf32"),
    # computations by hand, with others around and inside
    "by hand: in a branch": text(
        'x: 8x8xf32 [{?}, {"b", ?}]; n: i32', f"""
        %r = "stablehlo.case"(%n) ({{
        {by_hand(ROWS, ROWS, '"a"', TANH, args="%x")}
        stablehlo.return %m : {T} }}, {{
        stablehlo.return %x : {T} }}) : (tensor<i32>) -> {T}""", "r: 8x8xf32"),
    "by hand: a constraint on a result": text(
        "x: 8x8xf32", f"""
        %s = stablehlo.tanh %x : {T}
        {by_hand(ROWS, ROWS, '"a"', TANH)}
        %u = sdy.sharding_constraint %m <@mesh, [{{?}}, {{"c"}}]> : {T}
        %r = stablehlo.negate %u : {T}""", "r: 8x8xf32"),
    "by hand: a group inside": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand(ROWS, ROWS, '"a"', f"""
        %u = stablehlo.tanh %p : {H}
        %t = stablehlo.negate %p : {H}
        sdy.sharding_group %u group_id=1 : {H}
        sdy.sharding_group %t group_id=1 : {H}
        %q = stablehlo.add %u, %t : {H}""")), "r: 8x8xf32"),
    "by hand: a sum over rows and columns": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand(ROWS, '<@mesh, [{"a", ?}, {?}]>', '"a"', f"""
        %t = {DOT} %p, %p, contracting_dims = [0] x [0] : ({H}, {H}) -> {T}
        %q = stablehlo.slice %t [0:4, 0:8] : ({T}) -> {H}""")), "r: 8x8xf32"),
    "by hand: a transpose between": text(
        'x: 8x8xf32 [{?}, {"c", ?}]', around(by_hand(ROWS, '<@mesh, [{?}, {"a", ?}]>', '"a"', f"""
        %q = stablehlo.transpose %p, dims = [1, 0] : ({H}) -> tensor<8x4xf32>""", back="%q : tensor<8x4xf32>")), "r: 8x8xf32"),
    "by hand: a barrier inside": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand(ROWS, ROWS, '"a"', f"""
        %q = stablehlo.optimization_barrier %p : {H}""")), 'r: 8x8xf32 [{"c", ?}, {?}]'),
    "by hand: a name inside": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand(ROWS, ROWS, '"a"', f"""
        %q = sdy.named_computation<"f">(%p) (%u: {H}) {{
        %t = stablehlo.tanh %u : {H}
        sdy.return %t : {H}
        }} : ({H}) -> {H}""")), "r: 8x8xf32"),
    "by hand: an unused result": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', f"""
        %s = stablehlo.tanh %x : {T}
        {by_hand(ROWS, f"{ROWS}, {ROWS}", '"a"', TANH, back=f"%q, %p : {H}, {H}", name="%m:2", types=f"({T}) -> ({T}, {T})")}
        %r = stablehlo.negate %m#1 : {T}""", "r: 8x8xf32"),
    # sums that are left, and what is kept out
    "left: a sum that a product takes": text(
        'x: 8x8xf32 [{?}, {"a"}]; y: 8x8xf32 [{"a"}, {?}]', f"""
        %s = {DOT} %x, %y, contracting_dims = [1] x [0] : {EIGHTS}
        %u = sdy.sharding_constraint %s <@mesh, [{{"b"}}, {{?}}], unreduced={{"a"}}> : {T}
        %r = {DOT} %u, %y, contracting_dims = [1] x [0] : {EIGHTS}""", "r: 8x8xf32"),
    "kept out: along a part in the middle": text(
        'x: 8x8xf32 [{"c"}, {?}]; y: 8x8xf32 [{?}, {?}], replicated={"c":(2)2}', f"%r = stablehlo.add %x, %y : {T}", "r: 8x8xf32"),
    "kept out: by a loop's variable": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; n: i32', loop(f"""
        %u = sdy.sharding_constraint %v <@mesh, [{{?}}, {{?}}], replicated={{"b"}}> : {T}
        %w = stablehlo.tanh %u : {T}"""), 'r: 8x8xf32 [{?}, {"b"}]'),
    # rules that are stated
    "rule: a sum": text(
        'x: 8x8xf32 [{"a"}, {"b"}]', f"""
        %s = stablehlo.custom_call @f(%x) {{sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i]) {{i=8, j=8}}
          reduction={{j}}, custom>}} : ({T}) -> tensor<8xf32>
        %r = stablehlo.negate %s : tensor<8xf32>""", "r: 8xf32"),
    "rule: one that blocks a factor": text(
        'x: 8x8xf32 [{"a"}, {"b"}]', f"""
        %r = stablehlo.custom_call @f(%x) {{sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {{i=8, j=8}}
          blocked_propagation={{j}}, custom>}} : ({T}) -> {T}""", "r: 8x8xf32"),
    "rule: split and joined factors": text(
        'x: 8x8xf32 [{"a", "c"}, {"b"}]', f"""
        %r = stablehlo.custom_call @f(%x) {{sdy.sharding_rule = #sdy.op_sharding_rule<([ij, k])->([i, jk]) {{i=2, j=4, k=8}},
          custom>}} : ({T}) -> tensor<2x32xf32>""", "r: 2x32xf32"),
    # constraints
    "constraint: dead, of what a loop gives": text(
        "x: 8x8xf32; n: i32", loop(f"%w = stablehlo.tanh %v : {T}")
        + f'\n%d = sdy.sharding_constraint %l#1 <@mesh, [{{"a"}}, {{}}]> : {T}', "r: 8x8xf32"),
    "constraint: dead, in a loop": text(
        "x: 8x8xf32; n: i32", loop(f"""
        %d = sdy.sharding_constraint %v <@mesh, [{{"a"}}, {{}}]> : {T}
        %w = stablehlo.tanh %v : {T}"""), "r: 8x8xf32"),
    "constraint: two dead ones": text(
        "x: 8x8xf32", f"""
        %s = stablehlo.tanh %x : {T}
        %d = sdy.sharding_constraint %s <@mesh, [{{"a"}}, {{}}]> : {T}
        %e = sdy.sharding_constraint %s <@mesh, [{{}}, {{"b"}}]> : {T}
        %r = stablehlo.negate %s : {T}""", "r: 8x8xf32"),
    "constraint: on a constant that is spread": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', f"""
        %k = stablehlo.constant dense<1.0> : {T}
        %u = sdy.sharding_constraint %k <@mesh, [{{"a"}}, {{?}}]> : {T}
        {ENDS[0]}
        %t = stablehlo.add %s, %u : {T}
        %r = stablehlo.multiply %t, %k : {T}""", "r: 8x8xf32"),
    # sizes that are not divided
    "padding: a product of prime sizes": text(
        'x: 7x5xf32 [{"a"}, {"c"}]; y: 5x3xf32', f"%r = {DOT} %x, %y, contracting_dims = [1] x [0] : "
        "(tensor<7x5xf32>, tensor<5x3xf32>) -> tensor<7x3xf32>", 'r: 7x3xf32 [{?}, {"b"}]'),
    "padding: a window over split rows": text(
        'x: 9x8xf32 [{"c"}, {"a"}]', """
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %r = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 3, 1>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %u = stablehlo.maximum %a, %b : tensor<f32>
        stablehlo.return %u : tensor<f32> }) : (tensor<9x8xf32>, tensor<f32>) -> tensor<7x8xf32>""", "r: 7x8xf32"),
}  # fmt: skip
