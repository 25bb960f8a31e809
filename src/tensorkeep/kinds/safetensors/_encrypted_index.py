"""The plain index in an encrypted one, and what an index may say of encrypted files."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from tensorkeep.encryption import Keys, decrypted_index, refuse_plain
from tensorkeep.errors import IndexFileError, IntegrityError
from tensorkeep.formats.safetensors import ENCRYPTION_KEY
from tensorkeep.kinds.base import Finding, OpenOptions
from tensorkeep.kinds.safetensors._file import TensorFile
from tensorkeep.layout import Index, ShardRecord, parse_index
from tensorkeep.transport import is_directory


def index_in(stored: Index, path: str, options: OpenOptions) -> Index:
    """Return the plain index in an encrypted one; without the key, what is shown of it; any other as it is."""
    if options.as_stored:
        return stored
    text = stored.metadata.get(ENCRYPTION_KEY)
    if text is None:
        return stored
    if not isinstance(text, str):
        raise IndexFileError("the description of the encryption is damaged", path=path)
    plain, names = decrypted_index(text, options.keys or Keys.of_environment(), path)
    if plain is not None:
        index = parse_index(plain, path)
        if index.shards is None:
            raise IndexFileError("the encrypted index has no records of its files", path=path)
        renamed = index.renamed(_present_names(index.shards, stored.shards or {}))
        return replace(renamed, shards=_with_blocks(renamed.shards or {}, stored.shards or {}))
    metadata = {key: value for key, value in stored.metadata.items() if key != ENCRYPTION_KEY}
    if not names:
        return replace(stored, metadata=metadata)
    try:
        return Index(msgspec.json.decode(names, type=dict[str, str]), metadata, stored.shards)
    except msgspec.MsgspecError as error:
        raise IndexFileError("the names in the index are damaged", path=path, found=str(error)) from None


def _present_names(authentic: Mapping[str, ShardRecord], stored: Mapping[str, ShardRecord]) -> Mapping[str, str]:
    """Return what files are called now: a push to a bucket gives them other names, and leaves their headers alone."""
    names = {(record.nbytes, record.header): name for name, record in stored.items()}
    return {name: names.get((record.nbytes, record.header), name) for name, record in authentic.items()}


def _with_blocks(authentic: Mapping[str, ShardRecord], stored: Mapping[str, ShardRecord]) -> dict[str, ShardRecord]:
    """Return records with the block digests that the encrypted files got later.

    The key does not authenticate these, and need not: forging them gains nothing, since it authenticates all
    that is decrypted, and a signature covers the stored index.
    """
    return {
        name: replace(record, blocks=stored[name].blocks) if record.blocks is None and name in stored else record
        for name, record in authentic.items()
    }


def over_encrypted(
    index: Index, files: Mapping[str, TensorFile], path: str, options: OpenOptions
) -> tuple[Index, list[Finding]]:
    """Return what a plain index may say of its files, and a finding for each encrypted one that it must not have.

    Somebody without the key can write a plain index: it could join files of different saves, or add a state. So it
    may list one encrypted file that was saved alone, for its SHA-256, and nothing else that it says counts.
    """
    encrypted = [] if options.as_stored else [name for name, file in files.items() if file.is_encrypted]
    if not encrypted:
        refuse_plain(options.keys, path)
        return index, []
    (name, file), *others = files.items()
    is_alone = not others and (file.seal is None or file.seal.index is None)
    if is_alone and index.shards is not None:
        return Index(dict.fromkeys(file.entries, name), {}, index.shards, state=file.state_text), []
    message = "the shard is encrypted, and its index is not"
    return index, [Finding("foreign", message, name, found="an index that was replaced") for name in encrypted]


def refuse_lone_shard(file: TensorFile, path: str) -> None:
    """Refuse a directory in which one shard of several is all that is left of an encrypted checkpoint."""
    index = file.seal.index if file.is_encrypted and file.seal is not None else None
    if index is not None and is_directory(path):
        raise IntegrityError(
            "this is one of several encrypted shards, and their index is missing", path=path, found=index
        )
