"""Block digests of encrypted checkpoints: slices are proven to holders of the key, and anybody can check them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import IntegrityError, TrustError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import open_file
from tensorkeep.signing import PrivateKey, sign
from tests.support.remote.fault_server import FaultServer
from tests.support.soak import rounds

STATE = {f"w{number}": np.random.default_rng(number).normal(size=(600, 500)) for number in range(3)}
KEY, OTHER = tensorkeep.Key(bytes(range(32))), tensorkeep.Key(bytes(32))
SIGNER = PrivateKey.generate()
BLOCK = 2**16


def save_with(directory: Path) -> None:
    tensorkeep.save_checkpoint(STATE, directory, max_shard_size="5MB", block_digests=True, encrypt=KEY)


def save_then_add(directory: Path) -> None:
    tensorkeep.save_checkpoint(STATE, directory, max_shard_size="5MB", encrypt=KEY)
    tensorkeep.add_block_digests(directory)


def save_one_file(directory: Path) -> None:
    directory.mkdir()
    tensorkeep.save(STATE, directory / "model.safetensors", encrypt=KEY)
    tensorkeep.add_block_digests(directory / "model.safetensors")


def reshard_plain(directory: Path) -> None:
    plain = directory.with_name("plain")
    tensorkeep.save_checkpoint(STATE, plain, max_shard_size="5MB", block_digests=True)
    tensorkeep.reshard(plain, directory, max_shard_size="4MB", encrypt=KEY)


def change_key(directory: Path) -> None:
    before = directory.with_name("before")
    tensorkeep.save_checkpoint(STATE, before, max_shard_size="5MB", block_digests=True, encrypt=OTHER)
    tensorkeep.reshard(before, directory, max_shard_size="5MB", key=OTHER, encrypt=KEY)


SAVES: list[Callable[[Path], None]] = [save_with, save_then_add, save_one_file, reshard_plain, change_key]


@pytest.fixture(scope="module", params=SAVES, ids=lambda save: save.__name__)
def signed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A signed and encrypted checkpoint with block digests, and the public key."""
    folder = tmp_path_factory.mktemp("signed")
    (folder / "key.pub").write_bytes(SIGNER.public.pem())
    request.param(folder / "model")
    sign(folder / "model", SIGNER)
    return folder / "model", str(folder / "key.pub")


@pytest.fixture
def served(signed: tuple[Path, str]) -> Iterator[FaultServer]:
    with FaultServer({path.name: path.read_bytes() for path in signed[0].iterdir()}) as server:
        yield server


def test_a_remote_slice_is_proven_without_the_rest(served: FaultServer, signed: tuple[Path, str]) -> None:
    with tensorkeep.open(served.url, trust=signed[1], key=KEY) as opened:
        served.requests.clear()
        np.testing.assert_array_equal(opened["w2"][400:410], STATE["w2"][400:410])

        assert len(served.requests) == 2  # the digests of the blocks, and the blocks
        assert sum(asked.nbytes for asked in served.requests) < 4 * BLOCK


def test_a_slice_costs_the_blocks_that_it_touches(served: FaultServer, signed: tuple[Path, str]) -> None:
    rows = slice(100, 500)
    with tensorkeep.open(served.url, trust=signed[1], key=KEY) as opened:
        opened["w1"][:1]
        served.requests.clear()
        np.testing.assert_array_equal(opened["w1"][rows], STATE["w1"][rows])

    nbytes = STATE["w1"][rows].nbytes
    assert sum(asked.nbytes for asked in served.requests) < 1.05 * (nbytes + 3 * BLOCK)


def test_every_changed_byte_of_a_slice_is_found(served: FaultServer, signed: tuple[Path, str]) -> None:
    random = Random(0)
    whole = dict(served.files)
    shards = [name for name in whole if name.endswith(".safetensors")]
    n_found = 0
    for _ in range(n := rounds(20, 200)):
        shard = random.choice(shards)
        with tensorkeep.open(signed[0], trust=signed[1], key=KEY) as opened:
            at = random.randrange(opened.shards[shard].stored_source.nbytes // 2, len(whole[shard]))
        served.files = whole | {shard: whole[shard][:at] + bytes([whole[shard][at] ^ 1]) + whole[shard][at + 1 :]}
        with tensorkeep.open(served.url, trust=signed[1], key=KEY) as opened:
            try:
                for lazy in opened.values():
                    lazy[::7]
            except IntegrityError:
                n_found += 1
    assert n_found == n


def test_anybody_checks_them_without_the_key(signed: tuple[Path, str], tmp_path: Path) -> None:
    copy = shutil.copytree(signed[0], tmp_path / "copy")
    assert tensorkeep.verify(copy, trust=signed[1]).is_whole
    assert tensorkeep.verify(copy, trust=signed[1], key=KEY).is_whole

    tree = next(path for path in sorted(copy.iterdir()) if path.name.endswith(".blocks"))
    content = bytearray(tree.read_bytes())
    content[-1] ^= 1
    tree.write_bytes(content)
    for key in (None, KEY):
        assert [finding.shard for finding in tensorkeep.verify(copy, key=key).findings] == [tree.name]


def test_the_digests_are_of_the_bytes_in_the_file(signed: tuple[Path, str]) -> None:
    for path in sorted(signed[0].glob("*.safetensors")):
        with open_file(path, OpenOptions(as_stored=True)) as stored:
            nbytes = stored.nbytes
        n_blocks = -(-nbytes // BLOCK)
        tree = path.with_name(path.name + ".blocks").read_bytes()
        assert len(tree) >= 80 + 32 * n_blocks


def test_digests_added_later_need_a_new_signature(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_bytes(SIGNER.public.pem())
    tensorkeep.save_checkpoint(STATE, tmp_path / "model", encrypt=KEY)
    sign(tmp_path / "model", SIGNER)
    tensorkeep.add_block_digests(tmp_path / "model")
    with pytest.raises(TrustError):
        tensorkeep.open(tmp_path / "model", trust=tmp_path / "key.pub", key=KEY)

    sign(tmp_path / "model", SIGNER)
    with tensorkeep.open(tmp_path / "model", trust=tmp_path / "key.pub", key=KEY) as opened:
        np.testing.assert_array_equal(opened["w0"][5], STATE["w0"][5])


def test_they_are_fetched_and_removed_with_the_checkpoint(tmp_path: Path) -> None:
    save_with(tmp_path / "model")
    with FaultServer({path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}) as server:
        tensorkeep.fetch(server.url, tmp_path / "fetched")
    assert {path.name for path in (tmp_path / "fetched").iterdir()} >= {
        path.name for path in (tmp_path / "model").iterdir()
    }

    tensorkeep.save_checkpoint({"w": np.ones(3)}, tmp_path / "fetched", encrypt=KEY)
    assert not list((tmp_path / "fetched").glob("*.blocks"))


def test_in_a_bucket() -> None:
    tensorkeep.save_checkpoint(STATE, "memory://encrypted-blocks/model", block_digests=True, encrypt=KEY)

    assert tensorkeep.verify("memory://encrypted-blocks/model", key=KEY).is_whole
    with tensorkeep.open("memory://encrypted-blocks/model", key=KEY) as opened:
        assert opened.index is not None
        assert len(opened.index.sidecars) == 1
        np.testing.assert_array_equal(opened["w1"][3:5], STATE["w1"][3:5])
