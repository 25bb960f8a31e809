"""Tar archives: their members, what they link to, and what follows their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tensorkeep.formats.archives import list_tar
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._forms import USTAR, USTAR_MARK
from tensorkeep.scanner._programs import report_programs
from tensorkeep.scanner._scan_pickles import scan_torch_tar
from tensorkeep.texts import counted

_TORCH: Final = {"sys_info", "pickle", "storages", "tensors"}
_FIRST_OF_TORCH: Final = "storages"
"""The member that torch unpickles first, between bytes of tensors, whatever else the archive has."""

_MAX_ZEROS: Final = 2**20
"""Most bytes of zeros at the end of an archive; writers pad to a multiple of 10 KiB or more."""


def scan_tar(content: Content, log: FindingLog, scan: Callable[[Content], None]) -> None:
    """Scan an archive; `scan` scans the content of a member."""
    listing = list_tar(content.source, content.span)
    names = {name.rstrip("/") for name, _ in listing.members}
    if names == _TORCH and scan_torch_tar(content, log):
        return
    is_marked = content.head()[USTAR] == USTAR_MARK
    if not (is_marked or listing.links or any(len(span) for _, span in listing.members)):
        return  # numbers whose sum happens to be what a header without a mark needs
    log.name_form("tar archive", content)
    if _FIRST_OF_TORCH in names and names != _TORCH:
        log.add(
            "unreadable", f"it has {_FIRST_OF_TORCH} of torch 0.1, but not the other members of such files", content
        )
    for place, problem in listing.problems:
        log.add("unreadable", problem, content, place - content.span.start)
    if listing.links:
        (name, what), *others = listing.links
        more = f", and {counted(len(others), 'other')}" if others else ""
        log.add("unknown", f"{name} is {what}{more}, so a reader may open other files in their place", content)
    report_programs([name for name, _ in listing.members], content, log)
    for name, span in listing.members:
        scan(msgspec.structs.replace(content, span=span, place=(*content.place, name)))
    stop = listing.stop - content.span.start
    rest = content.part(stop)
    if rest.nbytes > _MAX_ZEROS or any(rest.read(rest.nbytes)):
        log.add("unknown", f"{rest.nbytes:,} bytes follow the end of the tar archive", content, stop)
