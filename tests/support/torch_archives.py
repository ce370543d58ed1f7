"""Archives of torch.export as small as can be, written without torch, in the layouts of several versions of the schema."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NUMBERS = {"float32": 7, "float64": 8, "int64": 5, "int32": 4, "bool": 12, "float16": 6, "complex64": 10}
STORAGES = {"float32": "FloatStorage", "float64": "DoubleStorage", "int64": "LongStorage"}


def t(name: str) -> dict[str, Any]:
    """A tensor as an argument."""
    return {"as_tensor": {"name": name}}


def n(value: int) -> dict[str, Any]:
    return {"as_int": value}


def call(target: str, out: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """A node; arguments are pairs of a name and a value, those by keyword stand behind."""
    inputs = [{"name": name, "arg": arg, "kind": 1} for name, arg in args]
    inputs += [{"name": name, "arg": arg, "kind": 2} for name, arg in kwargs.items()]
    stack = {
        "stack_trace": 'File "model.py", line 7, in forward\n    y = f(x)',
        "nn_module_stack": "L__self__,,Net;L__self___a,blocks.0,B",
    }
    return {"target": f"torch.ops.{target}", "inputs": inputs, "outputs": [t(o) for o in out.split()], "metadata": stack}


def meta(dtype: str, sizes: Sequence[Any], strides: Sequence[int] | None = None, offset: int = 0) -> dict[str, Any]:
    """What a program says of a tensor; a size may be an expression."""
    plain = [s if isinstance(s, int) else 4 for s in sizes]
    dense = [int(np.prod(plain[k + 1 :])) for k in range(len(plain))]
    told = [{"as_int": s} if isinstance(s, int) else {"as_expr": {"expr_str": s, "hint": {"as_int": 4}}} for s in sizes]
    return {
        "dtype": NUMBERS[dtype],
        "sizes": told,
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": s} for s in (dense if strides is None else strides)],
        "storage_offset": {"as_int": offset},
        "layout": 7,
    }


def program(
    nodes: Sequence[Mapping[str, Any]],
    tensors: Mapping[str, Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: Mapping[str, str] | None = None,
    version: int = 8,
) -> dict[str, Any]:
    """The JSON of a program. `weights` has the names of modules by those of the graph."""
    weights = dict(weights or {})
    graph: dict[str, Any] = {
        "inputs": [t(i) for i in (*weights, *inputs)],
        "outputs": [t(o) for o in outputs],
        "nodes": list(nodes),
        "tensor_values": dict(tensors) if version > 1 else {k: {"meta": m} for k, m in tensors.items()},
        "sym_int_values": {},
        "sym_bool_values": {},
        "is_single_tensor_return": False,
    }
    if version < 3:
        signature: dict[str, Any] = {
            "inputs_to_parameters": weights,
            "inputs_to_buffers": {},
            "user_inputs": list(inputs),
            "user_outputs": list(outputs),
            "buffers_to_mutate": {},
            "backward_signature": None,
        }
    else:
        signature = {
            "input_specs": [
                *({"parameter": {"arg": {"name": k}, "parameter_name": v}} for k, v in weights.items()),
                *({"user_input": {"arg": t(i)}} for i in inputs),
            ],
            "output_specs": [{"user_output": {"arg": t(o)}} for o in outputs],
        }
    told: Any = 1 if version < 3 else {"major": version, "minor": 2}
    return {
        "graph_module": {"graph": graph, "signature": signature, "module_call_graph": []},
        "opset_version": {"aten": 10},
        "range_constraints": {},
        "schema_version": told,
    }


def archive(told: Any, weights: Mapping[str, np.ndarray[Any, Any]] | None = None, deflate: bool = False, **files: bytes) -> bytes:
    """The layout of torch 2.8 and later."""
    config = {}
    entries: dict[str, bytes] = {}
    for k, (name, value) in enumerate((weights or {}).items()):
        entries[f"data/weights/weight_{k}"] = value.tobytes()
        config[name] = {
            "path_name": f"weight_{k}",
            "is_param": True,
            "use_pickle": False,
            "tensor_meta": meta(value.dtype.name, value.shape),
        }
    entries["data/weights/model_weights_config.json"] = json.dumps({"config": config}).encode()
    entries["models/model.json"] = told if isinstance(told, bytes) else json.dumps(told).encode()
    entries |= {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little", **files}
    return zipped({f"net/{k}": v for k, v in entries.items()}, deflate)


def zipped(entries: Mapping[str, bytes], deflate: bool = False) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return out.getvalue()


def old_archive(told: Any, weights: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """The layout of torch 2.7 and earlier."""
    return zipped(
        {
            "version": b"5.1",
            "serialized_exported_program.json": json.dumps(told).encode(),
            "serialized_state_dict.pt": saved(weights),
            "serialized_constants.pt": b"",
        }
    )


class _Global:
    """A name that a pickle refers to, written as if it were importable."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _Storage:
    def __init__(self, key: str, kind: str, count: int) -> None:
        self.told = ("storage", _Global("torch", kind), key, "cpu", count)


class _TorchPickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """Writes what torch.save writes of tensors."""

    def persistent_id(self, value: object) -> object:
        return value.told if isinstance(value, _Storage) else None

    def save(self, value: Any, save_persistent_id: bool = True) -> None:
        if isinstance(value, _Global):
            self.write(b"c" + f"{value.module}\n{value.name}\n".encode())
        elif isinstance(value, _Call):
            self.save(value.function)
            self.save(value.arguments)
            self.write(b"R")
        else:
            super().save(value, save_persistent_id)


class _Call:
    def __init__(self, function: _Global, arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments


def pickled(value: object) -> bytes:
    out = io.BytesIO()
    _TorchPickler(out, protocol=2).dump(value)
    return out.getvalue()


def saved(weights: Mapping[str, np.ndarray[Any, Any]], parameters: bool = False) -> bytes:
    """An archive of torch.save that holds a dict of tensors, or of parameters with what torch 2.7 notes on them.

    One alone where its name is empty.
    """
    rows: dict[str, Any] = {}
    files = {}
    for k, (name, value) in enumerate(weights.items()):
        strides = tuple(s // value.itemsize for s in value.strides)
        storage = _Storage(str(k), STORAGES[value.dtype.name], value.size)
        rows[name] = _Call(
            _Global("torch._utils", "_rebuild_tensor_v2"),
            (storage, 0, value.shape, strides, False, _Call(_Global("collections", "OrderedDict"), ())),
        )
        if parameters:
            noted = (rows[name], True, _Call(_Global("collections", "OrderedDict"), ()), {"_dynamo_static_input_type": "unguarded"})
            rows[name] = _Call(_Global("torch._utils", "_rebuild_parameter_with_state"), noted)
        files[f"archive/data/{k}"] = value.tobytes()
    return zipped({"archive/data.pkl": pickled(rows if set(rows) != {""} else rows[""]), **files})
