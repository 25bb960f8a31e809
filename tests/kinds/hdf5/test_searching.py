"""One dataset of a file is found by its path, as the listing of all has it, before anything else is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, TensorkeepError, TransportError
from tests.support.hdf5_oracle import LIBVERS, write
from tests.support.remote.fault_server import FaultServer
from tests.support.soak import rounds


def many(file: h5py.File) -> None:
    for number in range(700):
        file[f"model/layers/{number}/weight"] = np.full((2, 3), number, np.float32)
        file[f"flat.{number}"] = np.int64(number)


def linked(file: h5py.File) -> None:
    file["first/x"] = np.arange(3.0)
    file["second"] = file["first"]
    file["second/itself"] = file["second"]
    file["another name"] = file["first/x"]
    file["soft"] = h5py.SoftLink("/first/x")
    file["soft group"] = h5py.SoftLink("/first")
    file["elsewhere"] = h5py.ExternalLink("other.h5", "x")
    file["type"] = np.dtype("f4")
    file["texts"] = ["a", "b"]
    file["é"] = np.arange(2)
    file.create_dataset("void", data=np.zeros(3, "V2")).attrs["dtype"] = "bfloat16"
    file.create_dataset("chunks", data=np.arange(100), chunks=(7,), compression="gzip")


def keras(file: h5py.File) -> None:
    for folder, name in (("dense", "dense_1"), ("dense_1", "dense")):  # each layer is called as the other's folder
        file[f"layers/{folder}/vars/0"] = np.full(3, len(name), np.float32)
        file[f"layers/{folder}/vars"].attrs["name"] = name
    file["optimizer/vars/0"] = np.float32(1)
    file["vars/0"] = np.float32(2)
    file["others/x"] = np.float32(3)


def legacy(file: h5py.File) -> None:
    file.attrs["layer_names"] = np.array([b"head"])
    file["head/head/kernel:0"] = np.float32(1)
    file["kernel:0/kernel:0/head"] = np.float32(2)


@pytest.mark.parametrize("libver", [LIBVERS[0], LIBVERS[-1]])
@pytest.mark.parametrize("fill", [many, linked, keras, legacy])
def test_a_search_finds_what_the_listing_has(fill: Callable[[h5py.File], None], libver: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", fill, libver=libver)
    paths = [
        "",
        "/",
        ".",
        "first//x",
        "second/x",
        "second/itself/x",
        "soft group/x",
        "é/x",
        "\udcff",
        "flat.0/flat.0",
    ]
    with h5py.File(path) as file:
        file.visit(paths.append)
    with tensorkeep.open(path) as whole:
        listed = dict(whole.items())
        for name in dict.fromkeys([*listed, *paths][:: 1 if len(listed) < 100 else 151]):
            with tensorkeep.open(path) as opened:
                assert (name in opened) == (name in listed)
                if name in listed:
                    assert opened[name].entry == listed[name].entry
                    assert np.array_equal(opened[name].load(), listed[name].load())


def test_only_what_leads_to_a_dataset_is_read_from_a_server(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        for number in range(3_000):
            file[f"layer.{number}"] = np.full(600, number, np.float32)

    data = write(tmp_path / "x.h5", fill).read_bytes()
    with FaultServer({"x.h5": data}) as server:
        with tensorkeep.open(f"{server.url}x.h5") as opened:
            assert opened["layer.2222"][:3].tolist() == [2222.0] * 3
        n_for_one = len(server.requests)
        with tensorkeep.open(f"{server.url}x.h5") as opened:
            assert len(opened) == 3_000
        assert n_for_one <= 7
        assert len(server.requests) - n_for_one > n_for_one


def test_damage_elsewhere_is_found_by_whatever_needs_all(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", lambda file: [file.create_dataset(f"{at}/w", data=[1]) for at in "abc"])
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        header = h5py.h5o.get_info(file["c/w"].id).addr
    content[header] = 9
    path.write_bytes(content)

    with tensorkeep.open(path) as opened:
        assert opened["a/w"].shape == (1,)
        for ask in (len, list, lambda all_: all_.load(), lambda all_: all_["c/w"], lambda all_: all_.metadata):
            with pytest.raises(FormatError, match=r"x\.h5"):
                ask(opened)
        assert opened["a/w"].shape == (1,)
        assert "HDF5" in repr(opened)
    for refuse in (tensorkeep.load, tensorkeep.verify, lambda path: tensorkeep.open(path, strict=True)):
        with pytest.raises(FormatError):
            refuse(path)
    with pytest.raises(FormatError):
        tensorkeep.convert(path, tmp_path / "converted")
    assert tensorkeep.scan(path).verdict == "unreadable"


def test_a_file_that_is_cut_off_is_refused_at_once(tmp_path: Path) -> None:
    content = write(tmp_path / "x.h5", linked).read_bytes()

    with pytest.raises(FormatError, match="cut off"):
        tensorkeep.open(content[:-1])


def test_a_closed_file_is_not_listed(tmp_path: Path) -> None:
    opened = tensorkeep.open(write(tmp_path / "x.h5", linked))
    opened.close()

    with pytest.raises(TransportError, match="closed"):
        list(opened)
    assert "HDF5" in repr(opened)


def test_broken_bytes_never_make_a_search_disagree_with_the_listing(tmp_path: Path) -> None:
    content = write(tmp_path / "x.h5", linked).read_bytes()
    for place in range(0, len(content), max(len(content) // 150, 1) | 1):
        broken = content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        try:
            listed = {name: lazy.entry for name, lazy in tensorkeep.open(broken).items()}
        except TensorkeepError:
            continue
        for name in ("first/x", "another name", "chunks"):
            with tensorkeep.open(broken) as opened:
                assert listed.get(name) == (opened[name].entry if name in opened else None), (place, name)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "n_for_all"), [("w{}", 60), ("layers/{}/weight", 130)])
def test_one_of_many_datasets_on_a_server(name: str, n_for_all: int, tmp_path: Path) -> None:
    """`make soak` tries the numbers that the page names, of 100,000 datasets."""
    n_datasets = rounds(2_000, 100_000)
    array = np.arange(64, dtype=np.float32)
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        for number in range(n_datasets):
            file.create_dataset(name.format(number), data=array)

    with FaultServer({"a.h5": (tmp_path / "a.h5").read_bytes()}) as server:
        with tensorkeep.open(f"{server.url}a.h5") as opened:
            assert opened[name.format(n_datasets * 7 // 9)][3:5].tolist() == [3, 4]
            n_for_one = len(server.requests)
            assert len(opened) == n_datasets
        assert n_for_one <= 10
        assert len(server.requests) - n_for_one <= n_for_all
