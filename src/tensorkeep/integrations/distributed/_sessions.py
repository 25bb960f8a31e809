"""How the ranks of one save find each other: torch's store as the place where they meet."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from tensorkeep.checkpoint import Rendezvous
from tensorkeep.errors import UnsupportedError
from tensorkeep.transport import is_remote, without_secrets


class Session(msgspec.Struct, frozen=True):
    """What a rank needs to take part in a save.

    Attributes:
        save_id: Identifies the save.
        rank: Of this process, from 0; the first one coordinates.
        n_ranks: How many take part.
        plan_sum: Checksum of the plan of this rank.
        path: Where the first rank saves, as `place_of` gives it.
    """

    save_id: str
    rank: int
    n_ranks: int
    plan_sum: int
    path: str

    def check_path(self, path: str) -> None:
        """Refuse another path than the first rank's: the parts of this rank would be missing there."""
        place = place_of(path)
        if place != self.path:
            raise UnsupportedError(
                f"rank {self.rank} was given another path than the first rank",
                path=place,
                expected=self.path,
                hint="Give all ranks the same directory or URL",
            )

    def rendezvous(self, timeout_s: float | None) -> Rendezvous:
        """Return where the ranks meet, by default with the timeout of the process group."""
        store = TorchStore(_store(self))
        timeout_s = timeout_s if timeout_s is not None else _group_timeout_s(self)
        return Rendezvous(store, self.rank, self.n_ranks, timeout_s)


def place_of(path: str) -> str:
    """Return what two paths of one directory have in common; of a URL, what may be shown."""
    return str(without_secrets(path)) if is_remote(path) else os.path.realpath(path)


class TorchStore:
    """A store of torch as `KeyValues`."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, key: str, value: bytes) -> None:
        """Set a value."""
        self._store.set(key, value)

    def find(self, key: str) -> bytes | None:
        """Return a value, or None if none was set."""
        return bytes(self._store.get(key)) if self._store.check([key]) else None

    def put_first(self, key: str, value: bytes) -> bytes:
        """Set a value unless there is one; return the one that is there."""
        return bytes(self._store.compare_set(key, "", value.decode()))

    def count(self, key: str, more: int) -> int:
        """Increase a counter, which begins at 0, and return it."""
        return int(self._store.add(key, more))

    def remove(self, key: str) -> None:
        """Remove a value."""
        self._store.delete_key(key)


def _store(session: Session) -> Any:
    """Return a store in which only the ranks of this save see the keys."""
    if session.n_ranks == 1:
        return dist.HashStore()
    return dist.PrefixStore(f"tensorkeep/{session.save_id}", distributed_c10d._get_default_store())


def _group_timeout_s(session: Session) -> float:
    """Return the seconds after which collectives of the process group give up."""
    if session.n_ranks == 1:
        return 0.0
    group: Any = distributed_c10d._get_default_group()
    for device in group._device_types:
        options = getattr(group._get_backend(torch.device(device)), "options", None)
        timeout = getattr(options, "_timeout", None)
        if timeout is not None:
            return float(timeout.total_seconds())
    return float(distributed_c10d.default_pg_timeout.total_seconds())
