"""The values of arrays in a database (OCDBT)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tensorkeep.errors import FormatError, SourceMissingError, TensorkeepError
from tensorkeep.formats.ocdbt import MAX_MANIFEST_NBYTES, Location, Manifest, newest_of, parse_manifest, read_database
from tensorkeep.kinds.orbax._directory import MANIFEST, read_file
from tensorkeep.kinds.orbax._values import ValueFiles
from tensorkeep.transport import Backend, ByteRange, join, list_names


class DatabaseStore:
    """See `tensorkeep.formats.zarr.ZarrStore`. All keys are read when it is opened.

    Attributes:
        source: The bytes of all values.
    """

    def __init__(self, directory: str, backend: Backend) -> None:
        self._arguments = (directory, backend)
        self.source = ValueFiles(directory, backend)
        try:
            self._manifests, manifest = _manifests_in(directory)
            self._spans = self._placed(read_database(manifest, self._fetch, directory))
        except BaseException:
            self.source.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return DatabaseStore, self._arguments

    def _fetch(self, places: Sequence[Location]) -> list[bytes]:
        data = [bytearray(len(span)) for _, span in places]
        starts = [self.source.span_in(*place).start for place in places]
        self.source.read_into((start, memoryview(into)) for start, into in zip(starts, data, strict=True))
        return list(map(bytes, data))

    def _placed(self, values: dict[bytes, bytes | Location]) -> dict[str, ByteRange]:
        """Return where each value is in the source; those within nodes become a file in memory."""
        spans: dict[str, ByteRange] = {}
        inline: list[bytes] = []
        at = 0
        for key, value in values.items():
            place = value
            if isinstance(value, bytes):
                inline.append(value)
                place = "", ByteRange(at, at + len(value))
                at += len(value)
            try:
                spans[key.decode()] = self.source.span_in(*place)
            except UnicodeDecodeError:
                raise FormatError(
                    "a key of the database is not text", path=self.source.name, found=repr(key)
                ) from None
        self.source.keep(b"".join(inline))
        self._n_inline = at
        return spans

    @property
    def file_names(self) -> list[str]:
        """All files of the database that are needed, as paths below the directory."""
        return [*self._manifests, *self.source.file_names]

    @property
    def n_keys(self) -> int:
        """How many keys there are."""
        return len(self._spans)

    def find(self, key: str) -> ByteRange | None:
        """Return where a value is in the source; None if there is no such key."""
        return self._spans.get(key)

    def keys_below(self, name: str) -> Iterator[str]:
        """Yield all keys that begin with a name and a slash."""
        return (key for key in self._spans if key.startswith(f"{name}/"))

    def names_with(self, suffix: str) -> list[str]:
        """Return what is before a suffix in all keys that have it."""
        return [key.removesuffix(suffix) for key in self._spans if key.endswith(suffix)]

    def look_up(self, keys: Iterable[str]) -> None:
        """Do nothing: each is found at once."""

    def stored_nbytes(self, keys: Iterable[str]) -> int:  # noqa: ARG002
        """Return the bytes of all files."""
        return self.source.stored_nbytes()

    def is_checked(self, span: ByteRange) -> bool:
        """Say whether a value is within a node, whose checksum was right."""
        return span.stop <= self._n_inline

    @property
    def listed_nbytes(self) -> int:
        """Bytes of all values."""
        return sum(map(len, self._spans.values()))


def _manifests_in(directory: str) -> tuple[list[str], Manifest]:
    """Return the names of the manifests that lead to the newest tree, and the last of them."""
    manifest = _parsed(join(directory, MANIFEST))
    if not manifest.is_numbered:
        return [MANIFEST], manifest
    name = newest_of(list_names(directory) or ())
    if name is None:
        raise SourceMissingError("the database has no version", path=directory, expected="manifest.0000000000000001")
    return [MANIFEST, name], _parsed(join(directory, name))


def _parsed(path: str) -> Manifest:
    try:
        return parse_manifest(read_file(path, MAX_MANIFEST_NBYTES))
    except TensorkeepError as error:
        raise error.with_fields(path=path) from None
