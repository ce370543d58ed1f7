"""The tests of XLA's own parser: what it takes is read, printed back as it stood and the same graph; what it refuses is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.session.report.diff import diff
from deepx_graph.text import ReadOptions
from deepx_graph.text.hlo import read, write
from deepx_graph.verify import verify
from tests.support.hlo_normal import normal
from tests.support.paths import SHARED

SUITE = SHARED / "suites" / "hlo_parser"

OBSOLETE = {
    "roundtrip_Sparse", "roundtrip_SparseC128", "roundtrip_SparseEmpty", "roundtrip_SparseR1", "roundtrip_OuterDimensionPartitions",
    "error_ConstantF16Overflow", "error_ConstantUnsignedInt64Overflow", "error_ConstantUnsignedUnderflow",
}  # fmt: skip
"""What today's XLA refuses though the suite takes it, or the other way round."""

INCONSISTENT = {
    "roundtrip_ConvolutionR2", "roundtrip_Pad", "roundtrip_PadHasNegativePadding", "roundtrip_TupleReduce", "roundtrip_Dot",
    "ok_AttibutesAnyOrder",
}  # fmt: skip
"""Texts whose shapes are wrong. XLA's parser takes them, as it does not verify; so does this reader, and warns."""

RESHAPED = {
    "a tuple that the entry takes or gives is a value for each leaf": {
        "CustomCallWithHasSideEffect", "CustomCallWithLayoutConstraintsTupleShapes", "ParamReplication", "InfeedOutfeed"},
    "an item is taken from where the tuple was made": {"GetTupleElement"},
    "the values of a constant tuple are constants": {"TupleConstant"},
    "start indices are scalars, as XLA has it today": {"DynamicSlice", "DynamicUpdateSlice"},
    "computations of fusion and map are part of the graph around": {"Fusion", "Map"},
    "a branch has what it uses from outside as its parameter, small constants in itself": {
        "IndexedConditional", "PredicatedConditional"},
    "the state of a loop is a tuple": {"WhileWithScalarS32Result"},
    "in groups of one device, what devices exchange is what they have": {"AllReduceAllReduce"},
    "effects are in one order, that of the text, and tokens are made for it": {
        "AddDependency", "AfterAllWithMultipleOperands", "SendRecv", "SendRecvWithHostTransfer"},
    "what is begun and ended is done at once": {"CopyStartAndCopyDone"},
}  # fmt: skip
"""Texts that print back in other words, by reason. They read again as the same graph like all others."""

needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason="the suite ../shared/suites/hlo_parser is not here")


def suite(*kinds: str) -> list[str]:
    """The cases of these kinds, obsolete ones left out."""
    if not SUITE.is_dir():
        return []
    rows = {Path(row[0]).stem: row[1] for row in json.loads((SUITE / "index.json").read_text())}
    return [name for name, kind in rows.items() if kind in kinds and name not in OBSOLETE]


def source(name: str) -> Source:
    return Source(name, (SUITE / f"{name}.hlo").read_text())


@needs_suite
@pytest.mark.parametrize("name", suite("roundtrip", "ok"))
def test_what_xla_takes_is_read_and_written_as_the_same_graph(name: str) -> None:
    found = read(source(name), ReadOptions())
    assert bool(found.warnings) == (name in INCONSISTENT)
    verify(found.module)
    text = write(found.module)
    again = read(Source("again", text), ReadOptions()).module
    assert list(diff(found.module, again).lines()) == []
    assert write(again) == text


@needs_suite
@pytest.mark.parametrize("name", suite("roundtrip"))
def test_what_xla_prints_back_is_printed_back_as_it_stood(name: str) -> None:
    text = source(name).text
    same = normal(write(read(source(name), ReadOptions()).module)) == normal(text)
    reason = next((r for r, names in RESHAPED.items() if name.removeprefix("roundtrip_") in names), "")
    assert same != bool(reason)
    if reason:
        pytest.xfail(reason)


@needs_suite
@pytest.mark.parametrize("name", suite("error"))
def test_what_xla_refuses_is_refused_with_its_location(name: str) -> None:
    with pytest.raises(DeepxGraphError) as failure:
        read(source(name), ReadOptions())
    assert failure.value.diagnostics[0].span is not None
