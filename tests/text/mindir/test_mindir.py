"""MindIR: the corpus as MindSpore stored it, hand-made models of every kind of message, hostile bytes, and the compiler's dumps."""

from __future__ import annotations

import random
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, ParseError
from deepx_graph.ir.structure import CALL_VALUE, CONSTANT
from deepx_graph.text import ReadOptions, decode_source, read
from deepx_graph.text.mindir import looks_like_model
from deepx_graph.verify import verify
from tests.support.mindir_messages import field, graph, info, load, many, model, node, shape, tensor
from tests.support.paths import SHARED

CORPUS = SHARED / "corpus" / "mindir"
NAMES = ("add_relu", "mlp", "if", "while", "closure", "grad_poly")


def corpus(name: str) -> Path:
    path = CORPUS / name
    if not path.exists():
        pytest.skip(f"{path.name} of the shared corpus is not here")
    return path


def stored(name: str) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Inputs, results and weights."""
    with np.load(corpus(f"{name}.npz"), allow_pickle=False) as z:
        arrays = {k: z[k] for k in z}
    ins, outs = ([arrays[k] for k in sorted(arrays) if k.startswith(p)] for p in ("in", "out"))
    return ins, outs, {k[6:]: v for k, v in arrays.items() if k.startswith("param_")}


def check_results(module: dx.Module, inputs: list[Any], wanted: list[Any]) -> None:
    found = dx.compile(module, optimize=False)(*inputs)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


# --- the corpus -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("optimised", [False, True], ids=["plain", "optimised"])
def test_corpus(name: str, optimised: bool) -> None:
    inputs, wanted, _ = stored(name)
    module = dx.load(corpus(f"{name}.mindir"))
    check_results(dx.optimize(module) if optimised else module, inputs, wanted)


def test_weights_may_be_inputs() -> None:
    inputs, wanted, weights = stored("mlp")
    source = decode_source(corpus("mlp.mindir").read_bytes(), "mlp.mindir", 1 << 20)
    module = read(source, options=ReadOptions(weights="inputs")).module
    verify(module)
    assert [p.name for p in module.entry.params] == ["x", "w1", "b1", "w2"]
    check_results(module, [*inputs, weights["w1"], weights["b1"], weights["w2"]], wanted)
    assert not any(n.op is CONSTANT and n.type.size > 1 for n in module.entry.nodes)  # type: ignore[attr-defined]


@pytest.mark.parametrize("stage", ["type_inference", "auto_monad", "optimize", "validate"])
@pytest.mark.parametrize("name", NAMES)
def test_dumps_of_the_compiler_are_read_for_looking(name: str, stage: str) -> None:
    path = corpus(f"{name}.{stage}.ir")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = dx.load(path)
    assert module.entry.params and module.format == "mindir"
    if stage in ("optimize", "validate"):  # complete there: no function values are left
        inputs, wanted, weights = stored(name)
        named = {p.name.split("_")[-1] for p in module.entry.params}
        check_results(module, [*inputs, *(v for k, v in weights.items() if k in named)], wanted)


def test_a_node_points_to_the_user_s_program() -> None:
    module = dx.load(corpus("mlp.mindir"))
    places = [str(n.span.place) for n in module.entry.nodes if n.span and n.span.place]
    assert "Default/Softmax-op0" in places


# --- models made here -----------------------------------------------------------------------------------------------


F = [info("x", (2, 3))]


def test_a_graph_reads_what_is_around_it() -> None:
    """A closure: the inner graph multiplies by what the outer one has made."""
    inner = graph("inner", [node("inner:r", "REF::Mul", ["inner:a", "k"], shape((2, 3)))], [info("inner:a", (2, 3))],
                  [info("inner:r", (2,
                        3))])
    nodes = [node("k", "REF::Add", ["x", "x"], shape((2, 3))), node("out", "REF::inner", ["x"], shape((2, 3)))]
    module = load(model(graph("main", nodes, F, [info("out", (2, 3))]), [inner], ["Mul", "Add"]))
    x = np.arange(6, dtype="f4").reshape(2, 3)
    check_results(module, [x], [x * (x + x)])
    assert len(module["inner"].params) == 2


def test_every_node_of_a_graph_has_a_location() -> None:
    """The parameters, and what is made for the results, stand where the graph does."""
    double = graph("double", [node("d", "REF::Add", ["da", "da"], shape((2, 3)))], [info("da", (2, 3))], [info("d", (2, 3))])
    main = graph("main", [], F, [field(1, "double") + field(5, field(5, "double") + field(16, 27))])
    module = load(model(main, [double], ["Add"]))
    assert all(n.span is not None for f in module.functions for n in f.nodes)


def test_a_closure_that_travels_becomes_a_function_value() -> None:
    """A tuple of graphs, one taken out by number and called."""
    double = graph("double", [node("d", "REF::Add", ["da", "da"], shape((2, 3)))], [info("da", (2, 3))], [info("d", (2, 3))])
    square = graph("square", [node("s", "REF::Mul", ["sa", "sa"], shape((2, 3)))], [info("sa", (2, 3))], [info("s", (2, 3))])
    one = node("one", "Constant", (), field(5, field(1, "value") + field(10, 1) + field(16, 7)))
    nodes = [one, node("pair", "REF::MakeTuple", ["double", "square"]), node("f", "REF::TupleGetItem", ["pair", "one"]),
             node("out", "REF::f", ["x"], shape((2, 3)))]
    module = load(model(graph("main", nodes, F, [info("out", (2, 3))]), [double, square], ["Add", "Mul", "MakeTuple",
                  "TupleGetItem"]))
    x = np.arange(6, dtype="f4").reshape(2, 3)
    check_results(module, [x], [x * x])


def _weight(name: str, values: Any) -> bytes:
    array = np.asarray(values, "f4")
    return tensor(array.shape, 1, name, array.tobytes())


def test_assignments_keep_their_order() -> None:
    """w = 1; w = w + x; the result is w then, twice added to: the state is an edge."""
    monad = node("u", "Constant", (), field(5, field(1, "value") + field(16, 23)))
    nodes = [monad, node("a", "REF::Load", ["w", "u"], shape(())), node("b", "REF::Add", ["a", "x"], shape(())),
             node("c", "REF::Assign", ["w", "b", "u"], shape(())), node("u2", "REF::UpdateState", ["u", "c"]),
             node("d", "REF::Load", ["w", "u2"], shape(())), node("e", "REF::Add", ["d", "d"], shape(()))]
    primitives = ["Load", "Add", "Assign", "UpdateState"]
    module = load(model(graph("main", nodes, [info("x", ())], [info("e", ())], [_weight("w", 1.0)]), (), primitives))
    check_results(module, [np.float32(3)], [np.float32(8)])
    check_results(dx.optimize(module), [np.float32(3)], [np.float32(8)])


PRIMITIVES = {
    "Sub": (lambda x, y: x - y, 2), "RealDiv": (lambda x, y: x / y, 2), "Maximum": (np.maximum, 2), "Exp": (np.exp,
            1), "Neg": (np.negative,
                        1),
    "Square": (np.square, 1), "TanhGrad": (lambda y, g: g * (1 - y * y), 2), "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 1),
    "SumExt": (lambda x: x.sum(), 1), "Flatten": (lambda x: x, 1), "ZerosLike": (np.zeros_like, 1), "Abs": (np.abs, 1),
    "LogSoftmax": (lambda x: x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1,
                   keepdims=True)), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives(name: str) -> None:
    want, count = PRIMITIVES[name]
    args = [np.random.default_rng(k).uniform(0.5, 2, (2, 3)).astype("f4") for k in range(count)]
    result = np.asarray(want(*args), "f4")  # type: ignore[operator]
    names = [f"p{k}" for k in range(count)]
    main = graph("main", [node("r", f"REF::{name}", names, shape(result.shape))], [info(n, (2, 3)) for n in names],
                 [info("r",
                       result.shape)])
    check_results(load(model(main, (), [name])), args, [result])


def test_convolution_pads_as_its_mode_says() -> None:
    def attribute(name: str, *ints: int) -> bytes:
        values = many(17, (field(10, i) + field(16, 7) for i in ints))
        return field(3, field(1, name) + values + field(16, 20))

    mode = field(3, field(1, "pad_mode") + field(10, 1) + field(16, 7))
    primitive = field(1, "Conv2D") + field(2, "Conv2D") + attribute("kernel_size", 3, 3) + attribute("stride", 1, 1, 1, 1) + mode
    main = graph("main", [node("r", "REF::Conv2D", ["x", "w"], shape((1, 1, 4, 4)))], [info("x", (1, 1, 4, 4)),
                 info("w", (1, 1, 3,
                      3))],
                 [info("r", (1, 1, 4, 4))])
    data = model(main) + field(12, primitive)
    x, w = np.ones((1, 1, 4, 4), "f4"), np.ones((1, 1, 3, 3), "f4")
    wide = np.pad(x[0, 0], 1)
    want = np.array([[wide[i : i + 3, j : j + 3].sum() for j in range(4)] for i in range(4)], "f4")[None, None]
    check_results(load(data), [x, w], [want])


def test_what_is_unknown_is_kept_and_shown() -> None:
    main = graph("main", [node("r", "REF::Wonder", ["x"], shape((2, 3)))], F, [info("r", (2, 3))])
    module = load(model(main, (), ["Wonder"]))
    with pytest.raises(DeepxGraphError, match="'Wonder' cannot be run"):
        dx.compile(module, optimize=False)(np.zeros((2, 3), "f4"))


def test_recursion_deep_enough_for_a_loop() -> None:
    """sum(n) = n + sum(n - 1): a graph that calls itself through a switch."""
    def number(name: str, value: int) -> bytes:
        return node(name, "Constant", (), field(5, field(1, "value") + field(6, tensor((), 6, "", struct.pack("<i",
                    value))) + field(16,
                                     19)))

    more = graph("more", [number("one", 1), node("m1", "REF::Sub", ["mn", "one"], shape((), 6)), node("m2",
                 "REF::sum", ["m1"], shape((),
                                           6)),
                          node("m3", "REF::Add", ["mn", "m2"], shape((), 6))], [info("mn", (), 6)], [info("m3", (), 6)])
    stop = graph("stop", [], [info("sn", (), 6)], [info("sn", (), 6)])
    whole = graph("sum", [number("zero", 0), node("c", "REF::Greater", ["n", "zero"], shape((), 9)),
                          node("s", "REF::Switch", ["c", "more", "stop"]), node("r", "REF::s", ["n"], shape((),
                               6))], [info("n", (), 6)], [info("r", (),
                                           6)])
    main = graph("main", [node("o", "REF::sum", ["x"], shape((), 6))], [info("x", (), 6)], [info("o", (), 6)])
    module = load(model(main, [more, stop, whole], ["Sub", "Add", "Greater", "Switch"]))
    assert not any(n.op is CALL_VALUE for f in module.functions for n in f.nodes)
    check_results(module, [np.int32(50)], [np.int32(1275)])


def _constant(name: str, value: float) -> bytes:
    data = tensor((), 1, "", struct.pack("<f", value))
    return node(name, "Constant", (), field(5, field(1, "value") + field(6, data) + field(16, 19)))


def _scalars(name: str, nodes: Any, parameter: str, result: str) -> bytes:
    """A graph from one float to another."""
    return graph(name, nodes, [info(parameter, ())], [info(result, ())])


@pytest.mark.parametrize("owner", ["main", "then", "otherwise"])
def test_a_constant_may_stand_in_any_graph(owner: str) -> None:
    """A value node is written once, in the graph that was exported first; its parent and its siblings name it."""
    monad = node("v:u", "Constant", (), field(5, field(1, "value") + field(16, 23)))
    here = {name: [_constant("v:two", 2.0), monad] if name == owner else [] for name in ("main", "then", "otherwise")}
    f = shape(())
    then = _scalars("then", [*here["then"], node("t1", "REF::Mul", ["tx", "v:two"], f)], "tx", "t1")
    otherwise = _scalars("otherwise", [node("o1", "REF::Add", ["ox", "v:two"], f), *here["otherwise"]], "ox", "o1")
    nodes = [*here["main"], node("c", "REF::Greater", ["x", "v:two"], shape((), 9)),
             node("s", "REF::Switch", ["c", "then", "otherwise"]), node("r0", "REF::s", ["x"], f),
             node("r1", "REF::UpdateState", ["v:u", "r0"]), node("r", "REF::Depend", ["r0", "r1"], f)]
    primitives = ["Mul", "Add", "Greater", "Switch", "UpdateState", "Depend"]
    module = load(model(_scalars("main", nodes, "x", "r"), [then, otherwise], primitives))
    assert {f.name: len(f.params) for f in module.functions} == {"main": 1, "then": 1, "otherwise": 1}
    for x, wanted in ((5.0, 10.0), (-5.0, -3.0)):
        check_results(module, [np.float32(x)], [np.float32(wanted)])


def test_a_constant_that_a_loop_shares_with_a_graph_beside_it() -> None:
    """halve(x) = x < one ? x : halve(x * half); `half` and `one` are written in a graph that is called before."""
    f = shape(())
    more = _scalars("more", [node("m1", "REF::Mul", ["mx", "half"], f), node("m2", "REF::loop", ["m1"], f)], "mx", "m2")
    stop = _scalars("stop", [], "sx", "sx")
    test = [node("c", "REF::Less", ["lx", "one"], shape((), 9)), node("s", "REF::Switch", ["c", "stop", "more"])]
    loop = _scalars("loop", [*test, node("r", "REF::s", ["lx"], f)], "lx", "r")
    made = [_constant("half", 0.5), _constant("one", 1.0)]
    beside = _scalars("beside", [*made, node("b", "REF::Mul", ["bx", "half"], f)], "bx", "b")
    main = _scalars("main", [node("a", "REF::beside", ["x"], f), node("o", "REF::loop", ["a"], f)], "x", "o")
    module = load(model(main, [more, stop, loop, beside], ["Mul", "Less", "Switch"]))
    check_results(module, [np.float32(12)], [np.float32(0.75)])
    check_results(dx.optimize(module), [np.float32(12)], [np.float32(0.75)])


def test_a_constant_that_cannot_be_read_is_reported_with_its_own_location() -> None:
    bad = node("half", "Constant", (), field(5, field(1, "value") + field(6, tensor((2,), 1, "", b"\0" * 4)) + field(16, 19)))
    beside = _scalars("beside", [bad], "bx", "bx")
    data = model(_scalars("main", [node("a", "REF::Mul", ["x", "half"], shape(()))], "x", "a"), [beside], ["Mul"])
    with pytest.raises(DeepxGraphError, match="4 bytes of data") as found:
        load(data)
    span = found.value.diagnostics[0].span
    assert span is not None
    assert data[span.start :].find(b"half") <= 4


def closure_of(*values: bytes) -> bytes:
    """The type of a function value that is one of several."""
    return field(16, 29) + many(17, values)


def test_continuations_that_hold_each_other() -> None:
    """loop(n, x, k) = n > 0 ? loop(n - 1, x + x, g -> k(g * x)) : k(x): each continuation holds the one before."""
    either = closure_of(field(5, "id") + field(16, 27), field(5, "k2") + field(16, 28))

    def k(name: str) -> bytes:
        return field(1, name) + field(5, either)

    def number(name: str, value: int) -> bytes:
        return node(name, "Constant", (), field(5, field(1, "value") + field(6, tensor((), 6, "", struct.pack("<i",
                            value))) + field(16, 19)))

    f, i = shape(()), shape((), 6)
    same = graph("id", [], [info("ig", ())], [info("ig", ())])
    step = graph("step", [node("s1", "REF::Mul", ["sg", "sx"], f), node("s2", "REF::sk", ["s1"], f)],
                 [k("sk"), info("sx", ()), info("sg", ())], [info("s2", ())])
    more = graph("more", [node("k2", "REF::Partial", ["step", "mk", "mx"], field(5, field(1, "shape") + field(5,
                              "k2") + field(16, 28))),
                          number("one", 1), node("m1", "REF::Sub", ["mn", "one"], i), node("m2", "REF::Add", ["mx", "mx"], f),
                          node("m3", "REF::loop", ["m1", "m2", "k2"], f)],
                 [info("mn", (), 6), info("mx", ()), k("mk")], [info("m3", ())])
    stop = graph("stop", [node("d1", "REF::dk", ["dx"], f)], [info("dx", ()), k("dk")], [info("d1", ())])
    loop = graph("loop", [number("zero", 0), node("c", "REF::Greater", ["n", "zero"], shape((), 9)),
                          node("p1", "REF::Partial", ["more", "n", "x", "k"]), node("p2", "REF::Partial", ["stop", "x", "k"]),
                          node("sw", "REF::Switch", ["c", "p1", "p2"]), node("r", "REF::sw", (), f)],
                 [info("n", (), 6), info("x", ()), k("k")], [info("r", ())])
    main = graph("main", [node("o", "REF::loop", ["a", "b", "id"], f)], [info("a", (), 6), info("b", ())], [info("o", ())])
    module = load(model(main, [same, step, more, stop, loop], ["Sub", "Add", "Mul", "Greater", "Switch", "Partial"]))
    wanted = np.float32(8 * 0.5 * (4 * 0.5) * (2 * 0.5) * 0.5)
    check_results(module, [np.int32(3), np.float32(0.5)], [wanted])
    check_results(dx.optimize(module), [np.int32(3), np.float32(0.5)], [wanted])


# --- hostile bytes --------------------------------------------------------------------------------------------------


def test_a_name_that_is_not_there() -> None:
    main = graph("main", [node("r", "REF::Add", ["x", "yy"], shape((2, 3)))], [*F, info("y", (2, 3))], [info("r", (2, 3))])
    with pytest.raises(ParseError, match=r"m.mindir: byte \d+: error: 'yy' is not defined(.|\n)*did you mean 'y'"):
        load(model(main, (), ["Add"]))


def test_data_of_the_wrong_length() -> None:
    main = graph("main", [], [], [info("w", (2, 2))], [tensor((2, 2), 1, "w", b"\0" * 15)])
    with pytest.raises(DeepxGraphError, match="15 bytes of data"):
        load(model(main))


def test_sizes_are_checked_before_memory_is_taken() -> None:
    main = graph("main", [], [], [info("w", (1 << 40,))], [tensor((1 << 40,), 1, "w", b"\0" * 15)])
    with pytest.raises(DeepxGraphError, match="more than"):
        load(model(main))


def _example() -> bytes:
    nodes = [node("a", "REF::Add", ["x", "w"], shape((2, 3))), node("b", "REF::Exp", ["a"], shape((2, 3)))]
    return model(graph("main", nodes, F, [info("b", (2, 3))], [_weight("w", np.ones((2, 3)))]), (), ["Add", "Exp"])


def test_every_cut_and_many_flips_are_diagnostics() -> None:
    data = _example()
    assert looks_like_model(data)
    rng = random.Random(0)
    damaged = [data[:k] for k in range(24, len(data))]
    for _ in range(3000):
        made = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            made[rng.randrange(24, len(made))] = rng.randrange(256)
        damaged.append(bytes(made))
    for found in damaged:
        try:
            load(found)
        except DeepxGraphError:
            continue


def test_messages_that_nest_too_deeply() -> None:
    value = field(16, 20)
    for _ in range(500):
        value = field(17, value) + field(16, 20)
    main = graph("main", [node("r", "Constant", (), field(5, field(1, "value") + value))], [], [info("r", ())])
    with pytest.raises(DeepxGraphError, match="nest more than"):
        load(model(main))
