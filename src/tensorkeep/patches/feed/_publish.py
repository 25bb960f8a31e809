"""A run published step by step: patches, and a whole checkpoint now and then."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, suppress

import msgspec

from tensorkeep.checkpoint import save_checkpoint
from tensorkeep.deltas import patched
from tensorkeep.deltas.reading import contents_of, digest_of_contents
from tensorkeep.errors import RefusedError, SourceMissingError, UnsupportedError, as_transport_error
from tensorkeep.patches._make import make
from tensorkeep.patches.feed._index import INDEX_NAME, FeedIndex, FeedStep, anchor_name, parse_feed, patch_name
from tensorkeep.patches.opening import Checkpoint, Opening
from tensorkeep.tensors import LazyTensors
from tensorkeep.transport import publish, refuse_url


class Publisher:
    """Publishes the steps of a run in a directory, from which any web server, or `tensorkeep serve`, serves them.

        publisher = tensorkeep.patches.Publisher("feed")
        publisher.publish(100, "run/step-100")
        publisher.publish(110, "run/step-110")

    The directory holds whole checkpoints (anchors), a patch from each step to the next, and an index. The index is
    replaced last, so followers see a step only once it is complete. One process publishes; a new one continues.

    Args:
        directory: Created if its parent exists.
        anchor_every: Steps from one anchor to the next.
        keep_anchors: Anchors to keep; what is older than the first of them is removed.
        durable: Whether to wait until data is on the disk (fsync).

    Raises:
        UnsupportedError: If the directory is a URL.
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
        refuse_url(os.fspath(directory), hint="Publish to a local directory, and serve or synchronize that")
        if min(anchor_every, keep_anchors) < 1:
            raise ValueError("anchor_every and keep_anchors must be at least 1")
        self._directory = os.path.abspath(directory)
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

    def publish(self, step: int, checkpoint: Checkpoint) -> None:
        """Publish a step.

        Args:
            step: Its number, higher than the last one.
            checkpoint: A path or URL of any kind of checkpoint, or what is open.

        Raises:
            RefusedError: If the number is not higher than the last one, or a file that this feed did not publish has
                the name of the step.
            UnsupportedError: If the checkpoint is encrypted: a feed is plain.
            TensorkeepError: If `make` or `save_checkpoint` would raise it.
        """
        with as_transport_error("could not make the directory", self._directory):
            os.makedirs(self._directory, exist_ok=True)
        before = self._index()
        if before.steps and step <= before.steps[-1].step:
            raise RefusedError(
                f"step {step} is not after the last one",
                path=self._directory,
                expected=f"a number above {before.steps[-1].step}",
                hint="Publish a run that went back in a new directory",
            )
        with ExitStack() as stack:
            new = Opening(stack).checkpoint(checkpoint)
            _refuse_encrypted(new)
            before = self._claimed(step, before)
            made = self._with_patch(step, new, before, stack) if before.steps else FeedStep(step, _digest_of(new))
            since = next((place for place, each in enumerate(reversed(before.steps)) if each.anchor), None)
            if since is None or since + 1 >= self._anchor_every:
                save_checkpoint(new, self._path(anchor_name(step)), durable=self._durable)
                made = msgspec.structs.replace(made, anchor=anchor_name(step))
        self._replace_index(before, FeedIndex(steps=(*before.steps, made)).pruned(self._keep_anchors))

    def _claimed(self, step: int, before: FeedIndex) -> FeedIndex:
        """Note in the index that a step is being published; refuse to replace what no index names."""
        for name in (anchor_name(step), patch_name(step)):
            if name not in before.names() and os.path.lexists(self._path(name)):
                raise RefusedError(
                    "there is something that this feed did not publish, which would be replaced",
                    path=self._path(name),
                    hint="Publish in a directory of its own, or move that away",
                )
        claimed = msgspec.structs.replace(before, pending=step)
        self._replace_index(before, claimed)
        return claimed

    def _with_patch(self, step: int, new: LazyTensors, before: FeedIndex, stack: ExitStack) -> FeedStep:
        """Write the patch from the last step to a new one."""
        place = max(place for place, each in enumerate(before.steps) if each.anchor)
        anchor, *later = before.steps[place:]
        opening = Opening(stack)
        base = opening.checkpoint(self._path(anchor.anchor or ""))
        steps = opening.patches(self._path(each.patch or "") for each in later)
        name = patch_name(step)
        made = make(patched(base, steps), new, self._path(name), overwrite=True, durable=self._durable)
        (patch,) = opening.patches([made.path])
        return FeedStep(step, patch.description.new.digest, patch=name, nbytes=os.path.getsize(made.path))

    def _index(self) -> FeedIndex:
        path = self._path(INDEX_NAME)
        try:
            with as_transport_error("could not read the index", path), open(path, "rb") as file:
                return parse_feed(file.read(), path)
        except SourceMissingError:
            return FeedIndex()

    def _replace_index(self, before: FeedIndex, index: FeedIndex) -> None:
        """Replace the index, and then remove what only the one before names."""
        with publish(self._path(INDEX_NAME), durable=self._durable) as sink:
            sink.write([msgspec.json.encode(index)])
        for name in before.names() - index.names():
            if os.path.isdir(path := self._path(name)):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    os.unlink(path)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def _refuse_encrypted(tensors: LazyTensors) -> None:
    if tensors.encryption is not None:
        raise UnsupportedError(
            "this is encrypted, and a feed is plain",
            path=tensors.path,
            hint="Serve patches between encrypted checkpoints (tensorkeep.patches.make), which are encrypted too",
        )


def _digest_of(tensors: LazyTensors) -> str:
    return digest_of_contents(contents_of(tensors))
