"""What the ranks of one save tell each other while they write.

They have torch's store in common, and nothing here is a collective: `write_data` may run in a thread of its own, and
a rank that fails must be heard by all at once, wherever they are. So each wait is a look at two keys, the one that is
waited for and the one under which somebody tells that he failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from tensorkeep import errors
from tensorkeep.errors import TensorkeepError, TransportError

_PART_NBYTES: Final = 2**20
"""Of what is told at once; torch's store gives up connections over which 8 MiB come."""

_FAILED: Final = "failed"
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.1
_LOOK_EVERY_S: Final = 0.5
_BEATS: Final = "beats"
_BEATS_PER_TIMEOUT: Final = 20
"""How often those who work let it be known, and those who wait look for it, in the time after which they give up."""


class Session(msgspec.Struct, frozen=True):
    """What a rank needs to take part in a save.

    Attributes:
        save_id: Tells this save from all others.
        rank: Of this process, from 0; the first coordinates.
        n_ranks: How many take part.
        plan_sum: Checksum of the plan of this rank.
    """

    save_id: str
    rank: int
    n_ranks: int
    plan_sum: int


class _Failure(msgspec.Struct, frozen=True):
    """An error, as it goes from rank to rank.

    Attributes:
        rank: Where it was raised.
        kind: Name of its class.
        fields: Those of an error of this package.
    """

    rank: int
    kind: str
    fields: dict[str, str | None]


class Council:
    """The ranks of one save."""

    def __init__(self, session: Session, timeout_s: float | None = None) -> None:
        self._session = session
        self._store = _store(session)
        self._timeout_s = timeout_s if timeout_s is not None else _group_timeout_s(session)
        self._beat_every_s = self._timeout_s / _BEATS_PER_TIMEOUT
        self._looked_at = self._beaten_at = time.monotonic()

    def tell(self, key: str, value: bytes) -> None:
        """Leave something for one who will ask for it."""
        for number in range(0, len(value), _PART_NBYTES):
            self._store.set(f"{key}/{number}", value[number : number + _PART_NBYTES])
        self._store.set(key, str(len(value)))

    def hear(self, key: str, on_wait: Callable[[], None] | None = None) -> bytes:
        """Wait for what somebody tells, and take it away."""
        self._wait_for(key, on_wait)
        parts = [f"{key}/{number}" for number in range(0, int(self._store.get(key)), _PART_NBYTES)]
        value = b"".join(self._store.get(part) for part in parts)
        for part in (*parts, key):
            self._store.delete_key(part)
        return value

    def meet(self, place: str, on_wait: Callable[[], None] | None = None) -> None:
        """Wait until all ranks have come to the same place."""
        if self._store.add(f"{place}/count", 1) == self._session.n_ranks:
            self._store.set(place, b"all")
        self._wait_for(place, on_wait)

    def fail(self, error: BaseException) -> TensorkeepError | None:
        """Tell all that this rank failed; only the first failure is heard."""
        if isinstance(error, TensorkeepError):
            fields = error.fields()
        else:
            fields = {"message": f"{type(error).__name__}: {error}"}
        fields = {name: text and text.encode("utf-8", "backslashreplace").decode() for name, text in fields.items()}
        failure = _Failure(self._session.rank, type(error).__name__, fields)
        heard = self._store.compare_set(_FAILED, "", msgspec.json.encode(failure).decode())
        first = msgspec.json.decode(heard, type=_Failure)
        return None if first == failure else _error_of(first)

    def look(self) -> None:
        """Give a sign of life, and give up if another rank failed; cheap enough for every piece that is written."""
        now = time.monotonic()
        if now - self._beaten_at >= self._beat_every_s:
            self._beaten_at = now
            self._store.add(_BEATS, 1)
        if now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            self._check()

    def _wait_for(self, key: str, on_wait: Callable[[], None] | None) -> None:
        heard_at = looked_at = time.monotonic()
        n_beats = 0
        pause_s = _FIRST_PAUSE_S
        while not self._store.check([key]):
            self._check()
            now = time.monotonic()
            if now - looked_at >= self._beat_every_s:
                looked_at = now
                if (found := self._store.add(_BEATS, 0)) != n_beats:
                    heard_at, n_beats = now, found
            if now - heard_at > self._timeout_s:
                raise TransportError(
                    "other ranks were not heard of in time: they are very slow, or were killed",
                    expected=f"a sign of all {self._session.n_ranks} ranks within {self._timeout_s:g} seconds",
                    found=f"none that {key!r} is done",
                )
            if on_wait is not None:
                on_wait()
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)

    def _check(self) -> None:
        if self._store.check([_FAILED]):
            raise _error_of(msgspec.json.decode(self._store.get(_FAILED), type=_Failure))


def _store(session: Session) -> Any:
    """Return what the ranks have in common, of which nobody else sees the keys."""
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


def _error_of(failure: _Failure) -> TensorkeepError:
    """Return what another rank has raised, as an error of the same class where it is one of this package."""
    kind = getattr(errors, failure.kind, TensorkeepError)
    is_ours = isinstance(kind, type) and issubclass(kind, TensorkeepError)
    fields = failure.fields | {"message": f"rank {failure.rank}: {failure.fields['message']}"}
    return (kind if is_ours else TensorkeepError)(**fields)
