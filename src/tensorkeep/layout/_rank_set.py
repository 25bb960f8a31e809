"""Checkpoints of ranks: directories that each hold one rank's share of every tensor, and of what. Pure.

    serving/tensorkeep.ranks.json                   `RankSet`: the directories, with the digest of each index
    serving/rank-00000-of-00002/                    a checkpoint that rank 0 reads alone
    serving/rank-00000-of-00002/model.safetensors.index.json

The index of each rank says under `metadata.tensor_parallel`, as `RankShare`, which part of each tensor it has:

    {"rank": 0, "size": 2, "parts": [{"digests": {"up.weight": "…"}, "dim": 0, "ranges": [[0, 8]], "shape": [16, 4]}]}

Tensors of one shape that are divided alike are one of the `parts`, so that the index stays short. Tensors that it
does not name are whole, and the same for all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.errors import FormatError, IntegrityError, UnsupportedError
from tensorkeep.paths import is_plain_name
from tensorkeep.tensors import Region

RANK_SET: Final = "tensorkeep.ranks.json"
SHARE_KEY: Final = "tensor_parallel"
_VERSION: Final = 1

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class RankPart(msgspec.Struct, frozen=True):
    """A rank's part of one tensor.

    Attributes:
        dim: The dimension that is divided.
        ranges: Half-open ranges of it, in order; the rank's tensor has them one after another.
        shape: Elements of the whole tensor along each dimension.
        digest: BLAKE3 of the whole tensor, as 64 hexadecimal digits.
    """

    dim: _Count
    ranges: tuple[tuple[_Count, _Count], ...]
    shape: tuple[_Count, ...]
    digest: _Digest

    def __post_init__(self) -> None:
        if self.dim >= len(self.shape):
            raise ValueError(f"no dimension {self.dim} in a shape of {len(self.shape)}")
        stop = 0
        for begin, end in self.ranges:
            if not stop <= begin < end <= self.shape[self.dim]:
                raise ValueError(f"ranges out of order or of dimension {self.dim}")
            stop = end
        if not self.ranges:
            raise ValueError("no ranges")

    @property
    def own_shape(self) -> tuple[int, ...]:
        """Shape of the part."""
        extent = sum(end - begin for begin, end in self.ranges)
        return (*self.shape[: self.dim], extent, *self.shape[self.dim + 1 :])

    def regions(self) -> list[tuple[Region, Region]]:
        """Return each range as a region of the whole tensor and as one of the part."""
        found: list[tuple[Region, Region]] = []
        place = 0
        for begin, end in self.ranges:
            found.append((self._region(self.shape, begin, end), self._region(self.shape, place, place + end - begin)))
            place += end - begin
        return found

    def _region(self, shape: tuple[int, ...], begin: int, end: int) -> Region:
        starts = (*(0 for _ in shape[: self.dim]), begin, *(0 for _ in shape[self.dim + 1 :]))
        return Region(starts, (*shape[: self.dim], end, *shape[self.dim + 1 :]))


class RankShare(msgspec.Struct, frozen=True):
    """What one rank has.

    Attributes:
        rank: Number of the rank.
        size: Number of ranks.
        parts: Name of each divided tensor to the rank's part.
    """

    rank: _Count
    size: _Count
    parts: dict[str, RankPart]

    def to_json(self) -> dict[str, Any]:
        """Return it as a member of an index."""
        alike: dict[tuple[Any, ...], _Parts] = {}
        for name, part in self.parts.items():
            key = (part.dim, part.ranges, part.shape)
            alike.setdefault(key, _Parts(*key, digests={})).digests[name] = part.digest
        value: dict[str, Any] = msgspec.to_builtins(_Share(self.rank, self.size, list(alike.values())))
        return value


class _Parts(msgspec.Struct, frozen=True):
    """Tensors of one shape that are divided alike."""

    dim: _Count
    ranges: tuple[tuple[_Count, _Count], ...]
    shape: tuple[_Count, ...]
    digests: dict[str, _Digest]


class _Share(msgspec.Struct, frozen=True):
    """A rank's share as the index has it."""

    rank: _Count
    size: _Count
    parts: list[_Parts]


class RankSet(msgspec.Struct, frozen=True):
    """The directories of all ranks.

    Attributes:
        ranks: Name of each rank's directory, in order, to the digest of the text of its index.
    """

    ranks: dict[str, _Digest]


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digest: _Digest
    ranks: dict[str, _Digest]
    version: int


class _Version(msgspec.Struct, frozen=True):
    version: int


def rank_directory(rank: int, size: int) -> str:
    """Return the name of a rank's directory."""
    return f"rank-{rank:05}-of-{size:05}"


def emit_rank_set(found: RankSet) -> bytes:
    """Return the text of the record of all ranks."""
    digest = digest_of(msgspec.json.encode(found.ranks)).hex()
    return msgspec.json.encode(_Text(digest, found.ranks, _VERSION))


def parse_rank_set(text: bytes, path: str) -> RankSet:
    """Parse the record of all ranks, and check its digest."""
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != _VERSION:
            raise UnsupportedError("the record of ranks has a newer version", path=path, found=f"version {version}")
        found = RankSet(msgspec.json.decode(text, type=_Text).ranks)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError("not a record of ranks", path=path, found=str(error)) from None
    expected = [rank_directory(rank, len(found.ranks)) for rank in range(len(found.ranks))]
    if not expected or list(found.ranks) != expected or not all(map(is_plain_name, found.ranks)):
        raise FormatError("not a record of ranks", path=path, found="other names of directories")
    if emit_rank_set(found) != text:
        raise IntegrityError("the record of ranks changed after it was written", path=path)
    return found


def parse_share(metadata: Mapping[str, Any], path: str) -> RankShare:
    """Return what the metadata of an index says of its rank."""
    try:
        share = msgspec.convert(metadata.get(SHARE_KEY), _Share)
        parts = [
            (name, RankPart(alike.dim, alike.ranges, alike.shape, digest))
            for alike in share.parts
            for name, digest in alike.digests.items()
        ]
        if len(dict(parts)) < len(parts):
            raise ValueError("a tensor that is named twice")  # noqa: TRY301
        return RankShare(share.rank, share.size, dict(parts))
    except ValueError as error:
        raise FormatError(
            "the index does not say which part of each tensor it has", path=path, found=str(error)
        ) from None
