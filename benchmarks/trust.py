"""Signatures and encryption: what they add to hashing, opening, slicing and loading."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import cryptography.hazmat.primitives.asymmetric.ec  # noqa: F401 - here, so that no contender has to import it
import numpy as np

import tensorkeep
from benchmarks import inputs
from benchmarks.case import AtLeast, AtMostOver, Case, Contender, Place
from tensorkeep.signing import PrivateKey

__all__ = ["CASES"]


class _Signed:
    """A directory with a checkpoint that was saved and signed once, and the files of its key beside it."""

    def __init__(self, directory: Path, state: dict[str, Any], **options: Any) -> None:
        self.directory = directory
        self.public = directory.with_suffix(".pub")
        private = directory.with_suffix(".pem")
        if not self.public.exists():
            tensorkeep.save_checkpoint(state, directory, **options)
            PrivateKey.generate().write(private)
            tensorkeep.sign(directory, private)
        self.key = PrivateKey.read(private)
        self.files = [path for path in directory.iterdir() if path.suffix != ".sig"]
        for path in self.files:
            inputs.read_into_cache(path)


def _many(place: Place) -> _Signed:
    n_tensors = place.size(100_000, 200)
    state = {f"layer.{number}.weight": np.full((16, 32), number, np.float32) for number in range(n_tensors)}
    return _Signed(place.folder / "signed-many", state)


def _large(place: Place) -> _Signed:
    return _Signed(place.folder / "signed-large", _weights(place), block_digests=True)


def _weights(place: Place) -> dict[str, Any]:
    n_rows = place.size(16_384, 64)
    return {f"w{number}": np.random.default_rng(number).random((n_rows, 1024), np.float32) for number in range(8)}


def _hash_all(job: _Signed) -> None:
    for path in job.files:
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


def _open(name: str, *, trusts: bool) -> Contender:
    def run(job: _Signed) -> None:
        tensorkeep.open(job.directory, trust=job.public if trusts else False).close()

    return Contender(name, run)


def _rows(name: str, *, trusts: bool) -> Contender:
    def read(job: _Signed) -> object:
        with tensorkeep.open(job.directory, trust=job.public if trusts else False) as opened:
            return opened["w3"][10:20]

    return Contender(name, read)


class _Encrypted:
    """The same tensors in two files, one of them encrypted."""

    def __init__(self, place: Place) -> None:
        self.key = tensorkeep.Key(bytes(range(32)))
        self.plain, self.encrypted = (place.folder / f"{name}.safetensors" for name in ("plain", "encrypted"))
        if not self.encrypted.exists():
            weights = _weights(place)
            tensorkeep.save(weights, self.plain)
            tensorkeep.save(weights, self.encrypted, encrypt=self.key)
        for path in (self.plain, self.encrypted):
            inputs.read_into_cache(path)


CASES = (
    Case(
        name="trust/sign",
        title="`sign` a checkpoint of 100,000 tensors, over hashing its files",
        prepare=_many,
        ours=Contender("tensorkeep", lambda job: tensorkeep.sign(job.directory, job.key)),
        peers=(Contender("SHA-256 of all files, by hashlib", _hash_all),),
        target=AtMostOver(1.0),
        has_memory=False,
    ),
    Case(
        name="trust/open",
        title="`open(trust=)` a signed checkpoint of 8 tensors, over `open`",
        prepare=_large,
        ours=_open("tensorkeep, trust=", trusts=True),
        peers=(_open("tensorkeep, unchecked", trusts=False),),
        target=AtMostOver(0.020),
        has_memory=False,
        remark="The public key is read, and the signature checked, each time; cryptography is imported before.",
    ),
    Case(
        name="trust/row",
        title="open it and read 10 of 16,384 rows, proven by digests of blocks",
        prepare=_large,
        ours=_rows("tensorkeep, trust=", trusts=True),
        peers=(_rows("tensorkeep, unchecked", trusts=False),),
        has_memory=False,
    ),
    Case(
        name="trust/load",
        title="`load` 537 MB, encrypted, against unencrypted",
        prepare=_Encrypted,
        ours=Contender("tensorkeep, key=", lambda job: tensorkeep.load(job.encrypted, key=job.key)),
        peers=(
            Contender(
                'tensorkeep, unencrypted, backend="pread"', lambda job: tensorkeep.load(job.plain, backend="pread")
            ),
        ),
        target=AtLeast(0.5),
    ),
)
