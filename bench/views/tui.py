"""How quick the terminal browser is, measured from outside: the command in a pseudo terminal of 120x40, as a user has it.

    python -m bench.views.tui                     generated HLO: first paint at 10 000 nodes, keys at 100 000
    python -m bench.views.tui FILE ...            the same for files of your own

First paint is from the start of the process until the list of nodes is on the screen, of a large program its first rows
until all of it has been read. A key's time is from writing it until the screen begins to change (paint), and until it has been
still for 30 ms (settled; the 30 ms are not counted).
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import random
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

ROWS, COLUMNS = 40, 120
STILL = 0.03
READY = "▷"
"""The mark of a parameter: it is on the screen when the list is."""

FIRST_LIST = 2.0
"""Seconds until the first list."""

KEYS = {"down": b"j", "up": b"k", "page down": b"\x1b[6~", "page up": b"\x1b[5~", "last row": b"G", "first row": b"g",
        "operand": b"[", "user": b"]", "cost column": b"o"}  # fmt: skip


def program(nodes: int, seed: int = 0) -> str:
    """HLO of so many instructions: layers of products, elementwise operations and residual edges, all of 16x16."""
    rng = random.Random(seed)
    lines = ["HloModule generated", "", "ENTRY main {", "  x = f32[16,16] parameter(0)", "  w = f32[16,16] parameter(1)"]
    live = ["x"]
    for k in range(nodes - 2):
        a, b = live[-1], live[-1 - rng.randrange(min(8, len(live)))]
        op = rng.choice(("add", "multiply", "tanh", "subtract", "dot", "negate", "maximum"))
        operands = a if op in ("tanh", "negate") else f"{a}, w" if op == "dot" else f"{a}, {b}"
        more = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}" if op == "dot" else ""
        name = f"layer{k // 50}.v{k}"
        lines.append(f"  {'ROOT ' if k == nodes - 3 else ''}{name} = f32[16,16] {op}({operands}){more}")
        live.append(name)
    return "\n".join([*lines, "}", ""])


class Terminal:
    """The browser in a pseudo terminal."""

    def __init__(self, path: str) -> None:
        self.start = time.perf_counter()
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen([sys.executable, "-m", "deepx_graph", "tui", path], stdin=slave, stdout=slave,
                                        stderr=slave, env=environment, start_new_session=True)  # fmt: skip
        os.close(slave)

    def read(self, timeout: float) -> bytes:
        """What comes within the time; nothing when nothing does."""
        ready, _, _ = select.select([self.master], [], [], timeout)
        return os.read(self.master, 1 << 16) if ready else b""

    def wait_for(self, text: str, timeout: float) -> float:
        """Seconds from the start until a text is on the screen."""
        seen, wanted = b"", text.encode()
        while wanted not in seen:
            if time.perf_counter() - self.start > timeout or self.process.poll() is not None:
                raise SystemExit(f"the browser did not show '{text}'")
            seen = seen[-100:] + self.read(1.0)
        return time.perf_counter() - self.start

    def settle(self, still: float = STILL, most: float = 60.0) -> float:
        """Seconds until the screen was still for that long, the stillness left out."""
        start = last = time.perf_counter()
        while time.perf_counter() - start < most:
            if self.read(still):
                last = time.perf_counter()
            else:
                break
        return last - start

    def press(self, key: bytes) -> tuple[float, float] | None:
        """Seconds until the screen begins to change, and until it is still; None for a key that changes nothing here."""
        start = time.perf_counter()
        os.write(self.master, key)
        if not self.read(0.5):
            return None
        painted = time.perf_counter() - start
        self.settle()
        return painted, max(painted, time.perf_counter() - start - STILL)

    def cpu(self) -> float:
        """Seconds of processor that the browser has taken: what else the machine does is not in them."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        os.write(self.master, b"q")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        os.close(self.master)


def first_paint(path: str, runs: int = 3) -> list[tuple[float, float]]:
    """Seconds until the list is on the screen, and seconds of processor until then, for so many starts."""
    times = []
    for _ in range(runs):
        terminal = Terminal(path)
        times.append((terminal.wait_for(READY, 300), terminal.cpu()))
        terminal.settle(1.0)
        terminal.close()
    return times


def key_times(path: str, presses: int = 200, seed: int = 0) -> tuple[dict[str, list[tuple[float, float]]], float]:
    """The times of keys in random order, down twice as often as others; and the seconds of processor that each took."""
    rng = random.Random(seed)
    terminal = Terminal(path)
    terminal.wait_for(READY, 300)
    terminal.settle(2.0)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in KEYS}
    before = terminal.cpu()
    for _ in range(presses):
        name = rng.choice((*KEYS, "down"))
        times = terminal.press(KEYS[name])
        if times is not None:
            found[name].append(times)
    each = (terminal.cpu() - before) / presses
    terminal.close()
    return found, each


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def report_keys(path: str) -> None:
    found, each = key_times(path)
    print(f"{'key':<14}{'presses':>8}{'paint p50':>11}{'p95':>9}{'settled p95':>13}   ms")
    for name, times in (*found.items(), ("all", [t for ts in found.values() for t in ts])):
        if times:
            paints, stills = [p * 1e3 for p, _ in times], [s * 1e3 for _, s in times]
            figures = statistics.median(paints), percentile(paints, 0.95), percentile(stills, 0.95)
            print(f"{name:<14}{len(times):>8}{figures[0]:>11.1f}{figures[1]:>9.1f}{figures[2]:>13.1f}")
    print(f"processor time of a key: {each * 1e3:.1f} ms")


def report_paint(what: str, path: str, runs: int = 3) -> None:
    times = first_paint(path, runs)
    shown = (f"{t:.2f} s ({cpu * 1e3:.0f} ms of processor)" for t, cpu in times)
    met = "met" if min(cpu for _, cpu in times) <= FIRST_LIST else "not met"
    print(f"{what}: first paint {', '.join(shown)}; bound {FIRST_LIST:.0f} s of processor: {met}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    files: list[str] = parser.parse_args().files
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: what else runs counts in all figures")
    for path in files:
        report_paint(path, path)
        report_keys(path)
    if files:
        return
    with tempfile.TemporaryDirectory() as folder:
        for nodes in (10_000, 100_000):
            file = Path(folder) / f"{nodes}.hlo"
            file.write_text(program(nodes))
            report_paint(f"{nodes:,} nodes", str(file), 3 if nodes <= 10_000 else 1)
            report_keys(str(file))


if __name__ == "__main__":
    main()
