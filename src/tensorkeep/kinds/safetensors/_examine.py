"""Compare the index with the headers of all shards. No tensor data is read.

An index written by tensorkeep has the size of each shard and the digest of its header, and each header has the digest
of every tensor. So shards from another save are recognized here, however similar they are.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tensorkeep.errors import (
    HeaderError,
    IntegrityError,
    LimitError,
    SourceMissingError,
    TensorkeepError,
    TransportError,
    TrustError,
    UnsupportedError,
)
from tensorkeep.kinds.base import Finding, OpenOptions
from tensorkeep.kinds.safetensors._blocks import BlocksFile
from tensorkeep.kinds.safetensors._encrypted_index import index_in, over_encrypted
from tensorkeep.kinds.safetensors._file import TensorFile, file_over
from tensorkeep.kinds.safetensors._misfit import misfit_of
from tensorkeep.layout import Index, Location, ShardRecord, blocks_name, parse_index
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.transport import (
    ByteRange,
    ByteSource,
    JoinedSource,
    MemorySource,
    is_remote,
    open_listed,
    open_source,
    split,
)

if TYPE_CHECKING:
    from tensorkeep.trust import Proof

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""errno values that mean this process is out of descriptors or memory, not that the checkpoint is damaged."""

_MAX_REQUESTS = 16
"""Headers of a remote checkpoint to request at a time."""


class Examination(msgspec.Struct, frozen=True):
    """The index and the headers, compared.

    Attributes:
        index: The index; of an encrypted checkpoint the plain one in it.
        stored: The index as it is in its file.
        files: File name to open shard, for those that could be opened.
        findings: Everything that is wrong.
    """

    index: Index
    stored: Index
    files: dict[str, TensorFile]
    findings: list[Finding]


def read_index(path: str, *, check: bool = True, proof: Proof | None = None) -> Index:
    """Read and parse an index file; with a `proof`, only if it is what was signed."""
    source = open_source(path, backend="pread")
    if source.nbytes > MAX_INDEX_NBYTES:
        raise LimitError(
            "index too large", path=path, expected=f"at most {MAX_INDEX_NBYTES:,} bytes", found=f"{source.nbytes:,}"
        )
    text = bytes(source.read(ByteRange(0, source.nbytes)))
    if proof is not None:
        proof.check_content(split(path)[1], text)
    return parse_index(text, path, check=check)


def examine(location: Location, options: OpenOptions) -> Examination:
    """Read the index and the headers of all shards, and record what is wrong."""
    stored = read_index(location.entry, check=options.check, proof=options.proof)
    index = index_in(stored, location.entry, options)
    if index is not stored:  # its records of the files are authentic, and must be compared
        options = replace(options, check=True)
    names = sorted(set(index.weight_map.values()))
    files: dict[str, TensorFile] = {}
    findings: list[Finding] = []
    records = {name: (index.shards or {}).get(name) if options.check else None for name in names}
    n_threads = _MAX_REQUESTS if is_remote(location.directory) else 1
    opened = parallel_map(
        lambda name: _open_shard(location, name, options, records[name]),
        names,
        n_threads=min(n_threads, len(names)),
        meter=ProgressMeter(None, 0),
    )
    for name, shard in zip(names, opened, strict=True):
        record = records[name]
        if isinstance(shard, Finding):
            findings.append(shard)
            continue
        files[name] = shard
        findings += _check_record(name, shard, record, index, check=options.check)
    if index is stored:
        index, strangers = over_encrypted(index, files, location.entry, options)
        findings += strangers
    findings += _check_names(index, files)
    if location.pending is None:
        findings += stray_shards(location.directory, location.stem, names)
    return Examination(index, stored, files, findings)


def _open_shard(
    location: Location, name: str, options: OpenOptions, record: ShardRecord | None
) -> TensorFile | Finding:
    try:
        source = open_listed(location.path_of(name), backend=options.backend)
        misfit = None if record is None else misfit_of(source, name, record)
        if misfit is not None:
            return misfit
        root = record.blocks if record is not None else None
        blocks = None if root is None else BlocksFile(location.path_of(blocks_name(name)), bytes.fromhex(root))
        return _shard_over(source, location, name, options, is_recorded=record is not None, blocks=blocks)
    except TrustError:
        raise
    except (SourceMissingError, FileNotFoundError):
        return Finding("missing", "the shard is missing", name)
    except HeaderError as error:
        return Finding("header", error.message, name, error.tensor, expected=error.expected, found=error.found)
    except (IntegrityError, UnsupportedError) as error:
        return Finding("header", error.message, name, expected=error.expected, found=error.found)
    except (TensorkeepError, OSError) as error:
        if getattr(error, "errno", None) in _EXHAUSTED:
            raise TransportError("could not open all shards", path=location.directory, found=str(error)) from error
        return Finding("unreadable", str(error), name)


def open_shard(location: Location, name: str, options: OpenOptions) -> TensorFile:
    """Open one file of a checkpoint; if an edit is committed but not yet applied, with its new header."""
    return _shard_over(open_source(location.path_of(name), backend=options.backend), location, name, options)


def _shard_over(
    source: ByteSource,
    location: Location,
    name: str,
    options: OpenOptions,
    *,
    is_recorded: bool = False,
    blocks: BlocksFile | None = None,
) -> TensorFile:
    head = location.pending.head_of(name) if location.pending else None
    if head is not None:
        rest = ByteRange(len(head), source.nbytes)
        source = JoinedSource([(MemorySource(head), ByteRange(0, len(head))), (source, rest)], source.name)
    return file_over(source, options, name=name, is_recorded=is_recorded, blocks=blocks)


def _check_record(
    name: str, shard: TensorFile, record: ShardRecord | None, index: Index, *, check: bool
) -> Iterator[Finding]:
    """Compare a shard with its record in the index."""
    if record is None:
        if check and shard.seal is not None and shard.seal.index is not None:
            yield Finding(
                "foreign",
                "the shard was saved with an index that has digests, and this index has none",
                name,
                found="an index that was damaged, or rewritten by another program",
            )
        return
    digest = shard.header_digest()
    if digest == record.header:
        return
    twin = next((other for other, known in (index.shards or {}).items() if known.header == digest), None)
    yield Finding(
        "foreign",
        f"this is {twin}" if twin else "the shard is from another save",
        name,
        expected=f"header digest {record.header[:16]}…",
        found=f"{digest[:16]}…",
    )


def _check_names(index: Index, files: Mapping[str, TensorFile]) -> Iterator[Finding]:
    """Find tensors that the index lists but their shard lacks, and tensors in two shards."""
    n_entries = sum(len(file.entries) for file in files.values())
    file_of = index.weight_map.get
    n_listed = sum(list(map(file_of, file.entries)).count(name) for name, file in files.items())
    if not n_listed == n_entries == len(index.weight_map):
        yield from _differences(index, files)


def _differences(index: Index, files: Mapping[str, TensorFile]) -> Iterator[Finding]:
    for tensor, name in index.weight_map.items():
        if name in files and tensor not in files[name].entries:
            actual = next((other for other, file in files.items() if tensor in file.entries), None)
            yield Finding(
                "absent",
                f"tensor `{tensor}` is in the index but not in this file",
                name,
                tensor,
                found=f"it in {actual}" if actual else None,
            )
    owners: dict[str, str] = {}
    for name, file in files.items():
        for tensor in file.entries:
            first = owners.setdefault(tensor, name)
            if first != name:
                yield Finding("duplicate", f"tensor `{tensor}` is also in {first}", name, tensor)


def stray_shards(directory: str, stem: str, listed: Collection[str]) -> Iterator[Finding]:
    """Find files named like shards of a checkpoint that no index lists."""
    is_shard = re.compile(re.escape(stem) + r"-[0-9]{5}-of-[0-9]{5}\.safetensors").fullmatch
    for name in names_in(directory):
        if is_shard(name) and name not in listed:
            yield Finding("stray", "no index lists it; was it left by another save?", name)


def names_in(directory: str) -> list[str]:
    """List a local directory; some can be entered, but not listed."""
    try:
        return [] if is_remote(directory) else sorted(os.listdir(directory or os.curdir))
    except OSError:
        return []
