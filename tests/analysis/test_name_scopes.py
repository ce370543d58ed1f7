"""Name scopes: what the names of each framework say, and that every node gets the scope that its names or neighbours tell."""

from __future__ import annotations

import pytest

import deepx_graph as dx
from deepx_graph.analysis.name_scopes import common_prefix, dotted_path, name_scopes, parameter_path, scope_of_label
from deepx_graph.session.query.language import parse_query

LABELS = {
    "jit(sgd)/jvp(GPT)/Blk_1/LayerNorm_0/add": ("GPT/Blk_1/LayerNorm_0", "forward"),
    "jit(sgd)/transpose(jvp(GPT))/Blk_5/LayerNorm_0/reshape": ("GPT/Blk_5/LayerNorm_0", "backward"),
    "jit(apply)/GPT/Dense_0/dot_general": ("GPT/Dense_0", ""),
    "jit(f)/GPTs/while/body/closed_call": ("GPTs", ""),
    "jit(f)/GPTs/while/body/add": ("GPTs", ""),
    "Blk_0.<lambda>/Blk_0/MultiHeadDotProductAttention_0/out/dot_general": ("Blk_0/MultiHeadDotProductAttention_0/out", ""),
    "jit(f)/vmap(Cell)/jit(relu)/max": ("Cell", ""),
    "jit(f)/jvp()/mul": ("", "forward"),
    "jit(f)/transpose(jvp())/mul": ("", "backward"),
    "jit(f)/Net/cond/branch_1_fun/mul": ("Net", ""),
    "jit(f)/jvp(Net)/checkpoint/rematted_computation/Block/mul": ("Net/Block", "forward"),
    "/l.0/self_attn/Reshape_3": ("l.0/self_attn", ""),
    "Default/network-WithLossCell/conv1-Conv2d/Conv2D-op6": ("Default/network-WithLossCell/conv1-Conv2d", ""),
    "add": ("", ""),
    "": ("", ""),
    "a(b/c)/d": ("a(b/c)", ""),
    "unclosed(a/b": ("", ""),
}


@pytest.mark.parametrize("label", LABELS)
def test_the_scope_in_a_label(label: str) -> None:
    scope = scope_of_label(label)
    assert (str(scope), scope.phase) == LABELS[label]


PARAMETERS = {
    "p['params']['Blk_0']['Dense_0']['bias']": ("params", "Blk_0", "Dense_0", "bias"),
    "opt_state[0].mu['a']": ("0", "mu", "a"),
    "p__params____Blk_0____MultiHeadDotProductAttention_0____key____bias__.1":
        ("params", "Blk_0", "MultiHeadDotProductAttention_0", "key", "bias"),
    "model.layers.0.weight": ("model", "layers", "0", "weight"),
    "x": ("x",),
    "": (),
    "a[b": ("a[b",),
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_path_of_a_parameter(name: str) -> None:
    assert parameter_path(name) == PARAMETERS[name]


@pytest.mark.parametrize(("name", "parts"), [
    ("a.b.c", ("a", "b", "c")), ("add.5", ("add",)), ("layers.0.w", ("layers", "0", "w")), ("", ("",)), ("7", ()), ("..", ("",)),
])  # fmt: skip
def test_paths_in_dotted_names(name: str, parts: tuple[str, ...]) -> None:
    assert dotted_path(name) == parts


def test_the_longest_common_prefix() -> None:
    assert common_prefix([("a", "b", "c"), ("a", "b"), ("a", "b", "d")]) == ("a", "b")
    assert common_prefix([("a",), ("b",)]) == ()
    assert common_prefix([]) == ()


NAMED = """
module @jit_f {
  func.func public @main(%arg0: tensor<4xf32> loc("x"), %arg1: tensor<4xf32> loc("p['Dense_0']['bias']")) -> tensor<4xf32> {
    %0 = stablehlo.constant dense<2.0> : tensor<4xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<4xf32> loc("jit(f)/Net/Scale_0/mul")
    %2 = stablehlo.add %1, %arg1 : tensor<4xf32> loc("jit(f)/Net/Dense_0/add")
    %3 = stablehlo.tanh %2 : tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}
"""


def test_what_has_no_name_belongs_to_what_uses_it_or_what_it_uses() -> None:
    function = dx.loads(NAMED).entry
    scopes = {n.op.name + n.name * (n.op.name == "param"): str(s) for n, s in name_scopes(function).items()}
    assert scopes == {
        "paramarg0": "Net/Scale_0", "paramarg1": "Net/Dense_0", "constant": "Net/Scale_0", "multiply": "Net/Scale_0",
        "add": "Net/Dense_0", "tanh": "Net/Dense_0",
    }  # fmt: skip


def test_a_kernel_of_several_scopes_is_of_the_innermost_around_them() -> None:
    fused = dx.optimize(dx.loads(NAMED)).entry
    (kernel,) = (n for n in fused.nodes if n.op.name == "fusion")
    assert str(name_scopes(fused)[kernel]) == "Net"


def test_queries_ask_for_scopes() -> None:
    module = dx.loads(NAMED)
    for query, ops in (("scope:Dense_0 op:add,multiply", ["add"]), ("scope:Net/Scale_0 op:*", ["param", "constant", "multiply"]),
                       ("scope:Net kernel", ["multiply", "add", "tanh"]), ("scope:Dense_1", [])):  # fmt: skip
        assert [n.op.name for n in parse_query(query).nodes(module)] == ops, query


WEIGHTS = """
func.func public @main(%x: tensor<4x4xf32> loc("x"), %u: tensor<4x4xf32> loc("p['down'][0]['fc']['kernel'].value"),
    %c: tensor<4xf32> loc("p['down'][0]['fc']['bias'].value"), %w: tensor<4x4xf32> loc("p['out']['kernel'].value"))
    -> tensor<4x4xf32> {
  %s = stablehlo.negate %x : tensor<4x4xf32> loc("jit(f)/neg")
  %0 = stablehlo.dot_general %s, %u, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.add %0, %b : tensor<4x4xf32>
  %2 = stablehlo.tanh %1 : tensor<4x4xf32> loc("jit(f)/tanh")
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}"""


def test_weights_tell_the_modules_where_operations_do_not() -> None:
    entry = dx.loads(WEIGHTS, "stablehlo").entry
    scopes = {n.op.name: str(s) for n, s in name_scopes(entry).items()}
    assert [scopes[op] for op in ("add", "tanh", "dot_general")] == ["down/0/fc", "down/0/fc", "out"]
    one = WEIGHTS.replace("p['out']", "p['down'][0]['fc']")
    assert {str(s) for s in name_scopes(dx.loads(one, "stablehlo").entry).values()} == {""}, "one module is no hierarchy"


def test_subscripts_of_a_product_are_no_module() -> None:
    assert str(scope_of_label("jit(f)/Dec_0/bhqk,bkhd->bqhd/dot_general")) == "Dec_0"
