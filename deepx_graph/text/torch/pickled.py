"""Tensors of a pickle that `torch.save` wrote, without unpickling: the instructions that such files have, on a stack of plain data.

Nothing is imported and nothing is called: a global is its name, and of the calls only those are understood that put a tensor
together. Any other instruction, global or call is refused. Source: pickletools of Python; torch/_utils.py and
torch/serialization.py.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deepx_graph.errors import Diagnostic, ParseError

STORAGES = {"Float": 7, "Double": 8, "Half": 6, "BFloat16": 13, "Byte": 1, "Char": 2, "Short": 3, "Int": 4, "Long": 5, "Bool": 12,
            "ComplexFloat": 10, "ComplexDouble": 11}  # fmt: skip
"""Element types of torch's typed storages, by the number that the schema of torch.export has for each."""

MAX_INSTRUCTIONS = 5_000_000


@dataclass(frozen=True)
class PickledTensor:
    """A tensor as a pickle tells it: which storage, and where in it its elements are, in elements."""

    storage: str
    dtype: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Global:
    name: str


def tensors_in(data: bytes, name: str) -> dict[str, PickledTensor]:
    """The tensors of a pickled dict by key, or one tensor by the name given. Raises ParseError for anything else."""
    try:
        found = _Machine().run(data)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as e:
        raise ParseError(
            Diagnostic(
                f"'{name}' is a pickle that is not read: {str(e) or type(e).__name__:.100}",
                expected="a dict of tensors as torch.save writes it; nothing else of a pickle is run",
                hint='write it anew with torch 2.8 or later: python -c "import torch; '
                "torch.export.save(torch.export.load('FILE'), 'NEW.pt2')\"",
            ),
        ) from None
    if isinstance(found, PickledTensor):
        return {name: found}
    if not isinstance(found, dict) or not all(isinstance(k, str) for k in found):
        raise ParseError(Diagnostic(f"'{name}' is no dict of tensors", expected="names and tensors"))
    return {k: v for k, v in found.items() if isinstance(v, PickledTensor)}


class _Machine:
    """The pickle machine on data that cannot do anything."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        """Where on the stack the items of tuples, lists and dicts begin."""
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for count, (op, argument, _) in enumerate(pickletools.genops(data)):
            if op.name == "STOP":
                return self.stack.pop()
            if count > MAX_INSTRUCTIONS:
                raise ValueError(f"more than {MAX_INSTRUCTIONS} instructions")
            step = STEPS.get(op.name)
            if step is None:
                raise ValueError(f"the instruction {op.name}")
            step(self, argument)
        raise ValueError("it does not end")

    def marked(self) -> list[Any]:
        """What is above the last mark, taken with it."""
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        rule = CALLS.get(function.name) if isinstance(function, _Global) else None
        if rule is None:
            raise ValueError(f"a call of {getattr(function, 'name', function)!s:.60}")
        self.stack.append(rule(*arguments))

    def into_dict(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise ValueError("items of what is no dict")
        target.update(zip(pairs[::2], pairs[1::2], strict=True))

    def into_list(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ValueError("items of what is no list")
        self.stack[-1].extend(items)

    def stacked(self, count: int) -> tuple[Any, ...]:
        """The last so many items, taken."""
        if len(self.stack) < count:
            raise ValueError("the stack is empty")
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return items


def _storage(kind: Any, *told: Any) -> tuple[str, int]:
    """A storage by its persistent name: ('storage', type, key, device, number of elements)."""
    type, key = told[0], told[1]
    name = type.name.removeprefix("torch ").removesuffix("Storage")
    if kind != "storage" or not isinstance(key, str) or name not in STORAGES:
        raise ValueError(f"a storage of the type {type.name:.60}")
    return key, STORAGES[name]


def _tensor(storage: Any, offset: Any, sizes: Any, strides: Any, *_: Any) -> PickledTensor:
    key, dtype = storage
    return PickledTensor(key, dtype, int(offset), tuple(map(int, sizes)), tuple(map(int, strides)))


CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils _rebuild_tensor_v2": _tensor,
    **dict.fromkeys(("torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state"), lambda tensor, *_: tensor),
    "collections OrderedDict": lambda *items: dict(items[0]) if items else {},
}  # fmt: skip
"""What the calls of such a pickle give."""


def _push(value: Callable[[Any], Any]) -> Callable[[_Machine, Any], None]:
    return lambda m, argument: m.stack.append(value(argument))


def _global(m: _Machine, argument: Any) -> None:
    module, name = m.stacked(2)
    m.stack.append(_Global(f"{module} {name}"))


STEPS: dict[str, Callable[[_Machine, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda m, a: None),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "INT", "LONG", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
                     "UNICODE", "BINUNICODE8"), _push(lambda a: a)),
    "NONE": _push(lambda a: None), "NEWTRUE": _push(lambda a: True), "NEWFALSE": _push(lambda a: False),
    "EMPTY_DICT": _push(lambda a: {}), "EMPTY_LIST": _push(lambda a: []), "EMPTY_TUPLE": _push(lambda a: ()),
    "MARK": lambda m, a: m.marks.append(len(m.stack)), "GLOBAL": _push(lambda a: _Global(a)), "STACK_GLOBAL": _global,
    "TUPLE": lambda m, a: m.stack.append(tuple(m.marked())), "TUPLE1": lambda m, a: m.stack.append(m.stacked(1)),
    "TUPLE2": lambda m, a: m.stack.append(m.stacked(2)), "TUPLE3": lambda m, a: m.stack.append(m.stacked(3)),
    "SETITEM": lambda m, a: m.into_dict(list(m.stacked(2))), "SETITEMS": lambda m, a: m.into_dict(m.marked()),
    "APPEND": lambda m, a: m.into_list(list(m.stacked(1))), "APPENDS": lambda m, a: m.into_list(m.marked()),
    "BINPERSID": lambda m, a: m.stack.append(_storage(*m.stack.pop())), "REDUCE": lambda m, a: m.reduce(),
    "BUILD": lambda m, a: m.stack.pop(),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "PUT"), lambda m, a: m.memo.__setitem__(a, m.stack[-1])),
    "MEMOIZE": lambda m, a: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    **dict.fromkeys(("BINGET", "LONG_BINGET", "GET"), lambda m, a: m.stack.append(m.memo[a])),
}  # fmt: skip
"""What each instruction does."""
