"""The checks of a distributed checkpoint: each part of each tensor exists, and matches the CRC-32 in its archive."""

from __future__ import annotations

from tensorkeep.digests import CRC32
from tensorkeep.errors import TensorkeepError
from tensorkeep.kinds.base import Check, Checks, Finding
from tensorkeep.kinds.dcp._files import ChunkFiles, OpenedChunk
from tensorkeep.kinds.dcp._metadata import Item, SavedState
from tensorkeep.kinds.pickles import PickleFile


class PartChecks:
    """Collects the checks of tensors and values, and findings about their parts."""

    def __init__(self, state: SavedState, files: ChunkFiles) -> None:
        self._state = state
        self._files = files
        self._checks: list[Check] = []
        self._findings: list[Finding] = []
        self._n_checked = 0
        self._n_unprotected = 0

    def add_tensor(self, name: str) -> None:
        """Add the checks of all parts of a tensor."""
        parts = self._parts_of(name)
        is_protected = all(part.storage is not None for _, part in parts)
        self._n_unprotected += not is_protected
        self._n_checked += is_protected and not parts
        n_tensors = int(is_protected)  # the first part counts for the whole tensor
        for file, part in parts:
            if part.storage is not None:
                crc = part.crc.to_bytes(4, "big")
                self._checks.append(Check(file, name, self._files.sources[file], part.storage, CRC32, crc, n_tensors))
                n_tensors = 0

    def _parts_of(self, name: str) -> list[tuple[str, OpenedChunk]]:
        tensor = self._state.tensors[name]
        found = []
        for chunk in filter(lambda chunk: self.is_there(chunk.item), tensor.chunks):
            try:
                found.append((chunk.item.file, self._files.opened(name, tensor.dtype, chunk)))
            except TensorkeepError as error:
                self.add_fault(name, chunk.item, error)
        return found

    def add_value(self, file: str, value: PickleFile) -> None:
        """Add the checks of tensors in a value; the rest of its archive was checked when it was opened."""
        self._checks += [
            Check(file, check.tensor, check.source, check.span, check.algorithm, check.expected, n_tensors=0)
            for check in value.checks().checks
        ]

    def add_fault(self, name: str, item: Item, error: TensorkeepError) -> None:
        """Record what is wrong with a part or a value."""
        span, facts = (item.start, item.stop), {"expected": error.expected, "found": error.found}
        self._findings.append(Finding("header", f"`{name}`: {error.message}", item.file, name, span, **facts))

    def is_there(self, item: Item) -> bool:
        """Whether the file exists and is long enough; if not, there is already a finding."""
        source = self._files.sources.get(item.file)
        return source is not None and item.stop <= source.nbytes

    def result(self, before: list[Finding], n_files: int) -> Checks:
        """Return all checks, with the earlier findings `before`."""
        return Checks(
            self._checks,
            [*before, *self._findings],
            self._n_unprotected,
            self._n_checked,
            n_files=n_files,
            n_tensors=len(self._state.tensors),
        )
