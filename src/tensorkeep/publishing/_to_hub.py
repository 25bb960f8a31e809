"""A push to the Hub: everything is uploaded where nobody sees it, and one commit changes the branch.

1. The head of the branch is read, and the commit names it as its parent: after anyone else's commit it is refused.
2. Large files are uploaded. A push that is killed here has changed nothing, and the next one sends only the rest.
3. The commit has the new files, and removes what only the old index names. **This is all that readers see.**
4. If the answer to it is lost, the branch says whether it took place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint import OldFiles
from tensorkeep.errors import FormatError, IntegrityError, RefusedError, TransientError
from tensorkeep.layout import MANIFEST, parse_manifest
from tensorkeep.parallel import ProgressMeter
from tensorkeep.publishing._hub_errors import no_repository
from tensorkeep.publishing._hub_limits import heed_limits
from tensorkeep.publishing._hub_repository import Head, HubRepository, head_or_none, sums_of, without_bars
from tensorkeep.publishing._local_files import LocalFile
from tensorkeep.publishing._package import CARD, Package
from tensorkeep.publishing._pushed import Push
from tensorkeep.publishing._signatures import stale_among
from tensorkeep.publishing._unchanged import PublishedFile, unchanged_among

_LARGE_NBYTES: Final = 10**7
"""Size from which a file is uploaded by itself, so that progress shows and a killed push loses little."""


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to push.

    Attributes:
        message: Of the commit.
        create: Whether to make a repository or branch that is not there.
        private: Whether a new repository is private; None leaves it to the organization.
        dry_run: Whether to change nothing.
        progress: Called with the bytes sent and the total.
    """

    message: str
    create: bool
    private: bool | None
    dry_run: bool
    progress: Callable[[int, int], None] | None


class _Changes(msgspec.Struct, frozen=True):
    """What a commit changes."""

    sent: dict[str, LocalFile]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def is_nested(self) -> bool:
        """Whether any of them is in a folder."""
        return any("/" in name for name in (*self.sent, *self.removed))


def push_to_hub(new: Package, repository: HubRepository, options: HubOptions) -> Push:
    """Publish files on a branch."""
    if not options.dry_run:
        repository.require_token()
    is_nested = any("/" in name for name in new.files)
    head = head_or_none(repository, is_recursive=is_nested)
    if head is None:
        if not options.create:
            raise no_repository(repository.url)
        head = Head(None, {})
        if not options.dry_run:
            repository.create(private=options.private)
            head = repository.head(is_recursive=is_nested)
    changes = _changes(new, head, repository)
    heed_limits({name: file.nbytes for name, file in changes.sent.items()}, repository.url)
    commit = head.commit
    if not options.dry_run and (changes.sent or changes.removed):
        with without_bars():
            commit = _publish(new, changes, head, repository, options)
    return Push(
        url=repository.url,
        sent={name: file.nbytes for name, file in changes.sent.items()},
        unchanged=changes.unchanged,
        removed=changes.removed,
        kept=changes.kept,
        commit=None if options.dry_run else commit,
        is_dry_run=options.dry_run,
    )


def _changes(new: Package, head: Head, repository: HubRepository) -> _Changes:
    new.refuse_beside(head.files, repository.url)
    same = unchanged_among(new.files, head.files)
    kept = tuple(name for name in (CARD,) if name in new.others and name in head.files and name not in same)
    new.refuse_unsigned(kept, repository.url)
    sent = {name: file for name, file in new.files.items() if name not in same and name not in kept}
    removed = () if head.commit is None else _removed(new, head, head.commit, repository, sent)
    return _Changes(sent, tuple(sorted(same)), removed, kept)


def _removed(
    new: Package, head: Head, commit: str, repository: HubRepository, sent: Collection[str]
) -> tuple[str, ...]:
    """Return what goes: what saves remove of an old checkpoint, or what only the old manifest lists.

    Signatures of what changes go with it.
    """
    if new.names is None:
        old = _listed_by(repository.read(commit, MANIFEST)) if MANIFEST in head.files else frozenset()
    else:
        old = OldFiles.among(head.files, lambda name: repository.index_at(commit, name), new.names).obsolete(
            new.files
        )
    gone = old & head.files.keys() - new.files.keys()
    others = head.files.keys() - new.files.keys()
    stale = stale_among(others, lambda name: repository.read(commit, name), {*gone, *sent})
    return tuple(sorted(gone | stale))


def _listed_by(manifest: bytes) -> frozenset[str]:
    try:
        return frozenset(parse_manifest(manifest, MANIFEST))
    except (FormatError, IntegrityError, RefusedError):  # not a manifest: it owns nothing
        return frozenset()


def _publish(new: Package, changes: _Changes, head: Head, repository: HubRepository, options: HubOptions) -> str:
    additions = {name: repository.addition(name, file) for name, file in changes.sent.items()}
    _upload(additions, changes.sent, repository, options)
    new.refuse_changes()
    sums = sums_of(additions)
    try:
        commit = repository.commit(additions.values(), changes.removed, head.commit, options.message)
    except TransientError as error:
        return _commit_after_all(error, changes, sums, head, repository)
    with suppress(TransientError):  # it is done; only the look at it failed
        if not _has_all(repository.files_of(commit, is_recursive=changes.is_nested), changes, sums):
            raise IntegrityError(
                "the Hub does not have the files that were sent",
                path=repository.url,
                expected=f"what commit {commit[:12]} was made of",
                hint="Push again; the old files are in the history of the repository",
            )
    return commit


def _commit_after_all(
    error: TransientError, changes: _Changes, sums: dict[str, str], head: Head, repository: HubRepository
) -> str:
    """Return the newest commit, if it is the one whose answer was lost."""
    message = "the Hub did not commit the push"
    hint = "Nothing was published. Push again: what was uploaded is not sent again"
    try:
        now = repository.head(is_recursive=changes.is_nested)
    except TransientError:
        message, hint = "the response to the commit was lost", "Look at the repository; or push again, which does so"
    else:
        if now.commit is not None and now.commit != head.commit and _has_all(now.files, changes, sums):
            return now.commit
    raise error.with_fields(message=message, hint=hint) from None


def _upload(
    additions: dict[str, Any], files: dict[str, LocalFile], repository: HubRepository, options: HubOptions
) -> None:
    """Upload small files together, and large ones one by one.

    They are sent in parts, or by Xet in many streams, and Ctrl-C ends only what runs in the main thread.
    """
    meter = ProgressMeter(options.progress, sum(file.nbytes for file in files.values()))
    small = [name for name, file in files.items() if file.nbytes < _LARGE_NBYTES]
    large = [[name] for name, file in files.items() if file.nbytes >= _LARGE_NBYTES]
    for names in [small, *large] if small else large:
        repository.upload([additions[name] for name in names])
        meter.add(sum(files[name].nbytes for name in names))


def _has_all(files: dict[str, PublishedFile], changes: _Changes, sums: dict[str, str]) -> bool:
    """Whether files have what was sent, and nothing that was removed."""
    for name, file in changes.sent.items():
        there = files.get(name)
        if there is None or there.nbytes != file.nbytes or sums.get(name) not in {None, there.sha256}:
            return False
    return not files.keys() & set(changes.removed)
