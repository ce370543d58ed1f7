"""The table of the XLA dialect: operations are the same in both syntaxes, with the standards' names; attribute values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from deepx_graph import ops
from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.ir import Builder, Module, Op
from deepx_graph.session.report.diff import diff
from deepx_graph.text import ReadOptions, hlo, stablehlo
from deepx_graph.text.hlo.printer.ops import LACKING
from deepx_graph.text.xla.devices import SPMD
from deepx_graph.text.xla.fields import OperationRow
from deepx_graph.text.xla.hlo_text import AttributeFault, parse_groups, parse_string, string_text
from deepx_graph.text.xla.table import ROWS, TABLE
from deepx_graph.text.xla.windows import Window, parse_dim_labels, parse_padding, parse_slices, parse_window, window_text
from deepx_graph.types import TupleType
from tests.support.laws import LAWFUL, one_op, samples

IN_BOTH = [r for r in TABLE if r.hlo and r.op in LAWFUL
           and r.op not in {*LACKING, ops.broadcast_in_dim, ops.get_dimension_size}]
"""Rows whose every use HLO and MLIR have just so: no op that one of them writes by others."""


def again(language: ModuleType, module: Module) -> Module:
    return language.read(Source("t", language.write(module)), ReadOptions()).module


def alone(op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> Module:
    """A program of one operation, which gives all its results."""
    if op.elementwise:
        arrays = np.broadcast_arrays(*arrays)
    law = one_op(op, arrays, attrs)
    (whole,) = law.results
    return Module((law.with_(results=Builder().items(whole) if isinstance(whole.type, TupleType) else (whole,)),), "law")


@pytest.mark.parametrize("row", IN_BOTH, ids=lambda r: r.op.name)
def test_an_operation_is_the_same_through_either_syntax(row: OperationRow) -> None:
    tried = 0
    for arrays, attrs in samples(row.op):
        module = alone(row.op, arrays, attrs)
        if not all(r.type.rank for r in module.entry.results):
            continue  # some scalars are written as constants
        by_hlo, by_mlir = again(hlo, module), again(stablehlo, module)
        assert list(diff(by_hlo, by_mlir).lines()) == []
        assert list(diff(by_hlo, again(hlo, by_mlir)).lines()) == []
        assert list(diff(by_mlir, again(stablehlo, by_hlo)).lines()) == []
        tried += 1
    assert tried


def test_an_operation_and_a_name_have_one_row() -> None:
    assert len(ROWS) == len(TABLE) + len(SPMD)
    for names in ([r.hlo for r in TABLE if r.hlo], [r.mlir for r in TABLE]):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(("op", "opcode", "name"), [
    (ops.broadcast_in_dim, "broadcast", "stablehlo.broadcast_in_dim"), (ops.dot_general, "dot", "stablehlo.dot_general"),
    (ops.top_k, "topk", "chlo.top_k"), (ops.exponential_minus_one, "exponential-minus-one", "stablehlo.exponential_minus_one"),
    (ops.erf, "erf", "chlo.erf"), (ops.lgamma, "", "chlo.lgamma"), (ops.slice_, "slice", "stablehlo.slice"),
])  # fmt: skip
def test_names_are_those_of_the_two_standards(op, opcode: str, name: str) -> None:
    assert (ROWS[op].hlo, ROWS[op].mlir) == (opcode, name)


def test_mlir_has_the_attributes_of_a_row_in_order() -> None:
    solve = next(s for s in samples(ops.triangular_solve))
    node = one_op(ops.triangular_solve, *solve).results[0]
    assert re.findall(r"(\w+) =", ROWS[ops.triangular_solve].form(node).attributes) == [
        "left_side", "lower", "transpose_a", "unit_diagonal"]
    assert ROWS[ops.triangular_solve].hlo_attributes == ("left_side", "lower", "unit_diagonal", "transpose_a")


# --- values of attributes

def test_windows() -> None:
    w = parse_window("{size=3x2 pad=-1_2x1_-1 lhs_dilate=2x1 rhs_reversal=1x0}")
    assert w == Window((3, 2), (1, 1), (-1, 1), (2, -1), (2, 1), (1, 1), (1, 0))
    assert window_text(w) == "window={size=3x2 pad=-1_2x1_-1 lhs_dilate=2x1 rhs_reversal=1x0}"
    assert window_text(Window((2,), (2,), (0,), (1,), (1,), (3,), (0,))) == "window={size=2 stride=2 pad=0_1 rhs_dilate=3}"
    assert (parse_window(""), window_text(Window())) == (Window(), "")
    for wrong in ("{size=3x}", "{size=3 pad=1}", "{size=3 stride=1x1}", "{size=3 size=3}", "{depth=3}"):
        with pytest.raises(AttributeFault):
            parse_window(wrong)


def test_paddings_and_slices() -> None:
    assert parse_padding("0_1_0x2_0") == ((0, 1, 0), (2, 0, 0))
    assert parse_slices("{[0:7], [1:8:2]}") == ((0, 7, 1), (1, 8, 2))
    with pytest.raises(AttributeFault):
        parse_slices("{[0:7:1:1]}")


def test_groups() -> None:
    assert parse_groups("{{0,1},{2}}") == ((0, 1), (2,))
    assert parse_groups("[2,2]<=[2,2]T(1,0)") == ((0, 2), (1, 3))
    with pytest.raises(AttributeFault):
        parse_groups("[2,2]<=[3]")


@pytest.mark.parametrize(("text", "groups"), [
    ("mesh['a'=2,'b'=1,'c'=4], device_ids=([4,2]T(1,0)) {'a'}", ((0, 1), (2, 3), (4, 5), (6, 7))),
    ("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}", ((3, 1), (2, 0))),
    ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
    ("mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
    ("mesh['a'=4,'b'=2] {}", tuple((d,) for d in range(8))),
])
def test_groups_along_axes_of_a_mesh(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert parse_groups(text) == groups


@pytest.mark.parametrize("text", [
    "mesh['a'=2] {'b'}", "mesh['a'=2,'a'=2] {'a'}", "mesh['a'=2] {'a','a'}", "mesh['a'=0] {'a'}", "mesh['a'=9999999] {'a'}",
    "mesh['a'=2], device_ids=(0,0) {'a'}", "mesh['a'=2], device_ids=([3]) {'a'}", "mesh['a'=2], device_ids=(x) {'a'}",
    "mesh['a'=4] {'a':(0)2}", "mesh['a'=4] {'a':(4)2}", "mesh[] {}"])
def test_groups_of_no_mesh_are_refused(text: str) -> None:
    with pytest.raises(AttributeFault):
        parse_groups(text)


def test_dimension_labels() -> None:
    assert parse_dim_labels("b01f_01io->f0b1") == {
        "input_batch_dimension": 0, "input_feature_dimension": 3, "input_spatial_dimensions": (1, 2),
        "kernel_input_feature_dimension": 2, "kernel_output_feature_dimension": 3, "kernel_spatial_dimensions": (0, 1),
        "output_batch_dimension": 2, "output_feature_dimension": 0, "output_spatial_dimensions": (1, 3),
    }  # fmt: skip
    for wrong in ("b01f_01io", "b01f_01io->b01b", "b02f_01io->b01f"):
        with pytest.raises(AttributeFault):
            parse_dim_labels(wrong)


def test_strings_read_as_they_were_written() -> None:
    assert parse_string(string_text('a "b" c')) == 'a "b" c'
    assert parse_string("bare") == "bare"


@pytest.mark.parametrize(("name", "kind", "host"), [("send", 1, False), ("send", 2, True), ("recv", 1, False), ("recv", 3, True)])
def test_handles_of_channels_say_who_talks_to_whom(name: str, kind: int, host: bool) -> None:
    """StableHLO, `channel_handle`: 1 from device to device, 2 from device to host, 3 from host to device."""
    tensor = "(tensor<2xf32>, !stablehlo.token)"
    given, operands, result, types = {
        "send": ("%x, %t", tensor, "%s", "!stablehlo.token"), "recv": ("%t", "(!stablehlo.token)", "%r:2", tensor)}[name]
    text = f"""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
      %t = stablehlo.create_token : !stablehlo.token
      {result} = "stablehlo.{name}"({given}) <{{channel_handle = #stablehlo.channel_handle<handle = 7, type = {kind}>,
        is_host_transfer = {str(host).lower()}}}> : {operands} -> {types}
      return %x : tensor<2xf32>
    }}"""
    written = stablehlo.write(stablehlo.read(Source("t", text), ReadOptions()).module)
    assert re.findall(r"channel_handle<handle = 7, type = (\d)>", written) == [str(kind)]


WINDOWED = """func.func @main(%a: tensor<2x6x7x3xf32>, %b: tensor<3x3x3x4xf32>) -> tensor<2x6x7x4xf32> {
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {PART}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x6x7x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x6x7x4xf32>
  return %0 : tensor<2x6x7x4xf32>
}"""


@pytest.mark.parametrize("part", [
    "stride = [1, 1e999], pad = [[1, 1], [1, 1]]", "stride = 4", "pad = [[1, 1], [1, 1e999]]", "pad = [[1, 1], [1]]",
    "pad = [[1, 1], 3]", "pad = 3", "pad = [[1, 1], [1, 1]], reverse = [true, 1e30]",
])  # fmt: skip
def test_parts_of_a_window_are_integers(part: str) -> None:
    assert stablehlo.read(Source("t", WINDOWED.replace("PART", "pad = [[1, 1], [1, 1]]")), ReadOptions()).module.entry.results
    with pytest.raises(DeepxGraphError):
        stablehlo.read(Source("t", WINDOWED.replace("PART", part)), ReadOptions())
