"""Zip and tar archives, read in place: so strictly that all readers find the same members, or as any reader would.

Zip archives of stored members are written too.

- `_zip`: `read_archive`, `examine_archive`, `read_member`, `ends_like_a_zip`.
- `_inflate`: a deflated member as a source of its own, and the first bytes of one.
- `_zip_end`: where the directory is.
- `_zip_directory`: the directory's entries.
- `_zip_layout`: local headers, and whether members and headers fill the file without gaps.
- `_zip_names`: names of members.
- `_zip_faults`: problems, raised at once or collected.
- `_emit`: the headers and the directory of an archive that is written.
- `_ustar`: tar, just as strictly.
- `_tar_members`: tar, as leniently as Python reads it.
"""

from tensorkeep.formats.archives._emit import CRC_START, WrittenMember, emit_directory, emit_header, name_problem
from tensorkeep.formats.archives._inflate import InflatedSource, inflate_head
from tensorkeep.formats.archives._tar_members import TarListing, is_tar_header, list_tar
from tensorkeep.formats.archives._ustar import read_ustar
from tensorkeep.formats.archives._zip import (
    Archive,
    Member,
    ends_like_a_zip,
    examine_archive,
    read_archive,
    read_member,
)
from tensorkeep.formats.archives._zip_end import TAIL_NBYTES
from tensorkeep.formats.archives._zip_faults import ArchiveFault

__all__ = [
    "CRC_START",
    "TAIL_NBYTES",
    "Archive",
    "ArchiveFault",
    "InflatedSource",
    "Member",
    "TarListing",
    "WrittenMember",
    "emit_directory",
    "emit_header",
    "ends_like_a_zip",
    "examine_archive",
    "inflate_head",
    "is_tar_header",
    "list_tar",
    "name_problem",
    "read_archive",
    "read_member",
    "read_ustar",
]
