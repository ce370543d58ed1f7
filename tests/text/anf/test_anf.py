"""A-normal form reads back as the graph it was written from; continuation-passing style shows every call's continuation."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, LimitError, ParseError, UsageError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PARTIAL, PHI, PROJ, TUPLE
from deepx_graph.ops import add, compare
from deepx_graph.types import F32, I32, scalar, tensor
from tests.support import paths
from tests.support.generate import random_inputs, random_module
from tests.support.reference import same

SHARED = paths.SHARED / "corpus"
PROGRAMS = sorted([*SHARED.glob("relay/*.relay"), *SHARED.glob("mindir/*.mindir"), *SHARED.glob("deepx/*.dx"),
                   *SHARED.glob("jax/*.hlo")])  # fmt: skip


def again(module: Module) -> Module:
    """The module written and read; the text of that is the same."""
    text = dx.dumps(module, "anf")
    found = dx.loads(text, "anf")
    assert dx.dumps(found, "anf") == text
    return found


def meaning(function: Function, ids: dict[Any, int]) -> list[int]:
    """Numbers for the results, equal where they are the same expression; equal values are one, tuples of all items the tuple."""
    number: dict[Node, int] = {}
    loops: dict[int, int] = {}
    for node in function.nodes:
        attrs: tuple[Any, ...] = tuple(tuple(meaning(a, ids)) if isinstance(a, Function) else a for a in node.attrs)
        if node.op is LOOP_BEGIN:
            attrs = (loops.setdefault(attrs[0], len(loops)) * 0,)
        source = node.inputs[0].inputs[0] if node.op is TUPLE and node.inputs and node.inputs[0].op in (PROJ, PHI) else None
        if source is not None and source.type == node.type and all(
                i.op in (PROJ, PHI) and i.inputs[0] is source and i.attrs[0] == k for k, i in enumerate(node.inputs)):
            number[node] = number[source]
            continue
        key = (node.op.name, tuple(number[i] for i in node.inputs), attrs, node.type)
        number[node] = ids.setdefault(key, len(ids))
    return [number[r] for r in function.results]


def check_same_graph(a: Module, b: Module) -> None:
    ids: dict[Any, int] = {}
    assert [f.name for f in a.functions] == [f.name for f in b.functions] and a.entry_name == b.entry_name
    assert a.datas == b.datas
    for f, g in zip(a.functions, b.functions, strict=True):
        assert (f.public, f.vjp, f.attributes, f.type) == (g.public, g.vjp, g.attributes, g.type)
        assert [p.name for p in f.params] == [p.name for p in g.params]
        assert [f.result_name(k) for k in range(len(f.results))] == [g.result_name(k) for k in range(len(g.results))]
        assert meaning(f, ids) == meaning(g, ids)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.name)
def test_programs_of_the_corpus_read_back(path: Path) -> None:
    module = dx.load(path)
    for version in (module, dx.optimize(module)):
        check_same_graph(version, again(version))


def test_the_corpus_is_here() -> None:
    if not PROGRAMS:
        pytest.skip(f"{SHARED} is not here")


@pytest.mark.parametrize("path", [p for p in PROGRAMS if p.suffix in (".relay", ".mindir")], ids=lambda p: p.name)
def test_functional_programs_run_equal_after_it(path: Path) -> None:
    module = dx.load(path)
    with np.load(path.parent / f"{path.name.partition(chr(46))[0]}.npz", allow_pickle=False) as z:
        inputs = [z[k] for k in sorted(z.files) if k.startswith("in")]
        wanted = [z[k] for k in sorted(z.files) if k.startswith("out")]
    for version in (module, dx.optimize(module)):
        found = dx.compile(again(version), optimize=False)(*inputs)
        for a, b in zip(found, dx.compile(version, optimize=False)(*inputs), strict=True):
            assert same(np.asarray(a), np.asarray(b))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


SUITE = paths.SHARED / "suites" / "relay_texts"


def check_suite(names: str) -> None:
    if not SUITE.exists():
        pytest.skip(f"{SUITE} is not here")
    count = 0
    for path in sorted(SUITE.glob(names)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = dx.loads(path.read_text(), "relay")
            except DeepxGraphError:
                continue
        for version in (module, dx.optimize(module)):
            check_same_graph(version, again(version))
        assert dx.dumps(module, "cps")
        count += 1
    assert count


def test_higher_order_programs_of_tvm_read_back() -> None:
    check_suite("*defunctionalization*.relay")


@pytest.mark.conformance
def test_all_texts_of_tvm_read_back() -> None:
    check_suite("*.relay")


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_read_back_and_run_equal(seed: int) -> None:
    rng = random.Random(seed)
    module = random_module(rng, max_ops=60)
    found = again(module)
    check_same_graph(module, found)
    inputs = random_inputs(rng, module)
    results = (dx.compile(m, engine="numpy", optimize=False)(*inputs) for m in (module, found))
    for a, b in zip(*results, strict=True):
        assert same(np.asarray(a), np.asarray(b))


# --- the form ---------------------------------------------------------------------------------------------------------

PRODUCT = """
def @isprime(%n: int32) -> bool { %n == 2 }
def @prodprimes(%n: int32) -> int32 {
  if (%n == 1) { 1 } else { if (@isprime(%n)) { %n * @prodprimes(%n - 1) } else { @prodprimes(%n - 1) } }
}
def @main(%n: int32) { @prodprimes(%n) }
"""


def body(text: str, name: str) -> str:
    """The lines of one definition, without the first."""
    at = text.index(f"@{name} ")
    return text[text.index("\n", at) + 1 :].split("\n(define")[0].rstrip()


def test_branches_hold_what_only_they_compute_and_tail_calls_end_them() -> None:
    text = dx.dumps(dx.loads(PRODUCT), "anf")
    assert body(text, "prodprimes") == """\
  (let (%0 : bool[] (compare %n 1:i32 {direction = "EQ"}))
  (if %0
    1:i32
    (let (%1 : bool[] (@isprime %n))
    (if %1
      (let (%2 : i32[] (subtract %n 1:i32))
      (let (%3 : i32[] (@prodprimes %2))
      (multiply %n %3)))
      (let (%4 : i32[] (subtract %n 1:i32))
      (@prodprimes %4)))))))"""


def test_in_continuation_passing_style_every_call_takes_its_continuation() -> None:
    text = dx.dumps(dx.loads(PRODUCT), "cps")
    assert body(text, "prodprimes") == """\
  (let (%0 : bool[] (compare %n 1:i32 {direction = "EQ"}))
  (if %0
    (k 1:i32)
    (let (k1 (lambda ((%1 : bool[]))
      (if %1
        (let (%2 : i32[] (subtract %n 1:i32))
        (let (k2 (lambda ((%3 : i32[]))
          (let (%4 : i32[] (multiply %n %3))
          (k %4))))
        (@prodprimes %2 k2)))
        (let (%5 : i32[] (subtract %n 1:i32))
        (@prodprimes %5 k)))))
    (@isprime %n k1)))))"""


@pytest.mark.parametrize("path", [p for p in PROGRAMS if p.suffix in (".relay", ".mindir")], ids=lambda p: p.name)
def test_every_call_of_the_corpus_has_a_continuation(path: Path) -> None:
    text = dx.dumps(dx.load(path), "cps")
    assert text.count("(") == text.count(")")
    calls = re.findall(r"\(@[^\s]+ ([^()]*)\)$|\(@[^\s]+ ([^()]*)\)[)]+$", text, re.MULTILINE)
    assert all(re.search(r"\bk\d*$", a or b) for a, b in calls if not (a or b).startswith("(") and (a or b))


def counting() -> Module:
    b = Builder()

    def iteration(v: tuple[Node, ...]) -> tuple[Node, tuple[Node, ...]]:
        go_on = b(compare, v[0], b.constant(10, I32), direction="LT")
        return go_on, (b(add, v[0], b.constant(1, I32)), b(add, v[1], v[1]))

    def main(n: Node, x: Node) -> tuple[Node, ...]:
        return b.loop((n, x), iteration)

    return Module((b.function("main", [("n", scalar(I32)), ("x", tensor(F32, (2,)))], main),))


def test_a_loop_is_a_letrec() -> None:
    text = dx.dumps(counting(), "anf")
    assert body(text, "main") == """\
  (letrec (@loop (lambda ((%0 : i32[]) (%1 : f32[2]))
      (let (%2 : bool[] (compare %0 10:i32 {direction = "LT"}))
      (if %2
        (let (%3 : i32[] (add %0 1:i32))
        (let (%4 : f32[2] (add %1 %1))
        (@loop %3 %4)))
        (values %0 %1)))))
    (@loop %n %x)))"""
    assert "(letrec (@loop (lambda ((%0 : i32[]) (%1 : f32[2]) k1)" in dx.dumps(counting(), "cps")


HAND = """anf 1 ; written by hand
(entry @main)
(define public (@main (%n : i32[])) -> ((%r : i32[]) (%s : i32[]))
  (let (%r (letrec (@go (lambda ((%i) (%acc))
      (let (%done (compare %i 0:i32 {direction = "EQ"}))
      (if %done
        (add %acc 100:i32)
        (let (%i (subtract %i 1:i32)) (let (%acc (add %acc %n)) (@go %i %acc)))))))
    (@go %n 0:i32)))
  (let ((%a %b) (@pair %r))
  (let (%f (partial @one %a))
  (let (%s (%f %b))
  (values %r %s))))))
(define (@pair (%x : i32[])) -> ((%p : i32[]) (%q : i32[])) (let (%y (add %x 1:i32)) (values %x %y)))
(define (@one (%x : i32[]) (%y : i32[])) -> ((%d : i32[])) (subtract %y %x))
"""


def test_a_text_by_hand_needs_no_types_on_lets_and_may_leave_a_loop_by_either_side() -> None:
    module = dx.loads(HAND)
    assert module.format == "anf" and [int(v) for v in dx.compile(module, optimize=False)(np.int32(4))] == [116, 1]
    assert any(n.op is LOOP_END for n in module.entry.nodes) and any(n.op is PARTIAL for n in module.entry.nodes)
    assert [int(v) for v in dx.compile(again(module), optimize=False)(np.int32(4))] == [116, 1]


def head(result: str = "i32[]") -> str:
    return f"anf 1\n(entry @main)\n(define public (@main (%n : i32[])) -> ((%r : {result}))\n  "


@pytest.mark.parametrize(("expression", "says", "hint"), [
    ("(let (%x (add %n %m)) %x))", "no value %m is known here", None),
    ("(let (%x (addd %n %n)) %x))", "unknown operation 'addd'", "add"),
    ("(let (%x (@mian %n)) %x))", "no function 'mian' is defined", "main"),
    ("(let (%x : f32[2] (add %n %n)) %n))", "the text says f32[2]", None),
    ("(if %n %n %n))", "(if c then else) of a bool", None),
    ("(let (%c (compare %n 1:i32 {direction = \"EQ\"})) (if %c %n (values %n %n))))", "equally many values", None),
    ("(let ((%a %b) (add %n %n)) %a))", "add has one value", None),
    ("(let (%a (@main)) %a))", "0 arguments for 1 parameters", None),
    ("(let (%a 1:i33) %a))", "unknown dtype 'i33'", None),
    ("(let (%a x:i32) %a))", "these are not elements", None),
    ("(let (%a %n) %a)", "this bracket is never closed", None),
    ("%n))", "this bracket closes nothing", None),
    ("(letrec (@l (lambda ((%i)) %i)) (@l %n)))", "one side of which calls @l again", None),
    ("(letrec (@l (lambda ((%i)) (let (%c (compare %i 1:i32 {direction = \"EQ\"})) (if %c %i (@m %i))))) (@l %n)))", "@l", None),
    ("1.5:f32)", "the body gives (f32[])", None),
])  # fmt: skip
def test_mistakes_are_reported_where_they_are(expression: str, says: str, hint: str | None) -> None:
    with pytest.raises(DeepxGraphError) as caught:
        dx.loads(head() + expression, "anf")
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.span is not None
    told = f"{diagnostic.message} {diagnostic.expected}"
    assert says in told
    assert hint is None or hint in (diagnostic.hint or "")


def test_what_a_branch_names_is_not_known_after_it() -> None:
    text = head() + '(let (%c (compare %n 1:i32 {direction = "EQ"})) (let (%r (if %c (let (%x %n) %x) %n)) %x)))'
    with pytest.raises(ParseError, match="no value %x is known here"):
        dx.loads(text, "anf")


def nested(depth: int) -> Callable[[str], str]:
    return lambda inner: "(if %c " * depth + inner + " %n)" * depth


def test_nesting_is_bounded_and_a_long_run_of_lets_is_not() -> None:
    start = head() + '(let (%c (compare %n 1:i32 {direction = "EQ"})) '
    with pytest.raises(LimitError, match="nested deeper"):
        dx.loads(start + nested(5000)("%n") + "))", "anf")
    b = Builder()

    def chain(x: Node) -> tuple[Node]:
        for _ in range(20_000):
            x = b(add, x, x)
        return (x,)

    long = Module((b.function("main", [("x", scalar(F32))], chain),))
    assert len(again(long).entry.nodes) == 20_001
    assert dx.dumps(long, "cps").count("(let") == 20_000


def test_cps_is_not_read() -> None:
    with pytest.raises(UsageError, match="written and not read"):
        dx.loads("; cps\n(entry @main)\n", "cps")


def test_a_constant_has_the_type_of_its_value_whatever_the_text_states() -> None:
    """A size that is a symbol says less than the value; one that differs is an error."""
    text = """anf 1
(entry @main)
(define public (@main (%x : f32[])) -> ((%t : f32[3,4]))
  (let (%t : f32[3,n] (constant {value = dense<1.0> : f32[3,4]}))
  %t))
"""
    sea = "sea 1\nentry @main\nfunc public @main() -> (%t: f32[3,4]) {\n" \
          "  %t = constant {value = dense<1.0> : f32[3,4]} : f32[3,n]\n  return %t\n}\n"
    for found in (dx.loads(text), dx.loads(sea)):
        assert found.entry.results[0].type == tensor(F32, (3, 4))
    assert dx.jvp(dx.loads(text)).entry.results
    with pytest.raises(DeepxGraphError, match=r"the text says f32\[3,n,1\]"):
        dx.loads(text.replace("[3,n]", "[3,n,1]"))
