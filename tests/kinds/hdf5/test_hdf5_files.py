"""HDF5 files of every layout, held to what h5py reads from them."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import LimitError, UnsafeError
from tests.support.hdf5_oracle import DTYPES, LIBVERS, expected, fill_group, numbers, same, write
from tests.support.remote.fault_server import FaultServer


def everything(file: h5py.File) -> None:
    for dtype in DTYPES:
        fill_group(file.create_group(f"of {dtype.replace('<', '').replace('>', 'big ')}"), dtype)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("userblock", [0, 512, 2048])
@pytest.mark.parametrize("libver", LIBVERS)
def test_every_layout_of_every_dtype_is_bit_equal(libver: str, userblock: int, backend: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "all.h5", everything, libver=libver, userblock_size=userblock)
    wanted = expected(path)

    with tensorkeep.open(path, backend=backend) as opened:
        assert list(opened) == list(wanted)
        assert [name for name, array in wanted.items() if not same(opened[name].load(), array)] == []
        assert [name for name, array in opened.load().items() if not same(array, wanted[name])] == []
        for name, array in wanted.items():
            for index in _indexes(array.ndim):
                assert same(opened[name][index], np.asarray(array[index])), (name, index)


def _indexes(ndim: int) -> list[Any]:
    if ndim < 2:
        return [...]
    return [(slice(3, 9, 2), ...), (..., slice(None, None, -3)), (0, 0) if ndim < 0 else (slice(2), slice(1, 2))]


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("tracks_order", [False, True])
def test_groups_of_any_size_are_listed_as_h5py_lists_them(libver: str, tracks_order: bool, tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        for n_links in (0, 1, 8, 9, 2000):
            group = file.create_group(f"{n_links} links", track_order=tracks_order)
            for number in reversed(range(n_links)):
                group[f"weight {number}"] = np.float32(number)

    path = write(tmp_path / "links.h5", fill, libver=libver, track_order=tracks_order)
    with tensorkeep.open(path) as opened, h5py.File(path) as file:
        listed = [f"{group}/{name}" for group, links in file.items() for name in links]
        assert list(opened) == listed
        assert all(float(array) == int(name.split()[-1]) for name, array in opened.load().items())


def test_many_chunks_are_found_by_each_kind_of_index(tmp_path: Path) -> None:
    array = numbers("<i4", (9000,))

    def fill(file: h5py.File) -> None:
        for name, most in (("fixed", 400_000), ("extensible", None)):
            file.create_dataset(name, data=array[:5000], chunks=(1,), maxshape=(most,))
            sparse = file.create_dataset(
                f"{name}, sparse", shape=(400_000,), dtype="i4", chunks=(1,), maxshape=(most,), fillvalue=7
            )
            for start in (3, 70_000, 140_000, 263_000, 399_000):
                sparse[start : start + 900] = array[:900]
        file.create_dataset("tree", data=array.reshape(90, 100), chunks=(1, 1), maxshape=(None, None))
        file.create_dataset("columns", data=array[:900].reshape(9, 100), chunks=(1, 1), maxshape=(11, None))

    for libver in ("earliest", "latest"):
        path = write(tmp_path / f"{libver}.h5", fill, libver=libver)
        wanted = expected(path)
        with tensorkeep.open(path) as opened:
            assert [name for name, array in opened.load().items() if not same(array, wanted[name])] == []
            part = opened["extensible, sparse"][262_998:263_005]
            assert same(part, wanted["extensible, sparse"][262_998:263_005])


def test_links_are_other_names_or_said_to_lead_elsewhere(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file["group/weight"] = numbers("<f4", (3,))
        file["group/again"] = file["group/weight"]
        file["soft"] = h5py.SoftLink("group/weight")
        file["softer"] = h5py.SoftLink("/./loop/soft")
        file["nowhere"] = h5py.SoftLink("/group/nothing")
        file["circle"] = h5py.SoftLink("circle")
        file["outside"] = h5py.ExternalLink("../other.h5", "/x")
        file["loop"] = file["/"]
        file["to group"] = h5py.SoftLink("group")
        file["named"] = np.dtype("f4")

    path = write(tmp_path / "links.h5", fill)
    with tensorkeep.open(path) as opened:
        assert list(opened) == ["group/again", "group/weight", "soft", "softer"]
        assert all(same(array, numbers("<f4", (3,))) for array in opened.load().values())
        assert {name: str(unknown) for name, unknown in opened.unknowns.items()} == {
            "circle": "a link to `circle` (which is not in the file)",
            "loop": "another name of the group `/`",
            "named": "a named datatype",
            "nowhere": "a link to `/group/nothing` (which is not in the file)",
            "outside": "a link to `/x` in the file `../other.h5` (not followed)",
            "to group": "another name of the group `group`",
        }
    with pytest.raises(UnsafeError, match=r"1 object .*`outside`: a link") as refusal:
        tensorkeep.convert(path, tmp_path / "a.safetensors")
    assert "other name" not in str(refusal.value)


def test_links_without_elements_are_no_reason_to_refuse_a_conversion(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file["group/weight"] = numbers("<f4", (3,))
        file["to group"] = h5py.SoftLink("group")
        file["hard"] = file["group"]
        file["nowhere"] = h5py.SoftLink("/group/nothing")
        file["null"] = h5py.Empty("f4")
        file["type"] = np.dtype("f4")

    path = write(tmp_path / "links.h5", fill)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(tensorkeep.load(path)) == ["group/weight"]
    conversion = tensorkeep.convert(path, tmp_path / "a.safetensors")

    assert conversion.n_tensors == 1
    assert conversion.left_out.keys() == {"to group", "hard", "nowhere", "null", "type"}
    tensorkeep.open(path, strict=True).close()


def test_what_is_no_tensor_is_listed_with_the_reason(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file["texts"] = ["a", "b"]
        file["records"] = np.zeros(3, [("a", "i4"), ("b", "f4")])
        file["null"] = h5py.Empty("f4")
        file["references"] = np.array([file.ref], dtype=h5py.ref_dtype)
        file.create_dataset("lists", shape=(2,), dtype=h5py.vlen_dtype("i4"))
        file.create_dataset("szip", data=np.arange(100), compression="szip")
        file.create_dataset("away", shape=(4,), dtype="i4", external=[(str(tmp_path / "raw"), 0, 16)])
        layout = h5py.VirtualLayout((4,), "i4")
        layout[...] = h5py.VirtualSource("other.h5", "x", (4,))
        file.create_virtual_dataset("virtual", layout)

    path = write(tmp_path / "others.h5", fill)
    with tensorkeep.open(path) as opened:
        assert list(opened) == []
        assert sorted(opened.unknowns) == sorted([
            "records",
            "null",
            "references",
            "lists",
            "szip",
            "away",
            "virtual",
        ])
        assert list(opened.strings) == ["texts"]
        assert "engine" not in str(opened.unknowns["records"])
        assert "szip" in str(opened.unknowns["szip"])


def test_enumerations_are_their_numbers_and_named_datatypes_are_found(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        kind = h5py.enum_dtype({"RED": 0, "BLUE": 300}, basetype=">i2")
        file.create_dataset("colors", data=np.array([0, 300, 0]), dtype=kind)
        file["named"] = np.dtype("<f8")
        file.create_dataset("numbers", data=np.arange(3.0), dtype=file["named"])

    with tensorkeep.open(write(tmp_path / "enum.h5", fill)) as opened:
        assert same(opened["colors"].load(), np.array([0, 300, 0], "i2"))
        assert same(opened["numbers"].load(), np.arange(3.0))


@pytest.mark.parametrize("settings", [{}, {"chunks": (2,), "compression": "gzip"}])
def test_bytes_without_a_dtype_get_the_one_that_an_attribute_or_the_caller_names(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    array = np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16)

    def fill(file: h5py.File) -> None:
        for name in ("with", "without"):
            file.create_dataset(name, data=array.view("V2"), **settings)
        file["with"].attrs["dtype"] = "bfloat16"

    with tensorkeep.open(write(tmp_path / "bf16.h5", fill)) as opened:
        assert same(opened["with"].load(), array)
        assert "without" in opened.unknowns
        typed = opened.with_dtypes({"without": "bfloat16"})
        assert same(typed["without"].load(), array)


def test_a_lazy_tensor_in_chunks_is_sent_to_other_processes(tmp_path: Path) -> None:
    array = numbers("<f4", (30, 40))
    path = write(tmp_path / "x.h5", lambda file: file.create_dataset("w", data=array, chunks=(7, 7)))
    with tensorkeep.open(path) as opened:
        sent = pickle.loads(pickle.dumps(opened["w"]))
        assert same(sent[5:9], array[5:9])
        assert same(opened["w"].cast("f64").load(), array.astype("f8"))


def test_little_is_read_of_a_tensor_that_was_hardly_written(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file.create_dataset("huge", shape=(2**40, 1000), dtype="f4", chunks=(1, 1000), fillvalue=2)
        file["huge"][2**39] = np.arange(1000)

    path = write(tmp_path / "huge.h5", fill)
    with tensorkeep.open(path) as opened:
        assert same(opened["huge"][2**39 : 2**39 + 2, :3], np.array([[0, 1, 2], [2, 2, 2]], "f4"))
        with pytest.raises(LimitError, match="never written"):
            opened["huge"].load()
        with pytest.raises(LimitError, match="never written"):
            tensorkeep.convert(path, tmp_path / "converted")


def test_many_datasets_on_a_server_are_listed_in_few_requests(tmp_path: Path) -> None:
    """What lies together is read together: requests depend on the depth of the file and the size of its metadata."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(2_000):
            file.create_dataset(f"layers/{number}/weight", data=np.full(64, number, np.float32))
    data = (tmp_path / "a.h5").read_bytes()

    with FaultServer({"a.h5": data}) as server, tensorkeep.open(f"{server.url}a.h5") as file:
        assert len(file) == 2_000
        n_opening = len(server.requests)
        assert n_opening <= 10
        assert file["layers/1777/weight"][3] == 1777
        assert len(server.requests) <= n_opening + 1


def test_an_attribute_format_does_not_replace_the_mark_of_safetensors(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file["w"] = numbers("<f4", (3,))
        file.attrs["format"] = "layers of 1999"

    path = write(tmp_path / "a.h5", fill)
    tensorkeep.convert(path, tmp_path / "a.safetensors")
    tensorkeep.export(path, tmp_path / "b.h5")

    with tensorkeep.open(tmp_path / "a.safetensors") as opened:
        assert opened.metadata["format"] == "pt"
        assert opened.metadata["source.format"] == "layers of 1999"
    with tensorkeep.open(tmp_path / "b.h5") as opened:
        assert opened.metadata["source.format"] == "layers of 1999"
