"""A finished checkpoint, opened to be written again."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tensorkeep.checkpoint._open import open_found
from tensorkeep.encryption import Keys
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import Opened, OpenOptions, Place
from tensorkeep.kinds.registry import find_kind
from tensorkeep.texts import listed
from tensorkeep.transport import is_directory, listing_cache

if TYPE_CHECKING:
    from tensorkeep.trust import Trust


def whole_checkpoint(
    path: str, variant: str | None, files: ExitStack, keys: Keys | None = None, trust: Trust | None = None
) -> Opened:
    """Open a finished checkpoint that holds nothing but tensors; `files` closes it."""
    options = OpenOptions(variant=variant if is_directory(path) else None, keys=keys)
    with listing_cache(path) as given:
        place = Place(given, variant=options.variant)
        found = find_kind(place)
        if found.kind.is_converted:
            raise UnsupportedError(
                f"this is {found.kind.name}, and not a finished checkpoint",
                path=path,
                hint="`tensorkeep convert` (tensorkeep.convert) turns it into one",
            )
        opened = files.enter_context(open_found(place, found, options, trust))
        opened.require_names()
        if left_out := opened.left_out():
            raise UnsupportedError(
                "this holds more than tensors",
                path=path,
                found=listed(f"`{other.name}`: {other.what}" for other in left_out),
                hint="`tensorkeep convert` (tensorkeep.convert) writes the tensors and says what it leaves out",
            )
        return opened
