"""What costs are multiplied by: iterations of loops, calls, devices; and what is said where nobody knows how many there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.analysis.work import ONCE, Times, node_times
from deepx_graph.cli import main as cli
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.structure import CALL, PROJ
from deepx_graph.ops import add, compare, dot_general, exponential, tanh
from deepx_graph.runtime.cost.counts import function_times
from deepx_graph.session.report.figures import figures, judge, parse_budget, reached_info
from deepx_graph.session.report.info import module_info
from deepx_graph.session.report.kernels import kernels
from deepx_graph.text import sea
from deepx_graph.types import F32, I32, FunctionType, scalar, tensor

SQUARE = tensor(F32, (6, 6))


def layer(b: Builder, x: Node, w: Node) -> Node:
    d = b(dot_general, x, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
    return b(tanh, b(add, d, b(exponential, w)))


def counted_loop(b: Builder, trips: int, inits: Sequence[Node], body: object, step: int = 1) -> tuple[Node, ...]:
    """`trips` iterations of `body`, by a counter."""

    def iteration(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        i, *rest = now
        return (b(compare, i, b.constant(trips * step, I32), direction="LT"),
                [b(add, i, b.constant(step, I32)), *body(rest)])  # type: ignore[operator]

    return b.loop([b.constant(0, I32), *inits], iteration)[1:]


def scanned(shape: Sequence[int]) -> Module:
    """Loops of so many iterations inside each other around a layer; the exponential in it depends on none of them."""
    b = Builder()

    def body(x: Node, w: Node) -> list[Node]:
        def nest(k: int, values: list[Node]) -> list[Node]:
            if k == len(shape):
                return [layer(b, values[0], w)]
            return list(counted_loop(b, shape[k], values, lambda inner: nest(k + 1, inner), step=k + 1))

        return nest(0, [x])

    return Module((b.function("main", [("x", SQUARE), ("w", SQUARE)], body),))


def written_out(count: int) -> Module:
    """The same layer so many times, one after another."""
    b = Builder(peephole=True)

    def body(x: Node, w: Node) -> list[Node]:
        for _ in range(count):
            x = layer(b, x, w)
        return [x]

    return Module((b.function("main", [("x", SQUARE), ("w", SQUARE)], body),))


@pytest.mark.parametrize("shape", [(0,), (1,), (2,), (12,), (3, 4), (4, 1, 5), (2, 0, 3)])
def test_a_scanned_program_costs_what_it_costs_written_out(shape: tuple[int, ...]) -> None:
    """Within the loops' own tests and counters, which are single numbers; `w` goes through its exponential once in both."""
    loops, plain = (figures(reached_info(m)) for m in (scanned(shape), written_out(int(np.prod(shape)))))
    entered = sum(int(np.prod(shape[:k])) for k in range(len(shape)))
    rounds = entered + 2 * sum(int(np.prod(shape[: k + 1])) for k in range(len(shape)))
    assert loops["flops"] is not None and plain["flops"] is not None
    assert loops["flops"] - plain["flops"] == rounds
    assert loops["bytes_moved"] is not None and plain["bytes_moved"] is not None
    assert 0 <= loops["bytes_moved"] - plain["bytes_moved"] <= 12 * rounds


def predicted(module: Module, engine: str) -> float:
    found = kernels(dx.optimize(module, "simplify,fuse"), engine, 1)
    assert found is not None
    return found.predicted_us


@pytest.mark.parametrize("engine", ["numpy", "numexpr"])
def test_so_does_its_predicted_time(engine: str) -> None:
    """Where each operation is a call in both; the counters' and tests' calls come on top."""
    loops, plain = predicted(scanned((4, 5)), engine), predicted(written_out(20), engine)
    assert 0.9 * plain <= loops <= 3 * plain


@pytest.mark.parametrize("engine", ["numpy", "numexpr", "auto"])
def test_predicted_time_grows_with_iterations(engine: str) -> None:
    assert predicted(scanned((400,)), engine) > 10 * predicted(scanned((10,)), engine)


def test_budgets_see_through_loops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.sea"
    path.write_text(sea.write(scanned((12,))))
    flops = 12 * (2 * 6**3 + 2 * 36) + 36 + 13 + 12
    assert cli.main(["check", str(path), "-p", "none", "--budget", f"flops=={flops}"]) == 0
    assert cli.main(["check", str(path), "-p", "none", "--budget", f"flops<{flops}"]) == 1
    capsys.readouterr()


def open_loop() -> Module:
    b = Builder()

    def body(x: Node, n: Node) -> list[Node]:
        def iteration(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            i, v = now
            return b(compare, i, n, direction="LT"), [b(add, i, b.constant(1, I32)), b(tanh, v)]

        return [b.loop([b.constant(0, I32), x], iteration)[1]]

    return Module((b.function("main", [("x", SQUARE), ("n", scalar(I32))], body),))


def test_an_unknown_number_of_iterations_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = open_loop()
    path = tmp_path / "p.sea"
    path.write_text(sea.write(module))
    assert cli.main(["info", str(path), "-p", "none"]) == 0
    out = capsys.readouterr().out
    assert "38 operations" in out and "x ? iterations of the loop" in out
    assert cli.main(["info", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["flops"], len(report["open"])) == (38, 1)
    assert {r["runs_known"] for r in report["kernels"]["rows"]} <= {True, False}
    with pytest.raises(UsageError, match=r"flops is not known: 38 x \? iterations"):
        judge(module, module, [parse_budget("flops<=1000")])
    assert not judge(module, module, [parse_budget("flops<=37")])[0].holds, "more iterations only make it worse"
    assert judge(module, module, [parse_budget("flops>=30")])[0].holds


def calling() -> Module:
    """main calls `twice` in three iterations and once outside, and `twice` calls `leaf` two times."""
    b = Builder()
    leaf = b.function("leaf", [("x", SQUARE)], lambda x: [b(tanh, x)], public=False)

    def call(name: str, x: Node) -> Node:
        return b(PROJ, b(CALL, x, callee=name, signature=FunctionType((SQUARE,), (SQUARE,))), index=0)

    twice = b.function("twice", [("x", SQUARE)], lambda x: [call("leaf", call("leaf", x))], public=False)
    lost = b.function("lost", [("x", SQUARE)], lambda x: [call("leaf", x)], public=False)

    def body(x: Node) -> list[Node]:
        return [call("twice", counted_loop(b, 3, [x], lambda v: [call("twice", v[0])])[0])]

    return Module((leaf, twice, lost, b.function("main", [("x", SQUARE)], body)), "main")


def test_functions_count_as_often_as_they_are_called() -> None:
    module = calling()
    assert function_times(module) == {"leaf": Times(8), "twice": Times(4), "main": ONCE}
    info = module_info(module)
    assert info.functions[0].name == "main", "the entry first"
    assert info.flops == 8 * 36 + 4 + 3
    assert "lost, never called" in str(info) and "leaf, called 8 times" in str(info)


def test_recursion_is_said() -> None:
    b = Builder()

    def body(x: Node) -> list[Node]:
        return [b(tanh, b(PROJ, b(CALL, x, callee="main", signature=FunctionType((SQUARE,), (SQUARE,))), index=0))]

    module = Module((b.function("main", [("x", SQUARE)], body),))
    assert function_times(module) == {"main": Times(1, False)}
    assert module_info(module).open == ("calls of main",)


def test_what_leaves_a_loop_runs_once() -> None:
    module = scanned((5,))
    times = node_times(module.entry)
    assert {n.op.name: times[n].count for n in module.entry.nodes if n in times and n.op not in (add, PROJ)} == {
        "exponential": 1, "compare": 6, "dot_general": 5, "tanh": 5, "loop_end": 1}
