"""Prices of primitives: one table, which names what there is, and orders as the machine does."""

from __future__ import annotations

from deepx_graph.ir.scalar_expr import FUNCTION_PRICE, PRICES, PRIMITIVES, price


def test_prices_are_of_primitives() -> None:
    assert set(PRICES) <= set(PRIMITIVES)
    assert all(p > 1 for p in PRICES.values()), "one addition is the price of what is left out"


def test_what_is_no_primitive_costs_an_addition() -> None:
    assert price("") == price("add") == price("where") == 1


def test_divisions_cost_more_than_additions_and_functions_more_than_divisions() -> None:
    assert price("mul") < price("div") <= price("sqrt") < FUNCTION_PRICE <= price("exp") < price("log") < price("pow")
    slow = {name for name in PRIMITIVES if price(name) >= FUNCTION_PRICE}
    assert {"exp", "tanh", "erf", "pow", "sin"} <= slow
    assert not {"add", "div", "sqrt", "where"} & slow
