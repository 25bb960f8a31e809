"""What callers want of an open or a load: made once at the public door, and handed on whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from tensorkeep.arrays import DEFAULT_FRAMEWORK
from tensorkeep.errors import UnsupportedError
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.state import Classes
from tensorkeep.tensors import Selector, Ties
from tensorkeep.transport import Backend

if TYPE_CHECKING:
    from tensorkeep.formats.pickles import Dangerous, PickleLimits


class OpenOptions(msgspec.Struct, frozen=True):
    """How something is opened; see `tensorkeep.open`.

    Attributes:
        framework: The array library that tensors come out in.
        device: Where they go.
        backend: How local files are read.
        check: Whether headers are compared with the digests that were saved.
        max_header_nbytes: Longest header of a single file that is accepted, in bytes.
        verify: Whether bytes are checked against their checksums when tensors are read, or else at once.
        variant: Which checkpoint of a directory, such as `"fp16"`.
        strict: Whether files may hold nothing but tensors and plain data.
        dangerous: What to do with names in a pickle that could only do harm.
        limits: What a pickle may cost; None for the usual bounds.
    """

    framework: str = DEFAULT_FRAMEWORK
    device: Any = "cpu"
    backend: Backend = "auto"
    check: bool = True
    max_header_nbytes: int = MAX_HEADER_NBYTES
    verify: bool = False
    variant: str | None = None
    strict: bool = False
    dangerous: Dangerous = "refuse"
    limits: PickleLimits | None = None


class LoadOptions(msgspec.Struct, frozen=True):
    """What is loaded of something that is open, and how; see `tensorkeep.load`.

    Attributes:
        only: Which parts; all if None.
        classes: Classes that may be made again.
        ties: What to do with tensors that shared memory.
        framework: The array library that all tensors come out in; None for the one that they were saved from.
        device: Where tensors go.
    """

    only: Selector | Iterable[Selector] | None = None
    classes: Classes = ()
    ties: Ties = "share"
    framework: str | None = None
    device: Any = "cpu"

    def refuse_ties(self) -> None:
        """Refuse any other treatment of shared memory than the one in which a kind can be loaded."""
        self._refuse(self.ties != "share")

    def refuse_parts(self) -> None:
        """Refuse to load less than the whole."""
        self._refuse(self.only is not None or self.ties != "share")

    def _refuse(self, is_refused: bool) -> None:
        if is_refused:
            raise UnsupportedError(
                "a file of pickles is loaded as a whole, with the ties that it has",
                expected="neither only= nor another ties=",
                hint="Convert it to safetensors first, or open it and load the tensors that you need by name",
            )
