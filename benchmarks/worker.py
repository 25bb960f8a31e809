"""The process that measures: tasks on stdin, outcomes on stdout.

Each task gets a fresh process, so that nothing is left over from another. A quick run uses one process for all,
because importing torch for each would take longer than the tasks.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.case import Place
from benchmarks.cases import find_case
from benchmarks.harness import measure_memory, time_case

__all__ = ["MeasureMemory", "Prepare", "Task", "Time", "run_in_worker"]

_ROOT = Path(__file__).parents[1]


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Make the files of a case; the outcome is None."""

    case: str

    def perform(self, place: Place) -> None:
        find_case(self.case).prepare(place)


class Time(msgspec.Struct, frozen=True, tag=True):
    """Time all contenders of a case; the outcome is contender's name to seconds, one value per round."""

    case: str
    rounds: int
    warm_ups: int

    def perform(self, place: Place) -> dict[str, list[float]]:
        return time_case(find_case(self.case), place, self.rounds, self.warm_ups)


class MeasureMemory(msgspec.Struct, frozen=True, tag=True):
    """Run one contender of a case once; the outcome is a `Memory`."""

    case: str
    contender: str

    def perform(self, place: Place) -> Any:
        case = find_case(self.case)
        contender = next(contender for contender in case.contenders if contender.name == self.contender)
        return measure_memory(case, contender, place)


Task = Prepare | Time | MeasureMemory


class _Order(msgspec.Struct, frozen=True):
    """A worker's input."""

    place: Place
    tasks: list[Task]


def run_in_worker(tasks: Sequence[Task], place: Place) -> list[Any]:
    """Perform tasks one after another in a fresh process.

    Args:
        tasks: What to do.
        place: Where the files are.

    Returns:
        Their outcomes, decoded by `msgspec` without a type.

    Raises:
        CalledProcessError: If one fails; its error is on stderr.
    """
    order = msgspec.json.encode(_Order(place, list(tasks)), enc_hook=str)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.worker"], cwd=_ROOT, input=order, stdout=subprocess.PIPE, check=True
    )
    return list(msgspec.json.decode(done.stdout))


def _main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=_Order, dec_hook=lambda kind, text: kind(text))
    answers = os.dup(1)
    os.dup2(2, 1)  # contenders' output is not an outcome
    for task in order.tasks:
        find_case(task.case)
    if order.place.quick:
        gc.freeze()  # a full collection walks all of torch, which takes longer than the small sizes
    outcomes = [task.perform(order.place) for task in order.tasks]
    os.write(answers, msgspec.json.encode(outcomes))


if __name__ == "__main__":
    _main()
