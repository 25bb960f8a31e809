"""`.tensors`: opened by the index alone; the headers of tensors, which have the hashes, are read to verify."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tensorkeep.errors import FormatError
from tensorkeep.formats.tensorizer import MAGIC, HeaderSum, TensorizerContents, parse_tensorizer, read_sums
from tensorkeep.kinds.base import Check, Checks, Finding, FlatFile, Kind, Place, file_kind, names_to_check
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource, MemorySource


class TensorizerFile(FlatFile):
    """An open file of tensorizer: a mapping of name to `LazyTensor`. Parts of nested names are joined by dots."""

    _contents: TensorizerContents

    @property
    def empty(self) -> tuple[str, ...]:
        """Names of tensors without data (device meta)."""
        return self._contents.empty

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the SHA-256 or CRC-32 of tensors, each of its header and its elements together."""
        chosen = list(self) if names is None else names_to_check(names, self, self.path)
        stored = self._contents.stored
        file = next(iter(self.sources))
        checks: list[Check] = []
        findings: list[Finding] = []
        n_unprotected = 0
        for name, found in read_sums(self._source, {name: stored[name] for name in chosen}):
            if isinstance(found, FormatError):
                findings.append(Finding("data", found.message, shard=file, tensor=name))
            elif found is None:
                n_unprotected += 1
            else:
                span = ByteRange(stored[name].header.start, stored[name].header.stop + stored[name].nbytes)
                checks.append(
                    Check(file, name, _with_zeros(self._source, found), span, found.algorithm, found.expected)
                )
        return Checks(
            checks, findings, n_unprotected, n_checked=len(findings), n_files=len(self.sources), n_tensors=len(self)
        )


def _with_zeros(source: ByteSource, found: HeaderSum) -> ByteSource:
    """Return the file with zeros in place of hashes, as it was when they were computed."""
    parts: list[tuple[ByteSource, ByteRange]] = []
    start = 0
    for span in found.zeros:
        parts += [(source, ByteRange(start, span.start)), (MemorySource(bytes(len(span))), ByteRange(0, len(span)))]
        start = span.stop
    return JoinedSource([*parts, (source, ByteRange(start, source.nbytes))], source.name)


TENSORIZER: Final[Kind[Place]] = file_kind(
    "a file of tensorizer",
    parse_tensorizer,
    suffixes=(".tensors",),
    magic=MAGIC,
    opens=TensorizerFile,
    only_tensors=True,
)
