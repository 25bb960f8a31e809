"""Rounds, clocks and memory.

Other work on the machine, its clock and its caches drift while a benchmark runs. So contenders take turns, each
round begins with another one, and what counts is the median of the ratios of each round, whose two times lie next
to each other; a ratio of two medians would compare times that lie apart.
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
        warm_ups: Rounds before these that do not.

    Returns:
        Contender's name to seconds, one value per round.
    """
    subject = case.prepare(place)
    contenders = case.contenders
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for turn in range(-warm_ups, rounds):
        first = turn % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            elapsed = _time_once(case, contender, subject)
            if turn >= 0:
                times[contender.name].append(elapsed)
    return times


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
    """Run a contender once and see what it takes.

    Args:
        case: The case.
        contender: One of its contenders.
        place: Where its files are.

    Returns:
        The memory at the peak, over what the process had before, and what the disk gave. Mapped pages of files
        count as memory from when they are touched, although the system can take them back.
    """
    subject = case.prepare(place)
    case.before(subject)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
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
    """Return a number that the kernel keeps of this process."""
    for line in Path("/proc/self", file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    raise RuntimeError(f"/proc/self/{file} has no {key}")
