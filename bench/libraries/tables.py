"""The tables of `docs/performance.md`, from the history of measurements. Pure text from data: nothing is measured here.

Of every workload, size and number of threads the newest row counts; rows of another machine do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.harness.limits import seconds_at_least
from bench.harness.markdown import markdown, replaced
from bench.libraries.contestants import HUGE, OURS, PEERS
from bench.libraries.workloads import ALL, SIZES

Record = dict[str, Any]
Row = dict[str, Any]
BEGIN, END = "<!-- measured: written by `python -m bench --table`, not by hand -->", "<!-- end of measured -->"
TIE = 1.05
"""A ratio up to which two times count as equal."""
TITLES = {"small": "1 000 elements (2 000 operations: 64), microseconds", "medium": "1 000 000 elements, in cache, milliseconds",
          "large": "30 000 000 elements, out of cache (Black-Scholes: 10 000 000), milliseconds"}
UNITS = {"small": 1e6, "medium": 1e3, "large": 1e3}
"""Of a second."""


def newest(records: Sequence[Record]) -> list[Row]:
    """The newest row for each workload, size and number of threads, in the order of the workloads and sizes."""
    found: dict[tuple[str, int, int], Row] = {}
    for record in _of_one_machine(records):
        for row in record["rows"]:
            if row["workload"] in ALL:
                found[row["workload"], SIZES.index(row["size"]), row["threads"]] = row
    names = list(ALL)
    return [found[key] for key in sorted(found, key=lambda k: (names.index(k[0]), *k[1:]))]


def _of_one_machine(records: Sequence[Record]) -> list[Record]:
    return [r for r in records if r["machine"] == records[-1]["machine"]]


def versions_of(records: Sequence[Record]) -> dict[str, str]:
    """The newest version that was measured of each contestant's package."""
    found: dict[str, str] = {}
    for record in _of_one_machine(records):
        found |= record["versions"]
    return found


def limits_of(records: Sequence[Record]) -> dict[int, dict[str, float]]:
    """The most that was ever seen of each limit, by number of threads."""
    found: dict[int, dict[str, float]] = {}
    for record in _of_one_machine(records):
        for threads, limits in record["limits"].items():
            kept = found.setdefault(int(threads), {})
            kept.update({k: max(v, kept.get(k, 0.0)) for k, v in limits.items()})
    return found


def rendered(records: Sequence[Record]) -> str:
    """All tables as markdown."""
    rows, limits = newest(records), limits_of(records)
    most = max((row["threads"] for row in rows), default=1)
    parts = [_heading(records[-1], versions_of(records), limits.get(most)), _standing([r for r in rows if r["threads"] == most])]
    for size in SIZES:
        chosen = [r for r in rows if r["size"] == size and r["threads"] == most]
        if chosen:
            parts.append(f"### {TITLES[size]}\n\n{_main_table(chosen, limits.get(most, {}))}")
    for title, text in (("Memory", _memory(rows, most)), ("Scaling in threads", _threads(rows, most)),
                        ("Scaling in size", _sizes(rows, most)), ("What failed", _failures(rows))):
        if text:
            parts.append(f"### {title}\n\n{text}")
    return "\n\n".join(parts)


def rewrite(path: Path, records: Sequence[Record]) -> None:
    """Puts the tables between the markers of a file. Raises ValueError when it has none."""
    path.write_text(replaced(path, BEGIN, END, rendered(records)), encoding="utf-8")


def _heading(record: Record, versions: dict[str, str], limits: dict[str, float] | None) -> str:
    machine = record["machine"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [f"Measured on {record['date']}: {machine['cpu']}, {machine['cores']} cores; {named}."]
    if limits:
        rates = {k: f"{v / 1e9:.0f}" for k, v in limits.items()}
        lines.append(f"Limits of the machine: {rates['read.cache']} GB/s read and {rates['moved.cache']} moved in cache, "
                     f"{rates['read.memory']} and {rates['moved.memory']} out of it, {rates['flops']} GFLOP/s.")
    return "\n".join(lines)


def _standing(rows: Sequence[Row]) -> str:
    """In how many rows we lead, and the rows in which we do not."""
    name = next(iter(_present(rows, OURS)), "")
    ratios = {f"{r['workload']} {r['size']}": r["times"][name]["min"] / best_peer(r, "min") for r in rows if name in r["times"]}
    behind = [f"{row} {found:.2f}" for row, found in sorted(ratios.items(), key=lambda item: -item[1]) if found > TIE]
    listed = f"; behind by more, by minimum: {', '.join(behind)}" if behind else ""
    ahead = f"{len(ratios) - len(behind)} of {len(ratios)} rows"
    return f"{name} is ahead of the best peer as installed, or within {TIE - 1:.0%}, in {ahead}{listed}."


def _present(rows: Sequence[Row], names: Iterable[str]) -> list[str]:
    return [n for n in names if any(n in row["times"] for row in rows)]


def best_peer(row: Row, statistic: str, huge: bool = False) -> float:
    """The least time of a peer, as installed or with huge pages where it needs to be told; infinite where there is none."""
    times = row["times"]
    names = [n for n in PEERS if n in times] + [n for n in times if huge and n.endswith(HUGE)]
    return float(min((times[n][statistic] for n in names), default=math.inf))


def ratio(row: Row, name: str, huge: bool = False) -> str:
    """Of our time to the best peer's, by minimum and by median."""
    if name not in row["times"]:
        return "-"
    found = [row["times"][name][s] / best_peer(row, s, huge) for s in ("min", "median")]
    return " / ".join(f"{r:.2f}" for r in found) if found[0] else "-"


def _main_table(rows: Sequence[Row], limits: dict[str, float]) -> str:
    ours, peers = _present(rows, OURS), _present(rows, PEERS)
    huge = any(name.endswith(HUGE) for row in rows for name in row["times"])
    tuned = _present(rows, (f"{p}{HUGE}" for p in PEERS))
    head = ["workload", *(f"**{n}**" for n in ours), *peers, *tuned, *(f"{n} / best peer" for n in ours)]
    head += [f"{ours[0]} / best with huge pages"] if huge and ours else []
    head += [f"{ours[0]} / limit"] if ours else []
    lines = []
    for row in rows:
        cells = [row["workload"], *(_times(row, n) for n in (*ours, *peers, *tuned)), *(ratio(row, n) for n in ours)]
        cells += [ratio(row, ours[0], huge=True)] if huge and ours else []
        cells += [_of_limit(row, ours[0], limits)] if ours else []
        lines.append(cells)
    return markdown(head, lines)


def _times(row: Row, name: str) -> str:
    if name not in row["times"]:
        return "fails" if name in row["fails"] else "-"
    return " / ".join(f"{UNITS[row['size']] * row['times'][name][s]:.3g}" for s in ("min", "median"))


def _of_limit(row: Row, name: str, limits: dict[str, float]) -> str:
    """By minimum. A call of few elements is bound by neither memory nor arithmetic."""
    if row["size"] == "small" or not ALL[row["workload"]].limited or not limits or name not in row["times"]:
        return "-"
    least = seconds_at_least(limits, row["read"], row["written"], row["flops"], cached=row["size"] != "large")
    return f"{row['times'][name]['min'] / least:.2f}"


def _memory(rows: Sequence[Row], threads: int) -> str:
    """Of the large rows, and of the networks, which have one size."""
    chosen = [r for r in rows if r["threads"] == threads and (r["size"] == "large" or (r["flops"] and r["size"] == "medium"))]
    names = [n for n in _present(chosen, (*OURS, *PEERS)) if any(r["times"].get(n, {}).get("memory") for r in chosen)]
    if not names:
        return ""
    lines = [[r["workload"], *(f"{r['times'][n]['memory'] / 1e6:.0f}" if n in r["times"] else "-" for n in names)] for r in chosen]
    what = "Megabytes of a process at its peak, over some calls, beyond what it had before the inputs, and beyond these."
    return f"{what}\n\n{markdown(['workload', *names], lines)}"


def _threads(rows: Sequence[Row], most: int) -> str:
    by_key = {(r["workload"], r["size"], r["threads"]): r for r in rows}
    pairs = [(by_key[r["workload"], r["size"], 1], r) for r in rows
             if r["threads"] == most > 1 and (r["workload"], r["size"], 1) in by_key]
    names = _present([p[1] for p in pairs], (*OURS, *PEERS))
    if not pairs:
        return ""
    lines = [[one["workload"], one["size"], *(_speed_up(one, many, n) for n in names)] for one, many in pairs]
    return f"Time with one thread over time with {most}, by minimum.\n\n" + markdown(["workload", "size", *names], lines)


def _speed_up(one: Row, many: Row, name: str) -> str:
    if name not in one["times"] or name not in many["times"]:
        return "-"
    return f"{one['times'][name]['min'] / many['times'][name]['min']:.2f}"


def _sizes(rows: Sequence[Row], threads: int) -> str:
    """Nanoseconds an element, ours and the best peer's."""
    chosen = [r for r in rows if r["threads"] == threads and len(ALL[r["workload"]].sizes) > 1]
    names = _present(chosen, OURS)[:1]
    by_name: dict[str, dict[str, Row]] = {}
    for r in chosen:
        by_name.setdefault(r["workload"], {})[r["size"]] = r
    sizes = [s for s in SIZES if any(s in found for found in by_name.values())]
    if not names or len(sizes) < 2:
        return ""
    lines = [[w, *(_per_element(found.get(s), names[0]) for s in sizes)] for w, found in by_name.items()]
    return f"Nanoseconds an element, {names[0]} and the best peer, by minimum.\n\n" + markdown(["workload", *sizes], lines)


def _per_element(row: Row | None, name: str) -> str:
    if row is None or name not in row["times"]:
        return "-"
    times = row["times"][name]["min"], best_peer(row, "min")
    return ", ".join(f"{1e9 * t / row['elements']:.3g}" if t < math.inf else "-" for t in times)


def _failures(rows: Sequence[Row]) -> str:
    found = dict.fromkeys(f"- {name} on {r['workload']}, {r['size']}: {why.splitlines()[0][:160]}"
                          for r in rows for name, why in r["fails"].items())
    return "\n".join(found)
