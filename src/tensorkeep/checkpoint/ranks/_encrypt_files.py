"""What one rank does in files that are encrypted: it writes each of its own in one go, as only one writer can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tensorkeep.arrays import TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.checkpoint.ranks._assignments import EncryptAssignment
from tensorkeep.checkpoint.ranks._parts import Part, part_to_write
from tensorkeep.checkpoint.saving import Beat, ReservedFiles
from tensorkeep.encryption import Encryption
from tensorkeep.errors import UnsupportedError
from tensorkeep.tensors import Sealing, write_file
from tensorkeep.transport import ByteRange, ByteSource, Reserved, ReservedFile


def encrypt_files(
    parts: Sequence[Part],
    assigned: EncryptAssignment,
    own: Mapping[str, Mapping[str, TensorToWrite]],
    encryption: Encryption,
    *,
    durable: bool,
    beat: Beat,
) -> dict[str, bytes]:
    """Write the files of this rank, and return the header of each, which the first rank writes last.

    `own` has what the first rank got with values that are not tensors, by file.
    """
    heads: dict[str, bytes] = {}
    with ReservedFiles(tuple(assigned.reserved.values()), beat, durable=durable) as files:
        for number, (file, reserved) in enumerate(assigned.reserved.items()):
            of_rank = {name: part_to_write(parts, item, beat) for name, item in assigned.files[file].items()}
            with files.using(number) as opened:
                heads[file] = write_file(
                    _BehindHeader(opened, reserved),
                    {**own.get(file, {}), **of_rank},
                    assigned.metadata,
                    sealing=Sealing(assigned.index_file, encryption, file),
                    arrangement=assigned.arrangement,
                )
        files.sync()
    return heads


def refuse_other_key(expected: str | None, encryption: Encryption | None) -> None:
    """Refuse to write with another key than the first rank, or with none, before anything is written."""
    own = None if encryption is None else encryption.key.id
    if own != expected:
        raise UnsupportedError(
            "ranks that save together have different keys",
            expected="no key" if expected is None else f"the key with the id {expected}",
            found="no key" if own is None else own,
            hint="Pass the same encrypt= on all ranks",
        )


class _BehindHeader:
    """A `ByteSink` for a reserved file that leaves out its header: until that comes, the file has a mark there."""

    def __init__(self, file: ReservedFile, reserved: Reserved) -> None:
        self._file = file
        self._nbytes = reserved.nbytes
        self._path = reserved.path
        self._written = 0

    def preallocate(self, nbytes: int) -> None:
        """Compare the size."""
        if nbytes != self._nbytes:
            raise UnsupportedError(
                "ranks that save together do not encrypt in the same way",
                path=self._path,
                expected=f"{self._nbytes:,} bytes",
                found=f"{nbytes:,}",
                hint="Pass the same encrypt= on all ranks",
            )

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers; the first is the header."""
        for buffer in buffers:
            if self._written:
                self._file.write(self._written, memoryview(buffer))
            self._written += memoryview(buffer).nbytes

    def rewrite(self, offset: int, data: Buffer) -> None:
        """Do nothing: the first rank writes the header."""

    def copy_from(self, source: ByteSource, span: ByteRange) -> None:
        """Append bytes of a source."""
        self.write(source.pieces(span))
