"""`.pt2`: the weights of a program as lazy tensors; tied ones share their bytes."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.pt2 import ProgramContents, is_pt2, parse_pt2
from tensorkeep.kinds.base import Kind, LeftOut, Place, SharedBytesFile, file_kind

_NAME: Final = "a program of torch.export"


class ProgramFile(SharedBytesFile):
    """An open `.pt2` file: a mapping of name to `LazyTensor`. The program is not run, compiled code not loaded."""

    _contents: ProgramContents

    def left_out(self) -> list[LeftOut]:
        """Return the programs, and objects that were not built."""
        programs = self._contents.programs.items()
        return [*super().left_out(), *(LeftOut(path, self.path, what, is_data=True) for path, what in programs)]

    @property
    def is_replaceable(self) -> bool:
        """False: a safetensors file cannot hold a program."""
        return False


PT2: Final[Kind[Place]] = file_kind(
    _NAME, parse_pt2, suffixes=(".pt2",), magic=b"PK\x03\x04", is_one=is_pt2, opens=ProgramFile
)
