"""The index of a sharded checkpoint: the file of each tensor, and the size and digests of each file. Pure.

It is the JSON text that transformers writes, byte for byte. Our additions are under `metadata.tensorkeep`, where
other readers ignore them:

    "digest": "<64 hexadecimal digits>"     BLAKE3 of this text with these digits replaced by zeros
    "shards": {file: {"header": "<64 hexadecimal digits>", "nbytes": …, "sha256": …, "blocks": …}}
    "splits": {tensor: [name of its first piece, …]}
    "state": "…"                            the structure of a saved state, as in the header of a single file
    "version": 1

docs/format.md specifies it.

msgspec decodes the text in one call but silently keeps the last of several equal keys. So the colons are counted: if
the text has one per tensor, and as many more as the metadata encoded again, there is no room for a second key. Any
other text is walked again, key by key, which is slower but certain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn

import msgspec

from tensorkeep.digests import NO_DIGEST, digest_of, digest_of_text_with
from tensorkeep.errors import (
    IndexFileError,
    IntegrityError,
    LimitError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
)
from tensorkeep.formats import SNIFF_NBYTES, sniff
from tensorkeep.layout._file_names import blocks_name
from tensorkeep.layout._pieces import pieces_in_order
from tensorkeep.layout._removed import parse_removed
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.paths import is_inside

_KEY: Final = "tensorkeep"
_VERSION: Final = 1
_BEFORE_DIGEST: Final = b'\n    "tensorkeep": {\n      "digest": "'
"""The text before the digest. Inside a JSON string its quotes would be escaped, so it occurs only once."""

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
_Nbytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ShardRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Size and digests that identify one shard.

    Attributes:
        nbytes: Size in bytes.
        header: BLAKE3 of everything before the data, the length field included, as 64 hexadecimal digits.
        sha256: SHA-256 of the whole file, as 64 hexadecimal digits: its id in Git LFS and on the Hub. None if it was
            not computed.
        blocks: Root of the block digests in the file beside it. None if there is no such file.
    """

    nbytes: _Nbytes
    header: _Digest
    sha256: _Digest | None = None
    blocks: _Digest | None = None


class Index(msgspec.Struct, frozen=True):
    """Which file stores which tensor.

    Attributes:
        weight_map: Name of a tensor, or of a piece, to its file: a path inside the directory of the index.
        metadata: Anything else the writer recorded, such as `total_size` in bytes.
        shards: Record of each file in `weight_map`; None if another program wrote the index.
        splits: Names of the pieces, in order, of each tensor that is cut.
        state: Text that describes the structure of a saved state, as in the metadata of a single file.
    """

    weight_map: dict[str, str]
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    shards: dict[str, ShardRecord] | None = None
    splits: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    state: str | None = None

    def __post_init__(self) -> None:
        for file in self.files:
            if not is_inside(file):
                raise IndexFileError(
                    "the index names a file outside its directory",
                    expected="a path inside the directory, with / between folders",
                    found=repr(file),
                )
        if _KEY in self.metadata:
            raise IndexFileError(f"the metadata key `{_KEY}` is reserved for the index itself")
        _check_records(self.files, self.shards)
        _check_splits(self)

    @property
    def files(self) -> tuple[str, ...]:
        """The files of `weight_map`, sorted, each once."""
        return tuple(sorted(set(self.weight_map.values())))

    @property
    def sidecars(self) -> tuple[str, ...]:
        """The files with the digests of the blocks of others."""
        return tuple(blocks_name(file) for file, record in (self.shards or {}).items() if record.blocks is not None)

    def file_of_whole(self) -> Mapping[str, str]:
        """Return the file of each tensor; of one that is cut, the file of its first piece."""
        if not self.splits:
            return self.weight_map
        pieces = {piece for names in self.splits.values() for piece in names}
        whole = {name: file for name, file in self.weight_map.items() if name not in pieces}
        return whole | {name: self.weight_map[names[0]] for name, names in self.splits.items()}

    def renamed(self, names: Mapping[str, str]) -> Index:
        """Return the index with other file names."""
        shards = self.shards and {names[file]: record for file, record in self.shards.items()}
        weight_map = {tensor: names[file] for tensor, file in self.weight_map.items()}
        return msgspec.structs.replace(self, weight_map=weight_map, shards=shards)


class _Section(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of `metadata.tensorkeep`."""

    digest: _Digest
    shards: dict[str, ShardRecord]
    version: int
    splits: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    state: str | None = None


class _Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of the text that are read."""

    weight_map: dict[str, str]
    metadata: dict[str, Any] | None = None


class _Version(msgspec.Struct, frozen=True):
    version: int


_decode_document = msgspec.json.Decoder(_Document).decode
STEP_KEY: Final = "tensorkeep_store"
"""The member of an index with the record of a step of a store; it is visible also where all else is encrypted."""

_SECTION_KEYS: Final = {"digest", "shards", "version"}


def emit_index(index: Index) -> bytes:
    """Encode an index; one with records of its files gets a digest."""
    metadata = dict(index.metadata)
    if index.shards is not None:
        metadata[_KEY] = msgspec.to_builtins(_Section(NO_DIGEST, index.shards, _VERSION, index.splits, index.state))
    document = {"metadata": metadata, "weight_map": index.weight_map}
    try:
        compact = json.dumps(document, sort_keys=True, allow_nan=False)
        text = msgspec.json.format(compact, indent=2).encode() + b"\n"  # faster than json's own
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise IndexFileError(f"the metadata cannot be written as JSON: {error}") from None
    if len(text) > MAX_INDEX_NBYTES:
        raise LimitError(
            "index too large",
            expected=f"at most {MAX_INDEX_NBYTES:,} bytes",
            found=f"{len(text):,} bytes for {len(index.weight_map):,} tensors",
            hint="Save fewer tensors, or less data beside them",
        )
    _decode(text)
    if index.shards is None:
        return text
    before, mark, after = text.partition(_BEFORE_DIGEST)
    return b"".join([before, mark, digest_of(text).hex().encode(), after[len(NO_DIGEST) :]])


def parse_index(text: bytes, path: str, *, check: bool = True) -> Index:
    """Parse an index, ours or another program's; `check` compares it with its digest."""
    if parse_removed(text) is not None:
        raise SourceMissingError("the checkpoint is being removed", path=path)
    try:
        document = _decode(text)
        metadata = document.metadata or {}
        section = _section(text, document, check=check)
        others = {key: value for key, value in metadata.items() if key != _KEY}
        if section is None:
            return Index(document.weight_map, others)
        return Index(document.weight_map, others, section.shards, section.splits, section.state)
    except TensorkeepError as error:
        raise error.with_fields(path=path) from None


def _decode(text: bytes) -> _Document:
    """Decode the text, and refuse equal keys."""
    if len(text) > MAX_INDEX_NBYTES:
        raise IndexFileError(
            "index too large", expected=f"at most {MAX_INDEX_NBYTES:,} bytes", found=f"{len(text):,} bytes"
        )
    try:
        document = _decode_document(text)
        # An escaped colon is not seen in the text, so counting would not be enough.
        if b"\\u003" in text or text.count(b":") != _n_colons(document):
            _walk(text.decode())
    except IndexFileError:
        raise
    except (ValueError, RecursionError) as error:  # of msgspec, json and UTF-8
        _refuse_text(text, error)
    return document


def _n_colons(document: _Document) -> int:
    """Count the colons of an index without equal keys, in which no tensor and no file has one in its name."""
    metadata = msgspec.json.encode(document.metadata).count(b":") + 1 if document.metadata is not None else 0
    return metadata + len(document.weight_map) + 1


def _refuse_equal_keys(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object with equal keys; return nothing, so that nothing is kept in memory."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise IndexFileError(f"the index has the key `{key}` twice")
        seen.add(key)


_walk = json.JSONDecoder(object_pairs_hook=_refuse_equal_keys, parse_int=len, parse_float=len).decode
"""Numbers are not converted: one may have a million digits."""


def _refuse_text(text: bytes, error: Exception) -> NoReturn:
    head = text[:SNIFF_NBYTES]
    sniffed = None if head.lstrip().startswith(b"{") else sniff(head)
    raise IndexFileError(
        f"cannot read the index: {error}",
        expected="the JSON text of an index, with a weight_map of file by tensor",
        found=sniffed.what if sniffed else None,
        hint=sniffed.hint if sniffed else "Download the index again, or save the checkpoint again",
    )


def _section(text: bytes, document: _Document, *, check: bool) -> _Section | None:
    """Return our section of an index, its digest checked; None if another program wrote the index."""
    if document.metadata is None or _KEY not in document.metadata:
        _refuse_misplaced_section(text, document)
        return None
    section = _decode_section(document.metadata[_KEY])
    found = digest_of_text_with(section.digest, text)
    if check and found != section.digest:
        raise IntegrityError(
            "the index changed after it was written",
            expected=f"digest {section.digest}",
            found=found,
            hint="It is damaged, or another program changed it. Download it again, or save the checkpoint again",
        )
    return section


def _decode_section(value: object) -> _Section:
    try:
        version = msgspec.convert(value, _Version).version
        if version <= _VERSION:
            return msgspec.convert(value, _Section)
    except msgspec.ValidationError as error:
        raise IntegrityError("the section of the index with its digest is damaged", found=str(error)) from None
    raise UnsupportedError(
        "the index has a newer version",
        expected=f"version {_VERSION}",
        found=f"version {version}",
        hint="Update tensorkeep",
    )


def _refuse_misplaced_section(text: bytes, document: _Document) -> None:
    """Refuse our section under another key: one changed byte must not hide the digests."""
    places = [document.metadata] if document.metadata is not None else msgspec.json.decode(text).values()
    for place in places:
        for key, value in place.items() if isinstance(place, dict) else ():
            if isinstance(value, dict) and value.keys() >= _SECTION_KEYS:
                raise IntegrityError(
                    "the section of the index with its digest is damaged",
                    expected=f"metadata.{_KEY}",
                    found=f"the same records under `{key}`",
                )


def _check_records(files: tuple[str, ...], shards: dict[str, ShardRecord] | None) -> None:
    if shards is None:
        return
    for file in sorted(shards.keys() ^ set(files)):
        raise IntegrityError(
            "the index does not have one record per file",
            expected=f"{len(files):,} records",
            found=f"a record for `{file}`, which has no tensor" if file in shards else f"no record for `{file}`",
        )


def _check_splits(index: Index) -> None:
    if (index.splits or index.state is not None) and index.shards is None:
        raise IndexFileError("an index with split tensors or a state needs records of its files")
    for tensor, names in index.splits.items():
        known = all(name in index.weight_map for name in names)
        if not known or tensor in index.weight_map or pieces_in_order(tensor, names) is None:
            raise IndexFileError(
                f"the pieces of `{tensor}` in the index do not follow each other",
                tensor=tensor,
                found=", ".join(names) or "no pieces",
            )
