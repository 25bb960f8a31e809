"""What `dir` shows of a public class is what the reference lists."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import pytest

from tensorkeep.tensors.lazy._dir import PLUMBING, names_for_people
from tests.support import ROOT

LIBRARIES = ("integrations", "keras", "tensorflow", "mlx", "paddle", "jax", "transport.remote")
"""Modules that import libraries which crash in one process, or whose classes are subclasses of others' classes."""


class Entry(NamedTuple):
    """A class in the reference.

    Attributes:
        cls: The class.
        with_inherited: Whether the page shows members of its bases too.
    """

    cls: type
    with_inherited: bool


def entries() -> Iterator[Entry]:
    for page in sorted(ROOT.joinpath("docs", "reference").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for path, options in re.findall(r"^::: tensorkeep\.([\w.]+)\n((?:    .*\n)*)", text, re.MULTILINE):
            if not path.startswith(LIBRARIES):
                module, _, name = f"tensorkeep.{path}".rpartition(".")
                found = getattr(importlib.import_module(module), name)
                if inspect.isclass(found) and not issubclass(found, Exception):
                    yield Entry(found, "inherited_members: true" in options)


ENTRIES = list(entries())


def hidden() -> re.Pattern[str]:
    """The filter of mkdocs.yml for members that other parts of the package use."""
    text = ROOT.joinpath("mkdocs.yml").read_text(encoding="utf-8")
    return re.compile(re.findall(r'"!(\^\(.*?\)\$)"', text)[0])


def shown(entry: Entry) -> set[str]:
    """The members that the page of a class shows."""
    classes = entry.cls.__mro__ if entry.with_inherited else (entry.cls,)
    return {
        name
        for cls in classes
        if cls.__module__.startswith("tensorkeep")
        for name, value in vars(cls).items()
        if not name.startswith("_") and not hidden().match(name) and _is_documented(value)
    }


def attributes(cls: type) -> set[str]:
    """The attributes that the docstring of a class explains; objects may have them, and not the class."""
    return set(re.findall(r"^ {4}(\w+):", (inspect.getdoc(cls) or "").partition("Attributes:")[2], re.MULTILINE))


def _is_documented(value: object) -> bool:
    is_member = callable(value) or isinstance(value, property | cached_property | classmethod | staticmethod)
    return is_member and bool(inspect.getdoc(value))


def for_people(cls: type) -> set[str]:
    """What `dir` of an object shows, but for members of Python's own classes and those that are hidden."""
    own = {name for base in cls.__mro__ if base.__module__.startswith("tensorkeep") for name in vars(base)}
    others = {name for base in cls.__mro__ if not base.__module__.startswith("tensorkeep") for name in vars(base)}
    shown = names_for_people(dir(cls))  # lazy tensors and mappings of them have it as `__dir__`
    return {name for name in shown if not name.startswith("_")} - (others - own)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.cls.__qualname__)
def test_dir_shows_what_the_reference_lists(entry: Entry) -> None:
    bases = [other for other in ENTRIES if issubclass(entry.cls, other.cls)]
    listed = set[str]().union(*map(shown, bases))
    explained = set[str]().union(*(attributes(base.cls) for base in bases))

    assert listed <= for_people(entry.cls)
    assert for_people(entry.cls) - listed - explained == set()


def test_the_reference_leaves_out_what_dir_leaves_out() -> None:
    members = {name for entry in ENTRIES for name in dir(entry.cls)}

    assert set(re.findall(r"\w+", hidden().pattern)) == PLUMBING <= members
