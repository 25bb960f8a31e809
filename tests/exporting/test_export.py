"""Any checkpoint as a file of another format: equal tensors, nothing lost in silence, the old file or the new one."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import (
    DestinationExistsError,
    DtypeError,
    IntegrityError,
    LimitError,
    RefusedError,
    UnsafeError,
    UnsupportedError,
)
from tensorkeep.exporting import FORMATS
from tensorkeep.limits import PACK_NBYTES
from tests.support.peak_memory import with_peak
from tests.support.remote.s3_bucket import Bucket

DTYPES = ("bool", "uint8", "int8", "int16", "uint16", "float16", "int32", "uint32", "float32", "complex64", "float64")
DTYPES += ("int64", "uint64")


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """One array of every dtype, an empty one, a scalar, one longer than a piece, and names that are not ASCII."""
    rng = np.random.default_rng(0)
    made = {f"layers.{name}": rng.integers(0, 2, (5, 3)).astype(name) for name in DTYPES}
    made |= {"empty": np.zeros((0, 3), "float32"), "scalar": np.array(2.5), "größe/Ω": np.arange(7.0)}
    return made | {"large": rng.standard_normal(PACK_NBYTES // 8 * 3 + 5)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A safetensors file."""
    tensorkeep.save(arrays(), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_numpy_reads_every_array_of_an_archive(source: Path, tmp_path: Path) -> None:
    done = tensorkeep.export(source, tmp_path / "model.npz")

    with np.load(tmp_path / "model.npz") as archive:
        found = {name: archive[name] for name in archive.files}
    assert found.keys() == arrays().keys()
    for name, array in arrays().items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
    assert (done.format, done.files, done.n_tensors, done.is_checked) == ("npz", ("model.npz",), len(arrays()), True)
    with zipfile.ZipFile(tmp_path / "model.npz") as archive_as_zip:
        assert archive_as_zip.testzip() is None
    assert tensorkeep.verify(tmp_path / "model.npz").is_whole


def test_the_data_in_an_archive_is_aligned(source: Path, tmp_path: Path) -> None:
    tensorkeep.export(source, tmp_path / "model.npz")

    with tensorkeep.open(tmp_path / "model.npz") as opened:
        assert {lazy.data_offsets[0] % 64 for lazy in opened.values()} == {0}


def test_equal_tensors_give_equal_files(source: Path, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        tensorkeep.export(source, tmp_path / name)

    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_one_tensor_becomes_an_array(source: Path, tmp_path: Path) -> None:
    tensorkeep.export(source, tmp_path / "large.npy", select="large")

    np.testing.assert_array_equal(np.load(tmp_path / "large.npy", mmap_mode="r"), arrays()["large"])
    with pytest.raises(LimitError, match="cannot hold so many tensors"):
        tensorkeep.export(source, tmp_path / "all.npy")


def test_a_pickle_is_exported_with_its_complex_numbers_and_ties(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    turned = torch.randn(3, 2).to(torch.complex128).t()
    torch.save({"model": {"w": weight, "tied": weight}, "turned": turned, "epoch": 4}, tmp_path / "model.pt")

    done = tensorkeep.export(tmp_path / "model.pt", tmp_path / "model.npz")

    assert done.copied == {"model.tied": "model.w"}
    assert done.n_values_left_out == 1
    with np.load(tmp_path / "model.npz") as archive:
        np.testing.assert_array_equal(archive["turned"], turned.numpy())
        np.testing.assert_array_equal(archive["model.tied"], weight.numpy())


def test_names_change_and_tensors_are_cast_on_the_way(tmp_path: Path) -> None:
    state = {"model.w": torch.randn(4).bfloat16(), "model.n": torch.arange(3), "other": torch.ones(2)}
    tensorkeep.save(state, tmp_path / "model.safetensors", metadata={"license": "mit"})

    done = tensorkeep.export(
        tmp_path / "model.safetensors", tmp_path / "w.npz", drop="other", strip_prefix="model.", cast="f32"
    )

    assert done.metadata_left_out == ("license",)
    with np.load(tmp_path / "w.npz") as archive:
        assert sorted(archive.files) == ["n", "w"]
        np.testing.assert_array_equal(archive["w"], state["model.w"].float().numpy())


def test_every_tensor_that_does_not_fit_is_named_with_advice(tmp_path: Path) -> None:
    tensorkeep.save({f"w{n}": torch.ones(2).bfloat16() for n in range(7)}, tmp_path / "model.safetensors")

    with pytest.raises(DtypeError, match=r"7 tensors.*BF16: `w0`, .*`w6`.*--cast f32.*exactly"):
        tensorkeep.export(tmp_path / "model.safetensors", tmp_path / "model.npz")
    assert names_in(tmp_path) == ["model.safetensors"]


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a//b", "a/./b", "a\\b", "a\nb", "a/../b", "b.npy", "C:/x/../y"]
)
def test_names_that_unpack_elsewhere_are_refused(name: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="--rename"):
        tensorkeep.export(source, tmp_path / "model.npz", select="large", rename={"large": name})
    assert names_in(tmp_path) == ["model.safetensors"]


def test_nothing_is_replaced_unless_the_caller_says_so(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.npz"
    target.write_text("mine")

    with pytest.raises(DestinationExistsError, match="--force"):
        tensorkeep.export(source, target)
    assert target.read_text() == "mine"

    tensorkeep.export(source, target, overwrite=True)
    with pytest.raises(UnsupportedError, match="the target is the source"):
        tensorkeep.export(target, target, overwrite=True)
    assert names_in(tmp_path) == ["model.npz", "model.safetensors"]


@pytest.mark.parametrize("name", ["model", "model.bin", "model.safetensors"])
def test_a_format_is_known_by_its_suffix_or_named(name: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"\.npz, \.npy"):
        tensorkeep.export(source, tmp_path / "new" / name)
    with pytest.raises(UnsupportedError, match="one of npz, npy"):
        tensorkeep.export(source, tmp_path / name, to="zip")

    tensorkeep.export(source, tmp_path / "archive", to="NPZ")
    assert zipfile.is_zipfile(tmp_path / "archive")


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.mark.parametrize("name", ["model.npz", "model.gguf", "model.msgpack", "model.h5", "model.index"])
def test_a_url_is_a_target(name: str, bucket: Bucket, tmp_path: Path) -> None:
    small = {"a.w": np.ones((3, 4), np.float32), "b": np.arange(5, dtype=np.float16)}
    tensorkeep.save(small, tmp_path / "small.safetensors")
    folder = name.replace(".", "-")
    url = bucket.at(f"{folder}/{name}")
    seen: list[tuple[int, int]] = []

    done = tensorkeep.export(tmp_path / "small.safetensors", url, progress=lambda *so_far: seen.append(so_far))

    assert bucket.names(folder) == set(done.files)
    assert done.path == f"s3://models/{folder}/{name}"
    assert seen[-1][0] == seen[-1][1]
    with tensorkeep.open(url) as opened:
        assert {key: lazy[...].tolist() for key, lazy in opened.items()} == {
            key: array.tolist() for key, array in small.items()
        }
    with pytest.raises(DestinationExistsError):
        tensorkeep.export(tmp_path / "small.safetensors", url)
    with pytest.raises(UnsupportedError, match="is the source"):
        tensorkeep.export(url, url, overwrite=True)
    again = tensorkeep.export(tmp_path / "small.safetensors", url, overwrite=True)
    assert bucket.names(folder) == set(again.files)


def test_fsspec_is_a_target_and_a_web_server_is_not(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "small.safetensors")
    tensorkeep.export(tmp_path / "small.safetensors", "memory://exports/m.npz")
    assert tensorkeep.load("memory://exports/m.npz")["w"].tolist() == [1, 1, 1]
    with pytest.raises(UnsupportedError, match="web servers"):
        tensorkeep.export(tmp_path / "small.safetensors", "https://localhost/m.npz")


def test_an_interrupted_export_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tensorkeep.export(source, tmp_path / "model.npz", progress=interrupt)
    assert names_in(tmp_path) == ["model.safetensors"]


def test_damage_in_the_source_is_not_exported(source: Path, tmp_path: Path) -> None:
    content = bytearray(source.read_bytes())
    content[-1] ^= 1
    source.write_bytes(content)

    with pytest.raises(IntegrityError):
        tensorkeep.export(source, tmp_path / "model.npz")
    assert names_in(tmp_path) == ["model.safetensors"]
    assert not tensorkeep.export(source, tmp_path / "model.npz", check=False).is_checked


def test_what_is_no_data_is_refused_or_left_out(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return os.system, ("false",)

    torch.save({"w": torch.ones(2), "extra": Payload()}, tmp_path / "model.pt")

    with pytest.raises(UnsafeError, match="--drop-unknown"):
        tensorkeep.export(tmp_path / "model.pt", tmp_path / "model.npz")
    done = tensorkeep.export(tmp_path / "model.pt", tmp_path / "model.npz", drop_unknown=True)
    assert list(done.left_out) == ["extra"]


def test_progress_reaches_its_total(source: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    tensorkeep.export(source, tmp_path / "model.npz", progress=lambda *call: calls.append(call))

    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] == calls[-1][1] == calls[0][1]


def test_memory_does_not_grow_with_the_tensors(tmp_path: Path) -> None:
    tensorkeep.save({f"w{n}": np.ones(2**22) for n in range(8)}, tmp_path / "model.safetensors")

    _, peak = with_peak(tensorkeep.export, tmp_path / "model.safetensors", tmp_path / "model.npz")

    assert peak < 16 * 2**20 < os.path.getsize(tmp_path / "model.npz") // 8


def test_the_command_says_what_it_wrote_and_left_out(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(source), str(tmp_path / "model.npz"), "--select", "layers.*"]) == 0
    first, *facts = capsys.readouterr().out.splitlines()
    assert first.startswith(f"wrote {tmp_path / 'model.npz'}: 13 tensors, ")
    assert facts == ["  checked  every tensor, read back"]

    assert main(["export", str(source), str(tmp_path / "model.npz")]) == 2
    assert "--force" in capsys.readouterr().err


def test_each_format_has_a_key_and_suffixes_of_its_own() -> None:
    keys = [each.key for each in FORMATS]
    suffixes = [suffix for each in FORMATS for suffix in each.suffixes]

    assert len(set(keys)) == len(keys)
    assert len(set(suffixes)) == len(suffixes)
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in suffixes)
