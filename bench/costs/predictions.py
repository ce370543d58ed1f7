"""How good predictions of steps are: `simulate` beside runs, alone and on two processes of MPI.

    python -m bench.costs.predictions [--rounds 9] [--only layers-512,covariance]

Twelve programs: gradients of layers of four sizes, and eight of the race's, each whole on one process and under several plans over
two devices. All are measured in turns by the same two processes (`costs/ranks.py`), round after round; a step takes the median of
rounds. Machine and network go by what `calibrate` and `calibrate --network` stored. Prints a table with the standard error of each
measurement, the median and the largest error, and how well the plans of each program are ranked: Kendall's tau-b over pairs of
plans, in which two plans are tied whose difference, round by round, is within two standard errors; and tau of all pairs. Needs the
extra `mpi`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

import deepx_graph as dx
from bench.costs.ranks import RankCase, layers, on_two, small_inputs
from bench.harness.markdown import markdown
from bench.race.program import programs
from bench.race.store import stored_text
from deepx_graph.session.cluster.simulation import simulate
from deepx_graph.session.plans import planned
from deepx_graph.session.programs import optimise

LAYERS = {"layers-128": (512, 128, 512, 4), "layers-256": (1024, 256, 1024, 2), "layers-512": (256, 512, 2048, 2),
          "wide-1024": (128, 1024, 1024, 3)}  # fmt: skip
"""Rows of the batch, width, hidden width, layers."""

LAYER_PLANS = {"data": 'x: [{"d"}, {}]\n', "model": 'w{k}: [{}, {"d"}]\nv{k}: [{"d"}, {}]\n',
               "sharded": 'x: [{"d"}, {}]\nw{k}: [{"d"}, {}]\nv{k}: [{"d"}, {}]\n'}  # fmt: skip
"""Data parallel; Megatron's; data parallel with weights that are split, too. `{k}` stands for each layer."""

RACED: Mapping[str, Mapping[str, str]] = {
    "mlp_train": {"data": 'arg0: [{"d"}, {}]\narg1: [{"d"}]\n', "model": 'arg2: [{}, {"d"}]\narg4: [{"d"}, {}]\n',
                  "features": 'arg0: [{}, {"d"}]\narg2: [{"d"}, {}]\n'},
    "autoencoder_train": {"data": 'arg0: [{"d"}, {}]\n', "features": 'arg0: [{}, {"d"}]\n',
                          "model": 'arg1: [{}, {"d"}]\narg2: [{"d"}, {}]\narg3: [{}, {"d"}]\narg4: [{"d"}, {}]\n'},
    "rotary_attention": {"heads": 'arg0: [{"d"}, {}, {}]\n', "queries": 'arg0: [{}, {"d"}, {}]\n',
                         "keys": 'arg1: [{}, {"d"}, {}]\narg2: [{}, {"d"}, {}]\n'},
    "cross_entropy_grad": {"rows": 'arg0: [{"d"}, {}]\n', "classes": 'arg0: [{}, {"d"}]\n'},
    "layer_norm_train": {"rows": 'arg0: [{"d"}, {}]\n', "features": 'arg0: [{}, {"d"}]\n'},
    "resnet_block_train": {"batch": 'arg0: [{"d"}, {}, {}, {}]\n',
                           "channels": 'arg1: [{}, {}, {}, {"d"}]\narg2: [{}, {}, {"d"}, {}]\n'},
    "mixture_of_experts": {"tokens": 'arg0: [{"d"}, {}]\n',
                           "experts": 'arg2: [{"d"}, {}, {}]\narg3: [{"d"}, {}, {}]\n',
                           "hidden": 'arg2: [{}, {}, {"d"}]\narg3: [{}, {"d"}, {}]\n'},
    "covariance": {"columns": 'arg0: [{}, {"d"}]\n', "rows": 'arg0: [{"d"}, {}]\n'},
}  # fmt: skip

ALONE = "one process"
WHOLE = 'mesh <["d"=1]>\n'
NOTICED = 2.0
"""Standard errors beyond which a difference is one."""


@dataclass(frozen=True)
class PredictedRun:
    """Seconds of a step of a program under a plan, predicted, and measured in each round."""

    program: str
    plan: str
    predicted: float
    rounds: Sequence[float]

    @property
    def measured(self) -> float:
        """The median of rounds."""
        return statistics.median(self.rounds)

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return abs(self.predicted - self.measured) / self.measured

    def order(self, other: PredictedRun) -> int:
        """-1 where this was measured to be faster, 1 where slower, 0 where rounds don't tell."""
        differences = [a - b for a, b in zip(self.rounds, other.rounds, strict=True)]
        middle = statistics.median(differences)
        return 0 if abs(middle) <= NOTICED * standard_error(differences) else int(math.copysign(1, middle))


def standard_error(values: Sequence[float]) -> float:
    """Of the median of values, from the median of their distances to it: what disturbs few rounds does not count."""
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(v - middle) for v in values)
    return 1.2533 * spread / math.sqrt(len(values))


@dataclass(frozen=True)
class PlannedProgram:
    """A program, its inputs, and the texts of its plans over two devices."""

    name: str
    module: dx.Module
    arrays: Sequence[np.ndarray]
    plans: Mapping[str, str]

    def cases(self) -> Iterator[RankCase]:
        """To be measured: alone, and under each plan."""
        text = dx.dumps(self.module, "sea")
        yield RankCase(text, self.arrays)
        for plan in self.plans.values():
            yield RankCase(text, self.arrays, plan)

    def predicted(self) -> Iterator[tuple[str, float]]:
        """The names of the same, and the seconds that are predicted."""
        yield ALONE, simulate(*planned(self.module, WHOLE + _unsplit(self.module)), threads=1).step.seconds
        for name, plan in self.plans.items():
            yield name, simulate(*planned(self.module, plan)).step.seconds


def _unsplit(module: dx.Module) -> str:
    p = module.entry.params[0]
    return f"{p.name}: [{', '.join('{}' for _ in p.type.shape)}]\n"


def planned_program(name: str) -> PlannedProgram:
    """The program of that name. Raises KeyError for none."""
    if name in LAYERS:
        module, depth = layers(*LAYERS[name]), LAYERS[name][3]
        plans = {plan: "".join(line.replace("{k}", str(k)) + "\n" for line in text.splitlines()
                               for k in range(depth if "{k}" in line else 1)) for plan, text in LAYER_PLANS.items()}
        return PlannedProgram(name, module, small_inputs(module), {p: f'mesh <["d"=2]>\n{text}' for p, text in plans.items()})
    raced = programs()[f"{name}.medium"]
    module = optimise(dx.loads(stored_text(raced), "stablehlo"), "inline,clean").module
    return PlannedProgram(name, module, raced.inputs, {p: f'mesh <["d"=2]>\n{text}' for p, text in RACED[name].items()})


def runs(names: Sequence[str], rounds: int) -> Iterator[PredictedRun]:
    """Every program, alone and under each plan."""
    chosen = [planned_program(name) for name in names]
    measured = iter(on_two([case for p in chosen for case in p.cases()], rounds))
    for p in chosen:
        for plan, seconds in p.predicted():
            yield PredictedRun(p.name, plan, seconds, next(measured))


@dataclass(frozen=True)
class RankOrder:
    """Pairs of plans of the same program: predicted in the order that was measured, in the other one, and measured as equal."""

    agree: int
    differ: int
    ties: int

    @property
    def tau_b(self) -> float:
        """Kendall's tau-b; predictions have no ties."""
        told = self.agree + self.differ
        return (self.agree - self.differ) / math.sqrt(told * (told + self.ties)) if told else 1.0


def ranked(found: Sequence[PredictedRun], *, all_pairs: bool = False) -> RankOrder:
    """How the plans within each program are ranked; with `all_pairs` by medians alone, which always differ."""
    agree = differ = ties = 0
    for a, b in combinations(found, 2):
        if a.program != b.program:
            continue
        measured = math.copysign(1, a.measured - b.measured) if all_pairs else a.order(b)
        same = measured * math.copysign(1, a.predicted - b.predicted)
        agree, differ, ties = agree + (same > 0), differ + (same < 0), ties + (same == 0)
    return RankOrder(agree, differ, ties)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default=",".join((*LAYERS, *RACED)), help="programs, separated by commas")
    args = parser.parse_args(argv)
    found = list(runs(args.only.split(","), args.rounds))
    print(markdown(["program", "plan", "predicted ms", "measured ms", "+-", "error"], [
        [r.program, r.plan, f"{r.predicted * 1e3:.2f}", f"{r.measured * 1e3:.2f}", f"{standard_error(r.rounds) * 1e3:.2f}",
         f"{r.error:.0%}"] for r in found]))
    errors, order, plain = [r.error for r in found], ranked(found), ranked(found, all_pairs=True)
    print(f"median error {statistics.median(errors):.0%}, largest {max(errors):.0%} of {len(found)} steps; Kendall's tau-b "
          f"{order.tau_b:.2f} ({order.agree} pairs agree, {order.differ} differ, {order.ties} are measured as equal); "
          f"tau of all pairs {plain.tau_b:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
