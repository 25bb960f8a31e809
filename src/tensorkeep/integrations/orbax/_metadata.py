"""What is known of a run and of its steps beside arrays, as orbax's managers say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tensorkeep.errors import StateError
from tensorkeep.integrations.orbax._items import metadata_in, names_in, shardings_in
from tensorkeep.integrations.orbax._older_steps import of_step
from tensorkeep.integrations.orbax.args import Composite
from tensorkeep.integrations.orbax.leaves import tree_metadata
from tensorkeep.kinds import Opened
from tensorkeep.kinds.orbax import OrbaxCheckpoint

OF_STEP: Final = "orbax.custom_metadata"
"""Key of metadata with what the caller says about a step, as JSON."""

OF_RUN: Final = "orbax.root_metadata"
"""Key of metadata with what the caller says about the run, as JSON."""


class RootMetadata(msgspec.Struct, frozen=True):
    """What the caller said about a run.

    Attributes:
        custom_metadata: Plain data by key.
    """

    custom_metadata: dict[str, Any]


class StepMetadata(msgspec.Struct, frozen=True):
    """What is known of a step.

    Attributes:
        item_metadata: A `TreeMetadata`; several items as a `Composite`.
        metrics: Its metrics.
        custom_metadata: What the caller said about it.
    """

    item_metadata: Any
    metrics: dict[str, float]
    custom_metadata: dict[str, Any]


def as_metadata(key: str, custom: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what a caller says as text for a checkpoint."""
    if custom is None:
        return {}
    try:
        return {key: json.dumps(dict(custom))}
    except (TypeError, ValueError) as error:
        raise StateError("metadata is not plain data", expected="what JSON can hold", found=str(error)) from None


def custom_in(opened: Opened, key: str) -> dict[str, Any]:
    """Return what a caller said; nothing if it is not there."""
    if isinstance(opened, OrbaxCheckpoint):
        return of_step(opened)
    return metadata_in(opened, key, dict[str, Any]) or {}


def described(opened: Opened) -> Any:
    """Return what a checkpoint holds, as `TreeMetadata`; several items as a `Composite`."""
    names, shardings = names_in(opened), shardings_in(opened)
    if names is None:
        return tree_metadata(opened.tree, shardings)
    return Composite(**{name: tree_metadata(opened.tree[name], shardings.below(name)) for name in names})
