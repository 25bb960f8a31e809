"""Download whole checkpoints from servers and stores: in parallel, resumed after a kill, verified, all or nothing.

- `_spans`: sets of byte ranges. Pure.
- `_version_id`: identifies one version of a remote file across processes. Pure.
- `_journal`: the record of what has been downloaded. Pure.
- `_companions`: the small files that belong to a model. Pure.
- `_plan`: which files a URL refers to.
- `_trusted`: what a policy demands of a fetch.
- `_staging`: the directory that receives them.
- `_unchanged`: files that are already at the destination.
- `_check`: compares what was downloaded with what was expected.
- `_download`: downloads many ranges at once.
- `_by_executor`: downloads by the workers of an executor.
- `_waiting`: waits for another process that fetches the same.
- `_destination`: where the files go, and how they appear there all at once.
- `_overwrite_guard`: which files of the destination may be replaced.
- `_fetch`: all of this together.
"""

from tensorkeep.fetching._companions import MAX_COMPANION_NBYTES, USUAL_COMPANIONS, companions_among
from tensorkeep.fetching._fetch import fetch

__all__ = [
    "MAX_COMPANION_NBYTES",
    "USUAL_COMPANIONS",
    "companions_among",
    "fetch",
]
