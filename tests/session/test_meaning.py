"""Comparing what programs compute: verdicts across spellings, orders of inputs and languages, and what is not the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.session.equivalence import equivalent
from deepx_graph.session.report.meaning import Sameness, compare_meaning
from tests.support.cli_runner import Run

NORM = """HloModule a
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,6] parameter(1)
  s = f32[4,8] multiply(x, x)
  one = f32[] constant(1)
  ones = f32[4,8] broadcast(one), dimensions={}
  a = f32[4,8] add(ones, s)
  r = f32[4,8] rsqrt(a)
  y = f32[4,8] multiply(x, r)
  ROOT d = f32[4,6] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""

SPELT = """module {
  func.func @main(%w: tensor<6x8xf32>, %x: tensor<4x8xf32>) -> tensor<4x6xf32> {
    %two = stablehlo.constant dense<2.0> : tensor<4x8xf32>
    %one = stablehlo.constant dense<1.0> : tensor<4x8xf32>
    %s = stablehlo.power %x, %two : tensor<4x8xf32>
    %a = stablehlo.add %s, %one : tensor<4x8xf32>
    %q = stablehlo.sqrt %a : tensor<4x8xf32>
    %y = stablehlo.divide %x, %q : tensor<4x8xf32>
    %d = stablehlo.dot_general %y, %w, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
    return %d : tensor<4x6xf32>
  }
}"""


def chain(*operations: str) -> str:
    """Layers of one operation each on four floats, with names as JAX writes them."""
    lines = "\n".join(f'%{k + 1} = stablehlo.{op} %{k} : tensor<4xf32> loc("jit(f)/Net/Layer_{k}/{op}")'
                      for k, op in enumerate(operations))  # fmt: skip
    return f"func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {{\n{lines}\nreturn %{len(operations)} : tensor<4xf32>\n}}"


def verdict(a: Module, b: Module) -> Sameness:
    return compare_meaning(a, b).verdict


def test_calls_and_kernels_do_not_count() -> None:
    block = dx.load("examples/transformer_block.dx")
    assert verdict(block, dx.optimize(block)) is Sameness.EXACT


def test_other_spellings_orders_of_inputs_and_transposed_weights() -> None:
    found = compare_meaning(dx.loads(NORM), dx.loads(SPELT))
    assert found.verdict is Sameness.CLOSE
    assert equivalent(dx.loads(NORM), dx.loads(SPELT)).kind == "same mathematics"


@pytest.mark.parametrize(("old", "new"), [
    ("constant(1)", "constant(2)"), ("add(ones, s)", "subtract(ones, s)"), ("multiply(x, r)", "multiply(s, r)"),
    ("rsqrt(a)", "sqrt(a)"), ("multiply(x, x)", "multiply(x, ones)"),
])  # fmt: skip
def test_what_is_another_program_is_not_called_the_same(old: str, new: str) -> None:
    changed = NORM.replace(old, new)
    if new.endswith("ones)"):
        changed = "\n".join([*changed.split("\n")[:4], *changed.split("\n")[5:7], changed.split("\n")[4], *changed.split("\n")[7:]])
    found = compare_meaning(dx.loads(NORM), dx.loads(changed))
    assert found.verdict is Sameness.UNKNOWN
    assert equivalent(dx.loads(NORM), dx.loads(changed)).kind == "different"


def test_operands_that_do_not_commute() -> None:
    text = "HloModule m\nENTRY main {\n  x = f32[4] parameter(0)\n  y = f32[4] parameter(1)\n  ROOT d = f32[4] OP\n}"
    one, other = (dx.loads(text.replace("OP", op)) for op in ("subtract(x, y)", "subtract(y, x)"))
    assert verdict(one, other) is Sameness.UNKNOWN
    one, other = (dx.loads(text.replace("OP", op)) for op in ("add(x, y)", "add(y, x)"))
    assert verdict(one, other) in (Sameness.EXACT, Sameness.CLOSE)


def test_differences_by_module_of_the_model() -> None:
    layers = ["tanh"] * 12
    found = compare_meaning(dx.loads(chain(*layers)), dx.loads(chain(*layers[:7], "cosine", *layers[8:])))
    (row,) = (s for s in found.scopes if s.differs)
    assert (row.first, row.second, row.changed) == ("Net/Layer_7", "Net/Layer_7", 1)
    assert "11 of 12 modules" in str(found)


@pytest.mark.parametrize("layers", [(2,), (0, 2)])
def test_another_constant_is_a_difference_of_the_modules_that_take_it(layers: tuple[int, ...]) -> None:
    def network(value: float) -> Module:
        lines = [f"%c{k} = stablehlo.constant dense<{v}> : tensor<4xf32>" for k, v in enumerate((1.0, value))]
        for k in range(4):
            scope = f"jit(f)/Net/Layer_{k}"
            lines += [f'%a{k} = stablehlo.add %{k}, %c{k in layers:d} : tensor<4xf32> loc("{scope}/add")',
                      f'%{k + 1} = stablehlo.tanh %a{k} : tensor<4xf32> loc("{scope}/tanh")']  # fmt: skip
        body = "\n".join(lines)
        return dx.loads(f"func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\nreturn %4 : tensor<4xf32>\n}}")

    found = compare_meaning(network(2.0), network(3.0))
    assert {s.first for s in found.scopes if s.differs} == {f"Net/Layer_{k}" for k in layers}
    assert f"{4 - len(layers)} of 4 modules" in str(found)


def test_equal_changes_are_folded() -> None:
    found = compare_meaning(dx.loads(chain(*["tanh"] * 12)), dx.loads(chain(*["cosine"] * 12)))
    lines = list(found.lines())
    assert sum("tanh" in line and line.startswith("  ~") for line in lines) == 1
    assert any("(and 11 more like it)" in line for line in lines)
    assert any("and 11 more like it" in line and "Layer_0" in line for line in lines)


def test_values_decide_the_exit_code(tmp_path: Path, run: Run) -> None:
    a, b = tmp_path / "a.hlo", tmp_path / "b.mlir"
    a.write_text(NORM)
    b.write_text(SPELT)
    done = run("diff", str(a), str(b), "--values", "--json")
    assert done.code == 0 and done.json["verdict"] == "close" and done.json["values"]["kind"] == "same mathematics"
    b.write_text(SPELT.replace("dense<1.0>", "dense<1.5>"))
    done = run("diff", str(a), str(b), "--values")
    assert done.code == 1 and "values: different" in done.out
    b.write_text(SPELT.replace("6x8", "5x8").replace("4x6", "4x5"))
    assert run("diff", str(a), str(b), "--values").code == 2


def test_values_that_are_all_odd_are_said_to_be() -> None:
    text = "HloModule m\nENTRY main {\n  x = f32[4] parameter(0)\n  y = f32[4] multiply(x, x)\n" \
           "  z = f32[4] negate(y)\n  l = f32[4] log(z)\n  ROOT r = f32[4] ROOT_OP(l, l)\n}"
    found = equivalent(*(dx.loads(text.replace("ROOT_OP", op)) for op in ("subtract", "divide")), count=1)
    assert found.kind == "equal" and "no element is finite" in found.evidence
