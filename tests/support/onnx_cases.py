"""Writes the official ONNX backend suite as files, and what onnxruntime passes of it. Runs in an environment that has `onnx`:

    PYTHON tests/support/onnx_cases.py FOLDER
    PYTHON tests/support/onnx_cases.py --judge ROWS.json      # models that were written of them

FOLDER/index.json lists the cases: kind, name, folder, tolerances, and how onnxruntime did. Each folder has `model.onnx` and the
data sets in the form of the suite, `test_data_set_0/input_0.pb` and so on.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test.loader as loader
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")


def message(info, value):
    """The value of an input or output as a protocol buffer, by its declared type."""
    kind = info.type.WhichOneof("value")
    if kind == "optional_type":
        inner = info.type.optional_type.elem_type
        if value is None:
            return onnx.OptionalProto(name=info.name, elem_type=onnx.OptionalProto.UNDEFINED)
        item = onnx.ValueInfoProto(name=info.name, type=inner)
        made = onnx.OptionalProto(name=info.name)
        if inner.WhichOneof("value") == "sequence_type":
            made.elem_type = onnx.OptionalProto.SEQUENCE
            made.sequence_value.CopyFrom(message(item, value))
        else:
            made.elem_type = onnx.OptionalProto.TENSOR
            made.tensor_value.CopyFrom(message(item, value))
        return made
    if kind == "sequence_type":
        return numpy_helper.from_list(list(value), info.name)
    if isinstance(value, onnx.TensorProto):
        return value
    value = np.asarray(value)
    return numpy_helper.from_array(value, info.name)


def write(case, folder):
    """One case of the suite with its data in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    initialised = {i.name for i in case.model.graph.initializer}
    inputs = [i for i in case.model.graph.input if i.name not in initialised]
    for k, (given, wanted) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{k}"
        data.mkdir(exist_ok=True)
        for side, infos, values in (("input", inputs, given), ("output", case.model.graph.output, wanted)):
            for j, (info, value) in enumerate(zip(infos, values, strict=False)):
                (data / f"{side}_{j}.pb").write_bytes(message(info, value).SerializeToString())


def real(case, folder):
    """A light model: its input counts up from 0 to 1, as the suite has it."""
    light = Path(loader.__file__).parents[1] / "data" / "light"
    model = onnx.load(light / f"light_{case.model_name}.onnx")
    (folder / "test_data_set_0").mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    weights = {w.name for w in model.graph.initializer}
    info = next(i for i in model.graph.input if i.name not in weights)
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    size = int(np.prod(shape))
    value = (np.arange(size, dtype=np.float32) / size).reshape(shape)
    (folder / "test_data_set_0" / "input_0.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())
    wanted = (light / f"light_{case.model_name}_output_0.pb").read_bytes()
    (folder / "test_data_set_0" / "output_0.pb").write_bytes(wanted)


def same(found, wanted, rtol, atol):
    """Whether a result is the expected one, as the suite's runner compares them."""
    if isinstance(wanted, (list, tuple)):
        return isinstance(found, (list, tuple)) and len(found) == len(wanted) and all(
            same(f, w, rtol, atol) for f, w in zip(found, wanted, strict=True))
    if wanted is None:
        return found is None
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if wanted.dtype.kind in "OUS":
        return bool((found == wanted).all())
    if wanted.dtype.kind == "V" or any(word in wanted.dtype.name for word in ("float8", "bfloat16", "float4")):
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    return bool(np.allclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True))


def by_onnxruntime(folder, rtol, atol, written=None):
    """`passed`, or why not in short; of another model where one is `written`."""
    import onnxruntime

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(str(written or folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        for data in sorted(folder.glob("test_data_set_*")):
            model = onnx.load(folder / "model.onnx")
            initialised = {i.name for i in model.graph.initializer}
            infos = [i for i in model.graph.input if i.name not in initialised]
            given = {i.name: value_of(data / f"input_{k}.pb", i.type) for k, i in enumerate(infos)
                     if (data / f"input_{k}.pb").exists()}
            found = session.run(None, given)
            wanted = [value_of(data / f"output_{k}.pb", o.type) for k, o in enumerate(model.graph.output)]
            if not all(same(f, w, rtol, atol) for f, w in zip(found, wanted, strict=True)):
                return "another result"
    except Exception as e:
        return f"refused: {type(e).__name__}"
    return "passed"


def value_of(path, type):
    """What a data file holds."""
    data = path.read_bytes()
    kind = type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    index = []
    for kind in KINDS:
        for case in loader.load_model_tests(kind=kind):
            folder = Path(case.model_dir) if case.model_dir else out / kind / case.name
            if kind == "node":
                write(case, folder)
            elif kind == "real":
                real(case, folder)
            index.append({"kind": kind, "name": case.name, "folder": str(folder), "rtol": case.rtol, "atol": case.atol})
    for entry in index:
        entry["onnxruntime"] = by_onnxruntime(Path(entry["folder"]), entry["rtol"], entry["atol"])
    versions = {"onnx": onnx.__version__, "onnxruntime": __import__("onnxruntime").__version__}
    (out / "index.json").write_text(json.dumps({"versions": versions, "cases": index}, indent=1))


def judge(rows):
    """How onnxruntime does on models that were written of cases; `rows` has their names, folders, tolerances and files as JSON."""
    found = {r["file"]: by_onnxruntime(Path(r["folder"]), r["rtol"], r["atol"], r["file"]) for r in json.loads(rows.read_text())}
    print(json.dumps(found))


if __name__ == "__main__":
    judge(Path(sys.argv[2])) if sys.argv[1] == "--judge" else main(Path(sys.argv[1]))
