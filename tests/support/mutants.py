"""Damaged programs: real texts of every language, and mutations that know no more of grammar than what a token or a line is.

Mutant number N of a set of seeds is always the same.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Module, Op
from deepx_graph.ops import OPS
from deepx_graph.session import programs
from deepx_graph.text import FORMATS, sea
from tests.support.laws import LAWFUL, one_op, samples
from tests.support.paths import ROOT
from tests.support.stablehlo_suite import ADD
from tests.support.xla_texts import CONVOLUTION, LOOP, REDUCE

CORPUS = ROOT.parent / "shared" / "corpus"
SUFFIXES = {".hlo": "hlo", ".stablehlo": "stablehlo", ".mindir": "mindir", ".ir": "mindir", ".relay": "relay", ".dx": "deepx"}
LARGEST = 4_000
"""Characters of the longest seed."""
NUMBERS = ("0", "1", "-1", "2", "3", "7", "32", "1000", "65536", "30000000", "2147483648", "9223372036854775807",
           "18446744073709551616", "1" + "0" * 30, "0x7fc00000", "1e999", "nan", "inf")  # fmt: skip
WIDE = "\u202e"
PIECES = (*"{}()[]<>\"'%#,=:;@!?*x.-\x1b\n", "->", "<-", "tensor<", "f32[", "0x", "dense<", "true", "?", "Tensor[(", WIDE)
_TOKEN = re.compile(r"\d+|[A-Za-z_][\w.]*|\s+|.", re.DOTALL)


@dataclass(frozen=True)
class Seed:
    """A real text: its language, and where it comes from."""

    name: str
    format: str
    text: str
    binary: bool = False

    @property
    def language(self) -> str:
        """The format, or the form of it where one format has two."""
        return f"{self.format} dump" if self.format == "mindir" and not self.binary else self.format

    @cached_property
    def tokens(self) -> list[str]:
        return _TOKEN.findall(self.text)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)


def own_seeds() -> list[Seed]:
    """What is in this checkout, as every writer prints it."""
    texts = [("loop", "hlo", LOOP), ("convolution", "hlo", CONVOLUTION), ("add", "stablehlo", ADD), ("reduce", "stablehlo", REDUCE),
             ("block", "deepx", (ROOT / "examples" / "transformer_block.dx").read_text())]
    return [s for name, format, text in texts for s in translated(Seed(name, format, text))]


def corpus_seeds() -> list[Seed]:
    """The shared corpus, where it is there; small programs of it also as every writer prints them."""
    found: list[Seed] = []
    for path in sorted(p for p in CORPUS.rglob("*") if p.suffix in SUFFIXES and p.stat().st_size <= LARGEST):
        text = path.read_bytes().decode("latin-1" if path.suffix == ".mindir" else "utf-8")
        seed = Seed(path.name, SUFFIXES[path.suffix], text, path.suffix == ".mindir")
        found += translated(seed) if len(text) < 2500 else [seed]
    return found


def op_seeds() -> list[Seed]:
    """A program of each operation, in every language that can say it."""
    found: list[Seed] = []
    for op in OPS.values():
        text = op.example or next((sea.write(_alone(op, *s)) for s in samples(op)), None) if op.example or op in LAWFUL else None
        if text is not None:
            found += translated(Seed(op.name, "sea", text))
    return found


def _alone(op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> Module:
    return Module((one_op(op, arrays, attrs),), "law")


def translated(seed: Seed) -> Iterator[Seed]:
    """The seed, and the same program in every language that can say it."""
    yield seed
    try:
        module = programs.loads(seed.text.encode("latin-1") if seed.binary else seed.text, seed.format).module
    except DeepxGraphError:
        return
    for name, format in FORMATS.items():
        if format.writes and name not in (seed.format, "cps"):
            try:
                data = programs.encoded(module, name)
                binary = format.binary  # which is read as another format
                text = data.decode("latin-1" if binary else "utf-8")
                yield Seed(f"{seed.name} as {name}", "stablehlo" if binary else name, text, binary)
            except DeepxGraphError:
                continue


def mutant(seeds: list[Seed], number: int) -> tuple[Seed, str]:
    """Mutant `number`: the seed and the damaged text."""
    rng = random.Random(number)
    languages = sorted({s.language for s in seeds})
    language = languages[number % len(languages)]
    same = [s for s in seeds if s.language == language]
    seed = rng.choice(same)
    text = seed.text
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(MUTATIONS)(rng, text, rng.choice(same))
    return seed, text.replace(WIDE, "") if seed.binary else text


HOSTILE = ("-1", "2147483648", "9223372036854775808", "1" + "0" * 30, "9" * 5000)
_NUMBER = re.compile(r"(?<![A-WYZa-wyz_.\d])\d+")


@cache
def _numbers(seeds: tuple[Seed, ...]) -> list[tuple[Seed, int, int]]:
    return [(seed, m.start(), m.end()) for seed in seeds for m in _NUMBER.finditer(seed.text)]


def exaggerated(seeds: tuple[Seed, ...], number: int) -> tuple[Seed, str]:
    """One number of one seed replaced by a hostile one. Cases in sequence lie far apart; every case has its number."""
    places = _numbers(seeds)
    at, value = divmod(number * 1_000_003 % (len(places) * len(HOSTILE)), len(HOSTILE))
    seed, start, end = places[at]
    return seed, seed.text[:start] + HOSTILE[value] + seed.text[end:]


def _cut(rng: random.Random, text: str, other: Seed) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.choice((1, 2, 8, 40)) :]


def _put(rng: random.Random, text: str, other: Seed) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(PIECES) + text[at:]


def _copy(rng: random.Random, text: str, other: Seed) -> str:
    at, start = rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)
    return text[:at] + text[start : start + rng.choice((4, 30, 200))] + text[at:]


def _flip(rng: random.Random, text: str, other: Seed) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + chr(rng.randrange(256) if other.binary else rng.randrange(32, 127)) + text[at + 1 :]


def _of_tokens(change: Callable[[random.Random, list[str], int, Seed], None]) -> Callable[[random.Random, str, Seed], str]:
    def mutation(rng: random.Random, text: str, other: Seed) -> str:
        tokens = _TOKEN.findall(text)
        words = [k for k, t in enumerate(tokens) if not t.isspace()]
        if words:
            change(rng, tokens, rng.choice(words), other)
        return "".join(tokens)

    return mutation


def _drop_token(rng: random.Random, tokens: list[str], at: int, other: Seed) -> None:
    del tokens[at]


def _swap_tokens(rng: random.Random, tokens: list[str], at: int, other: Seed) -> None:
    to = rng.randrange(len(tokens))
    tokens[at], tokens[to] = tokens[to], tokens[at]


def _like_token(rng: random.Random, tokens: list[str], at: int, other: Seed) -> None:
    """Another word for a word, another number for a number, of this text or another."""
    pool = tokens if rng.random() < 0.7 else other.tokens
    same = [t for t in pool if t[0].isalpha() == tokens[at][0].isalpha() and t[0].isdigit() == tokens[at][0].isdigit()]
    tokens[at] = rng.choice(same or tokens)


def _number(rng: random.Random, tokens: list[str], at: int, other: Seed) -> None:
    numbers = [k for k, t in enumerate(tokens) if t.isdigit()]
    tokens[rng.choice(numbers or [at])] = rng.choice(NUMBERS)


def _of_lines(change: Callable[[random.Random, list[str], int, Seed], None]) -> Callable[[random.Random, str, Seed], str]:
    def mutation(rng: random.Random, text: str, other: Seed) -> str:
        lines = text.splitlines(keepends=True) or [""]
        change(rng, lines, rng.randrange(len(lines)), other)
        return "".join(lines)

    return mutation


def _drop_line(rng: random.Random, lines: list[str], at: int, other: Seed) -> None:
    del lines[at]


def _double_line(rng: random.Random, lines: list[str], at: int, other: Seed) -> None:
    lines.insert(rng.randrange(len(lines)), lines[at])


def _swap_lines(rng: random.Random, lines: list[str], at: int, other: Seed) -> None:
    to = rng.randrange(len(lines))
    lines[at], lines[to] = lines[to], lines[at]


def _splice(rng: random.Random, lines: list[str], at: int, other: Seed) -> None:
    lines.insert(at, rng.choice(other.lines or [""]))


MUTATIONS: tuple[Callable[[random.Random, str, Seed], str], ...] = (
    _cut, _put, _copy, _flip,
    *map(_of_tokens, (_drop_token, _swap_tokens, _like_token, _like_token, _like_token, _number, _number)),
    *map(_of_lines, (_drop_line, _double_line, _swap_lines, _splice)),
)  # fmt: skip
