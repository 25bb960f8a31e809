"""Models in stores and on the Hub: saved to a URL, and fetched from one before they are loaded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import huggingface_hub
import peft
import pytest
import transformers

import tensorkeep
from tensorkeep.errors import AccessDeniedError, SourceMissingError, StateError, UnsupportedError
from tensorkeep.integrations.transformers import from_pretrained, save_pretrained
from tests.support.integrations.transformers.tiny_trainers import assert_equal, gpt2, weights
from tests.support.remote.hub_server import HubServer

GPT2 = transformers.GPT2LMHeadModel
SHARD = "40KB"


@pytest.fixture
def place() -> str:
    return f"memory://{uuid4()}/gpt"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    saved = tmp_path / "saved"
    save_pretrained(gpt2(), saved, max_shard_size=SHARD)
    files = {path.name: path.read_bytes() for path in saved.iterdir()}
    with HubServer("org/model", files) as running:
        constants = huggingface_hub.constants
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # `make test` sets it
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{running.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield running


def n_downloads(hub: HubServer) -> int:
    shards = tuple(f"/{name}" for name in hub.files if name.endswith(".safetensors"))
    return sum(method == "GET" and path.endswith(shards) for method, path, _ in hub.requests)


def test_a_model_is_saved_to_a_store_and_loaded_from_it(place: str, tmp_path: Path) -> None:
    for seed in (1, 2):  # the second save replaces the first
        save_pretrained(gpt2(seed=seed), place, max_shard_size=SHARD, sha256=True)

    assert tensorkeep.verify(place).n_unprotected == 0
    loaded = from_pretrained(GPT2, place, cache_dir=tmp_path, verify="require")
    assert_equal(weights(loaded), weights(gpt2(seed=2)))
    (folder,) = tmp_path.iterdir()
    assert {"config.json", "generation_config.json", "model.safetensors.index.json"} <= {*os.listdir(folder)}
    with tensorkeep.open(folder) as opened:
        assert all(record.sha256 for record in opened.index.shards.values())


def test_a_save_that_fails_leaves_the_weights_in_the_store(place: str, tmp_path: Path) -> None:
    save_pretrained(gpt2(seed=1), place)
    broken = gpt2(seed=2)
    broken.transformer.wte.to("meta")

    with pytest.raises(StateError):
        save_pretrained(broken, place)
    assert_equal(weights(from_pretrained(GPT2, place, cache_dir=tmp_path)), weights(gpt2(seed=1)))


def test_adapters_keep_their_folders_and_the_model_card(place: str, tmp_path: Path) -> None:
    model = peft.get_peft_model(gpt2(), peft.LoraConfig(target_modules=["c_attn"]))
    model.add_adapter("second", peft.LoraConfig(target_modules=["c_attn"], r=2))
    save_pretrained(model, place)
    card = tensorkeep.transport.RemotePath.of(f"{place}/README.md")
    card.put(tensorkeep.transport.Body(8, lambda: iter([b"# Mine\n\n"])))
    save_pretrained(model, place)

    assert tensorkeep.open(f"{place}/second/adapter_model.safetensors").keys()
    source = card.open()
    assert b"# Mine" in bytes(source.read(tensorkeep.transport.ByteRange(0, source.nbytes)))
    loaded = from_pretrained(peft.PeftModel, place, model=gpt2(), cache_dir=tmp_path)
    assert_equal(weights(loaded), weights(peft.PeftModel.from_pretrained(gpt2(), next(tmp_path.iterdir()))))


@pytest.mark.parametrize("name", ["org/model", "hf://org/model"])
def test_a_model_of_the_hub(hub: HubServer, name: str, tmp_path: Path) -> None:
    loaded = from_pretrained(GPT2, name, verify="require")

    assert_equal(weights(loaded), weights(gpt2()))
    before = n_downloads(hub)
    assert_equal(weights(from_pretrained(GPT2, name)), weights(gpt2()))
    assert n_downloads(hub) <= before + len([path for path in hub.files if path.endswith(".safetensors")])
    assert len(os.listdir(tmp_path / "cache" / "tensorkeep" / "models")) == 1


def test_a_directory_comes_before_the_hub(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_pretrained(gpt2(seed=5), Path("org/model"))
    hub.requests.clear()

    assert_equal(weights(from_pretrained(GPT2, "org/model")), weights(gpt2(seed=5)))
    assert hub.requests == []


@pytest.fixture
def offline(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def leave() -> None:
        hub.requests.clear()
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    return leave


@pytest.mark.parametrize("name", ["org/model", "hf://org/model"])
def test_a_model_that_was_fetched_loads_without_the_hub(
    hub: HubServer, offline: Callable[[], None], name: str
) -> None:
    from_pretrained(GPT2, name)
    asked = len(hub.requests)
    assert_equal(weights(from_pretrained(GPT2, name, local_files_only=True, verify="require")), weights(gpt2()))
    assert len(hub.requests) == asked
    offline()

    assert_equal(weights(from_pretrained(GPT2, "org/model", verify="require")), weights(gpt2()))
    assert_equal(weights(from_pretrained(GPT2, "hf://org/model")), weights(gpt2()))
    assert hub.requests == []


@pytest.mark.parametrize("revision", [None, "v1", "e" * 40])
def test_a_model_in_the_cache_of_the_hub_loads_without_it(
    hub: HubServer, offline: Callable[[], None], tmp_path: Path, revision: str | None
) -> None:
    in_cache(tmp_path / "hub", "org/model", hub.files, revision)
    offline()

    chosen = {} if revision is None else {"revision": revision}
    loaded = from_pretrained(GPT2, "org/model", cache_dir=tmp_path / "hub", verify="require", **chosen)
    assert_equal(weights(loaded), weights(gpt2()))
    at = "hf://org/model" if revision is None else f"hf://org/model@{revision}"
    assert_equal(weights(from_pretrained(GPT2, at, cache_dir=tmp_path / "hub")), weights(gpt2()))
    assert hub.requests == []


def in_cache(cache: Path, repo: str, files: dict[str, bytes], revision: str | None) -> None:
    """Lay files out as huggingface_hub does: blobs, links to them in a snapshot, and the commit of each name."""
    folder, commit = cache / f"models--{repo.replace('/', '--')}", "e" * 40
    for inner in ("blobs", "refs", f"snapshots/{commit}"):
        (folder / inner).mkdir(parents=True)
    if revision != commit:
        (folder / "refs" / (revision or "main")).write_text(commit)
    for name, data in files.items():
        blob = hashlib.sha256(data).hexdigest()
        (folder / "blobs" / blob).write_bytes(data)
        (folder / "snapshots" / commit / name).symlink_to(f"../../blobs/{blob}")


def test_a_model_that_is_not_here_needs_the_hub(hub: HubServer, offline: Callable[[], None], tmp_path: Path) -> None:
    in_cache(tmp_path / "hub", "org/other", {"config.json": hub.files["config.json"]}, None)
    offline()

    for name in ("org/model", "org/other"):
        with pytest.raises(SourceMissingError) as caught:
            from_pretrained(GPT2, name, cache_dir=tmp_path / "hub")
        assert name in str(caught.value) or "snapshots" in str(caught.value)
    with pytest.raises(SourceMissingError, match=r"not on this machine.*HF_HUB_OFFLINE"):
        from_pretrained(GPT2, "org/model")
    assert hub.requests == []


def test_what_is_nowhere(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises((SourceMissingError, AccessDeniedError)) as caught:
        from_pretrained(GPT2, "org/other")
    assert "not a directory here" in "".join(caught.value.__notes__)
    with pytest.raises(SourceMissingError, match="no such directory"):
        from_pretrained(GPT2, tmp_path / "none")


def test_web_servers_cannot_be_saved_to(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="cannot be written"):
        save_pretrained(gpt2(), "https://example.org/gpt/")
