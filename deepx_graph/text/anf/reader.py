"""Reading A-normal form: heads of all definitions first, then each body as nodes.

Types on lets are checked against what the ops infer, and kept where they say more; they may be left out. A `letrec` is a loop: one
side of the branch that ends its function calls it again, with nothing left to do; any other recursion needs a `define`. Only
nesting of branches, loops and lambdas recurses, within the bound on depth; a run of lets does not.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Diagnostic, ParseError, Source, VerifyError, suggest
from deepx_graph.ir import Constructor, Data, Function, Module
from deepx_graph.ir.structure import PARAM
from deepx_graph.text.anf.expressions import Expressions, Head, NestedScope
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.sea.cursor import SeaCursor
from deepx_graph.types import Type, compatible

VERSION = 1
_HEADER = re.compile(r"anf[ \t]+(\d{1,9})\b")
_DEPTH_LIMIT = 100
"""The reader recurses over nested branches, loops and lambdas; beyond this Python's own stack would end first."""
_LAMBDA = re.compile(r"\((?:\s|;[^\n]*)*+lambda\b")


class AnfReader:
    """Reads one text; `module` does it all."""

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.source, self.options = source, options
        self.cursor = SeaCursor(source, min(options.max_depth, _DEPTH_LIMIT), options.max_rank, self._lambda,
                                comment=";", begins=_LAMBDA)
        self.heads: dict[str, Head] = {}
        self.body = Expressions(self.cursor, self.heads, options.max_nodes)

    def module(self) -> Module:
        """The module. Raises ParseError, VerifyError, LimitError."""
        c = self.cursor
        header = c.match(_HEADER)
        if header is None:
            c.mismatch(f"anf {VERSION}")
        if int(header[1]) != VERSION:
            c.fail(f"found version {header[1]}", expected=f"anf {VERSION}")
        c.expect("(")
        c.expect_word("entry")
        entry = c.at_name("the name of the entry function")
        c.expect(")")
        datas = []
        while c.skip() < len(c.text):
            if self.body.form("data"):
                datas.append(self._data())
            elif self.body.form("define"):
                self._define()
            else:
                c.mismatch("(define ...) or (data ...)")
        if entry not in self.heads:
            raise ParseError(Diagnostic(f"the entry '{entry}' is no function of the text",
                                        c.span(header.start(), header.end()), hint=suggest(entry, self.heads)))
        return Module(tuple(map(self._function, self.heads.values())), entry, self.source, "anf", tuple(datas))

    # --- definitions

    def _data(self) -> Data:
        """Passes, behind `(data`, `@List ($A) (Cons $A @List<$A>) (Nil))`."""
        c, constructors = self.cursor, list[Constructor]()
        extern = c.accept_word("extern")
        name = c.at_name("the name of the data type")
        c.expect("(", "around the type parameters")
        params = self.body.several(c.type_param)
        while not c.accept(")"):
            c.expect("(", "around a constructor")
            constructors.append(Constructor(c.name("the name of a constructor"), tuple(self.body.several(c.type))))
        return Data(name, tuple(params), tuple(constructors), extern)

    def _define(self) -> None:
        """Passes a definition, behind `(define`, and remembers where its body is."""
        c = self.cursor
        start = c.at
        public = c.accept_word("public")
        c.expect("(", "around the function's name and parameters")
        name = c.at_name("the function's name")
        head = self._signature(name, public, start)
        if name in self.heads:
            c.fail(f"two functions are named '{name}'", start, c.at)
        self.heads[name] = head
        c.at = self.body.end_of_form()
        c.expect(")", "after the body")

    def _param(self) -> tuple[str, Type, int]:
        """Passes `(%x : T)`."""
        c = self.cursor
        c.expect("(", "around a parameter")
        at = c.skip()
        word = c.value_name()
        c.expect(":")
        found = word, c.type(), at
        c.expect(")")
        return found

    def _signature(self, name: str, public: bool, start: int) -> Head:
        """Passes `(%x : T)) -> ((%y : T)) [vjp @g] [with a = "text"]`, the parameters behind their bracket."""
        c = self.cursor
        params = self.body.several(self._param)
        c.expect("->")
        c.expect("(", "around the results")
        results = [(c.plain_name(word), type) for word, type, _ in self.body.several(self._param)]
        vjp = c.at_name("the name of the derivative") if c.accept_word("vjp") else None
        attributes = c.function_attributes("(", "%", "@")
        return Head(name, params, results, public, vjp, attributes, start, c.skip())

    def _function(self, head: Head) -> Function:
        """Passes the body of a function."""
        scope, self.cursor.at = NestedScope(), head.body
        params = [self.body.node(PARAM, (), (k, t), t, word, at) for k, (word, t, at) in enumerate(head.params)]
        for (word, _, at), node in zip(head.params, params, strict=True):
            if word in scope.values:
                self.cursor.fail(f"two parameters are named {word}", at, at + len(word))
            scope.define(word, node)
        nodes = self.body.expression(scope)
        given, types = [n.type for n in nodes], [t for _, t in head.results]
        span = self.cursor.span(head.start, head.body)
        if len(given) != len(types) or not all(map(compatible, given, types)):
            raise VerifyError(Diagnostic(f"the body gives ({', '.join(map(str, given))})", span,
                                         expected=f"({', '.join(map(str, types))}), as the head of the function says"))
        return Function(head.name, tuple(params), tuple(nodes), tuple(n for n, _ in head.results), head.public, head.vjp,
                        span, head.attributes)

    def _lambda(self) -> Function:
        """Passes `(lambda [@f] ((%x : T)) -> ((%y : T)) body)`: a function as the value of an attribute."""
        c = self.cursor
        start = c.at
        self.body.form("lambda")
        name = c.at_name("the function's name") if c.peek("@") else "lambda"
        c.expect("(", "around the parameters")
        function = self._function(self._signature(name, True, start))
        c.expect(")")
        return function
