"""A branch on the Hub: what it holds, uploads and commits, all by huggingface_hub's own client."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    SourceMissingError,
    UnsupportedError,
    importing,
)
from tensorkeep.layout import Index, parse_index
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.publishing._hub_address import HubAddress
from tensorkeep.publishing._hub_errors import hub_errors, no_repository, no_token
from tensorkeep.publishing._local_files import LocalFile
from tensorkeep.publishing._unchanged import PublishedFile
from tensorkeep.transport import ByteRange, RemotePath
from tensorkeep.transport.remote import remote


class Head(msgspec.Struct, frozen=True):
    """The newest commit of a branch.

    Attributes:
        commit: Its id; None if the repository is still to be made.
        files: Name below the folder to what is there.
    """

    commit: str | None
    files: dict[str, PublishedFile]


class HubRepository:
    """One branch of a repository, and one folder in it.

    Attributes:
        url: For messages.
        address: Where it is.
    """

    def __init__(self, path: RemotePath) -> None:
        with importing(huggingface_hub="'tensorkeep[hf]'"):
            from huggingface_hub import HfApi, get_token
        self.url = str(path)
        self.address = HubAddress.of(self.url)
        self._options = path.options
        self._token: str | None = self._options.get("token") or get_token()
        self._api: Any = HfApi(endpoint=self._options.get("endpoint"), token=self._token or False)
        self._repo = {"repo_id": self.address.repo_id, "repo_type": self.address.type}

    def require_token(self) -> None:
        """Refuse to push without a token."""
        if self._token is None:
            raise no_token(self.url)

    def head(self, *, is_recursive: bool) -> Head:
        """Return the newest commit and the files of the folder."""
        with self._errors():
            commit = self._api.repo_info(**self._repo, revision=self.address.branch).sha
            return Head(commit, self._files_in(commit, is_recursive=is_recursive))

    def files_of(self, commit: str, *, is_recursive: bool) -> dict[str, PublishedFile]:
        """Return the files of the folder in a commit."""
        with self._errors():
            return self._files_in(commit, is_recursive=is_recursive)

    def _files_in(self, commit: str, *, is_recursive: bool) -> dict[str, PublishedFile]:
        folder = self.address.folder
        found = {}
        try:
            for each in self._api.list_repo_tree(
                **self._repo, path_in_repo=folder or None, recursive=is_recursive, revision=commit
            ):
                if hasattr(each, "blob_id"):
                    name = each.path.removeprefix(f"{folder}/") if folder else each.path
                    sha256 = each.lfs.sha256 if each.lfs else None
                    found[name] = PublishedFile(each.size, sha256, None if each.lfs else each.blob_id)
        except Exception as error:
            if not folder or type(error).__name__ not in {"EntryNotFoundError", "RemoteEntryNotFoundError"}:
                raise
        return found

    def create(self, *, private: bool | None) -> None:
        """Make the repository and the branch, if they are not there."""
        with self._errors():
            self._api.create_repo(**self._repo, private=private, exist_ok=True)
            if self.address.branch != "main":
                self._api.create_branch(**self._repo, branch=self.address.branch, exist_ok=True)

    def read(self, commit: str, name: str) -> bytes:
        """Read a small file."""
        options = {key: self._options[key] for key in ("endpoint", "token") if key in self._options}
        source = remote(self.address.url_at(commit), **options).joined(name).open()
        return bytes(source.read(ByteRange(0, min(source.nbytes, MAX_INDEX_NBYTES + 1))))

    def index_at(self, commit: str, name: str) -> Index | None:
        """Read an index; None if it is unreadable, so that it owns nothing."""
        with suppress(FormatError, IntegrityError, SourceMissingError):
            return parse_index(self.read(commit, name), name, check=False)
        return None

    def addition(self, name: str, file: LocalFile) -> Any:
        """Return a file as huggingface_hub commits it."""
        from huggingface_hub import CommitOperationAdd

        with self._errors():
            added = CommitOperationAdd(self.address.path_of(name), file.path)
        if file.sha256 is not None:
            added.upload_info.sha256 = bytes.fromhex(file.sha256)
        return added

    def upload(self, additions: Collection[Any]) -> None:
        """Send the bytes of large files, where no reader sees them before the commit."""
        with self._errors():
            self._api.preupload_lfs_files(
                **self._repo, additions=additions, revision=self.address.branch, free_memory=False
            )
        ignored = [each.path_in_repo for each in additions if getattr(each, "_should_ignore", False)]
        if ignored:
            raise UnsupportedError(
                "the repository's .gitignore excludes files of the checkpoint",
                path=self.url,
                found=", ".join(ignored[:5]),
                hint="Remove the line from .gitignore in the repository",
            )

    def commit(self, additions: Collection[Any], removed: Collection[str], parent: str | None, message: str) -> str:
        """Change the branch in one commit on top of `parent`; refuse if it has another by now."""
        from huggingface_hub import CommitOperationDelete

        deletions = [CommitOperationDelete(self.address.path_of(name), is_folder=False) for name in sorted(removed)]
        with self._errors():
            done = self._api.create_commit(
                **self._repo,
                operations=[*additions, *deletions],
                commit_message=message,
                revision=self.address.branch,
                parent_commit=parent,
            )
        return str(done.oid)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with hub_errors(self.url, self._token):
            yield


def head_or_none(repository: HubRepository, *, is_recursive: bool) -> Head | None:
    """Return the newest commit, or None if there is no such repository or branch."""
    try:
        return repository.head(is_recursive=is_recursive)
    except SourceMissingError as error:
        if error.message != no_repository("").message:
            raise
        return None


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep huggingface_hub from drawing bars of its own beside ours."""
    from huggingface_hub import utils

    bars: Any = utils
    was_quiet = bars.are_progress_bars_disabled()
    if not was_quiet:
        bars.disable_progress_bars()
    try:
        yield
    finally:
        if not was_quiet:
            bars.enable_progress_bars()


def sums_of(additions: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of files that were uploaded, by name; those in the commit itself have none."""
    return {
        name: added.upload_info.sha256.hex()
        for name, added in additions.items()
        if getattr(added, "_upload_mode", None) == "lfs" and added.upload_info.is_hashed
    }
