"""A checkpoint that several processes send to a store together: planned and committed by one."""

from __future__ import annotations

from collections.abc import Mapping

from tensorkeep.checkpoint.saving._multi_writer_plan import MultiWriterPlan
from tensorkeep.checkpoint.saving._remote_commit import RemoteCommit
from tensorkeep.checkpoint.saving._shard_upload import UploadedFile, remove_uploaded
from tensorkeep.layout import index_name
from tensorkeep.transport import RemotePath


class MultiWriterUpload:
    """A save to a store that is under way; nobody has a lock, and of two that are under way the first to commit wins.

    Attributes:
        sending: What those have to know who send the files.
    """

    def __init__(
        self,
        plan: MultiWriterPlan,
        directory: RemotePath,
        *,
        base_name: str = "model",
        variant: str | None = None,
        metadata: Mapping[str, str] | None = None,
        sha256: bool = False,
    ) -> None:
        wanted = index_name(base_name, variant)
        self._plan = plan
        self._switch = RemoteCommit(directory, f"{base_name}.{variant}" if variant else base_name)
        self._index_file = self._switch.index_file(wanted) or wanted
        self.sending = self._switch.sending(self._index_file, plan.with_ties(metadata), sha256=sha256)

    def commit(self, sent: Mapping[str, UploadedFile]) -> None:
        """Switch to the files, which are there."""
        self._switch.commit(self._index_file, self._plan.index, sent)

    def abandon(self) -> None:
        """Remove all that was sent, or may have been, by whomever."""
        remove_uploaded(self._switch.directory, [self.sending.name_of(file) for file in self._plan.files])
