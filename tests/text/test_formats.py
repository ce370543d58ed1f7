"""The way in and out of languages: recognition by content, files and bytes that are refused, unknown names of formats."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from deepx_graph.errors import LimitError, ParseError, Source, UsageError
from deepx_graph.text import (
    FORMATS,
    ReadOptions,
    decode_source,
    detect,
    format_named,
    open_source,
    read,
    read_source,
    write,
)

SEA = "sea 1\nentry @main\nfunc public @main(%x: f32[2]) -> (%y: f32[2]) {\n  %y = add %x, %x : f32[2]\n  return %y\n}\n"
SEED = "argset@int32 2->v1\nnewtensor@float32 v1->t1\nadd@float32 t0 t0->t1\n"
WIRE = "newtensor (vector<int32>:[2]) -> (tensor<float32>:1)\nadd (tensor<float32>:x, tensor<float32>:x) -> (tensor<float32>:1)\n"
FUNCTION = "deepxir f(a: tensor<2xf32>) -> (b: tensor<2xf32>) {\n  add(a, a)-> b\n}\n"


@pytest.mark.parametrize(("text", "name"), [
    (SEA, "sea"), ("// note\n" + SEA, "sea"), (SEED, "deepx"), (WIRE, "deepx"), (FUNCTION, "deepx"), ("\n\n" + SEED, "deepx"),
])  # fmt: skip
def test_a_text_is_recognised_by_what_it_says(text: str, name: str) -> None:
    assert detect(text) == name
    assert detect(text, "wrong.txt") == name
    assert read(Source("wrong.sea", text)).module.format == name


def test_a_file_name_decides_only_where_the_text_does_not() -> None:
    assert detect("???", "a.sea") == "sea"
    assert detect(SEED, "a.sea") == "deepx"
    with pytest.raises(ParseError) as caught:
        detect("\n  ???\nmore", "a.txt")
    assert caught.value.diagnostics[0].expected == " | ".join(FORMATS)
    assert str(caught.value).startswith("a.txt:2:3: error: cannot tell")


def test_reading_in_a_named_format_and_an_unknown_one() -> None:
    assert read(Source("f", SEA), "sea").module.entry.name == "main"
    with pytest.raises(ParseError):
        read(Source("f", SEED), "sea")
    with pytest.raises(UsageError, match="did you mean 'deepx'"):
        read(Source("f", SEED), "deepxx")
    with pytest.raises(UsageError, match="unknown format"):
        format_named("tflite")


def test_writing_checks_its_options() -> None:
    m = read(Source("f", SEA)).module
    assert write(m, "sea") == SEA
    assert "add@float32" in write(m, "deepx", dialect="seed")
    with pytest.raises(UsageError, match="did you mean 'dialect'"):
        write(m, "deepx", dialekt="seed")
    with pytest.raises(UsageError, match="did you mean 'seed'"):
        write(m, "deepx", dialect="sead")
    with pytest.raises(UsageError, match="no option 'dialect'"):
        write(m, "sea", dialect="seed")


@pytest.mark.parametrize("text", ["", "  \n\t\n"])
def test_an_empty_text_is_no_program(text: str) -> None:
    with pytest.raises(ParseError, match="the text is empty"):
        read(Source("f", text))


@pytest.mark.parametrize(("data", "says"), [
    (b"\x89PNG\r\n\x1a\n\0\0\0", "binary data: byte 0x89 at offset 0"),
    (b"sea 1\n\xff\xfe", "not UTF-8 text: byte 0xff at offset 6"),
    ("sea 1".encode("utf-16"), "UTF-16"),
])  # fmt: skip
def test_bytes_that_are_no_text(data: bytes, says: str) -> None:
    with pytest.raises(ParseError, match=says):
        decode_source(data, "f", 100)


def test_a_zero_byte_is_binary_data_and_a_byte_order_mark_is_not() -> None:
    with pytest.raises(ParseError, match="zero byte at offset 3"):
        read(Source("f", "sea\0 1"))
    assert read(decode_source(b"\xef\xbb\xbf" + SEA.encode(), "f", 1000)).module.format == "sea"


def test_names_of_files_are_escaped_in_messages() -> None:
    with pytest.raises(ParseError) as caught:
        decode_source(b"\xff", "a\u001b[31m", 10)
    assert "\u001b" not in str(caught.value)


def test_a_file_is_not_read_beyond_the_bound(tmp_path: Path) -> None:
    file = tmp_path / "big.sea"
    file.write_text(SEA + " " * 1000)
    with pytest.raises(LimitError, match="more than 500 bytes"):
        open_source(file, ReadOptions(max_file_bytes=500))
    with pytest.raises(LimitError):
        read(Source("f", SEA), options=ReadOptions(max_file_bytes=10))
    stream = io.BytesIO(b"x" * 10_000)
    with pytest.raises(LimitError):
        read_source(stream, "<stdin>", 100)
    assert stream.tell() == 101


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        open_source(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot read"):
        open_source(tmp_path)


def test_one_long_line_is_an_error_of_reasonable_size() -> None:
    with pytest.raises(ParseError) as caught:
        read(Source("f", "(" * 2_000_000), "sea")
    assert len(str(caught.value)) < 1000


def test_what_a_text_is_written_in_is_found_in_time_of_its_length() -> None:
    """Comments that hold the sign of a comment may be cut in as many ways as there are signs: 2 to the power of 4,000."""
    for sign in ("#", "//", ";"):
        with pytest.raises(ParseError):
            detect(f"{sign}a {sign}b {sign}c {sign}d {sign}e\n" * 1000 + "what is this?", "a.txt")
