"""Models with tensors of texts, pictures in files and random numbers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.text import formats
from tests.support.mindir_messages import field, many
from tests.support.onnx_messages import graph, info, load, model, node, run

STRING, UINT8, FLOAT = 8, 2, 1


def texts(name: str, *values: str) -> bytes:
    return many(1, [len(values)]) + field(2, STRING) + b"".join(field(6, v) for v in values) + field(8, name)


def strings(name: str, *values: str) -> bytes:
    """An attribute that is a list of texts."""
    return field(1, name) + b"".join(field(9, v) for v in values) + field(20, 8)


def with_attributes(made: bytes, *attributes: bytes) -> bytes:
    return made + many(5, attributes)


def of_texts(*nodes: bytes, outputs: Any = (("y", (None,), STRING),), weights: Any = ()) -> bytes:
    told = [info(n, [d if d is not None else "n" for d in dims], t) for n, dims, t in outputs]
    return model(graph(list(nodes), [info("x", ("n",), STRING)], told, list(weights)), 20)


def test_a_model_of_texts_is_read_run_written_and_read_again() -> None:
    data = of_texts(node("StringConcat", ["x", "w"], ["y"]), weights=[texts("w", "!", "?")])
    module = load(data)
    given = np.array(["é", ""])
    assert dx.compile(module)(given)[0].tolist() == ["é!", "?"]
    again = formats.read(formats.decode_source(formats.encode(module, "onnx"), "again", 1 << 20)).module
    assert dx.compile(again)(given)[0].tolist() == ["é!", "?"]


def test_what_is_split_or_left_out_decides_the_shape() -> None:
    split = node("StringSplit", ["x"], ["y", "n"], delimiter=",", maxsplit=1)
    compiled = dx.compile(load(of_texts(split, outputs=(("y", ("n", "m"), STRING), ("n", ("n",), 7)))))
    assert [o.tolist() for o in compiled(np.array(["a,b,c", ""]))] == [[["a", "b,c"], ["", ""]], [2, 1]]
    assert compiled(np.array(["a", "b"]))[0].tolist() == [["a"], ["b"]]
    normal = with_attributes(node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER"), strings("stopwords", "the"))
    assert run(of_texts(normal), np.array(["The", "cat"]))[0].tolist() == ["cat"]


def test_labels_and_n_grams_of_texts() -> None:
    encoder = with_attributes(node("LabelEncoder", ["x"], ["y"], "ai.onnx.ml", values_int64s=[5, 7]),
                              strings("keys_strings", "a", "b"))
    assert run(of_texts(encoder), np.array(["b", "z", "a"]))[0].tolist() == [7, -1, 5]
    grams = with_attributes(node("TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=0,
                                 ngram_counts=[0, 2], ngram_indexes=[0, 1, 2]), strings("pool_strings", "a", "b", "b", "a"))
    assert run(of_texts(grams), np.array(["a", "b", "a", "c"]))[0].tolist() == [2.0, 1.0, 1.0]


def picture(form: str, **options: Any) -> Any:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    buffer = io.BytesIO()
    image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5).save(buffer, form, **options)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def decoder(**attrs: Any) -> bytes:
    made = node("ImageDecoder", ["x"], ["y"], **attrs)
    return model(graph([made], [info("x", ("n",), UINT8)], [info("y", ("h", "w", 3), UINT8)]), 20)


def test_pictures_are_decoded() -> None:
    compiled, want = dx.compile(load(decoder())), np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5
    for form in ("png", "bmp"):
        np.testing.assert_array_equal(compiled(picture(form))[0], want)
    np.testing.assert_array_equal(run(decoder(pixel_format="BGR"), picture("png"))[0], want[..., ::-1])
    assert run(decoder(pixel_format="Grayscale"), picture("png"))[0].shape == (4, 4, 1)


def test_bytes_that_are_no_picture_of_the_standard_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = dx.compile(load(decoder()))
    for bad in (np.zeros(20, np.uint8), picture("png")[:40], picture("gif")):
        with pytest.raises(dx.DeepxGraphError, match="the bytes are no picture"):
            compiled(bad)
    monkeypatch.setattr("deepx_graph.text.onnx.rules.image.MAX_PIXELS", 8)
    with pytest.raises(dx.DeepxGraphError, match="4 x 4 pixels"):
        compiled(picture("bmp"))


def test_random_numbers_are_drawn_by_the_seed_of_the_run() -> None:
    x = np.full((100, 100), 0.25, np.float32)
    sizes, named = (100, 100), [info("y", ("a", "b"), FLOAT)]
    for made, mean in ((node("Bernoulli", ["x"], ["y"]), 0.25), (node("RandomUniformLike", ["x"], ["y"], low=1.0, high=3.0), 2.0),
                       (node("RandomNormal", [], ["y"], mean=-1.0, shape=list(sizes)), -1.0)):
        data = model(graph([made], [info("x", sizes)], named))
        found = [dx.compile(load(data), seed=s)(x)[0] for s in (1, 1, 2)]
        assert (found[0] == found[1]).all() and (found[0] != found[2]).any()
        assert abs(float(found[0].mean()) - mean) < 0.05
    seeded = load(model(graph([node("Bernoulli", ["x"], ["y"], seed=3.0)], [info("x", sizes)], named)))
    assert (dx.compile(seeded, seed=1)(x)[0] == dx.compile(seeded, seed=2)(x)[0]).all()


def test_samples_of_classes_follow_their_probabilities() -> None:
    data = model(graph([node("Multinomial", ["x"], ["y"], sample_size=4000)], [info("x", (2, 3))], [info("y", (2, 4000), 6)]))
    found = run(data, np.log(np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], np.float32) + 1e-30))[0]
    shares = np.stack([(found == k).mean(axis=1) for k in range(3)], axis=1)
    np.testing.assert_allclose(shares, [[0.2, 0.5, 0.3], [0, 1, 0]], atol=0.03)


def test_texts_as_raw_bytes_are_refused() -> None:
    raw = many(1, [1]) + field(2, STRING) + field(9, b"ab") + field(8, "w")
    with pytest.raises(dx.DeepxGraphError, match="the texts of 'w' stand as bytes"):
        load(of_texts(node("StringConcat", ["x", "w"], ["y"]), weights=[raw]))
