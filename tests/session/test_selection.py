"""Parts of programs: what queries and ends choose, cut out as programs that run, and drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli import main as cli
from deepx_graph.errors import UsageError
from deepx_graph.ir import Module
from deepx_graph.session.query.selection import Subgraph
from deepx_graph.verify import verify
from tests.support import grad_calls
from tests.support import viz_modules as programs
from tests.support.paths import ROOT

BLOCK = ROOT / "examples" / "transformer_block.dx"


def names(part: Subgraph, module: dx.Module) -> list[str]:
    return [n.name for chosen in part.nodes(module).values() for n in chosen]


def test_what_lies_between_two_nodes() -> None:
    module = dx.load(BLOCK)
    assert names(Subgraph(start="scores", end="weights"), module)[0] == "scores"
    (chosen,) = Subgraph(start="raised").nodes(module).values()
    assert [n.op.name for n in chosen] == ["exponential", "reduce", "reshape", "broadcast_in_dim", "divide"]
    assert names(Subgraph("op:exponential", end="weights"), module) == ["raised"]
    assert names(Subgraph(start="scores", end="mixed", function="attention"), module)[-1] == "mixed"


@pytest.mark.parametrize(("part", "message"), [
    (Subgraph("op:tan"), "no node matches: where 'op:tan'"), (Subgraph(start="rais"), "raised"), (Subgraph("op:"), "has no value"),
    (Subgraph(start="raised", end="normed"), "two functions"), (Subgraph(start="weights", end="raised"), "no node matches: from"),
    (Subgraph("share>10"), "'share' is measured, and there is no run"), (Subgraph("op:add or not nan"), "'nan' is measured, and"),
])  # fmt: skip
def test_mistakes(part: Subgraph, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        part.nodes(dx.load(BLOCK))


def test_what_is_cut_out_runs_and_gives_what_it_gave_inside() -> None:
    module = dx.load(BLOCK)
    part = Subgraph(start="raised", end="weights").extracted(module)
    x = np.random.default_rng(0).standard_normal((4, 256, 256)).astype("f4")
    inputs = {p.name: x for p in part.entry.params}
    (weights,) = dx.compile(part, optimize=False)(**inputs)
    raised = np.exp(x)
    np.testing.assert_allclose(weights, raised / raised.sum(-1, keepdims=True), rtol=1e-5)
    with pytest.raises(UsageError, match="in 3 functions"):
        Subgraph("op:divide").extracted(module)


@pytest.mark.parametrize("name", [f.name for f in dx.load(BLOCK).functions])
def test_a_part_of_any_function_is_a_program(name: str) -> None:
    """What the part does not call, such as the callers of its function, does not come along: it would not fit."""
    module = dx.load(BLOCK)
    part = Subgraph(function=name, where="depth>0").extracted(module)
    verify(part)
    dx.optimize(part, "inline,default")


@pytest.mark.parametrize("make", [grad_calls.recursion, grad_calls.doubly_recursive, grad_calls.mutually_recursive])
def test_a_part_of_a_function_that_calls_itself_keeps_it_whole(make: Callable[[], Module]) -> None:
    module = make()
    for function in (f for f in module.functions if f is not module.entry):
        part = Subgraph(function=function.name, where="op:call").extracted(module)
        verify(part)
        assert function.name in part and part.entry_name != function.name


def test_effects_come_along_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """A loop that prints, cut out with its state: it prints as before."""
    module = programs.loop()
    part = Subgraph("loop or control").extracted(module)
    assert str(part.entry.params[-1].type) == "state"
    assert str(part.entry.results[-1].type) == "state"
    x = np.ones((4, 8), "f4")
    whole = dx.compile(module, optimize=False)(x, np.int32(2))
    first = capsys.readouterr().out
    outside = {"n": np.int32(2), "x": x}  # and the exponential, which does not change inside the loop
    given = {p.name: outside.get(p.name, np.exp(x)) for p in dx.compile(part, optimize=False).inputs}
    again = dx.compile(part, optimize=False)(**given)
    assert capsys.readouterr().out == first != ""
    np.testing.assert_allclose(again[0], whole[0])


def test_the_command_cuts_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "part.sea"
    assert cli.main(["opt", str(BLOCK), "-p", "none", "--from", "raised", "--to", "weights", "--emit", "sea", "-o", str(out)]) == 0
    ops = [n.op.name for n in dx.load(out).entry.nodes if n.inputs]
    assert ops == ["exponential", "reduce", "reshape", "broadcast_in_dim", "divide"]
    assert cli.main(["run", str(out), "--random-inputs"]) == 0
    capsys.readouterr()
    picture = tmp_path / "part.dot"
    assert cli.main(["draw", str(BLOCK), "--where", "op:dot_general", "-o", str(picture)]) == 0
    text = picture.read_text()
    assert "dot_general" in text and "exponential" not in text
    assert "more nodes are not drawn" in capsys.readouterr().err
    assert cli.main(["opt", str(BLOCK), "--extract", "op:tan"]) == 2
