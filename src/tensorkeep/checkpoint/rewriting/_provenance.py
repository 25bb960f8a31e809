"""What a rewritten checkpoint came from, as a file beside it that is committed with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec

from tensorkeep.checkpoint.rewriting._pipeline import RewriteOptions
from tensorkeep.checkpoint.saving import SaveOptions
from tensorkeep.checkpoint.verifying import sha256_of
from tensorkeep.encryption import DecryptingSource
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import Opened
from tensorkeep.kinds.given import OpenedView
from tensorkeep.signing import PROVENANCE_SUFFIX, Artifact, emit_provenance, header_of
from tensorkeep.transport import ByteSource, is_remote, open_source

Describe = Callable[[Mapping[str, str]], Mapping[str, bytes]]
"""From the name of each staged file to its path, to the name and content of each file that describes them."""


def provenance_of(
    operation: str, sources: Sequence[Opened], rewrite: RewriteOptions, options: SaveOptions, directory: str
) -> Describe:
    """Return what writes the provenance of a checkpoint when its files are staged; the sources are read now."""
    if is_remote(directory):
        raise UnsupportedError("provenance is only recorded in local directories", path=directory)
    if options.encryption is not None:
        raise UnsupportedError(
            "provenance is not recorded beside encrypted files: it is not encrypted, and names tensors",
            path=directory,
        )
    if part := next((opened for opened in sources if isinstance(opened, OpenedView)), None):
        raise UnsupportedError(
            "provenance is recorded of files, and a view does not say what all its tensors are made of",
            path=part.path,
            hint="Save the view first (tensorkeep.save_checkpoint), and give the path of that",
        )
    read = [_read(name, source) for opened in sources for name, source in opened.sources.items()]
    given = {name: getattr(rewrite, name) for name in rewrite.__struct_fields__} | {
        "cast": _dtype_name(rewrite.cast),
        "dequantize": _dtype_name(rewrite.dequantize),
        "max_shard_nbytes": options.max_shard_nbytes,
        "balance": options.balance or None,
        "split_large": options.split_large or None,
        "align": options.align,
        "order": options.order,
    }
    parameters = {name: _plain(value) for name, value in given.items() if value is not None}

    def describe(staged: Mapping[str, str]) -> Mapping[str, bytes]:
        written = [Artifact(name, _digest(path)) for name, path in staged.items()]
        return {options.stem + PROVENANCE_SUFFIX: emit_provenance(operation, written, read, parameters, _version())}

    return describe


def _read(name: str, source: ByteSource) -> Artifact:
    """Describe a file that was read; only a URL says where, since paths tell of users and machines."""
    if not is_remote(source.name):
        return Artifact(name, _digest(source.name, source))
    header = None if isinstance(source, DecryptingSource) else header_of(source.name, source)
    digest = {} if header is None else {"tensorkeepHeader": header.blake3}
    return Artifact(name, digest, str(source.name))


def _digest(path: str, source: ByteSource | None = None) -> dict[str, str]:
    """Return what identifies a local file: its header if that has digests, else all of it.

    It is the file on the disk: what a source decrypts of it says more than others may know.
    """
    on_disk = open_source(path, backend="pread") if source is None or os.path.isfile(path) else source
    header = header_of(path, on_disk)
    return {"sha256": sha256_of(on_disk)} if header is None else {"tensorkeepHeader": header.blake3}


def _plain(value: object) -> object:
    """Return a parameter as JSON has it; a function by its name."""
    return msgspec.to_builtins(value, enc_hook=lambda other: getattr(other, "__name__", type(other).__name__))


def _dtype_name(dtype: object) -> str | None:
    """Return a dtype as text, whatever library it is of."""
    return None if dtype is None else getattr(dtype, "__name__", str(dtype))


def _version() -> str:
    try:
        return version("tensorkeep")
    except PackageNotFoundError:
        return "unknown"
