"""A directory with a manifest, such as a trainer's checkpoint: every file that was saved together.

`open` and `load` read the checkpoint in it; only `verify` and `fetch` use the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final, NoReturn

import msgspec

from tensorkeep.digests import BLAKE3
from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    LimitError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
)
from tensorkeep.kinds.base import Check, Checks, Finding, Kind, OpenOptions, Place, combined
from tensorkeep.kinds.safetensors import check_files, open_file
from tensorkeep.layout import MANIFEST, FileRecord, parse_manifest
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.transport import ByteRange, is_directory, is_file, is_remote, join, open_source, recover_directories

_QUICK_NBYTES: Final = 2**20
"""Largest file, in bytes, that a quick check still reads."""


def has_manifest(path: str) -> bool:
    """Whether a directory has a manifest, as `save_folder` writes it."""
    return is_directory(path) and is_file(join(path, MANIFEST))


def read_manifest(folder: str) -> dict[str, FileRecord]:
    """Read the manifest of a directory."""
    path = join(folder, MANIFEST)
    try:
        source = open_source(path, backend="pread")
    except SourceMissingError:
        raise SourceMissingError(
            "the directory has no manifest, so its files are unknown", path=folder, expected=MANIFEST
        ) from None
    if source.nbytes > MAX_INDEX_NBYTES:
        raise LimitError("the manifest is too large", path=path, expected=f"at most {MAX_INDEX_NBYTES:,} bytes")
    return parse_manifest(bytes(source.read(ByteRange(0, source.nbytes))), path)


def folder_checks(path: str, opened: ExitStack, *, quick: bool = False) -> Checks:
    """Return the checks of every file that the manifest lists; other files are ignored."""
    if not is_remote(path):
        recover_directories(os.path.dirname(os.path.realpath(path)))
    records = read_manifest(path)
    found = {
        name: _file_checks(join(path, name), name, record, opened, quick=quick) for name, record in records.items()
    }
    n_files = sum(record.header is not None for record in records.values())
    return msgspec.structs.replace(combined(found), n_files=n_files, n_others=len(records) - n_files)


def _file_checks(path: str, name: str, record: FileRecord, opened: ExitStack, *, quick: bool) -> Checks:
    try:
        return _expected_checks(path, name, record, opened, quick=quick)
    except FileNotFoundError:
        return _damaged("missing", "the file is missing", name)
    except (FormatError, IntegrityError) as error:
        return _damaged("header", error.message, name, error.expected, error.found)
    except (TensorkeepError, OSError) as error:
        return _damaged("unreadable", str(error), name)


def _expected_checks(path: str, name: str, record: FileRecord, opened: ExitStack, *, quick: bool) -> Checks:
    """Return the checks of a file that can be opened, after comparing its size."""
    nbytes = open_source(path).nbytes if is_remote(path) else os.path.getsize(path)
    if nbytes != record.nbytes:
        return _damaged("file", "wrong size", name, f"{record.nbytes:,} bytes", f"{nbytes:,}")
    if record.header is not None:
        return _tensor_checks(path, name, record.header, opened, quick=quick)
    if quick and nbytes > _QUICK_NBYTES:
        return Checks()
    digest = bytes.fromhex(record.blake3 or "")
    # A path, not a source: there may be more files than descriptors, so each is opened only when it is checked.
    return Checks([Check(name, None, path, ByteRange(0, nbytes), BLAKE3, digest, 0)])


def _tensor_checks(path: str, name: str, expected: str, opened: ExitStack, *, quick: bool) -> Checks:
    """Return the checks of a safetensors file, which has digests of its own."""
    options = OpenOptions(as_stored=True)
    found = open_file(path, options).header_digest()
    if found != expected:
        facts = (f"header digest {expected[:16]}…", f"{found[:16]}…")
        return _damaged("file", "the file is from another save", name, *facts)
    if quick:
        return Checks()
    return check_files(path, options, None, opened)


def _damaged(kind: str, message: str, name: str, expected: str | None = None, found: str | None = None) -> Checks:
    return Checks(findings=[Finding(kind, message, name, expected=expected, found=found)])  # type: ignore[arg-type]


def _find(place: Place) -> str | None:
    return place.path if place.path is not None and has_manifest(place.path) else None


def _open(path: str, _: OpenOptions) -> NoReturn:
    raise UnsupportedError("a directory with a manifest is opened as what is in it", path=path)


def _check(path: str, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack) -> Checks:
    if names is not None:
        raise UnsupportedError("a directory with a manifest can only be checked whole", path=path)
    if not options.as_stored:
        raise UnsupportedError(
            "a directory with a manifest is checked as it is stored", path=path, hint="Give the key for a file in it"
        )
    return folder_checks(path, opened)


FOLDER: Final = Kind("a directory with a manifest", _find, _open, check=_check)
