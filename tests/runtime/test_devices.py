"""Programs on several devices, tokens, feeds and channels: expected values worked out by hand or by numpy over the devices."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.ops import OPS
from tests.support.paths import SHARED

SUITE = SHARED / "suites" / "stablehlo" / "interpret"
SUM = """({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
 %s = stablehlo.add %a, %b : tensor<f32>
 stablehlo.return %s : tensor<f32>
})"""
ADD = "add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"


def parallel_sections() -> list[tuple[str, int]]:
    return [
        (f.name, k) for f in sorted(SUITE.glob("*.mlir")) for k, part in enumerate(f.read_text().split("// -----"))
        if "interpreter." in part
    ]  # fmt: skip


@pytest.mark.skipif(not SUITE.is_dir(), reason="the suite ../shared/suites/stablehlo is not here")
@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize(("name", "k"), parallel_sections())
def test_official_sections_of_several_processes(name: str, k: int, optimised: bool) -> None:
    module = dx.loads((SUITE / name).read_text().split("// -----")[k], "stablehlo")
    again = dx.loads(dx.dumps(module, "stablehlo"), "stablehlo")
    for m in (module, again):
        dx.compile(dx.optimize(m) if optimised else m, optimize=False)()


def stablehlo(body: str, result: str = "tensor<2xf32>", args: str = "%x: tensor<2xf32>") -> dx.Module:
    return dx.loads(f"func.func @main({args}) -> {result} {{\n{body}\n}}", "stablehlo")


def collective(name: str, attributes: str, result: str = "tensor<2xf32>", region: str = "") -> dx.Module:
    body = f'%y = "stablehlo.{name}"(%x) {region} {{{attributes}}} : (tensor<2xf32>) -> {result}\nreturn %y : {result}'
    return stablehlo(body, result)


X = [np.array([k, 10 * k], "f4") for k in range(4)]
PAIRS = "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"


def outputs(module: dx.Module, *args: object, replicas: int = 4, partitions: int = 1) -> list[list[float]]:
    return [r[0].tolist() for r in dx.compile(module, replicas=replicas, partitions=partitions, optimize=False)(*args)]


def test_all_reduce_within_groups_and_over_all() -> None:
    two = collective("all_reduce", f"replica_groups = {PAIRS}", region=SUM)
    assert outputs(two, X) == [[1, 10], [1, 10], [5, 50], [5, 50]]
    everybody = collective("all_reduce", "replica_groups = dense<> : tensor<0x0xi64>", region=SUM)
    assert outputs(everybody, X) == [[6, 60]] * 4
    assert outputs(everybody, X[1]) == [[4, 40]] * 4
    assert [r.tolist() for r in dx.compile(everybody, optimize=False)(X[2])] == [[2, 20]]


def test_groups_are_replicas_partitions_both_or_devices() -> None:
    groups = "replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>"
    channel = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
    gathered = {
        groups: [[2, 0], [3, 1], [2, 0], [3, 1]],
        f"{groups}, {channel}": [[2, 0, 3, 1]] * 4,
        f"replica_groups = {PAIRS}, {channel}, use_global_device_ids": [[0, 1], [0, 1], [2, 3], [2, 3]],
    }
    for attributes, wanted in gathered.items():
        shape = f"tensor<{2 * len(wanted[0])}xf32>"
        module = collective("all_gather", f"all_gather_dim = 0 : i64, {attributes}", shape)
        found = outputs(module, X, replicas=2, partitions=2)
        assert [row[::2] for row in found] == wanted


def test_scatter_exchange_permute_and_broadcast() -> None:
    scattered = collective("reduce_scatter", f"scatter_dimension = 0 : i64, replica_groups = {PAIRS}", "tensor<1xf32>", SUM)
    assert outputs(scattered, X) == [[1], [10], [5], [50]]
    exchanged = collective("all_to_all", "split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, "
                                         f"replica_groups = {PAIRS}")
    assert outputs(exchanged, X) == [[0, 1], [0, 10], [2, 3], [20, 30]]
    permuted = collective("collective_permute", "source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>")
    assert outputs(permuted, X) == [[0, 0], [0, 0], [1, 10], [0, 0]]
    spread = collective("collective_broadcast", "replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>")
    assert outputs(spread, X) == [[0, 0], [2, 20], [2, 20], [0, 0]]


def test_any_reducer_is_taken() -> None:
    region = SUM.replace("stablehlo.add", "stablehlo.maximum")
    assert outputs(collective("all_reduce", f"replica_groups = {PAIRS}", region=region), X) == [[1, 10], [1, 10], [3, 30], [3, 30]]
    odd = ("({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n %s = stablehlo.add %a, %b : tensor<f32>\n"
           " %t = stablehlo.multiply %s, %s : tensor<f32>\n stablehlo.return %t : tensor<f32>\n})")
    assert outputs(collective("all_reduce", f"replica_groups = {PAIRS}", region=odd), X)[0] == [1, 100]


def test_every_device_knows_its_numbers() -> None:
    module = dx.loads("func.func @main() -> (tensor<ui32>, tensor<ui32>) {\n %r = stablehlo.replica_id : tensor<ui32>\n"
                      " %p = stablehlo.partition_id : tensor<ui32>\n return %r, %p : tensor<ui32>, tensor<ui32>\n}", "stablehlo")
    found = dx.compile(module, replicas=2, partitions=3)()
    assert [(int(r), int(p)) for r, p in found] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


CHOICE = """ %r = stablehlo.replica_id : tensor<ui32>
 %z = stablehlo.constant dense<0> : tensor<ui32>
 %p = stablehlo.compare EQ, %r, %z : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
"""


def test_a_collective_stays_outside_a_branch_that_some_devices_take() -> None:
    module = stablehlo(CHOICE + f""" %y = "stablehlo.all_reduce"(%x) {SUM} {{replica_groups = dense<> : tensor<0x0xi64>}} :
  (tensor<2xf32>) -> tensor<2xf32>
 %w = "stablehlo.if"(%p) ({{ stablehlo.return %y : tensor<2xf32> }}, {{ stablehlo.return %x : tensor<2xf32> }}) :
  (tensor<i1>) -> tensor<2xf32>
 return %w : tensor<2xf32>""")
    assert outputs(dx.optimize(module), X[:2], replicas=2) == [[1, 10], [1, 10]]
    assert outputs(dx.optimize(module), X[1:3], replicas=2) == [[3, 30], [2, 20]]


def test_devices_that_never_meet_end_in_an_error_that_says_who_waits() -> None:
    module = stablehlo(CHOICE + f""" %w = "stablehlo.if"(%p) ({{
  %y = "stablehlo.all_reduce"(%x) {SUM} {{replica_groups = dense<> : tensor<0x0xi64>}} : (tensor<2xf32>) -> tensor<2xf32>
  stablehlo.return %y : tensor<2xf32> }}, {{ stablehlo.return %x : tensor<2xf32> }}) : (tensor<i1>) -> tensor<2xf32>
 return %w : tensor<2xf32>""")
    with pytest.raises(dx.RunError, match=r"device 0.*waits.*all_reduce for device 1") as failure:
        outputs(dx.optimize(module), X[:2], replicas=2)
    assert "device 1 (replica 1, partition 0) has ended" in str(failure.value)


def test_groups_that_the_grid_does_not_have_are_named() -> None:
    module = collective("all_reduce", f"replica_groups = {PAIRS}", region=SUM)
    with pytest.raises(dx.RunError, match="no replica 2, partition 0 in 2 replicas of 1 partition"):
        outputs(module, X[:2], replicas=2)
    with pytest.raises(dx.RunError, match="device 4 is in none of the replica groups"):
        outputs(module, [*X, X[0]], replicas=5)


def test_inputs_of_devices_are_checked_before_anything_runs() -> None:
    f = dx.compile(collective("all_reduce", f"replica_groups = {PAIRS}", region=SUM), replicas=4, optimize=False)
    with pytest.raises(dx.RunError, match="given for 3 devices, and 4 run"):
        f(X[:3])
    with pytest.raises(dx.RunError, match=r"input 'x' is an f32\[3\]"):
        f([*X[:3], np.zeros(3, "f4")])
    with pytest.raises(dx.UsageError, match="0 replicas"):
        dx.compile(f.module, replicas=0, optimize=False)
    with pytest.raises(dx.LimitError, match="at its peak"):
        dx.compile(f.module, replicas=4, max_bytes=40, optimize=False)


FED = """func.func @main(%t: !stablehlo.token) -> (tensor<2xf32>, tensor<i32>, !stablehlo.token) {
 %a:3 = "stablehlo.infeed"(%t) <{infeed_config = "c"}> : (!stablehlo.token) -> (tensor<2xf32>, tensor<i32>, !stablehlo.token)
 %o = "stablehlo.outfeed"(%a#1, %a#0, %a#2) <{outfeed_config = "d"}> : (tensor<i32>, tensor<2xf32>, !stablehlo.token) ->
  !stablehlo.token
 %b:3 = "stablehlo.infeed"(%o) <{infeed_config = "c"}> : (!stablehlo.token) -> (tensor<2xf32>, tensor<i32>, !stablehlo.token)
 %n = stablehlo.add %a#1, %b#1 : tensor<i32>
 %p = "stablehlo.outfeed"(%n, %b#2) <{outfeed_config = "d"}> : (tensor<i32>, !stablehlo.token) -> !stablehlo.token
 return %b#0, %n, %p : tensor<2xf32>, tensor<i32>, !stablehlo.token
}"""


@pytest.mark.parametrize("form", ["", "stablehlo", "sea"])
def test_feeds_come_in_order(form: str) -> None:
    module = dx.loads(FED, "stablehlo")
    if form:
        module = dx.loads(dx.dumps(module, form), form)
    f = dx.compile(module, infeed=[(X[1], np.int32(5)), X[2], np.int32(6), X[3], np.int32(1), X[0], np.int32(2)])
    assert f.inputs == ()
    b, n = f()
    assert (b.tolist(), int(n)) == ([2, 20], 11)
    assert [[x.tolist() for x in out] for out in f.outfeed] == [[5, [1, 10]], [11]]
    assert int(f()[1]) == 3
    with pytest.raises(dx.RunError, match="the infeed has ended after 8 arrays"):
        f()


def test_a_missing_or_wrong_infeed_is_named() -> None:
    module = dx.loads(FED, "stablehlo")
    with pytest.raises(dx.RunError, match="reads an infeed, and none is given"):
        dx.compile(module, optimize=False)
    with pytest.raises(dx.RunError, match=r"array 1 of the infeed is an f32\[2\]"):
        dx.compile(module, infeed=X, optimize=False)()
    with pytest.raises(dx.UsageError, match="infeed is an int"):
        dx.compile(module, infeed=3, optimize=False)


def test_every_device_has_its_feeds() -> None:
    feeds = [[(X[k], np.int32(k)), (X[k], np.int32(1))] for k in range(2)]
    f = dx.compile(dx.loads(FED, "stablehlo"), replicas=2, infeed=feeds, optimize=False)
    assert [int(n) for _, n in f()] == [1, 2]
    assert [len(out) for out in f.outfeed] == [2, 2]


RING = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
 %t = stablehlo.create_token : !stablehlo.token
 %s = "stablehlo.send"(%x, %t) <{channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>, is_host_transfer = false,
  source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
 %r:2 = "stablehlo.recv"(%s) <{channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>, is_host_transfer = false,
  source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
 return %r#0 : tensor<2xf32>
}"""


def test_what_is_sent_arrives() -> None:
    assert outputs(dx.loads(RING, "stablehlo"), X[1:3], replicas=2) == [[2, 20], [1, 10]]
    assert outputs(dx.loads(RING, "stablehlo"), X[1:4], replicas=3)[2] == [0, 0]
    alone = dx.loads(re.sub(r" %s = [^>]*?>.*\n.*?-> !stablehlo.token", " %s = stablehlo.create_token : !stablehlo.token", RING),
                     "stablehlo")
    with pytest.raises(dx.RunError, match="recv waits for something on channel 7, which nobody sends"):
        dx.compile(alone, optimize=False)(X[0])


def test_checks_in_a_branch_run_only_when_it_is_taken() -> None:
    text = """func.func @main(%p: tensor<i1>) {
 %one = stablehlo.constant dense<1> : tensor<i32>
 %two = stablehlo.constant dense<2> : tensor<i32>
 "stablehlo.if"(%p) ({ check.expect_eq %one, %two : tensor<i32>
   stablehlo.return }, { stablehlo.return }) : (tensor<i1>) -> ()
 return
}"""
    for module in (dx.loads(text, "stablehlo"), dx.loads(dx.dumps(dx.loads(text, "stablehlo"), "stablehlo"), "stablehlo")):
        f = dx.compile(module)
        assert f(np.array(False)) == ()
        with pytest.raises(dx.CheckFailed):
            f(np.array(True))


def test_effects_of_functions_called_in_generic_form_are_kept() -> None:
    module = dx.loads("""func.func private @c(%x: tensor<i32>) {
 check.expect_eq_const %x, dense<1> : tensor<i32>
 return
}
func.func @main(%x: tensor<i32>) { "func.call"(%x) {callee = @c} : (tensor<i32>) -> ()
 return
}""", "stablehlo")
    dx.compile(module, optimize=False)(np.int32(1))
    with pytest.raises(dx.CheckFailed):
        dx.compile(module, optimize=False)(np.int32(2))


def test_run_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "p.mlir"
    program.write_text(dx.dumps(collective("all_reduce", "replica_groups = dense<> : tensor<0x0xi64>", region=SUM), "stablehlo"))
    np.save(tmp_path / "a.npy", X[1])
    np.savez(tmp_path / "in.npz", **{"x@0": X[2]})
    given = [str(program), "--replicas", "2", "--inputs", str(tmp_path / "in.npz")]
    assert main(["run", *given, "--input", f"x@1={tmp_path / 'a.npy'}", "--output", str(tmp_path / "o.npz")]) == 0
    with np.load(tmp_path / "o.npz") as found:
        assert sorted(k.rpartition("@")[2] for k in found) == ["0", "1"]
        assert all(v.tolist() == [3, 30] for v in found.values())
    assert main(["run", *given]) == 2
    assert "input 'x' is not given for device 1" in capsys.readouterr().err


def test_feeds_on_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "p.mlir"
    program.write_text(FED)
    np.savez(tmp_path / "in.npz", a=X[1], b=np.int32(5), c=X[2], d=np.int32(6))
    files = ["--infeed", str(tmp_path / "in.npz"), "--outfeed", str(tmp_path / "out.npz")]
    assert main(["run", str(program), *files]) == 0
    with np.load(tmp_path / "out.npz") as found:
        assert {k: v.tolist() for k, v in found.items()} == {"0.0": 5, "0.1": [1, 10], "1.0": 11}


def test_run_parallel_is_fed_and_may_not_nest() -> None:
    text = """func.func @q() -> tensor<i32> { %c = stablehlo.constant dense<7> : tensor<i32>
 return %c : tensor<i32> }
func.func @f(%t: !stablehlo.token) -> (tensor<i32>, !stablehlo.token) {
 %r:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> (tensor<i32>, !stablehlo.token)
 return %r#0, %r#1 : tensor<i32>, !stablehlo.token }
func.func @main() { %t = stablehlo.create_token : !stablehlo.token
 %r:2 = "interpreter.run_parallel"(%t) {infeed = [@q], programs = [[@f]]} : (!stablehlo.token) -> (tensor<i32>, !stablehlo.token)
 check.expect_eq_const %r#0, dense<7> : tensor<i32>
 return }"""
    dx.compile(dx.loads(text, "stablehlo"), optimize=False)()
    nested = 'func.func @f() { "interpreter.run_parallel"() {programs = [[@g]]} : () -> ()\n return }\n'
    whole = nested + "func.func @g() { return }\n" + nested.replace("@g", "@f").replace("func @f", "func @main")
    with pytest.raises(dx.RunError, match="devices cannot run devices"):
        dx.compile(dx.loads(whole, "stablehlo"), optimize=False)()


def test_collectives_survive_every_own_form() -> None:
    ops_of = {n.op for n in stablehlo(CHOICE + " return %x : tensor<2xf32>").entry.nodes}
    assert OPS["replica_id"] not in ops_of  # nothing uses it
    module = collective("all_reduce", f"replica_groups = {PAIRS}", region=SUM)
    for form in ("stablehlo", "sea"):
        assert outputs(dx.loads(dx.dumps(module, form), form), X) == outputs(module, X)


def test_what_is_begun_and_ended_is_done() -> None:
    module = stablehlo(f""" %f = "stablehlo.async_start"(%x) ({{
  ^bb0(%v: tensor<2xf32>):
   %r = "stablehlo.all_reduce"(%v) {SUM} {{replica_groups = {PAIRS}}} : (tensor<2xf32>) -> tensor<2xf32>
   stablehlo.return %r : tensor<2xf32>
 }}) : (tensor<2xf32>) -> !stablehlo.future<tensor<2xf32>>
 %y = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<2xf32>>) -> tensor<2xf32>
 return %y : tensor<2xf32>""")
    assert outputs(module, X) == [[1, 10], [1, 10], [5, 50], [5, 50]]


def test_unknown_operations_with_tokens_are_kept() -> None:
    module = stablehlo(""" %t = stablehlo.create_token : !stablehlo.token
 %y:2 = "foo.bar"(%x, %t) : (tensor<2xf32>, !stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
 return %y#0 : tensor<2xf32>""")
    assert OPS["opaque"] in {n.op for n in module.entry.nodes}


def test_the_only_device_knows_its_number_when_it_is_compiled() -> None:
    module = dx.loads("func.func @main(%x: tensor<3xui32>) -> tensor<3xui32> {\n %p = stablehlo.partition_id : tensor<ui32>\n"
                      " %b = stablehlo.broadcast_in_dim %p, dims = [] : (tensor<ui32>) -> tensor<3xui32>\n"
                      " %r = stablehlo.add %x, %b : tensor<3xui32>\n return %r : tensor<3xui32>\n}")
    x = np.arange(3, dtype=np.uint32)
    compiled = dx.compile(module, engine="numpy")
    assert "partition_id" not in {n.op.name for n in compiled.lowered.entry.nodes}
    np.testing.assert_array_equal(compiled(x)[0], x)
    first, second = dx.compile(module, engine="numpy", partitions=2)(x)
    np.testing.assert_array_equal([first[0], second[0]], [x, x + 1])
