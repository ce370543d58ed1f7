"""Tensors of texts: operations by plain Python on every engine; written, read back and drawn; refused where there are none."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Op
from deepx_graph.literal import Literal
from deepx_graph.ops import FAMILIES, OPS, concatenate, reshape, transpose
from deepx_graph.ops.tensor import strings
from deepx_graph.text import formats
from deepx_graph.types import F32, I64, STRING, tensor, type_of_array
from tests.support.laws import one_op, samples

A = np.array([["ab", "", "naïve"], ["x y", "<b>", '"[,']], np.object_)
B = np.array(["ab", "c", "naïve"], np.object_)


def texts(*values: str) -> Literal:
    return Literal(np.array(values, np.object_))


HERE = [op for op in FAMILIES["strings"] if op.name != "string_match" or find_spec("re2")]
"""Those whose libraries are installed."""


@pytest.mark.parametrize("op", HERE, ids=lambda op: op.name)
def test_infer_agrees_with_eval_and_text_with_the_graph(op: Op) -> None:
    count = 0
    for arrays, attrs in samples(op):
        values = op.bind(attrs)
        found = op.eval(list(arrays), *values)  # type: ignore[misc]
        assert type_of_array(found) == op.infer([type_of_array(a) for a in arrays], *values)
        module = Module((one_op(op, arrays, attrs),), "law")
        assert dx.dumps(dx.loads(dx.dumps(module, "sea")), "sea") == dx.dumps(module, "sea")
        for engine in ("numpy", "numexpr", "auto"):
            (again,) = dx.compile(pickle.loads(pickle.dumps(module)), engine=engine)(*arrays)
            assert again.dtype == found.dtype and again.tolist() == found.tolist()
        count += 1
    assert count


def value(op: Op, *arrays: Any, **attrs: Any) -> Any:
    return op.eval([np.asarray(a) for a in arrays], *op.bind(attrs)).tolist()  # type: ignore[misc]


def test_what_the_operations_mean() -> None:
    row = np.array(["a", "b"], np.object_)
    assert value(strings.string_equal, row, np.array("b", np.object_)) == [False, True]
    assert value(strings.string_concat, row, np.array("é", np.object_)) == ["aé", "bé"]
    assert value(strings.string_index, row, table=texts("b", "c", "b")) == [-1, 0]
    if find_spec("re2"):
        assert value(strings.string_match, np.array(["a@b.org", "a@b"], np.object_), pattern=r"\w+@b\.org") == [True, False]
    said = np.array(["Über Montag hin", "montag"], np.object_)
    assert value(strings.string_normalize, said, case="UPPER", stopwords=texts("montag"), case_sensitive=False) == ["UBER HIN", ""]
    assert value(strings.string_normalize, said, case="LOWER", stopwords=texts("montag")) == ["uber montag hin", ""]
    assert value(strings.string_to_number, np.array(["-1.5e3", "NaN"], np.object_), dtype=F32)[0] == -1500.0
    assert value(strings.string_to_number, np.array(["9223372036854775807"], np.object_), dtype=I64) == [2**63 - 1]
    assert value(strings.number_to_string, np.array([0.1, 3], np.float32)) == ["0.1", "3.0"]


@pytest.mark.parametrize("text", ["", "one", "1e", "9" * 5000, "9223372036854775808"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(dx.RunError, match="is no i64"):
        value(strings.string_to_number, np.array([text], np.object_), dtype=I64)


def test_texts_grow_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "MAX_CHARACTERS", 10)
    with pytest.raises(dx.LimitError, match="texts of 12 characters"):
        value(strings.string_concat, np.array(["abcdef"], np.object_), np.array(["ghijkl"], np.object_))


def moved() -> Module:
    b = Builder()
    x = b.param(0, tensor(STRING, (2, 3)), "x")
    turned = b(transpose, b(concatenate, x, b.constant(A), dimension=0), permutation=(1, 0))
    return Module((Function("main", (x,), (b(reshape, turned, shape=(12,)),), ("y",)),))


@pytest.mark.parametrize("given", [A, A.astype(str)], ids=["objects", "fixed width"])
def test_texts_are_moved_as_other_elements(given: Any) -> None:
    (found,) = dx.compile(moved())(given)
    assert found.tolist() == np.concatenate([A, A]).T.reshape(12).tolist()


def test_what_is_no_text_is_refused_as_an_input() -> None:
    with pytest.raises(dx.RunError, match="input 'x' holds an object, NoneType"):
        dx.compile(moved())(np.array([["a", "b", None]] * 2, np.object_))
    with pytest.raises(dx.RunError, match="is an f64"):
        dx.compile(moved())(np.ones((2, 3)))


@pytest.mark.parametrize("language", [n for n, f in formats.FORMATS.items() if f.writes])
def test_a_language_without_texts_says_so(language: str) -> None:
    if language in ("sea", "anf", "cps", "onnx", "onnxtxt"):
        assert formats.encode(moved(), language)
        return
    with pytest.raises(dx.VerifyError, match="string"):
        formats.encode(moved(), language)


def test_equal_texts_are_one_constant_and_others_are_not() -> None:
    assert texts("a", "b") == texts("a", "b") and hash(texts("a", "b")) == hash(texts("a", "b"))
    assert texts("a", "b") != texts("ab", "") and texts("a", "a").splat_value is None
    assert OPS["string_equal"] in FAMILIES["strings"]
