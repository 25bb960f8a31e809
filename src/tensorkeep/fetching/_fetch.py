"""Whole checkpoints from servers and stores to the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.errors import (
    AccessDeniedError,
    IntegrityError,
    RangeNotServedError,
    SourceMissingError,
    TensorkeepError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.fetching._check import damaged_spans, findings_in, not_as_saved
from tensorkeep.fetching._companions import MAX_COMPANION_NBYTES, is_page
from tensorkeep.fetching._destination import Destination, destination_of
from tensorkeep.fetching._download import Arrival, download
from tensorkeep.fetching._owned import refuse_to_replace
from tensorkeep.fetching._plan import Plan, Wanted, plan_fetch
from tensorkeep.fetching._staging import Staging
from tensorkeep.fetching._stamp import VersionId
from tensorkeep.fetching._unchanged import begins_with, is_unchanged, note_origin
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.transport import RemotePath, RemoteSource, is_remote, refuse_url

_HEAD_NBYTES: Final = 2**14
"""Bytes that the first request of each file brings; all of most companions."""


def fetch(
    url: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    variant: str | None = None,
    companions: bool = True,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """Bring a checkpoint from a server or a store to the disk, complete or not at all.

    Many ranges of it come at once. If the fetch fails or is killed, the next one of the same URL to the same place
    goes on with what has come, unless the checkpoint has another version by then. Files that are there already, and
    are the ones that are wanted, do not come again.

    All that comes is checked: against the digests that tensorkeep, torch or a store have given it, and else as far as
    `tensorkeep.open` checks it. Only then does it replace what was there, in one step: killed at any instant, the old
    or the new checkpoint is there. Of what else lies there nothing is removed. Pickles are bytes here: nothing of
    them is run.

    Args:
        url: What `tensorkeep.open` takes of another machine: a URL of a directory, an index or a file, or what
            `tensorkeep.remote` made of one.
        destination: A directory, made if its parent is there. For a URL of one file also a path that ends in
            `.safetensors`, `.pt` or the like.
        variant: Such as `"fp16"`, where the URL is that of a directory.
        companions: Whether the small files that belong to a model come along from a directory: configuration,
            tokenizer, README, license; no code. Where a server does not list what it has, the usual names are asked
            for.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it.
        progress: Called with the bytes that are there and the bytes in all, by one thread at a time. What it raises
            ends the fetch.

    Returns:
        The path to open: the directory for the URL of one; else the file or index in it.

    Raises:
        SourceMissingError: If there is nothing, a shard is missing, or the parent of the directory is.
        IntegrityError: If what came is not what was saved; nothing was replaced, and the next fetch asks for it anew.
        FormatError: If there is no checkpoint in a file, or an index or manifest is none.
        SourceChangedError: If it was replaced by another meanwhile.
        UnsupportedError: If it is no URL, there are several checkpoints, a file is of a form that is not read, or the
            destination has a checkpoint that would be opened in place of this one.
        RefusedError: If the working directory would be replaced; or a manifest or an index lists a hidden file, or
            what others have put there.
        BusyError: If another fetch or save to that place is under way.
        MissingDependencyError: If the library that reads such URLs is not installed.
        TransportError: If it cannot be read, the disk is full, or the system fails otherwise.
    """
    given = _refuse_paths(url)
    refuse_url(os.fsdecode(destination))
    path = RemotePath.of(given).read_by(head_nbytes=_HEAD_NBYTES, needs_ranges=False, cache_dir=None)
    plan = plan_fetch(path, variant=variant, companions=companions)
    place = destination_of(destination, plan)
    sources = _opened(plan)
    plan = msgspec.structs.replace(plan, files=tuple(file for file in plan.files if file.name in sources))
    fetching = _Fetch(plan, place, sources, progress, durable=durable)
    staging: Staging | None = None
    try:
        with place.publishing(plan, durable=durable) as (staging_path, publish):
            staging = fetching.bring(staging_path, publish, n_threads=path.connections)
    except BaseException:
        if staging is not None:  # it was the last step that failed
            staging.leave()
        raise
    staging.remove()
    return _entry(place, plan)


def _refuse_paths(url: str | os.PathLike[str]) -> str:
    given = os.fspath(url)
    if not is_remote(given):
        raise UnsupportedError("this is no URL", expected="such as https://example.org/model/", found=repr(given))
    return given


def _opened(plan: Plan) -> dict[str, RemoteSource]:
    """Ask for the first bytes of all files; companions that are not there are none."""
    n_threads = min(len(plan.files), 16)
    found = parallel_map(_open, plan.files, n_threads=n_threads, meter=ProgressMeter(None, 0))
    return {file.name: source for file, source in zip(plan.files, found, strict=True) if source is not None}


def _open(wanted: Wanted) -> RemoteSource | None:
    is_companion = wanted.role in {"listed", "guessed"}
    try:
        source = _source_of(wanted.path)
    except (SourceMissingError, AccessDeniedError):
        if is_companion:
            return None
        raise
    if is_companion and source.nbytes > MAX_COMPANION_NBYTES:
        return None
    if wanted.role == "guessed" and is_page(bytes(source.opening.head)):
        return None
    expected = wanted.promise.nbytes
    if expected is not None and expected != source.nbytes:
        raise IntegrityError(
            "the file on the server is of another size than it should be",
            path=str(wanted.path),
            expected=f"{expected:,} bytes",
            found=f"{source.nbytes:,}",
            hint="Is the checkpoint being replaced? Fetch again",
        )
    return source


def _source_of(path: RemotePath) -> RemoteSource:
    """Open a file so that no more than its first bytes come, wherever the server says how long it is."""
    try:
        return path.read_by(whole_nbytes=_HEAD_NBYTES).open()
    except RangeNotServedError:  # it does not: then its end is where the bytes end
        return path.open()


class _Fetch:
    """One fetch on its way."""

    def __init__(
        self,
        plan: Plan,
        place: Destination,
        sources: dict[str, RemoteSource],
        progress: Callable[[int, int], None] | None,
        *,
        durable: bool,
    ) -> None:
        self._plan = plan
        self._place = place
        self._sources = sources
        self._wanted = {file.name: _with_sha256(file, sources[file.name]) for file in plan.files}
        self._stamps = {name: VersionId.of(source.version) for name, source in sources.items()}
        self._meter = ProgressMeter(progress, sum(source.nbytes for source in sources.values()))
        self._durable = durable

    def bring(self, staging_path: str, publish: Callable[[Staging], None], *, n_threads: int) -> Staging:
        """Bring all that is missing, check it, and publish it."""
        staging = Staging(staging_path, self._plan.url, self._plan.origin, self._stamps, durable=self._durable)
        try:
            unchanged = self._take_unchanged(staging)
            refuse_to_replace(self._place.directory, self._plan.free_names - unchanged)
            arrivals = [
                Arrival(name, source, staging) for name, source in self._sources.items() if name not in unchanged
            ]
            coming = sum(len(span) for arrival in arrivals for span in arrival.missing)
            self._meter.add(sum(source.nbytes for source in self._sources.values()) - coming)
            download(arrivals, self._meter, lambda arrival: self._check(arrival, staging), n_threads=n_threads)
            self._check_all(staging)
            publish(staging)
        except BaseException:
            staging.leave()
            raise
        return staging

    def _take_unchanged(self, staging: Staging) -> set[str]:
        found = set()
        for name, wanted in self._wanted.items():
            path, head = self._place.path_of(name), self._sources[name].opening.head
            if _is_of_another(staging, name, head):
                staging.forget(name, None)
            if not staging.spans_of(name) and is_unchanged(path, wanted, self._stamps[name], head):
                staging.take(name, path)
                found.add(name)
        return found

    def _check(self, arrival: Arrival, staging: Staging) -> None:
        """Hold a file that has come against what is known of it, while others come."""
        path, wanted = staging.path_of(arrival.name), self._wanted[arrival.name]
        try:
            findings = findings_in(path, wanted)
        except TransportError:
            raise
        except TensorkeepError as error:
            staging.forget(arrival.name, None)
            raise error.with_fields(path=str(wanted.path)) from None
        if findings:
            staging.forget(arrival.name, damaged_spans(findings))
            raise not_as_saved(findings, wanted)
        note_origin(path, wanted, self._stamps[arrival.name])

    def _check_all(self, staging: Staging) -> None:
        """Hold files that all have come against each other: they may have been replaced one by one."""
        if self._plan.kind == "folder":
            return
        path = staging.files
        if self._plan.index is not None or len(self._plan.shards) == 1:
            path = staging.path_of(self._plan.index or self._plan.shards[0])
        try:
            open_checkpoint(path, dangerous="record").close()
        except TransportError:
            raise
        except TensorkeepError as error:  # each file is whole, so asking for the same versions again is of no use
            raise error.with_fields(path=self._plan.url) from None


def _is_of_another(staging: Staging, name: str, head: Buffer) -> bool:
    """Say whether what has come before begins otherwise than the file does now."""
    spans = staging.spans_of(name)
    here = min(len(memoryview(head)), spans[0].stop) if spans and spans[0].start == 0 else 0
    return here > 0 and not begins_with(staging.path_of(name), memoryview(head)[:here])


def _with_sha256(wanted: Wanted, source: RemoteSource) -> Wanted:
    """Add what the server itself says of a file, if nothing else says it."""
    if source.version.sha256 is None or wanted.promise.sha256 is not None:
        return wanted
    promise = msgspec.structs.replace(wanted.promise, sha256=source.version.sha256)
    return msgspec.structs.replace(wanted, promise=promise)


def _entry(place: Destination, plan: Plan) -> str:
    if place.name is not None or plan.entry is None:
        return place.given
    return os.path.join(place.given, plan.entry)
