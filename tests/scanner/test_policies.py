"""`scan(trust=)`: formats and pickles that a policy does not allow are findings."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import TrustError
from tensorkeep.signing import PrivateKey


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Return a directory with a file of each of several formats."""
    directory = tmp_path / "weights"
    directory.mkdir()
    tensorkeep.save({"w": np.ones(3)}, directory / "a.safetensors")
    np.savez(directory / "b.npz", w=np.ones(3))
    np.savez(directory / "objects.npz", w=np.array([{}], dtype=object))
    torch.save({"w": torch.ones(3)}, directory / "c.pt")
    (directory / "config.json").write_text("{}")
    return directory


def policy(tmp_path: Path, **rule: object) -> Path:
    path = tmp_path / "policies" / "tensorkeep.toml"
    path.parent.mkdir(exist_ok=True)
    lines = [f"{name} = {json.dumps(value)}" for name, value in ({"signatures": 0} | rule).items()]
    path.write_text("[[rules]]\n" + "\n".join(lines))
    return path


def refused(*paths: Path, trust: Path | None) -> set[str]:
    report = tensorkeep.scan(*paths, trust=trust)
    return {Path(file.path).name for file in report.files if file.verdict == "refused"}


def test_formats_and_pickles_are_refused(weights: Path, tmp_path: Path) -> None:
    assert refused(weights, trust=policy(tmp_path)) == {"c.pt", "objects.npz"}
    assert refused(weights, trust=policy(tmp_path, pickles=True)) == set()
    assert refused(weights, trust=policy(tmp_path, pickles=True, formats=["safetensors", "npz"])) == {"c.pt"}
    only = policy(tmp_path, formats=["safetensors"])
    assert refused(*weights.glob("*.*"), trust=only) == {"b.npz", "c.pt", "config.json", "objects.npz"}
    assert refused(weights, trust=policy(tmp_path, paths=["/elsewhere/**"])) >= {"a.safetensors", "c.pt"}


def test_what_runs_is_worse(weights: Path, tmp_path: Path) -> None:
    (weights / "evil.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    report = tensorkeep.scan(weights, trust=policy(tmp_path))

    (evil,) = (file for file in report.files if file.path.endswith("evil.pkl"))
    assert evil.verdict == "dangerous" == report.verdict
    assert "the policy does not allow pickles" in {finding.message.partition(":")[0] for finding in evil.findings}


def test_a_key_allows_what_opening_allows(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PrivateKey.generate().write(tmp_path / "key.pem")
    assert refused(weights, trust=tmp_path / "key.pub") == {"c.pt", "objects.npz"}
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "key.pub"))
    assert refused(weights, trust=None) == {"c.pt", "objects.npz"}
    assert tensorkeep.scan(weights / "b.npz", weights / "c.pt", trust=False).is_clean


def test_a_directory_has_one_format(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"w": np.ones((4, 4))}, tmp_path / "model")
    tensorkeep.reshard_for_ranks(tmp_path / "model", tmp_path / "ranks", 2, plan={"w": "colwise"})

    assert refused(tmp_path / "ranks", trust=policy(tmp_path, formats=["ranks"])) == set()
    assert refused(tmp_path / "ranks", trust=policy(tmp_path, formats=["safetensors"])) == {"model.safetensors"}


def test_no_policy_comes_from_what_is_scanned(weights: Path, tmp_path: Path) -> None:
    policy(tmp_path).rename(weights / "tensorkeep.toml")
    with pytest.raises(TrustError, match="never read from the checkpoint's own directory"):
        tensorkeep.scan(weights, trust=weights / "tensorkeep.toml")


def test_workers_judge_alike(weights: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        report = tensorkeep.scan(weights, executor=executor, trust=policy(tmp_path))
    assert report == tensorkeep.scan(weights, trust=policy(tmp_path))


def test_the_command(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trust = ["--trust", str(policy(tmp_path))]
    assert main(["scan", str(weights / "a.safetensors"), *trust]) == 0
    assert main(["scan", str(weights), *trust]) == 1
    assert "the policy does not allow pickles" in capsys.readouterr().out
    assert main(["scan", str(weights / "c.pt"), "--sarif", *trust]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [("refused", "error")]
