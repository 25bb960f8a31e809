"""A finished checkpoint, opened to be written again."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tensorkeep.checkpoint._open import open_found
from tensorkeep.encryption import Keys
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import Opened, OpenOptions, Place
from tensorkeep.kinds.given import refuse_to_open_again
from tensorkeep.kinds.registry import find_kind
from tensorkeep.texts import listed
from tensorkeep.transport import is_directory, listing_cache

if TYPE_CHECKING:
    from tensorkeep.trust import Trust


def whole_checkpoint(
    source: str | Opened,
    variant: str | None,
    files: ExitStack,
    keys: Keys | None = None,
    trust: Trust | None = None,
) -> Opened:
    """Return a finished checkpoint that holds nothing but tensors; one given by its path is closed by `files`."""
    if isinstance(source, Opened):
        refuse_to_open_again(source, variant=variant, key=keys, trust=trust)
        return _without_others(source)
    return _without_others(_opened(source, variant, files, keys, trust))


def _opened(path: str, variant: str | None, files: ExitStack, keys: Keys | None, trust: Trust | None) -> Opened:
    options = OpenOptions(variant=variant if is_directory(path) else None, keys=keys)
    with listing_cache(path) as given:
        place = Place(given, variant=options.variant)
        found = find_kind(place)
        if found.kind.is_converted:
            raise UnsupportedError(
                "not a finished checkpoint",
                path=path,
                found=found.kind.name,
                hint="`tensorkeep convert` (tensorkeep.convert) turns it into one",
            )
        return files.enter_context(open_found(place, found, options, trust))


def _without_others(opened: Opened) -> Opened:
    """Return what is open; refuse it if it holds more than tensors."""
    opened.require_names()
    if left_out := opened.left_out():
        raise UnsupportedError(
            "this holds more than tensors",
            path=opened.path,
            found=listed(f"`{other.name}`: {other.what}" for other in left_out),
            hint="`tensorkeep convert` (tensorkeep.convert) writes the tensors and says what it leaves out",
        )
    return opened
