"""One save as one rank takes part in it.

1. The first rank plans all files, opens the destination and assigns each rank its share.
2. Every rank stages its share: it fills its places in files that all ranks see, encrypts files of its own, or sends
   them to a store.
3. The first rank collects what the ranks report and commits. If any rank fails, it abandons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.ranks._assignments import (
    Assignment,
    EncryptAssignment,
    FillAssignment,
    UploadAssignment,
    assign_files,
    assign_pieces,
    assign_tensors,
    pieces_by_rank,
)
from tensorkeep.checkpoint.ranks._encrypt_files import encrypt_files, refuse_other_key
from tensorkeep.checkpoint.ranks._parts import Part, part_to_write
from tensorkeep.checkpoint.ranks._rank_plan import RankedTensors
from tensorkeep.checkpoint.ranks._rendezvous import Rendezvous
from tensorkeep.checkpoint.ranks._write_parts import digest_parts, write_own, write_parts
from tensorkeep.checkpoint.saving import (
    Destination,
    DirectoryDestination,
    SaveOptions,
    SavePlan,
    StoreDestination,
    plan_pieces,
    plan_whole,
    remove_objects,
)
from tensorkeep.errors import UnsupportedError
from tensorkeep.tensors import Prepared
from tensorkeep.transport import RemotePath, is_remote


class RankSave:
    """An unfinished save; only the first rank has its destination."""

    def __init__(self, path: str, layout: str | None, options: SaveOptions) -> None:
        self._path = path
        self._is_per_rank = layout == "per_rank" or is_remote(path) or options.encryption is not None
        self._options = options
        self._destination: Destination | None = None
        self._own_files: Mapping[str, Mapping[str, TensorToWrite]] = {}
        self._own_digests: dict[str, bytes] = {}
        self._sent: list[str] = []

    def begin(self, ranked: RankedTensors, prepared: Prepared, names: Mapping[str, str]) -> list[bytes]:
        """Open the destination and return the assignment of each rank, on the first rank."""
        if self._is_per_rank:
            plan = plan_pieces(prepared, pieces_by_rank(ranked, names, prepared.to_write), self._options)
        else:
            plan = plan_whole(prepared, self._options)
        assignments: Sequence[Assignment]
        encryption = self._options.encryption
        key = None if encryption is None else encryption.key.id
        if is_remote(self._path):
            self._destination = store = StoreDestination(RemotePath.of(self._path), plan, self._options)
            store.open()
            self._own_files = plan.files
            shares = assign_files(ranked, names, plan.files)
            assignments = [UploadAssignment(store.upload_spec.for_files(files), files, key) for files in shares]
        else:
            self._destination = directory = DirectoryDestination(self._path, plan, self._options)
            directory.open()
            if key is not None:
                self._own_files = plan.files
                assignments = self._to_encrypt(directory, plan, assign_files(ranked, names, plan.files), key)
                return [msgspec.msgpack.encode(assignment) for assignment in assignments]
            reservation = directory.reserve()
            own = {name: tensor for name, tensor in prepared.to_write.items() if name not in names.values()}
            self._own_digests = write_own(reservation, own, durable=self._options.durable, beat=directory.refresh)
            assign = assign_pieces if self._is_per_rank else assign_tensors
            assignments = assign(ranked, names, reservation)
        return [msgspec.msgpack.encode(assignment) for assignment in assignments]

    def _to_encrypt(
        self, directory: DirectoryDestination, plan: SavePlan, shares: list[dict[str, dict[str, int]]], key: str
    ) -> list[EncryptAssignment]:
        """Make the files that ranks encrypt, and assign each rank its own."""
        reserved = dict(zip(plan.files, directory.reserve().files, strict=True))
        return [
            EncryptAssignment(
                files,
                {file: reserved[file] for file in files},
                plan.index_file or "",
                plan.metadata,
                self._options.arrangement,
                key,
            )
            for files in shares
        ]

    def stage(self, parts: Sequence[Part], assignment: bytes, ranks: Rendezvous) -> dict[str, bytes]:
        """Write the share of this rank, wait until all ranks have, and return what the first rank collects."""
        assigned = msgspec.msgpack.decode(assignment, type=Assignment)
        refuse_other_key(None if isinstance(assigned, FillAssignment) else assigned.key, self._options.encryption)
        if isinstance(assigned, EncryptAssignment):
            return self._encrypt(parts, assigned, ranks)
        if isinstance(assigned, UploadAssignment):
            return self._upload(parts, assigned, ranks)
        return self._fill(parts, assigned, ranks)

    def _fill(self, parts: Sequence[Part], assigned: FillAssignment, ranks: Rendezvous) -> dict[str, bytes]:
        beat = partial(self._beat, ranks)
        digests = write_parts(parts, assigned, durable=self._options.durable, beat=beat)
        # A tensor of several ranks can be digested only when each has written its parts of it.
        ranks.barrier("written", self._refresh)
        digests |= digest_parts(assigned, beat)
        ranks.barrier("digested", self._refresh)
        return digests

    def _encrypt(self, parts: Sequence[Part], assigned: EncryptAssignment, ranks: Rendezvous) -> dict[str, bytes]:
        beat = partial(self._beat, ranks)
        encryption, durable = self._options.encryption, self._options.durable
        if encryption is None:
            return {}
        heads = encrypt_files(parts, assigned, self._own_files, encryption, durable=durable, beat=beat)
        ranks.barrier("encrypted", self._refresh)
        return heads

    def _beat(self, ranks: Rendezvous) -> None:
        ranks.beat()
        self._refresh()

    def _refresh(self) -> None:
        if self._destination is not None:
            self._destination.refresh()

    def _upload(self, parts: Sequence[Part], assigned: UploadAssignment, ranks: Rendezvous) -> dict[str, bytes]:
        uploaded: dict[str, bytes] = {}
        for file, items in assigned.files.items():
            self._sent.append(assigned.spec.name_of(file))  # before it is sent: a failed upload may have arrived
            of_rank = {name: part_to_write(parts, item, ranks.beat) for name, item in items.items()}
            to_write = {**self._own_files.get(file, {}), **of_rank}
            result = assigned.spec.upload(
                RemotePath.of(self._path), file, to_write, lambda _: ranks.beat(), self._options.encryption
            )
            uploaded[file] = msgspec.msgpack.encode(result)
        ranks.barrier("sent")
        return uploaded

    def commit(self, results: Mapping[str, bytes]) -> None:
        """Make what all ranks staged the checkpoint, on the first rank."""
        destination, self._destination = self._destination, None
        if destination is None:
            raise UnsupportedError("the save is over")
        try:
            destination.collect({**self._own_digests, **results})
            destination.commit()
        finally:
            destination.abandon()

    def abandon(self) -> None:
        """Remove staged files; the first rank removes those of all ranks. Has no effect once the save is over."""
        destination, self._destination = self._destination, None
        sent, self._sent = self._sent, []
        if destination is not None:
            destination.abandon()
        elif sent:
            remove_objects(RemotePath.of(self._path), sent)
