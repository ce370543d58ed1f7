"""Pictures of real models: what JAX lowers and torch exports, in fewer channels and layers (docs/models_in_*.py).

The first picture, and every level of the page, has at most forty boxes, no cycle, and names that say what is in a box.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.viz import View, fold
from deepx_graph.viz.draw import view_of
from deepx_graph.viz.folding.blocks import WORDS, op_of
from deepx_graph.viz.folding.fold import OVERVIEW
from deepx_graph.viz.folding.parallel import UPDATE
from deepx_graph.viz.page.folds import folds_of
from deepx_graph.viz.view.model import ViewNode
from tests.support.viz_shapes import has_cycle

MODELS = zipfile.ZipFile(Path(__file__).parent / "models.zip")
NAMES = [name for name in MODELS.namelist() if not name.endswith("/")]


def first_view(module: Module) -> View:
    return view_of(module, None, None, None, 2, collapse=False, title="")


def named(box: ViewNode, members: list[ViewNode]) -> bool:
    """Whether a box is called by scopes, functions or operations of what is in it."""
    words = {part for n in members for part in n.scope} | {op_of(n) for n in members} | {w.word for w in WORDS}
    words |= {n.operator.kind for n in members if n.operator}
    words |= {"parameters", "variables", "constants", "values", "fusion", "results", UPDATE}
    words |= {re.sub(r"[._]?\d+$", "", n.address.rpartition("#")[0]).lstrip("_") for n in members}
    said = re.split(r" \+ | to | ×| \(|, |: |^[\d,]+ ", box.title)
    return any(w and (w == s or s.startswith(w) or w.endswith(s)) for w in words for s in said if s)


def check(view: View, folded: View) -> None:
    nodes = {n.id: n for n in view.nodes}
    assert len(folded.nodes) <= OVERVIEW
    assert not has_cycle(folded)
    for box in folded.nodes:
        if box.kind == "group":
            assert not re.match(r"lines \d|nodes\b|\d+ nodes", box.title), box
            assert named(box, [nodes[m] for m in box.members]), box


def sources(node: ViewNode) -> list[str]:
    """What the source calls the modules around a node, and the operator that it was read from."""
    return [*node.scope, *([node.operator.kind] if node.operator and node.operator.kind else [])]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_picture_reads_like_the_network(name: str) -> None:
    module = dx.loads(MODELS.read(name))
    view = first_view(module)
    folded = fold(view, OVERVIEW)
    check(view, folded)
    boxes = [n for n in folded.nodes if n.kind == "group"]
    told = [n for n in boxes if any(n.title.startswith(part) for m in n.members for part in sources(view.nodes[m]))]
    assert len(told) >= len(boxes) // 2, [n.title for n in boxes]
    assert not any(n.kind == "constant" for n in folded.nodes), "a weight stands beside what uses it"


@pytest.mark.parametrize("name", NAMES)
def test_an_optimised_model_keeps_its_shape(name: str) -> None:
    view = first_view(dx.optimize(dx.loads(MODELS.read(name))))
    check(view, fold(view, OVERVIEW))


@pytest.mark.parametrize("name", NAMES)
def test_every_level_of_the_page_can_be_read(name: str) -> None:
    folds = folds_of(first_view(dx.loads(MODELS.read(name))))
    for folded in folds.folded:
        check(folds.view, folded)


def test_blocks_are_told_by_name_whatever_the_exporter() -> None:
    for name, block in {"jax/gpt12.mlir": "Blk_", "torch/transformer12.onnx": "layers."}.items():
        view = first_view(dx.loads(MODELS.read(name)))
        folded = fold(view, OVERVIEW)
        assert any(n.title.startswith(block) for n in folded.nodes) or any(c.title.startswith(block) for c in folded.clusters), name


def test_stages_that_are_called_alike_are_told_apart_by_what_they_give() -> None:
    view = first_view(dx.loads(MODELS.read("torch/resnet18_nameless.onnx")))
    convolutions = [n.subtitle.split("\n")[0] for n in fold(view, OVERVIEW).nodes if n.title == "Conv"]
    assert len(convolutions) > 3
    assert {c.partition("gives ")[2] for c in convolutions} == {"f32[1,8,16,16]", "f32[1,8,8,8]", "f32[1,16,4,4]"}


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".onnx")])
def test_an_operator_read_as_a_loop_is_a_box_of_its_name_that_opens_to_the_loop(name: str) -> None:
    folds = folds_of(first_view(dx.loads(MODELS.read(name))))
    nodes = folds.view.nodes
    looped = {n.operator for n in nodes if n.kind == "loop_begin" and n.operator and n.operator.kind}
    boxes = [(box, {nodes[m].operator for m in box.members if nodes[m].kind == "op"}) for box in folds.folded[0].nodes]
    found = [box for box, operators in boxes if operators and operators <= looped]
    assert [b.title for b in found] == [o.kind for o in looped]
    for box in found:
        inside = folds.folded[folds.inside[box.members]]
        assert any(n.kind == "loop_begin" for n in inside.nodes)
        assert any(c.kind == "loop" for c in inside.clusters)
    assert ("lstm" in name) == bool(found)


def test_rows_of_blocks_called_alike_are_told_apart_by_what_they_give() -> None:
    view = first_view(dx.loads(MODELS.read("torch/resnet18_nameless.onnx")))
    for most in range(12, 40, 4):
        boxes = [n for n in fold(view, most).nodes if n.kind == "group"]
        seen = [(n.title.partition(" ×")[0], n.subtitle.partition("gives ")[2].partition("\n")[0], n.title) for n in boxes]
        for title, gives, whole in seen:
            same = [other for other in seen if other[0] == title]
            assert len(same) == 1 or gives or "(" in whole, (most, title)


def test_boxes_count_the_operators_of_the_source() -> None:
    """Torch exports each of these modules as these operators; what a reader made of them is many more nodes."""
    view = first_view(dx.loads(MODELS.read("torch/resnet18.onnx")))
    said = {b.title: b.subtitle.partition("\n")[2] for b in fold(view, OVERVIEW).nodes if b.kind == "group"}
    assert (said["layer1.0/bn1"], said["avgpool"], said["fc"]) == ("1 Conv", "1 ReduceMean", "1 Gemm, 1 Reshape")
    view = first_view(dx.loads(MODELS.read("torch/lstm.onnx")))
    said = {b.title: b.subtitle.partition("\n")[2] for b in fold(view, OVERVIEW).nodes if b.kind == "group"}
    assert said["embed"] == "1 Gather"
    assert "dot_general" in said["LSTM"]  # called as the one operator that it is, it tells what that was read as


def test_a_constant_that_modules_share_is_no_data_between_them() -> None:
    """Equal initial weights of norms, which torch writes once, make no edges beside those of the network."""
    module = dx.loads(MODELS.read("torch/transformer12.onnx"))
    view = first_view(module)
    folded = fold(view, OVERVIEW)
    owner = {m: b.id for b in folded.nodes for m in b.members}
    acting = {b.id for b in folded.nodes if b.kind == "group" and any(view.nodes[m].kind == "op" for m in b.members)}
    shared = [(owner[e.source], owner[e.target]) for e in view.edges if view.nodes[e.source].kind == "constant"]
    apart = {(s, t) for s, t in shared if s != t and s in acting and t in acting}
    computed = {(owner[e.source], owner[e.target]) for e in view.edges if view.nodes[e.source].kind != "constant"}
    assert apart - computed, "none is shared"
    assert not (apart - computed) & {(e.source, e.target) for e in folded.edges}
