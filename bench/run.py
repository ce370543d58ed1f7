"""All measurements, short by default.

    python bench/run.py            # about two minutes
    python bench/run.py --full     # the sizes out of cache and more rounds, too
"""

from __future__ import annotations

import argparse
import os
import platform
import sys

import engines
import numpy as np
import peers
import reading
import scale
from peer_programs import PROGRAMS


def machine() -> str:
    """One line on where this was measured."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, load {load:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="all sizes, more rounds")
    full = parser.parse_args().full
    print(f"{machine()}\n\n## Length of the program\n", flush=True)
    good = scale.report([10_000, 100_000], 3 if full else 1)
    print("\n## Reading XLA's texts\n", flush=True)
    good &= reading.report([10_000, 100_000], 3 if full else 1)
    print("\n## Engines\n", flush=True)
    engines.report(["small", "medium", "large"] if full else ["small", "medium"], 15 if full else 5, None, [], "default")
    print("\n## Peers\n", flush=True)
    sizes = ["small", "medium", "large"] if full else ["small", "medium"]
    peers.report(sizes, list(PROGRAMS), 15 if full else 5, 2, ".benchmarks/peers.jsonl")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
