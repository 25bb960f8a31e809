"""Each part of a signed checkpoint, forged in many ways: what is read is what was signed, or an error."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import TensorkeepError, TrustError
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule
from tests.support.signing.forged_parts import INDEX, PARTS, save_signed
from tests.support.soak import SEED, rounds

KEY, STRANGER = PrivateKey.generate(), PrivateKey.generate("ed25519")
POLICY = Policy((Rule(keys=(KEY.public,)),))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a signed checkpoint and a stranger's, of the same names and shapes."""
    folder = tmp_path_factory.mktemp("forged")
    save_signed(folder / "good", KEY)
    save_signed(folder / "other", STRANGER, 1)
    return folder


def read_slices(directory: Path, draw: random.Random) -> dict[str, tuple[slice, np.ndarray]]:
    found = {}
    with tensorkeep.open(directory, trust=POLICY) as opened:
        for name, lazy in opened.items():
            start = draw.randrange(40)
            rows = slice(start, draw.randrange(start, 40) + 1)
            found[name] = rows, lazy[rows]
    return found


@pytest.mark.soak
@pytest.mark.parametrize("part", PARTS)
def test_forged_parts_are_refused(tmp_path: Path, place: Path, part: str) -> None:
    state = tensorkeep.load(place / "good", trust=POLICY)
    draw = random.Random(f"{part} {SEED}")
    forged = tmp_path / "ckpt"
    for n in range(rounds(8, 1000)):
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(place / "good", forged)
        forge = PARTS[part][n % len(PARTS[part])]
        forge(forged, place / "other", draw)

        assert not tensorkeep.verify(forged, trust=POLICY), f"{part}, forgery {n}"
        try:
            slices, loaded = read_slices(forged, draw), tensorkeep.load(forged, trust=POLICY)
        except TensorkeepError:
            continue
        # Only what was not needed for what was read may be forged.
        assert part in {"block digests", "another file"}, f"{part}, forgery {n}"
        assert all(np.array_equal(state[name], value) for name, value in loaded.items())
        assert all(np.array_equal(state[name][rows], value) for name, (rows, value) in slices.items())


@pytest.mark.soak
def test_forged_tensors_are_found_in_the_slices_that_have_them(tmp_path: Path, place: Path) -> None:
    forged = tmp_path / "ckpt"
    shutil.copytree(place / "good", forged)
    draw = random.Random(SEED)
    with tensorkeep.open(forged) as opened:
        spans = {
            name: (forged / opened.shard_of(name), opened.shards[opened.shard_of(name)].span_of(name))
            for name in opened
        }
    for _ in range(rounds(20, 1000)):
        name = draw.choice(sorted(spans))
        path, span = spans[name]
        at = draw.randrange(span.start, span.stop)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << draw.randrange(8)]))
        row = (at - span.start) // 4096
        with tensorkeep.open(forged, trust=POLICY) as opened, pytest.raises(TensorkeepError):
            opened[name][max(0, row - draw.randrange(3)) : row + 1]
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([byte]))
    assert tensorkeep.verify(forged, trust=POLICY).is_whole


@pytest.mark.soak
def test_forged_policies_are_refused(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write to a directory signs it with a key of their own, and puts a policy there that trusts it."""
    forged = tmp_path / "ckpt"
    shutil.copytree(place / "other", forged)
    sign(forged, STRANGER)
    draw = random.Random(SEED)
    for n in range(rounds(20, 1000)):
        folder = forged / draw.choice([".", "code", "a/b", ".hidden", "é"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "key.pub").write_bytes(STRANGER.public.pem())
        lines = ["[[rules]]", 'keys = ["key.pub"]', draw.choice(["", "additions = true", 'paths = ["**"]'])]
        (folder / "tensorkeep.toml").write_text("\n".join(lines))
        policy = folder / draw.choice(["key.pub", "tensorkeep.toml"])
        match draw.randrange(5):
            case 0:
                link = tmp_path / f"link-{n}{policy.suffix}"
                link.symlink_to(policy)
                policy = link
            case 1:
                outside = tmp_path / f"outside-{n}.toml"
                relative = os.path.relpath(folder / "key.pub", tmp_path)
                outside.write_text(f"[[rules]]\nkeys = ['{relative}']\n")
                policy = outside
            case 2:
                policy = forged / ".." / "ckpt" / policy.relative_to(forged)
            case _:
                pass
        path = draw.choice([forged, forged / INDEX, forged / ".." / "ckpt"])
        if draw.random() < 0.3:
            monkeypatch.setenv("TENSORKEEP_TRUST", str(policy))
            with pytest.raises(TrustError, match="never read from the checkpoint's own directory"):
                tensorkeep.open(path)
            monkeypatch.delenv("TENSORKEEP_TRUST")
        else:
            with pytest.raises(TrustError, match="never read from the checkpoint's own directory"):
                tensorkeep.load(path, trust=policy)


@pytest.mark.soak
def test_damaged_public_keys_trust_nobody_else(tmp_path: Path, place: Path) -> None:
    pem = KEY.public.pem()
    draw = random.Random(SEED)
    for _ in range(rounds(30, 1000)):
        broken = bytearray(pem)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        (tmp_path / "key.pub").write_bytes(broken)
        assert not _is_trusted(place / "other", tmp_path / "key.pub")


def _is_trusted(directory: Path, key: Path) -> bool:
    try:
        with tensorkeep.open(directory, trust=key):
            return True
    except TensorkeepError:
        return False
