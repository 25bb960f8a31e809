"""What the ranks of one save exchange while they write: values, barriers, and the first failure.

1. They share a store of small values. Nothing here is a collective: a save may run in a thread beside the training's
   collectives, and a rank that failed takes part in none.
2. So each wait polls two keys: the one it waits for, and the one under which a rank reports that it failed.
3. A working rank increments a heartbeat. Waits give up only after the timeout without a sign of life from any rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from tensorkeep import errors
from tensorkeep.checkpoint.ranks._key_values import KeyValues
from tensorkeep.errors import TensorkeepError, TransportError

_PART_NBYTES: Final = 2**20
"""Bytes of one value in the store: torch's drops connections that send 8 MiB, jax's refuses 4 MiB."""

_FAILED: Final = "failed"
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.1
_CHECK_EVERY_S: Final = 0.5
_BEATS: Final = "beats"
_BEATS_PER_TIMEOUT: Final = 20
"""How often a working rank beats, and a waiting rank looks for a beat, within the timeout."""


class _Failure(msgspec.Struct, frozen=True):
    """An error sent from rank to rank.

    Attributes:
        rank: Where it was raised.
        kind: Name of its class.
        fields: The fields of a `TensorkeepError`; the message of any other error.
    """

    rank: int
    kind: str
    fields: dict[str, str | None]


class Rendezvous:
    """Where the ranks of one save meet; waits give up after `timeout_s` without a sign of life from any rank."""

    def __init__(self, store: KeyValues, rank: int, n_ranks: int, timeout_s: float) -> None:
        self._store = store
        self.rank = rank
        self.n_ranks = n_ranks
        self._timeout_s = timeout_s
        self._beat_every_s = self._timeout_s / _BEATS_PER_TIMEOUT
        self._checked_at = self._beaten_at = time.monotonic()

    def put(self, key: str, value: bytes) -> None:
        """Leave a value for the rank that gets it."""
        for number in range(0, len(value), _PART_NBYTES):
            self._store.put(f"{key}/{number}", value[number : number + _PART_NBYTES])
        # The key itself comes last: a rank that finds it finds all parts.
        self._store.put(key, str(len(value)).encode())

    def get(self, key: str, on_wait: Callable[[], None] | None = None) -> bytes:
        """Wait for a value, and take it out of the store."""
        parts = [f"{key}/{number}" for number in range(0, int(self._wait_for(key, on_wait)), _PART_NBYTES)]
        value = b"".join(self._store.find(part) or b"" for part in parts)
        for part in (*parts, key):
            self._store.remove(part)
        return value

    def barrier(self, name: str, on_wait: Callable[[], None] | None = None) -> None:
        """Wait until all ranks have reached the barrier."""
        if self._store.count(f"{name}/count", 1) == self.n_ranks:
            self._store.put(name, b"all")
        self._wait_for(name, on_wait)

    def fail(self, error: BaseException) -> TensorkeepError | None:
        """Report that this rank failed; return the error of the rank that failed first, if that is another one."""
        if isinstance(error, TensorkeepError):
            fields = error.fields()
        else:
            fields = {"message": f"{type(error).__name__}: {error}"}
        fields = {name: text and text.encode("utf-8", "backslashreplace").decode() for name, text in fields.items()}
        failure = _Failure(self.rank, type(error).__name__, fields)
        first = msgspec.json.decode(self._store.put_first(_FAILED, msgspec.json.encode(failure)), type=_Failure)
        return None if first == failure else _error_of(first)

    def beat(self) -> None:
        """Show that this rank is alive, and raise if another one failed; cheap enough to call for every piece."""
        now = time.monotonic()
        if now - self._beaten_at >= self._beat_every_s:
            self._beaten_at = now
            self._store.count(_BEATS, 1)
        if now - self._checked_at >= _CHECK_EVERY_S:
            self._checked_at = now
            self._raise_failure()

    def _wait_for(self, key: str, on_wait: Callable[[], None] | None) -> bytes:
        heard_at = checked_at = time.monotonic()
        n_beats = 0
        pause_s = _FIRST_PAUSE_S
        while (found := self._store.find(key)) is None:
            self._raise_failure()
            now = time.monotonic()
            if now - checked_at >= self._beat_every_s:
                checked_at = now
                if (counted := self._store.count(_BEATS, 0)) != n_beats:
                    heard_at, n_beats = now, counted
            if now - heard_at > self._timeout_s:
                raise TransportError(
                    "no sign of life from other ranks in time: they are very slow, or were killed",
                    expected=f"a sign of all {self.n_ranks} ranks within {self._timeout_s:g} seconds",
                    found=f"no sign that {key!r} is done",
                )
            if on_wait is not None:
                on_wait()
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        return found

    def _raise_failure(self) -> None:
        if (found := self._store.find(_FAILED)) is not None:
            raise _error_of(msgspec.json.decode(found, type=_Failure))


def _error_of(failure: _Failure) -> TensorkeepError:
    """Return the error of another rank, of the same class if that is a `TensorkeepError`."""
    kind = getattr(errors, failure.kind, TensorkeepError)
    is_ours = isinstance(kind, type) and issubclass(kind, TensorkeepError)
    fields = failure.fields | {"message": f"rank {failure.rank}: {failure.fields['message']}"}
    return (kind if is_ours else TensorkeepError)(**fields)
