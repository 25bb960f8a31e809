"""Files of the Hugging Face Hub, read from its web servers, and from those it redirects to.

fsspec's file system resolves the repository and revision of a path, and lists directories. Its reads make extra
requests to the Hub, whose rate limit a large file would exceed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from tensorkeep.transport.remote.http._connections import Connections
from tensorkeep.transport.remote.http._http import HttpObject, HttpStore
from tensorkeep.transport.remote.libraries import FsspecObject, FsspecStore
from tensorkeep.transport.remote.objects import Opening, RemoteObject, StoredObject, Stream, Version
from tensorkeep.transport.sources import ByteRange


class HubStore:
    """The Hub as a store to read from: each write would be a commit of its own, which readers see."""

    def __init__(self, files: Any, timeout_s: float) -> None:
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        self._listing = FsspecStore(files, "hf")
        parts = urlsplit(files.endpoint)
        headers = build_hf_headers(token=files.token)
        self._hub = files
        self._web = HttpStore(Connections(timeout_s), f"{parts.scheme}://{parts.netloc}", headers)

    def at(self, path: str) -> HubObject:
        """Return a file, without a request."""
        return HubObject(self._hub, self._web, path, self._listing.at(path).name)

    def names(self, path: str) -> list[str] | None:
        """Return the names in a directory."""
        return self._listing.names(path)

    def objects(self, path: str) -> list[StoredObject]:
        """Return all files below a directory; see `ListingStore.objects`."""
        return self._listing.objects(path)


class HubObject:
    """A file of the Hub."""

    def __init__(self, files: Any, web: HttpStore, path: str, name: str) -> None:
        self._files = files
        self._web = web
        self._path = path
        self._found: RemoteObject | None = None
        self.name = name

    def _file(self) -> RemoteObject:
        """Return the file on the Hub's web server; if it has no URL, that of fsspec, whose errors say why."""
        if self._found is None:
            url = self._url()
            self._found = self._fallback() if url is None else HttpObject(self._web, url)
            self._found.name = self.name
        return self._found

    def _fallback(self) -> FsspecObject:
        return FsspecObject(self._files, self._path, self.name)

    def _url(self) -> str | None:
        from huggingface_hub import hf_hub_url

        try:
            found = self._files.resolve_path(self._path)
            return hf_hub_url(
                found.repo_id,
                found.path_in_repo,
                repo_type=found.repo_type,
                revision=found.revision,
                endpoint=self._files.endpoint,
            )
        except Exception:  # noqa: BLE001 - there is no such repository, or no network, or it is a bucket
            return None

    @property
    def takes_many(self) -> bool:
        """Whether to ask for several ranges in one request."""
        return self._found is not None and self._found.takes_many

    def open(self, nbytes: int, *, max_whole_nbytes: int) -> Opening:
        """Request the first bytes."""
        return self._file().open(nbytes, max_whole_nbytes=max_whole_nbytes)

    def stream(self, span: ByteRange, version: Version) -> Stream:
        """Request a range."""
        return self._file().stream(span, version)

    def stream_many(self, spans: Sequence[ByteRange], version: Version) -> Stream:
        """Request several ranges at once."""
        return self._file().stream_many(spans, version)

    def version(self) -> Version:
        """Return the current version, as fsspec sees it."""
        return self._fallback().version()
