"""Functions called with known closures, data and types: what is left of them, and that it computes the same."""

# ruff: noqa: E501  programs on a line

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Constructor, Data, Function, Module, Node
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_END, PARTIAL, REGION
from deepx_graph.ops import add, construct, field, multiply, tag
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.types import BOOL, I32, DataType, FunctionType, scalar
from deepx_graph.verify import verify
from tests.support.relay_programs import LIST, PROGRAMS

MAP = "def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] { match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil } }\n"
FOLD = "def @fold[A, B](%f: fn (B, A) -> B, %z: B, %l: List[A]) -> B { match (%l) { Nil => %z, Cons(%h, %t) => @fold(%f, %f(%z, %h), %t) } }\n"
COMPOSE = "def @compose[A, B, C](%f: fn (B) -> C, %g: fn (A) -> B) -> fn (A) -> C { fn (%x: A) -> C { %f(%g(%x)) } }\n"
UPTO = ("def @upto(%n: int32, %l: List[int32]) -> List[int32] "
        "{ if (%n == 0) { %l } else { @upto(%n - 1, Cons(%n, %l)) } }\n")


def after(module: Module, pipeline: str = "clean") -> Module:
    found = run_pipeline(module, parse_pipeline(pipeline))
    verify(found)
    return found


def reached(module: Module) -> Counter[str]:
    """How often each operation stands in the functions that the entry comes to call."""
    names, stack = {module.entry_name}, [module.entry]
    found: Counter[str] = Counter()
    while stack:
        for node in stack.pop().nodes:
            found[node.op.name] += 1
            if node.op in (CALL, PARTIAL) and node.attrs[0] not in names:
                names.add(node.attrs[0])
                stack.append(module[node.attrs[0]])
    return found


HIGHER = [
    (LIST + MAP + FOLD + "def @main(%x: int32) { @fold(fn (%a: int32, %b: int32) { %a * 10 + %b }, 0,"
     " @map(fn (%i: int32) { %i + %x }, Cons(1, Cons(2, Cons(3, Nil))))) }", 1, 234),
    (COMPOSE + "def @main(%x: int32) { let %f = @compose(fn (%a: int32) { %a * %x }, fn (%b: int32) { %b + 1 }); %f(%x) }", 4, 20),
    ("def @pick(%c: bool, %x: int32) -> int32 { let %f = if (%c) { fn (%a: int32) -> int32 { %a + %x } }"
     " else { fn (%a: int32) -> int32 { %a * %x } }; %f(3) }\ndef @main(%x: int32) { @pick(%x < 5, %x) + @pick(%x < 1, %x) }", 4, 19),
    ("def @both(%p: (fn (int32) -> int32, int32)) -> int32 { %p.0(%p.1) }\n"
     "def @main(%x: int32) { @both((fn (%a: int32) { %a + %x }, %x)) }", 3, 6),
    (LIST + "def @main(%x: int32) { let %l: List[fn (int32) -> int32] = Cons(fn (%a: int32) { %a + %x }, Nil);"
     " match (%l) { Cons(%f, _) => %f(2), Nil => 0 } }", 3, 5),
    ("def @iter(%n: int32, %f: fn (int32) -> int32, %x: int32) -> int32 "
     "{ if (%n == 0) { %x } else { @iter(%n - 1, %f, %f(%x)) } }\ndef @main(%x: int32) { @iter(%x, fn (%a: int32) { %a * 2 }, 1) }", 5, 32),
]  # fmt: skip


@pytest.mark.parametrize(("text", "given", "wanted"), HIGHER)
def test_functions_as_arguments_leave_no_closure_behind(text: str, given: int, wanted: int) -> None:
    module = after(dx.loads(text))
    assert int(dx.compile(module, optimize=False)(np.int32(given))[0]) == wanted
    left = reached(module)
    assert not any(left[op.name] for op in (CALL_VALUE, PARTIAL, construct, field, tag)), left


def test_iteration_of_a_known_function_is_a_loop() -> None:
    module = after(dx.loads(HIGHER[5][0]))
    assert any(n.op is LOOP_END for n in module.entry.nodes) and not any(n.op is CALL for n in module.entry.nodes)


@pytest.mark.parametrize(("text", "given", "wanted"), PROGRAMS)
def test_programs_compute_the_same(text: str, given: int, wanted: object) -> None:
    module = dx.loads(text)
    for pipeline in ("partial-evaluation", "clean", "partial-evaluation{max-copies=1}", "promote,partial-evaluation,tail-calls"):
        found = dx.compile(after(module, pipeline), optimize=False)(np.int32(given))
        assert [int(v) for v in found] == list(np.atleast_1d(np.asarray(wanted)).astype(int))


def test_a_list_of_known_length_is_unrolled() -> None:
    cells = "Nil"
    for k in range(12):
        cells = f"Cons(%x * {k}, {cells})"
    text = LIST + "def @sum(%l: List[int32]) -> int32 { match (%l) { Cons(%h, %t) => %h + @sum(%t), Nil => 0 } }\n"
    module = after(dx.loads(f"{text}def @main(%x: int32) {{ @sum({cells}) }}"))
    assert reached(module).keys() <= {"param", "constant", "add", "multiply"}
    assert int(dx.compile(module, optimize=False)(np.int32(3))[0]) == 3 * 66


def test_what_would_grow_for_ever_is_unknown() -> None:
    text = LIST + UPTO + "def @sum(%l: List[int32]) -> int32 { match (%l) { Cons(%h, %t) => %h + @sum(%t), Nil => 0 } }\n"
    module = dx.loads(text + "def @main(%x: int32) { @sum(@upto(%x, Nil)) }")
    for version in (after(module, "partial-evaluation"), after(module)):
        assert len(version.functions) < 8
        assert int(dx.compile(version, optimize=False)(np.int32(100))[0]) == 5050
    growing = ("def @go(%n: int32, %k: fn (int32) -> int32) -> int32 { if (%n == 0) { %k(1) } else "
               "{ @go(%n - 1, fn (%r: int32) -> int32 { %k(%r * %n) }) } }\n"
               "def @main(%x: int32) { @go(%x, fn (%r: int32) -> int32 { %r }) }")  # fmt: skip
    version = after(dx.loads(growing))
    assert len(version.functions) < 12
    assert int(dx.compile(version, optimize=False)(np.int32(6))[0]) == 720


def test_a_large_known_value_is_unknown_and_the_number_of_copies_is_bounded() -> None:
    cells = "".join(f"let %l{k + 1} = Cons({k}, %l{k}); " for k in range(200))
    text = LIST + "def @sum(%l: List[int32]) -> int32 { match (%l) { Cons(%h, %t) => %h + @sum(%t), Nil => 0 } }\n"
    module = dx.loads(f"{text}def @main(%x: int32) {{ let %l0: List[int32] = Nil; {cells} %x + @sum(%l200) }}")
    assert len(after(module, "partial-evaluation").functions) <= 3
    assert int(dx.compile(after(module), optimize=False)(np.int32(1))[0]) == 19901


def test_what_is_there_already_stays_the_same_module() -> None:
    b = Builder()
    module = Module((b.function("main", [("x", scalar(I32))], lambda x: [b(add, x, x)]),))
    assert after(module, "partial-evaluation") is module


def test_the_number_of_rewrites_can_be_limited() -> None:
    module = dx.loads(HIGHER[0][0])
    for limit in (0, 1, 3, 7):
        found = run_pipeline(module, parse_pipeline("partial-evaluation"), limit=limit)
        verify(found)
        assert int(dx.compile(found, optimize=False)(np.int32(1))[0]) == 234


# --- the rules, one by one --------------------------------------------------------------------------------------------

E = DataType("E", ())


def ruled(b: Builder, results: list[Node], params: list[Node]) -> Module:
    twice = b.function("twice", [("x", scalar(I32))], lambda x: [b(add, x, x)], public=False)
    square = b.function("square", [("x", scalar(I32))], lambda x: [b(multiply, x, x)], public=False)
    datas = (Data("E", (), (Constructor("A", (scalar(I32),)), Constructor("B", (scalar(I32), scalar(I32))), Constructor("C"), Constructor("D", (E,)))),)
    return Module((Function("main", tuple(params), tuple(results)), twice, square), datas=datas)


def test_what_either_side_of_a_branch_gives_is_seen() -> None:
    b, type = Builder(), FunctionType((scalar(I32),), (scalar(I32),))
    p, x = b.param(0, scalar(BOOL), "p"), b.param(1, scalar(I32), "x")
    one = b(construct, x, constructor="A", type=E)
    two = b(construct, x, b(add, x, x), constructor="B", type=E)
    value = b.branch(p, [one], [two])[0]
    function = b.branch(p, [b.partial(("twice", type))], [b.partial(("square", type))])[0]
    pair = b.branch(p, [b.pack(x, b(add, x, x))], [b.pack(b(multiply, x, x), x)])[0]
    cases = b(tag, value, cases=("B", "A"))
    chosen = b.branch(cases, [b(field, value, constructor="B", index=1, type=scalar(I32))],
                      [b(field, value, constructor="A", index=0, type=scalar(I32))])[0]  # fmt: skip
    module = ruled(b, [cases, chosen, b.call_value(function, x)[0], b.proj(pair, 1)], [p, x])
    simple = after(module, "canonicalize")
    assert not any(n.op in (tag, field, construct, CALL_VALUE, PARTIAL) for n in simple.entry.nodes)
    assert any(n.op is REGION for n in simple.entry.nodes)
    for flag in (True, False):
        wanted = [1, 5, 10, 10] if flag else [0, 10, 25, 5]
        for version in (module, simple):
            assert [int(v) for v in dx.compile(version, optimize=False)(np.bool_(flag), np.int32(5))] == wanted


def test_a_field_that_one_side_does_not_have_is_kept_where_nothing_can_stand_for_it() -> None:
    b = Builder()
    p, x = b.param(0, scalar(BOOL), "p"), b.param(1, scalar(I32), "x")
    value = b.branch(p, [b(construct, x, constructor="A", type=E)], [b(construct, constructor="C", type=E)])[0]
    outer = b.branch(p, [b(construct, value, constructor="D", type=E)], [b(construct, constructor="C", type=E)])[0]
    inner = b(field, outer, constructor="D", index=0, type=E)
    module = ruled(b, [b(tag, inner, cases=("A", "C"))], [p, x])
    simple = after(module, "canonicalize")
    assert any(n.op is field for n in simple.entry.nodes)
    for flag in (True, False):
        assert [int(v) for v in dx.compile(simple, engine="numpy", optimize=False)(np.bool_(flag), np.int32(5))] == [0 if flag else 2]
