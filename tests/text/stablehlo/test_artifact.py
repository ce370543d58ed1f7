"""Portable artifacts that are written: the same graph when read again, here and by StableHLO's own library."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from deepx_graph.cli.main import main as cli
from deepx_graph.errors import Source, UsageError, VerifyError
from deepx_graph.ir import Module
from deepx_graph.session.report.diff import diff
from deepx_graph.text import decode_source, encode, open_source, read, write
from deepx_graph.text.stablehlo.bytecode.bytes import ByteReader
from deepx_graph.text.stablehlo.bytecode.encoding import signed, varint
from deepx_graph.text.stablehlo.printer.legal import STABLEHLO_ALONE
from deepx_graph.text.stablehlo.printer.module import write as write_text
from tests.support.binary_corpus import VARIABLE
from tests.support.jax_corpus import JAX, files, needs_corpus
from tests.support.stablehlo_suite import ADD
from tests.support.xla_texts import CONVOLUTION, LOOP, REDUCE

OWN = {"add": (ADD, "stablehlo"), "reduce": (REDUCE, "stablehlo"), "loop": (LOOP, "hlo"), "convolution": (CONVOLUTION, "hlo")}


def said(module: Module) -> Module:
    """What an artifact of the module says, as text does: StableHLO alone."""
    return read(Source("t", write_text(module, STABLEHLO_ALONE)), "stablehlo").module


def back(data: bytes) -> Module:
    return read(decode_source(data, "artifact", 1 << 28)).module


def same(a: Module, b: Module) -> bool:
    return not list(diff(a, b).lines())


@pytest.mark.parametrize("name", OWN)
def test_an_artifact_is_read_as_the_graph_that_was_written(name: str) -> None:
    text, format = OWN[name]
    module = read(Source(name, text), format).module
    assert same(said(module), back(encode(module, "mlirbc")))


CALL = """func.func public @main(%arg0: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0:2 = "stablehlo.custom_call"(%arg0) {call_target_name = "unknown", \
mhlo.backend_config = {flag = true, mode = 65 : ui8, name = "n"}, mhlo.frontend_attributes = {batches = "0"}, \
operand_layouts = [dense<[0, 1]> : tensor<2xindex>], \
output_operand_aliases = \
[#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], \
result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]} : (tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<i32>)
  return %0#0 : tensor<4x3xf32>
}
"""


def test_what_a_call_of_a_library_says_is_kept() -> None:
    """Configurations, layouts, aliases; read from an artifact, it is written again, as text and as an artifact."""
    first = back(encode(read(Source("t", CALL), "stablehlo").module, "mlirbc"))
    for again in (first, back(encode(first, "mlirbc"))):
        call = next(line for line in write_text(again, STABLEHLO_ALONE).splitlines() if "custom_call" in line)
        assert call.partition(" loc(")[0].partition("=")[2] == CALL.splitlines()[1].partition("=")[2]


SHARDED = """module @m {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func @main(%x: tensor<8x6xf32> {jax.arg = "x", sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}, %y: tensor<6x4xf32>) -> \
(tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {"b"}]>}) {
    %0 = stablehlo.custom_call @foo(%x, %y) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) \
{i=8, j=4, k=6} reduction={k}, custom>} : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
    %1 = stablehlo.add %0, %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a"}p1, {"b", ?}]>]>} : tensor<8x4xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{"a":(1)2, ?}, {}]> : tensor<8x4xf32>
    return %2 : tensor<8x4xf32>
  }
}
"""


def test_shardings_are_kept_wherever_they_stand(tmp_path: Path) -> None:
    """The mesh, of arguments, results, values and constraints, and the rule of a call; jaxlib reads them as they were."""
    module = read(Source("t", SHARDED), "stablehlo").module
    stated = re.findall(r"foo|sdy\.mesh @.*|jax\.arg = ...|#sdy\.\w+<.*?>(?=[}> )])", write_text(module))
    assert len(stated) == 8
    data = encode(module, "mlirbc")
    texts = [write_text(back(data))]
    if VARIABLE in os.environ:
        (tmp_path / "m.mlirbc").write_bytes(data)
        subprocess.run([os.environ[VARIABLE], "-c", READER, str(tmp_path)], check=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
        texts.append(write_text(read(open_source(tmp_path / "m.mlir")).module))
    for text in texts:
        assert [s for s in stated if s not in text] == []


@needs_corpus
@pytest.mark.parametrize("name", sorted(files("stablehlo"))[::4])
def test_artifacts_of_the_corpus_sampled(name: str) -> None:
    module = read(open_source(JAX / name)).module
    again = back(encode(module, "mlirbc"))
    assert same(said(module), again)
    places = [[n.span.place.chain(99) for f in m.functions for n in f.nodes if n.inputs and n.span and n.span.place]
              for m in (said(module), again)]
    assert places[0] == places[1]


@needs_corpus
@pytest.mark.conformance
def test_artifacts_of_the_whole_corpus() -> None:
    """Of both languages."""
    for name in files("hlo", "stablehlo"):
        module = read(open_source(JAX / name)).module
        assert same(said(module), back(encode(module, "mlirbc"))), name


def test_what_has_no_attribute_in_artifacts_is_kept_as_a_note() -> None:
    text = "HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] copy(x) }\n"
    again = back(encode(read(Source("t", text), "hlo").module, "mlirbc"))
    assert [n.attr("role") for n in again.entry.nodes if n.inputs] == ["copy"]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, (1 << 56) - 1, 1 << 56, (1 << 64) - 1])
def test_numbers_come_back(value: int) -> None:
    data = memoryview(varint(value))
    r = ByteReader(Source("t", data=data), data, 0, len(data), "t")
    assert r.varint() == value
    r.done()
    for other in (value >> 1, -(value >> 1)):
        data = memoryview(signed(other))
        assert ByteReader(Source("t", data=data), data, 0, len(data), "t").signed() == other


def test_operations_of_other_dialects_are_refused() -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "my.thing"(%x) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    module = read(Source("t", text), "stablehlo").module
    with pytest.raises(VerifyError, match=r"artifact has no 'my\.thing'"):
        encode(module, "mlirbc")


def test_an_artifact_is_no_text_and_goes_into_a_file(tmp_path: Path) -> None:
    source, target = tmp_path / "a.mlir", tmp_path / "b.mlirbc"
    source.write_text(ADD)
    assert cli(["opt", str(source), "-p", "none", "-o", str(target)]) == 0
    assert same(read(open_source(source)).module, read(open_source(target)).module)
    with pytest.raises(UsageError, match="mlirbc is no text"):
        write(read(open_source(source)).module, "mlirbc")


# --- by StableHLO's own library -----------------------------------------------------------------------------------------

READER = """
import sys
from pathlib import Path
from jax._src.interpreters import mlir
from jaxlib.mlir.dialects import stablehlo
for path in Path(sys.argv[1]).glob("*.mlirbc"):
    module = stablehlo.deserialize_portable_artifact(mlir.make_ir_context(), path.read_bytes())
    module.operation.verify()
    path.with_suffix(".mlir").write_text(module.operation.get_asm())
"""


@needs_corpus
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with jaxlib")
def test_jaxlib_reads_artifacts_as_the_same_graphs(tmp_path: Path) -> None:
    modules = {name: read(open_source(JAX / name)).module for name in files("stablehlo")}
    for name, module in modules.items():
        (tmp_path / f"{name}.mlirbc").write_bytes(encode(module, "mlirbc"))
    subprocess.run([os.environ[VARIABLE], "-c", READER, str(tmp_path)], check=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    assert [n for n, m in modules.items() if not same(said(m), read(open_source(tmp_path / f"{n}.mlir")).module)] == []
