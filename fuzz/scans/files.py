"""Random files of every kind that `scan` knows, inside each other, behind each other, and broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fuzz.pickle_mutations import FILE_MUTATIONS, mutated_file
from fuzz.pickle_seeds import files
from fuzz.scans.arrays import arrays
from fuzz.scans.chance import Chance
from fuzz.scans.keras_models import keras_hdf5
from fuzz.scans.squeezed import squeezed
from fuzz.scans.streams import legacy, state_dict, stream
from fuzz.scans.tars import any_tar, torch_tar, wrapped_in_a_pickle
from fuzz.scans.zip_files import any_zip, keras_zip, npz, package, torch_zip

__all__ = ["File", "random_file"]

_MAX_DEPTH = 3
_MAX_NBYTES = 2**21
_SUFFIXES = (
    "",
    ".pt",
    ".pkl",
    ".dat",
    ".npy",
    ".npz",
    ".bin",
    ".zip",
    ".keras",
    ".h5",
    ".nemo",
    ".joblib",
    ".safetensors",
)


class File(NamedTuple):
    """A file to be scanned.

    Attributes:
        name: Its name.
        data: Its bytes.
        notes: What is unusual about it.
    """

    name: str
    data: bytes
    notes: tuple[str, ...]


def random_file(seed: int, number: int) -> File:
    """Return a file; equal numbers give equal files."""
    chance = Chance(f"{seed}:{number}")
    data = _any(chance, 0)
    if chance.often(0.15) and data:
        chance.note("mutated")
        broken = bytearray(data)
        for _ in range(chance.choice((1, 1, 2))):
            if broken:
                chance.choice(FILE_MUTATIONS)(chance, broken)
        data = bytes(broken)
    name = f"f{chance.choice(_SUFFIXES)}"
    return File(name, data[:_MAX_NBYTES], tuple(sorted(chance.notes)))


def _any(chance: Chance, depth: int) -> bytes:
    """Return the bytes of any kind of file; the deeper, the more often a plain pickle."""
    inner = partial(_any, chance, depth + 1)
    if depth and chance.often(0.2):
        return chance.choice((b"text", b"", b"\x80\x04" + chance.call() + b".", chance.call() + b"."))
    if depth >= _MAX_DEPTH or chance.often(0.25 * depth):
        return stream(chance)
    kinds: tuple[tuple[int, Callable[[Chance, Callable[[], bytes]], bytes]], ...] = (
        *(
            (30, stream),
            (12, state_dict),
            (8, legacy),
            (10, arrays),
            (8, any_zip),
            (6, npz),
            (14, torch_zip),
            (5, package),
        ),
        *(
            (2, keras_zip),
            (2, keras_hdf5),
            (8, any_tar),
            (5, torch_tar),
            (6, _squeezed),
            (8, _polyglot),
            (1, _after_nothing),
            (3, _seed),
        ),
    )
    (make,) = chance.choices([make for _, make in kinds], [weight for weight, _ in kinds])
    return make(chance, inner)


def _squeezed(chance: Chance, inner: Callable[[], bytes]) -> bytes:
    return squeezed(chance, inner())


def _seed(chance: Chance, _: Callable[[], bytes]) -> bytes:
    chance.note("a broken file of torch")
    return mutated_file(chance, files())


def _polyglot(chance: Chance, inner: Callable[[], bytes]) -> bytes:
    """Return two files in one."""
    one, other = inner(), inner()
    roll = chance.random()
    if roll < 0.35:
        tar = chance.choice((any_tar, torch_tar))(chance, inner)
        return wrapped_in_a_pickle(chance, tar, other if chance.often(0.2) else b"")
    if roll < 0.5:
        chance.note("file after file")
        return one + other
    if roll < 0.6:
        chance.note("file after zeros")
        return bytes(chance.choice((1, 8, 512, 1024, 10_240))) + one
    if roll < 0.8:
        chance.note("file after tensors")
        return _safetensors(chance, one)
    chance.note("zip after file")
    return one + any_zip(chance, inner)


def _after_nothing(chance: Chance, inner: Callable[[], bytes]) -> bytes:
    """Return an archive after more zeros than any reader looks at, perhaps inside another archive."""
    chance.note("file after much of nothing")
    data = chance.choice((b"\0", b" ")) * 70_000 + chance.choice((any_zip, torch_zip))(chance, inner)
    return chance.choice((any_zip(chance, lambda: data), any_tar(chance, lambda: data), data))


def _safetensors(chance: Chance, content: bytes) -> bytes:
    """Return a file of tensors that contains another; the length of its header may be opcodes."""
    header = b'{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (len(content), len(content))
    length = chance.choice((len(header), len(header), 0x58, 0x42, 0x4E, 0x154, 0x158))
    header = header.ljust(length)
    return len(header).to_bytes(8, "little") + header + content
