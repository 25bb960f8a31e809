"""A run published step by step: patches, and a whole checkpoint now and then."""

from __future__ import annotations

import os
from contextlib import ExitStack
from operator import index

import msgspec

from tensorkeep.checkpoint import save_checkpoint
from tensorkeep.deltas import patched
from tensorkeep.deltas.reading import contents_of, digest_of_contents
from tensorkeep.errors import RefusedError, SourceChangedError, UnsupportedError
from tensorkeep.patches._make import make
from tensorkeep.patches.feed._index import (
    INDEX_NAME,
    FeedIndex,
    FeedStep,
    anchor_name,
    check_step,
    parse_feed,
    patch_name,
)
from tensorkeep.patches.feed._place import feed_place
from tensorkeep.patches.opening import Checkpoint, Opening
from tensorkeep.tensors import LazyTensors


class Publisher:
    """Publishes the steps of a run in a directory that any web server, or `tensorkeep serve`, serves, or in a bucket.

        publisher = tensorkeep.patches.Publisher("feed")
        publisher.publish(100, "run/step-100")
        publisher.publish(110, "run/step-110")

    The directory holds whole checkpoints (anchors), a patch from each step to the next, and an index. The index is
    replaced last, so followers see a step only once it is complete. One process publishes at a time: a lock keeps
    others out of a directory, and a conditional write of the index out of a bucket. A new process continues, and
    removes what a killed one left.

    Args:
        directory: A directory, created if its parent exists, or its URL in a store: s3, gs, az, any that fsspec can
            write to, or a result of `tensorkeep.remote`.
        anchor_every: Steps from one anchor to the next.
        keep_anchors: Anchors to keep; what is older than the first of them is removed.
        durable: Whether to wait until data is on the disk (fsync).

    Raises:
        UnsupportedError: If the directory is the URL of a server that cannot be written to.
        TypeError: If a number is not an integer.
        ValueError: If a number is less than 1.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        anchor_every: int = 20,
        keep_anchors: int = 2,
        durable: bool = True,
    ) -> None:
        self._place = feed_place(os.fspath(directory), durable=durable)
        if min(index(anchor_every), index(keep_anchors)) < 1:
            raise ValueError("anchor_every and keep_anchors must be at least 1")
        self._anchor_every = anchor_every
        self._keep_anchors = keep_anchors
        self._durable = durable

    @property
    def steps(self) -> list[int]:
        """The numbers of the published steps.

        Raises:
            FormatError: If the index is malformed.
        """
        return [each.step for each in self._index().steps]

    def publish(self, step: int, checkpoint: Checkpoint, *, previous: Checkpoint | None = None) -> None:
        """Publish a step.

        Args:
            step: Its number, an integer from 0 to 2**63 - 1 and higher than the last one.
            checkpoint: A path or URL of any kind of checkpoint, or what is open.
            previous: The last published step, if it is at hand; None reads it from the feed, which for a bucket is a
                download.

        Raises:
            RefusedError: If the number is not higher than the last one, a file that this feed did not publish has
                the name of the step, or `previous` is another checkpoint.
            UnsupportedError: If `step` cannot be the number of a step, or the checkpoint is encrypted.
            BusyError: If another process is publishing in the same directory.
            SourceChangedError: If another process publishes in the same bucket.
            TensorkeepError: If `make` or `save_checkpoint` would raise it.
        """
        step = check_step(step)
        with self._place.publishing() as token:
            self._publish(step, checkpoint, previous, token)

    def _publish(self, step: int, checkpoint: Checkpoint, previous: Checkpoint | None, token: str) -> None:
        names = anchor_name(step, token), patch_name(step, token)
        before = self._index()
        if before.steps and step <= before.steps[-1].step:
            raise RefusedError(
                f"step {step} is not after the last one",
                path=self._place.root,
                expected=f"a number above {before.steps[-1].step}",
                hint="Publish a run that went back in a new directory",
            )
        with ExitStack() as stack:
            new = Opening(stack).checkpoint(checkpoint)
            _refuse_encrypted(new)
            before = self._claimed(names, before)
            if before.steps:
                last = self._last(before, stack) if previous is None else _checked(previous, before, stack)
                made = self._with_patch(step, names[1], last, new, stack)
            else:
                made = FeedStep(step, _digest_of(new))
            since = next((place for place, each in enumerate(reversed(before.steps)) if each.anchor), None)
            if since is None or since + 1 >= self._anchor_every:
                save_checkpoint(new, self._place.path(names[0]), durable=self._durable, progress=self._show_life)
                made = msgspec.structs.replace(made, anchor=names[0])
        try:
            self._replace_index(before, FeedIndex(steps=(*before.steps, made)).pruned(self._keep_anchors))
        except SourceChangedError as error:
            self._place.remove(names)
            raise error.with_fields(message="another process publishes in this feed") from None

    def _claimed(self, names: tuple[str, str], before: FeedIndex) -> FeedIndex:
        """Note in the index what is being published; refuse to replace what no index names."""
        for name in names:
            if name not in before.names() and self._place.holds(name):
                raise RefusedError(
                    "there is something that this feed did not publish, which would be replaced",
                    path=self._place.path(name),
                    hint="Publish in a directory of its own, or move that away",
                )
        claimed = msgspec.structs.replace(before, pending=names)
        self._replace_index(before, claimed)
        return claimed

    def _last(self, before: FeedIndex, stack: ExitStack) -> LazyTensors:
        """Open the last step, looked at through the patches since its anchor."""
        place = max(place for place, each in enumerate(before.steps) if each.anchor)
        anchor, *later = before.steps[place:]
        opening = Opening(stack)
        base = opening.checkpoint(self._place.path(anchor.anchor or ""))
        return patched(base, opening.patches(self._place.path(each.patch or "") for each in later))

    def _with_patch(self, step: int, name: str, last: LazyTensors, new: LazyTensors, stack: ExitStack) -> FeedStep:
        """Write the patch from the last step to a new one."""
        path = self._place.path(name)
        make(last, new, path, overwrite=True, durable=self._durable, progress=self._show_life)
        (patch,) = Opening(stack).patches([path])
        return FeedStep(step, patch.description.new.digest, patch=name, nbytes=self._place.nbytes(name))

    def _show_life(self, *_: int) -> None:
        self._place.show_life()

    def _index(self) -> FeedIndex:
        text = self._place.read_index()
        return FeedIndex() if text is None else parse_feed(text, self._place.path(INDEX_NAME))

    def _replace_index(self, before: FeedIndex, index: FeedIndex) -> None:
        """Replace the index, and then remove what only the one before names; the new one lists it until the next."""
        gone = before.names() - index.names()
        listed = msgspec.structs.replace(index, pending=(*index.pending, *sorted(gone)))
        self._place.replace_index(msgspec.json.encode(listed))
        self._place.remove(gone)


def _refuse_encrypted(tensors: LazyTensors) -> None:
    if tensors.encryption is not None:
        raise UnsupportedError(
            "this is encrypted, and a feed is plain",
            path=tensors.path,
            hint="Serve patches between encrypted checkpoints (tensorkeep.patches.make), which are encrypted too",
        )


def _checked(previous: Checkpoint, before: FeedIndex, stack: ExitStack) -> LazyTensors:
    """Open what the caller has of the last step."""
    opened = Opening(stack).checkpoint(previous)
    if _digest_of(opened) != before.steps[-1].digest:
        raise RefusedError(
            f"this is not step {before.steps[-1].step}, which was published last",
            path=opened.path,
            hint="Without previous=, it is read from the feed",
        )
    return opened


def _digest_of(tensors: LazyTensors) -> str:
    return digest_of_contents(contents_of(tensors))
