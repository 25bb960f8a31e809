"""`.pt2`: the weights of a program as lazy tensors; tied ones share their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from tensorkeep.arrays import Extent
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats import TensorPlace
from tensorkeep.formats.pt2 import ProgramContents, is_pt2, parse_pt2
from tensorkeep.kinds.base import FlatFile, Kind, LeftOut, Place, StoredView, file_kind

_NAME: Final = "a program of torch.export"


class ProgramFile(FlatFile):
    """An open `.pt2` file: a mapping of name to `LazyTensor`. The program is not run, compiled code not loaded."""

    _contents: ProgramContents

    def views(self) -> Mapping[str, StoredView]:
        """Return where each tensor is stored: tied weights and views of one buffer share bytes."""
        return {name: _view(self.path, place) for name, place in self._contents.tensors.items() if prod(place.shape)}

    def left_out(self) -> list[LeftOut]:
        """Return the programs, and objects that were not built."""
        programs = self._contents.programs.items()
        return [*super().left_out(), *(LeftOut(path, self.path, what, is_data=True) for path, what in programs)]

    @property
    def is_replaceable(self) -> bool:
        """False: a safetensors file cannot hold a program."""
        return False


def _view(path: str, place: TensorPlace) -> StoredView:
    strides = place.strides or ()
    steps = [(extent, stride) for extent, stride in zip(place.shape, strides, strict=True) if extent > 1]
    n_covered = 1 + sum((extent - 1) * stride for extent, stride in steps)
    extent = Extent(path, place.start, place.start + ALL_BY_NAME[place.dtype].nbytes(n_covered))
    return StoredView((path, place.dtype, place.start, place.shape, *steps), extent)


PT2: Final[Kind[Place]] = file_kind(
    _NAME, parse_pt2, suffixes=(".pt2",), magic=b"PK\x03\x04", is_one=is_pt2, opens=ProgramFile
)
