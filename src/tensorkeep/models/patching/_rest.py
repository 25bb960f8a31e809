"""Whether a model is the checkpoint that patches are for, also in the tensors that they leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product

from tensorkeep.arrays.torch.streams import DeviceStream, current_stream
from tensorkeep.deltas.reading import N_THREADS, Content, Patch, digest_of_contents
from tensorkeep.digests import new_hasher
from tensorkeep.dtypes import BY_TORCH
from tensorkeep.errors import IntegrityError
from tensorkeep.models._parameters import ModelState, ParameterStorage
from tensorkeep.models.patching._words import blocks_of, words_of
from tensorkeep.parallel import ProgressMeter, parallel_map


def refuse_another_rest(state: ModelState, patches: Sequence[Patch], changing: Mapping[int, Content]) -> None:
    """Compare a model with the digest in the first patch, given what the tensors are that change, by storage."""
    for before, after in pairwise(patches):
        if before.description.new.digest != after.description.old.digest:
            raise IntegrityError("a patch does not follow the one before it", path=after.path)
    expected = patches[0].description.old.digest
    digests = [digest_of_contents(contents) for contents in _possible_contents(state, patches, changing)]
    if expected not in digests:
        raise IntegrityError(
            "the model is not what the patch is for, although the tensors that change are",
            path=patches[0].path,
            expected=f"tensors with the digest {expected[:16]}…",
            found=f"{digests[0][:16]}…",
            hint="Nothing was changed. If the checkpoint and the model differ in other names than those that change, "
            'check="changes" compares only the tensors that change',
        )


def _possible_contents(
    state: ModelState, patches: Sequence[Patch], changing: Mapping[int, Content]
) -> Iterator[dict[str, Content]]:
    """Give what the checkpoint may hold: it can lack counters of batches, and all but one of tied names."""
    named = [storage for storage in state.storages if storage.names]
    contents = {**_contents(each for each in named if id(each) not in changing), **changing}
    changed = {name for patch in patches for name in patch.description.tensors}
    for with_ties, with_optional in product((True, False), repeat=2):
        yield {
            name: contents[id(storage)]
            for storage in named
            if with_optional or not storage.is_optional or id(storage) in changing
            for name in _names(storage, changed, with_ties=with_ties)
        }


def _names(storage: ParameterStorage, changed: set[str], *, with_ties: bool) -> Sequence[str]:
    """Return the names that the checkpoint has for a tensor; patches have all names of one that changes."""
    named = [name for name in storage.names if name in changed]
    return named or storage.names[: None if with_ties else 1]


def _contents(storages: Iterable[ParameterStorage]) -> dict[int, Content]:
    """Return what tensors are, by storage; threads read them in the streams of their caller."""
    read = [(storage, current_stream(storage.tensor.device)) for storage in storages]
    found = parallel_map(_content, read, n_threads=min(len(read), N_THREADS), meter=ProgressMeter(None, 0))
    return {id(storage): content for (storage, _), content in zip(read, found, strict=True)}


def _content(read: tuple[ParameterStorage, DeviceStream]) -> Content:
    tensor, stream = read[0].tensor, read[1]
    hasher = new_hasher()
    with stream.entered():
        words = words_of(tensor)
        for start, stop in blocks_of(words):
            hasher.update(words[start:stop].cpu().numpy().data.cast("B"))
    spelling = str(tensor.dtype).removeprefix("torch.")
    dtype = BY_TORCH.get(spelling)
    is_packed = dtype is not None and dtype.is_packed
    shape = (*tensor.shape[:-1], 2 * tensor.shape[-1]) if is_packed else tuple(tensor.shape)
    return Content(spelling if dtype is None else dtype.name, shape, hasher.hexdigest())
