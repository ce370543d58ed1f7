"""Names to values while a program is lowered: what makes dataflow of names that are written again and again.

The environment adds to the tables of `names` how they change: names are made, written, renamed and deleted. What is written
must fit the tensor of that name; a node that an instruction makes is known by the name it is written to.
"""

from __future__ import annotations

from deepx_graph.errors import InferError, VerifyError, an
from deepx_graph.ir import Node, Origin
from deepx_graph.ops import ensure_type, reshape
from deepx_graph.text.deepx.reader.instr import Arg
from deepx_graph.text.deepx.reader.names import Bound, NameTables, ReadingFacts, TensorName, stated_dtype
from deepx_graph.text.deepx.reader.scalars import Number
from deepx_graph.types import ANY, DType, TensorType, merge_types, tensor


class Environment(NameTables):
    """The names of one program or function, and what may be done to them."""

    def create(self, arg: Arg, value: Node | None, type: TensorType | None = None, *, may_exist: bool = False) -> TensorName:
        """A new live name. Raises VerifyError when it is live already, unless it may be."""
        old = self.tensors.get(arg.text)
        if old is not None and not may_exist and not old.is_broken:
            self.fail(f"'{arg.text}' is created twice", arg, notes=(f"first in line {self.line_of(old.start)}",),
                      hint="delete it first, or write to it instead")
        if type is None:
            assert value is not None and isinstance(value.type, TensorType)
            type = value.type
        slot = TensorName(type, None if value is None else self.named(value, arg.text), arg.start,
                    self.next_order() if old is None else old.order)
        self.tensors[arg.text] = slot
        self.gone.pop(arg.text, None)
        return slot

    def target(self, arg: Arg, dtype: DType | None) -> TensorType | None:
        """What is known of a tensor about to be written; None for a name nobody created. Raises VerifyError as `write` would."""
        slot = self.tensors.get(arg.text)
        stated = stated_dtype(arg.dtype, dtype)
        if slot is None:
            if arg.text in self.gone or arg.text in self.created:
                self.slot(arg)
            return None if stated is None else tensor(stated, None)
        if slot.is_broken:
            raise VerifyError()
        if stated is not None and slot.type.dtype is not stated:
            if slot.type.dtype is not ANY:
                self.fail(f"'{arg.text}' is {an(slot.type)} and the line says {stated}", arg, expected=f"a tensor of {stated}",
                          notes=(f"created in line {self.line_of(slot.start)}",))
            self.refine(arg, tensor(stated, None))
        return slot.type

    def write(self, arg: Arg, value: Node, *, reshapes: bool = False) -> None:
        """Let the name stand for `value`. The type must fit the tensor of that name; `reshapes` may change its shape.

        A name nobody created is created, in the line forms with a warning; `target` has refused names that may not be
        written. Raises VerifyError when the types do not fit.
        """
        slot = self.tensors.get(arg.text)
        assert isinstance(value.type, TensorType)
        if slot is None:
            self.create(arg, self.fitted(arg, value))
            return
        value = self.fitted(arg, value, reshapes=reshapes)
        assert isinstance(value.type, TensorType)
        if not slot.is_output:  # a parameter that is written from here on counts as made here
            slot.order = self.next_order()
        slot.node, slot.type, slot.is_output, slot.fact = self.named(value, arg.text), value.type, True, None

    def fitted(self, arg: Arg, value: Node, *, reshapes: bool = False) -> Node:
        """The value as the name can stand for it, were it written. Raises VerifyError when the types do not fit."""
        if arg.text not in self.tensors:
            if not self.is_closed:  # in the function form a statement names its results
                self.problems.warn(f"'{arg.text}' was never created", arg.start, arg.end, hint=self.nearest(arg.text))
            return value
        known = self.tensors[arg.text].type
        type = known.with_dims(None) if reshapes else known
        if value.type == type:
            return value
        assert isinstance(value.type, TensorType)
        if value.type.dims == () and type.dims == (1,):  # there are no tensors of rank 0 in deepx
            value = self.b(reshape, value, shape=(1,))
        found = value.type
        assert isinstance(found, TensorType)
        try:
            merged = merge_types(found, type)
        except InferError:
            what = "element type" if found.dtype is not type.dtype else "shape"
            self.fail(f"{what} mismatch: the result is {an(found)} and '{arg.text}' is {an(type)}", arg, expected=str(type),
                      notes=(f"'{arg.text}' is created in line {self.line_of(self.tensors[arg.text].start)}",))
        return value if merged == found else self.b(ensure_type, value, type=merged)

    def named(self, value: Node, name: str) -> Node:
        """The value under its name, where this instruction made it; a value that has a name keeps it."""
        if value.origin is not self.b.origin:
            return value
        return Node(value.op, value.inputs, value.attrs, value.type, Origin(name, value.origin.spans))

    def remove(self, arg: Arg, what: str) -> bool:
        """Let the name stand for nothing, as deleted or renamed; whether it stood for something."""
        found = self.tensors.pop(arg.text, None) or self.arguments.pop(arg.text, None)
        if found is not None:
            self.gone[arg.text] = (what, arg.start)
        return found is not None

    def bind_number(self, out: Arg, value: Number, node: Node | None) -> None:
        """Let a name that nobody created be an argument, with a warning."""
        self.problems.warn(f"'{out.text}' was never created: it stands for a number", out.start, out.end)
        self.arguments[out.text] = Bound(() if node is not None else (value,), None, node)

    def rename(self, old: Arg, new: Arg) -> None:
        """Let another name stand for the tensor; one that stood for something else now no longer does."""
        slot = self.slot(old)
        self.remove(old, f"renamed to '{new.text}'")
        self.tensors[new.text] = slot
        slot.is_output = True
        self.gone.pop(new.text, None)

    def break_name(self, arg: Arg) -> None:
        """After an error: a name that should exist now, whose uses are not to be reported too."""
        if arg.text not in self.tensors:
            self.create(arg, None, tensor(ANY, None)).is_broken = True

    def outputs(self) -> list[tuple[str, Node]]:
        """The live tensors that the program made or changed, oldest first."""
        live = sorted((s.order, n, s.node) for n, s in self.tensors.items() if s.is_output and s.node is not None)
        return [(name, node) for _, name, node in live]

    def facts(self) -> ReadingFacts:
        """What this reading found out."""
        return ReadingFacts(tuple(self.params.values()), dict(self.loads))
