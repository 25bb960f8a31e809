"""Whole checkpoints from servers and stores to the disk: in parallel, resumed after a kill, checked, all at once.

- `_spans`: sets of ranges of bytes. Pure.
- `_stamp`: by what to know one version of a remote file again. Pure.
- `_journal`: the record of what is here already. Pure.
- `_companions`: the small files that belong to a model. Pure.
- `_plan`: which files a URL stands for.
- `_staging`: the directory in which they arrive.
- `_unchanged`: files that are at the destination already.
- `_check`: what has arrived, held against what was promised.
- `_download`: many ranges at once, each to its place.
- `_owned`: which files of the destination may be replaced.
- `_destination`: where the files go, and how they all appear there at once.
- `_fetch`: all of that.
"""

from tensorkeep.fetching._fetch import fetch

__all__ = [
    "fetch",
]
