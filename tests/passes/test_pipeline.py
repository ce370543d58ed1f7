"""Pipelines as text, their mistakes, and observers."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import weakref
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import pytest

from bench.models import texts
from deepx_graph.cycles import no_collection
from deepx_graph.errors import Source, UsageError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, multiply, negate
from deepx_graph.passes import MODULES, REGISTRY
from deepx_graph.passes.observer import Print, Record, Timing, Verify
from deepx_graph.passes.pipeline import PIPELINES, PipelineReader, format_pipeline, parse_pipeline, run_pipeline
from deepx_graph.rewrite.base import Pass, PassError, RewriteControl
from deepx_graph.text import formats
from deepx_graph.types import F32, I32, scalar
from deepx_graph.verify import check, verify
from tests.support.generate import random_module
from tests.support.xla_texts import LOOP


@dataclass(frozen=True)
class Sample(Pass):
    """Has an option of every kind."""

    name: ClassVar[str] = "sample"
    count: int = 3
    rate: float = 0.5
    deep_down: bool = False
    label: str = ""
    names: tuple[str, ...] = ()
    limit: int | None = None

    def run(self, module: Module) -> Module:
        return module


def read(text: str) -> tuple[Pass, ...]:
    return tuple(PipelineReader(text, {"sample": Sample}, {"twice": "sample,sample"}).read())


def module() -> Module:
    b = Builder()
    x = b.param(0, scalar(I32), "x")
    y = b(multiply, b(add, x, b.constant(0, I32)), b.constant(1, I32))
    return Module((Function("main", (x,), (y, b(negate, b(negate, x)))),))


# --- text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "canonical", "value"), [
    ("sample", "sample", Sample()),
    (" sample { } ", "sample", Sample()),
    ("sample{count=7 deep-down}", "sample{count=7 deep-down=true}", Sample(count=7, deep_down=True)),
    ("sample{deep-down=False,rate=1e-3}", "sample{rate=0.001}", Sample(rate=1e-3)),
    ('sample{names="a, b" label="it, {is}"}', 'sample{label="it, {is}" names="a,b"}', Sample(names=("a", "b"), label="it, {is}")),
    ("sample{limit=4}", "sample{limit=4}", Sample(limit=4)),
    (r'sample{label="a \"b\" \\"}', r'sample{label="a \"b\" \\"}', Sample(label='a "b" \\')),
])  # fmt: skip
def test_options_have_the_types_of_the_fields(text: str, canonical: str, value: Pass) -> None:
    assert read(text) == (value,)
    assert format_pipeline([value]) == canonical
    assert read(canonical) == (value,)


def test_a_named_pipeline_stands_for_its_passes() -> None:
    assert read("twice,sample{count=1}") == (Sample(), Sample(), Sample(count=1))


@pytest.mark.parametrize(("text", "column", "message", "more"), [
    ("simplfy", 1, "no pass 'simplfy'", "did you mean 'simplify'?"),
    ("cse, simplify{fast-mth}", 15, "no option 'fast-mth'", "did you mean 'fast-math'?"),
    ("cse{x}", 5, "pass 'cse' has no option 'x'", "no options"),
    ("simplify{max-bytes=many}", 20, "option 'max-bytes' is 'many'", "a whole number"),
    ("simplify{fast-math=perhaps}", 20, "option 'fast-math' is 'perhaps'", "true or false"),
    ("simplify{max-bytes}", 10, "option 'max-bytes' has no value", "max-bytes=a whole number"),
    ("simplify{max-bytes=}", 20, "option 'max-bytes' has no value", "a whole number"),
    ("simplify{max-bytes=1 max-bytes=2}", 22, "option 'max-bytes' is given twice", ""),
    ("cse,,dce", 5, "the name of a pass is missing", ""),
    ("cse,", 5, "the name of a pass is missing", ""),
    ("cse dce", 5, "unexpected 'dce'", "','"),
    ("simplify{", 10, "an option or '}' is missing", ""),
    ('simplify{max-bytes="3}', 20, "a quote is not closed", '"'),
    ("=", 1, "the name of a pass is missing", ""),
])  # fmt: skip
def test_a_mistake_is_shown_where_it_is(text: str, column: int, message: str, more: str) -> None:
    with pytest.raises(UsageError) as e:
        parse_pipeline(text)
    shown = str(e.value)
    assert shown.startswith(f"<pipeline>:1:{column}: error: ")
    assert message in shown
    assert more in shown
    assert e.value.exit_code == 2


def test_every_pass_has_a_name_a_summary_and_a_text() -> None:
    assert {"fold", "algebra", "canonicalize", "cse", "dce", "sccp", "inline", "fuse", "grad"} <= set(REGISTRY)
    assert all(p.name == name and p.summary() for name, p in REGISTRY.items())


def test_every_pass_has_a_row() -> None:
    """A pass that no row names could be reached from no pipeline."""
    for module in {import_module(f"deepx_graph.passes.{m}") for m in MODULES.values()}:
        made = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Pass) and v.__module__ == module.__name__]
        assert {p.name for p in made} <= set(REGISTRY)


def test_names_are_known_before_passes_are_imported() -> None:
    code = "import sys; from deepx_graph.passes.pipeline import parse_pipeline; parse_pipeline('dce'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "deepx_graph.passes.scalar.dce" in done.stdout.split()
    assert "deepx_graph.passes.autodiff.grad" not in done.stdout.split()


def test_named_pipelines_are_read_and_none_is_empty() -> None:
    for name, text in PIPELINES.items():
        assert format_pipeline(parse_pipeline(name)) == text
    assert parse_pipeline("") == parse_pipeline("none") == ()


def test_a_pass_that_does_nothing_by_declaration_is_refused() -> None:
    with pytest.raises(TypeError, match="neither run nor run_under"):
        type("Nothing", (Pass,), {})


# --- observers ------------------------------------------------------------------------------------------------------


def test_the_record_holds_stages_counts_and_rewrites() -> None:
    record = Record()
    m = module()
    after = run_pipeline(m, parse_pipeline("cse,algebra,dce"), [record])
    assert [s.pass_.name for s in record.stages] == ["cse", "algebra", "dce"]
    assert [s.changed for s in record.stages] == [False, True, False]
    algebra = record.stages[1]
    assert algebra.delta == {"add": -1, "constant": -2, "multiply": -1, "negate": -2}
    assert [(r.number, r.pass_name, r.rule) for r in algebra.rewrites] == [(k, "algebra", "declared-law") for k in (1, 2, 3)]
    assert record.stages[-1].module is after
    assert m.entry.results[0].op is multiply  # the first module is as it was


def test_timing_has_a_row_for_each_pass() -> None:
    timing = Timing()
    run_pipeline(module(), parse_pipeline("cse,algebra"), [timing])
    assert [(r.name, r.nodes_before, r.nodes_after) for r in timing.rows] == [("cse", 6, 6), ("algebra", 6, 0)]
    assert len(timing.table().splitlines()) == 3


@pytest.mark.parametrize(("options", "expected"), [
    ({"after": None}, ["after cse", "after algebra", "after dce"]),
    ({"after": None, "changed_only": True}, ["after algebra"]),
    ({"before": ["dce"]}, ["before dce"]),
    ({"before": None, "after": ["cse"]}, ["before cse", "after cse", "before algebra", "before dce"]),
])  # fmt: skip
def test_printing_writes_what_was_asked_for(options: dict[str, object], expected: list[str]) -> None:
    written: list[str] = []
    shown = Print(written.append, lambda m: f"{len(m.entry.nodes)} nodes", **options)  # type: ignore[arg-type]
    run_pipeline(module(), parse_pipeline("cse,algebra,dce"), [shown])
    assert [w.split("---- ")[1].split(" ----")[0] for w in written] == expected
    assert all(w.endswith("nodes\n") for w in written)


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_the_limit_counts_across_passes(limit: int) -> None:
    record = Record()
    run_pipeline(module(), parse_pipeline("fold,algebra"), [record], limit=limit)
    assert sum(len(s.rewrites) for s in record.stages) == limit


def test_an_invalid_module_is_blamed_on_the_pass_that_made_it() -> None:
    @dataclass(frozen=True)
    class Breaks(Pass):
        """Makes a node of the wrong type."""

        name: ClassVar[str] = "breaks"

        def run(self, module: Module) -> Module:
            wrong = Node(negate, module.entry.params, (), scalar(F32))
            return module.with_functions([module.entry.with_(results=(wrong,))])

    with pytest.raises(PassError, match="pass 'breaks' made an invalid module") as e:
        run_pipeline(module(), [Breaks()], [Verify()])
    assert e.value.exit_code == 70
    assert len(e.value.diagnostics) > 1


def test_no_node_is_verified_twice_from_the_text_to_the_optimised_program(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: Counter[Node] = Counter()
    own = check._own_problem
    monkeypatch.setattr(check, "_own_problem", lambda n, known: checked.update([n]) or own(n, known))
    before = module()
    verify(before)
    for _ in range(2):
        after = run_pipeline(before, parse_pipeline("default"), [Verify()])
    assert set(checked.values()) == {1}
    assert {*before.entry.nodes, *after.entry.nodes} <= set(checked)


def test_an_exception_inside_a_pass_names_the_pass_and_a_users_error_passes() -> None:
    @dataclass(frozen=True)
    class Fails(Pass):
        """Raises."""

        name: ClassVar[str] = "fails"
        user: bool = False

        def run(self, module: Module) -> Module:
            raise UsageError("no such input") if self.user else KeyError("lost")

    with pytest.raises(PassError, match="pass 'fails' failed: KeyError: 'lost'"):
        run_pipeline(module(), [Fails()])
    with pytest.raises(UsageError, match="no such input"):
        run_pipeline(module(), [Fails(user=True)])


def test_control_counts_by_rule() -> None:
    control = RewriteControl()
    run_pipeline(module(), parse_pipeline("algebra"), control=control)
    assert control.applied == {"declared-law": 3}
    assert not control.exhausted


@pytest.mark.parametrize("number", range(8))
def test_a_program_goes_with_its_last_name(number: int) -> None:
    """Nothing that readers, passes and printers make refers to itself: memory does not wait for a search for reference cycles."""
    given = {0: LOOP, 1: texts.hlo(60)}
    text = given.get(number)
    gc.collect()
    with no_collection():
        before = formats.read(Source("m", text)).module if text else random_module(random.Random(number), exact=True)
        after = run_pipeline(before, parse_pipeline("default"))
        for language in ("hlo", "stablehlo", "sea"):
            formats.encode(after, language)
        nodes = [weakref.ref(n) for module in (before, after) for f in module.functions for n in f.nodes]
        del before, after
        assert nodes and not any(n() for n in nodes)
