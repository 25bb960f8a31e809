"""Directories with any files, saved as one: checkpoints of trainers, with everything beside the tensors.

`save_checkpoint` replaces the files of one checkpoint and leaves all others alone; this replaces the whole directory.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tensorkeep.checkpoint.verifying import digest_of_file
from tensorkeep.errors import FormatError, TensorkeepError, UnsupportedError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.folder import read_manifest
from tensorkeep.kinds.safetensors import TensorFile, open_file
from tensorkeep.layout import MANIFEST, FileRecord, emit_manifest
from tensorkeep.paths import is_inside
from tensorkeep.transport import dependents_of, publish, publish_directory

_MARK: Final = ".tensorkeep-"
"""Part of the names that running and killed saves of ours leave in a directory."""


@contextmanager
def save_folder(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[str]:
    """Save a directory with any files in it, complete or not at all.

        with save_folder("run/checkpoint-500") as staging:
            tensorkeep.save(state, f"{staging}/state.safetensors")
            Path(staging, "config.json").write_text("{}")

    When the block ends, a manifest with the size and a digest of each file is added, and the directory appears under
    its name at once, with all its files. It replaces an existing directory, and keeps what others have put there:
    files that the old manifest does not list and the new directory does not have.
    """
    with publish_directory(path, durable=durable) as staging:
        yield staging
        names = [name for name in _names_in(staging) if name != MANIFEST and not _is_signature(name)]
        _refuse_unportable(names, path)
        files = {name: _record(_at(staging, name)) for name in names}
        with publish(os.path.join(staging, MANIFEST), durable=durable) as sink:
            sink.write([emit_manifest(files)])
        _keep_others(os.path.realpath(path), staging)


def _names_in(folder: str) -> Iterator[str]:
    """Give the relative names of all regular files."""
    return (
        name for name in _all_names_in(folder) if os.path.isfile(at := _at(folder, name)) and not os.path.islink(at)
    )


def _is_signature(name: str) -> bool:
    """Say whether a file is a signature, which names the manifest and so cannot be in it."""
    return name.endswith(".sig") and "/" not in name


def _all_names_in(folder: str) -> Iterator[str]:
    """Give the relative names of everything except directories; a link to a directory is included."""
    for directory, folders, names in os.walk(folder):
        inner = os.path.relpath(directory, folder)
        links = [name for name in folders if os.path.islink(os.path.join(directory, name))]
        for name in (*names, *links):
            yield (name if inner == os.curdir else os.path.join(inner, name)).replace(os.sep, "/")


def _refuse_unportable(names: list[str], path: str | os.PathLike[str]) -> None:
    for name in names:
        if not is_inside(name):  # what no reader of a manifest would accept
            raise UnsupportedError(
                "a file in the directory has a name that not every system can have",
                path=os.fspath(path),
                expected="names without colons, backslashes and control characters",
                found=repr(name),
            )


def _at(folder: str, name: str) -> str:
    return os.path.join(folder, *name.split("/"))


def _record(path: str) -> FileRecord:
    nbytes = os.path.getsize(path)
    sealed = _sealed(path)
    if sealed is not None:
        return FileRecord(nbytes, header=sealed.header_digest())
    return FileRecord(nbytes, blake3=digest_of_file(path))


def _sealed(path: str) -> TensorFile | None:
    """Open a file if it has digests of its own, so that they are not computed again."""
    if not path.endswith(".safetensors"):
        return None
    with suppress(FormatError):
        file = open_file(path, OpenOptions(as_stored=True))
        return file if file.seal is not None else None
    return None


def _keep_others(old: str, staging: str) -> None:
    """Link or copy files of others from a directory into the one that replaces it."""
    listed: set[str] = set()
    with suppress(TensorkeepError):
        listed.update((*read_manifest(old), MANIFEST))
    listed.update(dependents_of(old, _names_in(staging)))
    for name in _all_names_in(old):
        if name not in listed and _MARK not in name and not os.path.lexists(target := _at(staging, name)):
            with suppress(FileNotFoundError):  # removed in this instant
                _link_or_copy(_at(old, name), target)


def _link_or_copy(source: str, target: str) -> None:
    is_regular = stat.S_ISREG(os.lstat(source).st_mode)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        if is_regular or os.path.islink(source):  # a pipe cannot be copied
            shutil.copy2(source, target, follow_symlinks=False)
