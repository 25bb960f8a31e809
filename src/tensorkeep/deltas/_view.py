"""A checkpoint seen through patches."""

from __future__ import annotations

from collections.abc import Mapping

from tensorkeep.deltas._reader import PatchedReader, through
from tensorkeep.deltas.encoding import n_words_of, word_of
from tensorkeep.deltas.reading import (
    Change,
    Content,
    Patch,
    Texts,
    contents_of,
    digest_of_contents,
    state_of,
    texts_of,
)
from tensorkeep.errors import FormatError, IntegrityError
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView
from tensorkeep.texts import listed


def patched(base: LazyTensors, patches: list[Patch]) -> TensorView:
    """Return a view of a checkpoint through patches, in their order; each must be for what is before it."""
    contents = contents_of(base)
    tensors: dict[str, LazyTensor] = dict(base.items())
    texts = texts_of(base)
    digest = digest_of_contents(contents)
    for patch in patches:
        _require_old(patch, contents, digest, base.path)
        for name, change in patch.description.tensors.items():
            if change.new is None:
                del tensors[name], contents[name]
                continue
            tensors[name] = _changed(patch, name, change, change.new, tensors.get(name))
            contents[name] = change.new
        digest = patch.description.new.digest  # compared with what it is once, after the last patch
        texts = patch.description.new.texts or texts
        tensors = _in_order(tensors, texts, patch)
    if digest_of_contents(contents) != digest:
        raise FormatError(
            "the patch contradicts itself",
            path=patches[-1].path,
            found="its changes do not result in the checkpoint that it names",
        )
    path = " and ".join([base.path, *(patch.path for patch in patches)])
    return TensorView(tensors, path=path, metadata=texts.metadata, state=state_of(texts))


def _require_old(patch: Patch, contents: Mapping[str, Content], digest: str, path: str) -> None:
    """Refuse a patch that is for another checkpoint than one with these contents, and name tensors that differ."""
    description = patch.description
    others = [name for name, change in description.tensors.items() if contents.get(name) != change.old]
    if not others and digest == description.old.digest:
        return
    is_forward = patch.way == "forward"
    if digest == description.new.digest:
        raise IntegrityError(
            f"the patch is {'applied' if is_forward else 'undone'} already: this is the checkpoint that it leads to",
            path=path,
            expected=f"tensors with the digest {description.old.digest[:16]}…",
            found=f"{digest[:16]}…",
        )
    raise IntegrityError(
        "the patch is for another checkpoint" if is_forward else "the patch did not make this checkpoint",
        path=path,
        expected=f"tensors with the digest {description.old.digest[:16]}…",
        found=f"{digest[:16]}…" + (f"; {listed(f'`{name}`' for name in others)} differ" if others else ""),
        hint="Apply it to the checkpoint that it was made from; a chain of patches must be applied in order"
        if is_forward
        else "Undo it where it was applied; give several patches in the order in which they were applied",
    )


def _changed(patch: Patch, name: str, change: Change, new: Content, before: LazyTensor | None) -> LazyTensor:
    """Return a tensor after a patch."""
    if change.delta is None or before is None:
        return through(patch.whole_of(name, change), (), new.digest)
    base = before.reader.base if isinstance(before.reader, PatchedReader) else before
    delta = patch.delta_of(name, change, n_words_of(base), word_of(base.tensor_to_write().dtype))
    return through(before, (delta,), new.digest)


def _in_order(tensors: dict[str, LazyTensor], texts: Texts, patch: Patch) -> dict[str, LazyTensor]:
    if texts.names is None or list(tensors) == texts.names:
        return tensors
    if len(texts.names) != len(tensors) or set(texts.names) != tensors.keys():
        raise FormatError("the patch contradicts itself", path=patch.path, found="other names than its tensors have")
    return {name: tensors[name] for name in texts.names}


def view(base: LazyTensors, *patches: LazyTensors) -> TensorView:
    """Look at a checkpoint through patches: lazy tensors as they would be once the patches are applied.

        with tensorkeep.open("model") as base, tensorkeep.open("110.patch.safetensors") as patch:
            rows = tensorkeep.patches.view(base, patch)["embedding.weight"][10:20]

    Slices read and patch whole rows, with a few MiB of memory. Tensors that are read whole are checked against the
    digests in the patches. If the base has no digests, every tensor is read once to check that it is the right base.

    Args:
        base: The open checkpoint that the first patch is for.
        *patches: Open patches in their order. They and the base must stay open.

    Returns:
        A view that can be loaded, viewed again and saved like any other.

    Raises:
        IntegrityError: If the checkpoint is not the one that the patches are for.
        FormatError: If a patch is malformed, or contradicts itself.
        UnsupportedError: If a patch is of a later version.
        TransportError: If something cannot be read.
    """
    return patched(base, [Patch.of(patch, patch.path) for patch in patches])
