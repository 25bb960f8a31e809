"""The names of array libraries in annotations are the names in the table."""

from __future__ import annotations

from typing import get_args

from tensorkeep.arrays import LIBRARIES, Framework


def names_in(annotation: object) -> set[str]:
    arguments = get_args(annotation)
    return set(arguments) if arguments and isinstance(arguments[0], str) else set().union(*map(names_in, arguments))


def test_annotations_have_every_name_of_a_library() -> None:
    assert names_in(Framework) == {name for known in LIBRARIES.values() for name in (known.name, *known.aliases)}
