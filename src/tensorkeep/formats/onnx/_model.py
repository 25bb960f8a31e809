"""What a model holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tensorkeep.formats._contents import FileContents
from tensorkeep.formats.onnx._dtypes import DataType


class ExternalTensor(msgspec.Struct, frozen=True):
    """A tensor whose elements are in another file.

    Attributes:
        location: Path of the file as the model has it; it may lead anywhere, and is not to be trusted.
        offset: First byte in that file.
        nbytes: Bytes of the elements there.
        checksum: SHA-1 of the whole file; None if the model has none.
        data_type: What the elements are.
        shape: Elements along each dimension.
    """

    location: str
    offset: int
    nbytes: int
    checksum: bytes | None
    data_type: DataType
    shape: tuple[int, ...]


class Operator(NamedTuple):
    """An operator that a model uses, by the domain and name under which a program knows it."""

    domain: str
    name: str


class UnreadTensor(msgspec.Struct, frozen=True):
    """A tensor that is not read.

    Attributes:
        reason: Why not.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


class OnnxModel(FileContents, frozen=True):
    """What a model says of itself.

    Attributes:
        external: Name to tensor, for those in other files.
        operators: Each operator that is used, to the node that uses it first.
        own_operators: Operators that the model itself defines as functions of others.
    """

    external: Mapping[str, ExternalTensor] = {}
    operators: Mapping[Operator, str] = {}
    own_operators: frozenset[Operator] = frozenset()
