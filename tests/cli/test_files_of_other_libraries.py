"""Commands on files of other libraries: what is no tensor, and what only another library reads."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import TensorNotFoundError, UnsupportedError
from tests.support.formats.orbax_files import save_arrays

WORDS = np.array(["a", "b"])


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Two tensors, an array of strings and an array of objects."""
    path = tmp_path / "file.npz"
    np.savez(path, **{"a/b": np.ones(2), "a/c": np.ones(3), "words": WORDS, "objects": np.array([{}, 1], object)})
    return str(path)


@pytest.fixture
def quantized(tmp_path: Path) -> str:
    writer = gguf.GGUFWriter(tmp_path / "file.gguf", "llama")
    blocks = gguf.quants.quantize(np.eye(32, dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("w", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(tmp_path / "file.gguf")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(list(arguments)) == status
    captured = capsys.readouterr()
    return captured.err if status and not captured.out else captured.out


class TestInspect:
    def test_strings_and_unknown_objects_are_listed(self, archive: str, capsys: pytest.CaptureFixture[str]) -> None:
        out = printed(capsys, "inspect", archive)

        assert "  strings   words: 2 strings\n" in out
        assert "  unknown   objects: |O" in out
        found = json.loads(printed(capsys, "inspect", archive, "--json"))
        assert found["strings"] == {"words": "2 strings"}
        assert list(found["unknowns"]) == ["objects"]

    def test_many_are_counted(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        np.savez(tmp_path / "file.npz", **{f"words{n}": WORDS for n in range(9)})

        out = printed(capsys, "inspect", str(tmp_path / "file.npz"))

        assert out.count(": 2 strings\n") == 5
        assert "            and 4 more (all with --json)\n" in out

    def test_names_with_slashes_are_modules(self, archive: str, capsys: pytest.CaptureFixture[str]) -> None:
        out = printed(capsys, "inspect", archive)

        assert [line.split()[:2] for line in out.splitlines() if line.startswith(("a ", "├─", "└─"))] == [
            ["a", "2"],
            ["├─", "b"],
            ["└─", "c"],
        ]


class TestSlice:
    def test_strings_are_printed(self, archive: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert printed(capsys, "slice", archive, "words") == "['a' 'b']\n"

    def test_numbers_of_quantized_tensors_are_asked_for(
        self, quantized: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "--dequantize bf16" in printed(capsys, "slice", quantized, "w", status=2)
        out = printed(capsys, "slice", quantized, "w", "[3, 2:5]", "--dequantize", "f32")
        assert out.startswith("w  F32  [3] of [32, 32]\n")
        assert "1 request, 34 bytes" in printed(capsys, "slice", quantized, "w", "3", "--dequantize", "f32", "--plan")
        printed(capsys, "slice", quantized, "w", "-o", str(tmp_path / "w.npy"), "--dequantize", "f32")
        assert np.allclose(np.load(tmp_path / "w.npy"), np.eye(32), atol=0.01)

    def test_an_error_says_what_the_name_is_of(self, archive: str) -> None:
        with tensorkeep.open(archive) as file:
            with pytest.raises(TensorNotFoundError, match=r"array of 2 strings: \.strings\['words'\]\.load\(\)"):
                file["words"]
            with pytest.raises(TensorNotFoundError, match=r"not read as a tensor: \|O"):
                file["objects"]

    def test_an_error_says_the_only_name(self, tmp_path: Path) -> None:
        np.save(tmp_path / "file.npy", np.ones(2))

        with pytest.raises(TensorNotFoundError, match="The only tensor is `tensor`"):
            tensorkeep.open(tmp_path / "file.npy")["weight"]


class TestDiff:
    def test_the_engine_reads_what_it_can(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arrays = {"a": np.ones(2, np.float32)}
        save_arrays(arrays, tmp_path / "orbax")
        tensorkeep.save(arrays, tmp_path / "file.safetensors")
        paths = [str(tmp_path / "orbax"), str(tmp_path / "file.safetensors")]

        for pair in (paths, paths[::-1], [paths[0], paths[0]]):
            assert printed(capsys, "diff", *pair, "--engine", "tensorstore") == "equal: 1 tensor\n"
        assert "no engine (--engine)" in printed(
            capsys, "diff", paths[1], paths[1], "--engine", "tensorstore", status=2
        )
        assert printed(capsys, "diff", *paths) == "equal: 1 tensor\n"


@pytest.mark.parametrize("rewrite", [tensorkeep.reshard, lambda path, to: tensorkeep.join([path], to)])
def test_what_is_no_tensor_is_not_lost_in_silence(rewrite: object, archive: str, tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"more than tensors.*found `objects`: .*`words`: 2 strings\. `tensorkeep convert`"
    ):
        rewrite(archive, tmp_path / "new")  # type: ignore[operator]

    assert not (tmp_path / "new").exists()


def test_verify_names_the_command_that_makes_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["a"] = np.ones(2)
    assert "`tensorkeep reshard" in printed(capsys, "verify", str(tmp_path / "file.h5"), status=2)
    with h5py.File(tmp_path / "file.h5", "a") as file:
        file["words"] = ["a", "b"]
    assert "`tensorkeep convert" in printed(capsys, "verify", str(tmp_path / "file.h5"), status=2)


def test_an_export_lists_the_metadata_that_it_leaves_out_once(
    quantized: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "export", quantized, str(tmp_path / "w.npz"), "--dequantize", "f32")

    assert "  left out  metadata: `general.architecture`, `tensorkeep.gguf`\n" in out
