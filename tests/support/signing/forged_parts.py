"""Forgeries of what a signature proves: each changes one part of a checkpoint, as somebody without the key can.

The random ones flip bits and cut files; the careful ones put in the place of the part what is whole in itself: of
another save, or with all digests computed anew.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensorkeep
from tensorkeep.signing import PrivateKey, sign

Forge = Callable[[Path, Path, random.Random], None]
"""Changes a signed checkpoint; the second directory has another one with the same names and shapes."""

INDEX = "model.safetensors.index.json"


def save_signed(directory: Path, key: PrivateKey, offset: int = 0) -> dict[str, np.ndarray]:
    """Save and sign three shards with block digests, each tensor of several blocks."""
    draw = np.random.default_rng(offset)
    state = {f"w{n}": draw.integers(0, 2**31, (40, 1024), np.int32) for n in range(6)}
    tensorkeep.save_checkpoint(state, directory, max_shard_size="400KB", block_digests=True, durable=False)
    (directory / "config.json").write_text(f'{{"n": {offset}}}')
    sign(directory, key)
    return state


def _shard(directory: Path, draw: random.Random) -> Path:
    return draw.choice(sorted(directory.glob("*.safetensors")))


def _header_nbytes(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def _damage(path: Path, draw: random.Random, start: int = 0, stop: int | None = None) -> None:
    """Flip a bit, write over a few bytes, or cut the file."""
    content = bytearray(path.read_bytes())
    stop = len(content) if stop is None else stop
    at = draw.randrange(start, stop)
    match draw.randrange(4):
        case 0 | 1:
            content[at] ^= 1 << draw.randrange(8)
        case 2:
            new = draw.randbytes(min(draw.randrange(1, 64), stop - at))
            content[at : at + len(new)] = new if content[at : at + len(new)] != new else bytes(len(new))
        case _:
            del content[at : at + draw.randrange(1, 64)]
    path.write_bytes(content)


def _change_index(directory: Path, other: Path, draw: random.Random) -> None:
    index: dict[str, Any] = json.loads((directory / INDEX).read_bytes())
    names, files = sorted(index["weight_map"]), sorted(set(index["weight_map"].values()))
    match draw.randrange(4):
        case 0:
            index["weight_map"][draw.choice(names)] = draw.choice([*files, "../evil.safetensors", "evil.safetensors"])
            index["weight_map"]["extra"] = files[0]
        case 1:
            del index["weight_map"][draw.choice(names)]
        case 2:
            del index["metadata"]["tensorkeep"]
        case _:
            index["metadata"]["note"] = draw.random()
    (directory / INDEX).write_text(json.dumps(index))


def _swap_tensors(directory: Path, other: Path, draw: random.Random) -> None:
    """Swap the bytes of two tensors, so that all are there, at another name."""
    path = _shard(directory, draw)
    with tensorkeep.open(path) as opened:
        spans = [opened.span_of(name) for name in draw.sample(sorted(opened), 2)]
    content = bytearray(path.read_bytes())
    first, second = (bytes(content[span.start : span.stop]) for span in spans)
    content[spans[0].start : spans[0].stop], content[spans[1].start : spans[1].stop] = second, first
    path.write_bytes(content)


def _swap_blocks(directory: Path, other: Path, draw: random.Random) -> None:
    """Swap two blocks of one tensor."""
    path = _shard(directory, draw)
    content = bytearray(path.read_bytes())
    with tensorkeep.open(path) as opened:
        start = opened.span_of(draw.choice(sorted(opened))).start
    first, second = content[start : start + 65536], content[start + 65536 : start + 131072]
    content[start : start + 131072] = second + first
    path.write_bytes(content)


def _data_of_another(directory: Path, other: Path, draw: random.Random) -> None:
    path = _shard(directory, draw)
    at = _header_nbytes(path)
    path.write_bytes(path.read_bytes()[:at] + (other / path.name).read_bytes()[at:])


def _header_of_another(directory: Path, other: Path, draw: random.Random) -> None:
    path = _shard(directory, draw)
    at = _header_nbytes(path)
    path.write_bytes((other / path.name).read_bytes()[:at] + path.read_bytes()[at:])


def _copies(*suffixes: str) -> Forge:
    """Replace files by another save's, which are whole and fit each other."""

    def copy(directory: Path, other: Path, draw: random.Random) -> None:
        stem = draw.choice(sorted(path.name for path in directory.glob("*.safetensors")))
        for suffix in suffixes:
            name = suffix if suffix == INDEX else stem + suffix
            shutil.copy(other / name, directory / name)

    return copy


def _shards_swapped(directory: Path, other: Path, draw: random.Random) -> None:
    first, second = draw.sample(sorted(directory.glob("*.safetensors")), 2)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def _damage_in(pattern: str) -> Forge:
    return lambda directory, other, draw: _damage(draw.choice(sorted(directory.glob(pattern))), draw)


def _damage_data(directory: Path, other: Path, draw: random.Random) -> None:
    path = _shard(directory, draw)
    _damage(path, draw, start=_header_nbytes(path))


def _damage_header(directory: Path, other: Path, draw: random.Random) -> None:
    path = _shard(directory, draw)
    _damage(path, draw, stop=_header_nbytes(path))


PARTS: dict[str, tuple[Forge, ...]] = {
    "index": (_damage_in(INDEX), _change_index, _copies(INDEX)),
    "header": (_damage_header, _header_of_another, _shards_swapped, _copies(""), _copies("", INDEX)),
    "tensor bytes": (_damage_data, _swap_tensors, _swap_blocks, _data_of_another),
    "block digests": (
        _damage_in("*.blocks"),
        _copies(".blocks"),
        _copies("", ".blocks"),
        _copies("", ".blocks", INDEX),
    ),
    "another file": (_damage_in("config.json"), _damage_in("model.sig")),
}
"""Which part is forged, to the ways to do so."""
