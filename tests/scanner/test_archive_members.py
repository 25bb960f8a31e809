"""What `scan` says of members of archives: ordinary ones are clean, and unknown ones are reported."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from tensorkeep.kinds import registry
from tensorkeep.scanner import ScannedFile, scan
from tests.support.formats.archives import zipped
from tests.support.kinds.toy import TOY, save_toy
from tests.support.peak_memory import with_peak

PICKLE = b"cmodule\nname\n)R."


def scanned(path: Path, content: bytes | None = None) -> ScannedFile:
    if content is not None:
        path.write_bytes(content)
    (file,) = scan(path).files
    return file


def messages(file: ScannedFile) -> str:
    return "\n".join(finding.message for finding in file.findings)


def torch_file(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def hdf5(fill: Callable[[h5py.File], object] = lambda file: file.create_dataset("w", data=[1.0])) -> bytes:
    """Return an HDF5 file."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        fill(file)
    return buffer.getvalue()


def linked(kind: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
        link = tarfile.TarInfo("storages")
        link.type, link.linkname = kind, "/etc/passwd"
        archive.addfile(link)
    return buffer.getvalue()


class TestOrdinary:
    def test_numbers_of_any_kind(self, tmp_path: Path) -> None:
        generator = np.random.default_rng(0)
        numbers = [generator.integers(0, 256, 2000).astype(dtype) for dtype in ("u1", "i1", "i2", "i4", "i8", "f4")]
        numbers += [np.arange(20_000), np.zeros(20_000, "f4"), np.where(generator.random(9999) < 0.01, -0.0, 0.0)]
        state = {str(place): torch.from_numpy(array) for place, array in enumerate(numbers)}

        assert scanned(tmp_path / "model.pt", torch_file(state)).findings == ()

    def test_a_tar_whose_last_member_is_a_zip_is_no_zip_of_its_own(self, tmp_path: Path) -> None:
        weights = torch_file({"w": torch.ones(3)})
        with tarfile.open(tmp_path / "model.nemo", "w") as archive:
            for name, content in (("config.yaml", b"a: 1\n"), ("weights.ckpt", weights)):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        assert zipfile.is_zipfile(tmp_path / "model.nemo")

        assert scanned(tmp_path / "model.nemo").findings == ()

    def test_a_large_deflated_array_is_inflated_piece_by_piece(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "a.npz", a=np.zeros(9_000_000), b=np.arange(3))

        file, n_peak = with_peak(lambda: scanned(tmp_path / "a.npz"))

        assert file.findings == ()
        assert n_peak < 16 * 2**20

    def test_archives_of_other_programs(self, tmp_path: Path) -> None:
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.mkdir("folder")
            archive.writestr("folder/notes.txt", "nothing")
            with archive.open("folder/wide", "w", force_zip64=True) as file:
                file.write(b"nothing")
            archive.comment = b"a comment"

        assert scanned(path).findings == ()

    def test_a_keras_model(self, tmp_path: Path) -> None:
        config = json.dumps({"module": "keras", "class_name": "Functional"}).encode()
        members = {"metadata.json": b"{}", "config.json": config, "model.weights.h5": hdf5()}

        assert scanned(tmp_path / "model.keras", zipped(members)).findings == ()

    def test_several_arrays_in_a_file(self, tmp_path: Path) -> None:
        with (tmp_path / "a.npy").open("wb") as file:
            for array in (np.arange(9), np.ones((2, 3), order="F"), np.zeros((0, 5), "U7"), np.array(3.0)):
                np.save(file, array)

        assert scanned(tmp_path / "a.npy").findings == ()

    def test_a_legacy_file_in_an_archive(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        torch.save({"w": torch.ones(9)}, buffer, _use_new_zipfile_serialization=False)
        content = buffer.getvalue()

        assert scanned(tmp_path / "whole.zip", zipped({"a.pt": content})).findings == ()
        assert scanned(tmp_path / "cut.zip", zipped({"a.pt": content[:-4]})).verdict == "unreadable"
        assert scanned(tmp_path / "more.zip", zipped({"a.pt": content + content})).verdict == "unreadable"


class TestTold:
    @pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
    def test_links_and_devices_in_a_tar(self, tmp_path: Path, kind: bytes) -> None:
        file = scanned(tmp_path / "model.tar", linked(kind))

        assert file.verdict == "unknown"
        assert "storages is a" in messages(file)

    @pytest.mark.parametrize("name", ["m/code.py", "m/.data/extern_modules", "m/model.so"])
    def test_programs(self, tmp_path: Path, name: str) -> None:
        assert scanned(tmp_path / "a.zip", zipped({"m/data.txt": b"", name: b""})).verdict == "unknown"

    def test_hdf5(self, tmp_path: Path) -> None:
        def link(file: h5py.File) -> None:
            file["w"] = h5py.ExternalLink("/etc/passwd", "/w")

        def compress(file: h5py.File) -> None:
            file.create_dataset("w", (9,), "i8", chunks=(9,), compression=32015, allow_unknown_filter=True)

        def model(file: h5py.File) -> None:
            file.attrs["model_config"] = json.dumps({"class_name": "Lambda"})

        contents = {
            "weights.h5": hdf5(),
            "weights": bytes(1024) + hdf5(),
            "behind.h5": bytes(2**20) + hdf5(),
            "a.zip": zipped({"model.h5": hdf5()}),
            "deflated.zip": zipped({"model.h5": hdf5(link)}, zipfile.ZIP_DEFLATED),
            "link.h5": hdf5(link),
            "plugin.h5": hdf5(compress),
            "model.h5": hdf5(model),
            "cut.h5": hdf5()[:-100],
        }
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)

        files = {Path(file.path).name: file for file in scan(tmp_path).files}
        assert {name: file.verdict for name, file in files.items()} == {
            **dict.fromkeys(("weights.h5", "weights", "behind.h5", "a.zip"), "clean"),
            **dict.fromkeys(("link.h5", "deflated.zip", "plugin.h5", "model.h5"), "unknown"),
            "cut.h5": "unreadable",
        }
        assert "/etc/passwd" in messages(files["link.h5"])
        assert "plugin" in messages(files["plugin.h5"])

    def test_a_configuration_of_keras_on_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps({"class_name": "Lambda"}))

        assert [file.form for file in scan(tmp_path).files] == ["Keras configuration"]

    def test_a_broken_header_of_safetensors_in_an_archive(self, tmp_path: Path) -> None:
        content = struct.pack("<Q", 4) + b'{"a"'

        assert scanned(tmp_path / "model.safetensors", content).verdict == "unreadable"
        assert scanned(tmp_path / "a.zip", zipped({"model.safetensors": content})).verdict == "unreadable"

    def test_what_follows_arrays(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        np.save(buffer, np.arange(3))
        content = buffer.getvalue()

        assert scanned(tmp_path / "a.npy", content + b"junk").verdict == "unknown"
        assert scanned(tmp_path / "b.npy", content[:-1]).verdict == "unreadable"
        found = scanned(tmp_path / "c.npy", content + content + PICKLE)
        assert "module.name" in {finding.name for finding in found.findings}

    def test_a_tar_archive_that_is_also_a_text_which_imports(self, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "a", "w") as archive:
            archive.addfile(tarfile.TarInfo("cmodule\nname\n"))

        assert scan(tmp_path).verdict == "unknown"

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_a_zip_behind_something_else_whose_members_cannot_be_read(self, tmp_path: Path, method: int) -> None:
        content = struct.pack("<Q", 2) + b"{}" + zipped({"a": PICKLE}, method)

        assert scanned(tmp_path / "a.safetensors", content).verdict == "unreadable"
        assert "also a zip archive" in messages(scanned(tmp_path / "b", bytes(600) + content[10:]))


class TestCost:
    def test_archives_behind_each_other_come_to_an_end(self, tmp_path: Path) -> None:
        content = b"x"
        for _ in range(300):
            content = b"x" + zipped({"a": content})

        assert scanned(tmp_path / "a.bin", content).verdict == "unreadable"

    def test_members_that_share_their_bytes_are_not_scanned_one_by_one(self, tmp_path: Path) -> None:
        content = zipped({"a": pickle.dumps(["text"] * 10_000)})
        start = struct.unpack("<I", content[-6:-2])[0]
        entries = content[start:-22] * 1000
        end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1000, 1000, len(entries), start, 0)

        file = scanned(tmp_path / "a.zip", content[:start] + entries + end)

        assert (file.verdict, file.n_pickles) == ("unreadable", 1)

    def test_faults_that_do_no_harm_do_not_crowd_out_others(self, tmp_path: Path) -> None:
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(1100):
                info = zipfile.ZipInfo(f"a/{number}")
                info.comment = b"no harm"
                archive.writestr(info, b"")
        content = bytearray(path.read_bytes())
        content[content.rindex(b"PK\3\4") + 30] = ord("b")  # the last local name is another than in the directory
        path.write_bytes(content)

        assert "disagree on its name" in messages(scanned(path))


class TestKinds:
    def test_a_kind_of_tensors_needs_nothing_in_the_scanner(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registry, "KINDS", (TOY, *registry.KINDS))
        path = tmp_path / "model.bin"
        save_toy({"a": np.arange(3.0)}, path)

        assert (scanned(path).form, scanned(path).verdict) == ("toy file", "clean")
        path.write_bytes(path.read_bytes()[:-1])
        assert scanned(path).verdict == "unreadable"
