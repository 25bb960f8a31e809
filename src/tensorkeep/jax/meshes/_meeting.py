"""Where the processes of a job meet: for each call that all of them make, a place of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final, TypeAlias

import jax
import msgspec

from tensorkeep.checkpoint import Rendezvous
from tensorkeep.errors import StateError, TensorkeepError, UnsupportedError
from tensorkeep.jax.meshes._coordination import CoordinationService

TIMEOUT_S: Final = 300.0
"""Seconds without a sign of life from any process after which the others give up."""

Call: TypeAlias = Mapping[str, str]
"""What a process calls, and with which arguments: equal in all processes. Name to text."""

_numbers = count()
"""Numbers of the meetings of this process; all processes begin the same ones in the same order."""


class _Message(msgspec.Struct, frozen=True):
    """What one process sends another, and the call that it makes."""

    call: dict[str, str]
    content: bytes


class Meeting:
    """One call in which all processes take part; the first one coordinates it."""

    def __init__(self, store: CoordinationService, ranks: Rendezvous) -> None:
        self._store = store
        self.ranks = ranks

    @property
    def others(self) -> range:
        """The numbers of all processes but the first."""
        return range(1, self.ranks.n_ranks)

    def send(self, call: Call, content: bytes = b"", *, to: int = 0) -> None:
        """Send a process the first message that it gets from this one; one of the two is the first process."""
        self.ranks.put(_key(self.ranks.rank, to), msgspec.msgpack.encode(_Message(dict(call), content)))

    def receive(self, call: Call, *, sender: int = 0) -> bytes:
        """Return what `send` sent, and refuse a process that has made another call."""
        message = msgspec.msgpack.decode(self.ranks.get(_key(sender, self.ranks.rank)), type=_Message)
        _refuse_other(call, message.call, self.ranks.rank, sender)
        return message.content

    def decide(self, call: Call, choose: Callable[[Callable[[], None]], int]) -> int:
        """Return what the first process chooses. `choose` gets a function to show that it lives."""
        ranks = self.ranks
        if ranks.rank:
            self.send(call)
            chosen = int(self.receive(call))
        else:
            chosen = choose(ranks.beat)
            for rank in self.others:
                self.send(call, str(chosen).encode(), to=rank)
        self.leave()
        return chosen

    def fail(self, error: BaseException) -> TensorkeepError | None:
        """Tell the others that this process failed; return the first failure, if another one had it."""
        with suppress(Exception):  # the service may be gone with the process that had it
            return self.ranks.fail(error)
        return None

    def leave(self) -> None:
        """End a meeting that succeeded; the last one to leave removes its values."""
        if self._store.count("left", 1) == self.ranks.n_ranks:
            self._store.remove_all()


@contextmanager
def meet(timeout_s: float = TIMEOUT_S) -> Iterator[Meeting]:
    """Begin the next meeting; if what follows fails here, tell the others.

    All that can fail in one process alone belongs inside. A process that failed before would have one meeting less
    than the others, and take part in each later save when they save something else.
    """
    store = CoordinationService(f"tensorkeep/{next(_numbers)}")
    given_s = timeout_s if _is_timeout(timeout_s) else TIMEOUT_S
    meeting = Meeting(store, Rendezvous(store, jax.process_index(), jax.process_count(), given_s))
    try:
        check_timeout(timeout_s)
        yield meeting
    except BaseException as error:
        meeting.fail(error)
        raise


def _is_timeout(timeout_s: object) -> bool:
    return isinstance(timeout_s, int | float) and timeout_s > 0


def check_timeout(timeout_s: object) -> None:
    """Refuse what is no time to wait for."""
    if not _is_timeout(timeout_s):
        raise UnsupportedError("timeout_s is invalid", expected="seconds, more than 0", found=f"{timeout_s!r:.100}")


def _key(sender: int, to: int) -> str:
    return f"answer/{to}" if to else f"call/{sender}"


def _refuse_other(ours: Call, theirs: Call, rank: int, sender: int) -> None:
    """Refuse a process that has made another call than this one, or with other arguments."""
    for name in {**ours, **theirs}:
        one, other = ours.get(name, "none"), theirs.get(name, "none")
        if one != other:
            raise StateError(
                f"the {name} differs between processes that make one call together",
                expected=f"{one:.200} in all of them, as in process {rank}",
                found=f"{other:.200} in process {sender}",
                hint="All processes make the same calls, in one order; if one has left a call out, restart the job",
            )
