"""A published run, followed: new steps as they come."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Final, Self

import msgspec

from tensorkeep.checkpoint import open_checkpoint, save_checkpoint, verify
from tensorkeep.deltas.reading import contents_of, digest_of_contents
from tensorkeep.errors import FormatError, IntegrityError, SourceChangedError, SourceMissingError, TransientError
from tensorkeep.kinds import refuse
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.patches._apply import apply
from tensorkeep.patches.feed._index import INDEX_NAME, FeedIndex, FeedStep, check_step, parse_feed
from tensorkeep.patches.opening import Opening, copy_to
from tensorkeep.transport import (
    ByteRange,
    ByteSource,
    forget_listing,
    is_remote,
    join,
    open_source,
    refuse_damaged_url,
    without_secrets,
)

_ATTEMPTS: Final = 5
"""How often the index is read again because a file that it names was removed meanwhile."""


class NoFeedWarning(UserWarning):
    """There is no feed where one is followed, for now.

    It is not published yet, its server cannot be reached, or the path or URL is another one.
    """


class Update(msgspec.Struct, frozen=True):
    """A new step, complete.

    Every byte of a patch is checked. Of a checkpoint, which can be large, only the headers are: `apply_to` checks its
    tensors as it copies them, and so does `tensorkeep.torch.load_into` from
    `tensorkeep.open(update.path, verify=True)`.

    Attributes:
        step: Its number.
        path: A patch in a local file, which is there until the next update; or the path or URL of a checkpoint.
        is_anchor: Whether it is a whole checkpoint, and not a patch from the step before.
    """

    step: int
    path: str
    is_anchor: bool

    def apply_to(self, directory: str | os.PathLike[str]) -> None:
        """Bring a checkpoint on this machine to this step: the old one or the new one is there, whole and checked.

        Args:
            directory: A directory with the step before, if this is a patch; with any checkpoint or none if not.

        Raises:
            IntegrityError: If the patch or the checkpoint is damaged. The directory then holds what it held before.
            TensorkeepError: If `tensorkeep.patches.apply` or `tensorkeep.save_checkpoint` would raise it.
        """
        if self.is_anchor:
            with open_checkpoint(self.path, verify=True) as anchor:
                save_checkpoint(anchor, directory)
        else:
            apply(directory, self.path)


class Follower:
    """The steps of a published run that are still to come; `follow` makes one.

    An iterator that waits for the next step, and a context manager that removes what it downloaded.

    Attributes:
        step: The step of the last update, or the one to begin after.
    """

    def __init__(self, url: str, step: int | None, poll_s: float, timeout_s: float | None) -> None:
        self.step = step
        self._url = url
        self._digest: str | None = None
        self._poll_s = poll_s
        self._timeout_s = timeout_s
        self._files = ExitStack()
        self._folder = self._files.enter_context(tempfile.TemporaryDirectory(prefix="tensorkeep-follow-"))
        self._last: str | None = None
        self._is_missing = False
        self._has_warned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was downloaded."""
        self._files.close()

    def __iter__(self) -> Iterator[Update]:
        return self

    def __next__(self) -> Update:
        began = time.monotonic()
        while True:
            failure = None
            try:
                if (update := self.poll()) is not None:
                    self._has_warned = False
                    return update
            except TransientError as error:  # the server restarts, or the network fails
                failure = error
            self._warn_once(failure)
            waited = time.monotonic() - began
            if self._timeout_s is not None and waited >= self._timeout_s:
                raise failure or StopIteration
            left = self._poll_s if self._timeout_s is None else self._timeout_s - waited
            time.sleep(min(self._poll_s, max(left, 0.01)))

    def poll(self) -> Update | None:
        """Return the next step, or None if it is not there yet.

        Raises:
            IntegrityError: If what was downloaded is damaged, or is not what the index says.
            FormatError: If the index or a patch is malformed.
            TransportError: If the server cannot be reached, beyond its own retries.
        """
        for attempt in range(_ATTEMPTS):
            try:
                following = self._index().after(self.step)
                if following is None:
                    return None
                update = self._anchor(following) if following.anchor else self._patch(following)
            except (SourceMissingError, SourceChangedError):  # replaced or removed meanwhile
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            self.step, self._digest = following.step, following.digest
            return update
        return None

    def _index(self) -> FeedIndex:
        path = join(self._url, INDEX_NAME)
        try:
            source = _opened(path)
            self._is_missing = False
            if source.nbytes > MAX_INDEX_NBYTES:
                raise FormatError("the index of the feed is too long", path=path, found=f"{source.nbytes:,} bytes")
            return parse_feed(bytes(source.read(ByteRange(0, source.nbytes))), path)
        except SourceMissingError:
            self._is_missing = True
            return FeedIndex()

    def _warn_once(self, failure: TransientError | None) -> None:
        """Warn, once each time, that the feed is not there: the path or URL may be misspelt."""
        if not (self._is_missing or failure):
            self._has_warned = False
        elif not self._has_warned:
            self._has_warned = True
            waits = f"there is no feed at {without_secrets(self._url)} yet: waiting until one is published there"
            message = waits if failure is None else f"{failure}; waiting until the feed can be read"
            warnings.warn(message, NoFeedWarning, stacklevel=3)

    def _anchor(self, following: FeedStep) -> Update:
        path = join(self._url, following.anchor or "")
        with open_checkpoint(path) as opened:
            self._require(following, digest_of_contents(contents_of(opened)), path)
        return Update(following.step, path, is_anchor=True)

    def _patch(self, following: FeedStep) -> Update:
        path = join(self._url, following.patch or "")
        local = os.path.join(self._folder, f"{following.step}.safetensors")
        with suppress(FileNotFoundError):  # what an attempt before this one left
            os.unlink(local)
        _download(path, local, following.nbytes)
        refuse(verify(local).findings, path)
        with ExitStack() as stack:
            (patch,) = Opening(stack).patches([local])
            self._require(following, patch.description.new.digest, path)
            if self._digest not in {None, patch.description.old.digest}:
                raise IntegrityError(f"the patch of step {following.step} is for another step", path=path)
        if self._last is not None:
            with suppress(FileNotFoundError):  # the caller moved it away
                os.unlink(self._last)
        self._last = local
        return Update(following.step, local, is_anchor=False)

    def _require(self, following: FeedStep, digest: str, path: str) -> None:
        if digest != following.digest:
            raise IntegrityError(
                f"step {following.step} is not what the index of the feed says",
                path=path,
                expected=f"tensors with the digest {following.digest[:16]}…",
                found=f"{digest[:16]}…",
            )


def follow(
    url: str | os.PathLike[str], *, step: int | None = None, poll_s: float = 1.0, timeout_s: float | None = None
) -> Follower:
    """Follow a training run that a `tensorkeep.patches.Publisher` publishes: its steps, in order, as they come.

        for update in tensorkeep.follow("http://trainer:8000/feed"):
            update.apply_to("model")

    The first update is the newest whole checkpoint, and each later one a patch, downloaded and checked. A follower
    that missed more patches than the publisher keeps gets a whole checkpoint again. To update a model in memory, call
    `tensorkeep.torch.load_into(model, tensorkeep.open(update.path, verify=True))` for an anchor and
    `tensorkeep.torch.apply_patch(model, update.path)` for a patch.

    Args:
        url: The directory of the feed: a URL, or a path.
        step: The step that the caller has already; None to begin with a whole checkpoint.
        poll_s: Seconds between looks for a new step, at least 0.
        timeout_s: Seconds after which iteration ends if there is no new step, at least 0; None to wait forever.

    Returns:
        An iterator of `Update`, which warns (`tensorkeep.patches.NoFeedWarning`) if it waits where there is no feed
        yet, or if the server cannot be reached. After `timeout_s`, it raises the error of a server that still cannot
        be reached. Its `poll` does not wait for a step.

    Raises:
        UnsupportedError: If `step` cannot be the number of a step, or pathlib took a slash from the URL.
        ValueError: If a time is negative or not a number.

    Examples:
        >>> publisher = tensorkeep.patches.Publisher("feed")
        >>> publisher.publish(100, "my-model")
        >>> with tensorkeep.follow("feed", timeout_s=0) as updates:
        ...     [(update.step, update.is_anchor) for update in updates]
        [(100, True)]
    """
    place = os.fspath(url)
    refuse_damaged_url(place)
    for name, seconds in (("poll_s", poll_s), ("timeout_s", timeout_s)):
        if seconds is not None and not seconds >= 0:  # NaN is not
            raise ValueError(f"{name} must be at least 0 seconds, not {seconds}")
    return Follower(place, None if step is None else check_step(step), poll_s, timeout_s)


def _opened(path: str) -> ByteSource:
    if is_remote(path):
        forget_listing(path)
    return open_source(path, backend="pread")


def _download(path: str, local: str, nbytes: int) -> None:
    """Copy a file of a known size to this machine."""
    source = _opened(path)
    if source.nbytes != nbytes:
        raise IntegrityError(
            "the patch has another size than the index of the feed says",
            path=path,
            expected=f"{nbytes:,} bytes",
            found=f"{source.nbytes:,}",
        )
    copy_to(source, local)
