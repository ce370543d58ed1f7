"""HLO as protocol buffers: what each message becomes, snapshots with the values of their runs, and bytes that are damaged."""

from __future__ import annotations

import random
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from deepx_graph.cli.main import main as cli
from deepx_graph.errors import DeepxGraphError, ParseError, Source
from deepx_graph.session.report.diff import diff
from deepx_graph.text import decode_source, read
from deepx_graph.text.common.options import ReadResult
from deepx_graph.verify import verify
from tests.support.mindir_messages import field, many
from tests.support.reference import evaluate

LIMIT = 1 << 28
PRED, S4, S32, F32, TUPLE, BF16 = 1, 21, 4, 11, 13, 16
PARTS = {"name": 1, "opcode": 2, "shape": 3, "id": 35, "operands": 36, "computations": 38}


def shape(dims: tuple[int, ...] = (), dtype: int = F32, layout: tuple[int, ...] | None = None) -> bytes:
    order = tuple(reversed(range(len(dims)))) if layout is None else layout
    return field(2, dtype) + many(3, dims) + field(5, many(1, order))


def pair(*items: bytes) -> bytes:
    return field(2, TUPLE) + many(4, items)


def instruction(number: int, name: str, opcode: str, of: bytes, operands: tuple[int, ...] = (), extra: bytes = b"") -> bytes:
    return field(1, name) + field(2, opcode) + field(3, of) + field(35, number) + many(36, operands) + extra


def computation(number: int, name: str, root: int, *instructions: bytes) -> bytes:
    return field(1, name) + many(2, instructions) + field(5, number) + field(6, root)


def module(entry: int, *computations: bytes, extra: bytes = b"") -> bytes:
    return field(1, "m") + field(2, "main") + many(3, computations) + field(6, entry) + extra


def literal(array: np.ndarray, dtype: int, number: int, layout: tuple[int, ...] | None = None) -> bytes:
    return field(1, shape(array.shape, dtype, layout)) + field(number, array.tobytes())


def load(data: bytes) -> ReadResult:
    found = read(decode_source(data, "made", LIMIT))
    verify(found.module)
    return found


X = instruction(1, "x", "parameter", shape((2, 3)))
SCALE = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
CONSTANT = instruction(2, "c", "constant", shape((2, 3)), extra=field(8, literal(SCALE, F32, 8)))
SQUARE = module(9, computation(9, "main", 4, X, CONSTANT,
                               instruction(3, "p", "multiply", shape((2, 3)), (1, 2)),
                               instruction(4, "r", "add", shape((2, 3)), (3, 1))))  # fmt: skip
SQUARE_TEXT = """HloModule m
ENTRY main {
  x = f32[2,3] parameter(0)
  c = f32[2,3] constant({{1,2,3},{4,5,6}})
  p = f32[2,3] multiply(x, c)
  ROOT r = f32[2,3] add(p, x)
}
"""


def same(data: bytes, text: str) -> bool:
    return not list(diff(load(data).module, read(Source("t", text), "hlo").module).lines())


@pytest.mark.parametrize("data", [SQUARE, field(1, SQUARE), field(1, field(1, SQUARE))])
def test_a_module_alone_in_a_dump_and_in_a_snapshot(data: bytes) -> None:
    assert same(data, SQUARE_TEXT)


def test_numbers_of_instructions_mean_nothing_and_names_need_not_be_words() -> None:
    data = module(1 << 40, computation(1 << 40, "main", 7 << 32, instruction(1 << 33, "a b,c", "parameter", shape((2,))),
                                       instruction(7 << 32, "a b.c", "negate", shape((2,)), (1 << 33,))))  # fmt: skip
    assert same(data, "HloModule m\nENTRY main { x = f32[2] parameter(0)\n ROOT r = f32[2] negate(x) }\n")


def test_elements_lie_in_the_order_of_their_layout() -> None:
    """Minor to major: {0,1} is by columns."""
    value = SCALE.T.copy()  # its bytes are those of SCALE by columns
    made = field(1, shape((2, 3), F32, (0, 1))) + field(8, value.tobytes())
    data = module(9, computation(9, "main", 2, instruction(2, "c", "constant", shape((2, 3)), extra=field(8, made))))
    assert (evaluate(load(data).module, [])[0] == SCALE).all()


@pytest.mark.parametrize(("dtype", "field_number", "raw", "want"), [
    (S32, 4, b"\x01\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", np.array([1, 2, -1], np.int32)),
    (PRED, 2, b"\x01\x00\x01", np.array([True, False, True])),
    (BF16, 13, np.array([1, 2, -1], ml_dtypes.bfloat16).tobytes(), np.array([1, 2, -1], ml_dtypes.bfloat16)),
    (S4, 21, b"\x21\x0f", np.array([1, 2, -1], ml_dtypes.int4)),
    (S4, 21, b"\x01\x02\x0f", np.array([1, 2, -1], ml_dtypes.int4)),
])  # fmt: skip
def test_elements_of_every_kind_of_field(dtype: int, field_number: int, raw: bytes, want: np.ndarray) -> None:
    """Numbers as varints, bytes, and two in a byte or one; xla_data.proto, LiteralProto."""
    made = field(1, shape((3,), dtype)) + field(field_number, raw)
    data = module(9, computation(9, "main", 2, instruction(2, "c", "constant", shape((3,), dtype), extra=field(8, made))))
    (node,) = load(data).module.entry.results
    got = evaluate(load(data).module, [])[0]
    assert str(node.type).endswith("[3]")
    assert got.tolist() == want.tolist()


def test_a_loop_names_its_body_first() -> None:
    less = computation(1, "cond", 13, instruction(11, "p", "parameter", shape((), S32)),
                       instruction(12, "n", "constant", shape((), S32), extra=field(8, field(1, shape((), S32)) + field(4, 5))),
                       instruction(13, "lt", "compare", shape((), PRED), (11, 12), field(63, "LT") + field(72, "SIGNED")))
    more = computation(2, "body", 22, instruction(21, "q", "parameter", shape((), S32)),
                       instruction(22, "s", "add", shape((), S32), (21, 21)))
    main = computation(3, "main", 32, instruction(31, "x", "parameter", shape((), S32)),
                       instruction(32, "w", "while", shape((), S32), (31,), many(38, (2, 1))))
    assert evaluate(load(module(3, less, more, main)).module, [np.int32(1)])[0] == 8


@pytest.mark.parametrize(("data", "message"), [
    (module(9, computation(9, "main", 5, X)), "the root of the computation 'main' is none of its instructions"),
    (module(9, computation(9, "main", 2, X, instruction(2, "n", "negate", shape((2, 3)), (8,)))), "refers to instruction 8"),
    (module(9, computation(9, "main", 2, X, instruction(2, "n", "negat", shape((2, 3)), (1,)))), "unknown operation 'negat'"),
    (module(9, computation(9, "main", 2, X, instruction(2, "n", "negate", shape((2, 3), 99), (1,)))), "element type 99"),
    (module(9, computation(9, "main", 2, X, instruction(2, "c", "constant", shape((2, 3)), extra=field(8, literal(
        SCALE[:1], F32, 8) + field(1, shape((2, 3))))))), "a constant of 6 elements of f32 has 12 bytes"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_at_its_byte(data: bytes, message: str) -> None:
    with pytest.raises(DeepxGraphError, match=f"made: byte [0-9]+: error: .*{message}"):
        load(data)


def test_a_module_of_another_kind_of_message_is_not_taken_for_one() -> None:
    """A graph of TensorFlow begins alike: a node, its name and operation, its inputs."""
    graph = field(1, field(1, "add") + field(2, "AddV2") + field(3, "x") + field(3, "y"))
    with pytest.raises(ParseError, match=r"cannot tell|binary data|not read"):
        read(decode_source(graph, "graph.pb", LIMIT))


def test_damaged_bytes_are_refused_or_make_a_program() -> None:
    ends = {True: 0, False: 0}
    for k in range(1000):
        rng = random.Random(k)
        data = bytearray(field(1, field(1, SQUARE)) + field(2, literal(SCALE, F32, 8)))
        for _ in range(rng.choice((1, 2))):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(2)] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 1, 0, 2))))
        try:
            load(bytes(data[: rng.choice((len(data), rng.randrange(len(data))))]))
            ends[True] += 1
        except DeepxGraphError:
            ends[False] += 1
    assert min(ends.values()) > 20


# --- runs that were recorded --------------------------------------------------------------------------------------------


def snapshot(result: np.ndarray) -> bytes:
    return field(1, field(1, SQUARE)) + field(2, literal(SCALE, F32, 8)) + field(3, literal(result, F32, 8)) + field(4, "Host")


def test_a_snapshot_has_what_a_program_was_run_on_and_what_came_out() -> None:
    recorded = load(snapshot(SCALE)).recorded
    assert recorded is not None
    assert [[x.array.tolist() for x in p] for p in recorded.arguments] == [[SCALE.tolist()]]
    assert [x.array.tolist() for x in recorded.results] == [SCALE.tolist()]
    assert recorded.platform == "Host"
    assert load(SQUARE).recorded is None


def test_running_a_snapshot_replays_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.pb"
    right = SCALE * SCALE + SCALE
    path.write_bytes(snapshot(right))
    assert cli(["run", str(path)]) == 0
    assert "r: as recorded" in capsys.readouterr().err
    path.write_bytes(snapshot(right + np.array([[0, 0, 0], [0, 0, 1]], np.float32)))
    assert cli(["run", str(path)]) == 1
    said = capsys.readouterr().err
    assert "r: not as recorded" in said
    assert "the largest difference is 1 at [1, 2]" in said


def test_an_unoptimised_snapshot_has_its_arguments_behind_it() -> None:
    """As XLA writes it: the message with its length before it, then of each argument its shape, with its length, and elements."""
    of = shape((2, 3))
    argument = len(of).to_bytes(8, "little") + of + SCALE.tobytes()
    message = field(1, SQUARE) + field(2, field(2, field(2, len(argument))))
    whole = field(1, message)[1:] + argument
    recorded = load(whole).recorded
    assert recorded is not None
    assert recorded.arguments[0][0].array.tolist() == SCALE.tolist()
    with pytest.raises(ParseError, match="does not fit here"):
        load(whole[:-1])
