"""What a rewritten checkpoint came from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

import tensorkeep
from tensorkeep.encryption import new_key
from tensorkeep.errors import TrustError, UnsupportedError
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule
from tests.support.remote.fault_server import FaultServer
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
    assert definition["externalParameters"] == {
        "cast": "bf16",
        "drop": ["w1", "<lambda>"],
        "max_shard_nbytes": 5_000_000_000,
        "align": 8,
    }
    assert str(tmp_path) not in (tmp_path / "new" / NAME).read_text()


def test_a_conversion_names_files_without_digests_by_their_sha256(tmp_path: Path) -> None:
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


def test_a_save_of_the_single_file_removes_it(tmp_path: Path) -> None:
    source = save_checkpoint(tmp_path / "ckpt")
    tensorkeep.convert(source, tmp_path / "w.safetensors", provenance=True)
    assert (tmp_path / "w.provenance.json").exists()

    tensorkeep.save({"w": np.ones(3)}, tmp_path / "w.safetensors")

    assert not (tmp_path / "w.provenance.json").exists()


def test_it_is_replaced_with_the_checkpoint(tmp_path: Path) -> None:
    source = save_checkpoint(tmp_path / "ckpt")
    tensorkeep.reshard(source, tmp_path / "new", provenance=True)
    tensorkeep.join([source], tmp_path / "new", select="w1", overwrite=True, provenance=True)

    definition = statement_in(tmp_path / "new")["predicate"]["buildDefinition"]
    assert definition["buildType"] == "urn:tensorkeep:join:1"
    assert definition["externalParameters"]["select"] == "w1"


def files_in(directory: Path) -> dict[str, bytes]:
    return {f"ckpt/{path.name}": path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_it_travels_with_a_fetch_and_goes_with_the_next(tmp_path: Path) -> None:
    source = save_checkpoint(tmp_path / "ckpt")
    tensorkeep.reshard(source, tmp_path / "first", provenance=True)
    tensorkeep.reshard(source, tmp_path / "second", cast="f16")
    with FaultServer(files_in(tmp_path / "first")) as server:
        tensorkeep.fetch(f"{server.url}ckpt/", tmp_path / "here")
        assert statement_in(tmp_path / "here") == statement_in(tmp_path / "first")
        server.files = files_in(tmp_path / "second")
        tensorkeep.fetch(f"{server.url}ckpt/", tmp_path / "here")

    assert not (tmp_path / "here" / NAME).exists()


def test_no_secret_of_a_url_is_in_it(tmp_path: Path) -> None:
    source = save_checkpoint(tmp_path / "ckpt")
    with FaultServer(files_in(source), user="somebody:pass-word") as server:
        url = f"http://somebody:pass-word@{server.host}/ckpt/model.safetensors.index.json?token=hidden#part"
        tensorkeep.reshard(url, tmp_path / "new", provenance=True)

    text = (tmp_path / "new" / NAME).read_text()
    sources = statement_in(tmp_path / "new")["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [each["uri"] for each in sources] == [f"{server.url}ckpt/{each['name']}" for each in sources]
    assert not any(word in text for word in ("somebody", "pass-word", "token", "hidden"))


def test_an_encrypted_source_is_known_by_its_encrypted_bytes(tmp_path: Path) -> None:
    new_key(tmp_path / "key")
    encrypted = tmp_path / "encrypted"
    tensorkeep.reshard(save_checkpoint(tmp_path / "ckpt"), encrypted, encrypt=tmp_path / "key")
    tensorkeep.reshard(encrypted, tmp_path / "plain", key=tmp_path / "key", provenance=True)

    (source,) = statement_in(tmp_path / "plain")["predicate"]["buildDefinition"]["resolvedDependencies"]
    (file,) = encrypted.glob("*.safetensors*")
    content = file.read_bytes()
    header = blake3(content[: 8 + int.from_bytes(content[:8], "little")]).hexdigest()
    assert source["digest"] == {"tensorkeepHeader": header}
    with pytest.raises(UnsupportedError, match="not encrypted"):
        tensorkeep.reshard(tmp_path / "ckpt", tmp_path / "no", encrypt=tmp_path / "key", provenance=True)


def test_ranks_do_not_take_over_what_is_about_other_files(tmp_path: Path) -> None:
    source = tmp_path / "new"
    tensorkeep.reshard(save_checkpoint(tmp_path / "ckpt"), source, provenance=True)
    (source / "config.json").write_text("{}")

    tensorkeep.reshard_for_ranks(source, tmp_path / "ranks", n_ranks=2, plan={"w*": "colwise"})

    assert list((tmp_path / "ranks").rglob("config.json"))
    assert not list((tmp_path / "ranks").rglob(NAME))


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
