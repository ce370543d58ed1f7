"""Texts whose shardings cross borders: of computations by hand with axes left, of loops and branches, groups, constraints, parts of
axes, dimensions that are closed or wait. What comes of them is said by jaxlib's pass.
"""

from __future__ import annotations

from tests.support.sharding_texts import loop, text

T = "tensor<8x8xf32>"
H = "tensor<4x8xf32>"


def by_hand(taken: str, given: str, axes: str, lines: str, params: str = f"%p: {H}", args: str = "%s", back: str = f"%q : {H}",
            types: str = f"({T}) -> {T}", name: str = "%m") -> str:
    return (f"{name} = sdy.manual_computation({args}) in_shardings=[{taken}] out_shardings=[{given}] manual_axes={{{axes}}} "
            f"({params}) {{\n{lines}\nsdy.return {back}\n}} : {types}")


ROWS = '<@mesh, [{"a", ?}, {?}]>'
TANH = f"%q = stablehlo.tanh %p : {H}"
ENDS = (f"%s = stablehlo.tanh %x : {T}", f"%r = stablehlo.negate %m : {T}")


def around(*inner: str) -> str:
    return "\n".join((ENDS[0], *inner, ENDS[1]))


BORDER_TEXTS = {
    # axes that a computation by hand leaves
    "left: a closed dimension inside": text(
        "x: 8x8xf32", around(by_hand(ROWS, ROWS, '"a"', f"""
        %q = stablehlo.tanh %p {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}, {{"b"}}]>]>}} : {H}""")), "r: 8x8xf32"),
    "left: stated behind the axes by hand": text(
        "x: 8x8xf32", around(by_hand('<@mesh, [{"a", "b"}, {?}]>', ROWS, '"a"', TANH)), "r: 8x8xf32"),
    "left: closed outside": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand('<@mesh, [{"a"}, {}]>', '<@mesh, [{"a"}, {}]>', '"a"', TANH)), "r: 8x8xf32"),
    "left: none, closed outside": text(
        'x: 8x8xf32 [{?}, {"b", ?}]',
        around(by_hand('<@mesh, [{"a"}, {}]>', '<@mesh, [{"a"}, {}]>', '"a", "b", "c"', TANH)), "r: 8x8xf32"),
    "left: from the result": text("x: 8x8xf32", around(by_hand(ROWS, ROWS, '"a"', TANH)), 'r: 8x8xf32 [{"a", "c"}, {"b"}]'),
    "left: the axis by hand is wanted inside": text(
        'x: 8x8xf32 [{?}, {"a", ?}]', around(by_hand(ROWS, ROWS, '"a"', TANH)), "r: 8x8xf32"),
    "left: kept out": text(
        'x: 8x8xf32 [{?}, {"b", ?}]',
        around(by_hand('<@mesh, [{"a", ?}, {?}], replicated={"b"}>', ROWS, '"a"', TANH)), "r: 8x8xf32"),
    "left: a product inside": text(
        'x: 8x8xf32 [{?}, {"b", ?}]; w: 8x8xf32 [{?}, {"c", ?}]', around(by_hand(
            f"{ROWS}, <@mesh, [{{?}}, {{?}}]>", ROWS, '"a"',
            f"%q = stablehlo.dot_general %p, %v, contracting_dims = [1] x [0] : ({H}, {T}) -> {H}",
            f"%p: {H}, %v: {T}", "%s, %w", types=f"({T}, {T}) -> {T}")), "r: 8x8xf32"),
    "left: parts of an axis": text(
        'x: 8x8xf32 [{"c":(1)2, ?}, {?}]', around(by_hand(ROWS, ROWS, '"a"', TANH)), 'r: 8x8xf32 [{?}, {"c":(2)2, ?}]'),
    "left: a part behind the axis by hand": text(
        'x: 8x8xf32 [{"a", "c":(1)2}, {?}]', around(by_hand(ROWS, ROWS, '"a"', TANH)), "r: 8x8xf32"),
    "left: priorities": text(
        'x: 8x8xf32 [{?}, {"b"}p1]', around(by_hand('<@mesh, [{"a", ?}, {"c", ?}p0]>', ROWS, '"a"', TANH)), "r: 8x8xf32"),
    "left: priority behind the axis by hand": text(
        'x: 8x8xf32 [{"b"}p0, {?}]', around(by_hand('<@mesh, [{"a", "c"}p1, {?}]>', ROWS, '"a"', TANH)), "r: 8x8xf32"),
    "left: over no rows": text(
        'x: 8x8xf32 [{"b", ?}, {?}]', around(by_hand(
            "<@mesh, [{?}, {?}]>", "<@mesh, [{?}, {?}]>", '"a"', f"%q = stablehlo.tanh %p : {T}", f"%p: {T}", back=f"%q : {T}")),
        "r: 8x8xf32"),
    "left: two computations in turn": text(
        'x: 8x8xf32 [{?}, {"c", ?}]', around(
            by_hand(ROWS, ROWS, '"a"', TANH, name="%n"),
            by_hand('<@mesh, [{?}, {"b", ?}]>', '<@mesh, [{?}, {"b", ?}]>', '"b"', "%q = stablehlo.tanh %p : tensor<8x4xf32>",
                    "%p: tensor<8x4xf32>", "%n", "%q : tensor<8x4xf32>")), "r: 8x8xf32"),
    "left: one operand for two": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand(
            f"{ROWS}, <@mesh, [{{?}}, {{?}}]>", ROWS, '"a"',
            f"%w = stablehlo.slice %v [0:4, 0:8] : ({T}) -> {H}\n%q = stablehlo.add %p, %w : {H}",
            f"%p: {H}, %v: {T}", "%s, %s", types=f"({T}, {T}) -> {T}")), "r: 8x8xf32"),
    "left: a loop inside": text(
        'x: 8x8xf32 [{?}, {"b", ?}]; n: i32', around(by_hand(
            f"{ROWS}, <@mesh, []>", ROWS, '"a"', f"""
            %z = stablehlo.constant dense<0> : tensor<i32>
            %o = stablehlo.constant dense<1> : tensor<i32>
            %l:2 = stablehlo.while(%i = %z, %v = %p) : tensor<i32>, {H} cond {{
            %c = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1> }} do {{
            %j = stablehlo.add %i, %o : tensor<i32>
            %w = stablehlo.tanh %v : {H}
            stablehlo.return %j, %w : tensor<i32>, {H} }}
            %q = stablehlo.negate %l#1 : {H}""",
            f"%p: {H}, %k: tensor<i32>", "%s, %n", types=f"({T}, tensor<i32>) -> {T}")), "r: 8x8xf32"),
    "left: in a loop": text(
        'x: 8x8xf32 [{?}, {"b", ?}]; n: i32', loop(by_hand(ROWS, ROWS, '"a"', TANH, args="%v", name="%w")), "r: 8x8xf32"),
    "left: a constraint inside": text(
        "x: 8x8xf32", around(by_hand(ROWS, ROWS, '"a"', f"""
        %t = sdy.sharding_constraint %p <@mesh, [{{?}}, {{"c", ?}}]> : {H}
        %q = stablehlo.tanh %t : {H}""")), "r: 8x8xf32"),
    "left: a reduction and what it is spread to": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand(ROWS, ROWS, '"a"', f"""
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %t = stablehlo.reduce(%p init: %z) applies stablehlo.add across dimensions = [1] : ({H}, tensor<f32>) -> tensor<4xf32>
        %u = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<4xf32>) -> {H}
        %q = stablehlo.subtract %p, %u : {H}""")), "r: 8x8xf32"),
    "left: rows by hand that come out as columns": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand(
            ROWS, '<@mesh, [{?}, {"a", ?}]>', '"a"', f"%q = stablehlo.transpose %p, dims = [1, 0] : ({H}) -> tensor<8x4xf32>",
            back="%q : tensor<8x4xf32>")), "r: 8x8xf32"),
    "left: a group of what goes in": text(
        'x: 8x8xf32; y: 8x8xf32 [{?}, {"b", ?}]',
        around(f"sdy.sharding_group %s group_id=0 : {T}\nsdy.sharding_group %y group_id=0 : {T}", by_hand(ROWS, ROWS, '"a"', TANH)),
        "r: 8x8xf32"),
    # one in another
    "nested: each its axis": text(
        'x: 8x8xf32 [{?}, {"c", ?}]', around(by_hand(ROWS, ROWS, '"a"', by_hand(
            '<@mesh, [{?}, {"b", ?}]>', '<@mesh, [{?}, {"b", ?}]>', '"b"', "%t = stablehlo.tanh %u : tensor<4x4xf32>",
            "%u: tensor<4x4xf32>", "%p", "%t : tensor<4x4xf32>", f"({H}) -> {H}", "%q"))), "r: 8x8xf32"),
    "nested: the axis of the inner one outside": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', around(by_hand(ROWS, ROWS, '"a"', by_hand(
            '<@mesh, [{"b", ?}, {?}]>', '<@mesh, [{"b", ?}, {?}]>', '"b"', "%t = stablehlo.tanh %u : tensor<2x8xf32>",
            "%u: tensor<2x8xf32>", "%p", "%t : tensor<2x8xf32>", f"({H}) -> {H}", "%q"))), "r: 8x8xf32"),
    # statements about what nothing uses
    "unused: an open constraint beside another": text(
        "x: 8x8xf32", f"""
        %s = stablehlo.tanh %x : {T}
        %u = sdy.sharding_constraint %s <@mesh, [{{"a", ?}}, {{?}}]> : {T}
        %v = sdy.sharding_constraint %s <@mesh, [{{?}}, {{"b", ?}}]> : {T}
        %r = stablehlo.negate %s : {T}""", "r: 8x8xf32"),
    "unused: a constraint behind an unused operation": text(
        "x: 8x8xf32", f"""
        %s = stablehlo.tanh %x : {T}
        %u = sdy.sharding_constraint %s <@mesh, [{{"a", ?}}, {{?}}]> : {T}
        %r = stablehlo.negate %x : {T}""", "r: 8x8xf32"),
    "unused: an operation that states its sharding": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', f"""
        %s = stablehlo.tanh %x {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"a"}}, {{}}]>]>}} : {T}
        %r = stablehlo.negate %x : {T}""", "r: 8x8xf32"),
    "unused: members of two groups": text(
        'x: 8x8xf32; y: 8x8xf32 [{?}, {"b"}]', f"""
        %s = stablehlo.tanh %y : {T}
        %t = stablehlo.exponential %y : {T}
        %r = stablehlo.negate %x : {T}
        sdy.sharding_group %s group_id=1 : {T}
        sdy.sharding_group %x group_id=1 : {T}
        sdy.sharding_group %t group_id=2 : {T}
        sdy.sharding_group %r group_id=2 : {T}""", "r: 8x8xf32"),
    # dimensions that are closed or wait
    "wait: a closed dimension with priority": text(
        'x: 8x8xf32 [{"a"}p1, {}]; y: 8x8xf32 [{"b", ?}, {"a", ?}p2]', f"%r = stablehlo.add %x, %y : {T}", "r: 8x8xf32"),
    "wait: empty and open with priority": text(
        'x: 8x8xf32 [{?}p2, {?}]; y: 8x8xf32 [{"a"}p1, {"b"}p2]', f"%r = stablehlo.add %x, %y : {T}", "r: 8x8xf32"),
    "wait: a result before a loop": text(
        'x: 8x8xf32 [{"a"}p2, {?}]; n: i32', loop(f"%w = stablehlo.tanh %v : {T}"), 'r: 8x8xf32 [{"b"}p1, {"c"}p0]'),
    "wait: parts of an axis in turn": text(
        'x: 8x8xf32 [{"c":(1)2}p0, {?}]; y: 8x8xf32 [{"c", "b"}p1, {?}]', f"%r = stablehlo.add %x, %y : {T}", "r: 8x8xf32"),
    # constants and scalars
    "constant: two users that differ": text(
        'x: 8x8xf32 [{"a"}, {}]; y: 8x8xf32 [{}, {"b"}]', f"""
        %k = stablehlo.constant dense<2.0> : {T}
        %s = stablehlo.multiply %x, %k : {T}
        %t = stablehlo.multiply %y, %k : {T}""", "s: 8x8xf32; t: 8x8xf32"),
    "constant: a scalar that is spread": text(
        'x: 8x8xf32 [{"a"}, {"b"}]; k: f32', f"""
        %s = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> {T}
        %r = stablehlo.multiply %x, %s : {T}""", "r: 8x8xf32"),
    "constant: what is made of constants": text(
        'x: 8x8xf32 [{"a"}, {"b"}]', f"""
        %k = stablehlo.iota dim = 0 : tensor<8xf32>
        %u = stablehlo.tanh %k : tensor<8xf32>
        %s = stablehlo.broadcast_in_dim %u, dims = [1] : (tensor<8xf32>) -> {T}
        %r = stablehlo.add %x, %s : {T}""", "r: 8x8xf32"),
    "constant: one with a constraint": text(
        'x: 8x8xf32 [{"a"}, {?}]', f"""
        %k = stablehlo.constant dense<2.0> : {T}
        %u = sdy.sharding_constraint %k <@mesh, [{{?}}, {{"b", ?}}]> : {T}
        %r = stablehlo.add %x, %u : {T}""", "r: 8x8xf32"),
    # flow
    "flow: a branch of three": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; y: 8x8xf32 [{?}, {"b", ?}]; n: i32', f"""
        %s = "stablehlo.case"(%n) ({{
        %u = stablehlo.tanh %x : {T}
        stablehlo.return %u : {T} }}, {{
        stablehlo.return %y : {T} }}, {{
        %u = stablehlo.add %x, %y : {T}
        stablehlo.return %u : {T} }}) : (tensor<i32>) -> {T}
        %r = stablehlo.negate %s : {T}""", "r: 8x8xf32"),
    "flow: a barrier of two values": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; y: 8x8xf32', f"""
        %s:2 = stablehlo.optimization_barrier %x, %y : {T}, {T}
        %r = stablehlo.add %s#0, %s#1 : {T}""", 'r: 8x8xf32 [{?}, {"c"}]'),
    "flow: a loop whose variable is closed before": text(
        'x: 8x8xf32 [{"a"}, {}]; n: i32', loop(f"""
        %u = sdy.sharding_constraint %v <@mesh, [{{?}}, {{"b"}}]> : {T}
        %w = stablehlo.tanh %u : {T}"""), "r: 8x8xf32"),
    # names
    "name: one in another": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', f"""
        %s = sdy.named_computation<"f">(%x) in_shardings=[<@mesh, [{{"a", ?}}, {{?}}]>]
          out_shardings=[<@mesh, [{{?}}, {{?}}]>] (%p: {T}) {{
        %u = sdy.named_computation<"g">(%p) (%q: {T}) {{
        %t = stablehlo.tanh %q : {T}
        sdy.return %t : {T}
        }} : ({T}) -> {T}
        sdy.return %u : {T}
        }} : ({T}) -> {T}
        %r = stablehlo.negate %s : {T}""", "r: 8x8xf32"),
    "name: closed on both sides": text(
        'x: 8x8xf32 [{?}, {"b", ?}]', f"""
        %s = sdy.named_computation<"f">(%x) in_shardings=[<@mesh, [{{"a"}}, {{}}]>]
          out_shardings=[<@mesh, [{{}}, {{"c"}}]>] (%p: {T}) {{
        %t = stablehlo.tanh %p : {T}
        sdy.return %t : {T}
        }} : ({T}) -> {T}
        %r = stablehlo.negate %s : {T}""", "r: 8x8xf32"),
    # moves that are stated
    "move: to parts of an axis": text(
        'x: 8x8xf32 [{"c"}, {}]', f"""
        %s = stablehlo.tanh %x : {T}
        %u = sdy.reshard %s <@mesh, [{{"c":(1)2}}, {{"c":(2)2}}]> : {T}
        %r = stablehlo.negate %u : {T}""", "r: 8x8xf32"),
    "move: of a sum to one that is open": text(
        'x: 8x8xf32 [{?}, {"a"}]; y: 8x8xf32 [{"a"}, {?}]', f"""
        %s = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}
        %u = sdy.sharding_constraint %s <@mesh, [{{?}}, {{?}}], unreduced={{"a"}}> : {T}
        %v = sdy.reshard %u <@mesh, [{{"a"}}, {{}}]> : {T}
        %r = stablehlo.negate %v : {T}""", "r: 8x8xf32"),
    # rules that are stated
    "rule: a factor that stays whole": text(
        'x: 8x8xf32 [{"a"}, {"b"}]', f"""
        %r = stablehlo.custom_call @f(%x) {{sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, k]) {{i=8, j=8, k=8}}
          need_replication={{j}}, custom>}} : ({T}) -> {T}""", "r: 8x8xf32"),
    "rule: through two results": text(
        'x: 8x8xf32 [{"a"}, {"b"}]', f"""
        %s:2 = stablehlo.custom_call @f(%x) {{sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j], [j, i]) {{i=8, j=8}},
          custom>}} : ({T}) -> ({T}, {T})
        %r = stablehlo.negate %s#0 : {T}
        %t = stablehlo.negate %s#1 : {T}""", "r: 8x8xf32; t: 8x8xf32"),
}  # fmt: skip
