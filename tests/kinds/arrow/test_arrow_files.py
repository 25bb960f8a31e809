"""Columns and tensors that pyarrow writes are read bit for bit, lazily, and from a server in few requests."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, LimitError, MissingDependencyError, TensorkeepError, UnsupportedError
from tests.support.remote.fault_server import FaultServer

N_ROWS = 11
NUMBERS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"),
    "bool",
)


def tensors_of(kind: pa.FixedShapeTensorType, elements: Any) -> pa.Array:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(elements), int(np.prod(kind.shape)))
    return pa.ExtensionArray.from_storage(kind, rows)


def table(n_rows: int = N_ROWS) -> tuple[pa.Table, dict[str, Any]]:
    """Return a table, and what its columns are as arrays."""
    chance = np.random.default_rng(n_rows)
    arrays: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    for name in NUMBERS:
        arrays[name] = chance.integers(0, 2 if name == "bool" else 100, n_rows).astype(name)
        columns[name] = pa.array(arrays[name])
    floats = chance.random(6 * n_rows, dtype=np.float32)
    columns["tensor"] = tensors_of(pa.fixed_shape_tensor(pa.float32(), [2, 3]), floats)
    arrays["tensor"] = floats.reshape(-1, 2, 3)
    columns["turned"] = tensors_of(pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0]), floats)
    arrays["turned"] = floats.reshape(-1, 2, 3).transpose(0, 2, 1)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(floats), 3)
    columns["lists"] = pa.FixedSizeListArray.from_arrays(lists, 2)
    arrays["lists"] = arrays["tensor"]
    bits = chance.random(3 * n_rows) > 0.5
    columns["bits"] = pa.FixedSizeListArray.from_arrays(pa.array(bits), 3)
    arrays["bits"] = bits.reshape(-1, 3)
    columns["parts"] = pa.StructArray.from_arrays([columns["int16"], columns["bool"]], ["x", "y"])
    arrays["parts.x"], arrays["parts.y"] = arrays["int16"], arrays["bool"]
    columns["raw"] = pa.array([bytes([row, 255]) for row in range(n_rows)], pa.binary(2))
    arrays["raw"] = np.array([[row, 255] for row in range(n_rows)], np.uint8)
    columns["time"] = pa.array(np.arange(n_rows), pa.timestamp("us", "UTC"))
    arrays["time"] = np.arange(n_rows)
    columns["last"] = pa.array(arrays["int8"])
    arrays["last"] = arrays["int8"]
    return pa.table(columns, metadata={"author": "é"}), arrays


def written(kind: str, tables: list[pa.Table], path: Path) -> Path:
    schema = tables[0].schema
    if kind in {"lz4", "uncompressed"}:
        pyarrow.feather.write_feather(pa.concat_tables(tables), str(path), compression=kind)
        return path
    make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5)
    with pa.OSFile(str(path), "wb") as sink, make(sink, schema, options=options) as file:
        for one in tables:
            file.write_table(one)
    return path


@pytest.mark.parametrize("kind", ["file", "stream", "lz4", "uncompressed"])
@pytest.mark.parametrize("n_batches", [1, 3])
def test_columns_are_equal_bit_for_bit(kind: str, n_batches: int, tmp_path: Path) -> None:
    tables = [table(N_ROWS + batch) for batch in range(n_batches)]
    path = written(kind, [one for one, _ in tables], tmp_path / "a.arrow")
    expected = {name: np.concatenate([arrays[name] for _, arrays in tables]) for name in tables[0][1]}

    with tensorkeep.open(path) as file:
        assert list(file) == list(expected)
        assert not file.unknowns
        assert file.metadata["author"] == "é"
        assert '"time":"timestamp[us, UTC]"' in file.metadata["arrow.types"]
        for name, array in expected.items():
            found = file[name].load()
            assert (found.dtype, found.shape) == (array.dtype, array.shape), name
            assert found.tobytes() == array.tobytes(), name
            assert np.array_equal(file[name][2:9:3], array[2:9:3]), name
            assert np.array_equal(file[name][..., -1], array[..., -1]), name
    assert tensorkeep.scan(path).is_clean


def test_a_column_in_one_batch_is_a_view_of_the_mapped_file(tmp_path: Path) -> None:
    path = written("file", [pa.table({"w": np.arange(2**20)})], tmp_path / "a.arrow")

    with tensorkeep.open(path) as file:
        assert file["w"].source is not None
        assert not file["w"].load().flags.owndata


def test_a_table_without_rows_has_empty_tensors(tmp_path: Path) -> None:
    one, arrays = table(2)
    path = written("file", [one.slice(0, 0)], tmp_path / "a.arrow")

    loaded = tensorkeep.load(path)

    assert {name: array.shape for name, array in loaded.items()} == {n: (0, *a.shape[1:]) for n, a in arrays.items()}


def test_strings_are_data_of_their_own(tmp_path: Path) -> None:
    texts, raw = ["é", "", "ab"], [b"\xff", b"", b"\0\1"]
    one = pa.table({"t": texts, "b": pa.array(raw, pa.large_binary()), "x": [1, 2, 3]})
    for kind in ("file", "lz4"):
        path = written(kind, [one, one.slice(1)], tmp_path / f"{kind}.arrow")
        with tensorkeep.open(path) as file:
            assert list(file) == ["x"]
            assert file.strings["t"].load().tolist() == texts + texts[1:]
            assert file.strings["b"].load().tolist() == raw + raw[1:]


def test_what_no_tensor_can_hold_is_unknown_and_the_rest_is_read(tmp_path: Path) -> None:
    columns = {
        "nulls": pa.array([1, None, 3]),
        "lists": pa.array([[1], [2, 3], []]),
        "words": pa.array(["a", "b", "a"]).dictionary_encode(),
        "decimals": pa.array([1, 2, 3], pa.decimal128(5)),
        "views": pa.array(["a" * 20, "b", "c"], pa.string_view()),
        "maps": pa.array([[("a", 1)], [], []], pa.map_(pa.string(), pa.int8())),
        "nothing": pa.nulls(3),
        "null_lists": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        "last": pa.array([7, 8, 9]),
    }
    path = written("stream", [pa.table(columns)], tmp_path / "a.arrows")

    with tensorkeep.open(path) as file:
        assert file.load()["last"].tolist() == [7, 8, 9]
        assert list(file) == ["last"]
        assert set(file.unknowns) == set(columns) - {"last"}
        assert str(file.unknowns["nulls"]) == "a column of int64 with 1 null in 3 rows"
        assert "dictionary" in str(file.unknowns["words"])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_tensor_alone(order: Any, tmp_path: Path) -> None:
    array = np.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), order=order)
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink:
        pa.ipc.write_tensor(pa.Tensor.from_numpy(array), sink)

    with tensorkeep.open(tmp_path / "t.arrow") as file:
        assert np.array_equal(file["tensor"].load(), array)
        assert np.array_equal(file["tensor"][1:, 2], array[1:, 2])


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    one = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["w", "w"])

    with pytest.raises(FormatError, match="two columns have one name"):
        tensorkeep.open(written("file", [one], tmp_path / "a.arrow"))


def test_formats_that_are_not_arrow_say_what_to_do(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"w": [1]}), tmp_path / "a.parquet")
    pyarrow.feather.write_feather(pa.table({"w": [1]}), str(tmp_path / "a.feather"), version=1)

    with pytest.raises(UnsupportedError, match="Parquet"):
        tensorkeep.open(tmp_path / "a.parquet")
    with pytest.raises(UnsupportedError, match="version 1"):
        tensorkeep.open(tmp_path / "a.feather")


def test_zstd_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)  # imports of it fail
    pyarrow.feather.write_feather(pa.table({"w": np.zeros(1000)}), str(tmp_path / "a.feather"), compression="zstd")

    with tensorkeep.open(tmp_path / "a.feather") as file, pytest.raises(MissingDependencyError, match="zstandard"):
        file["w"].load()


def test_zstd_is_decompressed(tmp_path: Path) -> None:
    one, arrays = table(200)
    pyarrow.feather.write_feather(one, str(tmp_path / "a.feather"), compression="zstd")

    loaded = tensorkeep.load(tmp_path / "a.feather")

    assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())


def test_batches_on_a_server_take_one_read(tmp_path: Path) -> None:
    tables = [pa.table({f"c{name}": np.arange(10_000.0) for name in range(8)}) for _ in range(20)]
    path = written("file", tables, tmp_path / "a.arrow")

    with FaultServer({"a.arrow": path.read_bytes()}) as server, tensorkeep.open(f"{server.url}a.arrow") as file:
        n_opening = len(server.requests)
        assert np.array_equal(file["c3"][150_001:150_004], np.arange(1.0, 4.0) + 0)
        n_reading = len(server.requests) - n_opening
    assert n_opening <= 24  # the head, the footer, and the description of each batch beside 640 kB of another
    assert n_reading == 1


def cuts_and_flips(data: bytes) -> Iterator[bytes]:
    chance = random.Random(3)
    for stop in range(0, len(data), 7):
        yield data[:stop]
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        yield bytes(changed)
    for _ in range(2_000):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(data) - 8)
            number = chance.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63, len(data), chance.randrange(256)])
            width = chance.choice([1, 2, 4, 8])
            changed[place : place + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
        yield bytes(changed)


@pytest.mark.parametrize("kind", ["file", "stream", "lz4"])
def test_damage_gives_an_error_or_tensors(kind: str, tmp_path: Path) -> None:
    one, _ = table(5)
    texts = one.select(["float32", "bool", "turned", "parts", "last"]).append_column("t", pa.array(list("abcde")))
    data = written(kind, [texts, texts], tmp_path / "a.arrow").read_bytes()

    n_opened = 0
    for changed in cuts_and_flips(data):
        try:
            with tensorkeep.open(changed) as file:
                n_opened += 1
                file.load()
                for strings in file.strings.values():
                    strings.load()
        except TensorkeepError:
            continue
    assert n_opened


def test_buffers_that_many_columns_share_are_refused(tmp_path: Path) -> None:
    one = pa.table({"a": np.arange(100), "b": np.arange(100) + 1})
    data = written("file", [one], tmp_path / "a.arrow").read_bytes()
    buffers = (0, 0, 0, 800, 800, 0, 800, 800)
    packed = b"".join(number.to_bytes(8, "little") for number in buffers)
    assert data.count(packed) == 1
    shared = packed[:48] + bytes(8) + packed[56:]

    with pytest.raises(FormatError, match="overlap"):
        tensorkeep.open(data.replace(packed, shared))


def test_a_column_declared_larger_than_its_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.feather"
    pyarrow.feather.write_feather(pa.table({"a": np.zeros(5000)}), str(path), compression="lz4")
    data = path.read_bytes()

    with pytest.raises((LimitError, FormatError)):
        tensorkeep.load(data.replace((5000).to_bytes(8, "little"), (2**40).to_bytes(8, "little")))


@pytest.mark.parametrize(
    ("n_columns", "n_batches", "is_stream", "n_opening"),
    [(10, 1, False, 2), (10, 100, False, 3), (20_000, 1, False, 4), (10, 100, True, 101)],
)
def test_opening_takes_as_many_requests_as_the_page_says(
    n_columns: int, n_batches: int, is_stream: bool, n_opening: int, tmp_path: Path
) -> None:
    """A file is its size and end, the footer, and all batches at once; a stream is one request per batch."""
    n_rows = 4_000_000 // n_columns
    columns = {str(number): pa.array(np.arange(n_rows, dtype=np.float32)) for number in range(n_columns)}
    rows = pa.table(columns)
    path = tmp_path / "a.arrow"
    with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=-(-n_rows // n_batches))

    n_opened, n_reading = requests_of_a_slice(path.read_bytes())
    assert n_opened <= n_opening
    assert n_reading <= 1


def requests_of_a_slice(data: bytes, *, many: bool = True) -> tuple[int, int]:
    """Return the number of requests that open a file, and of those that then read some rows of column `1`."""
    with FaultServer({"a.arrow": data}, many=many) as server, tensorkeep.open(f"{server.url}a.arrow") as file:
        n_opening = len(server.requests)
        assert file["1"][5:10].tolist() == [5, 6, 7, 8, 9]
        return n_opening, len(server.requests) - n_opening


def test_a_server_that_gives_one_range_per_request_is_asked_once_for_each_batch(tmp_path: Path) -> None:
    n_batches, n_rows = 30, 2**16
    tables = [pa.table({name: np.arange(n_rows, dtype=np.float32) for name in "01"}) for _ in range(n_batches)]
    data = written("file", tables, tmp_path / "a.arrow").read_bytes()

    n_opening, n_reading = requests_of_a_slice(data, many=False)

    assert requests_of_a_slice(data)[0] <= 3
    assert n_batches < n_opening <= n_batches + 4  # the end, the footer, and one that asked for all batches in vain
    assert n_reading == 1
