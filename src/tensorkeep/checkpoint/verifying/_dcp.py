"""Whether what many ranks wrote is whole: all files, all parts of all tensors, and the sums of their archives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

from tensorkeep.errors import TensorkeepError, TensorNotFoundError
from tensorkeep.formats.pickles import DEFAULT_LIMITS
from tensorkeep.kinds import Finding, OpenOptions, Verification
from tensorkeep.kinds.dcp import ChunkFiles, DistributedLocation, Examined, Item, assembled, examine_distributed
from tensorkeep.kinds.storage_crc32 import Summed, sum_of
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import chosen_names

_MAX_THREADS: Final = 8
_OPTIONS: Final = OpenOptions(dangerous="record")


def verify_distributed(
    location: DistributedLocation,
    path: str,
    names: Iterable[str] | None,
    progress: Callable[[int, int], None] | None,
) -> Verification:
    """Check that all parts are there, are what is told of them, and sum to what torch's archives say."""
    with ExitStack() as opened:
        found = examine_distributed(location, opened, _OPTIONS)
        chosen = _chosen(found, names, path)
        findings = [
            Finding(
                "missing" if fault.expected is None else "truncated",
                fault.message,
                fault.file,
                expected=fault.expected,
                found=fault.found,
            )
            for fault in found.faults
        ]
        parts = _Parts(found, location.directory)
        for name in chosen:
            parts.look_at(name)
        if names is None:
            parts.look_at_values()
        meter = ProgressMeter(progress, sum(len(summed.span) for _, summed in parts.summed))
        n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(parts.summed))
        checked = parallel_map(lambda part: _check(*part, meter), parts.summed, n_threads=n_threads, meter=meter)
        findings += [*parts.findings, *filter(None, checked)]
        return Verification(
            path=path,
            findings=tuple(findings),
            n_shards=len(found.files) + sum(fault.expected is None for fault in found.faults),
            n_tensors=len(found.state.tensors),
            n_checked=len(chosen) - len(parts.unprotected),
            n_unprotected=len(parts.unprotected),
            nbytes_checked=sum(len(summed.span) for _, summed in parts.summed),
            n_sha256=0,
        )


def _chosen(found: Examined, names: Iterable[str] | None, path: str) -> list[str]:
    tensors = found.state.tensors
    if names is None:
        return list(tensors)
    chosen: dict[str, None] = {}
    for name in [names] if isinstance(names, str) else names:
        matches = [name] if name in tensors else chosen_names(tensors, [name])
        if not matches:
            raise TensorNotFoundError(f"the checkpoint has no tensor {name}", path=path, tensor=name)
        chosen |= dict.fromkeys(matches)
    return list(chosen)


class _Parts:
    """The parts of tensors that were looked at.

    Attributes:
        findings: What is wrong.
        summed: File, and storage of a part that has a sum.
        unprotected: Tensors of which some part has none.
    """

    def __init__(self, found: Examined, path: str) -> None:
        self._found = found
        self._path = path
        self._files = ChunkFiles(found.files, DEFAULT_LIMITS)
        self.findings: list[Finding] = []
        self.summed: list[tuple[str, Summed]] = []
        self.unprotected: list[str] = []

    def look_at(self, name: str) -> None:
        """Look at a tensor: whether its parts are all of it, and each is in its file."""
        tensor = self._found.state.tensors[name]
        try:
            assembled(name, self._found.state, self._files, self._path, _OPTIONS)
        except TensorkeepError as error:
            file = tensor.chunks[0].item.file if tensor.chunks else os.path.basename(self._path)
            self.findings.append(Finding("absent", error.message, file, name, found=error.found))
        has_sums = True
        for chunk in tensor.chunks:
            if not self._is_there(chunk.item):
                continue
            try:
                opened = self._files.opened(name, tensor.dtype, chunk)
            except TensorkeepError as error:
                span = (chunk.item.start, chunk.item.stop)
                self._note(chunk.item.file, name, span, error)
                continue
            if opened.storage is None:
                has_sums = False
            else:
                source = self._found.files[chunk.item.file]
                self.summed.append((chunk.item.file, Summed(name, source, opened.storage, opened.crc)))
        if not has_sums:
            self.unprotected.append(name)

    def look_at_values(self) -> None:
        """Look at values that are no tensors, whose archives' sums are checked when they are read."""
        for name, item in self._found.state.values.items():
            if self._is_there(item):
                try:
                    self._files.value(item, _OPTIONS)
                except TensorkeepError as error:
                    self._note(item.file, name, (item.start, item.stop), error)

    def _is_there(self, item: Item) -> bool:
        """Say whether a file reaches as far as is told; where it does not, that is a finding already."""
        source = self._found.files.get(item.file)
        return source is not None and item.stop <= source.nbytes

    def _note(self, file: str, name: str, span: tuple[int, int], error: TensorkeepError) -> None:
        message = f"`{name}`: {error.message}"
        self.findings.append(Finding("header", message, file, name, span, expected=error.expected, found=error.found))


def _check(file: str, summed: Summed, meter: ProgressMeter) -> Finding | None:
    span = (summed.span.start, summed.span.stop)
    try:
        found = sum_of(summed, meter)
    except TensorkeepError as error:
        return Finding("unreadable", f"tensor `{summed.tensor}` cannot be read: {error}", file, summed.tensor, span)
    if found == summed.crc:
        return None
    return Finding(
        "data",
        f"the bytes of tensor `{summed.tensor}` are not those that were saved",
        file,
        summed.tensor,
        span,
        expected=f"CRC-32 {summed.crc:#010x}",
        found=f"{found:#010x}",
    )
