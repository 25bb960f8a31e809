"""The safetensors format: 8 bytes of length, a JSON header, the tensors' bytes back to back.

- `_parse`: header bytes to entries; every rule of the format is checked here. No I/O.
- `_members`: the same text read member by member, where it is unusual. No I/O.
- `_arrangement`: where tensors go in a file. No I/O.
- `_emit`: entries to header bytes, identical to what the reference writes. No I/O.
- `_seal`: digests of the tensors and of the header, which protect every byte of the file. No I/O.
- `_state`: the metadata of a whole training state, and of tensors that share memory. No I/O.
- `_aliases`: checks declared views against the tensors in the file. No I/O.
- `_metadata`: free text, without these two. No I/O.
- `_read`: the header of a `ByteSource`, with errors that name the file and recognize other formats.
- `_describe`: what `inspect` shows about a file.
"""

from tensorkeep.formats.safetensors._aliases import check_owner, check_storages, check_view
from tensorkeep.formats.safetensors._arrangement import ALIGNMENT_NBYTES, PLAIN, Arrangement
from tensorkeep.formats.safetensors._describe import describe_file
from tensorkeep.formats.safetensors._emit import emit_header, lay_out
from tensorkeep.formats.safetensors._metadata import ENCRYPTION_KEY, free_text, metadata_to_write
from tensorkeep.formats.safetensors._parse import LENGTH_NBYTES, Header, parse_header, parse_header_nbytes
from tensorkeep.formats.safetensors._read import read_head, read_header, read_seal
from tensorkeep.formats.safetensors._seal import SEAL_KEY, Seal, emit_sealed_header, parse_seal, without_seal
from tensorkeep.formats.safetensors._state import (
    NO_TREE,
    STATE_KEY,
    STATE_SIGNATURE,
    Alias,
    State,
    emit_state,
    parse_state,
)

__all__ = [
    "ALIGNMENT_NBYTES",
    "ENCRYPTION_KEY",
    "LENGTH_NBYTES",
    "NO_TREE",
    "PLAIN",
    "SEAL_KEY",
    "STATE_KEY",
    "STATE_SIGNATURE",
    "Alias",
    "Arrangement",
    "Header",
    "Seal",
    "State",
    "check_owner",
    "check_storages",
    "check_view",
    "describe_file",
    "emit_header",
    "emit_sealed_header",
    "emit_state",
    "free_text",
    "lay_out",
    "metadata_to_write",
    "parse_header",
    "parse_header_nbytes",
    "parse_seal",
    "parse_state",
    "read_head",
    "read_header",
    "read_seal",
    "without_seal",
]
