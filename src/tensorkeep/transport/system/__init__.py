"""System calls, each with a portable fallback.

- `_platform`: positioned reads, gathered writes, preallocation: the system calls, each with a portable fallback.
- `_mounts`: which file system a path is on, and whether mapping pays there.
- `_freeing`: large files that are replaced or removed without waiting until their blocks are free.
- `_memory`: freed memory that the C library keeps.
- `_xattrs`: notes in extended attributes of a file.
"""

from tensorkeep.transport.system._freeing import finish_freeing, freed_in_background
from tensorkeep.transport.system._memory import give_back_freed_memory
from tensorkeep.transport.system._mounts import mapping_pays, preallocation_pays
from tensorkeep.transport.system._platform import (
    GATHER_MAX,
    HANDLES_OPEN_FILES,
    begin_writeback,
    copy_range,
    exchange,
    gather_write,
    host_tag,
    map_private,
    mapped_pieces,
    preallocate,
    read_at,
    read_new,
    sync_directory,
    sync_file,
    try_lock,
    write_at,
)
from tensorkeep.transport.system._xattrs import get_xattr_note, set_xattr_note

__all__ = [
    "GATHER_MAX",
    "HANDLES_OPEN_FILES",
    "begin_writeback",
    "copy_range",
    "exchange",
    "finish_freeing",
    "freed_in_background",
    "gather_write",
    "get_xattr_note",
    "give_back_freed_memory",
    "host_tag",
    "map_private",
    "mapped_pieces",
    "mapping_pays",
    "preallocate",
    "preallocation_pays",
    "read_at",
    "read_new",
    "set_xattr_note",
    "sync_directory",
    "sync_file",
    "try_lock",
    "write_at",
]
