"""Rounds, clocks and memory.

Other work on the machine, its clock and its caches drift while a benchmark runs. So contenders take turns, and the
result is the median of each round's ratio, whose two times are close together; a ratio of two medians would compare
times far apart. What ran just before matters too: it leaves freed pages, blocks to free, a busy disk. So the order
changes such that each contender follows each other one about equally often. Rotating A B C to B C A would not do,
because B would nearly always follow A.
"""

from __future__ import annotations

import gc
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.case import Case, Contender, Place
from benchmarks.results import Memory

__all__ = ["measure_memory", "time_case"]


def time_case(case: Case, place: Place, rounds: int, warm_ups: int) -> dict[str, list[float]]:
    """Time all contenders of a case in interleaved rounds.

    Args:
        case: The case.
        place: Where its files are.
        rounds: Rounds that count.
        warm_ups: Earlier rounds that do not.

    Returns:
        Contender's name to seconds, one value per round.
    """
    subject = case.prepare(place)
    contenders = case.contenders
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for turn in range(-warm_ups, rounds):
        for place_in_case in _order(len(contenders), turn):
            contender = contenders[place_in_case]
            elapsed = _time_once(case, contender, subject)
            if turn >= 0:
                times[contender.name].append(elapsed)
    return times


def _order(n: int, turn: int) -> list[int]:
    """Return the order of a round: a row of a Williams square, every other row reversed."""
    zigzag = [(step + 1) // 2 if step % 2 else -step // 2 for step in range(n)]
    order = [(place + turn // 2) % n for place in zigzag]
    return order[::-1] if turn % 2 else order


def _time_once(case: Case, contender: Contender, subject: Any) -> float:
    case.before(subject)
    gc.collect()
    start = perf_counter()
    result = contender.run(subject)
    elapsed = perf_counter() - start
    del result
    case.after(subject)
    return elapsed


def measure_memory(case: Case, contender: Contender, place: Place) -> Memory:
    """Run a contender once and measure its memory and disk reads.

    Args:
        case: The case.
        contender: One of its contenders.
        place: Where its files are.

    Returns:
        Peak memory beyond what the process had before, and bytes read from disk. Mapped pages of files count as
        memory once touched, although the system can reclaim them.
    """
    subject = case.prepare(place)
    case.before(subject)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    resident = _counter("status", "VmRSS") * 1024
    from_disk = _counter("io", "read_bytes")
    result = contender.run(subject)
    memory = Memory(
        extra_nbytes=_counter("status", "VmHWM") * 1024 - resident,
        disk_nbytes=_counter("io", "read_bytes") - from_disk,
    )
    del result
    case.after(subject)
    return memory


def _counter(file: str, key: str) -> int:
    """Return a number from the kernel's status of this process."""
    for line in Path("/proc/self", file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    raise RuntimeError(f"/proc/self/{file} has no {key}")
