"""mlir-opt's ways: texts in pieces, expected diagnostics, nested pipelines, files for printed stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepx_graph.errors import Diagnostic, Source, Span, UsageError
from deepx_graph.passes.pipeline import format_pipeline, parse_pipeline
from deepx_graph.session.expectations import expectations, pieces, unmet
from tests.support.cli_runner import SEA, Run

GOOD = """\
func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %a, %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
BAD = GOOD.replace("  %0 = stablehlo.add", "  // expected-error@+1 {{unknown operation 'stablehlo.ad'}}\n  %0 = stablehlo.ad")


def test_pieces_keep_their_lines() -> None:
    found = list(pieces(Source("t", "a\nb\n// -----\nc\n  // ----- more\nd\n")))
    assert [p.text for p in found] == ["a\nb\n", "\n\n\nc\n", "\n\n\n\n\nd\n"]
    one = Source("t", "a\n")
    assert list(pieces(one)) == [one]


@pytest.mark.parametrize(("text", "line", "message", "meets"), [
    ("// expected-error {{wrong}}", 2, "all wrong", True),
    ("// expected-error {{wrong}}", 3, "all wrong", False),
    ("// expected-error {{wrong}}", 2, "right", False),
    ("// expected-error@below {{a.c}}", 3, "abc", False),
    ("// expected-error@-1 {{a.c}}", 1, "a.c", True),
    ("// expected-error-re@above {{line {{[0-9]+}} of {{x|y}}}}", 1, "line 17 of y", True),
    ("// expected-error-re@above {{line {{[0-9]+}} of {{x|y}}}}", 1, "line n of y", False),
    ("// expected-warning {{wrong}}", 2, "wrong", False),
    ("# expected-error @+2 {{wrong}}", 4, "wrong", True),
])  # fmt: skip
def test_an_expectation_is_met_by_severity_line_and_words(text: str, line: int, message: str, meets: bool) -> None:
    source = Source("t", f"first\n{text}\n\n\n")
    start = source.line_bounds(line)[0]
    (expected,) = expectations(source)
    assert expected.meets(Diagnostic(message, Span(source, start, start))) == meets


def test_what_is_missing_and_what_is_too_much_is_said() -> None:
    source = Source("t", "// expected-error {{a}}\n// expected-error@unknown {{b}}\n")
    wrong = unmet(expectations(source), [Diagnostic("b"), Diagnostic("c", severity="warning"), Diagnostic("d", severity="note")])
    assert [d.message for d in wrong] == ["unexpected warning: c", 'expected error "a" was not produced']


def test_the_command_takes_pieces_one_by_one(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.mlir"
    path.write_text(f"{GOOD}// -----\n{BAD}// -----\n{GOOD}")
    done = run("opt", str(path), "--split-input-file", "-p", "none")
    assert done.code == 3 and "t.mlir:8:8: error: unknown operation" in done.err
    assert done.out.count("stablehlo.add") == 2 and done.out.count("// -----") == 1
    assert run("opt", "-", "--split-input-file", stdin=done.out).out == done.out
    checked = run("opt", str(path), "--split-input-file", "--verify-diagnostics")
    assert (checked.code, checked.out, checked.err) == (0, "", "")
    path.write_text(BAD.replace("'stablehlo.ad'", "'stablehlo.no'"))
    checked = run("opt", str(path), "--verify-diagnostics")
    assert checked.code == 1
    assert "unexpected error: unknown operation 'stablehlo.ad'" in checked.err and "was not produced" in checked.err


def test_operations_that_the_dialect_lacks_are_kept_where_that_is_asked_for(run: Run) -> None:
    text = GOOD.replace("stablehlo.add %a, %a : tensor<2xf32>", '"stablehlo.novel"(%a) : (tensor<2xf32>) -> tensor<2xf32>')
    assert run("opt", stdin=text).code == 3
    assert '"stablehlo.novel"(%a)' in run("opt", "--allow-unregistered", stdin=text).out


def test_printed_stages_go_to_numbered_files(run: Run, sea: str, tmp_path: Path) -> None:
    place = tmp_path / "ir" / "tree"
    assert run("opt", sea, "-p", "cse,dce", "--print-ir-tree-dir", str(place)).err == ""
    assert sorted(p.name for p in place.iterdir()) == ["000_after_cse.sea", "001_after_dce.sea"]
    assert run("opt", str(place / "001_after_dce.sea"), "-p", "none").code == 0
    assert run("opt", sea, "-p", "cse,dce", "--print-ir-before", "dce", "--print-ir-tree-dir", str(tmp_path / "b")).code == 0
    assert [p.name for p in (tmp_path / "b").iterdir()] == ["000_before_dce.sea"]


# --- pipelines within pipelines


@pytest.mark.parametrize(("text", "canonical"), [
    ("builtin.module(func.func(cse,dce),any())", "cse,dce"),
    ("fix(cse,simplify),dce", "fix(cse,simplify),dce"),
    ("fix{rounds=3}( cse , fix(dce) )", "fix{rounds=3}(cse,fix(dce))"),
    ("fix{rounds=10}(cse)", "fix(cse)"),
])  # fmt: skip
def test_a_nested_pipeline_has_a_canonical_text(text: str, canonical: str) -> None:
    passes = parse_pipeline(text)
    assert format_pipeline(passes) == canonical
    assert parse_pipeline(canonical) == passes


@pytest.mark.parametrize(("text", "words"), [
    ("fix", "stands in front of passes"), ("fix(cse", "a parenthesis is not closed"), ("fix(cse))", "unexpected '\\)'"),
    ("fix{round=1}(cse)", "did you mean 'rounds'"), ("fix()", "the name of a pass is missing"), ("any(" * 30, "more than 20"),
])  # fmt: skip
def test_a_nested_pipeline_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_pipeline(text)


def test_a_fixed_point_ends_when_nothing_changes(run: Run) -> None:
    once = run("opt", "-p", "simplify,cse", stdin=SEA).out
    done = run("opt", "-p", "fix(simplify,cse)", "--timing", "--dump-pass-pipeline", stdin=SEA)
    assert done.out == once
    assert "pipeline: fix(simplify,cse)\n" in done.err
    assert 1 <= done.err.count("simplify  ") <= 3
    assert run("opt", "-p", "fix(simplify)", "--print-ir-after", "simplify", stdin=SEA).err.startswith("// ---- after simplify")
