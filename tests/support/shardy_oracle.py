"""Shardy's own passes, asked of another Python that has jaxlib: MLIR text in, the text after a pipeline out.

Run by that Python as a script: JSON in, `{name: [pipeline, text]}`; a line of JSON out for each,
`[name, worked, text or complaint]`.
A pass may end the process; `ask` then starts another one for what is left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from tests.support.jax_oracle import VARIABLE
from tests.support.paths import ROOT

_SINK = "func.func(sdy-sink-data-flow-edges)"
PROPAGATION_WITH_ORIGINS = ("sdy-import-pipeline,sdy-apply-sharding-constraints,sdy-user-priority-propagate"
                            "{debug-sharding-origins=true debug-propagation-edge-sharding=true}")
"""Propagation, with where each axis of each value came from, and by which steps."""
PROPAGATION = f"sdy-import-pipeline,sdy-apply-sharding-constraints,sdy-user-priority-propagate,{_SINK}"
"""The same; how values lie on data-flow edges then stands at what these lead into."""
PIPELINE = "sdy-propagation-pipeline"
"""All of it, through calls, and what Shardy does before and after it."""
PROPAGATION_ALONE = f"sdy-user-priority-propagate,{_SINK}"
"""Of texts that have data-flow edges already."""


def ask(requests: Mapping[str, tuple[str, str]]) -> dict[str, str | None]:
    """For each pipeline and text what the passes make of it; None where they fail."""
    left, answers = dict(requests), {}
    while left:
        command = [os.environ[VARIABLE], "-m", "tests.support.shardy_oracle"]
        done = subprocess.run(command, cwd=ROOT, input=json.dumps(left), capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            name, worked, text = json.loads(line)
            answers[name] = text if worked else None
            del left[name]
        if left:
            answers[first := next(iter(left))] = None
            del left[first]
    return answers


def _after(pipeline: str, text: str) -> str:
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir, passmanager

    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = True
    with context:
        module = ir.Module.parse(text)
        module.operation.verify()
        passmanager.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
        return str(module)


def _main() -> None:
    for name, (pipeline, text) in json.load(sys.stdin).items():
        try:
            worked, found = True, _after(pipeline, text)
        except Exception as e:
            worked, found = False, str(e)[:500]
        print(json.dumps([name, worked, found]), flush=True)


if __name__ == "__main__":
    _main()
