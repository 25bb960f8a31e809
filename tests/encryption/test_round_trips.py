"""Encrypted checkpoints are what plain ones are: every dtype, state, slice and operation, from every place."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorkeep
from tensorkeep.digests import digest_of
from tensorkeep.dtypes import BY_NAME
from tensorkeep.encryption._blocks import runs_of
from tensorkeep.formats.safetensors import emit_sealed_header, lay_out
from tests.support.peak_memory import with_peak
from tests.support.remote.fault_server import FaultServer
from tests.support.soak import rounds

KEY = tensorkeep.Key(bytes(range(32)))
BIG = np.arange(100_000, dtype=np.float32).reshape(1000, 100)


@pytest.fixture
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORKEEP_KEY", bytes(range(32)).hex())


def test_all_dtypes_and_their_slices(tmp_path: Path) -> None:
    chosen = np.random.default_rng(1)
    places = {name: (dtype, (40, 24), 40 * 24 * dtype.bits // 8) for name, dtype in BY_NAME.items()}
    places |= {f"empty {name}": (dtype, (0, 3), 0) for name, dtype in BY_NAME.items()}
    entries = lay_out(places)
    data = {name: chosen.integers(0, 2, entry.nbytes, np.uint8).tobytes() for name, entry in entries.items()}
    head = emit_sealed_header(entries, None, [digest_of(data[name]) for name in entries])
    (tmp_path / "p.safetensors").write_bytes(head + b"".join(data[name] for name in entries))

    with tensorkeep.open(tmp_path / "p.safetensors") as plain:
        tensorkeep.save(plain, tmp_path / "e.safetensors", encrypt=KEY)
        with tensorkeep.open(tmp_path / "e.safetensors", key=KEY) as file:
            assert list(file) == list(plain)
            for name, lazy in plain.items():
                assert (file[name].dtype, file[name].shape, file[name].digest) == (
                    lazy.dtype,
                    lazy.shape,
                    lazy.digest,
                )
                for index in (..., (slice(3, 30, 4), slice(2, 22))) if lazy.nbytes else (...,):
                    assert file[name][index].tobytes() == lazy[index].tobytes()


def test_states_come_back_whole(tmp_path: Path) -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    state = {"model": {"w": weight, "tied": weight}, "view": weight.T, "step": 7, "text": ("a", None, 2.5)}
    for path in (tmp_path / "m.safetensors", tmp_path / "dir"):
        save = tensorkeep.save if path.suffix else tensorkeep.save_checkpoint
        save(state, path, encrypt=KEY, metadata={"by": "me"})  # type: ignore[operator]
        loaded = tensorkeep.load(path, key=KEY)

        assert loaded["model"]["w"].data_ptr() == loaded["model"]["tied"].data_ptr() == loaded["view"].data_ptr()
        assert torch.equal(loaded["view"], weight.T)
        assert (loaded["step"], loaded["text"]) == (7, ("a", None, 2.5))
        assert tensorkeep.open(path, key=KEY).metadata["by"] == "me"


indexes = st.one_of(
    st.integers(-1000, 999),
    st.slices(1000),
    st.tuples(st.slices(1000), st.slices(100)),
    st.lists(st.integers(0, 999), max_size=5),
)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tensorkeep.Opened:
    path = tmp_path_factory.mktemp("slices") / "m.safetensors"
    tensorkeep.save({"a": np.arange(777, dtype=np.int8), "w": BIG, "z": np.arange(5.0)}, path, encrypt=KEY)
    return tensorkeep.open(path, key=KEY)


@pytest.mark.soak
@settings(max_examples=rounds(60, 5000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(index=indexes)
def test_slices_are_those_of_the_array(opened: tensorkeep.Opened, index: object) -> None:
    np.testing.assert_array_equal(opened["w"][index], BIG[index])


@pytest.mark.soak
@settings(max_examples=rounds(60, 5000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spans=st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 200_000)), max_size=6))
def test_any_ranges_are_read_together(opened: tensorkeep.Opened, spans: list[tuple[int, int]]) -> None:
    whole = bytes(opened.source.read(tensorkeep.transport.ByteRange(0, opened.source.nbytes)))  # type: ignore[attr-defined]
    spans = [(start, min(nbytes, len(whole) - start)) for start, nbytes in spans if start < len(whole)]
    parts = [(start, bytearray(nbytes)) for start, nbytes in spans]
    opened.source.read_into([(start, memoryview(into)) for start, into in parts])  # type: ignore[attr-defined]

    assert [into for _, into in parts] == [whole[start : start + nbytes] for start, nbytes in spans]


def test_no_block_is_decrypted_twice() -> None:
    parts = [(n * 2_000, memoryview(bytearray(2_000))) for n in range(20_000)]
    runs = list(runs_of(parts))

    blocks = [number for run in runs for number in range(run.first, run.stop)]
    assert len(blocks) <= len(set(blocks)) + len(runs)
    assert sum(len(run.parts) for run in runs) <= len(parts) + len(runs)


def test_operations_on_checkpoints(tmp_path: Path, key_in_environment: None) -> None:
    state = {"w": BIG, "deep": {"v": np.arange(7)}, "step": 3}
    plain, secret = tmp_path / "plain", tmp_path / "secret"
    tensorkeep.save_checkpoint(state, plain, max_shard_size="300kB", sha256=True)
    other = tensorkeep.encryption.new_key(tmp_path / "other")

    tensorkeep.reshard(plain, secret, encrypt=KEY, max_shard_size="300kB", sha256=True, split_large=True)
    assert tensorkeep.diff(plain, secret).is_equal
    assert tensorkeep.diff(plain, secret, key=KEY).n_unread == 1  # the other is split
    for key in (None, KEY):
        found = tensorkeep.verify(secret, key=key)
        assert found.is_whole, found.findings
    assert tensorkeep.verify(secret).n_sha256 == tensorkeep.verify(secret, key=KEY).n_sha256 > 0
    assert tensorkeep.scan(secret).is_clean
    tensorkeep.reshard(secret, secret, key=KEY, encrypt=other)
    assert tensorkeep.diff(plain, secret, key=[KEY, other]).is_equal
    tensorkeep.reshard(secret, tmp_path / "back", key=other, max_shard_size="300kB")
    assert tensorkeep.load(tmp_path / "back")["step"] == 3
    tensorkeep.convert(secret, tmp_path / "c.safetensors", key=other, encrypt=KEY)
    assert tensorkeep.load(tmp_path / "c.safetensors", key=KEY)["deep"]["v"].tolist() == list(range(7))
    tensorkeep.join([tmp_path / "c.safetensors"], tmp_path / "joined", encrypt=KEY)
    tensorkeep.save_async(state, tmp_path / "async", encrypt=KEY).result()
    tensorkeep.save_async(state, tmp_path / "async.safetensors", encrypt=KEY).result()
    for path in ("joined", "async", "async.safetensors"):
        np.testing.assert_array_equal(tensorkeep.open(tmp_path / path, key=KEY)["w"][17], BIG[17])
    tensorkeep.add_sha256(tmp_path / "c.safetensors")
    assert tensorkeep.load(tmp_path / "c.safetensors.index.json", key=KEY)["step"] == 3
    with pytest.raises(tensorkeep.errors.UnsupportedError, match="never changed"):
        tensorkeep.edit(secret, set_metadata={"a": "b"})


def test_other_ways_to_load_take_the_key_of_the_environment(tmp_path: Path, key_in_environment: None) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"weight": torch.ones(3, 2), "bias": torch.zeros(3)}, path, encrypt=KEY)

    model = torch.nn.Linear(2, 3)
    tensorkeep.torch.load_into(model, path)
    assert model.weight.sum() == 6
    assert tensorkeep.torch.load_file(path)["weight"].shape == (3, 2)
    with tensorkeep.safe_open(path, framework="np") as file:
        assert file.get_slice("weight")[1:].tolist() == [[1, 1], [1, 1]]
    from_bytes = tensorkeep.open(path.read_bytes())
    assert from_bytes["bias"].load().tolist() == [0, 0, 0]


def test_loads_into_models(tmp_path: Path) -> None:
    state = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}
    listed = tensorkeep.Encryption(KEY, shows_names=True)
    tensorkeep.save_checkpoint(state, tmp_path / "hidden", encrypt=KEY)
    tensorkeep.save_checkpoint(state, tmp_path / "listed", encrypt=listed)
    tensorkeep.save_checkpoint(state, tmp_path / "plain")
    model = torch.nn.Linear(2, 3)

    for name, load in itertools.product(
        ["hidden", "listed"], [tensorkeep.torch.load_into, tensorkeep.torch.load_sharded]
    ):
        path = tmp_path / name
        torch.nn.init.constant_(model.weight, 5)
        with pytest.raises(tensorkeep.errors.EncryptedError, match="no key was given"):
            load(model, path)
        assert model.weight.sum() == 30
        load(model, path, key=KEY)
        assert model.weight.sum() == 6
        with tensorkeep.open(path, key=KEY) as opened:
            load(model, opened)
            with pytest.raises(tensorkeep.errors.UnsupportedError, match="not open yet"):
                load(model, opened, key=KEY)
        with pytest.raises(tensorkeep.errors.IntegrityError, match="not encrypted"):
            load(model, tmp_path / "plain", key=KEY)
    for ask in (partial(tensorkeep.torch.coverage, model), tensorkeep.check):
        with pytest.raises(tensorkeep.errors.EncryptedError, match="no key was given"):
            ask(tmp_path / "hidden")
        ask(tmp_path / "listed")
    with pytest.raises(tensorkeep.errors.TensorNotFoundError, match=r"Names are encrypted\. Pass key="):
        tensorkeep.open(tmp_path / "hidden")["weight"]


def test_an_encrypted_save_links_no_plain_file_of_an_older_one(tmp_path: Path) -> None:
    state = {"w": BIG}
    tensorkeep.save_checkpoint(state, tmp_path / "plain", sha256=True)
    with tensorkeep.open(tmp_path / "plain") as older:
        tensorkeep.save_checkpoint(state, tmp_path / "secret", reuse=older, sha256=True, encrypt=KEY)  # type: ignore[arg-type]

    for file in (tmp_path / "secret").glob("*.safetensors"):
        assert BIG[5].tobytes() not in file.read_bytes()


def test_a_slice_requests_only_its_blocks(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.arange(2_000_000, dtype=np.float32).reshape(2000, 1000)}, tmp_path / "m", encrypt=KEY)
    content = (tmp_path / "m").read_bytes()
    with (
        FaultServer({"m.safetensors": content}) as server,
        tensorkeep.open(f"{server.url}m.safetensors", key=KEY) as file,
    ):
        n_to_open = len(server.requests)
        assert file["w"][1000:1010, :3][0, 1] == 1_000_001
        asked = server.requests[n_to_open:]
        assert (len(asked), asked[0].nbytes) == (1, 65_552)
        np.testing.assert_array_equal(file["w"][::500, 0], np.arange(0, 2_000_000, 500_000))
        assert sum(each.nbytes for each in server.requests[n_to_open:]) <= 5 * 65_552
    assert n_to_open <= 2


def test_fetched_and_served_without_the_key(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"w": BIG, "v": BIG + 1}, tmp_path / "a", encrypt=KEY, max_shard_size="400kB")
    files = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    with FaultServer(files) as server:
        tensorkeep.fetch(server.url, tmp_path / "b")
        np.testing.assert_array_equal(tensorkeep.open(server.url, key=KEY)["v"][3], BIG[3] + 1)
    np.testing.assert_array_equal(tensorkeep.load(tmp_path / "b", key=KEY)["w"], BIG)


def test_what_needs_no_key_minds_no_other_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORKEEP_KEY", bytes(32).hex())
    secret = tmp_path / "a"
    tensorkeep.save_checkpoint({"w": BIG, "v": BIG + 1}, secret, encrypt=KEY, max_shard_size="400kB")

    assert tensorkeep.verify(secret).is_whole
    tensorkeep.add_sha256(secret)
    assert tensorkeep.verify(secret).n_sha256 == 2
    assert tensorkeep.verify(secret, key=KEY).is_whole
    assert tensorkeep.scan(secret).is_clean
    tensorkeep.push(secret, "memory://pushed/there")
    files = {path.name: path.read_bytes() for path in secret.iterdir()}
    with FaultServer(files) as server:
        tensorkeep.fetch(server.url, tmp_path / "b")
    with tensorkeep.checkpoint.save_folder(tmp_path / "c") as staging:
        shutil.copytree(secret, staging, dirs_exist_ok=True)
    assert tensorkeep.verify(tmp_path / "c").is_whole
    for path in (secret, "memory://pushed/there", tmp_path / "b", tmp_path / "c"):
        np.testing.assert_array_equal(tensorkeep.load(path, key=KEY)["w"], BIG)
        with pytest.raises(tensorkeep.errors.EncryptedError):
            tensorkeep.load(path)


def test_into_a_store_of_objects(key_in_environment: None) -> None:
    state = {"w": BIG, "v": BIG + 1, "n": 3}
    tensorkeep.save_checkpoint(state, "memory://encrypted/dir", encrypt=KEY, max_shard_size="400kB", sha256=True)
    tensorkeep.save(state, "memory://encrypted/one.safetensors", encrypt=KEY)
    tensorkeep.save_checkpoint(state, "memory://encrypted/lone", encrypt=KEY)

    for path in ("dir", "one.safetensors", "lone"):
        url = f"memory://encrypted/{path}"
        assert tensorkeep.load(url, key=KEY)["n"] == 3
        np.testing.assert_array_equal(tensorkeep.open(url, key=KEY)["w"][3:5], BIG[3:5])
        assert tensorkeep.verify(url).is_whole
        assert tensorkeep.verify(url, key=KEY).is_whole


def _saves(path: str) -> None:
    tensorkeep.reshard(f"{path}/a", f"{path}/b", encrypt=KEY, durable=False)


def _streams(path: str) -> None:
    with tensorkeep.open(f"{path}/b", key=KEY) as file:
        for piece in file.shards["model.safetensors"].source.pieces(tensorkeep.transport.ByteRange(0, 40_000_000)):
            assert len(piece)


def test_memory_is_bounded(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"w": np.ones(12_000_000, np.float32)}, tmp_path / "a")

    assert with_peak(_saves, str(tmp_path))[1] < 24_000_000
    assert with_peak(_streams, str(tmp_path))[1] < 24_000_000


def test_without_cryptography_an_error_says_what_to_install(tmp_path: Path) -> None:
    program = """
import sys, numpy, tensorkeep

class Missing:
    def find_spec(self, name, path, target=None):
        if name == "cryptography":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
tensorkeep.save({"w": numpy.ones(3)}, "w.safetensors", encrypt=tensorkeep.Key(bytes(32)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "pip install 'tensorkeep[trust]'" in done.stderr
    assert os.listdir(tmp_path) == []
