"""Patches applied to a checkpoint on disk, by the transaction of a save: the old one or the new one, whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from tensorkeep.checkpoint import SaveOptions, identities_of, refuse_existing, refuse_replaced, write_checkpoint
from tensorkeep.deltas import patched
from tensorkeep.deltas.reading import Patch, Texts, content_of, texts_of
from tensorkeep.digests import NO_DIGEST
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.kinds import Opened, Place
from tensorkeep.kinds.registry import find_kind
from tensorkeep.kinds.safetensors import SAFETENSORS
from tensorkeep.layout import Index, Location, ShardRecord, index_names, locate
from tensorkeep.parallel import Progress
from tensorkeep.patches.opening import Checkpoint, Opening, encryption_of
from tensorkeep.tensors import LazyTensors, check_target, prepare, write_prepared
from tensorkeep.transport import refuse_url

_SUFFIX = ".safetensors"


def apply(
    target: str | os.PathLike[str],
    *patches: Checkpoint,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    encrypt: KeyLike | Encryption | None = None,
) -> None:
    """Apply patches to a checkpoint on disk: whenever this is stopped, there is the old one or the new one, whole.

        tensorkeep.patches.apply("worker/model", "110.patch.safetensors", "120.patch.safetensors")

    The checkpoint must be the one that the first patch is for, by the digests of its tensors, and each patch must
    follow the one before it. The patched tensors must have the digests that the patches promise, or nothing changes.
    Files keep their names; those that do not change are not written again.

    Args:
        target: A directory, an index or a file.
        *patches: Patches in their order: paths, URLs, or open files.
        output: Where to write the new checkpoint, a directory or a file that ends in `.safetensors`; None replaces
            the tensors and the index at `target`.
        overwrite: Whether to replace another checkpoint at `output`.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes written so far and the total, by one thread at a time.
        key: The key of what is encrypted of these, the path of a file with it, or several of these; see `open`.
        encrypt: The key to encrypt the new checkpoint with, or an `Encryption`. None encrypts it like `target`, or
            else like the patches, if any of them is encrypted.

    Raises:
        EncryptedError: If something is encrypted, and the key is missing or another one.
        IntegrityError: If the checkpoint is not the one that the patches are for, or something is damaged.
        FormatError: If a patch is malformed, or contradicts itself.
        DestinationExistsError: If there is a checkpoint at `output`, and `overwrite` is false.
        UnsupportedError: If a patch is of a later version; without `output`, if `target` is of another
            kind than safetensors.
        SourceChangedError: If the checkpoint was saved again meanwhile.
        BusyError: If another process is saving there.
        TransportError: If something cannot be read or written, such as on a full disk.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt` or `key`.
    """
    saving = _Saving(output, overwrite, durable, progress, key, encrypt)
    _rewrite(target, patches, saving, lambda steps: steps)


def undo(
    target: str | os.PathLike[str],
    *patches: Checkpoint,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    encrypt: KeyLike | Encryption | None = None,
) -> None:
    """Undo patches, the last one first. The checkpoint is again what it was, bit for bit.

    Args:
        target: A directory, an index or a file.
        *patches: The patches in the order in which they were applied.
        output: Where to write the old checkpoint; see `apply`.
        overwrite: Whether to replace another checkpoint at `output`.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes written so far and the total, by one thread at a time.
        key: The key of what is encrypted of these; see `apply`.
        encrypt: How to encrypt the old checkpoint; see `apply`.

    Raises:
        RefusedError: If a patch removed or replaced a tensor, and was not made with `reversible=True`.
        TensorkeepError: If `apply` would raise it.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt` or `key`.
    """
    saving = _Saving(output, overwrite, durable, progress, key, encrypt)
    _rewrite(target, patches, saving, lambda steps: [step.reversed for step in reversed(steps)])


class _Saving(msgspec.Struct, frozen=True):
    """The parameters of `apply` and `undo` other than what is patched."""

    output: str | os.PathLike[str] | None
    overwrite: bool
    durable: bool
    progress: Progress | None
    key: KeyLike | Sequence[KeyLike] | None
    encrypt: KeyLike | Encryption | None


def _rewrite(
    target: str | os.PathLike[str],
    patches: Collection[Checkpoint],
    saving: _Saving,
    directed: Callable[[list[Patch]], list[Patch]],
) -> None:
    if not patches:
        raise UnsupportedError("there is nothing to apply", expected="at least one patch")
    path, output = os.fspath(target), saving.output
    refuse_url(check_target(path if output is None else output), hint="Write to this machine, and upload that")
    location = _location_of(path) if output is None else None
    with ExitStack() as stack:
        opening = Opening(stack, saving.key)
        base: Any = opening.checkpoint(path)
        steps = directed(opening.patches(patches))
        encryption = encryption_of(saving.encrypt, base, *(step.tensors for step in steps))
        view = patched(base, steps)
        changed = [step.description.new.texts for step in steps if step.description.new.texts]
        index = _index(view, changed[-1] if changed else texts_of(base))
        _check_pieces(view, index)
        options = SaveOptions(
            max_shard_nbytes=2**63 - 1,
            layout=index,
            sha256=_has_sha256(base),
            block_digests=base.index is not None and bool(base.index.sidecars),
            index_metadata=None if index is None else _index_metadata(base),
            durable=saving.durable,
            progress=saving.progress,
            encryption=encryption,
        )
        if output is not None:
            _write_new(os.fspath(output), view, base, options, overwrite=saving.overwrite)
        elif location is not None:
            _replace(location, view, base, options)
        else:
            _write_file(view, path, options)


def _write_file(view: LazyTensors, path: str, options: SaveOptions) -> None:
    write_prepared(
        prepare(view), path, durable=options.durable, progress=options.progress, encryption=options.encryption
    )


def _replace(location: Location, view: LazyTensors, base: Any, options: SaveOptions) -> None:
    """Write a checkpoint in the place of the one that it is made of."""
    identities = identities_of([base])
    base_name, variant = _names(location)
    own = msgspec.structs.replace(
        options,
        base_name=base_name,
        variant=variant,
        reuse=base,
        before_commit=lambda _: refuse_replaced(identities),
    )
    write_checkpoint(prepare(view), location.directory or os.curdir, own)


def _write_new(output: str, view: LazyTensors, base: Opened, options: SaveOptions, *, overwrite: bool) -> None:
    """Write a checkpoint elsewhere."""
    directory, name = os.path.split(output)
    is_file = name.endswith(_SUFFIX)

    def refuse_loss(staged: Collection[str] = ()) -> None:
        if not overwrite and is_file:
            refuse_existing(directory, name.removesuffix(_SUFFIX), [base])
        elif not overwrite:
            refuse_existing(output, options.stem, [base], staged)

    refuse_loss()
    if is_file:
        _write_file(view, output, options)
    else:
        write_checkpoint(prepare(view), output, msgspec.structs.replace(options, before_commit=refuse_loss))


def _location_of(path: str) -> Location | None:
    """Return the files that are replaced; None for a file whose name is no checkpoint's."""
    kind = find_kind(Place(path)).kind
    if kind is not SAFETENSORS:
        raise UnsupportedError(
            "only safetensors files are replaced in place",
            path=path,
            found=kind.name,
            hint="Say where to write the new checkpoint: output= (--output)",
        )
    return locate(path)


def _names(location: Location) -> tuple[str, str | None]:
    """Return the base and the variant by which a save gives files the names that they have."""
    base, _, variant = location.stem.rpartition(".")
    is_variant = bool(base) and location.index in {None, index_names(location.stem)[0]}
    return (base, variant) if is_variant else (location.stem, None)


def _index(view: LazyTensors, texts: Texts) -> Index | None:
    """Return which tensor goes to which file; None for a single file."""
    if not texts.files:
        return None
    stored = {piece for pieces in texts.splits.values() for piece in pieces}
    last = max(texts.files.values())
    others = {name: last for name in view if name not in texts.files and name not in texts.splits}
    kept = {name: file for name, file in texts.files.items() if name in view or name in stored}
    weight_map = kept | others
    records = {file: ShardRecord(0, NO_DIGEST) for file in weight_map.values()}  # only names count in a layout
    return Index(weight_map, shards=records, splits=texts.splits)


def _check_pieces(view: LazyTensors, index: Index | None) -> None:
    """Compare tensors that are written in pieces with their digests now: pieces have digests of their own."""
    for name in index.splits if index is not None else ():
        promised = view[name].tensor_to_write() if name in view else None
        digest = getattr(promised, "digest", None)
        if digest is not None and content_of(view[name]).digest != digest.hex():
            raise IntegrityError(f"tensor `{name}` is not what the patch promises", tensor=name, path=view.path)


def _has_sha256(base: Opened) -> bool:
    records = {} if base.index is None else base.index.shards or {}
    return any(record.sha256 for record in records.values())


def _index_metadata(base: Opened) -> dict[str, Any] | None:
    """Return the members of the index without the sizes."""
    metadata = {} if base.index is None else base.index.metadata
    return {key: value for key, value in metadata.items() if not key.startswith("total_")}
