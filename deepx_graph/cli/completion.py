"""Completion for bash, zsh and fish: scripts made from the argument parser, so that they never fall behind it."""

from __future__ import annotations

import argparse

from deepx_graph.cli.options import Arguments, emit

SHELLS = ("bash", "zsh", "fish")


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="source what is printed: eval \"$(deepx-graph completion bash)\"")


def run_completion(args: Arguments, parser: argparse.ArgumentParser) -> int:
    """Prints the script for the commands of a parser."""
    words = _words(parser)
    emit({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](words), None)
    return 0


def _words(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The options of each command."""
    sub = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {name: [o for a in p._actions for o in a.option_strings] for name, p in sub.choices.items()}


def _cases(words: dict[str, list[str]]) -> str:
    return "\n".join(f"    {name}) words=\"{' '.join(options)}\" ;;" for name, options in words.items())


def _bash(words: dict[str, list[str]]) -> str:
    return f"""_deepx_graph() {{
  local words="{' '.join(words)}" current="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "${{COMP_WORDS[1]}}" in
{_cases(words)}
    esac
  fi
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) if [ "$COMP_CWORD" -gt 1 ]; then words="$(compgen -f -- "$current")"; fi
       COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
  esac
}}
complete -o filenames -F _deepx_graph deepx-graph dxg
"""


def _zsh(words: dict[str, list[str]]) -> str:
    return "autoload -Uz bashcompinit && bashcompinit\n" + _bash(words)


def _fish(words: dict[str, list[str]]) -> str:
    lines = []
    for command in ("deepx-graph", "dxg"):
        lines.append(f"complete -c {command} -n __fish_use_subcommand -f -a '{' '.join(words)}'")
        for name, options in words.items():
            for option in options:
                flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                lines.append(f"complete -c {command} -n '__fish_seen_subcommand_from {name}' {flag}")
    return "\n".join(lines) + "\n"
