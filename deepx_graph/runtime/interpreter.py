"""Walks the code of a program: values in slots, branches and loops as jumps, calls as frames on an explicit stack.

A value is dropped when its life ends. Nothing here recurses: nesting is bounded by nothing, calls by `max_depth`. Whatever goes
wrong in a kernel becomes a RunError at the source position of its node; the warnings of numpy do not show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, LimitError, RunError
from deepx_graph.ir import Node
from deepx_graph.ir.collective import Grid
from deepx_graph.ir.structure import CALL, PARTIAL, callee_of, taken_branch
from deepx_graph.lowering.bytecode import Instruction, Jump, Move, Pack, Return, Run, Select, Skip, Test
from deepx_graph.ops.host.host import Channels, Feed, Host, Waiting
from deepx_graph.ops.tensor.parallel import parallel_grid
from deepx_graph.runtime.devices import Running, Stop
from deepx_graph.runtime.inputs import FunctionValue
from deepx_graph.runtime.program import Outs, Unit, fail
from deepx_graph.runtime.transport.lock_step import run_devices
from deepx_graph.types import StateType

MAX_DEPTH = 1_000_000
"""How deeply calls may nest."""

LEVEL_BYTES = 2048
"""What a level of a recursion takes beside its tensors, about."""


class Activation:
    """One activation of a function. `at` is where it goes on, `target` the caller's slot for its results."""

    __slots__ = ("at", "outs", "run", "slots", "unit")

    def __init__(self, unit: Unit, args: Sequence[Any], run: Run | None) -> None:
        self.unit, self.run = unit, run
        self.at = 0
        self.slots: list[Any] = unit.frame.copy()
        for number, value in zip(unit.plan.code.params, args, strict=True):
            self.slots[number] = value
        self.outs: Outs = unit.take_outs()

    def finish(self, last: Return) -> list[Any]:
        """The results; the frame's memory goes back, and nothing else that it held is kept."""
        results = [self.slots[s] for s in last.sources]
        self.unit.give_back(self.outs)
        self.slots.clear()
        return results


def execute_all(units: Mapping[str, Unit], calls: Sequence[tuple[str, Sequence[Any]]], grid: Grid, *, max_depth: int = MAX_DEPTH,
                max_bytes: int | None = None) -> list[list[Any]]:
    """The results of one call (a function and its arguments) on every device of the grid.

    Raises RunError, with the node's source position, when an operation fails; LimitError when calls nest too deeply or the levels
    of a recursion together need more than `max_bytes`.
    """
    machines = [_Machine(units, max_depth, max_bytes) for _ in calls]
    running = [m.run(Activation(units[name], args, None)) for m, (name, args) in zip(machines, calls, strict=True)]
    with np.errstate(all="ignore"):
        return run_devices(running, grid)


def execute_one(units: Mapping[str, Unit], entry: str, args: Sequence[Any], run: Callable[[Running], list[Any]], *,
                max_depth: int = MAX_DEPTH, max_bytes: int | None = None) -> list[Any]:
    """The results of one call on the device that this process is; `run` meets the others. Raises as `execute_all` does."""
    machine = _Machine(units, max_depth, max_bytes)
    with np.errstate(all="ignore"):
        return run(machine.run(Activation(units[entry], args, None)))


class _Machine:
    def __init__(self, units: Mapping[str, Unit], max_depth: int, max_bytes: int | None) -> None:
        self.units, self.max_depth, self.max_bytes = units, max_depth, max_bytes
        self.frames: list[Activation] = []
        self.levels = 0
        """Bytes that the active levels of recursive functions may need."""

    def run(self, frame: Activation) -> Running:
        """Runs frames until the first one returns, and stops where other devices are met."""
        while True:
            instruction = step(frame)
            if isinstance(instruction, Stop):
                yield instruction
                continue
            if isinstance(instruction, Run) and instruction.node.op.exchange is not None:
                values = [frame.slots[s] for s in instruction.sources]
                donated = frame.unit.plan.donated[frame.at]
                self.put(frame, instruction, (yield Stop(instruction.node, values, donated=donated)))
                continue
            if isinstance(instruction, Run) and (grid := parallel_grid(instruction.node)) is not None:
                self.put(frame, instruction, self.parallel(frame, instruction, grid))
                continue
            if isinstance(instruction, Run):
                self.frames.append(frame)
                frame = self.enter(frame, instruction)
                continue
            if not self.frames:
                return frame.finish(instruction)
            caller = self.frames.pop()
            self.leave(caller, frame, instruction)
            frame = caller

    def put(self, frame: Activation, run: Run, value: Any) -> None:
        """Stores the value of an instruction that was run from outside, and goes on behind it."""
        frame.slots[run.target] = value
        for s in run.frees:
            frame.slots[s] = None
        frame.at += 1

    def parallel(self, frame: Activation, run: Run, grid: Grid) -> tuple[Any, ...]:
        """The results of the devices of a `run_parallel`, one device's after another's, and the state."""
        given = run.node.op.named([frame.slots[s] for s in run.sources], run.node.attrs)
        world, args, node = given["state"], list(given["args"]), run.node
        if world.wires.grid is not None:
            raise RunError(Diagnostic("devices cannot run devices of their own", node.span))
        feed, channels = Feed(given["infeed"]), world.wires.channels
        calls = []
        for device, program in enumerate(given["programs"]):
            wires = Channels(feed, world.wires.outfeed, channels, world.wires.probes, device, grid)
            wanted = self.units[program.callee].function.params[len(program.captured) :]
            values = [world.wired(wires) if isinstance(p.type, StateType) else args.pop(0) for p in wanted]
            calls.append((program.callee, [*program.captured, *values]))
        found = execute_all(self.units, calls, grid, max_depth=self.max_depth, max_bytes=self.max_bytes)
        return (*(np.array(r) for results in found for r in results if not isinstance(r, Host)), world)

    def enter(self, caller: Activation, run: Run) -> Activation:
        """The frame of the function that a call names."""
        values = [caller.slots[s] for s in run.sources]
        name = callee_of(run.node) if run.node.op is CALL else values[0].callee
        args = values if run.node.op is CALL else [*values[0].captured, *values[1:]]
        if len(self.frames) >= self.max_depth:
            raise LimitError(Diagnostic(f"calls nest more than {self.max_depth} deep, in '{name}'", run.node.span))
        unit = self.units[name]
        if unit.plan.recursive:
            self.levels += unit.plan.peak_bytes + LEVEL_BYTES
            if self.max_bytes is not None and self.levels > self.max_bytes:
                message = f"the levels of the recursion of '{name}' need more than {self.max_bytes} bytes"
                raise LimitError(Diagnostic(message, run.node.span))
        return Activation(unit, args, run)

    def leave(self, caller: Activation, finished: Activation, last: Return) -> None:
        """Gives the results of a finished frame to its caller, which goes on behind the call."""
        if finished.unit.plan.recursive:
            self.levels -= finished.unit.plan.peak_bytes + LEVEL_BYTES
        assert finished.run is not None
        caller.slots[finished.run.target] = tuple(finished.finish(last))
        for s in finished.run.frees:
            caller.slots[s] = None
        caller.at += 1


def step(frame: Activation) -> Run | Return | Stop:
    """Runs a frame up to its next call or meeting, or its return."""
    slots, kernels, code, outs, at = frame.slots, frame.unit.kernels, frame.unit.instructions, frame.outs, frame.at
    taken = frame.unit.taken
    try:
        while True:
            i = code[at]
            if type(i) is Run:
                kernel = kernels[at]
                if kernel is not None:
                    values = [slots[s] for s in i.sources]
                    if at in taken:
                        slots[i.sources[0]] = None
                    slots[i.target] = kernel(values, outs[at])
                elif i.node.op is not PARTIAL:
                    frame.at = at
                    return i
                else:
                    slots[i.target] = FunctionValue(callee_of(i.node), tuple([slots[s] for s in i.sources]))
                for s in i.frees:
                    slots[s] = None
                at += 1
            elif type(i) is Return:
                return i
            else:
                at = _control(i, slots, at)
    except Waiting as e:
        frame.at = at
        assert isinstance(i, Run)
        return Stop(i.node, awaits=str(e))
    except Exception as e:  # told with its source position, or raised again
        fail(e, _node(i))


def _control(i: Move | Pack | Jump | Select | Test | Skip, slots: list[Any], at: int) -> int:
    """Runs an instruction other than Run and Return; gives the position to go on at."""
    to = at + 1
    match i:
        case Move(targets, sources, clears, frees):
            values = [slots[s] for s in sources]
            for s in (*clears, *frees):
                slots[s] = None
            for t, value in zip(targets, values, strict=True):
                slots[t] = value
            return to
        case Jump(to):
            return to
        case Skip(mark, behind):
            if slots[mark]:
                return behind
            slots[mark] = True
            return to
        case Pack(target, sources):
            slots[target] = tuple(slots[s] for s in sources)
        case Select(_, source, targets):
            to = targets[taken_branch(slots[source], len(targets))]
        case Test(_, source, behind):
            to = to if slots[source] else behind
    for s in i.frees:
        slots[s] = None
    return to


def _node(i: Instruction) -> Node | None:
    """The node that an instruction runs or asks; None where it only moves values."""
    return i.node if isinstance(i, (Run, Select, Test)) else None
