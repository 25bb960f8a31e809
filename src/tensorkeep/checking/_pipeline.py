"""Directories of several models, as diffusers writes them: a folder for each component. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tensorkeep.checking._findings import CheckFinding, finding_about
from tensorkeep.errors import FormatError
from tensorkeep.paths import is_plain_name

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


def missing_component(name: str) -> CheckFinding:
    """Return the finding about a folder that is not there."""
    return finding_about(
        "component-missing",
        "error",
        f"{PIPELINE} lists the component `{name:.200}`, which is not there",
        advice="Get this folder again from where the pipeline was made",
    )
