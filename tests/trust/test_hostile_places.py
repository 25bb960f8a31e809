"""Where policies and checkpoints are: names of one place, files that change meanwhile, and texts made to exhaust."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, LimitError, TrustError, UnsupportedError
from tensorkeep.limits import MAX_SIGNATURE_NBYTES
from tensorkeep.server import Server
from tensorkeep.signing import PrivateKey, parse_bundle, sign
from tensorkeep.transport import RemotePath
from tensorkeep.trust import Policy, Proof, Rule
from tests.support.signing.checkpoints import save_checkpoint

KEY = PrivateKey.generate()


def policy_in(directory: Path, text: str) -> Policy:
    directory.mkdir(exist_ok=True)
    (directory / "key.pub").write_bytes(KEY.public.pem())
    (directory / "tensorkeep.toml").write_text(text)
    return Policy.of(directory / "tensorkeep.toml")


@pytest.fixture
def strict(tmp_path: Path) -> Policy:
    """Give a policy that is strict about some places, and trusts all others."""
    return policy_in(
        tmp_path / "policy",
        """
        [[rules]]
        paths = ["https://Models.Example.com/prod/**", "hf://My-Org/**", "../prod", "../prod/**"]
        keys = ["key.pub"]
        [[rules]]
        signatures = 0
        """,
    )


@pytest.mark.parametrize(
    "url",
    [
        "https://models.example.com/prod/ckpt",
        "HTTPS://MODELS.example.com:443/prod/ckpt/",
        "https://models.example.com:/prod/ckpt",
        "https://models.example.com./prod/ckpt",
        "https://models.example.com//prod//ckpt",
        "https://models.example.com/%70rod/ckpt",
        "https://models.example.com/prod%2Fckpt",
        "https://models.example.com/prod/ckpt?download=1#x",
        "hf://My-Org/model",
        "hf://my-org/model@main",
    ],
)
def test_all_names_of_a_place_are_under_its_rule(strict: Policy, url: str) -> None:
    assert strict.rule_for(url).signatures == 1
    assert strict.rule_for(RemotePath.of(url)).signatures == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://models.example.com/free/../prod/ckpt",
        "https://models.example.com/free/%2e%2e/prod/ckpt",
        "https://models.example.com/free/%252e%252e/prod/ckpt",
        "https://models.example.com/free%5c..%5cprod",
        "https://models.example.com\\@evil.example.com/x",
        "https://models.example.com/prod%00/ckpt",
        "https://user@models.example.com/prod/ckpt",
        "https://user:password@models.example.com/prod/ckpt",
        "file:///prod/ckpt",
        "local:///prod/ckpt",
        "zip://ckpt::https://models.example.com/prod/ckpt.zip",
    ],
)
def test_what_could_lead_elsewhere_is_under_no_rule(strict: Policy, url: str) -> None:
    for path in (url, RemotePath.of(url)):
        with pytest.raises(TrustError, match="a policy cannot tell"):
            strict.rule_for(path)


def test_a_bucket_that_is_not_named_is_under_no_rule(strict: Policy) -> None:
    with pytest.raises(UnsupportedError, match="not a complete URL"):
        strict.rule_for("s3://a:b/x@models/prod")


def test_other_places_are_under_other_rules(strict: Policy) -> None:
    for url in ("https://models.example.com.evil.com/prod/x", "http://models.example.com/prod/x", "hf://my-org"):
        assert strict.rule_for(url).signatures == 0


def test_links_lead_to_the_rule_of_their_target(tmp_path: Path, strict: Policy) -> None:
    save_checkpoint(tmp_path / "prod")
    (tmp_path / "alias").symlink_to(tmp_path / "prod")
    (tmp_path / "w.safetensors").symlink_to(tmp_path / "prod" / "model-00001-of-00003.safetensors")

    for path in ("prod", "alias", "w.safetensors", "prod/../alias", "policy/../prod"):
        assert strict.rule_for(str(tmp_path / path)).signatures == 1
    assert strict.rule_for(str(tmp_path / "production")).signatures == 0


def test_the_first_of_two_rules_decides(tmp_path: Path) -> None:
    policy = policy_in(
        tmp_path,
        """
        [[rules]]
        paths = ["a/b/**"]
        signatures = 0
        [[rules]]
        paths = ["a/**", "é/**"]
        keys = ["key.pub"]
        """,
    )

    assert policy.rule_for(str(tmp_path / "a/b/c")).signatures == 0
    assert policy.rule_for(str(tmp_path / "a/c")).signatures == 1
    assert policy.rule_for(str(tmp_path / "é/c")).signatures == 1
    with pytest.raises(TrustError, match="no rule"):
        policy.rule_for(str(tmp_path / "e\u0301/c"))


def test_neither_a_policy_nor_its_keys_come_with_the_checkpoint(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    inside = directory / "code"
    (inside / "key.pub").write_bytes(KEY.public.pem())
    (tmp_path / "link.pub").symlink_to(inside / "key.pub")
    for name in ("ckpt/code/key.pub", "link.pub"):
        (tmp_path / "policy.toml").write_text(f'[[rules]]\nkeys = ["{name}"]\n')
        for path in (directory, directory / "model.safetensors.index.json"):
            for trust in (tmp_path / "policy.toml", tmp_path / name):
                with pytest.raises(TrustError, match="never read from the checkpoint's own directory"):
                    tensorkeep.open(path, trust=trust)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rules = 3",
        "[[rules]]\nkey = []",
        "[[rules]]\nsignatures = -1",
        "[[rules]]\nsignatures = 2",
        "[[rules]]\nsignatures = true",
        '[[rules]]\nsignatures = 0\npaths = "**"',
        "[[rules]]\nsignatures = 0\npickles = 1",
        "rules = " + "[" * 20_000,
        "x = " + "9" * 60_000,
        "[[rules]]\nsignatures = 0\n#" + "x" * 70_000,
        "\x00",
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FormatError):
        policy_in(tmp_path, text)


def swap_a_file(monkeypatch: pytest.MonkeyPatch, path: Path, other: Path, back: bool) -> None:
    """Put another file in the place of one that was just read whole, perhaps only until it was opened."""
    check = Proof.check_whole

    def check_and_swap(self: Proof, name: str, source: Any) -> None:
        check(self, name, source)
        kept = path.with_suffix(".kept")
        os.replace(path, kept)
        shutil.copy(other, path)
        if back:
            os.replace(kept, path)

    monkeypatch.setattr(Proof, "check_whole", check_and_swap)


@pytest.mark.parametrize("back", [False, True])
def test_a_file_that_is_replaced_after_its_check_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    np.savez(tmp_path / "w.npz", w=np.zeros(5))
    np.savez(tmp_path / "evil.npz", w=np.ones(5))
    sign(tmp_path / "w.npz", KEY)
    policy = Policy((Rule(keys=(KEY.public,)),))
    assert tensorkeep.load(tmp_path / "w.npz", trust=policy)["w"][0] == 0

    swap_a_file(monkeypatch, tmp_path / "w.npz", tmp_path / "evil.npz", back)

    with pytest.raises(TrustError, match="changed while it was opened"):
        tensorkeep.load(tmp_path / "w.npz", trust=policy)


def test_a_link_in_the_place_of_a_folder_is_found(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, KEY)
    (directory / "code").rename(tmp_path / "elsewhere")
    (directory / "code").symlink_to(tmp_path / "elsewhere")

    found = tensorkeep.verify(directory, trust=Policy((Rule(keys=(KEY.public,)),))).findings
    assert "code/modeling.py" in {finding.shard for finding in found}


EXHAUSTING: dict[str, Callable[[], bytes]] = {
    "many lists": lambda: b"[" + b"[]," * 5_000_000 + b"[]]",
    "many keys": lambda: b"{" + b",".join(b'"%d":{}' % n for n in range(400_000)) + b"}",
    "deep": lambda: b'{"a":' * 1_000_000,
    "a long number": lambda: b'{"mediaType":' + b"9" * 15_000_000 + b"}",
    "a long text": lambda: b'{"mediaType":"' + b"\\u00e9" * 2_000_000 + b'"}',
    "too long": lambda: b" " * (MAX_SIGNATURE_NBYTES + 1),
}


@pytest.mark.parametrize("what", EXHAUSTING)
def test_exhausting_bundles_are_refused_at_once(what: str) -> None:
    with pytest.raises((FormatError, LimitError)):
        parse_bundle(EXHAUSTING[what](), "model.sig")


def test_a_pipe_or_folder_named_like_a_signature_does_not_stop_a_save_or_an_open(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, KEY)
    os.mkfifo(directory / "pipe.sig")
    (directory / "loop.sig").symlink_to("loop.sig")
    (directory / "folder.provenance.json").mkdir()
    statement = json.dumps({"_type": "https://in-toto.io/Statement/v1", "subject": [[]] * 1000}).encode()
    payload = {"payload": b64encode(statement).decode(), "payloadType": "application/vnd.in-toto+json"}
    (directory / "odd.sig").write_text(json.dumps({"dsseEnvelope": payload | {"signatures": [{"sig": ""}]}}))

    assert tensorkeep.load(directory, trust=Policy((Rule(keys=(KEY.public,)),)))
    tensorkeep.save_checkpoint({"w": np.ones(3)}, directory)
    assert not (directory / "model.sig").exists()
    assert (directory / "odd.sig").exists()


@pytest.mark.parametrize(
    "name",
    ["a.tensorkeep-1.safetensors", "sub.tensorkeep-d/pytorch_model.bin", "x.sig", "code/x.py", "LICENSE", "f/x"],
)
def test_files_that_were_added_under_any_name_are_found_on_a_disk_and_a_server(tmp_path: Path, name: str) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, KEY)
    sign(directory, PrivateKey.generate())
    policy = Policy((Rule(keys=(KEY.public,)),))
    with Server(tmp_path, port=0) as server:
        assert tensorkeep.verify(directory, trust=policy)
        assert tensorkeep.verify(server.url + "ckpt/", trust=policy)
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text("{}")

        for path in (directory, server.url + "ckpt/"):
            findings = tensorkeep.verify(path, trust=policy).findings
            assert [(finding.kind, name.startswith(finding.shard)) for finding in findings] == [("unsigned", True)]


def test_files_that_were_added_to_a_bucket_are_found(tmp_path: Path) -> None:
    bucket = fsspec.filesystem("memory")
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, KEY)
    for file in directory.rglob("*"):
        if file.is_file():
            bucket.pipe(f"/added-files/ckpt/{file.relative_to(directory).as_posix()}", file.read_bytes())
    policy = Policy((Rule(keys=(KEY.public,)),))

    assert tensorkeep.verify("memory://added-files/ckpt/", trust=policy)
    bucket.pipe("/added-files/ckpt/f/g/pytorch_model", b"x")
    findings = tensorkeep.verify("memory://added-files/ckpt/", trust=policy).findings
    assert [finding.shard for finding in findings] == ["f/g/pytorch_model"]


def test_a_file_that_is_only_named_like_a_signature_is_signed(tmp_path: Path) -> None:
    directory = save_checkpoint(tmp_path / "ckpt")
    (directory / "notes.sig").write_text("by hand")
    sign(directory, KEY)
    policy = Policy((Rule(keys=(KEY.public,)),))

    assert tensorkeep.verify(directory, trust=policy)
    (directory / "notes.sig").write_text("by another")
    assert [finding.shard for finding in tensorkeep.verify(directory, trust=policy).findings] == ["notes.sig"]
