"""The dumps of MindSpore's compiler, in the forms of its versions and levels: programs of our own, as its printer writes them."""

from __future__ import annotations

import random
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.text import detect

RECENT = """# IR entry: @9___main___Net_construct_72
# Total subgraphs: 3

# Attrs:
has_shard: 0
jit_level:

# Total params: 3
# Params:
%para1_x: <Tensor[Float32], (2)> : [2]
%para2_c.weight: <Ref[Tensor[Float32]], (2), ref_key=c.weight, is_parameter>  :  has_default
%para3_layer.0:bias: <Ref[Tensor[Float32]], (2), ref_key=layer.0:bias>  :  <Float32xDefaultFormat[2]>  :  IsWeight: true

Node counting information:
Total number of nodes: 29

subgraph attr:
has_shard: 0
subgraph instance: 9___main___Net_construct_72 : 0xaaaae0ca0250
# In file net.py:15~20, 4~16/    def construct(self, x):/
subgraph @9___main___Net_construct_72() {
  %0(CNode_60) = Load(%para2_c.weight, UMonad[U]) primitive_attrs: {format: "(", side_effect_propagate: I64(1)}
      : (<Ref[Tensor[Float32]], (2), ref_key=c.weight>, <UMonad, NoShape>) -> (<Tensor[Float32], (2)>)
      # Fullname with scope: (Default/Load-op0)
  %1(CNode_61$a) = PrimFunc_Mul(%para1_x, Tensor(shape=[2], dtype=Float32, value=
[ 2.00000000e+00,
  5.00000000e-01])) cnode_attrs: {checkpoint: Bool(1)}
      : (<Tensor[Float32], (2)>, <Tensor[Float32], (2), value=...>) -> (<Tensor[Float32], (2)>)
      # Fullname with scope: (Default/Mul-op0)
      # In file net.py:16, 12~25/        a = x * [2, 0.5]/
  %2(CNode_62) = Custom(%1, "a ) in [quotes", ", (") primitive_attrs: {reg_info: "{"inputs": [}"}
      : (<Tensor[Float32], (2)>, <String, NoShape>, <String, NoShape>) -> (<Tensor[Float32], (2)>)
  %3(CNode_63) = ReduceSum(%1, (I64(0)), Bool(0))
      : (<Tensor[Float32], (2)>, <Tuple[Int64], TupleShape(NoShape)>, <Bool, NoShape>) -> (<Tensor[Float32], ()>)

#------------------------> 0
  %4(CNode_64) = PrimFunc_Greater(%3, Tensor(shape=[], dtype=Float32, value=0))
      : (<Tensor[Float32], ()>, <Tensor[Float32], (), value=...>) -> (<Tensor[Bool], ()>)
  %5(CNode_74) = Switch(%4, @20_4_✓__main___Net_construct_75, @21_14_✗__main___Net_construct_76)
      : (<Tensor[Bool], ()>, <Func, NoShape>, <Func, NoShape>) -> (<Func, NoShape>)
  %6(CNode_77) = %5[@FuncUnion(@20_4_✓__main___Net_construct_75, @21_14_✗__main___Net_construct_76)]()
      : () -> (<Tensor[Float32], (2)>)
      # Fullname with scope: (0)
  Return(%6) cnode_attrs: {checkpoint: Bool(1)}
      : (<Tensor[Float32], (2)>)
}
# Order:
#   1: @9___main___Net_construct_72:CNode_60{[0]: ValueNode<Primitive> Load, [1]: param_c.weight}


indirect: 1
subgraph attr:
defer_inline: 0
subgraph instance: 20_4_✓__main___Net_construct_75 : 0xaaaae0c9dc10
# Parameters: 0, ()
subgraph @20_4_✓__main___Net_construct_75 parent: [subgraph @9___main___Net_construct_72]() {
  %0(output) = PrimFunc_Add($(@9___main___Net_construct_72:CNode_61$a), $(@9___main___Net_construct_72:para2_c.weight))
      : (<Tensor[Float32], (2)>, <Ref[Tensor[Float32]], (2), ref_key=c.weight>) -> (<Tensor[Float32], (2)>)
  Return(%0)
      : (<Tensor[Float32], (2)>)
}


indirect: 1
subgraph attr:
subgraph instance: 21_14_✗__main___Net_construct_76 : 0xaaaae0c71c00
# Parameters: 0, ()
subgraph @21_14_✗__main___Net_construct_76 parent: [subgraph @9___main___Net_construct_72]() {
  Return($(@9___main___Net_construct_72:para3_layer.0:bias))
      : (<Ref[Tensor[Float32]], (2), ref_key=layer.0:bias>)
}
"""

BRIEF = """# IR entry: @Net_construct
# Total subgraphs: 1
# Total params: 2
# Params:
%para1_x : <Tensor[Float32], (2)>
%para2_net.w : <Ref[Tensor[Float32]], (2), ref_key=:net.w>  :  has_default

subgraph @Net_construct() {
  %0 = Load(%para2_net.w, U)
  %1 = Mul(%para1_x, %0)
  %2 = UpdateState(U, %0)
  %3 = Depend(%1, %2)
  Return(%3)
}
"""

OLD = """#IR entry      : @construct_wrapper.15
#Total subgraph: 1

#attrs         :
check_set_strategy_valid_once_only : 1

#Total params  : 2

%para1_x : <Tensor[Float32]x[const vector][2]>
%para2_y.b : <Ref[Tensor(F32)]x[2]>  :  <Float32xDefaultFormat[2]>  :  IsWeight:true

switch_input: 1
subgraph attr:
subgraph instance: construct_wrapper.15 : 0x55ce9e0d3d40
# In file train.py(13)/        x = x + y/
subgraph @construct_wrapper.15() {
  %0([CNode]5) = Add(%para1_x, %para1_x) {instance name: add} primitive_attrs: {output_names: [output], input_names: [x, y]}
      : (<Tensor[Float32]x[const vector][2]>, <Tensor[Float32]x[const vector][2]>) -> (<Tensor[Float32]x[const vector][2]>)
      # scope: (Default)
  %1([CNode]6) = DoSignaturePrimitive::S-Prim-Mul{prim_type=1}(%0, %para1_x) {in_strategy: ((1), (1))}
      : (<Tensor[Float32]x[const vector][2]>, <Tensor[Float32]x[const vector][2]>) -> (<Tensor[Float32]x[const vector][2]>)
  Return(%1)
      : (<Tensor[Float32]x[const vector][2]>)
}
# order:
#   1: @construct_wrapper.15:[CNode]5{[0]: ValueNode<Primitive> Add, [1]: x}
"""

FAILED = """# ===============================================================================================
# The following shows the IR when the function graphs evaluation fails to help locate the problem.
# ===============================================================================================

subgraph attr:
subgraph instance: __main___Net_construct.1 : 0x5629496604e0
# In file net.py:14/    def construct(self, x1):/
subgraph @__main___Net_construct.1(%para1_x1, %para2_bias.b) {
  %0(CNode_3) = resolve(NameSpace[ClassMember: 'Namespace:__main__..<Net::4300844784>'], weight)
      : (<External, NoShape>, <External, NoShape>) -> (<Func, NoShape>)
      #scope: (Default)

#------------------------> 0
  %1(CNode_2) = %0(%para1_x1, %para9_from.elsewhere)
      : (<Tensor[Float32], (3, 32)>, <null>) -> (<null>)
      #scope: (Default)
  %2(x) = call @bias_add.6(%1, %para2_bias.b)
      : (<null>, <Ref[Tensor[Float32]], (4)>) -> (<null>)
  Return(%2)
      : (<null>)
}
"""

X, W, B = (np.array(v, "f4") for v in ([3.0, -1.0], [10.0, 20.0], [7.0, 8.0]))


def load(text: str) -> dx.Module:
    assert detect(text) == "mindir"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dx.loads(text)


@pytest.mark.parametrize(("text", "inputs", "wanted"), [
    (RECENT, (X, W, B), X * np.array([2, 0.5], "f4") + W),
    (RECENT, (-X, W, B), B),
    (BRIEF, (X, W), X * W),
    (OLD, (X, W), 2 * X * X),
])  # fmt: skip
def test_what_a_dump_tells_in_full_is_run(text: str, inputs: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(dx.compile(load(text), optimize=False)(*inputs)[0], wanted)


def test_names_of_parameters_are_those_of_the_weights() -> None:
    assert [p.name for p in load(RECENT).entry.params] == ["para1_x", "para2_c.weight", "bias"]


def test_what_a_dump_does_not_tell_is_shown() -> None:
    with pytest.warns(UserWarning, match=r"does not say what 'para9_from.elsewhere' is"):
        module = dx.loads(FAILED)
    assert [p.name for p in module.entry.params] == ["para1_x1", "para2_bias.b"]
    assert "resolve" in dx.dumps(module, "sea")


@pytest.mark.parametrize("text", [RECENT, BRIEF, OLD, FAILED], ids=["recent", "brief", "old", "failed"])
def test_damaged_dumps_are_shown_or_refused(text: str) -> None:
    rng = random.Random(0)
    lines = text.splitlines()
    for _ in range(60):
        k, kind = rng.randrange(len(lines)), rng.randrange(3)
        line = lines[k]
        at = rng.randrange(len(line) + 1)
        damaged = [line[:at], line[:at] + rng.choice('()[]{}<>"%$@,') + line[at:], line[:at] + line[at + 1 :]][kind]
        with warnings.catch_warnings(), suppress(DeepxGraphError):
            warnings.simplefilter("ignore")
            dx.loads("\n".join([*lines[:k], damaged, *lines[k + 1 :]]), "mindir")
