"""The record of measurements, in a file: a run replaces what it measured, and the page shows everything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from benchmarks.case import Case
from benchmarks.machine import Machine
from benchmarks.results import CaseResult, Memory

__all__ = ["Measurement", "read_record", "recorded", "write_record"]


class Measurement(msgspec.Struct, frozen=True):
    """The figures of a case, without the case.

    Attributes:
        times_s: Contender's name to seconds, one value per round.
        memory: Contender's name to its cost; empty if not meaningful.
        machine: What they were measured on.
        when: The time of measurement.
    """

    times_s: dict[str, list[float]]
    memory: dict[str, Memory]
    machine: Machine
    when: datetime

    @classmethod
    def of(cls, result: CaseResult) -> Measurement:
        """Return the figures of a result."""
        return cls(result.times_s, result.memory, result.machine, result.when)


def read_record(path: Path) -> dict[str, Measurement]:
    """Return what was measured, by the name of the case; nothing if there is no record."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Measurement]) if path.exists() else {}


def write_record(path: Path, record: Mapping[str, Measurement]) -> None:
    """Replace the record."""
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(dict(sorted(record.items()))), indent=1) + b"\n")
    os.replace(draft, path)


def recorded(cases: list[Case], record: Mapping[str, Measurement]) -> list[CaseResult]:
    """Return the results of those cases whose contenders are the recorded ones; limits may be new."""
    results = []
    for case in cases:
        if (found := record.get(case.name)) is not None:
            limits = tuple(limit for limit in case.limits if limit.name in found.times_s)
            measured = msgspec.structs.replace(case, limits=limits)
            if found.times_s.keys() == {contender.name for contender in measured.contenders}:
                results.append(CaseResult(measured, found.times_s, found.memory, found.machine, found.when))
    return results
