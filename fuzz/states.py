"""Fuzz the reader of states: `python -m fuzz.states --count 100000 --seed 0`.

The states of files are broken node by node. Exits with status 1 if a file gives anything but a value or one of
tensorkeep's errors, or takes longer than a limit.
"""

# ruff: noqa: S311, T201, BLE001 - equal seeds must give equal files; this is a program that prints; all errors count

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import tensorkeep
from fuzz.state_seeds import states
from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.safetensors import STATE_KEY, emit_header

__all__ = ["MAX_SECONDS", "broken_files", "run"]

MAX_SECONDS = 2.0
"""Processor time for one file of a few kilobytes."""

_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 1e300, -0.0, "", "a", "w", "\x00", [], {}, [[]], ["list"], ["dict"]),
    *(["same", 0], ["tuple", 1], {"name": "model.w"}, {"order": [1, 0]}, {"class": "Parameter"}, {"grad": True}),
    *("F32", "F64", "U8", "C64", "F4", "torch", "numpy", "os", "0x1f", "nan", "sparse_coo", "subclass", "generator"),
)

Seed = tuple[dict[str, Any], dict[str, Any], bytes]
"""Entries of a header, what its state says, and the data."""


def seeds() -> list[Seed]:
    """Return files, split into parts."""
    with tempfile.TemporaryDirectory() as folder:
        return [_taken_apart(state, Path(folder) / "state.safetensors") for state in states()]


def _taken_apart(state: dict[str, Any], path: Path) -> Seed:
    tensorkeep.save(state, path, digests=False)
    with tensorkeep.open(path) as file:
        return dict(file.entries), json.loads(file.state_text or ""), path.read_bytes()[file.data_start :]


def broken_files(count: int, seed: int) -> list[bytes]:
    """Return files whose states are broken.

    Args:
        count: How many.
        seed: Equal seeds give equal files.
    """
    rng, pool = Random(seed), seeds()
    return [_broken(rng, *rng.choice(pool)) for _ in range(count)]


def _broken(rng: Random, entries: dict[str, Any], said: dict[str, Any], data: bytes) -> bytes:
    said = json.loads(json.dumps(said))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        _mutate(rng, said)
    return emit_header(entries, {"format": "pt", STATE_KEY: json.dumps(said, separators=(",", ":"))}) + data


def _mutate(rng: Random, said: dict[str, Any]) -> None:
    places = _places(said)
    owner, key = rng.choice(places)
    other, other_key = rng.choice(places)
    choice = rng.random()
    if choice < 0.4:
        owner[key] = rng.choice(_VALUES)
    elif choice < 0.6:
        owner[key] = json.loads(json.dumps(other[other_key]))
    elif choice < 0.7:
        del owner[key]
    elif choice < 0.8 and isinstance(owner, list):
        owner.insert(key, json.loads(json.dumps(other[other_key])))
    elif type(owner[key]) is int:
        owner[key] += rng.choice((-1, 1, 7, -(2**40), 2**62))
    else:
        owner[key] = [owner[key]]


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Return all positions in a JSON value, except its root."""
    places: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting:
        owner = waiting.pop()
        keys: Any = range(len(owner)) if isinstance(owner, list) else list(owner)
        for key in keys:
            places.append((owner, key))
            if isinstance(owner[key], list | dict):
                waiting.append(owner[key])
    return places


def _ways(data: bytes) -> list[Callable[[], Any]]:
    return [
        lambda: tensorkeep.load(data),
        lambda: tensorkeep.load(data, framework="numpy", ties="copy"),
        lambda: tensorkeep.load(data, only="*.0"),
        lambda: tensorkeep.open(data).tree,
        lambda: [lazy[...] for lazy in tensorkeep.open(data).values()],
    ]


def run(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Read broken files.

    Args:
        count: How many.
        seed: Equal seeds give equal files.

    Returns:
        How often each outcome occurred, and the failures.
    """
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for data in broken_files(count, seed):
        for number, way in enumerate(_ways(data)):
            begin = time.process_time()
            try:
                way()
                outcome = "value"
            except TensorkeepError as error:
                outcome = type(error).__name__
            except BaseException as error:
                outcome = f"FOREIGN {type(error).__name__}: {error!s:.100}"
                failures.append(f"{outcome}, way {number}: {_text_of(data)}")
            if time.process_time() - begin > MAX_SECONDS:
                failures.append(f"took {time.process_time() - begin:.1f} s, way {number}: {_text_of(data)}")
            outcomes[outcome] += 1
    return outcomes, failures


def _text_of(data: bytes) -> str:
    return (tensorkeep.open(data).state_text or "")[:3000]


def main() -> int:
    """Read broken files, print the outcomes, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    outcomes, failures = run(arguments.count, arguments.seed)
    print(*(f"{outcome:<40}{n:>10,}" for outcome, n in outcomes.most_common()), sep="\n")
    print(f"{len(failures):,} failures", *sorted(failures, key=len)[:10], sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
