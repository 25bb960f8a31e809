"""Directories of several models, as diffusers writes them: a folder for each component. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tensorkeep.checking._findings import CheckFinding, finding_about
from tensorkeep.errors import FormatError
from tensorkeep.paths import is_plain_name
from tensorkeep.texts import counted

PIPELINE: Final = "model_index.json"
"""The file that lists the components."""


def components_of(text: bytes) -> list[str]:
    """Return the folders that a pipeline needs."""
    try:
        listed = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{PIPELINE} cannot be parsed", expected="an object of JSON", found=str(error)) from None
    return [
        name
        for name, value in listed.items()
        if is_plain_name(name) and isinstance(value, list) and len(value) == 2 and all(value)
    ]


def missing_components(names: list[str]) -> Iterator[CheckFinding]:
    """Yield the finding about folders that are not there."""
    if names:
        yield finding_about(
            "component-missing",
            "error",
            f"{PIPELINE} lists {counted(len(names), 'component')} without a folder",
            names,
            advice="Get these folders again from where the pipeline was made",
        )
