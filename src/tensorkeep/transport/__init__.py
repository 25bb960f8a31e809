"""Where are the bytes? Everything that touches a file system stands here; nothing here knows what bytes mean.

- `_base`: `ByteRange`, and the protocols `ByteSource` (read) and `ByteSink` (write).
- `_platform`: positioned reads, gathered writes, preallocation: the system calls, each with a portable fallback.
- `_mounts`: which file system a path is on, and whether mapping pays there.
- `_memory`, `_local`, `_stream`: sources over bytes in memory, local files (mapped or read), seekable file objects.
- `_threads`: reads that are done side by side.
- `_verifying`: a source whose bytes are held against digests on their way into memory.
- `_joined`: a source that is put together from parts of others.
- `remote`: objects of web servers and stores.
- `_paths`: paths and URLs alike.
- `_planning`: what reading some ranges costs.
- `_open`: the source that fits what the caller has.
- `_sink`: the sink over a file that is being written.
- `_partial`: a file that is filled here and there.
- `_reserved`: a file that several processes fill.
- `_standing`: what stands where a new file is to go.
- `_notes`: what is noted on a file beside its bytes.
- `_link`: a file that gets one more name.
- `_publish`: a file that appears complete or not at all.
- `_journal`, `_lock`, `_staging`, `_transaction`: a set of files that changes at once or not at all.
- `_folder`: a whole directory that appears complete or not at all.
- `_pending`: such a change that a dead process left unfinished, finished or read past.
"""

from tensorkeep.buffers import Buffer
from tensorkeep.transport._base import BACKENDS, Backend, ByteRange, ByteSink, ByteSource, RunSource, reads_runs
from tensorkeep.transport._folder import publish_folder, settle_folders
from tensorkeep.transport._joined import JoinedSource
from tensorkeep.transport._local import LocalFile
from tensorkeep.transport._lock import DirectoryLock, take_lock
from tensorkeep.transport._memory import MemorySource
from tensorkeep.transport._notes import leave_note, note_on
from tensorkeep.transport._open import Openable, open_source
from tensorkeep.transport._partial import PartialFile
from tensorkeep.transport._paths import (
    check_writable,
    discreet,
    exists,
    forget,
    identity,
    is_directory,
    is_file,
    is_remote,
    join,
    names_in,
    refuse_url,
    remembering,
    split,
    walk,
)
from tensorkeep.transport._pending import Pending, finish_pending
from tensorkeep.transport._planning import PlannedRequest, requests_for
from tensorkeep.transport._platform import host_tag, sync_directory
from tensorkeep.transport._publish import publish, sweep_leftovers
from tensorkeep.transport._reserved import Reserved, ReservedFile
from tensorkeep.transport._staging import has_staging
from tensorkeep.transport._stream import StreamSource
from tensorkeep.transport._threads import for_all
from tensorkeep.transport._transaction import Transaction, transaction
from tensorkeep.transport._verifying import VerifyingSource
from tensorkeep.transport.remote import Body, RemotePath, RemoteSource, Version

__all__ = [
    "BACKENDS",
    "Backend",
    "Body",
    "Buffer",
    "ByteRange",
    "ByteSink",
    "ByteSource",
    "DirectoryLock",
    "JoinedSource",
    "LocalFile",
    "MemorySource",
    "Openable",
    "PartialFile",
    "Pending",
    "PlannedRequest",
    "RemotePath",
    "RemoteSource",
    "Reserved",
    "ReservedFile",
    "RunSource",
    "StreamSource",
    "Transaction",
    "VerifyingSource",
    "Version",
    "check_writable",
    "discreet",
    "exists",
    "finish_pending",
    "for_all",
    "forget",
    "has_staging",
    "host_tag",
    "identity",
    "is_directory",
    "is_file",
    "is_remote",
    "join",
    "leave_note",
    "names_in",
    "note_on",
    "open_source",
    "publish",
    "publish_folder",
    "reads_runs",
    "refuse_url",
    "remembering",
    "requests_for",
    "settle_folders",
    "split",
    "sweep_leftovers",
    "sync_directory",
    "take_lock",
    "transaction",
    "walk",
]
