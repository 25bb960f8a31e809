"""`tensorkeep reshard`, `tensorkeep join` and `tensorkeep edit`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import tensorkeep
from tensorkeep.cli import main

INDEX = "model.safetensors.index.json"
Tensors = dict[str, np.ndarray]


def tensors_of(n: int = 6) -> Tensors:
    return {f"model.layers.{i}.weight": np.random.default_rng(i).normal(size=(50, 10)) for i in range(n)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint of 24 kB in two shards, as huggingface_hub writes it, without digests."""
    tensors = {name: torch.from_numpy(array) for name, array in tensors_of().items()}
    (tmp_path / "source").mkdir()
    huggingface_hub.save_torch_state_dict(tensors, tmp_path / "source", max_shard_size="12KB")
    return tmp_path / "source"


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(list(map(str, arguments))) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def fail(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(list(map(str, arguments))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def assert_equal(directory: Path, expected: Tensors) -> None:
    loaded = tensorkeep.load(directory)
    assert loaded.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(loaded[name], array)


def test_reshard(run: Any, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"

    done = run("reshard", str(source), str(target), "--max-shard-size", "8KB")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"wrote {target}: 3 shards, 6 tensors, 24.0 kB in ")
    assert sorted(files_of(target)) == [*(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)), INDEX]
    assert_equal(target, tensors_of())
    assert tensorkeep.verify(target).is_whole
    assert not tensorkeep.verify(source).is_whole


def test_others_read_what_it_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    model = transformers.BertModel(config)
    model.save_pretrained(tmp_path / "a", max_shard_size="8KB")
    capsys.readouterr()

    call(capsys, "reshard", tmp_path / "a", tmp_path / "b", "--max-shard-size", "20KB")
    config.save_pretrained(tmp_path / "b")

    again = transformers.BertModel.from_pretrained(tmp_path / "b")
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())


def test_into_its_own_directory(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    source.joinpath("config.json").write_text("{}")

    call(capsys, "reshard", source, source)

    assert sorted(files_of(source)) == ["config.json", "model.safetensors"]
    assert_equal(source, tensors_of())


def test_reshard_as_json(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"

    report = json.loads(call(capsys, "reshard", "--json", source, target, "--max-shard-size=16KB", "--sha256"))

    assert report.pop("seconds") >= 0
    assert report.pop("replaced") == []
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert report == {
        "path": str(target),
        "index": INDEX,
        "n_tensors": 6,
        "data_nbytes": 24_000,
        "shards": [
            {"shard": name, "nbytes": (target / name).stat().st_size, "n_tensors": n}
            for name, n in zip(names, (4, 2), strict=True)
        ],
    }
    records = json.loads((target / INDEX).read_text())["metadata"]["tensorkeep"]["shards"]
    assert {name: record["sha256"] for name, record in records.items()} == {
        name: hashlib.sha256((target / name).read_bytes()).hexdigest() for name in names
    }


def test_other_tensors_and_names_and_dtypes(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    options = ["--select", "model.layers.[0-3].*", "--drop", "*.1.*", "--drop", "*.2.*"]
    names = ["--rename", "model.layers.3.weight=model.last", "--strip-prefix", "model."]

    call(capsys, "reshard", source, tmp_path / "target", *options, *names, "--cast", "float32")

    assert_equal(
        tmp_path / "target",
        {
            "layers.0.weight": tensors_of()["model.layers.0.weight"].astype(np.float32),
            "last": tensors_of()["model.layers.3.weight"].astype(np.float32),
        },
    )


def test_balance_and_split(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"big": np.ones((100, 10)), "a": np.ones(20), "b": np.ones(20)}, tmp_path / "a")

    call(capsys, "reshard", tmp_path / "a", tmp_path / "b", "--max-shard-size=3KB", "--split-large", "--balance")

    assert tensorkeep.open(tmp_path / "b").index.splits.keys() == {"big"}
    assert tensorkeep.load(tmp_path / "b")["big"].sum() == 1000


def test_a_variant(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    call(capsys, "reshard", source, source, "--cast=fp16", "--output-variant=fp16")

    assert {lazy.dtype for lazy in tensorkeep.open(source, variant="fp16").values()} == {"F16"}
    assert {lazy.dtype for lazy in tensorkeep.open(source).values()} == {"F64"}


REFUSALS: dict[str, tuple[list[str], str]] = {
    "a size without a unit": (["--max-shard-size", "5 X"], "not a size"),
    "a pattern that matches nothing": (["--select", "nothing"], "no tensor is chosen"),
    "a name that is not there": (["--rename", "a=b"], "there is no tensor `a` to rename"),
    "a name without another": (["--rename", "a"], "expected OLD=NEW"),
    "a name twice": (["--rename", "a=b", "--rename", "a=c"], "'a' is given twice"),
    "two tensors of one name": (["--rename", "model.layers.0.weight=model.layers.1.weight"], "model.layers.0.weight"),
    "no such prefix": (["--strip-prefix", "encoder."], "no name begins with 'encoder.'"),
    "no such dtype": (["--cast", "float17"], "float17"),
}


@pytest.mark.parametrize(("options", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_refused_leaves_nothing(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    error = fail(capsys, "reshard", source, tmp_path / "target", *options)

    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "target").exists()


def test_a_damaged_checkpoint_is_not_made_to_look_whole(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    call(capsys, "reshard", source, source)
    path = source / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")

    error = fail(capsys, "reshard", source, tmp_path / "target", "--cast", "bf16")

    assert "model.layers.5.weight" in error
    assert not (tmp_path / "target").exists()


def test_merge(run: Any, source: Path, tmp_path: Path) -> None:
    safetensors.torch.save_file({"adapter.weight": torch.ones(3)}, tmp_path / "adapter.safetensors")
    target = tmp_path / "target"

    done = run("join", str(source), str(tmp_path / "adapter.safetensors"), str(target), "--max-shard-size=20KB")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"wrote {target}: 2 shards, 7 tensors, 24.0 kB in ")
    assert_equal(target, tensors_of() | {"adapter.weight": np.ones(3, np.float32)})


def test_merge_refuses_a_name_in_two_checkpoints(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    tensorkeep.save({"model.layers.1.weight": np.ones(3)}, tmp_path / "other.safetensors")

    error = fail(capsys, "join", source, tmp_path / "other.safetensors", tmp_path / "target")
    assert "tensor `model.layers.1.weight` is in two of the checkpoints" in error
    assert not (tmp_path / "target").exists()

    assert "Missing argument" in fail(capsys, "join", source)


def test_merge_of_some_tensors(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    tensorkeep.save({"other": np.ones(3), "third": np.ones(3)}, tmp_path / "other.safetensors")

    call(
        capsys,
        "join",
        source,
        tmp_path / "other.safetensors",
        tmp_path / "target",
        *("--select", "*.0.weight", "--select", "[a-z]*r*", "--drop", "*.[12345].weight", "--cast", "bfloat16"),
    )

    with tensorkeep.open(tmp_path / "target") as tensors:
        assert {name: lazy.dtype for name, lazy in tensors.items()} == {
            "model.layers.0.weight": "BF16",
            "other": "BF16",
            "third": "BF16",
        }


def edited_metadata(path: Path) -> dict[str, str]:
    with tensorkeep.open(path) as tensors:
        return tensors.metadata


SHARDED: list[Callable[[Path], None]] = [
    lambda path: tensorkeep.save_checkpoint(tensors_of(), path, max_shard_size="9KB"),
    lambda path: tensorkeep.save_checkpoint(tensors_of(), path),
    lambda path: huggingface_hub.save_torch_state_dict(
        {name: torch.from_numpy(array) for name, array in tensors_of().items()}, path, max_shard_size="9KB"
    ),
]


@pytest.mark.parametrize("save", SHARDED, ids=["shards", "one file", "shards of huggingface_hub"])
def test_edit(run: Any, tmp_path: Path, save: Callable[[Path], None]) -> None:
    save(tmp_path)
    had_digests = tensorkeep.verify(tmp_path).is_whole

    done = run("edit", str(tmp_path), "--set", "license=a = b", "--rename", "model.layers.0.weight=first")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"edited {tmp_path}\n", "")
    assert edited_metadata(tmp_path) == {"format": "pt", "license": "a = b"}
    expected = {name: array for name, array in tensors_of().items() if name != "model.layers.0.weight"}
    assert_equal(tmp_path, {"first": tensors_of()["model.layers.0.weight"]} | expected)
    assert tensorkeep.verify(tmp_path).is_whole == had_digests
    for path in tmp_path.glob("*.safetensors"):
        assert safetensors.safe_open(path, "np").metadata()["license"] == "a = b"


def test_edit_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save(tensors_of(2), path, metadata={"format": "pt", "old": "1"})

    report = json.loads(
        call(capsys, "edit", "--json", path, "--unset=old", "--set=k=\x1b\n", "--rename=model.layers.1.weight=b")
    )

    assert report == {
        "path": str(path),
        "metadata": {"format": "pt", "k": "\x1b\n"},
        "renamed": {"model.layers.1.weight": "b"},
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to change"),
        (["--set", "text"], "expected KEY=TEXT"),
        (["--set", "a=1", "--unset", "nope"], "no metadata `nope` to remove"),
        (["--set", "a=1", "--unset", "a"], "to be both set and removed"),
        (["--set", "tensorkeep=1"], "holds the digests"),
        (["--rename", "nothing=a"], "there is no tensor `nothing` to rename"),
        (["--rename", "model.layers.0.weight=model.layers.1.weight"], "model.layers.0.weight"),
    ],
)
def test_edits_that_are_refused_change_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], message: str
) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="9KB")
    before = files_of(tmp_path)

    error = fail(capsys, "edit", tmp_path, *options)

    assert message in error
    assert error.count("\n") == 1
    assert files_of(tmp_path) == before


def test_pickles_are_for_convert(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "x.pt")
    np.save(tmp_path / "x.npy", np.ones(2))

    for command in (["reshard", "x.pt", "out"], ["edit", "x.pt", "--set", "a=b"]):
        arguments = [str(tmp_path / each) if each in {"x.pt", "out"} else each for each in command]
        error = fail(capsys, *arguments)
        assert "found files of pickles" in error
        assert "tensorkeep convert" in error
    assert "found a NumPy array" in fail(capsys, "edit", str(tmp_path / "x.npy"), "--set", "a=b")
