"""Files that tensorizer writes: every dtype, nested names, meta tensors, hashes, requests; and broken ones."""

from __future__ import annotations

import json
import os
import random
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorizer import EncryptionParams, TensorDeserializer, TensorSerializer
from tensorizer.serialization import TENSORIZER_VERSION

import tensorkeep
from tensorkeep.errors import FormatError, LimitError, TensorkeepError, UnsupportedError
from tests.support.remote.fault_server import FaultServer

DTYPES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16"),
    *("complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "uint16", "uint32", "uint64"),
]


def written(path: Path, state: Any, **options: Any) -> Path:
    serializer = TensorSerializer(os.fspath(path), **options)
    serializer.write_state_dict(state)
    serializer.close()
    return path


def by_tensorizer(path: Path) -> dict[str, torch.Tensor]:
    with TensorDeserializer(os.fspath(path), device="cpu") as loaded:
        items = {".".join(map(str, key)) if isinstance(key, tuple) else key: loaded[key] for key in loaded.keys()}  # noqa: SIM118
        return {name: tensor.detach().clone() for name, tensor in items.items()}


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("name", DTYPES)
def test_each_dtype(name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name)
    width = torch.empty(0, dtype=dtype).element_size()
    values = (torch.arange(6 * width, dtype=torch.uint8) % (2 if dtype is torch.bool else 255)).view(dtype)
    state = {"w": values.reshape(2, 3), "scalar": values[1]}
    expected = by_tensorizer(written(tmp_path / "own.tensors", state))  # which cannot read empty bfloat16 back
    state["empty"] = values[:0].view(0, 3)
    path = written(tmp_path / "a.tensors", state)

    with tensorkeep.open(path, framework="torch") as file:
        assert set(file) == set(state)
        assert all(equal(file[key].load(), tensor) for key, tensor in state.items())
        assert all(equal(file[key].load(), tensor) for key, tensor in expected.items())
        assert equal(file["w"][1], state["w"][1])
    assert tensorkeep.verify(path).n_checked == 3


def test_nested_names_and_tensors_without_elements(tmp_path: Path) -> None:
    state = {"layers": [{"w": torch.ones(2)}, {"w": torch.zeros(2)}], "turned": torch.arange(6).reshape(2, 3).t()}
    path = written(tmp_path / "a.tensors", state)
    with tensorkeep.open(path) as file:
        assert list(file) == ["layers.0.w", "layers.1.w", "turned"]
        assert file["turned"].load().tolist() == [[0, 3], [1, 4], [2, 5]]
    path = written(tmp_path / "b.tensors", {"m": torch.ones(2, device="meta"), "w": torch.ones(2)})
    with tensorkeep.open(path) as file:
        assert list(file) == ["w"]
        assert file.empty == ("m",)
    assert tensorkeep.scan(path).is_clean


def test_modules_are_read_and_scanned(tmp_path: Path) -> None:
    serializer = TensorSerializer(os.fspath(tmp_path / "a.tensors"))
    serializer.write_module(torch.nn.Sequential(torch.nn.Linear(2, 3)))
    serializer.close()

    with tensorkeep.open((tmp_path / "a.tensors").read_bytes()) as file:
        assert list(file) == ["0.weight", "0.bias"]
    assert tensorkeep.scan(tmp_path / "a.tensors").is_clean


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_versions(version: int, tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "a.tensors", {"w": torch.arange(3.0)}).read_bytes())
    data[5:9] = struct.pack("<I", version)
    if version == 3:
        with pytest.raises(UnsupportedError, match="are encrypted"):
            tensorkeep.open(bytes(data))
        return
    assert tensorkeep.open(bytes(data))["w"].load().tolist() == [0, 1, 2]
    assert version <= TENSORIZER_VERSION


def test_long_extents_of_version_5(tmp_path: Path) -> None:
    """tensorizer writes 8-byte extents only for tensors of more than 4 billion; this is one entry made so."""
    data = bytearray(written(tmp_path / "a.tensors", {"w": torch.arange(3.0)}).read_bytes())
    data[5:9] = struct.pack("<I", 5)
    data[9:41] = (2).to_bytes(32, "little")
    short = struct.pack("<BI", 1, 3)
    at = data.index(short)
    header_start, start, nbytes = struct.unpack_from("<QQQ", data, at + len(short))
    entry = struct.pack("<I", 5) + data[73:at] + struct.pack("<BQ", 1, 3)
    entry += struct.pack("<QQQ", header_start, start, nbytes)
    data[73 : 73 + len(entry)] = entry

    assert tensorkeep.open(bytes(data))["w"].load().tolist() == [0, 1, 2]


def test_encrypted_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tensors", {"w": torch.ones(2)}, encryption=EncryptionParams.random())

    with pytest.raises(UnsupportedError, match="the tensors are encrypted"):
        tensorkeep.open(path)


def test_every_changed_byte_of_a_tensor_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tensors", {"w": torch.arange(3.0)})
    data = path.read_bytes()
    with tensorkeep.open(path) as file:
        check = file.checks().checks[0]
        hashed = bytes(check.source.read(check.span))
    weaker = data.index(struct.pack("<BBI", 0, 4, zlib.crc32(hashed))) + 2  # of two hashes, the stronger one is used
    for place in range(check.span.start, check.span.stop):
        broken = bytearray(data)
        broken[place] ^= 0x10
        assert tensorkeep.verify(bytes(broken)).is_damaged != (weaker <= place < weaker + 4), place


def test_a_server_is_asked_twice(tmp_path: Path) -> None:
    state = {f"layers.{number}": torch.full((20_000,), float(number)) for number in range(200)}
    path = written(tmp_path / "a.tensors", state)
    with FaultServer({"a.tensors": path.read_bytes()}) as server:
        with tensorkeep.open(f"{server.url}a.tensors") as file:
            n_opening = len(server.requests)
            assert file["layers.31"][7] == 31
        assert n_opening <= 2
        assert len(server.requests) == n_opening + 1


def entry(name: bytes = b"w", dtype: bytes = b"<f4", shape: tuple[int, ...] = (3,), **places: int) -> bytes:
    found = struct.pack("<H", len(name)) + name + b"\x02" + bytes([len(dtype)]) + dtype
    found += bytes([len(shape)]) + struct.pack(f"<{len(shape)}I", *shape)
    where = {"header": 300, "start": 300, "nbytes": 12} | places
    return found + struct.pack("<QQQ", where["header"], where["start"], where["nbytes"])


def file_of(*entries: bytes, n_tensors: int | None = None, n_index: int | None = None, **head: int) -> bytes:
    index = b"".join(entries)
    flags = head.get("flags", 0).to_bytes(32, "little")
    count = len(entries) if n_tensors is None else n_tensors
    size = len(index) if n_index is None else n_index
    start = b"|TZR|" + struct.pack("<I", head.get("version", 2)) + flags + struct.pack("<QQQQ", 0, 0, count, size)
    return (start + index).ljust(400, b"\0")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (file_of(entry(), entry()), FormatError),
        (file_of(entry(), entry(b"v", start=304, header=304)), FormatError),
        (file_of(entry(b"v", header=80, start=80)), FormatError),
        (file_of(entry(header=301)), FormatError),
        (file_of(entry(start=392, header=392)), FormatError),
        (file_of(entry(nbytes=2**63)), FormatError),
        (file_of(entry(nbytes=8)), FormatError),
        (file_of(entry(shape=(2**32 - 1,) * 40)), FormatError),
        (file_of(entry(b"\xff")), FormatError),
        (file_of(entry(b"\x1e[")), FormatError),
        (file_of(entry(b"\x1e[[1]]")), FormatError),
        (file_of(entry(b'\x1e["\\ud800"]')), FormatError),
        (file_of(entry(b"\x1e" + b"[" * 60_000)), FormatError),
        (file_of(entry(), n_tensors=2**40), FormatError),
        (file_of(entry(), n_index=2**20), FormatError),
        (file_of(entry(), n_index=2**40), LimitError),
        (file_of(entry(), version=6), UnsupportedError),
        (file_of(entry(), version=0), UnsupportedError),
        (file_of(entry(), version=5, flags=1), UnsupportedError),
        (file_of(entry(), version=5, flags=4), UnsupportedError),
        (file_of(entry(), version=4, flags=2), UnsupportedError),
        (file_of(struct.pack("<I", 7) + entry(), version=5, flags=2), UnsupportedError),
        (b"|TZR|", FormatError),
    ],
    ids=range(23),
)
def test_impossible_files_are_refused(data: bytes, error: type[TensorkeepError]) -> None:
    with pytest.raises(error):
        tensorkeep.open(data)


def test_dtypes_without_numbers_are_listed() -> None:
    odd = entry(b"v", dtype=b"<V2", start=312, header=312)
    with tensorkeep.open(file_of(entry(dtype=b"|V1\0torch.uint4"), odd)) as file:
        assert list(file) == []
        assert set(file.unknowns) == {"w", "v"}


def test_truncations_and_flips(tmp_path: Path) -> None:
    data = written(tmp_path / "a.tensors", {"w": torch.arange(3.0), "layers": [torch.ones(2)]}).read_bytes()
    data = data[:200] + data[2**18 :]  # most of the index is reserved
    places = [*range(300), *range(len(data) - 400, len(data))]
    chance = random.Random(0)
    for number in range(2500):
        broken = bytearray(data[:number] if number < 300 else data)
        for _ in range(chance.randrange(1, 4) if number >= 300 else 0):
            broken[places[chance.randrange(len(places))] % len(broken)] = chance.randrange(256)
        try:
            with tensorkeep.open(bytes(broken)) as file:
                file.load()
                file.checks()
        except TensorkeepError:
            pass


def test_twenty_thousand_tensors_open_quickly() -> None:
    n = 20_000
    entries = [
        entry(f"layers.{number}.weight".encode(), start=2**21 + 12 * number, header=2**21 + 12 * number)
        for number in range(n)
    ]
    data = file_of(*entries).ljust(2**21 + 12 * n, b"\0")

    begun = time.perf_counter()
    assert len(tensorkeep.open(data)) == n
    assert time.perf_counter() - begun < 5
    assert json.dumps(tensorkeep.verify(data).n_unprotected)
