"""Arrow files hold data, except where a type is a pickle, which pyarrow before 14.0.1 loads with the schema."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.feather
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


R_PLAIN = {
    "a frame": "A\n3\n263168\n197888\n5\nUTF-8\n531\n1\n531\n2\n254\n254\n1026\n1\n262153\n5\nnames\n16\n2\n262153\n1"
    "\na\n262153\n1\nb\n254\n1026\n511\n16\n1\n262153\n7\ncolumns\n254\n",
    "numbers": "A\n2\n263168\n131840\n19\n3\n13\n2\n-1\nNA\n14\n3\n0.5\n-Inf\n1e-05\n10\n1\n1\n",
    "texts": "A\n3\n263168\n197888\n5\nUTF-8\n16\n3\n262153\n4\nb\\040\\n\\303\n9\n-1\n262153\n0\n\n",
}
R_OTHER = {
    "a promise": "A\n3\n263168\n197888\n5\nUTF-8\n5\n254\n254\n",
    "a function": "A\n3\n263168\n197888\n5\nUTF-8\n19\n1\n3\n253\n254\n254\n",
    "a call": "A\n2\n263168\n131840\n6\n1\n262153\n6\nsystem\n254\n",
    "an environment": "A\n2\n263168\n131840\n4\n0\n254\n254\n254\n254\n",
    "more behind it": "A\n2\n263168\n131840\n254\n5\n254\n254\n",
    "another length": "A\n2\n263168\n131840\n16\n1\n262153\n2\na\n5\n254\n254\n",
    "compressed": "A\n2\n263168\n131840\n24\n2\n78\n9c\n",
    "binary": "X\n...",
    "cut": "A\n2\n263168\n131840\n19\n1000000000\n254\n",
    "nothing": "",
}


def r_file(path: Path, *texts: str) -> Path:
    schema = pa.schema([pa.field("a", pa.float32())])
    schema = schema.with_metadata(pa.KeyValueMetadata([("r", text) for text in texts]))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(pa.table([pa.array([1.0], pa.float32())], schema=schema))
    return path


@pytest.mark.parametrize("text", R_PLAIN.values(), ids=R_PLAIN)
def test_data_of_r_are_clean(tmp_path: Path, text: str) -> None:
    assert tensorkeep.scan(r_file(tmp_path / "a.arrow", text)).verdict == "clean"


@pytest.mark.parametrize("text", R_OTHER.values(), ids=R_OTHER)
def test_what_r_may_run_is_found(tmp_path: Path, text: str) -> None:
    report = tensorkeep.scan(r_file(tmp_path / "a.arrow", text))
    assert report.verdict == "unknown"
    assert "R's arrow before 17" in report.files[0].findings[0].message


def test_each_text_of_r_counts(tmp_path: Path) -> None:
    path = r_file(tmp_path / "a.arrow", R_OTHER["a promise"], R_PLAIN["a frame"])
    assert tensorkeep.scan(path).verdict == "unknown"


@pytest.mark.parametrize("column", [pa.nulls(2), pa.array([[1], [2]]), pa.array(["x", "y"]).dictionary_encode()])
def test_columns_that_are_no_tensors_are_data(tmp_path: Path, column: pa.Array) -> None:
    pa.feather.write_feather(pa.table({"a": column}), str(tmp_path / "a.feather"))
    assert tensorkeep.scan(tmp_path / "a.feather").verdict == "clean"
