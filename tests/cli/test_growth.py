"""Steps of commands on programs that are long, wide or deep: they grow as the program does, or it is refused by a diagnostic.

Counted are calls of functions, of Python and of C: they are the same on every machine and under every load.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.cycles import no_collection
from deepx_graph.ir import Function, Node
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.rewrite.epilogue import with_fused_epilogue
from deepx_graph.rewrite.product_layouts import in_order
from deepx_graph.session import programs
from deepx_graph.session.report.kernels import alike
from tests.support.steps import steps

MOST_EXPONENT = 1.15
"""With short programs some of what is counted does not depend on their length, which makes it less, not more."""


def _program(lines: list[str], params: str = "  x = f32[8] parameter(0)") -> str:
    return "\n".join(["HloModule m", "", "ENTRY main {", params, *lines, "}", ""])


def _operands(n: int) -> str:
    """One operation of so many operands."""
    return _program([f"  ROOT r = f32[{8 * n}] concatenate({', '.join(['x'] * n)}), dimensions={{0}}"])


def _users(n: int) -> str:
    """One value with so many users, all of them results."""
    lines = [f"  v{k} = f32[8] {('tanh', 'negate', 'sine')[k % 3]}({'x' if k % 2 else f'w{k}'})" for k in range(n)]
    more = [f"  w{k} = f32[8] add(x, s{k})\n  s{k} = f32[8] iota(), iota_dimension=0" for k in range(0, n, 2)]
    values = ", ".join(f"v{k}" for k in range(n))
    return _program([*lines, *more, f"  ROOT r = ({', '.join(['f32[8]'] * n)}) tuple({values})"])


def _tuples(n: int) -> str:
    """Tuples that are taken apart at once, one after the other."""
    lines = [f"  t{k} = (f32[8], f32[8]) tuple({f'g{k - 1}' if k else 'x'}, x)\n"
             f"  g{k} = f32[8] get-tuple-element(t{k}), index=0" for k in range(n)]  # fmt: skip
    return _program([*lines, f"  ROOT r = f32[8] negate(g{n - 1})"])


def _parameters(n: int) -> str:
    params = "\n".join(f"  p{k} = f32[8] parameter({k})" for k in range(n))
    lines = [f"  a{k} = f32[8] add({f'a{k - 1}' if k > 1 else 'p0'}, p{k})" for k in range(1, n)]
    return _program([*lines, f"  ROOT r = f32[8] negate(a{n - 1})"], params)


def _layers(n: int) -> str:
    """An unrolled network, with another constant in each layer."""
    lines = [f"  c{k} = f32[] constant({k}.5)\n  b{k} = f32[8] broadcast(c{k}), dimensions={{}}\n"
             f"  m{k} = f32[8] multiply({f't{k - 1}' if k else 'x'}, b{k})\n"
             f"  d{k} = f32[8] dot(w, m{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
             f"  t{k} = f32[8] tanh(d{k})" for k in range(n)]  # fmt: skip
    return _program([*lines, f"  ROOT r = f32[8] negate(t{n - 1})"], "  x = f32[8] parameter(0)\n  w = f32[8,8] parameter(1)")


def _functions(n: int) -> str:
    """So many functions, each called once."""
    functions = [f"f{k} {{\n  p = f32[8] parameter(0)\n  c = f32[] constant({k})\n  b = f32[8] broadcast(c), dimensions={{}}\n"
                 f"  ROOT m = f32[8] multiply(p, b)\n}}\n" for k in range(n)]  # fmt: skip
    calls = [f"  a{k} = f32[8] call({f'a{k - 1}' if k else 'x'}), to_apply=f{k}" for k in range(n)]
    head, main = _program([*calls, f"  ROOT r = f32[8] negate(a{n - 1})"]).split("\n\n")
    return "\n\n".join([head, *functions, main])


SHAPES: dict[str, Callable[[int], str]] = {
    "operands": _operands, "users": _users, "tuples": _tuples, "parameters": _parameters, "layers": _layers,
    "functions": _functions,
}  # fmt: skip
COMMANDS = {
    "opt": ("opt", "FILE", "-o", "/dev/null"), "grad": ("grad", "FILE", "-o", "/dev/null"),
    "draw": ("draw", "FILE", "-o", "OUT.svg"), "page": ("draw", "FILE", "-o", "OUT.html"),
}  # fmt: skip
"""Not those that make machine code: what LLVM is given grows with a kernel, up to bounds of its own."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_steps_grow_as_the_program(tmp_path: Path, shape: str, command: str) -> None:
    counts = []
    for n in (10, 50, 200):  # the first run imports, and fills what is remembered
        path = tmp_path / f"{n}.hlo"
        path.write_text(SHAPES[shape](n))
        arguments = [str(path) if a == "FILE" else a.replace("OUT", str(tmp_path / "o")) for a in COMMANDS[command]]
        count, code = steps(partial(main, arguments))
        assert code == 0
        counts.append(count)
    exponent = math.log(counts[2] / counts[1]) / math.log(200 / 50)
    assert exponent <= MOST_EXPONENT, counts


@pytest.mark.parametrize("command", [*COMMANDS, "info"])
def test_no_command_leaves_a_cycle_that_keeps_the_program(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles are not looked for while a command runs on a large program: what they keep stays in memory, and is gone through when
    they are looked for again."""
    path, read, nodes = tmp_path / "m.hlo", programs.loads, list[weakref.ref[Node]]()
    path.write_text(_layers(10))

    def loads(*given: Any) -> programs.Loaded:
        loaded = read(*given)
        nodes.extend(map(weakref.ref, loaded.module.entry.nodes))
        return loaded

    monkeypatch.setattr(programs, "loads", loads)
    arguments = COMMANDS.get(command, ("info", "FILE"))
    with no_collection():
        assert main([str(path) if a == "FILE" else a.replace("OUT", str(tmp_path / "o")) for a in arguments]) == 0
        assert nodes
        assert not any(node() for node in nodes)


@pytest.mark.parametrize("shape", SHAPES)
def test_steps_of_each_pass_grow_as_the_program(shape: str) -> None:
    """Pass by pass, as a pass that takes long hides behind reading while programs are short."""
    counts: list[list[int]] = []
    for n in (10, 100, 400):
        module, found = dx.loads(SHAPES[shape](n)), []
        for pass_ in parse_pipeline("default"):
            count, module = steps(partial(run_pipeline, module, [pass_]))
            found.append(count)
        counts.append(found)
    for pass_, short, long in zip(parse_pipeline("default"), *counts[1:], strict=True):
        assert math.log(long / short) / math.log(4) <= MOST_EXPONENT, (pass_.name, short, long)


def test_kernels_that_differ_in_numbers_alone_are_one_for_a_report() -> None:
    """But for 0, 1 and infinities, which may be more to a kernel than numbers."""
    module = dx.optimize(dx.loads(_layers(6)))
    before, after = ({n.attr("body") for n in m.entry.nodes if n.op is fusion} for m in (module, alike(module)))
    assert (len(before), len(after)) == (6, 2), "five layers of another constant each, and the end"
    assert len({id(n.attr("body")) for n in alike(module).entry.nodes if n.op is fusion}) == 2, "one object each"
    special = dx.loads(_layers(3).replace("0.5", "1").replace("1.5", "0").replace("2.5", "inf"))
    assert alike(special) is special


def test_layers_alike_are_looked_at_once() -> None:
    """Products and what is done with them: a kernel is tried for each kind of layer, however many of them there are."""
    counts = []
    for n in (5, 50):
        asked: list[Node] = []
        tried: list[Function] = []
        entry = alike(dx.optimize(dx.loads(_layers(n)))).entry
        in_order(entry, lambda node, asked=asked: asked.append(node) or (False, False))  # type: ignore[misc]
        with_fused_epilogue(entry, lambda body, tried=tried: tried.append(body) or True, dot_general)  # type: ignore[misc]
        counts.append((len(asked), len(tried)))
    assert counts[0] == counts[1]


def _nested(n: int) -> str:
    """So many loops within each other."""
    pair = "(s32[], f32[8])"
    text = ["HloModule m", ""]
    for k in range(n):
        loop, plain = f"  w = {pair} while(s), condition=c{k - 1}, body=b{k - 1}", f"  t = f32[8] tanh(v)\n  w = {pair} tuple(i, t)"
        inner = loop if k else plain
        text += [f"b{k} {{", f"  s = {pair} parameter(0)", "  i = s32[] get-tuple-element(s), index=0",
                 "  v = f32[8] get-tuple-element(s), index=1", inner, "  u = f32[8] get-tuple-element(w), index=1",
                 "  one = s32[] constant(1)", "  j = s32[] add(i, one)", f"  ROOT r = {pair} tuple(j, u)", "}", "",
                 f"c{k} {{", f"  s = {pair} parameter(0)", "  i = s32[] get-tuple-element(s), index=0", "  n = s32[] constant(1)",
                 "  ROOT r = pred[] compare(i, n), direction=LT", "}", ""]  # fmt: skip
    return "\n".join([*text, "ENTRY main {", "  x = f32[8] parameter(0)", "  z = s32[] constant(0)", f"  t = {pair} tuple(z, x)",
                      f"  ROOT w = {pair} while(t), condition=c{n - 1}, body=b{n - 1}", "}", ""])  # fmt: skip


@pytest.mark.parametrize(("loops", "code"), [(60, 0), (70, 5), (300, 5)])
def test_loops_within_each_other_are_read_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loops: int, code: int
) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(_nested(loops))
    assert main(["opt", str(path), "-p", "none", "-o", "/dev/null"]) == code
    assert ("nest deeper than" in capsys.readouterr().err) == bool(code)
