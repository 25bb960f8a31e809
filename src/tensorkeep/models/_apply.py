"""A load plan, applied: this is where the model is written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from tensorkeep.entries import TensorEntry
from tensorkeep.models._plan import Plan, Step, Target
from tensorkeep.models._replace import Change, convert, reallocate, replace, replace_part, require_memory
from tensorkeep.models.filling import Job, fill
from tensorkeep.tensors import LazyTensor, TensorReader, load_together
from tensorkeep.transport import ByteRange


def apply_plan(plan: Plan, target: Target, path: str, progress: Callable[[int, int], None] | None) -> None:
    """Bring the tensors of a checkpoint into a model."""
    require_memory(_changes(plan, target), path)
    done, total = 0, plan.nbytes

    def report(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(done, total)

    for storage in plan.rest:
        if target.converts:
            convert(storage, target.dtype_of(storage.tensor), target.device_of(storage))
    _assign([step for step in plan.steps if step.is_mapped], report)
    # Parameters that are views of another one must follow it to new memory
    wholes = {part.whole: part.whole.tensor.detach() for part in plan.parts}
    jobs = [_job(step) for step in plan.steps if not step.is_mapped]
    for part in plan.parts:
        fresh = part.whole.tensor.detach()
        if fresh.data_ptr() != wholes[part.whole].data_ptr():
            replace_part(part.storage, wholes[part.whole], fresh)
    del wholes  # frees the old memory before the new is filled, so that both are never resident in full
    fill(jobs, report)
    for module, lazy in plan.extras:
        module.set_extra_state(_loaded({"": lazy})[""])
        report(lazy.nbytes)


def _changes(plan: Plan, target: Target) -> Iterator[Change]:
    """Give the parameters that get new memory."""
    for step in plan.steps:
        if not (step.is_mapped or step.is_in_place):
            yield step.storage, step.dtype, step.device
    for storage in plan.rest:
        if target.converts and not storage.tensor.is_meta:
            yield storage, target.dtype_of(storage.tensor), target.device_of(storage)


def _job(step: Step) -> Job:
    if step.is_in_place:
        return Job(step.lazy, step.storage.tensor, step.storage.tensors)
    return Job(step.lazy, reallocate(step.storage, step.dtype, step.device))


def _assign(steps: list[Step], report: Callable[[int], None]) -> None:
    """Give the model tensors over the files' own bytes, with one mapping per file."""
    loaded = _loaded({step.storage.names[0]: step.lazy for step in steps})
    for step in steps:
        replace(step.storage, loaded[step.storage.names[0]])
        report(step.lazy.nbytes)


def _loaded(tensors: Mapping[str, LazyTensor]) -> dict[str, torch.Tensor]:
    """Load tensors in torch on the CPU, over the files' own bytes where these are mapped."""
    sources = {id(lazy.source): lazy.source for lazy in tensors.values()}
    readers = {key: TensorReader(source, 0, "torch") for key, source in sources.items() if source is not None}
    return load_together({
        name: lazy if lazy.span is None else LazyTensor(name, _entry(lazy, lazy.span), readers[id(lazy.source)])
        for name, lazy in tensors.items()
    })


def _entry(lazy: LazyTensor, span: ByteRange) -> TensorEntry:
    return TensorEntry(lazy.dtype, lazy.shape, (span.start, span.stop))
