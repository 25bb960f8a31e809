"""What was written, opened again and compared with the bytes that were read from the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorkeep.digests import new_hasher
from tensorkeep.errors import IntegrityError, TensorkeepError
from tensorkeep.exporting._content import WatchedTensor, described
from tensorkeep.exporting._format import Plan
from tensorkeep.kinds import OpenOptions, Place
from tensorkeep.kinds.registry import find_kind
from tensorkeep.tensors import LazyTensor


def compare(path: str, tensors: Mapping[str, WatchedTensor], plan: Plan, on_read: Callable[[int], None]) -> None:
    """Refuse a file in which the reader of its format does not find every tensor as it was."""
    try:
        with find_kind(Place(path, backend="pread")).open(OpenOptions(backend="pread")) as opened:
            for name, tensor in tensors.items():
                found = opened.get(plan.names.get(name, name))
                is_encoded = name in plan.encoded
                if found is None or not (found.shape == tensor.shape if is_encoded else _is_same(found, tensor)):
                    raise _difference(name, tensor, found)
                on_read(tensor.nbytes)
    except TensorkeepError as error:
        raise IntegrityError(
            "what was written cannot be read back, so it was not published",
            tensor=error.tensor,
            found=str(error.with_fields(path=None)),
            hint="If the disk is sound, this is a bug of tensorkeep: please report it",
        ) from error


def _is_same(found: LazyTensor, tensor: WatchedTensor) -> bool:
    written = described(found)  # quantized blocks as rows of bytes
    facts = written.dtype.name, written.shape, written.nbytes
    if facts != (tensor.dtype.name, tensor.shape, tensor.nbytes):
        return False
    hasher = new_hasher()
    for buffer in written.buffers():
        hasher.update(buffer)
    return hasher.digest() == tensor.digests[-1]


def _difference(name: str, tensor: WatchedTensor, found: LazyTensor | None) -> IntegrityError:
    return IntegrityError(
        f"tensor `{name}` is not what was written",
        tensor=name,
        expected=f"{tensor.dtype.name} {list(tensor.shape)}",
        found="nothing" if found is None else f"{found.dtype} {list(found.shape)}, other bytes",
    )
