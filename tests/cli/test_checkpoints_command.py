"""`tensorkeep inspect` and `tensorkeep slice` on directories and indexes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers

import tensorkeep
from tensorkeep.cli import main

INDEX = "model.safetensors.index.json"
ESCAPE = "\x1b"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(list(map(str, arguments))) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def tensor_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(10, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ours")
    tensors = {f"layers.{i}.weight": tensor_of(i) for i in range(5)}
    tensorkeep.save_checkpoint(tensors, directory, max_shard_size="400B", metadata={"format": "pt", "step": "7"})
    return directory


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("theirs")
    tensors = {f"layers.{i}.weight": torch.from_numpy(tensor_of(i)) for i in range(5)}
    huggingface_hub.save_torch_state_dict(tensors, directory, max_shard_size=400)
    return directory


def test_a_directory_is_shown_as_one(run: Any, ours: Path) -> None:
    done = run("inspect", str(ours))
    nbytes = sum(path.stat().st_size for path in ours.glob("*.safetensors"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        str(ours),
        f"  index      {INDEX}",
        f"  shards     3 files, {nbytes:,} bytes (2.07 kB)",
        "  tensors    5 (200 parameters)",
        f"  headers    {nbytes - 800 - 24:,} bytes",
        "  data       aligned to 8 bytes in each file",
        "  alignment  every tensor starts at a multiple of its element size",
        "  digests    BLAKE3 of every tensor",
        "  metadata   format = pt",
        "             step = 7",
        "",
        "module            tensors  dtype  shape     size    share",
        "layers.0..4 (5x)        5                  800 B  100.0 %",
        "└─ weight               5  F32    [10, 4]  800 B  100.0 %",
        "",
        "dtype  tensors  parameters   size    share",
        "F32          5         200  800 B  100.0 %",
    ]


def test_the_index_is_the_same_checkpoint(capsys: pytest.CaptureFixture[str], ours: Path) -> None:
    by_index = printed(capsys, "inspect", ours / INDEX).splitlines()

    assert by_index[1:] == printed(capsys, "inspect", ours).splitlines()[1:]


def test_lists_name_the_shard(capsys: pytest.CaptureFixture[str], theirs: Path) -> None:
    rows = [line.split() for line in printed(capsys, "inspect", "--flat", theirs).splitlines()]
    report = json.loads(printed(capsys, "inspect", "--json", theirs))
    index = json.loads((theirs / INDEX).read_text())

    assert {row[0]: row[-1] for row in rows if row and row[0].startswith("layers.")} == index["weight_map"]
    assert {tensor["name"]: tensor["shard"] for tensor in report["tensors"]} == index["weight_map"]
    assert (report["index"], report["digests"], report["n_tensors"], report["data_start"]) == (INDEX, "none", 5, None)
    for shard in report["shards"]:
        content = (theirs / shard["shard"]).read_bytes()
        assert shard["nbytes"] == len(content)
        assert shard["data_start"] == 8 + int.from_bytes(content[:8], "little")
        assert shard["n_tensors"] == list(index["weight_map"].values()).count(shard["shard"])


def test_offsets_are_those_in_the_shard(capsys: pytest.CaptureFixture[str], theirs: Path) -> None:
    report = json.loads(printed(capsys, "inspect", "--json", theirs))
    starts = {shard["shard"]: shard["data_start"] for shard in report["shards"]}

    for tensor in report["tensors"]:
        start, stop = (starts[tensor["shard"]] + offset for offset in tensor["data_offsets"])
        number = int(tensor["name"].split(".")[1])
        assert (theirs / tensor["shard"]).read_bytes()[start:stop] == tensor_of(number).tobytes()


@pytest.mark.parametrize(("order", "first"), [("offset", "z"), ("name", "a"), ("size", "m")])
def test_sorting_goes_over_all_shards(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, order: str, first: str
) -> None:
    tensors = {"z": np.ones(20), "m": np.ones(30), "a": np.ones(10)}
    tensorkeep.save_checkpoint(tensors, tmp_path, max_shard_size="200B")

    report = json.loads(printed(capsys, "inspect", "--json", "--sort", order, tmp_path))
    tree = printed(capsys, "inspect", "--sort", order, tmp_path).split("module")[1].splitlines()

    assert report["tensors"][0]["name"] == tree[1].split()[0]
    if order != "offset":
        assert report["tensors"][0]["name"] == first


def test_tensors_that_are_cut_over_shards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = np.arange(100.0).reshape(50, 2)
    tensorkeep.save_checkpoint(
        {"big": values, "small": np.ones(2)}, tmp_path, max_shard_size="500B", split_large=True
    )

    assert "  splits     1 tensor is cut into 2 pieces" in printed(capsys, "inspect", tmp_path).splitlines()
    report = json.loads(printed(capsys, "inspect", "--json", tmp_path))
    assert report["splits"] == {"big": ["big[0:31]", "big[31:50]"]}
    assert report["n_elements"] == 102
    assert printed(capsys, "slice", tmp_path, "big", "[30:33, 1]").splitlines()[1] == "[61. 63. 65.]"


def test_a_directory_of_one_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"a": np.ones(3)}, tmp_path)

    by_file = printed(capsys, "inspect", tmp_path / "model.safetensors").splitlines()

    assert printed(capsys, "inspect", tmp_path).splitlines()[1:] == by_file[1:]
    assert "  digests    BLAKE3 of every tensor" in by_file
    assert by_file[7] == "  metadata   format = pt", "the digests are no text to read"


def test_a_model_that_transformers_saved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    model = transformers.BertModel(config)
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    capsys.readouterr()

    report = json.loads(printed(capsys, "inspect", "--json", tmp_path))

    assert {tensor["name"]: tensor["shape"] for tensor in report["tensors"]} == {
        name: list(tensor.shape) for name, tensor in model.state_dict().items() if name != "embeddings.position_ids"
    }
    assert len(report["shards"]) == len(list(tmp_path.glob("*.safetensors"))) > 1


def test_a_variant(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for variant, dtype in ((None, np.float32), ("fp16", np.float16)):
        tensors = {"a": np.ones(30, dtype), "b": np.zeros(30, dtype)}
        tensorkeep.save_checkpoint(tensors, tmp_path, variant=variant, max_shard_size="100B")

    for options, dtype in (([], "F32"), (["--variant", "fp16"], "F16")):
        report = json.loads(printed(capsys, "inspect", "--json", tmp_path, *options))
        assert {tensor["dtype"] for tensor in report["tensors"]} == {dtype}
        assert printed(capsys, "slice", tmp_path, "a", "[:2]", *options).startswith(f"a  {dtype}  [2] of [30]\n")


def test_a_missing_shard_is_named(run: Any, ours: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(ours, tmp_path / "copy")
    (copy / "model-00002-of-00003.safetensors").unlink()

    for arguments in (["inspect", str(copy)], ["slice", str(copy), "layers.0.weight"]):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "model-00002-of-00003.safetensors" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_stray_shard_is_a_warning_in_one_line(run: Any, ours: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(ours, tmp_path / "copy")
    shutil.copy(copy / "model-00002-of-00003.safetensors", copy / "model-00009-of-00009.safetensors")

    done = run("inspect", str(copy))

    assert (done.returncode, done.stdout.splitlines()[3]) == (0, "  tensors    5 (200 parameters)")
    assert done.stderr == f"warning: {copy}: shards that the index does not list: model-00009-of-00009.safetensors\n"


def test_digests_of_another_header_are_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"first": np.ones(3)}, path)
    path.write_bytes(path.read_bytes().replace(b'"first"', b'"other"'))

    text = printed(capsys, "inspect", path)

    assert "  digests    do not match this header: it is damaged, or another program changed it\n" in text
    assert json.loads(printed(capsys, "inspect", "--json", path))["digests"] == "stale"


def test_shards_and_names_that_are_hostile(run: Any, tmp_path: Path) -> None:
    hostile = f"{ESCAPE}[31m[red]\n.weight"
    tensorkeep.save_checkpoint({hostile: np.ones(9), "b": np.ones(9)}, tmp_path, max_shard_size="80B")
    for path in tmp_path.glob("*-00001-*"):
        path.rename(tmp_path / f"model{ESCAPE}.safetensors")
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"][hostile] = f"model{ESCAPE}.safetensors"
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": index["weight_map"]}))

    for view in ([], ["--flat"], ["--json"]):
        done = run("inspect", str(tmp_path), *view)
        assert all(line.isprintable() for stream in (done.stdout, done.stderr) for line in stream.split("\n"))
