"""A save into a store: each rank sends files of its own, and the first one the index of all."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint import MultiWriterUpload, Sending, UploadedFile, plan_pieces, remove_uploaded
from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.distributed._council import Council
from tensorkeep.integrations.distributed._layout import Gathered
from tensorkeep.integrations.distributed._parts import host_of_part
from tensorkeep.integrations.distributed._tasks import files_by_rank, pieces_by_rank
from tensorkeep.integrations.distributed._ways import Options
from tensorkeep.tensors import Prepared
from tensorkeep.transport import RemotePath


class _Task(msgspec.Struct, frozen=True):
    """What one rank sends.

    Attributes:
        sending: What it has to know.
        files: Name of a file in the plan to the pieces in it, each with its place in the plan of the rank. The first
            rank adds tensors that it was told of with values that are no tensors.
    """

    sending: Sending
    files: dict[str, dict[str, int]]


class InStore:
    """See `Way`."""

    def __init__(self, path: str, options: Options) -> None:
        self._directory = RemotePath.of(path)
        self._options = options
        self._planned: Mapping[str, Mapping[str, TensorToWrite]] = {}
        self._upload: MultiWriterUpload | None = None
        self._sent: list[str] = []

    def begin(self, gathered: Gathered, prepared: Prepared, names: Mapping[str, str]) -> list[bytes]:
        """Look at what stands there, and name the files of all; see `Way.begin`."""
        options = self._options
        pieces = pieces_by_rank(gathered, names, prepared.to_write)
        plan = plan_pieces(prepared, pieces, max_shard_nbytes=options.max_shard_nbytes, **options.naming)
        self._planned = plan.files
        self._upload = upload = MultiWriterUpload(
            plan, self._directory, metadata=options.metadata, sha256=options.sha256, **options.naming
        )
        shares = files_by_rank(gathered, names, plan.files)
        return [msgspec.msgpack.encode(_Task(upload.sending.for_files(files), files)) for files in shares]

    def write(self, plan: SavePlan, planner: SavePlanner, task: bytes, council: Council) -> dict[str, bytes]:
        """Send the files of this rank, and return by what to know each; see `Way.write`."""
        todo = msgspec.msgpack.decode(task, type=_Task)
        sent: dict[str, bytes] = {}
        for file, items in todo.files.items():
            self._sent.append(todo.sending.name_of(file))
            parts = {
                name: host_of_part(name, plan.items[item], planner, council.look) for name, item in items.items()
            }
            to_write = {**self._planned.get(file, {}), **parts}
            found = todo.sending.send(self._directory, file, to_write, lambda _: council.look())
            sent[file] = msgspec.msgpack.encode(found)
        council.meet("sent")
        return sent

    def commit(self, told: dict[str, bytes]) -> None:
        """Switch to the files that were sent; see `Way.commit`."""
        upload, self._upload = self._upload, None
        if upload is None:
            raise UnsupportedError("the save is over")
        upload.commit({file: msgspec.msgpack.decode(found, type=UploadedFile) for file, found in told.items()})

    def abandon(self) -> None:
        """Take back what was sent, the first rank also what others may have; see `Way.abandon`."""
        upload, self._upload = self._upload, None
        names, self._sent = self._sent, []
        if upload is not None:
            upload.abandon()
        elif names:
            remove_uploaded(self._directory, names)
