"""System calls, each with a portable fallback.

- `_platform`: positioned reads, gathered writes, preallocation: the system calls, each with a portable fallback.
- `_mounts`: which file system a path is on, and whether mapping pays there.
- `_xattrs`: what is noted on a file beside its bytes.
"""

from tensorkeep.transport.system._mounts import mapping_pays, preallocation_pays
from tensorkeep.transport.system._platform import (
    GATHER_MAX,
    HANDLES_OPEN_FILES,
    copy_range,
    exchange,
    gather_write,
    host_tag,
    map_private,
    mapped_pieces,
    preallocate,
    read_at,
    sync_directory,
    sync_file,
    try_lock,
    write_at,
)
from tensorkeep.transport.system._xattrs import leave_note, note_on

__all__ = [
    "GATHER_MAX",
    "HANDLES_OPEN_FILES",
    "copy_range",
    "exchange",
    "gather_write",
    "host_tag",
    "leave_note",
    "map_private",
    "mapped_pieces",
    "mapping_pays",
    "note_on",
    "preallocate",
    "preallocation_pays",
    "read_at",
    "sync_directory",
    "sync_file",
    "try_lock",
    "write_at",
]
