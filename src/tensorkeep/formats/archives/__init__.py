"""Zip and tar archives, read in place and so strictly that no two readers can see different members.

- `_zip`: `read_archive`, `examine_archive`, `read_member`, `ends_like_a_zip`.
- `_inflate`: a deflated member as a source of its own, and the first bytes of one.
- `_zip_end`: where the directory is.
- `_zip_directory`: its entries.
- `_zip_layout`: the members' own headers, and whether members and headers fill the file.
- `_zip_names`: the members' names.
- `_zip_faults`: what is wrong, refused at once or listed.
- `_ustar`: tar.
"""

from tensorkeep.formats.archives._inflate import InflatedSource, inflate_head
from tensorkeep.formats.archives._ustar import read_ustar
from tensorkeep.formats.archives._zip import (
    Archive,
    Member,
    ends_like_a_zip,
    examine_archive,
    read_archive,
    read_member,
)
from tensorkeep.formats.archives._zip_faults import ArchiveFault

__all__ = [
    "Archive",
    "ArchiveFault",
    "InflatedSource",
    "Member",
    "ends_like_a_zip",
    "examine_archive",
    "inflate_head",
    "read_archive",
    "read_member",
    "read_ustar",
]
