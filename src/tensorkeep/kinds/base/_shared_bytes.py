"""`SharedBytesFile`: a file in which tensors may share bytes, as tied weights do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from tensorkeep.arrays import Extent
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats import TensorPlace
from tensorkeep.kinds.base._checks import Checks
from tensorkeep.kinds.base._convertible import StoredView
from tensorkeep.kinds.base._expansion import refuse_expansion
from tensorkeep.kinds.base._flat_file import FlatFile
from tensorkeep.limits import MAX_EXPANDED_NBYTES
from tensorkeep.parallel import Progress
from tensorkeep.tensors import c_strides
from tensorkeep.transport import ByteSource


class SharedBytesFile(FlatFile):
    """An open file whose tensors may share bytes: a conversion stores these once."""

    def views(self) -> Mapping[str, StoredView]:
        """Return where each tensor is stored."""
        places = self._contents.tensors.items()
        return {
            name: self._stored_view(place)
            for name, place in places
            if prod(place.shape) and place.dtype in ALL_BY_NAME
        }

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse tensors much larger in total than their files, such as many views of the same bytes."""
        tensors = self._contents.tensors
        chosen = {name: tensors[name] for name in names if name in tensors}
        nbytes = sum(self[name].nbytes for name in chosen)
        if nbytes <= MAX_EXPANDED_NBYTES:
            return
        sources = list(self.sources.values())
        read_nbytes = 0
        for name, place in chosen.items():
            if place.chunks is None:
                sources.append(place.source or self._source)
                read_nbytes += self[name].nbytes
            else:
                sources.append(place.chunks.source)
                read_nbytes += sum(len(chunk.span) for chunk in place.chunks.stored().values())
        refuse_expansion(nbytes, _nbytes_of(sources), self.path, "Select fewer tensors", read_nbytes)

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the checksums in the file for some tensors or all, unless they are of the same bytes many times."""
        found = super().checks(names)
        nbytes = sum(len(check.span) for check in found.checks)
        sources = [check.source for check in found.checks if not isinstance(check.source, str)]
        refuse_expansion(nbytes, _nbytes_of([*self.sources.values(), *sources]), self.path, "Verify fewer tensors")
        return found

    def load(self, names: Iterable[str] | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
        """Read whole tensors, each into its own memory, unless they take many times the size of the file."""
        names = None if names is None else [names] if isinstance(names, str) else list(names)
        self.refuse_expanded(self if names is None else names)
        return super().load(names, progress=progress)

    def _stored_view(self, place: TensorPlace) -> StoredView:
        if place.chunks is not None:  # which several names have if they are of one dataset
            return StoredView((id(place.chunks), place.dtype, place.shape))
        strides = c_strides(place.shape) if place.strides is None else place.strides
        steps = [(extent, stride) for extent, stride in zip(place.shape, strides, strict=True) if extent > 1]
        n_covered = 1 + sum((extent - 1) * stride for extent, stride in steps)
        nbytes = ALL_BY_NAME[place.dtype].nbytes(n_covered)
        storage = f"{id(place.source or self._source)}"
        extent = Extent(storage, place.start, place.start + nbytes)
        identity = storage, place.dtype, place.is_big_endian, place.start, place.shape, *steps
        return StoredView(identity, extent)


def _nbytes_of(sources: Iterable[ByteSource]) -> int:
    """Return the size of all sources, each counted once."""
    return sum(source.nbytes for source in {id(source): source for source in sources}.values())
