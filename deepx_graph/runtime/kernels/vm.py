"""Small arithmetic through numexpr's virtual machine: its programs are written here, byte by byte, and no text is evaluated.

A run of steps that meet in one register becomes one `NumExpr` object. The machine's registers are 0 for the result, then inputs,
constants and temporaries; an instruction is (opcode, target, source, source), a third source following in a `noop`. One object
has one set of registers, so every workspace makes its own: two threads on one object would corrupt the heap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Register, Step

CODES: dict[np.dtype[Any], str] = {
    np.dtype(np.bool_): "b", np.dtype(np.int32): "i", np.dtype(np.int64): "l", np.dtype(np.float32): "f", np.dtype(np.float64): "d",
}  # fmt: skip
_OPCODES: dict[str, tuple[str, str]] = {
    "add": ("add", "ilfd"), "sub": ("sub", "ilfd"), "mul": ("mul", "ilfd"), "div": ("div", "fd"), "neg": ("neg", "ilfd"),
    "sqrt": ("sqrt", "fd"), "where": ("where", "bilfd"), "and": ("and", "bil"), "or": ("or", "bil"), "xor": ("xor", "bil"),
    "not": ("invert", "bil"), "eq": ("eq", "bilfd"), "ne": ("ne", "bilfd"), "lt": ("lt", "ilfd"), "le": ("le", "ilfd"),
    "gt": ("gt", "ilfd"), "ge": ("ge", "ilfd"),
}  # fmt: skip
"""Primitive to the machine's name for it, and the type codes for which it gives the very bits that numpy gives."""
_FUNCTIONS: dict[str, tuple[str, str]] = {
    "max": ("maximum", "fd"), "min": ("minimum", "fd"), "abs": ("absolute", "fd"), "floor": ("floor", "fd"), "ceil": ("ceil", "fd"),
}  # fmt: skip
_CASTS = frozenset(("ib", "li", "fi", "fl", "di", "dl", "df"))
NONE = 255


def _signature(step: Step, registers: Sequence[Register]) -> str | None:
    """The type codes of target and sources; None where the machine does not know one."""
    codes = [CODES.get(registers[r].dtype) for r in (step.target, *step.sources)]
    return None if None in codes else "".join(c for c in codes if c)


def _instruction(step: Step, registers: Sequence[Register]) -> tuple[bytes, int | None] | None:
    """The opcode's name and, for a function call, the function's number; None for a step that the machine does not do."""
    from numexpr import interpreter

    signature = _signature(step, registers)
    if signature is None:
        return None
    if step.primitive in _OPCODES and signature[-1] in _OPCODES[step.primitive][1]:
        name = f"{_OPCODES[step.primitive][0]}_{signature}".encode()
        return (name, None) if name in interpreter.opcodes else None
    if step.primitive in _FUNCTIONS and signature[-1] in _FUNCTIONS[step.primitive][1]:
        number = interpreter.funccodes.get(f"{_FUNCTIONS[step.primitive][0]}_{signature}".encode())
        return None if number is None else (f"func_{signature}n".encode(), number)
    if step.primitive == "cast" and signature in _CASTS:
        return f"cast_{signature}".encode(), None
    return None


@dataclass(eq=False)
class _Group:
    """Steps, last one first, that meet in the target of the first; `needs` are the registers read from outside."""

    steps: list[Step] = field(default_factory=list)
    needs: set[int] = field(default_factory=set)

    def fits(self, step: Step, registers: Sequence[Register]) -> bool:
        after = (self.needs - {step.target}) | set(step.sources)
        return (
            registers[step.target].shape == registers[self.steps[0].target].shape
            and len(self.steps) < costs.VM_STEPS
            and len(after) <= costs.VM_INPUTS
        )

    def take(self, step: Step) -> None:
        self.steps.append(step)
        self.needs = (self.needs - {step.target}) | set(step.sources)


def grouped(program: KernelProgram) -> KernelProgram:
    """The program with runs of steps that the machine does faster replaced by one step each; itself when it is too large."""
    if not program.steps or max(r.size for r in program.registers) > costs.VM_ELEMENTS:
        return program
    return replace(program, steps=_replaced(program, _partition(program)))


def _replaced(program: KernelProgram, groups: Sequence[_Group]) -> tuple[Step, ...]:
    """The steps with every group that is faster in the machine as one step, and without those that nobody needs any more."""
    constants = {r: array for r, array in program.constants if array.size == 1}
    made: dict[int, Step] = {}
    for group in groups:
        inputs = sorted(group.needs - constants.keys())
        elements = program.registers[group.steps[0].target].size
        count, c = len(group.steps), cost_file.constants()
        if inputs and cost.vm_ns(c, count, len(inputs), elements) < count * cost.ufunc_ns(c, elements):
            step = _machine_step(group.steps[::-1], inputs, constants, program.registers)
            if step is not None:
                made[step.target] = step
    needed, kept = set(program.results), []
    for old in reversed(program.steps):
        if old.target in needed:
            kept.append(made.get(old.target, old))
            needed.update(kept[-1].sources)
    return tuple(reversed(kept))


def _partition(program: KernelProgram) -> list[_Group]:
    """Every step that the machine does in one group: its only user's where it fits, else it begins its own."""
    group_of: dict[int, _Group] = {}
    users = _users(program)
    groups: list[_Group] = []
    for step in reversed(program.steps):
        if _instruction(step, program.registers) is None:
            continue
        candidates = {group_of.get(u.target) for u in users.get(step.target, ())}
        group = next(iter(candidates)) if len(candidates) == 1 and step.target not in program.results else None
        if group is None or not group.fits(step, program.registers):
            group = _Group()
            groups.append(group)
        group.take(step)
        group_of[step.target] = group
    return groups


def _users(program: KernelProgram) -> dict[int, list[Step]]:
    users: dict[int, list[Step]] = {}
    for step in program.steps:
        for s in set(step.sources):
            users.setdefault(s, []).append(step)
    return users


def _machine_step(steps: Sequence[Step], inputs: Sequence[int], constants: Mapping[int, Array],
                  registers: Sequence[Register]) -> Step | None:
    """One step for a group, in order of execution; the last step's target is the result. None where registers run out."""
    used = [c for c in dict.fromkeys(r for s in steps for r in s.sources) if c in constants]
    number = {r: 1 + k for k, r in enumerate([*inputs, *used])}
    number[steps[-1].target] = 0
    temporaries = _number_temporaries(steps, registers, number)
    if len(inputs) + len(used) + len(temporaries) > costs.VM_REGISTERS:
        return None
    code = b"".join(_encoded(s, registers, number) for s in steps)
    signature = "".join(CODES[registers[r].dtype] for r in inputs)
    values = tuple(_constant(constants[c]) for c in used)
    made = Machine(len(steps), (signature.encode(), temporaries.encode(), code, values))
    return Step(steps[-1].target, tuple(inputs), made, "vm")


def _number_temporaries(steps: Sequence[Step], registers: Sequence[Register], number: dict[int, int]) -> str:
    """Gives every inner register a number, reusing those whose value is spent, and returns the types of the numbers given."""
    first = max(number.values()) + 1
    last = {s: k for k, step in enumerate(steps) for s in step.sources}
    free: dict[str, list[int]] = {}
    types = ""
    for k, step in enumerate(steps):
        for s in dict.fromkeys(step.sources):
            if number[s] >= first and last[s] == k:
                free.setdefault(CODES[registers[s].dtype], []).append(number[s])
        if step.target not in number:
            code = CODES[registers[step.target].dtype]
            if not free.get(code):
                free.setdefault(code, []).append(first + len(types))
                types += code
            number[step.target] = free[code].pop()
    return types


def _encoded(step: Step, registers: Sequence[Register], number: Mapping[int, int]) -> bytes:
    from numexpr import interpreter

    found = _instruction(step, registers)
    assert found is not None
    name, function = found
    operands = [number[r] for r in step.sources] + ([] if function is None else [function])
    padded = operands + [NONE] * (2 if len(operands) <= 2 else 5)
    code = bytes((interpreter.opcodes[name], number[step.target], padded[0], padded[1]))
    if len(operands) > 2:
        code += bytes((interpreter.opcodes[b"noop"], padded[2], NONE, NONE))
    return code


def _constant(array: Array) -> Any:
    """A constant in the Python or numpy type by which the machine tells its type."""
    value = array.reshape(())[()]
    return bool(value) if array.dtype.kind == "b" else value


class Machine:
    """The callable of a program, with registers of its own: not to be called by two threads at once."""

    __slots__ = ("_parts", "_run", "steps")

    def __init__(self, steps: int, parts: tuple[bytes, bytes, bytes, tuple[Any, ...]]) -> None:
        from numexpr import interpreter

        self.steps, self._parts = steps, parts
        self._run = interpreter.NumExpr(*parts, tuple(f"v{k}" for k in range(len(parts[0]))))

    def apart(self) -> Machine:
        """Another one of the same program."""
        return Machine(self.steps, self._parts)

    def __call__(self, *args: Array) -> None:
        self._run(*args[:-1], out=args[-1], ex_uses_vml=False)
