"""A checkpoint with other tensors, and its configuration with what changes there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from tensorkeep.checkpoint import RewriteOptions, SaveOptions, rewrite_as_one
from tensorkeep.encryption import Encryption, KeyLike, Keys
from tensorkeep.layout import parse_size
from tensorkeep.parallel import Progress
from tensorkeep.quantized import read_config
from tensorkeep.tensors import LazyTensors
from tensorkeep.transforms._configs import Config, ConfigChange
from tensorkeep.transport import is_remote

CONFIG_NAME = "config.json"


def rewrite(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    change: Callable[[LazyTensors], LazyTensors],
    *,
    config: ConfigChange | None = None,
    max_shard_size: int | str = "5GB",
    sha256: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    encrypt: Encryption | KeyLike | None = None,
) -> bool:
    """Write a changed checkpoint, completely or not at all, as `reshard` does.

        pad = partial(resize_vocabulary, multiple_of=64)
        rewrite("model", "padded", pad, config=vocabulary_in_config())

    Tensors that change are first checked against their digests. Unless the destination is a store, a changed
    `config.json` belongs to the same commit.

    Args:
        source: A directory, an index or a single file.
        directory: The destination, created if its parent exists. It may be the directory of the source.
        change: Takes the tensors, and returns what to write, such as `stack_experts`.
        config: Takes the content of `config.json`, the tensors before and the tensors after, and returns the new
            content. None leaves the file alone.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"`.
        sha256: Whether the index gets the SHA-256 of each shard.
        overwrite: Whether to replace a checkpoint at the destination that is not the source.
        progress: Called with the bytes checked and written so far and the total, by one thread at a time.
        key: The key of an encrypted source; see `open`.
        encrypt: A key, the path of a file with one, or an `Encryption`: the new files are then encrypted.

    Returns:
        Whether `config.json` was written.

    Raises:
        DestinationExistsError: If there is a checkpoint at the destination, and `overwrite` is false.
        EncryptedError: If the source is encrypted, and the key is missing or another one.
        FormatError: If `config.json` is not a JSON object.
        TensorkeepError: If `change` or `reshard` raises it.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt` or `key`.
    """
    is_alone = config is None or is_remote(os.fspath(directory))
    old = {} if is_alone else read_config(os.fspath(source), CONFIG_NAME)
    companions: dict[str, bytes] = {}  # filled before the save begins

    def changed(tensors: LazyTensors) -> LazyTensors:
        new = change(tensors)
        if config is not None and old:
            companions[CONFIG_NAME] = _text(config(old, tensors, new))
        return new

    options = SaveOptions(
        max_shard_nbytes=parse_size(max_shard_size),
        sha256=sha256,
        progress=progress,
        companions=companions,
        encryption=Encryption.of(encrypt),
    )
    rewrite_as_one(
        [os.fspath(source)],
        directory,
        None,
        RewriteOptions(change=changed),
        options,
        overwrite=overwrite,
        keys=Keys.given(key),
    )
    return bool(companions)


def _text(config: Config) -> bytes:
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
