"""The checks of safetensors files, even if they are too damaged to open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack

from tensorkeep.errors import TensorkeepError, UnsupportedError
from tensorkeep.formats.safetensors import Alias
from tensorkeep.kinds.base import Checks, Finding, OpenOptions
from tensorkeep.kinds.safetensors._checkpoint import Checkpoint
from tensorkeep.kinds.safetensors._consistent_read import Reading, read_consistently
from tensorkeep.kinds.safetensors._digests import digest_checks
from tensorkeep.kinds.safetensors._saved import SavedTensors
from tensorkeep.kinds.safetensors._strays import strays_beside
from tensorkeep.transport import is_directory


def check_files(path: str, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack) -> Checks:
    """Return the checks of one file, or of an index and its shards."""
    reading = read_consistently(path, options)
    for file in reading.files.values():
        opened.callback(file.close)
    aliases, findings = _check_state(reading)
    index = reading.examination.index if reading.examination else None
    return digest_checks(
        reading.files, index, aliases, names, path, [*reading.findings, *findings, *_beside(path, reading)]
    )


def _beside(path: str, reading: Reading) -> Iterator[Finding]:
    """Find what only looks like a part of the checkpoint in a directory."""
    if reading.location is not None and reading.location.pending is None and is_directory(path):
        known = {finding.shard for finding in reading.findings}
        beside = strays_beside(reading.location.directory, reading.location.stem)
        yield from (finding for finding in beside if finding.shard not in known)


def _check_state(reading: Reading) -> tuple[Mapping[str, Alias], list[Finding]]:
    """Check that all views lie inside what they view, and that the tree can be read."""
    saved = _saved(reading)
    aliases: Mapping[str, Alias] = {}
    try:
        if saved is not None:
            aliases = saved.aliases
            for name in aliases:
                saved[name]
            _ = saved.tree if saved.has_tree else None
    except UnsupportedError:  # written by a later version, which can check it
        pass
    except TensorkeepError as error:
        name = next(iter(reading.files))
        return aliases, [
            Finding("state", error.message, name, error.tensor, expected=error.expected, found=error.found)
        ]
    return aliases, []


def _saved(reading: Reading) -> SavedTensors | None:
    if reading.examination is None:
        return next(iter(reading.files.values()))
    if reading.location is None or any(finding.is_damage for finding in reading.findings):
        return None
    return Checkpoint(reading.location, reading.examination, OpenOptions())
