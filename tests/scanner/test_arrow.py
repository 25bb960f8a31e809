"""Arrow files hold data, except where a type is a pickle, which pyarrow before 14.0.1 loads with the schema."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tensorkeep

PICKLED = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": "cos\nsystem\n."}


def write(path: Path, field: pa.Field) -> None:
    schema = pa.schema([field])
    rows = pa.record_batch([pa.nulls(2, field.type)], schema=schema)
    opens = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, opens(file, schema) as writer:
        writer.write_batch(rows)


@pytest.mark.parametrize("name", ["a.arrow", "a.arrows", "weights.bin"])
def test_pickled_types_are_found_wherever_they_are(tmp_path: Path, name: str) -> None:
    inner = pa.field("inner", pa.int64(), metadata=PICKLED)
    for kind in (pa.struct([inner]), pa.list_(inner)):
        write(tmp_path / name, pa.field("outer", kind))
        report = tensorkeep.scan(tmp_path)
        assert [finding.message for finding in report.findings] == [
            "pyarrow before 14.0.1 unpickles the types of columns: `outer`"
        ]
    write(tmp_path / name, pa.field("inner", pa.int64(), metadata=PICKLED))
    assert tensorkeep.scan(tmp_path).verdict == "unknown"


def test_other_types_are_clean(tmp_path: Path) -> None:
    other = {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": '{"shape":[2]}'}
    write(tmp_path / "a.arrow", pa.field("w", pa.list_(pa.float32(), 2), metadata=other))
    write(tmp_path / "b.arrow", pa.field("w", pa.struct([pa.field("x", pa.utf8())])))

    assert tensorkeep.scan(tmp_path).verdict == "clean"
