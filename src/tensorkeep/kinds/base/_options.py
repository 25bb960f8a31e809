"""Options of an open or a load, made once by the public function and passed on whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tensorkeep.arrays import DEFAULT_FRAMEWORK
from tensorkeep.encryption import Keys
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.parallel import Progress
from tensorkeep.state import Classes
from tensorkeep.tensors import Selector, Ties
from tensorkeep.transport import Backend

if TYPE_CHECKING:
    from tensorkeep.formats.pickles import Dangerous, PickleLimits
    from tensorkeep.trust import Proof


class OpenOptions(msgspec.Struct, frozen=True):
    """How something is opened; see `tensorkeep.open`.

    Attributes:
        framework: The array library for tensors.
        device: The device for tensors.
        backend: How to read local files.
        check: Whether to compare headers with their saved digests.
        max_header_nbytes: Longest header to accept, in bytes, for a single file.
        verify: Whether to compare tensors with their checksums when they are read or, for some kinds, on opening.
        variant: Which checkpoint of a directory, such as `"fp16"`.
        strict: Whether to refuse files that hold anything but tensors and plain data.
        dangerous: What to do with names in a pickle that could only do harm.
        limits: Bounds on what a pickle may cost; None for the defaults.
        engine: The library that reads the files instead of tensorkeep, if the kind has one by this name.
        dtypes: Name or shell pattern of tensors whose file does not say their dtype, to their dtype.
        proof: What was signed; None to open whatever there is.
        keys: Keys for what is encrypted; None for keys that the environment has.
        lazily: Whether a file in which single tensors can be found may be opened before all of it is read.
        as_stored: Whether encrypted files are opened as what they are without a key: files of one tensor of bytes.
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
    engine: str | None = None
    dtypes: Mapping[str, Any] = {}
    proof: Proof | None = None
    keys: Keys | None = None
    lazily: bool = False
    as_stored: bool = False

    @property
    def checks_reads(self) -> bool:
        """Whether what is read is compared with its digest."""
        return self.verify or self.proof is not None


class LoadOptions(msgspec.Struct, frozen=True):
    """What to load, and how; see `tensorkeep.load`.

    Attributes:
        only: Which parts; all if None.
        classes: Classes that may be rebuilt.
        ties: What to do with tensors that shared memory.
        framework: The array library for all tensors; None for the one that each was saved from.
        device: The device for tensors.
        device_map: The device of each tensor, by its name or a prefix; None to use `device`.
        dequantize: Dtype for the numbers of quantized tensors; None to refuse such tensors.
        uses_device: Whether a device is an error if no tensor can go there.
        progress: Called with the bytes loaded so far and the total.
    """

    only: Selector | Iterable[Selector] | None = None
    classes: Classes = ()
    ties: Ties = "share"
    framework: str | None = None
    device: Any = "cpu"
    device_map: Mapping[str, Any] | None = None
    dequantize: Any = None
    uses_device: bool = True
    progress: Progress | None = None
