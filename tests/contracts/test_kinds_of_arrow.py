"""Files of pyarrow keep the contract of kinds. Columns of a table have the same number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.feather

from tests.contracts.kind import Arrays, KindContract

COLUMNS: Arrays = {
    "layers.0.weight": np.arange(24, dtype=np.float32).reshape(6, 4),
    "layers.1.weight": np.arange(36, dtype=np.int64).reshape(6, 2, 3),
    "layers.2.weight": np.arange(30, dtype=np.float16).reshape(6, 5),
    "bias": np.linspace(-1.5, 1.5, 6),
}


def column(array: np.ndarray[Any, Any]) -> pa.Array:
    """Return an array as a column: its first dimension is that of rows."""
    if array.ndim == 1:
        return pa.array(array)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), int(np.prod(array.shape[1:])))
    kind = pa.fixed_shape_tensor(rows.type.value_type, array.shape[1:])
    return pa.ExtensionArray.from_storage(kind, rows)


def table_of(arrays: Arrays) -> pa.Table:
    """Return arrays as the columns of a table."""
    return pa.table({name: column(array) for name, array in arrays.items()})


class TestArrowFiles(KindContract):
    arrays: ClassVar[Arrays] = COLUMNS
    has_checksums: ClassVar[bool] = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        table = table_of(arrays)
        with pa.OSFile(str(directory / "model.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table, max_chunksize=4)
        return directory / "model.arrow"


class TestArrowStreams(KindContract):
    arrays: ClassVar[Arrays] = COLUMNS
    has_checksums: ClassVar[bool] = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        table = table_of(arrays)
        with pa.OSFile(str(directory / "model.arrows"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as file:
            file.write_table(table, max_chunksize=4)
        return directory / "model.arrows"


class TestFeatherFiles(KindContract):
    arrays: ClassVar[Arrays] = COLUMNS
    has_checksums: ClassVar[bool] = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        pyarrow.feather.write_feather(table_of(arrays), str(directory / "model.feather"), compression="lz4")
        return directory / "model.feather"
