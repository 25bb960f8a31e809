"""Where are the bytes? Everything that touches a file system is here; nothing here knows what bytes mean.

- `sources/`: what bytes are read from.
- `system/`: system calls, each with a portable fallback.
- `remote/`: where are the bytes, if not here? Objects of web servers, S3, Google Cloud Storage, Azure, the Hub and
  others.
- `_paths`: paths and URLs alike.
- `_homes`: where the files of a directory may be, if some of them are links.
- `_block_proof`: block digests from the file beside the data.
- `_handed_over`: a file as another process opens it.
- `_planning`: what reading some ranges costs.
- `_sums`: checksums of bytes in a source.
- `_open`: the source that fits what the caller has.
- `_kept_sums`: the SHA-256 that somebody else keeps of a file.
- `atomic/`: files and directories that appear whole or not at all.
"""

from tensorkeep.buffers import Buffer
from tensorkeep.transport._block_proof import BlockProof
from tensorkeep.transport._handed_over import HandedOver
from tensorkeep.transport._homes import is_at_home
from tensorkeep.transport._kept_sums import kept_sha256
from tensorkeep.transport._open import Openable, open_listed, open_source
from tensorkeep.transport._paths import (
    check_writable,
    exists,
    forget_listing,
    identity,
    is_directory,
    is_file,
    is_in_store,
    is_remote,
    join,
    list_names,
    listing_cache,
    sizes_below,
    split,
    walk,
    without_secrets,
)
from tensorkeep.transport._planning import PlannedRequest, requests_for
from tensorkeep.transport._sums import sum_of
from tensorkeep.transport.atomic import (
    DirectoryLock,
    PartialFile,
    PendingCommit,
    Reserved,
    ReservedFile,
    Spool,
    Transaction,
    delete_directory,
    delete_moved_aside,
    dependents_of,
    enter_working_directory,
    finish_pending_commit,
    has_commit,
    has_staging,
    leave_working_directory,
    move_aside,
    publish,
    publish_directory,
    recover_directories,
    sweep_leftovers,
    take_lock,
    transaction,
)
from tensorkeep.transport.remote import (
    Body,
    RemotePath,
    RemoteSource,
    StoredObject,
    Version,
    local_path,
    refuse_damaged_url,
    refuse_url,
)
from tensorkeep.transport.sources import (
    BACKENDS,
    Backend,
    ByteRange,
    ByteSink,
    ByteSource,
    CheckedRange,
    DigestedRanges,
    ExtensibleSink,
    JoinedSource,
    LocalFile,
    MemorySource,
    RunSource,
    StreamSource,
    VerifyingSource,
    extends,
    prove_here,
    reading_alone,
    reads_runs,
    was_proven_here,
    was_replaced,
)
from tensorkeep.transport.system import get_xattr_note, host_tag, set_xattr_note, sync_directory

__all__ = [
    "BACKENDS",
    "Backend",
    "BlockProof",
    "Body",
    "Buffer",
    "ByteRange",
    "ByteSink",
    "ByteSource",
    "CheckedRange",
    "DigestedRanges",
    "DirectoryLock",
    "ExtensibleSink",
    "HandedOver",
    "JoinedSource",
    "LocalFile",
    "MemorySource",
    "Openable",
    "PartialFile",
    "PendingCommit",
    "PlannedRequest",
    "RemotePath",
    "RemoteSource",
    "Reserved",
    "ReservedFile",
    "RunSource",
    "Spool",
    "StoredObject",
    "StreamSource",
    "Transaction",
    "VerifyingSource",
    "Version",
    "check_writable",
    "delete_directory",
    "delete_moved_aside",
    "dependents_of",
    "enter_working_directory",
    "exists",
    "extends",
    "finish_pending_commit",
    "forget_listing",
    "get_xattr_note",
    "has_commit",
    "has_staging",
    "host_tag",
    "identity",
    "is_at_home",
    "is_directory",
    "is_file",
    "is_in_store",
    "is_remote",
    "join",
    "kept_sha256",
    "leave_working_directory",
    "list_names",
    "listing_cache",
    "local_path",
    "move_aside",
    "open_listed",
    "open_source",
    "prove_here",
    "publish",
    "publish_directory",
    "reading_alone",
    "reads_runs",
    "recover_directories",
    "refuse_damaged_url",
    "refuse_url",
    "requests_for",
    "set_xattr_note",
    "sizes_below",
    "split",
    "sum_of",
    "sweep_leftovers",
    "sync_directory",
    "take_lock",
    "transaction",
    "walk",
    "was_proven_here",
    "was_replaced",
    "without_secrets",
]
