"""Why XLA's partitioner made its collectives: from a pair of modules in the form in which it dumps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_runner import Run

ADD = "add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"
LESS = "less { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = pred[] compare(p, q), direction=LT }\n"


def at(label: str, line: int) -> str:
    return f'metadata={{op_name="jit(f)/{label}" source_file="m.py" source_line={line}}}'


BEFORE = f"""HloModule jit_f, num_partitions=8
{ADD}{LESS}ENTRY main {{
  x = f32[16,8] parameter(0), sharding={{devices=[4,1,2]<=[8] last_tile_dim_replicate}}
  w1 = f32[8,32] parameter(1), sharding={{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}}
  h = f32[16,32] dot(x, w1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={{devices=[4,2]<=[8]}},
    {at("dot", 8)}
  w2 = f32[32,8] parameter(2), sharding={{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}}
  y = f32[16,8] dot(h, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    sharding={{devices=[4,1,2]<=[8] last_tile_dim_replicate}}, {at("dot", 9)}
  ROOT s = f32[16,8] sort(y), dimensions={{0}}, to_apply=less, sharding={{devices=[4,1,2]<=[8] last_tile_dim_replicate}},
    {at("sort", 10)}
}}
"""
AFTER = f"""HloModule jit_f, num_partitions=8
{ADD}{LESS}ENTRY main {{
  x = f32[4,8] parameter(0), sharding={{devices=[4,1,2]<=[8] last_tile_dim_replicate}}
  w1 = f32[8,16] parameter(1), sharding={{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}}
  h = f32[4,16] dot(x, w1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {at("dot", 8)}
  w2 = f32[16,8] parameter(2), sharding={{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}}
  y = f32[4,8] dot(h, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {at("dot", 9)}
  all-reduce = f32[4,8] all-reduce(y), channel_id=1, replica_groups={{{{0,1}},{{2,3}},{{4,5}},{{6,7}}}}, use_global_device_ids=true,
    to_apply=add, {at("dot", 9)}
  all-gather = f32[16,8] all-gather(all-reduce), channel_id=2, replica_groups={{{{0,2,4,6}},{{1,3,5,7}}}}, dimensions={{0}},
    use_global_device_ids=true, {at("sort", 10)}
  ROOT s = f32[16,8] sort(all-gather), dimensions={{0}}, to_apply=less, {at("sort", 10)}
}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    stem = "module_0000.jit_f"
    (tmp_path / f"{stem}.0001.spmd-partitioner.after_shardy-xla.before_spmd-partitioning.txt").write_text(BEFORE)
    (tmp_path / f"{stem}.0002.spmd-partitioner.after_spmd-partitioning.before_control-dep-rewriter.txt").write_text(AFTER)
    return tmp_path


def test_each_collective_has_a_reason_and_a_line(run: Run, folder: Path) -> None:
    rows = run("why", str(folder), "--collective", "--json").json["collectives"]
    assert [(r["name"], r["bytes"], r["devices"], r["location"], r["reason"]) for r in rows] == [
        ("all-reduce", 128, 2, "m.py:9", "reduction over a sharded factor"),
        ("all-gather", 512, 4, "m.py:10", "factor must be whole"),
    ]
    assert rows[0]["at"] == "'y' (dot_general)" and "[4,2]<=[8]" in rows[0]["before"]
    assert "stands before 's' (sort)" in run("why", str(folder), "--collective", "all-gather").out


TURNED = f"""HloModule jit_h, num_partitions=2
ENTRY main {{
  x = f32[4,8] parameter(0), sharding={{devices=[2,1]<=[2]}}
  ROOT t = f32[8,4] transpose(x), dimensions={{1,0}}, sharding={{devices=[2,1]<=[2]}}, {at("transpose", 3)}
}}
"""
EXCHANGED = f"""HloModule jit_h, num_partitions=2
ENTRY main {{
  x = f32[2,8] parameter(0), sharding={{devices=[2,1]<=[2]}}
  moved = f32[4,8] all-gather(x), channel_id=1, replica_groups={{{{0,1}}}}, dimensions={{0}}, use_global_device_ids=true,
    {at("transpose", 3)}
  turned = f32[8,4] transpose(moved), dimensions={{1,0}}, {at("transpose", 3)}
  ROOT t = f32[4,4] slice(turned), slice={{[0:4], [0:4]}}, {at("transpose", 3)}
}}
"""


def dumped(folder: Path, before: str, after: str) -> str:
    for name, text in (("0001.p.after_shardy-xla.before_spmd-partitioning", before), ("0002.p.after_spmd-partitioning", after)):
        (folder / f"module_0000.jit_f.{name}.txt").write_text(text)
    return str(folder)


def test_each_collective_has_what_to_give_instead(run: Run, tmp_path: Path) -> None:
    """Were columns of the input split, the rows of what it is transposed to would be."""
    (row,) = run("why", dumped(tmp_path, TURNED, EXCHANGED), "--collective", "moved", "--json").json["collectives"]
    assert row["instead"][0] == "instead: 'x' as [{}, {\"devices\"}] (0 bytes in 0 collectives, now 64 bytes in 1)"


def test_budgets_count_what_a_partitioned_program_exchanges(run: Run, folder: Path) -> None:
    (after,) = folder.glob("*after_spmd*")
    found = run("check", str(after), "--budget", "collective_bytes<=640", "--budget", "all_gathers<1")
    assert "ok        collective_bytes<=640" in found.out and "EXCEEDED  all_gathers<1" in found.out


WRITTEN = f"""HloModule jit_g, num_partitions=2
{ADD}body {{
  p = f32[8] parameter(0)
  ROOT sum = f32[8] all-reduce(p), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=add,
    {at("psum", 4)}
}}
ENTRY main {{
  x = f32[8] parameter(0), sharding={{replicated}}
  ROOT y = f32[8] call(x), to_apply=body, {at("shard_map", 5)}
}}
"""


def test_what_the_program_itself_exchanges_is_written_there(run: Run, tmp_path: Path) -> None:
    (row,) = run("why", dumped(tmp_path, WRITTEN, WRITTEN), "--collective", "sum", "--json").json["collectives"]
    assert row["reason"] == "written in the program" and row["location"] == "m.py:4" and row["instead"]


def test_a_folder_without_the_pass_is_refused(run: Run, folder: Path) -> None:
    for file in folder.iterdir():
        file.rename(folder / file.name.replace("spmd-partitioning", "something"))
    assert "xla_dump_hlo_pass_re" in run("why", str(folder), "--collective").err
