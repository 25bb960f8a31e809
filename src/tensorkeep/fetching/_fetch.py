"""`fetch`: downloads a whole checkpoint, and publishes it in one step."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.checkpoint import open_with, verify
from tensorkeep.errors import (
    AccessDeniedError,
    IntegrityError,
    RangeNotServedError,
    SourceMissingError,
    TensorkeepError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.fetching._by_executor import download_by
from tensorkeep.fetching._check import damaged_spans, findings_in, missing_although_signed, not_as_saved
from tensorkeep.fetching._companions import MAX_COMPANION_NBYTES, is_page
from tensorkeep.fetching._destination import Destination, destination_of
from tensorkeep.fetching._download import Arrival, download
from tensorkeep.fetching._overwrite_guard import (
    refuse_hidden_beside_others,
    refuse_other_checkpoint,
    refuse_to_replace,
)
from tensorkeep.fetching._plan import Plan, Wanted, plan_fetch
from tensorkeep.fetching._staging import Staging, journal_of
from tensorkeep.fetching._unchanged import begins_with, is_unchanged, note_origin
from tensorkeep.fetching._version_id import VersionId
from tensorkeep.fetching._waiting import patiently
from tensorkeep.kinds import OpenOptions, policy_for
from tensorkeep.on_demand import imported
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.transport import RemotePath, RemoteSource, is_remote, refuse_url

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tensorkeep.trust import Trust

_TRUSTED: Final = "tensorkeep.fetching._trusted:trusted_plan"
"""Imported by name: most who fetch ask for no signature."""

_HEAD_NBYTES: Final = 2**14
"""Bytes of the first request for each file; most companions fit in it."""


def fetch(
    url: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    variant: str | None = None,
    companions: bool = True,
    durable: bool = True,
    overwrite: bool = False,
    wait_s: float = 3600.0,
    trust: Trust | None = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> str:
    """Download a checkpoint from a server or a store, completely or not at all.

    Many ranges are downloaded at once. If a fetch fails or is killed, the next fetch of the same URL to the same
    destination resumes it, unless the checkpoint has a new version by then. Files that are already at the destination
    and up to date are not downloaded again.

    Everything is verified before it is published: against the digests that tensorkeep, torch or the store recorded,
    and otherwise as far as `tensorkeep.open` checks it. A new version then replaces the older one that was fetched
    from there in one step: a process killed at any instant leaves the old or the new one. Any other checkpoint at the
    destination is replaced only with `overwrite`. Other files stay. Pickles are downloaded as bytes; nothing in them
    is run.

    If several processes fetch the same to one place, one of them downloads it and the others wait.

    Args:
        url: A URL of a directory, an index or a file, or the result of `tensorkeep.remote`.
        destination: A directory, created if its parent exists. For the URL of one file also a file path that ends in
            `.safetensors`, `.pt` or the like.
        variant: Such as `"fp16"`, if the URL is a directory.
        companions: Whether to download the small files of the model too: configuration, tokenizer, README, license,
            but no code. If a server does not list its files, the usual names are requested.
        durable: Whether to wait until everything is on the disk (fsync), so that even a power cut loses nothing.
        overwrite: Whether to replace a checkpoint at the destination that was not fetched from this URL, or was
            changed since.
        trust: Whose signatures count: a `Policy`, the path of one or of a public key; see `open`. Then everything
            that is fetched must be what they signed. With `companions`, all signed files of the directory are
            fetched, code too, but none in its folders; and what nobody signed stays on the server.
        wait_s: Seconds to wait for another process that fetches the same to the same place.
        progress: Called with the bytes done and the bytes in total, by one thread at a time; while another process
            is waited for, with its bytes. If it raises, the fetch ends with that error.
        executor: What downloads in place of threads of this process: any `concurrent.futures.Executor` whose tasks
            can be pickled, such as a `ProcessPoolExecutor` or dask's `client.get_executor()`. Workers are given the
            URL with its credentials, and must see the destination. This process checks what came, and publishes it.

    Returns:
        The path to open: the directory if `url` is one, else the file or index in it.

    Raises:
        SourceMissingError: If nothing is at the URL, a shard is missing, or the destination's parent does not exist.
        IntegrityError: If the download differs from what was saved, or a `TrustError` if from what was signed.
            Nothing was replaced, and the next fetch downloads the damaged parts again.
        FormatError: If a file is not a checkpoint, an index or a manifest.
        TrustError: If it is not proven that this is what was signed, a signed file is missing, or the policy does not
            allow the format.
        SourceChangedError: If the checkpoint was replaced during the download.
        UnsupportedError: If `url` is not a URL, a directory has several checkpoints, a file's format is not
            supported, or the destination has a checkpoint that would be opened instead of this one.
        RefusedError: If the working directory would be replaced, or if a manifest or an index lists a hidden file or
            the name of a file at the destination that belongs to someone else.
        DestinationExistsError: If the destination has another checkpoint and `overwrite` is not set.
        BusyError: If something else is being fetched or saved there, or the same for longer than `wait_s`.
        MissingDependencyError: If the library for such URLs is not installed.
        TransportError: If the URL cannot be read, the disk is full, or a system call fails.

    Examples:
        >>> from tensorkeep.server import Server
        >>> with Server(".", port=0) as server:
        ...     fetched = tensorkeep.fetch(server.url + "my-model/", "my-copy")
        >>> tensorkeep.diff("my-model", "my-copy").is_equal
        True
    """
    given = _refuse_paths(url)
    refuse_url(os.fsdecode(destination))
    path = RemotePath.of(given).read_by(head_nbytes=_HEAD_NBYTES, cache_dir=None)
    policy = policy_for(trust, path)
    plan = plan_fetch(path, variant=variant, companions=companions)
    if policy is not None:
        plan = imported(_TRUSTED)(plan, policy, path, companions=companions and variant is None)
    place = destination_of(destination, plan)
    sources = _opened(plan)
    plan = msgspec.structs.replace(plan, files=tuple(file for file in plan.files if file.name in sources))
    fetching = _Fetch(plan, place, sources, progress, durable=durable, overwrite=overwrite, executor=executor)
    patiently(
        lambda: fetching.run(n_threads=path.connections),
        journal_of(place.staging(plan)),
        plan.origin,
        wait_s=wait_s,
        progress=progress,
        nbytes=sum(source.nbytes for source in sources.values()),
    )
    return _entry(place, plan)


def _refuse_paths(url: str | os.PathLike[str]) -> str:
    given = os.fspath(url)
    if not is_remote(given):
        raise UnsupportedError("not a URL", expected="one such as https://example.org/model/", found=repr(given))
    return given


def _opened(plan: Plan) -> dict[str, RemoteSource]:
    """Request the first bytes of all files; leave out companions that do not exist."""
    n_threads = min(len(plan.files), 16)
    found = parallel_map(_open, plan.files, n_threads=n_threads, meter=ProgressMeter(None, 0))
    return {file.name: source for file, source in zip(plan.files, found, strict=True) if source is not None}


def _open(wanted: Wanted) -> RemoteSource | None:
    is_companion = wanted.role in {"listed", "guessed"}
    can_be_missing = is_companion or wanted.role in {"blocks", "hidden"}
    try:
        source = _source_of(wanted.path)
    except (SourceMissingError, AccessDeniedError):
        if can_be_missing:
            return None
        if wanted.promise.is_signed:
            raise missing_although_signed(wanted) from None
        raise
    if is_companion and source.nbytes > MAX_COMPANION_NBYTES:
        return None
    if wanted.role == "guessed" and is_page(bytes(source.opening.head)):
        return None
    expected = wanted.promise.nbytes
    if expected is not None and expected != source.nbytes:
        raise IntegrityError(
            "the file on the server has the wrong size",
            path=str(wanted.path),
            expected=f"{expected:,} bytes",
            found=f"{source.nbytes:,}",
            hint="Is the checkpoint being replaced? Fetch again",
        )
    return source


def _source_of(path: RemotePath) -> RemoteSource:
    """Open a file so that only its first bytes are downloaded, if the server tells its length."""
    try:
        return path.read_by(whole_nbytes=_HEAD_NBYTES).open()
    except RangeNotServedError:  # it does not: the file ends where the response ends
        return path.open()


class _Fetch:
    """One fetch in progress."""

    def __init__(
        self,
        plan: Plan,
        place: Destination,
        sources: dict[str, RemoteSource],
        progress: Callable[[int, int], None] | None,
        *,
        durable: bool,
        overwrite: bool,
        executor: Executor | None,
    ) -> None:
        self._plan = plan
        self._place = place
        self._sources = sources
        self._wanted = {file.name: _with_sha256(file, sources[file.name]) for file in plan.files}
        self._stamps = {name: VersionId.of(source.version) for name, source in sources.items()}
        self._meter = ProgressMeter(progress, sum(source.nbytes for source in sources.values()))
        self._durable = durable
        self._executor = executor
        self._overwrite = overwrite

    def run(self, *, n_threads: int) -> None:
        """Download everything and publish it, if nobody else is at it."""
        staging: Staging | None = None
        try:
            with self._place.publishing(self._plan, durable=self._durable) as (staging_path, publish):
                staging = self._bring(staging_path, publish, n_threads=n_threads)
        except BaseException:
            if staging is not None:  # publishing failed, and what was downloaded can be used again
                staging.leave()
            raise
        staging.remove()

    def _bring(self, staging_path: str, publish: Callable[[Staging], None], *, n_threads: int) -> Staging:
        """Download everything that is missing, verify it, and publish it."""
        staging = Staging(staging_path, self._plan.url, self._plan.origin, self._stamps, durable=self._durable)
        try:
            unchanged = self._take_unchanged(staging)
            refuse_to_replace(self._place, self._plan, self._plan.free_names - unchanged)
            refuse_hidden_beside_others(self._place, self._plan)
            if not self._overwrite:
                refuse_other_checkpoint(self._place, self._plan, unchanged)
            arrivals = [
                Arrival(name, source, staging) for name, source in self._sources.items() if name not in unchanged
            ]
            coming = sum(len(span) for arrival in arrivals for span in arrival.missing)
            self._meter.add(sum(source.nbytes for source in self._sources.values()) - coming)

            def check(arrival: Arrival) -> None:
                self._check(arrival, staging)

            if self._executor is None:
                download(arrivals, self._meter, check, n_threads=n_threads)
            else:
                download_by(self._executor, arrivals, self._meter, check, durable=self._durable)
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
        """Verify a complete file while others are still being downloaded."""
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
        """Verify the files together: on the server they may have been replaced one by one."""
        if self._plan.source is None:
            return
        path = staging.files
        if self._plan.index is not None or len(self._plan.shards) == 1:
            path = staging.path_of(self._plan.index or self._plan.shards[0])
        elif not self._plan.source.opens_alone:
            path = staging.path_of(self._plan.source.names[0])
        try:
            with open_with(path, OpenOptions(dangerous="record", as_stored=True), trust=False) as opened:
                if self._plan.rule is not None:
                    self._plan.rule.refuse_pickled_parts(self._plan.url, opened.pickles)
            if not self._plan.source.opens_alone:
                self._check_parts(path, staging)
        except TransportError:
            raise
        except TensorkeepError as error:  # each file is whole, so downloading the same versions again would not help
            raise error.with_fields(path=self._plan.url) from None

    def _check_parts(self, path: str, staging: Staging) -> None:
        """Verify files that need each other."""
        findings = [finding for finding in verify(path, trust=False).findings if finding.is_damage]
        for name in self._sources if findings else ():
            staging.forget(name, None)
        if findings:
            raise not_as_saved(findings, self._plan.files[0])


def _is_of_another(staging: Staging, name: str, head: Buffer) -> bool:
    """Say whether the bytes of an earlier fetch differ from the start of the current file."""
    spans = staging.spans_of(name)
    here = min(len(memoryview(head)), spans[0].stop) if spans and spans[0].start == 0 else 0
    return here > 0 and not begins_with(staging.path_of(name), memoryview(head)[:here])


def _with_sha256(wanted: Wanted, source: RemoteSource) -> Wanted:
    """Add the SHA-256 that the server declares, if nothing else gives one."""
    if source.version.sha256 is None or wanted.promise.sha256 is not None:
        return wanted
    promise = msgspec.structs.replace(wanted.promise, sha256=source.version.sha256)
    return msgspec.structs.replace(wanted, promise=promise)


def _entry(place: Destination, plan: Plan) -> str:
    if place.name is not None or plan.entry is None:
        return place.given
    return os.path.join(place.given, plan.entry)
