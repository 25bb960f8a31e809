"""`SavedDirectory`: a saved state in a directory, in which one file names all others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from tensorkeep.arrays import ArrayT
from tensorkeep.kinds.safetensors._saved import SavedTensors


class SavedDirectory(SavedTensors[ArrayT]):
    """The tensors of an open directory, in which one file names all others, and which a save replaces by another."""

    @property
    @abstractmethod
    def index_metadata(self) -> Mapping[str, Any]:
        """What the file that names the others says beside that."""

    @property
    @abstractmethod
    def patch_files(self) -> tuple[str, ...]:
        """Paths of the patches through which tensors are read, in their order; none if they are stored whole."""

    @abstractmethod
    def is_replaced(self) -> bool:
        """Whether that file is another one by now."""

    @abstractmethod
    def stored_names(self) -> Collection[str]:
        """Return the names of all tensors that are stored, once if they have several."""
