"""Models in buckets and on servers, through a local directory, since libraries only know those."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Final

from tensorkeep.checkpoint import refuse_file_name, save_checkpoint
from tensorkeep.errors import AccessDeniedError, SourceMissingError, TensorkeepError, as_transport_error
from tensorkeep.fetching import fetch
from tensorkeep.integrations.transformers._directory import CARD, entries_of, errors_of_libraries
from tensorkeep.integrations.transformers._offline import found_here, is_offline
from tensorkeep.integrations.transformers._weights import split_stem
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import open_safetensors
from tensorkeep.limits import WRITE_NBYTES
from tensorkeep.tensors import check_target
from tensorkeep.transport import Body, ByteRange, RemotePath, is_remote, join, local_path
from tensorkeep.transport.remote import remote

_is_hub_id = re.compile(r"\w[\w.-]*/\w[\w.-]*").fullmatch
_find_unsafe = re.compile(r"[^A-Za-z0-9._-]+")
_DIGEST_LENGTH: Final = 12


@contextmanager
def sent_together(url: str, stem: str, *, sha256: bool) -> Iterator[str]:
    """Yield a local directory to save to, and send what was saved there to a URL when the block ends.

    Other files are sent before the weights, which change in one step.
    """
    check_target(url)
    refuse_file_name(url)
    with TemporaryDirectory(prefix="tensorkeep-") as folder:
        with suppress(SourceMissingError, AccessDeniedError):
            _write(os.path.join(folder, CARD), RemotePath.of(join(url, CARD)))
        with errors_of_libraries(url):
            yield folder
        for place, _, names in os.walk(folder, topdown=False):
            inner = os.path.relpath(place, folder).replace(os.sep, "/")
            _send(place, names, url if inner == os.curdir else join(url, inner), stem, sha256=sha256)


def _write(path: str, source: RemotePath) -> None:
    """Download a small file: the model card, which libraries extend if it exists."""
    opened = source.open()
    with open(path, "wb") as file:
        file.write(opened.read(ByteRange(0, opened.nbytes)))


def _send(folder: str, names: list[str], url: str, stem: str, *, sha256: bool) -> None:
    entry = next((name for name in entries_of(stem) if name in names), None)
    if entry is None:
        _send_files(folder, names, url)
        return
    base, variant = split_stem(stem)
    with open_safetensors(os.path.join(folder, entry), OpenOptions()) as weights:
        index = weights.index
        _send_files(folder, [name for name in names if name not in {entry, *weights.shards}], url)
        save_checkpoint(weights, url, base_name=base, variant=variant, layout=index, sha256=sha256)


def _send_files(folder: str, names: list[str], url: str) -> None:
    for name in sorted(names):
        path = os.path.join(folder, name)
        RemotePath.of(join(url, name)).put(Body(os.path.getsize(path), partial(_pieces, path)))


def _pieces(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(WRITE_NBYTES):
            yield piece


def fetched(given: str | os.PathLike[str], options: dict[str, Any]) -> str:
    """Return the local directory of a model, after fetching one that is at a URL or on the Hub.

    Options that say what to fetch, and where to keep it, are taken out of those that a library gets.
    """
    text = os.fspath(given)
    if not is_remote(text):
        path = local_path(text)
        if os.path.lexists(path) or not _is_hub_id(text):
            return path
        text = f"hf://{text}"
    revision, token = options.pop("revision", None), options.pop("token", None)
    if revision is not None:
        text += f"@{revision}"
    cache = options.pop("cache_dir", None)
    if is_offline(text, options):
        return found_here(text, _folder_of(text, cache), cache, options)
    url = text if token is None else remote(text, token=token)
    folder = _folder_of(url, cache)
    inner = options.get("subfolder") or ""
    destination = os.path.join(folder, inner)
    with as_transport_error("could not create the directory", destination):
        os.makedirs(os.path.dirname(destination), exist_ok=True)
    try:
        source = join(url, inner) if inner else url
        fetch(source, destination, variant=options.get("variant"), overwrite=True)  # it holds nothing else
    except TensorkeepError as error:
        if not is_remote(os.fspath(given)):
            error.add_note(f"{os.fspath(given)} is not a directory here, so it was looked for on the Hub")
        raise
    return folder


def _folder_of(url: str, cache: str | os.PathLike[str] | None) -> str:
    """Return the directory that keeps what is fetched from a URL."""
    root = cache or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tensorkeep", "models")
    shown = str(RemotePath.of(url))
    digest = hashlib.sha256(shown.encode()).hexdigest()[:_DIGEST_LENGTH]
    name = _find_unsafe.sub("-", shown.partition("://")[2]).strip("-.")
    return os.path.join(local_path(root), f"{name}-{digest}")
