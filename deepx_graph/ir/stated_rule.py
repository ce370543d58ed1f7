"""The rules of operations as texts state them, `#sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) {i=8, j=6, k=4} reduction={k}>`,
read, and checked as Shardy's verifiers do.

Source: Shardy, its document of the dialect (`OpShardingRuleAttr`), dialect/sdy/ir/verifiers.cc by its tests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepx_graph.ir.factor_rule import FactorRule, Factors, Mapped, letter
from deepx_graph.types import TensorType, Type

RULE = "sdy.sharding_rule"
"""The note of a node with the rule that a text states of it."""

_RULE = re.compile(r"#sdy\.op_sharding_rule<\s*\((.*?)\)\s*->\s*\((.*?)\)\s*(?:\{(.*?)\})?\s*(.*)>", re.DOTALL)
_TENSOR = re.compile(r"\[([^\[\]]*)\]")
_FACTOR = re.compile(r"z_([1-9]\d{0,5})|([i-z])")
_SIZE = re.compile(r"\s*(z_[1-9]\d{0,5}|[i-z])\s*=\s*(\d{1,18})\s*")
_KINDS = {"reduction": "reduction", "need_replication": "replicated", "permutation": "permuted", "blocked_propagation": "blocked"}
_KIND = re.compile(rf"\s*({'|'.join(_KINDS)})\s*=\s*\{{([^{{}}]*)\}}")
_END = re.compile(r"\s*(,\s*custom)?\s*")
_FIRST = ord("i")


def read_rule(text: str) -> FactorRule:
    """The rule of a text. Raises ValueError, in Shardy's words, for one that is none or contradicts itself."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ValueError("should have a sharding rule attribute of type OpShardingRuleAttr")
    operands, results, stated, rest = found.groups()
    sizes = _sizes(stated or "")
    kinds = _kinds(rest, len(sizes))
    rule = FactorRule(_mapped(operands), _mapped(results), sizes, **{name: frozenset(f) for name, f in kinds.items()})
    _check_kinds(rule)
    return rule


def check_rule(rule: FactorRule, operands: Sequence[Type], results: Sequence[Type]) -> None:
    """Raises ValueError where a rule does not fit the types of its operation, or names a factor as it must not."""
    _check_tensors("operand", rule.operands, operands, rule)
    _check_tensors("result", rule.results, results, rule)
    used = {f for tensor in rule.tensors for dim in tensor for f in dim}
    for f, size in enumerate(rule.sizes):
        if f not in used:
            raise ValueError(f"has factor {letter(f)}={size} that isn't used in operand and result mappings")
    if rule.reduction & {f for tensor in rule.results for dim in tensor for f in dim}:
        raise ValueError("reduction factor cannot be in result mappings")


# --- reading


def _mapped(text: str) -> tuple[Mapped, ...]:
    tensors = _TENSOR.findall(text)
    if re.sub(r"[\s,]", "", _TENSOR.sub("", text)) or len(tensors) != text.count("["):
        raise ValueError(f"the tensors ({text}) of a sharding rule; expected [i, j], ..")
    return tuple(tuple(map(_factors, t.split(","))) if t.strip() else () for t in tensors)


def _factors(text: str) -> Factors:
    """`ij`, `z_1z_2`: the factors of one dimension; none where nothing is said."""
    word = text.strip()
    if _FACTOR.sub("", word):
        raise ValueError(f"the factors '{word}' of a dimension; expected letters from i to z, z_1, ..")
    return tuple(map(_number, (found[0] for found in _FACTOR.finditer(word))))


def _number(name: str) -> int:
    return ord("z") - _FIRST + int(name[2:]) if "_" in name else ord(name) - _FIRST


def _sizes(text: str) -> tuple[int, ...]:
    found = [_SIZE.fullmatch(part) for part in text.split(",")] if text.strip() else []
    pairs = [(_number(each[1]), int(each[2])) for each in found if each is not None]
    if len(pairs) < len(found):
        raise ValueError(f"the sizes of factors {{{text}}} of a sharding rule; expected {{i=8, j=4}}")
    if [number for number, _ in pairs] != list(range(len(pairs))):
        raise ValueError("expecting factor indices to be ordered like an iota ([0,1,2,...], e.g. {i=#, j=#, k=#}")
    return tuple(size for _, size in pairs)


def _kinds(text: str, count: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    at = 0
    while (each := _KIND.match(text, at)) is not None:
        numbers = [f for part in each[2].split(",") for f in _factors(part)]
        if too_large := [f for f in numbers if f >= count]:
            raise ValueError(f"index must be less than {count}, got: {too_large[0]}")
        if len(set(numbers)) < len(numbers):
            raise ValueError("indices of special factors must be unique")
        if numbers != sorted(numbers):
            raise ValueError("indices of special factors must be sorted")
        found[_KINDS[each[1]]], at = numbers, each.end()
    if not _END.fullmatch(text, at):
        raise ValueError(f"'{text[at:].strip()}' in a sharding rule; expected {', '.join(_KINDS)}, or custom")
    return found


# --- checks


def _check_kinds(rule: FactorRule) -> None:
    groups = (rule.reduction, rule.replicated, rule.permuted)
    if sum(map(len, groups)) > len(frozenset().union(*groups)):
        raise ValueError("a factor can only be in one of the reduction, need replication, or permutation factor sets")


def _check_tensors(what: str, mapped: Sequence[Mapped], types: Sequence[Type], rule: FactorRule) -> None:
    if len(mapped) != len(types):
        raise ValueError(f"number of {what}s and mappings must match: {len(types)} != {len(mapped)}")
    for k, (dims, type) in enumerate(zip(mapped, types, strict=True)):
        name = f"{what} {k}" if len(types) > 1 else what
        if not isinstance(type, TensorType) or not type.is_static:
            raise ValueError(f"{name} - expected a ranked tensor with a static shape. type: {type}")
        if len(dims) != len(type.shape):
            raise ValueError(f"{name} - mapping rank must match: {len(dims)} != {len(type.shape)}")
        _check_dimensions(name, dims, rule.sizes)


def _check_dimensions(name: str, dims: Mapped, sizes: Sequence[int]) -> None:
    for factors in dims:
        if not factors:
            raise ValueError(f"{name} - dim mapping must have at least one factor")
        if unknown := [f for f in factors if f >= len(sizes)]:
            raise ValueError(f"{name} - expecting factor indices to be within 0<=...<num_factors; received: {unknown[0]}, "
                             f"num_factors: {len(sizes)}")
        if len(factors) > 1 and any(sizes[f] == 1 for f in factors):
            raise ValueError(f"{name} - dim mapping can't have a factor of size 1 if there are multiple factors")
    every = [f for factors in dims for f in factors]
    if len(set(every)) < len(every):
        raise ValueError(f"{name} - cannot reuse factors for the same tensor value")
