"""Effects and their bounds: what is printed, which files may be touched, and damaged files."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

from deepx_graph.errors import LimitError, RunError
from deepx_graph.ops.host.host import Host
from deepx_graph.types import F32, I64, tensor


def printed(array: np.ndarray, format: str = "") -> str:
    out = io.StringIO()
    Host(out=out).print(array, format)
    return out.getvalue()


def test_print_layout() -> None:
    assert printed(np.array([1, 2, 3])) == "shape:[3]\n[1 2 3]\n"
    assert printed(np.array([[1.5, 2], [3, 4]], "f4")) == "shape:[2, 2]\n[\n [1.5000 2.0000],\n [3.0000 4.0000],\n]\n"
    assert printed(np.zeros((2, 1, 2), "i4")) == "shape:[2, 1, 2]\n[0]=\n[\n [0 0],\n]\n[1]=\n[\n [0 0],\n]\n"


@pytest.mark.parametrize(("format", "shown"), [("%.1f", "1.5"), ("%d", "1"), ("%e", "1.500000e+00"), ("<%5.2f>", "< 1.50>")])
def test_print_formats(format: str, shown: str) -> None:
    assert printed(np.array([1.5], "f4"), format) == f"shape:[1]\n[{shown}]\n"


@pytest.mark.parametrize("format", ["%n", "%s%s", "%", "%999999999d", "%.99999f", "no directive", "%(x)d", "%*d"])
def test_print_refuses_formats_that_are_none(format: str) -> None:
    with pytest.raises(RunError, match="not a printf format"):
        printed(np.array([1.5], "f4"), format)


def test_print_cannot_move_the_cursor() -> None:
    assert "\x1b" not in printed(np.array([1]), "\x1b[2J%d")


def test_save_then_load(tmp_path: Path) -> None:
    world = Host(tmp_path)
    x = np.arange(6, dtype="f4").reshape(2, 3)
    world.save(x, "a/b.c")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["b.c.data", "b.c.shape"]
    assert (tmp_path / "a/b.c.data").read_bytes() == x.tobytes()
    assert world.type_of("a/b.c") == tensor(F32, (2, 3))
    np.testing.assert_array_equal(world.load("a/b.c", tensor(F32, (2, 3))), x)
    with pytest.raises(RunError, match=r"holds an f32\[2,3\] and the program needs an i64\[6\]"):
        world.load("a/b.c", tensor(I64, (6,)))
    with pytest.raises(LimitError, match="24 bytes"):
        Host(tmp_path, max_bytes=10).load("a/b.c", tensor(F32, (2, 3)))


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", "a\0b", "link/x"])
def test_nothing_outside_the_data_root(tmp_path: Path, path: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    world = Host(tmp_path / "root")
    for attempt in (lambda: world.save(np.zeros(1, "f4"), path), lambda: world.type_of(path)):
        with pytest.raises(RunError, match="data root"):
            attempt()
    assert [p.name for p in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize("suffix", [".data", ".shape"])
def test_a_link_in_the_data_root_leads_nowhere_else(tmp_path: Path, suffix: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.write_text("precious")
    (root / f"a{suffix}").symlink_to(outside)
    with pytest.raises(RunError, match="leads out of the data root"):
        Host(root).save(np.zeros(2, "f4"), "a")
    assert outside.read_text() == "precious"


def test_what_is_no_file_is_not_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.data")
    with pytest.raises(RunError, match="is no file"):
        Host(tmp_path).save(np.zeros(2, "f4"), "a")


def test_no_files_at_all_without_a_data_root() -> None:
    with pytest.raises(RunError) as failure:
        Host().save(np.zeros(1, "f4"), "x")
    assert "--data-root" in str(failure.value)


@pytest.mark.parametrize(
    "text",
    ["", "dtype: float32", "dtype: float99\nshape: [2]", "dtype: float32\nshape: [-2]", "dtype: float32\nshape: [2]\nsize: 3",
     "dtype: float32\nshape: [2, 3]\nstride: [1, 2]", "!!python/object/apply:os.system ['true']", "a: [", "- 1",
     "dtype: float32\nshape: x"],
)  # fmt: skip
def test_damaged_shape_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.shape").write_text(text)
    with pytest.raises(RunError, match=r"damaged|disagree"):
        Host(tmp_path).type_of("t")


def test_a_data_file_of_another_size(tmp_path: Path) -> None:
    (tmp_path / "t.shape").write_text("dtype: float32\ndim: 1\nshape: [2]\nstride: [1]\nsize: 2\n")
    with pytest.raises(RunError, match="missing"):
        Host(tmp_path).load("t", tensor(F32, (2,)))
    (tmp_path / "t.data").write_bytes(b"123")
    with pytest.raises(RunError, match="3 bytes"):
        Host(tmp_path).load("t", tensor(F32, (2,)))
