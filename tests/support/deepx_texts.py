"""Texts of deepx programs, and ways to read and run them, for the tests of its readers."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph.errors import Source
from deepx_graph.ops.host.host import Host
from deepx_graph.text import ReadOptions, ReadResult, read
from deepx_graph.types import STATE
from tests.support.reference import evaluate

X = np.array([[1.5, -2.0, 0.5], [3.0, 0.25, -1.0]], np.float32)
Y = np.array([[0.5, 4.0, 0.5], [-2.0, 2.0, 3.0]], np.float32)


def load_text(text: str, **options: Any) -> ReadResult:
    """What reading the text gives."""
    return read(Source("test.dx", text), "deepx", ReadOptions(**options))


def run(text: str, world: Host | None = None, **inputs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs by name; inputs by name."""
    module = load_text(text).module
    args = [world if p.type == STATE else np.asarray(inputs[p.name]) for p in module.entry.params]
    results = evaluate(module, args)
    return {module.entry.result_name(k): r for k, r in enumerate(results) if not isinstance(r, Host)}


def tensors(*names: str, dtype: str = "float32", shape: str = "2 3") -> str:
    """Lines that make tensors of zeros."""
    return "".join(f"newtensor@{dtype} {shape} -> {n}\n" for n in names)


SAME_PROGRAM = {
    "A": "argset@int32 2 3->v1\nargset@float32 10->a1\nargset@float32 0.5->a2\nnewtensor@float32 v1->t\nnewtensor@float32 v1->u\n"
         "arange@float32 a1 a2->t\nadd_scalar@float32 t a2->u\n",
    "B": "newtensor@float32 2 3 -> t // id=1 created_at=1.5\nnewtensor@float32 2 3 -> u\narange@float32 10 0.5 -> t\n"
         "addscalar@float32 t 0.5 -> u // id=9\n",
    "C": "newtensor@float32 [2 3] -> t\nnewtensor@float32 2 3 -> u\narange@float32 10,0.5 -> t\naddscalar t,0.5 -> u\n",
    "D": "newtensor ([2 3]) -> (tensor<float32> t) // id=1\nnewtensor ([2 3]) -> (tensor<float32> u)\n"
         "arange (tensor<float32> t, 10, 0.5) -> ()\naddscalar (t, 0.5) -> (u) // author=miaobyte\nprint (u, ) -> ()\n",
    "E": "newtensor (vector<int32>:[2 3]) -> (tensor<float32>:t) //  created_at=1\n"
         "newtensor (vector<int32>:[2 3]) -> (tensor<float32>:u)\n"
         "arange (var<int32>:10, var<float32>:0.5) -> (tensor<float32>:t) // author=miaobyte  created_at=1\n"
         "addscalar (tensor<float32>:t, var<float32>:0.5) -> (tensor<float32>:u)\n",
    "F": "func main() -> (t: tensor<2x3xf32>, u: tensor<?1x?2xf32>) {\n  arange(10, 0.5)-> t\n  addscalar(t, 0.5) -> (u)\n}\n",
}  # fmt: skip
"""One program in every dialect."""

NORM = """
// a template: axis, keepdims and the factor are known at each call
deepxir total(A: tensor<?1x?2xf32>, axis: list<i32>, keepdims: bool, factor: f32) -> (out: tensor<?1xf32>) {
    newtensor(?1, f32)-> s
    sum(A, axis, keepdims)-> s
    mulscalar(s, factor)-> out
    deltensor(s)-> s
}
function entry(A: tensor<2x3xf32>, k: f32) -> (p: tensor<2xf32>, q: tensor<2xf32>) {
    total(A, [1], false, 2.5) -> p
    total(A, [1], false, k) -> q
}
"""
"""Functions, one of which is made anew for each set of numbers it is called with."""
