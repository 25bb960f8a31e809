"""The kind of TensorFlow's checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from tensorkeep.collector import PausedCollector
from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError, UnsafeError
from tensorkeep.kinds.base import Checks, Files, Kind, OpenOptions
from tensorkeep.kinds.tensorflow._bundle import TensorBundle
from tensorkeep.kinds.tensorflow._files import open_files
from tensorkeep.kinds.tensorflow._location import PROGRAM_FILES, BundleLocation, find_bundle
from tensorkeep.texts import listed
from tensorkeep.transport import exists


def _open(location: BundleLocation, options: OpenOptions) -> TensorBundle:
    with PausedCollector(), ExitStack() as opened:
        files = open_files(location, opened, options)
        if files.faults:
            is_missing = all(fault.kind == "missing" for fault in files.faults)
            error: type[TensorkeepError] = SourceMissingError if is_missing else IntegrityError
            raise error(
                "data files of the checkpoint are missing" if is_missing else "the checkpoint is not whole",
                path=location.path,
                found=listed(files.faults, separator="; "),
                hint="Get the named files again",
            )
        bundle = TensorBundle(location, files, options)
        if options.strict and bundle.unknowns:
            found = ", ".join(f"{unknown} at `{name}`" for name, unknown in bundle.unknowns.items())
            raise UnsafeError("objects that are not known to be data", path=location.path, found=found)
        opened.pop_all()
        return bundle


def _check(location: BundleLocation, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack) -> Checks:
    """Return what can be checked, even if data files are missing or truncated."""
    files = open_files(location, opened, options)
    return TensorBundle(location, files, options).checks(names)


def _files(location: BundleLocation) -> Files:
    with ExitStack() as opened:
        files = open_files(location, opened, OpenOptions())
        names = (f"{location.stem}.index", *files.names.values())
    program = [name for name in PROGRAM_FILES if exists(location.path_of(name))] if location.is_saved_model else ()
    return Files(location.directory, location.stem, (*names, *program), opens_alone=False)


TENSORFLOW: Final[Kind[BundleLocation]] = Kind(
    "a TensorFlow checkpoint", find_bundle, _open, check=_check, files=_files, suffixes=(".index",)
)
