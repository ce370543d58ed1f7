"""Completion in shells: scripts that ask this program, and what it answers, by the metavar of what is half written.

An argument says by its metavar what it takes; help shows it, and `VALUES` completes it. So a new command completes by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from deepx_graph.cli.options import PICTURES, Parser
from deepx_graph.cli.words import split_line
from deepx_graph.errors import DeepxGraphError, printable

if TYPE_CHECKING:
    from deepx_graph.ir import Module

FILES = ":files"
"""The answer that stands for names of files, which a shell knows best."""

MAX_FILE_BYTES = 1 << 22
"""Names are looked up in smaller programs only: who presses Tab does not wait."""


class Asked(NamedTuple):
    """What is half written: the text of the value so far, and the words of the command before it."""

    text: str
    words: Sequence[str]

    def program(self) -> Module | None:
        """The program that the words name; None where there is none that can be read at once. Runs no file of Python."""
        from deepx_graph.session import programs
        from deepx_graph.text import ReadOptions

        for word in self.words:
            if os.path.isfile(word) and not word.endswith((".py", ".npz", ".npy")):
                with contextlib.suppress(DeepxGraphError):
                    return programs.load(word, None, ReadOptions(max_file_bytes=MAX_FILE_BYTES)).module
        return None


def _engines(asked: Asked) -> Iterable[str]:
    from deepx_graph.runtime.engines import ENGINES

    return ENGINES


def _formats(asked: Asked) -> Iterable[str]:
    from deepx_graph.text import FORMATS

    return [name for name, f in FORMATS.items() if f.reads]


def _forms(asked: Asked) -> Iterable[str]:
    from deepx_graph.text import FORMATS

    return [*(name for name, f in FORMATS.items() if f.writes), *PICTURES, "json"]


def _clusters(asked: Asked) -> Iterable[str]:
    from deepx_graph.planning.cluster import PRESETS

    return ["here", *PRESETS, FILES]


def _pipeline(asked: Asked) -> Iterable[str]:
    from deepx_graph.session.programs import complete_passes

    return complete_passes(asked.text)


def _pass_names(asked: Asked) -> Iterable[str]:
    from deepx_graph.passes import REGISTRY

    return REGISTRY


def _listed(values: Callable[[Asked], Iterable[str]]) -> Callable[[Asked], Iterable[str]]:
    """Values with commas between them, of which the last is completed."""
    def found(asked: Asked) -> Iterable[str]:
        before = asked.text[: asked.text.rfind(",") + 1]
        return [before + v for v in values(asked)]

    return found


def _stages(asked: Asked) -> Iterable[str]:
    return ["input", "output", "grad", *_pass_names(asked)]


def _query(asked: Asked) -> Iterable[str]:
    from deepx_graph.session.query.language import completions

    last = asked.text.split(" ")[-1]
    before = asked.text[: len(asked.text) - len(last)]
    return [before + c for c in completions(last)] if last else [before + c for c in ("op:", "name:", "type:", "users>", "not")]


def _nodes(asked: Asked) -> Iterable[str]:
    module = asked.program()
    return [] if module is None else dict.fromkeys(n.name for f in module.entry_first for n in f.nodes if n.name)


def _functions(asked: Asked) -> Iterable[str]:
    module = asked.program()
    return [] if module is None else [f.name for f in module.functions]


def _inputs(asked: Asked) -> Iterable[str]:
    module = asked.program()
    return [] if module is None else [p.name for p in module.entry.params]


def _input_values(asked: Asked) -> Iterable[str]:
    return [FILES] if "=" in asked.text else [f"{name}=" for name in _inputs(asked)]


def _operations(asked: Asked) -> Iterable[str]:
    from deepx_graph.ops import OPS

    return OPS


def _reports(asked: Asked) -> Iterable[str]:
    from deepx_graph.cli.report_fields import REPORTS

    return REPORTS


def _budgets(asked: Asked) -> Iterable[str]:
    from deepx_graph.ops import OPS
    from deepx_graph.session.report.figures import FIGURES

    return [f"{name}<=" for name in (FIGURES if "." not in asked.text else [f"ops.{o}" for o in OPS])]


def _floats(asked: Asked) -> Iterable[str]:
    from deepx_graph.types import DTYPES

    return [dtype.name for dtype in DTYPES if dtype.kind == "float"]


VALUES: Mapping[str, Callable[[Asked], Iterable[str]]] = {
    "ENGINE": _engines, "FORMAT": _formats, "FORM": _forms, "PIPELINE": _pipeline, "PASS,...": _listed(_pass_names),
    "STAGE": _stages, "QUERY": _query, "NODE": _nodes, "NODE2": _nodes, "FUNCTION": _functions, "INPUT,...": _listed(_inputs),
    "INPUT=FILE.npy": _input_values, "INPUT=TYPE": _input_values, "OP": _operations, "REPORT": _reports, "BUDGET": _budgets,
    "FLOAT": _floats, "CLUSTER": _clusters,
    "PLACE": lambda asked: ("lockstep", "mpi", "dask:tcp://"), "CPU": lambda asked: ("native", "v2", "v3", "v4"),
}  # fmt: skip
"""What a metavar stands for."""

FREE = frozenset({"N", "S", "SECONDS", "P", "NAME", "TRIPLE", "MODULE", "THEME", "TEXT", "PERCENT", "AXIS=N,..."})
"""Metavars of numbers and of words that a user makes up."""


def is_file(metavar: str) -> bool:
    """Whether an argument takes the name of a file or folder."""
    return metavar.startswith(("FILE", "OUT", "PATH", "DIR", "PREFIX"))


def metavar_of(action: argparse.Action) -> str:
    """What an argument takes, as help shows it."""
    return action.metavar if isinstance(action.metavar, str) else action.dest.upper()


class Candidate(NamedTuple):
    """How a word may go on, as a whole word, and what that means."""

    text: str
    summary: str = ""


def candidates(parser: Parser, words: Sequence[str]) -> list[Candidate]:
    """How the last of the words behind the program's name may go on."""
    *before, current = words or [""]
    if not before:
        known = [Candidate(name, (command.description or "").rstrip(".")) for name, command in parser.commands.items()]
        named = [c for c in known if c.text.startswith(current)]
        return named or [Candidate(FILES)]
    command = parser.commands.get(before[0])
    if command is None:  # `dxg FILE` is `dxg info FILE`
        command, before = parser.commands["info"], ["info", *before]
    return list(_of_command(command, before[1:], current))


def _of_command(command: argparse.ArgumentParser, before: Sequence[str], current: str) -> Iterator[Candidate]:
    options = {o: a for a in command._actions for o in a.option_strings}
    positional = [a for a in command._actions if not a.option_strings]
    free, last = [], None
    for word in before:
        if last is None and not (word.startswith("-") and word != "-"):
            free.append(word)
        last = options[word] if last is None and word in options and options[word].nargs != 0 else None
    if last is not None:
        yield from _values(last, Asked(current, free))
    elif current.startswith("--") and "=" in current:
        name, _, value = current.partition("=")
        if name in options and options[name].nargs != 0:
            found = _values(options[name], Asked(value, free))
            yield from (c if c.text == FILES else Candidate(f"{name}={c.text}", c.summary) for c in found)
    elif current.startswith("-"):
        yield from (Candidate(o, a.help or "") for o, a in options.items() if o.startswith(current))
    elif positional:
        yield from _values(positional[min(len(free), len(positional) - 1)], Asked(current, free))


def _values(action: argparse.Action, asked: Asked) -> Iterator[Candidate]:
    if action.choices is not None:
        found: Iterable[str] = map(str, action.choices)
    elif is_file(metavar_of(action)):
        found = [FILES]
    else:
        complete = VALUES.get(metavar_of(action))
        found = complete(asked) if complete else ()
    yield from (Candidate(v) for v in found if v == FILES or v.startswith(asked.text))


def answer(parser: Parser, shell: str, line: str) -> str:
    """What a script asks for: a candidate on each line, for zsh and fish with a tab and its meaning behind it."""
    found = candidates(parser, split_line(line)[1:])
    if any(c.text == FILES for c in found):
        return FILES + "\n"
    rows = (c.text if shell == "bash" or not c.summary else f"{c.text}\t{' '.join(c.summary.split())}" for c in found)
    return "".join(f"{printable(text)}\n" if "\t" not in text else f"{text}\n" for text in rows)


BASH = """\
_deepx_graph() {
  local line="${COMP_LINE:0:COMP_POINT}" found word cut
  found="$("$1" completion bash --line "$line" 2>/dev/null)" || return
  word="${line##*[[:space:]]}"
  cut="${word%"$2"}"
  COMPREPLY=()
  if [ "$found" = ":files" ]; then
    compopt -o filenames 2>/dev/null
    while IFS= read -r word; do [ -n "$word" ] && COMPREPLY+=("$word"); done <<< "$(compgen -f -- "$2")"
  else
    while IFS= read -r word; do
      case "$word" in *[=:]) compopt -o nospace 2>/dev/null ;; esac
      [ -n "$word" ] && COMPREPLY+=("${word#"$cut"}")
    done <<< "$found"
  fi
}
complete -F _deepx_graph deepx-graph dxg
"""

ZSH = """\
#compdef deepx-graph dxg
_deepx_graph() {
  local -a found
  found=("${(@f)$(${words[1]} completion zsh --line "${words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
  if [[ "$found[1]" == ":files" ]]; then
    _files
  else
    found=("${(@)found//:/\\\\:}")
    found=("${(@)found//$'\\t'/:}")
    _describe 'deepx-graph' found
  fi
}
if [[ "$funcstack[1]" == _deepx_graph ]]; then _deepx_graph "$@"; else compdef _deepx_graph deepx-graph dxg; fi
"""

FISH = """\
function __deepx_graph_complete
  set -l program (commandline -opc)[1]
  set -l found ($program completion fish --line (commandline -pc | string collect) 2>/dev/null)
  if test "$found[1]" = ":files"
    __fish_complete_path (commandline -ct)
  else
    printf '%s\\n' $found
  end
end
complete -c deepx-graph -f -a '(__deepx_graph_complete)'
complete -c dxg -f -a '(__deepx_graph_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""What each shell sources."""
