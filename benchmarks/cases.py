"""Every case, by name. A worker imports only the group it needs, so that start-up is measured without torch."""

from __future__ import annotations

import importlib
from fnmatch import fnmatch

from benchmarks.case import Case

__all__ = ["GROUPS", "find_case", "find_cases"]

GROUPS = (
    "load",
    "libraries",
    "save",
    "background",
    "open",
    "checking",
    "slice",
    "blocks",
    "trust",
    "checkpoint",
    "merging",
    "store",
    "patches",
    "pickles",
    "formats",
    "model",
    "trainers",
    "remote",
    "serve",
    "viewing",
    "distributed",
    "meshes",
    "ranks",
    "startup",
)


def find_case(name: str) -> Case:
    """Return the case of that name."""
    return next(case for case in _cases_of(name.partition("/")[0]) if case.name == name)


def find_cases(pattern: str) -> list[Case]:
    """Return the cases whose names match a shell pattern, in the order of the report."""
    wanted = pattern.partition("/")[0] if "/" in pattern else "*"
    groups = [group for group in GROUPS if fnmatch(group, wanted)]
    return [case for group in groups for case in _cases_of(group) if fnmatch(case.name, pattern)]


def _cases_of(group: str) -> tuple[Case, ...]:
    cases: tuple[Case, ...] = importlib.import_module(f"benchmarks.{group}").CASES
    return cases
