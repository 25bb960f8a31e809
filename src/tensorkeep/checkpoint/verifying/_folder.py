"""Whether every file of a directory is the one that was saved, by its manifest."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import msgspec

from tensorkeep.checkpoint.verifying._safetensors import verify_tensors
from tensorkeep.digests import new_hasher
from tensorkeep.errors import FormatError, IntegrityError, LimitError, SourceMissingError, TensorkeepError
from tensorkeep.kinds import Finding, Verification
from tensorkeep.kinds.safetensors import header_digest, open_file
from tensorkeep.layout import MANIFEST, FileRecord, parse_manifest
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.parallel import ProgressMeter
from tensorkeep.transport import ByteRange, is_directory, is_file, is_remote, join, open_source, recover_directories

_QUICK_NBYTES: Final = 2**20
"""Bytes of files that are read whole even when there is little time."""

_IS_DAMAGE = (FormatError, IntegrityError)


def verify_folder(
    path: str | os.PathLike[str], *, quick: bool = False, progress: Callable[[int, int], None] | None = None
) -> list[Finding]:
    """Hold every file of a directory against its manifest; files that it does not list are left alone."""
    return list(examine_folder(os.fsdecode(path), quick=quick, progress=progress).findings)


def examine_folder(
    path: str, *, quick: bool = False, progress: Callable[[int, int], None] | None = None
) -> Verification:
    """Do what `verify_folder` does, and say how much was checked."""
    if not is_remote(path):
        recover_directories(os.path.dirname(os.path.realpath(path)))
    records = read_manifest(path)
    meter = ProgressMeter(progress, sum(record.nbytes for record in records.values()))
    checks = []
    for name, record in records.items():
        checks.append(_check(join(path, name), name, record, quick=quick))
        meter.add(record.nbytes)
    return Verification(
        path=str(path),
        findings=tuple(finding for check in checks for finding in check.findings),
        n_shards=sum(record.header is not None for record in records.values()),
        n_tensors=sum(check.n_tensors for check in checks),
        n_checked=sum(check.n_checked for check in checks),
        n_unprotected=0,
        nbytes_checked=sum(check.nbytes_checked for check in checks),
        n_sha256=0,
        n_others=sum(record.header is None for record in records.values()),
    )


def has_manifest(path: str) -> bool:
    """Say whether a directory was saved by `save_folder`."""
    return is_directory(path) and is_file(join(path, MANIFEST))


def read_manifest(folder: str) -> dict[str, FileRecord]:
    """Read what a directory says of its files."""
    path = join(folder, MANIFEST)
    try:
        source = open_source(path, backend="pread")
    except SourceMissingError:
        raise SourceMissingError(
            "the directory has no manifest, so nothing says what belongs to it", path=folder, expected=MANIFEST
        ) from None
    if source.nbytes > MAX_INDEX_NBYTES:
        raise LimitError("the manifest is too large", path=path, expected=f"at most {MAX_INDEX_NBYTES:,} bytes")
    return parse_manifest(bytes(source.read(ByteRange(0, source.nbytes))), path)


def digest_of_file(path: str) -> str:
    """Return the BLAKE3 of a file, as 64 hexadecimal digits."""
    source = open_source(path, backend="pread")
    hasher = new_hasher(parallel=source.nbytes > _QUICK_NBYTES)
    for piece in source.pieces(ByteRange(0, source.nbytes)):
        hasher.update(piece)
    return hasher.hexdigest()


def _check(path: str, name: str, record: FileRecord, *, quick: bool) -> Verification:
    """Check one file of a directory."""
    try:
        nbytes = open_source(path).nbytes if is_remote(path) else os.path.getsize(path)
        if nbytes != record.nbytes:
            return _found(name, _different("another size", name, f"{record.nbytes:,} bytes", f"{nbytes:,}"))
        if record.header is not None:
            return _check_tensors(path, name, record.header, quick=quick)
        return _check_bytes(path, name, record.blake3, nbytes=0 if quick and nbytes > _QUICK_NBYTES else nbytes)
    except FileNotFoundError:
        return _found(name, Finding("missing", "the file is missing", name))
    except _IS_DAMAGE as error:
        return _found(name, Finding("header", error.message, name, expected=error.expected, found=error.found))
    except (TensorkeepError, OSError) as error:
        return _found(name, Finding("unreadable", str(error), name))


def _check_bytes(path: str, name: str, expected: str | None, *, nbytes: int) -> Verification:
    """Check all bytes of a file, or none."""
    digest = digest_of_file(path) if nbytes else expected
    if digest == expected:
        return _found(name, nbytes=nbytes)
    message = "its bytes are not those that were saved"
    return _found(name, _different(message, name, f"digest {expected}", f"{digest}"), nbytes=nbytes)


def _check_tensors(path: str, name: str, expected: str, *, quick: bool) -> Verification:
    """Check a file that has digests of its own."""
    file = open_file(path)
    found = header_digest(file)
    if found != expected:
        facts = (f"header digest {expected[:16]}…", f"{found[:16]}…")
        return _found(name, _different("the file is of another save", name, *facts))
    if quick:
        return _found(name)
    done = verify_tensors(path)
    return msgspec.structs.replace(
        done, findings=tuple(msgspec.structs.replace(finding, shard=name) for finding in done.findings)
    )


def _different(message: str, name: str, expected: str, found: str) -> Finding:
    return Finding("file", message, name, expected=expected, found=found)


def _found(name: str, *findings: Finding, nbytes: int = 0) -> Verification:
    return Verification(name, findings, 0, 0, 0, 0, nbytes, 0)
