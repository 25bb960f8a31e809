"""Archives of Keras (`.keras`): the weights are an HDF5 file in them, read where it lies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tensorkeep.digests import CRC32
from tensorkeep.formats import FileContents, TensorPlace
from tensorkeep.formats.archives import InflatedSource, Member
from tensorkeep.formats.keras import is_keras_archive, parse_weights, read_model_archive
from tensorkeep.kinds.base import Check, Checks, Kind, Place, SharedBytesFile, file_kind, names_to_check
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource


class _Contents(FileContents, frozen=True):
    """What an archive says of itself, with the member that has the weights."""

    weights: Member | None = None


class KerasArchive(SharedBytesFile):
    """An open `.keras` file: a mapping of name to `LazyTensor`. The model, in `metadata`, is a text and is not built.

    Names are paths in the file of weights, in which layers are called as Keras shows them.
    """

    _contents: _Contents

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the CRC-32 of the weights, which is of all tensors together."""
        chosen = list(self) if names is None else names_to_check(names, self, self.path)
        found = super().checks(chosen)
        weights = self._contents.weights
        if weights is None or not found.n_unprotected:
            return found
        source = InflatedSource(self._source, weights) if weights.is_compressed else self._source
        span = ByteRange(0, weights.nbytes) if weights.is_compressed else weights.span
        file = next(iter(self.sources))
        check = Check(file, chosen[0], source, span, CRC32, weights.crc.to_bytes(4, "big"), found.n_unprotected)
        return msgspec.structs.replace(found, checks=[*found.checks, check], n_unprotected=0)


def _parse(source: ByteSource) -> FileContents:
    archive = read_model_archive(source)
    weights = archive.weights
    if weights.is_compressed:
        inner: ByteSource = InflatedSource(source, weights)
    else:
        inner = JoinedSource([(source, weights.span)], source.name)
    contents = parse_weights(inner)
    contents.check_ranges(inner)
    others = dict.fromkeys(archive.others, "a file that a layer keeps beside its weights")
    return _Contents(
        {name: _moved(place, weights, inner) for name, place in contents.tensors.items()},
        metadata={**archive.texts, **(contents.metadata or {})},
        attributes=contents.attributes,
        unknowns={**contents.unknowns, **others},
        strings=contents.strings,
        weights=weights,
    )


def _moved(place: TensorPlace, weights: Member, inner: ByteSource) -> TensorPlace:
    """Return where a tensor of the weights is in the archive."""
    if place.source is not None or place.chunks is not None:
        return place
    if weights.is_compressed:
        return msgspec.structs.replace(place, source=inner)
    return msgspec.structs.replace(place, start=weights.span.start + place.start)


KERAS: Final[Kind[Place]] = file_kind(
    "a Keras archive",
    _parse,
    suffixes=(".keras",),
    magic=b"PK\x03\x04",
    is_one=is_keras_archive,
    opens=KerasArchive,
)
