"""`save` and `save_async`: a pytree to a file or a directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax

from tensorkeep.checkpoint import SaveHandle, SaveOptions, raise_earlier, save_checkpoint
from tensorkeep.checkpoint import save_async as save_state_async
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.jax.meshes import (
    ALIGNMENT_NBYTES,
    TIMEOUT_S,
    TogetherSave,
    check_timeout,
    meet,
    spans_processes,
    target_directory,
)
from tensorkeep.jax.trees import capture, leaves_of
from tensorkeep.layout import parse_size
from tensorkeep.tensors import Ties, check_target, prepare
from tensorkeep.tensors import save as save_file

_SHARD_SIZE: Final = "5GB"


def save(
    tree: Any,
    path: str | os.PathLike[str],
    *,
    max_shard_size: int | str = _SHARD_SIZE,
    metadata: Mapping[str, str] | None = None,
    ties: Ties = "share",
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
    align: int = ALIGNMENT_NBYTES,
    order: Sequence[str] | None = None,
    timeout_s: float = TIMEOUT_S,
    encrypt: KeyLike | Encryption | None = None,
) -> None:
    """Save a pytree, complete or not at all; every reader of safetensors finds its arrays by name.

        tensorkeep.jax.save({"state": state, "key": key, "epoch": 3}, "epoch-3.safetensors")

    If arrays have shards in several processes of a job (`jax.distributed`), all processes call this with equal trees,
    and save one checkpoint together: each writes its own shards to their places, and nothing is gathered. All must
    see the directory. When this returns in any process, the checkpoint is complete. If the tree has no such arrays,
    each process that calls this saves by itself.

    This saves `capture(tree)`: arrays under the keys that lead to them, joined by dots, such as
    `params.Dense_0.kernel`. Weak dtypes and random keys are kept. Everything else is saved as data beside the arrays.

    Args:
        tree: Any pytree. Static fields, such as `apply_fn` of a `TrainState`, are not saved.
        path: A file if it ends in `.safetensors` and is not a directory; a directory otherwise, which gets shards
            and an index. Or a URL.
        max_shard_size: Bytes of tensors in one shard of a directory: a number, or text such as `"5GB"`.
        metadata: Free text by key.
        ties: What to do with arrays that are in the tree more than once: `"share"` stores them once, `"copy"` each
            separately, `"error"` refuses.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it.
        progress: Called every few MiB with the bytes written and the total; not if processes save together.
        align: Bytes at whose multiples tensors begin, if their size is one too; see `tensorkeep.save`. With 64, JAX
            shares the memory of a mapped file.
        order: Names or shell patterns whose tensors come first in each file, in this order; see `tensorkeep.save`.
        timeout_s: Seconds without a sign of life from any process after which a joint save fails.
        encrypt: The key to encrypt with, the path of a file with it, or an `Encryption`; the same in all processes.

    Raises:
        StateError: If a leaf is not data, such as a function or an object of some class; the message has its path.
            Also if processes that save together pass different trees.
        UnsupportedError: If an array has no bytes here, because it is traced or was donated, or an argument is
            invalid.
        SharedMemoryError: If an array is in the tree more than once and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If `path` is not a path, or metadata is not text.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If the tree is nested too deeply, or names and data are too long for a header.
        BusyError: If another process is saving to that directory.
        TransportError: If it cannot be written, or another process that takes part gives no sign of life; what was
            there before is then as it was.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt`.
    """
    if _spans_processes(tree):
        with meet(timeout_s) as meeting:
            options = _options(
                max_shard_size, metadata=metadata, durable=durable, align=align, order=order, encrypt=encrypt
            )
            together = TogetherSave(meeting, prepare(capture(tree), ties=ties), target_directory(path), options)
        together.run()
        return
    _check(max_shard_size, timeout_s)
    state = capture(tree)
    target = check_target(path)
    if _is_file(target):
        save_file(
            state,
            path,
            metadata=metadata,
            ties=ties,
            durable=durable,
            progress=progress,
            align=align,
            order=order,
            encrypt=encrypt,
        )
    else:
        save_checkpoint(
            state,
            path,
            max_shard_size=max_shard_size,
            metadata=metadata,
            ties=ties,
            durable=durable,
            progress=progress,
            align=align,
            order=order,
            encrypt=encrypt,
        )


def save_async(
    tree: Any,
    path: str | os.PathLike[str],
    *,
    max_shard_size: int | str = _SHARD_SIZE,
    metadata: Mapping[str, str] | None = None,
    ties: Ties = "share",
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
    align: int = ALIGNMENT_NBYTES,
    order: Sequence[str] | None = None,
    max_waiting: int = 0,
    timeout_s: float = TIMEOUT_S,
    encrypt: KeyLike | Encryption | None = None,
) -> SaveHandle:
    """Save a pytree while training continues: its arrays are copied first, and may then be donated.

    If processes save one checkpoint together, as with `save`, all of them call this, and each copies its own shards.

    Args:
        tree: Any pytree; see `save`.
        path: A file if it ends in `.safetensors` and is not a directory; a directory otherwise.
        max_shard_size: Bytes of tensors in one shard of a directory: a number, or text such as `"5GB"`.
        metadata: Free text by key.
        ties: What to do with arrays that are in the tree more than once; see `save`.
        durable: Whether to wait until the disk has everything.
        progress: Called with the bytes written and the total, by another thread.
        align: Bytes at whose multiples tensors begin; see `save`.
        order: Names or shell patterns whose tensors come first in each file; see `save`.
        max_waiting: How many saves may wait, each with its own copy, while another is written.
        timeout_s: Seconds without a sign of life from any process after which a joint save fails.
        encrypt: The key to encrypt with, the path of a file with it, or an `Encryption`; the same in all processes.

    Returns:
        A handle that says when the save is done and whether it failed; see `tensorkeep.save_async`.

    Raises:
        StateError: If a leaf is not data.
        UnsupportedError: If an array has no bytes here, or an argument is invalid.
        SharedMemoryError: If an array is in the tree more than once and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If `path` is not a path.
        LimitError: If the tree is nested too deeply.
        BaseException: The error of an earlier save to that directory. This save has then not begun, unless processes
            save together.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt`.
    """
    if _spans_processes(tree):
        with meet(timeout_s) as meeting:
            options = _options(
                max_shard_size, metadata=metadata, durable=durable, align=align, order=order, encrypt=encrypt
            )
            together = TogetherSave(meeting, prepare(capture(tree), ties=ties), target_directory(path), options)
            handle = together.in_background(max_waiting=max_waiting)
        raise_earlier(handle.path)
        return handle
    _check(max_shard_size, timeout_s)
    target = check_target(path)
    sizes: dict[str, Any] = {} if _is_file(target) else {"max_shard_size": max_shard_size}
    return save_state_async(
        capture(tree),
        target,
        **sizes,
        max_waiting=max_waiting,
        metadata=metadata,
        ties=ties,
        durable=durable,
        progress=progress,
        align=align,
        order=order,
        encrypt=encrypt,
    )


def _check(max_shard_size: int | str, timeout_s: float) -> None:
    """Refuse invalid arguments also where they have no use, so that a program fails at its first save."""
    parse_size(max_shard_size)
    check_timeout(timeout_s)


def _is_file(target: str) -> bool:
    return target.endswith(".safetensors") and not os.path.isdir(target)


def _options(
    max_shard_size: int | str,
    metadata: Mapping[str, str] | None,
    encrypt: KeyLike | Encryption | None,
    **options: Any,
) -> SaveOptions:
    return SaveOptions(
        max_shard_nbytes=parse_size(max_shard_size),
        metadata=None if metadata is None else dict(metadata),
        encryption=Encryption.of(encrypt),
        **options,
    )


def _spans_processes(tree: Any) -> bool:
    return jax.process_count() > 1 and any(map(spans_processes, leaves_of(tree)))
