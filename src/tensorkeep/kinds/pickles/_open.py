"""Open a pickle as a `PickleFile`."""

from __future__ import annotations

from typing import Any

from tensorkeep.collector import PausedCollector
from tensorkeep.formats.paddle import without_marks
from tensorkeep.formats.pickles import DEFAULT_LIMITS, read_pickle
from tensorkeep.kinds.base import Opened, OpenOptions
from tensorkeep.kinds.pickles._file import PickleFile
from tensorkeep.transport import ByteRange, ByteSource, Openable, open_source


def pickle_file_of(opened: Opened) -> PickleFile | None:
    """Return what is open if it is a single pickle, else None, for callers that interpret its objects."""
    return opened if isinstance(opened, PickleFile) else None


def open_pickle(target: Openable, **options: Any) -> PickleFile:
    """Open a file of `torch.save` or `pickle.dump`, trusted or not: nothing in it is run. Takes `OpenOptions`."""
    opening = OpenOptions(**options)
    return pickle_over(open_source(target, backend=opening.backend), opening)


def pickle_over(source: ByteSource, options: OpenOptions, span: ByteRange | None = None) -> PickleFile:
    """Open a pickle that is all of a source, or a part of it."""
    limits = options.limits or DEFAULT_LIMITS
    with PausedCollector():
        document = read_pickle(source, span, strict=options.strict, dangerous=options.dangerous, limits=limits)
        document = without_marks(document, source.name)
    return PickleFile(document, source, options.framework, options.device)
