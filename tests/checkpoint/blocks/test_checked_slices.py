"""Checkpoints with the digests of their blocks: slices are checked without the rest, on disk and from a server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import IntegrityError, UnsupportedError
from tests.support import soak
from tests.support.remote.fault_server import FaultServer

BLOCK = 2**16
BACKENDS = ["mmap", "pread"]


def state() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    large = {f"w{number}": rng.normal(size=(600, 500)) for number in range(3)}
    return large | {f"t{number}": rng.normal(size=9) for number in range(50)}


STATE = state()
INDEXES = [
    np.s_[3],
    np.s_[10:20],
    np.s_[5::7],
    np.s_[:, 3:9],
    np.s_[[4, 500, 4]],
    np.s_[-1, ::-2],
    np.s_[...],
    np.s_[:0],
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("blocks")
    tensorkeep.save_checkpoint(STATE, path, max_shard_size="5MB", block_digests=True)
    return path


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def shard_and_start(path: Path, name: str) -> tuple[Path, int]:
    with tensorkeep.open(path) as opened:
        shard = opened.shard_of(name)
        return path / shard, opened.shards[shard].span_of(name).start


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1 << bit]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_slices_are_what_numpy_gives(saved: Path, backend: str) -> None:
    with tensorkeep.open(saved, verify=True, backend=backend) as opened:
        for index in INDEXES:
            np.testing.assert_array_equal(opened["w1"][index], STATE["w1"][index])
        assert all((opened[name][2:5] == array[2:5]).all() for name, array in STATE.items())
        assert all((loaded == STATE[name]).all() for name, loaded in opened.load().items())


def test_there_is_a_file_beside_each_shard(saved: Path) -> None:
    shards = sorted(saved.glob("*.safetensors"))

    assert sorted(saved.glob("*.blocks")) == [shard.with_name(shard.name + ".blocks") for shard in shards]
    assert len(shards) == 2
    assert tensorkeep.verify(saved).is_whole


def test_every_flipped_bit_of_a_slice_is_found(copy: Path) -> None:
    shard, start = shard_and_start(copy, "w1")
    rng = np.random.default_rng(soak.SEED)
    rounds = soak.rounds(40, 1000)
    for _ in range(rounds):
        row, bit = int(rng.integers(600)), int(rng.integers(8))
        at = start + row * 4000 + int(rng.integers(4000))
        flip(shard, at, bit)
        with tensorkeep.open(copy, verify=True) as opened:
            with pytest.raises(IntegrityError, match="tensor `w1` are not those that were saved"):
                opened["w1"][row]
            far = (row + 300) % 600
            assert (opened["w1"][far] == STATE["w1"][far]).all()
        flip(shard, at, bit)


def forged(copy: Path, name: str) -> Iterator[bytes]:
    """Give what somebody might put in place of a file with digests."""
    content = (copy / name).read_bytes()
    other = next(path for path in sorted(copy.glob("*.blocks")) if path.name != name).read_bytes()
    yield from (b"", content[:-32], content + bytes(32), content[:50], bytes(len(content)), other)
    yield other[: len(content)].ljust(len(content), b"\0")
    yield content[:-64] + content[-32:] + content[-64:-32]
    for at in (0, 16, 24, 32, 40, 48, 80, len(content) - 1):
        changed = bytearray(content)
        changed[at] ^= 255
        yield bytes(changed)


def test_forged_files_are_refused(copy: Path) -> None:
    shard, _ = shard_and_start(copy, "w1")
    blocks = shard.with_name(shard.name + ".blocks")
    for content in list(forged(copy, blocks.name)):
        blocks.write_bytes(content)
        with tensorkeep.open(copy, verify=True) as opened:
            with pytest.raises(IntegrityError, match="block digests are not those that were saved") as caught:
                [opened[name][::2] for name in opened.shards[shard.name]]
            assert caught.value.path == str(blocks)
            assert (opened["w1"].load() == STATE["w1"]).all()  # by its own digest
        assert [finding.shard for finding in tensorkeep.verify(copy).findings] == [blocks.name]


def test_damage_of_the_file_is_found_by_verify(copy: Path) -> None:
    blocks = sorted(copy.glob("*.blocks"))[0]
    for at in (3, 20, 60, 90, blocks.stat().st_size - 1):
        flip(blocks, at)
        (finding,) = tensorkeep.verify(copy).findings
        assert (finding.kind, finding.shard) == ("file", blocks.name)
        flip(blocks, at)
    assert tensorkeep.verify(copy).is_whole


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(1)])
def test_a_file_of_another_length_is_said_to_be_so(copy: Path, executor: ThreadPoolExecutor | None) -> None:
    blocks = sorted(copy.glob("*.blocks"))[0]
    content = blocks.read_bytes()
    for changed, message in ((content[:-1], "the file is truncated"), (content + b"\0", "the file is too long")):
        blocks.write_bytes(changed)
        (finding,) = tensorkeep.verify(copy, executor=executor).findings
        assert (finding.kind, finding.shard, finding.message) == ("truncated", blocks.name, message)
        assert (finding.expected, finding.found) == (f"{len(content):,} bytes", f"{len(changed):,}")


def test_without_the_file_the_first_slice_reads_the_whole_tensor(copy: Path) -> None:
    for path in copy.glob("*.blocks"):
        path.unlink()
    shard, start = shard_and_start(copy, "w1")

    with tensorkeep.open(copy, verify=True) as opened:
        assert (opened["w1"][3:5] == STATE["w1"][3:5]).all()
    flip(shard, start)
    with tensorkeep.open(copy, verify=True) as opened, pytest.raises(IntegrityError, match="w1"):
        opened["w1"][500]


def test_a_save_without_them_removes_those_of_the_old_checkpoint(copy: Path) -> None:
    tensorkeep.save_checkpoint(STATE, copy, max_shard_size="5MB")
    assert not list(copy.glob("*.blocks"))
    tensorkeep.save_checkpoint(STATE, copy, block_digests=True)

    assert sorted(path.name for path in copy.iterdir()) == [
        "model.safetensors",
        "model.safetensors.blocks",
        "model.safetensors.index.json",
    ]
    with tensorkeep.open(copy, verify=True) as opened:
        assert (opened["w2"][7] == STATE["w2"][7]).all()


def digests_in(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.glob("*.blocks")}


def test_they_are_the_same_whatever_the_tensors_are_saved_from(saved: Path, tmp_path: Path) -> None:
    with tensorkeep.open(saved) as opened:  # their order decides which shard each goes into
        ordered = {name: STATE[name] for name in opened}
    tensorkeep.save_checkpoint(ordered, tmp_path / "expected", max_shard_size="5MB", block_digests=True)
    expected = digests_in(tmp_path / "expected")
    plain = tmp_path / "plain"
    tensorkeep.save_checkpoint(ordered, plain, max_shard_size="5MB")
    for number, options in enumerate(({}, {"verify": True}, {"backend": "pread", "check": False})):
        with tensorkeep.open(plain, **options) as opened:
            path = tmp_path / str(number)
            tensorkeep.save_checkpoint(opened, path, max_shard_size="5MB", block_digests=True)
        assert digests_in(path) == expected
    with tensorkeep.open(plain) as opened:
        path = tmp_path / "reused"
        tensorkeep.save_checkpoint(ordered, path, max_shard_size="5MB", block_digests=True, reuse=opened)
    assert digests_in(path) == expected
    tensorkeep.add_block_digests(plain)
    assert digests_in(plain) == expected


def test_they_are_added_to_a_finished_checkpoint(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(STATE, tmp_path, max_shard_size="5MB")
    before = {path.name: path.stat().st_ino for path in tmp_path.glob("*.safetensors")}
    done: list[tuple[int, int]] = []

    roots = tensorkeep.add_block_digests(tmp_path, progress=lambda *each: done.append(each))

    assert (
        roots.keys()
        == before.keys()
        == {path.name: path.stat().st_ino for path in tmp_path.glob("*.safetensors")}.keys()
    )
    assert done[-1][0] == done[-1][1]
    assert tensorkeep.add_block_digests(tmp_path) == roots
    sorted(tmp_path.glob("*.blocks"))[0].unlink()
    assert tensorkeep.add_block_digests(tmp_path) == roots
    with tensorkeep.open(tmp_path, verify=True) as opened:
        assert (opened["w1"][3:5] == STATE["w1"][3:5]).all()


def test_a_single_file_gets_an_index(tmp_path: Path) -> None:
    tensorkeep.save(STATE, tmp_path / "adapter.safetensors")
    tensorkeep.add_block_digests(tmp_path / "adapter.safetensors")

    with tensorkeep.open(tmp_path / "adapter.safetensors.index.json", verify=True) as opened:
        assert (opened["w1"][3:5] == STATE["w1"][3:5]).all()
    assert tensorkeep.verify(tmp_path).is_whole


def test_damaged_tensors_get_none(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(STATE, tmp_path, max_shard_size="5MB")
    shard, start = shard_and_start(tmp_path, "w1")
    flip(shard, start + 5)
    with pytest.raises(IntegrityError, match="w1"):
        tensorkeep.add_block_digests(tmp_path)
    assert not list(tmp_path.glob("*.blocks"))

    tensorkeep.save(STATE, tmp_path / "plain.safetensors", digests=False)
    with pytest.raises(UnsupportedError, match="no digests"):
        tensorkeep.add_block_digests(tmp_path / "plain.safetensors")


def test_an_edit_keeps_them(copy: Path) -> None:
    tensorkeep.edit(copy, rename={"w1": "renamed"}, set_metadata={"by": "me"})

    assert tensorkeep.verify(copy).is_whole
    with tensorkeep.open(copy, verify=True) as opened:
        assert (opened["renamed"][3:5] == STATE["w1"][3:5]).all()
        shard = opened.shards[opened.shard_of("renamed")]
        assert shard.blocks is not None
    assert tensorkeep.add_block_digests(copy).keys() == {path.name for path in copy.glob("*.safetensors")}


def test_a_split_tensor_is_checked_piece_by_piece(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(STATE, tmp_path, max_shard_size="1MB", split_large=True, block_digests=True)
    with tensorkeep.open(tmp_path, verify=True) as opened:
        assert (opened["w1"][200:300, 7] == STATE["w1"][200:300, 7]).all()
        shard, start = tmp_path / opened.shard_of("w1"), 0
        start = opened.shards[shard.name].span_of(next(iter(opened.splits["w1"]))).start
    flip(shard, start)
    with tensorkeep.open(tmp_path, verify=True) as opened, pytest.raises(IntegrityError):
        opened["w1"][:3]


def test_views_that_share_memory_are_checked(tmp_path: Path) -> None:
    base = np.arange(200_000.0).reshape(400, 500)
    tensorkeep.save_checkpoint({"base": base, "turned": base.T}, tmp_path, block_digests=True)
    shard, start = shard_and_start(tmp_path, "base")
    with tensorkeep.open(tmp_path, verify=True) as opened:
        np.testing.assert_array_equal(opened["turned"][7], base.T[7])
    flip(shard, start + 8 * 7)
    with tensorkeep.open(tmp_path, verify=True) as opened, pytest.raises(IntegrityError):
        opened["turned"][7]


@pytest.fixture(scope="module")
def server(saved: Path) -> Iterator[FaultServer]:
    with FaultServer({path.name: path.read_bytes() for path in saved.iterdir()}) as server:
        yield server


def test_a_remote_slice_costs_its_blocks_and_one_request_for_the_proof(server: FaultServer) -> None:
    with tensorkeep.open(server.url, verify=True) as opened:
        entry = opened["w2"].entry
        server.requests.clear()
        np.testing.assert_array_equal(opened["w2"][400:420], STATE["w2"][400:420])
        assert len(server.requests) == 2
        data = [asked for asked in server.requests if not asked.path.endswith(".blocks")]
        touched = 20 * 4000 // BLOCK + 2
        assert sum(asked.nbytes for asked in data) <= touched * BLOCK * 1.05

        server.requests.clear()
        np.testing.assert_array_equal(opened["w2"][200:201], STATE["w2"][200:201])
        assert len(server.requests) == 1
    assert entry.shape == (600, 500)


def test_a_flip_on_the_way_is_found(server: FaultServer, saved: Path) -> None:
    shard, start = shard_and_start(saved, "w1")
    content = bytearray(server.files[shard.name])
    content[start + 400 * 4000] ^= 1
    server.files[shard.name], whole = bytes(content), server.files[shard.name]
    try:
        with tensorkeep.open(server.url, verify=True) as opened:
            assert (opened["w1"][3] == STATE["w1"][3]).all()
            with pytest.raises(IntegrityError, match="w1"):
                opened["w1"][398:402]
    finally:
        server.files[shard.name] = whole


def test_a_fetch_brings_the_files_and_checks_them(server: FaultServer, saved: Path, tmp_path: Path) -> None:
    tensorkeep.fetch(server.url, tmp_path / "all")
    assert digests_in(tmp_path / "all") == digests_in(saved)

    name = min(digests_in(saved))
    whole = server.files.pop(name)
    try:
        tensorkeep.fetch(server.url, tmp_path / "fewer")
        assert digests_in(tmp_path / "fewer").keys() == digests_in(saved).keys() - {name}
        with tensorkeep.open(server.url, verify=True) as opened:
            assert all((opened[name][3:5] == array[3:5]).all() for name, array in STATE.items())
        server.files[name] = whole[:-1] + bytes([whole[-1] ^ 1])
        with pytest.raises(IntegrityError, match="block digests"):
            tensorkeep.fetch(server.url, tmp_path / "damaged")
    finally:
        server.files[name] = whole
    tensorkeep.save_checkpoint(STATE, tmp_path / "other")
    tensorkeep.fetch(server.url, tmp_path / "all", overwrite=True)
    assert tensorkeep.verify(tmp_path / "all").is_whole


def test_reshard_and_patches_compute_them_again(copy: Path, tmp_path: Path) -> None:
    tensorkeep.reshard(copy, tmp_path / "new", max_shard_size="3MB", drop="t1*")
    assert len(digests_in(tmp_path / "new")) == 3
    tensorkeep.save_checkpoint(STATE | {"t3": np.ones(9)}, tmp_path / "next", max_shard_size="5MB")
    tensorkeep.patches.make(copy, tmp_path / "next", tmp_path / "p.safetensors")
    tensorkeep.patches.apply(copy, tmp_path / "p.safetensors")

    for path in (tmp_path / "new", copy):
        assert tensorkeep.verify(path).is_whole
        with tensorkeep.open(path, verify=True) as opened:
            assert (opened["w1"][3:5] == STATE["w1"][3:5]).all()
            assert all(shard.blocks is not None for shard in opened.shards.values())


def test_the_command_adds_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensorkeep.save_checkpoint(STATE, tmp_path, max_shard_size="5MB")
    assert main(["add-block-digests", str(tmp_path)]) == 0
    assert "2 shards with block digests" in capsys.readouterr().out
    assert len(digests_in(tmp_path)) == 2
