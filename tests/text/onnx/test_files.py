"""ONNX models as files: weights beside them, other versions of the operator set, notes of exporters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.errors import Source
from deepx_graph.text.onnx.printer.model import original
from deepx_graph.text.onnx.schema import ModelProto
from tests.support.mindir_messages import field
from tests.support.onnx_messages import graph, info, load, model, node, run, tensor

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.arange(3 * 1024, dtype=np.float32).reshape(3, 1024) / 512


def messages(path: Path) -> ModelProto:
    found = original(Source("m", data=memoryview(path.read_bytes()), folder=path.parent))
    assert found is not None and found.graph is not None
    return found


def opt(tmp_path: Path, data: bytes, *options: str) -> Path:
    (tmp_path / "m.onnx").write_bytes(data)
    assert main(["opt", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "small.onnx"), *options]) == 0
    return tmp_path / "small.onnx"


def product(**more: Any) -> bytes:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])]
    return model(graph(nodes, [info("x", X.shape)], [info("y", (2, 1024))], [tensor(W, "w"), tensor(W[:, :8], "spare")]), **more)


def test_weights_are_written_beside_the_model_and_read_from_there(tmp_path: Path) -> None:
    small = opt(tmp_path, product(), "--external-data")
    assert small.stat().st_size < 400 and (tmp_path / "small.onnx.data").read_bytes() == W.tobytes()
    (weight,) = messages(small).graph.initializers  # type: ignore[union-attr]
    assert {e.key: e.value for e in weight.external} == {"location": "small.onnx.data", "offset": "0", "length": str(W.nbytes)}
    np.testing.assert_array_equal(dx.run(dx.load(small), X)[0], run(product(), X)[0])
    (tmp_path / "again").mkdir()  # from a model with weights beside it to one file
    assert main(["opt", str(small), "-o", str(tmp_path / "again" / "one.onnx")]) == 0
    assert not (tmp_path / "again" / "one.onnx.data").exists()
    np.testing.assert_array_equal(dx.run(dx.load(tmp_path / "again" / "one.onnx"), X)[0], run(product(), X)[0])


SPREAD = np.arange(1 << 20, dtype=np.float32).tobytes()

LARGE = """
import resource, sys
from deepx_graph.cli.main import main
from deepx_graph.session import shrink
shrink.MOST_CHECKED = 1 << 20
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]), int(sys.argv[1])))
ended = main(sys.argv[2:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(ended)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded as Linux does it")
@pytest.mark.parametrize(("side", "count"), [(8192, 2), pytest.param(16384, 10, marks=pytest.mark.conformance)])
def test_a_model_larger_than_memory_is_written_piece_by_piece(tmp_path: Path, side: int, count: int) -> None:
    """Weights of 512 MB, or 10 GB, in a file with gaps, by processes that may have 200 MB of their own, and no more of the file."""
    each = 4 * side * side
    told = [field(13, field(1, k) + field(2, v)) for k, v in (("location", "w"), ("length", str(each)))]
    weights = [field(1, side) + field(1, side) + field(2, 1) + field(8, f"w{k}") + field(14, 1) + b"".join(told)
               + field(13, field(1, "offset") + field(2, str(each * k))) for k in range(count)]
    nodes = [node("Identity", ["x"], ["a0"])]
    nodes += [node("MatMul", [f"a{k}", f"w{k}"], [f"a{k + 1}"]) for k in range(count)]
    last = f"a{count}"
    (tmp_path / "m.onnx").write_bytes(model(graph(nodes, [info("x", (1, side))], [info(last, (1, side))], weights)))
    with open(tmp_path / "w", "wb") as stream:
        stream.write(SPREAD * (each // len(SPREAD)))
        stream.seek((count - 1) * each + 8)
        stream.write(b"here")
        stream.truncate(count * each)
    for command in (["info", str(tmp_path / "m.onnx")],
                    ["opt", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "s.onnx"), "--external-data"]):
        done = subprocess.run([sys.executable, "-c", LARGE, str(200 << 20), *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert int(done.stderr.split()[-1]) < 200 << 10, "kilobytes that were resident"
    found = messages(tmp_path / "s.onnx").graph
    assert found is not None and [n.op_type for n in found.nodes] == ["MatMul"] * count
    with open(tmp_path / "s.onnx.data", "rb") as stream:
        stream.seek(int(found.initializers[-1].external[1].value) + 8)
        assert stream.read(4) == b"here"
    assert (tmp_path / "s.onnx.data").stat().st_blocks * 512 < each * 3 // 2, "gaps stay gaps"
    (tmp_path / "s.onnx.data").unlink()


AXES = np.array([1])

OLD: dict[str, tuple[list[bytes], int, int]] = {
    "reductions": ([node("ReduceMean", ["x"], ["a"], axes=[1], keepdims=0), node("Unsqueeze", ["a"], ["y"], axes=[0])], 12, 18),
    "all axes": ([node("ReduceMax", ["x"], ["y"], keepdims=1)], 13, 20),
    "parts": ([node("Split", ["x"], ["a", "b"], axis=0), node("Concat", ["b", "a"], ["y"], axis=0)], 13, 21),
    "sizes of parts": ([node("Split", ["x"], ["a", "b"], axis=1, split=[1, 2]), node("Concat", ["b", "a"], ["y"], axis=1)], 11, 18),
    "slices": ([node("Slice", ["x"], ["y"], starts=[1], ends=[3], axes=[1])], 9, 18),
    "largest": ([node("TopK", ["x"], ["y", "i"], k=2)], 9, 19),
    "nothing dropped": ([node("Dropout", ["x"], ["a"], ratio=0.5), node("Relu", ["a"], ["y"])], 10, 18),
    "normalised": ([node("BatchNormalization", ["x", "one", "one", "one", "one"], ["y"])], 8, 18),
}  # fmt: skip


@pytest.mark.parametrize("case", OLD)
def test_operators_of_an_earlier_version_are_said_in_a_later_one(case: str, tmp_path: Path) -> None:
    nodes, own, wanted = OLD[case]
    data = model(graph(nodes, [info("x", X.shape)], [info("y", ("a", "b"))], [tensor(np.ones(3, np.float32), "one")]), opset=own)
    small = opt(tmp_path, data, "--opset", str(wanted))
    assert [(o.domain, o.version) for o in messages(small).opsets] == [("", wanted), ("own", 1)]
    np.testing.assert_allclose(dx.run(load(small.read_bytes()), X)[0], run(data, X)[0])


def test_a_version_in_which_an_operator_has_another_meaning_is_refused(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = model(graph([node("Softmax", ["x"], ["y"])], [info("x", X.shape)], [info("y", X.shape)]), opset=12)
    (tmp_path / "m.onnx").write_bytes(data)
    assert main(["opt", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "s.onnx"), "--opset", "18"]) != 0
    assert "Softmax has another meaning in later versions" in capfd.readouterr().err


def test_what_waits_for_inputs_is_written_in_the_version_of_now(tmp_path: Path) -> None:
    """Operators that could not be lowered stand beside those that could."""
    nodes = [node("Unsqueeze", ["x"], ["a"], axes=[0]), node("Range", ["zero", "n", "step"], ["r"]), node("Add", ["a", "r"], ["y"])]
    whole = [tensor(np.float32(0), "zero"), tensor(np.float32(1), "step")]
    data = model(graph(nodes, [info("x", X.shape), info("n", ())], [info("y", (1, 2, 3))], whole), opset=12)
    small = opt(tmp_path, data, "-p", "clean")
    np.testing.assert_allclose(dx.run(load(small.read_bytes()), X, np.float32(3))[0], (X + np.arange(3))[None])


def test_notes_of_an_exporter_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    noted = b"".join(field(9, field(1, k) + field(2, v)) for k, v in (("pkg.torch.onnx.stack_trace", "File x"), ("layer", "1")))
    data = model(graph([node("Relu", ["x"], ["y"]) + noted], [info("x", X.shape)], [info("y", X.shape)]))
    for options, keys in (((), ["layer"]), (("--debug-info",), ["pkg.torch.onnx.stack_trace", "layer"])):
        found = messages(opt(tmp_path, data, *options)).graph
        assert found is not None and [e.key for e in found.nodes[0].metadata] == keys
