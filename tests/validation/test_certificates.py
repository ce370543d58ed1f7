"""Certificates: right ones hold, of damaged ones every byte is refused, and of forged ones the step that is wrong is named."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import deepx_graph as dx
from deepx_graph.passes.interprocedural import inline
from deepx_graph.session.fuzzing.mutation import mutated
from deepx_graph.session.programs import Watch, optimise
from deepx_graph.session.report.certificates import WriteCertificate
from deepx_graph.validation.certificate import CertificateError, Certified, certify, chained, payloads_of, same_once_unfolded
from tests.support.generate import random_inputs, random_module
from tests.support.reference import evaluate, same
from tests.support.wrong_rules import LOOP, planted, with_rules

PROGRAM = """HloModule m
ENTRY main { x = f32[4] parameter(0)
  n = f32[4] negate(x)
  m = f32[4] negate(n)
  ROOT y = f32[4] multiply(m, x) }
"""


def certificate(text: str, pipeline: str = "clean") -> tuple[dx.Module, dx.Module, str]:
    """A program, what a pipeline makes of it, and the certificate."""
    before = dx.loads(text)
    written = WriteCertificate(before)
    return dx.loads(text), optimise(before, pipeline, Watch(observers=(written,))).module, written.text


def checked(before: dx.Module, after: dx.Module, text: str) -> Certified:
    return certify(before, dx.loads(dx.dumps(after, "sea")), text.encode())


@pytest.mark.parametrize("text", [PROGRAM, LOOP.replace("(y, x)", "(x, y)")], ids=["straight", "loop"])
def test_a_certificate_holds_and_its_rewrites_explain_it(text: str) -> None:
    found = checked(*certificate(text, "simplify,cse"))
    assert found.holds and found.rewrites and "simplify" in found.explained and not found.compared
    assert found.written == "that of the certificate"


CALLS = """HloModule m
f { x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT z = f32[4] subtract(x, y) }
g { x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  n = f32[4] call(y, x), to_apply=f
  ROOT z = f32[4] multiply(n, x) }
ENTRY main { x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  m = f32[4] call(x, y), to_apply=g
  ROOT r = f32[4] call(m, y), to_apply=g }
"""


def test_inlining_and_fusion_are_checked_without_numbers() -> None:
    found = checked(*certificate(CALLS, "inline,fuse"))
    assert found.holds and not found.compared and any(name.startswith("inline") for name in found.unfolded)


def test_arguments_in_another_order_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = inline.inlined
    monkeypatch.setattr(inline, "inlined", lambda body, inputs, step: right(body, inputs[::-1], step))
    written = certificate(CALLS, "inline")
    assert "main" not in same_once_unfolded(*written[:2])
    with pytest.raises(CertificateError, match=r"pass 'inline.*changes output"):
        checked(*written)


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.conformance) for k in range(20, 1000, 20))])
def test_random_programs_are_the_same_once_unfolded(first: int) -> None:
    """Inlined and fused; and another program is not, where an operation or two operands are exchanged."""
    for seed in range(first, first + 20):
        module = random_module(random.Random(seed))
        after = optimise(module, "inline,fuse").module
        assert same_once_unfolded(module, after) == {f.name for f in after.functions}, seed
        for k in range(3):
            other = mutated(after, 100 * seed + k)
            if "main" in same_once_unfolded(module, other):
                arguments = random_inputs(random.Random(seed), module)
                assert all(map(same, evaluate(module, arguments), evaluate(other, arguments))), (seed, k)


def test_any_byte_that_is_another_is_refused() -> None:
    before, after, text = certificate(PROGRAM, "simplify")
    data, rng = text.encode(), random.Random(0)
    for k in range(len(data)):
        flipped = data[:k] + bytes([data[k] ^ (1 << rng.randrange(8))]) + data[k + 1 :]
        with pytest.raises(CertificateError):
            payloads_of(flipped)
    for shorter in (data[:-1], data[: data.index(b"\n") + 1], b""):
        with pytest.raises(CertificateError):
            certify(before, after, shorter)


def forged(text: str, change: Any) -> str:
    """The certificate with a step changed, and all digests made anew."""
    payloads = payloads_of(text.encode())
    change(payloads)
    return chained(payloads)


@pytest.mark.parametrize(("change", "told"), [
    (lambda p: p[1].update(text=p[1]["text"].replace("multiply %x, %x", "add %x, %x").replace("multiply(%x, %x)", "add(%x, %x)")),
     "changes|do not lead"),
    (lambda p: p[0].update(input="0" * 64), "about another program"),
    (lambda p: p[0].update(output="0" * 64), "do not lead to"),
    (lambda p: p[0].update(schema="x"), "no certificate of a kind"),
    (lambda p: p[1].update(text="nonsense"), "cannot be read"),
    (lambda p: p[1].pop("traces"), "is not described"),
    (lambda p: p[1]["traces"].update({"trace of main": [[1, "r"]] * 9}), "is no trace"),
])  # fmt: skip
def test_a_forged_certificate_is_refused(change: Any, told: str) -> None:
    before, after, text = certificate(PROGRAM, "simplify")
    with pytest.raises(CertificateError, match=told):
        checked(before, after, forged(text, change))


@pytest.mark.parametrize("text", [PROGRAM.replace("multiply(m, x)", "subtract(n, x)"), LOOP], ids=["straight", "loop"])
def test_what_a_wrong_rule_did_is_named(text: str) -> None:
    with with_rules(planted):
        written = certificate(text, "simplify")
    with pytest.raises(CertificateError, match="rewrite 1, 'planted' of pass 'simplify' changes what is computed"):
        checked(*written)


def test_another_program_than_the_one_written_is_refused() -> None:
    before, after, text = certificate(PROGRAM)
    other = dx.loads(dx.dumps(after, "hlo").replace("y =", "z ="))
    assert certify(before, other, text.encode()).written.endswith("compared on samples")
    with pytest.raises(CertificateError, match="not that of the certificate"):
        certify(before, dx.loads(PROGRAM.replace("multiply", "add")), text.encode())


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.conformance) for k in range(10, 200, 10))])
def test_certificates_of_random_programs_hold(first: int) -> None:
    for seed in range(first, first + 10):
        text = dx.dumps(random_module(random.Random(seed)), "sea")
        found = checked(*certificate(text))
        assert found.holds or all("effects" in why or "too large" in why or "too long" in why for why in found.unchecked), seed


def test_the_checker_brings_no_pass_along() -> None:
    code = "import sys, deepx_graph.validation.certificate; print([m for m in sys.modules if '.passes' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_writes_and_checks(tmp_path: Path, run: Any) -> None:
    file, out, lines = (str(tmp_path / name) for name in ("m.hlo", "small.hlo", "c.jsonl"))
    Path(file).write_text(LOOP.replace("(y, x)", "(x, y)"))
    assert run("opt", file, "-o", out, "--certificate", lines, "-p", "clean").code == 0
    assert json.loads(Path(lines).read_text().splitlines()[0])["payload"]["schema"] == "deepx-graph/certificate/1"
    done = run("certify", file, out, lines)
    assert done.code == 0 and done.out.endswith("certified\n") and "explained by their rewrites" in done.out
    Path(lines).write_text(Path(lines).read_text().replace("add", "sub", 1))
    assert run("certify", file, out, lines).code == 4
