"""Texts in the style of Shardy's own tests, whose shardings jaxlib's pass gives: parts of axes, priorities, control flow, sizes
that are not divided evenly, constraints that nothing uses, groups, barriers, conflicts.
"""

from __future__ import annotations

MESH = 'sdy.mesh @mesh = <["a"=2, "b"=2, "c"=4]>'


def text(params: str, lines: str, results: str, mesh: str = MESH) -> str:
    """`name: 8x8 [dims], ...`: parameters and results with how they lie; a result's name is what is returned."""
    def parts(said: str) -> list[tuple[str, str, str]]:
        found = []
        for part in said.split("; "):
            name, _, rest = part.partition(": ")
            shape, _, dims = rest.partition(" ")
            found.append((name, f"tensor<{shape}>", f" {{sdy.sharding = #sdy.sharding<@mesh, {dims}>}}" if dims else ""))
        return found

    given = ", ".join(f"%{name}: {type}{dims}" for name, type, dims in parts(params))
    made = parts(results)
    types = ", ".join(type + dims for _, type, dims in made)
    body = "\n".join(line.strip() for line in lines.strip().splitlines())
    last = f"return {', '.join(f'%{name}' for name, _, _ in made)} : {', '.join(type for _, type, _ in made)}"
    return f"{mesh}\nfunc.func @main({given}) -> ({types}) {{\n{body}\n{last}\n}}"


def loop(step: str) -> str:
    """The result `%r` of a loop over `%n` iterations, each of which makes `%w` of `%v`, which is `%x` first."""
    return f"""
        %z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %l:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<8x8xf32> cond {{
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> }} do {{
        %k = stablehlo.add %i, %o : tensor<i32>
        {step}
        stablehlo.return %k, %w : tensor<i32>, tensor<8x8xf32> }}
        %r = stablehlo.negate %l#1 : tensor<8x8xf32>"""


SHARDED_TEXTS = {
    # parts of axes
    "a part of an axis is passed on": text(
        'x: 8x8xf32 [{"c":(1)2}, {}]', "%r = stablehlo.tanh %x : tensor<8x8xf32>", "r: 8x8xf32"),
    "the larger part": text(
        'x: 8x8xf32 [{"c":(1)2}, {}]; y: 8x8xf32 [{"c"}, {}]', "%r = stablehlo.add %x, %y : tensor<8x8xf32>", "r: 8x8xf32"),
    "a minor part beside a major one": text(
        'x: 8x8xf32 [{"c":(1)2}, {?}]; y: 8x8xf32 [{?}, {"c":(2)2}]',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "parts that conflict": text(
        'x: 8x8xf32 [{"c":(2)2}, {}]; y: 8x8xf32 [{"c":(1)2}, {}]', "%r = stablehlo.add %x, %y : tensor<8x8xf32>", "r: 8x8xf32"),
    "a split dimension takes parts": text(
        'x: 16xf32 [{"c", "a"}]', "%r = stablehlo.reshape %x : (tensor<16xf32>) -> tensor<2x8xf32>", "r: 2x8xf32"),
    "a joined dimension": text(
        'x: 2x8xf32 [{"a"}, {"c"}]', "%r = stablehlo.reshape %x : (tensor<2x8xf32>) -> tensor<16xf32>", "r: 16xf32"),
    "a joined dimension whose major part is whole": text(
        'x: 4x8xf32 [{"a"}, {"c"}]', "%r = stablehlo.reshape %x : (tensor<4x8xf32>) -> tensor<32xf32>", "r: 32xf32"),
    "an axis over two factors": text(
        'x: 16xf32 [{"c"}]', "%r = stablehlo.reshape %x : (tensor<16xf32>) -> tensor<2x2x4xf32>", "r: 2x2x4xf32"),
    # priorities
    "the first priority has it": text(
        'x: 8x8xf32 [{"a"}p1, {}]; y: 8x8xf32 [{?}, {"a"}p0]', "%r = stablehlo.add %x, %y : tensor<8x8xf32>", "r: 8x8xf32"),
    "the later priority": text(
        'x: 8x8xf32 [{"a"}p2, {}]; y: 8x8xf32 [{?}, {"a"}p1]', "%r = stablehlo.add %x, %y : tensor<8x8xf32>", "r: 8x8xf32"),
    "priorities of one tensor": text(
        'x: 8x8xf32 [{"a"}p1, {"b"}p0]; y: 8x8xf32 [{"b", ?}p1, {?}p1]',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "priority of a result": text(
        'x: 8x8xf32 [{"a"}p1, {}]; y: 8x8xf32', "%r = stablehlo.add %x, %y : tensor<8x8xf32>", 'r: 8x8xf32 [{?}, {"a"}p0]'),
    "priorities through a product": text(
        'x: 8x8xf32 [{"a"}p1, {"b"}p2]; y: 8x8xf32 [{?}p1, {"a"}p0]', """
        %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) ->
          tensor<8x8xf32>""", "r: 8x8xf32"),
    # control flow
    "a loop": text(
        'x: 8x8xf32 [{"a"}, {?}]; n: i32', loop("%w = stablehlo.tanh %v : tensor<8x8xf32>"), "r: 8x8xf32"),
    "a loop, from its end": text(
        "x: 8x8xf32; n: i32", loop("%w = stablehlo.tanh %v : tensor<8x8xf32>"), 'r: 8x8xf32 [{?}, {"b"}]'),
    "a loop with what is constant in it": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32; n: i32', loop(
            """%w = stablehlo.dot_general %v, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) ->
          tensor<8x8xf32>"""),
        'r: 8x8xf32 [{?}, {"b"}]'),
    "a branch": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32 [{?}, {"b"}]; k: i32', """
        %r = "stablehlo.case"(%k) ({
        %v = stablehlo.tanh %x : tensor<8x8xf32>
        stablehlo.return %v : tensor<8x8xf32> }, {
        %v = stablehlo.negate %y : tensor<8x8xf32>
        stablehlo.return %v : tensor<8x8xf32> }) : (tensor<i32>) -> tensor<8x8xf32>""", "r: 8x8xf32"),
    "branches that conflict": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32 [{?}, {"a"}]; k: i32', """
        %r = "stablehlo.case"(%k) ({
        %v = stablehlo.tanh %x : tensor<8x8xf32>
        stablehlo.return %v : tensor<8x8xf32> }, {
        %v = stablehlo.negate %y : tensor<8x8xf32>
        stablehlo.return %v : tensor<8x8xf32> }) : (tensor<i32>) -> tensor<8x8xf32>""", "r: 8x8xf32"),
    # sizes that are not divided evenly
    "a size that is not divided": text('x: 7x8xf32 [{"c"}, {}]', "%r = stablehlo.tanh %x : tensor<7x8xf32>", "r: 7x8xf32"),
    "fewer elements than parts": text(
        'x: 3x8xf32 [{"c"}, {}]; y: 3x8xf32 [{?}, {"a"}]', "%r = stablehlo.add %x, %y : tensor<3x8xf32>", "r: 3x8xf32"),
    "a major factor that is not divided": text(
        'x: 6x5xf32 [{"c"}, {"a"}]', "%r = stablehlo.reshape %x : (tensor<6x5xf32>) -> tensor<30xf32>", "r: 30xf32"),
    "padded": text(
        'x: 7x8xf32 [{"a"}, {"b"}]', """
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %r = stablehlo.pad %x, %z, low = [1, 0], high = [0, 0], interior = [0, 0] : (tensor<7x8xf32>, tensor<f32>) ->
          tensor<8x8xf32>""", "r: 8x8xf32"),
    # constraints
    "a closed constraint that nothing uses": text(
        "x: 8x8xf32", """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{}, {"b"}]> : tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>""", "r: 8x8xf32"),
    "a constraint that nothing uses, of an argument": text(
        "x: 8x8xf32", """
        %u = sdy.sharding_constraint %x <@mesh, [{"a"}, {}]> : tensor<8x8xf32>
        %r = stablehlo.negate %x : tensor<8x8xf32>""", "r: 8x8xf32"),
    "an open constraint that nothing uses": text(
        "x: 8x8xf32", """
        %u = sdy.sharding_constraint %x <@mesh, [{"a", ?}, {?}]> : tensor<8x8xf32>
        %r = stablehlo.negate %x : tensor<8x8xf32>""", "r: 8x8xf32"),
    "a constraint that nothing uses, of what lies": text(
        'x: 8x8xf32 [{"b"}, {}]', """
        %u = sdy.sharding_constraint %x <@mesh, [{"a"}, {}]> : tensor<8x8xf32>
        %r = stablehlo.negate %x : tensor<8x8xf32>""", "r: 8x8xf32"),
    "a constraint for one of two users": text(
        'x: 8x8xf32 [{"a"}, {?}]', """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{}, {"b"}]> : tensor<8x8xf32>
        %q = stablehlo.negate %u : tensor<8x8xf32>
        %r = stablehlo.add %s, %s : tensor<8x8xf32>""", "q: 8x8xf32; r: 8x8xf32"),
    "an open dimension of a constraint": text(
        'x: 8x8xf32 [{"a"}, {}]', """
        %u = sdy.sharding_constraint %x <@mesh, [{?}, {"b"}]> : tensor<8x8xf32>
        %r = stablehlo.negate %u : tensor<8x8xf32>""", "r: 8x8xf32"),
    "an axis that is kept out": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32 [{?}, {?}], replicated={"a"}',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    # groups and barriers
    "a group behind the last use": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32', """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %q = stablehlo.tanh %y : tensor<8x8xf32>
        %r = stablehlo.negate %q : tensor<8x8xf32>
        sdy.sharding_group %s group_id=1 : tensor<8x8xf32>
        sdy.sharding_group %q group_id=1 : tensor<8x8xf32>""", "s: 8x8xf32; r: 8x8xf32"),
    "a group of an argument": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; y: 8x8xf32', """
        %r = stablehlo.negate %y : tensor<8x8xf32>
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        sdy.sharding_group %x group_id=1 : tensor<8x8xf32>
        sdy.sharding_group %y group_id=1 : tensor<8x8xf32>""", "r: 8x8xf32; s: 8x8xf32"),
    "a barrier": text(
        'x: 8x8xf32 [{"a"}, {?}]', """
        %s = sdy.propagation_barrier %x allowed_direction=NONE : tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>""", 'r: 8x8xf32 [{?}, {"b"}]'),
    "a barrier of one direction": text(
        'x: 8x8xf32 [{"a"}, {?}]', """
        %s = sdy.propagation_barrier %x allowed_direction=FORWARD : tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>""", 'r: 8x8xf32 [{?}, {"b"}]'),
    # operations
    "both sides of a product want the axis": text(
        'x: 8x8xf32 [{"a"}, {}]; y: 8x8xf32 [{}, {"a"}]', """
        %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) ->
          tensor<8x8xf32>""", "r: 8x8xf32"),
    "operands of different sizes": text(
        'x: 8x8xf32 [{"a"}, {}]; y: 8x64xf32 [{}, {"a"}]', """
        %r = stablehlo.dot_general %x, %y,
        contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>""", "r: 8x64xf32"),
    "a batch": text(
        'x: 4x8x8xf32 [{"c"}, {}, {"a"}]; y: 4x8x8xf32', """
        %r = stablehlo.dot_general %x, %y,
        batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32>""",
        'r: 4x8x8xf32 [{?}, {?}, {"b"}]'),
    "a convolution": text(
        'x: 4x8x8x2xf32 [{"c"}, {"a"}, {}, {}]; y: 3x3x2x4xf32 [{}, {}, {}, {"b"}]', """
        %r = stablehlo.convolution(%x, %y)
        dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64} :
        (tensor<4x8x8x2xf32>, tensor<3x3x2x4xf32>) -> tensor<4x8x8x4xf32>""", "r: 4x8x8x4xf32"),
    "the largest of rows with their places": text(
        'x: 8x16xf32 [{"a"}, {"b"}]', """
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %m = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<8x16xf32>,
          tensor<f32>) -> tensor<8xf32>
        %w = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
        %r = stablehlo.subtract %x, %w : tensor<8x16xf32>""", "r: 8x16xf32"),
    "a transform": text(
        'x: 8x16xcomplex<f32> [{"a"}, {"b"}]',
        "%r = stablehlo.fft %x, type = FFT, length = [16] : (tensor<8x16xcomplex<f32>>) -> tensor<8x16xcomplex<f32>>",
        "r: 8x16xcomplex<f32>"),
    "an iota": text(
        'x: 8x8xf32 [{"a"}, {"b"}]', """
        %i = stablehlo.iota dim = 1 : tensor<8x8xf32>
        %s = stablehlo.add %x, %i : tensor<8x8xf32>
        %r = stablehlo.multiply %s, %i : tensor<8x8xf32>""", "r: 8x8xf32"),
    "two results of a sort": text(
        'x: 8x8xf32 [{"a"}, {}]; y: 8x8xi32', """
        %s, %r = "stablehlo.sort"(%x, %y) <{dimension = 1 : i64}> ({
        ^bb0(%p: tensor<f32>, %q: tensor<f32>, %k: tensor<i32>, %l: tensor<i32>):
        %c = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> }) : (tensor<8x8xf32>, tensor<8x8xi32>) -> (tensor<8x8xf32>, tensor<8x8xi32>)""",
        "r: 8x8xi32"),
    "one of several users is split otherwise": text(
        'x: 8x8xf32; y: 8x8xf32 [{"a"}, {}]; z: 8x8xf32 [{}, {"a"}]', """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %q = stablehlo.add %s, %y : tensor<8x8xf32>
        %r = stablehlo.add %s, %z : tensor<8x8xf32>""", "q: 8x8xf32; r: 8x8xf32"),
}  # fmt: skip
