"""Reading programs of torch.export: versions of the schema, weights, what is written in place, sizes, what is wrong."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.analysis.name_scopes import name_scopes
from deepx_graph.errors import DeepxGraphError
from deepx_graph.text.torch import looks_like_program
from deepx_graph.text.torch.listing import module_path, result_names
from deepx_graph.text.torch.pickled import tensors_in
from deepx_graph.text.torch.schema import Name
from deepx_graph.text.torch.tensors import size_of
from tests.support.torch_archives import archive, call, meta, n, old_archive, pickled, program, saved, t, zipped

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
LINEAR = call("aten.linear.default", "y", ("input", t("x")), ("weight", t("p_w")))


def linear(version: int = 8) -> dict[str, Any]:
    tensors = {"x": meta("float32", [2, 4]), "p_w": meta("float32", [3, 4]), "y": meta("float32", [2, 3])}
    return program([LINEAR], tensors, ["x"], ["y"], {"p_w": "lin.weight"}, version)


def run(data: bytes, *inputs: Any, engine: str = "numpy") -> Any:
    return dx.compile(dx.loads(data), engine=engine, optimize=False)(*inputs)


def single(*nodes: dict[str, Any], **tensors: Any) -> bytes:
    """A program of one input `x` whose last node gives the result."""
    last = nodes[-1]["outputs"][0]["as_tensor"]["name"]
    return archive(program(nodes, {"x": meta("float32", [2, 4]), **tensors}, ["x"], [last]))


@pytest.mark.parametrize("version", [1, 3, 5, 8])
def test_versions_of_the_schema_and_both_layouts(version: int) -> None:
    weights = {"lin.weight": W}
    for data in (archive(linear(version), weights), old_archive(linear(version), weights), archive(linear(version), weights, True)):
        assert looks_like_program(data)
        np.testing.assert_allclose(run(data, X)[0], X @ W.T, rtol=1e-6)


def test_constants_and_optional_tensors_of_the_first_version() -> None:
    """As torch 2.1 wrote them: a tensor in base 64 that is no input, and bare names in a list of what may be left out."""
    places = [{"as_tensor": None, "as_none": []}, {"as_tensor": "at", "as_none": None}]
    nodes = [call("aten.mul.Tensor", "m", ("self", t("x")), ("other", t("_tensor_constant0"))),
             call("aten.index.Tensor", "y", ("self", t("m")), ("indices", {"as_optional_tensors": places}))]
    tensors = {"x": meta("float32", [2, 4]), "at": meta("int64", [3]), "m": meta("float32", [2, 4]), "y": meta("float32", [2, 3])}
    told = program(nodes, tensors, ["x", "at"], ["y"], version=1)
    told["graph_module"]["graph"]["constants"] = {"_tensor_constant0": base64.b64encode(saved({"": W[0]})).decode()}
    at = np.array([3, 0, 3])
    np.testing.assert_array_equal(run(old_archive(told, {}), X, at)[0], (X * W[0])[:, at])
    told["graph_module"]["graph"]["constants"] = {"_tensor_constant0": "%"}
    with pytest.raises(dx.ParseError, match="the constant '_tensor_constant0' is not in base 64"):
        run(old_archive(told, {}), X, at)


def test_what_is_given_by_name_is_no_operand_by_number() -> None:
    """Files of torch 2.7 and earlier do not say which arguments are given by name; the step is left out here."""
    node = call("aten.arange.start_step", "y", ("start", {"as_int": 1}), ("end", {"as_int": 5}), dtype={"as_scalar_type": 5},
                layout={"as_layout": 7}, device={"as_device": {"type": "cpu"}}, pin_memory={"as_bool": False})
    for row in node["inputs"]:
        del row["kind"]
    told = program([node], {"x": meta("float32", [2, 4]), "y": meta("int64", [4])}, ["x"], ["y"], version=5)
    np.testing.assert_array_equal(run(old_archive(told, {}), X)[0], [1, 2, 3, 4])


def test_weights_may_be_inputs_and_keep_their_names() -> None:
    module = dx.loads(archive(linear(), {"lin.weight": W}), weights="inputs")
    assert [p.name for p in module.entry.params] == ["x", "lin.weight"]
    np.testing.assert_allclose(dx.compile(module, engine="numpy", optimize=False)(X, 2 * W)[0], X @ (2 * W).T, rtol=1e-6)


def test_nodes_have_the_modules_and_the_lines_that_they_are_from() -> None:
    module = dx.loads(archive(linear(), {"lin.weight": W}))
    (node,) = module.entry.results
    assert name_scopes(module.entry)[node].path == ("blocks.0",)
    assert node.span is not None and str(node.span.place) == "model.py:7 in forward"
    assert node.span.place is not None and node.span.place.kind == "linear"  # what pictures call all that it was read as
    assert "aten.linear.default(x, p_w)" in node.span.text


def test_modules_around_an_operation() -> None:
    stack = "a,,Net;b,encoder,E;c,encoder.layers.0,L;d,encoder.layers.0.attn,A"
    assert module_path(stack) == ("encoder", "layers.0", "attn")
    assert module_path("a,L['self'],N;b,L['self'].net,S;c,L['self'].net.0,L;d,L['self'].net.0.1,L") == ("net", "net.0", "net.0.1")


def test_results_are_named_by_their_places() -> None:
    leaf = {"type": None, "context": None, "children_spec": []}
    pair = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf, leaf]}
    spec = json.dumps([1, {"type": "builtins.dict", "context": '["a", "b"]', "children_spec": [leaf, pair]}])
    names = [Name(k) for k in ("x", "y", "z")]
    assert result_names(names, spec) == ["a", "b.0", "b.1"]
    assert result_names(names[:2], json.dumps([1, pair])) == ["x", "y"]
    assert result_names(names, "no tree") == ["x", "y", "z"]


@pytest.mark.parametrize(("written", "means"), [
    ("Symbol('s0', positive=True, integer=True)", "s0"), ("Integer(7)", 7), ("s0*2", "s0*2"),
    ("Mul(Integer(2), Symbol('s77', positive=True, integer=True))", "s77*2"),
    ("Add(Symbol('a'), Symbol('b'), Integer(1))", "a+b+1"),
])  # fmt: skip
def test_sizes_are_sums_and_products_of_symbols(written: str, means: Any) -> None:
    assert size_of(written) == means


def test_a_size_of_the_input_is_known_when_it_is_run() -> None:
    size = {**call("aten.sym_size.int", "", ("self", t("x")), ("dim", n(0))), "outputs": [{"as_sym_int": {"as_name": "k"}}]}
    twice = {
        "target": "_operator.mul",
        "inputs": [{"name": "", "arg": {"as_sym_int": {"as_name": "k"}}, "kind": 1}, {"name": "", "arg": n(4), "kind": 1}],
        "outputs": [{"as_sym_int": {"as_name": "m"}}],
        "metadata": {},
    }
    flat = call("aten.view.default", "y", ("self", t("x")), ("size", {"as_sym_ints": [{"as_name": "m"}]}))
    told = program(
        [size, twice, flat],
        {"x": meta("float32", ["s0", 4]), "y": meta("float32", ["Mul(Integer(4), Symbol('s0'))"])},
        ["x"],
        ["y"],
    )
    told["graph_module"]["graph"]["sym_int_values"] = {
        "k": {"as_expr": {"expr_str": "Symbol('s0')"}},
        "m": {"as_expr": {"expr_str": "Mul(Integer(4), Symbol('s0'))"}},
    }
    module = dx.loads(archive(told))
    assert str(module.entry.params[0].type) == "f32[s0,4]"
    compiled = dx.compile(module, engine="numpy", optimize=False)
    for rows in (2, 1):
        np.testing.assert_array_equal(compiled(X[:rows])[0], X[:rows].reshape(-1))


def test_what_is_written_in_place_is_seen_through_all_views() -> None:
    nodes = [
        call("aten.clone.default", "z", ("self", t("x"))),
        call("aten.select.int", "row", ("self", t("z")), ("dim", n(0)), ("index", n(1))),
        call("aten.t.default", "turned", ("self", t("z"))),
        call("aten.add_.Tensor", "more", ("self", t("row")), ("other", n(10))),
        call("aten.mul.Tensor", "y", ("self", t("turned")), ("other", n(2))),
    ]
    data = single(
        *nodes,
        z=meta("float32", [2, 4]),
        row=meta("float32", [4]),
        more=meta("float32", [4]),
        turned=meta("float32", [4, 2], [1, 4]),
        y=meta("float32", [4, 2]),
    )
    wanted = X.copy()
    wanted[1] += 10
    np.testing.assert_array_equal(run(data, X)[0], 2 * wanted.T)


def test_an_input_that_is_written_to_is_a_result_too() -> None:
    data = single(call("aten.add_.Tensor", "y", ("self", t("x")), ("other", n(1))), y=meta("float32", [2, 4]))
    module = dx.loads(data)
    assert module.entry.result_names == ("y", "x")
    for found in run(data, X):
        np.testing.assert_array_equal(found, X + 1)


def test_what_is_not_known_is_shown_and_not_run() -> None:
    module = dx.loads(single(call("vendor.wonder.default", "y", ("self", t("x")), ("k", n(3))), y=meta("float32", [2, 4])))
    assert "vendor.wonder.default" in dx.dumps(module, "sea")
    with pytest.raises(DeepxGraphError):
        dx.compile(module, optimize=False)(X)


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        call("aten.add.Tensor", "y", ("self", t("nothing")), ("other", t("x"))),
        {"y": meta("float32", [2, 4])},
        "'nothing' is read before",
    ),
    (
        call("aten.permute.default", "y", ("self", t("x")), ("dims", {"as_ints": [0, 7]})),
        {"y": meta("float32", [2, 4])},
        "permute.default 'y'",
    ),
    (call("aten.neg.default", "y", ("self", t("x"))), {"y": meta("float32", [5, 4])}, "as the program says"),
    (call("aten.neg.default", "y", ("self", t("x"))), {}, "of which type 'y' is"),
    (
        call("aten.view.default", "y", ("self", t("x")), ("size", {"as_ints": [3, 3]})),
        {"y": meta("float32", [3, 3])},
        r"y = aten\.view",
    ),
    (call("aten.neg.default", "y", ("self", {"as_wonder": 1})), {"y": meta("float32", [2, 4])}, "kind 'as_wonder'"),
    (call("aten.neg.default", "y", ("self", t("x"))), {"y": {**meta("float32", [2, 4]), "dtype": 99}}, "element type"),
    (call("aten.neg.default", "y", ("self", t("x"))), {"y": {**meta("float32", [2, 4]), "layout": 1}}, "layout 1"),
]


@pytest.mark.parametrize(("node", "tensors", "says"), WRONG)
def test_what_is_wrong_is_told_with_the_node(node: dict[str, Any], tensors: dict[str, Any], says: str) -> None:
    with pytest.raises(DeepxGraphError, match=says):
        dx.loads(single(node, **tensors))


def test_weights_lie_within_their_storage() -> None:
    outside = {
        "config": {"lin.weight": {"path_name": "weight_0", "use_pickle": False, "tensor_meta": meta("float32", [3, 4], [4, 1], 1)}}
    }
    files = {"data/weights/model_weights_config.json": json.dumps(outside).encode()}
    with pytest.raises(DeepxGraphError, match="within the storage"):
        dx.loads(archive(linear(), {"lin.weight": W}, **files))
    outside["config"]["lin.weight"]["path_name"] = "../../../etc/passwd"
    with pytest.raises(DeepxGraphError, match="has no file"):
        dx.loads(archive(linear(), {"lin.weight": W}, **{"data/weights/model_weights_config.json": json.dumps(outside).encode()}))
    outside["config"]["lin.weight"] = {"path_name": "weight_0", "use_pickle": True, "tensor_meta": meta("float32", [3, 4])}
    with pytest.raises(DeepxGraphError, match="pickle"):
        dx.loads(archive(linear(), {"lin.weight": W}, **{"data/weights/model_weights_config.json": json.dumps(outside).encode()}))


def test_weights_that_are_not_there_are_named() -> None:
    with pytest.raises(DeepxGraphError, match=r"lin\.weight"):
        dx.loads(archive(linear()))


def test_a_version_that_is_too_new_is_refused() -> None:
    with pytest.raises(DeepxGraphError, match="version 9"):
        dx.loads(archive(linear(9), {"lin.weight": W}))


class _Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def test_a_pickle_is_read_and_not_run() -> None:
    for parameters in (False, True):
        with zipfile.ZipFile(io.BytesIO(saved({"a": W}, parameters))) as file:
            found = tensors_in(file.read("archive/data.pkl"), "a.pt")
        assert (found["a"].sizes, found["a"].strides, found["a"].dtype) == ((3, 4), (4, 1), 7)
    harm = pickle.dumps({"a": _Harm()}, 2)
    for data in (harm, pickle.dumps({"a": _Harm()}), pickled({1: 2}), b"", b"\x80", b".", b"(" * 10_000 + b".", pickled([1])):
        with pytest.raises(DeepxGraphError):
            tensors_in(data, "a.pt")
    with pytest.raises(DeepxGraphError, match=r"torch 2\.8"):
        dx.loads(
            zipped(
                {
                    "serialized_exported_program.json": json.dumps(linear()).encode(),
                    "serialized_state_dict.pt": zipped({"archive/data.pkl": harm}),
                }
            )
        )


def test_archives_do_not_grow_without_bound() -> None:
    data = archive(b"[" * 50 + b" " * (1 << 22), deflate=True)
    with pytest.raises(DeepxGraphError, match="max-file-bytes"):
        dx.loads(data, max_file_bytes=1 << 20)
    with pytest.raises(DeepxGraphError, match=r"too deep|no JSON"):
        dx.loads(archive(b"[" * 200_000))


def test_damaged_archives_are_refused_or_read() -> None:
    chance = random.Random(5)
    nodes = [LINEAR, call("aten.cat.default", "z", ("tensors", {"as_tensors": [{"name": "y"}, {"name": "y"}]}), ("dim", n(1)))]
    tensors = {
        "x": meta("float32", ["s0", 4]),
        "p_w": meta("float32", [3, 4]),
        "y": meta("float32", ["s0", 3]),
        "z": meta("float32", ["s0", 6]),
    }
    told = program(nodes, tensors, ["x"], ["z"], {"p_w": "lin.weight"})
    seeds = [archive(told, {"lin.weight": W}), old_archive(linear(1), {"lin.weight": W})]
    for k in range(300):
        data = bytearray(seeds[k % 2])
        for _ in range(1 + k % 3):
            data[chance.randrange(len(data))] = chance.randrange(256)
        _tried(bytes(data[: chance.randrange(len(data))] if k % 5 == 0 else data))
    plain = json.dumps(told)
    for _ in range(300):
        at = chance.randrange(len(plain))
        piece = chance.choice(('"', "0", "-1", "null", "{}", "[]", "99999999999999999999", "true", "1e999", "9"))
        _tried(archive((plain[:at] + piece + plain[at + chance.randrange(12) :]).encode(), {"lin.weight": W}))


def _tried(data: bytes) -> None:
    with suppress(DeepxGraphError):
        dx.dumps(dx.optimize(dx.loads(data)), "sea")


def test_the_file_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(archive(linear(), {"lin.weight": W}))
    assert dx.load(path).format == "torch"
    assert not looks_like_program(zipped({"net/data.pkl": b"", "net/code/a.py": b""}))


def test_a_mean_over_sizes_that_are_not_known_waits_for_them() -> None:
    mean = call("aten.mean.dim", "y", ("self", t("x")), ("dim", {"as_ints": [0]}))
    told = program([mean], {"x": meta("float32", ["s0", 4]), "y": meta("float32", [4])}, ["x"], ["y"])
    compiled = dx.compile(dx.loads(archive(told)), engine="numpy", optimize=False)
    for rows in (2, 1):
        np.testing.assert_allclose(compiled(X[:rows])[0], X[:rows].mean(0), rtol=1e-6)


def test_what_a_pooling_makes_of_a_symbol_stays_that_symbol() -> None:
    pool = call("aten.max_pool2d.default", "p", ("self", t("x")), ("kernel_size", {"as_ints": [2, 2]}))
    bias = call("aten.conv2d.default", "y", ("input", t("p")), ("weight", t("p_w")), ("bias", t("p_b")))
    tensors = {"x": meta("float32", ["s0", 1, 4, 4]), "p": meta("float32", ["s0", 1, 2, 2]), "y": meta("float32", ["s0", 3, 2, 2]),
               "p_w": meta("float32", [3, 1, 1, 1]), "p_b": meta("float32", [3])}  # fmt: skip
    weights = {"w": np.ones((3, 1, 1, 1), np.float32), "b": np.arange(3, dtype=np.float32)}
    data = archive(program([pool, bias], tensors, ["x"], ["y"], {"p_w": "w", "p_b": "b"}), weights)
    picture = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
    wanted = picture[:, :, 1::2, 1::2] + weights["b"].reshape(1, 3, 1, 1)
    np.testing.assert_array_equal(run(data, picture)[0], wanted)
