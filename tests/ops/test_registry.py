"""The table of ops holds what the modules of `ops/` declare, and the package has it by name."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import walk_packages

from deepx_graph import ops
from deepx_graph.ir import Op
from deepx_graph.ir.op import declared
from tests.support.sources import source_files


def test_every_declaration_is_in_the_table() -> None:
    for found in walk_packages(ops.__path__, "deepx_graph.ops."):
        module = import_module(found.name)
        for name, value in vars(module).items():
            assert not isinstance(value, Op) or ops.OPS.get(value.name) is value, f"{found.name}.{name} is not annotated `: Op`"


def test_each_op_is_an_attribute_of_the_package_by_a_name_of_its_own() -> None:
    assert {op for op in vars(ops).values() if isinstance(op, Op)} == set(ops.OPS.values())


def test_declared_are_the_annotated_names_in_order() -> None:
    module = {"__annotations__": {"b": "Op", "a": Op, "n": "int"}, "a": 1, "b": 2, "n": 3, "c": 4}
    assert list(declared(module).items()) == [("b", 2), ("a", 1)]


def test_names_of_the_package_exist_where_they_are_used() -> None:
    """Type checkers see all that a family module defines; the package has its ops."""
    for path in source_files():
        text = path.read_text(encoding="utf-8")
        used = re.findall(r"(?<![\w.])ops\.([a-z]\w*)", text) if "from deepx_graph import ops\n" in text else []
        assert [name for name in used if not hasattr(ops, name)] == [], path
