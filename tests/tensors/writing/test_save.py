"""What is saved and what is refused: names, ties, promises kept, progress told, equal bytes for equal tensors."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays import Extent, StreamedTensor
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import DtypeError, HeaderError, IntegrityError, SharedMemoryError, StateError, UnsupportedError
from tensorkeep.tensors import overlapping, serialize_tensors, write_tensors
from tests.support.tensors.plain_files import Known, file_of, same_bits


def test_tensors_of_all_kinds_in_one_file(tmp_path: Path) -> None:
    source = tensorkeep.open(file_of({"w": Known.random("F6_E2M3", (2, 4)), "v": Known.random("F32", (3,))}))
    tensors = {
        "numpy": np.arange(3.0),
        "torch": torch.arange(4),
        "lazy": source["w"],
        "another lazy": source["v"],
    }
    tensorkeep.save(tensors, tmp_path / "model.safetensors")

    with tensorkeep.open(tmp_path / "model.safetensors") as file:
        assert {name: lazy.dtype for name, lazy in file.items()} == {
            "torch": "I64",
            "numpy": "F64",
            "another lazy": "F32",
            "lazy": "F6_E2M3",
        }
        assert same_bits(file["lazy"][...], source["w"][...])


def test_ties_are_refused_by_name_or_copied_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    whole = torch.arange(12.0)
    tied = {"a": whole, "b": whole, "c": whole[:3], "alone": torch.ones(2)}
    with pytest.raises(SharedMemoryError, match=r"`a`, `b`, `c`|`c`, `a`, `b`") as caught:
        tensorkeep.save(tied, path, ties="error")
    assert not path.exists()
    assert 'ties="share"' in str(caught.value)
    assert isinstance(caught.value, RuntimeError)

    tensorkeep.save(tied, path, ties="copy")
    loaded = tensorkeep.load(path, framework="torch")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tied.items())
    assert loaded["a"].data_ptr() != loaded["b"].data_ptr()


def test_ties_across_libraries_are_found(tmp_path: Path) -> None:
    array = np.arange(6.0)

    with pytest.raises(SharedMemoryError, match=r"`numpy`, `torch`|`torch`, `numpy`"):
        tensorkeep.save(
            {"numpy": array, "torch": torch.from_numpy(array)}, tmp_path / "model.safetensors", ties="error"
        )


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": torch.zeros(6)[:3], "b": torch.ones(6)[3:]},
        {"a": (whole := np.arange(10))[:5], "b": whole[5:]},
        {"a": (empty := np.zeros(0)), "b": empty},
        {"a": (one := torch.zeros(4))[:2], "b": one[2:], "c": one[2:2]},
        {"a": torch.ones(2, requires_grad=True), "b": torch.ones(2)},
    ],
)
def test_neighbors_and_nothing_share_no_memory(tensors: dict[str, Any], tmp_path: Path) -> None:
    tensorkeep.save(tensors, tmp_path / "model.safetensors")

    assert tensorkeep.open(tmp_path / "model.safetensors").keys() == tensors.keys()


def test_a_small_view_does_not_hide_a_later_overlap() -> None:
    extents = {
        "long": Extent("cpu", 0, 100),
        "short": Extent("cpu", 10, 20),
        "late": Extent("cpu", 90, 110),
        "next": Extent("cpu", 110, 120),
        "elsewhere": Extent("cuda:0", 0, 100),
        "nothing": None,
    }

    assert overlapping(extents) == [["long", "short", "late"]]


@pytest.mark.parametrize(
    ("tensors", "options", "error"),
    [
        ({"w": object()}, {}, StateError),
        ({"w": [np.zeros(2), print]}, {}, StateError),
        ({"w": torch.nn.Linear(1, 1)}, {}, StateError),
        ({"w": np.zeros(1, complex)}, {"digests": False}, DtypeError),
        ({"__metadata__": np.zeros(1)}, {"digests": False}, HeaderError),
        ({"\ud800": np.zeros(1)}, {"digests": False}, HeaderError),
        ({"w": np.zeros(3, ml_dtypes.float4_e2m1fn)}, {"digests": False}, HeaderError),
        ({"w": np.zeros(1)}, {"ties": "keep"}, UnsupportedError),
        ({"w": np.zeros(1)}, {"metadata": {"a": 1}}, TypeError),
        ({"w": np.zeros(1)}, {"metadata": {1: "a"}}, TypeError),
        ({"w": np.zeros(1)}, {"metadata": {"a": "\udfff"}}, HeaderError),
    ],
)
def test_what_cannot_be_saved_leaves_the_old_file(
    tensors: dict[str, Any], options: dict[str, Any], error: type[Exception], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"w": np.arange(3)}, path)
    before = path.read_bytes()

    with pytest.raises(error):
        tensorkeep.save(tensors, path, **options)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_tensor_that_gives_other_bytes_than_it_promised_is_an_error(tmp_path: Path) -> None:
    for given_nbytes in (3, 5, 0):
        host = StreamedTensor(BY_NAME["U8"], (4,), 4, lambda n=given_nbytes: iter([bytes(n)]))  # type: ignore[misc]
        with pytest.raises(IntegrityError, match="another number of bytes"):
            write_tensors({"w": host}, tmp_path / "model.safetensors")
        with pytest.raises(IntegrityError, match="another number of bytes"):
            serialize_tensors({"w": host})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wide", [1, 3, 8, 9, 100])
def test_equal_tensors_give_equal_bytes_whose_order_is_only_told_beside_digests(wide: int, tmp_path: Path) -> None:
    tensors = {f"w{n}": np.full(n, n, np.uint8) for n in range(wide)}
    metadata = {f"k{n}": str(n) for n in range(wide)}
    other = dict(reversed(tensors.items()))
    tensorkeep.save(tensors, tmp_path / "a", metadata=metadata, digests=False)
    tensorkeep.save(other, tmp_path / "b", metadata=dict(reversed(metadata.items())), digests=False, durable=False)
    tensorkeep.save(tensors, tmp_path / "c")
    tensorkeep.save(dict(tensors), tmp_path / "d", durable=False)
    tensorkeep.save(other, tmp_path / "e")

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "c").read_bytes() == (tmp_path / "d").read_bytes()
    assert list(tensorkeep.load(tmp_path / "c")) == list(tensors)
    assert list(tensorkeep.load(tmp_path / "e")) == list(other)


def test_progress_ends_with_everything_and_can_end_the_save(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {f"w{n}": np.zeros(3_000_000, np.uint8) for n in range(10)}
    seen: list[tuple[int, int]] = []
    tensorkeep.save(tensors, path, progress=lambda done, of: seen.append((done, of)))

    assert seen == sorted(seen)
    assert seen[-1] == (30_000_000, 30_000_000)
    assert all(later[0] - earlier[0] <= 9 * 2**20 for earlier, later in pairwise(seen))

    def stop(done: int, of: int) -> None:
        if done > of // 2:
            raise KeyboardInterrupt

    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        tensorkeep.save(tensors, path, progress=stop)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]
