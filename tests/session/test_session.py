"""The library's public face, and the headless session behind every front end."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.analysis.work import flops
from deepx_graph.files import replacing, write_file
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ops import (
    add,
    compare,
    dot_general,
    exponential,
    multiply,
    op_named,
    reduction,
    reshape,
    subtract,
    tanh,
)
from deepx_graph.session import programs
from deepx_graph.session.inputs import unique_names
from deepx_graph.session.report.diff import diff
from deepx_graph.session.report.info import critical_path, module_info
from deepx_graph.types import BOOL, F32, I32, scalar, tensor

X = tensor(F32, (4, 8))

# --- the public interface


def test_the_contract_in_one_go(tmp_path: Path) -> None:
    path = tmp_path / "model.dx"
    path.write_text("mulscalar (tensor<float32>:x, var<float32>:3.0) -> (tensor<float32>:y)\n")
    path.write_text(
        "newtensor (vector<int32>:[2 3]) -> (tensor<float32>:y)\n"
        "mulscalar (tensor<float32>:x, var<float32>:3.0) -> (tensor<float32>:y)\n"
    )
    m = dx.optimize(dx.load(path))
    assert [f.name for f in m.functions] == ["main"]
    f = dx.compile(m, engine="numexpr", threads=None, optimize=False)
    x = np.arange(6, dtype="f4").reshape(2, 3)
    assert [p.name for p in f.inputs + f.outputs] == ["x", "y"]
    np.testing.assert_array_equal(f(x)[0], 3 * x)
    np.testing.assert_array_equal(f(x=x)[0], 3 * x)
    g = dx.compile(dx.grad(m), optimize=False)
    np.testing.assert_array_equal(g(x, np.ones_like(x))[0], np.full_like(x, 3))
    assert dx.dumps(m, "deepx") == dx.dumps(dx.loads(dx.dumps(m, "deepx")), "deepx")
    dx.draw(m, tmp_path / "model.svg")
    assert (tmp_path / "model.svg").stat().st_size > 500


def test_every_public_name_is_there() -> None:
    for name in dx.__all__:
        assert getattr(dx, name) is not None
    assert set(dx.__all__) <= set(dir(dx))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dx.nothing  # type: ignore[attr-defined]


def test_what_a_reader_put_up_with_is_warned_of() -> None:
    text = "argset@int32 2->v1\nnewtensor@float32 v1>t\n"
    with pytest.warns(UserWarning, match="<text>:2:") as caught:
        dx.loads(text)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert programs.loads(text).warnings


def test_what_is_loaded_is_verified() -> None:
    with pytest.raises(dx.VerifyError, match="<text>:4:"):
        dx.loads("sea 1\nentry @f\nfunc public @f(%x: f32[2]) -> (%y: f32[3]) {\n  %y = tanh %x : f32[3]\n  return %y\n}\n")


# --- diff


def module(*functions: Function) -> Module:
    return Module(functions, functions[0].name)


def chain(*ops: object, name: str = "main", names: str = "") -> Function:
    """x -> op -> op ..., each node named by its letter in `names`."""
    b = dx.Builder()

    def body(x: Node) -> list[Node]:
        for k, op in enumerate(ops):
            b.origin = type(b.origin)(names[k : k + 1])
            x = b(op, x)  # type: ignore[arg-type]
        return [x]

    return b.function(name, [("x", X)], body)


def test_a_module_is_the_same_as_itself_under_other_names_and_in_another_order() -> None:
    a = chain(tanh, exponential, names="ab")
    assert not diff(module(a), module(chain(tanh, exponential, names="pq")))
    b = dx.Builder()
    late = b.function("main", [("x", X), ("y", X)], lambda x, y: [b(add, b(tanh, x), b(exponential, y))])

    def turned(x: Node, y: Node) -> list[Node]:
        e = b(exponential, y)
        return [b(add, b(tanh, x), e)]

    assert not diff(module(late), module(b.function("main", [("x", X), ("y", X)], turned)))


def test_only_what_differs_itself_is_listed() -> None:
    found = diff(module(chain(tanh, exponential, tanh, names="abc")), module(chain(tanh, tanh, tanh, names="abc")))
    assert [c.kind for c in found.changes] == ["changed"]
    assert "exponential" in found.changes[0].text
    assert found.affected == 1
    assert found.operations == {"exponential": (1, 0), "tanh": (2, 3)}
    lines = list(found.lines())
    assert lines[0] == "function main:"
    assert "1 changed; 1 more differ only through these" in lines[2]


def test_what_is_added_and_removed_is_listed() -> None:
    found = diff(module(chain(tanh)), module(chain(tanh), chain(exponential, name="other")))
    assert [(c.kind, c.function) for c in found.changes] == [("added", "other")]
    longer = diff(module(chain(tanh, names="a")), module(chain(tanh, exponential, names="ab")))
    assert [c.kind for c in longer.changes if c.after is not None and c.after.op is exponential] == ["added"]
    assert longer


def test_attributes_and_types_that_differ_are_named() -> None:
    b = dx.Builder()

    def of(dims: tuple[int, ...]) -> Module:
        return module(b.function("main", [("x", X)], lambda x: [b(reshape, x, shape=dims)]))

    (change,) = diff(of((8, 4)), of((32,))).changes
    assert "shape" in change.text
    assert "f32[8,4] -> f32[32]" in change.text


def test_equal_nodes_shared_in_another_way_are_a_difference() -> None:
    """Twice e = exp(x): once as two users of one node and two of the other, once as three and one."""
    b = dx.Builder()

    def spread(first: int) -> Module:
        def body(x: Node) -> list[Node]:
            one, two = b(exponential, x), b(exponential, x)
            uses = [one] * first + [two] * (4 - first)
            return [b(add, b(add, b(tanh, uses[0]), b(tanh, uses[1])), b(add, b(tanh, uses[2]), b(tanh, uses[3])))]

        return module(b.function("main", [("x", X)], body))

    assert not diff(spread(2), spread(2))
    assert diff(spread(2), spread(3))
    assert diff(spread(2), dx.optimize(spread(2), "cse"))


def test_loops_are_compared_by_what_they_do() -> None:
    b = dx.Builder()

    def count(limit: int, op: object) -> Module:
        def body(x: Node) -> list[Node]:
            end = b.loop(
                [b.constant(0, I32), x],
                lambda v: (b(compare, v[0], b.constant(limit, I32), direction="LT"),
                           [b(add, v[0], b.constant(1, I32)), b(op, v[1])]),  # type: ignore[arg-type]
            )  # fmt: skip
            return [end[1]]

        return module(b.function("main", [("x", X)], body))

    assert not diff(count(3, tanh), count(3, tanh))
    assert diff(count(3, tanh), count(4, tanh))
    assert diff(count(3, tanh), count(3, exponential))


def test_diff_of_deep_graphs_does_not_recurse() -> None:
    deep = [tanh] * 20_000
    assert not diff(module(chain(*deep)), module(chain(*deep)))
    found = diff(module(chain(*deep)), module(chain(*deep[1:], exponential)))
    assert found.changes


# --- info and costs


def test_costs_are_counted_from_declarations() -> None:
    b = dx.Builder()
    x, y = b.param(0, X, "x"), b.param(1, tensor(F32, (8, 5)), "y")
    assert flops(b(add, x, x)) == 32
    assert flops(reduction(b, add, x, (1,))) == 32
    dot = b(dot_general, x, y, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
    assert flops(dot) == 2 * 4 * 5 * 8
    assert flops(b(reshape, x, shape=(32,))) == 0
    f = Function("main", (x, y), (dot, b(subtract, dot, dot)))
    (facts,) = module_info(module(f)).functions
    assert (facts.kernels, facts.depth, facts.nodes) == (2, 2, 2)
    assert facts.flops == 320 + 20
    assert facts.bytes_moved == 4 * (32 + 40 + 20) + 4 * (20 + 20 + 20)


def test_costs_of_unknown_sizes_are_not_guessed() -> None:
    b = dx.Builder()
    (facts,) = module_info(module(b.function("main", [("x", tensor(F32, ("n",)))], lambda x: [b(tanh, x)]))).functions
    assert (facts.flops, facts.bytes_moved, facts.peak_bytes) == (None, None, None)
    assert "not known" in str(module_info(module(b.function("main", [("x", tensor(F32, None))], lambda x: [b(tanh, x)]))))


def test_the_critical_path_goes_through_loops_and_branches() -> None:
    b = dx.Builder()

    def body(x: Node, c: Node) -> list[Node]:
        (y,) = b.branch(c, [b(tanh, b(tanh, x))], [x])
        return [b(multiply, y, y)]

    f = b.function("main", [("x", X), ("c", scalar(BOOL))], body)
    assert [n.op.name for n in critical_path(f)] == ["tanh", "tanh", "region", "phi", "multiply"]


# --- optimise


def test_fast_math_reaches_the_passes_that_have_it() -> None:
    done = programs.optimise(module(chain(tanh)), "clean", programs.Watch(fast_math=True))
    assert "fast-math=true" in done.pipeline
    assert "fast-math" not in programs.optimise(module(chain(tanh)), "clean").pipeline


def test_a_pass_to_print_must_be_in_the_pipeline() -> None:
    with pytest.raises(dx.UsageError, match="no pass 'fuse' in this pipeline"):
        programs.optimise(module(chain(tanh)), "cse", programs.Watch(after=("fuse",)))


# --- files


def test_a_file_is_replaced_at_the_end_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(path) as stream:  # noqa: PT012
        stream.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_new_file_has_the_usual_rights(tmp_path: Path) -> None:
    write_file(tmp_path / "ours", b"")
    (tmp_path / "theirs").touch()
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "theirs").stat().st_mode)


def test_a_link_stays_and_a_device_is_written_straight(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    write_file(os.devnull, b"gone")
    assert not Path(os.devnull).is_file()


def test_a_path_that_cannot_be_written_is_a_user_error(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "x", tmp_path):
        with pytest.raises(dx.DeepxGraphError, match="cannot write"):
            write_file(path, b"")


def test_unique_names() -> None:
    assert unique_names(["y", "y", "y#1", "z", "y"]) == ["y", "y#1", "y#1#1", "z", "y#2"]


def test_op_named_suggests() -> None:
    with pytest.raises(dx.UsageError, match="did you mean 'tanh'"):
        op_named("tanhh")
