"""Patches applied to a model in memory: everything is checked, then written in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Literal, TypeAlias, get_args

import msgspec
import torch
from torch import nn

from tensorkeep.arrays import tensor_to_write
from tensorkeep.arrays.torch.streams import DeviceStream, current_stream
from tensorkeep.deltas.encoding import BLOCK_LENGTH, Delta, word_of
from tensorkeep.deltas.reading import N_THREADS, Change, Content, Patch
from tensorkeep.digests import new_hasher
from tensorkeep.dtypes import BY_TORCH
from tensorkeep.encryption import KeyLike
from tensorkeep.errors import IntegrityError, RefusedError
from tensorkeep.models._parameters import ModelState, ParameterStorage, state_of
from tensorkeep.models.patching._rest import refuse_another_rest
from tensorkeep.models.patching._words import blocks_of, words_of
from tensorkeep.parallel import parallel_for_each
from tensorkeep.patches.opening import Checkpoint, Opening
from tensorkeep.tensors import overlapping

PatchCheck: TypeAlias = Literal["model", "changes"]
"""What must be as the patch says: the whole model, or only the tensors that change."""


class _Job(msgspec.Struct, frozen=True, eq=False):
    """A tensor of the model that changes.

    Attributes:
        storage: Its memory.
        stream: In which its caller works on its device.
        contents: What it must be before the first patch and after each.
        deltas: The differences of each patch.
    """

    storage: ParameterStorage
    stream: DeviceStream
    contents: tuple[Content, ...]
    deltas: tuple[Delta, ...]

    @property
    def name(self) -> str:
        return self.storage.names[0]


def apply_patch(
    model: nn.Module,
    *patches: Checkpoint,
    check: PatchCheck = "model",
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> None:
    """Apply patches to a model in memory, in place and without a second copy; all is checked first.

        tensorkeep.torch.apply_patch(model, "110.patch.safetensors")

    First, every tensor that changes is compared with the digest that the patch has for it, and so is what it would
    become. The other tensors are compared too, by the one digest that the patch has for the whole checkpoint. Only if
    all are right are the differences added, in the memory of the parameters, which stay the same objects, on their
    device. Do not use the model meanwhile. Patches are read again as they are added and must not change: if one can
    no longer be read then, some weights are new and some are old.

    Args:
        model: The model. The names of its state dict are the names in the patches; tied weights change together.
        *patches: Patches in their order, as `tensorkeep.patches.make` writes them: paths, URLs, or open files.
        check: `"model"` compares the whole model with the checkpoint that the patch is for. `"changes"` compares only
            the tensors that change: for a model whose state dict has other names besides, or if the rest is known to
            be right. Comparing the rest reads it once; from another device, it is copied to the CPU in blocks.
        key: The key of encrypted patches; see `tensorkeep.open`.

    Raises:
        EncryptedError: If a patch is encrypted, and the key is missing or another one.
        IntegrityError: If the model is not what the patch is for, a weight would not become what it promises, or a
            patch does not follow the one before it.
        RefusedError: If the patch adds or removes tensors, or names one that the model lacks; or if tensors that
            change share a part of their memory.
        FormatError: If a patch is malformed, or contradicts itself.
        UnsupportedError: If a parameter cannot be written to: sparse, lazy, or a wrapper of others.
        ValueError: If there is no such check.
        TransportError: If a patch cannot be read.
    """
    if check not in get_args(PatchCheck):
        raise ValueError(f"check must be one of {', '.join(map(repr, get_args(PatchCheck)))}, not {check!r}")
    with ExitStack() as stack:
        opened = Opening(stack, key).patches(patches)
        state = state_of(model)
        jobs = _jobs(state, opened)
        parallel_for_each(jobs, _in_stream(_check), n_threads=N_THREADS)
        if opened and check == "model":
            refuse_another_rest(state, opened, {id(job.storage): job.contents[0] for job in jobs})
        with torch.no_grad():
            parallel_for_each(jobs, _in_stream(_write), n_threads=N_THREADS)


def _jobs(state: ModelState, patches: list[Patch]) -> list[_Job]:
    """Return what changes, once for all names of a tensor."""
    storages = {name: storage for storage in state.storages for name in storage.names}
    found: dict[str, _Job] = {}
    for patch in patches:
        for name, change in patch.description.tensors.items():
            if name not in storages:
                raise _refused(patch, name, "the model has no such tensor")
            found[name] = _extended(found.get(name) or _job(storages[name]), patch, name, change)
    for patch in patches:
        for name in patch.description.equal:
            if name in storages and name not in found:
                _refuse_untied(name, storages[name].names, found, patch)
    return _once(found, patches)


def _job(storage: ParameterStorage) -> _Job:
    return _Job(storage, current_stream(storage.tensor.device), (), ())


def _refuse_untied(name: str, names: tuple[str, ...], found: dict[str, _Job], patch: Patch) -> None:
    """Refuse to leave a tensor as it is that shares its memory with one that changes."""
    tied = next((other for other in names if other in found), None)
    if tied is not None:
        raise _refused(patch, name, f"it is tied to `{tied}`, which changes; it does not")


def _extended(job: _Job, patch: Patch, name: str, change: Change) -> _Job:
    """Return a job with one more patch."""
    tensor = job.storage.tensor
    dtype = BY_TORCH.get(str(tensor.dtype).removeprefix("torch."))
    if change.old is None or change.new is None or change.delta is None or dtype is None:
        raise _refused(patch, name, "it is added, removed or replaced")
    word = word_of(dtype)
    shape = (*tensor.shape[:-1], 2 * tensor.shape[-1]) if dtype.is_packed else tuple(tensor.shape)
    if (change.old.dtype, change.old.shape) != (dtype.name, shape):
        raise _refused(patch, name, f"{change.old.dtype} {list(change.old.shape)}, {dtype.name} {list(shape)} here")
    if job.contents and job.contents[-1] != change.old:
        raise IntegrityError("a patch does not follow the one before it", path=patch.path, found=f"tensor `{name}`")
    delta = patch.delta_of(name, change, tensor.nbytes // word.itemsize, word)
    contents = (*(job.contents or (change.old,)), change.new)
    return _Job(job.storage, job.stream, contents, (*job.deltas, delta))


def _once(found: dict[str, _Job], patches: list[Patch]) -> list[_Job]:
    """Return one job for each memory; all names of a tensor must change alike."""
    jobs: dict[int, _Job] = {}
    for name, job in found.items():
        other = jobs.setdefault(id(job.storage), job)
        if other.contents != job.contents:
            raise _refused(patches[-1], name, f"it is tied to `{other.name}`, which changes differently")
    _refuse_overlaps(list(jobs.values()), patches[-1])
    return list(jobs.values())


def _refuse_overlaps(jobs: list[_Job], patch: Patch) -> None:
    """Refuse tensors that share a part of their memory, where differences would be added twice."""
    for job in jobs:
        tensor = job.storage.tensor
        if any(n > 1 and stride == 0 for n, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise _refused(patch, job.name, "its elements share memory: it is an expanded view")
    extents = {job.name: tensor_to_write(job.storage.tensor.detach(), job.name).extent() for job in jobs}
    for first, second, *_ in overlapping(extents):
        raise _refused(patch, second, f"it shares memory with `{first}`")


def _refused(patch: Patch, name: str, found: str) -> RefusedError:
    return RefusedError(
        f"the patch does not fit the model: tensor `{name}`",
        path=patch.path,
        tensor=name,
        found=found,
        hint="Apply the patch to a checkpoint, and load that",
    )


def _in_stream(work: Callable[[_Job], None]) -> Callable[[_Job], None]:
    """Let threads work in the stream of the caller, whose work comes before and after."""

    def in_stream(job: _Job) -> None:
        with job.stream.entered():
            work(job)

    return in_stream


def _check(job: _Job) -> None:
    """Compare what a tensor is, and what it would become, with the digests of the patches."""
    hashers = [new_hasher() for _ in job.contents]
    words = words_of(job.storage.tensor)
    for start, stop in blocks_of(words):
        block = words[start:stop].cpu().numpy().copy().view(f"u{words.element_size()}")
        hashers[0].update(block.data.cast("B"))
        for hasher, delta in zip(hashers[1:], job.deltas, strict=True):
            delta.apply(block, start)
            hasher.update(block.data.cast("B"))
    for hasher, content in zip(hashers, job.contents, strict=True):
        if hasher.hexdigest() != content.digest:
            is_old = hasher is hashers[0]
            raise IntegrityError(
                f"`{job.name}` of the model is not what the patch is for"
                if is_old
                else f"`{job.name}` would not become what the patch promises",
                tensor=job.name,
                expected=f"BLAKE3 {content.digest[:16]}…",
                found=f"{hasher.hexdigest()[:16]}…",
                hint="Nothing was changed",
            )


def _write(job: _Job) -> None:
    """Add differences in the memory of a tensor; a strided one passes through a copy of its own."""
    for tensor in job.storage.tensors:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
    tensor = job.storage.tensor.detach()
    words = words_of(tensor)
    for start, stop in blocks_of(words):
        for delta in job.deltas:
            _add(words[start:stop], delta, start)
    if words.data_ptr() != tensor.data_ptr():
        tensor.copy_(words.view(tensor.dtype).view(tensor.shape))


def _add(words: torch.Tensor, delta: Delta, start: int) -> None:
    """Add the differences of one block on the device of its words."""
    if words.device.type == "cpu":
        delta.apply(words.numpy().view(f"u{words.element_size()}"), start)
        return
    block = delta.block(start // BLOCK_LENGTH)
    if block is None:
        return
    values = torch.from_numpy(block.values.view(f"i{words.element_size()}" if words.element_size() > 1 else "u1"))
    values = values.to(words.device)
    signed: Any = values if delta.way == "forward" else -values
    if block.positions is None:
        words += signed
    else:
        words[torch.from_numpy(block.positions).to(words.device)] += signed
