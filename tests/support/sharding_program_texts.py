"""Texts of programs that shardings go through: reshapes along parts of axes, control flow, and operations with operands of several
kinds. What comes of them is said by jaxlib's pass.
"""

from __future__ import annotations

from tests.support.sharding_texts import text

PRIME = 'sdy.mesh @mesh = <["a"=2, "b"=3]>'
NUMBERED = 'sdy.mesh @mesh = <["a"=2, "b"=2, "c"=4], device_ids=[15,14,13,12,11,10,9,8,7,6,5,4,3,2,1,0]>'

PROGRAM_TEXTS = {
    # parts of axes, and how dimensions are split and joined
    "parts: minor part through product": text(
        'x: 8x8xf32 [{"c":(2)2}, {}]; y: 8x8xf32 [{}, {"c":(1)2}]',
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "r: 8x8xf32"),
    "parts: major and minor parts on one dim": text(
        'x: 8x8xf32 [{"c":(2)2, "c":(1)2}, {}]',
        "%r = stablehlo.tanh %x : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "parts: merge after reshape": text(
        'x: 2x2x8xf32 [{"c":(1)2}, {"c":(2)2}, {"a"}]',
        "%r = stablehlo.reshape %x : (tensor<2x2x8xf32>) -> tensor<4x8xf32>",
        "r: 4x8xf32"),
    "parts: parts from a result": text(
        "x: 16xf32",
        "%r = stablehlo.reshape %x : (tensor<16xf32>) -> tensor<2x8xf32>",
        'r: 2x8xf32 [{"c":(1)2}, {"c":(2)2, "a"}]'),
    "parts: reshape three to two": text(
        'x: 4x6x4xf32 [{"c"}, {"a"}, {"b"}]',
        "%r = stablehlo.reshape %x : (tensor<4x6x4xf32>) -> tensor<24x4xf32>",
        "r: 24x4xf32"),
    "parts: reshape two to three, indivisible": text(
        'x: 6x4xf32 [{"c"}, {}]',
        "%r = stablehlo.reshape %x : (tensor<6x4xf32>) -> tensor<2x3x4xf32>",
        "r: 2x3x4xf32"),
    "parts: reshape with ones": text(
        'x: 1x8x1xf32 [{}, {"a"}, {}]',
        "%r = stablehlo.reshape %x : (tensor<1x8x1xf32>) -> tensor<8x1xf32>",
        "r: 8x1xf32"),
    "parts: one conflicts with whole": text(
        'x: 8x8xf32 [{"c":(2)2, ?}, {?}]; y: 8x8xf32 [{?}, {"c", ?}]',
        "%r = stablehlo.add %x, %y : tensor<8x8xf32>",
        "r: 8x8xf32"),
    "parts: prime mesh": text(
        'x: 6x12xf32 [{"b"}, {"a"}]',
        "%r = stablehlo.reshape %x : (tensor<6x12xf32>) -> tensor<72xf32>",
        "r: 72xf32", PRIME),
    "parts: prime mesh split": text(
        'x: 12xf32 [{"b", "a"}]',
        "%r = stablehlo.reshape %x : (tensor<12xf32>) -> tensor<6x2xf32>",
        "r: 6x2xf32", PRIME),
    "parts: mesh with device ids": text(
        'x: 8x8xf32 [{"a"}, {"c"}]; y: 8x8xf32',
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        'r: 8x8xf32 [{?}, {"b"}]', NUMBERED),
    # control flow
    "flow: if from the result": text(
        "x: 8x8xf32; y: 8x8xf32; k: i1",
        """
        %r = "stablehlo.if"(%k) ({
        %v = stablehlo.tanh %x : tensor<8x8xf32>
        stablehlo.return %v : tensor<8x8xf32> }, {
        %v = stablehlo.negate %y : tensor<8x8xf32>
        stablehlo.return %v : tensor<8x8xf32> }) : (tensor<i1>) -> tensor<8x8xf32>""",
        'r: 8x8xf32 [{"a"}, {"b"}]'),
    "flow: if of a product": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32 [{?}, {"b"}]; k: i1',
        """
        %r = "stablehlo.if"(%k) ({
        %v = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
        stablehlo.return %v : tensor<8x8xf32> }, {
        %v = stablehlo.negate %y : tensor<8x8xf32>
        stablehlo.return %v : tensor<8x8xf32> }) : (tensor<i1>) -> tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "flow: a loop in a loop": text(
        'x: 8x8xf32 [{"a"}, {?}]; n: i32',
        """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %l:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<8x8xf32> cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> } do {
        %k = stablehlo.add %i, %o : tensor<i32>
        %l2:2 = stablehlo.while(%i2 = %z, %v2 = %v) : tensor<i32>, tensor<8x8xf32> cond {
        %c2 = stablehlo.compare LT, %i2, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c2 : tensor<i1> } do {
        %k2 = stablehlo.add %i2, %o : tensor<i32>
        %w2 = stablehlo.tanh %v2 : tensor<8x8xf32>
        stablehlo.return %k2, %w2 : tensor<i32>, tensor<8x8xf32> }
        %w = stablehlo.negate %l2#1 : tensor<8x8xf32>
        stablehlo.return %k, %w : tensor<i32>, tensor<8x8xf32> }
        %r = stablehlo.negate %l#1 : tensor<8x8xf32>""",
        'r: 8x8xf32 [{?}, {"b"}]'),
    "flow: two variables that swap": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32 [{?}, {"b"}]; n: i32',
        """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %l:3 = stablehlo.while(%i = %z, %v = %x, %w = %y) : tensor<i32>, tensor<8x8xf32>, tensor<8x8xf32> cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> } do {
        %k = stablehlo.add %i, %o : tensor<i32>
        stablehlo.return %k, %w, %v : tensor<i32>, tensor<8x8xf32>, tensor<8x8xf32> }
        %r = stablehlo.negate %l#1 : tensor<8x8xf32>
        %q = stablehlo.tanh %l#2 : tensor<8x8xf32>""",
        "r: 8x8xf32; q: 8x8xf32"),
    "flow: product with what the loop carries": text(
        'x: 8x8xf32; y: 8x8xf32 [{"a"}, {"b"}]; n: i32',
        """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %l:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<8x8xf32> cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> } do {
        %k = stablehlo.add %i, %o : tensor<i32>
        %w = stablehlo.dot_general %y, %v, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
        stablehlo.return %k, %w : tensor<i32>, tensor<8x8xf32> }
        %r = stablehlo.negate %l#1 : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "flow: optimization barrier": text(
        'x: 8x8xf32 [{"a"}, {?}]; y: 8x8xf32',
        """
        %s, %q = stablehlo.optimization_barrier %x, %y : tensor<8x8xf32>, tensor<8x8xf32>
        %r = stablehlo.add %s, %q : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "flow: optimization barrier back": text(
        "x: 8x8xf32; y: 8x8xf32",
        """
        %s, %q = stablehlo.optimization_barrier %x, %y : tensor<8x8xf32>, tensor<8x8xf32>
        %r = stablehlo.negate %s : tensor<8x8xf32>
        %t = stablehlo.negate %q : tensor<8x8xf32>""",
        'r: 8x8xf32 [{"a"}, {?}]; t: 8x8xf32 [{?}, {"b"}]'),
    "flow: constraint inside a loop": text(
        "x: 8x8xf32; n: i32",
        """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %l:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<8x8xf32> cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> } do {
        %k = stablehlo.add %i, %o : tensor<i32>
        %t = stablehlo.tanh %v : tensor<8x8xf32>
        %w = sdy.sharding_constraint %t <@mesh, [{"a", ?}, {?}]> : tensor<8x8xf32>
        stablehlo.return %k, %w : tensor<i32>, tensor<8x8xf32> }
        %r = stablehlo.negate %l#1 : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "flow: closed constraint inside a loop": text(
        'x: 8x8xf32 [{"b"}, {?}]; n: i32',
        """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %l:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<8x8xf32> cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> } do {
        %k = stablehlo.add %i, %o : tensor<i32>
        %t = stablehlo.tanh %v : tensor<8x8xf32>
        %w = sdy.sharding_constraint %t <@mesh, [{"a"}, {}]> : tensor<8x8xf32>
        stablehlo.return %k, %w : tensor<i32>, tensor<8x8xf32> }
        %r = stablehlo.negate %l#1 : tensor<8x8xf32>""",
        "r: 8x8xf32"),
    # operations
    "operation: gather rows": text(
        'x: 8x8xf32 [{"a"}, {"b"}]; i: 4xi32 [{"c"}]',
        """
        %r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<8x8xf32>, tensor<4xi32>) ->
        tensor<4x8xf32>""",
        "r: 4x8xf32"),
    "operation: scatter rows": text(
        'x: 8x8xf32 [{"a"}, {"b"}]; i: 4xi32; u: 4x8xf32 [{"c"}, {}]',
        """
        %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
        ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %s : tensor<f32> }) : (tensor<8x8xf32>, tensor<4xi32>, tensor<4x8xf32>) -> tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "operation: dynamic update": text(
        'x: 8x8xf32 [{"a"}, {}]; u: 8x2xf32 [{}, {"b"}]; i: i32',
        """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %r = stablehlo.dynamic_update_slice %x, %u, %z, %i : (tensor<8x8xf32>, tensor<8x2xf32>, tensor<i32>, tensor<i32>) ->
        tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "operation: cholesky": text(
        'x: 4x8x8xf32 [{"c"}, {"a"}, {}]',
        "%r = stablehlo.cholesky %x, lower = true : tensor<4x8x8xf32>",
        "r: 4x8x8xf32"),
    "operation: triangular solve": text(
        'x: 4x8x8xf32 [{"c"}, {}, {}]; y: 4x8x8xf32 [{}, {}, {"a"}]',
        """
        %r = "stablehlo.triangular_solve"(%x, %y) <{left_side = true, lower = true, unit_diagonal = false, transpose_a =
        #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32>""",
        "r: 4x8x8xf32"),
    "operation: concatenate both dims": text(
        'x: 8x8xf32 [{"a"}, {"b"}]; y: 8x8xf32 [{"b"}, {}]',
        "%r = stablehlo.concatenate %x, %y, dim = 1 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x16xf32>",
        "r: 8x16xf32"),
    "operation: select with scalar predicate": text(
        'p: i1; x: 8x8xf32 [{"a"}, {}]; y: 8x8xf32 [{}, {"b"}]',
        "%r = stablehlo.select %p, %x, %y : tensor<i1>, tensor<8x8xf32>",
        "r: 8x8xf32"),
    "operation: clamp": text(
        'p: f32; x: 8x8xf32 [{"a"}, {}]; y: 8x8xf32 [{}, {"b"}]',
        "%r = stablehlo.clamp %p, %x, %y : (tensor<f32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "r: 8x8xf32"),
    "operation: convolution with groups": text(
        'x: 4x8x8x4xf32 [{"c"}, {}, {}, {"a"}]; y: 3x3x2x4xf32 [{}, {}, {}, {"b"}]',
        """
        %r = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1,
        1]]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<4x8x8x4xf32>, tensor<3x3x2x4xf32>) ->
        tensor<4x8x8x4xf32>""",
        "r: 4x8x8x4xf32"),
    "operation: transposed broadcast": text(
        'x: 8x4xf32 [{"a"}, {"c"}]',
        "%r = stablehlo.broadcast_in_dim %x, dims = [2, 0] : (tensor<8x4xf32>) -> tensor<4x8x8xf32>",
        "r: 4x8x8xf32"),
    "operation: broadcast of one": text(
        'x: 1x8xf32 [{}, {"a"}]',
        "%r = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<8x8xf32>",
        'r: 8x8xf32 [{"b"}, {?}]'),
    "operation: bitcast to bytes": text(
        'x: 8x8xf32 [{"a"}, {"b"}]',
        "%r = stablehlo.bitcast_convert %x : (tensor<8x8xf32>) -> tensor<8x8x4xui8>",
        "r: 8x8x4xui8"),
    "operation: real and imaginary": text(
        'x: 8x8xf32 [{"a"}, {}]; y: 8x8xf32 [{}, {"b"}]',
        """
        %s = stablehlo.complex %x, %y : tensor<8x8xcomplex<f32>>
        %r = stablehlo.real %s : (tensor<8x8xcomplex<f32>>) -> tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "operation: rng bits": text(
        "x: 2xui64",
        "%s, %r = stablehlo.rng_bit_generator %x, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<8x8xui32>)",
        'r: 8x8xui32 [{"a"}, {"b"}]'),
    "operation: reduce of two values": text(
        'x: 8x8xf32 [{"a"}, {"b"}]; y: 8x8xi32',
        """
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %j = stablehlo.constant dense<0> : tensor<i32>
        %r, %q = stablehlo.reduce(%x init: %z), (%y init: %j) across dimensions = [1] : (tensor<8x8xf32>, tensor<8x8xi32>,
        tensor<f32>, tensor<i32>) -> (tensor<8xf32>, tensor<8xi32>)
        reducer(%p: tensor<f32>, %p1: tensor<f32>) (%p2: tensor<i32>, %p3: tensor<i32>) {
        %s = stablehlo.add %p, %p1 : tensor<f32>
        %t = stablehlo.add %p2, %p3 : tensor<i32>
        stablehlo.return %s, %t : tensor<f32>, tensor<i32>
        }""",
        "r: 8xf32; q: 8xi32"),
    "operation: custom rule": text(
        'x: 8x8xf32 [{"a"}, {"b"}]',
        """
        %r = stablehlo.custom_call @foo(%x) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([j, i]) {i=8, j=8}, custom>} :
        (tensor<8x8xf32>) -> tensor<8x8xf32>""",
        "r: 8x8xf32"),
    "operation: custom rule with reduction": text(
        'x: 8x8xf32 [{"a"}, {"b"}]',
        """
        %r = stablehlo.custom_call @foo(%x) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i]) {i=8, j=8} reduction={j},
        custom>} : (tensor<8x8xf32>) -> tensor<8xf32>""",
        "r: 8xf32"),
    "operation: blocked factor": text(
        'x: 8x8xf32 [{"a"}, {"b"}]',
        """
        %r = stablehlo.custom_call @foo(%x) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {i=8, j=8}
        need_replication={j} blocked_propagation={j}, custom>} : (tensor<8x8xf32>) -> tensor<8x8xf32>""",
        "r: 8x8xf32"),
}  # fmt: skip
