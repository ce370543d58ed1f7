"""The reference: every op is explained with an example that runs, and declarations agree with StableHLO's own table."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.reference import example, facts, markdown, op_text
from deepx_graph.errors import CheckFailed, InferError, RunError, Source
from deepx_graph.ir import Op
from deepx_graph.ops import FAMILY_OF, OPS
from deepx_graph.text import sea
from deepx_graph.types import STATE, STRING, TupleType, type_of_array
from deepx_graph.verify import verify
from tests.support.laws import LAWFUL, samples
from tests.support.paths import SHARED

every_op = pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
shown_op = pytest.mark.parametrize("op", [o for o in OPS.values() if example(o)], ids=lambda op: op.name)
lawful_op = pytest.mark.parametrize("op", LAWFUL, ids=lambda op: op.name)


# --- examples -------------------------------------------------------------------------------------------------------


UNSHOWN = {"feeds", "custom", "parallel", "opaque"}
"""Families that need feeds, functions of the host, several programs, or a reader: not all of theirs run by themselves."""

WITH_PROBES = {"expect_probed"}
"""Ops that look at what another run has probed."""


def test_every_op_that_runs_by_itself_has_an_example() -> None:
    assert {FAMILY_OF[o] for o in OPS.values() if not example(o) and o.name not in WITH_PROBES} <= UNSHOWN


@shown_op
def test_the_example_uses_the_op_and_is_sound(op: Op) -> None:
    text = example(op)
    module = sea.read(Source("example.sea", text)).module
    verify(module)
    assert op in {n.op for f in module.functions for n in f.nodes}
    assert sea.write(module) == text


def inputs_of(program: Any) -> list[Any]:
    rng = np.random.default_rng(1)
    if any(i.type.dtype is STRING for i in program.inputs):
        return [np.full(i.type.shape, "1", np.object_) for i in program.inputs]
    return [np.asarray(rng.uniform(0.5, 1.5, i.type.shape)).astype(i.type.dtype.np) for i in program.inputs]


REFUSES = {"opaque": RunError, **dict.fromkeys(("expect_eq", "expect_almost_eq", "expect_close"), CheckFailed)}
"""What these do of two arrays that differ, and of an op that nobody knows."""


def run(module: dx.Module, data_root: Path) -> None:
    program = dx.compile(module, data_root=data_root, optimize=False)
    program(*inputs_of(program))


@shown_op
def test_the_example_runs(op: Op, tmp_path: Path) -> None:
    dx.compile(dx.loads(example(OPS["save"]), format="sea"), data_root=tmp_path, optimize=False)(np.ones(2, np.float32))
    module = dx.loads(example(op), format="sea")
    if op.name == "string_match":
        pytest.importorskip("re2", reason="google-re2 is not installed")
    if op.name in REFUSES:
        with pytest.raises(REFUSES[op.name]):
            run(module, tmp_path)
        return
    program = dx.compile(module, data_root=tmp_path, optimize=False)
    outs = program(*inputs_of(program))
    assert [type_of_array(np.asarray(o)) for o in outs] == [o.type for o in program.outputs]


@every_op
def test_text_and_data_say_the_same(op: Op) -> None:
    known, text = facts(op), op_text(op)
    json.dumps(known)
    for item in (*known["operands"], *known["attributes"], *known["results"]):
        assert item["name"] in text
    for words in known["constraints"]:
        assert words in text


def test_the_markdown_names_every_op_once() -> None:
    lines = markdown().splitlines()
    assert [s[4:] for s in lines if s.startswith("### ")] == list(OPS)


# --- results --------------------------------------------------------------------------------------------------------


@lawful_op
def test_results_are_what_the_declaration_says(op: Op) -> None:
    for arrays, attrs in samples(op):
        type = op.infer([type_of_array(a) for a in arrays], *op.bind(attrs))
        found = type.items if isinstance(type, TupleType) else (type,)
        declared = op.results * len(found) if op.results[0].variadic else op.results
        assert len(declared) == len(found)
        assert all(r.type.holds(t) for r, t in zip(declared, found, strict=True))


# --- wrong uses -----------------------------------------------------------------------------------------------------


def mutants(value: Any) -> list[Any]:
    """Values of the same form near an attribute value."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [-1, 0, 1, value + 1, 7, 1 << 40]
    if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
        return [(), (*value, 0), (*value, 7), value[:-1], tuple(-1 - v for v in value), tuple(v + 1 for v in value), value[::-1],
                (1 << 40,) * len(value)]
    if isinstance(value, str):
        return ["", "nothing"]
    return []


@lawful_op
def test_wrong_attributes_are_accepted_or_refused_but_never_crash(op: Op) -> None:
    for arrays, attrs in samples(op):
        types = [type_of_array(a) for a in arrays]
        bound = dict(zip(op.attr_index, op.bind(attrs), strict=True))
        for name, value in bound.items():
            for other in mutants(value):
                judge(op, types, {**bound, name: other})


@lawful_op
def test_wrong_operands_are_accepted_or_refused_but_never_crash(op: Op) -> None:
    for arrays, attrs in samples(op):
        types = [type_of_array(a) for a in arrays]
        for k, t in enumerate(types):
            others: list[Any] = [t.with_dims(d) for d in (None, (), (*(t.dims or ()), 2), ("?1",) * len(t.dims or ()))]
            for other in [*others, STATE, TupleType(()), types[0].with_dtype(dx.types.BOOL), t.with_dtype(dx.types.ANY)]:
                judge(op, [*types[:k], other, *types[k + 1 :]], attrs)


def judge(op: Op, types: list[Any], attrs: dict[str, Any]) -> None:
    with contextlib.suppress(InferError):
        op.check_arity(len(types))
        op.infer(types, *op.bind(attrs))


@every_op
def test_what_is_no_tensor_is_refused_where_one_is_asked_for(op: Op) -> None:
    for operand in op.operands:
        if operand.type.holds(STATE):
            continue
        assert not operand.type.holds(TupleType(())) or "tuple" in operand.type.words
        assert operand.type.words


# --- StableHLO's own table --------------------------------------------------------------------------------------------

ODS = SHARED / "suites" / "stablehlo" / "ods.json"

DROPPED = {"result_accuracy", "precision_config", "algorithm", "indices_are_sorted", "unique_indices"}
"""Attributes of the dialect that allow a compiler to be less exact, or promise what need not be known: no bearing on meaning."""

TYPED = {"dtype", "shape"}
"""Attributes of ours that say what the dialect reads from the type of the result."""

SPLIT = {
    "padding": {"padding_low", "padding_high"},
    "dot_dimension_numbers": {f"{side}_{kind}_dimensions" for side in ("lhs", "rhs") for kind in ("batching", "contracting")},
    "dimension_numbers": None,
    "scatter_dimension_numbers": None,
}
"""Attributes of the dialect that hold several: ours are its members (of the last two, all that the op has beside the others)."""

OTHERWISE = {
    "map": "dimensions are all axes in order, as the dialect asks",
    "compare": "the op's name before the attribute's adds nothing: direction",
    "torch_index_select": "batch_dims is 0: reading lowers other uses to gather",
}
"""Ops that differ in another way, and why. Beside them UNSHOWN and collectives: one op serves both dialects."""


ONE_OF_SEVERAL = {"collective_permute", "reduce_scatter", "collective_reduce"}
"""HLO takes several operands where the dialect has one, so ours are `operands`, and variadic."""


def table() -> dict[str, Any]:
    if not ODS.exists():
        pytest.skip("StableHLO's table of operations is not there")
    return {name.removeprefix("stablehlo."): op for name, op in json.loads(ODS.read_text()).items()}


def test_operands_attributes_and_results_are_named_as_in_stablehlo() -> None:
    wrong = []
    shared = {n: (OPS[n], d) for n, d in table().items() if n in OPS and OPS[n].source.startswith("StableHLO")}
    for name, (op, dialect) in shared.items():
        operands = [o["name"] for o in dialect["operands"] if o["name"] != "token"]
        if name not in ONE_OF_SEVERAL and operands != [o.name for o in op.operands if o.name != "state"]:
            wrong.append(f"{name}: operands")
        named = [r["name"] for r in dialect["results"]]
        if None not in named and op.operand_names.isdisjoint({"state"}) and named != [r.name for r in op.results]:
            wrong.append(f"{name}: results {named}")
        if name not in OTHERWISE and FAMILY_OF[op] not in {*UNSHOWN, "collective"} and not attributes_agree(op, dialect):
            wrong.append(f"{name}: attributes {[a['name'] for a in dialect['attrs']]}")
    assert not wrong
    assert len(shared) > 70
    assert set(OTHERWISE) <= set(shared)


def attributes_agree(op: Op, dialect: dict[str, Any]) -> bool:
    theirs = {a["name"] for a in dialect["attrs"]} | set(dialect["regions"])
    ours = {a.name for a in op.attrs} - TYPED
    for whole in sorted(theirs & set(SPLIT), key=lambda w: SPLIT[w] is None):
        parts = SPLIT[whole] or ours - theirs
        if not parts <= ours:
            return False
        theirs, ours = theirs - {whole}, ours - parts
    return theirs - DROPPED == ours


def test_variadic_operands_are_those_of_stablehlo() -> None:
    for name, dialect in table().items():
        if name in OPS and OPS[name].source.startswith("StableHLO") and name not in ONE_OF_SEVERAL:
            theirs = [bool({"Variadic", "Optional"} & set(o["mod"])) for o in dialect["operands"] if o["name"] != "token"]
            assert [not o.single for o in OPS[name].operands if o.name != "state"] == theirs, name
