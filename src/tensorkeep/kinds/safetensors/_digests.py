"""The checksums of safetensors files, as checks: a digest of each tensor, and the SHA-256 of each shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from tensorkeep.digests import BLAKE3, SHA256
from tensorkeep.entries import TensorEntry
from tensorkeep.formats.safetensors import Alias, Seal
from tensorkeep.kinds.base import Check, Checks, Finding, names_to_check
from tensorkeep.layout import Index
from tensorkeep.transport import ByteRange, ByteSource, kept_sha256


class SealedFile(Protocol):
    """What a check needs to know about a file."""

    @property
    def entries(self) -> Mapping[str, TensorEntry]: ...
    @property
    def seal(self) -> Seal | None: ...
    @property
    def source(self) -> ByteSource: ...
    @property
    def stored_source(self) -> ByteSource: ...
    def span_of(self, name: str) -> ByteRange: ...
    def block_checks(self) -> Checks: ...


def digest_checks(
    files: Mapping[str, SealedFile],
    index: Index | None,
    aliases: Mapping[str, Alias],
    names: Iterable[str] | None,
    path: str,
    findings: Sequence[Finding] = (),
) -> Checks:
    """Return the checks of tensors in some files; those of whole files only if all tensors are checked."""
    wanted = None if names is None else _stored_names(files, index, aliases, names, path)
    recorded = _recorded_sha256(files, index)
    kept = _kept_sha256(files, recorded)
    hashes = recorded | kept
    chosen = {shard: _n_chosen(file, wanted) for shard, file in files.items()}
    without = {shard: n for shard, n in chosen.items() if n and files[shard].seal is None}
    # The SHA-256 of a whole file is what protects its tensors if they have no digests of their own
    whole = [shard for shard in hashes if names is None or shard in without]
    of_blocks = [file.block_checks() for file in files.values()] if names is None else []
    trees = [check for found in of_blocks for check in found.checks]
    return Checks(
        [
            *_of_tensors(files, wanted),
            *trees,
            *(
                _of_file(shard, files, hashes, without.get(shard, 0), is_recorded=shard in recorded)
                for shard in whole
            ),
        ],
        [*findings, *(finding for found in of_blocks for finding in found.findings)],
        n_unprotected=sum(n for shard, n in without.items() if shard not in hashes),
        n_files=1 if index is None else len(index.files),
        n_tensors=sum(len(file.entries) for file in files.values()),
        n_others=len(trees),
    )


def _n_chosen(file: SealedFile, wanted: set[str] | None) -> int:
    return len(file.entries) if wanted is None else len(wanted & file.entries.keys())


def _stored_names(
    files: Mapping[str, SealedFile],
    index: Index | None,
    aliases: Mapping[str, Alias],
    names: Iterable[str],
    path: str,
) -> set[str]:
    """Return the names under which the files store these tensors: for a split tensor, the names of its pieces."""
    splits = index.splits if index else {}
    listed = index.weight_map if index else {}
    known = set(splits).union(listed, aliases, *(file.entries for file in files.values()))
    chosen = names_to_check(names, known, path)
    owners = {aliases[name].of if name in aliases else name for name in chosen}
    return {piece for name in owners for piece in splits.get(name, (name,))}


def _of_tensors(files: Mapping[str, SealedFile], wanted: set[str] | None) -> Iterator[Check]:
    for shard, file in files.items():
        digests = [] if file.seal is None else file.seal.tensor_digests()
        for name, digest in zip(file.entries, digests, strict=False):
            if wanted is None or name in wanted:
                yield Check(shard, name, file.source, file.span_of(name), BLAKE3, digest)


def _recorded_sha256(files: Mapping[str, SealedFile], index: Index | None) -> dict[str, bytes]:
    """Return the SHA-256 of each file for which the index has one."""
    records = (index.shards if index else None) or {}
    return {
        shard: bytes.fromhex(record.sha256) for shard, record in records.items() if record.sha256 and shard in files
    }


def _kept_sha256(files: Mapping[str, SealedFile], recorded: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the SHA-256 that others keep of files without any digest."""
    others = [shard for shard, file in files.items() if shard not in recorded and file.seal is None]
    return {shard: bytes.fromhex(kept) for shard in others if (kept := kept_sha256(files[shard].source))}


def _of_file(
    shard: str, files: Mapping[str, SealedFile], hashes: Mapping[str, bytes], n_tensors: int, *, is_recorded: bool
) -> Check:
    source = files[shard].stored_source
    return Check(shard, None, source, ByteRange(0, source.nbytes), SHA256, hashes[shard], n_tensors, is_recorded)
