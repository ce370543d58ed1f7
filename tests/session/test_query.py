"""The query language: what it finds, and what it says of mistakes."""

from __future__ import annotations

import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir import Module, Node, Origin
from deepx_graph.ops import add, dot_general, exponential, multiply, tanh
from deepx_graph.session.query.facts import Facts, Measured
from deepx_graph.session.query.language import completions, describe, parse_query
from deepx_graph.types import BF16, F32, tensor
from tests.support import viz_modules


def small() -> Module:
    """attn = tanh(x . w); y = attn * attn + exp(attn), and a constant 2 that scales it; x is 512x512."""
    b = dx.Builder()

    def body(x: Node, w: Node) -> list[Node]:
        b.origin = Origin("scores")
        s = b(dot_general, x, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
        b.origin = Origin("attn.probs")
        t = b(tanh, s)
        b.origin = Origin("y")
        return [b(multiply, b(add, b(multiply, t, t), b(exponential, t)), b.constant(2.0, F32))]

    return Module((b.function("main", [("x", tensor(F32, (512, 512))), ("w", tensor(F32, (512, 4)))], body),))


def found(text: str, module: Module | None = None) -> list[str]:
    return [n.op.name for n in parse_query(text).nodes(module or small())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("op:tanh", ["tanh"]),
        ("op:tanh,exponential", ["tanh", "exponential"]),
        ("op:mul*", ["multiply", "multiply"]),
        ("name:~ATTN", ["tanh"]),
        ('name:"attn.probs"', ["tanh"]),
        ("attn", ["tanh"]),
        ("dot", ["dot_general"]),
        ("users>2", ["tanh"]),
        ("users=3", ["tanh"]),
        ("bytes>=1M", ["param"]),
        ("bytes>1M", []),
        ("bytes=1MiB", ["param"]),
        ("flops>2M", ["dot_general"]),
        ("flops>3M", []),
        ("param", ["param", "param"]),
        ("const or param", ["param", "param", "constant"]),
        ("not param not const op!=add", ["dot_general", "tanh", "multiply", "exponential", "multiply"]),
        ("!param and !const and (op:add or op:tanh)", ["tanh", "add"]),
        ("type:f32[512,4] op:tanh", ["tanh"]),
        ("type:f32 dtype:f32 rank=0", ["constant"]),
        ("dtype:bf16", []),
        ("result", ["multiply"]),
        ("after:scores op:add", ["add"]),
        ("before:attn.probs kernel", ["dot_general", "tanh"]),
        ("uses:#3", ["multiply", "exponential"]),
        ("feeds:#2", ["param", "param"]),
        ("#3", ["tanh"]),
        ("depth=0", ["param", "param", "constant"]),
        ("attr:lhs_contracting_dimensions", ["dot_general"]),
        ("attr:lhs_contracting_dimensions=(1,)", ["dot_general"]),
        ("family:linear", ["dot_general"]),
        ("elementwise depth>3", ["add", "multiply"]),
    ],
)
def test_a_query_finds_the_nodes_it_asks_for(text: str, expected: list[str]) -> None:
    assert found(text) == expected


def test_an_empty_query_asks_for_everything() -> None:
    assert len(found("  ")) == len(small().entry.nodes)


def test_positions_in_loops_and_branches() -> None:
    assert found("loop op:add", viz_modules.loop()) == ["add", "add", "add"]
    assert found("op:exponential loop", viz_modules.loop()) == []  # it does not change, so it leaves the loop
    assert found("branch kernel", viz_modules.branch()) == ["sine", "negate"]
    assert found("effect op:print", viz_modules.loop()) == ["print"]
    assert found("fused has:exponential", viz_modules.fused()) == ["fusion"]


def test_lines_and_rewrites_of_the_source() -> None:
    m = dx.loads("sea 1\nentry @f\nfunc public @f(%x: f32[2]) -> (%y: f32[2]) {\n  %a = tanh %x : f32[2]\n"
                 "  %y = negate %a : f32[2]\n  return %y\n}\n")  # fmt: skip
    assert found("origin:4", m) == ["tanh"]
    assert found("line>4", m) == ["negate"]
    fused = dx.optimize(m, "fuse")
    assert found("made", fused) == ["fusion"] == found("rewrite:~fus", fused)


def test_what_a_run_measured_can_be_asked_for() -> None:
    f = small().entry
    node = f.nodes[3]
    facts = Facts(f, {node: Measured(0.002, 0.5, 1, nans=1)})
    for text in ("time>1.5", "share>=50", "nan"):
        assert parse_query(text).nodes(facts) == [node]
    assert parse_query("time>2.5").nodes(facts) == []


def test_unknown_sizes_fit_nothing() -> None:
    b = dx.Builder()
    m = Module((b.function("main", [("x", tensor(BF16, None))], lambda x: [b(tanh, x)]),))
    assert found("bytes>=0", m) == found("op:tanh flops>=0", m) == found("not bytes<0 rank>=0", m) == []
    assert found("dynamic", m) == ["param", "tanh"]


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("opp:add", "no field 'opp'", "opp"),
        ("users>many", "'users' is compared with 'many'", "many"),
        ("op>add", "'op' is text and has no order", ">"),
        ("(op:add", "a parenthesis is not closed", "("),
        ("op:add)", "a parenthesis is closed", ")"),
        ("op:add or", "a term is missing", "^"),
        ("name:~[", "no pattern", "["),
        ('name:"x', "'name' has no value", "name:"),
        ("users", "'users' needs a value", "users"),
        ("op:", "'op' has no value", "op:"),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, message: str, marked: str) -> None:
    with pytest.raises(UsageError) as e:
        parse_query(text)
    shown = str(e.value)
    assert message in shown
    carets = shown.split("\n")[2]
    assert carets.count("^") == len(marked)


def test_the_nearest_field_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'users'"):
        parse_query("user>2")


def test_queries_are_bounded() -> None:
    for text in ("(" * 1000 + "op:add" + ")" * 1000, "op:add " * 1000):
        with pytest.raises(UsageError, match="more than"):
            parse_query(text)


def test_completions_know_the_words() -> None:
    assert "op:" in completions("o")
    assert "op:tanh" in completions("param or op:ta")
    assert completions("op:tanh ") == []
    assert dict(describe())["param"] == "parameters"
