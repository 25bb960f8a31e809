"""Signatures travel with a fetch, and with `trust=` nothing arrives that was not signed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.checkpoint import save_folder
from tensorkeep.errors import IntegrityError, RefusedError, TrustError
from tensorkeep.server import Server
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule
from tests.support.remote.fault_server import FaultServer
from tests.support.signing.checkpoints import SHARD, save_checkpoint

KEY = PrivateKey.generate()
POLICY = Policy((Rule(keys=(KEY.public,), partial=True),))
WHOLE = Policy((Rule(keys=(KEY.public,)),))


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "site").mkdir()
    sign(save_checkpoint(tmp_path / "site" / "ckpt"), KEY)
    with Server(tmp_path / "site", port=0) as server:
        yield server.url + "ckpt/"


def test_what_is_fetched_is_what_was_signed(tmp_path: Path, url: str) -> None:
    (tmp_path / "site" / "ckpt" / "tokenizer.json").write_text("{}")

    tensorkeep.fetch(url, tmp_path / "here", trust=POLICY)

    assert tensorkeep.verify(tmp_path / "here", trust=POLICY).is_whole
    assert tensorkeep.load(tmp_path / "here", trust=POLICY)
    assert not (tmp_path / "here" / "tokenizer.json").exists(), "nobody signed it"
    assert (tmp_path / "here" / "config.json").exists()


@pytest.mark.parametrize("file", [SHARD, "config.json", "model.safetensors.index.json"])
def test_what_was_not_signed_is_not_fetched(tmp_path: Path, url: str, file: str) -> None:
    path = tmp_path / "site" / "ckpt" / file
    content = bytearray(path.read_bytes())
    content[-1 if file == SHARD else 0] ^= 1
    path.write_bytes(content)

    with pytest.raises((IntegrityError, ValueError)):
        tensorkeep.fetch(url, tmp_path / "here", trust=POLICY)
    assert not (tmp_path / "here" / "model.safetensors.index.json").exists()


def test_what_an_earlier_fetch_brought_unasked_is_compared_too(tmp_path: Path, url: str) -> None:
    text = (tmp_path / "site" / "ckpt" / "model.sig").read_bytes()
    state = {f"w{i}": np.full((8, 125), 7, np.float32) for i in range(6)}
    tensorkeep.save_checkpoint(state, tmp_path / "site" / "ckpt", max_shard_size="8KB")
    (tmp_path / "site" / "ckpt" / "model.sig").write_bytes(text)
    tensorkeep.fetch(url, tmp_path / "here")

    with pytest.raises(TrustError, match="not what was signed"):
        tensorkeep.fetch(url, tmp_path / "here", trust=POLICY)
    tensorkeep.fetch(url, tmp_path / "here")


def test_all_signed_files_of_a_directory_are_fetched(tmp_path: Path) -> None:
    ckpt = tmp_path / "site" / "ckpt"
    ckpt.parent.mkdir()
    tensorkeep.save_checkpoint({"w": np.ones(4)}, ckpt, block_digests=True)
    for name in ("config.json", "modeling.py", "notes.bin"):
        (ckpt / name).write_text("{}")
    sign(ckpt, KEY)
    with Server(tmp_path / "site", port=0) as server:
        tensorkeep.fetch(server.url + "ckpt/", tmp_path / "here", trust=WHOLE)
        tensorkeep.fetch(server.url + "ckpt/", tmp_path / "weights", trust=WHOLE, companions=False)

        assert tensorkeep.verify(tmp_path / "here", trust=WHOLE)
        assert not (tmp_path / "weights" / "notes.bin").exists()
        for name in ("config.json", "notes.bin"):
            content = (ckpt / name).read_bytes()
            (ckpt / name).unlink()
            with pytest.raises(TrustError, match=f"{name}.* was signed, and is missing"):
                tensorkeep.fetch(server.url + "ckpt/", tmp_path / "there", trust=WHOLE)
            tensorkeep.fetch(server.url + "ckpt/", tmp_path / f"without {name[:5]}", trust=POLICY)
            (ckpt / name).write_bytes(content)


def test_signed_files_in_folders_are_fetched_too(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    ckpt = save_checkpoint(tmp_path / "site" / "ckpt")
    (ckpt / ".hidden").write_text("here")
    sign(ckpt, KEY)
    with Server(tmp_path / "site", port=0) as server:
        tensorkeep.fetch(server.url + "ckpt/", tmp_path / "here", trust=WHOLE)
        (tmp_path / "here" / "mine.txt").write_text("mine")
        (ckpt / "code" / "modeling.py").write_text("new = 1")
        with pytest.raises(IntegrityError):
            tensorkeep.fetch(server.url + "ckpt/", tmp_path / "here", trust=WHOLE)
        tensorkeep.save_checkpoint({"w": np.ones(3)}, ckpt)
        sign(ckpt, KEY)
        tensorkeep.fetch(server.url + "ckpt/", tmp_path / "here", trust=WHOLE)

    here = tmp_path / "here"
    assert (here / "code" / "modeling.py").read_text() == "new = 1"
    assert (here / "mine.txt").read_text() == "mine"
    assert len(list(here.glob("*.safetensors"))) == 1
    found = {(finding.kind, finding.shard) for finding in tensorkeep.verify(here, trust=WHOLE).findings}
    assert found == {("missing", ".hidden"), ("unsigned", "mine.txt")}, "our server serves none; and not the manifest"


def test_signed_hidden_files_come_into_a_directory_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    ckpt = tmp_path / "site" / "ckpt"
    tensorkeep.save_checkpoint({"w": np.ones(4)}, ckpt)
    (ckpt / ".metadata").write_text("signed")
    (ckpt / "code" / ".GIT").mkdir(parents=True)
    (ckpt / "code" / ".GIT" / "config").write_text("[core] fsmonitor = true")
    sign(ckpt, KEY)
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").write_text("mine")
    files = {path.relative_to(ckpt).as_posix(): path.read_bytes() for path in ckpt.rglob("*") if path.is_file()}
    with FaultServer(files) as server:
        url = server.url
        with pytest.raises(RefusedError, match=r"only into a new or empty directory.*\.metadata"):
            tensorkeep.fetch(url, home, trust=WHOLE)
        (tmp_path / "empty").mkdir()
        for name in ("new", "empty", "new"):
            tensorkeep.fetch(url, tmp_path / name, trust=WHOLE)

    assert [path.name for path in home.iterdir()] == ["letter.txt"]
    for name in ("new", "empty"):
        assert (tmp_path / name / ".metadata").read_text() == "signed"
        findings = tensorkeep.verify(tmp_path / name, trust=WHOLE).findings
        assert [(each.kind, each.shard) for each in findings] == [("missing", "code/.GIT/config")]
        assert not (tmp_path / name / "code").exists()


def test_a_signer_does_not_choose_which_files_of_others_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    ckpt = save_checkpoint(tmp_path / "site" / "ckpt")
    (ckpt / "Makefile").write_text("all:")
    sign(ckpt, KEY)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "Makefile").write_text("mine:")
    with Server(tmp_path / "site", port=0) as server:
        with pytest.raises(RefusedError, match=r"do not belong to the checkpoint.*Makefile"):
            tensorkeep.fetch(server.url + "ckpt/", tmp_path / "here", trust=WHOLE)
        assert (tmp_path / "here" / "Makefile").read_text() == "mine:"
        for _ in range(2):  # the second time, they are those of the first
            tensorkeep.fetch(server.url + "ckpt/", tmp_path / "there", trust=WHOLE)
        (ckpt / "Makefile").write_text("all: new")
        sign(ckpt, KEY)
        tensorkeep.fetch(server.url + "ckpt/", tmp_path / "there", trust=WHOLE)

    assert (tmp_path / "there" / "Makefile").read_text() == "all: new"


def test_another_whole_checkpoint_is_not_fetched(tmp_path: Path, url: str) -> None:
    text = (tmp_path / "site" / "ckpt" / "model.sig").read_bytes()
    save_checkpoint(tmp_path / "site" / "other")
    state = {f"w{i}": np.full((8, 125), 7, np.float32) for i in range(6)}
    tensorkeep.save_checkpoint(state, tmp_path / "site" / "ckpt", max_shard_size="8KB")
    (tmp_path / "site" / "ckpt" / "model.sig").write_bytes(text)

    with pytest.raises(IntegrityError):
        tensorkeep.fetch(url, tmp_path / "here", trust=POLICY)
    (tmp_path / "site" / "ckpt" / "model.sig").unlink()
    with pytest.raises(TrustError, match="no trusted signature"):
        tensorkeep.fetch(url, tmp_path / "there", trust=POLICY)


def test_signatures_travel_without_trust_too(tmp_path: Path, url: str) -> None:
    tensorkeep.fetch(url, tmp_path / "here", companions=False)

    assert tensorkeep.load(tmp_path / "here", trust=POLICY)


def test_a_fetch_replaces_the_signature_of_the_older_version(tmp_path: Path, url: str) -> None:
    tensorkeep.fetch(url, tmp_path / "here")
    state = {f"w{i}": np.full((8, 125), 7, np.float32) for i in range(6)}
    tensorkeep.save_checkpoint(state, tmp_path / "site" / "ckpt", max_shard_size="8KB")
    tensorkeep.fetch(url, tmp_path / "here")
    assert not list((tmp_path / "here").glob("*.sig"))

    sign(tmp_path / "site" / "ckpt", KEY)
    tensorkeep.fetch(url, tmp_path / "here", trust=POLICY)
    assert tensorkeep.load(tmp_path / "here", trust=POLICY)["w0"][0, 0] == 7


def test_a_directory_with_a_manifest_keeps_its_signature(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    with save_folder(tmp_path / "site" / "run") as staging:
        tensorkeep.save({"w": np.ones(3)}, Path(staging) / "model.safetensors")
        (Path(staging) / "config.json").write_text("{}")
    sign(tmp_path / "site" / "run", KEY)
    with Server(tmp_path / "site", port=0) as server:
        tensorkeep.fetch(server.url + "run/", tmp_path / "here", trust=POLICY)

    assert tensorkeep.verify(tmp_path / "here", trust=POLICY).is_whole
    with save_folder(tmp_path / "here") as staging:
        tensorkeep.save({"w": np.zeros(3)}, Path(staging) / "model.safetensors")
    assert not list((tmp_path / "here").glob("*.sig"))


def test_the_policy_of_the_environment_holds_for_what_is_fetched(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    KEY.write(tmp_path / "key.pem")
    (tmp_path / "policy.toml").write_text('[[rules]]\npaths = ["http://127.0.0.1:*/ckpt"]\nkeys = ["key.pub"]\n')
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "policy.toml"))

    tensorkeep.fetch(url, tmp_path / "here")

    with pytest.raises(TrustError, match="no rule"):
        tensorkeep.load(tmp_path / "here")
    assert tensorkeep.load(tmp_path / "here", trust=False)
