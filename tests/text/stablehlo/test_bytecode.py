"""MLIR bytecode: the same graph as the text that it was made from, of every version of VHLO, and bytes that are damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deepx_graph.errors import DeepxGraphError, ParseError, Source
from deepx_graph.ir import Function
from deepx_graph.text import ReadOptions, decode_source, open_source, read
from deepx_graph.text.stablehlo import parsed
from deepx_graph.text.stablehlo.bytecode.bytes import ByteReader
from deepx_graph.text.stablehlo.reader.lower import MlirLowering
from deepx_graph.text.stablehlo.syntax import Operation
from deepx_graph.verify import verify
from tests.support.paths import SHARED

SUITE = SHARED / "suites" / "vhlo"
FUTURE = SUITE / "invalid_vhlo_future.mlir.bc"
TWINS = sorted(p for p in SUITE.glob("*.bc") if p != FUTURE)
needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason="the suite ../shared/suites/vhlo is not here")
LIMIT = 1 << 28


class _Lowering(MlirLowering):
    """One in which what is kept as it stands is kept by its name alone: bytecode has no text."""

    def text(self, op: Operation) -> str:
        return op.name


def functions(path: Path) -> dict[str, Function | str]:
    """The functions of a file by name, each its graph, or why it cannot be one."""
    source = open_source(path)
    program = parsed(source, ReadOptions())
    _original(program.functions)
    lowering = _Lowering(source, program)
    found: dict[str, Function | str] = {}
    for name, op in lowering.syntax.items():
        try:
            found[name] = lowering.function(op)
        except DeepxGraphError as e:
            lowering.depth, lowering.state, found[name] = 0, None, e.diagnostics[0].message
    return found


def _original(operations: list[Operation]) -> None:
    """VHLO writes what the default is, which text may or may not do."""
    for op in operations:
        if getattr(op.attributes.get("api_version"), "value", None) == 1:
            del op.attributes["api_version"]
        for region in op.regions:
            for block in region:
                _original(block.operations)


@needs_suite
@pytest.mark.parametrize("path", TWINS, ids=lambda p: p.name.removeprefix("stablehlo_legalize_to_vhlo."))
def test_bytecode_of_every_version_is_the_graph_of_its_text(path: Path) -> None:
    """Functions that mean nothing here, in either form, are refused for the same reason."""
    told, got = functions(path.with_suffix("")), functions(path)
    assert got == told
    assert sum(isinstance(f, str) for f in told.values()) <= len(told) // 16


@needs_suite
def test_there_are_as_many_versions_as_there_were() -> None:
    assert len(TWINS) == 33


@needs_suite
def test_a_newer_version_is_refused_by_its_name() -> None:
    with pytest.raises(ParseError, match=r"byte 129: error: .*'vhlo\.constant_v99' is of a newer StableHLO") as caught:
        read(open_source(FUTURE))
    assert "StableHLO_v2.0.0" in str(caught.value.diagnostics[0].hint)


@needs_suite
def test_a_program_without_its_end_is_refused_at_every_byte() -> None:
    data = (SUITE / "vhlo_emit_version_api.1_1_0.mlir.bc").read_bytes()
    for end in range(4, len(data)):
        with pytest.raises(ParseError):
            read(decode_source(data[:end], "cut", LIMIT))


@needs_suite
def test_damaged_bytes_are_refused_or_make_a_program() -> None:
    ends = {True: 0, False: 0}
    seeds = [(SUITE / f"stablehlo_legalize_to_vhlo.{v}.mlir.bc").read_bytes() for v in ("0_9_0", "0_12_0", "1_20_0")]
    small = (SUITE / "vhlo_emit_version_api.1_1_0.mlir.bc").read_bytes()
    for k in range(1500):
        rng = random.Random(k)
        data = bytearray(small if k % 10 else rng.choice(seeds))
        for _ in range(rng.choice((1, 2))):
            at = rng.randrange(4, len(data))
            data[at : at + rng.randrange(2)] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 1, 0, 2))))
        try:
            verify(read(decode_source(bytes(data), f"mutant {k}", LIMIT)).module)
            ends[True] += 1
        except DeepxGraphError:
            ends[False] += 1
    assert min(ends.values()) > 20


# --- numbers ----------------------------------------------------------------------------------------------------------


def reader(data: bytes) -> ByteReader:
    return ByteReader(Source("t", data=memoryview(data)), memoryview(data), 0, len(data), "the bytes")


@pytest.mark.parametrize(("data", "value"), [
    ("01", 0), ("03", 1), ("ff", 127), ("0202", 128), ("feff", 16383), ("040002", 16384),
    ("00ffffffffffffffff", (1 << 64) - 1),
])  # fmt: skip
def test_numbers_of_as_many_bytes_as_zeros_end_the_first(data: str, value: int) -> None:
    """The encoding that https://mlir.llvm.org/docs/BytecodeFormat/#variable-width-integers describes."""
    r = reader(bytes.fromhex(data))
    assert r.varint() == value
    assert r.left == 0


@pytest.mark.parametrize(("data", "value"), [("01", 0), ("03", -1), ("05", 1), ("07", -2), ("00ffffffffffffffff", -(1 << 63))])
def test_signed_numbers_have_their_sign_in_the_lowest_bit(data: str, value: int) -> None:
    assert reader(bytes.fromhex(data)).signed() == value


@pytest.mark.parametrize("data", ["", "02", "00ff"])
def test_a_number_that_is_cut_short_is_refused(data: str) -> None:
    with pytest.raises(ParseError, match="bytes are announced and"):
        reader(bytes.fromhex(data)).varint()


def test_a_list_may_not_announce_more_than_there_are_bytes() -> None:
    with pytest.raises(ParseError, match="things are announced"):
        reader(bytes.fromhex("00ffffffffffffff7f")).count()


def test_padding_is_checked() -> None:
    r = reader(bytes.fromhex("01cbcbcb05"))
    r.byte()
    r.align(4)
    assert r.at == 4
    for data, to in (("01cb00cb05", 4), ("01cbcbcb05", 3), ("01cbcbcb05", 0)):
        r = reader(bytes.fromhex(data))
        r.byte()
        with pytest.raises(ParseError):
            r.align(to)
