"""`tensorkeep verify`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.cli import main
from tests.support.soak import rounds

SECOND = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of three shards."""
    directory = tmp_path_factory.mktemp("saved") / "model"
    tensors = {f"layers.{i}.weight": np.random.default_rng(i).normal(size=(64, 32)) for i in range(6)}
    tensorkeep.save_checkpoint(tensors, directory, max_shard_size="40KB", sha256=True)
    return directory


@pytest.fixture
def checkpoint(saved: Path, tmp_path: Path) -> Path:
    """A copy of it that can be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def verify(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["verify", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def verify_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code, out, err = verify(capsys, "--json", *arguments)
    assert err == ""
    return code, json.loads(out)


def test_a_whole_checkpoint(run: Any, checkpoint: Path) -> None:
    done = run("verify", str(checkpoint))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("whole: 3 shards, 6 tensors, SHA-256 of 3 files, 98.3 kB checked in ")
    assert done.stdout.endswith("B/s)\n")


def test_a_flipped_byte_is_found_at_its_place(run: Any, checkpoint: Path) -> None:
    with tensorkeep.open(checkpoint) as tensors:
        span = tensors.shards[SECOND].span_of("layers.3.weight")
    flip(checkpoint / SECOND, span.start + 5)

    done = run("verify", str(checkpoint))

    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"data  {SECOND}, bytes {span.start:,} to {span.stop:,}"
    assert lines[1].startswith(
        "  the bytes of tensor `layers.3.weight` are not those that were saved: expected digest "
    )
    assert "Download or copy this file again" in lines[2]
    assert f"sha256  {SECOND}" in lines
    assert lines[-1].startswith("damaged: 2 places; 3 shards, 6 tensors")


DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "a missing shard": (lambda path: (path / SECOND).unlink(), "missing", SECOND),
    "a cut shard": (lambda path: (path / SECOND).write_bytes((path / SECOND).read_bytes()[:-1]), "truncated", SECOND),
    "a flip in a header": (lambda path: flip(path / SECOND, 30), "header", SECOND),
    "shards that changed places": (
        lambda path: shutil.copy(path / "model-00001-of-00003.safetensors", path / SECOND),
        "foreign",
        SECOND,
    ),
    "a flip in the index": (lambda path: flip(path / INDEX, 100), "header", INDEX),
    "a cut index": (lambda path: (path / INDEX).write_bytes((path / INDEX).read_bytes()[:-50]), "header", INDEX),
}


@pytest.mark.parametrize(("damage", "kind", "shard"), DAMAGES.values(), ids=DAMAGES)
def test_every_damage_is_exit_code_1_and_a_finding(
    capsys: pytest.CaptureFixture[str], checkpoint: Path, damage: Damage, kind: str, shard: str
) -> None:
    damage(checkpoint)

    code, verdict = verify_json(capsys, checkpoint)

    assert (code, verdict["status"]) == (1, "damaged")
    finding = verdict["findings"][0]
    assert (finding["kind"], finding["shard"], finding["is_damage"]) == (kind, shard, True)
    code, out, _ = verify(capsys, checkpoint)
    assert (code, out.splitlines()[0]) == (1, f"{kind}  {shard}")


@pytest.mark.soak
def test_every_flip_of_a_single_file_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"a": np.arange(3, dtype=np.int16), "b": np.ones(2)}, path)
    content = path.read_bytes()
    codes = set()

    for place in range(0, len(content), rounds(5, 1)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        codes.add(main(["verify", str(path)]))
    capsys.readouterr()

    assert codes <= {1, 2}
    path.write_bytes(content)
    assert main(["verify", str(path)]) == 0


def test_a_truncated_file_is_damaged_and_other_files_are_no_checkpoints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"a": np.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-10])
    tmp_path.joinpath("lfs").write_text("version https://git-lfs.github.com/spec/v1\n")
    tmp_path.joinpath("empty").write_bytes(b"")
    tmp_path.joinpath("folder").mkdir()

    assert verify_json(capsys, path)[1]["findings"][0]["kind"] == "header"
    for name, words in (
        ("lfs", "git lfs pull"),
        ("empty", "empty"),
        ("folder", "no checkpoint"),
        ("none", "No such"),
    ):
        code, out, err = verify(capsys, tmp_path / name)
        assert (code, out) == (2, "")
        assert words in err


def test_the_whole_json(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    shutil.copy(checkpoint / SECOND, checkpoint / "model-00004-of-00004.safetensors")

    code, verdict = verify_json(capsys, checkpoint)

    assert code == 0
    assert verdict.pop("seconds") >= 0
    assert verdict == {
        "path": str(checkpoint),
        "status": "whole",
        "n_shards": 3,
        "n_tensors": 6,
        "n_checked": 6,
        "n_unprotected": 0,
        "nbytes_checked": 6 * 64 * 32 * 8,
        "n_sha256": 3,
        "n_others": 0,
        "signers": [],
        "n_kept": 0,
        "findings": [
            {
                "kind": "stray",
                "is_damage": False,
                "shard": "model-00004-of-00004.safetensors",
                "tensor": None,
                "span": None,
                "message": "no index lists it; was it left by another save?",
                "expected": None,
                "found": None,
                "advice": "Move it away if it is not needed: programs that choose files by name may load it",
            }
        ],
    }


def test_a_checkpoint_of_another_library_has_no_digests(
    capsys: pytest.CaptureFixture[str], minilm: str, tmp_path: Path
) -> None:
    tensors = {f"w{i}": torch.ones(100, 10) for i in range(5)}
    huggingface_hub.save_torch_state_dict(tensors, tmp_path, max_shard_size="9KB")

    for path, n_tensors in ((tmp_path, 5), (minilm, 104)):
        code, out, _ = verify(capsys, path)
        assert code == 2
        n_of_n = f"{n_tensors} of {n_tensors}"
        assert out.splitlines() == [
            f"not verified: {n_of_n} tensors have no digest; only their structure was checked",
            f"`tensorkeep reshard {path} DIRECTORY` writes a copy with digests",
        ]
        assert verify_json(capsys, path)[1]["status"] == "unverifiable"
        assert verify(capsys, path, "--name", "*")[0] == 2


def test_only_some_names(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    with tensorkeep.open(checkpoint) as tensors:
        flip(checkpoint / SECOND, tensors.shards[SECOND].span_of("layers.3.weight").start)

    code, out, _ = verify(capsys, checkpoint, "--name", "layers.[01].*", "--name", "layers.5.weight")
    assert code == 0
    assert out.startswith("no damage: 3 shards, 3 of 6 tensors, 49.2 kB checked in ")
    assert verify(capsys, checkpoint, "--name", "*.3.*")[0] == 1
    code, out, err = verify(capsys, checkpoint, "--name", "LAYERS.*")
    assert (code, out) == (2, "")
    assert "no tensor is chosen" in err


def test_names_of_a_damaged_checkpoint(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    (checkpoint / SECOND).unlink()

    code, verdict = verify_json(capsys, checkpoint, "--name", "layers.0.weight")

    assert (code, [finding["kind"] for finding in verdict["findings"]]) == (1, ["missing"])


def test_names_of_tensors_that_are_cut_over_shards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(
        {"big": np.ones((100, 10)), "small": np.ones(1)}, tmp_path, max_shard_size="3KB", split_large=True
    )

    code, verdict = verify_json(capsys, tmp_path, "--name", "big")

    assert (code, verdict["nbytes_checked"]) == (0, 8000)


def test_a_sample(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    for share, n_checked in (("10%", 1), ("0.5", 3), ("100 %", 6)):
        code, verdict = verify_json(capsys, checkpoint, "--sample", share)
        assert (code, verdict["n_checked"]) == (0, n_checked)
    for share in ("0%", "101%", "-1", "half", "nan"):
        code, out, err = verify(capsys, checkpoint, f"--sample={share}")
        assert (code, out) == (2, "")
        assert err.startswith(("error: `sample` must be a fraction", "error: Invalid value for '--sample'"))


def test_a_variant(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"a": np.ones(3)}, tmp_path)
    tensorkeep.save_checkpoint({"a": np.ones(3, np.float16)}, tmp_path, variant="fp16")
    flip(tmp_path / "model.fp16.safetensors", -1)

    assert verify(capsys, tmp_path)[0] == 0
    assert verify(capsys, tmp_path, "--variant", "fp16")[0] == 1


def test_hostile_names_are_shown_and_not_obeyed(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"\x1b[31m[red]\n": np.ones(3)}, path)
    flip(path, -1)

    done = run("verify", str(path))

    assert done.returncode == 1
    assert r"`\x1b[31m[red]\n`" in done.stdout
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    done = run("verify", "--json", str(path))
    assert json.loads(done.stdout)["findings"][0]["tensor"] == "\x1b[31m[red]\n"
    assert all(line.isprintable() and line.isascii() for line in done.stdout.split("\n"))


@pytest.mark.parametrize("arguments", [[], ["--sampel", "1"], ["a", "b"], ["a", "--sample"]])
def test_usage_errors_are_no_answers(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, err = verify(capsys, *arguments)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
