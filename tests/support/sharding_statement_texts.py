"""Texts that say how values lie in every way that Shardy has: priorities, axes that are kept out, groups, barriers, constraints,
computations with names and by hand. What comes of them is said by jaxlib's pass.
"""

from __future__ import annotations

from tests.support.sharding_texts import text

STATEMENT_TEXTS = {
    # priorities
    "priority: three in turn": text(
        'x: 8x8xf32 [{"a"}p2, {?}]; y: 8x8xf32 [{?}, {"a"}p1]; z: 8x8xf32 [{"b"}p0, {?}]',
        """
        %s = stablehlo.add %x, %y : tensor<8x8xf32>
        %r = stablehlo.multiply %s, %z : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "priority: constraint with priority": text(
        'x: 8x8xf32 [{"a"}, {?}]',
        """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{?}, {"b"}p1]> : tensor<8x8xf32>
        %r = stablehlo.negate %u : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "priority: constraint before": text(
        'x: 8x8xf32 [{"a"}p1, {?}]',
        """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{"b", ?}, {?}]> : tensor<8x8xf32>
        %r = stablehlo.negate %u : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "priority: open with priority grows later": text(
        'x: 8x8xf32 [{"a", ?}p1, {?}]; y: 8x8xf32 [{"a", "b"}, {?}]',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "priority: open with priority other axis": text(
        'x: 8x8xf32 [{"a", ?}p1, {?}]; y: 8x8xf32 [{"b"}, {?}]',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "priority: product over reduction": text(
        'x: 8x8xf32 [{?}, {"a"}p1]; y: 8x8xf32 [{?}, {"a"}p0]',
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "r: 8x8xf32"),
    "priority: in a loop": text(
        'x: 8x8xf32 [{"a"}p1, {?}]; n: i32',
        """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %l:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<8x8xf32> cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> } do {
        %k = stablehlo.add %i, %o : tensor<i32>
        %w = stablehlo.tanh %v : tensor<8x8xf32>
        stablehlo.return %k, %w : tensor<i32>, tensor<8x8xf32> }
        %r = stablehlo.negate %l#1 : tensor<8x8xf32>""",
        'r: 8x8xf32 [{"b"}p0, {?}]'),
    "priority: of parts of an axis": text(
        'x: 8x8xf32 [{"c":(1)2}p1, {?}]; y: 8x8xf32 [{?}, {"c"}p0]',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "priority: result over parameter, product": text(
        'x: 8x8xf32 [{"a"}p1, {"b"}p1]; y: 8x8xf32',
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        'r: 8x8xf32 [{"b"}p0, {"a"}p0]'),
    # computations with names
    "named: named computation": text(
        'x: 8x8xf32 [{"a"}, {?}]',
        """
        %s = sdy.named_computation<"f">(%x) (%p: tensor<8x8xf32>) {
        %t = stablehlo.tanh %p : tensor<8x8xf32>
        sdy.return %t : tensor<8x8xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>""",
        'r: 8x8xf32 [{?}, {"b"}]'),
    "named: with in and out shardings": text(
        "x: 8x8xf32",
        """
        %s = sdy.named_computation<"f">(%x) in_shardings=[<@mesh, [{"a", ?}, {?}]>] out_shardings=[<@mesh, [{?}, {"b", ?}]>]
        (%p: tensor<8x8xf32>) {
        %t = stablehlo.tanh %p : tensor<8x8xf32>
        sdy.return %t : tensor<8x8xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "named: with closed shardings": text(
        'x: 8x8xf32 [{"b"}, {?}]',
        """
        %s = sdy.named_computation<"f">(%x) in_shardings=[<@mesh, [{"a"}, {}]>] out_shardings=[<@mesh, [{}, {"b"}]>] (%p:
        tensor<8x8xf32>) {
        %t = stablehlo.tanh %p : tensor<8x8xf32>
        sdy.return %t : tensor<8x8xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "named: twice the same": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32 [{?}, {"b"}]',
        """
        %s0 = sdy.named_computation<"f">(%x) (%p: tensor<8x8xf32>) {
        %t = stablehlo.tanh %p : tensor<8x8xf32>
        sdy.return %t : tensor<8x8xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %s1 = sdy.named_computation<"f">(%y) (%p: tensor<8x8xf32>) {
        %t = stablehlo.tanh %p : tensor<8x8xf32>
        sdy.return %t : tensor<8x8xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %r = stablehlo.add %s0, %s1 : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    # axes that are kept out, or unreduced
    "kept out: unreduced operand": text(
        'x: 8x8xf32 [{"a"}, {?}], unreduced={"b"}; y: 8x8xf32',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "kept out: unreduced constraint": text(
        'x: 8x8xf32 [{?}, {"a"}]; y: 8x8xf32 [{"a"}, {?}]',
        """
        %s = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{?}, {?}], unreduced={"a"}> : tensor<8x8xf32>
        %r = stablehlo.negate %u : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "kept out: replicated sub-axis": text(
        'x: 8x8xf32 [{"c"}, {?}]; y: 8x8xf32 [{?}, {?}], replicated={"c":(2)2}',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "kept out: replicated result": text(
        'x: 8x8xf32 [{"a", "b"}, {?}]',
        "%r = stablehlo.tanh %x : tensor<8x8xf32>",
        'r: 8x8xf32 [{?}, {?}], replicated={"b"}'),
    "kept out: replicated constraint blocks": text(
        'x: 8x8xf32 [{"a"}, {"b"}]',
        """
        %u = sdy.sharding_constraint %x <@mesh, [{?}, {?}], replicated={"a"}> : tensor<8x8xf32>
        %r = stablehlo.negate %u : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    # groups
    "group: three members": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; y: 8x8xf32; z: 8x8xf32 [{?}, {"b", ?}]',
        """
        sdy.sharding_group %x group_id=1 : tensor<8x8xf32>
        sdy.sharding_group %y group_id=1 : tensor<8x8xf32>
        sdy.sharding_group %z group_id=1 : tensor<8x8xf32>
        %r = stablehlo.tanh %y : tensor<8x8xf32>
        %s = stablehlo.add %x, %z : tensor<8x8xf32>""",
        "r: 8x8xf32; s: 8x8xf32"),
    "group: in a loop": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; y: 8x8xf32; n: i32',
        """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %l:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<8x8xf32> cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> } do {
        %k = stablehlo.add %i, %o : tensor<i32>
        %w = stablehlo.tanh %v : tensor<8x8xf32>
        sdy.sharding_group %w group_id=3 : tensor<8x8xf32>
        stablehlo.return %k, %w : tensor<i32>, tensor<8x8xf32> }
        %r = stablehlo.negate %l#1 : tensor<8x8xf32>
        %q = stablehlo.tanh %y : tensor<8x8xf32>
        sdy.sharding_group %q group_id=3 : tensor<8x8xf32>""",
        "r: 8x8xf32; q: 8x8xf32"),
    "group: unused parameter": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; y: 8x8xf32 [{?}, {"b", ?}]',
        """
        sdy.sharding_group %x group_id=1 : tensor<8x8xf32>
        sdy.sharding_group %y group_id=1 : tensor<8x8xf32>
        %r = stablehlo.tanh %x : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "group: unused operation": text(
        'x: 8x8xf32; y: 8x8xf32 [{?}, {"b"}]',
        """
        %s = stablehlo.tanh %y : tensor<8x8xf32>
        %r = stablehlo.negate %x : tensor<8x8xf32>
        sdy.sharding_group %r group_id=1 : tensor<8x8xf32>
        sdy.sharding_group %s group_id=1 : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    # barriers
    "barrier: backward": text(
        'x: 8x8xf32 [{"a"}, {?}]',
        """
        %s = sdy.propagation_barrier %x allowed_direction=BACKWARD : tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>""",
        'r: 8x8xf32 [{?}, {"b"}]'),
    "barrier: in a chain": text(
        "x: 8x8xf32",
        """
        %t = stablehlo.tanh %x : tensor<8x8xf32>
        %s = sdy.propagation_barrier %t allowed_direction=FORWARD : tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>""",
        'r: 8x8xf32 [{"a"}, {"b"}]'),
    # constraints and results
    "constraint: closed dim of a result": text(
        'x: 8x8xf32 [{"a"}, {"b"}]',
        "%r = stablehlo.tanh %x : tensor<8x8xf32>",
        "r: 8x8xf32 [{}, {?}]"),
    "constraint: two constraints of one value": text(
        "x: 8x8xf32",
        """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{"a"}, {}]> : tensor<8x8xf32>
        %v = sdy.sharding_constraint %s <@mesh, [{}, {"b"}]> : tensor<8x8xf32>
        %r = stablehlo.add %u, %v : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "constraint: chain of constraints": text(
        "x: 8x8xf32",
        """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{"a"}, {}]> : tensor<8x8xf32>
        %v = sdy.sharding_constraint %u <@mesh, [{}, {"b"}]> : tensor<8x8xf32>
        %r = stablehlo.negate %v : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "constraint: dead constraint beside a live one": text(
        "x: 8x8xf32",
        """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %u = sdy.sharding_constraint %s <@mesh, [{"a"}, {}]> : tensor<8x8xf32>
        %v = sdy.sharding_constraint %s <@mesh, [{}, {"b"}]> : tensor<8x8xf32>
        %r = stablehlo.negate %v : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "constraint: reshard": text(
        'x: 8x8xf32 [{"a"}, {}]',
        """
        %s = stablehlo.tanh %x : tensor<8x8xf32>
        %u = sdy.reshard %s <@mesh, [{}, {"b"}]> : tensor<8x8xf32>
        %r = stablehlo.negate %u : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "constraint: constraint of a scalar": text(
        'x: 8x8xf32 [{"a"}, {}]',
        """
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x8xf32>, tensor<f32>) ->
        tensor<f32>
        %u = sdy.sharding_constraint %s <@mesh, []> : tensor<f32>
        %r = stablehlo.negate %u : tensor<f32>""",
        "r: f32"),
    "constraint: returned twice": text(
        "x: 8x8xf32",
        "%r = stablehlo.tanh %x : tensor<8x8xf32>",
        'r: 8x8xf32 [{"a"}, {?}]; r: 8x8xf32 [{?}, {"b"}]'),
    "constraint: a parameter returned": text(
        'x: 8x8xf32 [{"a", ?}, {?}]; y: 8x8xf32',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        'x: 8x8xf32 [{?}, {"b"}]; r: 8x8xf32'),
    # computations by hand
    "by hand: all axes by hand": text(
        "x: 8x8xf32",
        """
        %m = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {"b"}]>] out_shardings=[<@mesh, [{"a"}, {"b"}]>]
        manual_axes={"a", "b", "c"} (%p: tensor<4x4xf32>) {
        %t = stablehlo.tanh %p : tensor<4x4xf32>
        sdy.return %t : tensor<4x4xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %r = stablehlo.negate %m : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "by hand: with a sharded result beside": text(
        'x: 8x8xf32 [{?}, {"c", ?}]',
        """
        %m = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {"b"}]>] out_shardings=[<@mesh, [{"a"}, {"b"}]>]
        manual_axes={"a", "b", "c"} (%p: tensor<4x4xf32>) {
        %t = stablehlo.tanh %p : tensor<4x4xf32>
        sdy.return %t : tensor<4x4xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %r = stablehlo.negate %m : tensor<8x8xf32>""",
        'r: 8x8xf32 [{"c"}, {?}]'),
    "by hand: used again outside": text(
        "x: 8x8xf32",
        """
        %m = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {}]>] out_shardings=[<@mesh, [{}, {"a"}]>]
        manual_axes={"a", "b", "c"} (%p: tensor<4x8xf32>) {
        %t = stablehlo.transpose %p, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
        sdy.return %t : tensor<8x4xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %r = stablehlo.add %m, %x : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "by hand: free axis through": text(
        'x: 8x8xf32 [{?}, {"b", ?}]',
        """
        %m = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a", ?}, {?}]>] out_shardings=[<@mesh, [{"a", ?}, {?}]>]
        manual_axes={"a"} (%p: tensor<4x8xf32>) {
        %t = stablehlo.tanh %p : tensor<4x8xf32>
        sdy.return %t : tensor<4x8xf32>
        } : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %r = stablehlo.negate %m : tensor<8x8xf32>""",
        "r: 8x8xf32"),
}  # fmt: skip
