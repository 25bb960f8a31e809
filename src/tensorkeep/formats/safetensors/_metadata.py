"""The free text of a file, without metadata that only applies to that file: its digests and its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.safetensors._emit import check_is_text
from tensorkeep.formats.safetensors._seal import SEAL_KEY, SEAL_SIGNATURE, without_seal
from tensorkeep.formats.safetensors._state import STATE_KEY, STATE_SIGNATURE, State

ENCRYPTION_KEY: Final = "tensorkeep.encryption"
"""The metadata key of encrypted files; no other file has it."""

_SIGNATURES = {SEAL_KEY: SEAL_SIGNATURE, STATE_KEY: STATE_SIGNATURE}


def free_text(metadata: Mapping[str, str] | None, state: State | None = None) -> Mapping[str, str] | None:
    """Return metadata without what applies to one file only: digests, state, and names of tied tensors."""
    metadata = without_seal(metadata)
    if metadata is None or not metadata.get(STATE_KEY, "").startswith(STATE_SIGNATURE):
        return metadata
    tied = {} if state is None else {name: alias.of for name, alias in state.aliases.items()}
    return {key: text for key, text in metadata.items() if key != STATE_KEY and tied.get(key) != text}


def metadata_to_write(metadata: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the metadata to copy to another file; refuse text that would be mistaken for digests or a state."""
    if metadata is None:
        return None
    check_is_text(metadata)
    if ENCRYPTION_KEY in metadata:
        raise UnsupportedError(f"the metadata key {ENCRYPTION_KEY!r} is reserved", expected="another key")
    for key, text in metadata.items():
        if text.startswith(SEAL_SIGNATURE) != (key == SEAL_KEY) or not text.startswith(_SIGNATURES.get(key, "")):
            raise UnsupportedError(
                "the metadata looks like the digests or the state of a file, but is not",
                expected=f"other keys than {SEAL_KEY!r} and {STATE_KEY!r}, and text that does not begin with"
                f" {SEAL_SIGNATURE!r}",
                found=f"{key!r}: {text[:40]!r}",
            )
    return free_text(metadata)
