"""Objects in a store, and requests for them.

- `_urls`: URLs, told from paths and shown without secrets.
- `_local`: local paths, where a URL is refused.
- `_base`: an object in a store, asked for with single requests.
- `_requests`: which ranges to ask for.
- `_runs`: runs of equal length as requests of several ranges.
- `_retries`: requests that are made again.
- `_options`: how objects are read.
- `_copy`: a range that comes whole, by as many requests as it takes.
"""

from tensorkeep.transport.remote.objects._base import (
    Body,
    Chunks,
    ListingStore,
    ManyRefusedError,
    Opening,
    RemoteObject,
    RemoteStore,
    StoredObject,
    Stream,
    Version,
    WritableStore,
    bare_etag,
    changed,
    gone_is_changed,
    read_only,
    swapped,
    whole_file_too_large,
)
from tensorkeep.transport.remote.objects._copy import PROGRESS_NBYTES, copy_range
from tensorkeep.transport.remote.objects._local import local_path, refuse_damaged_url, refuse_url
from tensorkeep.transport.remote.objects._options import RemoteOptions
from tensorkeep.transport.remote.objects._requests import (
    PART_GAP_NBYTES,
    Request,
    one_by_one,
    plan_requests,
    remaining,
)
from tensorkeep.transport.remote.objects._runs import RunsRequest, plan_runs
from tensorkeep.transport.remote.objects._urls import (
    BUCKETS,
    WEB,
    base_and_path,
    is_url,
    is_well_formed,
    join_url,
    scheme_of,
    split_url,
)

__all__ = [
    "BUCKETS",
    "PART_GAP_NBYTES",
    "PROGRESS_NBYTES",
    "WEB",
    "Body",
    "Chunks",
    "ListingStore",
    "ManyRefusedError",
    "Opening",
    "RemoteObject",
    "RemoteOptions",
    "RemoteStore",
    "Request",
    "RunsRequest",
    "StoredObject",
    "Stream",
    "Version",
    "WritableStore",
    "bare_etag",
    "base_and_path",
    "changed",
    "copy_range",
    "gone_is_changed",
    "is_url",
    "is_well_formed",
    "join_url",
    "local_path",
    "one_by_one",
    "plan_requests",
    "plan_runs",
    "read_only",
    "refuse_damaged_url",
    "refuse_url",
    "remaining",
    "scheme_of",
    "split_url",
    "swapped",
    "whole_file_too_large",
]
