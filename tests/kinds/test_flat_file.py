"""The base of files that are a header and byte ranges trusts no header, whatever its parse function lets pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.digests import CRC32
from tensorkeep.errors import FormatError, TransportError
from tensorkeep.formats import Checksum, FileContents, TensorPlace
from tensorkeep.kinds import FlatFile, file_kind, registry
from tensorkeep.tensors import LazyTensor
from tensorkeep.transport import ByteRange, ByteSource

MAGIC = b"FLAT"
NBYTES = 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.flat"
    path.write_bytes(MAGIC + bytes(NBYTES - len(MAGIC)))
    return path


def register(patch: pytest.MonkeyPatch, place: TensorPlace, opens: type[FlatFile] = FlatFile) -> None:
    """Make files that begin with `MAGIC` hold one tensor."""
    kind = file_kind("a flat file", lambda _: FileContents({"w": place}), suffixes=(), magic=MAGIC, opens=opens)
    patch.setattr(registry, "KINDS", (kind, *registry.KINDS))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (TensorPlace("F32", (4,), NBYTES), "the file ends before tensor `w` does .*at least 80 bytes, found 64"),
        (TensorPlace("F32", (16,), 4), "at least 68 bytes"),
        (TensorPlace("Q4_0", (16,), 60, nbytes=5), "at least 65 bytes"),
        (TensorPlace("F32", (2, 3), 4, strides=(1, 8)), "at least 76 bytes"),
        (TensorPlace("F32", (2**40, 2**40), 4), "no tensor has the shape"),
        (TensorPlace("F32", (2**40,), 4), "the file ends before"),
        (TensorPlace("F32", (2**62,), 4), "where no file has bytes"),
        (TensorPlace("F32", (2**63 - 1,) * 1024, 4), "no tensor has the shape"),
        (TensorPlace("F32", (1,), 10**4299), "where no file has bytes"),
        (TensorPlace("F32", (0,), NBYTES + 1), "the file ends before"),
        (TensorPlace("F32", (4,), -8), "where no file has bytes"),
        (TensorPlace("Q4_0", (4,), 8, nbytes=-4), "where no file has bytes"),
        (TensorPlace("F32", (-1, 4), 4), "no tensor has the shape"),
        (TensorPlace("F32", (0, 2**63), 4), "no tensor has the shape"),
        (TensorPlace("F32", (1,) * 1025, 4), "no tensor has the shape"),
        (TensorPlace("F32", (2, 2), 4, strides=(-1, 1)), "no tensor has the strides"),
        (TensorPlace("F32", (2, 2), 4, strides=(1,)), "no tensor has the strides"),
        (TensorPlace("F32", (2, 2), 4, strides=(2**63, 1)), "no tensor has the strides"),
        (TensorPlace("F32", (4,), 4, nbytes=3), "another size .*: expected 16 bytes, found 3"),
        (TensorPlace("F6_E2M3", (3,), 4), "ends within a byte"),
        (TensorPlace("F32", (1,), 4, checksum=Checksum(CRC32, b"", ByteRange(4, 65))), "checksum of tensor `w`"),
    ],
)
def test_a_tensor_that_is_not_in_the_file_is_refused(
    path: Path, place: TensorPlace, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, place)

    with pytest.raises(FormatError, match=message) as caught:
        tensorkeep.open(path)
    assert caught.value.path == str(path)
    assert caught.value.tensor == "w"


@pytest.mark.parametrize(
    "place",
    [
        TensorPlace("F32", (15,), 4),
        TensorPlace("F32", (0, 3), NBYTES),
        TensorPlace("F32", (2, 3), 4, strides=(1, 6)),
        TensorPlace("F32", (1000, 2), 4, strides=(0, 1)),
        TensorPlace("F32", (), 60, checksum=Checksum(CRC32, b"", ByteRange(0, NBYTES))),
    ],
)
def test_a_tensor_that_ends_with_the_file_is_read(
    path: Path, place: TensorPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, place)

    with tensorkeep.open(path) as file:
        assert np.array_equal(file["w"].load(), np.zeros(place.shape, np.float32))


def test_errors_of_a_parse_function_get_the_path_and_keep_their_kind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(source: ByteSource) -> FileContents:
        raise tensorkeep.errors.LimitError("too many tensors", found=str(source.nbytes))

    monkeypatch.setattr(registry, "KINDS", (file_kind("a flat file", parse, suffixes=(), magic=MAGIC),))

    with pytest.raises(tensorkeep.errors.LimitError, match=r"too many tensors \(.*model\.flat\): found 64"):
        tensorkeep.open(path)


class Renamed(FlatFile):
    """Finds every tensor at one place."""

    def _find(self, name: str) -> LazyTensor | None:
        return super()._find("w")


def test_a_format_may_find_its_tensors_in_its_own_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, TensorPlace("F32", (4,), 4), Renamed)

    with tensorkeep.open(path) as file:
        assert isinstance(file, Renamed)
        assert file["other"].shape == (4,)
        assert isinstance(file.with_dtypes({}), Renamed)
    with pytest.raises(TransportError, match="closed"):
        file["w"].load()


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_tensors_at_odd_bytes_are_read_into_aligned_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Any, framework: str
) -> None:
    large, small = np.arange(2**20, dtype=np.float32), np.arange(5, dtype=np.float64)
    parts = {
        "odd": (MAGIC + b"x", large),
        "even": (b"xxx", large + 1),
        "small": (b"xxxxx", small),
        "last": (b"", large),
    }
    content, places = b"", {}
    for name, (before, array) in parts.items():
        content += before
        places[name] = TensorPlace("F64" if name == "small" else "F32", array.shape, len(content))
        content += array.tobytes()
    path = tmp_path / "model.flat"
    path.write_bytes(content)
    kind = file_kind("a flat file", lambda _: FileContents(places), suffixes=(), magic=MAGIC)
    monkeypatch.setattr(registry, "KINDS", (kind, *registry.KINDS))

    with tensorkeep.open(path, backend=backend, framework=framework) as file:
        loaded = file.load()
        one = file["odd"].load()

    assert list(loaded) == list(parts)
    for name, (_, array) in parts.items():
        assert np.asarray(loaded[name]).flags.aligned
        assert np.array_equal(np.asarray(loaded[name]), array), name
    assert np.array_equal(np.asarray(one), large)
    loaded["odd"][0] = 7
    assert float(loaded["last"][0]) == 0
    assert path.read_bytes() == content
