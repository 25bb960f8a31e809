"""What a rewritten checkpoint came from, as a file beside it that is committed with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

import msgspec

from tensorkeep.checkpoint.verifying import sha256_of
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import Opened
from tensorkeep.signing import PROVENANCE_SUFFIX, Artifact, emit_provenance, header_of
from tensorkeep.transport import ByteSource, is_remote, open_source

Describe = Callable[[Mapping[str, str]], Mapping[str, bytes]]
"""From the name of each staged file to its path, to the name and content of each file that describes them."""


def provenance_of(
    operation: str, sources: Iterable[Opened], parameters: Mapping[str, object], directory: str, stem: str
) -> Describe:
    """Return what writes the provenance of a checkpoint when its files are staged; the sources are read now."""
    if is_remote(directory):
        raise UnsupportedError("provenance is only recorded in local directories", path=directory)
    read = [_read(name, source) for opened in sources for name, source in opened.sources.items()]
    texts = {name: _plain(value) for name, value in parameters.items() if value is not None}

    def describe(staged: Mapping[str, str]) -> Mapping[str, bytes]:
        written = [Artifact(name, _digest(path, open_source(path, backend="pread"))) for name, path in staged.items()]
        return {stem + PROVENANCE_SUFFIX: emit_provenance(operation, written, read, texts, _version())}

    return describe


def _read(name: str, source: ByteSource) -> Artifact:
    """Describe a file that was read; only a URL says where, since paths tell of users and machines."""
    return Artifact(name, _digest(source.name, source), str(source.name) if is_remote(source.name) else None)


def _digest(path: str, source: ByteSource) -> dict[str, str]:
    """Return what identifies a file: its header if that has digests, else all of it; nothing of one on a server."""
    header = header_of(path)
    if header is not None:
        return {"tensorkeepHeader": header.blake3}
    return {} if is_remote(path) else {"sha256": sha256_of(source)}


def _plain(value: object) -> object:
    """Return a parameter as JSON has it; a function by its name."""
    return msgspec.to_builtins(value, enc_hook=lambda other: getattr(other, "__name__", type(other).__name__))


def _version() -> str:
    try:
        return version("tensorkeep")
    except PackageNotFoundError:
        return "unknown"
