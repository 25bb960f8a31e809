"""Which GGUF files a path means: a file, or the files of the only model in a directory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.gguf import MAGIC, shard_names, stem_of_shard
from tensorkeep.kinds.base import Place
from tensorkeep.texts import listed
from tensorkeep.transport import join

SUFFIX: Final = ".gguf"

_OTHERS: Final = ("mmproj", "imatrix")
"""How the names of files begin that are beside a model: projectors of its images, statistics of its activations."""

_PICKLED: Final = "pytorch_model"


def find_gguf(place: Place) -> Place | None:
    """Return the place of a GGUF file, the first shard's for a directory of them; None if it is something else."""
    if not place.is_directory:
        return place if place.head.startswith(MAGIC) else None
    if any(name.startswith(_PICKLED) for name in place.names):
        return None
    models = _models(name for name in place.names if name.lower().endswith(SUFFIX))
    chosen = {stem: name for stem, name in models.items() if place.variant is None or stem.endswith(place.variant)}
    if len(chosen) > 1:
        raise UnsupportedError(
            "several models in the directory",
            path=place.path,
            found=listed(chosen.values()),
            hint="Open one of them by its own path, or with variant= (--variant)",
        )
    if not chosen:
        return None
    return Place(join(place.path or "", next(iter(chosen.values()))), backend=place.backend)


def _models(names: Iterable[str]) -> dict[str, str]:
    """Return the stem of each model to its file, or its first shard."""
    files: dict[str, str] = {}
    for name in sorted(names):
        stem = stem_of_shard(name)
        files.setdefault(stem or name[: -len(SUFFIX)], shard_names(name)[0] if stem else name)
    return {stem: name for stem, name in files.items() if not stem.lower().startswith(_OTHERS)} or files
