"""Safetensors files, alone or with an index, as a kind. It takes whatever no other kind has claimed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from tensorkeep.kinds._base import Kind
from tensorkeep.kinds._checks import Checks
from tensorkeep.kinds._opened import Opened
from tensorkeep.kinds._options import OpenOptions
from tensorkeep.kinds._place import Place
from tensorkeep.kinds.safetensors._checkpoint import open_safetensors
from tensorkeep.kinds.safetensors._file import file_over
from tensorkeep.kinds.safetensors._verify import check_files

_SUFFIX = ".safetensors"


def _find(place: Place) -> Place:
    """Claim the place: where nothing is, opening it says what is missing."""
    return place


def _open(place: Place, options: OpenOptions) -> Opened:
    if place.path is not None and (place.is_directory or place.path.endswith((_SUFFIX, ".json"))):
        return open_safetensors(place.path, options)
    return file_over(place.source, options)


def _check(place: Place, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack) -> Checks:
    if place.path is None:
        return opened.enter_context(file_over(place.source, options)).checks(names)
    return check_files(place.path, options, names, opened)


SAFETENSORS = Kind("safetensors files", _find, _open, check=_check, suffixes=(_SUFFIX,), verifies_reads=True)
