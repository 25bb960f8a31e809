"""The index of a sharded checkpoint: which tensor stands in which file, and by what to know these files. Pure.

It is the JSON text that transformers writes, byte for byte; what is more stands under `metadata.tensorkeep`, so every
reader of the format reads it:

    "digest": "<64 hexadecimal digits>"     BLAKE3 of this very text with these digits as zeros
    "shards": {file: {"header": "<64 hexadecimal digits>", "nbytes": …, "sha256": …}}
    "splits": {tensor: [name of its first piece, …]}
    "state": "…"                            what is said of the state that was saved, as in a single file
    "version": 1

docs/format.md specifies it.

How the speed comes about: msgspec decodes the text into typed values in one call, but silently keeps the last of
several equal keys. So the colons are counted: as many in the text as in what was decoded, encoded again, leave no
room for a second key. Any other text is walked once more, key by key, which is slower and leaves no question open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn

import msgspec

from tensorkeep.digests import DIGEST_NBYTES, digest_of
from tensorkeep.errors import IndexFileError, IntegrityError, LimitError, TensorkeepError, UnsupportedError
from tensorkeep.formats import SNIFF_NBYTES, sniff
from tensorkeep.layout._file_names import is_inside
from tensorkeep.layout._pieces import pieces_in_order
from tensorkeep.limits import MAX_INDEX_NBYTES

_KEY: Final = "tensorkeep"
_VERSION: Final = 1
_ZEROS: Final = "0" * (2 * DIGEST_NBYTES)
_BEFORE_DIGEST: Final = b'\n    "tensorkeep": {\n      "digest": "'
"""What stands before the digest; inside a JSON text the quotes would be escaped, so it stands only there."""

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
_Nbytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ShardRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """By what to know one file of a checkpoint.

    Attributes:
        nbytes: Its size in bytes.
        header: BLAKE3 of all that stands before its data, length field included, as 64 hexadecimal digits.
        sha256: SHA-256 of the whole file, as 64 hexadecimal digits; the id that Git LFS and the Hub know it by. None
            where it was not computed.
    """

    nbytes: _Nbytes
    header: _Digest
    sha256: _Digest | None = None


class Index(msgspec.Struct, frozen=True):
    """Which tensor stands in which file.

    Attributes:
        weight_map: Name of a tensor, or of a piece of one, to its file; a path inside the directory of the index.
        metadata: Anything else that the writer said, such as `total_size` in bytes.
        shards: File to what it is known by, for exactly the files of `weight_map`; None in an index of others.
        splits: Tensor to the names of its pieces in order, for those that are cut; the pieces cover it from row 0 on.
        state: What is said of the state that was saved, as the metadata of a single file say it.
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
            raise IndexFileError(f"the metadata key `{_KEY}` is kept for what the index itself says")
        _check_records(self.files, self.shards)
        _check_splits(self)

    @property
    def files(self) -> tuple[str, ...]:
        """The files of `weight_map`, each once, by name."""
        return tuple(sorted(set(self.weight_map.values())))

    def renamed(self, names: Mapping[str, str]) -> Index:
        """Return the index of the same files under other names."""
        shards = self.shards and {names[file]: record for file, record in self.shards.items()}
        weight_map = {tensor: names[file] for tensor, file in self.weight_map.items()}
        return msgspec.structs.replace(self, weight_map=weight_map, shards=shards)


class _Section(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands under `metadata.tensorkeep`."""

    digest: _Digest
    shards: dict[str, ShardRecord]
    version: int
    splits: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    state: str | None = None


class _Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of the text that is looked at."""

    weight_map: dict[str, str]
    metadata: dict[str, Any] | None = None


class _Version(msgspec.Struct, frozen=True):
    version: int


_decode_document = msgspec.json.Decoder(_Document).decode
_SECTION_KEYS: Final = {"digest", "shards", "version"}


def emit_index(index: Index) -> bytes:
    """Encode an index, with its digest where it has records of its files."""
    metadata = dict(index.metadata)
    if index.shards is not None:
        metadata[_KEY] = msgspec.to_builtins(_Section(_ZEROS, index.shards, _VERSION, index.splits, index.state))
    document = {"metadata": metadata, "weight_map": index.weight_map}
    try:
        text = json.dumps(document, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"
    except (ValueError, RecursionError) as error:
        raise IndexFileError(f"the metadata of the index has no JSON form: {error}") from None
    if len(text) > MAX_INDEX_NBYTES:
        raise LimitError(
            "index too large",
            expected=f"at most {MAX_INDEX_NBYTES:,} bytes",
            found=f"{len(text):,} bytes for {len(index.weight_map):,} tensors",
        )
    _decode(text)
    if index.shards is None:
        return text
    before, mark, after = text.partition(_BEFORE_DIGEST)
    return b"".join([before, mark, digest_of(text).hex().encode(), after[len(_ZEROS) :]])


def parse_index(text: bytes, path: str, *, check: bool = True) -> Index:
    """Read an index, whoever wrote it."""
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
    """Read the text; every key in it stands once in its object."""
    if len(text) > MAX_INDEX_NBYTES:
        raise IndexFileError(
            "index too large", expected=f"at most {MAX_INDEX_NBYTES:,} bytes", found=f"{len(text):,} bytes"
        )
    try:
        document = _decode_document(text)
        # An escape may hide a colon.
        if b"\\" in text or text.count(b":") != msgspec.json.encode(document).count(b":"):
            _walk(text.decode())
    except IndexFileError:
        raise
    except (ValueError, RecursionError) as error:  # of msgspec, json and UTF-8
        _refuse_text(text, error)
    return document


def _refuse_equal_keys(pairs: list[tuple[str, Any]]) -> None:
    """Look at the keys of one object, and keep nothing of it."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise IndexFileError(f"the index has the key `{key}` twice")
        seen.add(key)


_walk = json.JSONDecoder(object_pairs_hook=_refuse_equal_keys, parse_int=len, parse_float=len).decode
"""Numbers, which may have a million digits, are not converted."""


def _refuse_text(text: bytes, error: Exception) -> NoReturn:
    head = text[:SNIFF_NBYTES]
    sniffed = None if head.lstrip().startswith(b"{") else sniff(head)
    raise IndexFileError(
        f"cannot read the index: {error}",
        expected="the JSON text of an index, with a weight_map of file by tensor",
        found=sniffed.what if sniffed else None,
        hint=sniffed.hint if sniffed else "Get the index again, or write the checkpoint again",
    )


def _section(text: bytes, document: _Document, *, check: bool) -> _Section | None:
    """Return what is ours of an index, true of this text; None in an index of others."""
    if document.metadata is None or _KEY not in document.metadata:
        _refuse_misplaced_section(text, document)
        return None
    section = _decode_section(document.metadata[_KEY])
    found = digest_of(text.replace(section.digest.encode(), _ZEROS.encode(), 1)).hex()
    if check and found != section.digest:
        raise IntegrityError(
            "the index is not the one that was written",
            expected=f"digest {section.digest}",
            found=found,
            hint="The file was damaged, or changed by another program. Get it again, or write the checkpoint again",
        )
    return section


def _decode_section(value: object) -> _Section:
    try:
        version = msgspec.convert(value, _Version).version
        if version <= _VERSION:
            return msgspec.convert(value, _Section)
    except msgspec.ValidationError as error:
        raise IntegrityError("the index is damaged where its digest stands", found=str(error)) from None
    raise UnsupportedError(
        "the records of the index are of a later version",
        expected=f"version {_VERSION}",
        found=f"version {version}",
        hint="Update tensorkeep",
    )


def _refuse_misplaced_section(text: bytes, document: _Document) -> None:
    """See ours under another key: one changed byte must not make it look like an index of others."""
    places = [document.metadata] if document.metadata is not None else msgspec.json.decode(text).values()
    for place in places:
        for key, value in place.items() if isinstance(place, dict) else ():
            if isinstance(value, dict) and value.keys() >= _SECTION_KEYS:
                raise IntegrityError(
                    "the index is damaged where its digest stands",
                    expected=f"metadata.{_KEY}",
                    found=f"the same records under `{key}`",
                )


def _check_records(files: tuple[str, ...], shards: dict[str, ShardRecord] | None) -> None:
    if shards is None:
        return
    for file in sorted(shards.keys() ^ set(files)):
        raise IntegrityError(
            "the index has not one record per file",
            expected=f"{len(files):,} records",
            found=f"a record of `{file}`, which holds no tensor" if file in shards else f"none of `{file}`",
        )


def _check_splits(index: Index) -> None:
    if (index.splits or index.state is not None) and index.shards is None:
        raise IndexFileError("an index that cuts tensors, or has a state, needs records of its files")
    for tensor, names in index.splits.items():
        known = all(name in index.weight_map for name in names)
        if not known or tensor in index.weight_map or pieces_in_order(tensor, names) is None:
            raise IndexFileError(
                f"the index does not hold `{tensor}` in pieces that follow each other",
                tensor=tensor,
                found=", ".join(names) or "no pieces",
            )
