"""Findings made small: the least program that the same check finds the same fault of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepx_graph.errors import DeepxGraphError
from deepx_graph.files import replacing
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.session.diagnose.reduction import ReducedProgram, reduce_program
from deepx_graph.session.fuzzing.checks import CHECKS, Case, Finding, examine, examine_by
from deepx_graph.session.inputs import write_npz
from deepx_graph.session.programs import encoded
from deepx_graph.validation.programs import RandomProgram


def least(finding: Finding, program: RandomProgram, seconds: float) -> ReducedProgram | None:
    """The least program found within the seconds that shows it; None where it does not show in this process."""

    def holds(module: Module, inputs: Mapping[str, Array]) -> bool:
        case = Case(RandomProgram(module, dict(inputs)), finding.seed)
        again = examine_by(finding.check, case) if finding.check in CHECKS else examine(finding.seed, case.program)
        return any(_fault(f) == _fault(finding) for f in again)

    try:
        return reduce_program(program.module, program.inputs, holds, seconds=seconds)
    except DeepxGraphError:
        return None


def _fault(finding: Finding) -> str:
    """The check and what it ran, or the place of a crash: what stays when a program is made small."""
    return f"{finding.check} {finding.signature.split(' output ')[0]}"


def kept(stem: Path, module: Module, inputs: Mapping[str, Array]) -> None:
    """Writes a program and its inputs beside a finding."""
    with replacing(stem.with_suffix(".sea")) as stream:
        stream.write(encoded(module, "sea"))
    write_npz(stem.with_suffix(".npz"), inputs)
