"""One instruction at work: its operands read by the roles that its rule gives them, and what rules need to build nodes.

A `Rule` is a row of the table in `rules`: a deepx op with the roles of its operands and the function that lowers it. Roles are

    T tensor   I tensor of indices   E tensor or scalar   P as E, whatever its stated type   S scalar   A integer known now
    V integers known now (a shape, dims)   B bool known now   L list of tensors   X text   D element type

and a `?` after one makes it optional. How operands are written (numbers in a row, a named vector, `[..]`) does not matter to rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np

from deepx_graph.errors import an
from deepx_graph.ir import Builder, Node, Origin
from deepx_graph.ops import ensure_type
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.deepx.reader.environment import Environment
from deepx_graph.text.deepx.reader.functions import parse_dims
from deepx_graph.text.deepx.reader.instr import DTYPE_WORDS, SHORT_DTYPES, Arg, Instr, Number, parse_bool, parse_number
from deepx_graph.types import Dim, DType, TensorType


@dataclass(frozen=True)
class DeepxRule:
    """The lowering of one deepx op.

    `make(line, *operands)` gives the value that is written to the one result, or None when there is nothing to write; an op that
    does something else has `act(line)`. `typed` says whether `@T` states the element type of all tensors, of the inputs, or
    of neither. `fills` marks ops whose result dialect D writes among the inputs; `creates` gives the names an instruction makes.
    """

    names: tuple[str, ...]
    roles: tuple[str, ...]
    make: Callable[..., Node | None] | None = None
    act: Callable[[Line], None] | None = None
    typed: str = "all"
    fills: bool = False
    reshapes: bool = False
    has_effect: bool = False
    needs_arrow: bool = True
    creates: Callable[[Instr], Sequence[Arg]] | None = None

    @cached_property
    def slots(self) -> tuple[tuple[str, bool, int], ...]:
        """Per role its letter, whether it is optional, and how many roles after it are not."""
        needed = [not r.endswith("?") for r in self.roles]
        return tuple((r[0], not needed[k], sum(needed[k + 1 :])) for k, r in enumerate(self.roles))

    @property
    def signature(self) -> str:
        """The operands that the op takes, for error messages."""
        words = {"T": "tensor", "I": "index tensor", "E": "tensor or scalar", "P": "tensor", "S": "scalar", "A": "integer",
                 "V": "integers", "B": "bool", "L": "tensors", "X": "text", "D": "element type"}  # fmt: skip
        shown = ", ".join(f"[{words[r[0]]}]" if r.endswith("?") else words[r] for r in self.roles)
        return f"{self.names[0]}({shown})"


class Scalar(NamedTuple):
    """A scalar operand: a number, or the node of a parameter."""

    arg: Arg
    value: Number = 0
    node: Node | None = None


class Line:
    """An instruction with its rule, its environment, and the type of what it writes (None when nobody created that)."""

    def __init__(self, env: Environment, options: ReadOptions, instr: Instr, rule: DeepxRule) -> None:
        self.env, self.options, self.instr, self.rule = env, options, instr, rule
        self.b: Builder = env.b
        self.origin = Origin("", (env.problems.span(instr.start, instr.end),))
        self.b.origin = self.origin
        self.dtype = instr.dtype if rule.typed != "none" else None
        self.inputs, self.outputs = instr.inputs, instr.outputs
        self.read: list[tuple[Arg, Node]] = []
        self.listed: tuple[Arg, ...] = ()
        self.target: TensorType | None = None
        if rule.fills and not self.outputs and self.inputs and parse_number(self.inputs[0].text) is None:
            self.inputs, self.outputs = self.inputs[1:], self.inputs[:1]

    def fail(self, message: str, arg: Arg | None = None, **more: Any) -> NoReturn:
        self.env.fail(message, arg or self.instr.op, **more)

    def only_output(self, does: str, expected: str | None = None) -> Arg:
        """The one name that the instruction does something to. Raises VerifyError when there are none or several."""
        if len(self.outputs) != 1:
            self.fail(f"{self.instr.op.text} {does} and got {len(self.outputs)}", self.outputs[1] if self.outputs else None,
                      expected=expected or f"{self.rule.signature} -> (name)")
        return self.outputs[0]

    def result(self) -> Arg:
        """The one name that the instruction writes; also finds `target`. Raises VerifyError when there are none or several."""
        out = self.only_output("writes 1 result", f"{self.rule.signature} -> (result)")
        self.target = self.env.target(out, self.dtype if self.rule.typed == "all" else None)
        return out

    # --- matching operands to roles

    def operands(self) -> list[Any]:
        """The operands by role. Raises VerifyError at the first that does not fit."""
        found: list[Any] = []
        at = 0
        for kind, is_optional, later in self.rule.slots:
            left = len(self.inputs) - at
            if left - later < 1 or (is_optional and kind == "V" and parse_bool(self.inputs[at].text) is not None):
                if is_optional:
                    found.append(None)
                    continue
                self._wrong_count()
            taken = self._run_length(kind, at, left - later)
            args = self.inputs[at : at + taken]
            found.append(_READERS[kind](self, args) if kind in "VL" else _READERS[kind](self, args[0]))
            at += taken
        if at < len(self.inputs):
            self._wrong_count(self.inputs[at])
        return found

    def _run_length(self, kind: str, at: int, most: int) -> int:
        """The number of operands in a list that is written without brackets: numbers in a row, or names in a row."""
        if kind not in "VL" or self.inputs[at].items is not None or self.inputs[at].category:
            return 1
        is_list = kind == "V"
        run = 0
        while run < most and (parse_number(self.inputs[at + run].text) is not None) == is_list:
            run += 1
        return max(run, 1)

    def _wrong_count(self, arg: Arg | None = None) -> NoReturn:
        self.fail(f"{self.instr.op.text} got {len(self.inputs)} operand{'s' * (len(self.inputs) != 1)}", arg,
                  expected=self.rule.signature)

    def tensor(self, arg: Arg, *, hint: bool = True) -> Node:
        """The value of a tensor operand. A value that stands twice in a backward line gets a node for each, to tell them apart."""
        if arg.items is not None or arg.category in ("vector", "var", "listtensor"):
            self.fail(f"'{arg.text}' is not a tensor", arg, expected=self.rule.signature)
        node = self.env.read(arg, self.dtype if hint else None)
        if hint and self.instr.backward:
            if any(node is n for _, n in self.read):
                node = self.b(ensure_type, node, type=node.type)
            self.read.append((arg, node))
        return node

    def either(self, arg: Arg, *, strict: bool = True) -> Node | Scalar:
        """A tensor, or a scalar where the operand is a number or the name of an argument."""
        is_argument = arg.text in self.env.arguments and arg.text not in self.env.tensors
        if arg.category in ("", "var") and (is_argument or parse_number(arg.text) is not None):
            return self.scalar(arg)
        return self.tensor(arg) if strict else self.env.read(arg, self.dtype, strict=False)

    def scalar(self, arg: Arg) -> Scalar:
        value = parse_number(arg.text) if arg.category in ("", "var") else None
        if value is not None:
            return Scalar(arg, value)
        if arg.items is not None or arg.category not in ("", "var"):
            self.fail(f"'{arg.text}' is not a scalar", arg, expected=self.rule.signature)
        if not arg.text:
            self.fail("a scalar is missing", arg, expected=self.rule.signature)
        bound = self.env.argument(arg, self.dtype or (None if self.target is None else self.target.dtype))
        if bound.node is not None:
            return Scalar(arg, node=bound.node)
        if len(bound.values) != 1 or isinstance(bound.values[0], str):
            self.fail(f"'{arg.text}' has {len(bound.values)} values", arg, expected="one number")
        return Scalar(arg, bound.values[0])

    def integers(self, args: Sequence[Arg]) -> tuple[Dim, ...]:
        """Numbers in a row, a `[list]`, a named vector, or a shape like `2x?1`."""
        found: list[Dim] = []
        for arg in args:
            items = (arg,) if arg.items is None else arg.items
            for item in items:
                found += self._integer_item(item)
        return tuple(found)

    def _integer_item(self, item: Arg) -> Sequence[Dim]:
        number = parse_number(item.text)
        if number is None and item.text[:1] in "?0123456789" and item.text:
            dims = parse_dims(item.text, f"{item.text}@{item.start}")
            if dims is not None:
                return dims
        if number is None and item.category == "string":
            return [self._whole(parse_number(word), item) for word in item.text.split()]
        if number is not None:
            return (self._whole(number, item),)
        if item.text not in self.env.arguments:
            if item.text in self.env.tensors:
                self.fail(f"'{item.text}' is a tensor", item, expected="integers, or the name of a vector set before")
            self.fail(f"no vector '{item.text}' is set", item, expected="integers, or the name of a vector set before",
                      hint=self.env.nearest(item.text))
        bound = self.env.arguments[item.text]
        if bound.node is not None:
            self.fail(f"'{item.text}' is a parameter", item, expected="integers known when the file is read")
        return [v if isinstance(v, str) else self._whole(v, item) for v in bound.values]

    def _whole(self, value: Number | None, arg: Arg) -> int:
        if value is None or value != value or value in (np.inf, -np.inf) or int(value) != value or abs(value) >= 1 << 63:
            self.fail(f"'{arg.text}' is not an integer", arg, expected="an integer")
        return int(value)

    def integer(self, arg: Arg) -> int:
        found = self.integers((arg,))
        if len(found) != 1 or isinstance(found[0], str):
            self.fail(f"'{arg.text}' is not one integer", arg, expected="an integer")
        return found[0]

    def boolean(self, arg: Arg) -> bool:
        value = parse_bool(arg.text)
        if value is None:
            bound = self.env.arguments.get(arg.text)
            if bound is None or len(bound.values) != 1 or bound.values[0] not in (0, 1):
                self.fail(f"'{arg.text}' is not a bool", arg, expected="true or false")
            value = bound.values[0] == 1
        return value

    def tensors(self, args: Sequence[Arg]) -> list[Node]:
        names = args[0].items if len(args) == 1 and args[0].items is not None else args
        if not names:
            self.fail("an empty list of tensors", args[0], expected="[tensor tensor ...]")
        self.listed = tuple(names)
        return [self.tensor(a._replace(dtype=args[0].dtype if len(args) == 1 else a.dtype, category="tensor")) for a in names]

    def element_type(self, arg: Arg) -> DType:
        found = SHORT_DTYPES.get(arg.text) or DTYPE_WORDS.get(arg.text)
        if found is None:
            self.fail(f"unknown element type '{arg.text}'", arg, expected=", ".join(DTYPE_WORDS))
        return found

    def known_target(self) -> TensorType:
        """The type of what is written. Raises VerifyError when its shape or dtype is not known."""
        out = self.outputs[0]
        if self.target is None or self.target.dims is None or self.target.dtype.np is None:
            unknown = "was never created" if out.text not in self.env.tensors else f"is {an(self.target)}"
            self.fail(f"'{out.text}' {unknown}: {self.instr.op.text} needs its shape", out,
                      expected="a tensor made by newtensor", hint=self.env.nearest(out.text))
        return self.target


_READERS: dict[str, Callable[..., Any]] = {
    "T": Line.tensor, "I": lambda line, arg: line.tensor(arg, hint=False), "E": Line.either,
    "P": lambda line, arg: line.either(arg, strict=False), "S": Line.scalar, "A": Line.integer, "V": Line.integers,
    "B": Line.boolean, "L": Line.tensors, "X": lambda line, arg: arg.text, "D": Line.element_type,
}  # fmt: skip
