"""The facts of one tensor: its place, digest and marks. Nothing is read."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.kinds import Opened
from tensorkeep.tensors import LazyTensor
from tensorkeep.texts import shortened
from tensorkeep.viewing._json import number

_MAX_CHARS: Final = 1000


def tensor_facts(of: str, t: int, lazy: LazyTensor, opened: Opened, places: dict[str, int]) -> dict[str, Any]:
    """Return what is known of a tensor from headers."""
    alias = opened.aliases.get(lazy.name)
    source, digest = lazy.source, lazy.digest
    span = lazy.span if any(source is each for each in opened.sources.values()) else None  # else not of its file
    return {
        "of": of,
        "t": t,
        "name": lazy.name,
        "dtype": lazy.dtype,
        "shape": [number(extent) for extent in lazy.shape],
        "n_elements": number(lazy.n_elements),
        "nbytes": lazy.nbytes,
        "file": opened.shard_of(lazy.name),
        "span": None if span is None else (span.start, span.stop),
        "digest": None if digest is None else digest.hex(),
        "is_quantized": lazy.is_quantized,
        "library": lazy.library,
        "marks": [(name, shortened(str(value), _MAX_CHARS)) for name, value in lazy.marks.items()],
        "view_of": None if alias is None else places.get(alias.of),
        "note": "" if alias is None else f"= {alias.of}" if alias.is_whole else f"view of {alias.of}",
        "pieces": list(opened.splits.get(lazy.name, ())),
    }
