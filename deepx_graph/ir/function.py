"""`Function` and `Module`: closed graphs with names, and the program they make.

Both are frozen; a pass builds new ones and the old stay valid. What is derived (node order, users, structural identity) is
computed once, on demand. A function has no free variables: every parameter its nodes reach is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import Source, Span, UsageError, counted, suggest
from deepx_graph.ir.node import NOWHERE, Node, Notes, Origin, reachable
from deepx_graph.ir.provided import provided
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION
from deepx_graph.types import FunctionType, Type, VarType, is_state, resolve_type

if TYPE_CHECKING:
    import networkx

    from deepx_graph.ir.op import Op

class InNotebook:
    """An object that IPython and Jupyter show by its `_repr_mimebundle_`; as its `repr` where nothing can draw it."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The parts by MIME type; which of them are wanted is the notebook's to choose."""
        show = provided("show")
        shown: dict[str, str] = {"text/plain": repr(self)} if show is None else show(self)
        return shown


class Searched:
    """A program, or a function of one, whose nodes can be asked for."""

    def find(self, query: str) -> list[Node]:
        """The nodes that a query asks for, such as `op:dot_general users>1`, in order; those of the entry first.

        Terms such as `op:add`, `name:~attn`, `type:f32[4,8]`, `users>2`, `bytes>1M`, `flops>1k`, `after:#17` (what depends on a
        node), `has:exponential` (kernels that hold it), `const` and `kernel` stand side by side where all are to hold; `and`, `or`,
        `not` and parentheses join them. `*` in a value stands for anything, `~` begins a regular expression, commas separate
        alternatives; a word alone is looked for in names and operations.

        Raises UsageError, pointing at the mistake, for a query that is none.

        >>> dx.trace(lambda x: x * x + 1, "f32[3]").find("op:multiply")
        [<multiply #...: f32[3]>]
        """
        find = provided("find")
        assert find is not None, "import deepx_graph as dx first"
        found: list[Node] = find(self, query)
        return found


@dataclass(frozen=True, eq=False)
class Function(InNotebook, Searched):
    """A closed graph. `params` are `param` nodes; `results` any nodes, the same one possibly twice; `nodes` all of them,
    each after its inputs.

    As an attribute value (the body of a reduction or fusion) two functions are equal when they have the same structure;
    the name does not count there.

    >>> f = dx.trace(lambda x: x * x, "f32[3]").entry
    >>> [p.name for p in f.params], len(f.nodes), [n.op.name for n in f.find("op:multiply")]
    (['x'], 2, ['multiply'])
    """

    name: str
    params: tuple[Node, ...]
    results: tuple[Node, ...]
    result_names: tuple[str, ...] = ()
    public: bool = True
    vjp: str | None = None
    """The name of the function that is this one's own reverse derivative, if it names one."""
    span: Span | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    """What a text says of the function and nobody here acts on, as name and text."""
    result_notes: tuple[Notes, ...] = ()
    """What a text says of each result beside its value, as of parameters their origins do; none where it says nothing."""
    whole: Origin = NOWHERE
    """What the text says of the tuple of all results, where it has a value of its own."""
    beside: tuple[Node, ...] = ()
    """Values that the results do not need, of which a text says how they lie; nothing runs them, and what has other parameters or
    results has none."""

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Parameters, then every node that a result needs, in topological order."""
        own = set(self.params)
        return (*self.params, *(n for n in reachable(self.results) if n not in own))

    @cached_property
    def users(self) -> Mapping[Node, tuple[Node, ...]]:
        """For each node the nodes that take it as input, once per operand, in order."""
        users: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for node in self.nodes:
            for i in node.inputs:
                users[i].append(node)
        return {n: tuple(u) for n, u in users.items()}

    @cached_property
    def type(self) -> FunctionType:
        """The types of the parameters, and those of the results."""
        return FunctionType(tuple(p.type for p in self.params), tuple(r.type for r in self.results))

    def result_name(self, k: int) -> str:
        """The name of the k-th result: as given, else that of its node, else `out<k>`."""
        if k < len(self.result_names) and self.result_names[k]:
            return self.result_names[k]
        return self.results[k].name or f"out{k}"

    @cached_property
    def structure(self) -> tuple[Any, ...]:
        """A value equal for functions that are the same up to names and node identity."""
        number = {n: k for k, n in enumerate(self.nodes)}
        loops: dict[int, int] = {}
        rows = []
        for n in self.nodes:
            attrs = n.attrs
            if n.op is LOOP_BEGIN:  # a loop's identity is arbitrary: count loops instead
                attrs = (loops.setdefault(attrs[0], len(loops)),)
            elif n.op is PARAM:
                attrs = attrs[:1]
            rows.append((n.op.name, tuple([number[i] for i in n.inputs]), attrs, n.type))
        return tuple(rows), len(self.params), tuple([number[r] for r in self.results])

    @cached_property
    def _hash(self) -> int:
        """That of operations, their attributes and how they are joined; `structure`, which is larger, tells apart those alike."""
        nodes = self.nodes
        number = {n: k for k, n in enumerate(nodes)}
        attrs = [n.attrs for n in nodes if n.attrs and n.op is not LOOP_BEGIN and n.op is not PARAM]
        joined = [number[i] for n in nodes for i in n.inputs]
        return hash((tuple([n.op.name for n in nodes]), tuple(attrs), tuple(joined), self.type))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Function) and self._hash == other._hash and self.structure == other.structure

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def reducer(self) -> Op | None:
        """The op when this is `(a, b) -> op(a, b)` for an op that reduces as a monoid; else None."""
        if len(self.params) != 2 or len(self.results) != 1 or self.results[0].op.monoid is None:
            return None
        inputs = self.results[0].inputs
        both_ways = self.results[0].op.commutative and inputs == self.params[::-1]
        return self.results[0].op if inputs == self.params or both_ways else None

    def with_(self, **changes: Any) -> Function:
        """A copy with some fields replaced."""
        is_other = "params" in changes or "results" in changes
        return replace(self, **({"beside": ()} if is_other else {}) | changes)

    @property
    def with_beside(self) -> Function:
        """The function that also gives the values beside its results; itself where there are none."""
        return self.with_(results=(*self.results, *self.beside)) if self.beside else self

    def to_networkx(self) -> networkx.MultiDiGraph[Any]:
        """The function as a networkx graph; see `Module.to_networkx` for the data that it carries."""
        import networkx  # slow to import

        graph: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph(name=self.name)
        key = {n: (self.name, k) for k, n in enumerate(self.nodes)}
        for n in self.nodes:
            graph.add_node(key[n], node=n, op=n.op.name, type=str(n.type), name=n.name)
            for k, i in enumerate(n.inputs):
                graph.add_edge(key[i], key[n], operand=k, kind=_edge_kind(n, k))
            if n.op is LOOP_END:
                graph.add_edge(key[n], key[n.inputs[0]], operand=-1, kind="back")
        return graph

    def __repr__(self) -> str:
        return f"<function {self.name}: {self.type}>"


def _edge_kind(user: Node, operand: int) -> str:
    source = user.inputs[operand]
    if source.op is LOOP_BEGIN or (user.op is PHI and source.op is REGION):
        return "control"
    if (user.op is REGION and operand == 0) or (user.op is LOOP_END and operand == 1):
        return "control"
    return "effect" if is_state(source.type) else "data"


@dataclass(frozen=True)
class Constructor:
    """A constructor of an algebraic data type: its name and the types of its fields."""

    name: str
    fields: tuple[Type, ...] = ()


@dataclass(frozen=True)
class Data:
    """The declaration of an algebraic data type. The fields' types may name `params`, the type parameters, as VarType."""

    name: str
    params: tuple[str, ...] = ()
    constructors: tuple[Constructor, ...] = ()
    extern: bool = False
    """Declared elsewhere: nothing is known of its constructors."""

    def constructor(self, name: str) -> Constructor | None:
        """The constructor of that name, if there is one."""
        return next((c for c in self.constructors if c.name == name), None)

    def field_types(self, constructor: Constructor, args: Sequence[Type]) -> tuple[Type, ...]:
        """The types of a constructor's fields in the data type applied to `args`."""
        known = {str(VarType(p)): t for p, t in zip(self.params, args, strict=False)}
        return tuple(resolve_type(t, known) for t in constructor.fields)


@dataclass(frozen=True, eq=False)
class Module(InNotebook, Searched):
    """A program: functions in order, one of them the entry. `print` shows its text; `m["name"]` is a function of it.

    Raises UsageError for a function that there is not. It can be pickled; as with every pickle, load only what comes from where
    you trust.

    >>> m = dx.trace(lambda x: x * x, "f32[3]")
    >>> m, m.entry_name, [f.name for f in m.functions]
    (<module main: 1 function, 2 nodes>, 'main', ['main'])
    """

    functions: tuple[Function, ...]
    entry_name: str = "main"
    source: Source | None = None
    format: str = ""
    """The format it was read from; empty when it was built."""
    datas: tuple[Data, ...] = ()
    """The algebraic data types that its functions use."""
    name: str = ""
    """What its text calls the whole program; often nothing."""
    notes: Notes = ()
    """What its text says of the whole, beside what it computes."""

    @cached_property
    def _by_name(self) -> dict[str, Function]:
        return {f.name: f for f in self.functions}

    @cached_property
    def data_named(self) -> Mapping[str, Data]:
        """The algebraic data types by name."""
        return {d.name: d for d in self.datas}

    def __getitem__(self, name: str) -> Function:
        """The function of that name. Raises UsageError when there is none."""
        if name not in self._by_name:
            raise UsageError(f"no function '{name}'" + (f": {s}" if (s := suggest(name, self._by_name)) else ""))
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @property
    def entry(self) -> Function:
        """The function that runs. Raises UsageError where there is none of that name."""
        return self[self.entry_name]

    @property
    def entry_first(self) -> tuple[Function, ...]:
        """The functions, the entry before the others."""
        return (self.entry, *(f for f in self.functions if f is not self.entry))

    def with_functions(self, functions: Iterable[Function]) -> Module:
        """The same program with these functions instead; itself when they are the same objects. The text's notes on the whole
        are dropped with the type of the entry that they are about.
        """
        functions = tuple(functions)
        if len(functions) == len(self.functions) and all(map(is_, functions, self.functions)):
            return self
        after = replace(self, functions=functions)
        unchanged = self.entry_name in after and after.entry.type == self.entry.type
        return after if unchanged else replace(after, notes=())

    def __repr__(self) -> str:
        count = sum(len(f.nodes) for f in self.functions)
        return f"<module {self.name or self.entry_name}: {counted(len(self.functions), 'function')}, {counted(count, 'node')}>"

    def __str__(self) -> str:
        """The program as text, in the language that it was read from where that is written, else in our own."""
        text = provided("text")
        return repr(self) if text is None else str(text(self))

    def with_entry(self, name: str) -> Module:
        """The same program entered at another function."""
        return replace(self, entry_name=self[name].name)

    def to_networkx(self) -> networkx.MultiDiGraph[Any]:
        """The whole program as a networkx graph: one node per `(function name, number)`, input -> user edges.

        Node data: `node`, `op`, `type`, `name`; edge data: `operand` (position) and `kind` (data, control, effect, back).
        """
        import networkx

        graph: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
        for function in self.functions:
            graph.update(function.to_networkx())
        return graph
