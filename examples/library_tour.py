"""The library from Python: load, find, optimise, ask why, compare, differentiate, run, draw.

    python examples/library_tour.py FOLDER

It is written from `help(deepx_graph)` and docs/how-to.md alone, and draws into FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import deepx_graph as dx

PROGRAM = Path(__file__).with_name("transformer_block.dx")


def main(folder: str) -> None:
    # load: a program in any language; `attention` is one of its functions
    program = dx.load(PROGRAM).with_entry("attention")
    attention = dx.optimize(program, "inline,internalize,dce")
    print(dx.info(attention))

    # find: nodes, by what they do and are
    for node in attention.find("op:dot_general"):
        print(f"a product: {node.name or node.op.name} {node.type}, of {', '.join(i.name or i.op.name for i in node.inputs)}")

    # optimise: a module again, held to a budget; and what was changed
    best = dx.optimize(attention)
    budget = dx.check(attention, ["ops<=100", "ops.dot_general<=6"])
    difference = dx.diff(attention, best)
    print(f"within the budget: {bool(budget)}")
    print(*difference.lines(), sep="\n")

    # why: which operations became one kernel, and what kept others apart
    print(*dx.why(attention).lines(), sep="\n")
    first, *_, last = attention.find("op:dot_general")
    print(dx.why(attention, first, last, pipeline="").message)

    # grad: a module too, from the inputs and a cotangent for each output to the gradients
    gradient = dx.optimize(dx.grad(attention))

    # run: numpy arrays, by name or in order
    f = dx.compile(attention)
    rng = np.random.default_rng(0)
    arrays = {p.name: (rng.standard_normal(p.type.shape) / 16).astype(np.float32) for p in f.inputs}
    outputs = f(**arrays)
    slopes = dx.run(gradient, *arrays.values(), *(np.ones_like(y) for y in outputs))
    print("outputs", [y.shape for y in outputs], "gradients", [g.shape for g in slopes])
    assert dx.equivalent(attention, best, arrays), "the passes changed what is computed"

    # draw: DOT, SVG, PNG or HTML, by the suffix
    for suffix in ("svg", "html"):
        dx.draw(best, Path(folder) / f"attention.{suffix}", collapse=True)

    # write it in another language, and read it back; what is wrong is told with its place
    text = dx.dumps(best, "stablehlo")
    print("read back:", "the same" if not dx.diff(best, dx.loads(text)) else "another program")
    try:
        attention.find("op:dot_general users>many")
    except dx.DeepxGraphError as e:
        print(e)


if __name__ == "__main__":
    main(sys.argv[1])
