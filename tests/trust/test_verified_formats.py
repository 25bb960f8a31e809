"""`verify(trust=)`: a format that the policy does not allow to be opened is a finding, and is not parsed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.checkpoint import save_folder
from tensorkeep.cli import main
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule

KEY = PrivateKey.generate()
ANY = Policy((Rule(keys=(KEY.public,), pickles=True),))
NO_PICKLES = Policy((Rule(keys=(KEY.public,)),))
ONLY_SAFETENSORS = Policy((Rule(keys=(KEY.public,), pickles=True, formats=("safetensors",)),))
WITH_DIGESTS = Policy((Rule(keys=(KEY.public,), digests=True),))
ONLY_NPZ = Policy((Rule(keys=(KEY.public,), formats=("npz",)),))


def kinds(path: Path, policy: Policy) -> list[str]:
    verification = tensorkeep.verify(path, trust=policy)
    assert verification.signers == (KEY.public.id,), "the signature is checked in any case"
    return [finding.kind for finding in verification.findings]


def test_formats_and_pickles_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.ones(3))
    torch.save({"w": torch.ones(3)}, tmp_path / "b.pt")
    tensorkeep.save_checkpoint({"w": np.ones(3)}, tmp_path / "c")
    for path in (tmp_path / "a.npz", tmp_path / "b.pt", tmp_path / "c"):
        sign(path, KEY)
        assert kinds(path, ANY) == []

    assert kinds(tmp_path / "a.npz", ONLY_SAFETENSORS) == ["refused"]
    assert kinds(tmp_path / "b.pt", ONLY_SAFETENSORS) == ["refused"]
    assert kinds(tmp_path / "b.pt", NO_PICKLES) == ["refused"]
    assert kinds(tmp_path / "c", ONLY_NPZ) == ["refused"]
    assert kinds(tmp_path / "a.npz", WITH_DIGESTS) == ["refused"]
    assert kinds(tmp_path / "c", WITH_DIGESTS) == []
    assert kinds(tmp_path / "c", ONLY_SAFETENSORS) == kinds(tmp_path / "a.npz", ONLY_NPZ) == []


def test_what_is_refused_is_not_parsed_and_still_compared_with_its_signature(tmp_path: Path) -> None:
    path = tmp_path / "w.pkl"
    path.write_bytes(b"\x80\x04\x95")
    sign(path, KEY)
    assert kinds(path, ANY) == ["header"]
    assert kinds(path, NO_PICKLES) == ["refused"]

    path.write_bytes(b"\x80\x04\x96")
    assert kinds(path, NO_PICKLES) == ["refused", "sha256"]


def test_a_directory_with_a_manifest_is_judged_by_what_opens(tmp_path: Path) -> None:
    with save_folder(tmp_path / "run") as staging:
        tensorkeep.save({"w": np.ones(3)}, Path(staging) / "model.safetensors")
        torch.save({"step": torch.ones(1)}, Path(staging) / "optimizer.pt")
    with save_folder(tmp_path / "pickled") as staging:
        torch.save({"w": torch.ones(3)}, Path(staging) / "pytorch_model.bin")
    for name in ("run", "pickled"):
        sign(tmp_path / name, KEY)

    assert kinds(tmp_path / "run", NO_PICKLES) == []
    assert kinds(tmp_path / "run", ONLY_NPZ) == ["refused"]
    assert kinds(tmp_path / "pickled", NO_PICKLES) == ["refused"]
    assert kinds(tmp_path / "pickled", ANY) == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("keys", "models"):
        (tmp_path / folder).mkdir()
    KEY.write(tmp_path / "keys" / "k.pem")
    path = tmp_path / "models" / "b.pt"
    torch.save({"w": torch.ones(3)}, path)
    sign(path, KEY)
    arguments = ["verify", str(path), "--trust", str(tmp_path / "keys" / "k.pub")]

    assert main(arguments) == 1
    out = capsys.readouterr().out
    assert "not trusted" in out
    assert "the policy does not allow pickles" in out
    assert main([*arguments, "--sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [("refused", "error")]
