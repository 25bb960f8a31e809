"""Mistakes that people make with files of other formats, and what they are told."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import DtypeError, FormatError, HeaderError, SourceMissingError, UnsupportedError

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"


@pytest.mark.parametrize("suffix", ["msgpack", "h5", "gguf", "onnx", "pdparams", "npz", "keras", "arrow", "pt"])
@pytest.mark.parametrize(("content", "what"), [(POINTER, "a Git LFS pointer"), (b"<html>404</html>", "an HTML page")])
def test_what_came_instead_of_the_file_is_named(suffix: str, content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / f"file.{suffix}"
    path.write_bytes(content)

    with pytest.raises(FormatError, match=what):
        tensorkeep.open(path)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("notes.md", b"# Notes on this model\n", "a text file"),
        ("index.json", b"{}", "a JSON text"),
        ("empty.pt", b"", "an empty file"),
        ("noise.bin", np.random.default_rng(0).bytes(100), "begins with"),
    ],
)
def test_what_is_no_file_of_tensors_is_not_called_a_broken_safetensors_file(
    name: str, content: bytes, what: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)

    for read in (tensorkeep.open, lambda path: tensorkeep.convert(path, tmp_path / "new")):
        with pytest.raises(HeaderError, match=r"^not a file of tensors .*expected safetensors, PyTorch") as caught:
            read(tmp_path / name)
        assert caught.value.path == str(tmp_path / name)
        assert what in str(caught.value.found)
        assert caught.value.hint


def test_a_suffix_in_capitals_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "MODEL.SAFETENSORS").write_bytes(b"<!DOCTYPE html><html>not found</html>")

    with pytest.raises(HeaderError, match=r"expected a safetensors file, found an HTML page"):
        tensorkeep.open(tmp_path / "MODEL.SAFETENSORS")


def test_a_missing_file_of_tensors_is_named_with_its_model(tmp_path: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    graph = helper.make_graph([], "net", [], [], initializer=[numpy_helper.from_array(np.ones(9, "f4"), "w")])
    model = helper.make_model(graph)
    onnx.save(model, tmp_path / "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0)
    (tmp_path / "a.data").unlink()

    with pytest.raises(SourceMissingError, match=r"tensors of a\.onnx is missing .*a\.data\)\. Get it too"):
        tensorkeep.open(tmp_path / "a.onnx")
    (tmp_path / "a.onnx").write_bytes((tmp_path / "a.onnx").read_bytes()[:-9])
    with pytest.raises(FormatError, match="If it was cut off, get it again"):
        tensorkeep.open(tmp_path / "a.onnx")


def test_a_scan_names_the_files_of_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "ckpt-7.data-00000-of-00001").write_bytes(b"")

    with pytest.raises(SourceMissingError, match=r"names begin so: ckpt-7\.data-00000-of-00001"):
        tensorkeep.scan(tmp_path / "ckpt-7")
    with pytest.raises(TypeError, match="scan takes paths, not bytes"):
        tensorkeep.scan(b"content")  # type: ignore[arg-type]


def test_an_export_says_what_it_takes_and_how_blocks_become_numbers(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    blocks = gguf.quants.quantize(np.eye(32, dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("w", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with pytest.raises(DtypeError, match=r"--dequantize f32\) gives their numbers"):
        tensorkeep.export(tmp_path / "a.gguf", tmp_path / "a.npz")
    with pytest.raises(TypeError, match="export takes paths, open checkpoints and views, not dict"):
        tensorkeep.export({"w": np.eye(2)}, tmp_path / "a.npz")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="web servers"):
        tensorkeep.export(tmp_path / "a.gguf", "https://localhost/a.npz")


@pytest.mark.parametrize("name", ["convert", "reshard", "join", "push", "export"])
def test_tensors_are_not_taken_for_paths(tmp_path: Path, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} takes paths, open checkpoints and views, not dict.*tensorkeep.save"):
        getattr(tensorkeep, name)({"w": np.eye(2)}, tmp_path / "b.npz")


def test_paths_are_not_taken_for_open_tensors(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.eye(2)}, tmp_path / "a.safetensors")
    with tensorkeep.open(tmp_path / "a.safetensors") as file:
        for call in (
            lambda: tensorkeep.merging.average("a", "b"),  # type: ignore[arg-type] # that is the test
            lambda: tensorkeep.merging.add_lora(file, "b"),  # type: ignore[arg-type]
            lambda: tensorkeep.merging.extract_lora("a", file, tmp_path / "lora", rank=1),  # type: ignore[arg-type]
            lambda: tensorkeep.combine(np.add, file, {}),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match=r"open files, checkpoints or views are needed.*tensorkeep\.open"):
                call()
    with pytest.raises(TypeError, match="`submit`, not int"):
        tensorkeep.verify(tmp_path / "a.safetensors", executor=4)  # type: ignore[arg-type]
    for deltas in (1.7, "3", -1):
        with pytest.raises(UnsupportedError, match="number of deltas"):
            tensorkeep.CheckpointStore(tmp_path / "run", deltas=deltas)  # type: ignore[arg-type]


def test_a_directory_of_other_files_names_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", w=np.ones(2))
    (tmp_path / "notes.txt").write_text("…")

    for refused in (tensorkeep.open, lambda path: tensorkeep.convert(path, tmp_path / "new")):
        with pytest.raises(
            SourceMissingError, match=r"no checkpoint .*Open a file in it by its own path: arrays\.npz"
        ):
            refused(tmp_path)


def test_weights_beside_a_model_of_openvino_name_the_model(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(np.random.default_rng(0).normal(size=99).tobytes())
    (tmp_path / "model.xml").write_text("<?xml version='1.0'?><net/>")

    with pytest.raises(HeaderError, match=r"no format that tensorkeep reads.*Open model\.xml, whose weights"):
        tensorkeep.open(tmp_path / "model.bin")
