"""`push` to a server that answers as the Hub does, asked by huggingface_hub itself."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import (
    AccessDeniedError,
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    TransientError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.publishing import HubLimitWarning, _hub_limits
from tensorkeep.publishing._hub_errors import hub_errors
from tensorkeep.signing import PrivateKey
from tests.support.remote.hub_server import PART_NBYTES, Fault, HubServer

WEIGHTS = {f"w{n}": np.random.default_rng(n).standard_normal((100, 200), np.float32) for n in range(4)}
INDEX = "model.safetensors.index.json"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let huggingface_hub ask the server here by HTTP; Xet's own protocol is not imitated."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)  # between its attempts
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    tensorkeep.save_checkpoint(WEIGHTS, folder, max_shard_size="200KB", sha256=True)
    folder.joinpath("config.json").write_text('{"of": "a model"}')
    folder.joinpath("README.md").write_text("# A draft")
    folder.joinpath("modeling.py").write_text("raise SystemExit")
    folder.joinpath(".env").write_text("SECRET=1")
    return folder


@pytest.fixture
def hub() -> Iterator[HubServer]:
    files = {"README.md": b"# The card", ".gitattributes": b"lfs", "notes.txt": b"somebody's"}
    with HubServer("org/model", files, writer="so-secret") as running:
        yield running


def at(hub: HubServer, path: str = "hf://org/model", token: str | None = "so-secret") -> Any:
    return remote(path, endpoint=hub.url, token=token, pause_s=0.001, attempts=2)


def test_one_commit_has_all_of_it_and_leaves_the_rest_alone(hub: HubServer, model: Path) -> None:
    before = hub.head()
    seen: list[tuple[int, int]] = []

    done = tensorkeep.push(model, at(hub), progress=lambda *so_far: seen.append(so_far))

    assert hub.commits == [("Push my-model with tensorkeep", sorted([*SHARDS, INDEX, "config.json"]), [])]
    assert done.commit == hub.head() != before
    assert (done.kept, done.removed, done.unchanged) == (("README.md",), (), ())
    assert hub.files["README.md"] == b"# The card"
    assert hub.files["notes.txt"] == b"somebody's"
    assert not {"modeling.py", ".env"} & hub.files.keys()
    assert seen[-1] == (done.nbytes, done.nbytes)
    assert np.array_equal(tensorkeep.load(at(hub))["w3"], WEIGHTS["w3"])


def test_what_is_there_is_not_sent_again_and_only_old_shards_go(hub: HubServer, model: Path) -> None:
    hub.files["model-of-somebody.safetensors"] = b"kept"
    tensorkeep.push(model, at(hub))
    n_sent = len(hub.sent("/signed/"))

    assert tensorkeep.push(model, at(hub)).sent == {}
    assert (len(hub.commits), len(hub.sent("/signed/"))) == (1, n_sent)

    tensorkeep.save_checkpoint(WEIGHTS | {"w0": WEIGHTS["w0"] + 1}, model, max_shard_size="200KB")
    assert tensorkeep.push(model, at(hub)).unchanged == ("config.json", SHARDS[1])

    tensorkeep.save_checkpoint(WEIGHTS, model)
    done = tensorkeep.push(model, at(hub), message="In one file")
    assert done.removed == (*SHARDS, INDEX)
    assert hub.commits[-1] == ("In one file", ["model.safetensors"], sorted([*SHARDS, INDEX]))
    assert hub.files["model-of-somebody.safetensors"] == b"kept"


def test_shards_of_another_checkpoint_beside_it_stay(hub: HubServer, model: Path) -> None:
    tensorkeep.push(model, at(hub))
    hub.files["other.safetensors.index.json"] = hub.files[INDEX]
    tensorkeep.save_checkpoint(WEIGHTS, model)

    assert tensorkeep.push(model, at(hub)).removed == (INDEX,)


def test_a_dry_run_says_everything_and_needs_no_token(hub: HubServer, model: Path) -> None:
    done = tensorkeep.push(model, at(hub, token=None), dry_run=True)

    assert done.is_dry_run
    assert set(done.sent) == {*SHARDS, INDEX, "config.json"}
    assert hub.commits == []
    assert not [path for command, path, _ in hub.requests if command != "GET"]


def test_other_shards_on_the_way(hub: HubServer, model: Path, tmp_path: Path) -> None:
    done = tensorkeep.push(model, at(hub), max_shard_size="100KB", include="*.py")

    assert len(done.sent) == 4 + len([INDEX, "config.json", "modeling.py"])
    assert [path.name for path in tmp_path.iterdir()] == ["my-model"], "nothing is left of them"
    with tensorkeep.open(at(hub)) as published:
        assert all(len(shard) == 1 for shard in published.shards.values())
    assert tensorkeep.verify(at(hub)).n_sha256 == 4


def test_repositories_branches_and_folders_are_made_if_asked(hub: HubServer, model: Path) -> None:
    for url in ("hf://org/new", "hf://org/model@next"):
        with pytest.raises(SourceMissingError, match="--create"):
            tensorkeep.push(model, at(hub, url))
    assert set(tensorkeep.push(model, at(hub, "hf://org/new"), create=True, dry_run=True).sent) >= set(SHARDS)
    assert ("org/new", "main") not in hub.branches

    tensorkeep.push(model, at(hub, "hf://org/new@next/folder"), create=True, private=True)

    assert hub.private == {"org/new"}
    there = hub.trees[hub.branches["org/new", "next"]]
    assert {f"folder/{name}" for name in (*SHARDS, INDEX, "config.json", "README.md")} < set(there)
    assert tensorkeep.push(model, at(hub, "hf://org/new@next/folder")).sent == {}
    assert tensorkeep.verify(at(hub, "hf://org/new@next/folder/")).is_whole


def test_a_large_file_goes_in_parts(hub: HubServer, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"w": np.random.default_rng(0).standard_normal(PART_NBYTES // 3)}, path)

    tensorkeep.push(path, at(hub))

    assert hub.files["model.safetensors"] == path.read_bytes()
    assert len(hub.sent("/signed/")) > 2


def test_a_directory_with_a_manifest_is_sent_whole(hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for names in (("a", "b"), ("b", "c")):
        with tensorkeep.checkpoint.save_folder(folder) as staging:
            tensorkeep.save(WEIGHTS, f"{staging}/state.safetensors")
            Path(staging, "deep").mkdir()
            for name in names:
                Path(staging, "deep", name).write_text(name)
        done = tensorkeep.push(folder, at(hub))

    assert done.removed == ("deep/a",)
    assert {"deep/b", "deep/c", "state.safetensors", "tensorkeep.manifest.json", "notes.txt"} < set(hub.files)


def test_files_of_other_formats_are_sent_too(hub: HubServer, tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    np.savez(path, **WEIGHTS)

    tensorkeep.push(path, at(hub))

    assert hub.files["weights.npz"] == path.read_bytes()


def test_damage_is_not_published(hub: HubServer, model: Path) -> None:
    damaged = bytearray(model.joinpath(SHARDS[0]).read_bytes())
    damaged[-1] ^= 1
    model.joinpath(SHARDS[0]).write_bytes(damaged)

    with pytest.raises(IntegrityError, match="not published"):
        tensorkeep.push(model, at(hub))

    assert hub.requests == []


def test_only_who_may_write_does(hub: HubServer, model: Path) -> None:
    for token, words in ((None, "hf auth login"), ("wrong-one", "token"), ("reader", "may not")):
        hub.token = "reader"
        with pytest.raises((AccessDeniedError, SourceMissingError)) as caught:
            tensorkeep.push(model, at(hub, token=token))
        assert words in str(caught.value)
        assert "wrong-one" not in str(caught.value)
    hub.is_gated = True
    with pytest.raises(AccessDeniedError, match="gated"):
        tensorkeep.push(model, at(hub, token="reader"))
    assert hub.commits == []


def test_a_push_that_another_commit_overtakes_is_refused(hub: HubServer, model: Path) -> None:
    theirs = hub.files | {"theirs.txt": b"first"}
    hub.on_request = lambda path: "/commit/" in path and hub.add("org/model", "main", theirs)

    with pytest.raises(SourceChangedError, match="Push again"):
        tensorkeep.push(model, at(hub))

    assert set(hub.files) == {"README.md", ".gitattributes", "notes.txt", "theirs.txt"}
    hub.on_request = lambda _: None
    n_sent = len(hub.sent("/signed/"))
    tensorkeep.push(model, at(hub))
    assert hub.files["theirs.txt"] == b"first"
    assert len(hub.sent("/signed/")) == n_sent, "all of it was uploaded before"


def test_of_two_pushes_at_once_one_is_refused_or_both_happen_in_turn(
    hub: HubServer, model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    tensorkeep.save_checkpoint({name: tensor + 1 for name, tensor in WEIGHTS.items()}, other, max_shard_size="100KB")
    barrier = threading.Barrier(2, timeout=30)
    hub.on_request = lambda path: "/commit/" in path and barrier.wait()
    errors: list[Exception] = []

    def run(folder: Path) -> None:
        try:
            tensorkeep.push(folder, at(hub))
        except SourceChangedError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(folder,)) for folder in (model, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(errors), len(hub.commits)) == (1, 1)
    assert tensorkeep.verify(at(hub)).is_whole


@pytest.mark.parametrize("place", ["/preupload/", "/objects/batch", "/signed/", "/api/verify", "/commit/"])
@pytest.mark.parametrize("status", [500, None], ids=["error", "cut"])
def test_a_failing_server_changes_nothing_or_is_asked_again(
    hub: HubServer, model: Path, place: str, status: int | None
) -> None:
    before = hub.head()
    hub.faults = [Fault(place, status)]
    try:
        tensorkeep.push(model, at(hub))
    except TransientError:
        assert hub.head() == before
        tensorkeep.push(model, at(hub))

    assert len(hub.commits) == 1
    assert tensorkeep.verify(at(hub)).is_whole


@pytest.mark.parametrize("status", [500, None], ids=["error", "cut"])
def test_a_commit_whose_answer_is_lost_is_found(hub: HubServer, model: Path, status: int | None) -> None:
    hub.faults = [Fault("/commit/", status, is_late=True)]

    assert tensorkeep.push(model, at(hub)).commit == hub.head()
    assert len(hub.commits) == 1


def test_a_file_that_changes_during_the_push_is_not_published(hub: HubServer, model: Path) -> None:
    def change(done: int, total: int) -> None:
        model.joinpath("config.json").write_text("{}")

    with pytest.raises(SourceChangedError, match="changed during the push"):
        tensorkeep.push(model, at(hub), progress=change)

    assert hub.commits == []


def test_what_gitignore_keeps_out_is_said(hub: HubServer, model: Path) -> None:
    hub.ignored = {SHARDS[1]}

    with pytest.raises(UnsupportedError, match="gitignore"):
        tensorkeep.push(model, at(hub))

    assert hub.commits == []


@pytest.mark.parametrize("stage", ["/signed/", "/commit/"])
def test_a_killed_push_has_changed_nothing_and_the_next_sends_the_rest(
    hub: HubServer, model: Path, stage: str
) -> None:
    code = "import sys, tensorkeep; tensorkeep.push(sys.argv[1], 'hf://org/model')"
    environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "so-secret", "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    before = hub.head()
    is_there, may_go = threading.Event(), threading.Event()
    hub.on_request = lambda path: stage in path and (is_there.set(), may_go.wait(60))
    with subprocess.Popen([sys.executable, "-c", code, str(model)], env=os.environ | environment) as process:
        assert is_there.wait(60)
        process.send_signal(signal.SIGKILL)
        assert hub.head() == before
    may_go.set()
    hub.on_request = lambda _: None
    deadline = time.monotonic() + (20 if stage == "/commit/" else 0)
    while not hub.commits and time.monotonic() < deadline:  # the server has the whole request, and carries it out
        time.sleep(0.02)

    n_sent = len(hub.sent("/signed/"))
    done = tensorkeep.push(model, at(hub))
    if stage == "/commit/":
        assert (done.sent, len(hub.sent("/signed/"))) == ({}, n_sent)
    assert tensorkeep.verify(at(hub)).is_whole
    assert len(hub.commits) == 1


XET = """
import sys, tensorkeep
from tensorkeep.errors import AccessDeniedError
for token in ("reader", "so-secret"):
    try:
        print(tensorkeep.push(sys.argv[1], tensorkeep.remote("hf://org/model", token=token)).commit)
    except AccessDeniedError as error:
        print(error)
"""


def test_xet_takes_what_lfs_does(hub: HubServer, model: Path, tmp_path: Path) -> None:
    """In a process of its own: Xet's client has threads that tests which fork would not like."""
    hub.token = "reader"
    storage = tmp_path / "xet"
    storage.mkdir()
    hub.xet = f"local://{storage}"
    hub.objects = {hashlib.sha256(data).hexdigest(): data for data in map(Path.read_bytes, model.iterdir())}
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_XET_CACHE": str(tmp_path / "cache")}
    environment["HF_HUB_DISABLE_XET"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", XET, str(model)], env=os.environ | environment, capture_output=True, text=True
    )

    refused, commit = done.stdout.splitlines()
    assert "may not" in refused
    assert commit == hub.head()
    assert sum(path.stat().st_size for path in storage.rglob("*")) > 300_000
    assert hub.sent("/xet-write-token/")
    assert hub.sent("/signed/") == hub.sent("/objects/batch") == []
    said = done.stdout + done.stderr + "".join(path.read_text() for path in tmp_path.joinpath("cache").rglob("*.log"))
    assert "so-secret" not in said


@pytest.mark.parametrize(
    ("status", "error"), [(403, AccessDeniedError), (404, TransportError), (503, TransientError)]
)
def test_what_xet_says_is_understood(status: int, error: type[Exception]) -> None:
    text = f"Network error: Request error: HTTP status {'server' if status > 499 else 'client'} error ({status} X)"
    with pytest.raises(TransportError) as caught, hub_errors("hf://org/model", "so-secret"):
        raise RuntimeError(f"{text}, domain: so-secret")

    assert type(caught.value) is error
    assert "so-secret" not in str(caught.value)


def test_a_file_that_goes_during_the_push_is_named(hub: HubServer, model: Path) -> None:
    hub.on_request = lambda path: "/preupload/" in path and model.joinpath("config.json").unlink(missing_ok=True)

    with pytest.raises(TransportError, match=r"could not read the file .*config\.json"):
        tensorkeep.push(model, at(hub))

    assert hub.commits == []


def test_large_files_are_warned_of_with_what_to_do(
    hub: HubServer, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub_limits, "_ADVISED_NBYTES", 100_000)
    monkeypatch.setattr(_hub_limits, "_SERVED_NBYTES", 150_000)
    monkeypatch.setattr(_hub_limits, "_REPOSITORY_NBYTES", 200_000)

    with pytest.warns(HubLimitWarning) as caught:
        tensorkeep.push(model, at(hub), dry_run=True)

    texts = [str(each.message) for each in caught]
    assert "--max-shard-size 5GB" in texts[0]
    assert "--split-large" in texts[0]
    assert "plain HTTP" in texts[0]
    assert "ask the Hub's team" in texts[1]


def test_signatures_travel_with_all_that_they_cover_and_go_when_they_are_stale(
    hub: HubServer, model: Path, tmp_path: Path
) -> None:
    model.joinpath(".env").unlink()
    key = PrivateKey.generate()
    key.write(tmp_path / "k.pem")
    tensorkeep.sign(model, key)
    with pytest.raises(UnsupportedError, match="different version of, and keeps"):
        tensorkeep.push(model, at(hub))

    model.joinpath("README.md").write_bytes(hub.files["README.md"])
    tensorkeep.sign(model, key)
    hub.files.pop("notes.txt")
    assert {"model.sig", "modeling.py"} < set(tensorkeep.push(model, at(hub)).sent)
    done = tensorkeep.verify(at(hub), trust=tmp_path / "k.pub")
    assert (done.is_whole, len(done.signers)) == (True, 1)

    assert tensorkeep.push(model, at(hub), max_shard_size="1MB").removed == (*SHARDS, "model.sig")


def test_a_save_makes_no_commit_for_each_file(hub: HubServer) -> None:
    with pytest.raises(UnsupportedError, match=r"tensorkeep\.push"):
        tensorkeep.save_checkpoint(WEIGHTS, at(hub))

    assert hub.requests == []


def test_digests_of_blocks_travel(hub: HubServer, model: Path) -> None:
    tensorkeep.add_block_digests(model)

    tensorkeep.push(model, at(hub))

    assert {f"{name}.blocks" for name in SHARDS} < set(hub.files)
    tensorkeep.save_checkpoint(WEIGHTS, model)
    assert set(tensorkeep.push(model, at(hub)).removed) == {*SHARDS, *(f"{name}.blocks" for name in SHARDS), INDEX}


@pytest.mark.parametrize(
    "url", ["hf://model", "hf://", "hf://org/model@", "hf://buckets/org/model", "hf://org/model/../x", "https://a/b"]
)
def test_what_is_no_repository_is_refused(model: Path, url: str) -> None:
    with pytest.raises(UnsupportedError):
        tensorkeep.push(model, url)
