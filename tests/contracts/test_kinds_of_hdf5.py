"""HDF5 files keep the contract of kinds, however their datasets are laid out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import h5py

from tests.contracts.kind import Arrays, KindContract


class Hdf5Contract(KindContract):
    has_checksums = False
    libver: ClassVar[str] = "earliest"
    settings: ClassVar[dict[str, Any]] = {}

    def save(self, arrays: Arrays, directory: Path) -> Path:
        with h5py.File(directory / "model.h5", "w", libver=self.libver) as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, **self.settings)
        return directory / "model.h5"


class TestHdf5Files(Hdf5Contract):
    pass


class TestNewHdf5Files(Hdf5Contract):
    libver = "latest"


class TestHdf5FilesInChunks(Hdf5Contract):
    settings: ClassVar[dict[str, Any]] = {"chunks": True, "compression": "gzip", "shuffle": True}


class TestHdf5FilesWithChecksums(Hdf5Contract):
    has_checksums = True
    libver = "latest"
    settings: ClassVar[dict[str, Any]] = {"chunks": True, "compression": "gzip", "fletcher32": True}
