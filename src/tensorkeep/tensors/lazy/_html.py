"""Lazy tensors as HTML for notebooks: names, dtypes, shapes and sizes; nothing is read. Pure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from tensorkeep.arrays import ArrayT
from tensorkeep.markup import Markup, folded, page, table
from tensorkeep.tensors.lazy._dir import names_for_people
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.texts import counted, shape_text, size_text
from tensorkeep.texts import share_text as share

_OPEN_UP_TO: Final = 20
"""Tensors up to which the table is open."""


class ShownTensors(Mapping[str, LazyTensor[ArrayT]]):
    """What notebooks show of lazy tensors by name, and complete."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The path or URL."""

    @property
    @abstractmethod
    def metadata(self) -> dict[str, str]:
        """The metadata."""

    def _repr_html_(self) -> str:
        return tensors_html(self.path, [type(self).__name__], self, self.metadata)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __dir__(self) -> list[str]:
        return names_for_people(super().__dir__())


def tensors_html(
    title: str, facts: Iterable[str], tensors: Mapping[str, LazyTensor], metadata: Mapping[str, str], *more: Markup
) -> Markup:
    """Return lazy tensors by name: a list of the first, sums by dtype, and metadata."""
    counts: dict[str, tuple[int, int]] = {}
    nbytes = 0
    for lazy in tensors.values():
        n, n_bytes = counts.get(lazy.dtype, (0, 0))
        counts[lazy.dtype] = n + 1, n_bytes + lazy.nbytes
        nbytes += lazy.nbytes
    largest_first = sorted(counts.items(), key=lambda item: -item[1][1])
    by_dtype = [f"{n:,} {dtype} ({size_text(n_bytes)})" for dtype, (n, n_bytes) in largest_first]
    summary = f"{counted(len(tensors), 'tensor')}, {size_text(nbytes)}" + (f": {', '.join(by_dtype[:8])}")
    parts = [folded(summary, _table(tensors.items(), len(tensors), nbytes), is_open=len(tensors) <= _OPEN_UP_TO)]
    if metadata:
        rows = table(("key", "text"), metadata.items(), len(metadata))
        parts.append(folded(f"metadata: {', '.join(islice(metadata, 5))}", rows))
    return page(title, facts, *parts, *more)


def _table(tensors: Iterable[tuple[str, LazyTensor]], n: int, nbytes: int) -> Markup:
    rows = (
        (name, lazy.dtype, shape_text(lazy.shape), size_text(lazy.nbytes), share(lazy.nbytes, nbytes))
        for name, lazy in tensors
    )
    return table(("name", "dtype", "shape", "size", "share"), rows, n, numbers=(3, 4))
