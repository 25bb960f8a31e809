"""`SharedBytesFile`: a file in which tensors may share bytes, as tied weights do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from tensorkeep.arrays import Extent
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats import TensorPlace
from tensorkeep.kinds.base._convertible import StoredView
from tensorkeep.kinds.base._expansion import refuse_expansion
from tensorkeep.kinds.base._flat_file import FlatFile
from tensorkeep.parallel import Progress
from tensorkeep.tensors import c_strides


class SharedBytesFile(FlatFile):
    """An open file whose tensors may share bytes: a conversion stores these once."""

    def views(self) -> Mapping[str, StoredView]:
        """Return where each tensor is stored."""
        return {name: self._stored_view(place) for name, place in self._contents.tensors.items() if prod(place.shape)}

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse tensors much larger in total than their files, such as many views of the same bytes."""
        nbytes = sum(self[name].nbytes for name in names)
        stored_nbytes = sum(source.nbytes for source in self.sources.values())
        refuse_expansion(nbytes, stored_nbytes, self.path, "Select fewer tensors")

    def load(self, names: Iterable[str] | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
        """Read whole tensors, each into its own memory, unless they take many times the size of the file."""
        names = None if names is None else [names] if isinstance(names, str) else list(names)
        self.refuse_expanded(self if names is None else names)
        return super().load(names, progress=progress)

    def _stored_view(self, place: TensorPlace) -> StoredView:
        strides = c_strides(place.shape) if place.strides is None else place.strides
        steps = [(extent, stride) for extent, stride in zip(place.shape, strides, strict=True) if extent > 1]
        n_covered = 1 + sum((extent - 1) * stride for extent, stride in steps)
        nbytes = ALL_BY_NAME[place.dtype].nbytes(n_covered)
        storage = f"{id(place.source or self._source)}"
        extent = Extent(storage, place.start, place.start + nbytes)
        return StoredView((storage, place.dtype, place.start, place.shape, *steps), extent)
