"""Somebody without the key changes, moves, cuts and recombines encrypted files: every reader with the key refuses."""

from __future__ import annotations

import json
import random
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.digests import digest_of
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import EncryptedError, TensorkeepError
from tensorkeep.formats.safetensors import emit_sealed_header
from tensorkeep.layout import Index, emit_index, parse_index
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule
from tests.support.soak import SEED, rounds

KEY = tensorkeep.Key(bytes(range(32)))
BLOCK = 65_552
N_FORGERIES = rounds(40, 1000)
STATE = {"w": np.arange(60_000, dtype=np.float32), "v": np.arange(999, dtype=np.int16), "note": ["text", 3]}
INDEX = "model.safetensors.index.json"


def parts(file: bytes) -> tuple[dict, str, bytes]:
    """Return the envelope of a file, the name of its tensor, and its blocks."""
    start = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:start])
    envelope = json.loads(header.pop("__metadata__")["tensorkeep.encryption"])
    return envelope, next(iter(header)), file[start:]


def made(envelope: dict, name: str, data: bytes, index: str | None = None) -> bytes:
    """Return a file whose digests are right, as anybody can make it."""
    text = json.dumps(envelope, separators=(",", ":"))
    entries = {name: TensorEntry("U8", (len(data),), (0, len(data)))}
    head = emit_sealed_header(
        entries, {"format": "pt", "tensorkeep.encryption": text}, [digest_of(data)], index=index
    )
    return head + data


def refuses(path: Path) -> None:
    """All of a checkpoint can not be read any more: it does not open, or each way to read the changed bytes fails."""
    with pytest.raises((TensorkeepError, ValueError)):
        tensorkeep.load(path, key=KEY)
    assert not_whole(path)


def not_whole(path: Path) -> bool:
    try:
        return not tensorkeep.verify(path, key=KEY).is_whole
    except TensorkeepError:
        return True


def flipped(data: bytes, chosen: random.Random) -> bytes:
    place = chosen.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chosen.randrange(8)]) + data[place + 1 :]


def test_a_signature_does_not_replace_the_checks_that_need_the_key(tmp_path: Path) -> None:
    path, signer = tmp_path / "w.safetensors", PrivateKey.generate()
    tensorkeep.save(STATE, path, encrypt=KEY)
    sign(path, signer)
    policy = Policy((Rule(keys=(signer.public,)),))
    whole = tensorkeep.verify(path, key=KEY, trust=policy)
    assert (whole.is_whole, whole.n_checked, whole.n_tensors) == (True, 2, 2)

    envelope, name, data = parts(path.read_bytes())
    path.write_bytes(made(envelope, name, data[:100] + bytes([data[100] ^ 1]) + data[101:]))
    sign(path, signer)

    assert tensorkeep.verify(path, trust=policy).is_whole, "without the key, only the encrypted bytes can be compared"
    assert not tensorkeep.verify(path, key=KEY, trust=policy)


@pytest.mark.soak
@pytest.mark.parametrize("part", ["block", "content", "nbytes", "salt", "names"])
def test_changed_bits_are_found_though_all_digests_are_made_right(tmp_path: Path, part: str) -> None:
    chosen = random.Random(SEED)
    path = tmp_path / "m.safetensors"
    tensorkeep.save(STATE, path, encrypt=tensorkeep.Encryption(KEY, shows_names=True))
    whole = path.read_bytes()

    for _ in range(N_FORGERIES):
        envelope, name, data = parts(whole)
        if part == "block":
            data = flipped(data, chosen)
        elif part == "nbytes":
            envelope["nbytes"] += chosen.choice([-1, 1, 65_536])
        elif part == "names":
            entry = envelope["names"][chosen.choice(["w", "v"])]
            entry["dtype"] = chosen.choice(["I8", "U16", "BF16", "F64"])
        else:
            envelope[part] = b64encode(flipped(b64decode(envelope[part]), chosen)).decode()
        path.write_bytes(made(envelope, name, data))
        assert path.read_bytes() != whole
        refuses(path)


def test_slices_of_changed_blocks_are_refused_and_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensorkeep.save({"w": np.arange(60_000, dtype=np.float32)}, path, encrypt=KEY)
    envelope, name, data = parts(path.read_bytes())
    path.write_bytes(made(envelope, name, data[: BLOCK + 5] + bytes([data[BLOCK + 5] ^ 1]) + data[BLOCK + 6 :]))

    with tensorkeep.open(path, key=KEY) as file:
        np.testing.assert_array_equal(file["w"][:16_384], np.arange(16_384))
        np.testing.assert_array_equal(file["w"][32_768:], np.arange(32_768, 60_000))
        with pytest.raises(tensorkeep.errors.IntegrityError, match="encrypted block 1 "):
            file["w"][20_000:20_001]


MOVES: dict[str, Callable[[bytes], bytes]] = {
    "two blocks swapped": lambda data: data[BLOCK : 2 * BLOCK] + data[:BLOCK] + data[2 * BLOCK :],
    "a block twice": lambda data: data[:BLOCK] * 2 + data[2 * BLOCK :],
    "a block less": lambda data: data[BLOCK:],
    "the last block less": lambda data: data[: len(data) // BLOCK * BLOCK],
    "a byte less": lambda data: data[:-1],
    "more": lambda data: data + data[:BLOCK],
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_moved_and_missing_blocks_are_found(tmp_path: Path, move: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "m.safetensors"
    tensorkeep.save(STATE, path, encrypt=KEY)
    envelope, name, data = parts(path.read_bytes())
    path.write_bytes(made(envelope, name, move(data)))

    refuses(path)


def test_parts_of_two_saves_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    saves = []
    for _ in range(2):
        tensorkeep.save(STATE, path, encrypt=KEY)
        saves.append(parts(path.read_bytes()))
    (old, name, data), (new, _, new_data) = saves
    mixed = new_data[:BLOCK] + data[BLOCK:]

    forged = [
        (new, data),
        (old, mixed),
        (old | {"content": new["content"]}, data),
        (old | {"salt": new["salt"]}, data),
    ]
    for envelope, blocks in forged:
        path.write_bytes(made(envelope, name, blocks))
        refuses(path)


def sharded(directory: Path, shift: int = 0) -> Path:
    state = {f"layer{n}": np.full(30_000, n + shift, np.float32) for n in range(3)}
    tensorkeep.save_checkpoint(state, directory, encrypt=KEY, max_shard_size="120kB")
    return directory


def with_records(directory: Path) -> None:
    """Make the digests of an index right again, as anybody can."""
    index = parse_index((directory / INDEX).read_bytes(), "", check=False)
    records = {}
    for file, record in (index.shards or {}).items():
        content = (directory / file).read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        records[file] = type(record)(len(content), digest_of(content[:start]).hex())
    (directory / INDEX).write_bytes(emit_index(Index(index.weight_map, index.metadata, records)))


def shards(directory: Path) -> list[Path]:
    return sorted(directory.glob("model-*.safetensors"))


def replaced_shard(directory: Path, other: Path) -> None:
    shutil.copy(shards(other)[1], shards(directory)[1])


def swapped_shards(directory: Path, _: Path) -> None:
    first, second, _ = shards(directory)
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)


def plain_shard(directory: Path, _: Path) -> None:
    tensorkeep.save({"layer1": np.zeros(30_000, np.float32)}, directory / "forged.safetensors")
    (directory / "forged.safetensors").replace(shards(directory)[1])


def plain_index(directory: Path, _: Path) -> None:
    index = parse_index((directory / INDEX).read_bytes(), "")
    (directory / INDEX).write_bytes(emit_index(Index(index.weight_map, {}, index.shards)))


def no_index(directory: Path, _: Path) -> None:
    (directory / INDEX).unlink()
    shards(directory)[0].replace(directory / "model.safetensors")


def fewer_shards(directory: Path, _: Path) -> None:
    index = parse_index((directory / INDEX).read_bytes(), "")
    gone = shards(directory)[2].name
    weight_map = {name: file for name, file in index.weight_map.items() if file != gone}
    records = {file: record for file, record in (index.shards or {}).items() if file != gone}
    (directory / INDEX).write_bytes(emit_index(Index(weight_map, index.metadata, records)))
    (directory / gone).unlink()


RECOMBINED = [replaced_shard, plain_shard, plain_index, no_index, fewer_shards]


@pytest.mark.parametrize("forge", RECOMBINED, ids=[forge.__name__ for forge in RECOMBINED])
@pytest.mark.parametrize("given", [True, False], ids=["key given", "key in the environment"])
def test_recombined_checkpoints_are_refused(
    tmp_path: Path, forge: Callable[[Path, Path], None], given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    sharded(old, shift=100)
    sharded(new)
    forge(new, old)
    if (new / INDEX).exists():
        with_records(new)
    monkeypatch.setenv("TENSORKEEP_KEY", bytes(range(32)).hex())

    with pytest.raises(TensorkeepError):
        tensorkeep.load(new, key=KEY if given else None)


@pytest.mark.soak
@pytest.mark.parametrize("part", ["content", "salt", "nbytes", "names", "anything"])
def test_changed_bits_of_an_index_are_found(tmp_path: Path, part: str) -> None:
    chosen = random.Random(SEED)
    sharded(tmp_path)
    whole = (tmp_path / INDEX).read_bytes()
    index = parse_index(whole, "")
    for _ in range(rounds(10, 1000)):
        envelope = json.loads(index.metadata["tensorkeep.encryption"])
        content = envelope.pop("content")
        if part == "anything":
            (tmp_path / INDEX).write_bytes(flipped(whole, chosen))
        else:
            if part == "nbytes":
                envelope["nbytes"] += chosen.randrange(1, 2**40)
            elif part == "names":
                envelope["names"] = {"layer0": chosen.choice(sorted(index.files))}
            elif part == "salt":
                envelope["salt"] = b64encode(flipped(b64decode(envelope["salt"]), chosen)).decode()
            else:
                content = b64encode(flipped(b64decode(content), chosen)).decode()
            text = json.dumps(envelope | {"content": content}, separators=(",", ":"))
            forged = Index(index.weight_map, {"tensorkeep.encryption": text}, index.shards)
            (tmp_path / INDEX).write_bytes(emit_index(forged))
        refuses(tmp_path)


def test_swapped_names_of_shards_change_nothing(tmp_path: Path) -> None:
    sharded(tmp_path)
    swapped_shards(tmp_path, tmp_path)
    with pytest.raises(TensorkeepError):
        tensorkeep.load(tmp_path, key=KEY)
    with_records(tmp_path)

    loaded = tensorkeep.load(tmp_path, key=KEY)
    assert {name: set(tensor) for name, tensor in loaded.items()} == {"layer0": {0}, "layer1": {1}, "layer2": {2}}


def test_a_checkpoint_of_nothing_in_the_place_of_an_encrypted_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(emit_index(Index({}, {}, {})))

    with pytest.raises(tensorkeep.errors.IntegrityError, match="not encrypted"):
        tensorkeep.load(tmp_path, key=KEY)


def test_plain_files_in_the_place_of_encrypted_ones_need_a_key_that_is_given(tmp_path: Path) -> None:
    tensorkeep.save(STATE, tmp_path / "m.safetensors")

    with pytest.raises(tensorkeep.errors.IntegrityError, match="not encrypted, although a key was given"):
        tensorkeep.load(tmp_path / "m.safetensors", key=KEY)
    np.savez(tmp_path / "m.npz", w=np.ones(3))
    with pytest.raises(tensorkeep.errors.IntegrityError, match=r"not encrypted.*m\.npz"):
        tensorkeep.load(tmp_path / "m.npz", key=KEY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"version":1}',
        '{"version":2,"content":"',
        '{"version":1,"content":"AA=="}',
        "\U0001f600",
        '{"version":true,"content":""}',
        "[" * 10_000,
    ],
)
def test_broken_envelopes_are_our_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.safetensors"
    head = emit_sealed_header(
        {"encrypted": TensorEntry("U8", (0,), (0, 0))}, {"tensorkeep.encryption": text}, [digest_of(b"")]
    )
    path.write_bytes(head)

    for key in (KEY, None):
        with pytest.raises(TensorkeepError):
            tensorkeep.open(path, key=key)
    assert tensorkeep.verify(path).is_whole  # as it is stored


def test_another_key_is_recognized_at_once(tmp_path: Path) -> None:
    sharded(tmp_path)
    other = tensorkeep.Key(bytes(32))

    with pytest.raises(EncryptedError, match=f"expected the key with the id {KEY.id}, found {other.id}"):
        tensorkeep.open(tmp_path, key=other)
    assert tensorkeep.load(tmp_path, key=[other, KEY])["layer2"][0] == 2
