"""How the chunks of an array are stored: under which keys, in which bytes, compressed or not, in shards. Pure.

What tensorkeep does not read is no error yet: an array can be listed without its chunks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError

_CHECKSUM: Final = "crc32c"
_ZSTD: Final = "zstd"


class Shard(msgspec.Struct, frozen=True):
    """What is under one key if that is several chunks.

    Attributes:
        shape: Elements along each dimension.
        is_index_first: Whether the index of its chunks is before them.
        has_checksum: Whether a CRC-32C follows the index.
    """

    shape: tuple[int, ...]
    is_index_first: bool = False
    has_checksum: bool = True


class Coding(msgspec.Struct, frozen=True):
    """How chunks are stored.

    Attributes:
        key: What the keys of chunks begin with, such as `"c/"`.
        separator: What is between the numbers of a key.
        lone_key: The key of the only chunk of an array without dimensions.
        is_big_endian: Whether elements have their highest byte first.
        is_compressed: Whether chunks are compressed with Zstandard.
        has_checksum: Whether a CRC-32C follows each chunk.
        shard: What is under one key; None for a single chunk.
        is_filled_with_zeros: Whether zeros are in place of chunks that are not stored.
        unread: What tensorkeep does not read; None if it reads all of it.
    """

    key: str = ""
    separator: str = "."
    lone_key: str = "0"
    is_big_endian: bool = False
    is_compressed: bool = False
    has_checksum: bool = False
    shard: Shard | None = None
    is_filled_with_zeros: bool = True
    unread: str | None = None

    def key_of(self, name: str, place: Iterable[int]) -> str:
        """Return the key of a chunk of an array, or of a shard, by its place among them."""
        numbers = self.separator.join(map(str, place))
        return f"{name}/{self.key}{numbers}" if numbers else f"{name}/{self.lone_key}"


class Codec(msgspec.Struct):
    """One step of how a chunk becomes bytes, in version 3."""

    name: str
    configuration: dict[str, Any] = {}


class _Sharding(msgspec.Struct):
    chunk_shape: tuple[int, ...]
    codecs: list[Codec]
    index_codecs: list[Codec] = []
    index_location: str = "end"


class KeyEncoding(msgspec.Struct):
    """How the keys of chunks are made, in version 3."""

    name: str = "default"
    configuration: dict[str, Any] = {}


def coding_of_version_2(
    dtype: str, order: str, separator: str, compressor: dict[str, Any] | None, filters: Any, fill: Any
) -> Coding:
    """Return how chunks are stored, from the metadata of version 2."""
    _check_separator(separator)
    name = None if compressor is None else str(compressor.get("id"))
    unread = None
    if name not in {None, _ZSTD}:
        unread = f"chunks compressed with {name!r:.100}"
    elif filters or order != "C":
        unread = "chunks in column-major order" if not filters else f"filters of chunks: {filters!r:.100}"
    return Coding(
        separator=separator,
        is_big_endian=dtype.startswith(">"),
        is_compressed=name == _ZSTD,
        is_filled_with_zeros=not fill,
        unread=unread,
    )


def coding_of_version_3(
    codecs: list[Codec], keys: KeyEncoding, shape: tuple[int, ...], fill: Any
) -> tuple[Coding, tuple[int, ...]]:
    """Return how chunks are stored, from the metadata of version 3, and the shape of what can be read alone."""
    is_default = keys.name == "default"
    separator = keys.configuration.get("separator", "/" if is_default else ".")
    _check_separator(separator)
    sharding = next((codec for codec in codecs if codec.name == "sharding_indexed"), None)
    if sharding is None:
        shard, inner = None, shape
    else:
        found = _sharding(sharding)
        shard = Shard(shape, found.index_location == "start", any(c.name == _CHECKSUM for c in found.index_codecs))
        inner = found.chunk_shape
    steps = codecs if sharding is None else _sharding(sharding).codecs
    coding = Coding(
        key=f"c{separator}" if is_default else "",
        separator=separator,
        lone_key="c" if is_default else "0",
        is_big_endian=any(step.configuration.get("endian") == "big" for step in steps),
        is_compressed=any(step.name == _ZSTD for step in steps),
        has_checksum=any(step.name == _CHECKSUM for step in steps),
        shard=shard,
        is_filled_with_zeros=_is_zero(fill),
        unread=_unread(codecs, steps, keys, is_sharded=sharding is not None),
    )
    return coding, inner


def _check_separator(separator: Any) -> None:
    """Refuse separators that would turn keys into other paths."""
    if not isinstance(separator, str) or separator not in {".", "/"}:
        raise FormatError("the keys of chunks are separated by neither . nor /", found=f"{separator!r:.100}")


def _sharding(codec: Codec) -> _Sharding:
    try:
        return msgspec.convert(codec.configuration, _Sharding)
    except msgspec.ValidationError as error:
        raise FormatError("the codecs of the array are malformed", found=str(error)) from None


def _unread(codecs: list[Codec], steps: list[Codec], keys: KeyEncoding, *, is_sharded: bool) -> str | None:
    """Return what tensorkeep does not read; None if it reads all chunks."""
    if keys.name not in {"default", "v2"}:
        return f"keys of chunks in the encoding {keys.name!r:.100}"
    if is_sharded:
        index = [step.name for step in _sharding(codecs[0]).index_codecs] if len(codecs) == 1 else []
        if index not in (["bytes"], ["bytes", _CHECKSUM]):
            return "shards within other codecs, or with another index"
        if any(step.configuration.get("endian") == "big" for step in _sharding(codecs[0]).index_codecs):
            return "shards with a big-endian index"
    names = [step.name for step in steps]
    order = [name for name in ("bytes", _ZSTD, _CHECKSUM) if name in names]
    if names != order or "bytes" not in names:
        return f"the codecs {', '.join(names)!r:.100}"
    return None


def _is_zero(fill: Any) -> bool:
    return not (any(fill) if isinstance(fill, list) else fill)
