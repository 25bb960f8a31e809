"""The values of arrays in files of their own, on servers and in stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from tensorkeep.errors import AccessDeniedError, LimitError, SourceMissingError, UnsupportedError
from tensorkeep.kinds.orbax._values import ValueFiles
from tensorkeep.limits import MAX_DATABASE_KEYS
from tensorkeep.parallel import parallel_for_each
from tensorkeep.transport import Backend, ByteRange, sizes_below

_N_ASKED_AT_ONCE: Final = 64


class ServedStore:
    """See `tensorkeep.formats.zarr.ZarrStore`. Files are listed at once, or asked for one by one where none are.

    Attributes:
        source: The bytes of all values.
    """

    def __init__(self, directory: str, backend: Backend) -> None:
        self._arguments = (directory, backend)
        self.source = ValueFiles(directory, backend)
        listed = sizes_below(directory)
        self._is_listed = listed is not None
        self._sizes: dict[str, int | None] = {**(listed or {})}
        if len(self._sizes) > MAX_DATABASE_KEYS:
            raise LimitError("there are too many files", path=directory, expected=f"at most {MAX_DATABASE_KEYS:,}")

    def __reduce__(self) -> tuple[Any, ...]:
        return ServedStore, self._arguments

    @property
    def file_names(self) -> list[str]:
        """All files, as paths below the directory; empty if nothing is listed."""
        return sorted(self._sizes) if self._is_listed else []

    @property
    def n_keys(self) -> int:
        """How many keys there are at most."""
        return len(self._sizes) if self._is_listed else MAX_DATABASE_KEYS

    def find(self, key: str) -> ByteRange | None:
        """Return where a value is in the source; None if there is no such key."""
        self.look_up([key])
        nbytes = self._sizes.get(key)
        return None if nbytes is None else self.source.span_in(key, ByteRange(0, nbytes))

    def look_up(self, keys: Iterable[str]) -> None:
        """Ask for many files at once; `find` knows them from then on."""
        if not self._is_listed:
            unknown = [key for key in keys if key not in self._sizes]
            parallel_for_each(unknown, self._ask_for, n_threads=self.source.n_threads)

    def _ask_for(self, key: str) -> None:
        try:
            self._sizes[key] = self.source.size_of(key)
        except (SourceMissingError, AccessDeniedError):  # buckets that may not be listed deny access to missing files
            self._sizes[key] = None

    def keys_below(self, name: str) -> Iterator[str]:
        """Yield all keys that begin with a name and a slash."""
        return (key for key in self._all() if key.startswith(f"{name}/"))

    def names_with(self, suffix: str) -> list[str]:
        """Return what is before a suffix in all keys that have it."""
        return [key.removesuffix(suffix) for key in self._all() if key.endswith(suffix)]

    def _all(self) -> Iterable[str]:
        if not self._is_listed:
            raise UnsupportedError(
                "the server does not list the files of the checkpoint, and nothing else says which there are",
                path=self.source.name,
                hint="Copy the whole directory to this machine first",
            )
        return self._sizes

    def stored_nbytes(self, keys: Iterable[str]) -> int:
        """Return the bytes of all files, or of the ones with these keys."""
        rest = iter(() if self._is_listed else keys)
        while batch := list(islice(rest, _N_ASKED_AT_ONCE)):
            self.look_up(batch)
            if not any(map(self._sizes.get, batch)):  # more may be declared than anybody can ask for
                break
        return self.listed_nbytes

    @property
    def listed_nbytes(self) -> int:
        """Bytes of all files that are known."""
        return sum(filter(None, self._sizes.values()))

    def is_checked(self, span: ByteRange) -> bool:  # noqa: ARG002
        """Return False: nothing has a checksum."""
        return False
