"""Archives as other versions and machines write them: byte orders, sizes, alignments, TorchScript, distributed."""

from __future__ import annotations

import io
import pathlib
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint
from torch import nn

import tensorkeep
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.pickles import open_pickle, pickle_over
from tensorkeep.transport import ByteRange, LocalFile
from tests.support.pickles.honest_files import run, saved
from tests.support.pickles.honest_objects import Tower
from tests.support.pickles.same_value import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")


def test_big_endian_archive(tmp_path: Path) -> None:
    state = {
        "f": torch.arange(6.0).view(2, 3).t(),
        "h": torch.arange(4.0).half()[1:],
        "c": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "b": torch.tensor([True, False]),
        "i": torch.arange(4) * 2**40,
        "q": torch.arange(4).to(torch.uint16),
        "twice": [torch.arange(3.0).bfloat16()] * 2,
    }
    data = swapped_archive(saved(state), {"f": 4, "h": 2, "c": 4, "b": 1, "i": 8, "q": 2, "twice": 2})
    theirs = run(data)
    theirs["q"] = state["q"]  # torch swaps no storages that were saved without a dtype
    for framework in ("torch", "numpy"):
        with open_pickle(data, framework=framework) as file:
            assert file.document.is_big_endian
            if framework == "torch":
                assert_same(file.load_tree(), theirs)
                assert_same(file.tree, theirs)
                made = tensorkeep.materialize(file.tree)
                assert made["twice"][0] is made["twice"][1]
                assert all(torch.equal(made[name].resolve_conj(), theirs[name].resolve_conj()) for name in "fhcbiq")
            else:
                loaded = file.load_tree()
                assert loaded["i"].tolist() == [0, 2**40, 2**41, 3 * 2**40]
                assert loaded["f"].tolist() == state["f"].tolist()
                assert file["h"][1:].tolist() == [2.0, 3.0]
            path = tmp_path / f"{framework}.safetensors"
            tensorkeep.save(file.select(lambda name: name != "c"), path)
            assert tensorkeep.open(path)["i"].load().tolist() == state["i"].tolist()


def swapped_archive(data: bytes, widths: dict[str, int]) -> bytes:
    """Rewrite torch's archive as a machine of the other byte order would have written it.

    Args:
        data: The archive.
        widths: Name to bytes that are swapped, in the order of the storages.
    """
    source = zipfile.ZipFile(io.BytesIO(data))
    width_of = {f"archive/data/{place}": width for place, width in enumerate(widths.values())}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
        for info in source.infolist():
            stored = source.read(info)
            if info.filename == "archive/byteorder":
                stored = b"big"
            if info.filename in width_of:
                stored = np.frombuffer(stored, f"u{width_of[info.filename]}").byteswap().tobytes()
            target.writestr(zipfile.ZipInfo(info.filename), stored)
    return buffer.getvalue()


def test_more_than_4_gib_in_one_storage(tmp_path: Path) -> None:
    path = tmp_path / "large.pt"
    n = 2**32 + 2**20
    with torch.serialization.skip_data():
        torch.save(
            {"small": torch.ones(3), "large": torch.empty(n, dtype=torch.uint8), "last": torch.arange(4)}, path
        )
    assert path.stat().st_blocks * 512 < 2**24, "no sparse file here"
    with path.open("r+b") as writable, open_pickle(path) as file:
        start = file["large"].span.start
        writable.seek(start + 2**32)
        writable.write(b"\x05\x06")
        writable.seek(file["last"].span.start)
        writable.write(struct.pack("<4q", 1, 2, 3, 4))
        writable.flush()
    for backend in ("mmap", "pread"):
        with open_pickle(path, backend=backend) as file:
            assert file["large"].shape == (n,)
            assert file["large"][2**32 - 1 : 2**32 + 3].tolist() == [0, 5, 6, 0]
            assert file["last"].load().tolist() == [1, 2, 3, 4]


def test_checksums_and_alignment_do_not_matter(tmp_path: Path) -> None:
    state = Tower().state_dict()
    before = torch.serialization.get_crc32_options()
    try:
        torch.serialization.set_crc32_options(False)
        without = saved(state)
    finally:
        torch.serialization.set_crc32_options(before)
    with torch.utils.serialization.config.patch({"save.storage_alignment": 4096}):
        aligned = saved(state)
    for data in (without, aligned):
        file = open_pickle(data, framework="torch")
        assert_same(file.load_tree(), run(data))
    assert all(lazy.span.start % 4096 == 0 for lazy in open_pickle(aligned).values() if lazy.nbytes and lazy.span)


class OldPickler(pickle.Pickler):
    """Names storages as torch 1.6 did: a device, and an address as the key."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=2)
        self.storages: dict[str, torch.UntypedStorage] = {}

    def persistent_id(self, value: Any) -> Any:
        if not torch.is_storage(value):
            return None
        untyped = value.untyped()
        key = str(94_000_000_000_000 + untyped.data_ptr() % 10**9)
        self.storages[key] = untyped
        return ("storage", getattr(torch, value.pickle_storage_type()), key, "cuda:0", value.size())


def old_archive(value: Any) -> bytes:
    """Write an archive as torch 1.6 did: the version first, no byte order, no alignment here."""
    pickled = io.BytesIO()
    pickler = OldPickler(pickled)
    pickler.dump(value)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("old/version"), b"3\n")
        archive.writestr(zipfile.ZipInfo("old/data.pkl"), pickled.getvalue())
        for key, storage in pickler.storages.items():
            archive.writestr(zipfile.ZipInfo(f"old/data/{key}"), bytes(storage))
    return buffer.getvalue()


def test_archive_of_torch_1_6_saved_on_a_gpu() -> None:
    state = Tower().state_dict() | {"half": torch.arange(5).half(), "wide": torch.arange(7.0).double()[2:]}
    data = old_archive(state)
    theirs = torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
    for framework in ("torch", "numpy"):
        with open_pickle(data, framework=framework) as file:
            assert file.form == "zip"
            assert {storage.location for storage in file.document.storages.values()} == {"cuda:0"}
            assert any(lazy.span and lazy.span.start % 4 for lazy in file.values()), "all are aligned by chance"
            assert all(np.array_equal(file[name].load(), tensor) for name, tensor in state.items())
            if framework == "torch":
                assert_same(file.load_tree(), theirs)


class Compiled(nn.Module):
    """Has tensors that are constants of the code, attributes that are no parameters, and modules within."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 2)))
        self.register_buffer("scale", torch.arange(2.0))
        self.shift = torch.ones(2)
        self.table = {"a": torch.ones(1)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * torch.tensor([2.0, 3.0]) + self.shift * self.scale


@pytest.mark.parametrize("how", ["script", "trace"])
def test_torchscript(how: str, tmp_path: pathlib.Path) -> None:
    compiled = (
        torch.jit.script(Compiled()) if how == "script" else torch.jit.trace(Compiled().eval(), torch.ones(2, 3))
    )
    path = tmp_path / "model.pt"
    torch.jit.save(compiled, path)
    with open_pickle(path, framework="torch") as file:
        assert file.form == "torchscript"
        state = torch.jit.load(path).state_dict()
        assert [name for name in file if name in state] == list(state)
        for name, tensor in state.items():
            assert torch.equal(file[name].load(), tensor), name
        assert {name for name in file if name not in state} <= {"shift", "table.a", "table.0.a"}
        assert all(
            "__torch__" in unknown.module or "torch.jit" in unknown.module for unknown in file.unknowns.values()
        )
        assert file.load_tree().qualified_name.startswith("__torch__.")


def test_distributed_checkpoint_is_several_archives_in_one_file(tmp_path: pathlib.Path) -> None:
    state = {"a": torch.arange(6.0), "m": {"b": torch.ones(3, 4, dtype=torch.bfloat16)}, "n": 5, "s": {"deep": ["x"]}}
    torch.distributed.checkpoint.save(state, checkpoint_id=tmp_path, no_dist=True)
    metadata = open_pickle(tmp_path / ".metadata")
    assert metadata.form == "pickle"
    assert_same(metadata.tree, pickle.loads((tmp_path / ".metadata").read_bytes()), protocol=4)
    places = {
        index.state["fqn"]: (place.state["relative_path"], place.state["offset"], place.state["length"])
        for index, place in metadata.tree.state["storage_data"].items()
    }
    assert set(places) == {"a", "m.b", "n", "s.deep.0"} or set(places) == {"a", "m.b", "n", "s.deep"}
    for name, (path, offset, length) in places.items():
        source = LocalFile(tmp_path / path)
        part = pickle_over(source, OpenOptions(framework="torch"), ByteRange(offset, offset + length))
        data = (tmp_path / path).read_bytes()[offset : offset + length]
        assert_same(part.load_tree(), run(data))
        assert_same(part.tree, run(data))
        if name == "a":
            assert torch.equal(part["tensor"].load(), state["a"])
            assert part["tensor"].span.start >= offset
