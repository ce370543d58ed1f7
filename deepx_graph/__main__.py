"""`python -m deepx_graph`, and what the installed commands start: the command line."""

import sys


def main() -> int:
    """Runs the command that the process was started with; the exit code. Ctrl-C ends it cleanly while it is still imported, too."""
    try:
        from deepx_graph.cli.main import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
