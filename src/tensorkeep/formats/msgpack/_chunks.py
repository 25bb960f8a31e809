"""Arrays over a gigabyte, which Flax cuts into chunks: a dict of them becomes one array in several ranges. Pure."""

from __future__ import annotations

from math import prod
from typing import Any

from tensorkeep.errors import FormatError
from tensorkeep.formats.msgpack._values import Array
from tensorkeep.limits import MAX_I64


def unchunked(record: dict[str, Any], name: str) -> Array:
    """Return the array that a dict of chunks is."""
    shape, chunks = _items(record.get("shape")), _items(record.get("chunks"))
    if shape is None or chunks is None:
        raise _fault(name, "a shape and chunks, each numbered from 0", ", ".join(map(str, record))[:200])
    if not all(type(extent) is int and 0 <= extent <= MAX_I64 for extent in shape):
        raise _fault(name, "a shape of counts", f"{shape!r:.200}")
    arrays = [chunk for chunk in chunks if type(chunk) is Array]
    dtypes = {chunk.dtype for chunk in arrays}
    if len(arrays) != len(chunks) or len(dtypes) != 1 or any(len(chunk.shape) != 1 for chunk in arrays):
        raise _fault(name, "chunks of one dtype, with one dimension", f"{len(chunks):,} others")
    n_elements = sum(chunk.shape[0] for chunk in arrays)
    if n_elements != prod(shape):
        raise _fault(name, f"chunks of {prod(shape):,} elements together", f"{n_elements:,}")
    return Array(dtypes.pop(), tuple(shape), tuple(span for chunk in arrays for span in chunk.spans))


def _items(numbered: Any) -> list[Any] | None:
    """Return the items of what was a tuple: a dict with the keys "0", "1" and so on."""
    if type(numbered) is not dict or any(str(place) not in numbered for place in range(len(numbered))):
        return None
    return [numbered[str(place)] for place in range(len(numbered))]


def _fault(name: str, expected: str, found: str) -> FormatError:
    return FormatError("an array in chunks does not fit together", tensor=name, expected=expected, found=found)
