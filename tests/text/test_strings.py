"""Strings with everything that a text may give a meaning of its own come back as they were, or are refused."""
# ruff: noqa: E501

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.ir import Builder, Data, Module, Node
from deepx_graph.ops import custom_call, expect_almost_eq, expect_close, expect_eq, print_, save
from deepx_graph.text import read, write
from deepx_graph.types import F32, STATE, TupleType, scalar, tensor

STRINGS = ["plain", 'a "word"', "back\\slash", "\\", '"', 'both \\" of them', "ends in \\", "a\nline\tand more", "é – 漢", "%d {0} $x", "/* no */ // end",
           "}], x = {", "\x00\x1b[31m", "' ' `", "\\n \\22 \\5C", ""]  # fmt: skip
VECTOR = tensor(F32, (3,))
b = Builder()


def again(module: Module, language: str) -> Module | None:
    try:
        text = write(module, language)
    except DeepxGraphError:
        return None
    return read(Source("again", text), language).module


def found(module: Module, op: Any) -> list[tuple[Any, ...]]:
    return [n.attrs for f in module.functions for n in f.nodes if n.op is op]


@pytest.mark.parametrize("language", ["sea", "anf", "hlo", "stablehlo"])
def test_targets_and_configurations_of_custom_calls(language: str) -> None:
    read_back = 0
    for text in STRINGS:
        attrs = {"target": text or "t", "types": TupleType((VECTOR,)), "backend_config": text}
        module = Module((b.function("main", [("x", VECTOR)], lambda x, attrs=attrs: [b(custom_call, x, **attrs)]),))
        back = again(module, language)
        if back is not None:
            (given,), (made,) = found(module, custom_call), found(back, custom_call)
            assert made[:3] == given[:3], text
            read_back += 1
    assert read_back >= 10, "most are written"


@pytest.mark.parametrize("language", ["sea", "anf", "deepx"])
def test_formats_and_paths(language: str) -> None:
    read_back = 0
    for text in STRINGS:
        def body(x: Node, state: Node, text: str = text) -> list[Node]:
            return [b(save, b(print_, state, x, format=text), x, path=text or "p")]

        module = Module((b.function("main", [("x", VECTOR), ("state", STATE)], body),))
        back = again(module, language)
        if back is not None:
            assert (found(back, print_), found(back, save)) == (found(module, print_), found(module, save)), text
            read_back += 1
    assert read_back >= (4 if language == "deepx" else len(STRINGS))


@pytest.mark.parametrize("language", ["sea", "anf"])
def test_names_and_attributes_of_functions(language: str) -> None:
    for text in STRINGS:
        name = text or "f"
        inner = b.function(name, [("x", VECTOR)], lambda x: [x], public=False).with_(attributes=(("said", text), (name, "so")))
        main = b.function("main", [(name, VECTOR)], lambda x, inner=inner: b.call(inner, x))
        module = Module((main, inner))
        back = again(module, language)
        assert back is not None
        assert [(f.name, f.public, f.attributes, [p.name for p in f.params]) for f in back.functions] == [
            (f.name, f.public, f.attributes, [p.name for p in f.params]) for f in module.functions]


@pytest.mark.parametrize("language", ["sea", "anf", "relay"])
def test_data_that_is_declared_elsewhere_stays_so(language: str) -> None:
    for extern in (False, True):
        module = Module((b.function("main", [("x", VECTOR)], lambda x: [x]),), datas=(Data("Tree", ("A",), (), extern=extern),))
        back = again(module, language)
        assert back is not None and back.datas == module.datas


@pytest.mark.parametrize("language", ["sea", "anf", "stablehlo"])
def test_checks_keep_how_near_is_near(language: str) -> None:
    def body(x: Node, y: Node, state: Node) -> list[Node]:
        state = b(expect_almost_eq, b(expect_eq, state, x, y), x, y, tolerance=0.1)
        return [b(expect_close, b(expect_close, state, x, y, max_ulp_difference=7, min_ulp_difference=2), x, y, max_ulp_difference=5)]

    module = Module((b.function("main", [("x", VECTOR), ("y", VECTOR), ("state", STATE)], body),))
    back = again(module, language)
    assert back is not None
    for op in (expect_eq, expect_almost_eq, expect_close):
        assert found(back, op) == found(module, op)


@pytest.mark.parametrize("language", ["sea", "anf"])
def test_special_floats_as_attributes(language: str) -> None:
    """To the last bit, NaN with what it says."""
    payload = float(np.array(0x7FF8000000000123, np.uint64).view(np.float64))
    for value in (float("inf"), -0.0, 0.1, 5e-324, 1.7976931348623157e308, float("nan"), payload):
        def body(x: Node, state: Node, value: float = value) -> list[Node]:
            return [b(expect_almost_eq, state, x, x, tolerance=value)]

        back = again(Module((b.function("main", [("x", scalar(F32)), ("state", STATE)], body),)), language)
        assert back is not None
        ((got,),) = found(back, expect_almost_eq)
        assert np.float64(got).tobytes() == np.float64(value).tobytes()


def test_text_of_users_in_notes_is_kept_in_hlo() -> None:
    """A configuration as XLA has it, with quotes and backslashes inside."""
    text = ('HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT c = f32[2] custom-call(x), custom_call_target="a \\"b\\" \\\\c",'
            ' backend_config="{\\"k\\": \\"v\\\\\\\\w\\"}"\n}\n')
    module = dx.loads(text, "hlo")
    (given,) = found(module, custom_call)
    assert given[0] == 'a "b" \\c'
    back = again(module, "hlo")
    assert back is not None and found(back, custom_call) == [given]
