"""What a rewritten checkpoint came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import TrustError, UnsupportedError
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule
from tests.support.signing.checkpoints import save_checkpoint

NAME = "model.provenance.json"


def statement_in(directory: Path) -> dict[str, Any]:
    return json.loads((directory / NAME).read_text())


def header_of(path: Path) -> str:
    with tensorkeep.open(path) as opened:
        return next(iter(opened.shards.values())).header_digest()


def test_a_reshard_names_its_sources_and_what_it_wrote(tmp_path: Path) -> None:
    source = save_checkpoint(tmp_path / "ckpt")

    tensorkeep.reshard(source, tmp_path / "new", cast="bf16", drop=["w1", lambda name: False], provenance=True)

    statement = statement_in(tmp_path / "new")
    definition = statement["predicate"]["buildDefinition"]
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [
        {
            "name": "model.safetensors",
            "digest": {"tensorkeepHeader": header_of(tmp_path / "new" / "model.safetensors")},
        }
    ]
    assert {each["name"]: each["digest"]["tensorkeepHeader"] for each in definition["resolvedDependencies"]} == {
        path.name: header_of(path) for path in source.glob("*.safetensors")
    }
    assert definition["buildType"] == "urn:tensorkeep:reshard:1"
    assert definition["externalParameters"] == {"cast": "bf16", "drop": ["w1", "<lambda>"]}
    assert str(tmp_path) not in (tmp_path / "new" / NAME).read_text()


def test_a_conversion_names_files_without_digests_by_their_sha256(tmp_path: Path) -> None:
    import hashlib

    np.savez(tmp_path / "w.npz", w=np.arange(5))

    tensorkeep.convert(tmp_path / "w.npz", tmp_path / "new", provenance=True)

    definition = statement_in(tmp_path / "new")["predicate"]["buildDefinition"]
    digest = {"sha256": hashlib.sha256((tmp_path / "w.npz").read_bytes()).hexdigest()}
    assert definition["resolvedDependencies"] == [{"name": "w.npz", "digest": digest}]
    assert tensorkeep.verify(tmp_path / "new").is_whole


def test_it_goes_with_the_checkpoint_and_is_signed_with_it(tmp_path: Path) -> None:
    key = PrivateKey.generate()
    tensorkeep.reshard(save_checkpoint(tmp_path / "ckpt"), tmp_path / "new", provenance=True)
    sign(tmp_path / "new", key)
    assert tensorkeep.verify(tmp_path / "new", trust=Policy((Rule(keys=(key.public,)),))).is_whole

    tensorkeep.save_checkpoint({"w": np.ones(3)}, tmp_path / "new")

    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["model.safetensors"]


def test_another_file_of_such_a_name_stays(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    (directory / NAME).write_text('{"subject": 3}')

    tensorkeep.save_checkpoint({"w": np.ones(3)}, directory)

    assert (directory / NAME).exists()


def test_it_is_refused_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="local directories"):
        tensorkeep.reshard(save_checkpoint(tmp_path / "ckpt"), "memory://provenance/new", provenance=True)


def test_the_policy_of_the_environment_holds_for_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PrivateKey.generate().write(tmp_path / "key.pem")
    source = save_checkpoint(tmp_path / "ckpt")
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "key.pub"))

    for rewrite in (tensorkeep.reshard, tensorkeep.convert):
        with pytest.raises(TrustError):
            rewrite(source, tmp_path / "new")
