"""Slices of signed checkpoints, proven to be the signer's without the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import IntegrityError, TensorkeepError, TrustError
from tests.support.remote.fault_server import FaultServer

STATE = {f"w{number}": np.random.default_rng(number).normal(size=(600, 500)) for number in range(3)}


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A signed checkpoint with block digests, and the public key."""
    folder = tmp_path_factory.mktemp("signed")
    key = tensorkeep.signing.PrivateKey.generate()
    (folder / "key.pub").write_bytes(key.public.pem())
    tensorkeep.save_checkpoint(STATE, folder / "model", max_shard_size="5MB", block_digests=True)
    tensorkeep.signing.sign(folder / "model", key)
    return folder / "model", str(folder / "key.pub")


@pytest.fixture
def served(signed: tuple[Path, str]) -> Iterator[FaultServer]:
    with FaultServer({path.name: path.read_bytes() for path in signed[0].iterdir()}) as server:
        yield server


def changed(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_a_remote_slice_is_proven_without_the_rest(served: FaultServer, signed: tuple[Path, str]) -> None:
    with tensorkeep.open(served.url, trust=signed[1]) as opened:
        served.requests.clear()
        np.testing.assert_array_equal(opened["w2"][400:410], STATE["w2"][400:410])

        assert len(served.requests) == 2
        assert sum(asked.nbytes for asked in served.requests) < 4 * 2**16


def test_what_is_not_the_signers_is_refused(served: FaultServer, signed: tuple[Path, str], tmp_path: Path) -> None:
    with tensorkeep.open(signed[0]) as opened:
        shard = opened.shard_of("w1")
        start = opened.shards[shard].span_of("w1").start
    whole = dict(served.files)
    served.files[shard] = changed(whole[shard], start + 300 * 4000)
    for read in (
        lambda opened: opened["w1"][299:302],
        lambda opened: opened["w1"].load(),
        lambda opened: opened["w1"][:, 4],
        lambda opened: tensorkeep.save(opened, tmp_path / "copy.safetensors"),
        lambda opened: tensorkeep.torch.load_into(Model(), opened),
    ):
        with tensorkeep.open(served.url, trust=signed[1]) as opened:
            assert (opened["w1"][:3] == STATE["w1"][:3]).all()
            with pytest.raises(IntegrityError, match="w1"):
                read(opened)
    assert not (tmp_path / "copy.safetensors").exists()
    with pytest.raises(IntegrityError, match="w1"):
        tensorkeep.load(served.url, trust=signed[1])
    with pytest.raises(IntegrityError):
        tensorkeep.fetch(served.url, tmp_path / "fetched")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in STATE:
            self.register_buffer(name, torch.zeros(600, 500, dtype=torch.float64))


def test_somebody_elses_digests_prove_nothing(served: FaultServer, signed: tuple[Path, str], tmp_path: Path) -> None:
    """Another checkpoint, complete with an index and digests of its own, in place of some or all of the files."""
    forged = STATE | {"w1": STATE["w1"] + 1}
    tensorkeep.save_checkpoint(forged, tmp_path, max_shard_size="5MB", block_digests=True)
    other = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    whole = dict(served.files)
    for names in ([name] for name in other):
        _assert_never_forged(served, whole | {name: other[name] for name in names}, signed[1])
    _assert_never_forged(served, whole | other, signed[1])
    blocks = {name: content for name, content in other.items() if name.endswith((".blocks", ".safetensors"))}
    _assert_never_forged(served, whole | blocks, signed[1])


def _assert_never_forged(server: FaultServer, files: dict[str, bytes], key: str) -> None:
    server.files = files
    for name in STATE:
        try:
            with tensorkeep.open(server.url, trust=key) as opened:
                found: Any = opened[name][7:9]
        except TensorkeepError:
            continue
        np.testing.assert_array_equal(found, STATE[name][7:9])


def test_digests_added_later_need_a_new_signature(signed: tuple[Path, str], tmp_path: Path) -> None:
    key = tensorkeep.signing.PrivateKey.generate()
    (tmp_path / "key.pub").write_bytes(key.public.pem())
    tensorkeep.save_checkpoint(STATE, tmp_path / "model", max_shard_size="5MB")
    tensorkeep.signing.sign(tmp_path / "model", key)
    tensorkeep.add_block_digests(tmp_path / "model")
    with pytest.raises(TrustError):
        tensorkeep.open(tmp_path / "model", trust=tmp_path / "key.pub")

    tensorkeep.signing.sign(tmp_path / "model", key)
    with tensorkeep.open(tmp_path / "model", trust=tmp_path / "key.pub") as opened:
        assert (opened["w0"][5] == STATE["w0"][5]).all()
