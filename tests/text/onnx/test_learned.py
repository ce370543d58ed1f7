"""Operators of classical machine learning as scikit-learn's models are exported: what they give, and trees that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.mindir_messages import field, many
from tests.support.onnx_messages import INT64, attribute, graph, info, load, model, node, run

X = np.array([[0.5, -2, 1], [0, 0, 0], [3, 1, -1], [np.nan, 4, 2]], np.float32)


def reals(name: str, values: Any) -> bytes:
    return field(1, name) + b"".join(field(7, float(v)) for v in values) + field(20, 6)


def texts(name: str, values: Any) -> bytes:
    return field(1, name) + many(9, values) + field(20, 8)


def of_rows(name: str, outputs: Any, *attributes: bytes, **plain: Any) -> bytes:
    made = node(name, ["x"], [o for o, _ in outputs], "ai.onnx.ml", **plain) + many(5, attributes)
    told = [info(o, dims, INT64 if len(dims) == 1 else 1) for o, dims in outputs]
    return model(graph([made], [info("x", ("n", 3))], told)) + field(8, field(1, "ai.onnx.ml") + field(2, 3))


@pytest.mark.parametrize("kind", ["MAX", "L1", "L2"])
def test_rows_are_divided_by_their_norm(kind: str) -> None:
    x = X[:3]
    norm = {"MAX": x.max(1), "L1": np.abs(x).sum(1), "L2": np.sqrt((x**2).sum(1))}[kind][:, None]
    (found,) = run(of_rows("Normalizer", [("y", ("n", 3))], norm=kind), x)
    np.testing.assert_allclose(found, x / np.where(norm == 0, 1, norm), rtol=1e-6)


def ints(name: str, values: Any) -> bytes:
    return field(1, name) + many(8, values) + field(20, 7)


def test_categories_are_spread_over_columns() -> None:
    wanted = [[[0, 0, 1], [0, 0, 0]], [[1, 0, 0], [0, 1, 0]]]
    numbers = of_rows("OneHotEncoder", [("y", ("n", 3, 3))], ints("cats_int64s", [3, -2, 0]))
    (found,) = run(numbers, np.array([[0.5, 7, 3], [3, -2, 0]], np.float32))
    np.testing.assert_array_equal(found, [[[0, 0, 1], [0, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]])
    made = node("OneHotEncoder", ["x"], ["y"], "ai.onnx.ml") + field(5, texts("cats_strings", ["c", "b", "a"]))
    words = model(graph([made], [info("x", (2, 2), 8)], [info("y", (2, 2, 3))])) + field(8, field(1, "ai.onnx.ml") + field(2, 3))
    np.testing.assert_array_equal(run(words, np.array([["a", "z"], ["c", "b"]], object))[0], wanted)


@pytest.mark.parametrize("gone", [np.nan, 0.0])
def test_what_is_missing_becomes_a_number_of_its_column(gone: float) -> None:
    made = of_rows("Imputer", [("y", ("n", 3))], reals("imputed_value_floats", [7, 8, 9]), replaced_value_float=float(gone))
    wanted = np.where(np.isnan(X) if gone != gone else X == 0, np.float32([7, 8, 9]), X)
    np.testing.assert_array_equal(run(made, X)[0], wanted)


def test_columns_of_operands_stand_beside_each_other() -> None:
    made = node("FeatureVectorizer", ["x", "i"], ["y"], "ai.onnx.ml", inputdimensions=[3, 1])
    data = model(graph([made], [info("x", ("n", 3)), info("i", ("n", 1), INT64)], [info("y", ("n", 4))]))
    data += field(8, field(1, "ai.onnx.ml") + field(2, 3))
    column = np.arange(4)[:, None]
    np.testing.assert_array_equal(run(data, X, column)[0], np.concatenate([X, column.astype(np.float32)], 1))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_a_linear_classifier_gives_labels_and_scores(transform: str) -> None:
    weights, offsets = np.array([[1, 2, 3], [-1, 0, 2]]), np.array([0.25, -0.5])
    labels, scores = run(of_rows("LinearClassifier", [("l", ("n",)), ("s", ("n", 2))], reals("coefficients", weights.reshape(-1)),
                                 reals("intercepts", offsets), classlabels_ints=[7, 9], post_transform=transform), X[:3])
    plain = X[:3] @ weights.T + offsets
    wanted = {"NONE": plain, "LOGISTIC": 1 / (1 + np.exp(-plain)),
              "SOFTMAX": np.exp(plain) / np.exp(plain).sum(1, keepdims=True)}[transform]
    np.testing.assert_array_equal(labels, np.array([7, 9])[plain.argmax(1)])
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)


def near(kind: str, x: Any, v: Any) -> float:
    """The kernel of a row and a vector, with gamma 0.5, offset 0.25 and degree 2."""
    inner = 0.5 * float(x @ v) + 0.25
    far = float(((x - v) ** 2).sum())
    return {"LINEAR": float(x @ v), "POLY": inner**2, "SIGMOID": float(np.tanh(inner)), "RBF": float(np.exp(-0.5 * far))}[kind]


KERNELS = ["LINEAR", "POLY", "SIGMOID", "RBF"]


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_a_support_vector_machine_weighs_how_near_rows_are(kind: str, one_class: int) -> None:
    vectors, weights = np.array([[1, 0, 2], [-1, 1, 0.5]]), np.array([0.75, -1.5])
    (found,) = run(of_rows("SVMRegressor", [("y", ("n", 1))], reals("support_vectors", vectors.reshape(-1)), reals("rho", [0.1]),
                           reals("coefficients", weights), reals("kernel_params", [0.5, 0.25, 2]), kernel_type=kind, n_supports=2,
                           one_class=one_class), X[:3])
    wanted = [[sum(w * near(kind, x, v) for w, v in zip(weights, vectors, strict=True)) + 0.1] for x in X[:3]]
    np.testing.assert_allclose(found, np.where(np.array(wanted) > 0, 1, -1) if one_class else wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", KERNELS)
def test_machines_between_two_classes_vote(kind: str) -> None:
    """Classes of 2, 1 and 1 vectors; of a tie the first class wins. Written as the standard's reference counts."""
    groups, starts = (2, 1, 1), (0, 2, 3)
    vectors = np.array([[1, 0, 2], [-1, 1, 0.5], [0.5, -2, 1], [2, 2, -1]])
    weights, rho = np.array([[0.5, 1, -1, -0.25], [0.75, -0.5, 1, 2]]), [0.1, -0.2, 0.3]
    labels, scores = run(of_rows("SVMClassifier", [("l", ("n",)), ("s", ("n", 3))], reals("rho", rho),
                                 reals("support_vectors", vectors.reshape(-1)), reals("coefficients", weights.reshape(-1)),
                                 reals("kernel_params", [0.5, 0.25, 2]), kernel_type=kind, vectors_per_class=list(groups),
                                 classlabels_ints=[5, 6, 7]), X[:3])
    for x, label, given in zip(X[:3], labels, scores, strict=True):
        votes, wanted = [0, 0, 0], []
        for k, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
            total = rho[k] + sum(weights[j - 1, m] * near(kind, x, vectors[m]) for m in range(starts[i], starts[i] + groups[i]))
            total += sum(weights[i, m] * near(kind, x, vectors[m]) for m in range(starts[j], starts[j] + groups[j]))
            wanted.append(total)
            votes[i if total > 0 else j] += 1
        np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-6)
        assert label == (5, 6, 7)[int(np.argmax(votes))]


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_probabilities_of_classes_are_coupled(classes: int) -> None:
    """The least squares of Wu, Lin and Weng's second method, solved at once; libsvm stops within 0.005 of them. ZipMap goes on."""
    rng = np.random.default_rng(classes)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    vectors, weights = rng.standard_normal((classes, 3)), rng.standard_normal((classes - 1, classes))
    rho, a, b = (rng.standard_normal(len(pairs)) for _ in range(3))
    attributes = [reals(name, v) for name, v in (("rho", rho), ("prob_a", a), ("prob_b", b), ("kernel_params", [0.5, 0, 3]),
                  ("support_vectors", vectors.reshape(-1)), ("coefficients", weights.reshape(-1)))]  # fmt: skip
    machine = node("SVMClassifier", ["x"], ["l", "s"], "ai.onnx.ml", kernel_type="RBF", vectors_per_class=[1] * classes,
                   classlabels_ints=list(range(classes))) + many(5, attributes)
    told = [info("l", ("n",), INT64), info("z", ("n", classes))]
    data = model(graph([machine, node("ZipMap", ["s"], ["z"], "ai.onnx.ml", classlabels_int64s=list(range(classes)))],
                       [info("x", ("n", 3))], told)) + field(8, field(1, "ai.onnx.ml") + field(2, 3))
    labels, found = run(data, X[:3])
    for x, label, given in zip(X[:3], labels, found, strict=True):
        r, votes = np.zeros((classes, classes)), [0] * classes
        for k, (i, j) in enumerate(pairs):
            score = rho[k] + weights[j - 1, i] * near("RBF", x, vectors[i]) + weights[i, j] * near("RBF", x, vectors[j])
            r[i, j] = 1 / (1 + np.exp(score * a[k] + b[k]))
            r[j, i] = 1 - r[i, j]
            votes[i if score > 0 else j] += 1
        q = np.array([[(r[:, t] ** 2).sum() if t == j else -r[j, t] * r[t, j] for j in range(classes)] for t in range(classes)])
        system = np.block([[q, np.ones((classes, 1))], [np.ones((1, classes)), np.zeros((1, 1))]])
        np.testing.assert_allclose(given, np.linalg.solve(system, [0] * classes + [1])[:-1], atol=6e-3)
        assert label == int(np.argmax(votes))


def test_two_classes_have_a_score_each() -> None:
    attributes = [reals(name, v) for name, v in (("rho", [0.25]), ("kernel_params", [0, 0, 0]),
                  ("support_vectors", [1, 0, 0, 0, 1, 0]), ("coefficients", [1, -1]))]  # fmt: skip
    data = of_rows("SVMClassifier", [("l", ("n",)), ("s", ("n", 2))], *attributes, kernel_type="LINEAR", vectors_per_class=[1, 1],
                   classlabels_ints=[7, 8])
    labels, scores = run(data, X[:3])
    wanted = X[:3, 0] - X[:3, 1] + 0.25
    np.testing.assert_allclose(scores, np.stack([-wanted, wanted], 1), rtol=1e-6)
    assert labels.tolist() == [7 if w > 0 else 8 for w in wanted]


def tree(kind: str, truths: Any = (1, 0, 0, 4, 0, 0), outputs: Any = (("y", ("n", 2)),), **more: Any) -> bytes:
    """Tree 0: x0 <= 1 ? leaf 1 : leaf 2, NaN as if it were; tree 1 the same of x1 >= 1, whose leaf 1 adds to both targets."""
    numbers: dict[str, list[int]] = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 3, 4, 5], "nodes_featureids": [0, 0, 0, 1, 0, 0],
        "nodes_truenodeids": list(truths), "nodes_falsenodeids": [2, 0, 0, 5, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0], f"{kind}_treeids": [0, 0, 1, 1, 1],
        f"{kind}_nodeids": [1, 2, 4, 4, 5], f"{kind}_ids": [0, 1, 0, 1, 1],
    }  # fmt: skip
    modes = texts("nodes_modes", ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GTE", "LEAF", "LEAF"])
    name = {"target": "TreeEnsembleRegressor", "class": "TreeEnsembleClassifier"}[kind]
    return of_rows(name, outputs, modes, reals("nodes_values", [1, 0, 0, 1, 0, 0]), reals(f"{kind}_weights", [1, 2, 10, 20, 30]),
                   reals("base_values", [0.5, 0]), *(attribute(k, v) for k, v in numbers.items()), **more)


SUMS = np.array([[1.5, 30], [1.5, 30], [10.5, 22], [11.5, 20]], np.float32)


def test_trees_add_up_what_their_leaves_weigh() -> None:
    (found,) = run(tree("target", n_targets=2), X)
    np.testing.assert_array_equal(found, SUMS)


def test_trees_vote_for_classes() -> None:
    labels, scores = run(tree("class", outputs=[("l", ("n",)), ("s", ("n", 2))], classlabels_int64s=[3, 5]), X)
    np.testing.assert_array_equal(scores, SUMS)
    np.testing.assert_array_equal(labels, np.array([3, 5])[SUMS.argmax(1)])


@pytest.mark.parametrize("truths", [(0, 0, 0, 4, 0, 0), (9, 0, 0, 4, 0, 0)])
def test_nodes_that_are_no_tree_are_refused(truths: Any) -> None:
    module = load(tree("target", truths, n_targets=2))
    with pytest.raises(dx.RunError, match="nodes of a tree form a cycle"):
        dx.compile(module)(X)
