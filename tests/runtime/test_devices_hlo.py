"""HLO's collectives, tokens, feeds and channels: run on several devices, and through every printed form and back."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ops import OPS

ADD = "HloModule m\nadd { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"
X = [np.array([k, 10 * k], "f4") for k in range(4)]


def forms(module: dx.Module) -> list[dx.Module]:
    """The module, and what it reads as after each printed form, in turn."""
    found = [module]
    for form in ("hlo", "stablehlo", "hlo", "sea", "hlo"):
        found.append(dx.loads(dx.dumps(found[-1], form), form))
    text = dx.dumps(found[1], "hlo")
    assert dx.dumps(dx.loads(text, "hlo"), "hlo") == text
    return found


def outputs(module: dx.Module, *args: object, replicas: int = 4, partitions: int = 1) -> list[list[float]]:
    return [r[0].tolist() for r in dx.compile(module, replicas=replicas, partitions=partitions)(*args)]


def collective(line: str, parameter: str = "f32[2]") -> dx.Module:
    return dx.loads(f"{ADD}ENTRY e {{ x = {parameter} parameter(0)\n {line} }}", "hlo")


@pytest.mark.parametrize(("line", "wanted"), [
    ("ROOT y = f32[2] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add", [[1, 10], [1, 10], [5, 50], [5, 50]]),
    ("ROOT y = f32[2] all-reduce(x), replica_groups={}, to_apply=add", [[6, 60]] * 4),
    ("ROOT y = f32[2] all-reduce(x), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=add",
     [[1, 10], [1, 10], [5, 50], [5, 50]]),
    ("ROOT y = f32[4] all-gather(x), replica_groups={{1,0},{2,3}}, dimensions={0}",
     [[1, 10, 0, 0], [1, 10, 0, 0], [2, 20, 3, 30], [2, 20, 3, 30]]),
    ("ROOT y = f32[1] reduce-scatter(x), replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=add", [[1], [10], [5], [50]]),
    ("ROOT y = f32[2] all-to-all(x), replica_groups={{0,1},{2,3}}, dimensions={0}", [[0, 1], [0, 10], [2, 3], [20, 30]]),
    ("ROOT y = f32[2] collective-permute(x), source_target_pairs={{0,1},{1,2}}", [[0, 0], [0, 0], [1, 10], [0, 0]]),
    ("ROOT y = f32[2] collective-broadcast(x), replica_groups={{2,1}}", [[0, 0], [2, 20], [2, 20], [0, 0]]),
    ("s = f32[2] all-reduce-start(x), replica_groups={{0,1},{2,3}}, to_apply=add\n ROOT y = f32[2] all-reduce-done(s)",
     [[1, 10], [1, 10], [5, 50], [5, 50]]),
    ("s = (f32[2], f32[4]) all-gather-start(x), replica_groups={{0,1},{2,3}}, dimensions={0}\n ROOT y = f32[4] all-gather-done(s)",
     [[0, 0, 1, 10], [0, 0, 1, 10], [2, 20, 3, 30], [2, 20, 3, 30]]),
    ("s = (f32[2], f32[2], u32[], u32[]) collective-permute-start(x), source_target_pairs={{3,0}}\n"
     " ROOT y = f32[2] collective-permute-done(s)", [[3, 30], [0, 0], [0, 0], [0, 0]]),
])  # fmt: skip
def test_collectives(line: str, wanted: list[list[float]]) -> None:
    for module in forms(collective(line)):
        assert outputs(module, X) == wanted


def test_operands_that_go_to_one_device_each() -> None:
    module = dx.loads("""HloModule m
ENTRY e { a = f32[2] parameter(0) b = f32[2] parameter(1)
 ROOT y = (f32[2], f32[2]) all-to-all(a, b), replica_groups={{0,1}} }""", "hlo")
    for m in (module, dx.loads(dx.dumps(module, "hlo"), "hlo")):
        found = dx.compile(m, replicas=2, optimize=False)([X[0], X[1]], [X[2], X[3]])
        assert [[r.tolist() for r in device] for device in found] == [[[0, 0], [1, 10]], [[2, 20], [3, 30]]]


def test_several_operands_and_the_numbers_of_a_device() -> None:
    module = dx.loads(ADD + """ENTRY e { x = f32[2] parameter(0) r = u32[] replica-id() p = u32[] partition-id()
 a = f32[] convert(r) b = f32[] convert(p)
 ROOT y = (f32[2], f32[], f32[]) all-reduce(x, a, b), channel_id=3, replica_groups={{0,1}}, to_apply=add }""", "hlo")
    for m in forms(module):
        found = dx.compile(m, replicas=2, partitions=2, optimize=False)(X)
        assert [[r.tolist() for r in device] for device in found] == [[[6, 60], 2, 2]] * 4


LOOP = ADD + """cond { s = (s32[], f32[2], token[]) parameter(0) i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[2], token[]) parameter(0) i = s32[] get-tuple-element(s), index=0
 x = f32[2] get-tuple-element(s), index=1 t = token[] get-tuple-element(s), index=2
 y = f32[2] all-reduce(x), replica_groups={{0,1}}, to_apply=add
 o = token[] outfeed(y, t), outfeed_shape=f32[2]
 one = s32[] constant(1) j = s32[] add(i, one) ROOT r = (s32[], f32[2], token[]) tuple(j, y, o) }
ENTRY e { x = f32[2] parameter(0) z = s32[] constant(0) t = token[] after-all()
 s = (s32[], f32[2], token[]) tuple(z, x, t)
 w = (s32[], f32[2], token[]) while(s), condition=cond, body=body
 ROOT y = f32[2] get-tuple-element(w), index=1 }"""


def test_tokens_go_through_loops() -> None:
    for module in forms(dx.loads(LOOP, "hlo")):
        f = dx.compile(module, replicas=2)
        assert [r[0].tolist() for r in f([X[0], X[1]])] == [[4, 40], [4, 40]]
        assert [[x.tolist() for (x,) in device] for device in f.outfeed] == [[[1, 10], [2, 20], [4, 40]]] * 2


BRANCH = """HloModule m
yes { a = (f32[], token[]) parameter(0) x = f32[] get-tuple-element(a), index=0 t = token[] get-tuple-element(a), index=1
 i = (f32[], token[]) infeed(t) v = f32[] get-tuple-element(i), index=0 n = token[] get-tuple-element(i), index=1
 s = f32[] add(v, x) ROOT r = (f32[], token[]) tuple(s, n) }
no { ROOT a = (f32[], token[]) parameter(0) }
twice { c = pred[] parameter(0) x = f32[] parameter(1) t = token[] parameter(2) a = (f32[], token[]) tuple(x, t)
 ROOT b = (f32[], token[]) conditional(c, a, a), true_computation=yes, false_computation=no }
ENTRY e { c = pred[] parameter(0) x = f32[] parameter(1) t = token[] after-all()
 a = (f32[], token[]) call(c, x, t), to_apply=twice
 y = f32[] get-tuple-element(a), index=0 u = token[] get-tuple-element(a), index=1
 i = (f32[], token[]) infeed(u) v = f32[] get-tuple-element(i), index=0
 ROOT r = (f32[], f32[]) tuple(y, v) }"""


def test_an_infeed_in_a_branch_is_read_only_when_it_is_taken() -> None:
    for module in forms(dx.loads(BRANCH, "hlo")):
        feed = [np.float32(k) for k in (1, 2, 3)]
        f = dx.compile(module, infeed=feed)
        assert [float(r) for r in f(np.array(True), np.float32(10))] == [11, 2]
        assert [float(r) for r in f(np.array(False), np.float32(10))] == [10, 3]


def test_what_is_sent_arrives_where_the_pairs_say() -> None:
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,0}}"}'
    module = dx.loads(f"""HloModule m
ENTRY e {{ x = f32[2] parameter(0) t = token[] after-all()
 r = (f32[2], u32[], token[]) recv(t), channel_id=5, {pairs}
 s = (f32[2], u32[], token[]) send(x, t), channel_id=5, {pairs}
 d = token[] send-done(s), channel_id=5
 e = (f32[2], token[]) recv-done(r), channel_id=5, control-predecessors={{d}}, {pairs}
 ROOT y = f32[2] get-tuple-element(e), index=0 }}""", "hlo")
    for m in forms(module):
        assert outputs(m, X[:3], replicas=3) == [[2, 20], [0, 0], [1, 10]]


def test_things_begun_and_ended_are_done() -> None:
    module = dx.loads("""HloModule m
work { p = f32[2] parameter(0) ROOT n = f32[2] negate(p) }
ENTRY e { x = f32[2] parameter(0)
 a = ((f32[2]), f32[2], s32[]) async-start(x), calls=work
 u = ((f32[2]), f32[2], s32[]) async-update(a)
 b = f32[2] async-done(u)
 c = (f32[2], f32[2], u32[]) copy-start(b)
 ROOT d = f32[2] copy-done(c) }""", "hlo")
    assert [r.tolist() for r in dx.compile(module, optimize=False)(X[1])] == [[-1, -10]]


def test_calls_in_the_bodies_of_operations_are_taken_in() -> None:
    module = dx.loads("""HloModule m
plus { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
body { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] call(p, q), to_apply=plus }
ENTRY e { x = f32[2] parameter(0) z = f32[] constant(0)
 ROOT s = f32[] reduce(x, z), dimensions={0}, to_apply=body }""", "hlo")
    assert [float(r) for r in dx.compile(module, optimize=False)(X[1])] == [11]


def test_custom_calls_of_hlo() -> None:
    text = """HloModule m
ENTRY e { x = f32[2] parameter(0)
 s = f32[2] custom-call(x), custom_call_target="Sharding", sharding={replicated}
 ROOT c = (f32[2], f32[]) custom-call(s), custom_call_target="test.pair", backend_config="k=1",
  api_version=API_VERSION_TYPED_FFI }"""
    dx.register_custom_call("test.pair", lambda x: (x + 1, x.sum()))
    try:
        for module in forms(dx.loads(text, "hlo")):
            assert [r.tolist() for r in dx.compile(module)(X[1])] == [[2, 11], 11]
            (call,) = [n for n in module.entry.nodes if n.op is OPS["custom_call"]]
            assert (call.attr("backend_config"), call.attr("api_version")) == ("k=1", 4)
            assert 'custom_call_target="Sharding"' in dx.dumps(module, "hlo")
        assert 'custom_call_target="Sharding", sharding={replicated}' in dx.dumps(forms(dx.loads(text, "hlo"))[2], "hlo")
    finally:
        dx.register_custom_call("test.pair", None)


def test_side_effects_of_hlo_calls_keep_their_order() -> None:
    text = """HloModule m
ENTRY e { x = f32[] parameter(0)
 a = () custom-call(x), custom_call_target="test.note", custom_call_has_side_effect=true
 y = f32[] add(x, x)
 b = () custom-call(y), custom_call_target="test.note", custom_call_has_side_effect=true
 ROOT z = f32[] copy(y) }"""
    seen: list[float] = []
    dx.register_custom_call("test.note", lambda x: seen.append(float(x)))
    try:
        for module in forms(dx.loads(text, "hlo")):
            seen.clear()
            dx.compile(module)(np.float32(4))
            assert seen == [4, 8]
    finally:
        dx.register_custom_call("test.note", None)
