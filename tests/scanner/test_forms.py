"""What `scan` calls the files of other libraries."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from tensorkeep import scan
from tests.support.formats.keras_files import written_by_keras


def test_a_file_is_called_what_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", allow_pickle=False, a=np.ones(2))
    np.savez(tmp_path / "empty.npz")
    shutil.copy(written_by_keras() / "trained.keras", tmp_path / "a.keras")
    pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    pyarrow.feather.write_feather(pa.table({"a": [1, 2]}), tmp_path / "old.feather", version=1)
    pyarrow.feather.write_feather(pa.table({"a": [1, 2]}), tmp_path / "new.feather")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing")

    assert {Path(file.path).name: (file.form, file.verdict) for file in scan(tmp_path).files} == {
        "a.npz": ("NumPy archive", "clean"),
        "empty.npz": ("NumPy archive", "clean"),
        "a.keras": ("Keras archive", "clean"),
        "a.zip": ("zip archive", "clean"),
        "new.feather": ("Arrow file", "clean"),
        "a.parquet": ("Parquet file", "unreadable"),
        "old.feather": ("file of Feather version 1", "unreadable"),
    }
