"""`.keras`: a zip archive of the weights, the model that they belong to, and other files of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.archives import Member, read_archive, read_member
from tensorkeep.transport import ByteRange, ByteSource

_WEIGHTS: Final = "model.weights.h5"
_TEXTS: Final = ("config.json", "metadata.json")
_MAX_TEXT_NBYTES: Final = 64 * 2**20
_NAME_START: Final = 30
_HEAD_NBYTES: Final = 512


class ModelArchive(msgspec.Struct, frozen=True):
    """What an archive holds.

    Attributes:
        weights: The HDF5 file of weights.
        texts: Name of a member to its text: the model, which is not built, and the version of Keras.
        others: Names of members that layers keep beside their weights, such as vocabularies.
    """

    weights: Member
    texts: Mapping[str, str]
    others: tuple[str, ...]


def is_keras_archive(source: ByteSource) -> bool:
    """Say whether a zip archive is a model of Keras, by the name of its first member."""
    head = bytes(source.read(ByteRange(0, min(_HEAD_NBYTES, source.nbytes))))
    name_stop = _NAME_START + int.from_bytes(head[26:28], "little")
    return head[_NAME_START:name_stop].decode("ascii", "replace") in {*_TEXTS, _WEIGHTS}


def read_model_archive(source: ByteSource) -> ModelArchive:
    """Read the directory of an archive and the texts in it."""
    members = read_archive(source, has_top=False).members
    weights = members.get(_WEIGHTS)
    if weights is None:
        raise FormatError("no weights of Keras in the archive", expected=_WEIGHTS, found=f"{list(members)[:5]}")
    texts: dict[str, str] = {}
    for name in _TEXTS:
        if name in members:
            try:
                texts[name] = read_member(source, members[name], _MAX_TEXT_NBYTES).decode()
            except UnicodeDecodeError:
                raise FormatError(f"{name} is not UTF-8") from None
    return ModelArchive(weights, texts, tuple(name for name in members if name not in {_WEIGHTS, *_TEXTS}))
