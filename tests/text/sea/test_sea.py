"""The sea form: what is written reads back exactly, for programs of every kind; what is wrong is said at its place."""

from __future__ import annotations

import math
import random
import struct
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepx_graph.errors import DeepxGraphError, LimitError, ParseError, Source, UsageError, VerifyError
from deepx_graph.ir import Attr, Builder, Function, Module, Node, Op, Origin, fresh_loop
from deepx_graph.ir.structure import LOOP_BEGIN, PARTIAL
from deepx_graph.literal import Literal
from deepx_graph.ops import add, fusion, load, print_, reduction
from deepx_graph.text import ReadOptions, sea
from deepx_graph.types import (
    ANY,
    DTYPES,
    F32,
    I32,
    STATE,
    FunctionType,
    RefType,
    TupleType,
    Type,
    scalar,
    tensor,
)
from deepx_graph.verify import verify
from tests.support.generate import random_module

X = tensor(F32, (2, 3))


def read(text: str, **options: Any) -> Module:
    return sea.read(Source("t.sea", text), ReadOptions(**options)).module


def again(m: Module) -> Module:
    """The module after writing and reading; all that the form promises to keep is compared."""
    text = sea.write(m)
    assert text.isascii()
    back = read(text)
    assert back.entry_name == m.entry_name
    assert [f.structure for f in back.functions] == [f.structure for f in m.functions]
    for f, g in zip(m.functions, back.functions, strict=True):
        assert (f.name, f.public, f.vjp) == (g.name, g.public, g.vjp)
        assert [p.name for p in f.params] == [p.name for p in g.params]
        assert [f.result_name(k) for k in range(len(f.results))] == [g.result_name(k) for k in range(len(g.results))]
        assert [n.name for n in f.nodes] == [n.name for n in g.nodes]
    assert sea.write(back) == text
    return back


def constants(*values: Any) -> Module:
    b = Builder()
    return Module((Function("main", (), tuple(b.literal(Literal(v)) for v in values)),))


@pytest.mark.parametrize("seed", range(60))
def test_generated_programs_read_back(seed: int) -> None:
    verify(again(random_module(random.Random(seed))))


# --- names ---------------------------------------------------------------------------------------------------------

HOSTILE = ["t3", "0", "a b", 'say "x"', "we\u001bird", "bidi \u202e mark", "\\", "new\nline", "%t", "#1", "t#1", "", "é", "a,b",
           "{", "//", "func", "return", "\ud800", "[bold]x[/]", "__import__('os')"]  # fmt: skip


def test_hostile_names_of_values_functions_and_results_are_kept() -> None:
    b = Builder()
    params = tuple(b.param(k, X, name) for k, name in enumerate(HOSTILE))
    nodes = tuple(Node(add, (p, p), (), X, Origin(p.name)) for p in params)
    functions = [Function(name or "main", params, nodes, tuple(HOSTILE[::-1])) for name in HOSTILE]
    again(Module(tuple(functions), HOSTILE[3]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=6), min_size=1, max_size=4), st.text(max_size=8))
def test_any_text_is_a_name(names: list[str], path: str) -> None:
    b = Builder()
    params = [b.param(k, X, n) for k, n in enumerate(names)]
    s = b.param(len(names), STATE, "state")
    again(Module((Function("f", (*params, s), (*params, b(print_, s, params[0], format=path))),), "f"))


def test_equal_names_stay_apart() -> None:
    b = Builder()
    x = b.param(0, X, "t")
    y = Node(add, (x, x), (), X, Origin("t"))
    z = Node(add, (y, x), (), X, Origin("t"))
    assert "%t#2 = add %t#1, %t : f32[2,3]" in sea.write(Module((Function("main", (x,), (z,)),)))
    again(Module((Function("main", (x,), (z,)),)))


def test_the_text_looks_as_documented() -> None:
    b = Builder()
    f = b.function("main", [("x", X)], lambda x: [b(add, x, b.splat(1.5, X))], result_names=("out",))
    assert sea.write(Module((f,))) == (
        "sea 1\n"
        "entry @main\n"
        "func public @main(%x: f32[2,3]) -> (%out: f32[2,3]) {\n"
        "  %0 = constant dense<1.5> : f32[2,3]\n"
        "  %1 = add %x, %0 : f32[2,3]\n"
        "  return %1\n"
        "}\n"
    )


# --- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.np is not None], ids=str)
def test_literals_of_every_dtype_keep_their_bits(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, (6, dtype.itemsize), np.uint8)
    if dtype.kind == "bool":
        raw &= 1
    if dtype.bits < 8:
        count = 1 << dtype.bits
        raw = (raw % count - count // 2 if dtype.kind == "int" else raw % count).astype(np.uint8)
    bits = raw.view(dtype.np).reshape(2, 3)
    again(constants(bits, bits[0, 0], np.zeros((2, 3), dtype.np), np.ones((), dtype.np), np.zeros((0, 2), dtype.np), bits[:1]))


def test_special_floats_and_large_numbers() -> None:
    f32 = np.array([0.1, -0.0, math.inf, -math.inf, 1e-45, 3.4028235e38], np.float32)
    payload = np.array([0x7FC00001, 0xFFC00000, 0x7FC00000], np.uint32).view(np.float32)
    many = np.arange(1000, dtype=np.float64).reshape(10, 100) / 3
    again(constants(f32, payload, payload[1], many, np.array([2**63 - 1, -(2**63)]), np.array([2**64 - 1], np.uint64),
                    np.array([complex(math.nan, -0.0), 1 - 2j]), np.array([0.1, 448], ml_dtypes.float8_e4m3fn)))


def test_a_large_splat_takes_no_room() -> None:
    big = Literal.splat(2, tensor(F32, (1 << 20, 1 << 20)))
    text = sea.write(Module((Function("main", (), (Builder().literal(big),)),)))
    assert "dense<2.0> : f32[1048576,1048576]" in text
    assert read(text).entry.results[0].attrs[0] == big


TYPES: list[Type] = [tensor(F32, ("?1", 3, "n+1", "odd name", "3", "*", "", '"')), tensor(F32, None), tensor(ANY, None),
                     scalar(I32), STATE, TupleType(()), TupleType((X, TupleType((STATE, X)))), RefType(X), FunctionType((), ()),
                     FunctionType((FunctionType((X,), ()), X), (RefType(scalar(I32)),))]  # fmt: skip


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_types_read_back(type: Type) -> None:
    b = Builder()
    x = b.param(0, type, "x")
    again(Module((Function("main", (x,), (x, x)),)))
    signature = FunctionType((type,), (type, X))
    again(Module((b.function("main", [("x", type)], lambda x: [b(PARTIAL, x, callee="main", signature=signature)]),)))


BAG = Op("bag", "A node with any value.", attrs=(Attr("value", "any", None),), infer=lambda types, value: X)

NUMBERS = st.one_of(st.integers(-(2**100), 2**100), st.booleans(), st.none(), st.text(max_size=5),
                    st.floats(allow_nan=False).map(float))  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.recursive(NUMBERS, lambda s: st.lists(s, max_size=3).map(tuple), max_leaves=8))
def test_any_attribute_value_reads_back(value: Any) -> None:
    from deepx_graph.ops import OPS

    OPS["bag"] = BAG
    try:
        back = read(sea.write(Module((Function("main", (), (Node(BAG, (), (value,), X),)),))))
    finally:
        del OPS["bag"]
    found = back.entry.results[0].attrs[0]
    assert repr(found) == repr(value)  # tells -0.0 from 0.0, True from 1, a dtype from its name


def test_floats_that_are_no_number_keep_their_bits() -> None:
    from deepx_graph.text.sea.words import float_of, float_text

    for bits in (0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000000, 0x8000000000000000):
        value = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
        assert struct.pack(">d", float_of(float_text(value))) == bits.to_bytes(8, "big")


def test_what_has_no_text_form_is_refused() -> None:
    with pytest.raises(UsageError, match="'value' has no text form"):
        sea.write(Module((Function("main", (), (Node(BAG, (), (frozenset([1]),), X),)),)))


# --- graphs --------------------------------------------------------------------------------------------------------


def test_parameters_made_late_or_out_of_order() -> None:
    b = Builder()
    one = b.constant(1, I32)
    y, x = b.param(1, X, "y"), b.param(0, X, "x")
    again(Module((Function("main", (x, y), (b(add, x, y), one)),)))


def test_loops_of_one_identity_stay_so_and_others_do_not() -> None:
    b = Builder()
    x = b.param(0, X, "x")
    n, m = fresh_loop(), fresh_loop()
    loops = tuple(b(LOOP_BEGIN, x, loop=k) for k in (n, m, n))
    f = again(Module((Function("main", (x,), loops),))).entry
    a, c, d = (r.attrs[0] for r in f.results)
    assert a == d != c
    assert {a, c}.isdisjoint({n, m})


def test_bodies_inside_bodies() -> None:
    b = Builder()
    inner = b.function("inner", [("a", X)], lambda a: [reduction(b, add, a, (0,))])
    outer = b.function('ou"ter', [("a", X)], lambda a: [b(fusion, a, body=inner)])
    m = again(Module((b.function("main", [("x", X)], lambda x: [b(fusion, x, body=outer)]),)))
    assert m.entry.results[0].attrs[0].results[0].attrs[0].reducer is None
    verify(m)


def test_effects_flags_and_derivatives() -> None:
    b = Builder()
    g = b.function("g", [("x", X)], lambda x: [x], public=False)
    f = b.function("f", [("s", STATE)], lambda s: [b(load, s, path='a "b"\n', type=X)], vjp="g", result_names=("both",))
    again(Module((g, f), "f"))


def test_more_precise_types_than_inferred_are_kept() -> None:
    p = Builder().param(0, tensor(F32, None), "x")
    node = Node(add, (p, p), (), X)
    assert again(Module((Function("main", (p,), (node,)),))).entry.results[0].type == X


def test_a_long_chain() -> None:
    b = Builder()
    x = node = b.param(0, X, "x")
    for _ in range(20_000):
        node = b(add, node, x)
    again(Module((Function("main", (x,), (node,)),)))


# --- errors --------------------------------------------------------------------------------------------------------


def program(line: str) -> str:
    return f"sea 1\nentry @main\nfunc public @main(%x: f32[2,3], %n: i32[]) -> (%out: f32[2,3]) {{\n{line}\n  return %x\n}}\n"


@pytest.mark.parametrize(("line", "column", "says"), [
    ("  %y = adds %x, %x : f32[2,3]", 8, "did you mean 'add'"),
    ("  %y = add %x, %xx : f32[2,3]", 16, "did you mean '%x'"),
    ("  %y = add %x, %n : f32[2,3]", 16, "operand 1 is an i32[]"),
    ("  %y = add %x : f32[2,3]", 3, "takes 2 operands"),
    ("  %y = add %x, %x : f32[2,4]", 3, "the text says f32[2,4]"),
    ("  %y = add %x, %x : f33[2,3]", 21, "did you mean 'f32'"),
    ("  %y = add %x, %x : f32[2,-3]", 25, "is no dimension"),
    ("  %x = add %x, %x : f32[2,3]", 3, "defined twice"),
    ("  %y = iota {dtype = f32, shape = [2], iota_dimensio = 0} : f32[2]", 3, "did you mean 'iota_dimension'"),
    ('  %y = iota {dtype = "f32", shape = [2]} : f32[2]', 3, "attribute 'dtype'"),
    ("  %y = iota {dtype = f32, shape = [2} : f32[2]", 37, "found '}'"),
    ("  %y = constant {value = dense<[1, 2]> : i32[3]}", 26, "2 elements where 3"),
    ("  %y = constant {value = dense<300> : i8[]}", 26, "out of range"),
    ("  %y = constant {value = dense<[[1], [2]]> : i32[2]}", 26, "brackets do not follow"),
    ("  %y = constant {value = dense<0x00> : i32[2]}", 26, "1 bytes where 8"),
    ("  %y = constant {value = dense<__import__('os')> : i32[2]}", 26, "not elements of i32[2]"),
    ("  nonsense", 3, "found 'nonsense'"),
    ('  %"a = add %x, %x : f32[2,3]', 3, "found"),
])  # fmt: skip
def test_errors_have_a_location_and_say_what_was_expected(line: str, column: int, says: str) -> None:
    with pytest.raises((ParseError, VerifyError)) as caught:
        read(program(line))
    (d,) = caught.value.diagnostics
    assert says in d.render()
    assert d.span is not None
    assert (d.span.line, d.span.column) == (4, column)


@pytest.mark.parametrize(("text", "says"), [
    ("", "sea 1"),
    ("sea 2\nentry @main\n", "version 2"),
    ("sea 1\n", "'entry'"),
    ("sea 1\nentry @main\n", "is no function"),
    ("sea 1\nentry @main\nfunc @main() -> () {\n  return\n", "'}'"),
    ("sea 1\nentry @main\nfunc @main(%x) -> () {\n  return\n}", "has no type"),
    ("sea 1\nentry @main\nfunc @main() -> (%y: f32[]) {\n  return\n}", "the body returns ()"),
    ("sea 1\nentry @main\nfunc @main() -> () {\n  return\n}\nfunc @main() -> () {\n  return\n}", "two functions"),
])  # fmt: skip
def test_broken_frames(text: str, says: str) -> None:
    with pytest.raises(DeepxGraphError) as caught:
        read(text)
    assert says in str(caught.value)


def test_a_truncated_text_never_crashes() -> None:
    text = sea.write(random_module(random.Random(5)))
    for end in range(0, len(text), 7):
        try:
            read(text[:end])
        except (ParseError, VerifyError):
            continue
        assert text[end:].lstrip().startswith("func") or not text[end:].strip()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.text(alphabet='%@{}[]()<>:=,"#0x-. \n', max_size=3))
def test_a_garbled_text_never_crashes(at: int, noise: str) -> None:
    text = sea.write(random_module(random.Random(9)))
    at %= len(text)
    with suppress(DeepxGraphError):
        verify(read(text[:at] + noise + text[at + len(noise) :]))


def test_bounds() -> None:
    deep = "(" * 5000 + ")" * 5000
    with pytest.raises(LimitError, match="nested deeper"):
        read(program(f"  %y = ensure_type %x {{type = {deep}}} : f32[2,3]"))
    with pytest.raises(LimitError, match="nested deeper"):
        read(program(f"  %y = iota {{dtype = f32, shape = {'[' * 5000}}} : f32[2,3]"))
    body = "fusion {body = func @f() -> () {\n  %z = " * 5000
    with pytest.raises(LimitError, match="nested deeper"):
        read(program(f"  %y = {body}"))
    with pytest.raises(LimitError, match="rank 40"):
        read(program(f"  %y = iota {{dtype = f32, shape = [2]}} : f32[{','.join('1' * 40)}]"))
    with pytest.raises(LimitError, match="more than 3 nodes"):
        read(program("  %y = add %x, %x : f32[2,3]\n  %z = add %x, %x : f32[2,3]"), max_nodes=3)


def test_comments_blanks_and_quotes_are_free() -> None:
    text = """// a comment
        sea 1   entry @"main"  // here too
        func public @main(%"x" : f32[ 2 , 3 ]) -> (%out:f32[2,3]) {
          %y=add %x ,
                 %"x"
          return %y }"""
    m = read(text)
    assert m.entry.type == FunctionType((X,), (X,))
    assert [n.op for n in m.entry.nodes][1:] == [add]
    assert m.entry.results[0].span is not None
    assert m.entry.results[0].span.line == 4


def test_recognised_by_its_first_word() -> None:
    assert sea.detect("// c\n\n sea 1\n") == 1.0
    assert sea.detect("search 1") == sea.detect("") == sea.detect("add@float32 a b->c") == 0.0
