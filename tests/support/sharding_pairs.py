"""StableHLO texts in which two dimensions of one value want the same axis: those of two operations in `pairs`, the one that makes
it for the rows, the one that takes it for the columns, and of two operands of one operation in `joined`, two members of a group in
`grouped`. Which has it says when each is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

_ADD = """({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
  stablehlo.return %s : tensor<f32> })"""
_LESS = """({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %s : tensor<i1> })"""
_ROWS = """<{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0],
  index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64>}>"""
_COLUMN = """<{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1],
  scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}>"""


def _given(dims: str) -> str:
    return f"{{sdy.sharding = #sdy.sharding<@mesh, [{dims}]>}}"


_A, _A1, _A3 = _given('{"a"}, {}'), _given('{"a"}'), _given('{"a"}, {}, {}')
_AB, _COLUMNS = _given('{"a"}, {"b"}'), _given('{}, {"a"}')

MAKERS = {
    "product": (f"%x: tensor<64x16xf32> {_A}, %y: tensor<16x64xf32>",
                "stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>)"),
    "square": (f"%x: tensor<64x16xf32> {_A}",
               "stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<64x16xf32>, tensor<64x16xf32>)"),
    "split sum": (f"%x: tensor<64x16xf32> {_AB}, %y: tensor<64x16xf32> {_A}",
                  "stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<64x16xf32>, tensor<64x16xf32>)"),
    "tanh": (f"%x: tensor<64x64xf32> {_A}", "stablehlo.tanh %x : (tensor<64x64xf32>)"),
    "reduce": (f"%x: tensor<64x64x4xf32> {_A3}",
               "stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [2] : "
               "(tensor<64x64x4xf32>, tensor<f32>)"),
    "broadcast": (f"%x: tensor<64xf32> {_A1}", "stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<64xf32>)"),
    "stretch": (f"%x: tensor<64x1xf32> {_A}", "stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<64x1xf32>)"),
    "pad": (f"%x: tensor<64x60xf32> {_A}",
            "stablehlo.pad %x, %zero, low = [0, 0], high = [0, 4], interior = [0, 0] : (tensor<64x60xf32>, tensor<f32>)"),
    "slice": (f"%x: tensor<64x128xf32> {_A}", "stablehlo.slice %x [0:64, 0:64] : (tensor<64x128xf32>)"),
    "reverse": (f"%x: tensor<64x64xf32> {_A}", "stablehlo.reverse %x, dims = [1] : (tensor<64x64xf32>)"),
    "concatenate": (f"%x: tensor<64x32xf32> {_A}, %y: tensor<64x32xf32>",
                    "stablehlo.concatenate %x, %y, dim = 1 : (tensor<64x32xf32>, tensor<64x32xf32>)"),
    "reshape": (f"%x: tensor<4096xf32> {_A1}", "stablehlo.reshape %x : (tensor<4096xf32>)"),
    "transpose": (f"%x: tensor<64x64xf32> {_COLUMNS}", "stablehlo.transpose %x, dims = [1, 0] : (tensor<64x64xf32>)"),
    "dynamic slice": (f"%x: tensor<64x128xf32> {_A}, %i: tensor<i32>",
                      "stablehlo.dynamic_slice %x, %i0, %i, sizes = [64, 64] : (tensor<64x128xf32>, tensor<i32>, tensor<i32>)"),
    "update": (f"%x: tensor<64x64xf32> {_A}, %y: tensor<64x8xf32>, %i: tensor<i32>",
               "stablehlo.dynamic_update_slice %x, %y, %i0, %i : (tensor<64x64xf32>, tensor<64x8xf32>, tensor<i32>, tensor<i32>)"),
    "sort": (f"%x: tensor<64x64xf32> {_A}", f'"stablehlo.sort"(%x) <{{dimension = 1 : i64}}> {_LESS} : (tensor<64x64xf32>)'),
    "select": (f"%c: tensor<64x64xi1>, %x: tensor<64x64xf32> {_A}, %y: tensor<64x64xf32>",
               "stablehlo.select %c, %x, %y : (tensor<64x64xi1>, tensor<64x64xf32>, tensor<64x64xf32>)"),
    "gather": (f"%x: tensor<100x64xf32>, %g: tensor<64xi32> {_A1}",
               f'"stablehlo.gather"(%x, %g) {_ROWS} : (tensor<100x64xf32>, tensor<64xi32>)'),
    "scatter": (f"%x: tensor<64x64xf32> {_A}, %y: tensor<64x8xf32>, %g: tensor<8xi32>",
                f'"stablehlo.scatter"(%x, %g, %y) {_COLUMN} {_ADD} : (tensor<64x64xf32>, tensor<8xi32>, tensor<64x8xf32>)'),
    "window": (f"%x: tensor<64x64xf32> {_A}",
               '"stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>, '
               f"window_dimensions = array<i64: 1, 3>}}> {_ADD} : (tensor<64x64xf32>, tensor<f32>)"),
}
"""How a value of 64 x 64 is made whose rows are split along `a`: parameters, and the operation with its operands' types."""

TAKERS = {
    "product": ("%w: tensor<16x64xf32>", "16x64", '{}, {"a"}',
                "stablehlo.dot_general %w, %z, contracting_dims = [1] x [0] : (tensor<16x64xf32>, tensor<64x64xf32>)"),
    "tanh": ("", "64x64", '{}, {"a"}', "stablehlo.tanh %z : (tensor<64x64xf32>)"),
    "add": ("%w: tensor<64x64xf32>", "64x64", '{}, {"a"}', "stablehlo.add %z, %w : (tensor<64x64xf32>, tensor<64x64xf32>)"),
    "reduce": ("", "64", '{"a"}',
               "stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x64xf32>, tensor<f32>)"),
    "broadcast": ("", "4x64x64", '{}, {}, {"a"}', "stablehlo.broadcast_in_dim %z, dims = [1, 2] : (tensor<64x64xf32>)"),
    "pad": ("", "72x64", '{}, {"a"}',
            "stablehlo.pad %z, %zero, low = [0, 0], high = [8, 0], interior = [0, 0] : (tensor<64x64xf32>, tensor<f32>)"),
    "slice": ("", "32x64", '{}, {"a"}', "stablehlo.slice %z [0:32, 0:64] : (tensor<64x64xf32>)"),
    "reverse": ("", "64x64", '{}, {"a"}', "stablehlo.reverse %z, dims = [0] : (tensor<64x64xf32>)"),
    "concatenate": ("%w: tensor<64x64xf32>", "128x64", '{}, {"a"}',
                    "stablehlo.concatenate %z, %w, dim = 0 : (tensor<64x64xf32>, tensor<64x64xf32>)"),
    "reshape": ("", "8x8x64", '{}, {}, {"a"}', "stablehlo.reshape %z : (tensor<64x64xf32>)"),
    "transpose": ("", "64x64", '{"a"}, {}', "stablehlo.transpose %z, dims = [1, 0] : (tensor<64x64xf32>)"),
    "dynamic slice": ("%j: tensor<i32>", "8x64", '{}, {"a"}',
                      "stablehlo.dynamic_slice %z, %j, %i0, sizes = [8, 64] : (tensor<64x64xf32>, tensor<i32>, tensor<i32>)"),
    "update": ("%j: tensor<i32>, %v: tensor<8x64xf32>", "64x64", '{}, {"a"}',
               "stablehlo.dynamic_update_slice %z, %v, %j, %i0 : (tensor<64x64xf32>, tensor<8x64xf32>, tensor<i32>, tensor<i32>)"),
    "gather": ("%h: tensor<32xi32>", "32x64", '{}, {"a"}',
               f'"stablehlo.gather"(%z, %h) {_ROWS} : (tensor<64x64xf32>, tensor<32xi32>)'),
    "window": ("", "64x64", '{}, {"a"}',
               '"stablehlo.reduce_window"(%z, %zero) <{padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>, '
               f"window_dimensions = array<i64: 3, 1>}}> {_ADD} : (tensor<64x64xf32>, tensor<f32>)"),
}
"""What takes it: further parameters, the shape of the result, how that lies, and the operation."""


def pairs() -> Iterator[tuple[str, str]]:
    """Each of the one with each of the other, the value being used by that alone, or being a result, too."""
    for made, (params, maker) in MAKERS.items():
        for taken, (more, shape, dims, taker) in TAKERS.items():
            for returned in (False, True):
                names, types = ("%r, %z", f"tensor<{shape}xf32>, tensor<64x64xf32>") if returned else ("%r", f"tensor<{shape}xf32>")
                results = f"tensor<{shape}xf32> {_given(dims)}" + (", tensor<64x64xf32>" if returned else "")
                given = ", ".join(filter(None, (params, more)))
                yield f"{made}, {taken}" + (", a result" if returned else ""), f"""sdy.mesh @mesh = <["a"=4, "b"=2]>
func.func @main({given}) -> ({results}) {{
%zero = stablehlo.constant dense<0.0> : tensor<f32>
%i0 = stablehlo.constant dense<0> : tensor<i32>
%z = {maker} -> tensor<64x64xf32>
%r = {taker} -> tensor<{shape}xf32>
return {names} : {types}
}}"""


AXES = ('"a"', '"a", "b"', '"b", "a"', '"c"', '"c":(1)2', '"a", "c"', '"c":(1)2, "a"', '"c":(1)2, "b"')
"""Lists of axes, of which most pairs have some in common; with a=2, b=2, c=4."""

JOINED = {
    "product": ("64x16", "{%s}, {}", "{%s}, {}", "64x64", "stablehlo.dot_general %x, %y, contracting_dims = [1] x [1]"),
    "batched product": ("8x64x64", "{%s}, {}, {}", "{}, {%s}, {}", "8x64x64", "stablehlo.dot_general %x, %y, "
                        "batching_dims = [0] x [0], contracting_dims = [2] x [1]"),
    "maximum": ("64x64", "{%s}, {}", "{}, {%s}", "64x64", "stablehlo.maximum %x, %y"),
    "maximum, columns first": ("64x64", "{}, {%s}", "{%s}, {}", "64x64", "stablehlo.maximum %x, %y"),
    "concatenate": ("8x8x8", "{%s}, {}, {}", "{}, {%s}, {}", "8x8x16", "stablehlo.concatenate %x, %y, dim = 2"),
}
"""Operations of two operands of one type, how these lie, the shape of the result, and the operation."""


def joined() -> Iterator[tuple[str, str]]:
    """Two operands, each with a dimension that is split along one of the lists of axes."""
    for name, (shape, of_x, of_y, result, operation) in JOINED.items():
        for x, y in product(AXES, repeat=2):
            types = f"tensor<{shape}xf32>, tensor<{shape}xf32>"
            given = f"%x: tensor<{shape}xf32> {_given(of_x % x)}, %y: tensor<{shape}xf32> {_given(of_y % y)}"
            yield f"{name}: {x} and {y}", f"""sdy.mesh @mesh = <["a"=2, "b"=2, "c"=4]>
func.func @main({given}) -> tensor<{result}xf32> {{
%r = {operation} : ({types}) -> tensor<{result}xf32>
return %r : tensor<{result}xf32>
}}"""


MEMBERS = ('[{"a", ?}, {?}]', '[{?}, {"b", ?}]', '[{"b", ?}, {?}]', '[{?}, {"a", ?}]', '[{"a"}, {?}]', '[{"a"}, {}]',
           '[{}, {"b", ?}]', '[{"a", "b", ?}, {?}]', '[{"a", ?}p1, {?}]')
"""How a member of a group may be said to lie."""


def grouped() -> Iterator[tuple[str, str]]:
    """Two members of a group, of which both are used, or the first alone."""
    for x, y in product(MEMBERS, repeat=2):
        given = ", ".join(f"%{name}: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, {said}>}}"
                          for name, said in {"x": x, "y": y}.items())
        for used in ("xy", "x"):
            lines = [f"%r{name} = stablehlo.tanh %{name} : tensor<8x8xf32>" for name in used]
            types = ", ".join(["tensor<8x8xf32>"] * len(used))
            yield f"{x} and {y}, {' and '.join(used)} used", "\n".join((
                'sdy.mesh @mesh = <["a"=2, "b"=2, "c"=4]>', f"func.func @main({given}) -> ({types}) {{",
                *(f"sdy.sharding_group %{name} group_id=1 : tensor<8x8xf32>" for name in "xy"), *lines,
                f"return {', '.join(f'%r{name}' for name in used)} : {types}", "}"))
