"""What `dir` lists of lazy tensors and open files: members for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PLUMBING: Final = frozenset({
    *("check_open", "checks", "companion", "composites", "describe", "empty", "entries", "entry", "is_replaceable"),
    *(
        "left_out",
        "lists_aliases",
        "load_shared",
        "load_state",
        "loads_parts",
        "loads_unknowns",
        "marked",
        "nested",
        "place",
        "proof",
    ),
    *("reader", "records", "refuse_expanded", "renamed", "seal", "span_of", "state", "state_files"),
    *("state_text", "stored", "stored_names", "tensor_to_write", "unmapped", "verified", "verifying", "views"),
})
"""Members for other parts of this package."""


def names_for_people(names: Iterable[str]) -> list[str]:
    """Return the names of members without private ones and plumbing."""
    return [name for name in names if name not in PLUMBING and (not name.startswith("_") or name.startswith("__"))]
