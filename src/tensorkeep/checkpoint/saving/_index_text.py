"""The text of the index of a save, encrypted where its files are."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensorkeep.encryption import Encryption, encrypted_index, encrypted_name
from tensorkeep.formats.safetensors import ENCRYPTION_KEY
from tensorkeep.layout import STEP_KEY, Index, emit_index


def text_of_index(index: Index, encryption: Encryption | None, names: Mapping[str, str] | None = None) -> bytes:
    """Encode an index; `names` maps files of the plan to those in the index, if these have other names."""
    text = emit_index(index)
    if encryption is None:
        return text
    envelope = encrypted_index(encryption, text, msgspec.json.encode(index.weight_map))
    records = index.shards or {}
    planned = {file: file for file in records} if names is None else {name: file for file, name in names.items()}
    total = sum(record.nbytes for record in records.values())
    weight_map = {encrypted_name(planned[file]): file for file in records}
    visible = {key: value for key, value in index.metadata.items() if key == STEP_KEY}
    return emit_index(Index(weight_map, {**visible, ENCRYPTION_KEY: envelope, "total_size": total}, dict(records)))
