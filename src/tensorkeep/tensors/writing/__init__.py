"""Writing one file.

- `_overlap`: which tensors share memory. Pure.
- `_sharing`: what is stored of tensors that share memory. Pure.
- `_placeholder`: `PlaceholderTensor`, a tensor whose elements are elsewhere.
- `_prepare`: a state as tensors by name and one text for everything else.
- `_checked`: the bytes of a tensor, and a check of their number.
- `_digest_stream`: digests computed by another thread while the bytes are written.
- `_block_stream`: block digests, by another thread too.
- `_fetched`: tensors of devices, by several threads.
- `_sealing`: `Sealing`, what a header with digests needs to know, and how its file is encrypted.
- `_file_body`: all bytes of one file, with digests.
- `_save`: `save`, and tensors as bytes.
"""

from tensorkeep.tensors.writing._block_stream import BlockStream
from tensorkeep.tensors.writing._checked import checked_buffers
from tensorkeep.tensors.writing._digest_stream import Digesting
from tensorkeep.tensors.writing._fetched import FetchedDigests, place_on_device
from tensorkeep.tensors.writing._file_body import (
    FileBody,
    file_body,
    metadata_with_format,
    refuse_other_bytes,
    sealed_head,
    write_file,
)
from tensorkeep.tensors.writing._overlap import Elements, overlapping, with_common_elements
from tensorkeep.tensors.writing._placeholder import PlaceholderTensor
from tensorkeep.tensors.writing._prepare import Prepared, prepare, ties_as_text
from tensorkeep.tensors.writing._save import check_target, save, serialize_tensors, write_prepared, write_tensors
from tensorkeep.tensors.writing._sealing import Sealing, encrypted_nbytes
from tensorkeep.tensors.writing._sharing import Ties, check_ties, near_others

__all__ = [
    "BlockStream",
    "Digesting",
    "Elements",
    "FetchedDigests",
    "FileBody",
    "PlaceholderTensor",
    "Prepared",
    "Sealing",
    "Ties",
    "check_target",
    "check_ties",
    "checked_buffers",
    "encrypted_nbytes",
    "file_body",
    "metadata_with_format",
    "near_others",
    "overlapping",
    "place_on_device",
    "prepare",
    "refuse_other_bytes",
    "save",
    "sealed_head",
    "serialize_tensors",
    "ties_as_text",
    "with_common_elements",
    "write_file",
    "write_prepared",
    "write_tensors",
]
