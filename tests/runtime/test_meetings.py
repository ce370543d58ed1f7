"""The static check that devices meet: what it finds would not end in lock step, and what ends it does not complain of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import RunError, VerifyError
from deepx_graph.session.programs import check_meetings
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.propagate import propagate
from tests.support.cli_runner import Run
from tests.support.sharded_programs import MLP

X = [np.array([k, 10 * k], "f4") for k in range(4)]
COUNT = 4

HEAD = """HloModule m
add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
ring { z = f32[2] parameter(0) ROOT y = f32[2] collective-permute(z), source_target_pairs={{0,1},{1,2},{2,3},{3,0}} }
all { z = f32[2] parameter(0) ROOT y = f32[2] all-reduce(z), replica_groups={{0,1,2,3}}, to_apply=add }
pairs { z = f32[2] parameter(0) ROOT y = f32[2] all-reduce(z), replica_groups={{0,1},{2,3}}, to_apply=add }
none { z = f32[2] parameter(0) ROOT y = f32[2] negate(z) }
step { s = (f32[2], u32[]) parameter(0) x = f32[2] get-tuple-element(s), index=0 k = u32[] get-tuple-element(s), index=1
 y = f32[2] all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add
 one = u32[] constant(1) n = u32[] subtract(k, one) ROOT t = (f32[2], u32[]) tuple(y, n) }
more { s = (f32[2], u32[]) parameter(0) k = u32[] get-tuple-element(s), index=1 zero = u32[] constant(0)
 ROOT c = pred[] compare(k, zero), direction=GT }
ENTRY e { x = f32[2] parameter(0)
 me = u32[] replica-id() two = u32[] constant(2) three = u32[] constant(3)
 first = pred[] compare(me, two), direction=LT
 sum = f32[2] all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add
 half = f32[2] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add
 total = f32[1] slice(sum), slice={[0:1]}
 part = f32[1] slice(half), slice={[0:1]}
 mine = f32[1] slice(x), slice={[0:1]}
 limit = f32[1] constant({0.3})
 of_all = pred[1] compare(total, limit), direction=LT
 of_pair = pred[1] compare(part, limit), direction=LT
 idle = u32[] add(me, three)
 a = pred[] reshape(of_all)
 b = pred[] reshape(of_pair)
"""

GOOD = {
    "alike": "ROOT w = f32[2] conditional(a, x, x), true_computation=all, false_computation=none",
    "a pair decides alike": "ROOT w = f32[2] conditional(b, x, x), true_computation=pairs, false_computation=none",
    "halves by their numbers": "ROOT w = f32[2] conditional(first, x, x), true_computation=pairs, false_computation=none",
    "the same on both sides": "ROOT w = f32[2] conditional(first, x, x), true_computation=all, false_computation=all",
    "a loop as long everywhere": "t = (f32[2], u32[]) tuple(x, three) l = (f32[2], u32[]) while(t), condition=more, body=step\n"
                                 " ROOT w = f32[2] get-tuple-element(l), index=0",
}  # fmt: skip
BAD = {
    "some devices alone": ("ROOT w = f32[2] conditional(first, x, x), true_computation=all, false_computation=none",
                           "come to different collectives"),
    "different on both sides": ("ROOT w = f32[2] conditional(first, x, x), true_computation=all, false_computation=ring",
                                "come to different collectives"),
    "pairs do not decide for all": ("ROOT w = f32[2] conditional(b, x, x), true_computation=all, false_computation=none",
                                    "below a branch"),
    "a loop of another length": ("t = (f32[2], u32[]) tuple(x, me) l = (f32[2], u32[]) while(t), condition=more, body=step\n"
                                 " ROOT w = f32[2] get-tuple-element(l), index=0", "below a loop"),
}  # fmt: skip


def program(line: str) -> dx.Module:
    return dx.loads(f"{HEAD} {line} }}", "hlo")


def run(module: dx.Module) -> None:
    dx.compile(module, replicas=COUNT, engine="numpy")([x * 0.1 for x in X])


@pytest.mark.parametrize("name", GOOD)
def test_what_meets_is_not_complained_of(name: str) -> None:
    check_meetings(program(GOOD[name]))
    run(program(GOOD[name]))


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_meet_is_found_before_it_runs(name: str) -> None:
    module = program(BAD[name][0])
    with pytest.raises(VerifyError, match=BAD[name][1]) as e:
        check_meetings(module)
    found = e.value.diagnostics[0]
    assert found.span is not None and any("<text>:" in note for note in found.notes), "both places"
    with pytest.raises(RunError, match="wait for each other"):
        run(module)


def test_what_a_partitioner_makes_meets() -> None:
    module = dx.loads(MLP, "stablehlo")
    check_meetings(partition(module, propagate(needed_plan(module))).module)


def test_the_command_says_both_places(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(f"{HEAD} {BAD['a loop of another length'][0]} }}")
    done = run("check", str(tmp_path / "m.hlo"), "--collectives")
    assert done.code == 4 and "m.hlo:8" in done.err and "the condition at" in done.err
    (tmp_path / "m.hlo").write_text(f"{HEAD} {GOOD['alike']} }}")
    assert run("check", str(tmp_path / "m.hlo"), "--collectives").code == 0
