"""Programs of one device as they stand, as XLA's partitioner writes them: in lock step and on MPI's ranks.

The expected values are those of the program that is not split, computed by numpy, or by XLA itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir.collective import Grid
from deepx_graph.runtime.devices import stated_grid
from tests.support.cli_runner import Run
from tests.support.jax_oracle import VARIABLE
from tests.support.mpi_ranks import ENVIRONMENT, needs_mpi
from tests.support.partitioner_oracle import ask

DUMPED = """HloModule jit_f, is_scheduled=true, num_partitions=%d

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main_spmd {
  x = f32[2,6] parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[3,4] parameter(1), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  rows = f32[6,4] all-gather(w), channel_id=1, replica_groups=[2,2]<=[4], dimensions={0}, use_global_device_ids=true
  y = f32[2,4] dot(x, rows), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  whole = f32[8,4] all-gather(y), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  turned = f32[2,4] collective-permute(y), channel_id=3, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  pairs = f32[2,4] all-reduce(y), channel_id=4, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=add
  ROOT all = (f32[8,4], f32[2,4], f32[2,4]) tuple(whole, turned, pairs)
}
"""
"""On four devices; `rows` is gathered among the two that hold its halves."""


def expected(x: np.ndarray, w: np.ndarray) -> list[list[np.ndarray]]:
    """What each device has."""
    y = x @ w
    parts = np.split(y, 4)
    return [[y, parts[d - 1], parts[d] + parts[(d + 2) % 4]] for d in range(4)]


@pytest.fixture
def dumped(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """The file, and the whole inputs beside it in `in.npz`."""
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((8, 6), (6, 4)))
    (tmp_path / "m.hlo").write_text(DUMPED % 4)
    np.savez(tmp_path / "in.npz", x=x, w=w)
    return tmp_path / "m.hlo", x, w


def check(path: Path, want: list[list[np.ndarray]]) -> None:
    found = np.load(path)
    names = list(dict.fromkeys(name.rpartition("@")[0] for name in found.files))
    assert len(found.files) == sum(map(len, want))
    for d, row in enumerate(want):
        for name, value in zip(names, row, strict=True):
            np.testing.assert_allclose(found[f"{name}@{d}"], value, rtol=1e-5, atol=1e-5)


def test_a_dump_runs_on_the_devices_that_it_is_for(run: Run, dumped: tuple[Path, np.ndarray, np.ndarray]) -> None:
    """Whole inputs are cut as the text states; parts are taken as they are."""
    path, x, w = dumped
    assert run("run", str(path), "--inputs", str(path.with_name("in.npz")), "-o", str(path.with_name("out.npz"))).code == 0
    check(path.with_name("out.npz"), expected(x, w))
    parts = {f"x@{d}": part for d, part in enumerate(np.split(x, 4))} | {f"w@{d}": np.split(w, 2)[d % 2] for d in range(4)}
    np.savez(path.with_name("parts.npz"), **parts)
    assert run("run", str(path), "--inputs", str(path.with_name("parts.npz")), "-o", str(path.with_name("out.npz"))).code == 0
    check(path.with_name("out.npz"), expected(x, w))
    other = run("run", str(path), "--inputs", str(path.with_name("in.npz")), "--partitions", "2")
    assert other.code == 5 and "is cut for 4 devices, and the program runs on 1 replica of 2 partitions" in other.err


def test_what_a_text_says_of_devices() -> None:
    assert stated_grid(dx.loads(DUMPED % 4, "hlo")) == Grid(1, 4)
    alone = DUMPED.replace("main_spmd", "main") % 4
    assert stated_grid(dx.loads(alone, "hlo")) == Grid(1, 4)
    without = "HloModule m, num_partitions=4\n\nENTRY %s {\n  ROOT x = f32[2] parameter(0), sharding={devices=[4]<=[4]}\n}\n"
    assert stated_grid(dx.loads(without % "main.7_spmd", "hlo")) == Grid(1, 4)
    assert stated_grid(dx.loads(without % "main.7", "hlo")) == Grid(), "not partitioned yet"
    with pytest.raises(dx.UsageError, match="cannot be run"):
        stated_grid(dx.loads(DUMPED % 10**9, "hlo"))


@needs_mpi
def test_ranks_give_the_bits_of_lock_step(run: Run, dumped: tuple[Path, np.ndarray, np.ndarray]) -> None:
    path, x, w = dumped
    command = ["run", str(path), "--inputs", str(path.with_name("in.npz")), "--engine", "numpy"]
    assert run(*command, "-o", str(path.with_name("lockstep.npz"))).code == 0
    done = on_ranks(*command, "--deterministic", "-o", str(path.with_name("mpi.npz")))
    assert done.returncode == 0, done.stderr
    check(path.with_name("mpi.npz"), expected(x, w))
    here, there = np.load(path.with_name("lockstep.npz")), np.load(path.with_name("mpi.npz"))
    assert all(here[name].tobytes() == there[name].tobytes() for name in here.files)


def on_ranks(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "deepx_graph", *command, "--on", "mpi"], capture_output=True, text=True,
                          timeout=240, env={**os.environ, **ENVIRONMENT}, check=False)


def test_what_does_not_run_so_is_refused(run: Run, dumped: tuple[Path, np.ndarray, np.ndarray]) -> None:
    path = str(dumped[0])
    for options in (("--on", "dask:tcp://127.0.0.1:1"), ("--checkpoint", "saved")):
        found = run("run", path, "--random-inputs", *options)
        assert found.code == 2 and ("runs in lock step or over MPI" in found.err or "how the program is split" in found.err)


@needs_mpi
@pytest.mark.conformance
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with JAX")
@pytest.mark.parametrize("name", ["megatron_gradient", "attention_heads", "k_split", "embedding", "sort", "convolution_space"])
def test_what_xla_partitions_runs_on_ranks(run: Run, tmp_path: Path, name: str) -> None:
    """A compiled module of XLA's on eight ranks, from whole inputs: each device has a part of what the program gives whole."""
    ((_, text, hlo),) = ask({name: None})
    assert hlo is not None
    (tmp_path / "whole.mlir").write_text(text)
    (tmp_path / "part.hlo").write_text(hlo)
    whole, part = dx.loads(text, "stablehlo"), dx.loads(hlo, "hlo")
    rng = np.random.default_rng(1)
    types = [p.type for p in whole.entry.params]
    arrays = [rng.standard_normal(t.shape, np.float32) if t.dtype.is_float else rng.integers(0, 16, t.shape, np.int32)
              for t in types]
    ports = [p.name for p in part.entry.params][: len(arrays)]
    np.savez(tmp_path / "in.npz", **dict(zip(ports, arrays, strict=True)))
    command = ["run", str(tmp_path / "part.hlo"), "--inputs", str(tmp_path / "in.npz"), "--engine", "numpy"]
    assert run(*command, "-o", str(tmp_path / "lockstep.npz")).code == 0
    done = on_ranks(*command, "--deterministic", "-o", str(tmp_path / "mpi.npz"))
    assert done.returncode == 0, done.stderr
    here, there = np.load(tmp_path / "lockstep.npz"), np.load(tmp_path / "mpi.npz")
    assert all(here[each].tobytes() == there[each].tobytes() for each in here.files)
    results = dx.compile(whole, engine="numpy", optimize=False)(*arrays)
    names = list(dict.fromkeys(each.rpartition("@")[0] for each in there.files))
    for each, want in zip(names, results, strict=True):
        parts = [there[f"{each}@{d}"] for d in range(8)]
        covered = np.zeros(want.shape, bool)
        for found in parts:
            covered |= placed(found, want)
        assert covered.all()


def placed(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Where a part lies in the whole: at the tile that it is equal to, up to rounding."""
    tiles = [range(0, n, m) for n, m in zip(whole.shape, part.shape, strict=True)]
    scale = float(np.abs(whole).max(initial=1))
    for corner in np.ndindex(*map(len, tiles)):
        box = tuple(slice(t[k], t[k] + m) for t, k, m in zip(tiles, corner, part.shape, strict=True))
        if np.allclose(part, whole[box], rtol=1e-4, atol=1e-4 * scale):
            found = np.zeros(whole.shape, bool)
            found[box] = True
            return found
    raise AssertionError("a part that is none of the whole")
