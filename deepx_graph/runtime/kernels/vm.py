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

from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.program import Array, Call, Program, Register, Step

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
    codes = [CODES.get(registers[r].dtype) for r in (step.target, *_operands(step))]
    return None if None in codes else "".join(c for c in codes if c)


def _operands(step: Step) -> tuple[int, ...]:
    """The sources, without the scratch register that numpy's `where` takes."""
    return step.sources[:3]


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

    steps: list[Step]
    needs: set[int]
    outputs: set[int] = field(default_factory=set)

    def fits(self, step: Step, registers: Sequence[Register]) -> bool:
        after = (self.needs - {step.target}) | set(_operands(step))
        return (
            registers[step.target].shape == registers[self.steps[0].target].shape
            and len(self.steps) < costs.VM_STEPS
            and len(after) <= costs.VM_INPUTS
            and len(after) + len(self.steps) < costs.VM_REGISTERS
        )

    def take(self, step: Step) -> None:
        self.steps.append(step)
        self.needs = (self.needs - {step.target}) | set(_operands(step))


def grouped(program: Program) -> Program:
    """The program with every run of steps that the machine does faster replaced by one step; itself when it is too large."""
    if not program.steps or max(r.size for r in program.registers) > costs.VM_ELEMENTS:
        return program
    constants = {r: array for r, array in program.constants if array.size == 1}
    replaced: dict[int, Step] = {}
    inside: set[int] = set()
    for group in _groups(program):
        inputs = sorted(group.needs - constants.keys())
        elements = program.registers[group.steps[0].target].size
        gain = costs.ufunc_price(len(group.steps), elements) - costs.vm_price(len(group.steps), len(inputs), elements)
        if inputs and gain > 0:
            replaced[group.steps[0].target] = _machine_step(group.steps[::-1], inputs, constants, program.registers)
            inside.update(s.target for s in group.steps[1:])
    steps = [replaced.get(s.target, s) for s in program.steps if s.target not in inside]
    needed = {r for s in steps for r in s.sources} | set(program.results)
    return replace(program, steps=tuple(s for s in steps if s.target in needed))


def _groups(program: Program) -> list[_Group]:
    """Every step that the machine does belongs to one group: its only user's where it fits, else it begins its own."""
    group_of: dict[int, _Group] = {}
    users: dict[int, list[Step]] = {}
    groups: list[_Group] = []
    for step in program.steps:
        for s in set(step.sources):
            users.setdefault(s, []).append(step)
    for step in reversed(program.steps):
        if _instruction(step, program.registers) is None:
            continue
        homes = {group_of.get(u.target) for u in users.get(step.target, ())}
        home = next(iter(homes)) if len(homes) == 1 and step.target not in program.results else None
        if home is None or not home.fits(step, program.registers):
            home = _Group([], set())
            groups.append(home)
        home.take(step)
        group_of[step.target] = home
    return groups


def _machine_step(steps: Sequence[Step], inputs: Sequence[int], constants: Mapping[int, Array],
                  registers: Sequence[Register]) -> Step:
    """One step for a group, in order of execution; the last step's target is the result."""
    used = [c for c in constants if any(c in _operands(s) for s in steps)]
    number = {r: 1 + k for k, r in enumerate([*inputs, *used])}
    number[steps[-1].target] = 0
    temporaries = _number_temporaries(steps, registers, number)
    code = b"".join(_encoded(s, registers, number) for s in steps)
    signature = "".join(CODES[registers[r].dtype] for r in inputs)
    values = tuple(_constant(constants[c]) for c in used)
    made = _Machine(signature.encode(), temporaries.encode(), code, values)
    return Step(steps[-1].target, tuple(inputs), made, "vm")


def _number_temporaries(steps: Sequence[Step], registers: Sequence[Register], number: dict[int, int]) -> str:
    """Gives every inner register a number, reusing those whose value is spent, and returns the types of the numbers given."""
    first = max(number.values()) + 1
    last = {s: k for k, step in enumerate(steps) for s in _operands(step)}
    free: dict[str, list[int]] = {}
    types = ""
    for k, step in enumerate(steps):
        for s in dict.fromkeys(_operands(step)):
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
    operands = [number[r] for r in _operands(step)] + ([] if function is None else [function])
    padded = operands + [NONE] * (2 if len(operands) <= 2 else 5)
    code = bytes((interpreter.opcodes[name], number[step.target], padded[0], padded[1]))
    if len(operands) > 2:
        code += bytes((interpreter.opcodes[b"noop"], padded[2], NONE, NONE))
    return code


def _constant(array: Array) -> Any:
    """A constant in the Python or numpy type by which the machine tells its type."""
    value = array.reshape(())[()]
    return bool(value) if array.dtype.kind == "b" else value


class _Machine:
    """Makes the callable of a program: a new `NumExpr` object each time."""

    __slots__ = ("_parts",)

    def __init__(self, signature: bytes, temporaries: bytes, code: bytes, constants: tuple[Any, ...]) -> None:
        names = tuple(f"v{k}" for k in range(len(signature)))
        self._parts = (signature, temporaries, code, constants, names)

    def __call__(self) -> Call:
        from numexpr import interpreter

        run = interpreter.NumExpr(*self._parts)

        def call(*args: Array) -> None:
            run(*args[:-1], out=args[-1], ex_uses_vml=False)

        return call
