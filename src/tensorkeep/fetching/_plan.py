"""Which files a URL refers to, and what is known about them before they are downloaded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.errors import LimitError, RefusedError, SourceMissingError, UnsupportedError
from tensorkeep.fetching._companions import SIGNATURE_SUFFIX, USUAL_COMPANIONS, USUAL_SIGNATURE, companions_among
from tensorkeep.kinds import Files, Place
from tensorkeep.kinds.registry import find_kind
from tensorkeep.layout import MANIFEST, FileRecord, ShardRecord, blocks_name, parse_index, parse_manifest
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.paths import is_inside, is_plain_name
from tensorkeep.transport import ByteRange, RemotePath, is_directory

if TYPE_CHECKING:
    from tensorkeep.trust import Rule

_is_shard = re.compile(r".+-[0-9]{5}-of-[0-9]{5}\b.*\.(?:safetensors|bin|pt|pth|ckpt|gguf)").fullmatch


class Promise(msgspec.Struct, frozen=True):
    """What an index or a manifest declares about a file; digests have 64 hexadecimal digits.

    Attributes:
        nbytes: Size in bytes, or None.
        header: BLAKE3 of everything before the data of a safetensors file, or None.
        blake3: BLAKE3 of the whole file, or None.
        sha256: SHA-256 of the whole file, or None.
        root: Root of a file with block digests, or None.
        is_signed: Whether a trusted signature says so.
    """

    nbytes: int | None = None
    header: str | None = None
    blake3: str | None = None
    sha256: str | None = None
    root: str | None = None
    is_signed: bool = False

    @classmethod
    def of(cls, record: ShardRecord | FileRecord | None) -> Promise:
        """Return the promise of a record in an index or a manifest."""
        if record is None:
            return cls()
        if isinstance(record, ShardRecord):
            return cls(record.nbytes, record.header, None, record.sha256)
        return cls(record.nbytes, record.header, record.blake3)


class Wanted(msgspec.Struct, frozen=True):
    """A file to download.

    Attributes:
        name: Its destination, relative, separated by `/`.
        path: Its source.
        promise: What is declared about it.
        role: `"tensors"`; `"part"` for a file that can only be checked together with the others; `"blocks"` for the
            block digests, which may be missing; `"hidden"` for a signed hidden file, which many servers do not
            serve; `"other"` for a required file such as the index; or a companion that the server listed, or whose
            name was guessed because many models have such a file.
    """

    name: str
    path: RemotePath
    promise: Promise = Promise()
    role: Literal["tensors", "blocks", "part", "hidden", "other", "listed", "guessed"] = "other"


class Plan(msgspec.Struct, frozen=True):
    """What to download.

    Attributes:
        source: Which files these are, and their names in a directory; None for a directory with a manifest.
        url: The URL, without secrets.
        origin: Digest of the URL and its options.
        stem: What the names of its files begin with, or the only name.
        files: All files.
        index: Name of the index, or None.
        entry: Name of the file or index that the URL refers to; None for a directory.
        format: The name by which policies know what it is.
        rule: What a policy demands of it, or None.
        others: Names of files that come because they were signed.
    """

    source: Files | None
    url: str
    origin: str
    stem: str
    files: tuple[Wanted, ...]
    index: str | None = None
    entry: str | None = None
    format: str = "safetensors"
    rule: Rule | None = None
    others: tuple[str, ...] = ()

    @property
    def is_one_file(self) -> bool:
        """Whether the URL refers to a single file."""
        return self.entry is not None and self.index is None and len(self.files) == 1

    @property
    def shards(self) -> list[str]:
        """Names of the files with tensors."""
        return [file.name for file in self.files if file.role in {"tensors", "part"}]

    @property
    def free_names(self) -> set[str]:
        """Names that the manifest, index, model or signer chose freely: all except the usual names of shards."""
        if self.source is None:
            return {file.name for file in self.files}
        if self.index is None:
            stem = self.source.stem
            chosen = {name for name in self.source.names[1:] if not name.startswith(stem) and not _is_shard(name)}
        else:
            chosen = {name for name in self.shards if "/" in name or not _is_shard(name)}
        return chosen.union(self.others)

    @property
    def is_flat(self) -> bool:
        """Whether all files go into one directory."""
        return all("/" not in file.name for file in self.files)


def plan_fetch(path: RemotePath, *, variant: str | None, companions: bool) -> Plan:
    """Find out which files a URL refers to; reads little more than an index."""
    with path.listing_cache() as given:
        if not is_directory(given):
            plan = _of_files(given, None)
            entry = plan.index or plan.files[0].name
            return _refuse_strange_names(msgspec.structs.replace(plan, entry=entry))
        if variant is None and (folder := _of_folder(given)) is not None:
            return _refuse_strange_names(folder)
        plan = _of_files(given, variant)
        others = [*_signatures(given), *(_companions(given, plan) if companions else ())]
        files = (*plan.files, *others)
        return _refuse_strange_names(msgspec.structs.replace(plan, files=files))


def _of_folder(directory: RemotePath) -> Plan | None:
    """Plan to download a directory with a manifest: all files that it lists."""
    place = directory.joined(MANIFEST)
    try:
        text = _read(place)
    except SourceMissingError:
        return None
    records = parse_manifest(text, str(place))
    manifest = Wanted(MANIFEST, place, _promise_of(text))
    files = (
        Wanted(
            name,
            directory.joined(name),
            Promise.of(record),
            "tensors" if record.header is not None else "other",
        )
        for name, record in records.items()
    )
    others = _signatures(directory)
    return Plan(None, str(directory), directory.fingerprint, "folder", (*files, manifest, *others))


def _of_files(path: RemotePath, variant: str | None) -> Plan:
    """Plan to download a checkpoint, recognized as `tensorkeep.open` does."""
    found = find_kind(Place(path, variant=variant, trusts_names=False))
    source = found.files()
    if source is None:
        raise UnsupportedError("this cannot be fetched", path=str(path), found=found.kind.name)
    directory = RemotePath.of(source.directory)
    if source.index is None:
        role: Literal["tensors", "part"] = "tensors" if source.opens_alone else "part"
        files = tuple(Wanted(name, directory.joined(name), role=role) for name in source.names)
        return Plan(source, str(path), path.fingerprint, source.stem, files, format=found.format)
    place = directory.joined(source.index)
    text = _read(place)
    known = parse_index(text, str(place))
    records = known.shards or {}
    shards = (Wanted(name, directory.joined(name), Promise.of(records.get(name)), "tensors") for name in known.files)
    blocks = (
        Wanted(name, directory.joined(name), Promise(root=record.blocks), "blocks")
        for file, record in records.items()
        if record.blocks is not None and (name := blocks_name(file))
    )
    files = (*shards, *blocks, Wanted(source.index, place, _promise_of(text)))
    return Plan(source, str(path), path.fingerprint, source.stem, files, source.index, format=found.format)


def _read(path: RemotePath) -> bytes:
    source = path.open()
    if source.nbytes > MAX_INDEX_NBYTES:
        raise LimitError("the file is too large", path=path, expected=f"at most {MAX_INDEX_NBYTES:,} bytes")
    return bytes(source.read(ByteRange(0, source.nbytes)))


def _promise_of(text: bytes) -> Promise:
    return Promise(len(text), blake3=digest_of(text).hex())


def _signatures(directory: RemotePath) -> list[Wanted]:
    """Plan to download the signatures of a directory, so that it can be verified where it arrives."""
    try:
        listed = directory.names()
    except SourceMissingError:
        return []
    names = [USUAL_SIGNATURE] if listed is None else [name for name in listed if name.endswith(SIGNATURE_SUFFIX)]
    role: Literal["listed", "guessed"] = "guessed" if listed is None else "listed"
    return [Wanted(name, directory.joined(name), role=role) for name in names if is_plain_name(name)]


def _companions(directory: RemotePath, plan: Plan) -> list[Wanted]:
    try:
        listed = directory.names()
    except SourceMissingError:  # the URL is what the names of files begin with
        return []
    names = USUAL_COMPANIONS if listed is None else companions_among(filter(is_plain_name, listed))
    role: Literal["listed", "guessed"] = "guessed" if listed is None else "listed"
    known = {file.name for file in plan.files}
    return [Wanted(name, directory.joined(name), role=role) for name in names if name not in known]


def _refuse_strange_names(plan: Plan) -> Plan:
    for file in plan.files:
        parts = file.name.split("/")
        if not is_inside(file.name) or any(".tensorkeep-" in part for part in parts):
            raise UnsupportedError(
                "a file name that not every system allows", path=str(file.path), found=repr(file.name)
            )
        if any(part.startswith(".") for part in parts):  # programs read some of them unasked, such as `.bashrc`
            raise RefusedError("a checkpoint has no hidden files", path=plan.url, found=repr(file.name))
    return plan
