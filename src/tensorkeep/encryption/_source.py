"""Decrypts what is read of a file: only the blocks that are touched, each read and decrypted once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, Final, NoReturn

from tensorkeep.buffers import Buffer
from tensorkeep.encryption._blocks import MAX_BLOCKS, Part, Run, runs_of
from tensorkeep.encryption._cipher import BLOCK_NBYTES, STORED_BLOCK_NBYTES, BlockCipher, stored_nbytes
from tensorkeep.encryption._key import Key
from tensorkeep.errors import EncryptedError, IntegrityError, TransportError
from tensorkeep.parallel import parallel_for_each
from tensorkeep.transport import ByteRange, ByteSource, LocalFile, MemorySource

NEEDS_KEY: Final = "Pass key= (--key-file), or set TENSORKEEP_KEY_FILE to the path of the key"
_MAX_THREADS: Final = 4
_FETCHED_AT_ONCE: Final = 16
"""Runs that are requested together of what is not on this machine: 64 MiB."""


class DecryptingSource:
    """The plain data of an encrypted file. It can be pickled if the key and the file can."""

    def __init__(self, source: ByteSource, start: int, nbytes: int, key: Key, salt: bytes) -> None:
        self.name = source.name
        self.nbytes = nbytes
        self.gap_nbytes = max(source.gap_nbytes, BLOCK_NBYTES)
        self._source: ByteSource | None = source
        self._start = start
        self._key = key
        self._salt = salt
        self._cipher = BlockCipher(key, salt, nbytes)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: the file has no plain bytes."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the plain bytes of a range."""
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the plain bytes of a range in order."""
        step = MAX_BLOCKS * BLOCK_NBYTES
        into = memoryview(bytearray(min(step, len(span))))
        start = span.start
        while start < span.stop:
            stop = min(span.stop, start // step * step + step)
            self.read_into([(start, into[: stop - start])])
            yield into[: stop - start]
            start = stop

    def read_into(self, parts: Iterable[Part]) -> None:
        """Fill buffers."""
        source = self._opened()
        kept = list(parts)
        if any(offset + into.nbytes > self.nbytes for offset, into in kept):
            raise ValueError(f"a range ends after the {self.nbytes:,} bytes of {self.name}")
        runs = list(runs_of(kept))
        if isinstance(source, LocalFile | MemorySource):
            self._read_here(source, runs)
            return
        for begin in range(0, len(runs), _FETCHED_AT_ONCE):
            self._fetch(source, runs[begin : begin + _FETCHED_AT_ONCE])

    def _read_here(self, source: ByteSource, runs: Sequence[Run]) -> None:
        """Read and decrypt runs in threads, each in memory that stays in its processor's cache."""
        most = max((len(self._span_of(run)) for run in runs), default=0)
        spare: list[memoryview] = []

        def read(run: Run) -> None:
            span = self._span_of(run)
            try:
                buffer = spare.pop()
            except IndexError:
                buffer = memoryview(bytearray(most))
            source.read_into([(span.start, buffer[: len(span)])])
            self._decrypt(run, buffer[: len(span)])
            spare.append(buffer)

        parallel_for_each(runs, read, n_threads=_n_threads())

    def _fetch(self, source: ByteSource, runs: Sequence[Run]) -> None:
        """Request the blocks of several runs together."""
        stored = [memoryview(bytearray(len(self._span_of(run)))) for run in runs]
        source.read_into([(self._span_of(run).start, into) for run, into in zip(runs, stored, strict=True)])
        pairs = list(zip(runs, stored, strict=True))
        parallel_for_each(pairs, lambda pair: self._decrypt(*pair), n_threads=_n_threads())

    def _span_of(self, run: Run) -> ByteRange:
        stop = min(run.stop * STORED_BLOCK_NBYTES, stored_nbytes(self.nbytes))
        return ByteRange(self._start + run.first * STORED_BLOCK_NBYTES, self._start + stop)

    def _decrypt(self, run: Run, stored: Buffer) -> None:
        """Decrypt each block into the memory that wants all of it, or beside it, and copy the rest from there."""
        view, spare = memoryview(stored), memoryview(bytearray(BLOCK_NBYTES))
        n_past = 0
        for number in range(run.first, run.stop):
            begin, at = number * BLOCK_NBYTES, (number - run.first) * STORED_BLOCK_NBYTES
            end = min(begin + BLOCK_NBYTES, self.nbytes)
            while _stop(run.parts[n_past]) <= begin:
                n_past += 1
            (offset, into), *others = takewhile(lambda part: part[0] < end, islice(run.parts, n_past, None))  # noqa: B023
            if offset <= begin and end <= offset + len(into):
                plain = into[begin - offset : end - offset]
            else:
                plain = spare[: end - begin]
                others.insert(0, (offset, into))
            self._decrypt_block(number, view[at : at + STORED_BLOCK_NBYTES], plain)
            for offset, into in others:
                start, stop = max(begin, offset), min(end, offset + len(into))
                if start < stop:
                    into[start - offset : stop - offset] = plain[start - begin : stop - begin]

    def _decrypt_block(self, number: int, stored: memoryview, into: memoryview) -> None:
        try:
            self._cipher.decrypt(number, stored, into)
        except IntegrityError as error:
            raise error.with_fields(path=self.name) from None

    def _opened(self) -> ByteSource:
        if self._source is None:
            raise TransportError("File is closed", path=self.name)
        return self._source

    def close(self) -> None:
        """Close the encrypted file."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return DecryptingSource, (self._opened(), self._start, self.nbytes, self._key, self._salt)


class LockedSource:
    """The plain data of an encrypted file without its key: nothing can be read."""

    gap_nbytes = BLOCK_NBYTES

    def __init__(self, name: str, nbytes: int, key: str, *, shows_names: bool) -> None:
        self.name = name
        self.nbytes = nbytes
        self._key = key
        self.shows_names = shows_names

    def require_names(self) -> None:
        """Raise an error that says which key is missing, if names are hidden as well."""
        if not self.shows_names:
            self._refuse()

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Raise an error that says which key is missing."""
        self._refuse()

    def read(self, span: ByteRange) -> Buffer:  # noqa: ARG002 - the protocol's
        """Raise an error that says which key is missing."""
        self._refuse()

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:  # noqa: ARG002 - the protocol's
        """Raise an error that says which key is missing."""
        self._refuse()

    def read_into(self, parts: Iterable[Part]) -> None:  # noqa: ARG002 - the protocol's
        """Raise an error that says which key is missing."""
        self._refuse()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _refuse(self) -> NoReturn:
        raise EncryptedError(
            "this is encrypted, and no key was given",
            path=self.name,
            expected=f"the key with the id {self._key}",
            hint=NEEDS_KEY,
        )


def _stop(part: Part) -> int:
    return part[0] + len(part[1])


def _n_threads() -> int:
    return min(_MAX_THREADS, os.cpu_count() or 1)
